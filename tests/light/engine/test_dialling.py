"""When to dial: pauses after failures, addresses that are unreliable, and when to ask the DNS seeds for more."""

from __future__ import annotations

from spvfilter.light.engine.addressstates import AddressState
from spvfilter.light.engine.connectrate import ConnectRate
from spvfilter.light.engine.dnsseeds import Seeds


def test_pauses_grow_to_two_seconds_until_an_attempt_succeeds() -> None:
    rate = ConnectRate()
    for _ in range(2):
        pauses, slow = [], []
        for _ in range(5_000):  # days offline
            slow.append(rate.is_slow)
            rate.began(0.0)
            pauses.append(rate.next_at)
        assert pauses[:18] == [0.0] * 16 + [0.5, 0.6]
        assert pauses == sorted(pauses)
        assert pauses[-1] == 2.0
        assert slow == [False] * 17 + [True] * 4_983
        rate.succeeded()


def asked_at(known: int, useful: int, most: int = 8, lasts_s: int = 400) -> list[int]:
    """Return the seconds at which the seeds are asked. No seed answers."""
    seeds = Seeds()
    return [second for second in range(lasts_s) if seeds.due(float(second), known, useful, most)]


def test_the_wait_for_seeds_depends_on_the_book() -> None:
    assert asked_at(0, 0) == asked_at(0, 2) == [0]
    assert asked_at(1, 1) == asked_at(1_000, 0) == [11]
    assert asked_at(1_001, 1) == [300]
    assert asked_at(1, 2) == asked_at(1, 1, most=1) == []


def test_enough_peers_begin_the_wait_for_seeds_again() -> None:
    seeds = Seeds()
    useful = {10: 2}
    assert [second for second in range(30) if seeds.due(float(second), 1, useful.get(second, 1), 8)] == [22]


def test_seeds_are_asked_again_after_growing_pauses() -> None:
    assert asked_at(0, 0, lasts_s=2_000) == [0]
    seeds, asked = Seeds(), list[int]()
    for minute in range(60 * 24):
        if seeds.due(60.0 * minute, 0, 0, 8):
            asked.append(minute)
            assert seeds.is_asking
            seeds.is_asking = False  # they have answered
    assert asked == [0, 10, 30, 70, 150, 310, 630, 990, 1_350]


def test_an_unreliable_address_must_be_steady_for_longer_each_time() -> None:
    """Its connections get a chance after 45 seconds, then 90, and so on. A peer that is late loses its chance."""
    state = AddressState(failures=1)
    state.is_late()
    assert state.is_reliable, "it had no chance before"
    state.failures = 5
    for number in range(12):
        steady_s = 45.0 * 2 ** min(number, 10)
        seen = list[bool]()
        for seconds in (steady_s - 0.1, steady_s):
            state.lasts(seconds)
            seen.append(state.is_reliable)
        state.is_late()
        assert [*seen, state.is_reliable] == [False, True, False]
