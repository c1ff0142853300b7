"""Labels in a wallet's database: every record survives, and the label of a watched address is on its entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.address import script_to_address
from spvfilter.errors import StoreCorruptError
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint, hash_to_hex
from spvfilter.store.batch import Batch
from spvfilter.store.place import MEMORY
from spvfilter.store.schema import MARKED
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.labels import Label
from spvfilter.watch.watchlist import WatchList
from store.test_views import OURS, SAVINGS, Ledger, pay
from support.blocks.build import p2wpkh
from support.wallets.forgery import remark, unchecked
from support.wallets.stores import opened
from watch.test_labels import records

ADDRESS = script_to_address(OURS, REGTEST) or ""
LATER = p2wpkh(b"\x03" * 20)
LATER_ADDRESS = script_to_address(LATER, REGTEST) or ""
TXID = "ab" * 32


def put(store: Store, *labels: Label) -> None:
    store.commit(Batch(bip329=labels))


def key(label: Label) -> tuple[str, str, str]:
    return label.type, label.ref, label.origin or ""


def is_kept(label: Label) -> bool:
    """True if a record has content. An empty label means no label."""
    return bool(label.label or label.other or label.origin or label.spendable is not None or label.type.startswith("f"))


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(records().filter(is_kept), max_size=8, unique_by=lambda label: label.ref))
def test_every_record_survives(labels: list[Label]) -> None:
    store = opened(MEMORY)
    put(store, *labels)
    expected = [
        Label(each.type, each.ref, each.label or None, each.origin, each.spendable, each.other)
        for each in sorted(labels, key=key)
    ]
    assert store.views.labels() == expected
    put(store, *expected)
    assert store.views.labels() == expected
    store.close()


def test_label_of_watched_address_is_the_label_of_its_entry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    ledger.mine(3)
    ledger.put(pay(1, (100, OURS), (50, SAVINGS)), 2)
    put(ledger.store, Label("addr", ADDRESS, "rent", other={"height": 2}), Label("addr", ADDRESS, "flat"))
    assert {coin.label for coin in ledger.store.views.coins()} == {"flat", "savings"}
    assert ledger.store.views.history()[0].labels == ("flat", "savings")
    found = {each.ref: each for each in ledger.store.views.labels()}
    assert found[ADDRESS] == Label("addr", ADDRESS, "flat", other={"height": 2})
    ledger.watch.relabel(0, "user")
    ledger.store.commit(Batch(labels={0: "user"}))
    assert Label("addr", ADDRESS, "user", other={"height": 2}) in ledger.store.views.labels()
    put(ledger.store, Label("addr", ADDRESS, ""))
    assert {coin.label for coin in ledger.store.views.coins()} == {None, "savings"}
    ledger.store.close()


def test_label_waits_until_its_address_is_watched(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        put(store, Label("addr", LATER_ADDRESS.upper(), "later"), Label("addr", ADDRESS, "not used"))
        assert [each.ref for each in store.views.labels()] == sorted([LATER_ADDRESS, ADDRESS])
        watch = WatchList(REGTEST)
        watch.add_script(LATER)
        watch.add_script(OURS, "daily")
        store.attach(watch)
        assert (watch.label(0), watch.label(1)) == ("later", "daily")


def test_removed_label_does_not_come_back(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    watch = WatchList(REGTEST)
    watch.add_script(LATER)
    with Store.open(path, REGTEST) as store:
        put(store, Label("addr", LATER_ADDRESS, "later"))
        store.attach(watch)
        store.commit(Batch(labels={0: None}))
    with Store.open(path, REGTEST) as store:
        store.attach(found := WatchList(REGTEST))
        assert found.label(0) is None
        assert store.views.labels() == []


def test_label_of_keychain_is_no_label_of_its_addresses(tmp_path: Path) -> None:
    scripts = [p2wpkh(bytes([number]) * 20) for number in range(1, 90)]
    watch = WatchList(REGTEST)
    watch.add_keychain("shop", scripts.__getitem__, "orders", lookahead=20)
    store = opened(tmp_path / "w.db")
    watch.widen()
    store.attach(watch)
    assert store.views.labels() == []
    address = script_to_address(scripts[0], REGTEST) or ""
    put(store, Label("addr", address, "first"))
    assert store.views.labels() == [Label("addr", address, "first")]
    put(store, Label("addr", address, ""))
    assert store.views.labels() == []
    store.attach(watch)
    assert watch.label(0) == "orders"


def test_history_and_coins_show_labels(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    ledger.mine(3)
    txid = ledger.put(pay(1, (100, OURS)), 2)
    outpoint = OutPoint(txid, 0)
    put(
        ledger.store,
        Label("tx", hash_to_hex(txid), "of another wallet", "wpkh([d34db33f])"),
        Label("tx", hash_to_hex(txid), "invoice 7"),
        Label("output", str(outpoint), "deposit"),
    )
    assert ledger.store.views.history()[0].label == "invoice 7"
    assert ledger.store.views.coins()[0].output_label == "deposit"
    ledger.store.close()


def test_frozen_outputs_are_exported() -> None:
    store = opened(MEMORY)
    ref = f"{TXID}:1"
    put(store, Label("output", ref, "deposit", spendable=False))
    assert store.views.labels() == [Label("output", ref, "deposit", spendable=False)]
    put(store, Label("output", ref, ""))
    assert store.views.labels() == [Label("output", ref, spendable=False)]
    put(store, Label("output", ref, spendable=True))
    assert store.views.labels() == [Label("output", ref, spendable=True)]


def test_labels_survive_a_rebuild(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    ledger = Ledger(path)
    kept = [
        Label("addr", ADDRESS, "flat"),
        Label("addr", LATER_ADDRESS, "later"),
        Label("output", f"{TXID}:1", "deposit", spendable=False),
        Label("tx", TXID, "rent", "wpkh([d34db33f])", other={"height": 7}),
        Label("future", "x"),
    ]
    put(ledger.store, *kept)
    before = ledger.store.views.labels()
    assert len(before) == len(kept) + 1  # and that of the other entry
    ledger.store.close()
    Store.open(path, REGTEST, rebuild=True).close()
    with WalletStore.open(path) as wallet:
        assert wallet.labels() == before


@pytest.mark.parametrize("other", ["[]", "{", '{"label":1}'])
def test_damaged_row_is_named(other: str, tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with Store.open(path, REGTEST) as store:
        put(store, Label("tx", TXID, "rent"))
    with unchecked(path) as db:
        db.execute("UPDATE labels SET other = ?", (other,))
        remark(db, "labels", MARKED)
    with WalletStore.open(path) as wallet, pytest.raises(StoreCorruptError, match="cannot be read"):
        wallet.labels()
