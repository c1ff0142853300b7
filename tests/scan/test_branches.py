"""Gaps, branches and duplicates: each match is yielded once, and the branch with the most work is the best chain."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from spvfilter import errors
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.sources import BlockFiles
from spvfilter.watch.match import MatchKind
from support.blocks.build import TxIn, block_hash, block_of, chain_of, p2wpkh, tx, txid
from support.blocks.chains import (
    best_chain,
    exact,
    found_by,
    identity,
    random_chain,
    random_tree,
    slowly,
    write_records,
)
from support.matching import ANCESTOR, JOBS, SEEDS, mine, once, pay, shuffled, spend

pytestmark = pytest.mark.usefixtures("small_batches_and_many_threads")


# Gaps


@pytest.mark.few(4)
@SEEDS
@JOBS
async def test_unlinked_blocks_give_every_match_once(seed: int, jobs: int) -> None:
    interest, chain = random_chain(seed, backwards=seed % 2 == 1)
    rng = random.Random(seed)
    blocks = [raw for raw in chain if rng.random() < 0.6]
    expected = {found[:5] for found in interest.expected(blocks)}
    reference = None
    for source in (blocks, shuffled(blocks, seed), blocks[::-1]):
        matcher = Matcher(interest.watch(), jobs=jobs)
        matches = once(await found_by(matcher, source))
        assert {identity(match) for match in matches} == expected
        assert matcher.report.segments == sum(raw[4:36] not in set(map(block_hash, blocks)) for raw in blocks)
        assert reference is None or matches == reference
        reference = matches
        assert {
            identity(match) for match in once(await found_by(Matcher(interest.watch(), jobs=jobs), iter(source)))
        } == expected


@pytest.mark.parametrize("first", [1_300_000_000, 1_400_000_000])
async def test_a_spend_is_found_in_unlinked_blocks_of_any_age(first: int) -> None:
    paid = pay()
    blocks = [
        block_of(b"\x01" * 32, 500, [paid], time=1_350_000_000),
        block_of(b"\x02" * 32, 900, [spend(paid)], time=first),
    ]
    for order in (blocks, blocks[::-1]):
        for source in (order, iter(order), slowly(order)):
            matcher = Matcher(mine())
            matches = once(await found_by(matcher, source))
            assert {(match.kind, match.height, match.value) for match in matches} == {
                (MatchKind.OUTPUT, 500, 1_000),
                (MatchKind.INPUT, 900, 1_000),
            }
            assert matcher.report.segments == 2


async def test_a_match_of_the_second_pass_has_its_height() -> None:
    paid = pay()
    first = block_of(ANCESTOR, 500, [paid])
    second = tx([TxIn(txid(paid), 0)], [])
    blocks = [first, *chain_of([[second]], block_hash(first), 501)]
    # the coinbase then states no height, and the merkle root is wrong
    silent = blocks[1].replace(b"\x02\xf5\x01", b"\x02\x00\x00")
    assert silent != blocks[1]
    matches = await found_by(Matcher(mine()), iter([silent, first]))
    assert [(match.kind, match.height) for match in matches] == [(MatchKind.OUTPUT, 500), (MatchKind.INPUT, 501)]


# Branches


@SEEDS
@JOBS
async def test_only_the_branch_with_the_most_work_counts(seed: int, jobs: int) -> None:
    interest, blocks = random_tree(seed)
    best = best_chain(blocks)
    stale = set(map(block_hash, blocks)) - set(map(block_hash, best))
    assert len(best) > 1
    assert stale
    expected = interest.expected(best)
    for order in (list(blocks), list(blocks[::-1]), shuffled(blocks, seed)):
        matcher = Matcher(interest.watch(), jobs=jobs)
        assert [exact(match) for match in await found_by(matcher, order)] == expected
        assert set(matcher.report.stale) == stale
        assert (matcher.report.segments, matcher.report.blocks) == (1, len(best))


@pytest.mark.few(4)
@SEEDS
@JOBS
async def test_a_stream_of_branches_names_its_stale_blocks(seed: int, jobs: int) -> None:
    interest, blocks = random_tree(seed)
    best = best_chain(blocks)
    expected = {found[:5] for found in interest.expected(best)}
    for order in (list(blocks), list(blocks[::-1]), shuffled(blocks, seed), shuffled(blocks, seed + 1)):
        matcher = Matcher(interest.watch(), jobs=jobs)
        given = [identity(match) for match in once(await found_by(matcher, slowly(order)))]
        stale = set(matcher.report.stale)
        assert stale == set(map(block_hash, blocks)) - set(map(block_hash, best))
        assert {found for found in given if found[4] not in stale} == expected


def fork(bodies: Sequence[Sequence[Sequence[bytes]]]) -> list[list[bytes]]:
    """A common block, and branches of the given bodies on top of it."""
    root = block_of(ANCESTOR, 100)
    # otherwise blocks with equal bodies would be equal
    strangers = [pay(p2wpkh(bytes(20)), 50 + number) for number in range(len(bodies))]
    marked = [[[*first, stranger], *rest] for (first, *rest), stranger in zip(bodies, strangers, strict=True)]
    return [[root], *(chain_of(body, block_hash(root), 101) for body in marked)]


async def test_a_shorter_branch_is_stale_in_any_order() -> None:
    short, long = pay(salt=1), pay(salt=2)
    root, a, b = fork([[[short]], [[long], [spend(long)]]])
    for order in (root + a + b, b[::-1] + a + root, a + b + root):
        matcher = Matcher(mine())
        assert [match.txid for match in await found_by(matcher, order)] == [txid(long), txid(spend(long))]
        assert matcher.report.stale == [block_hash(a[0])]


async def test_the_smaller_tip_decides_between_equal_branches() -> None:
    one, two = pay(salt=1), pay(salt=2)
    root, a, b = fork([[[one]], [[two]]])
    kept, lost = sorted((a[0], b[0]), key=block_hash)
    for order in ([*root, kept, lost], [*root, lost, kept]):
        matcher = Matcher(mine())
        assert [match.block_hash for match in await found_by(matcher, order)] == [block_hash(kept)]
        assert matcher.report.stale == [block_hash(lost)]


async def test_branches_compete_without_their_common_block() -> None:
    paid = pay()
    _, a, b = fork([[[paid]], [[paid], [spend(paid)]]])
    for order in (a + b, b + a, b[::-1] + a):
        matcher = Matcher(mine())
        matches = once(await found_by(matcher, order))
        assert {match.block_hash for match in matches} == {block_hash(raw) for raw in b}
        assert (matcher.report.stale, matcher.report.segments) == ([block_hash(a[0])], 1)


@JOBS
async def test_a_spend_of_an_output_in_stale_blocks_is_found(jobs: int) -> None:
    paid = pay()
    root, a, b = fork([[[paid]], [[paid], [spend(paid)], []]])
    order = [
        b[1],
        b[2],
        *root,
        a[0],
        b[0],
    ]  # the spend comes first, and the stale copy of the payment comes before the other copy
    matcher = Matcher(mine(), jobs=jobs)
    matches = once(await found_by(matcher, iter(order)))
    assert matcher.report.stale == [block_hash(a[0])]
    assert {(match.kind, match.block_hash) for match in matches} == {
        (MatchKind.OUTPUT, block_hash(a[0])),
        (MatchKind.OUTPUT, block_hash(b[0])),
        (MatchKind.INPUT, block_hash(b[1])),
    }


async def test_a_better_branch_is_yielded_at_a_streams_end() -> None:
    one, two = pay(salt=1), pay(salt=2)
    root, a, b = fork([[[one]], [[two], [spend(two)]]])
    matcher = Matcher(mine())
    matches = await found_by(matcher, iter(root + a + b))
    assert [(match.txid, match.height) for match in matches] == [
        (txid(one), 101),
        (txid(two), 101),
        (txid(spend(two)), 102),
    ]
    assert matcher.report.stale == [block_hash(a[0])]
    assert matcher.report.blocks == 4


async def test_a_worse_branch_is_not_yielded() -> None:
    one, two = pay(salt=1), pay(salt=2)
    root, a, b = fork([[[one]], [[two], [spend(two)]]])
    matcher = Matcher(mine())
    assert [match.txid for match in await found_by(matcher, iter(root + b + a))] == [txid(two), txid(spend(two))]
    assert matcher.report.stale == [block_hash(a[0])]


@JOBS
async def test_duplicates_are_reported_but_not_counted(jobs: int) -> None:
    interest, blocks = random_chain(0)
    order = shuffled([*blocks, *blocks, *blocks[:3]], 1)
    for source in (order, iter(order), slowly(order)):
        matcher = Matcher(interest.watch(), jobs=jobs)
        once(await found_by(matcher, source))
        assert Counter(matcher.report.duplicates) == Counter(map(block_hash, [*blocks, *blocks[:3]]))
        assert matcher.report.blocks == len(blocks)


async def test_a_damaged_copy_does_not_hide_a_sound_copy(tmp_path: Path) -> None:
    interest, blocks = random_chain(2)
    damaged = blocks[7][:-3] + b"\xff\xff\xff\xff"
    sound = write_records(tmp_path / "blk00000.dat", blocks)
    broken = write_records(tmp_path / "blk00001.dat", [damaged])
    expected = interest.expected(blocks)
    matcher = Matcher(interest.watch())
    assert [exact(match) for match in await found_by(matcher, BlockFiles([sound, broken]))] == expected
    assert matcher.report.duplicates == [block_hash(damaged)]
    matcher = Matcher(interest.watch())
    with pytest.raises(errors.IncompleteScanError) as error:
        await found_by(matcher, BlockFiles([broken, sound]))
    assert len(error.value.problems) == 1
    assert str(broken) in error.value.problems[0]
    assert matcher.report.matches == len(expected)
    assert matcher.report.blocks == len(blocks)
