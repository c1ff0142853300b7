"""The export of one part: the task that an engine runs, which writes a Parquet file for each table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from spvfilter.errors import SourceError
from spvfilter.kernel import WatchTable
from spvfilter.scan.coinruns import CREATED, SPENT, CoinRunWriter
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.exporttables import TableWriter, is_complete
from spvfilter.scan.parquetrows import is_in_height_order
from spvfilter.scan.partcolumns import LackingError, PartColumns
from spvfilter.scan.partfile import BlockHits, PartSummary
from spvfilter.scan.parts import PartTask
from spvfilter.scan.plan import Part
from spvfilter.scan.sortedruns import is_whole_run

_KEY_BYTES = 16  # number of key bytes in a file name (our choice)


def export_key(part: Part, columns: ExportColumns, undo: str, check: bool, has_coins: bool) -> bytes:
    """Return the key of a task: SHA-256 of the part, the columns and the options."""
    text = f"{columns}\0{undo}\0{check}\0{has_coins}"
    return sha256(b"spvfilter export 1\0" + part.fingerprint + text.encode()).digest()


def heights_folder(part: Part) -> str:
    """Return the name of the folder for a part's tables. SQL engines read it as the `heights` column."""
    known = [height for height in part.heights() if height is not None]
    return f"heights={min(known):09}-{max(known):09}" if len(known) == len(part) else "heights=unknown"


@dataclass(frozen=True, slots=True)
class ExportTask(PartTask):
    """A part to export. Its part file contains no hits, and exists only once the files of the tables are complete."""

    directory: Path
    """Directory of the export."""
    columns: ExportColumns
    """The tables and columns to write."""
    run_path: Path | None
    """Path of the run of coins to write, or None if no coins are requested."""

    def table_path(self, table: str) -> Path:
        """Return the path of the file that contains the part's rows of a table."""
        return self.directory / table / heights_folder(self.part) / f"{self.key[:_KEY_BYTES].hex()}.parquet"

    def staged_path(self, table: str) -> Path:
        """Return the path to which the task writes a table.

        The file is moved to `table_path` when all parts are done.
        """
        return self.path.with_suffix(f".{table}.parquet")

    def has_files(self) -> bool:
        """Return True if the files of all tables, and the run of coins, exist and are complete. Raises OSError."""
        return (self.run_path is None or is_whole_run(self.run_path)) and all(
            is_complete(self.staged_path(table)) or is_complete(self.table_path(table))
            for table, _ in self.columns.tables
        )

    def scan(
        self, table: WatchTable, summary: PartSummary, is_stopped: Callable[[], bool] = lambda: False
    ) -> Iterator[BlockHits]:
        """Write the tables, fill in `summary`, and yield nothing.

        Raises OSError if a file cannot be read or written. Raises WorkStoppedError once `is_stopped` returns True, and
        SourceError if a required undo record cannot be used.
        """
        try:
            self._write(summary, is_stopped)
        except LackingError as error:
            raise SourceError(str(error)) from error
        yield from ()

    def _write(self, summary: PartSummary, is_stopped: Callable[[], bool]) -> None:
        writers: list[tuple[TableWriter, int]] = []
        is_sorted = is_in_height_order(self.part.heights())
        with ExitStack() as stack:
            for table, names in self.columns.tables:
                kernel_names = [self.columns.kernel_name(table, name) for name in names]
                writer = TableWriter(self.staged_path(table), names, kernel_names, is_sorted=is_sorted)
                stack.enter_context(writer.opened())
                writers.append((writer, len(names)))
            names_wanted = list(self.columns.kernel_names())
            run = None if self.run_path is None else CoinRunWriter(self.run_path)
            if run is not None:
                stack.enter_context(run.opened())
                names_wanted += (*CREATED, *SPENT)
            part = PartColumns(self.part, names_wanted, self.undo, self.check, summary)
            for _, columns in part.batches(is_stopped):
                at = 0
                for writer, count in writers:
                    writer.add(columns[at : at + count])
                    at += count
                if run is not None:
                    run.add(dict(zip((*CREATED, *SPENT), columns[at:], strict=True)))
