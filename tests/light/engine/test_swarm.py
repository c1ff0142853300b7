"""A thousand addresses, of which 11 % serve filters and 20 % belong to one attacker in four groups: the peers of a
client on many days.

The hostile addresses all claim compact filters and are always up. A hostile node announces itself and fake addresses,
at any time. Honest connections last eight hours on average, hostile connections last forever. Each rule of the address
book is removed once, to show that its bound would not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from statistics import mean
from unittest.mock import patch

import pytest

from spvfilter.light.engine import addresses
from spvfilter.light.engine.addressbook import NEW_BUCKETS
from support.client.engineparts import ANCHORS, BUCKETS_BY_SOURCE
from support.client.swarm import HOSTILE_GROUPS, Client, client
from support.vectors import effort

pytestmark = pytest.mark.long

SEEDS = range(effort(1, 1, 8))
SESSIONS, ONLINE_S, APART_S = 14, 1_200.0, 43_200.0  # twice a day for twenty minutes, for a week


RULES: dict[str, tuple[object, str, Callable[..., object]]] = {
    "one of a group": (addresses, "dialling_group", lambda host: host),
    "buckets by source": BUCKETS_BY_SOURCE,
    "anchors": ANCHORS,
}


@dataclass
class Week:
    """Measurements of each session, half a minute after its start unless stated otherwise."""

    first: list[float] = field(default_factory=list)  # Seconds to the first useful peer.
    honest: list[float] = field(default_factory=list)  # Seconds to the first honest peer.
    hostile: list[int] = field(default_factory=list)  # Hostile connections.
    share: list[float] = field(default_factory=list)  # Their share of all connections.
    kept: list[int] = field(default_factory=list)  # Connections of the last session that are up again.
    # Dialled addresses since the start, without the first session. Eight run at once.
    dials: list[int] = field(default_factory=list)
    buckets: int = 0  # Buckets of new addresses with a fake address.
    known: int = 0  # Addresses in the book.

    def __str__(self) -> str:
        return (
            f"first {mean(self.first):.1f} s, honest {mean(self.honest):.1f} s (most {max(self.honest):.1f}), hostile"
            f" {mean(self.share):.2f} (most {max(self.hostile)}), kept {mean(self.kept):.1f} (least {min(self.kept)}),"
            f" dials {mean(self.dials):.1f}, buckets {self.buckets}, book {self.known}"
        )


def is_made_up(address: str) -> bool:
    return int(address.split(".")[0]) >= 100


def live(made: Client, week: Week, *, forgets: bool) -> None:
    before = set(made.connected())
    made.stop()
    made.swarm.timeline.run(made.swarm.timeline.now + APART_S - ONLINE_S)
    made.swarm.stir()
    if forgets:
        made.forget()
    dials = len(made.dials)
    made.start()
    week.first.append(made.wait_useful())
    week.honest.append(week.first[-1] + (made.wait_useful(honest=True) if not made.swarm.seeds_are_hostile else 0.0))
    made.pass_time(30)
    there = made.connected()
    week.share.append(made.share())
    week.hostile.append(sum(node.is_hostile for node in there))
    if before:
        week.dials.append(len(made.dials) - dials)
        week.kept.append(len({node for node in before if node.is_up} & set(there)))
    made.pass_time(ONLINE_S)


@cache
def week_of(seed: int, *, without: str | None = None, forgets: bool = False, captured: bool = False) -> Week:
    """Let a week of restarts pass. `captured`: after the first session, DNS seeds name only hostile nodes."""
    week = Week()
    with client(seed) as made:
        for _ in range(SESSIONS):
            if without is None:
                live(made, week, forgets=forgets)
            else:
                owner, name, instead = RULES[without]
                with patch.object(owner, name, instead):
                    live(made, week, forgets=forgets)
            made.swarm.seeds_are_hostile = captured
        book = made.engine.pool.discovery.book  # type: ignore[union-attr]
        week.buckets = len({bucket for (bucket, _), address in book.new.slots().items() if is_made_up(address)})
        week.known = len(book)
    print(
        f"\nseed {seed}, without {without or ('the book' if forgets else 'nothing')}, seeds {captured and 'captured'}:"
        f" {week}"
    )
    return week


def check_groups(week: Week) -> None:
    assert max(week.hostile) <= HOSTILE_GROUPS
    assert mean(week.share) <= 0.55


def check_buckets(week: Week) -> None:
    assert week.buckets <= NEW_BUCKETS * 3 // 8  # a source reaches 16 of 256; hostile sources are of four groups
    assert week.known < 6_000


def check_anchors(week: Week) -> None:
    assert min(week.kept) >= 1
    assert mean(week.kept) >= 2


CHECKS = {"one of a group": check_groups, "buckets by source": check_buckets, "anchors": check_anchors}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_useful_peer_is_found_soon_and_later_sooner(seed: int) -> None:
    week = week_of(seed)
    assert max(week.first) < 10
    assert max(week.honest) < 60
    assert mean(week.honest) < 10
    assert mean(week.dials) < 18
    without = week_of(seed, forgets=True)  # each start then waits for DNS and begins with unknown peers
    assert mean(week.first[1:]) < mean(without.first[1:])
    assert mean(week.kept) > mean(without.kept) + 1


@pytest.mark.parametrize("rule", CHECKS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_week_of_restarts_keeps_the_bounds(seed: int, rule: str) -> None:
    CHECKS[rule](week_of(seed))


@pytest.mark.parametrize("rule", CHECKS)
def test_without_a_rule_its_bound_does_not_hold(rule: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[rule](week_of(SEEDS[0], without=rule))


@pytest.mark.parametrize("seed", SEEDS)
def test_captured_seeds_harm_only_clients_without_an_address_book(seed: int) -> None:
    assert max(week_of(seed, captured=True).share) <= 0.6
    without = week_of(seed, forgets=True, captured=True)
    assert without.share[1:] == [1.0] * (SESSIONS - 1)
    assert max(without.kept) < 8


@pytest.mark.parametrize("seed", SEEDS)
def test_an_attacker_gets_one_slot_per_group_in_a_day(seed: int) -> None:
    with client(seed) as made:
        made.start()
        hostile, honest = [], []
        for _ in range(24):
            made.pass_time(3_600)
            made.swarm.stir()
            hostile.append(sum(node.is_hostile for node in made.connected()))
            honest.append(sum(not node.is_hostile for node in made.connected()))
        print(f"\nseed {seed}, a day: hostile connections by the hour {hostile}, honest {honest}")
        assert max(hostile) <= HOSTILE_GROUPS
        assert min(honest) >= 3
