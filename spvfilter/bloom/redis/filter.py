"""RedisBloomFilter: a Bloom filter in Redis that many machines share; it needs no Redis module."""

from __future__ import annotations

import math
import warnings
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Self, overload

from spvfilter._public import public
from spvfilter.bloom import fileformat, sizing
from spvfilter.bloom.base import Encode, OnFull, allocate, share_of, spare_keys
from spvfilter.bloom.batch import Batch
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.redis import scripts as scripts
from spvfilter.bloom.redis.client import check_client, command, run, stored_header
from spvfilter.bloom.redis.layout import Layout, Shape, header_key
from spvfilter.errors import (
    CapacityError,
    CapacityWarning,
    MismatchError,
    ParameterError,
    RemoteError,
    RemoteExistsError,
)
from spvfilter.kernel import Encoding

if TYPE_CHECKING:
    from spvfilter.bloom.redis.client import Client
    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray
    from spvfilter.kernel.masks import BoolMask

SHARD_SIZE = 16 << 20  # bytes; growing a string to this size takes Redis about 10 ms, to its limit about half a second
CHUNK_KEYS = 1_000  # keys of a batch per script
CHUNK_PROBES = 1 << 14  # bits per script, which keep the server busy for some 50 ms
STAGED_TTL = 3_600_000  # ms after which an unfinished upload expires
_MAX_EXPIRE = 10**10  # seconds; more would overflow Redis's clock


@public
class RedisBloomFilter:
    """A Bloom filter in Redis >= 6.2 or Valkey for any number of readers and writers, made by `create`, `create_from`
    or `open`.

    `client` is any redis.asyncio client, `name` the filter's name; its keys are {name}:header and {name}:bits:0 … (see
    layout.py). Every operation compares the header, so a filter that was created again with another shape is refused. A
    SipHash key is part of the header: whoever can read it can choose keys that fill the filter.

    Each operation on a key is one atomic script: it sets all bits of the key or none, also across shards, and if
    several writers add the same key at once, exactly one of them learns that it was new. Batches are split into chunks
    of up to 1,000 keys, one script each. If the answer is lost (RemoteConnectionError, or the task is cancelled), the
    operation may have been executed. All operations except `create` and `delete` can then be repeated safely, but a
    repeated `add` reports a key as not new if its first attempt added it. A client that retries by itself, as
    redis-py's do from version 6 on, hides this; clients made by `redis.client.connect` do not retry.

    A filter with a capacity is full, as BloomFilter's `on_full` describes, once its bits tell of more keys than that by
    four standard deviations. Each writer counts them now and then, so that w writers together may add up to w/16 of the
    capacity more.

    Every operation may raise, besides its own errors: RemoteConnectionError; RemoteMissingError if the filter is gone
    or a part of it was evicted (never a wrong "not contained"); MismatchError if it was recreated; RemoteTypeError;
    RemoteFullError and RemoteReadOnlyError if there is something to write (adding a key whose bits are all set writes
    nothing); RemoteError for other errors of the server.
    """

    def __init__(self, client: Client, layout: Layout) -> None:
        """For the class methods; does not contact the server."""
        self.client = client
        self.name = layout.name
        self.bits = layout.shape.bits
        self.hash_funcs = layout.shape.hash_funcs
        self.capacity = layout.shape.capacity
        self.nominal_fp_rate = layout.shape.nominal_fp_rate
        self.hashing = layout.shape.hashing
        self.partitioned = layout.shape.partitioned
        self.shard_size = layout.shard_size
        self.on_full = layout.shape.on_full
        self._layout = layout
        # new keys to add before the bits are counted again; None: no limit
        self._room: float | None = 0 if self.capacity else None

    @property
    def encoding(self) -> Encoding:
        """The keys' encoding."""
        return self._layout.shape.encoding

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
        on_full: OnFull = "raise",
        shard_size: int = SHARD_SIZE,
        expire: float | None = None,
        exist_ok: bool = False,
    ) -> Self:
        """Create an empty filter.

        The arguments for its shape are BloomFilter's; `shard_size` is in bytes, `expire` in seconds.

        With `exist_ok`, an existing filter that was made with the same arguments is opened and keeps its time to live.
        Leftover bits without a header are overwritten. Raises RemoteExistsError; MismatchError if the existing filter
        was made with other arguments; FormatError if the existing value is not a filter; ParameterError.
        """
        check_client(client)
        options = {"bits": bits, "hashing": hashing, "encode": encode, "partitioned": partitioned, "on_full": on_full}
        # of several types
        shape = Shape(capacity, fp_rate, hash_funcs, buffer=b"", **options)  # type: ignore[arg-type]
        made = cls(client, Layout(name, shape, shard_size))
        there = await made._create(expire)
        if there is not None:
            if not exist_ok:
                raise RemoteExistsError(f"a filter at {name!r} already exists")
            made._layout.refuse_another(there)
        return made

    @classmethod
    async def create_from(
        cls, client: Client, name: str, local: BloomFilter, *, shard_size: int = SHARD_SIZE, expire: float | None = None
    ) -> Self:
        """Create a filter with the shape and the bits of a local one. It appears atomically.

        Raises RemoteExistsError, ParameterError.
        """
        check_client(client)
        made = cls(client, Layout(name, Shape.of(local), shard_size))
        async with made._staged(local) as staged:
            if await made._create(expire, staged) is not None:
                raise RemoteExistsError(f"a filter at {name!r} already exists")
        return made

    @classmethod
    async def open(
        cls,
        client: Client,
        name: str,
        *,
        hashing: HashFamily | None = None,
        encode: Encode = None,
        on_full: OnFull = "raise",
    ) -> Self:
        """Open an existing filter.

        Custom `hashing` and `encode` must be passed again; any that are passed are compared.

        Raises RemoteMissingError; FormatError if the value is not a filter; ParameterError if it was made with other
        arguments.
        """
        raw = await stored_header(client, name, header_key(name))
        return cls(client, Layout.parse(name, raw, hashing, encode, on_full))

    async def _create(self, expire: float | None, staged: Iterable[bytes] = ()) -> bytes | None:
        layout = self._layout
        keys = [layout.header_key, *layout.shard_keys(), *staged]
        last = min(layout.shard_size, layout.size) * 8 - 1
        there = await run(self.client, scripts.CREATE, keys, layout.header, layout.shards, milliseconds(expire), last)
        assert there is None or isinstance(there, bytes)
        return there

    async def _run(self, script: scripts.Script, keys: Iterable[bytes], *arguments: bytes | int | str) -> object:
        return await run(self.client, script, [self._layout.header_key, *keys], self._layout.header, *arguments)

    async def add(self, key: object) -> bool:
        """Add a key; True if it was new, that is, if any of its bits was not set before.

        Raises TypeError, CapacityError.
        """
        return bool((await self.add_many([key]))[0])

    async def contains(self, key: object) -> bool:
        """Whether the key was added; false positives occur at the filter's rate. Raises TypeError."""
        return bool((await self._probe(scripts.CONTAINS, [key]))[0])

    @overload
    async def add_many(  # type: ignore[overload-overlap]  # an array is an iterable, too
        self, keys: NumpyArray, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    async def add_many(self, keys: Column, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    async def add_many(self, keys: Iterable[object], *, nulls: Nulls = "raise") -> bytes: ...
    async def add_many(self, keys: Keys, *, nulls: Nulls = "raise") -> bytes | Mask:
        """Add a batch and return one byte per key, 1 if it was new, else 0, as if they were added one after the other.

        The batch is a local filter's, a column also, and so is the mask; `nulls` is that of BloomFilter.update. If it
        fails, the keys of some chunks have been added. Raises TypeError, ColumnError; CapacityError after adding the
        keys before the refused one.
        """
        batch = Batch(keys, nulls, self.encoding)
        # that of the keys' library
        return batch.answer(b"".join([mask async for mask in self._added(batch)]))  # type: ignore[return-value]

    async def update(self, keys: Keys, *, nulls: Nulls = "raise") -> int:
        """Add a batch in constant memory, and return the number of new keys.

        Raises CapacityError and the other errors of `add_many`.
        """
        new = 0
        async for mask in self._added(Batch(keys, nulls, self.encoding)):
            new += mask.count(1)
        return new

    async def _added(self, keys: Iterable[object]) -> AsyncIterator[bytes]:
        """The masks of keys that are added, chunk by chunk."""
        async for chunk in self._chunks(keys):
            while chunk:
                fits = await self._fitting(chunk)
                mask = await self._probe(scripts.ADD, chunk[:fits])
                if self._room is not None:
                    self._room -= mask.count(1)
                chunk = chunk[fits:]
                yield mask

    async def _fitting(self, chunk: list[object]) -> int:
        """How many of these keys may be added before the bits are counted again. Raises CapacityError if it is none."""
        if self._room is not None and self._room <= 0:
            await self._make_room()
        if self._room is None:
            return len(chunk)
        if self._room > 0:
            return min(len(chunk), math.ceil(self._room))
        known = await self._probe(scripts.CONTAINS, chunk)  # which need no room
        if known[0]:
            return len(known) - len(known.lstrip(b"\1"))
        count, rate = await self.approx_len(), await self.current_fp_rate()
        held = (
            f"{self.capacity} keys at {self.nominal_fp_rate:g}, holds about {count:.0f} and has a rate of"
            f" {rate:.3g} now"
        )
        if self.on_full == "warn":
            self._room = None
            warnings.warn(
                f"{self.name!r}, a filter made for {held}: its rate grows with every further key",
                CapacityWarning,
                stacklevel=4,
            )
            return len(chunk)
        whole = round(count) if math.isfinite(count) else self.bits
        raise CapacityError(
            f"{self.name!r}, a filter made for {held}", count=whole, capacity=self.capacity, fp_rate=rate
        )

    async def _make_room(self) -> None:
        """Count the bits, and take a share of what room they leave: there may be other writers."""
        assert self.capacity is not None
        left = self.capacity - await self.approx_len() + spare_keys(self.bits, self.hash_funcs, self.capacity)
        self._room = share_of(left, self.capacity)

    @overload
    async def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable, too
        self, keys: NumpyArray, *, nulls: Nulls = "raise"
    ) -> BoolMask: ...
    @overload
    async def contains_many(self, keys: Column, *, nulls: Nulls = "raise") -> Mask: ...
    @overload
    async def contains_many(self, keys: Iterable[object], *, nulls: Nulls = "raise") -> bytes: ...
    async def contains_many(self, keys: Keys, *, nulls: Nulls = "raise") -> bytes | Mask:
        """One byte per key of a batch, 1 if it is contained, else 0, as of `add_many`.

        Raises TypeError, ColumnError.
        """
        batch = Batch(keys, nulls, self.encoding)
        found = [await self._probe(scripts.CONTAINS, chunk) async for chunk in self._chunks(batch)]
        return batch.answer(b"".join(found))  # type: ignore[return-value]  # that of the keys' library

    async def _chunks(self, keys: Iterable[object]) -> AsyncIterator[list[object]]:
        at_once = max(1, min(CHUNK_KEYS, CHUNK_PROBES // self.hash_funcs))
        iterator = iter(keys)
        while chunk := list(islice(iterator, at_once)):
            yield chunk

    async def _probe(self, script: scripts.Script, keys: list[object]) -> bytes:
        shards, probes = self._layout.probes(keys)
        mask = await self._run(script, shards, probes, self.hash_funcs)
        assert isinstance(mask, bytes)
        return mask

    async def union_update(self, other: RedisBloomFilter | BloomFilter) -> None:
        """Atomically add the keys of another filter.

        A filter in Redis must have been opened with the same client, and in a cluster share the hash tag (names
        "{shop}:a" and "{shop}:b"). A local filter is uploaded first; until it is merged, the server holds both. The
        server is blocked for about two seconds per GB. Raises MismatchError, ParameterError.
        """
        if isinstance(other, BloomFilter):
            self._layout.shape.same_shape(other)
            async with self._staged(other) as staged:
                await self._load("union", staged)
            return
        if other.client is not self.client:
            raise ParameterError(
                f"{self.name!r} and {other.name!r} belong to different clients: pass a snapshot() of the other filter"
            )
        theirs = other._layout
        self._layout.shape.same_shape(theirs.shape)
        if other.shard_size != self.shard_size:
            raise MismatchError(f"the shards differ in size: {self.shard_size} and {other.shard_size} bytes")
        await self._load("union", [*theirs.shard_keys(), theirs.header_key], theirs.header)

    async def load(self, local: BloomFilter) -> None:
        """Upload a local filter and atomically replace the bits by its bits. During the upload the server holds both.

        Keys that others add during the upload are lost; `union_update` keeps them. Raises MismatchError.
        """
        self._layout.shape.same_shape(local)
        async with self._staged(local) as staged:
            await self._load("replace", staged)

    async def _load(self, how: str, sources: Iterable[bytes], *source_header: bytes) -> None:
        await self._run(scripts.LOAD, [*self._layout.shard_keys(), *sources], self._layout.shards, how, *source_header)

    @asynccontextmanager
    async def _staged(self, local: BloomFilter) -> AsyncIterator[list[bytes]]:
        """Upload a local filter's bits under temporary keys, which are deleted afterwards."""
        body = local.body
        keys = self._layout.staging_keys()
        try:
            for shard, at, end in self._layout.pieces():
                start = shard * self.shard_size
                raw = bytes(body[start + at : start + end]).rstrip(b"\0")
                if raw or not at:  # bytes that are not written are zero
                    await run(self.client, scripts.STAGE, [keys[shard]], at, raw or b"\0", STAGED_TTL)
            yield keys
        finally:
            with suppress(RemoteError):  # the keys expire by themselves
                await command(self.client, keys, "UNLINK", *keys)

    async def snapshot(self) -> BloomFilter:
        """A local filter with the same bits.

        It contains all keys added before; keys added meanwhile may be missing or partly set.

        If others `clear` or `load` meanwhile, it may be a mixture. Raises TooLargeError, and FormatError if padding
        bits are set.
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
        """Atomically set every bit to 0. The time to live is kept."""
        await self._run(scripts.CLEAR, self._layout.shard_keys())

    async def delete(self) -> None:
        """Atomically delete the filter."""
        await self._run(scripts.DELETE, self._layout.shard_keys())

    async def expire(self, seconds: float | None) -> None:
        """Let the whole filter expire after `seconds`; None: never. Raises ParameterError."""
        await self._run(scripts.EXPIRE, self._layout.shard_keys(), milliseconds(seconds))

    async def ttl(self) -> float | None:
        """The seconds until the filter expires; None if it does not expire."""
        left = await self._run(scripts.TTL, ())
        assert isinstance(left, int)
        return None if left < 0 else left / 1000

    async def _plane_set_bits(self) -> list[int]:
        """The number of set bits in each function's plane, or in total if not partitioned.

        Bits set meanwhile may be counted.
        """
        planes = [0] * (self.hash_funcs if self.partitioned else 1)
        for shards, ranges, of_planes in self._layout.counts():
            counts = await self._run(scripts.COUNT, shards, ranges)
            assert isinstance(counts, list)
            for plane, count in zip(of_planes, counts, strict=True):
                planes[plane] += count
        return planes

    async def set_bits(self) -> int:
        """The number of set bits."""
        return sum(await self._plane_set_bits())

    async def fill(self) -> float:
        """The share of set bits, 0 to 1."""
        return await self.set_bits() / self.bits

    async def approx_len(self) -> float:
        """The estimated number of distinct keys; infinite if every bit is set."""
        return sizing.estimate_items(self.bits, self.hash_funcs, await self.set_bits())

    async def current_fp_rate(self) -> float:
        """The present false-positive rate: (X/m)^k, or the product of the planes' fills if partitioned."""
        planes = await self._plane_set_bits()
        if self.partitioned:
            return math.prod(count * self.hash_funcs / self.bits for count in planes)
        return sizing.fp_rate_of_fill(self.bits, self.hash_funcs, planes[0])

    def __repr__(self) -> str:
        return (
            f"<RedisBloomFilter {self.name!r} m={self.bits}, k={self.hash_funcs}, {self._layout.shards} shards of"
            f" {self.shard_size} bytes>"
        )


def milliseconds(seconds: float | None) -> int:
    """Seconds as milliseconds, -1 for never. Raises ParameterError outside the range that Redis accepts."""
    if seconds is None:
        return -1
    if not 0 < seconds <= _MAX_EXPIRE:
        raise ParameterError(f"expire must be above 0 and at most {_MAX_EXPIRE} seconds: {seconds}")
    return max(1, round(seconds * 1000))
