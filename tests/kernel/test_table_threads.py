"""WatchTable and walks from several threads: scans continue during changes by other threads, and no thread hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from spvfilter.kernel import NO_VALUE, EntryKind, Hit, WatchTable
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.kernels.kernelentries import native
from support.vectors import effort

ROUNDS = effort(60, 200, 5_000)
PATIENCE = 300  # seconds, where a few suffice
MINE = [build.p2wpkh(number.to_bytes(20, "big")) for number in range(50)]
FUNDING = build.tx([TxIn(b"\x11" * 32, 0)], [TxOut(number, script) for number, script in enumerate(MINE)])
SPENDING = [build.tx([TxIn(build.txid(FUNDING), number)], [TxOut(1, MINE[number])]) for number in range(len(MINE))]
BLOCK = build.block_of(build.GENESIS, 1, [FUNDING, *SPENDING])


def together(*work: Callable[[], object]) -> list[object]:
    """The results of these calls, which start together in their own threads."""
    start = threading.Barrier(len(work))

    def begin(one: Callable[[], object]) -> object:
        start.wait(PATIENCE)
        return one()

    with ThreadPoolExecutor(len(work)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(begin, one) for one in work]]


def watching() -> WatchTable:
    table = WatchTable()
    for script in MINE[::2]:
        table.add(EntryKind.SCRIPT, script)
    return table


@pytest.mark.native
def test_threads_that_share_a_walk_get_each_transaction_once() -> None:
    # The pure walk is a generator: Python itself refuses a second thread in it.
    for _ in range(ROUNDS):
        walk = native().walk_block(BLOCK)
        spans = together(*[lambda walk=walk: list(walk)] * 4)
        assert sorted(span for taken in spans for span in taken) == list(native().walk_block(BLOCK))  # type: ignore[attr-defined]


def test_two_threads_scan_while_a_third_learns() -> None:
    table = watching()
    least = table.scan_block(BLOCK)
    assert len(least) == 3 * len(MINE[::2])

    def scan() -> list[list[Hit]]:
        return [table.scan_block(BLOCK) for _ in range(ROUNDS)]

    def learn() -> None:
        for number in range(ROUNDS):
            table.add(EntryKind.SCRIPT, MINE[number % len(MINE)])
            table.add(EntryKind.SCRIPT, number.to_bytes(30, "big"))
            table.learn(least)
            table.set_coin(number.to_bytes(36, "big"), 0, NO_VALUE, None)

    first, second, _ = together(scan, scan, learn)
    assert isinstance(first, list)
    assert isinstance(second, list)
    for hits in first + second:
        assert len(hits) == len(set(hits))
        assert [hit for hit in hits if hit.entry < len(MINE[::2])] == least
        places = [(hit.position, not hit.spend, hit.n) for hit in hits]
        assert places == sorted(places)
    assert len(table.scan_block(BLOCK)) == 3 * len(MINE)
    assert len(list(table.coins())) == ROUNDS + 2 * len(MINE[::2])
    assert list(table.entries())[-1] == (EntryKind.SCRIPT, (ROUNDS - 1).to_bytes(30, "big"))


def test_threads_may_share_tables_and_found_coins() -> None:
    one, other, found = watching(), watching(), WatchTable()

    def scan(table: WatchTable, kept: WatchTable) -> Callable[[], object]:
        return lambda: [table.scan_block(BLOCK, kept) for _ in range(ROUNDS)]

    wanted = one.scan_block(BLOCK)
    results = together(scan(one, found), scan(other, found), scan(one, other), scan(other, one), scan(one, one))
    assert all(hits == wanted for result in results if isinstance(result, list) for hits in result)
    paid = {hit.outpoint for hit in wanted if not hit.spend}
    for table in (one, other, found):
        assert {point for point, _ in table.coins()} == paid


@pytest.mark.native
def test_a_compiled_copy_shows_one_moment_despite_writers() -> None:
    from spvfilter.kernel.native import WatchTable as Compiled

    table = Compiled()

    def add() -> None:
        for number in range(5 * ROUNDS):
            table.add(EntryKind.OUTPOINT, number.to_bytes(36, "big"))

    def copy() -> None:
        for _ in range(ROUNDS // 2):
            twin = table.copy()
            points = [value for _, value in twin.entries()]
            assert points == [point for point, _ in twin.coins()]
            assert all(twin.find(EntryKind.OUTPOINT, point) == number for number, point in enumerate(points))

    together(add, add, copy)
    assert [value for _, value in table.entries()] == [number.to_bytes(36, "big") for number in range(5 * ROUNDS)]


def test_the_table_that_learns_hits_may_make_them() -> None:
    table = watching()
    table.learn(hit for position in (0, 1) for hit in table.scan_block(BLOCK, table) if hit.position > position)
    assert len(list(table.coins())) == 2 * len(MINE[::2])


def test_iterators_are_shared_safely() -> None:
    table = WatchTable()
    for number in range(20 * ROUNDS):
        table.add(EntryKind.OUTPOINT, number.to_bytes(36, "big"))
    seen = sorted(value for part in together(*[lambda: list(table.entries())] * 3) for _, value in part)  # type: ignore[attr-defined]
    assert seen == sorted(3 * [number.to_bytes(36, "big") for number in range(20 * ROUNDS)])
