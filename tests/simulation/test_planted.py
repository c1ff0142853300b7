"""Each invariant can fail: planted bugs of the engine are noticed. `scripts/simulate --planted` tries all of them."""

from __future__ import annotations

from inspect import Parameter, iscoroutinefunction, isfunction, signature

import pytest

from simulation.command import hunt_one
from simulation.planted import BUGS, changes_of, planted
from spvfilter.watch.match import Completeness

QUICK = {  # noticed by one of these invariants
    "matches_stay_after_a_reorganisation": "true",
    "what_was_replaced_counts_on": "true",
    "events_come_before_their_commit": "true",
    "events_are_kept_one_commit_late": "true",
    "own_transactions_are_offered_to_nobody": "true",
    "a_damaged_line_is_a_lie": "just alive",  # where every peer is banned, the client ends
    "events_of_an_account_are_those_of_all": "true",
    "one_peer_proves": "honest",
    "what_nobody_asked_for_is_kept": "modest",
    "any_signature_is_valid": "true",
}


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_noticed(name: str) -> None:
    found = hunt_one(name, None, 30)
    assert found is not None
    assert found.violation is not None
    assert found.violation.invariant in QUICK[name].split()


def test_a_planted_bug_is_removed_after_its_life() -> None:
    from spvfilter.light.engine.coverage import Coverage

    with planted("one_peer_proves"):
        assert Coverage().completeness(5) is Completeness.PROVEN
    assert Coverage().completeness(5) is Completeness.ONE_PEER


@pytest.mark.parametrize("name", BUGS)
def test_every_bug_changes_an_existing_attribute(name: str) -> None:
    assert changes_of(name)


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_accepts_the_arguments_of_the_replaced_function(name: str) -> None:
    """Otherwise every life would notice it by the TypeError. The same holds for a function in place of a task."""
    for owner, attribute, instead in changes_of(name):
        true = getattr(owner, attribute)
        if isfunction(true) and isfunction(instead):
            taken = signature(true).parameters.values()
            named = {each.name: each for each in taken if each.kind is Parameter.KEYWORD_ONLY}
            assert iscoroutinefunction(true) is iscoroutinefunction(instead)
            signature(instead).bind(*(each for each in taken if each.kind is Parameter.POSITIONAL_OR_KEYWORD), **named)


def test_there_are_enough_planted_bugs() -> None:
    assert len(BUGS) >= 25
