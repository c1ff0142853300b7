"""RedisScalableBloomFilter: a Bloom filter in Redis that many machines share, and that grows with its keys."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Self, overload

from spvfilter._public import public
from spvfilter.bloom import fileformat, sizing
from spvfilter.bloom.base import Encode, allocate
from spvfilter.bloom.batch import KeyBatch
from spvfilter.bloom.filter import BloomFilter, refuse_other_kinds
from spvfilter.bloom.growth import Growth
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.redis import scripts as plain, seriesscripts as scripts
from spvfilter.bloom.redis.client import check_client, command, run, stored_header
from spvfilter.bloom.redis.filter import CHUNK_KEYS, CHUNK_PROBES, SHARD_SIZE, STAGED_TTL, milliseconds
from spvfilter.bloom.redis.layout import header_key
from spvfilter.bloom.redis.serieslayout import SeriesLayout, SeriesState
from spvfilter.bloom.scalable import ScalableBloomFilter
from spvfilter.errors import (
    CapacityError,
    FormatError,
    MismatchError,
    ParameterError,
    RemoteError,
    RemoteExistsError,
    TooLargeError,
)
from spvfilter.kernel import Encoding

if TYPE_CHECKING:
    from spvfilter.bloom.redis.client import Client
    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray, Padding
    from spvfilter.kernel.masks import BoolMask

# Attempts of one operation (our choice). An attempt fails if another writer has added a slice (at most 64 times) or has
# re-created the filter.
_MOST_TRIES = 1_000
# A function that takes the number of slices, and returns the keys and arguments of a script.
Request = Callable[[int], tuple[Sequence[bytes], Sequence[bytes | int | str]]]


@public
class RedisScalableBloomFilter:
    """A ScalableBloomFilter in Redis >= 6.2 or Valkey for any number of readers and writers.

    Create one with `create`, `create_from` or `open`. It grows as ScalableBloomFilter does, and its false-positive rate
    stays below `fp_rate`, no matter how many writers there are. The notes on RedisBloomFilter about batches, lost
    answers and SipHash apply here too.

    Each operation on a key is one atomic script, which also counts the set bits of the last slice. When the last slice
    is full, a script adds the next one. If several writers add the same key, exactly one of them learns that it was
    new.

    Raises:
        RemoteConnectionError: The server could not be reached, or the connection was lost.
        RemoteMissingError: The filter, or a part of it, is gone. The filter never wrongly answers "not contained".
        MismatchError: The filter was re-created with different parameters.
        FormatError: The state of the filter is damaged.
        RemoteTypeError: The value of one of the filter's keys in Redis is not a string.
        RemoteFullError: The operation writes, and the server is out of memory.
        RemoteReadOnlyError: The operation writes, and the server is a replica.
        RemoteError: The server reported another error.
        CapacityError: A new slice is needed, but there are 64 slices, or there would be more than 16,384 shards.
        ParameterError: A new slice is needed, but it is too large for the hash family, or its size is too large to
            compute.
        TooLargeError: A new slice is needed, but it is too large to address.
    """

    def __init__(self, client: Client, layout: SeriesLayout) -> None:
        """Used only by the class methods, such as `open`: call them instead. It does not contact the server."""
        self.client = client
        """The client that every operation uses."""
        self.name: str = layout.name
        """Name of the filter."""
        self.initial_capacity: int = layout.plan.capacity
        """Number of keys that the first slice is made for."""
        self.nominal_fp_rate: float = layout.plan.fp_rate
        """Upper bound of the false-positive rate."""
        self.growth: int = layout.plan.growth
        """Ratio of the capacities of two successive slices."""
        self.tightening: float = layout.plan.tightening
        """Ratio of the rates of two successive slices."""
        self.hashing: HashFamily = layout.hashing
        """The hash family."""
        self.shard_size: int = layout.shard_size
        """Size of a shard in bytes."""
        self._layout = layout
        self._count = 1  # number of slices that the server reported last

    @classmethod
    async def create(
        cls,
        client: Client,
        name: str,
        initial_capacity: int,
        fp_rate: float,
        growth: int = 2,
        tightening: float = 0.5,
        *,
        hashing: HashFamily | None = None,
        encode: Encode = None,
        shard_size: int = SHARD_SIZE,
        expire: float | None = None,
        exist_ok: bool = False,
    ) -> Self:
        """Create an empty filter.

        Bits without a header, which an evicted filter may have left behind, are overwritten.

        Args:
            client: Client of redis.asyncio.
            name: Name of the filter. Its keys are {name}:header, {name}:slices and {name}:slice:0:0 and so on.
            initial_capacity: Number of keys that the first slice is made for.
            fp_rate: Upper bound of the false-positive rate, between 0 and 1.
            growth: Ratio of the capacities of two successive slices, from 2 to 1024.
            tightening: Ratio of the rates of two successive slices, between 0 and 1.
            hashing: The hash family, as for BloomFilter.
            encode: Type of the keys, as for BloomFilter.
            shard_size: Size of a string in Redis in bytes, up to 512 MiB.
            expire: Seconds until the filter expires; None for never.
            exist_ok: True opens an existing filter that was made with the same arguments. It keeps its time to live.

        Raises:
            RemoteExistsError: A filter with this name exists, and `exist_ok` is False.
            MismatchError: The existing filter was made with different arguments.
            FormatError: The existing value is not a scalable filter.
            ParameterError: An argument is outside its domain.
        """
        check_client(client)
        plan = Growth(initial_capacity, fp_rate, growth, tightening)
        made = cls(client, SeriesLayout(name, plan, shard_size, hashing, encode))
        there = await made._create(SeriesState((0,)), expire)
        if there is not None:
            if not exist_ok:
                raise RemoteExistsError(f"a filter at {name!r} already exists")
            made._layout.refuse_another(there)
        return made

    @classmethod
    async def create_from(
        cls,
        client: Client,
        name: str,
        local: ScalableBloomFilter,
        *,
        shard_size: int = SHARD_SIZE,
        expire: float | None = None,
    ) -> Self:
        """Create a filter with the parameters and the bits of a local filter. It appears atomically.

        Args:
            client: Client of redis.asyncio.
            name: Name of the filter.
            local: The local filter.
            shard_size: Size of a string in Redis in bytes, up to 512 MiB.
            expire: Seconds until the filter expires; None for never.

        Raises:
            RemoteExistsError: A filter with this name exists.
            MismatchError: The slices of the local filter do not follow from its parameters.
            ParameterError: An argument is outside its domain.
            TypeError: `local` is not a ScalableBloomFilter.
        """
        check_client(client)
        refuse_other_kinds(local, ScalableBloomFilter)
        slices = local.slices
        made = cls(client, SeriesLayout(name, local.plan, shard_size, local.hashing, local._given_encoding))
        made._layout.check_slices([slice.header() for slice in slices])
        copies = [slice.copy() for slice in slices]  # so that exactly the counted bits are sent
        async with made._staged(copies) as staged:
            if await made._create(SeriesState(tuple(slice.set_bits() for slice in copies)), expire, staged) is not None:
                raise RemoteExistsError(f"a filter at {name!r} already exists")
        return made

    @classmethod
    async def open(cls, client: Client, name: str, *, hashing: HashFamily | None = None, encode: Encode = None) -> Self:
        """Open an existing filter.

        Args:
            client: Client of redis.asyncio.
            name: Name of the filter.
            hashing: The hash family. Needed only for a custom family; if given, it is compared.
            encode: The encoding of keys. Needed only for a custom function; if given, it is compared.

        Raises:
            RemoteMissingError: There is no filter with this name.
            FormatError: The value is not a scalable filter.
            ParameterError: The filter was made with different arguments.
        """
        raw = await stored_header(client, name, header_key(name))
        return cls(client, SeriesLayout.parse(name, raw, hashing, encode))

    async def _create(self, state: SeriesState, expire: float | None, staged: Iterable[bytes] = ()) -> bytes | None:
        layout, count = self._layout, len(state.set_bits)
        shards = layout.shard_keys(count)
        keys = [layout.header_key, layout.state_key, *shards, *staged]
        last = self.shard_size * 8 - 1  # a later slice may need a full shard: if the server forbids it, fail now
        there = await run(
            self.client, scripts.CREATE, keys, layout.header, state.pack(), len(shards), milliseconds(expire), last
        )
        assert there is None or isinstance(there, bytes)
        self._count = count
        return there

    async def _run(self, script: plain.Script, request: Request) -> object:
        """Run a script and return its result. Run it again while the known number of slices is outdated."""
        layout = self._layout
        for _ in range(_MOST_TRIES):
            self._know()
            count = self._count
            keys, arguments = request(count)
            answer = await run(
                self.client, script, [layout.header_key, layout.state_key, *keys], layout.header, count, *arguments
            )
            assert isinstance(answer, list)
            self._count, *result = answer
            if result:
                return result[0]
        raise RemoteError(
            f"{self.name!r} changed {_MOST_TRIES} times during the operation: other clients keep re-creating it"
        )

    def _know(self) -> None:
        """Compute the layouts of all slices.

        Raises FormatError if there are more slices than a filter can have, and TooLargeError if a slice is too large to
        address.
        """
        try:
            self._layout.know(self._count)
        except TooLargeError:
            raise
        except (CapacityError, ParameterError) as error:
            raise FormatError(
                f"{self._count} slices are more than the filter can contain: {error}", offset=0, field="slices"
            ) from None

    async def add(self, key: object) -> bool:
        """Add a key to the last slice unless a slice contains it. Return True if it was new.

        Raises TypeError if the key has the wrong type, and CapacityError if the filter cannot grow. Raises FormatError
        if the filter's state in Redis is damaged, and RemoteError if the filter is missing or the server fails.
        """
        return bool((await self.add_many([key]))[0])

    async def contains(self, key: object) -> bool:
        """Return True if the key was added, or if it is a false positive.

        Raises TypeError if the key has the wrong type, FormatError if the filter's state in Redis is damaged, and
        RemoteError if the filter is missing or the server fails.
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
        """Add a batch.

        Returns one byte for each key: 1 if it was new, else 0, as if the keys were added one by one.

        Batches are the same as for BloomFilter.update. For a column, the result is a mask of its library. If the
        operation fails, the keys of some chunks have been added.

        Args:
            keys: The keys.
            nulls: How to handle nulls among the keys: "raise" raises an error, "skip" leaves them out.
            padding: How to handle zeros at the end of NumPy's byte strings, as for BloomFilter.update.

        Raises:
            CapacityError: The filter cannot grow. The keys before the refused key have been added.
            ColumnError: A column contradicts itself.
            TypeError: A key has the wrong type.
            FormatError: The state of the filter is damaged.
            RemoteError: The server failed or refused.
        """
        batch = KeyBatch(keys, nulls, self.encoding, padding)
        # the mask type of the keys' library
        return batch.answer(b"".join([mask async for mask in self._added(batch)]))  # type: ignore[return-value]

    async def update(self, keys: Keys, *, nulls: Nulls = "raise", padding: Padding | None = None) -> int:
        """Add a batch in constant memory, and return the number of new keys.

        Raises the same errors as `add_many`: CapacityError, FormatError, RemoteError, TypeError, ColumnError.
        """
        new = 0
        async for mask in self._added(KeyBatch(keys, nulls, self.encoding, padding)):
            new += mask.count(1)
        return new

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

        Batches, results and `nulls` are the same as for `add_many`. Raises TypeError, ColumnError, FormatError or
        RemoteError.
        """
        batch = KeyBatch(keys, nulls, self.encoding, padding)
        found = [await self._probe(scripts.CONTAINS, chunk) for chunk in self._chunks(batch)]
        return batch.answer(b"".join(found))  # type: ignore[return-value]  # the mask type of the keys' library

    @property
    def encoding(self) -> Encoding:
        """Encoding of the keys."""
        return self._layout.slices[0].shape.encoding

    async def _added(self, keys: Iterable[object]) -> AsyncIterator[bytes]:
        """Add the keys, and yield the masks of the chunks."""
        for chunk in self._chunks(keys):
            left = chunk
            while left:
                mask = await self._probe(scripts.ADD, left)
                left = left[len(mask) :]
                if mask:
                    yield mask
                if left:
                    await self._grow()

    def _chunks(self, keys: Iterable[object]) -> Iterable[list[object]]:
        iterator = iter(keys)
        while True:
            at_once = max(1, min(CHUNK_KEYS, CHUNK_PROBES // sum(self._layout.functions(self._count))))
            chunk = list(islice(iterator, at_once))
            if not chunk:
                return
            yield chunk

    async def _probe(self, script: plain.Script, keys: list[object]) -> bytes:
        """Run the ADD or the CONTAINS script."""
        layout = self._layout

        def request(count: int) -> tuple[list[bytes], list[bytes | int | str]]:
            shards, probes = layout.probes(keys, count)
            functions = b"".join(functions.to_bytes(4, "little") for functions in layout.functions(count))
            return shards, [probes, functions, layout.full_at(count - 1)]

        mask = await self._run(script, request)
        assert isinstance(mask, bytes)
        return mask

    async def _grow(self) -> None:
        """Add a slice, unless the last one has room because another writer has added it or the filter was cleared."""
        layout, full = self._layout, self._count

        def request(count: int) -> tuple[list[bytes], list[bytes | int | str]]:
            layout.know(count + 1)
            there, more = layout.shard_keys(count), layout.slices[count].shard_keys()
            return [*there, *more], [len(there), layout.full_at(count - 1), layout.last_offset(count)]

        try:
            await self._run(scripts.GROW, request)
        except CapacityError as error:
            state = await self._state()
            count, rate, capacity = (
                round(self._len(state)),
                self._rate(state),
                sum(layout.plan.shape(number)[0] for number in range(full)),
            )
            raise CapacityError(str(error), count=count, capacity=capacity, fp_rate=rate) from None

    @asynccontextmanager
    async def _staged(self, slices: Sequence[BloomFilter]) -> AsyncIterator[list[bytes]]:
        """Upload the bits of slices under temporary keys, which are deleted afterwards."""
        keys = self._layout.staging_keys(len(slices))
        first = 0
        try:
            for slice, layout in zip(slices, self._layout.slices, strict=False):
                for shard, at, end in layout.pieces():
                    start = shard * self.shard_size
                    raw = bytes(slice.body[start + at : start + end]).rstrip(b"\0")
                    if raw or not at:  # bytes that are not written read as zero
                        await run(self.client, plain.STAGE, [keys[first + shard]], at, raw or b"\0", STAGED_TTL)
                first += layout.shards
            yield keys
        finally:
            with suppress(RemoteError):  # if it fails, the keys expire later
                await command(self.client, keys, "UNLINK", *keys)

    async def snapshot(self) -> ScalableBloomFilter:
        """Return a local filter with the same bits.

        It contains all keys that were added before the call. A key that is added during the call may be missing or
        partly set.

        Raises:
            MismatchError: The filter was cleared or re-created during the call.
            FormatError: Bits beyond m are set, or counted bits are missing because another program truncated a shard.
            TooLargeError: The filter does not fit into memory.
            RemoteError: The server failed or refused.
        """
        state = await self._state()
        slices = []
        for number, counted in enumerate(state.set_bits):
            slice = await self._slice(number)
            if slice.set_bits() < counted:
                if (await self._state()).set_bits[number : number + 1] < (counted,):
                    raise MismatchError(f"{self.name!r} was cleared or re-created during the operation: try again")
                message = (
                    f"slice {number} has {slice.set_bits()} set bits, but {counted} were set: another program has"
                    " truncated a part of it"
                )
                raise FormatError(message, offset=8 + 8 * number, field="slices")
            slices.append(slice)
        return ScalableBloomFilter._made(self._layout.plan, slices)

    async def _slice(self, number: int) -> BloomFilter:
        layout = self._layout.slices[number]
        local = layout.shape.filled(allocate(layout.size))
        body = memoryview(local.buffer).cast("B")
        for shard, at, end in layout.pieces():
            raw = await self._run(scripts.READ, self._reading(number, shard, at, end))
            assert isinstance(raw, bytes)
            start = shard * self.shard_size + at
            body[start : start + len(raw)] = raw
        fileformat.check_padding(local.header(), body[-1])
        return local

    def _reading(self, number: int, shard: int, at: int, end: int) -> Request:
        def request(count: int) -> tuple[list[bytes], list[bytes | int | str]]:
            if count <= number:
                raise MismatchError(f"{self.name!r} was re-created during the operation: open it again")
            return [self._layout.slices[number].shard_key(shard)], [at, end - 1]

        return request

    async def _whole(self, script: plain.Script, *arguments: bytes | int | str) -> None:
        """Run a script on all keys of the filter."""
        await self._run(script, lambda count: (self._layout.shard_keys(count), arguments))

    async def clear(self) -> None:
        """Atomically remove all keys.

        The slices remain, and new keys are added to the last one. The time to live does not change.

        Raises FormatError or RemoteError.
        """
        await self._whole(scripts.CLEAR)

    async def delete(self) -> None:
        """Atomically delete the filter. Raises FormatError or RemoteError."""
        await self._whole(scripts.DELETE)

    async def expire(self, seconds: float | None) -> None:
        """Make the whole filter expire after `seconds`, or never if `seconds` is None.

        Raises ParameterError, FormatError or RemoteError.
        """
        await self._whole(scripts.EXPIRE, milliseconds(seconds))

    async def ttl(self) -> float | None:
        """Return the seconds until the filter expires, or None if it never does. Raises FormatError or RemoteError."""
        left = await self._run(scripts.TTL, lambda count: ((), ()))
        assert isinstance(left, int)
        return None if left < 0 else left / 1000

    async def _state(self) -> SeriesState:
        raw = await self._run(scripts.STATE, lambda count: ((), ()))
        assert isinstance(raw, bytes)
        return self._layout.parse_state(raw)

    async def slice_count(self) -> int:
        """Return the number of slices. Raises FormatError or RemoteError."""
        return len((await self._state()).set_bits)

    async def capacity(self) -> int:
        """Return the number of keys that the existing slices were made for. Raises FormatError or RemoteError."""
        return sum(self._layout.plan.shape(number)[0] for number in range(await self.slice_count()))

    async def bits(self) -> int:
        """Return the number of bits in all slices. Raises FormatError or RemoteError."""
        return self._bits(await self._state())

    async def set_bits(self) -> int:
        """Return the number of set bits in all slices. Raises FormatError or RemoteError."""
        return sum((await self._state()).set_bits)

    async def fill(self) -> float:
        """Return the share of set bits in all slices, from 0 to 1. Raises FormatError or RemoteError."""
        state = await self._state()
        return sum(state.set_bits) / self._bits(state)

    async def approx_len(self) -> float:
        """Return the estimated number of distinct keys in all slices. It is infinite if every bit of a slice is set.

        Raises FormatError or RemoteError.
        """
        return self._len(await self._state())

    async def current_fp_rate(self) -> float:
        """Return the current false-positive rate: the probability that a slice contains a key that was never added.

        Raises FormatError or RemoteError.
        """
        return self._rate(await self._state())

    def _bits(self, state: SeriesState) -> int:
        return sum(layout.shape.bits for layout in self._layout.slices[: len(state.set_bits)])

    def _len(self, state: SeriesState) -> float:
        shapes = (layout.shape for layout in self._layout.slices)
        return sum(
            sizing.estimate_items(shape.bits, shape.hash_funcs, bits)
            for shape, bits in zip(shapes, state.set_bits, strict=False)
        )

    def _rate(self, state: SeriesState) -> float:
        shapes = (layout.shape for layout in self._layout.slices)
        rates = (
            sizing.fp_rate_of_fill(of.bits, of.hash_funcs, bits)
            for of, bits in zip(shapes, state.set_bits, strict=False)
        )
        return -math.expm1(sum(math.log1p(-min(rate, 1 - 2**-53)) for rate in rates))

    def __repr__(self) -> str:
        shape = (
            f"{self.initial_capacity} keys first, at {self.nominal_fp_rate:g}, growth {self.growth}, tightening"
            f" {self.tightening:g}"
        )
        return f"<RedisScalableBloomFilter {self.name!r} {shape}, shards of {self.shard_size} bytes>"
