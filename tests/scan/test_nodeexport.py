"""An export of a node has the rows of an export of the node's files, whatever the chain does and whenever it stops."""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import DirectoryInUseError, NodePrunedError, ParameterError, SourceError
from spvfilter.kernel.blocktables import BLOCK_TABLES
from spvfilter.network import REGTEST, Network
from spvfilter.primitives import TxOut
from spvfilter.rpc import FullNode, Listing, Password
from spvfilter.scan import (
    BlockFiles,
    BlockSpan,
    ExportColumns,
    NodeBlocks,
    NodeExport,
    Part,
    Plan,
    TableExport,
    exportrun,
    nodeexport,
    partrows,
    partrun,
)
from spvfilter.scan.finishedparts import FinishedPart, continued_plan
from spvfilter.scan.partdirectory import PartDirectory
from spvfilter.scan.partrows import PartRows
from spvfilter.scan.plan import planned
from spvfilter.scan.spool import SpooledFiles
from support.blocks.nodechains import MINE, SPANS, NodeChain, chain_of, paid_regtest, told
from support.blocks.undo import spent_of
from support.client.pauses import Pauses
from support.peers.corenode import PASSWORD, USER, CoreNode
from support.vectors import effort

pytestmark = [pytest.mark.columns, pytest.mark.usefixtures("nothing_is_left")]
SMALL = 2_000  # bytes of a part
COLUMNS = ExportColumns.of({"blocks": ["number", "hash"], "transactions": ["hash", "fee"], "inputs": ["value", "type"]})
EVERYTHING = ExportColumns.of({table: ["all"] for table in BLOCK_TABLES})
STATES: dict[str, Any] = {"coins": True, "balances": True, "credits_p2pk": True}


@pytest.fixture(autouse=True)
def small_spools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeexport, "REORGANIZED", 3)
    monkeypatch.setattr(nodeexport, "FILE_SIZE", 900)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # only the machine's end needs it


def opened(core: CoreNode, way: str = "rest") -> AbstractAsyncContextManager[FullNode]:
    core.rest = way == "rest"
    credentials = Password(USER, PASSWORD) if way == "rpc" else None
    return FullNode.open(core.url, REGTEST, credentials=credentials, patience=Pauses().patience())


def export_of(out: Path, node: FullNode, span: BlockSpan | None = None, **options: Any) -> NodeExport:
    blocks = NodeBlocks(node, span=span, undo=options.pop("undo", "auto"), allow_gaps=True)
    return NodeExport(out, blocks, options.pop("columns", COLUMNS), part_size=SMALL, **options)


def tables(out: Path) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables, in the order of their heights. Tables of a state also have their height."""
    import pyarrow.parquet as pq

    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(out.glob("*/height*/*.parquet")):
        state = {"at": path.parent.name} if path.parent.name.startswith("height=") else {}
        rows = found.setdefault(path.parent.parent.name, [])
        rows += [state | row for row in pq.read_table(path, partitioning=None).to_pylist()]
    return found


def plan_of(
    folder: Path, blocks: list[bytes], span: BlockSpan | None = None, undo: str = "auto", *, has_undo: bool = True
) -> Plan:
    """The plan of blocks, which this function writes to files."""
    folder.mkdir()
    NodeChain(tuple(blocks)).files(folder, undo=has_undo)
    plan = Plan.of(BlockFiles(folder, span=span, undo=undo), REGTEST, part_size=SMALL)
    assert plan.report.heights.is_whole
    return plan


async def of_files(plan: Plan, out: Path, **options: Any) -> dict[str, Any]:
    """The tables of an export of files."""
    await TableExport(out, plan, options.pop("columns", COLUMNS), **options).run()
    return tables(out)


def spooled(out: Path) -> list[Path]:
    return sorted((out / ".spvfilter-blocks").glob("*.dat"))


def compared(out: Path) -> Callable[..., Plan]:
    """`continued_plan` with an assertion: it returns the plan that reads all blocks of the finished parts."""

    def plan(settled: list[FinishedPart], folder: Path, network: Network, part_size: int, **rest: Any) -> Plan:
        made = continued_plan(settled, folder, network, part_size, **rest)
        files = SpooledFiles(BlockFiles(folder, undo=rest["mode"], span=rest["span"]), 0)
        if len(files):
            whole, _ = planned(files, network, part_size, out)
            assert [identity(part) for part in made.parts] == [identity(part) for part in whole.parts]
            assert made.fingerprint == whole.fingerprint
            assert made.report == whole.report
        return made

    return plan


def identity(part: Part) -> tuple[Any, ...]:
    blocks = part.fingerprint if part.kept else part.rows  # the places of blocks that are gone do not matter
    return part.number, blocks, part.previous, part.size, part.kept, part.files


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(2, 4, 200)))
async def test_any_life_of_a_node_gives_its_files_tables(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodeexport, "continued_plan", compared(tmp_path / "out"))
    rng = random.Random(seed)
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    core.faults.append(lambda asked: b"" if "block/" in asked.path and rng.random() < 0.02 else None)
    out, states = tmp_path / "out", STATES if rng.random() < 0.5 else {}
    options = states | {"round_size": rng.choice((1_500, 9_000, 10**9))}
    async with core.serving(), opened(core) as node:
        known = [export_of(out, node, **options) for _ in range(2)]  # as two processes that follow the chain
        for number in range(6):
            if rng.random() < 0.4:
                regtest.reorg(rng.choice((1, 2, 5, 40, 100)))
            for _ in range(rng.randrange(4)):
                regtest.pay(TxOut(rng.randrange(1_000, 10_000), MINE))
                regtest.mine(rng.randint(1, 3))
            told(core, chain_of(regtest))
            if rng.random() < 0.5:
                await killed_after(rng.randrange(60), monkeypatch, rng.choice(known))
            if rng.random() < 0.1:
                for path in spooled(out):
                    path.write_bytes(path.read_bytes()[: rng.randrange(300)])
            export = rng.choice([*known, known[0], export_of(out, node, **options)])
            files = await export.run()
            expected = await of_files(plan_of(tmp_path / f"{number}", core.blocks), tmp_path / f"out{number}", **states)
            assert tables(out) == expected
            assert set(files) == {"blocks", "transactions", "inputs"} | ({"coins", "balances"} if states else set())
            assert {path for paths in files.values() for path in paths} == set(out.glob("*/height*/*"))
            assert {part.kept for part in export.plan.parts} - {""} <= {path.name for path in out.glob("parts/*.part")}
            assert len(list((out / "parts").iterdir())) == len(export.plan.parts) * (3 if states else 2)
            assert export.plan.tip == core.hashes[-1]
            assert not export.report.summary.problems
            assert export.heights.is_whole


async def killed_after(left: int, monkeypatch: pytest.MonkeyPatch, export: NodeExport) -> None:
    """Run an export, whose changes of files all fail after some of them, as if the process were dead."""

    def dies(name: str) -> Callable[..., object]:
        change = getattr(Path, name)

        def changed(*args: object, **rest: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise OSError("killed")
            return change(*args, **rest)

        return changed

    with monkeypatch.context() as patched:
        for name in ("replace", "unlink", "rmdir", "mkdir"):
            patched.setattr(Path, name, dies(name))
        try:
            await export.run()
        except OSError as error:
            assert "killed" in str(error)


@pytest.mark.long
@pytest.mark.parametrize("span", SPANS)
async def test_a_range_equals_that_of_files(tmp_path: Path, span: BlockSpan) -> None:
    regtest = paid_regtest()
    core = CoreNode([])
    out = tmp_path / "out"
    async with core.serving():
        for number in range(3):
            told(core, chain_of(regtest))
            async with opened(core) as node:
                export = export_of(out, node, span, round_size=3_000)
                await export.run()
            assert tables(out) == await of_files(
                plan_of(tmp_path / f"{number}", core.blocks, span), tmp_path / f"out{number}"
            )
            assert export.heights.is_whole
            regtest.reorg(3)
            regtest.mine(4)


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["rest", "rpc"])
@pytest.mark.parametrize("undo", ["auto", "off"])
async def test_without_spent_outputs_their_columns_are_null(tmp_path: Path, way: str, undo: str) -> None:
    core = CoreNode(chain_of(paid_regtest()))
    async with core.serving(), opened(core, way) as node:
        export = export_of(tmp_path / "out", node, undo=undo)
        await export.run()
    found = tables(tmp_path / "out")
    assert found == await of_files(
        plan_of(tmp_path / "files", core.blocks, undo=undo, has_undo=False), tmp_path / "expected"
    )
    assert {row["value"] for row in found["inputs"]} == {None}
    assert export.report.summary.by_outpoint == sum(map(bool, spent_of(core.blocks)))


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["rest", "rpc"])
async def test_spent_outputs_come_from_the_blocks_in_json(tmp_path: Path, way: str) -> None:
    core = CoreNode(chain_of(paid_regtest()))
    core.details = dict(zip(core.hashes, spent_of(core.blocks), strict=True))
    async with core.serving(), opened(core, way) as node:
        await export_of(tmp_path / "out", node, undo="require", columns=EVERYTHING).run()
    plan = plan_of(tmp_path / "files", core.blocks)
    expected = await of_files(plan, tmp_path / "expected", columns=EVERYTHING)
    assert tables(tmp_path / "out") == expected
    assert {row["spent_block_number"] for row in expected["inputs"]} > {1}


@pytest.mark.slow
async def test_an_export_of_files_is_continued_from_the_node(tmp_path: Path) -> None:
    regtest = paid_regtest()
    blocks = chain_of(regtest)
    NodeChain(tuple(blocks)).files(tmp_path)
    plan = Plan.of(BlockFiles(tmp_path / "blk00000.dat"), REGTEST, part_size=SMALL)
    await TableExport(tmp_path / "out", plan, COLUMNS).run()
    core = CoreNode(blocks)
    told(core, blocks)
    async with core.serving(), opened(core) as node:
        for more in range(3):
            export = export_of(tmp_path / "out", node)
            await export.run()
            assert tables(tmp_path / "out") == await of_files(
                plan_of(tmp_path / f"{more}", core.blocks), tmp_path / f"out{more}"
            )
            assert export.report.change == (more, 0)
            regtest.mine(more + 1)
            told(core, chain_of(regtest))
    assert f"/rest/block/{core.hashes[5][::-1].hex()}.bin" not in {asked.path for asked in core.requests}


@pytest.mark.slow
async def test_a_pruned_node_gives_the_blocks_that_it_has(tmp_path: Path) -> None:
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest), pruned_below=50)
    told(core, core.blocks)
    async with core.serving(), opened(core) as node:
        export = export_of(tmp_path / "out", node)
        await export.run()
        assert export.heights.found == ((50, len(core.blocks) - 1),)
        assert export.heights.is_whole
        core.pruned_below = 80
        regtest.mine(5)
        told(core, chain_of(regtest))
        await export.run()
        assert [row["number"] for row in tables(tmp_path / "out")["blocks"]] == list(range(50, len(core.blocks)))
        late = export_of(tmp_path / "late", node, BlockSpan(30))
        await late.run()
        assert late.heights.gaps == ((30, 79),)
        timed = export_of(tmp_path / "timed", node, BlockSpan(None, None, 1_700_000_000))
        for _ in range(2):
            await timed.run()
            assert timed.heights.begins_late
        with pytest.raises(SourceError, match="every block since the genesis block"):
            await export_of(tmp_path / "coins", node, coins=True).run()
        regtest.mine(10)
        told(core, chain_of(regtest))
        core.pruned_below = len(core.blocks) - 3
        with pytest.raises(NodePrunedError, match=r"the export in .* needs next"):
            await export.run()


@pytest.mark.slow
async def test_a_block_pruned_during_the_export_is_an_error(tmp_path: Path) -> None:
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest), lacking={60})
    told(core, core.blocks)
    async with core.serving(), opened(core) as node:
        export = export_of(tmp_path / "out", node, round_size=3_000)
        with pytest.raises(NodePrunedError, match="does not have block"):
            await export.run()
        core.lacking.clear()
        await export.run()
    assert tables(tmp_path / "out") == await of_files(plan_of(tmp_path / "files", core.blocks), tmp_path / "expected")


@pytest.mark.slow
async def test_a_block_pruned_by_a_reorganization_is_passed_over(tmp_path: Path) -> None:
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    told(core, core.blocks)
    stale = core.hashes[-1]

    def leaves(asked: Any) -> None:
        if f"block/{stale[::-1].hex()}" in asked.path and core.hashes[-1] == stale:
            regtest.reorg(4)
            told(core, chain_of(regtest))
            del core.known[stale]

    core.faults.append(leaves)
    async with core.serving(), opened(core) as node:
        await export_of(tmp_path / "out", node).run()
    assert tables(tmp_path / "out") == await of_files(plan_of(tmp_path / "files", core.blocks), tmp_path / "expected")


@pytest.mark.slow
async def test_a_node_that_reads_its_blocks_again_removes_nothing(tmp_path: Path) -> None:
    core = CoreNode(chain_of(paid_regtest()))
    told(core, core.blocks)
    blocks = core.blocks
    async with core.serving(), opened(core) as node:
        export = export_of(tmp_path / "out", node)
        await export.run()
        before = tables(tmp_path / "out")
        for left in (60, 1):
            told(core, blocks[:left])
            await export.run()
            assert tables(tmp_path / "out") == before
            assert export.report.change == (0, 0)


@pytest.mark.slow
async def test_the_spool_is_small_and_a_shallow_fork_fetches_little(tmp_path: Path) -> None:
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    told(core, core.blocks)
    async with core.serving(), opened(core) as node:
        export = export_of(tmp_path / "out", node)
        await export.run()
        assert sum(path.stat().st_size for path in spooled(tmp_path / "out")) < 4 * SMALL
        await export.run()
        assert export.report.change == (0, 0)
        regtest.reorg(2)
        told(core, chain_of(regtest))
        core.requests.clear()
        await export.run()
        assert export.report.change == (3, 2)
        assert sum("/block/" in asked.path for asked in core.requests) == 3


@pytest.mark.long
async def test_a_new_block_costs_the_same_on_a_longer_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    steps: Counter[str] = Counter()
    watching = [True]

    def opened_file(event: str, details: tuple[object, ...]) -> None:
        if watching and event in {"open", "os.listdir", "os.scandir"} and str(tmp_path) in str(details[0]):
            steps["files"] += 1

    sys.addaudithook(opened_file)  # it stays until the process ends, so `watching` stops it
    for module, name in ((partrows, "read_rows"), (partrun, "summary_of"), (exportrun, "export_key")):
        counts_calls(monkeypatch, steps, module, name)
    rows_read = FinishedPart.of

    def of(rows: PartRows, *rest: Any) -> FinishedPart:
        steps["rows"] += len(rows)
        return rows_read(rows, *rest)

    monkeypatch.setattr(FinishedPart, "of", of)
    costs: list[Counter[str]] = []
    async with core.serving(), opened(core) as node:
        export = export_of(tmp_path / "out", node)
        for more in (1, 1, 1, 1, 150, 1, 1, 1, 0):
            if not more:
                regtest.reorg(2)
            regtest.mine(more)
            told(core, chain_of(regtest))
            steps.clear()
            core.requests.clear()
            await export.run()
            steps["requests"] = len(core.requests)
            steps["rows"] += sum(len(part) for part in export.plan.parts if not part.kept)
            costs.append(+steps)
    watching.clear()
    assert len(export.plan.parts) > 35
    most = {name: max(cost[name] for cost in costs[1:4]) for name in steps}
    assert most["rows"] < 40
    # a part may end in between, and two blocks that are exchanged are fetched again
    for cost, factor in zip(costs[5:], (1.5, 1.5, 1.5, 4), strict=True):
        assert all(cost[name] <= factor * most[name] for name in steps), costs
    assert tables(tmp_path / "out") == await of_files(plan_of(tmp_path / "files", core.blocks), tmp_path / "expected")


def counts_calls(monkeypatch: pytest.MonkeyPatch, steps: Counter[str], module: Any, name: str) -> None:
    call = getattr(module, name)

    def counted(*args: Any) -> Any:
        steps[name] += 1
        return call(*args)

    monkeypatch.setattr(module, name, counted)


@pytest.mark.slow
async def test_other_blocks_and_directories_are_refused(tmp_path: Path) -> None:
    core = CoreNode(chain_of(paid_regtest()))
    async with core.serving(), opened(core) as node:
        with pytest.raises(ParameterError, match="with a span, not with a listing"):
            NodeExport(tmp_path, NodeBlocks(node, listing=Listing(0, b"", b"")))
        with pytest.raises(ParameterError, match="at least 1 byte, not 0"):
            NodeExport(tmp_path, NodeBlocks(node), round_size=0)
        with pytest.raises(ParameterError, match="needs balances=True"):
            NodeExport(tmp_path, NodeBlocks(node), credits_p2pk=True)
        core.requests.clear()
        (tmp_path / "file").touch()
        with pytest.raises(ParameterError, match="is not empty and contains no scan or export"):
            await export_of(tmp_path, node).run()
        export = export_of(tmp_path / "out", node)
        await export.run()
        core.requests.clear()
        with pytest.raises(ParameterError, match="holds a different export"):
            await export_of(tmp_path / "out", node, BlockSpan(5)).run()
        spool = PartDirectory(tmp_path / "out" / ".spvfilter-blocks")
        with spool.locked(), pytest.raises(DirectoryInUseError, match="another scan or export of this process"):
            await export.run()
        assert not core.requests
