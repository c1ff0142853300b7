"""Merge the files of a scan's parts, in chain order, into one output: CSV, JSON lines or Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import hit_lines
from spvfilter.scan.partfile import PartFile
from spvfilter.scan.totals import EntryTotals
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

CSV, JSON_LINES = 0, 1  # formats of lines, as the kernel numbers them
COLUMNS = (
    "kind",
    "block_hash",
    "height",
    "time",
    "txid",
    "index",
    "outpoint_txid",
    "outpoint_index",
    "value",
    "script_pubkey",
    "address",
    "label",
    "coinbase",
    "fee",
)
CSV_HEADER = ",".join(COLUMNS).encode() + b"\n"

Parts = Iterable[PartFile]


def csv_cell(text: str) -> bytes:
    """Return a text as a quoted cell of CSV."""
    return b'"' + text.replace('"', '""').encode() + b'"'


def json_text(text: str) -> bytes:
    """Return a text as a JSON string."""
    return json.dumps(text).encode()


def rendered_labels(watch: WatchList, form: int) -> dict[int, bytes]:
    """Return the labels of all entries as they appear in an output line, in the order of the entries' numbers."""
    render = csv_cell if form == CSV else json_text
    known: dict[str, bytes] = {}
    labels: dict[int, bytes] = {}
    for entry in range(len(watch)):
        if label := watch.label(entry):
            labels[entry] = known[label] if label in known else known.setdefault(label, render(label))
    return labels


def labels_digest(watch: WatchList) -> str:
    """Return the SHA-256 of the labels of all entries, in hex."""
    digest = sha256()
    for entry, label in rendered_labels(watch, CSV).items():
        digest.update(entry.to_bytes(4, "little") + len(label).to_bytes(4, "little") + label)
    return digest.hexdigest()


def lines(parts: Parts, watch: WatchList, form: int, totals: EntryTotals | None = None) -> Iterator[bytes]:
    """Yield the matches as lines, all lines of a block at once, and add them to `totals`.

    Raises OSError; SourceError for a damaged part.
    """
    labels, network = rendered_labels(watch, form), watch.network
    for part in parts:
        for block in part.blocks():
            if totals is not None:
                totals.add(block)
            yield hit_lines(
                block.packed,
                form,
                labels,
                block.hash,
                block.height,
                block.time,
                network.p2pkh_version,
                network.p2sh_version,
                network.hrp,
            )


def write_lines(path: Path, parts: Parts, watch: WatchList, form: int) -> EntryTotals:
    """Write an output of lines, and return the totals by entry.

    Raises OSError if a file cannot be read or written, and SourceError for a damaged part.
    """
    totals = EntryTotals(len(watch))
    with replacing(path, SHARED) as file:
        if form == CSV:
            file.write(CSV_HEADER)
        for several in lines(parts, watch, form, totals):
            file.write(several)
    return totals
