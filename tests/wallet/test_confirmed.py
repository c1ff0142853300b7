"""Confirmed matches: a naive recomputation shows which become proven, and lookups are counted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spvfilter.kernel import Hit
from spvfilter.store.ledger import StoredMatch
from spvfilter.wallet.confirmed import ConfirmedMatches, Identity, identity
from spvfilter.wallet.parts import whole
from spvfilter.watch.match import Completeness


def found(number: int, height: int, completeness: Completeness = Completeness.ONE_PEER) -> StoredMatch:
    txid = number.to_bytes(32, "big")
    return StoredMatch(Hit(False, 1, txid, 0, txid + bytes(4), 5, None, number % 3), bytes(32), height, completeness)


def test_only_newly_proven_matches_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    matches = ConfirmedMatches()
    for number in range(1_000):
        matches.add(found(number, 10 + number // 2))
    looks = list[Identity]()

    def noted(mark: Identity) -> int:
        looks.append(mark)
        return tuple.__hash__(mark)

    monkeypatch.setattr(Identity, "__hash__", noted)
    for _ in range(100):
        assert matches.prove(9) == []
    assert not looks
    assert len(matches.prove(12)) == 6
    assert 0 < len(looks) <= 18


@pytest.mark.few(11)
@pytest.mark.parametrize("seed", range(20))
def test_matches_up_to_a_height_are_proven_once(seed: int) -> None:
    rng, matches = random.Random(seed), ConfirmedMatches()
    naive: dict[Identity, StoredMatch] = {}

    def without_entry(entry: int) -> Any:
        return lambda hit: None if hit.entry == entry else hit

    for number in range(300):
        kind = rng.random()
        if kind < 0.7:
            each = found(number, rng.randrange(50), rng.choice(list(Completeness)))
            matches.add(each)
            naive[identity(each.hit)] = each
        elif kind < 0.8:
            height = rng.randrange(50)
            gone = [mark for mark, each in naive.items() if each.height == height]
            assert matches.take(height) == [naive.pop(mark) for mark in gone]
        elif kind < 0.83:
            lost = without_entry(entry := rng.randrange(3))
            assert {identity(each.hit) for each in whole(matches.change(lost))} == {
                m for m, each in naive.items() if each.hit.entry == entry
            }
            naive = {mark: each for mark, each in naive.items() if each.hit.entry != entry}
        else:
            height = rng.randrange(-1, 50)
            due = [
                mark
                for mark, each in naive.items()
                if each.height <= height and each.completeness is Completeness.ONE_PEER  # type: ignore[operator]
            ]
            naive |= {mark: naive[mark]._replace(completeness=Completeness.PROVEN) for mark in due}
            assert sorted(matches.prove(height)) == sorted(naive[mark] for mark in due)
        assert {identity(each.hit): each for each in matches} == naive
