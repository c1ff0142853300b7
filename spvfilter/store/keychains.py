"""Keychains in the wallet's database: their windows, used indexes and entries.

The entries of a window are stored as runs: consecutive indexes whose scripts have consecutive ids. Each time a window
grows, one run is added. The client can therefore restore a window without deriving it, and programs that read the
database can find the next address without a descriptor library.
"""

from __future__ import annotations

import json
import pathlib
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Any, NamedTuple, Self  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.errors import StoreCorruptError
from spvfilter.store.schema import MARKED
from spvfilter.store.sqlite import MarkedRows
from spvfilter.watch.arguments import checked_label
from spvfilter.watch.keychain import identity_of
from spvfilter.watch.silentkeychain import MAX_LABEL

_MAX_ID = 1 << 62  # row ids
_FIRST_SCRIPTS = (  # of index 0, with the condition `first = 0`
    "SELECT runs.keychain, watch.value FROM runs JOIN watch ON watch.id >= runs.entry AND watch.id < runs.entry +"
    " runs.scripts"
)


_SILENT_KEYS = f"SELECT {MARKED['sp_keys']} FROM sp_keys"
_SILENT_OUTPUTS = f"SELECT {MARKED['sp_outputs']} FROM sp_outputs"


class IndexRun(NamedTuple):
    """Consecutive indexes of a keychain whose entries have consecutive ids."""

    first: int
    """First index."""
    entry: int
    """Row id of the first script of the first index."""
    indexes: int
    """Number of indexes."""
    scripts: int
    """Number of scripts per index."""

    def places(self) -> Iterable[tuple[int, int]]:
        """Return the index and the row id of each entry."""
        ids = iter(range(self.entry, self.entry + self.indexes * self.scripts))
        return (
            (index, next(ids)) for index in range(self.first, self.first + self.indexes) for _ in range(self.scripts)
        )


def runs_of(places: Iterable[tuple[int, int]]) -> list[IndexRun]:
    """Combine entries, each given as an index and a row id, into runs."""
    runs: list[list[int]] = []  # the fields of each run
    for index, group in groupby(sorted(set(places)), key=lambda place: place[0]):
        ids = [row for _, row in group]
        first, entry, indexes, scripts = runs[-1] if runs else (-1, -1, 0, 0)
        if ids[-1] - ids[0] != len(ids) - 1:
            runs += ([index, row, 1, 1] for row in ids)
        elif (first + indexes, entry + indexes * scripts, scripts) == (index, ids[0], len(ids)):
            runs[-1][2] += 1
        else:
            runs.append([index, ids[0], 1, len(ids)])
    return [IndexRun(*run) for run in runs]


@public
class KeychainChange(NamedTuple):
    """The change that one commit makes to a keychain already in the database."""

    name: str
    """Name of the keychain."""
    used: Sequence[int] = ()
    """Indexes that have become used."""
    window: int | None = None
    """New end of the window, or None if it has not moved."""
    places: Sequence[tuple[int, int]] = ()
    """Index and row id of each entry that is new in the window."""
    revealed: int | None = None
    """New end of the revealed indexes, or None if no index was revealed."""
    exclusive: bool | None = None
    """True if the program promises that no other program or database reveals its addresses. None for no change."""


@public
class NewKeychain(NamedTuple):
    """A keychain that is new to the database. A `KeychainChange` in the same batch sets its window."""

    name: str
    """Name of the keychain."""
    label: str | None
    """Label of its entries."""
    descriptor: str | None
    """Descriptor, or None if the program passed a function that derives the scripts."""
    lookahead: int
    """Number of indexes to watch after the last used one."""
    size: int
    """Number of indexes in the keychain."""


@public
class SilentKeys(NamedTuple):
    """The secrets and labels of an sp() keychain, as the database stores them."""

    secret: str = ""
    """The descriptor, which contains the private scan key."""
    labels: Mapping[int, str | None] = {}
    """Declared labels, keyed by number, with their text, if any."""
    depth: int = 0
    """Labels up to this number are searched for."""

    def __repr__(self) -> str:
        return f"SilentKeys(labels={len(self.labels)}, depth={self.depth})"

    def encoded(self) -> tuple[str, str, int]:
        """Return the values to store in a row."""
        labels = [[number, text] for number, text in sorted(self.labels.items())]
        return self.secret, json.dumps(labels, separators=(",", ":")), self.depth

    @classmethod
    def parse(cls, secret: str, labels: str, depth: int) -> Self:
        """Parse the result of `encoded`. Raises StoreCorruptError if the labels are malformed."""
        try:
            pairs = json.loads(labels)
            found = {number: checked_label(text) for number, text in pairs}
            is_sound = all(type(number) is int and 0 <= number <= MAX_LABEL for number in found)
        except (TypeError, ValueError, RecursionError):
            is_sound, found = False, {}
        if not is_sound:
            raise StoreCorruptError("the labels of silent payments cannot be read")
        return cls(secret, found, depth)


class StoredKeychain(NamedTuple):
    """A keychain as the database stores it. The scripts in its window are entries of the watch list."""

    id: int
    """Row id."""
    name: str
    """Name of the keychain."""
    label: str | None
    """Label of its entries."""
    descriptor: str | None
    """Descriptor, or None if the program passed a function that derives the scripts."""
    lookahead: int
    """Number of indexes to watch after the last used one."""
    size: int
    """Number of indexes in the keychain."""
    window: int
    """Number of watched indexes."""
    used: frozenset[int]
    """Indexes that were paid."""
    runs: tuple[IndexRun, ...]
    """Runs of the window, in ascending order."""
    revealed: int = 0
    """First index after the highest revealed one, or 0 if none has been revealed."""
    exclusive: bool = False
    """True if the program has promised that no other program or database reveals its addresses."""
    account: int | None = None
    """Id of its account, or None if it belongs to no account."""
    silent: SilentKeys | None = None
    """Secrets and labels of an sp() keychain, or None for any other keychain."""

    @property
    def entries(self) -> set[int]:
        """Row ids of all entries."""
        return {row for run in self.runs for _, row in run.places()}

    def rows(self) -> list[tuple[int, ...]]:
        """Return the row ids of each index, from index 0 up to the first index without entries."""
        ordered: list[tuple[int, ...]] = []
        for run in self.runs:
            if run.first != len(ordered):
                break  # several runs contain the same index, or an index is missing
            ids = iter(range(run.entry, run.entry + run.indexes * run.scripts))
            ordered += zip(*[ids] * run.scripts, strict=True)
        else:
            return ordered[: self.window]
        found: dict[int, list[int]] = {}
        for index, row in (place for run in self.runs for place in run.places()):
            found.setdefault(index, []).append(row)
        return [tuple(found[index]) for index in takewhile(found.__contains__, range(self.window))]


class KeychainRows:
    """The tables of keychains."""

    def __init__(self, db: sqlite3.Connection, rows: MarkedRows, path: pathlib.Path) -> None:
        self._db = db
        self._rows = rows
        self._path = path

    def names(self) -> set[str]:
        """Return the names of all keychains."""
        return {name for (name,) in self._db.execute("SELECT name FROM keychains")}

    def load(self) -> list[StoredKeychain]:
        """Return all keychains in the order in which they were added.

        Raises StoreCorruptError if a run or a used index does not belong to a keychain.
        """
        runs: dict[int, list[IndexRun]] = {}
        for owner, *run in self._db.execute(
            "SELECT keychain, first, entry, indexes, scripts FROM runs ORDER BY keychain, first, entry"
        ):
            runs.setdefault(owner, []).append(IndexRun(*run))
        used: dict[int, list[int]] = {}
        for owner, index in self._db.execute("SELECT keychain, place FROM used"):
            used.setdefault(owner, []).append(index)
        revealed = self._revealed()
        silent = {row: SilentKeys.parse(*rest) for row, *rest in self._db.execute(_SILENT_KEYS)}
        query = f"SELECT {MARKED['keychains']} FROM keychains ORDER BY id"
        found = [
            StoredKeychain(
                row,
                name,
                label,
                descriptor,
                lookahead,
                size,
                window,
                frozenset(used.pop(row, ())),
                tuple(runs.pop(row, ())),
                *revealed.get(row, (0, False)),
                account,
                silent.pop(row, None),
            )
            for row, name, label, descriptor, lookahead, size, window, account in self._db.execute(query)
        ]
        is_silent = ((each.descriptor or "").startswith("sp(") for each in found)
        lacks = any((each.silent is not None) != own for each, own in zip(found, is_silent, strict=True))
        if runs or used or silent or lacks:
            raise StoreCorruptError(f"{self._path}: a keychain is missing")
        return found

    def _revealed(self) -> dict[int, tuple[int, bool]]:
        """Return the end of the revealed indexes and the `exclusive` flag, keyed by the row id of the keychain."""
        rows = {
            identity: rest for identity, *rest in self._db.execute("SELECT keychain, next, exclusive FROM revealed")
        }
        scripts: dict[int, list[bytes]] = {}
        for owner, script in self._db.execute(f"{_FIRST_SCRIPTS} WHERE first = 0") if rows else ():
            scripts.setdefault(owner, []).append(script)
        found = {owner: rows.get(identity_of(each)) for owner, each in scripts.items()}
        return {owner: (row[0], bool(row[1])) for owner, row in found.items() if row is not None}

    def verify(self) -> None:
        """Raise StoreCorruptError if a window has gaps, or contains entries that the watch list lacks."""
        query = "SELECT count(*) FROM watch WHERE id >= ? AND id < ?"
        for each in self.load():
            ends = list(accumulate((run.first + run.indexes for run in each.runs), max))
            spans = [(run.entry, run.entry + run.indexes * run.scripts) for run in each.runs]
            bad = any(
                end > _MAX_ID or self._db.execute(query, (start, end)).fetchone()[0] != end - start
                for start, end in spans
            )
            gaps = any(run.first > end for run, end in zip(each.runs, [0, *ends], strict=False))
            if (
                bad
                or gaps
                or max(ends, default=0) != each.window
                or not all(0 <= index < each.window for index in each.used)
            ):
                raise StoreCorruptError(f"{self._path}: the window of keychain {each.name[:80]!r} is inconsistent")
        for (row,) in self._db.execute("SELECT entry FROM sp_outputs WHERE entry NOT IN (SELECT id FROM watch)"):
            raise StoreCorruptError(f"{self._path}: entry {row} of the watch list is missing")

    # Within a commit

    def put(self, new: NewKeychain, account: int | None) -> None:
        """Store a new keychain, or the changed values of an existing one. `account` is the id of its account."""
        row = self._row(new.name)
        if row is None:
            (highest,) = self._db.execute("SELECT coalesce(max(id), 0) FROM keychains").fetchone()
            self._rows.insert("keychains", (highest + 1, *new, 0, account))
        elif (*new, account) != (*row[1:6], row[7]):
            self._replace(row, (row[0], *new, row[6], account))

    def respell(self, names: Mapping[str, str]) -> None:
        """Respell the descriptors that name stored keychains. `names` maps old names to new ones."""
        for old, new in names.items():
            row = self._stored(old)
            self._replace(row, (row[0], new, row[2], new, *row[4:]))

    def claim(self, name: str, account: int | None) -> None:
        """Move a stored keychain to an account."""
        row = self._stored(name)
        self._replace(row, (*row[:7], account))

    def relabel(self, name: str, label: str | None) -> None:
        """Relabel a stored keychain. The caller stores the labels of its entries."""
        row = self._stored(name)
        self._replace(row, (*row[:2], label, *row[3:]))

    def keep_revealed_of(self, account: int) -> None:
        """Save the scripts that an account's keychains have revealed. Call this before its entries are removed."""
        query = (
            "SELECT DISTINCT watch.value FROM keychains JOIN runs ON runs.keychain = keychains.id AND runs.first < ?"
            " JOIN watch ON watch.id >= runs.entry AND watch.id < runs.entry + (? - runs.first) * runs.scripts"
            " AND watch.id < runs.entry + runs.indexes * runs.scripts WHERE keychains.id = ?"
        )
        mine = {row for (row,) in self._db.execute("SELECT id FROM keychains WHERE account = ?", (account,))}
        for owner, (revealed, _) in self._revealed().items() if mine else ():
            if owner in mine:
                self.keep_revealed_scripts(script for (script,) in self._db.execute(query, (revealed, revealed, owner)))

    def keep_revealed_scripts(self, scripts: Iterable[bytes]) -> None:
        """Store scripts that removed keychains have revealed."""
        known = self.revealed_scripts()
        for script in scripts:
            if script not in known:
                self._rows.insert("revealed_scripts", (script,))

    def revealed_scripts(self) -> set[bytes]:
        """Return the scripts that removed keychains have revealed."""
        return {script for (script,) in self._db.execute("SELECT script FROM revealed_scripts")}

    def remove_of(self, account: int) -> None:
        """Remove the keychains of an account, with their windows and used indexes."""
        for (owner,) in self._db.execute("SELECT id FROM keychains WHERE account = ?", (account,)).fetchall():
            self._rows.remove("keychains", "id = ?", (owner,))
            self._rows.remove("runs", "keychain = ?", (owner,))
            self._rows.remove("used", "keychain = ?", (owner,))
            self._rows.remove("sp_keys", "keychain = ?", (owner,))

    def put_silent(self, name: str, keys: SilentKeys) -> None:
        """Store the secrets and labels of a stored sp() keychain."""
        owner = self._stored(name)[0]
        self._rows.put("sp_keys", (owner, *keys.encoded()), "keychain = ?", (owner,))

    def outputs(self) -> dict[int, tuple[int | None, bytes]]:
        """Return the label and tweak of each silent payment found, keyed by the row id of its script."""
        return {row: (label, tweak) for row, tweak, label in self._db.execute(_SILENT_OUTPUTS)}

    def put_output(self, row: int, label: int | None, tweak: bytes) -> None:
        """Store the label and the tweak of a silent payment."""
        self._rows.put("sp_outputs", (row, tweak, label), "entry = ?", (row,))

    def _replace(self, row: tuple[Any, ...], new: tuple[Any, ...]) -> None:
        self._rows.remove("keychains", "id = ?", (row[0],))
        self._rows.insert("keychains", new)

    def _row(self, name: str) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._db.execute(
            f"SELECT {MARKED['keychains']} FROM keychains WHERE name = ?", (name,)
        ).fetchone()
        return row

    def _stored(self, name: str) -> tuple[Any, ...]:
        row = self._row(name)
        if row is None:
            raise StoreCorruptError(f"{self._path}: keychain {name[:80]!r} is missing")
        return row

    def change(self, change: KeychainChange) -> None:
        """Store a change to a keychain: used and revealed indexes, the end of the window, and so on."""
        row = self._stored(change.name)
        owner = row[0]
        for index in change.used:
            if (
                self._db.execute("SELECT 1 FROM used WHERE keychain = ? AND place = ?", (owner, index)).fetchone()
                is None
            ):
                self._rows.insert("used", (owner, index))
        for run in runs_of(change.places):
            self._rows.insert("runs", (owner, *run))
        if change.window is not None and change.window > row[6]:
            self._replace(row, (*row[:6], change.window, row[7]))
        if change.revealed or change.exclusive is not None:
            query = f"{_FIRST_SCRIPTS} WHERE first = 0 AND keychain = ?"
            identity = identity_of(script for _, script in self._db.execute(query, (owner,)))
            self._reveal(identity, change.revealed or 0, change.exclusive)

    def _reveal(self, identity: bytes, revealed: int, exclusive: bool | None) -> None:
        query = "SELECT next, exclusive FROM revealed WHERE keychain = ?"
        before = self._db.execute(query, (identity,)).fetchone() or (0, 0)
        after = (max(before[0], revealed), int(before[1] if exclusive is None else exclusive))
        if after != before and after[0]:
            self._rows.remove("revealed", "keychain = ?", (identity,))
            self._rows.insert("revealed", (identity, *after))

    def revealed_by(self, scripts: Iterable[bytes]) -> int:
        """Return the index after a keychain's last revealed one, or 0.

        The keychain is identified by its scripts at index 0, so this also works after it has been removed.
        """
        query = "SELECT next FROM revealed WHERE keychain = ?"
        row = self._db.execute(query, (identity_of(scripts),)).fetchone()
        return 0 if row is None else int(row[0])

    def keep_revealed(self, rows: Iterable[tuple[bytes, int]]) -> None:
        """Store the identities of keychains and their revealed indexes, which were salvaged from a damaged database.

        The keychains do not stay exclusive, because more addresses may have been revealed since the damaged database
        was written.
        """
        for identity, revealed in rows:
            self._reveal(identity, revealed, exclusive=False)


def _complete(run: IndexRun, present: Collection[int]) -> int:
    """Return how many indexes of a run come before the first missing entry."""
    size = run.indexes * run.scripts
    ids = range(run.entry, run.entry + size)
    return next((at for at, row in enumerate(ids) if row not in present), size) // run.scripts


def salvaged(
    chains: Iterable[Sequence[Any]],
    runs: Iterable[Sequence[int]],
    used: Iterable[Sequence[int]],
    present: Collection[int],
    silent: Mapping[int, SilentKeys],
) -> list[StoredKeychain]:
    """Return the keychains whose rows are readable, each with the complete part of its window."""
    found: list[StoredKeychain] = []
    sound = [(owner, IndexRun(*run)) for owner, *run in runs]
    uses = list(used)
    for row, name, label, descriptor, lookahead, size, window, account in chains:
        mine = sorted(run for owner, run in sound if owner == row)
        clipped = [run._replace(indexes=_complete(run, present)) for run in mine]
        ends = [part.first + part.indexes for run, part in zip(mine, clipped, strict=True) if part != run]
        parts = tuple(part for part in clipped if part.indexes)
        whole = StoredKeychain(
            *(row, name, label, descriptor, lookahead, size, window, frozenset(), parts),
            account=account,
            silent=silent.get(row),
        )
        end = min([len(whole.rows()), *ends])
        kept = frozenset(index for owner, index in uses if owner == row and index < end)
        found.append(whole._replace(window=end, used=kept))
    return found
