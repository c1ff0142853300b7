"""An export of a real Bitcoin Core: by REST and by RPC it has the rows of an export of Core's own files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from spvfilter.kernel.blocktables import BLOCK_TABLES
from spvfilter.network import REGTEST
from spvfilter.rpc import CookieFile, FullNode
from spvfilter.scan import BlockFiles, ExportColumns, NodeBlocks, NodeExport, Plan, TableExport
from support.oracles.bitcoind import Bitcoind, running_bitcoind

pytestmark = [pytest.mark.bitcoind, pytest.mark.columns]
PART_SIZE = 5_000  # bytes
STATES: dict[str, Any] = {"coins": True, "balances": True}
EVERYTHING = ExportColumns.of({table: ["all"] for table in BLOCK_TABLES})
TRANSACTIONS = 15


def tables(out: Path, *, has_heights: bool = True) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, in the order of their heights."""
    import pyarrow.parquet as pq

    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(out.glob("*/height*/*.parquet")):
        found.setdefault(path.parent.parent.name, []).extend(pq.read_table(path, partitioning=None).to_pylist())
    for row in found["inputs"] if not has_heights else ():
        row["spent_block_number"] = None
    return found


async def live(core: Bitcoind, draw: random.Random) -> None:
    """Replace some of the last blocks, and mine blocks with payments."""
    tip = await core.call("getblockcount")
    await core.call("invalidateblock", await core.call("getblockhash", tip - draw.choice((0, 2, 9))))
    address = await core.call("getnewaddress", wallet="payer")  # another coinbase makes another block
    await core.call("generatetoaddress", 12, address)
    for _ in range(TRANSACTIONS):
        kind = draw.choice(("legacy", "p2sh-segwit", "bech32", "bech32m"))
        paid = await core.call("getnewaddress", "", kind, wallet="payer")
        await core.call("sendtoaddress", paid, draw.randint(1, 90) / 100, wallet="payer")
        if draw.random() < 0.3:
            await core.call("generatetoaddress", draw.randint(1, 3), address)
    await core.call("generatetoaddress", 1, address)


@pytest.mark.long
async def test_a_node_exports_the_rows_of_its_files(tmp_path: Path) -> None:
    draw, folder = random.Random(52), tmp_path / "core"
    folder.mkdir()
    async with running_bitcoind(folder, "-rest=1") as core:
        await core.call("createwallet", "payer")
        address = await core.call("getnewaddress", wallet="payer")
        await core.call("generatetoaddress", 110, address)
        async with FullNode.open(core.url, REGTEST) as node:
            export = NodeExport(
                tmp_path / "rest",
                NodeBlocks(node, undo="require"),
                EVERYTHING,
                check=True,
                part_size=PART_SIZE,
                round_size=20_000,
                **STATES,
            )
            for number in range(3):
                await live(core, draw)
                await export.run()
                plan = Plan.of(BlockFiles(folder / "regtest/blocks"), REGTEST, part_size=PART_SIZE)
                files = tmp_path / f"files{number}"
                await TableExport(files, plan, EVERYTHING, check=True, **STATES).run()
                assert tables(tmp_path / "rest") == tables(files, has_heights=False)
                assert not export.report.summary.by_outpoint
            assert export.report.change is not None
            assert export.report.change.gone
        await core.stop()
        core.options = ()
        await core.start()
        cookie = CookieFile(folder / "regtest/.cookie")
        async with FullNode.open(core.url, REGTEST, credentials=cookie) as node:
            blocks = NodeBlocks(node, undo="require")
            await NodeExport(tmp_path / "rpc", blocks, EVERYTHING, part_size=PART_SIZE, **STATES).run()
        assert tables(tmp_path / "rpc") == tables(files)
