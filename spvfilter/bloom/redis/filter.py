"""RedisBloomFilter: a Bloom filter in Redis that many machines share. It needs no Redis module."""

from __future__ import annotations

import math
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Self, TypeVar, overload

from spvfilter._public import public
from spvfilter.bloom import fileformat, rates, sizing
from spvfilter.bloom.base import Encode, OnFull, allocate, share_of, spare_keys
from spvfilter.bloom.batch import KeyBatch
from spvfilter.bloom.filter import BloomFilter, refuse_other_kinds
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.redis import scripts as scripts
from spvfilter.bloom.redis.client import check_client, command, run, stored_header
from spvfilter.bloom.redis.layout import MARK_SIZE, MAX_MARKS, BitlessFilter, RedisLayout, header_key
from spvfilter.errors import (
    CapacityError,
    CapacityWarning,
    FormatError,
    MismatchError,
    ParameterError,
    RemoteError,
    RemoteExistsError,
    RemoteMissingError,
    counted,
)
from spvfilter.kernel import Encoding, Family

if TYPE_CHECKING:
    from spvfilter.bloom.redis.client import Client
    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray, Padding
    from spvfilter.kernel.masks import BoolMask

SHARD_SIZE = 16 << 20
"""Default size of a shard in bytes (our choice): Redis needs about 10 ms to make a string of this size."""
CHUNK_KEYS = 1_000  # Keys of a batch in one script (our choice).
CHUNK_PROBES = 1 << 14  # Bits that one script reads or sets (our choice): the server is busy for about 50 ms.
STAGED_TTL = 3_600_000  # Milliseconds after which an unfinished upload expires (our choice).
_MOST_TRIES = 20  # Times that an operation is retried because the filter was replaced (our choice).
T = TypeVar("T")
_MAX_EXPIRE = 10**10  # Seconds. A longer time would overflow Redis's clock.


@public
class RedisBloomFilter:
    """A Bloom filter in Redis >= 6.2 or Valkey for any number of readers and writers.

    Create one with `create`, `create_from` or `open`. The client is any redis.asyncio client; use `connect`, whose
    clients do not retry. Each operation on a key is one atomic script. If several writers add the same key at the same
    time, exactly one of them learns that it was new. Batches are split into scripts of up to 1,000 keys.

    If the answer is lost (RemoteConnectionError, or the task is cancelled), the server may have executed the operation.
    All operations except `create` and `delete` can be retried safely. A retried `add` reports a key as not new if the
    first attempt added it.

    A filter with a capacity is full if the estimate from its bits exceeds it by four standard deviations. Each of w
    writers estimates only now and then, so together they may add up to w/16 of the capacity beyond that.

    The header in Redis contains the key of SipHash: an attacker who reads it can choose keys that fill the filter.

    Raises:
        RemoteConnectionError: The server could not be reached, or the connection was lost.
        RemoteMissingError: The filter, or a part of it, is gone. The filter never wrongly answers "not contained".
        MismatchError: The filter was deleted and re-created with a different shape.
        RemoteTypeError: The value of one of the filter's keys in Redis is not a string.
        RemoteFullError: The operation writes, and the server is out of memory.
        RemoteReadOnlyError: The operation writes, and the server is a replica.
        RemoteError: The server reported another error.
    """

    bits: int
    """Number of bits m."""
    hash_funcs: int
    """Number of hash functions k."""
    capacity: int | None
    """Number of keys that the filter was made for. None if the caller gave a number of bits instead."""
    nominal_fp_rate: float | None
    """False-positive rate that the filter was made for. None if the caller gave a number of bits instead."""
    hashing: HashFamily
    """The hash family."""
    partitioned: bool
    """True if each hash function has its own plane of bits."""
    shard_size: int
    """Size in bytes of a shard: a string in Redis that stores a part of the bits."""
    on_full: OnFull
    """Reaction of a full filter to a new key: "raise" or "warn"."""

    def __init__(self, client: Client, layout: RedisLayout) -> None:
        """Used only by the class methods, such as `open`: call them instead. It does not contact the server."""
        self.client = client
        """The client that every operation uses."""
        self.name: str = layout.name
        """Name of the filter."""
        self._use(layout)

    def _use(self, layout: RedisLayout) -> None:
        """Adopt the shape of a filter."""
        shape = layout.shape
        self._layout = layout
        self.bits, self.hash_funcs, self.partitioned = shape.bits, shape.hash_funcs, shape.partitioned
        self.capacity, self.nominal_fp_rate = shape.capacity, shape.nominal_fp_rate
        self.hashing, self.on_full, self.shard_size = shape.hashing, shape.on_full, layout.shard_size
        # number of new keys that may be added before the bits are counted again; None: no limit
        self._room: float | None = 0 if self.capacity else None

    @property
    def encoding(self) -> Encoding:
        """Encoding of the keys."""
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

        The arguments that are not listed here are those of BloomFilter. Bits without a header, which an evicted filter
        may have left behind, are overwritten.

        Args:
            client: Client of redis.asyncio.
            name: Name of the filter. Its keys are {name}:header, {name}:replaced, {name}:bits:0 and so on.
            shard_size: Size of a string in Redis in bytes, up to 512 MiB.
            expire: Seconds until the filter expires; None for never.
            exist_ok: True opens an existing filter that was made with the same arguments. It keeps its time to live.

        Raises:
            RemoteExistsError: A filter with this name exists, and `exist_ok` is False.
            MismatchError: The existing filter was made with different arguments.
            FormatError: The existing value is not a filter.
            ParameterError: An argument is outside its domain.
        """
        check_client(client)
        options = {"bits": bits, "hashing": hashing, "encode": encode, "partitioned": partitioned, "on_full": on_full}
        # the options have several types
        shape = BitlessFilter(capacity, fp_rate, hash_funcs, buffer=b"", **options)  # type: ignore[arg-type]
        made = cls(client, RedisLayout(name, shape, shard_size))
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
        """Create a filter with the shape and the bits of a local filter. It appears atomically.

        Args:
            client: Client of redis.asyncio.
            name: Name of the filter.
            local: The local filter.
            shard_size: Size of a string in Redis in bytes, up to 512 MiB.
            expire: Seconds until the filter expires; None for never.

        Raises:
            RemoteExistsError: A filter with this name exists.
            ParameterError: An argument is outside its domain.
            TypeError: `local` is not a BloomFilter.
        """
        check_client(client)
        made = cls(client, RedisLayout(name, BitlessFilter.of(local), shard_size))
        async with made._staged(made._layout, local) as staged:
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

        Args:
            client: Client of redis.asyncio.
            name: Name of the filter.
            hashing: The hash family. Needed only for a custom family; if given, it is compared.
            encode: The encoding of keys. Needed only for a custom function; if given, it is compared.
            on_full: "raise" or "warn", as for BloomFilter.

        Raises:
            RemoteMissingError: There is no filter with this name.
            FormatError: The value is not a filter.
            ParameterError: The filter was made with different arguments.
        """
        raw = await stored_header(client, name, header_key(name))
        return cls(client, RedisLayout.parse(name, raw, hashing, encode, on_full))

    async def _create(self, expire: float | None, staged: Iterable[bytes] = ()) -> bytes | None:
        layout = self._layout
        keys = [layout.header_key, *layout.shard_keys(), *staged, layout.replaced_key]
        last = min(layout.shard_size, layout.size) * 8 - 1
        there = await run(self.client, scripts.CREATE, keys, layout.header, layout.shards, milliseconds(expire), last)
        assert there is None or isinstance(there, bytes)
        return there

    async def _run(
        self, layout: RedisLayout, script: scripts.Script, keys: Iterable[bytes], *arguments: bytes | int | str
    ) -> object:
        return await run(self.client, script, [layout.header_key, *keys], layout.header, *arguments)

    async def _following(self, work: Callable[[RedisLayout], Awaitable[T]]) -> T:
        """Perform an operation. If the filter was replaced in the meantime, perform it again on the new one."""
        for _ in range(_MOST_TRIES):
            layout = self._layout
            try:
                return await work(layout)
            except MismatchError as error:
                is_of_server = error.__cause__ is not None  # else an argument does not fit the layout
                if not await self._follow(layout, is_of_server):
                    raise
        return await work(self._layout)

    async def _follow(self, layout: RedisLayout, again: bool) -> bool:
        """Adopt the shape of the filter that has replaced `layout`. Return False if there is none.

        `again` is the result if the filter is the same as before. A filter that was deleted and re-created has not
        replaced the old one. A filter whose keys have a different encoding cannot be followed.
        """
        if self._layout is not layout:
            return True
        shape = layout.shape
        custom = shape.hashing if shape.family == Family.CUSTOM else None
        try:
            answer = await self._run(layout, scripts.REPLACED, [layout.replaced_key])
            assert isinstance(answer, list)
            raw, marks = answer
            if raw == layout.header:  # perhaps another filter was there for a moment
                return again
            there = RedisLayout.parse(self.name, raw, custom, shape._encode_with, shape.on_full)
        except (RemoteMissingError, ParameterError, FormatError):
            return False
        is_replaced = layout.mark in (marks[at : at + MARK_SIZE] for at in range(0, len(marks), MARK_SIZE))
        if not is_replaced or there.shape.encoding != shape.encoding:
            return False
        if self._layout is layout:
            self._use(there)
        return True

    async def add(self, key: object) -> bool:
        """Add a key, and return True if it was new. A key is new if at least one of its bits was not set before.

        Raises TypeError if the key has the wrong type, and CapacityError if it is new and the filter is full.
        """
        return bool((await self.add_many([key]))[0])

    async def contains(self, key: object) -> bool:
        """Return True if the key was added, or if it is a false positive.

        Raises TypeError if the key has the wrong type.
        """
        return bool((await self._probe(scripts.CONTAINS, [key]))[0])

    @overload
    async def add_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> BoolMask: ...
    @overload
    async def add_many(self, keys: Column, *, nulls: Nulls = "raise", padding: Padding | None = None) -> Mask: ...
    @overload
    async def add_many(
        self, keys: Iterable[object], *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes: ...
    async def add_many(self, keys: Keys, *, nulls: Nulls = "raise", padding: Padding | None = None) -> bytes | Mask:
        """Add a batch of keys, and return which keys were new.

        The result has one byte for each key: 1 if the key was new, else 0. The result is the same as if the keys were
        added one by one.

        Batches are the same as for BloomFilter.update. For a column, the result is a mask of its library. If the
        operation fails, the keys of some chunks have been added.

        Args:
            keys: The keys.
            nulls: How to handle nulls among the keys: "raise" raises an error, "skip" leaves them out.
            padding: How to handle zeros at the end of NumPy's byte strings, as for BloomFilter.update.

        Raises:
            CapacityError: The filter is full. The keys before the refused key have been added.
            ColumnError: A column contradicts itself.
            TypeError: A key has the wrong type.
        """
        batch = KeyBatch(keys, nulls, self.encoding, padding)
        # the mask type of the keys' library
        return batch.answer(b"".join([mask async for mask in self._added(batch)]))  # type: ignore[return-value]

    async def update(self, keys: Keys, *, nulls: Nulls = "raise", padding: Padding | None = None) -> int:
        """Add a batch in constant memory, and return the number of new keys.

        Raises CapacityError and the other errors of `add_many`.
        """
        new = 0
        async for mask in self._added(KeyBatch(keys, nulls, self.encoding, padding)):
            new += mask.count(1)
        return new

    async def _added(self, keys: Iterable[object]) -> AsyncIterator[bytes]:
        """Add the keys, and yield the masks of the chunks."""
        async for chunk in self._chunks(keys):
            while chunk:
                fits = await self._fitting(chunk)
                mask = await self._probe(scripts.ADD, chunk[:fits])
                if self._room is not None:
                    self._room -= mask.count(1)
                chunk = chunk[fits:]
                yield mask

    async def _fitting(self, chunk: list[object]) -> int:
        """Return how many keys of the chunk may be added before the bits are counted again.

        Raises CapacityError if no key may be added.
        """
        if self._room is not None and self._room <= 0:
            await self._make_room()
        if self._room is None:
            return len(chunk)
        if self._room > 0:
            return min(len(chunk), math.ceil(self._room))
        known = await self._probe(scripts.CONTAINS, chunk)  # keys that the filter contains need no room
        if known[0]:
            return len(known) - len(known.lstrip(b"\1"))
        count, rate = await self.approx_len(), await self.current_fp_rate()
        assert self.capacity is not None
        made_for = f"{counted(self.capacity, 'key')} at {self.nominal_fp_rate:g}"
        held = f"{made_for}, contains about {count:.0f}, so its rate is {rate:.3g}"
        if self.on_full == "warn":
            self._room = None
            warnings.warn(
                f"{self.name!r}, a filter made for {held}: every additional key raises it",
                CapacityWarning,
                stacklevel=4,
            )
            return len(chunk)
        whole = round(count) if math.isfinite(count) else self.bits
        raise CapacityError(
            f"{self.name!r}, a filter made for {held}", count=whole, capacity=self.capacity, fp_rate=rate
        )

    async def _make_room(self) -> None:
        """Count the bits, and reserve a share of the remaining capacity. The rest is left to other writers."""
        assert self.capacity is not None
        left = self.capacity - await self.approx_len() + spare_keys(self.bits, self.hash_funcs, self.capacity)
        self._room = share_of(left, self.capacity)

    @overload
    async def contains_many(  # type: ignore[overload-overlap]  # an array is an iterable too
        self, keys: NumpyArray, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> BoolMask: ...
    @overload
    async def contains_many(self, keys: Column, *, nulls: Nulls = "raise", padding: Padding | None = None) -> Mask: ...
    @overload
    async def contains_many(
        self, keys: Iterable[object], *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes: ...
    async def contains_many(
        self, keys: Keys, *, nulls: Nulls = "raise", padding: Padding | None = None
    ) -> bytes | Mask:
        """Return one byte for each key of a batch: 1 if the filter contains it, else 0.

        Batches, results, `nulls` and `padding` are the same as for `add_many`. Raises TypeError if a key has the wrong
        type, and ColumnError if a column contradicts itself.
        """
        batch = KeyBatch(keys, nulls, self.encoding, padding)
        found = [await self._probe(scripts.CONTAINS, chunk) async for chunk in self._chunks(batch)]
        return batch.answer(b"".join(found))  # type: ignore[return-value]  # the mask type of the keys' library

    async def _chunks(self, keys: Iterable[object]) -> AsyncIterator[list[object]]:
        at_once = max(1, min(CHUNK_KEYS, CHUNK_PROBES // self.hash_funcs))
        iterator = iter(keys)
        while chunk := list(islice(iterator, at_once)):
            yield chunk

    async def _probe(self, script: scripts.Script, keys: list[object]) -> bytes:
        async def probe(layout: RedisLayout) -> bytes:
            shards, probes = layout.probes(keys)
            mask = await self._run(layout, script, shards, probes, layout.shape.hash_funcs)
            assert isinstance(mask, bytes)
            return mask

        return await self._following(probe)

    async def union_update(self, other: RedisBloomFilter | BloomFilter) -> None:
        """Atomically add the keys of another filter.

        Another filter in Redis must use the same client object. In a cluster it must have the same hash tag (names such
        as "{shop}:a" and "{shop}:b"). A local filter is uploaded first; until it is merged, the server holds both. The
        merge blocks the server for about two seconds per GB.

        Raises MismatchError if the other filter has a different shape or shard size, ParameterError if it belongs to
        another client, and TypeError if it is not a filter.
        """
        if not isinstance(other, RedisBloomFilter):
            refuse_other_kinds(other)
        elif other.client is not self.client:
            raise ParameterError(
                f"{self.name!r} and {other.name!r} belong to different clients: pass a snapshot() of the other filter"
            )

        async def unite(layout: RedisLayout) -> None:
            shards = layout.shard_keys()
            if not isinstance(other, RedisBloomFilter):
                layout.shape._same_shape(other)
                async with self._staged(layout, other) as staged:
                    await self._run(layout, scripts.UNION, [*shards, *staged], layout.shards)
                return
            theirs = other._layout
            layout.shape._same_shape(theirs.shape)
            if theirs.shard_size != layout.shard_size:
                raise MismatchError(f"the shards differ in size: {layout.shard_size} and {theirs.shard_size} bytes")
            sources = [*theirs.shard_keys(), theirs.header_key]
            await self._run(layout, scripts.UNION, [*shards, *sources], layout.shards, theirs.header)

        await self._following(unite)

    async def replace(self, local: BloomFilter) -> None:
        """Upload a local filter, of any size, and atomically replace this filter with it.

        No reader fails: other clients that have opened the filter continue with the new one. The time to live and the
        shard size stay the same. During the upload the server holds both filters, and keys that clients add to the old
        one are lost. Use `union_update` to keep the keys.

        Raises MismatchError if the keys of the two filters have different encodings, and TypeError if `local` is not a
        BloomFilter.
        """
        new_shape = BitlessFilter.of(local)

        async def exchange(layout: RedisLayout) -> RedisLayout:
            mine, theirs = layout.shape.encoding, new_shape.encoding
            if mine != theirs:
                raise MismatchError(f"the filters differ in encoding: {mine.name} and {theirs.name}")
            new = RedisLayout(self.name, new_shape, layout.shard_size)
            mark = layout.mark if new.header != layout.header else b""
            last = min(new.shard_size, new.size) * 8 - 1
            async with self._staged(new, local) as staged:
                keys = [*layout.shard_keys(), *staged, *new.shard_keys(), new.replaced_key]
                sizes = layout.shards, new.shards
                await self._run(layout, scripts.REPLACE, keys, *sizes, new.header, mark, MAX_MARKS * MARK_SIZE, last)
            return new

        self._use(await self._following(exchange))

    @asynccontextmanager
    async def _staged(self, layout: RedisLayout, local: BloomFilter) -> AsyncIterator[list[bytes]]:
        """Upload the bits of a local filter under temporary keys, which are deleted afterwards.

        Raises TypeError unless it is a BloomFilter, and MismatchError if its shape differs from the layout's.
        """
        refuse_other_kinds(local)
        layout.shape._same_shape(local)
        body = local.body
        keys = layout.staging_keys()
        try:
            for shard, at, end in layout.pieces():
                start = shard * layout.shard_size
                raw = bytes(body[start + at : start + end]).rstrip(b"\0")
                if raw or not at:  # bytes that are not written read as zero
                    await run(self.client, scripts.STAGE, [keys[shard]], at, raw or b"\0", STAGED_TTL)
            yield keys
        finally:
            with suppress(RemoteError):  # if it fails, the keys expire later
                await command(self.client, keys, "UNLINK", *keys)

    async def snapshot(self) -> BloomFilter:
        """Return a local filter with the same bits.

        It contains all keys that were added before the call. A key that is added during the call may be missing or
        partly set. If another client calls `clear` or `replace` during the call, the result may be a mixture.

        Raises TooLargeError if the filter does not fit into memory, and FormatError if bits beyond m are set.
        """
        return await self._following(self._snapshot)

    async def _snapshot(self, layout: RedisLayout) -> BloomFilter:
        local = layout.shape.filled(allocate(layout.size))
        body = memoryview(local.buffer).cast("B")
        for shard, at, end in layout.pieces():
            raw = await self._run(layout, scripts.READ, [layout.shard_key(shard)], at, end - 1)
            assert isinstance(raw, bytes)
            start = shard * layout.shard_size + at
            body[start : start + len(raw)] = raw
        fileformat.check_padding(local.header(), body[-1])
        return local

    async def clear(self) -> None:
        """Atomically remove all keys. The time to live does not change."""
        await self._following(lambda layout: self._run(layout, scripts.CLEAR, layout.shard_keys()))

    async def delete(self) -> None:
        """Atomically delete the filter."""
        await self._following(lambda layout: self._run(layout, scripts.DELETE, layout.all_keys()))

    async def expire(self, seconds: float | None) -> None:
        """Make the whole filter expire after `seconds`, or never if `seconds` is None.

        Raises ParameterError unless `seconds` is above 0 and at most 10^10.
        """
        ttl = milliseconds(seconds)
        await self._following(lambda layout: self._run(layout, scripts.EXPIRE, layout.all_keys(), ttl))

    async def ttl(self) -> float | None:
        """Return the seconds until the filter expires, or None if it does not expire."""
        left = await self._following(lambda layout: self._run(layout, scripts.TTL, ()))
        assert isinstance(left, int)
        return None if left < 0 else left / 1000

    async def _plane_set_bits(self) -> list[int]:
        """Return the number of set bits in the plane of each function, or in total if the filter is not partitioned.

        Bits that are set during the call may be counted.
        """

        async def count(layout: RedisLayout) -> list[int]:
            planes = [0] * (layout.shape.hash_funcs if layout.shape.partitioned else 1)
            for shards, ranges, of_planes in layout.counts():
                counts = await self._run(layout, scripts.COUNT, shards, ranges)
                assert isinstance(counts, list)
                for plane, found in zip(of_planes, counts, strict=True):
                    planes[plane] += found
            return planes

        return await self._following(count)

    async def set_bits(self) -> int:
        """Return the number of set bits."""
        return sum(await self._plane_set_bits())

    async def fill(self) -> float:
        """Return the share of set bits, from 0 to 1."""
        return await self.set_bits() / self.bits

    async def approx_len(self) -> float:
        """Return the estimated number of distinct keys, which is infinite if every bit is set."""
        return sizing.estimate_items(self.bits, self.hash_funcs, await self.set_bits())

    async def current_fp_rate(self) -> float:
        """Return the current false-positive rate, (X/m)^k, for k hash functions and m bits of which X are set.

        For a partitioned filter it is the product of the shares of set bits in its planes. As for BloomFilter, it
        includes the effect of double hashing.
        """
        planes = await self._plane_set_bits()
        if self.partitioned:
            rate = math.prod(count * self.hash_funcs / self.bits for count in planes)
        else:
            rate = sizing.fp_rate_of_fill(self.bits, self.hash_funcs, planes[0])
        items = sizing.estimate_items(self.bits, self.hash_funcs, sum(planes))
        family, fill = self.hashing.family, sum(planes) / self.bits
        return min(1.0, rate + rates.excess(family, self.bits, self.hash_funcs, fill, items, self.partitioned))

    def __repr__(self) -> str:
        return (
            f"<RedisBloomFilter {self.name!r} m={self.bits}, k={self.hash_funcs},"
            f" {counted(self._layout.shards, 'shard')} of {self.shard_size} bytes>"
        )


def milliseconds(seconds: float | None) -> int:
    """Convert seconds to milliseconds; -1 means never.

    Raises ParameterError if `seconds` is outside the range that Redis accepts.
    """
    if seconds is None:
        return -1
    if not 0 < seconds <= _MAX_EXPIRE:
        raise ParameterError(f"expire must be above 0 and at most {_MAX_EXPIRE} seconds, not {seconds}")
    return max(1, round(seconds * 1000))
