"""Transactions of a wallet with their effects on its scripts, as an Electrum server needs them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple  # rows are as SQLite gives them

from spvfilter.kernel import NO_VALUE
from spvfilter.store.ledger import TxStatus, stored_tx
from spvfilter.store.views import Views
from spvfilter.store.windowviews import Checked
from spvfilter.transaction import Transaction


class Effect(NamedTuple):
    """An output of the wallet that a transaction creates or spends."""

    script: bytes
    """Script of the output."""
    outpoint: bytes
    """Outpoint of the output, 36 bytes."""
    value: int
    """Value of the output in satoshi; 0 if it is unknown."""
    is_spend: bool
    """True if the transaction spends the output, False if it creates the output."""


class WalletTx(NamedTuple):
    """A transaction of the wallet that counts, with its effects on scripts."""

    txid: bytes
    """Txid, 32 bytes in wire order."""
    height: int | None
    """Height of its block; None while it is unconfirmed."""
    position: int
    """Position in its block, from 0."""
    effects: tuple[Effect, ...]
    """Outputs of the wallet that it creates and spends."""
    fee: int = 0
    """Fee of an unconfirmed transaction in satoshi; 0 if the value of an input is unknown."""
    has_unconfirmed_parent: bool = False
    """True if the transaction is unconfirmed and a known parent is unconfirmed as well."""


class ProvedTx(NamedTuple):
    """A transaction that the database has, with its status and its block in the best chain."""

    raw: bytes
    """Bytes of the transaction."""
    status: TxStatus
    """Status of the transaction. Only a confirmed or a pending one counts; see `LIVE`."""
    height: int | None
    """Height of its block; None if no block of the best chain contains it."""
    block_hash: bytes | None
    """Hash of its block, 32 bytes in wire order."""
    position: int | None
    """Position in its block, from 0."""
    branch: bytes | None
    """Merkle branch, 32 bytes for each level, deepest first; None if the database lacks it."""


def wallet_transactions(views: Views, txids: Iterable[bytes] | None = None) -> list[WalletTx]:
    """Return the transactions that match the wallet and count, of one commit.

    Outputs of the genesis block are left out, since no transaction can spend them.

    Args:
        views: Views of the wallet's database.
        txids: Only these transactions, and all unconfirmed ones. By default all transactions.

    Raises:
        StoreError: The database cannot be read.
    """
    found: dict[bytes, list[tuple[Any, ...]]] = {}
    with views._moment():
        checked = views._checked
        for row in checked("matches", "FROM matches", ()) if txids is None else _matches_of(checked, txids):
            if row[9] != 0:  # the height
                found.setdefault(row[1], []).append(row)
        return [_wallet_tx(checked, txid, rows) for txid, rows in found.items()]


def proved_transaction(views: Views, txid: bytes) -> ProvedTx | None:
    """Return a transaction of the database with its merkle branch; None if the database lacks the transaction.

    Raises:
        StoreError: The database cannot be read.
    """
    with views._moment():
        row = next(views._checked("transactions", "FROM transactions WHERE txid = ?", (txid,)), None)
        if row is None:
            return None
        tx = stored_tx(row)
        if tx.status is not TxStatus.CONFIRMED:
            return ProvedTx(tx.raw, tx.status, None, None, None, None)
        where = "FROM branches WHERE txid = ? AND block = ?"
        branch = next((each[2] for each in views._checked("branches", where, (txid, tx.block_hash))), None)
        return ProvedTx(tx.raw, tx.status, tx.height, tx.block_hash, tx.position, branch)


def _matches_of(checked: Checked, txids: Iterable[bytes]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the matches of some transactions, and of all unconfirmed transactions."""
    yield from checked("matches", "FROM matches WHERE height IS NULL", ())
    for txid in dict.fromkeys(txids):
        yield from checked("matches", "FROM matches WHERE txid = ? AND height IS NOT NULL", (txid,))


def _wallet_tx(checked: Checked, txid: bytes, rows: list[tuple[Any, ...]]) -> WalletTx:
    """Return a transaction, from the rows of its matches."""
    effects, known = list[Effect](), dict[bytes, int]()
    place: tuple[int | None, int] = (None, 0)
    for is_spend, _, _, position, outpoint, value, script, _, _, height, _ in rows:
        place = (height, position) if height is not None else place
        if is_spend and value != NO_VALUE:
            known[outpoint] = value
        if script is not None:
            effects.append(Effect(script, outpoint, max(value, 0), bool(is_spend)))
    if place[0] is not None:
        return WalletTx(txid, *place, tuple(effects))
    return WalletTx(txid, *place, tuple(effects), *_fee_and_parents(checked, txid, known))


def _fee_and_parents(checked: Checked, txid: bytes, known: dict[bytes, int]) -> tuple[int, bool]:
    """Return the fee of an unconfirmed transaction, and True if a known parent is unconfirmed.

    `known` has the values of the inputs that match, by outpoint. Values of other inputs come from known parents.
    """
    where, has_unconfirmed_parent = "FROM transactions WHERE txid = ?", False
    row = next(checked("transactions", where, (txid,)), None)
    if row is None:
        return 0, False
    tx, paid, is_known = Transaction.parse(row[1]), 0, True
    parents = dict[bytes, tuple[Any, ...] | None]()
    for outpoint in tx.inputs:
        parent = outpoint[:32]
        if parent not in parents:
            parents[parent] = next(checked("transactions", where, (parent,)), None)
        found = parents[parent]
        has_unconfirmed_parent |= found is not None and found[2] != TxStatus.CONFIRMED
        if outpoint in known:
            paid += known[outpoint]
        elif found is not None:
            paid += Transaction.parse(found[1]).output(int.from_bytes(outpoint[32:], "little")).value
        else:
            is_known = False
    fee = paid - sum(output.value for output in tx.outputs)
    return max(fee, 0) if is_known else 0, has_unconfirmed_parent
