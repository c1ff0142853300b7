"""Match a stream of basic filters (BIP-158) against a watch list, in several threads and bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from spvfilter._public import public
from spvfilter.errors import BlockFilterError, FormatError, ParameterError
from spvfilter.filters.bip158 import BasicFilter
from spvfilter.kernel import BACKEND, GcsQuery
from spvfilter.protocol import BASIC_M, BASIC_P

Buffer: TypeAlias = bytes | bytearray | memoryview
BlockFilter: TypeAlias = tuple[Buffer, Buffer | BasicFilter]
"""A pair: the hash of a block (32 bytes, wire order), and the block's basic filter."""
# most filters and most bytes of one call of the kernel, which takes a few milliseconds (our choice)
BATCH, BATCH_SIZE = 256, 4_000_000


@public
class ScriptSource(Protocol):
    """An object that lists the scripts to look up in basic filters, such as a WatchList."""

    def gcs_elements(self) -> Iterable[bytes]:
        """Return the scripts to look up in basic filters.

        Raises:
            InexpressibleError: The object has entries that compact filters cannot find.
        """
        ...


@dataclass(slots=True)
class _Batch:
    """Filters for one call of the kernel, and the hashes of their blocks."""

    filters: list[tuple[bytes, bytes]] = field(default_factory=list)
    error: Exception | None = None
    """The error that ended the stream after the filters of this batch, or None if there was no error."""


@public
def match_filters(filters: Iterable[BlockFilter], watch: ScriptSource | GcsQuery, *, jobs: int = 1) -> Generator[bytes]:
    """Yield the hashes of the blocks whose filters match, in the order of `filters`.

    The blocks are only candidates: filters have false positives, so the caller must search the blocks.

    The generator reads at most `jobs` + 1 batches ahead; a batch contains 256 filters or about 4 MB. Iterate in a
    thread, not in a coroutine, because the iteration blocks. Close the generator to end its threads.

    If `filters` raises an error or yields an invalid item, the generator first yields the candidates before that item,
    then raises the error. KeyboardInterrupt ends the generator immediately.

    Args:
        filters: Pairs (block hash, filter), read lazily in the caller's thread.
        watch: A query, or a watch list. Entries added to the list after the call are not looked up.
        jobs: Number of threads. One job runs in the caller's thread. The pure kernel always uses one.

    Raises:
        ParameterError: `jobs` is below 1, or a block hash is not 32 bytes long.
        InexpressibleError: Compact filters cannot find an entry of `watch`.
        BlockFilterError: A filter is malformed.
        TypeError: An item is not a filter.
    """
    if jobs < 1:
        raise ParameterError(f"jobs must be at least 1, not {jobs}")
    query = watch if isinstance(watch, GcsQuery) else GcsQuery(watch.gcs_elements())
    return _candidates(_outcomes(_batches(iter(filters)), query, 1 if BACKEND == "pure" else jobs))


def read_ahead(jobs: int) -> int:
    """Return the largest number of filters that `match_filters` reads ahead of its next result."""
    return (jobs + 1) * BATCH


def _candidates(outcomes: Generator[tuple[Sequence[bytes], Exception | None]]) -> Generator[bytes]:
    try:
        for found, error in outcomes:
            yield from found
            if error is not None:
                raise error
    finally:
        outcomes.close()


def _outcomes(
    batches: Iterator[_Batch], query: GcsQuery, jobs: int
) -> Generator[tuple[Sequence[bytes], Exception | None]]:
    """Yield a pair for each batch, in order: its candidates, and the error that follows them, or None."""
    if jobs == 1:
        for batch in batches:
            yield _match(batch, query)
        return
    workers = futures.ThreadPoolExecutor(jobs, "spvfilter-filters")
    waiting: deque[futures.Future[tuple[Sequence[bytes], Exception | None]]] = deque()
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
                if len(batch.filters) == BATCH or size >= BATCH_SIZE:
                    break
            else:
                is_more = False
        except Exception as error:  # raised after the candidates of this batch
            batch.error = error
            is_more = False
        yield batch


def _checked(block_hash: Buffer, data: Buffer | BasicFilter) -> tuple[bytes, bytes]:
    """Return the block hash and the filter as bytes objects, which cannot change while a thread reads them."""
    # the usual case, without the checks below, which take 1 µs
    if type(block_hash) is bytes and type(data) is bytes and len(block_hash) == 32:
        return block_hash, data
    if not isinstance(block_hash, Buffer):
        raise TypeError(f"a block hash must be bytes, not {type(block_hash).__name__}")
    hash_ = bytes(block_hash)
    if len(hash_) != 32:
        raise ParameterError(f"a block hash must be 32 bytes long, not {len(hash_)}")
    if isinstance(data, BasicFilter):
        if data.block_hash != hash_:
            raise ParameterError(f"expected the filter of block {hash_[::-1].hex()}, got {data!r}")
    elif not isinstance(data, Buffer):
        raise TypeError(f"a filter must be bytes or a BasicFilter, not {type(data).__name__}")
    return hash_, bytes(data)


def _match(batch: _Batch, query: GcsQuery) -> tuple[Sequence[bytes], Exception | None]:
    try:
        mask = query.match_many([(block_hash[:16], data) for block_hash, data in batch.filters], BASIC_P, BASIC_M)
    except FormatError:
        return _match_singly(batch, query)
    return [block_hash for (block_hash, _), hit in zip(batch.filters, mask, strict=True) if hit], batch.error


def _match_singly(batch: _Batch, query: GcsQuery) -> tuple[Sequence[bytes], Exception | None]:
    """Match a batch that contains a malformed filter. Return the candidates before that filter, and its error."""
    found: list[bytes] = []
    for block_hash, data in batch.filters:
        try:
            if query.match_any(data, block_hash[:16], BASIC_P, BASIC_M):
                found.append(block_hash)
        except FormatError as error:
            return found, BlockFilterError(error.message, offset=error.offset, field=error.field, block_hash=block_hash)
    raise AssertionError("every filter of the batch is well-formed")
