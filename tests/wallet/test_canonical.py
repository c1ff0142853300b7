"""Canonical transactions: each rule by hand, properties of random facts, and a naive oracle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping
from random import Random
from types import FrameType
from typing import Any

import pytest

from spvfilter.protocol import MAX_MONEY
from spvfilter.wallet.canonical import Status, Verdict
from spvfilter.wallet.txgraph import DropReason, LatestDrop
from support.blocks.build import outpoint
from support.vectors import effort
from support.wallets.facts import INACTIVE, Facts, coin, naive_statuses, out, random_facts

SEEDS = effort(3, 6, 100)
WORLDS = 200  # of each seed


@pytest.fixture
def facts() -> Facts:
    return Facts()


# Conflicts


EVENTS: Mapping[str, Callable[[Facts, bytes], object]] = {
    "seen": Facts.observe,
    "seen without evidence": lambda facts, digest: facts.observe(digest, counts=False),
    "verified": Facts.sign,
    "broadcast": Facts.broadcast,
    "requested": Facts.request,
    "abandoned": lambda facts, digest: facts.drop(digest, DropReason.ABANDONED),
    "rejected": lambda facts, digest: facts.drop(digest, DropReason.REJECTED),
    "in a block": lambda facts, digest: facts.anchor(digest, 1),
    "in stale block 3": lambda facts, digest: facts.anchor(digest, 3, branch=1),
    "in stale block 6": lambda facts, digest: facts.anchor(digest, 6, branch=1),
    "in stale block 7": lambda facts, digest: facts.anchor(digest, 7, branch=1),
}

# Each row is what happens to transactions that conflict, in order, and the verdicts that follow
CONFLICTS = {
    # rule 3: a block decides
    "1 seen without evidence, 2 in a block": "1 conflicted by 2, 2 confirmed",
    "1 broadcast, 2 seen, 2 in a block": "1 conflicted by 2, 2 confirmed",
    "1 broadcast, 1 abandoned, 2 in a block": "1 conflicted by 2, 2 confirmed",
    # rule 4: a dropped transaction replaces nothing
    "1 seen, 2 broadcast, 2 abandoned": "1 canonical, 2 abandoned",
    "1 broadcast, 2 broadcast, 2 rejected": "1 canonical, 2 rejected",
    # rule 5: a transaction without evidence replaces nothing
    "1 seen, 2 seen without evidence": "1 canonical, 2 waiting",
    "1 seen, 2 seen without evidence, 2 verified": "1 replaced by 2, 2 canonical",
    # rule 6: the latest broadcast counts, except while a peer may still know only the one before
    "1 broadcast, 2 broadcast": "1 replaced by 2, 2 canonical",
    "1 broadcast, 2 broadcast, 1 broadcast": "1 canonical, 2 replaced by 1",
    "1 broadcast, 1 requested, 2 broadcast": "1 canonical, 2 waiting behind 1",
    "1 broadcast, 1 requested, 2 broadcast, 2 requested": "1 replaced by 2, 2 canonical",
    # then the latest observation with valid signatures
    "1 broadcast, 2 seen, 2 verified": "1 canonical, 2 replaced by 1",
    "1 seen, 1 verified, 2 seen, 2 verified": "1 replaced by 2, 2 canonical",
    # then the latest observation
    "1 broadcast, 2 seen": "1 canonical, 2 replaced by 1",
    "1 seen, 1 verified, 2 seen": "1 canonical, 2 replaced by 1",
    "1 seen, 2 seen, 1 seen": "1 canonical, 2 replaced by 1",
    "1 seen, 2 seen, 3 seen": "1 replaced by 3, 2 replaced by 3, 3 canonical",
    # then the highest stale block
    "1 in stale block 7, 2 seen": "1 replaced by 2, 2 canonical",
    "1 in stale block 7, 2 seen, 1 seen": "1 canonical, 2 replaced by 1",
    "1 in stale block 3, 1 in stale block 7, 2 in stale block 6": "1 canonical, 2 replaced by 1",
}


@pytest.mark.parametrize("story", CONFLICTS)
def test_one_of_several_conflicting_transactions_counts(facts: Facts, story: str) -> None:
    txids: dict[str, bytes] = {}
    for each in story.split(", "):
        number, event = each.split(" ", 1)
        if number not in txids:
            txids[number] = facts.make(coin(1))
        EVENTS[event](facts, txids[number])
    for each in CONFLICTS[story].split(", "):
        number, status, *by = each.split(" ")
        assert facts.verdict(txids[number]) == Verdict(Status(status), txids[by[1]] if by else None)


# Rule 1: confirmed


def test_ancestors_are_confirmed_through_descendant(facts: Facts) -> None:
    grandparent = facts.foreign(coin(1))
    parent = facts.foreign(out(grandparent))
    rival = facts.foreign(coin(1))
    facts.mined(out(parent))
    assert facts.status(parent) is facts.status(grandparent) is Status.CONFIRMED
    assert facts.verdict(rival) == Verdict(Status.CONFLICTED, grandparent)


def test_stale_ancestor_is_confirmed_through_descendant(facts: Facts) -> None:
    parent = facts.make_coinbase()
    facts.anchor(parent, 1, branch=1)
    facts.mined(out(parent))
    assert facts.status(parent) is Status.CONFIRMED


def test_disconnected_block_confirms_nothing(facts: Facts) -> None:
    payment = facts.foreign(coin(1))
    block = facts.anchor(payment, 1)
    assert facts.verdicts()[payment].status is Status.CONFIRMED
    facts.chain.remove(block)
    assert facts.status(payment) is Status.CANONICAL


# Rule 2: coinbases and impossible transactions


def test_coinbase_outside_best_chain_is_conflicted(facts: Facts) -> None:
    reward = facts.make_coinbase()
    block = facts.anchor(reward, 1)
    child = facts.own(out(reward))
    grandchild = facts.own(out(child))
    assert facts.status(grandchild) is Status.CANONICAL
    facts.chain.remove(block)
    assert set(facts.verdicts().values()) == {Verdict(Status.CONFLICTED)}
    facts.chain.add(block)
    assert facts.status(grandchild) is Status.CANONICAL


def test_transaction_that_spends_its_grandparents_input_is_conflicted(facts: Facts) -> None:
    first = facts.foreign(coin(1))
    second = facts.foreign(out(first))
    third = facts.own(out(second), coin(1))
    fourth = facts.own(out(third))
    assert facts.verdict(third) == facts.verdict(fourth) == Verdict(Status.CONFLICTED)
    assert facts.status(first) is facts.status(second) is Status.CANONICAL


def test_child_of_two_conflicting_parents_is_conflicted(facts: Facts) -> None:
    first, second = facts.foreign(coin(1)), facts.foreign(coin(1), coin(2))
    both = facts.own(out(first), out(second))
    assert facts.verdict(both) == Verdict(Status.CONFLICTED)
    assert facts.status(second) is Status.CANONICAL


@pytest.mark.parametrize("reason", list(DropReason))
def test_dropped_ancestor_counts_for_impossible_families(facts: Facts, reason: DropReason) -> None:
    parent = facts.own(coin(1))
    facts.drop(parent, reason)
    child = facts.foreign(coin(1), out(parent))
    assert facts.verdict(child) == Verdict(Status.CONFLICTED)


@pytest.mark.parametrize("fault", ["input twice", "amount", "null outpoint"])
def test_faulty_transaction_and_its_child_are_conflicted(facts: Facts, fault: str) -> None:
    match fault:
        case "input twice":
            faulty = facts.foreign(coin(1), coin(1))
        case "amount":
            faulty = facts.observe(facts.make(coin(1), value=MAX_MONEY + 1))
        case _:
            faulty = facts.foreign(coin(1), outpoint(bytes(32), 0xFFFFFFFF))
    child = facts.own(out(faulty))
    other = facts.foreign(coin(1))
    assert facts.verdict(faulty) == facts.verdict(child) == Verdict(Status.CONFLICTED)
    assert facts.status(other) is Status.CANONICAL


# Rule 3: conflicts with confirmed transactions


def test_conflict_with_confirmed_transaction_names_it(facts: Facts) -> None:
    late = facts.own(coin(1))
    child = facts.own(out(late), coin(2))
    confirmed = facts.mined(coin(1))
    assert facts.verdict(late) == facts.verdict(child) == Verdict(Status.CONFLICTED, confirmed)
    facts.chain.clear()
    assert facts.status(child) is Status.CANONICAL


def test_child_of_confirmed_parent_cannot_spend_its_input(facts: Facts) -> None:
    parent = facts.mined(coin(1))
    child = facts.own(out(parent), coin(1))
    assert facts.verdict(child) == Verdict(Status.CONFLICTED, parent)


@pytest.mark.parametrize("first", [0, 1])
def test_invalid_chain_gives_the_same_verdicts_in_any_order(facts: Facts, first: int) -> None:
    """Nobody validates the blocks: two of them may spend one outpoint."""
    mined = [facts.mined(coin(1)) for _ in range(2)]
    record = facts[mined[first]]
    facts.graph.remove(mined[first])
    facts.graph.put(record)
    late = facts.own(coin(1))
    assert facts.verdict(late) == facts.whole()[late] == Verdict(Status.CONFLICTED, min(mined))


# Rule 4: dropped transactions


# Each row is what happens after a drop, and the reasons of the drop after which the transaction counts again
REVIVALS: Mapping[str, tuple[Callable[[Facts, bytes], object], Container[DropReason]]] = {
    "nothing": (lambda facts, dropped: None, ()),
    "child": (lambda facts, dropped: facts.foreign(out(dropped, 1)), ()),
    "observation": (Facts.observe, (DropReason.REJECTED, DropReason.EXPIRED)),
    "broadcast": (Facts.broadcast, tuple(DropReason)),
}


@pytest.mark.parametrize("reason", list(DropReason))
@pytest.mark.parametrize("event", REVIVALS)
def test_dropped_transaction_and_its_children_count_again_after(facts: Facts, event: str, reason: DropReason) -> None:
    happens, reasons = REVIVALS[event]
    dropped = facts.own(coin(1))
    facts.foreign(out(dropped))
    rival = facts.foreign(coin(1))
    facts.drop(dropped, reason)
    happens(facts, dropped)
    family = {digest for digest in facts.spends if dropped in facts.family(digest)}
    if reason in reasons:
        assert {facts.verdict(member) for member in family} == {Verdict(Status.CANONICAL)}
        assert facts.verdict(rival) == Verdict(Status.REPLACED, dropped)
    else:
        assert {facts.verdict(member) for member in family} == {Verdict(Status(reason))}
        assert facts.verdict(rival) == Verdict(Status.CANONICAL)


def test_own_drop_comes_before_drop_of_parent(facts: Facts) -> None:
    parent = facts.own(coin(1))
    child = facts.own(out(parent))
    facts.drop(child, DropReason.REJECTED)
    facts.drop(parent, DropReason.ABANDONED)
    assert facts.status(child) is Status.REJECTED


def test_abandoned_payment_is_pending_after_its_block_is_disconnected(facts: Facts) -> None:
    payment = facts.own(coin(1))
    facts.drop(payment, DropReason.ABANDONED)
    block = facts.anchor(payment, 1)
    assert facts.status(payment) is Status.CONFIRMED
    facts.chain.discard(block)
    assert facts.status(payment) is Status.CANONICAL
    facts.drop(payment, DropReason.ABANDONED)
    assert facts.status(payment) is Status.ABANDONED


# Rule 5: evidence


def test_child_of_waiting_transaction_waits(facts: Facts) -> None:
    parent = facts.foreign(coin(1), counts=False)
    child = facts.foreign(out(parent), counts=False)
    assert facts.status(parent) is facts.status(child) is Status.WAITING


@pytest.mark.parametrize("is_own", [False, True])
def test_known_ancestors_count_with_their_descendant(facts: Facts, is_own: bool) -> None:
    grandparent = facts.foreign(coin(1), counts=False)
    parent = facts.foreign(out(grandparent), counts=False)
    other = facts.foreign(out(grandparent, 1), counts=False)
    child = facts.own(out(parent)) if is_own else facts.foreign(out(parent))
    assert facts.status(grandparent) is facts.status(parent) is facts.status(child) is Status.CANONICAL
    assert facts.status(other) is Status.WAITING


# Rule 6: rank


def test_family_of_waiting_broadcast_waits_with_it(facts: Facts) -> None:
    replaced = facts.own(coin(1))
    payment = facts.request(facts.own(coin(1)))
    assert facts.verdict(replaced) == Verdict(Status.REPLACED, payment)
    child = facts.own(out(replaced))
    assert facts.verdict(child) == facts.verdict(replaced) == Verdict(Status.WAITING, payment)
    facts.abandon(payment)
    assert facts.status(child) is facts.status(replaced) is Status.CANONICAL


def test_later_child_of_the_payment_replaces_a_waiting_broadcast(facts: Facts) -> None:
    payment, bump = facts.request(facts.own(coin(1))), facts.own(coin(1))
    facts.own(out(payment))
    assert facts.verdict(bump) == Verdict(Status.REPLACED, payment)


def test_broadcast_does_not_wait_once_a_later_one_replaces_it(facts: Facts) -> None:
    payment, bump = facts.request(facts.own(coin(1))), facts.own(coin(1), coin(2))
    later = facts.own(coin(2))
    assert facts.status(payment) is facts.status(later) is Status.CANONICAL
    assert facts.verdict(bump) == Verdict(Status.REPLACED, payment)


def test_child_brings_parent_back_with_its_rank(facts: Facts) -> None:
    parent, rival = facts.foreign(coin(1)), facts.foreign(coin(1))
    assert facts.status(parent) is Status.REPLACED
    facts.foreign(out(parent))
    assert facts.status(parent) is Status.CANONICAL
    assert facts.verdict(rival) == Verdict(Status.REPLACED, parent)


def test_own_child_brings_foreign_parent_back(facts: Facts) -> None:
    payment, own = facts.foreign(coin(1)), facts.own(coin(1))
    child = facts.own(out(payment))
    assert facts.status(payment) is facts.status(child) is Status.CANONICAL
    assert facts.verdict(own) == Verdict(Status.REPLACED, payment)


def test_descendants_are_replaced_with_their_ancestor(facts: Facts) -> None:
    parent = facts.foreign(coin(1))
    child = facts.foreign(out(parent), coin(2))
    other = facts.foreign(coin(2))
    bump = facts.foreign(coin(1))
    assert facts.verdict(parent) == facts.verdict(child) == Verdict(Status.REPLACED, bump)
    assert facts.verdict(facts.foreign(out(child, 1), coin(3))).status is Status.CANONICAL  # and brings all back
    assert facts.status(other) is facts.status(bump) is Status.REPLACED


def test_payment_returns_if_its_replacement_is_replaced(facts: Facts) -> None:
    first, second, third = facts.foreign(coin(1)), facts.foreign(coin(1), coin(2)), facts.foreign(coin(2))
    assert facts.status(first) is facts.status(third) is Status.CANONICAL
    assert facts.verdict(second) == Verdict(Status.REPLACED, third)


def test_txid_decides_between_equal_ranks(facts: Facts) -> None:
    digests = [facts.foreign(coin(1)) for _ in range(5)]
    for digest in digests:
        facts.graph.put(facts[digest]._replace(last_seen=1))
    assert {digest for digest in digests if facts.status(digest) is Status.CANONICAL} == {max(digests)}


def test_unknown_parent_leaves_input_unclaimed(facts: Facts) -> None:
    child = facts.foreign(out(bytes([9]) * 32))
    assert facts.verdict(child) == Verdict(Status.CANONICAL)


# Properties of random facts


def each_world(seed: int) -> list[Facts]:
    rng = Random(seed)
    return [random_facts(rng) for _ in range(WORLDS)]


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_verdicts_agree_with_naive_oracle(seed: int) -> None:
    for facts in each_world(seed):
        statuses = {digest: verdict.status for digest, verdict in facts.verdicts().items()}
        naive = naive_statuses(facts)
        assert {digest: None if each in INACTIVE else each for digest, each in statuses.items()} == naive


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_order_of_facts_changes_no_verdict(seed: int) -> None:
    for facts in each_world(seed):
        expected = facts.verdicts()
        assert facts.whole() == expected
        for _ in range(3):
            shuffled = Facts()
            shuffled.chain = facts.chain
            records = list(facts.records.values())
            Random(seed).shuffle(records)
            for record in records:
                shuffled.graph.put(record)
            assert shuffled.verdicts() == shuffled.whole() == expected
            seed += 1


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_new_fact_changes_only_its_component(seed: int) -> None:
    rng = Random(seed)
    for facts in each_world(seed):
        before = facts.verdicts()
        digest = rng.choice(list(facts.spends))
        if facts[digest].is_anchored(facts.chain):
            continue
        rng.choice((facts.observe, facts.broadcast, facts.abandon))(digest)
        after, component = facts.verdicts(), facts.graph.component(digest, facts.chain).records
        assert {each for each in before if before[each] != after[each]} <= component.keys()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_new_transaction_changes_only_its_component(seed: int) -> None:
    rng = Random(seed)
    for facts in each_world(seed):
        before = facts.verdicts()
        places = [coin(1), coin(77), *(out(digest) for digest in facts.spends)]
        made = rng.choice((facts.own, facts.foreign, facts.mined))(*rng.sample(places, 2))
        after, component = facts.verdicts(), facts.graph.component(made, facts.chain).records
        assert {each for each in before if before[each] != after[each]} <= component.keys()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_canonical_transactions_fit_into_one_block(seed: int) -> None:
    """Together with the confirmed ones they spend no outpoint twice, and no ancestor is missing."""
    for facts in each_world(seed):
        verdicts = facts.verdicts()
        counted = {each for each, verdict in verdicts.items() if verdict.status in (Status.CONFIRMED, Status.CANONICAL)}
        spent = [outpoint for digest in counted for outpoint in facts.spends[digest]]
        assert len(set(spent)) == len(spent)
        for digest in counted:
            assert facts.family(digest) <= counted
            assert digest not in facts.faulty or verdicts[digest].status is Status.CONFIRMED


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_named_conflict_counts_and_spends_an_input_of_the_family(seed: int) -> None:
    for facts in each_world(seed):
        verdicts = facts.verdicts()
        for digest, verdict in verdicts.items():
            spent = {outpoint for member in facts.family(digest) for outpoint in facts.spends[member]}
            match verdict.status, verdict.conflicts_with:
                case (Status.REPLACED | Status.WAITING, by) if verdict.status is Status.REPLACED or by is not None:
                    assert by is not None
                    assert verdicts[by].status is Status.CANONICAL
                    assert not spent.isdisjoint(facts.spends[by])
                case (Status.CONFLICTED, by) if by is not None:
                    assert verdicts[by].status is Status.CONFIRMED
                    assert not spent.isdisjoint([*facts.spends[by], out(by, 2)])  # `by` does not have this output
                case (_, by):
                    assert by is None


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_foreign_transactions_change_no_own_verdict(seed: int) -> None:
    """Except through a block, or as ancestors of an own transaction."""
    for facts in each_world(seed):
        before = facts.verdicts()
        own = {digest for digest, record in facts.records.items() if record.is_own}
        needed = own.union(*map(facts.family, own))
        needed |= {each for each, verdict in before.items() if verdict.status is Status.CONFIRMED}
        for digest in before.keys() - needed:
            facts.graph.remove(digest)
        after = facts.verdicts()
        assert {digest: after[digest] for digest in own} == {digest: before[digest] for digest in own}


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_confirmation_depends_on_blocks_only(seed: int) -> None:
    rng = Random(seed)
    for facts in each_world(seed):
        before = facts.verdicts()
        for record in facts.records.values():
            changed = record._replace(last_seen=rng.randrange(9), broadcast_seq=rng.choice((None, rng.randrange(1, 9))))
            facts.graph.put(changed._replace(dropped=rng.choice((None, LatestDrop(DropReason.EXPIRED, 9)))))
        after = facts.verdicts()
        assert all(
            (before[each].status == Status.CONFIRMED) == (after[each].status == Status.CONFIRMED) for each in after
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_abandoned_transaction_counts_again_only_after_broadcast(seed: int) -> None:
    rng = Random(seed)
    for facts in each_world(seed):
        before = facts.verdicts()
        digest = rng.choice(list(facts.spends))
        if before[digest].status in (Status.CONFIRMED, Status.CONFLICTED):
            continue
        facts.drop(digest, DropReason.ABANDONED)
        facts.observe(digest)
        assert facts.status(digest) is Status.ABANDONED
        descendants = {each for each in facts.spends if digest in facts.family(each)}
        assert all(facts.status(each) in {*INACTIVE, Status.CONFLICTED} for each in descendants)
        facts.request(facts.broadcast(digest))
        is_blocked = any(facts.status(each) in INACTIVE for each in facts.family(digest) - {digest})
        assert facts.status(digest) in (INACTIVE if is_blocked else {Status.CANONICAL})


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_reorganization_there_and_back_changes_nothing(seed: int) -> None:
    rng = Random(seed)
    for facts in each_world(seed):
        before, chain = facts.verdicts(), facts.chain
        fork = rng.randrange(5)
        facts.chain = {block for block in chain if block.height <= fork}
        between = facts.verdicts()
        statuses = {digest: None if each.status in INACTIVE else each.status for digest, each in between.items()}
        assert statuses == naive_statuses(facts)
        facts.chain = chain
        assert facts.verdicts() == before


# Bounded work


def steps(run: Callable[[], object]) -> int:
    """The number of lines of Python that a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def chain(facts: Facts, size: int) -> None:
    """Each transaction spends the one before, in an order of ranks that helps least."""
    made = [coin(1)]
    for _ in range(size):
        made.append(out(facts.make(made[-1])))
    for each in made[1:]:
        facts.observe(each[:32])


def ladder(facts: Facts, size: int) -> None:
    """Each transaction spends both outputs of the one before: two to the power of `size` paths lead to the first."""
    made = facts.foreign(coin(1))
    for _ in range(size):
        made = facts.foreign(out(made), out(made, 1))


def lattice(facts: Facts, size: int) -> None:
    """Two transactions in each row spend both of the row before. Few rows: their paths double with each."""
    left, right = facts.foreign(coin(1)), facts.foreign(coin(2))
    for _ in range(size // 20):
        left, right = facts.foreign(out(left), out(right)), facts.foreign(out(left, 1), out(right, 1))


def replaced_chain(facts: Facts, size: int) -> None:
    """A conflict with the first transaction ranks above the chain."""
    chain(facts, size)
    facts.own(coin(1))


def impossible_chain(facts: Facts, size: int) -> None:
    """Every transaction of a chain spends the first input once more."""
    made = facts.foreign(coin(1))
    for _ in range(size):
        made = facts.foreign(out(made), coin(1))


def bumps(facts: Facts, size: int) -> None:
    """Versions of one payment, each with a child."""
    for _ in range(size):
        facts.own(out(facts.own(coin(1))))


def comb(facts: Facts, size: int) -> None:
    """A long chain whose members each have a conflicting child of two members."""
    chain(facts, size)
    members = list(facts.spends)
    for each, other in zip(members, reversed(members), strict=True):
        facts.foreign(out(each, 1), out(other, 1) if each != other else coin(2))


@pytest.mark.parametrize("shape", [chain, ladder, lattice, replaced_chain, impossible_chain, bumps, comb])
def test_work_is_linear_in_inputs(shape: Callable[[Facts, int], None]) -> None:
    counts = []
    for size in (100, 200):
        facts = Facts()
        shape(facts, size)
        digest = next(iter(facts.spends))
        counts.append(steps(lambda facts=facts, digest=digest: facts.verdict(digest)))  # type: ignore[misc]
    assert counts[1] < 2.3 * counts[0]


def test_long_chain_needs_no_recursion(facts: Facts) -> None:
    chain(facts, 3_000)
    assert {verdict.status for verdict in facts.verdicts().values()} == {Status.CANONICAL}
