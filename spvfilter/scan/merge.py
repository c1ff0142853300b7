"""The files of a scan's parts merged, in chain order, into one output: CSV, JSON lines or Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.files import replacing
from spvfilter.kernel import hit_lines
from spvfilter.scan.partfile import PartFile
from spvfilter.scan.totals import EntryTotals
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

CSV, JSON_LINES = 0, 1  # forms of lines, as the kernel numbers them
COLUMNS = (
    "kind", "block_hash", "height", "time", "txid", "index", "outpoint_txid", "outpoint_index", "value", "script_pubkey", "address",
    "label", "coinbase", "fee",
)  # fmt: skip
CSV_HEADER = ",".join(COLUMNS).encode() + b"\n"
_AT_ONCE = 1 << 20  # bytes

Parts = Iterable[PartFile]


def csv_cell(text: str) -> bytes:
    """A cell in quotes."""
    return b'"' + text.replace('"', '""').encode() + b'"'


def json_text(text: str) -> bytes:
    """A JSON string."""
    return json.dumps(text).encode()


def rendered_labels(watch: WatchList, form: int) -> dict[int, bytes]:
    """The labels of entries, by number, as they stand in a line."""
    render = csv_cell if form == CSV else json_text
    known: dict[str, bytes] = {}
    labels: dict[int, bytes] = {}
    for entry in range(len(watch)):
        if label := watch.label(entry):
            labels[entry] = known[label] if label in known else known.setdefault(label, render(label))
    return labels


def labels_digest(watch: WatchList) -> str:
    """SHA-256 of the labels of all entries, in hex."""
    digest = sha256()
    for entry, label in rendered_labels(watch, CSV).items():
        digest.update(entry.to_bytes(4, "little") + len(label).to_bytes(4, "little") + label)
    return digest.hexdigest()


def lines(parts: Parts, watch: WatchList, form: int, totals: EntryTotals | None = None) -> Iterator[bytes]:
    """The matches as lines, a block's at a time; `totals` are filled in. Raises OSError; SourceError for a damaged part."""
    labels, network = rendered_labels(watch, form), watch.network
    for part in parts:
        for block in part.blocks():
            if totals is not None:
                totals.add(block.packed)
            yield hit_lines(
                block.packed, form, labels, block.hash, block.height, block.time, network.p2pkh_version, network.p2sh_version, network.hrp
            )


def write_lines(path: Path, parts: Parts, watch: WatchList, form: int) -> EntryTotals:
    """Write an output of lines, and return the totals by entry. Raises as `lines` does."""
    totals = EntryTotals(len(watch))
    with replacing(path) as file:
        if form == CSV:
            file.write(CSV_HEADER)
        for several in lines(parts, watch, form, totals):
            file.write(several)
    return totals


class LineStream(io.RawIOBase):
    """The lines of an output as a file that is read once, for readers of CSV."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]  # any buffer that io passes
        while not self._rest:
            several = list(_up_to(self._pieces, _AT_ONCE))
            if not several:
                return 0
            self._rest = b"".join(several)
        size = min(len(view), len(self._rest))
        view[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _up_to(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The next pieces, of some `size` bytes together."""
    for piece in pieces:
        yield piece
        size -= len(piece)
        if size <= 0:
            return


def open_csv(parts: Parts, watch: WatchList, totals: EntryTotals) -> IO[bytes]:
    """The matches as CSV with a header, to be read once; `totals` are filled in."""

    def pieces() -> Iterator[bytes]:
        yield CSV_HEADER
        yield from lines(parts, watch, CSV, totals)

    return io.BufferedReader(LineStream(pieces()), _AT_ONCE)
