"""`spvfilter cfilter import` and `export`: copy compact filters between files and the wallet's database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

from spvfilter.chain import HeaderChain
from spvfilter.cli.cfilter.jsonlines import FilterRecord
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.progress import megabytes, progress
from spvfilter.errors import BlockFilterError, SourceError, counted
from spvfilter.filters.bip158 import BasicFilter
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.store.importer import FilterImport, ImportCounts
from spvfilter.store.store import Store

_INCOMPLETE = 1
"""Exit code if filters were left out."""
_AT_ONCE = 500
"""Number of filters to read from the database at a time, and between two updates of the progress display."""


def import_filters(given: Iterator[tuple[str, FilterRecord]], db: str, network: Network) -> int:
    """Import filters, each with a name for error messages, and return the exit code.

    Filters imported before an error stay in the database. Raises SourceError and StoreError.
    """
    first = next(given, None)  # without a filter, no database is created
    if first is None:
        raise SourceError("no filter was given")
    with _importing(db, network) as importing:
        try:
            with progress(None) as shown:
                size = 0
                for number, (name, record) in enumerate(chain([first], given)):
                    try:
                        importing.add(
                            record.block,
                            record.data,
                            previous=record.previous,
                            height=record.height,
                            header=record.header,
                        )
                    except (BlockFilterError, SourceError) as error:
                        raise SourceError(f"{name}: {error}") from None
                    size += len(record.data)
                    if number % _AT_ONCE == 0:
                        shown.update(size, None)
        finally:
            importing.flush()
            _tell(importing.counts, db)
        counts = importing.counts
        if not counts.kept + counts.present:
            raise SourceError(
                f"all {counts.stale:,} filters belong to blocks that are not on the best chain of {db}, such as"
                f" {hash_to_hex(counts.stale_blocks[0])}: give a file from the same chain, or a different database"
            )
        return _INCOMPLETE if counts.stale else 0


@contextmanager
def _importing(db: str, network: Network) -> Iterator[FilterImport]:
    """Context manager: an import into a database.

    If a new database contains no filter at the end, it is removed. Otherwise it would stay tied to its network, and
    refuse a later run with the right one.
    """
    is_new, kept = not Path(db).exists(), 0
    try:
        with Store.open(db, network) as store:
            importing = FilterImport(store)
            try:
                yield importing
            finally:
                kept = importing.counts.kept
    finally:
        if is_new and not kept:
            Path(db).unlink(missing_ok=True)


def _tell(counts: ImportCounts, db: str) -> None:
    """Print the counts, unless no filter belongs to the best chain: then the error of `import_filters` says it all."""
    if counts.stale and not counts.kept + counts.present:
        return
    for block in counts.stale_blocks:
        complain(f"block {hash_to_hex(block)} is not on the best chain of {db}: its filter was not imported")
    if counts.stale > len(counts.stale_blocks):
        complain(f"and {counts.stale - len(counts.stale_blocks):,} more")
    present = f", {counts.present:,} were already there" if counts.present else ""
    complain(f"{counted(counts.kept, 'filter')} stored{present}")
    if counts.waiting:
        complain(
            f"{counts.waiting:,} of them need their filter headers: watch fetches the headers from nodes and uses the"
            " filters that match them"
        )


def export_filters(db: str, network: Network, page: Page) -> int:
    """Print the filters in a database as JSON lines, lowest block first, and return the exit code.

    Raises SourceError or StoreError.
    """
    if not Path(db).is_file():
        raise SourceError(f"{db}: no such file")
    count = size = 0
    with Store.open(db, network) as store:
        headers = HeaderChain.restore(network, store.headers(1))
        last = min(store.compact_filters.height, headers.height)
        for first in range(0, last + 1, _AT_ONCE):
            for height, data in sorted(store.compact_filters.kept(first, min(first + _AT_ONCE - 1, last)).items()):
                block = headers.hash_at(height)
                previous = headers.hash_at(height - 1) if height else bytes(32)
                record = FilterRecord(block, previous, height, data, store.compact_filters.header_at(height))
                page.record(record.line(BasicFilter.parse(data, block).n))
                count += 1
                size += len(data)
        waiting = store.compact_filters.waiting()
    if not count:
        if waiting:
            raise SourceError(
                f"{db}: no filter headers for {counted(waiting, 'filter')}; run `spvfilter watch --mode compact` first"
            )
        raise SourceError(f"{db} contains no filters: run watch --mode compact --keep-filters, or import filters")
    missing = f"; {last + 1 - count:,} of the blocks up to {last:,} have none" if count <= last else ""
    more = f"; {waiting:,} more need their filter headers" if waiting else ""
    complain(f"{counted(count, 'filter')}, {megabytes(size)}{missing}{more}")
    return 0
