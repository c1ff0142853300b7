"""Quota of network groups, and the queue of transactions that wait to be recorded."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spvfilter.wallet.netgroupquota import MANY, NetgroupQuota
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.wallet.queue import Queue
from support.blocks.build import txid
from support.held import most_held
from support.vectors import effort
from support.wallets.walletbooks import Wallet, coin, out, pay


def name(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_group_with_the_most_transactions_loses_its_latest() -> None:
    quota = NetgroupQuota()
    for number in range(10):
        quota.announce(name(number), ["a"])
    quota.announce(name(10), ["b"])
    assert list(quota.evictable(["a"])) == []
    assert next(quota.evictable(["b"])) == name(9)
    assert next(quota.evictable(["c"])) == name(8)  # the latest transaction apart from those yielded before


def test_transactions_of_fewer_groups_are_evicted_first() -> None:
    quota = NetgroupQuota()
    for number in range(10):
        quota.announce(name(number), ["a"])
    for number in range(2, 10):
        quota.announce(name(number), ["b"])
    for number in range(4, 10):
        quota.announce(name(number), ["a", "c"])
    for number in range(6, 10):
        quota.announce(name(number), ["d"])
    assert [quota.groups_of(name(number)) for number in (1, 3, 5, 7)] == [1, 2, 3, MANY]
    assert list(quota.evictable(["e"])) == [name(1), name(0), name(3), name(2), name(5), name(4)]
    assert set(quota.evictable(["a"])) == set()  # it would have as many as any party
    quota.announce(name(10), ["a", "b"])
    # transactions of two groups are evicted after those of one group
    assert set(quota.evictable(["a", "c"])) == set(map(name, (0, 1, 2, 3, 10, 4, 5)))
    quota.forget(name(1))
    quota.forget(name(5))
    # transactions of one group, and of three groups, are as many as the new one's would be
    assert set(quota.evictable(["e"])) == set(map(name, (2, 3, 10)))
    assert set(quota.evictable("efgh")) == set(map(name, (2, 3, 10)))


def test_transactions_of_an_earlier_run_have_no_group_until_announced() -> None:
    quota = NetgroupQuota()
    for number in range(5):
        quota.announce(name(number))
    assert set(quota.evictable(["a"])) == set(map(name, range(5)))
    quota.announce(name(0), ["a"])
    assert quota.groups_of(name(0)) == 1
    quota.announce(name(0), ["b"])
    assert quota.groups_of(name(0)) == 2


def test_evictable_equals_a_naive_count_of_groups() -> None:
    rng, quota, kept = random.Random(2), NetgroupQuota(), dict[bytes, frozenset[str]]()
    levels = Counter[int]()
    for _ in range(effort(2_000, 5_000, 100_000)):
        txid, group = name(rng.randrange(60)), rng.choice("abcde")
        if rng.random() < 0.3:
            quota.forget(txid)
            kept.pop(txid, None)
        else:
            quota.announce(txid, [group])
            kept[txid] = kept.get(txid, frozenset()) | {group}
        assert len(quota) == len(kept)
        assert all(quota.groups_of(each) == min(len(groups), MANY) for each, groups in kept.items())
        parties: dict[frozenset[str], set[bytes]] = {}
        for each, groups in kept.items():
            parties.setdefault(groups, set()).add(each)
        given = set(quota.evictable(["f"]))
        for number in range(1, MANY):
            most = max((len(txids) for groups, txids in parties.items() if len(groups) == number), default=0)
            of_it = {each for each in given if len(kept[each]) == number}
            assert len(of_it) == (min(most, 8) if most > 1 else 0)
            assert not of_it or any(of_it <= txids and len(txids) == most for txids in parties.values())
            levels[number] += bool(of_it)
        assert all(len(kept[each]) < MANY for each in given)
    assert min(levels[number] for number in range(1, MANY)) > 100


@pytest.mark.long
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_flood_of_three_groups_keeps_no_payment_out(groups: int) -> None:
    wallet = Wallet(PendingLimits(number=40))
    flooding = [f"10.{number}.0.0/16" for number in range(groups)]
    for number in range(1, 100):
        wallet.observe(pay(1, coin(number)), *flooding)
    for value in range(2, 6):
        honest = pay(value, coin(200))
        wallet.observe(honest, "10.77.0.0/16", *(f"10.8{number}.0.0/16" for number in range(groups)))
        assert txid(honest) in wallet.books.intake.pool


def test_flood_of_conflicts_evicts_no_payment_of_more_groups() -> None:
    wallet, honest = Wallet(), pay(1_000, coin(1))
    wallet.observe(honest, "a", "b")
    for value in range(30):
        wallet.observe(pay(value, coin(1)), "x")
    assert wallet.statuses()[txid(honest)] == "replaced"
    wallet.mine(honest)
    assert wallet.statuses()[txid(honest)] == "confirmed"


def test_family_with_a_member_of_more_groups_is_not_evicted() -> None:
    wallet = Wallet(PendingLimits(number=6))
    parent = pay(100, coin(1))
    child = pay(90, out(parent))
    wallet.observe(parent, "a")
    wallet.observe(child, "a")
    wallet.books.intake.pool.quota.announce(txid(child), ["b", "c"])
    for number in range(2, 30):
        wallet.observe(pay(5, coin(number)), "a" if number < 10 else "d")
    assert {txid(parent), txid(child)} <= set(wallet.books.intake.pool)
    assert len(wallet.books.intake.pool) == 6


def test_queue_serves_groups_in_turn_and_evicts_from_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "MOST", 10)
    queue = Queue()
    flood = [b"a%d" % number for number in range(12)]
    assert [queue.put(raw, "a") for raw in flood] == [[]] * 10 + [None] * 2
    assert not queue.has_room("a")
    assert queue.has_room("b")
    assert queue.put(b"b0", "b") == [b"a9"]
    assert queue.put(b"b1", "b") == [b"a8"]
    assert len(queue) == 10
    assert [queue.take() for _ in range(5)] == [(b"a0", "a"), (b"b0", "b"), (b"a1", "a"), (b"b1", "b"), (b"a2", "a")]
    assert [queue.take()[0] for _ in range(len(queue))] == flood[3:8]


def test_queue_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "MOST_SIZE", 1_000)
    queue, rng, held = Queue(), random.Random(1), 0
    for _ in range(2_000):
        raw, group = rng.randbytes(rng.randrange(1, 100)), rng.choice("aaab")
        if rng.random() < 0.2 and len(queue):
            held -= len(queue.take()[0])
        elif (gone := queue.put(raw, group)) is not None:
            held += len(raw) - sum(map(len, gone))
        assert held <= 1_000 + 2 * 100
    while len(queue):
        held -= len(queue.take()[0])
    assert held == most_held(queue) == 0
    assert queue.put(bytes(1_000), "a") == []  # all of the room is free again


def test_full_queue_evicts_by_the_bound_that_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "MOST_SIZE", 110)
    queue = Queue()
    many, large = [b"a%d" % number for number in range(10)], bytes(89)
    for raw in many:
        queue.put(raw, "a")
    queue.put(large, "b")
    assert queue.has_room("b"), "a byte is left"
    assert queue.put(b"c", "c") == []
    assert queue.put(b"d", "d") == [large], "more bytes than the ten of the other group"
    monkeypatch.setattr(Queue, "MOST", len(queue))
    assert queue.put(large, "b") == [many[-1]], "the largest group by number"


def test_smaller_group_has_room_in_a_full_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Queue, "MOST", 10)
    queue = Queue()
    for at in range(8):
        queue.put(bytes([at]) * 100, "a")
    assert not queue.is_half_free
    assert (queue.has_much_room("a"), queue.has_much_room("b")) == (False, True)
    queue.put(bytes(401), "b")  # one transaction of eight, but more than half of the bytes of a
    assert (queue.has_much_room("b"), queue.has_much_room("c")) == (False, True)
    assert [queue.take()[1] for _ in range(2)] == ["a", "b"]
    for at in range(4):
        queue.put(bytes([at]), "b")  # few bytes, but more than half of the transactions of a
    assert not queue.has_much_room("b")
