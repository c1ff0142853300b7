"""Scans that find silent payments: the same matches for any number of threads, order, source and batch."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from bitcoin.core import CBlock

from spvfilter import Match, Matcher, ParameterError, WatchList
from spvfilter.kernel import SilentCandidate, spent_outpoints
from spvfilter.network import REGTEST
from spvfilter.primitives import TxOut
from spvfilter.scan import BlockFiles, DaskWorkers, Engine, PartScan, Plan, Processes, Threads, scan_parts
from spvfilter.scan.silentparts import SilentTask, scan_keys
from spvfilter.silent.scanner import Inputs, read_inputs
from support.blocks.build import block_hash, outpoint
from support.blocks.chains import found_by
from support.blocks.silentpayments import SilentChain, Wallet, payment
from support.blocks.undo import Spent, write_chain
from support.vectors import effort

pytest.importorskip("btclib_secp256k1")

WALLET = Wallet(network=REGTEST)
Shown = tuple[object, bytes, int, int | None]


def watching() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_descriptor(WALLET.descriptor, "savings")
    watch.add_sp_label(1, "Alice")
    return watch


def shown(matches: list[Match]) -> list[Shown]:
    return [(each.kind, each.txid, each.index, each.sp_label) for each in matches]


@pytest.mark.usefixtures("small_batches_and_many_threads")
@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("seed", range(effort(4, 8, 60)))
async def test_files_with_undo_records_show_all_payments(tmp_path: Path, seed: int, jobs: int) -> None:
    chain = SilentChain(WALLET)
    matcher = Matcher(watching(), jobs=jobs)
    found = await found_by(matcher, BlockFiles(chain.write(tmp_path / "blocks"), undo="require"))
    assert sorted(shown(found), key=str) == sorted(chain.expected, key=str)
    assert {each.label for each in found if each.sp_label == 1} == {"Alice"}
    assert {each.keychain for each in found} == {str(WALLET.address())}
    assert all(each.fee is not None for each in found)
    report = matcher.report
    assert (report.candidates, report.unjudged, report.matches) == (5, 0, 7)


@pytest.mark.parametrize("kind", ["p2tr", "p2wpkh"])
async def test_payments_that_show_their_keys_are_found_without_undo(tmp_path: Path, kind: str) -> None:
    chain = SilentChain(WALLET, kind=kind)
    folder = chain.write(tmp_path / "blocks", has_undo=False)
    for source in (BlockFiles(folder), chain.blocks, iter(chain.blocks)):
        matcher = Matcher(watching())
        found = await found_by(matcher, source)
        expected = chain.expected if kind == "p2wpkh" else []
        assert sorted(shown(found), key=str) == sorted(expected, key=str)
        assert (matcher.report.candidates, matcher.report.unjudged) == ((5, 0) if kind == "p2wpkh" else (5, 5))


@pytest.mark.usefixtures("many_threads")
@pytest.mark.parametrize("seed", range(effort(3, 6, 60)))
async def test_blocks_in_any_order_show_the_same_matches(seed: int) -> None:
    chain = SilentChain(WALLET, kind="p2wpkh")
    blocks = chain.blocks.copy()
    random.Random(seed).shuffle(blocks)
    for source in (blocks, iter(blocks)):
        found = await found_by(Matcher(watching(), jobs=3), source)
        assert sorted(shown(found), key=str) == sorted(chain.expected, key=str)


async def test_a_stream_in_order_shows_payments_when_they_arrive() -> None:
    chain = SilentChain(WALLET, kind="p2wpkh")
    matcher = Matcher(watching())
    found = [match async for match in matcher.scan(iter(chain.blocks), in_order=True)]
    assert shown(found) == chain.expected
    assert matcher.report.late_scripts == 0


async def test_candidates_are_judged_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[object] = []

    def count(candidate: SilentCandidate) -> Inputs | None:
        judged.append(candidate)
        return read_inputs(candidate)

    monkeypatch.setattr("spvfilter.silent.search.read_inputs", count)
    chain = SilentChain(WALLET)
    await found_by(Matcher(watching(), jobs=2), BlockFiles(chain.write(tmp_path / "blocks")))
    assert len(judged) == 5


async def test_batches_and_other_entries_have_their_matches(tmp_path: Path) -> None:
    chain = SilentChain(WALLET)
    watch = watching()
    watch.add_script(b"\x51")
    matcher = Matcher(watch)
    blocks = BlockFiles(chain.write(tmp_path / "blocks"))
    found = [match async for batch in matcher.scan_batches(blocks) for match in batch.matches()]
    silent = [each for each in found if each.keychain is not None]
    assert sorted(shown(silent), key=str) == sorted(chain.expected, key=str)
    assert len(found) > len(silent)


async def test_a_truncated_undo_file_is_reported(tmp_path: Path) -> None:
    chain = SilentChain(WALLET)
    folder = chain.write(tmp_path / "blocks")
    path = folder / "rev00000.dat"
    path.write_bytes(path.read_bytes()[:150])
    matcher = Matcher(watching())
    found = await found_by(matcher, BlockFiles(folder))
    assert matcher.report.undo_problems
    assert set(shown(found)) <= set(chain.expected)
    assert len(matcher.report.without_undo) >= matcher.report.unjudged >= 1


async def parts_of(
    folder: Path, blocks: Path, watch: WatchList, engine: Engine | None = None, size: int = 1_000
) -> tuple[bytes, PartScan]:
    """The bytes of the matches of a scan in parts, and the scan."""
    scan = PartScan(folder, Plan.of(BlockFiles(blocks), REGTEST, part_size=size, directory=folder), watch)
    path = await scan_parts(scan, "jsonl", engine)
    return path.read_bytes(), scan


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "engine", [None, lambda: Threads(3), lambda: Processes(2)], ids=["one", "threads", "processes"]
)
async def test_a_scan_in_parts_shows_all_payments(tmp_path: Path, engine: Callable[[], Engine] | None) -> None:
    chain = SilentChain(WALLET)
    blocks = chain.write(tmp_path / "blocks")
    made = None if engine is None else engine()
    try:
        found, scan = await parts_of(tmp_path / "out", blocks, watching(), made)
    finally:
        if made is not None:
            await made.aclose()
    rows = [json.loads(line) for line in found.splitlines()]
    shown = [(row["kind"], row["txid"], row["index"], row["label"]) for row in rows]
    labels = {None: "savings", 0: "savings", 1: "Alice"}
    assert shown == [(str(kind), txid[::-1].hex(), n, labels[label]) for kind, txid, n, label in chain.expected]
    assert (scan.report.candidates, scan.report.unjudged) == (5, 0)
    assert len(scan.plan.parts) > 1
    again, resumed = await parts_of(tmp_path / "out", blocks, watching())
    assert again == found
    assert resumed.report.parts_total == 0
    for path in (tmp_path / "out").rglob("*"):
        raw = path.read_bytes() if path.is_file() else b""
        for secret in (WALLET.scan_key, WALLET.scan_key.hex().encode(), WALLET.scan_text.encode(), *tweaks()):
            assert secret not in raw


def tweaks() -> list[bytes]:
    """The tweaks of all payments, which only the wallet's own files may contain."""
    watch = watching()
    chain = SilentChain(WALLET)
    for raw, record in zip(chain.blocks, chain.records, strict=True):
        watch.match_block(raw, spent=record)
    found = [each.tweak for each in watch.windows.silent[0].found.values()]
    assert len(found) == 3
    return found


async def test_a_growing_chain_has_the_rows_of_a_new_scan(tmp_path: Path) -> None:
    chain = SilentChain(WALLET)
    whole = chain.write(tmp_path / "whole")
    expected, _ = await parts_of(tmp_path / "new", whole, watching())
    grown = tmp_path / "grown"
    for count in (4, 6, len(chain.blocks)):
        write_chain(grown, chain.blocks[:count], chain.records[:count])
        found, _ = await parts_of(tmp_path / "out", grown, watching())
    assert found == expected


async def test_another_wallet_is_another_scan(tmp_path: Path) -> None:
    blocks = SilentChain(WALLET).write(tmp_path / "blocks")
    await parts_of(tmp_path / "out", blocks, watching())
    other = WatchList(REGTEST)
    other.add_descriptor(Wallet(scan=5, network=REGTEST).descriptor)
    labelled = watching()
    labelled.add_sp_label(2)
    for watch in (other, labelled, WatchList.from_addresses([])):
        with pytest.raises(ParameterError):
            await parts_of(tmp_path / "out", blocks, watch)


async def test_a_cluster_gets_a_scan_key_on_request_only(tmp_path: Path) -> None:
    blocks = SilentChain(WALLET).write(tmp_path / "blocks")
    scan = PartScan(tmp_path / "out", Plan.of(BlockFiles(blocks), REGTEST), watching())
    engine = DaskWorkers(object())
    keys = scan_keys(watching().windows.silent)
    task = SilentTask(scan.plan.parts[0], tmp_path / "x", bytes(32), "auto", False, None, keys)
    with pytest.raises(ParameterError, match="send_scan_key=True"):
        await engine.run(task)
    assert WALLET.scan_key.hex() not in repr(task)


async def test_a_stream_finds_payments_and_spends_in_any_order() -> None:
    chain = SilentChain(WALLET)
    coins: dict[bytes, Spent] = {}
    for raw, spent in zip(chain.blocks, chain.spent, strict=True):
        coins |= of(raw, spent)

    async def spent_by(raw: bytes) -> list[TxOut]:
        return [TxOut(coins[point].value, coins[point].script) for point in spent_outpoints(raw)]

    txs = [bytes(tx.serialize()) for raw in chain.blocks for tx in CBlock.deserialize(raw).vtx[1:]]
    for order in (txs, txs[::-1]):
        matcher = Matcher(watching())
        found = [match async for each in matcher.match_txs(order, spent=spent_by) for match in each.matches]
        assert sorted(shown(found), key=str) == sorted(chain.expected, key=str)
        assert (matcher.report.candidates, matcher.report.unjudged) == (5, 0)
    blind = Matcher(watching())
    assert [each async for each in blind.match_txs(txs)] == []
    assert (blind.report.candidates, blind.report.unjudged) == (5, 5)


def of(raw: bytes, spent: list[list[Spent]]) -> dict[bytes, Spent]:
    """The coins that a block spends, by their outpoints."""
    txs = CBlock.deserialize(raw).vtx[1:]
    return {
        outpoint(each.prevout.hash, each.prevout.n): coin
        for tx, coins in zip(txs, spent, strict=True)
        for each, coin in zip(tx.vin, coins, strict=True)
    }


async def test_transactions_and_blocks_take_their_spent_outputs() -> None:
    chain = SilentChain(WALLET)
    matcher = Matcher(watching())
    found = [
        match
        for raw, record in zip(chain.blocks, chain.records, strict=True)
        for match in await matcher.match_block(raw, spent=record)
    ]
    assert shown(found) == chain.expected
    assert {each.block_hash for each in found} <= set(map(block_hash, chain.blocks))


async def test_a_label_revealed_during_a_stream_is_found() -> None:
    watch = WatchList(REGTEST)
    watch.add_descriptor(WALLET.descriptor)
    matcher = Matcher(watch)
    raw, coins = payment([WALLET.address(5)])

    async def txs() -> AsyncIterator[bytes]:
        yield payment([WALLET.address()], salt=2)[0]
        watch.add_sp_label(5, "Carol")
        yield raw

    async def spent_by(tx: bytes) -> list[TxOut]:
        return coins if tx == raw else payment([WALLET.address()], salt=2)[1]

    found = [match async for each in matcher.match_txs(txs(), spent=spent_by) for match in each.matches]
    assert [each.sp_label for each in found] == [None, 5]
