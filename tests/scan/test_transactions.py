"""Loose transactions: the stream finds in any order what a block scan and an independent oracle find."""

from __future__ import annotations

import asyncio
import random
import threading
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any

import pytest
from bitcoin.core import CBlock, CTransaction

from spvfilter.errors import FormatError, ParameterError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import Hit, walk_block
from spvfilter.network import REGTEST
from spvfilter.scan import transactions
from spvfilter.scan.matcher import Matcher
from spvfilter.scan.relevance import relevant_txs
from spvfilter.scan.transactions import AT_ONCE, RawTransactions, TxMatches
from spvfilter.transaction import Transaction
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages import Tx
from support.blocks.build import GENESIS, TxIn, TxOut, block_of, p2wpkh, push, tx, txid
from support.blocks.realdata import RealBlock, real_block_cases
from support.matching import MINE, mine
from support.oracles import oracle
from support.vectors import effort

SEEDS = pytest.mark.parametrize("seed", range(effort(2, 6, 300)))
LARGE = tx([TxIn(bytes(32), 0)], [TxOut(1, b"\x6a" + bytes(AT_ONCE)), TxOut(7, MINE)])
MALFORMED = [b"", bytes(5), LARGE[:-1], LARGE + b"\x00"]


def pays(number: int, script: bytes = MINE, value: int = 1_000) -> bytes:
    return tx([TxIn(number.to_bytes(32, "big"), number)], [TxOut(5, b"\x51"), TxOut(value, script)])


def spends(parent: bytes, index: int = 1, script: bytes = b"\x51") -> bytes:
    return tx([TxIn(txid(parent), index)], [TxOut(900, script)])


async def found(matcher: Matcher, source: RawTransactions, **options: object) -> list[TxMatches]:
    return [each async for each in matcher.match_txs(source, **options)]  # type: ignore[arg-type]


def identities(found: Iterable[TxMatches]) -> list[tuple[int, str, int]]:
    return [(each.number, str(match.kind), match.index) for each in found for match in each.matches]


def with_keychain() -> tuple[WatchList, Callable[[int], bytes]]:
    """A list with a keychain whose window ends before index 20."""

    def script_at(index: int) -> bytes:
        return p2wpkh(index.to_bytes(20, "big"))

    watch = WatchList(REGTEST)
    watch.add_keychain("wallet", script_at, lookahead=20)
    return watch, script_at


async def slowly(items: Iterable[bytes]) -> AsyncIterator[bytes]:
    for item in items:
        await asyncio.sleep(0)
        yield item


# One transaction or block


async def test_small_transaction_is_matched_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = Matcher(mine())
    monkeypatch.setattr(asyncio, "to_thread", None)
    (match,) = await matcher.match_tx(pays(1))
    assert (match.kind, match.value) == (MatchKind.OUTPUT, 1_000)


@pytest.mark.parametrize("call", ["match_tx", "match_txs", "match_block", "relevant_txs"])
async def test_large_input_is_scanned_in_a_thread(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matcher, original, calls = Matcher(mine()), asyncio.to_thread, []

    async def to_thread(work: Callable[..., object], *args: object, **options: object) -> object:
        calls.append(work)
        return await original(work, *args, **options)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    if call == "relevant_txs":
        (relevant,) = [each async for each in relevant_txs(Bip37Filter.match_all(), [LARGE])]
        assert (relevant.number, relevant.txid_hex, len(calls)) == (0, txid(LARGE)[::-1].hex(), 1)
        return
    if call == "match_tx":
        matches = await matcher.match_tx(LARGE)
    elif call == "match_block":
        matches = await matcher.match_block(block_of(GENESIS, 5, [LARGE]), height=5)
    else:
        (result,) = await found(matcher, [LARGE])
        matches = result.matches
    assert [match.value for match in matches] == [7]
    assert calls


async def test_block_matches_like_the_watch_list() -> None:
    block = block_of(GENESIS, 5, [pays(1), spends(pays(1))])
    assert await Matcher(mine()).match_block(CBlock.deserialize(block), height=5) == mine().match_block(block, height=5)
    with pytest.raises(FormatError):
        await Matcher(mine()).match_block(block[:-1])


async def test_concurrent_calls_learn_every_output() -> None:
    matcher = Matcher(mine())
    payments = [pays(number) for number in range(1, 20)]
    await asyncio.gather(*map(matcher.match_tx, payments))
    spent = await asyncio.gather(*(matcher.match_tx(spends(payment)) for payment in payments))
    assert [[match.value for match in matches] for matches in spent] == [[1_000]] * 19


# Streams


@pytest.mark.parametrize(
    "shape",
    [bytes, bytearray, memoryview, CTransaction.deserialize, Tx, Transaction.parse],
    ids=lambda shape: str(shape),
)
async def test_transactions_of_every_type_are_matched(shape: Callable[[bytes], bytes]) -> None:
    payments = [pays(1), pays(2, b"\x52"), pays(3)]
    for source in ([shape(raw) for raw in payments], map(shape, payments), slowly(map(shape, payments))):
        results = await found(Matcher(mine()), source)
        assert [(each.number, each.raw, each.error) for each in results] == [
            (0, payments[0], None),
            (2, payments[2], None),
        ]
        assert [each.txid for each in results] == [txid(payments[0]), txid(payments[2])]
        assert results[0].txid_hex == txid(payments[0])[::-1].hex()


async def test_wrong_sources_are_refused() -> None:
    for wrong in (pays(1), bytearray(pays(1)), pays(1).hex(), 5, None):
        with pytest.raises(TypeError, match="expected an iterable of raw transactions, not "):
            await found(Matcher(mine()), wrong)  # type: ignore[arg-type]
    for item in (5, "00", None):
        with pytest.raises(TypeError, match="expected bytes or an object with serialize"):
            await found(Matcher(mine()), [item])  # type: ignore[list-item]
    with pytest.raises(TypeError, match=r"not str: bytes\.fromhex decodes hex digits$"):
        await found(Matcher(mine()), [pays(1).hex()])  # type: ignore[list-item]
    with pytest.raises(ParameterError, match="remember must be 0 bytes or more, not -1"):
        await found(Matcher(mine()), [], remember=-1)


async def test_malformed_transaction_is_a_result_and_the_stream_goes_on() -> None:
    results = await found(Matcher(mine()), [*MALFORMED, pays(1)])
    assert [each.number for each in results] == [0, 1, 2, 3, 4]
    assert [type(each.error) for each in results] == [FormatError] * 4 + [type(None)]
    assert [each.raw for each in results[:4]] == MALFORMED
    for wrong in MALFORMED:
        stream = Matcher(mine()).match_txs([pays(1), wrong, pays(2)], strict=True)
        assert (await anext(stream)).number == 0
        with pytest.raises(FormatError):
            await anext(stream)


PARENT = pays(1)
CHILD = spends(PARENT, script=MINE)
CHILDREN = [spends(PARENT, script=bytes([0x51 + number])) for number in range(3)]
PARENTS = [pays(number) for number in range(20)]
OF_ALL = tx([TxIn(txid(parent), 1) for parent in PARENTS], [TxOut(1, b"\x51")])
TWICE = tx([TxIn(txid(PARENT), 1), TxIn(bytes(32), 5), TxIn(txid(PARENT), 1)], [TxOut(1, b"\x51")])
EARLY = {
    # The child pays the wallet itself, so it is found immediately. Its spend is found with the parent.
    "grandchild, child, parent": (
        [spends(CHILD, 0), CHILD, PARENT],
        [(1, "output", 0), (0, "input", 0), (2, "output", 1), (1, "input", 0)],
    ),
    "three spends of an output": (
        [CHILDREN[0], CHILDREN[1], PARENT, CHILDREN[2]],
        [(2, "output", 1), (0, "input", 0), (1, "input", 0), (3, "input", 0)],
    ),
    "a spend of many parents": (
        [OF_ALL, *PARENTS],
        [each for number in range(20) for each in ((number + 1, "output", 1), (0, "input", number))],
    ),
    "an output spent twice": ([TWICE, PARENT], [(1, "output", 1), (0, "input", 0), (0, "input", 2)]),
}


@pytest.mark.parametrize(("txs", "expected"), EARLY.values(), ids=EARLY)
async def test_early_spends_are_found_when_their_parent_arrives(
    txs: list[bytes], expected: list[tuple[int, str, int]]
) -> None:
    results = await found(Matcher(mine()), txs)
    assert identities(results) == expected
    assert {match.value for each in results for match in each.matches} <= {900, 1_000}
    assert results[-1].matches[-1].value == 1_000


async def test_transactions_beyond_the_remembered_size_are_forgotten() -> None:
    parents = [pays(number) for number in range(40)]
    children = [spends(parent) for parent in parents]
    size = sum(len(child) + 310 for child in children[20:])
    results = await found(Matcher(mine()), [*children, *parents], remember=size)
    spent = {each.number for each in results if each.matches[0].kind == MatchKind.INPUT}
    assert spent <= set(range(20, 40))
    assert await found(Matcher(mine()), [children[0], parents[0]], remember=0) == await found(
        Matcher(mine()), [bytes(children[0]), parents[0]], remember=0
    )
    assert identities(await found(Matcher(mine()), [children[0], parents[0]], remember=0)) == [(1, "output", 1)]


@pytest.mark.slow
async def test_memory_stays_within_the_remembered_size() -> None:
    limit, count = 2_000_000, effort(20_000, 20_000, 1_000_000)

    def many() -> Iterator[bytes]:
        return (pays(number, b"\x52") for number in range(1, count))

    tracemalloc.start()
    await found(Matcher(mine()), many(), remember=limit)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert limit / 3 < most < 1.5 * limit


async def test_a_transaction_is_taken_when_a_result_is_requested() -> None:
    taken = []

    def source() -> Iterator[bytes]:
        for number in range(5):
            taken.append(number)
            yield pays(number)

    stream = Matcher(mine()).match_txs(source())
    await anext(stream)
    await asyncio.sleep(0.01)
    assert taken == [0]
    await stream.aclose()


async def test_other_tasks_run_while_a_stream_is_matched() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    payments = [pays(number, b"\x52") for number in range(2_000)]
    await found(Matcher(mine()), payments)
    counting.cancel()
    assert turns > sum(map(len, payments)) / AT_ONCE


async def test_cancelled_stream_leaves_no_task_and_no_thread() -> None:
    before = threading.active_count()
    closed = []

    async def source() -> AsyncIterator[bytes]:
        try:
            while True:
                yield LARGE
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    for turns in range(12):
        stream = asyncio.create_task(found(Matcher(mine()), source()))
        for _ in range(turns):
            await asyncio.sleep(0)
        stream.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stream
    assert closed
    assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()
    await asyncio.get_running_loop().shutdown_default_executor()
    assert threading.active_count() <= before


async def test_payment_beyond_the_window_is_found_when_the_window_moves() -> None:
    watch, script_at = with_keychain()
    far, spend = pays(1, script_at(25)), spends(pays(1, script_at(25)))
    assert await found(Matcher(watch.copy()), [far]) == []
    results = await found(Matcher(watch), [spend, far, pays(2, script_at(19))])
    assert identities(results) == [(2, "output", 1), (1, "output", 1), (0, "input", 0)]
    assert [each.matches[0].keychain_index for each in results[:2]] == [19, 25]


async def test_early_spend_of_many_outputs_is_matched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = tx([TxIn(bytes(32), 0)], [TxOut(1_000, MINE)] * 300)
    child = tx([TxIn(txid(parent), index) for index in range(300)], [TxOut(1, b"\x51")])
    accepted, original = [], WatchList.accept

    def accept(self: WatchList, hits: list[Hit], **options: Any) -> list[Match]:
        accepted.append(len(hits))
        return original(self, hits, **options)

    monkeypatch.setattr(WatchList, "accept", accept)
    results = await found(Matcher(mine()), [child, parent])
    assert [(each.number, len(each.matches)) for each in results] == [(1, 300), (0, 300)]
    assert accepted == [300, 300]


async def test_error_result_keeps_no_traceback() -> None:
    (result,) = await found(Matcher(mine()), [b"\x00"])
    assert result.error is not None
    assert result.error.__traceback__ is None


async def test_remembered_transactions_are_searched_when_a_block_moves_a_window() -> None:
    watch, script_at = with_keychain()
    matcher, arriving = Matcher(watch), asyncio.Queue[bytes]()

    async def source() -> AsyncIterator[bytes]:
        while True:
            yield await arriving.get()

    arriving.put_nowait(pays(1, script_at(25)))
    stream = matcher.match_txs(source())
    first = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.01)
    assert not first.done()
    await matcher.match_block(block_of(GENESIS, 5, [pays(2, script_at(19))]))
    arriving.put_nowait(pays(3, b"\x52"))
    async with asyncio.timeout(30):
        assert identities([await first]) == [(0, "output", 1)]
    await stream.aclose()


@SEEDS
async def test_random_transactions_match_in_any_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "STEP", 3)
    monkeypatch.setattr(transactions, "AT_ONCE", 1_000)
    rng = random.Random(seed)
    watch, script_at = with_keychain()
    watch.add_script(MINE)
    watch.add_data(b"data")
    scripts = [MINE, b"\x51", b"\x52", push(b"data"), *(script_at(index) for index in range(60))]
    txs: list[bytes] = []
    outputs = [(bytes([number]) * 32, 0) for number in range(40)]
    for _ in range(60):
        spent = rng.sample(outputs, min(len(outputs), rng.choice((1, 1, 2, 9))))
        script_sig = push(b"data") if rng.random() < 0.1 else b""
        paid = [TxOut(rng.randrange(1_000), rng.choice(scripts)) for _ in range(rng.choice((1, 2, 7)))]
        txs.append(tx([TxIn(*outpoint, script_sig) for outpoint in spent], paid))
        outputs += [(txid(txs[-1]), index) for index in range(len(paid))]
    expected: set[tuple[str, bytes, int]] = set()
    brute, before = watch.copy(), -1
    while len(expected) > before:
        before = len(expected)
        expected |= {(str(match.kind), match.txid, match.index) for raw in txs for match in brute.match_tx(raw)}
    order = rng.sample(txs, len(txs))
    results = await found(Matcher(watch), order)
    matches = [(str(match.kind), match.txid, match.index) for each in results for match in each.matches]
    assert len(matches) == len(set(matches))
    assert set(matches) == expected
    assert all({match.txid for match in each.matches} == {txid(order[each.number])} for each in results)
    small = await found(Matcher(watch.copy()), order, remember=rng.randrange(20_000))
    assert {(str(match.kind), match.txid, match.index) for each in small for match in each.matches} <= expected


# Concurrent calls


async def test_call_that_waited_finds_what_the_other_call_learned() -> None:
    watch, script_at = with_keychain()
    matcher = Matcher(watch)
    both = tx([TxIn(bytes(32), 3)], [TxOut(1, script_at(0)), TxOut(2, script_at(25))])
    moving = asyncio.create_task(matcher.match_tx(pays(1, script_at(19))))
    await asyncio.sleep(0)  # it derives scripts in a thread
    assert [match.value for match in await matcher.match_tx(both)] == [1, 2]
    await moving


def test_matcher_can_be_used_in_one_loop_after_another() -> None:
    watch, script_at = with_keychain()
    matcher = Matcher(watch)

    async def both(index: int) -> None:
        await asyncio.gather(*(matcher.match_tx(pays(number, script_at(index))) for number in range(2)))

    asyncio.run(both(19))
    asyncio.run(both(39))


@pytest.mark.parametrize("call", ["match_tx", "match_txs", "match_block"])
async def test_cancelled_call_leaves_no_thread_that_changes_the_list(call: str) -> None:
    begun, going = threading.Event(), threading.Event()
    watch, script_at = with_keychain()

    def slow(index: int) -> bytes:
        if index >= 20:
            begun.set()
            going.wait(30)
        return script_at(index)

    watch = WatchList(REGTEST)
    watch.add_keychain("wallet", slow, lookahead=20)
    matcher, payment = Matcher(watch), pays(1, script_at(19))
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "match_tx": lambda: matcher.match_tx(payment),
        "match_txs": lambda: found(matcher, [payment]),
        "match_block": lambda: matcher.match_block(block_of(GENESIS, 5, [payment])),
    }
    task = asyncio.create_task(calls[call]())
    await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    other = asyncio.create_task(matcher.match_tx(pays(2, script_at(0))))
    await asyncio.sleep(0.01)
    assert not task.done()
    assert not other.done()
    going.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await other) == 1
    assert len(watch) == 40


# Real blocks


@pytest.mark.long
@real_block_cases()
async def test_stream_equals_block_scan_and_oracle(block: RealBlock) -> None:
    txs = [block.raw[span.start : span.end] for span in walk_block(block.raw)]
    parsed = CBlock.deserialize(block.raw)
    rng = random.Random(block.name)
    wallet = oracle.Wallet()
    every = [bytes(out.scriptPubKey) for each in parsed.vtx for out in each.vout if out.scriptPubKey]
    wallet.scripts = set(rng.sample(every, min(len(every), 200)))
    spent = {each.prevout.serialize() for one in parsed.vtx for each in one.vin}
    inside = [  # outputs that the block itself spends
        bytes(out.scriptPubKey)
        for one in parsed.vtx
        for n, out in enumerate(one.vout)
        if one.GetTxid() + n.to_bytes(4, "little") in spent and out.scriptPubKey
    ]
    wallet.scripts |= set(inside[:200])
    expected = {(kind, id_, index, value) for kind, id_, index, _, value in wallet.block(parsed)}
    watch = WatchList(block.network)
    for script in wallet.scripts:
        watch.add_script(script)
    by_block = {(str(m.kind), m.txid, m.index, m.value) for m in watch.copy().match_block(block.raw)}
    assert by_block == expected
    for order in (txs, txs[::-1], rng.sample(txs, len(txs))):
        results = await found(Matcher(watch.copy()), order)
        matches = [(str(m.kind), m.txid, m.index, m.value) for each in results for m in each.matches]
        assert len(matches) == len(set(matches))
        assert set(matches) == expected
        assert all(order[each.number] == each.raw for each in results)


# A node's filter


@pytest.mark.long
@real_block_cases()
async def test_filter_stream_equals_batch_and_oracle(block: RealBlock) -> None:
    txs = [block.raw[span.start : span.end] for span in walk_block(block.raw)]
    parsed = CBlock.deserialize(block.raw)
    rng = random.Random(block.name)
    pushes = [push for one in parsed.vtx for out in one.vout for push in oracle.pushed(bytes(out.scriptPubKey))]
    made = Bip37Filter(300, 0.001, 7)
    for each in rng.sample(pushes, min(len(pushes), 100)):
        made.insert(each)
    judge = oracle.Filter(bytes(made)[len(bytes(made)) - 9 - made.size : -9], made.hash_funcs, 7, 1)
    expected = [number for number, one in enumerate(parsed.vtx) if judge.relevant(one)]
    batch, stream = made.copy(), made.copy()
    assert [each.position for each in batch.match_txs(txs)] == expected
    assert [each.number async for each in relevant_txs(stream, slowly(txs))] == expected
    assert bytes(batch) == bytes(stream) == judge.payload()


async def test_filter_stream_reports_malformed_transactions() -> None:
    made = Bip37Filter.match_all()
    results = [each async for each in relevant_txs(made, [pays(1), b"", pays(2)])]
    assert [(each.number, each.error is None) for each in results] == [(0, True), (1, False), (2, True)]
    with pytest.raises(FormatError):
        [each async for each in relevant_txs(made, [b""], strict=True)]
