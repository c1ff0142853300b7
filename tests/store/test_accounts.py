"""Rows of accounts: effects of transactions, ids, totals, and damaged rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import ParameterError, StoreCorruptError, UnknownAccountError
from spvfilter.kernel import NO_VALUE
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.store.accounts import MatchEffect, TxEffect, effect_of, effects_by_account
from spvfilter.store.batch import AccountChange, Batch
from spvfilter.store.events import StoredEvent
from spvfilter.store.place import MEMORY
from spvfilter.store.schema import MARKED
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from store.test_views import OURS, SAVINGS, Ledger, pay
from support.blocks.build import TxIn, TxOut, p2wpkh, tx, txid
from support.wallets.forgery import remark, unchecked


def spending(*values: int) -> Transaction:
    """A transaction with two inputs and these outputs."""
    inputs = [TxIn(bytes(32), 0), TxIn(bytes(32), 1)]
    return Transaction.parse(tx(inputs, [TxOut(value, p2wpkh(b"\xee" * 20)) for value in values]))


def spend(value: int, account: int | None, label: str | None = None) -> MatchEffect:
    return MatchEffect(True, value, label, account)


def paid(value: int, account: int | None, label: str | None = None) -> MatchEffect:
    return MatchEffect(False, value, label, account)


def test_payment_between_accounts_has_another_sign_in_each() -> None:
    found = [spend(60, 1, "a"), spend(50, 1, "b"), paid(30, 2, "c"), paid(70, 1), paid(4, None)]
    made = effects_by_account(found, spending(30, 70, 4))
    assert made == {1: TxEffect(-40, 6, ["a", "b"]), 2: TxEffect(30, None, ["c"])}
    assert effect_of(found, spending(30, 70, 4)) == TxEffect(-6, 6, ["a", "b", "c"])


def test_fee_belongs_to_the_account_that_paid_all_inputs() -> None:
    found = [spend(60, 1), spend(50, 2)]
    assert {each.fee for each in effects_by_account(found, spending(100)).values()} == {None}
    assert [effect_of(found, spending(value)).fee for value in (100, 110)] == [10, 0]
    assert effect_of([spend(60, 1), spend(NO_VALUE, 1)], spending(100)) == TxEffect(-60, None, [])
    assert effect_of([spend(60, 1), spend(10, 1)], spending(100)).fee is None, "no transaction pays more than it has"


def accounts_of(path: Path) -> Ledger:
    """A database with two accounts, and a payment to each."""
    ledger = Ledger(path)
    ledger.mine(12)
    ledger.put(pay(1, (1_000, OURS)), 3)
    ledger.put(pay(2, (70, SAVINGS)), 4)
    ledger.store.close()
    with Store.open(path, REGTEST) as store:
        watch = WatchList(REGTEST)
        for name, script in (("alice", OURS), ("bob", SAVINGS)):
            with watch.within_account(name):
                watch.add_script(script)
        store.attach(watch)
    return ledger


def test_id_of_a_removed_account_is_never_used_again(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    accounts_of(path)
    with Store.open(path, REGTEST) as store:
        store.attach(watch := WatchList(REGTEST))
        bob, (entries, _) = store.account_id("bob"), watch.index.entries_of_account("bob")
        event = StoredEvent(1, 5, "connected", b"[]", "bob")
        left = [(False, each.hit.txid, each.hit.n) for each in store.matches() if each.hit.entry in entries]
        change = AccountChange("bob", is_removed=True)
        store.commit(Batch(accounts=[change], removed=entries, withdrawn=left, events=[event]))
        assert not store.has_account(bob)
        assert store.views.accounts() == ("alice",)
        assert store.views.balance().total == store.views.balance(account="alice").total == 1_000
        with pytest.raises(UnknownAccountError):
            store.account_id("bob")
    with Store.open(path, REGTEST) as store:
        store.attach(WatchList(REGTEST))
        store.commit(Batch(accounts=[AccountChange("bob")]))
        assert store.account_id("bob") > bob
        assert store.events.read(0, 10, store.account_id("bob"))[0].account is None


def test_name_in_use_and_unknown_name_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    accounts_of(path)
    with Store.open(path, REGTEST) as store:
        store.attach(WatchList(REGTEST))
        with pytest.raises(ParameterError, match="there is already an account 'alice'"):
            store.commit(Batch(accounts=[AccountChange("bob", "alice")]))
        with pytest.raises(UnknownAccountError, match="'carol'"):
            store.commit(Batch(accounts=[AccountChange("carol", "x")]))
        store.commit(Batch(accounts=[AccountChange("bob", "robert")]))
        assert store.views.accounts() == ("alice", "robert")
        assert store.views.balance(account="robert").total == 70


def test_spend_of_a_watched_outpoint_belongs_to_its_coins_account() -> None:
    watch, paid = WatchList(REGTEST), pay(1, (1_000, OURS))
    watch.add_outpoint(OutPoint(txid(paid), 0))
    with watch.within_account("alice"):
        watch.add_script(OURS)
    ledger = Ledger(MEMORY, watch)
    ledger.mine(5)
    ledger.put(paid, 3)
    ledger.put(tx([TxIn(txid(paid), 0)], [TxOut(900, SAVINGS)]), 4)
    assert [(each.net, each.fee) for each in ledger.store.views.history(account="alice")] == [
        (-1_000, 100),
        (1_000, None),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE accounts SET totals = X'31203020302030' WHERE name = 'bob'", "totals differ from the sums"),
        ("UPDATE accounts SET totals = X'78' WHERE name = 'bob'", "cannot be read"),
        ("UPDATE accounts SET name = ' ' WHERE name = 'bob'", "account's name"),
        ("DELETE FROM accounts WHERE name = 'bob'", "is missing"),
    ],
)
def test_damaged_accounts_are_refused(change: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    accounts_of(path)
    with unchecked(path) as db:
        db.execute(change)
        remark(db, "accounts", MARKED)

    def use() -> None:
        with Store.open(path, REGTEST) as store:
            store.attach(WatchList(REGTEST))

    with pytest.raises(StoreCorruptError, match=message):
        use()


@pytest.mark.parametrize("name", ["", "carol", "a\ud800", "x" * 1_000])
def test_reader_refuses_an_unknown_account(name: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    accounts_of(path)
    with WalletStore.open(path) as wallet:
        for view in (wallet.balance, wallet.coins, wallet.history, wallet.keychains, wallet.next_address):
            with pytest.raises(UnknownAccountError):
                view(account=name)
        with pytest.raises(UnknownAccountError):
            wallet.events(0, account=name)
        with pytest.raises(ParameterError, match="the account has no keychain"):
            wallet.next_address(account="bob")
