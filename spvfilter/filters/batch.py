"""Which of many basic filters match: a stream of them in bounded memory, asked by threads, answered in order. No files, no peers."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from spvfilter._public import public
from spvfilter.errors import BlockFilterError, FormatError, ParameterError
from spvfilter.filters.bip158 import BasicFilter
from spvfilter.kernel import BACKEND, GcsQuery
from spvfilter.protocol import BASIC_M, BASIC_P

Buffer: TypeAlias = bytes | bytearray | memoryview
BlockFilter: TypeAlias = tuple[Buffer, Buffer | BasicFilter]  # block hash (32 bytes, wire order), its filter
_BATCH, _BATCH_SIZE = 256, 4_000_000  # filters and bytes in one call of the kernel, a few milliseconds of work


@public
class ScriptSource(Protocol):
    """Anything that knows which scripts a basic filter is to be asked for."""

    def gcs_elements(self) -> Iterable[bytes]: ...


@dataclass(slots=True)
class _Batch:
    filters: list[tuple[bytes, bytes]] = field(default_factory=list)
    error: Exception | None = None  # what has ended the stream behind them


@public
def match_filters(filters: Iterable[BlockFilter], watch: ScriptSource | GcsQuery, *, jobs: int = 1) -> Generator[bytes]:
    """The hashes of the blocks whose filters match, in the order given: candidates, which only the blocks themselves confirm.

    `filters` is read as needed, in the caller's thread, at most jobs + 1 batches of 256 filters or some 4 MB ahead. `watch` is a WatchList,
    as it is now, or a query made before. `jobs` threads match at once, where the kernel lets go of the GIL; the pure one takes but one, and
    one job is the caller's own thread. Closing the generator ends them. It blocks: from a coroutine, iterate in a thread.

    Raises ParameterError; InexpressibleError for entries that such filters cannot find. In its turn, after the candidates before it, comes
    an Exception that `filters` raises, TypeError for what is no filter, and BlockFilterError for the first malformed one. What is no
    Exception, such as KeyboardInterrupt, ends it at once, and candidates among what was read but not told yet are not told.
    """
    if jobs < 1:
        raise ParameterError(f"jobs must be at least 1: {jobs}")
    query = watch if isinstance(watch, GcsQuery) else GcsQuery(watch.gcs_elements())
    return _candidates(_outcomes(_batches(iter(filters)), query, 1 if BACKEND == "pure" else jobs))


def read_ahead(jobs: int) -> int:
    """At most so many filters are read before the first candidate among them, or what is wrong with one of them, is told."""
    return (jobs + 1) * _BATCH


def _candidates(outcomes: Generator[tuple[Sequence[bytes], Exception | None]]) -> Generator[bytes]:
    try:
        for found, error in outcomes:
            yield from found
            if error is not None:
                raise error
    finally:
        outcomes.close()


def _outcomes(batches: Iterator[_Batch], query: GcsQuery, jobs: int) -> Generator[tuple[Sequence[bytes], Exception | None]]:
    """Candidates of each batch in order, and what comes after them instead of the next batch."""
    if jobs == 1:
        for batch in batches:
            yield _match(batch, query)
        return
    workers = ThreadPoolExecutor(jobs, "spvfilter-filters")
    waiting: deque[Future[tuple[Sequence[bytes], Exception | None]]] = deque()
    try:
        for batch in batches:
            waiting.append(workers.submit(_match, batch, query))
            if len(waiting) > jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        workers.shutdown(cancel_futures=True)


def _batches(filters: Iterator[BlockFilter]) -> Iterator[_Batch]:
    is_more = True
    while is_more:
        batch, size = _Batch(), 0
        try:
            for block_hash, data in filters:
                batch.filters.append(_checked(block_hash, data))
                size += len(batch.filters[-1][1])
                if len(batch.filters) == _BATCH or size >= _BATCH_SIZE:
                    break
            else:
                is_more = False
        except Exception as error:  # raised again behind the candidates of this batch
            batch.error = error
            is_more = False
        yield batch


def _checked(block_hash: Buffer, data: Buffer | BasicFilter) -> tuple[bytes, bytes]:
    """Both as bytes, which nobody changes while a thread reads them."""
    if not isinstance(block_hash, Buffer):
        raise TypeError(f"a block hash is 32 bytes, not {type(block_hash).__name__}")
    hash_ = bytes(block_hash)
    if len(hash_) != 32:
        raise ParameterError(f"a block hash has 32 bytes, not {len(hash_)}")
    if isinstance(data, BasicFilter):
        if data.block_hash != hash_:
            raise ParameterError(f"{data!r} was given for block {hash_[::-1].hex()}")
    elif not isinstance(data, Buffer):
        raise TypeError(f"a filter is bytes or a BasicFilter, not {type(data).__name__}")
    return hash_, bytes(data)


def _match(batch: _Batch, query: GcsQuery) -> tuple[Sequence[bytes], Exception | None]:
    try:
        mask = query.match_many([(block_hash[:16], data) for block_hash, data in batch.filters], BASIC_P, BASIC_M)
    except FormatError:
        return _match_singly(batch, query)
    return [block_hash for (block_hash, _), hit in zip(batch.filters, mask, strict=True) if hit], batch.error


def _match_singly(batch: _Batch, query: GcsQuery) -> tuple[Sequence[bytes], Exception | None]:
    """For a batch with a malformed filter: what is before it."""
    found: list[bytes] = []
    for block_hash, data in batch.filters:
        try:
            if query.match_any(data, block_hash[:16], BASIC_P, BASIC_M):
                found.append(block_hash)
        except FormatError as error:
            return found, BlockFilterError(error.message, offset=error.offset, field=error.field, block_hash=block_hash)
    raise AssertionError("all are sound")
