"""A cluster builds the same filters as one process, and builds the file of each part once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from spvfilter import cli
from spvfilter.cli.cfilter import cluster
from spvfilter.files import FileLock
from spvfilter.network import REGTEST, Network
from spvfilter.primitives import hash_to_hex
from spvfilter.scan import BlockFiles, Part, Plan, cluster_filters, part_filters
from support.blocks.build import block_hash, block_of
from support.blocks.chains import record
from support.blocks.undo import framed, node_records
from support.commands.daskcluster import Cluster

pytestmark = [
    pytest.mark.dask,
    pytest.mark.vectors,
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
    ),  # sockets of distributed
]


class SmallParts:
    """A replacement for Plan with small parts."""

    @staticmethod
    def of(files: BlockFiles, network: Network) -> Plan:
        return Plan.of(files, network, part_size=9_000)


@pytest.fixture(scope="module")
def worker() -> Iterator[Cluster]:
    made = Cluster(1)
    yield made
    made.end()


@pytest.fixture
def blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The blocks of a node and their undo records, cut into parts of some blocks."""
    folder = tmp_path / "blocks"
    folder.mkdir()
    (folder / "blk00000.dat").write_bytes(b"".join(map(record, node_records("blk00000.dat", 0))))
    (folder / "rev00000.dat").write_bytes(b"".join(map(framed, node_records("rev00000.dat", 32))))
    of = Plan.of
    monkeypatch.setattr(
        cluster,
        "Plan",
        type("Small", (), {"of": staticmethod(lambda files, network: of(files, network, part_size=9_000))}),
    )
    return folder


def build(blocks: Path, *more: str) -> int:
    return cli.main(["cfilter", "build", str(blocks), "--network", "regtest", *more])


def lines_in(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(out.iterdir()) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_a_cluster_builds_the_same_filters_once(
    worker: Cluster, blocks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build(blocks, "--format", "jsonl") == 0
    expected = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    out = tmp_path / "out"
    dask = ["--dask", worker.address, "--out", str(out)]
    assert build(blocks, *dask) == 0
    files = sorted(out.iterdir())
    assert len(files) > 3
    made = {line["block"] for line in lines_in(out)}
    assert lines_in(out) == [line for line in expected if line["block"] in made]
    assert len(expected) - len(made) == 3  # stale blocks
    assert all(line["filter_header"] for line in expected)
    whole = {path.name: path.read_bytes() for path in files}
    asked: list[int] = []

    def noting(client: object, parts: list[Part]) -> object:
        asked.append(len(parts))
        return cluster_filters(client, parts)

    monkeypatch.setattr(cluster, "cluster_filters", noting)
    files[1].unlink()
    (out / ".spvfilter-left").write_bytes(b"by one that was killed")
    for _ in range(2):
        assert build(blocks, *dask) == 0
    assert asked == [1, 0]
    assert {path.name: path.read_bytes() for path in out.iterdir()} == whole
    capsys.readouterr()
    assert build(blocks, *dask, "--previous", "11" * 32) == 2
    assert "which is not a file of filters for these blocks" in capsys.readouterr().err
    lock = FileLock.take(out / ".lock")
    assert build(blocks, *dask) == 2
    assert "is writing to it: wait until that ends" in capsys.readouterr().err
    lock.release()


def test_a_damaged_block_is_named_and_built_later(
    worker: Cluster, blocks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound, lone = (blocks / "blk00000.dat").read_bytes(), node_records("blk00000.dat", 0)[50]
    damaged = bytearray(sound)
    damaged[sound.index(lone) + 85] = 0xFE  # the number of inputs of its coinbase
    (blocks / "blk00000.dat").write_bytes(damaged)
    out = tmp_path / "out"
    assert build(blocks, "--dask", worker.address, "--out", str(out)) == 1
    assert f"block {hash_to_hex(block_hash(lone))}: " in capsys.readouterr().err
    (incomplete,) = out.glob("incomplete-*")
    before = len(lines_in(out))
    (blocks / "blk00000.dat").write_bytes(sound)
    assert build(blocks, "--dask", worker.address, "--out", str(out)) == 0
    assert not incomplete.exists()
    assert len(lines_in(out)) == before + 1


def test_a_block_without_spends_needs_no_other_block(tmp_path: Path) -> None:
    (tmp_path / "blk00000.dat").write_bytes(record(block_of(REGTEST.genesis_hash, 1)))
    (part,) = Plan.of(BlockFiles(tmp_path / "blk00000.dat"), REGTEST).parts
    made = part_filters(part)
    assert (len(made.filters), made.filters[0].height, made.problems) == (1, 1, [])
    (tmp_path / "blk00000.dat").unlink()
    assert part_filters(part).filters == []
    assert "No such file" in part_filters(part).problems[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dask", "tcp://127.0.0.1:1"], "--dask needs --out DIR"),
        (["--out", "x"], "--out DIR needs --dask"),
        (["--dask", "tcp://127.0.0.1:1", "--out", "x", "--undo", "off"], "omit --prevouts and --undo off"),
    ],
)
def test_contradictory_options_are_named(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(tmp_path, *options) == 2
    assert said in capsys.readouterr().err
