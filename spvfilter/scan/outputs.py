"""The results of a finished scan in a directory: a file of matches and a file of totals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import BACKEND
from spvfilter.scan.directory import PartScan
from spvfilter.scan.engines import Engine
from spvfilter.scan.linelabels import labels_digest
from spvfilter.scan.manifest import Manifest
from spvfilter.scan.merge import COLUMNS, CSV, JSON_LINES, csv_columns, write_lines
from spvfilter.scan.partfile import PartFile
from spvfilter.scan.remote import RemoteFile, is_url
from spvfilter.scan.tables import check_parquet, write_parquet
from spvfilter.scan.threadwork import stoppable, until
from spvfilter.scan.totals import write_totals

TOTALS = "totals.csv"  # name of the file of totals
_TRANSACTIONS = "transactions"  # name of the file of whole transactions, without its suffix


@public
class OutputFormat(StrEnum):
    """The format of the file of matches that a scan writes."""

    CSV = "csv"
    """CSV with a header line, in the file matches.csv."""
    JSONL = "jsonl"
    """JSON lines, one object per line, in the file matches.jsonl."""
    PARQUET = "parquet"
    """Parquet, in the file matches.parquet. This format needs pyarrow."""


@public
async def scan_parts(scan: PartScan, form: OutputFormat | str = OutputFormat.CSV, engine: Engine | None = None) -> Path:
    """Scan into a directory, or continue the scan there, and write the matches of all parts into one file.

    The number and the value of each watched entry's matches are written to totals.csv in the same directory. If the
    directory contains matches in other formats, those files are updated as well. A scan with transactions also writes a
    file of transactions in each format, and a scan without them removes these files.

    Args:
        scan: The scan to run or to continue.
        form: The format of the file of matches.
        engine: The engine that scans; by default one thread.

    Returns:
        The path of the file of matches.

    Raises:
        ParameterError: The directory holds a different scan or other files, or its parts were removed. Or the form is
            Parquet and pyarrow is missing, which is checked before the scan.
        DirectoryInUseError: Another scan is using the directory.
        SourceError: A source of blocks cannot be used.
        OSError: A file cannot be read or written.
    """
    chosen = OutputFormat(form)
    if chosen is OutputFormat.PARQUET or _path(scan, OutputFormat.PARQUET).exists():
        await asyncio.to_thread(check_parquet)
    async with scan.held(engine) as parts:
        jobs = 1 if BACKEND == "pure" or engine is None else min(engine.width, os.cpu_count() or 1)
        return await stoppable(merged_parts, scan, parts, chosen, jobs)


@public
def publish(matches: Path, url: str) -> list[str]:
    """Upload the files of a finished scan to a URL: the matches, the transactions if there are any, and the totals.

    Each file appears only when it is complete: it is renamed if the store has files, or else stored as one object. The
    totals come last.

    Args:
        matches: The file of matches, from `scan_parts`.
        url: The URL of the target directory.

    Returns:
        The URLs of the files.

    Raises:
        ParameterError: `url` is not a URL, or fsspec is missing.
        RemoteFileError: The store fails, or refuses the upload.
        OSError: A file cannot be read.
    """
    if not is_url(url):
        raise ParameterError(f"expected a URL, got {url!r}")
    below = RemoteFile(url)
    paths = (matches, matches.with_stem(_TRANSACTIONS), matches.with_name(TOTALS))
    files = [RemoteFile(f"{below}/{path.name}") for path in paths if path.exists()]
    for file in files:
        file.put(matches.with_name(file.name))
    return list(map(str, files))


def merged_parts(
    is_stopped: Callable[[], bool], scan: PartScan, parts: list[PartFile], form: OutputFormat, jobs: int
) -> Path:
    """Write the results in this format, and in the formats of earlier runs, so that all of them show the same chain.

    Files that are up to date stay as they are. All new files are complete before the first old one is replaced. Returns
    the path of the file of matches. Raises WorkStoppedError once `is_stopped` returns True; no file has then been
    replaced.
    """
    manifest = Manifest.read(scan.directory)
    assert manifest is not None  # the scan has written it
    before = f"{labels_digest(scan.watch)}{scan.parquet_form}{csv_columns(COLUMNS)}"
    inputs = sha256(before.encode() + b"".join(part.digest for part in parts)).hexdigest()
    paths = {each: _path(scan, each) for each in OutputFormat if each is form or _path(scan, each).exists()}
    old = [each for each, path in paths.items() if manifest.rendered.get(path.name) != _rendering(path, inputs)]
    written = [*(paths[each] for each in old), scan.directory / TOTALS] if old else []
    try:
        for each in old:
            _write(scan, until(parts, is_stopped), each, jobs)
        written += _write_transactions(scan, form, is_stopped, jobs)
        for path in written:
            _staged(path).replace(path)
    finally:
        for left in scan.directory.glob(".spvfilter-*"):  # including temporary files of processes that were killed
            left.unlink(missing_ok=True)
    rendered = {path.name: _rendering(path, inputs) for path in paths.values()}
    if manifest.rendered != rendered:
        manifest.rendered = rendered
        manifest.write(scan.directory)
    return paths[form]


def _path(scan: PartScan, form: OutputFormat) -> Path:
    """Return the path of the file of matches in this format."""
    return scan.directory / f"matches.{form}"


def _staged(path: Path) -> Path:
    """Return the path at which a new file waits until it replaces the file of an earlier run."""
    return path.with_name(f".spvfilter-{path.name}")


def _write(scan: PartScan, parts: Iterable[PartFile], form: OutputFormat, jobs: int) -> None:
    """Write the file of matches in this format, and the file of totals, to their staged paths."""
    path, watch = _staged(_path(scan, form)), scan.watch
    if form is OutputFormat.PARQUET:
        totals = write_parquet(path, parts, watch, scan.parquet_form, scan.report.summary.matches, jobs)
    else:
        totals = write_lines(path, parts, watch, CSV if form is OutputFormat.CSV else JSON_LINES, jobs)
    write_totals(_staged(scan.directory / TOTALS), totals, watch)


def _write_transactions(scan: PartScan, form: OutputFormat, is_stopped: Callable[[], bool], jobs: int) -> list[Path]:
    """Write the files of transactions to their staged paths, in this format and in the formats of earlier runs.

    Returns the paths. A scan without transactions removes the files instead.
    """
    paths = {each: _path(scan, each).with_stem(_TRANSACTIONS) for each in OutputFormat}
    if not scan.has_transactions:
        for path in paths.values():
            path.unlink(missing_ok=True)
        return []
    chosen = [path for each, path in paths.items() if each is form or path.exists()]
    for path in chosen:
        scan.write_transactions(_staged(path), is_stopped, jobs)
    return chosen


def _rendering(path: Path, inputs: str) -> str:
    """Return the digest of a result's inputs, and the sizes and modification times of `path` and of the file of totals.

    These reveal whether a file was changed later, or replaced by a process that was killed.
    """
    files = [each.stat() if each.exists() else None for each in (path, path.with_name(TOTALS))]
    states = ["none" if status is None else f"{status.st_size}@{status.st_mtime_ns}" for status in files]
    return " ".join((inputs, *states))
