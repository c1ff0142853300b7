"""The blocks that were searched for each entry, against a model with one set of heights for each entry."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from spvfilter.errors import StoreCorruptError
from spvfilter.store.searched import MAX_GROUPS, MAX_RANGES, BlockRange, EntryGroup, Searched, common, cut, gaps, join


def heights(ranges: tuple[BlockRange, ...]) -> set[int]:
    return {height for first, last in ranges for height in range(first, last + 1)}


def some(rng: random.Random) -> tuple[BlockRange, ...]:
    firsts = [rng.randrange(40) for _ in range(rng.randrange(5))]
    return join(BlockRange(first, first + rng.randrange(8)) for first in firsts)


def test_ranges_are_sets_of_heights() -> None:
    rng = random.Random(1)
    for _ in range(2_000):
        one, other, at, first = some(rng), some(rng), rng.randrange(-1, 50), rng.randrange(50)
        assert heights(join([*one, *other])) == heights(one) | heights(other)
        assert heights(common(one, other)) == heights(one) & heights(other)
        assert heights(cut(one, at)) == {each for each in heights(one) if each <= at}
        assert heights(gaps(one, at, first)) == set(range(first, at + 1)) - heights(one)
        for made in (join([*one, *other]), common(one, other), cut(one, at), gaps(one, at, first)):
            assert all(low <= high for low, high in made)
            assert all(a.last + 1 < b.first for a, b in itertools.pairwise(made)), made


def test_neighbours_that_lose_least_are_joined() -> None:
    groups = [EntryGroup(entry, (BlockRange(100 * entry, 100 * entry + 50),)) for entry in range(1, MAX_GROUPS)]
    groups[1] = EntryGroup(2, (BlockRange(1_000_000, 1_009_000),))
    near = EntryGroup(MAX_GROUPS, (BlockRange(100 * MAX_GROUPS - 100, 100 * MAX_GROUPS - 60),))
    searched = Searched([*groups, near], 0, MAX_GROUPS + 1)
    searched.add_entries(1)
    kept = {group.id: group.ranges for group in searched.groups()}
    assert len(kept) == MAX_GROUPS
    assert kept[MAX_GROUPS - 1] == near.ranges


@pytest.mark.parametrize("seed", range(30))
def test_each_entry_has_its_searched_blocks(seed: int) -> None:
    rng = random.Random(seed)
    searched, model, cursor = Searched(), dict[int, set[int]](), -1
    for _ in range(300):
        kind = rng.random()
        if kind < 0.6:
            cursor += 1
            searched.record(cursor, cursor)
            for each in model.values():
                each.add(cursor)
        elif kind < 0.7:
            number = rng.choice([0, 1, 1, 3])
            like = rng.choice([None, *model])
            first = searched.add_entries(number, like)
            assert first == max(model, default=0) + 1 or model == {} or first > max(model)
            model |= {entry: set(() if like is None else model[like]) for entry in range(first, first + number)}
        elif kind < 0.78:
            cursor = rng.randrange(-1, cursor + 1)
            searched.cut(cursor)
            model = {entry: {height for height in each if height <= cursor} for entry, each in model.items()}
        elif kind < 0.88:
            height = rng.randrange(-1, cursor + 1)
            searched.again(height, cursor)
            for entry, each in model.items():
                if not set(range(height + 1, cursor + 1)) <= each:
                    model[entry] = {known for known in each if known <= height}
            cursor = height
        elif kind < 0.94:
            cursor += rng.randrange(5)  # a start above
        elif model:
            del model[rng.choice(list(model))]
            searched.keep_entries(model)
        if rng.random() < 0.2:
            searched = Searched.parse(searched.encode())
        for entry, each in model.items():
            assert heights(searched.ranges_of(entry)) == each, f"entry {entry} of seed {seed}"
        if model:
            assert heights(searched.skipped(cursor)) == {
                h for each in model.values() for h in set(range(cursor + 1)) - each
            }
        assert len(searched.groups()) <= max(1, len(model))


def test_an_id_is_never_used_twice() -> None:
    searched = Searched()
    assert searched.add_entries(3) == 1
    searched.keep_entries([1])
    searched = Searched.parse(searched.encode())
    assert searched.add_entries(1) == 4


def test_a_million_entries_with_one_start_are_one_group() -> None:
    searched = Searched()
    searched.add_entries(1_000_000)
    for height in range(1_000):
        searched.record(height, height)
    assert searched.groups() == [(1, ((0, 999),))]
    assert len(searched.encode()) < 100
    assert searched.ranges_of(777_777) == ((0, 999),)


def test_groups_merge_once_their_ranges_are_equal() -> None:
    searched = Searched()
    searched.add_entries(10)
    for height in range(100):
        searched.record(height, height)
    searched.add_entries(10)
    searched.again(-1, 99)
    assert [group.ranges for group in searched.groups()] == [((0, 99),), ()]
    for height in range(100):
        searched.record(height, height)
    assert searched.groups() == [(1, ((0, 99),))]


def test_groups_and_ranges_are_bounded_and_claim_no_more() -> None:
    searched, cursor = Searched(), 0
    for _ in range(MAX_GROUPS + 50):
        searched.add_entries(1)
        searched.record(cursor, cursor)
        cursor += 2  # a gap after each block
    groups = searched.groups()
    assert len(groups) <= MAX_GROUPS
    assert all(len(group.ranges) <= MAX_RANGES for group in groups)
    for entry in range(1, MAX_GROUPS + 51):
        assert heights(searched.ranges_of(entry)) <= set(range(2 * (entry - 1), cursor, 2))
    assert len(searched.encode()) < 400_000


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b"[0,1,[[1]]]", b'["x",1,[]]', b"[0,1,[[1,[[1]]]]]", b"\xff"])
def test_damaged_data_is_refused(raw: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        Searched.parse(raw)


BLOCKS = (1 << 31) - 1  # the greatest height


@pytest.mark.parametrize(
    ("start", "next_id", "groups"),
    [
        (-1, 1, []),
        (BLOCKS + 1, 1, []),
        (0, 1 << 62, []),
        (0, 1, [[0, []]]),
        (0, 2, [[2, []]]),
        (0, 3, [[2, []], [1, []]]),
        (0, 2, [[1, [[5, 4]]]]),
        (0, 2, [[1, [[-1, 4]]]]),
        (0, 2, [[1, [[0, BLOCKS + 1]]]]),
        (0, 2, [[1, [[0, 4], [5, 9]]]]),
        (0, 2, [[1, [[6, 9], [0, 4]]]]),
        (0, 2, [[1, [[3 * at, 3 * at] for at in range(MAX_RANGES + 1)]]]),
        (0, MAX_GROUPS + 2, [[at + 1, []] for at in range(MAX_GROUPS + 1)]),
    ],
)
def test_records_that_contradict_themselves_are_refused(start: int, next_id: int, groups: list[object]) -> None:
    sound = [BLOCKS, 3, [[1, [[0, 4], [6, BLOCKS]]], [2, []]]]
    assert json.loads(Searched.parse(json.dumps(sound).encode()).encode()) == sound
    with pytest.raises(StoreCorruptError, match="contradict each other"):
        Searched.parse(json.dumps([start, next_id, groups]).encode())


def test_a_requested_start_is_stored_until_the_search_begins() -> None:
    for wanted in [(174, None), (None, 1_700_000_000), (0, None), (5, 6)]:
        searched = Searched()
        searched.wanted = wanted
        assert Searched.parse(searched.encode()).wanted == wanted
    assert Searched.parse(Searched().encode()).wanted is None


@pytest.mark.parametrize(
    "raw",
    [
        b"[null,1,[],5]",
        b"[null,1,[],[5]]",
        b"[null,1,[],[1,2],[3,4]]",
        b'[null,1,[],["x",null]]',
        b"[null,1,[],[[],1]]",
        b"[null,1,[],[-1,null]]",
    ],
)
def test_a_damaged_start_is_an_error(raw: bytes) -> None:
    with pytest.raises(StoreCorruptError):
        Searched.parse(raw)
