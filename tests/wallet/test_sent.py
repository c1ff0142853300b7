"""Which of the user's own transactions are wanted: against a naive recomputation, whatever comes, goes, or is broadcast
again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.sent import MAX_ANCESTORS, Sent
from support.build import txid
from support.vectors import effort
from wallet.test_rivals import coin, out, pay


def stored(raw: bytes, number: int = 0, status: TxStatus = TxStatus.PENDING, seen: int | None = None) -> StoredTx:
    return StoredTx(raw, status, number, seen)


def ancestry(pending: Mapping[bytes, StoredTx], each: bytes) -> set[bytes]:
    """A transaction and all that it spends from."""
    found = {each}
    for outpoint in Transaction.parse(pending[each].raw).inputs:
        if outpoint[:32] in pending:
            found |= ancestry(pending, outpoint[:32])
    return found


def naively_wanted(pending: Mapping[bytes, StoredTx]) -> set[bytes]:
    """Each of ours, from the last broadcast on, that can be in a chain together with what is wanted so far, with its
    ancestors of ours.
    """
    wanted: set[bytes] = set()
    for each in sorted((each for each, tx in pending.items() if tx.own), key=lambda each: -pending[each].own):
        family = {member for member in ancestry(pending, each) if pending[member].own}
        spent = [outpoint for member in family | wanted for outpoint in Transaction.parse(pending[member].raw).inputs]
        if len(set(spent)) == len(spent):
            wanted |= family
    return wanted


@pytest.mark.parametrize("seed", range(effort(20, 100, 5_000)))
def test_what_is_wanted_is_found_as_by_naive_recomputation(seed: int) -> None:
    rng = random.Random(seed)
    pending: dict[bytes, StoredTx] = {}
    sent = Sent(pending)
    value = 10_000
    for _ in range(60):
        step, value = rng.random(), value - 1
        if step < 0.6 or not pending:
            places = [coin(number) for number in range(1, 5)] + [out(tx.raw) for tx in pending.values()]
            raw = pay(value, *rng.sample(places, rng.choice((1, 1, 2))))
            family = ancestry({**pending, txid(raw): stored(raw)}, txid(raw))
            spent = [
                o for each in family for o in Transaction.parse(raw if each == txid(raw) else pending[each].raw).inputs
            ]
            if len(set(spent)) < len(spent):
                continue  # it spends what its own ancestors spend: refused
            pending[txid(raw)] = stored(raw, sent.next_number() if rng.random() < 0.7 else 0)
            sent.changed(txid(raw))
        elif step < 0.8:
            each = rng.choice(list(pending))
            pending[each] = pending[each]._replace(own=sent.next_number())
            sent.changed(each)
        else:
            each = rng.choice(list(pending))
            for gone in [other for other in pending if each in ancestry(pending, other)]:
                del pending[gone]
                sent.changed(gone)
        assert set(sent.wanted) == naively_wanted(pending)
        assert (
            list(sent.wanted) == list(Sent(pending).wanted) == sorted(sent.wanted, key=lambda each: pending[each].own)
        )
        for each in pending:
            assert (each in sent) is (pending[each].own > 0)
            by = sent.replaced_by(each) if each in sent else None
            assert (by is None) is (each in sent.wanted or each not in sent)
            assert by is None or by in sent.wanted


def test_what_was_replaced_by_one_of_ours_was_sent_before_it_and_is_not_wanted() -> None:
    raws = [pay(value, coin(1)) for value in (900, 800, 700)]
    first, second, third = map(txid, raws)
    sent = Sent(
        {
            each: stored(raw, number)
            for number, (each, raw) in enumerate(zip((first, second, third), raws, strict=True), 1)
        }
    )
    assert [sent.replaced_with(each) for each in (first, second, third)] == [[], [first], [first, second]]
    assert [sent.replaced_by(each) for each in (first, second, third)] == [third, third, None]


def test_of_a_database_of_an_earlier_version_what_counts_is_wanted() -> None:
    """There all that was broadcast here has the number 1."""
    raws = [pay(value, coin(1)) for value in (900, 800, 700)]
    statuses = (TxStatus.REPLACED, TxStatus.PENDING, TxStatus.REPLACED)
    sent = Sent(
        {txid(raw): stored(raw, 1, status, seen) for seen, (raw, status) in enumerate(zip(raws, statuses, strict=True))}
    )
    assert list(sent.wanted) == [txid(raws[1])]
    assert sent.next_number() == 2


def test_of_a_long_chain_no_more_ancestors_are_looked_at_than_peers_would_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stranger may have invented what ours spends from."""
    raws = [pay(10_000, coin(1))]
    for _ in range(3 * MAX_ANCESTORS):
        raws.append(pay(10_000, out(raws[-1])))
    pending = {txid(raw): stored(raw) for raw in raws}
    pending[txid(raws[-1])] = stored(raws[-1], 1)
    sent, looked_at = Sent(pending), list[bytes]()
    parse = Transaction.parse
    monkeypatch.setattr(Transaction, "parse", lambda raw: looked_at.append(raw) or parse(raw))  # type: ignore[func-returns-value]
    assert list(sent.wanted) == [txid(raws[-1])]
    assert len(looked_at) <= MAX_ANCESTORS + 1
    looked_at.clear()
    sent.changed(txid(raws[0]))  # too far away to matter
    assert (list(sent.wanted), looked_at) == ([txid(raws[-1])], [])


def test_what_spends_the_same_as_its_ancestor_is_not_wanted_and_does_not_bring_that_back() -> None:
    """No block can have it: whatever let it in, what can be is offered."""
    first, second = pay(900, coin(1)), pay(800, coin(1))
    raws = [first, second, pay(700, out(first), coin(1))]
    sent = Sent({txid(raw): stored(raw, number) for number, raw in enumerate(raws, 1)})
    assert list(sent.wanted) == [txid(second)]
    assert sent.replaced_by(txid(raws[2])) in {txid(first), txid(raws[2])}
