"""The coins at a height are those of a dictionary that follows every block, however many runs are merged."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bitcoin.core import CBlock

from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError, SourceError
from spvfilter.hashes import hash160
from spvfilter.network import MAINNET, REGTEST, Network
from spvfilter.scan import BlockFiles, BlockSpan, ExportColumns, Plan, TableExport, exportrun, sortedruns
from spvfilter.scan.coinset import check_whole, state_path, write_coins_table
from support.blocks import build
from support.blocks.build import TxIn, TxOut, block_hash
from support.blocks.chains import record as block_record
from support.blocks.realdata import runs
from support.blocks.undo import Ledger, Spent
from support.oracles.parquetfiles import facts
from support.vectors import effort

pytestmark = pytest.mark.columns
ONE_TABLE = ExportColumns.of({"blocks": ["number"]})


def coins_of(blocks: Sequence[bytes], first: int) -> list[tuple[bytes, int, int, bool, int, bytes]]:
    """The coins after some blocks, in order. Core has neither the genesis coin nor coins that nothing can spend."""
    coins: dict[tuple[bytes, int], Spent] = {}
    for height, raw in enumerate(blocks, first):
        for position, tx in enumerate(CBlock.deserialize(raw).vtx):
            if position:
                for txin in tx.vin:
                    coins.pop((txin.prevout.hash[::-1], txin.prevout.n), None)
            for n, out in enumerate(tx.vout):
                script = bytes(out.scriptPubKey)
                if height and not script.startswith(b"\x6a") and len(script) <= 10_000:
                    coins[tx.GetTxid()[::-1], n] = Spent(out.nValue, script, height, position == 0)
    return sorted((*key, coin.height, coin.coinbase, coin.value, coin.script) for key, coin in coins.items())


def p2pkh_of(script: bytes) -> bytes:
    """The P2PKH script of a P2PK script's key; another script as it is."""
    if len(script) in (35, 67) and script[0] == len(script) - 2 and script[-1] == 0xAC:
        return build.p2pkh(hash160(script[1:-1]))
    return script


def balances_of(
    coins: list[tuple[bytes, int, int, bool, int, bytes]], network: Network, *, credits_p2pk: bool
) -> list[tuple[str | None, bytes, int, int]]:
    """The balances of some coins, in the order of their scripts."""
    found: dict[bytes, list[int]] = {}
    for *_, value, script in coins:
        found.setdefault(p2pkh_of(script) if credits_p2pk else script, []).append(value)
    return [
        (script_to_address(script, network), script, sum(values), len(values))
        for script, values in sorted(found.items())
    ]


def addresses_in(path: Path) -> list[str | None]:
    import pyarrow.parquet as pq

    found: list[str | None] = pq.read_table(path, partitioning=None)["address"].to_pylist()
    return found


def balances_in(path: Path) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    table = pq.read_table(path, partitioning=None)
    assert table.schema.names == ["address", "script", "value", "coins"]
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def coins_in(path: Path) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    names = ["transaction_hash", "index", "block_number", "is_coinbase", "value", "script"]
    table = pq.read_table(path, columns=names, partitioning=None)
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def rooted_chain(seed: int, length: int = 40) -> list[bytes]:
    """A chain from block 1 on, whose transactions spend coins of the chain only."""
    ledger = Ledger(random.Random(seed), closed=True)
    blocks: list[bytes] = []
    previous = REGTEST.genesis_hash
    for height in range(1, 1 + length):
        blocks.append(ledger.block(previous, height))
        previous = block_hash(blocks[-1])
    return blocks


def plan_in(folder: Path, blocks: Sequence[bytes], magic: bytes = REGTEST.magic, **options: Any) -> Plan:
    folder.mkdir(exist_ok=True)
    (folder / "blk00000.dat").write_bytes(b"".join(block_record(raw, magic) for raw in blocks))
    return Plan.of(BlockFiles(folder, **options), REGTEST, part_size=2_000)


@pytest.mark.slow
@pytest.mark.vectors
async def test_coins_of_real_chains_are_those_of_a_dictionary(tmp_path: Path) -> None:
    for number, (_, blocks) in enumerate(runs()):
        if blocks[0].height:
            continue
        folder = tmp_path / f"{number}"
        folder.mkdir()
        network = blocks[0].network
        (folder / "blk00000.dat").write_bytes(b"".join(block_record(block.raw, network.magic) for block in blocks))
        plan = Plan.of(BlockFiles(folder), network, part_size=20_000)
        files = await TableExport(folder / "out", plan, ONE_TABLE, coins=True).run()
        coins = coins_of([block.raw for block in blocks], 0)
        assert coins_in(files["coins"][0]) == coins
        assert addresses_in(files["coins"][0]) == [script_to_address(coin[-1], network) for coin in coins]
        for credits_p2pk in (False, True):
            out = folder / f"balances {credits_p2pk}"
            exporting = TableExport(out, plan, ONE_TABLE, balances=True, credits_p2pk=credits_p2pk)
            (path,) = (await exporting.run())["balances"]
            expected = balances_of(coins, network, credits_p2pk=credits_p2pk)
            assert balances_in(path) == expected
            if network is MAINNET:  # its first coins belong to public keys
                assert {address is None for address, *_ in expected} == {not credits_p2pk}
            assert not (out / "coins").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(effort(2, 6, 60)))
async def test_coins_are_those_of_a_dictionary(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(sortedruns, "FAN", rng.choice([2, 3, 32]))
    monkeypatch.setattr(sortedruns, "BATCH_ROWS", rng.choice([1, 2, 7, 16_384]))
    monkeypatch.setattr(sortedruns, "WAITING_BYTES", rng.choice([1, 1_000, 1 << 25]))
    monkeypatch.setattr(sortedruns, "BATCH_BYTES", rng.choice([1, 1_000, 1 << 21]))
    blocks = rooted_chain(seed)
    height = rng.randrange(1, len(blocks) + 1)
    plan = plan_in(tmp_path / "data", blocks, span=BlockSpan(to_height=height))
    assert len(plan.parts) > 2 or height < 10
    files = await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True, balances=True).run()
    found = coins_in(state_path(tmp_path / "out", "coins", height))
    assert found == coins_of(blocks[:height], 1)
    assert balances_in(files["balances"][0]) == balances_of(found, REGTEST, credits_p2pk=False)
    assert not list((tmp_path / "out" / "parts").glob("*merged*"))


@pytest.mark.slow
async def test_the_table_of_coins_grows_with_the_chain(tmp_path: Path) -> None:
    blocks = rooted_chain(1)
    await TableExport(tmp_path / "out", plan_in(tmp_path / "data", blocks[:30]), ONE_TABLE, coins=True).run()
    plan = plan_in(tmp_path / "data", blocks)
    grown = TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True)
    files = await grown.run()
    assert grown.report.parts_kept > 3
    assert files["coins"] == list((tmp_path / "out" / "coins").glob("*/*"))
    assert coins_in(files["coins"][0]) == coins_of(blocks, 1)
    assert facts(files["coins"][0]) == (set(), {"transaction_hash", "index"})
    files["coins"][0].unlink()
    await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run()
    assert coins_in(files["coins"][0]) == coins_of(blocks, 1)
    await TableExport(tmp_path / "hex", plan, ExportColumns.of(is_hex=True), coins=True).run()
    in_hex = coins_in(state_path(tmp_path / "hex", "coins", 40))
    assert in_hex == [(coin[0].hex(), *coin[1:]) for coin in coins_of(blocks, 1)]


async def test_balances_grow_with_the_chain(tmp_path: Path) -> None:
    blocks = rooted_chain(1)
    for length in (30, 40):
        plan = plan_in(tmp_path / "data", blocks[:length])
        exporting = TableExport(tmp_path / "out", plan, ONE_TABLE, balances=True, credits_p2pk=True)
        for _ in range(2):
            (path,) = (await exporting.run())["balances"]
            assert path == state_path(tmp_path / "out", "balances", length)
            assert list((tmp_path / "out" / "balances").glob("*/*")) == [path]
            assert balances_in(path) == balances_of(coins_of(blocks[:length], 1), REGTEST, credits_p2pk=True)
    with pytest.raises(ParameterError, match="its table balances is with P2PK as P2PKH, not on"):
        await TableExport(tmp_path / "out", plan, ONE_TABLE, balances=True).run()
    with pytest.raises(ParameterError, match="credits_p2pk needs balances=True"):
        TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True, credits_p2pk=True)


async def test_coins_that_were_written_before_a_crash_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = rooted_chain(2)
    await TableExport(tmp_path / "out", plan_in(tmp_path / "data", blocks[:30]), ONE_TABLE, coins=True).run()
    plan = plan_in(tmp_path / "data", blocks)

    def killed(*_: object, **__: object) -> None:
        raise KeyError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(exportrun, "place", killed)
        with pytest.raises(KeyError, match="killed"):
            await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run()
    assert coins_in(state_path(tmp_path / "out", "coins", 30)) == coins_of(blocks[:30], 1)
    monkeypatch.setattr(exportrun, "write_coins_table", killed)
    (path,) = (await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run())["coins"]
    assert coins_in(path) == coins_of(blocks, 1)
    assert list((tmp_path / "out" / "coins").glob("*/*")) == [path]


async def test_coins_are_not_written_after_a_cancellation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_in(tmp_path / "data", rooted_chain(3, 10))
    writing, may_go = threading.Event(), threading.Event()

    def waits(*args: Any, **options: Any) -> None:
        writing.set()
        assert may_go.wait(60)
        write_coins_table(*args, **options)

    monkeypatch.setattr(exportrun, "write_coins_table", waits)
    exporting = asyncio.create_task(TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run())
    assert await asyncio.to_thread(writing.wait, 60)
    exporting.cancel()
    await asyncio.sleep(0)
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await exporting
    assert not list((tmp_path / "out").rglob("*coins.parquet"))
    await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run()
    assert coins_in(state_path(tmp_path / "out", "coins", 10)) == coins_of(rooted_chain(3, 10), 1)


async def test_a_coinbase_that_was_created_twice_is_one_coin(tmp_path: Path) -> None:
    twice = build.tx([TxIn(bytes(32), 0xFFFFFFFF, b"\x08height .")], [TxOut(50, b"\x51"), TxOut(7, b"\x52")])
    others = [build.tx([TxIn(bytes(32), 0xFFFFFFFF, b"\x08height %d" % n)], [TxOut(50, b"\x53")]) for n in range(3)]
    spend = build.tx([TxIn(build.txid(twice), 0)], [TxOut(50, b"\x54")])
    blocks = [REGTEST.genesis + b"\x01" + others[0]]
    for txs in ([others[0]], [twice], [others[1]], [twice], [others[2], spend]):
        blocks.append(build.block(block_hash(blocks[-1]), txs))
    for height in range(1, 6):
        plan = plan_in(tmp_path / "data", blocks, span=BlockSpan(to_height=height), undo="off")
        folder = tmp_path / f"{height}"
        await TableExport(folder, plan, ONE_TABLE, coins=True).run()
        assert coins_in(state_path(folder, "coins", height)) == coins_of(blocks[: height + 1], 0)
    last = coins_in(state_path(tmp_path / "5", "coins", 5))
    assert [coin[2] for coin in last if coin[0] == build.txid(twice)[::-1]] == [4]


@pytest.mark.parametrize("missing", [0, 5, 6])
def test_missing_blocks_are_refused(tmp_path: Path, missing: int) -> None:
    blocks = rooted_chain(1, 10)
    plan = plan_in(tmp_path / "data", blocks[:missing] + blocks[missing + 1 :])
    with pytest.raises(SourceError, match="coins and balances need every block since the genesis block"):
        TableExport(tmp_path / "out", plan, coins=True)
    assert check_whole(plan_in(tmp_path / "data", blocks)) == 10


def test_a_range_that_begins_later_is_refused(tmp_path: Path) -> None:
    plan = plan_in(tmp_path / "data", rooted_chain(1, 10), span=BlockSpan(from_height=4))
    with pytest.raises(SourceError, match="expected height 1, found height 4"):
        TableExport(tmp_path / "out", plan, coins=True)
    nothing = Plan.of(BlockFiles(tmp_path / "none"), REGTEST)
    with pytest.raises(SourceError, match="there are no blocks"):
        TableExport(tmp_path / "out", nothing, coins=True)


async def test_a_block_that_cannot_be_read_leaves_no_coins(tmp_path: Path) -> None:
    blocks = rooted_chain(1)
    plan = plan_in(tmp_path / "data", blocks)
    path = tmp_path / "data" / "blk00000.dat"
    raw = path.read_bytes()
    at = raw.index(blocks[7]) + len(blocks[7])
    path.write_bytes(raw[: at - 40] + b"\xff" * 40 + raw[at:])
    with pytest.raises(SourceError, match="coins need all blocks, but some could not be read"):
        await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run()
    assert not (tmp_path / "out" / "coins").exists()
    path.write_bytes(raw)
    files = await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run()
    assert coins_in(files["coins"][0]) == coins_of(blocks, 1)


async def test_a_run_that_was_cut_is_written_again(tmp_path: Path) -> None:
    blocks = rooted_chain(1)
    plan = plan_in(tmp_path / "data", blocks)
    await TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True).run()
    run = sorted((tmp_path / "out" / "parts").glob("*.coins"))[2]
    run.write_bytes(run.read_bytes()[:-3])
    export = TableExport(tmp_path / "out", plan, ONE_TABLE, coins=True)
    await export.run()
    assert export.report.parts_done == 1
