"""Histories: the transactions of each of a wallet's scripts, in memory, with balances and status hashes.

Script hashes are 64 hex digits, in the reversed order of the Electrum protocol.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import islice

from spvfilter.primitives import hash_to_hex
from spvfilter.store.scriptviews import OutputEffect, TxEffects

Row = dict[str, int | str]
"""A row in an answer."""


def script_hash_of(script: bytes) -> str:
    """Return the script hash of a script: SHA-256, reversed, in hex."""
    return hashlib.sha256(script).digest()[::-1].hex()


class _ScriptHistory:
    """The transactions of one script: confirmed ones in the order of the chain, with the hash of their rows.

    The hash is extended with each transaction. Hashing 10,000 transactions again for each new one would take 20 ms.
    """

    __slots__ = ("_confirmed", "_hash", "_hashed", "effects", "pending")

    def __init__(self) -> None:
        self.effects: dict[bytes, list[OutputEffect]] = {}
        """Effects of each transaction on the script, keyed by txid."""
        self.pending: dict[bytes, None] = {}
        """Txids of the unconfirmed transactions."""
        self._confirmed: list[tuple[int, int, bytes]] = []  # height, position and txid, ascending
        self._hash = hashlib.sha256()
        self._hashed = 0  # number of confirmed transactions in the hash

    def add(self, tx: TxEffects, effects: list[OutputEffect]) -> None:
        """Add a transaction with its effects on the script."""
        self.effects[tx.txid] = effects
        if tx.height is None:
            self.pending[tx.txid] = None
        else:
            place = (tx.height, tx.position, tx.txid)
            self._truncate(at := bisect_left(self._confirmed, place))
            self._confirmed.insert(at, place)

    def remove(self, tx: TxEffects) -> None:
        """Remove a transaction and its effects."""
        del self.effects[tx.txid]
        if tx.height is None:
            del self.pending[tx.txid]
        else:
            self._truncate(at := bisect_left(self._confirmed, (tx.height, tx.position, tx.txid)))
            del self._confirmed[at]

    def _truncate(self, count: int) -> None:
        """Discard the hash of the rows if it covers more than `count` of them."""
        if self._hashed > count:
            self._hash, self._hashed = hashlib.sha256(), 0

    def confirmed(self) -> list[bytes]:
        """Return the txids of the confirmed transactions in the order of the chain."""
        return [txid for _, _, txid in self._confirmed]

    def hash_confirmed(self) -> None:
        """Add new confirmed transactions to the hash."""
        for height, _, txid in islice(self._confirmed, self._hashed, None):
            self._hash.update(f"{hash_to_hex(txid)}:{height}:".encode("ascii"))
        self._hashed = len(self._confirmed)

    def status(self, pending: Iterable[Row]) -> str:
        """Return the status hash. `pending` contains the rows of the unconfirmed transactions."""
        self.hash_confirmed()
        whole = self._hash.copy()
        for row in pending:
            whole.update(f"{row['tx_hash']}:{row['height']}:".encode("ascii"))
        return whole.hexdigest()


class Histories:
    """The transactions of a wallet, looked up by the hashes of the scripts that they pay or spend."""

    def __init__(self) -> None:
        self._txs: dict[bytes, TxEffects] = {}
        self._scripts: dict[bytes, frozenset[str]] = {}  # txid → script hashes
        self._histories: dict[str, _ScriptHistory] = {}  # keyed by script hash
        self._children: dict[bytes, dict[bytes, None]] = {}  # txid → unconfirmed transactions that spend from it
        self._places: dict[tuple[int, int], bytes] = {}  # height and position → txid
        self._statuses: dict[str, str | None] = {}

    def __contains__(self, script_hash: str) -> bool:
        """Return True if a transaction pays or spends the script."""
        return script_hash in self._histories

    def replace(self, found: Iterable[TxEffects], among: Collection[bytes] | None = None) -> set[str]:
        """Store the current state of transactions, and return the script hashes whose history may have changed.

        Args:
            found: All current transactions, or those in `among` that still exist.
            among: Txids of the transactions that may have changed. By default, any may have.
        """
        present = {each.txid: each for each in found}
        named = self._txs.keys() if among is None else among
        changed = set[str]()
        for txid in {*named, *present}:
            new, old = present.get(txid), self._txs.get(txid)
            if new == old:
                continue
            changed |= self._scripts.get(txid, frozenset())
            self._remove(txid)
            if new is not None:
                changed |= self._add(new)
        for script_hash in changed:
            self._statuses.pop(script_hash, None)
            if (history := self._histories.get(script_hash)) is not None:
                history.hash_confirmed()  # `load` calls this in a thread
        return changed

    def _add(self, tx: TxEffects) -> frozenset[str]:
        self._txs[tx.txid] = tx
        found = dict[str, list[OutputEffect]]()
        for effect in tx.effects:
            found.setdefault(script_hash_of(effect.script), []).append(effect)
        for script_hash, effects in found.items():
            if script_hash not in self._histories:
                self._histories[script_hash] = _ScriptHistory()
            self._histories[script_hash].add(tx, effects)
        scripts = self._scripts[tx.txid] = frozenset(found)
        for parent in tx.parents:
            self._children.setdefault(parent, {})[tx.txid] = None
        if tx.height is not None:
            self._places[tx.height, tx.position] = tx.txid
        return scripts

    def _remove(self, txid: bytes) -> None:
        if (old := self._txs.pop(txid, None)) is None:
            return
        for parent in old.parents:
            del self._children[parent][txid]
            if not self._children[parent]:
                del self._children[parent]
        if old.height is not None and self._places.get((old.height, old.position)) == txid:
            del self._places[old.height, old.position]
        for script_hash in self._scripts.pop(txid):
            history = self._histories[script_hash]
            history.remove(old)
            if not history.effects:
                del self._histories[script_hash]

    def affected(self, named: Iterable[bytes], *, has_block: bool, has_reorg: bool) -> set[bytes]:
        """Return the txids of transactions that may have changed: those named, and their unconfirmed children.

        The fee and the height of a child depend on its parents. No event names a parent that did not match, but only a
        block can confirm it, and only a reorganization can undo that.

        Args:
            named: Txids of transactions that events have named.
            has_block: True if a block was connected.
            has_reorg: True if a block was disconnected.
        """
        found = set(named)
        found |= {child for txid in found for child in self._children.get(txid, ())}
        if has_block or has_reorg:
            hidden = [children for parent, children in self._children.items() if parent not in self._txs]
            unsure = {child for children in hidden for child in children}
            found |= {child for child in unsure if has_reorg or self._txs[child].has_unconfirmed_parent}
        return found

    def txid_at(self, height: int, position: int) -> bytes | None:
        """Return the txid, in wire order, of the wallet's transaction at a position in a block, or None."""
        return self._places.get((height, position))

    def _effects(self, script_hash: str) -> dict[bytes, list[OutputEffect]]:
        """Return the effects of each transaction on a script, keyed by txid."""
        history = self._histories.get(script_hash)
        return {} if history is None else history.effects

    def _confirmed(self, script_hash: str) -> list[TxEffects]:
        """Return the confirmed transactions of a script in the order of the chain."""
        history = self._histories.get(script_hash)
        return [] if history is None else [self._txs[txid] for txid in history.confirmed()]

    def _pending(self, script_hash: str) -> list[TxEffects]:
        """Return the unconfirmed transactions of a script in the order of protocol 1.6."""
        history = self._histories.get(script_hash)
        found = [] if history is None else [self._txs[txid] for txid in history.pending]
        return sorted(found, key=lambda tx: (tx.has_unconfirmed_parent, hash_to_hex(tx.txid)))

    def mempool(self, script_hash: str) -> list[Row]:
        """Return the rows of the unconfirmed transactions of a script.

        The height is -1 if a known parent is unconfirmed, otherwise 0. The fee is 0 if the value of an input is
        unknown.
        """
        return [
            {"tx_hash": hash_to_hex(tx.txid), "height": -int(tx.has_unconfirmed_parent), "fee": tx.fee}
            for tx in self._pending(script_hash)
        ]

    def history(self, script_hash: str) -> list[Row]:
        """Return the rows of a script's transactions: confirmed ones in chain order, then the rest."""
        confirmed = self._confirmed(script_hash)
        rows: list[Row] = [{"tx_hash": hash_to_hex(tx.txid), "height": tx.height or 0} for tx in confirmed]
        return rows + self.mempool(script_hash)

    def status(self, script_hash: str) -> str | None:
        """Return the status hash of a script, or None if it has no transactions."""
        if script_hash not in self._statuses:
            if (history := self._histories.get(script_hash)) is None:
                return None
            self._statuses[script_hash] = history.status(self.mempool(script_hash))
        return self._statuses[script_hash]

    def balance(self, script_hash: str) -> Row:
        """Return a script's balance in satoshi: the confirmed balance, and how unconfirmed transactions change it."""
        confirmed = unconfirmed = 0
        for txid, effects in self._effects(script_hash).items():
            change = sum(-effect.value if effect.is_spend else effect.value for effect in effects)
            if self._txs[txid].height is None:
                unconfirmed += change
            else:
                confirmed += change
        return {"confirmed": confirmed, "unconfirmed": unconfirmed}

    def unspent(self, script_hash: str, reserved: Collection[bytes]) -> list[Row]:
        """Return the unspent outputs of a script: confirmed ones in chain order, then unconfirmed ones.

        An output that a pending transaction spends is included unless it is reserved (see `Views.reserved`).

        Args:
            script_hash: The script hash.
            reserved: Outpoints that are frozen, or that a pending transaction certainly spends.
        """
        effects = self._effects(script_hash)
        confirmed = self._confirmed(script_hash)
        spent = {effect.outpoint for tx in confirmed for effect in effects[tx.txid] if effect.is_spend}
        spent.update(reserved)
        rows: list[Row] = []
        for tx in (*confirmed, *self._pending(script_hash)):
            made = {_index(effect): effect for effect in effects[tx.txid] if not effect.is_spend}
            rows += (
                {"tx_hash": hash_to_hex(tx.txid), "tx_pos": index, "height": tx.height or 0, "value": effect.value}
                for index, effect in sorted(made.items())
                if effect.outpoint not in spent
            )
        return rows


def _index(effect: OutputEffect) -> int:
    return int.from_bytes(effect.outpoint[32:], "little")
