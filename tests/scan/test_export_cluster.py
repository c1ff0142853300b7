"""An export on a Dask cluster leaves the bytes of an export in one thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, DaskWorkers, Plan, TableExport
from support.blocks.undo import ledger_chain, write_chain
from support.commands.daskcluster import Cluster, client_of

pytestmark = [
    pytest.mark.dask,
    pytest.mark.columns,
    pytest.mark.usefixtures("nothing_of_distributed_is_left"),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),  # distributed leaves sockets open
]


@pytest.mark.slow
async def test_a_cluster_gives_the_same_bytes(two_workers: Cluster, tmp_path: Path) -> None:
    _, blocks, records = ledger_chain(3)
    plan = Plan.of(BlockFiles(write_chain(tmp_path, blocks, records)), REGTEST, part_size=2_000)
    await TableExport(tmp_path / "one", plan).run()
    async with client_of(two_workers) as client:
        engine = DaskWorkers(client)
        files = await TableExport(tmp_path / "cluster", plan).run(engine)
        await engine.aclose()
    assert len(files["inputs"]) == len(plan.parts) > 5
    for path in (path for paths in files.values() for path in paths):
        alone = tmp_path / "one" / path.relative_to((tmp_path / "cluster").absolute())
        assert path.read_bytes() == alone.read_bytes()
