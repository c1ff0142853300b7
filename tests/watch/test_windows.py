"""Windows of keychains: a list takes the windows of its copy in short steps, and no step derives a script."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from spvfilter.address import script_to_address
from spvfilter.kernel import EntryKind
from spvfilter.network import REGTEST
from spvfilter.watch import windows
from spvfilter.watch.keychain import GAP_LIMIT, Keychain
from spvfilter.watch.watchlist import WatchList
from spvfilter.watch.windows import STEP
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.vectors import effort
from support.wallets.keychains import script_at


class Chain:
    """A function for the scripts of one keychain. It counts its calls."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls = 0

    def __call__(self, index: int) -> bytes:
        self.calls += 1
        return script_at(self.number * 1_000_000 + index)


def wallet(*chains: Callable[[int], bytes], lookahead: int = GAP_LIMIT) -> WatchList:
    watch = WatchList(REGTEST)
    for number, chain in enumerate(chains):
        watch.add_keychain(f"chain {number}", chain, f"label {number}", lookahead=lookahead)
    return watch


def grown(watch: WatchList, rng: random.Random, uses: int) -> WatchList:
    """A copy in which indexes are used and windows have moved."""
    copy = watch.copy()
    for _ in range(uses):
        chain = rng.choice(copy.keychains)
        chain.use(rng.randrange(chain.end))
        copy.advance()
    return copy


@pytest.mark.parametrize("seed", range(effort(10, 30, 300)))
def test_a_list_that_took_uses_equals_its_copy(seed: int) -> None:
    rng = random.Random(seed)
    chains = [Chain(number) for number in range(rng.randint(1, 5))]
    watch = wallet(*chains)
    shared = rng.sample(range(40), 3)
    for index in shared:  # scripts that were watched before, and that another keychain has as well
        watch.add_script(chains[0](index + GAP_LIMIT), f"own label {index}")
    copies = [grown(watch, rng, rng.randrange(30)) for _ in range(rng.randint(1, 3))]
    calls = [chain.calls for chain in chains]
    steps = [copy_uses(watch, copy) for copy in copies]
    while steps:  # several clients leave together
        one = rng.choice(steps)
        if next(one, StopIteration) is StopIteration:
            steps.remove(one)
    assert [chain.calls for chain in chains] == calls, "a script was derived"
    for number, chain in enumerate(watch.keychains):
        twins = [copy.keychains[number] for copy in copies]
        assert chain.end == max(each.end for each in twins)
        assert set(chain.used) == {index for each in twins for index in each.used}
        for index in range(chain.end):
            entry = watch.table.find(EntryKind.SCRIPT, chain.scripts(index)[0])
            assert watch.keychain_of(entry) == (chain, index)
        chain.use(chain.end - 1)
        chain.grow()  # an extended window goes on where the copy's ended


def copy_uses(watch: WatchList, copy: WatchList) -> Iterator[None]:
    yield from watch.index.take_uses(copy.index)


def test_a_step_adds_a_bounded_number_of_scripts() -> None:
    watch = wallet(*map(Chain, range(40)), lookahead=STEP // 4)
    copy = watch.copy()
    for chain in copy.keychains[::2]:
        chain.use(chain.end - 1)
    copy.advance()
    before = len(watch)
    for _ in watch.index.take_uses(copy.index):
        assert len(watch) - before <= 2 * STEP
        before = len(watch)
    assert len(watch) - before <= 2 * STEP
    assert len(watch) == len(copy) == 60 * (STEP // 4)


def test_a_list_that_nothing_changed_is_not_read() -> None:
    watch = wallet(*map(Chain, range(3)), lookahead=STEP)
    assert list(watch.index.take_uses(watch.copy().index)) == []


def test_a_window_whose_copy_was_used_must_move() -> None:
    watch = wallet(Chain(0), Chain(1))
    copy = watch.copy()
    copy.keychains[1].use(GAP_LIMIT - 1)
    assert list(watch.index.take_uses(copy.index)) == []
    windows = watch.index.windows
    assert windows.is_due
    assert {name: len(scripts) for name, scripts in windows.ahead(0).items()} == {"chain 1": GAP_LIMIT}


def test_an_address_that_overlapping_keychains_share_is_revealed_once() -> None:
    watch = wallet(script_at, lambda index: script_at(index + 10))
    windows, (one, two) = watch.index.windows, watch.keychains
    assert windows.reveal(one, 15) == [one, two]
    assert (one.revealed, two.revealed) == (16, 6)
    assert windows.reveal(two, 3) == [two]
    assert (one.revealed, two.revealed) == (16, 6)
    index, address = windows.to_reveal(two, REGTEST)
    assert (index, address) == (6, script_to_address(script_at(16), REGTEST))
    assert windows.reveal(two, index) == [two, one]
    assert windows.to_reveal(one, REGTEST)[0] == 17


def test_overlapping_windows_move_after_earlier_entries_were_removed() -> None:
    watch = WatchList(REGTEST)
    watch.add_script(removed := script_at(1_000))
    watch.add_keychain("one", script_at, lookahead=GAP_LIMIT)
    watch.add_keychain("two", lambda index: script_at(index + 10), lookahead=GAP_LIMIT)
    with watch.within_account("bob"):
        watch.add_keychain("his", lambda index: script_at(index + 25), lookahead=GAP_LIMIT)
    assert len(watch.index.windows.shared) == 15
    watch.index.replace_with(watch.index.without_account("bob"))
    watch.index.replace_with(watch.index.without_entries({watch.table.find(EntryKind.SCRIPT, removed)}))
    assert len(watch.index.windows.shared) == 10
    watch.match_tx(build.tx([TxIn(bytes(32), 0)], [TxOut(1, script_at(19))]))
    assert [(*each.used, each.end) for each in watch.keychains] == [(19, 40), (9, 30)]


def test_the_window_of_a_removed_account_need_not_move() -> None:
    watch = wallet(Chain(0))
    with watch.within_account("bob"):
        removed = watch.add_keychain("his", Chain(1), lookahead=GAP_LIMIT)
    windows = watch.index.windows
    windows.reveal(removed, GAP_LIMIT - 1)
    assert windows.is_due
    left = watch.index.without_account("bob")
    watch.index.replace_with(left)
    assert watch.index.windows.ahead() == {}


@pytest.mark.parametrize("seed", range(effort(10, 30, 300)))
def test_a_list_without_entries_equals_a_new_list(seed: int) -> None:
    rng = random.Random(seed)
    watch = wallet(Chain(0), Chain(1))
    scripts = [script_at(-index % (1 << 32)) for index in range(1, 30)]
    for number, script in enumerate(scripts):
        watch.add_script(script, rng.choice((None, f"label {number}")))
        watch.table.set_coin(bytes([number]) * 36, watch.table.find(EntryKind.SCRIPT, script), number, script)
    watch.add_keychain("later", Chain(2), lookahead=GAP_LIMIT)
    removed = set(rng.sample(scripts, rng.randint(1, len(scripts))))
    left = watch.copy()
    left.index.replace_with(watch.index.without_entries({watch.table.find(EntryKind.SCRIPT, each) for each in removed}))
    made = wallet(Chain(0), Chain(1))
    for number, script in enumerate(scripts):
        if script not in removed:
            entry = made.table.add(EntryKind.SCRIPT, script)
            made.relabel(entry, watch.own_label(watch.table.find(EntryKind.SCRIPT, script)))
            made.table.set_coin(bytes([number]) * 36, entry, number, script)
    made.add_keychain("later", Chain(2), lookahead=GAP_LIMIT)
    assert left == made
    assert [(entry.name, index) for entry, index in filter(None, map(left.keychain_of, range(len(left))))] == [
        (entry.name, index) for entry, index in filter(None, map(made.keychain_of, range(len(made))))
    ]


def test_matching_a_block_does_not_visit_every_keychain(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, visited = wallet(*map(Chain, range(200))), list[Keychain | None]()

    def is_silent(keychain: Keychain | None) -> bool:
        visited.append(keychain)
        return keychain is not None and keychain.finds_scripts

    monkeypatch.setattr(windows, "is_silent", is_silent)
    paid = build.tx([TxIn(bytes(32), 1)], [TxOut(5, script_at(7_000_003))])
    (match,) = watch.match_block(build.block_of(build.GENESIS, 1, [paid]))
    assert (match.keychain, match.keychain_index) == ("chain 7", 3)
    assert not watch.windows.silent
    assert len(visited) < 10
