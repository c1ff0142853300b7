"""Balance: the events, the views and the chain must give the same balance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from simulation import oracle
from simulation.violation import Violation
from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.transaction import Transaction
from support.oracles.ledger import check_ledger
from support.wallets.storesqlite import sqlite_of

if TYPE_CHECKING:
    from simulation.world import World
    from spvfilter.store.store import Store


def check_views(store: Store) -> None:
    """True, at every moment: the views follow from the database's matches."""
    try:
        check_ledger(store)
    except AssertionError as error:
        raise Violation("true", f"the views differ from the database's matches: {error}") from error


def check_balance(world: World, *, may_lack: bool = False) -> None:
    """True: the views follow from the events and from the chain.

    With `may_lack`, the client reported blocks of the chain as disputed.
    """
    process = world.process
    assert process is not None
    store = process.disk.store
    balance = store.views.balance()
    world.log.read_on(store)
    for whose, books in (("events since the start", process.books), ("events from the first one on", world.log.books)):
        told = books.unspent()
        confirmed = sum(value for height, value in told.values() if height is not None)
        waiting = sum(value for height, value in told.values() if height is None)
        if (balance.confirmed + balance.immature, balance.pending_in) != (confirmed, waiting):
            raise Violation("true", f"the {whose} have {confirmed} and {waiting} satoshi, the views {balance}")
        if {mark: place[:2] for mark, place in books.matches.items()} != {
            mark: place[:2] for mark, place in process.books.matches.items()
        }:
            raise Violation("true", f"the {whose} have other matches")
    ranges = process.ranges_stored(filter(world.is_wanted, world.wishes.watched))
    is_whole = all(each == ((0, store.tip),) for each in ranges.values())
    if is_whole and not may_lack and not world.may_miss():
        scripts = set(filter(world.is_wanted, world.truth.scripts()))
        there = sum(coin.value for coin in world.truth.regtest.chain.coins.values() if coin.script_pubkey in scripts)
        if there != balance.confirmed + balance.immature:
            raise Violation("true", f"the chain has {there} satoshi of ours, the views {balance}")
    unconfirmed = process.disk.unconfirmed()
    check_rivals(unconfirmed)
    latest = store.views.history(limit=max(1, len(unconfirmed)))
    if absent := unconfirmed.keys() - {entry.txid for entry in latest}:
        raise Violation(
            "true", f"the history does not begin with what is unconfirmed: it lacks {len(absent)} transactions"
        )
    waiting_txs = {entry.txid for entry in latest if entry.status is TxStatus.PENDING and entry.net}
    if unknown := waiting_txs - process.books.waiting():
        raise Violation("true", f"{len(unknown)} pending transactions of the history were not told of")


def check_rivals(unconfirmed: Mapping[bytes, StoredTx]) -> None:
    """True: among unconfirmed transactions that conflict, at most one is canonical."""
    spent = [
        point for each in unconfirmed.values() if each.status is TxStatus.PENDING for point in oracle.spends(each.raw)
    ]
    if len(set(spent)) < len(spent):
        raise Violation("true", "two pending transactions that spend the same count")


def check_verdicts(store: Store) -> None:
    """True: the statuses of all transactions are consistent with each other."""
    known = store.transactions(store.tip)
    counts = {txid for txid, each in known.items() if each.status in _COUNTING}
    spent = {point: txid for txid in sorted(counts) for point in oracle.spends(known[txid].raw)}
    gone = known.keys() - counts
    parents = {point[:32] for each in known.values() for point in oracle.spends(each.raw)}
    for txid, each in known.items():
        points, name = oracle.spends(each.raw), txid[::-1].hex()
        if each.status is TxStatus.CONFIRMED:
            continue
        if each.status is TxStatus.PENDING:
            if points == (_NO_OUTPOINT,):
                raise Violation("true", f"the coinbase {name}, which is in no block, counts")
            if ended := [point[:32] for point in points if point[:32] in gone]:
                raise Violation("true", f"{name} counts, and its parent is {known[ended[0]].status}")
            if rivals := {spent[point] for point in points} - {txid}:
                raise Violation("true", f"{name} counts, and {min(rivals)[::-1].hex()}, which spends the same")
        by = known.get(each.conflicts_with or b"")
        if by is not None and each.conflicts_with not in counts:
            raise Violation("true", f"{name} is {each.status} by a transaction that is {by.status}")
        if by is None or each.status is not TxStatus.REPLACED or each.broadcast_seq is None:
            continue
        is_direct = not set(points).isdisjoint(oracle.spends(by.raw))
        is_later = each.conflicts_with in parents or (by.broadcast_seq or 0) > each.broadcast_seq
        is_later = is_later or by.was_requested > each.was_requested
        if is_direct and not is_later:  # an ancestor has the rank of its descendant, if that rank is higher
            raise Violation("true", f"our transaction {name} is replaced by one that was not broadcast later")
    check_nets(store)


def check_nets(store: Store) -> None:
    """True: the history states the net effect of a transaction even if it is not canonical."""
    watched = {script for (script,) in sqlite_of(store).execute("SELECT value FROM watch WHERE kind = 0")}
    history = store.views.history(limit=None)
    ours = {entry.txid for entry in history}
    for entry in history:
        if ours.isdisjoint(point[:32] for point in oracle.spends(entry.raw)) and entry.status not in _COUNTING:
            paid = sum(each.value for each in Transaction.parse(entry.raw).outputs if each.script_pubkey in watched)
            if entry.net != paid:
                raise Violation("true", f"{entry.txid[::-1].hex()} pays us {paid}, the history says {entry.net}")


_COUNTING = (TxStatus.PENDING, TxStatus.CONFIRMED)
_NO_OUTPOINT = bytes(32) + b"\xff" * 4
