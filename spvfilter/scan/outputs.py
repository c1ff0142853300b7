"""What a finished scan in a directory is made into: one file of matches, and one of totals."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred, public
from spvfilter.errors import ParameterError
from spvfilter.scan.directory import PartScan, to_its_end
from spvfilter.scan.engines import Engine
from spvfilter.scan.manifest import Manifest
from spvfilter.scan.merge import CSV, JSON_LINES, labels_digest, lines, write_lines
from spvfilter.scan.partfile import PartFile
from spvfilter.scan.remote import RemoteFile, is_url
from spvfilter.scan.tables import check_parquet, write_parquet
from spvfilter.scan.totals import EntryTotals, write_totals

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

TOTALS = "totals.csv"


@public
class OutputFormat(StrEnum):
    """The format of the file of matches."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


@public
async def scan_parts(scan: PartScan, form: OutputFormat | str = OutputFormat.CSV, engine: Engine | None = None) -> Path:
    """Scan into a directory, go on with what is there, and merge: the path of the file of matches, beside which are
    totals.csv.

    Raises ParameterError for parquet without pyarrow, before anything is scanned, and what `PartScan.run` raises.
    """
    chosen = OutputFormat(form)
    if chosen is OutputFormat.PARQUET:
        await asyncio.to_thread(check_parquet)
    async with scan.held(engine) as parts:
        return await to_its_end(_merged, scan, parts, chosen)


@public
def publish(matches: Path, url: str) -> list[str]:
    """Put the files of a finished scan, that of the matches (from `scan_parts`) and the totals, below a URL; their
    URLs.

    Each takes its place whole: by a rename where the store has files, and as one object where it has none; the totals
    come last. Raises RemoteFileError, OSError, ParameterError for what is no URL, and without fsspec.
    """
    if not is_url(url):
        raise ParameterError(f"not a URL: {url!r}")
    below = RemoteFile(url)
    files = [RemoteFile(f"{below}/{path.name}") for path in (matches, matches.with_name(TOTALS))]
    for file in files:
        file.put(matches.with_name(file.name))
    return list(map(str, files))


def _merged(scan: PartScan, parts: list[PartFile], form: OutputFormat) -> Path:
    manifest = Manifest.read(scan.directory)
    assert manifest is not None  # PartScan.run has written it
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
    for left in scan.directory.glob(".spvfilter-*"):  # of processes that were killed
        left.unlink(missing_ok=True)
    return path


def _rendering(path: Path, labels: str) -> str:
    """What an output was made with, and its size and that of the totals, by which one that was cut off later is
    known.
    """
    sizes = [str(each.stat().st_size) if each.exists() else "none" for each in (path, path.with_name(TOTALS))]
    return " ".join((labels, *sizes))
