"""Keychains of a watch list: windows, uses, what a bad function gives, and that nothing is lost by copying and
saving.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.errors import KeychainError, ParameterError, WatchFileError
from spvfilter.network import MAINNET, REGTEST
from spvfilter.watch.keychain import GAP_LIMIT, LOOKAHEAD, MAX_LOOKAHEAD, Keychain
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.growth import LIMIT, growth
from support.vectors import effort
from support.wallets.keychains import script_at

NOWHERE = b"\x00\x14" + b"\x99" * 20


def pays(*indexes: int, salt: int = 0) -> bytes:
    return build.tx([TxIn(bytes([salt]) * 32, 0)], [TxOut(index + 1, script_at(index)) for index in indexes])


def kept(lookahead: int = GAP_LIMIT) -> tuple[WatchList, Keychain]:
    watch = WatchList(REGTEST)
    return watch, watch.add_keychain("mine", script_at, "savings", lookahead=lookahead)


# Windows


def test_a_window_ends_a_lookahead_after_the_last_use() -> None:
    watch, chain = kept()
    assert (chain.end, len(watch), chain.last_used, chain.next_index) == (20, 20, -1, 0)
    for index, end, following in ((3, 24, 0), (0, 24, 1), (23, 44, 1), (1, 44, 2), (2, 44, 4)):
        (match,) = watch.match_tx(pays(index))
        assert (match.keychain, match.keychain_index, match.label) == ("mine", index, "savings")
        assert (chain.end, len(watch), chain.next_index) == (end, end, following)
    assert sorted(chain.used) == [0, 1, 2, 3, 23]
    assert script_at(43) in watch
    assert script_at(44) not in watch


def test_uses_are_reported_in_the_order_of_outputs() -> None:
    for _ in range(3):
        watch, chain = kept()
        indexes = random.sample(range(20), 12)
        watch.windows.note(watch.table.scan_tx(pays(*indexes)))
        assert watch.windows.take_fresh() == {chain.name: indexes}


def test_windows_move_on_after_outpoints_were_forgotten() -> None:
    watch, chain = kept()
    (match,) = watch.match_tx(pays(3))
    watch.forget_outpoints([bytes(match.outpoint)])
    assert not list(watch.outpoints())
    (match,) = watch.match_tx(pays(23, salt=1))
    assert (match.keychain, match.keychain_index, chain.end, len(watch)) == ("mine", 23, 44, 44)
    assert script_at(43) in watch
    assert watch.match_tx(pays(43, salt=2))[0].keychain_index == 43


def test_the_default_looks_a_thousand_scripts_ahead() -> None:
    watch = WatchList()
    assert watch.add_keychain("mine", script_at).end == LOOKAHEAD == len(watch)


def test_newly_watched_scripts_are_returned() -> None:
    watch, _ = kept()
    hits = watch.table.scan_tx(pays(5, 19))
    assert watch.advance(hits) == [script_at(index) for index in range(20, 40)]
    assert watch.advance(hits) == []


def test_a_payment_beyond_the_window_that_it_moves_matches() -> None:
    watch, chain = kept()
    assert [match.keychain_index for match in watch.match_tx(pays(58, 39, 19))] == [58, 39, 19]
    assert chain.end == 79
    block = build.block_of(build.GENESIS, 1, [pays(118, salt=1), pays(98, salt=2), pays(78, salt=3)])
    assert [match.keychain_index for match in watch.match_block(block)] == [118, 98, 78]


def test_a_margin_is_watched_beyond_the_window() -> None:
    watch, chain = kept()
    assert len(watch.widen()) == 20
    assert watch.widen() == []
    assert chain.end == 40
    watch.match_tx(pays(19))
    assert chain.end == 40  # it reaches 20 beyond 19 already
    assert len(watch.widen(100)) == 100


def test_a_new_keychain_takes_over_watched_scripts_and_their_uses() -> None:
    watch = WatchList(REGTEST)
    for index in (25, 5, 15):
        watch.add_script(script_at(index), "by hand" if index == 15 else None)
    watch.match_tx(pays(25, 15))
    chain = watch.add_keychain("mine", script_at, "savings", lookahead=GAP_LIMIT)
    assert (sorted(chain.used), chain.end) == ([15, 25], 46)
    assert len(watch) == 46
    labels = {match.keychain_index: match.label for match in watch.match_tx(pays(25, 15, 7))}
    assert labels == {25: "savings", 15: "by hand", 7: "savings"}


def test_an_added_outpoint_with_a_script_is_a_use() -> None:
    watch, chain = kept()
    watch.add_outpoint("ab" * 32 + ":0", value=5, script_pubkey=script_at(19))
    assert (sorted(chain.used), chain.end) == ([19], 40)
    watch.add_outpoint("ab" * 32 + ":1", "a coin", value=5, script_pubkey=script_at(30))
    (match,) = watch.match_tx(build.tx([TxIn(b"\xab" * 32, 1)], []))
    assert (match.label, match.keychain, match.keychain_index) == ("a coin", "mine", 30)


def test_the_use_of_a_shared_script_moves_both_keychains() -> None:
    watch = WatchList(REGTEST)
    one = watch.add_keychain("one", script_at, lookahead=GAP_LIMIT)
    two = watch.add_keychain("two", lambda index: script_at(index + 10), lookahead=GAP_LIMIT)
    (match,) = watch.match_tx(pays(19))
    assert (match.keychain, match.keychain_index) == ("one", 19)
    assert (sorted(one.used), sorted(two.used), one.end, two.end) == ([19], [9], 40, 30)
    watch.match_tx(pays(38))
    assert (one.end, two.end) == (59, 49)


def test_next_addresses_and_uses_are_reported() -> None:
    watch, chain = kept()
    assert watch.next_address() == watch.next_address("mine") == script_to_address(script_at(0), REGTEST)
    watch.match_tx(pays(0, 2))
    assert watch.next_address() == script_to_address(script_at(1), REGTEST)
    used = [index for index in range(chain.end) if watch.is_used(str(script_to_address(script_at(index), REGTEST)))]
    assert used == [0, 2]
    watch.add_script(NOWHERE)
    assert not watch.is_used(str(script_to_address(NOWHERE, REGTEST)))
    with pytest.raises(ParameterError, match="has no keychain 'other'"):
        watch.next_address("other")
    with pytest.raises(ParameterError, match=r"has no keychain$"):
        WatchList().next_address()
    with pytest.raises(ParameterError, match=r"has no keychain 'other'; it has 'mine'$"):
        watch.windows.chosen("other", ())


def test_addresses_of_a_keychain_may_have_labels_of_their_own() -> None:
    watch, _ = kept()
    watch.add_script(script_at(3), "rent")
    assert [match.label for match in watch.match_tx(pays(2, 3))] == ["savings", "rent"]


@pytest.mark.parametrize("seed", range(effort(3, 10, 500)))
def test_any_use_keeps_the_window_ahead_of_it(seed: int) -> None:
    rng = random.Random(seed)
    watch, chain = kept(rng.choice((GAP_LIMIT, 33)))
    used: set[int] = set()
    for salt in range(30):
        indexes = rng.sample(range(chain.end), min(chain.end, rng.randrange(1, 4)))
        found = watch.match_tx(pays(*indexes, salt=salt))
        used.update(indexes)
        assert {match.keychain_index for match in found} == set(indexes)
        assert set(chain.used) == used
        assert chain.end == max(used) + 1 + chain.lookahead
        assert chain.next_index == next(index for index in count() if index not in used)
        assert list(watch.script_pubkeys()) == [script_at(index) for index in range(chain.end)]
        if rng.random() < 0.2:
            watch = watch.copy()
            (chain,) = watch.keychains


# Refusals


def stateful() -> Callable[[int], bytes]:
    calls = count()
    return lambda index: script_at(index + next(calls))


BAD: list[tuple[Callable[[int], Any], str]] = [
    (
        lambda index: script_at(100 // (index - 7)) if index == 7 else script_at(index),
        "ZeroDivisionError while deriving index 7",
    ),
    (lambda index: None, "expected a scriptPubKey as bytes for index 0, not NoneType"),
    (lambda index: script_at(index).hex(), "expected a scriptPubKey as bytes for index 0, not str"),
    (lambda index: (script_at(index),), "expected a scriptPubKey as bytes for index 0, not tuple"),
    (lambda index: script_at(index) if index < 9 else None, "expected a scriptPubKey as bytes for index 9"),
    (lambda index: b"", "expected a scriptPubKey of 1 to 4,000,000 bytes for index 0, not 0"),
    (lambda index: bytes(4_000_001), "expected a scriptPubKey of 1 to 4,000,000 bytes for index 0, not 4,000,001"),
    (lambda index: NOWHERE, "indexes 0 and 1 have the same script"),
    (lambda index: script_at(index % 5), "indexes 0 and 5 have the same script"),
    (stateful(), "index 0 gave two different scripts"),
]


@pytest.mark.parametrize(("bad", "message"), BAD, ids=[message for _, message in BAD])
def test_a_function_without_scripts_is_refused_and_adds_no_entry(bad: Callable[[int], Any], message: str) -> None:
    watch = WatchList(REGTEST)
    with pytest.raises(KeychainError) as caught:
        watch.add_keychain("mine", bad)
    assert str(caught.value).startswith(f"keychain 'mine': {message}")
    assert (len(watch), watch.keychains) == (0, ())


def test_a_function_that_changes_its_mind_later_is_noticed() -> None:
    shift = 0
    watch = WatchList(REGTEST)
    watch.add_keychain("mine", lambda index: script_at(index + shift), lookahead=GAP_LIMIT)
    shift = 1
    with pytest.raises(KeychainError, match="the script at index 19 has changed"):
        watch.match_tx(pays(10))
    shift = 0
    assert len(watch.match_tx(pays(10))) == 1
    assert len(watch) == 31


@pytest.mark.parametrize("lookahead", [0, GAP_LIMIT - 1, MAX_LOOKAHEAD + 1])
def test_a_lookahead_out_of_range_is_refused(lookahead: int) -> None:
    with pytest.raises(
        ParameterError, match=f"a lookahead must be from 20, the gap limit, to 10,000,000, not {lookahead}"
    ):
        WatchList().add_keychain("mine", script_at, lookahead=lookahead)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 200_001])
def test_a_name_that_no_line_could_hold_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="the name of a keychain"):
        WatchList().add_keychain(name, script_at)


def test_a_name_names_one_keychain() -> None:
    watch, _ = kept()
    with pytest.raises(ParameterError, match="already has a keychain 'mine'"):
        watch.add_keychain("mine", script_at)


def test_an_index_outside_the_window_is_no_use_of_it() -> None:
    _, chain = kept()
    for index in (-1, 20):
        with pytest.raises(ParameterError, match=f"index {index} is not in the window"):
            chain.use(index)
    for index in (-1, 1 << 31):
        with pytest.raises(ParameterError, match="an index must be from 0 to 2147483647"):
            chain.scripts(index)


# Copies and files


def test_a_copy_goes_its_own_way() -> None:
    watch, chain = kept()
    watch.match_tx(pays(19))
    twin = watch.copy()
    assert twin == watch
    twin.match_tx(pays(38))
    assert (chain.end, twin.keychains[0].end, len(watch), len(twin)) == (40, 59, 40, 59)
    assert twin != watch
    assert [match.keychain_index for match in twin.match_tx(pays(58))] == [58]


def test_a_keychain_without_descriptor_is_saved_as_scripts(tmp_path: Path) -> None:
    watch, _ = kept()
    watch.match_tx(pays(19, 38, 2))
    watch.save(tmp_path / "watch")
    loaded = WatchList.load(tmp_path / "watch", REGTEST)
    assert (loaded.keychains, len(loaded)) == ((), 59)
    chain = loaded.add_keychain("mine", script_at, "savings", lookahead=GAP_LIMIT)
    assert (sorted(chain.used), chain.end) == ([2, 19, 38], 59)


def test_a_file_may_not_state_an_endless_window(tmp_path: Path) -> None:
    path = tmp_path / "watch"
    for line in (
        f"keychain:999999999:20:raw({'51' * 5})",
        f"keychain:5:x:raw({'51' * 5})",
        f"keychain:5:10:raw({'51' * 5})",
    ):
        path.write_text(line + "\n")
        with pytest.raises(
            WatchFileError, match=r"the end of a window must be from|are whole numbers|a lookahead must be from"
        ):
            WatchList.load(path, MAINNET)


@pytest.mark.native
def test_ten_times_as_many_scripts_take_ten_times_as_long() -> None:
    """A square would take a hundred times as long."""

    def prepare(count: int) -> Callable[[], object]:
        scripts = [b"\x00\x14" + index.to_bytes(20) for index in range(count)]
        watch = WatchList()

        def add() -> None:
            watch.add_keychain("mine", scripts.__getitem__, lookahead=count)
            assert len(watch) == count

        return add

    assert growth(prepare) < LIMIT
