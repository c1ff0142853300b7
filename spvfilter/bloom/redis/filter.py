"""RedisBloomFilter, a generic Bloom filter that many machines share through a plain Redis. No module of Redis's, no bits kept here."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Self

from spvfilter._public import public
from spvfilter.bloom import fileformat, sizing
from spvfilter.bloom.base import Encode, allocate
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.redis import scripts as scripts
from spvfilter.bloom.redis.client import check_client, command, run
from spvfilter.bloom.redis.layout import Layout, Shape, header_key
from spvfilter.errors import MismatchError, ParameterError, RemoteError, RemoteExistsError, RemoteMissingError

if TYPE_CHECKING:
    from spvfilter.bloom.redis.client import Client

SHARD_SIZE = 16 << 20  # bytes; lengthening a string to that takes Redis about 10 ms, to its limit about half a second
_CHUNK_KEYS = 1_000  # of a batch, in one script
_CHUNK_PROBES = 1 << 14  # and at most so many bits, which keep the server for some 50 ms
_STAGED_TTL = 3_600_000  # ms after which an upload that was never finished goes away
_MAX_EXPIRE = 10**10  # seconds; what Redis can add to its clock


@public
class RedisBloomFilter:
    """A Bloom filter in Redis >= 6.2 or Valkey, made by `create`, `create_from` or `open`, for as many writers as you like.

    `client` is a redis.asyncio client of any kind, `name` the filter's; its keys are {name}:header and {name}:bits:0 … (see
    redis_layout.py). The header is compared by every operation: a filter made anew with another shape is refused. A SipHash key is in
    the header: who may read it can choose keys that fill the filter.

    Each operation on a key is one script and atomic: all of a key's bits are set or none, also across shards, and of many writers that
    add one key at once just one is told that it is new. Batches go in chunks of up to 1,000 keys, each one script. When the answer is
    lost (RemoteConnectionError, or the task is cancelled) the operation may have been done. All but `create` and `delete` can then be
    repeated, and the repeated one repairs; only that an `add` says "not new" of a key that its own first attempt has added. A client
    that retries by itself, as redis-py's do from version 6, hides this; those that `redis_client.connect` makes do not retry.

    Raises, besides what is said of each: RemoteConnectionError; RemoteMissingError where the filter is gone or a part of it was evicted
    (never a wrong "not contained"); MismatchError where it was made anew; RemoteTypeError; RemoteFullError and RemoteReadOnlyError
    where there is something to write (a key whose bits are all set is "not new" without); RemoteError for what else the server says.
    """

    def __init__(self, client: Client, layout: Layout) -> None:
        """For the class methods: asks the server nothing."""
        self.client = client
        self.name = layout.name
        self.bits = layout.shape.bits
        self.hash_funcs = layout.shape.hash_funcs
        self.capacity = layout.shape.capacity
        self.nominal_fp_rate = layout.shape.nominal_fp_rate
        self.hashing = layout.shape.hashing
        self.partitioned = layout.shape.partitioned
        self.shard_size = layout.shard_size
        self._layout = layout

    @classmethod
    async def create(
        cls,
        client: Client,
        name: str,
        capacity: int | None = None,
        fp_rate: float | None = None,
        hash_funcs: int | None = None,
        *,
        bits: int | None = None,
        hashing: HashFamily | None = None,
        encode: Encode = None,
        partitioned: bool = False,
        shard_size: int = SHARD_SIZE,
        expire: float | None = None,
        exist_ok: bool = False,
    ) -> Self:
        """A new, empty filter; its shape is given as BloomFilter's, `shard_size` in bytes, `expire` in seconds.

        With `exist_ok` one that is there already and was made with the same arguments is taken as it is, and lives as long as it was
        to. Bits left over without a header are overwritten. Raises RemoteExistsError; MismatchError where what is there was made
        otherwise; FormatError where it is no filter; ParameterError.
        """
        check_client(client)
        options = {"bits": bits, "hashing": hashing, "encode": encode, "partitioned": partitioned}
        shape = Shape(capacity, fp_rate, hash_funcs, buffer=b"", **options)  # type: ignore[arg-type]  # of several types
        made = cls(client, Layout(name, shape, shard_size))
        there = await made._create(expire)
        if there is not None:
            if not exist_ok:
                raise RemoteExistsError(f"there is a filter at {name!r} already")
            made._layout.refuse_another(there)
        return made

    @classmethod
    async def create_from(
        cls, client: Client, name: str, local: BloomFilter, *, shard_size: int = SHARD_SIZE, expire: float | None = None
    ) -> Self:
        """A new filter with the shape and the bits of a local one; it appears as a whole. Raises RemoteExistsError, ParameterError."""
        check_client(client)
        made = cls(client, Layout(name, Shape.of(local), shard_size))
        async with made._staged(local) as staged:
            if await made._create(expire, staged) is not None:
                raise RemoteExistsError(f"there is a filter at {name!r} already")
        return made

    @classmethod
    async def open(cls, client: Client, name: str, *, hashing: HashFamily | None = None, encode: Encode = None) -> Self:
        """The filter that is there. `hashing` and `encode` are needed where they are the user's own, and compared where given.

        Raises RemoteMissingError; FormatError where what is there is no filter; ParameterError where it was made otherwise.
        """
        check_client(client)
        key = header_key(name)
        raw = await command(client, [key], "GET", key)
        if raw is None:
            raise RemoteMissingError(f"no filter at {name!r}: it was never made, has expired, was deleted or evicted")
        assert isinstance(raw, bytes)
        return cls(client, Layout.parse(name, raw, hashing, encode))

    async def _create(self, expire: float | None, staged: Iterable[bytes] = ()) -> bytes | None:
        layout = self._layout
        keys = [layout.header_key, *layout.shard_keys(), *staged]
        last = min(layout.shard_size, layout.size) * 8 - 1
        there = await run(self.client, scripts.CREATE, keys, layout.header, layout.shards, _milliseconds(expire), last)
        assert there is None or isinstance(there, bytes)
        return there

    async def _run(self, script: scripts.Script, keys: Iterable[bytes], *arguments: bytes | int | str) -> object:
        return await run(self.client, script, [self._layout.header_key, *keys], self._layout.header, *arguments)

    async def add(self, key: object) -> bool:
        """Set the key's bits; True if it was new, that is, if any of them was not set before. Raises TypeError."""
        return bool((await self._probe(scripts.ADD, [key]))[0])

    async def contains(self, key: object) -> bool:
        """Whether the key was added, or seems so at the filter's rate. Raises TypeError."""
        return bool((await self._probe(scripts.CONTAINS, [key]))[0])

    async def add_many(self, keys: Iterable[object]) -> bytes:
        """Add a batch; for each key one byte, 1 if it was new, else 0, as if they were added one after the other.

        If it fails, the keys of some of the chunks are in. Raises TypeError.
        """
        return b"".join([mask async for mask in self._masks(scripts.ADD, keys)])

    async def update(self, keys: Iterable[object]) -> int:
        """As `add_many`, in constant memory; how many were new."""
        new = 0
        async for mask in self._masks(scripts.ADD, keys):
            new += mask.count(1)
        return new

    async def contains_many(self, keys: Iterable[object]) -> bytes:
        """For each key of a batch one byte, 1 if it is contained, else 0. Raises TypeError."""
        return b"".join([mask async for mask in self._masks(scripts.CONTAINS, keys)])

    async def _masks(self, script: scripts.Script, keys: Iterable[object]) -> AsyncIterator[bytes]:
        if isinstance(keys, (bytes, bytearray, str)):
            raise TypeError(f"a batch of keys expected, not one {type(keys).__name__}")
        at_once = max(1, min(_CHUNK_KEYS, _CHUNK_PROBES // self.hash_funcs))
        iterator = iter(keys)
        while chunk := list(islice(iterator, at_once)):
            yield await self._probe(script, chunk)

    async def _probe(self, script: scripts.Script, keys: list[object]) -> bytes:
        shards, probes = self._layout.probes(keys)
        mask = await self._run(script, shards, probes, self.hash_funcs)
        assert isinstance(mask, bytes)
        return mask

    async def union_update(self, other: RedisBloomFilter | BloomFilter) -> None:
        """Add at once all that another filter contains.

        One in Redis must be opened with the same client, and in a cluster have the same hash tag (names "{shop}:a" and "{shop}:b"); a
        local one is uploaded first, and until then the server holds both. The server does nothing else for about two
        seconds per GB. Raises MismatchError, ParameterError.
        """
        if isinstance(other, BloomFilter):
            self._layout.shape.same_shape(other)
            async with self._staged(other) as staged:
                await self._load("union", staged)
            return
        if other.client is not self.client:
            raise ParameterError(f"{self.name!r} and {other.name!r} are of different clients: take a snapshot() of the other")
        theirs = other._layout
        self._layout.shape.same_shape(theirs.shape)
        if other.shard_size != self.shard_size:
            raise MismatchError(f"shards of different size: {self.shard_size} and {other.shard_size} bytes")
        await self._load("union", [*theirs.shard_keys(), theirs.header_key], theirs.header)

    async def load(self, local: BloomFilter) -> None:
        """Replace the bits at once by a local filter's, after an upload; until then the server holds both.

        What others add during the upload is lost: where they do, `union_update`. Raises MismatchError.
        """
        self._layout.shape.same_shape(local)
        async with self._staged(local) as staged:
            await self._load("replace", staged)

    async def _load(self, how: str, sources: Iterable[bytes], *source_header: bytes) -> None:
        await self._run(scripts.LOAD, [*self._layout.shard_keys(), *sources], self._layout.shards, how, *source_header)

    @asynccontextmanager
    async def _staged(self, local: BloomFilter) -> AsyncIterator[list[bytes]]:
        """A local filter's bits on the server, under keys of their own that go away afterwards."""
        body = local.body
        keys = self._layout.staging_keys()
        try:
            for shard, at, end in self._layout.pieces():
                start = shard * self.shard_size
                raw = bytes(body[start + at : start + end]).rstrip(b"\0")
                if raw or not at:  # what is not written is zero
                    await run(self.client, scripts.STAGE, [keys[shard]], at, raw or b"\0", _STAGED_TTL)
            yield keys
        finally:
            with suppress(RemoteError):  # then they expire
                await command(self.client, keys, "UNLINK", *keys)

    async def snapshot(self) -> BloomFilter:
        """A local filter with the same bits. What was added before is in it; what others add meanwhile may be, or some of its bits.

        While others `clear` or `load` it may be a mix. Raises TooLargeError; FormatError where bits beyond the last are set.
        """
        layout = self._layout
        local = layout.shape.filled(allocate(layout.size))
        body = memoryview(local.buffer).cast("B")
        for shard, at, end in layout.pieces():
            raw = await self._run(scripts.READ, [layout.shard_key(shard)], at, end - 1)
            assert isinstance(raw, bytes)
            start = shard * self.shard_size + at
            body[start : start + len(raw)] = raw
        fileformat.check_padding(local.header(), body[-1])
        return local

    async def clear(self) -> None:
        """Set every bit to 0, at once; the time to live stays."""
        await self._run(scripts.CLEAR, self._layout.shard_keys())

    async def delete(self) -> None:
        """Delete the filter, at once."""
        await self._run(scripts.DELETE, self._layout.shard_keys())

    async def expire(self, seconds: float | None) -> None:
        """Let the filter go away as a whole after so long; None: never. Raises ParameterError."""
        await self._run(scripts.EXPIRE, self._layout.shard_keys(), _milliseconds(seconds))

    async def ttl(self) -> float | None:
        """Seconds until the filter goes away; None: it does not."""
        left = await self._run(scripts.TTL, ())
        assert isinstance(left, int)
        return None if left < 0 else left / 1000

    async def _plane_set_bits(self) -> list[int]:
        """How many bits are 1 in each function's plane, or in all; bits set meanwhile may be counted."""
        planes = [0] * (self.hash_funcs if self.partitioned else 1)
        for shards, ranges, of_planes in self._layout.counts():
            counts = await self._run(scripts.COUNT, shards, ranges)
            assert isinstance(counts, list)
            for plane, count in zip(of_planes, counts, strict=True):
                planes[plane] += count
        return planes

    async def set_bits(self) -> int:
        """How many bits are 1."""
        return sum(await self._plane_set_bits())

    async def fill(self) -> float:
        """Share of the bits that are set, 0 to 1."""
        return await self.set_bits() / self.bits

    async def approx_len(self) -> float:
        """How many different keys were probably added; infinite when every bit is set."""
        return sizing.estimate_items(self.bits, self.hash_funcs, await self.set_bits())

    async def current_fp_rate(self) -> float:
        """Probability that a key never added is contained, as the filter stands: (X/m)^k, or of planes the product of their fills."""
        planes = await self._plane_set_bits()
        if self.partitioned:
            return math.prod(count * self.hash_funcs / self.bits for count in planes)
        return sizing.fp_rate_of_fill(self.bits, self.hash_funcs, planes[0])

    def __repr__(self) -> str:
        return (
            f"<RedisBloomFilter {self.name!r} m={self.bits}, k={self.hash_funcs}, {self._layout.shards} shards of {self.shard_size} bytes>"
        )


def _milliseconds(seconds: float | None) -> int:
    """-1 for never. Raises ParameterError unless it is above 0 and not absurd."""
    if seconds is None:
        return -1
    if not 0 < seconds <= _MAX_EXPIRE:
        raise ParameterError(f"expire is above 0 and up to {_MAX_EXPIRE} seconds: {seconds}")
    return max(1, round(seconds * 1000))
