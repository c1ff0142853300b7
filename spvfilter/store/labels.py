"""BIP-329 labels in the wallet's database, and frozen outputs.

The label of a watched address is stored only with its entry in the watch list. All other labels are rows of the
`labels` table, where a label for an unwatched address waits until the address is watched.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import AddressError, ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.primitives import OutPoint
from spvfilter.store.sqlite import MarkedRows
from spvfilter.store.windowviews import Checked, EntryPlaces
from spvfilter.watch.labels import Label

_KNOWN = ("tx", "addr", "pubkey", "input", "output", "xpub")


@public
class ImportedLabels(NamedTuple):
    """The result of importing labels."""

    labels: int
    """Number of labels that were stored."""
    frozen: tuple[OutPoint, ...]
    """Outputs that the import froze, including any that belong to other wallets."""
    unfrozen: tuple[OutPoint, ...]
    """Outputs that the import unfroze."""


class _Row(NamedTuple):
    """A row of the `labels` table."""

    type: str
    ref: str
    origin: str
    label: str | None
    other: str

    def read(self) -> dict[str, Any]:
        """Return the extra fields. Raises ValueError for a damaged row."""
        found = json.loads(self.other)
        if not isinstance(found, dict):
            raise ValueError("the extra fields of a label are not a JSON object")
        return found


def _made(*fields: Any) -> Label:
    """Create a label from the values of a row. Raises ValueError for a damaged row."""
    try:
        return Label(*fields)
    except ParameterError as error:
        raise ValueError(str(error)) from None


def script_of(label: Label, network: Network) -> bytes | None:
    """Return the script of the address that a label is for, if the label can belong to an entry of the watch list.

    Returns None for other types of records, for a record with an origin, and for another network's address.
    """
    if label.type != "addr" or label.origin is not None:
        return None
    try:
        return address_to_script(label.ref, network)
    except AddressError:
        return None


def is_sound(row: Sequence[Any]) -> bool:
    """Return True if a row of the `labels` table contains a valid label."""
    try:
        found = _Row(*row)
        _made(found.type, found.ref, found.label, found.origin or None, None, found.read())
    except ValueError:
        return False
    return True


class LabelRows:
    """Stores labels within a commit."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, network: Network) -> None:
        self._db = db
        self._rows = rows
        self._network = network

    def write(self, labels: Iterable[Label]) -> dict[int, str]:
        """Store labels, and return those of watch list entries, keyed by row id.

        A later label replaces an earlier one for the same record. An empty label text removes the label.
        """
        labels = list(labels)
        entries = self._entries({script for each in labels if (script := script_of(each, self._network)) is not None})
        joined: dict[int, str] = {}
        for each in labels:
            script = script_of(each, self._network)
            ref = each.ref if script is None else script_to_address(script, self._network) or each.ref
            label, entry = each.label, None if script is None else entries.get(script)
            if entry is not None and label is not None:
                joined[entry], label = label, ""
            self._merge(each, ref, label)
        return joined

    def _entries(self, scripts: set[bytes]) -> dict[bytes, int]:
        """Return the row ids of the entries with these scripts."""
        if not scripts:
            return {}
        query = "SELECT value, id FROM watch WHERE kind = ?"
        rows = self._db.execute(query, (int(EntryKind.SCRIPT),))
        return {script: row for script, row in rows if script in scripts}

    def _merge(self, new: Label, ref: str, label: str | None) -> None:
        """Write a record. Fields that are missing from it keep their stored values."""
        key = new.type, ref, new.origin or ""
        query = "SELECT type, ref, origin, label, other FROM labels WHERE type = ? AND ref = ? AND origin = ?"
        found = self._db.execute(query, key).fetchone()
        old = _Row(*key, None, "{}") if found is None else _Row(*found)
        other = old.read() | dict(new.other)
        if new.spendable is not None:
            self._freeze(ref, is_frozen=not new.spendable)
            other.pop("spendable", None)
            if new.spendable:
                other["spendable"] = True
        kept = (old.label if label is None else label) or None
        self._rows.remove("labels", "type = ? AND ref = ? AND origin = ?", key)
        if kept is not None or other or key[2] or key[0] not in _KNOWN:
            text = json.dumps(other, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            self._rows.insert("labels", (*key, kept, text))

    def _freeze(self, ref: str, *, is_frozen: bool) -> None:
        outpoint = bytes(OutPoint.from_text(ref))
        self._rows.remove("frozen", "outpoint = ?", (outpoint,))
        if is_frozen:
            self._rows.insert("frozen", (outpoint,))

    def waiting(self) -> dict[bytes, str]:
        """Return the labels of addresses that were not watched when the labels were imported, keyed by script."""
        query = "SELECT type, ref, origin, label, other FROM labels WHERE type = 'addr' AND origin = ''"
        found: dict[bytes, str] = {}
        for row in map(_Row._make, self._db.execute(query)):
            script = None if row.label is None else script_of(_made(row.type, row.ref), self._network)
            if script is not None:
                found[script] = row.label or ""
        return found

    def waiting_for(self, scripts: Iterable[bytes]) -> list[Label]:
        """Return the imported labels that have been waiting for addresses with these scripts to be watched."""
        query = "SELECT label FROM labels WHERE type = 'addr' AND origin = '' AND ref = ? AND label IS NOT NULL"
        found: list[Label] = []
        for script in scripts:
            if (address := script_to_address(script, self._network)) is not None:
                found += (Label("addr", address, label) for (label,) in self._db.execute(query, (address,)))
        return found

    def joined(self, script: bytes) -> None:
        """Remove the waiting label of an address, because its entry now has a label, or has had one."""
        if (address := script_to_address(script, self._network)) is not None:
            self._merge(Label("addr", address), address, "")


def stored_labels(checked: Checked, network: Network) -> Iterator[Label]:
    """Yield all labels in the database, sorted by type, ref and origin. Raises ValueError for a damaged row."""
    entries = dict(_entry_labels(checked, network))
    frozen = {str(OutPoint.parse(outpoint)) for (outpoint,) in checked("frozen", "FROM frozen", ())}
    rows = [_Row(*row) for row in checked("labels", "FROM labels", ())]
    addresses = {row.ref for row in rows if row.type == "addr" and not row.origin}
    outputs = {row.ref for row in rows if row.type == "output"}
    rows += (_Row("addr", address, "", None, "{}") for address in entries.keys() - addresses)
    rows += (_Row("output", ref, "", None, "{}") for ref in frozen - outputs)
    for row in sorted(rows):
        other, label, spendable = row.read(), row.label, None
        if row.type == "addr" and not row.origin:
            label = entries.get(row.ref, label)
        if row.type == "output":
            spendable = other.pop("spendable", None)
            spendable = False if row.ref in frozen else spendable
        yield _made(row.type, row.ref, label, row.origin or None, spendable, other)


def _entry_labels(checked: Checked, network: Network) -> Iterator[tuple[str, str]]:
    """Yield the address and the label of each entry that has its own label, not just that of its keychain."""
    places = EntryPlaces(checked)
    keychains = {name: label for _, name, label, *_ in checked("keychains", "FROM keychains", ())}
    where = "FROM watch WHERE kind = ? AND label IS NOT NULL"
    for row, _, script, label, _ in checked("watch", where, (int(EntryKind.SCRIPT),)):
        keychain = places.find(row)[0]
        address = script_to_address(script, network)
        if address is not None and (keychain is None or keychains.get(keychain) != label):
            yield address, label


def label_of(checked: Checked, kind: str, ref: str) -> str | None:
    """Return the label of a transaction or an output. A record without an origin takes precedence."""
    where = "FROM labels WHERE type = ? AND ref = ? AND label IS NOT NULL ORDER BY origin LIMIT 1"
    return next((row[3] for row in checked("labels", where, (kind, ref))), None)
