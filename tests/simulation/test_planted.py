"""Each invariant can fail: planted bugs of the engine are noticed. `scripts/simulate --planted` tries all of them."""

from __future__ import annotations

import pytest

from simulation.command import hunt_one
from simulation.planted import BUGS, changes_of, planted
from spvfilter.watch.match import Completeness

QUICK = {  # noticed by one of these invariants in the first lives from a seed, which is chosen so that they are few
    "matches_stay_after_a_reorganisation": ("true", 1),
    "what_was_replaced_counts_on": ("true", 5),
    "events_come_before_their_commit": ("true", 1),
    "events_are_kept_one_commit_late": ("true", 1),
    "own_transactions_are_offered_to_nobody": ("true", 12),
    "a_damaged_line_is_a_lie": ("just alive", 1),  # where every peer is banned, the client ends
    "one_peer_proves": ("honest", 1),
    "what_nobody_asked_for_is_kept": ("modest", 8),
}


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_noticed(name: str) -> None:
    invariants, seed = QUICK[name]
    found = hunt_one(name, seed, 30)
    assert found is not None
    assert found.violation is not None
    assert found.violation.invariant in invariants.split()


def test_a_planted_bug_is_gone_afterwards() -> None:
    from spvfilter.light.engine.coverage import Coverage

    with planted("one_peer_proves"):
        assert Coverage().completeness(5) is Completeness.PROVEN
    assert Coverage().completeness(5) is Completeness.ONE_PEER


@pytest.mark.parametrize("name", BUGS)
def test_what_a_bug_changes_is_there(name: str) -> None:
    assert changes_of(name)


def test_there_are_enough_of_them() -> None:
    assert len(BUGS) >= 25
