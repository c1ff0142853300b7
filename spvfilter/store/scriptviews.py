"""A wallet's transactions and their effects on its scripts, for an Electrum server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple  # rows are as SQLite gives them

from spvfilter._public import public
from spvfilter.kernel import NO_VALUE
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus, stored_tx
from spvfilter.store.windowviews import Checked
from spvfilter.transaction import Transaction

_PER_QUERY = 500  # transactions per query; SQLite allows 32,766 values (SQLITE_MAX_VARIABLE_NUMBER)


@public
class OutputEffect(NamedTuple):
    """An output of the wallet that a transaction creates or spends."""

    script: bytes
    """Script of the output."""
    outpoint: bytes
    """Outpoint of the output, 36 bytes."""
    value: int
    """Value of the output in satoshi, or 0 if it is unknown."""
    is_spend: bool
    """True if the transaction spends the output, False if it creates the output."""


@public
class TxEffects(NamedTuple):
    """A wallet transaction that counts toward the balance, and its effects on scripts."""

    txid: bytes
    """Txid, 32 bytes in wire order."""
    height: int | None
    """Height of its block. None while it is unconfirmed."""
    position: int
    """Position in its block, starting at 0."""
    effects: tuple[OutputEffect, ...]
    """The wallet's outputs that it creates and spends."""
    fee: int = 0
    """Fee of an unconfirmed transaction in satoshi, or 0 if the value of an input is unknown."""
    has_unconfirmed_parent: bool = False
    """True if the transaction is unconfirmed and at least one known parent is unconfirmed too."""
    parents: tuple[bytes, ...] = ()
    """Txids of the transactions that an unconfirmed transaction spends from. Empty once it is confirmed."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def status(self) -> TxStatus:
        """CONFIRMED or PENDING."""
        return TxStatus.PENDING if self.height is None else TxStatus.CONFIRMED


@public
class TxProof(NamedTuple):
    """A transaction in the database, with its status and its place in the best chain."""

    txid: bytes
    """Txid, 32 bytes in wire order."""
    raw: bytes
    """Bytes of the transaction."""
    status: TxStatus
    """Status of the transaction. It counts only if it is confirmed or pending."""
    is_own: bool
    """True if this wallet broadcast it."""
    height: int | None
    """Height of its block, or None if it is not in the best chain."""
    block_hash: bytes | None
    """Hash of its block, 32 bytes in wire order. None if it is not in the best chain."""
    position: int | None
    """Position in its block, starting at 0. None if it is not in the best chain."""
    branch: bytes | None
    """Merkle branch, 32 bytes for each level, deepest first. None if it is not in the database."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def block_hash_hex(self) -> str | None:
        """The field `block_hash` in hex, as block explorers show it. None if there is none."""
        return None if self.block_hash is None else hash_to_hex(self.block_hash)


def effects_of(checked: Checked, txids: Iterable[bytes] | None) -> list[TxEffects]:
    """Return all or some of the transactions that count. See `Views.effects`."""
    found: dict[bytes, list[tuple[Any, ...]]] = {}
    for row in checked("matches", "FROM matches", ()) if txids is None else _matches_of(checked, txids):
        if row[9] != 0:  # the height: nobody can spend outputs of the genesis block
            found.setdefault(row[1], []).append(row)
    return [_effects_of_tx(checked, txid, rows) for txid, rows in found.items()]


def proof_of(checked: Checked, txid: bytes) -> TxProof | None:
    """Return a transaction in the database with its merkle branch, or None if the transaction is not there."""
    row = next(checked("transactions", "FROM transactions WHERE txid = ?", (txid,)), None)
    if row is None:
        return None
    tx = stored_tx(row)
    is_own = tx.broadcast_seq is not None
    if tx.status is not TxStatus.CONFIRMED:
        return TxProof(txid, tx.raw, tx.status, is_own, None, None, None, None)
    where = "FROM branches WHERE txid = ? AND block = ?"
    branch = next((each[2] for each in checked("branches", where, (txid, tx.block_hash))), None)
    return TxProof(txid, tx.raw, tx.status, is_own, tx.height, tx.block_hash, tx.position, branch)


def confirmed_in(checked: Checked, block: bytes, txids: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the given transactions that, according to the database, are in a block of the best chain."""
    for at in range(0, len(txids), _PER_QUERY):
        part = txids[at : at + _PER_QUERY]
        where = f"FROM transactions WHERE txid IN ({', '.join('?' * len(part))})"
        for row in checked("transactions", where, tuple(part)):
            if (tx := stored_tx(row)).status is TxStatus.CONFIRMED and tx.block_hash == block:
                yield row[0]


def _matches_of(checked: Checked, txids: Iterable[bytes]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of these transactions' matches."""
    for txid in dict.fromkeys(txids):
        yield from checked("matches", "FROM matches WHERE txid = ?", (txid,))


def _effects_of_tx(checked: Checked, txid: bytes, rows: list[tuple[Any, ...]]) -> TxEffects:
    """Return a transaction's effects, given the rows of its matches."""
    effects, known = list[OutputEffect](), dict[bytes, int]()
    place: tuple[int | None, int] = (None, 0)
    for is_spend, _, _, position, outpoint, value, script, _, _, height, _ in rows:
        place = (height, position) if height is not None else place
        if is_spend and value != NO_VALUE:
            known[outpoint] = value
        if script is not None:
            effects.append(OutputEffect(script, outpoint, max(value, 0), bool(is_spend)))
    if place[0] is not None:
        return TxEffects(txid, *place, tuple(effects))
    fee, has_unconfirmed_parent, parents = _fee_and_parents(checked, txid, known)
    return TxEffects(txid, *place, tuple(effects), fee, has_unconfirmed_parent, parents)


def _fee_and_parents(checked: Checked, txid: bytes, known: dict[bytes, int]) -> tuple[int, bool, tuple[bytes, ...]]:
    """Return the fee of an unconfirmed transaction, whether a known parent is unconfirmed, and all parents.

    `known` contains the values of the inputs that match, keyed by outpoint. Known parents give the values of other
    inputs.
    """
    where, has_unconfirmed_parent = "FROM transactions WHERE txid = ?", False
    row = next(checked("transactions", where, (txid,)), None)
    if row is None:
        return 0, False, ()
    tx, paid, is_known = Transaction.parse(row[1]), 0, True
    parents = dict[bytes, tuple[Any, ...] | None]()
    for outpoint in tx.inputs:
        parent, index = outpoint[:32], int.from_bytes(outpoint[32:], "little")
        if parent not in parents:
            parents[parent] = next(checked("transactions", where, (parent,)), None)
        found = parents[parent]
        has_unconfirmed_parent |= found is not None and found[2] != TxStatus.CONFIRMED
        if outpoint in known:
            paid += known[outpoint]
        elif found is not None and index < len((made := Transaction.parse(found[1])).span.outputs):
            paid += made.output(index).value
        else:  # somebody else's transaction may spend an output that its parent lacks
            is_known = False
    fee = paid - sum(output.value for output in tx.outputs)
    return max(fee, 0) if is_known else 0, has_unconfirmed_parent, tuple(parents)
