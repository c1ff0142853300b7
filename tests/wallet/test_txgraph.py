"""Graph of transactions: records, spenders, and components, against a search through all records."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from spvfilter.wallet.canonical import Status
from spvfilter.wallet.txgraph import TxGraph, TxRecord
from support.blocks.build import TxIn, TxOut, coinbase, tx
from support.vectors import effort
from support.wallets.facts import Facts, coin, out, random_facts
from support.wallets.walletbooks import Wallet, out as out_of, pay


@pytest.fixture
def facts() -> Facts:
    return Facts()


def naive_component(facts: Facts, digest: bytes) -> set[bytes]:
    """The unconfirmed transactions that are connected with an unconfirmed transaction."""
    left = {each for each, record in facts.records.items() if not record.anchors & facts.chain}
    found, before = {digest}, 0
    while len(found) > before:
        before = len(found)
        spent = {outpoint for each in found for outpoint in facts.spends[each]}
        for each in left - found:
            own, named = set(facts.spends[each]), {outpoint[:32] for outpoint in spent}
            if spent & own or each in named or {outpoint[:32] for outpoint in own} & found:
                found.add(each)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(effort(2, 4, 60)))
def test_components_agree_with_naive_search(seed: int) -> None:
    rng = Random(seed)
    for _ in range(100):
        facts = random_facts(rng)
        for digest in rng.sample(list(facts.spends), rng.randrange(len(facts.spends))):
            record = facts[digest]  # the order of records changes
            facts.graph.remove(digest)
            facts.graph.put(record)
        components = list(facts.graph.components(facts.chain))
        confirmed = [digest for digest, record in facts.records.items() if record.anchors & facts.chain]
        for component in components:
            for digest in component.records:
                assert component.records.keys() == naive_component(facts, digest)
                assert facts.graph.component(digest, facts.chain) == component
            touched = {outpoint for digest in component.records for outpoint in facts.spends[digest]}
            touched |= {out(digest, index) for digest in component.records for index in (0, 1)}
            border = {out(digest, 2): digest for digest in confirmed if out(digest, 2) in touched}  # it has two outputs
            border |= {each: digest for digest in confirmed for each in facts.spends[digest] if each in touched}
            assert component.border == border
        covered = [digest for component in components for digest in component.records]
        assert sorted(covered + confirmed) == sorted(facts.spends)


def test_component_of_confirmed_transaction_has_all_that_it_touches(facts: Facts) -> None:
    parent = facts.foreign(coin(1))
    child, rival = facts.foreign(out(parent)), facts.foreign(coin(2))
    confirmed = facts.mined(out(parent, 1), coin(2))
    grandchild = facts.own(out(confirmed))
    far = facts.own(coin(3))
    assert facts.graph.component(confirmed, facts.chain).records.keys() == {parent, child, rival, grandchild}
    assert facts.graph.component(far, facts.chain).records.keys() == {far}
    assert facts.graph.component(bytes(32), facts.chain).records == {}


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_spender_of_output_that_parent_lacks_is_conflicted(facts: Facts, *, is_confirmed: bool, is_first: bool) -> None:
    parent = facts.foreign(coin(1))
    child = facts.foreign(out(parent, 2))
    grandchild = facts.foreign(out(child))
    if is_confirmed:
        facts.anchor(parent, 1)
    record = facts[parent if is_first else child]  # the order of records changes
    facts.graph.remove(record.txid)
    facts.graph.put(record)
    assert facts.status(child) is facts.status(grandchild) is Status.CONFLICTED
    assert facts.status(parent) is (Status.CONFIRMED if is_confirmed else Status.CANONICAL)
    facts.graph.remove(parent)
    assert facts.status(child) is Status.CANONICAL


def test_null_outpoint_connects_no_coinbases(facts: Facts) -> None:
    rewards = [facts.make_coinbase() for _ in range(3)]
    facts.anchor(rewards[0], 1)
    facts.anchor(rewards[1], 1, branch=1)
    assert facts.graph.component(rewards[1], facts.chain) == ({rewards[1]: facts[rewards[1]]}, {})
    assert facts.graph.component(rewards[0], facts.chain) == ({}, {})


def test_empty_graph_remains_after_all_records_are_removed() -> None:
    for seed in range(20):
        rng = Random(seed)
        facts = random_facts(rng)
        digests = list(facts.spends)
        rng.shuffle(digests)
        for digest in digests:
            facts.graph.remove(digest)
            facts.graph.remove(digest)
            assert all(digest not in facts.graph.spenders(outpoint) for outpoint in facts.spends[digest])
        assert len(facts.graph) == 0
        assert vars(facts.graph) == vars(TxGraph())


def test_new_record_takes_the_place_of_the_earlier_one(facts: Facts) -> None:
    digest = facts.foreign(coin(1))
    facts.broadcast(digest)
    assert len(facts.graph) == 1
    assert facts.graph.spenders(coin(1)) == (digest,)
    assert facts[digest].is_own


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (tx([TxIn(bytes([1]) * 32, 0)], [TxOut(5, b"")]), None),
        (tx([TxIn(bytes([1]) * 32, 0)] * 2, [TxOut(5, b"")]), "twice"),
        (tx([TxIn(bytes([1]) * 32, 0)], [TxOut(-1, b"")]), "values"),
        (tx([TxIn(bytes([1]) * 32, 0)], [TxOut(20_000_000 * 10**8, b"")] * 2), "values"),
        (coinbase(7), "coinbase"),
    ],
)
def test_record_names_the_fault_of_its_transaction(raw: bytes, fault: str | None) -> None:
    record = TxRecord.parse(raw)
    assert record.fault is None if fault is None else fault in str(record.fault)
    assert (record.is_own, record.active_drop, record.anchors) == (False, None, frozenset())


@pytest.mark.slow
def test_a_chain_in_one_block_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wallet, walked, true = Wallet(), list[int](), TxGraph.ancestors
    chain = [pay(10**6, coin(1))]
    for number in range(1, 300):
        chain.append(pay(10**6 - 10 * number, out_of(chain[-1])))

    def counted(self: TxGraph, record: TxRecord, is_end: Callable[[TxRecord], bool] | None = None) -> list[TxRecord]:
        found = true(self, record, is_end)
        walked.append(len(found))
        return found

    monkeypatch.setattr(TxGraph, "ancestors", counted)
    wallet.mine(*chain)
    assert sum(walked) == 299
    wallet.broadcast(pay(5, out_of(chain[-1])))
    assert wallet.books.judgement.own_records()
    assert sum(walked) < 1_000
