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
from spvfilter.bloom.batch import Batch
from spvfilter.bloom.growth import Growth
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.redis import scripts as plain, seriesscripts as scripts
from spvfilter.bloom.redis.client import check_client, command, run, stored_header
from spvfilter.bloom.redis.filter import CHUNK_KEYS, CHUNK_PROBES, SHARD_SIZE, STAGED_TTL, milliseconds
from spvfilter.bloom.redis.layout import header_key
from spvfilter.bloom.redis.serieslayout import SeriesLayout, State
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
    from spvfilter.bloom.filter import BloomFilter
    from spvfilter.bloom.redis.client import Client
    from spvfilter.kernel.columns import Column, Keys, Mask, Nulls, NumpyArray
    from spvfilter.kernel.masks import BoolMask

_MOST_TRIES = (
    1_000  # how often an operation starts again because others added a slice meanwhile, of which there are at most 64
)
# from the number of slices: keys and arguments of a script
Request = Callable[[int], tuple[Sequence[bytes], Sequence[bytes | int | str]]]


@public
class RedisScalableBloomFilter:
    """A ScalableBloomFilter in Redis >= 6.2 or Valkey for any number of readers and writers, made by `create`,
    `create_from` or `open`.

    It grows as ScalableBloomFilter does, with the same parameters, and its false-positive rate stays below the one
    promised. `client` is any redis.asyncio client, `name` the filter's name; its keys are {name}:header, {name}:slices
    and {name}:slice:0:0 …, which serieslayout.py describes. A key in Redis holds at most `shard_size` bytes; all shards
    together are at most 16,384.

    Each operation on a key is one atomic script, which also counts the set bits of the last slice. Once they tell of as
    many keys as the slice was made for, the writer that finds it full has a script add the next one, which does nothing
    if another writer was faster. So no slice ever holds more, whatever number of writers there is, and of several that
    add the same key exactly one learns that it was new. What RedisBloomFilter says of batches, lost answers, retries,
    expiry and SipHash keys holds here as well.

    Every operation may raise, besides its own errors: RemoteConnectionError; RemoteMissingError if the filter is gone
    or a part of it was evicted (never a wrong "not contained"); MismatchError if it was recreated with other
    parameters; FormatError if its state is damaged; RemoteTypeError; RemoteFullError and RemoteReadOnlyError if there
    is something to write; RemoteError for other errors of the server. Operations that write may raise, where they have
    to add a slice, CapacityError beyond 64 slices or 16,384 shards, ParameterError beyond what can be sized or what the
    hash family reaches, and TooLargeError.

    Source: Almeida, Baquero, Preguiça and Hutchison, "Scalable Bloom Filters" (2007).
    """

    def __init__(self, client: Client, layout: SeriesLayout) -> None:
        """For the class methods; does not contact the server."""
        self.client = client
        self.name = layout.name
        self.initial_capacity = layout.plan.capacity
        self.nominal_fp_rate = layout.plan.fp_rate
        self.growth = layout.plan.growth
        self.tightening = layout.plan.tightening
        self.hashing = layout.hashing
        self.shard_size = layout.shard_size
        self._layout = layout
        self._count = 1  # of slices, the last time they were asked for

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
        """Create an empty filter of ScalableBloomFilter's arguments; `shard_size` is in bytes, `expire` in seconds.

        With `exist_ok`, an existing filter that was made with the same arguments is opened and keeps its time to live.
        Leftover bits without a header are overwritten. Raises RemoteExistsError; MismatchError if the existing filter
        was made with other arguments; FormatError if the existing value is not a scalable filter; ParameterError.
        """
        check_client(client)
        plan = Growth(initial_capacity, fp_rate, growth, tightening)
        made = cls(client, SeriesLayout(name, plan, shard_size, hashing, encode))
        there = await made._create(State((0,)), expire)
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
        """Create a filter with the parameters and the bits of a local one. It appears atomically.

        Raises RemoteExistsError, ParameterError, and MismatchError for slices that do not follow from the parameters.
        """
        check_client(client)
        slices = local.slices
        made = cls(client, SeriesLayout(name, local.plan, shard_size, local.hashing, local._given_encoding))
        made._layout.check_slices([slice.header() for slice in slices])
        copies = [slice.copy() for slice in slices]  # so that the count is that of the bits which are sent
        async with made._staged(copies) as staged:
            if await made._create(State(tuple(slice.set_bits() for slice in copies)), expire, staged) is not None:
                raise RemoteExistsError(f"a filter at {name!r} already exists")
        return made

    @classmethod
    async def open(cls, client: Client, name: str, *, hashing: HashFamily | None = None, encode: Encode = None) -> Self:
        """Open an existing filter.

        Custom `hashing` and `encode` must be passed again; any that are passed are compared.

        Raises RemoteMissingError; FormatError if the value is not a scalable filter; ParameterError if it was made with
        other arguments.
        """
        raw = await stored_header(client, name, header_key(name))
        return cls(client, SeriesLayout.parse(name, raw, hashing, encode))

    async def _create(self, state: State, expire: float | None, staged: Iterable[bytes] = ()) -> bytes | None:
        layout, count = self._layout, len(state.set_bits)
        shards = layout.shard_keys(count)
        keys = [layout.header_key, layout.state_key, *shards, *staged]
        last = self.shard_size * 8 - 1  # a later slice may fill a shard, which is refused now rather than then
        there = await run(
            self.client, scripts.CREATE, keys, layout.header, state.pack(), len(shards), milliseconds(expire), last
        )
        assert there is None or isinstance(there, bytes)
        self._count = count
        return there

    async def _run(self, script: plain.Script, request: Request) -> object:
        """The result of a script, which is asked again while the number of slices is not the one that is known."""
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
        raise RemoteError(f"{self.name!r} is made again and again by others")

    def _know(self) -> None:
        """Have the layouts of the slices that there are.

        Raises FormatError for more than there can be, TooLargeError.
        """
        try:
            self._layout.know(self._count)
        except TooLargeError:
            raise
        except (CapacityError, ParameterError) as error:
            raise FormatError(
                f"{self._count} slices, of which some cannot be: {error}", offset=0, field="slices"
            ) from None

    async def add(self, key: object) -> bool:
        """Add a key to the last slice unless a slice contains it; True if it was new.

        Raises TypeError, CapacityError, FormatError, RemoteError.
        """
        return bool((await self.add_many([key]))[0])

    async def contains(self, key: object) -> bool:
        """Whether the key was added; false positives occur at the filter's rate.

        Raises TypeError, FormatError, RemoteError.
        """
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
        fails, the keys of some chunks have been added. Raises TypeError, ColumnError, FormatError, RemoteError;
        CapacityError after adding the keys before the refused one.
        """
        batch = Batch(keys, nulls, self.encoding)
        # that of the keys' library
        return batch.answer(b"".join([mask async for mask in self._added(batch)]))  # type: ignore[return-value]

    async def update(self, keys: Keys, *, nulls: Nulls = "raise") -> int:
        """Add a batch in constant memory, and return the number of new keys.

        Raises CapacityError, FormatError, RemoteError, TypeError, ColumnError.
        """
        new = 0
        async for mask in self._added(Batch(keys, nulls, self.encoding)):
            new += mask.count(1)
        return new

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

        Raises TypeError, ColumnError, FormatError, RemoteError.
        """
        batch = Batch(keys, nulls, self.encoding)
        found = [await self._probe(scripts.CONTAINS, chunk) for chunk in self._chunks(batch)]
        return batch.answer(b"".join(found))  # type: ignore[return-value]  # that of the keys' library

    @property
    def encoding(self) -> Encoding:
        """The keys' encoding."""
        return self._layout.slices[0].shape.encoding

    async def _added(self, keys: Iterable[object]) -> AsyncIterator[bytes]:
        """The masks of keys that are added, chunk by chunk."""
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
        """Run ADD or CONTAINS."""
        layout = self._layout

        def request(count: int) -> tuple[list[bytes], list[bytes | int | str]]:
            shards, probes = layout.probes(keys, count)
            functions = b"".join(functions.to_bytes(4, "little") for functions in layout.functions(count))
            return shards, [probes, functions, layout.full_at(count - 1)]

        mask = await self._run(script, request)
        assert isinstance(mask, bytes)
        return mask

    async def _grow(self) -> None:
        """Add a slice unless the last one has room, because another writer was faster, or the filter was cleared."""
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
                    if raw or not at:  # bytes that are not written are zero
                        await run(self.client, plain.STAGE, [keys[first + shard]], at, raw or b"\0", STAGED_TTL)
                first += layout.shards
            yield keys
        finally:
            with suppress(RemoteError):  # the keys expire by themselves
                await command(self.client, keys, "UNLINK", *keys)

    async def snapshot(self) -> ScalableBloomFilter:
        """A local filter with the same bits.

        It contains all keys added before; keys added meanwhile may be missing or partly set.

        Raises TooLargeError; FormatError if padding bits are set, or bits are missing that were counted: a shard was
        truncated by others; MismatchError if the filter is made again or cleared meanwhile; RemoteError.
        """
        state = await self._state()
        slices = []
        for number, counted in enumerate(state.set_bits):
            slice = await self._slice(number)
            if slice.set_bits() < counted:
                if (await self._state()).set_bits[number : number + 1] < (counted,):
                    raise MismatchError(f"{self.name!r} was cleared or made again meanwhile")
                message = (
                    f"slice {number} has {slice.set_bits()} set bits, where {counted} were set: a part of it was"
                    " truncated"
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
                raise MismatchError(f"{self.name!r} was made again meanwhile")
            return [self._layout.slices[number].shard_key(shard)], [at, end - 1]

        return request

    async def _whole(self, script: plain.Script, *arguments: bytes | int | str) -> None:
        """Run a script on all keys of the filter."""
        await self._run(script, lambda count: (self._layout.shard_keys(count), arguments))

    async def clear(self) -> None:
        """Atomically remove all keys. The slices stay, and are filled from the last one on; the time to live is kept.

        Raises FormatError, RemoteError.
        """
        await self._whole(scripts.CLEAR)

    async def delete(self) -> None:
        """Atomically delete the filter. Raises FormatError, RemoteError."""
        await self._whole(scripts.DELETE)

    async def expire(self, seconds: float | None) -> None:
        """Let the whole filter expire after `seconds`; None: never. Raises ParameterError, FormatError, RemoteError."""
        await self._whole(scripts.EXPIRE, milliseconds(seconds))

    async def ttl(self) -> float | None:
        """The seconds until the filter expires; None if it does not expire. Raises FormatError, RemoteError."""
        left = await self._run(scripts.TTL, lambda count: ((), ()))
        assert isinstance(left, int)
        return None if left < 0 else left / 1000

    async def _state(self) -> State:
        raw = await self._run(scripts.STATE, lambda count: ((), ()))
        assert isinstance(raw, bytes)
        return self._layout.parse_state(raw)

    async def slice_count(self) -> int:
        """The number of slices. Raises FormatError, RemoteError."""
        return len((await self._state()).set_bits)

    async def capacity(self) -> int:
        """The number of keys for which the present slices were made. Raises FormatError, RemoteError."""
        return sum(self._layout.plan.shape(number)[0] for number in range(await self.slice_count()))

    async def bits(self) -> int:
        """The number of bits of all slices. Raises FormatError, RemoteError."""
        return self._bits(await self._state())

    async def set_bits(self) -> int:
        """The number of set bits in all slices. Raises FormatError, RemoteError."""
        return sum((await self._state()).set_bits)

    async def fill(self) -> float:
        """The share of set bits in all slices, 0 to 1. Raises FormatError, RemoteError."""
        state = await self._state()
        return sum(state.set_bits) / self._bits(state)

    async def approx_len(self) -> float:
        """The estimated number of distinct keys, the slices' together; infinite if every bit of one is set.

        Raises FormatError, RemoteError.
        """
        return self._len(await self._state())

    async def current_fp_rate(self) -> float:
        """The present false-positive rate: one minus the probability that no slice contains a key that was never added.

        Raises FormatError, RemoteError.
        """
        return self._rate(await self._state())

    def _bits(self, state: State) -> int:
        return sum(layout.shape.bits for layout in self._layout.slices[: len(state.set_bits)])

    def _len(self, state: State) -> float:
        shapes = (layout.shape for layout in self._layout.slices)
        return sum(
            sizing.estimate_items(shape.bits, shape.hash_funcs, bits)
            for shape, bits in zip(shapes, state.set_bits, strict=False)
        )

    def _rate(self, state: State) -> float:
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
