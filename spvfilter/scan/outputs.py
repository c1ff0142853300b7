"""The outputs of a finished scan in a directory: a file of matches and a file of totals."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError
from spvfilter.scan.directory import PartScan
from spvfilter.scan.engines import Engine
from spvfilter.scan.manifest import Manifest
from spvfilter.scan.merge import CSV, JSON_LINES, labels_digest, lines, write_lines
from spvfilter.scan.partfile import PartFile
from spvfilter.scan.remote import RemoteFile, is_url
from spvfilter.scan.tables import check_parquet, write_parquet
from spvfilter.scan.threadwork import to_its_end
from spvfilter.scan.totals import EntryTotals, write_totals

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

TOTALS = "totals.csv"  # name of the file of totals


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

    The file totals.csv in the same directory gets the number and the value of each watched entry's matches.

    Args:
        scan: The scan to run or to continue.
        form: The format of the file of matches.
        engine: The engine that scans; by default one thread.

    Returns:
        The path of the file of matches.

    Raises:
        ParameterError: The directory holds another scan or other files. Or `form` is Parquet and pyarrow is missing;
            this is checked before the scan.
        DirectoryInUseError: Another scan uses the directory.
        SourceError: A source of blocks cannot be used.
        OSError: A file cannot be read or written.
    """
    chosen = OutputFormat(form)
    if chosen is OutputFormat.PARQUET:
        await asyncio.to_thread(check_parquet)
    async with scan.held(engine) as parts:
        return await to_its_end(_merged, scan, parts, chosen)


@public
def publish(matches: Path, url: str) -> list[str]:
    """Upload the files of a finished scan, the matches and the totals, below a URL.

    Each file appears complete: by a rename if the store has files, else as one object. The totals come last.

    Args:
        matches: The file of matches, from `scan_parts`.
        url: The URL of the target directory.

    Returns:
        The URLs of the files.

    Raises:
        ParameterError: The URL is not a URL, or fsspec is missing.
        RemoteFileError: The store fails or refuses.
        OSError: A file cannot be read.
    """
    if not is_url(url):
        raise ParameterError(f"not a URL: {url!r}")
    below = RemoteFile(url)
    files = [RemoteFile(f"{below}/{path.name}") for path in (matches, matches.with_name(TOTALS))]
    for file in files:
        file.put(matches.with_name(file.name))
    return list(map(str, files))


def _merged(scan: PartScan, parts: list[PartFile], form: OutputFormat) -> Path:
    """Write the outputs, unless they exist already, and return the path of the file of matches."""
    manifest = Manifest.read(scan.directory)
    assert manifest is not None  # the scan has written it
    path, labels = scan.directory / f"matches.{form}", labels_digest(scan.watch)
    if manifest.rendered.get(path.name) == _rendering(path, labels):
        return path
    totals = EntryTotals(len(scan.watch))
    if form is OutputFormat.PARQUET:
        write_parquet(path, lines(parts, scan.watch, CSV, totals))
    else:
        totals = write_lines(path, parts, scan.watch, CSV if form is OutputFormat.CSV else JSON_LINES)
    write_totals(scan.directory / TOTALS, totals, scan.watch)
    manifest.rendered[path.name] = _rendering(path, labels)
    manifest.write(scan.directory)
    for left in scan.directory.glob(".spvfilter-*"):  # temporary files of processes that were killed
        left.unlink(missing_ok=True)
    return path


def _rendering(path: Path, labels: str) -> str:
    """Return a text that lists the inputs of an output and the sizes of both files.

    The sizes reveal a file that was truncated later.
    """
    sizes = [str(each.stat().st_size) if each.exists() else "none" for each in (path, path.with_name(TOTALS))]
    return " ".join((labels, *sizes))
