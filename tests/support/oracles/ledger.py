"""Values that a wallet's database derives from its matches, computed again: coins, nets, fees, labels and the
balance.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from unittest.mock import patch

from spvfilter.kernel import NO_VALUE
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.store import sqlite, views
from spvfilter.store.ledger import StoredMatch, TxStatus
from spvfilter.store.store import Store
from spvfilter.store.views import Balance, HistoryEntry
from spvfilter.transaction import Transaction
from support.wallets.storesqlite import sqlite_of, verify

_mark = sqlite.mark


@lru_cache(maxsize=1 << 14, typed=True)
def _mark_of(table: str, *row: object) -> int:
    return _mark(table, row)


def mark(table: str, row: Sequence[object]) -> int:
    """The checksum of a row. It is cached, because ledgers are checked after each step."""
    return _mark_of(table, *row)


def owners(store: Store) -> dict[int, str]:
    """The account of each entry of the attached watch list, by the number of the entry."""
    query = "SELECT watch.id, accounts.name FROM watch JOIN accounts ON accounts.id = watch.account"
    named = dict(sqlite_of(store).execute(query))
    return {at: named[row] for at, row in enumerate(store.ids) if row in named}


def matches_of(store: Store, account: str | None = None) -> list[StoredMatch]:
    """The matches of the wallet, or of one account: its outputs, and the spends of its outputs."""
    found = list(store.matches())
    if account is None:
        return found
    owned = owners(store)
    entries = {each.hit.outpoint: each.hit.entry for each in found if not each.hit.spend}
    return [each for each in found if owned.get(entries.get(each.hit.outpoint, each.hit.entry)) == account]


def trusted(store: Store, history: Sequence[HistoryEntry]) -> set[bytes]:
    """The txids of pending own transactions whose inputs all spend known coins, in blocks or of such transactions."""
    spent: dict[bytes, set[int]] = {}
    for hit, _, height, *_ in store.matches():
        if hit.spend and height is None and hit.value != NO_VALUE:
            spent.setdefault(hit.txid, set()).add(hit.n)
    found = set[bytes]()
    inputs = {entry.txid: Transaction.parse(entry.raw).inputs for entry in history}
    for entry in history:
        spends = set(range(len(inputs[entry.txid])))
        if entry.is_own and spent.get(entry.txid) == spends and entry.fee is not None:
            found.add(entry.txid)
    pending = {each.hit.outpoint for each in store.matches() if not each.hit.spend and each.height is None}
    while doubtful := {
        txid for txid in found if any(each in pending and each[:32] not in found for each in inputs[txid])
    }:
        found -= doubtful
    return found


def recomputed(
    store: Store, account: str | None, history: Sequence[HistoryEntry]
) -> tuple[Balance, dict[bytes, bytes | None]]:
    """The balance of the wallet or of one account, and the unspent outpoints with the pending spender of each.

    `history` is the whole history of the wallet.
    """
    tip = store.tip
    found, safe = matches_of(store, account), trusted(store, history)
    known = store.transactions(tip)
    sent = {txid for txid, each in known.items() if each.broadcast_seq is not None or each.signatures == "valid"}
    waiting = [each for each in known.values() if each.broadcast_seq is not None and each.status is TxStatus.WAITING]
    held = {outpoint for each in waiting for outpoint in Transaction.parse(each.raw).inputs}
    spent = {each.hit.outpoint for each in found if each.hit.spend and each.height is not None}
    pending = {each.hit.outpoint: each.hit.txid for each in found if each.hit.spend and each.height is None}
    confirmed = immature = pending_in = pending_out = spendable = own = 0
    coins: dict[bytes, bytes | None] = {}
    for hit, _, height, *_ in found:
        if hit.spend or hit.outpoint in spent:
            continue
        coins[hit.outpoint] = pending.get(hit.outpoint)
        if height is None:
            pending_in += 0 if hit.outpoint in pending else hit.value
            own += hit.value if hit.outpoint not in pending and hit.txid in safe else 0
            continue
        is_immature = hit.position == 0 and tip + 1 - height < COINBASE_MATURITY
        immature += hit.value if is_immature else 0
        confirmed += 0 if is_immature else hit.value
        pending_out += hit.value if hit.outpoint in pending else 0
        is_taken = pending.get(hit.outpoint) in sent or hit.outpoint in held
        spendable += 0 if is_immature or is_taken else hit.value
    return Balance(confirmed, immature, pending_in, pending_out, spendable, trusted_pending=own), coins


def check_ledger(store: Store) -> None:
    """The views of a database follow from its matches, and every row is intact."""
    with patch.object(sqlite, "mark", mark), patch.object(views, "mark", mark):
        verify(store)
        with store.views.moment():
            _check(store)


def _check(store: Store) -> None:
    history = store.views.history(limit=None)
    for account in (None, *store.views.accounts()):
        balance, coins = recomputed(store, account, history)
        assert store.views.balance(account=account) == balance
        there = store.views.coins(account=account)
        assert {bytes(coin.outpoint): coin.spent_by for coin in there} == coins
        assert sum(coin.value for coin in there if coin.is_spendable) == balance.spendable
        if account is not None:
            assert {coin.account for coin in there} <= {account}
            check_account_history(store, account, history)
    check_history(store, history)


def check_account_history(store: Store, account: str, history: Sequence[HistoryEntry]) -> None:
    """The history of an account has the sums of its matches. A fee is shown only if the account paid it alone."""
    nets: dict[bytes, int] = {}
    spends: dict[bytes, list[int]] = {}
    for hit, *_ in matches_of(store, account):
        value = 0 if hit.value == NO_VALUE else hit.value
        nets[hit.txid] = nets.get(hit.txid, 0) + (-value if hit.spend else value)
        if hit.spend:
            spends.setdefault(hit.txid, []).append(hit.value)
    entries = store.views.history(account=account, limit=None)
    live = {each.txid: each for each in entries if each.status in (TxStatus.CONFIRMED, TxStatus.PENDING)}
    assert {txid: entry.net for txid, entry in live.items()} == {txid: _in_64_bits(net) for txid, net in nets.items()}
    whole = {each.txid: each for each in history}
    shown_here = {each.txid for each in entries}
    assert [each.txid for each in entries] == [txid for txid in whole if txid in shown_here]
    for txid, entry in live.items():
        tx, values = Transaction.parse(entry.raw), spends.get(txid, [])
        paid = NO_VALUE not in values and len(values) == len(tx.inputs)
        assert entry.fee == (whole[txid].fee if paid else None)
    shown = {label for entry in entries for label in entry.labels}
    for label in shown:
        mine = [entry for entry in entries if label in entry.labels]
        assert store.views.history(account=account, label=label, limit=None) == mine


def check_history(store: Store, entries: Sequence[HistoryEntry]) -> None:
    """Every transaction with a match is in the history once, with the sums of its matches. No other
    transaction counts.
    """
    nets: dict[bytes, int] = {}
    spends: dict[bytes, list[int]] = {}
    places: dict[bytes, int | None] = {}
    for hit, _, height, *_ in store.matches():
        value = 0 if hit.value == NO_VALUE else hit.value
        nets[hit.txid] = nets.get(hit.txid, 0) + (-value if hit.spend else value)
        places[hit.txid] = height
        if hit.spend:
            spends.setdefault(hit.txid, []).append(hit.value)
    assert [each.cursor for each in entries] == [each.cursor for each in paged(store, 3 + len(entries) // 4)]
    live = {each.txid: each for each in entries if each.status in (TxStatus.CONFIRMED, TxStatus.PENDING)}
    assert live.keys() >= nets.keys()
    for txid, entry in live.items():
        tx = Transaction.parse(entry.raw)
        assert tx.txid == txid
        # an own transaction may have no match
        height = entry.height if entry.is_own and txid not in nets else places.get(txid)
        assert (entry.net, entry.height) == (_in_64_bits(nets.get(txid, 0)), height)
        values = spends.get(txid, [])
        is_known = bool(values) and NO_VALUE not in values and len(values) == len(tx.inputs)
        fee = sum(values) - sum(output.value for output in tx.outputs)
        assert entry.fee == (_in_64_bits(fee) if is_known and fee >= 0 else None)
        assert store.views.transaction(txid) == entry
    for label in {label for entry in entries for label in entry.labels}:
        mine = [entry for entry in entries if label in entry.labels]
        assert store.views.history(label=label, limit=None) == mine == paged(store, 2 + len(mine) // 4, label)


def paged(store: Store, limit: int, label: str | None = None) -> list[HistoryEntry]:
    """The history page by page."""
    found: list[HistoryEntry] = []
    before = None
    while page := store.views.history(limit=limit, before=before, label=label):
        found += page
        before = page[-1].cursor
    return found


def _in_64_bits(value: int) -> int:
    return max(-(2**63) + 1, min(value, 2**63 - 1))
