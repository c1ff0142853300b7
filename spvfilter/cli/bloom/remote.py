"""Storage of a Bloom filter in Redis, for `spvfilter bloom`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from spvfilter.bloom.base import OnFull
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.growth import Growth
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.scalable import ScalableBloomFilter
from spvfilter.cli.bloom.storage import FilterFacts, FilterKind, FilterShape, FilterStorage, GivenOptions, Local
from spvfilter.errors import (
    CapacityError,
    FormatError,
    ParameterError,
    RemoteExistsError,
    RemoteMissingError,
    SourceError,
)
from spvfilter.kernel import Family

if TYPE_CHECKING:
    from spvfilter.bloom.redis import RedisBloomFilter, RedisScalableBloomFilter

T = TypeVar("T")
_PAUSE_S = 0.05  # seconds between two attempts to cancel a task


class RedisStorage(FilterStorage):
    """A filter in Redis. Each batch is written as soon as it is added."""

    def __init__(self, url: str) -> None:
        from spvfilter.bloom.redis.client import connect

        try:
            self._client = connect(url)
        except ImportError as error:
            raise ParameterError(str(error)) from None
        self._runner = asyncio.Runner()
        self._filter: RedisBloomFilter | RedisScalableBloomFilter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._runner.run(self._leave())
        finally:
            self._runner.close()

    async def _leave(self) -> None:
        """End the tasks that are still running after an interrupt, then close the connection.

        In the reverse order, the errors of the tasks would be lost.
        """
        await _end(task for task in asyncio.all_tasks() if task is not asyncio.current_task())
        await self._client.aclose()

    def _run(self, work: Coroutine[object, object, T]) -> T:
        return self._runner.run(_interruptible(work))

    @property
    def _opened(self) -> RedisBloomFilter | RedisScalableBloomFilter:
        assert self._filter is not None
        return self._filter

    def create(self, name: str | None, shape: FilterShape, hashing: HashFamily, *, replace: bool) -> None:
        from spvfilter.bloom.redis import RedisBloomFilter, RedisScalableBloomFilter

        assert name is not None
        if shape.kind is FilterKind.COUNTING:
            raise ParameterError("--counting needs a filter in a file: filters in Redis have no counters")
        make: Callable[[], Awaitable[RedisBloomFilter | RedisScalableBloomFilter]]
        if shape.kind is FilterKind.SCALABLE:
            make = partial(
                RedisScalableBloomFilter.create, self._client, name, shape.capacity, shape.fp_rate, hashing=hashing
            )
        else:
            make = partial(
                RedisBloomFilter.create, self._client, name, *shape.fixed, hashing=hashing, on_full=shape.on_full
            )
        plain = (
            BloomFilter(*shape.fixed, hashing=hashing, on_full=shape.on_full)
            if replace and shape.kind is FilterKind.PLAIN
            else None
        )
        self._run(self._make(name, make, replace, plain))

    def open(self, name: str, *, change: bool = False, on_full: OnFull = "raise") -> None:
        self.name, self._filter = name, self._run(self._there(name, on_full))

    def absent(self, name: str) -> str:
        return f"no filter at {name!r}: it was never created, has expired, or was deleted or evicted"

    def exists(self, name: str) -> bool:
        try:
            self._run(self._there(name))
        except RemoteMissingError:
            return False
        return True

    def asked(self) -> GivenOptions:
        from spvfilter.bloom.redis import RedisScalableBloomFilter

        made = self._opened
        key = made.hashing.key if made.hashing.family == Family.SIPHASH else None
        if isinstance(made, RedisScalableBloomFilter):
            return GivenOptions(FilterKind.SCALABLE, made.initial_capacity, made.nominal_fp_rate, None, key)
        return GivenOptions(FilterKind.PLAIN, made.capacity, made.nominal_fp_rate, made.hash_funcs, key)

    def add_many(self, lines: list[bytes]) -> bytes:
        async def add() -> bytes:
            new = bytearray()
            with suppress(CapacityError):
                async for mask in self._opened._added(self._keys(lines)):
                    new += mask
            return bytes(new)

        return self._run(add())

    def update(self, lines: list[bytes]) -> int:
        return self._run(self._opened.update(self._keys(lines)))

    def remove_many(self, lines: list[bytes]) -> bytes:
        raise ParameterError(
            f"{self.name} is in Redis, where filters have no counters: only a counting filter in a file removes lines"
        )

    def contains_many(self, lines: list[bytes]) -> bytes:
        return self._run(self._opened.contains_many(self._keys(lines)))

    def _keys(self, lines: list[bytes]) -> list[bytes] | list[str]:
        return self._encoded(self._opened.encoding, lines)

    def facts(self) -> FilterFacts:
        from spvfilter.bloom.redis import RedisScalableBloomFilter

        made = self._opened
        return self._run(_scalable_facts(made) if isinstance(made, RedisScalableBloomFilter) else _plain_facts(made))

    def read(self, name: str) -> Local:
        self.open(name)
        local: BloomFilter | ScalableBloomFilter = self._run(self._taken())
        return local

    async def _taken(self) -> BloomFilter | ScalableBloomFilter:
        return await self._opened.snapshot()

    def write(self, name: str, made: Local, *, replace: bool) -> None:
        from spvfilter.bloom.redis import RedisBloomFilter, RedisScalableBloomFilter

        make: Callable[[], Awaitable[RedisBloomFilter | RedisScalableBloomFilter]]
        if isinstance(made, ScalableBloomFilter):
            make = partial(RedisScalableBloomFilter.create_from, self._client, name, made)
        elif isinstance(made, BloomFilter):
            make = partial(RedisBloomFilter.create_from, self._client, name, made)
        else:
            raise ParameterError("a counting filter needs a file: filters in Redis have no counters")
        self._run(self._make(name, make, replace, made if isinstance(made, BloomFilter) else None))

    def finish(self) -> None:
        """Do nothing, because every batch is already stored in Redis."""

    async def _there(self, name: str, on_full: OnFull = "raise") -> RedisBloomFilter | RedisScalableBloomFilter:
        from spvfilter.bloom.redis.opening import open_any

        try:
            return await open_any(self._client, name, on_full)
        except (FormatError, ParameterError) as error:
            raise SourceError(f"{name}: {error}") from None

    async def _make(
        self,
        name: str,
        make: Callable[[], Awaitable[RedisBloomFilter | RedisScalableBloomFilter]],
        replace: bool,
        plain: BloomFilter | None,
    ) -> None:
        """Make a filter. With `replace`, an existing filter is replaced, but only once the arguments have been checked.
        If the existing filter is a plain one and `plain` is given, it is replaced without making readers fail.
        Otherwise it is deleted first.
        """
        from spvfilter.bloom.redis import RedisBloomFilter

        try:
            made = await make()
        except RemoteExistsError as error:
            if not replace:
                raise SourceError(f"{error}: --force replaces it") from None
            made = await self._there(name)
            if isinstance(made, RedisBloomFilter) and plain is not None and made.encoding == plain.encoding:
                await made.replace(plain)
            else:
                await made.delete()
                made = await make()
        self.name: str = name
        self._filter = made


async def _interruptible(work: Coroutine[object, object, T]) -> T:
    """Run `work` in a separate task. Cancelling the caller ends this task, even if it swallows a cancellation."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        await _end([task])
        raise
    return task.result()


async def _end(tasks: Iterable[asyncio.Task[T]]) -> None:
    """Cancel the tasks repeatedly until they end.

    redis-py uses asyncio.wait_for, which may swallow a cancellation (Python 3.11, gh-86296).
    """
    waiting = all_of_them = set(tasks)
    while waiting:
        for task in waiting:
            task.cancel()
        _, waiting = await asyncio.wait(waiting, timeout=_PAUSE_S)
    await asyncio.gather(*all_of_them, return_exceptions=True)


async def _plain_facts(made: RedisBloomFilter) -> FilterFacts:
    kind = "Bloom filter in Redis, partitioned" if made.partitioned else "Bloom filter in Redis"
    shape = (kind, made.hashing.family.name.lower(), made.bits, (made.bits + 7) // 8, str(made.hash_funcs))
    state = await made.fill(), await made.approx_len(), await made.current_fp_rate()
    return FilterFacts(*shape, made.capacity, made.nominal_fp_rate, *state)


async def _scalable_facts(made: RedisScalableBloomFilter) -> FilterFacts:
    slices, bits = await made.slice_count(), await made.bits()
    plan = Growth(made.initial_capacity, made.nominal_fp_rate, made.growth, made.tightening)
    first, last = plan.shape(0)[2], plan.shape(slices - 1)[2]
    functions = f"{first} to {last}" if slices > 1 else str(first)
    shape = (
        "scalable Bloom filter in Redis",
        made.hashing.family.name.lower(),
        bits,
        bits // 8,
        functions,
        None,
        made.nominal_fp_rate,
    )
    return FilterFacts(*shape, await made.fill(), await made.approx_len(), await made.current_fp_rate(), slices)
