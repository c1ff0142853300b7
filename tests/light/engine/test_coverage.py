"""Coverage: unwitnessed ranges, whose blocks too few peers have answered for."""

from __future__ import annotations

import time

from spvfilter.light.engine.coverage import (
    MAX_ADDRESSES,
    MAX_UNDECIDED_RANGES,
    MAX_UNWITNESSED_RANGES,
    Coverage,
    UnwitnessedRange,
    Witnesses,
)

ONE, TWO, THREE = (("10.1.0.0/16", "10.1.0.1:1"), ("10.2.0.0/16", "10.2.0.1:1"), ("10.3.0.0/16", "10.3.0.1:1"))


def patchy(unwitnessed: int) -> Coverage:
    """Return a coverage as if a second peer had answered for every other range and left in between."""
    coverage = Coverage()
    for number in range(unwitnessed):
        witnesses = Witnesses().plus(*ONE)
        coverage.unwitnessed.append(
            UnwitnessedRange(125 * number, 125 * number + 124, witnesses.plus(*TWO) if number % 2 else witnesses)
        )
    return coverage


def test_a_liar_is_removed_from_all_ranges_in_one_pass() -> None:
    """It took 0.1 s in one step of the engine, and a peer could cause it."""
    coverage = patchy(MAX_UNWITNESSED_RANGES)
    begun = time.thread_time()
    coverage.retract(*TWO)
    assert time.thread_time() - begun < 0.03
    assert coverage.unwitnessed == [UnwitnessedRange(0, 125 * MAX_UNWITNESSED_RANGES - 1, Witnesses().plus(*ONE))]
    assert coverage.is_changed


def test_a_witness_is_added_to_all_ranges_in_one_pass() -> None:
    """It took 0.3 s."""
    coverage = patchy(MAX_UNWITNESSED_RANGES)
    begun = time.thread_time()
    coverage.witnessed(0, 125 * MAX_UNWITNESSED_RANGES, *THREE)
    assert time.thread_time() - begun < 0.03
    assert len(coverage.unwitnessed) == MAX_UNWITNESSED_RANGES // 2
    assert {span.witnesses for span in coverage.unwitnessed} == {Witnesses().plus(*ONE).plus(*THREE)}


def test_a_witness_of_a_part_splits_an_unwitnessed_range() -> None:
    coverage = Coverage()
    coverage.answered(0, 99, *ONE)
    coverage.witnessed(10, 19, *TWO)
    one, both = Witnesses().plus(*ONE), Witnesses().plus(*ONE).plus(*TWO)
    assert coverage.unwitnessed == [
        UnwitnessedRange(0, 9, one),
        UnwitnessedRange(10, 19, both),
        UnwitnessedRange(20, 99, one),
    ]
    coverage.witnessed(15, 19, *THREE)
    assert coverage.unwitnessed == [
        UnwitnessedRange(0, 9, one),
        UnwitnessedRange(10, 14, both),
        UnwitnessedRange(20, 99, one),
    ]


def test_unwitnessed_ranges_are_bounded_despite_gaps() -> None:
    """Only unwitnessed ranges without a gap between them were joined."""
    coverage, last = Coverage(), 20 * MAX_UNWITNESSED_RANGES
    coverage.answered(0, last, *ONE)
    coverage.witnessed(0, last, *TWO)
    for height in range(0, last, 10):
        coverage.witnessed(height, height, *THREE)
    assert len(coverage.unwitnessed) == MAX_UNWITNESSED_RANGES
    assert all(
        any(span.first <= height <= span.last for span in coverage.unwitnessed)
        for height in range(last - 100, last + 1)
    )


def test_the_note_of_each_block_has_a_bounded_size() -> None:
    """A thousand unwitnessed ranges of onion addresses took 550 kB, and 3 to 7 ms of a step."""
    coverage = Coverage()
    for number in range(2 * MAX_UNWITNESSED_RANGES):
        addresses = frozenset(f"{number:x}{at}".rjust(56, "a") + ".onion:8333" for at in range(MAX_ADDRESSES))
        coverage.unwitnessed.append(
            UnwitnessedRange(2 * number, 2 * number, Witnesses(frozenset(["tor", f"10.{number}.0.0/16"]), addresses))
        )
    coverage.answered(4 * MAX_UNWITNESSED_RANGES, 4 * MAX_UNWITNESSED_RANGES, *ONE)
    assert len(coverage.encode()) < 200_000


def test_only_the_two_closest_undecided_ranges_are_joined() -> None:
    """A block between two joined ranges is in doubt without need, and is fetched whole."""
    coverage = Coverage()
    wide, near = (0, 900), (902, 990)
    others = [(10_000 + 10 * number,) * 2 for number in range(MAX_UNDECIDED_RANGES - 2)]
    for first, last in (wide, *others, (50_000, 60_000)):
        coverage.add_undecided(first, last)
    assert coverage.undecided == [wide, *others, (50_000, 60_000)]
    coverage.add_undecided(*near)
    assert coverage.undecided == [(0, 990), *others, (50_000, 60_000)]
