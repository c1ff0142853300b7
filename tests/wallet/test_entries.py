"""Renumbering: the numbers of entries that remain when other entries are removed."""

from __future__ import annotations

from random import Random

from spvfilter.kernel import Hit
from spvfilter.network import REGTEST
from spvfilter.wallet.entries import Renumbering
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import p2wpkh


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
