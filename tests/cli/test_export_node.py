"""`export` of a node: its tables, messages and exit codes, new blocks, and a process that is killed."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.blocks.nodechains import chain_of, paid_chain, paid_regtest, told
from support.blocks.undo import spent_of
from support.commands.processes import line_with, started
from support.peers.corenode import PASSWORD, USER, CoreNode
from support.vectors import effort

pytestmark = pytest.mark.columns
Run = Callable[..., Any]
REGTEST = ("--network", "regtest")


@pytest.fixture
def core() -> Iterator[CoreNode]:
    with paid_chain().node().in_thread() as node:
        yield node


def rows_in(directory: Path) -> dict[str, list[Any]]:
    """The rows of each table, without the column that REST does not tell."""
    import pyarrow.parquet as pq

    found: dict[str, list[Any]] = {}
    for path in sorted(directory.glob("*/height*/*.parquet")):
        rows = found.setdefault(path.parent.parent.name, [])
        for row in pq.read_table(path, partitioning=None).to_pylist():
            rows.append({name: value for name, value in row.items() if name != "spent_block_number"})
    return found


def of_files(run: Run, core: CoreNode, folder: Path, *options: object) -> dict[str, list[Any]]:
    """The rows of an export of the same blocks in files."""
    folder.mkdir()
    chain = paid_chain().__class__(tuple(core.blocks))
    assert run("export", chain.files(folder), *REGTEST, "--out", folder / "out", *options).code == 0
    return rows_in(folder / "out")


@pytest.mark.slow
def test_the_tables_of_a_node_are_those_of_its_files(run: Run, core: CoreNode, tmp_path: Path) -> None:
    words = ("export", core.url, *REGTEST, "--out", tmp_path / "out", "--balances")
    ran = run(*words)
    assert (ran.code, ran.out) == (0, "")
    assert "114 blocks" in ran.err
    assert "1 part written in" in ran.err
    assert "inputs.spent_block_number is null: the node's REST interface does not report it" in ran.err
    assert rows_in(tmp_path / "out") == of_files(run, core, tmp_path / "files", "--balances")
    ran = run(*words)
    assert "since the last run: no new blocks; 1 part kept\n" in ran.err
    ran = run("export", core.url, *REGTEST, "--out", tmp_path / "some", "--from-height", 105, "--columns", "blocks")
    assert "spent_block_number" not in ran.err
    assert [row["number"] for row in rows_in(tmp_path / "some")["blocks"]] == list(range(105, 114))


@pytest.mark.slow
def test_by_rpc_nulls_are_named_unless_the_node_tells(run: Run, core: CoreNode, tmp_path: Path) -> None:
    core.rest = False
    words = ("export", core.url, *REGTEST, "--user", f"{USER}:{PASSWORD}", "--out")
    ran = run(*words, tmp_path / "without")
    assert ran.code == 0
    assert "without a usable undo record: their values of transactions.input_value, transactions.fee" in ran.err
    core.details = dict(zip(core.hashes, spent_of(core.blocks), strict=True))
    ran = run(*words, tmp_path / "with", "--undo", "require")
    assert ran.code == 0
    assert "are null" not in ran.err
    assert rows_in(tmp_path / "with") == of_files(run, core, tmp_path / "files")


@pytest.mark.slow
def test_blocks_that_a_node_has_pruned_are_named(run: Run, core: CoreNode, tmp_path: Path) -> None:
    core.pruned_below = 50
    ran = run("export", core.url, *REGTEST, "--out", tmp_path / "out")
    assert ran.code == 0
    assert "the blocks begin at height 50: earlier ones are not in this scan" in ran.err
    ran = run("export", core.url, *REGTEST, "--out", tmp_path / "late", "--from-height", 40)
    assert (ran.code, "missing: heights 40 to 49" in ran.err) == (1, True)


def test_options_of_a_node_are_checked(refused: Any, tmp_path: Path) -> None:
    refused("""
        export http://127.0.0.1:1 blk00000.dat --network regtest --out out
        export blk00000.dat --cookie x --network regtest --out out
        export http://127.0.0.1:1 --cookie x --user y --network regtest --out out
    """)
    assert not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(1, 2, 20)))
def test_a_killed_follower_continues_and_follows_reorganizations(run: Run, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    told(core, core.blocks)
    killed_at = rng.randrange(5, 130)  # requests

    with core.in_thread():
        words = ("export", core.url, *REGTEST, "--out", tmp_path / "out", "--follow", "--every", 1, "--coins")
        with started(*words) as (child, _):
            core.faults.append(lambda _: child.kill() if len(core.requests) == killed_at else None)
            child.wait(timeout=60)
        core.faults.clear()
        with started(*words) as (child, lines):
            line_with(" written in", lines)
            regtest.reorg(rng.choice((1, 30)))
            told(core, chain_of(regtest))
            assert "left the best chain" in line_with("since the last run", lines)
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=60) == 130
        assert rows_in(tmp_path / "out") == of_files(run, core, tmp_path / "files", "--coins")
