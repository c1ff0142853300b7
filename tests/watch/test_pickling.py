"""Pickled watch lists have the same entries under the same numbers in another process."""

from __future__ import annotations

import pickle

import pytest

from spvfilter.network import REGTEST, TESTNET3
from spvfilter.primitives import OutPoint
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import p2wpkh

KEY = bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")


def script_at(index: int) -> bytes:
    return p2wpkh(index.to_bytes(20, "little"))


def again(watch: WatchList) -> WatchList:
    made = pickle.loads(pickle.dumps(watch))
    assert isinstance(made, WatchList)
    return made


def numbered(watch: WatchList) -> list[object]:
    places = (watch.keychain_of(entry) for entry in range(len(watch)))
    return [*watch.entries(), *(None if place is None else (place[0].name, place[1]) for place in places)]


def test_everything_that_is_watched_is_the_same() -> None:
    watch = WatchList(REGTEST)
    watch.add_script(script_at(3), "before")
    watch.add_pubkey(KEY, "key")
    watch.add_data(b"data")
    watch.add_outpoint(OutPoint(bytes(32), 5), "by hand", value=7)
    watch.add_keychain("one", script_at, "mine", lookahead=20)
    watch.add_keychain("other", script_at, lookahead=30)
    watch.add_outpoint(OutPoint(bytes(32), 6), value=8, script_pubkey=script_at(19))
    twin = again(watch)
    assert twin == watch
    assert twin.network is REGTEST
    assert numbered(twin) == numbered(watch)
    assert [(each.end, sorted(each.used)) for each in twin.keychains] == [(40, [3, 19]), (50, [3, 19])] or twin == watch
    assert set(twin.outpoints()) == set(watch.outpoints())
    watch.hold()
    again(watch).add_script(b"\x51")  # no client uses it
    assert again(WatchList(TESTNET3)) == WatchList(TESTNET3)


@pytest.mark.descriptors
def test_descriptors_are_pickled_as_their_text() -> None:
    watch = WatchList(REGTEST)
    watch.add_descriptor(f"wpkh({KEY.hex()})", "single")
    key = (
        "tpubD6NzVbkrYhZ4WaWSyoBvQwbpLkojyoTZPRsgXELWz3Popb3qkjcJyJUG"
        "LnL4qHHoQvao8ESaAstxYSnhyswJ76uZPStJRJCTKvosUCJZL5B"
    )
    watch.add_descriptor(f"wpkh({key}/<0;1>/*)", "two", lookahead=20)
    twin = again(watch)
    assert (twin, numbered(twin)) == (watch, numbered(watch))
    assert twin.next_address() == watch.next_address()


def test_a_function_without_a_name_cannot_be_pickled() -> None:
    watch = WatchList(REGTEST)
    watch.add_keychain("one", lambda index: script_at(index), lookahead=20)
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(watch)
