"""Unconfirmed transactions that a peer invents: what they cost, whatever they are, is in proportion to what they are
themselves.
"""

from __future__ import annotations

import random
import struct
import time

import pytest

from spvfilter.hashes import sha256d
from spvfilter.network import REGTEST
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.wallet import invented as wallet_invented, unconfirmed
from spvfilter.wallet.books import Books
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.scanned import FoundTx, ScannedBlock
from spvfilter.watch.watchlist import WatchList
from support.build import p2wpkh

OURS, LATER = p2wpkh(b"\x01" * 20), p2wpkh(b"\x02" * 20)
RNG = random.Random(1)


def invented(inputs: list[bytes], *scripts: bytes) -> bytes:
    ins = b"".join(outpoint + b"\0\xff\xff\xff\xff" for outpoint in inputs)
    outs = b"".join(struct.pack("<qB", 1_000, len(script)) + script for script in scripts)
    return b"\x02\0\0\0" + _count(len(inputs)) + ins + _count(len(scripts)) + outs + bytes(4)


def _count(number: int) -> bytes:
    return bytes([number]) if number < 0xFD else b"\xfd" + struct.pack("<H", number)


def somewhere() -> bytes:
    """An outpoint."""
    return RNG.randbytes(32) + bytes(4)


def books() -> Books:
    watch = WatchList(REGTEST)
    watch.add_script(OURS)
    return Books(watch, SavedBooks())


def cost(made: Books, raws: list[bytes]) -> float:
    """Seconds of processor time to add them."""
    begun = time.thread_time()
    for raw in raws:
        made.add_unconfirmed(raw, 1)
        made.take_batches()
    return time.thread_time() - begun


def cheapest(raws: list[bytes]) -> float:
    return min(cost(books(), raws) for _ in range(2))


def test_each_of_ten_thousand_payments_costs_what_one_of_a_thousand_does() -> None:
    raws = [invented([somewhere()], OURS) for _ in range(10_000)]
    made = books()
    costs = [cost(made, raws[at : at + 500]) for at in range(0, 10_000, 500)]
    assert min(costs[-4:]) < 3 * min(costs[:4])
    begun = time.thread_time()
    assert len(made.expire(MEMPOOL_EXPIRY_S + 1)) == 10_000
    assert time.thread_time() - begun < 20 * 3 * min(costs[:4])


def test_thousands_of_rivals_of_one_transaction_are_withdrawn_with_it_in_linear_time() -> None:
    outpoint, times = somewhere(), []
    for number in (1_000, 8_000):
        made = books()
        for _ in range(number):
            made.add_unconfirmed(invented([outpoint, somewhere()], OURS), 1)
        made.take_batches()
        block = ScannedBlock(0, bytes(32), total=1, txs=[FoundTx(1, invented([outpoint], OURS))])
        begun = time.thread_time()
        made.connect(block, block.hits(made.watch.table))
        times.append(time.thread_time() - begun)
        assert not made.unconfirmed.pending
    assert times[1] < 24 * times[0]


def test_strangers_transactions_that_all_spend_the_same_cost_no_more_than_others() -> None:
    common = [somewhere() for _ in range(200)]
    alike = [invented([*common, somewhere()], LATER) for _ in range(600)]
    different = [invented([RNG.randbytes(32) + bytes(4) for _ in range(201)], LATER) for _ in range(600)]
    assert cheapest(alike) < 4 * cheapest(different)


def test_an_entry_that_a_long_chain_of_payments_pays_is_added() -> None:
    made, outpoint = books(), somewhere()
    for _ in range(2_000):
        raw = invented([outpoint], LATER, OURS)
        outpoint = sha256d(raw) + bytes(4)
        made.add_unconfirmed(raw, 1)
    made.watch.add_script(LATER)
    events = made.entries_added()
    assert len(events) == 2_000 + 1_999


def test_a_payment_that_came_before_the_latest_block_is_not_told_to_an_entry_that_is_added_after_it() -> None:
    made = books()
    before, after = invented([somewhere()], LATER), invented([somewhere()], LATER)
    made.add_unconfirmed(before, 1)
    made.extend(bytes(80))  # the block may have it, and is not searched for what is added now
    made.add_unconfirmed(after, 1)
    made.watch.add_script(LATER)
    (event,) = made.entries_added()
    assert isinstance(event, MatchFound)
    assert event.match.txid == sha256d(after)
    assert made.unconfirmed.pending.keys() == {sha256d(after)}


def test_replaced_payments_that_are_not_kept_do_not_stay_on_the_watch_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wallet_invented, "MAX_STALE", 200)
    made, coin = books(), somewhere()
    payments = [invented([coin, somewhere()], *[OURS] * (1 + number % 3)) for number in range(2_000)]
    for payment in payments:
        made.add_unconfirmed(payment, 1)
        made.take_batches()
        watched = list(made.watch.outpoints())
        assert made.unconfirmed.pending.keys() <= {outpoint.txid for outpoint in watched}
        assert len(watched) <= 200 + 2 * 3 * 2 * len(made.unconfirmed)
    assert len(made.unconfirmed) < 20
    forgotten = payments[3]
    child = invented([sha256d(forgotten) + bytes(4)], OURS)
    block = ScannedBlock(0, bytes(32), total=3, txs=[FoundTx(1, forgotten), FoundTx(2, child)])
    hits = block.hits(made.watch.table)
    assert [hit.spend for hit in hits] == [False, True, False]  # what was forgotten is learned again from a block
    assert len(made.connect(block, hits)) >= 4


def test_of_invented_payments_a_bounded_number_waits_however_short_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own are added all the same, and one that a block confirms is found."""
    monkeypatch.setattr(unconfirmed, "MAX_PENDING", 100)
    made = books()
    made.skip_to(0)
    raws = [invented([somewhere()], OURS) for _ in range(150)]
    for raw in raws:
        made.add_unconfirmed(raw, 1)
    assert len(made.unconfirmed) == 100
    assert made.add_unconfirmed(invented([somewhere()], OURS), 1, own=True)
    assert len(made.unconfirmed) == 101
    block = ScannedBlock(1, bytes(32), [FoundTx(1, raws[-1])], total=2, time=1)
    assert any(isinstance(event, MatchFound) for event in made.connect(block, block.hits(made.watch.table)))
    made.expire(2 + MEMPOOL_EXPIRY_S)
    assert made.add_unconfirmed(invented([somewhere()], OURS), 2 + MEMPOOL_EXPIRY_S)


def test_for_each_outpoint_that_comes_a_few_of_the_others_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wallet_invented, "MAX_STALE", 200)
    made = wallet_invented.InventedOutpoints(WatchList(REGTEST), [])
    kept: set[bytes] = set()
    looks = 0

    def is_kept(txid: bytes) -> bool:
        nonlocal looks
        looks += 1
        return txid in kept

    most = 0
    for number in range(4_000):
        txid = RNG.randbytes(32)
        if number % 2:
            kept.add(txid)
        made.add(txid + bytes(4))
        before = looks
        made.trim(is_kept)
        most = max(most, looks - before)
    assert most <= 300  # with those that are stale, once in hundreds
    assert looks < 6 * 4_000
    assert len(kept) <= len(made) <= 1.5 * len(kept) + 200
