"""Known scripts: entries of the watch list, further scripts that are derived once, and bounds."""

from __future__ import annotations

from functools import partial

import pytest

from spvfilter.electrum import knownscripts
from spvfilter.electrum.histories import script_hash_of
from spvfilter.electrum.knownscripts import FurtherScript, KnownScripts, derived
from spvfilter.network import REGTEST
from spvfilter.watch.keychain import Keychain
from spvfilter.watch.watchlist import WatchList
from spvfilter.watch.windows import STEP


def script(chain: int, index: int) -> bytes:
    return b"\x00\x14" + chain.to_bytes(10, "big") + index.to_bytes(10, "big")


def watch_list(keychains: int) -> WatchList:
    watch = WatchList(REGTEST)
    for chain in range(keychains):
        watch.add_keychain(f"chain {chain}", partial(script, chain), lookahead=20)
    return watch


def derive(scripts: KnownScripts, watch: WatchList) -> list[tuple[str, int, int]]:
    """Derive the further scripts that are due, and return the keychains with the derived indexes."""
    due = scripts.to_derive(watch.keychains)
    for keychain, first, last in due:
        scripts.take_derived(keychain.name, first, derived(keychain, first, last))
    return [(keychain.name, first, last) for keychain, first, last in due]


def test_further_scripts_are_derived_once_until_the_window_moves() -> None:
    watch, scripts = watch_list(2), KnownScripts()
    list(scripts.update(watch))
    assert script_hash_of(script(1, 19)) in scripts
    assert script_hash_of(script(1, 20)) not in scripts
    assert derive(scripts, watch) == [("chain 0", 20, 1_019), ("chain 1", 20, 1_019)]
    assert derive(scripts, watch) == []
    assert scripts.find(script_hash_of(script(1, 1_019))) == FurtherScript("chain 1", 1_019)
    assert scripts.find(script_hash_of(script(1, 1_020))) is None
    watch.windows.use_script(script(1, 5))
    list(scripts.update(watch))
    assert script_hash_of(script(1, 25)) in scripts
    assert derive(scripts, watch) == [("chain 1", 26, 1_025)]


def test_removal_between_two_steps_hides_no_script() -> None:
    watch, scripts = WatchList(REGTEST), KnownScripts()
    for index in range(3 * STEP):
        watch.add_script(script(0, index))
    steps = scripts.update(watch)
    next(steps)
    watch.index.replace_with(watch.index.without_entries(range(STEP - 5)))
    list(steps)
    known = [script_hash_of(script(0, index)) in scripts for index in range(3 * STEP)]
    assert known == [False] * (STEP - 5) + [True] * (2 * STEP + 5)


def test_derivations_for_one_hash_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knownscripts, "MAX_FURTHER", 2_500)
    watch, scripts = watch_list(5), KnownScripts()
    assert [name for name, *_ in derive(scripts, watch)] == ["chain 0", "chain 1"]
    assert [name for name, *_ in derive(scripts, watch)] == ["chain 2", "chain 3"]
    assert [name for name, *_ in derive(scripts, watch)] == ["chain 4"]
    assert derive(scripts, watch) == []


def test_keys_count_toward_the_bound_of_derivations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knownscripts, "MAX_FURTHER", 4_000)
    watch, scripts = WatchList(REGTEST), KnownScripts()
    for chain, keys in enumerate((3, 2, 1)):
        watch.windows.add(Keychain("abc"[chain], lambda index, chain=chain: (script(chain, index),), keys=keys))  # type: ignore[misc]
    assert [name for name, *_ in derive(scripts, watch)] == ["a", "c"]
    assert [name for name, *_ in derive(scripts, watch)] == ["b"]


def test_keychain_without_further_indexes_derives_nothing() -> None:
    watch, scripts = WatchList(REGTEST), KnownScripts()
    watch.windows.add(Keychain("short", lambda index: (script(9, index),), lookahead=20, size=25))
    assert derive(scripts, watch) == [("short", 20, 24)]
    watch.windows.use_script(script(9, 19))
    assert derive(scripts, watch) == []


def test_unknown_hashes_are_bounded_and_forgotten_when_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knownscripts, "MAX_UNKNOWN", 3)
    watch, scripts = watch_list(1), KnownScripts()
    list(scripts.update(watch))
    known = script_hash_of(script(7, 0))
    assert [scripts.note_unknown(each) for each in (known, known, "a", "b")] == [True, False, True, True]
    assert list(scripts.unknown) == [known, "a", "b"]
    watch.add_script(script(7, 0))
    list(scripts.update(watch))
    assert list(scripts.unknown) == ["a", "b"]
    assert [scripts.note_unknown(each) for each in ("c", "d")] == [True, True]
    assert (list(scripts.unknown), scripts.unknown_count) == (["b", "c", "d"], 5)


def test_removed_entries_are_unknown_again() -> None:
    watch, scripts = WatchList(REGTEST), KnownScripts()
    for index in range(3):
        watch.add_script(script(0, index))
    list(scripts.update(watch))
    watch = WatchList(REGTEST)
    watch.add_script(script(0, 2))
    list(scripts.update(watch))
    assert script_hash_of(script(0, 0)) not in scripts
    assert script_hash_of(script(0, 2)) in scripts


def test_entry_in_place_of_a_removed_one_is_known() -> None:
    """The list has as many entries as before."""
    watch, scripts = watch_list(0), KnownScripts()
    watch.add_script(script(0, 0))
    watch.add_script(script(0, 1))
    list(scripts.update(watch))
    watch.index.replace_with(watch.index.without_entries([0]))
    watch.add_script(script(0, 2))
    list(scripts.update(watch))
    assert [script_hash_of(script(0, index)) in scripts for index in range(3)] == [False, True, True]
