"""Entries of the watch list in the books: their numbers, labels and accounts, while others are added and removed."""

from __future__ import annotations

from random import Random

import pytest

from spvfilter.kernel import EntryKind, Hit
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.entries import Renumbering
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.journal import Journal, decode
from spvfilter.wallet.parts import whole
from spvfilter.watch.keychain import GAP_LIMIT, Budget, Keychain
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import p2wpkh
from support.wallets.walletbooks import OURS, Wallet, coin, pay

FIRST, SECOND, THIRD = (p2wpkh(bytes([number]) * 20) for number in (11, 12, 13))


def chain(owner: int, label: str, *known: bytes) -> Keychain:
    """A keychain that begins with known scripts."""

    def scripts(index: int) -> tuple[bytes]:
        return (known[index] if index < len(known) else p2wpkh(bytes([owner]) + index.to_bytes(19, "big")),)

    return Keychain(f"chain {owner}", scripts, label=label, lookahead=GAP_LIMIT)


CHAINS = {
    "alice": chain(1, "till", FIRST, SECOND, THIRD),
    "carol": chain(2, "shop"),
    "bob": chain(3, "stall", THIRD),
}


class Shared(Wallet):
    """A wallet with keychains that do not belong to an account yet. Two of them derive one script."""

    def watch_list(self) -> WatchList:
        watch = super().watch_list()
        watch.watch_keychains([each.without_window() for each in CHAINS.values()], Budget(1_000))
        return watch


def add_account(wallet: Wallet, name: str, source: Keychain) -> None:
    watch = wallet.books.watch
    plan = watch.plan_account(WatchList.of_account(name, [source], REGTEST).index)
    wallet.books.store_account(plan)
    wallet.tell(())
    watch.take_account(plan)


def coins(wallet: Wallet) -> dict[int, tuple[str | None, str | None]]:
    """The account and the label of each coin, by its value."""
    return {each.value: (each.account, each.label) for each in wallet.store.views.coins()}


def test_remaining_entries_get_the_next_numbers() -> None:
    rng = Random(36)
    for _ in range(200):
        count = rng.randint(1, 30)
        watch = WatchList(REGTEST)
        scripts = [p2wpkh(bytes([number]) * 20) for number in range(count)]
        for script in scripts:
            watch.add_script(script)
        removed = rng.sample(range(count), rng.randint(0, count))
        change = Renumbering(watch.index, removed)
        left = [number for number in range(count) if number not in removed]
        assert change.ids(range(100, 100 + count)) == [100 + number for number in left]
        for number, script in enumerate(scripts):
            hit = Hit(False, 1, bytes([2]) * 32, 3, bytes([4]) * 36, 5, script, number, 6)
            kept = change.hit(hit)
            assert (None if kept is None else kept.entry) == (left.index(number) if number in left else None)
            assert kept is None or change.under_old(kept) == hit


def test_scripts_of_removed_outpoints_are_named() -> None:
    watch = WatchList(REGTEST)
    watch.add_script(FIRST)
    watch.add_outpoint(OutPoint(b"\x05" * 32, 0), value=9, script_pubkey=SECOND)
    change = Renumbering(watch.index, [1])
    whole(change.take_coins(watch.index))
    assert change.scripts == [SECOND]


def test_account_gives_its_label_only_to_entries_without_one() -> None:
    wallet = Wallet()
    wallet.books.entries.store([(EntryKind.SCRIPT, FIRST, None)])
    wallet.tell(())
    wallet.books.watch.table.add(EntryKind.SCRIPT, FIRST)
    add_account(wallet, "alice", chain(1, "till", OURS, FIRST, SECOND))
    wallet.mine(*(pay(100 + at, coin(1 + at), to=script) for at, script in enumerate((OURS, FIRST, SECOND))))
    assert {value: label for value, (_, label) in coins(wallet).items()} == {100: "label 0", 101: "till", 102: "till"}


def test_shared_entry_passes_to_the_other_account_with_its_label() -> None:
    wallet = Shared()
    for name, source in CHAINS.items():
        add_account(wallet, name, source)
    wallet.mine(pay(100, coin(1), to=SECOND), pay(200, coin(2), to=THIRD))
    assert coins(wallet) == {100: ("alice", "till"), 200: ("alice", "till")}
    wallet.books.remove_entries(Renumbering.of_account(wallet.books.watch, "alice"), lambda *events: None)
    wallet.tell(())
    assert coins(wallet) == {200: ("bob", "stall")}


def test_events_of_one_commit_name_a_renamed_account(monkeypatch: pytest.MonkeyPatch) -> None:
    wallet, journal = Wallet(), Journal()
    add_account(wallet, "alice", CHAINS["alice"])
    monkeypatch.setattr(wallet, "tell", list)
    for event in wallet.mine(pay(100, coin(1), to=FIRST)):
        list(journal.put(event, wallet.books.batch))
    wallet.books.entries.rename_account("alice", "robert")
    monkeypatch.undo()
    wallet.tell(())
    events = map(decode, wallet.store.events.read(0, 1 << 30, wallet.store.account_id("robert")))
    assert [event.match.account for event in events if isinstance(event, MatchFound)] == ["robert"]


def test_a_fork_of_the_filters_begins_a_batch() -> None:
    """Changes without a fork join the batch, because they follow what it already contains."""
    changes = Changes(WatchList(REGTEST).index)
    first, next_one, forked = (bytes([number]) * 32 for number in range(3))
    changes.change_filters(CompactFilterBatch(hashes=[first]))
    changes.change_filters(CompactFilterBatch(hashes=[next_one]))
    changes.change_filters(CompactFilterBatch(fork=0, hashes=[forked]))
    told = [(each.fork, [*each.hashes]) for batch in changes.take() if (each := batch.compact_filters) is not None]
    assert told == [(None, [first, next_one]), (0, [forked])]
