"""Sums over each entry's matches, in 32 bytes per entry however many matches there are, and the file of totals."""

from __future__ import annotations

import csv
import threading
from array import array
from collections.abc import Iterable, Iterator
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from spvfilter.address import script_to_address
from spvfilter.files import SHARED, replacing
from spvfilter.kernel import EntryKind, add_hit_sums
from spvfilter.primitives import OutPoint
from spvfilter.scan.linelabels import CSV_ACCOUNT, LineLabels, plain_cell
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.repeatedcoins import RepeatedCoins
from spvfilter.watch import patterns
from spvfilter.watch.watchlist import WatchList

_NAMES, _SUMS = ("entry", "address", "label"), ("received", "spent", "unknown", "matches")  # columns
_NUMBERS = 4  # Numbers kept for each entry.
_ROWS = 1 << 12  # Number of entries that are rendered at a time (our choice).


class EntryTotal(NamedTuple):
    """The number and the total values of one watched entry's matches."""

    matches: int
    """Number of the entry's matches."""
    received: int
    """Total value of the outputs that pay the entry, in satoshi."""
    spent: int
    """Total value of the spends of the entry's outputs, in satoshi, as far as it is known."""
    unknown: int
    """Number of the entry's matches whose value is unknown."""


class EntryTotals:
    """The totals of all entries of a watch list. A coin that two blocks created counts once (BIP-30)."""

    def __init__(self, entries: int) -> None:
        self._lock = threading.Lock()
        self._coins = RepeatedCoins()
        self._sums = array("Q", [0]) * (_NUMBERS * entries)
        # for each index in `_sums`, how often the sum exceeded 64 bits, which can happen if coins are spent repeatedly
        self._beyond: dict[int, int] = {}

    def widen(self, entries: int) -> None:
        """Add entries up to this number, because the window of a keychain may have moved."""
        if (more := _NUMBERS * entries - len(self._sums)) > 0:
            self._sums.extend(array("Q", [0]) * more)

    def add_all(self, blocks: Iterable[BlockHits]) -> None:
        """Add the hits of several blocks, in any order and from any thread. Raises the same errors as `add`."""
        with self._lock:
            for block in blocks:
                self.add(block)

    def add(self, block: BlockHits) -> None:
        """Add the hits of a block, except coins that an earlier block already created (BIP-30).

        Raises FormatError if the hits are malformed, and IndexError if they belong to another list.
        """
        for at in add_hit_sums(self._coins.counted(block), self._sums):
            self._beyond[at] = self._beyond.get(at, 0) + 1

    def __iter__(self) -> Iterator[tuple[int, EntryTotal]]:
        """Yield the entries that have matches, in the order of the list."""
        for entry in compress(range(len(self._sums) // _NUMBERS), self._sums[::_NUMBERS]):
            yield entry, self._total(entry)

    def _total(self, entry: int) -> EntryTotal:
        places = range(_NUMBERS * entry, _NUMBERS * (entry + 1))
        return EntryTotal(*(self._sums[at] + (self._beyond.get(at, 0) << 64) for at in places))

    def lines(self, watch: WatchList) -> Iterator[bytes]:
        """Yield the totals as lines of CSV, in the order of the watch list.

        The kernel renders the totals of scripts.
        """
        network = watch.network
        of_network = network.p2pkh_version, network.p2sh_version, network.hrp
        beyond = {at // _NUMBERS for at in self._beyond}
        ends = sorted({*beyond, *range(_ROWS, len(self._sums) // _NUMBERS, _ROWS), len(self._sums) // _NUMBERS})
        entry = 0
        for end in ends:
            matches = self._sums[_NUMBERS * entry : _NUMBERS * end : _NUMBERS]
            places, texts = LineLabels(watch, plain_cell, CSV_ACCOUNT).of_entries(compress(range(entry, end), matches))
            while entry < end:
                sums = self._sums[_NUMBERS * entry : _NUMBERS * end]
                text, entry = watch.table.script_totals(sums, entry, places, texts, *of_network)
                yield text
                if entry < end:
                    yield self._line(watch, entry)
                    entry += 1
            if end in beyond:
                yield self._line(watch, entry)
                entry += 1

    def _line(self, watch: WatchList, entry: int) -> bytes:
        name, address = entry_name(watch, entry)
        matches, received, spent, unknown = self._total(entry)
        owners = [watch.label(entry), *([watch.account(entry)] if watch.accounts else [])]
        label = ",".join(plain_cell(owner or "").decode() for owner in owners)
        return f"{name},{address},{label},{received},{spent},{unknown},{matches}\n".encode()


def write_totals(path: Path, totals: EntryTotals, watch: WatchList) -> None:
    """Write the totals as CSV, in the order of the watch list. Raises OSError."""
    with replacing(path, SHARED) as file:
        columns = (*_NAMES, *(("account",) if watch.accounts else ()), *_SUMS)
        file.write(",".join(columns).encode() + b"\n")
        file.writelines(totals.lines(watch))


def read_totals(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a file of totals. Raises OSError if the file cannot be read."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def entry_name(watch: WatchList, number: int) -> tuple[str, str]:
    """Return an entry as a line of a watch list, and its address, or "" if it has none."""
    kind, value = watch.table.entry(number)
    match kind:
        case EntryKind.SCRIPT:
            return f"script:{value.hex()}", script_to_address(value, watch.network) or ""
        case EntryKind.MULTISIG_KEY:
            return f"pubkey:{value.hex()}", ""
        case EntryKind.DATA:
            return f"data:{value.hex()}", ""
        case EntryKind.OUTPOINT:
            return f"outpoint:{OutPoint.parse(value)}", ""
        case EntryKind.DATA_PREFIX:
            return f"{patterns.DATA_PREFIX}{value.hex()}", ""
        case EntryKind.SCRIPT_TYPE:
            return patterns.type_line(value), ""
