"""Two scans into one directory: the second one is refused, and neither takes data from the other."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from spvfilter import cli
from spvfilter.errors import DirectoryInUseError
from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, PartScan, PartSummary, PartTask, Plan, Threads, outputs, scan_parts
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import GENESIS, TxOut, block_of, p2wpkh
from support.blocks.chains import write_records

SCRIPT = p2wpkh(bytes(20))
ADDRESS = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"


class Waiting(Threads):
    """Threads that wait for a signal of the test before they begin."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = asyncio.Event()
        self.may_go = asyncio.Event()

    async def run(self, task: PartTask) -> PartSummary:
        self.is_asked.set()
        await self.may_go.wait()
        return await super().run(task)


def blocks_in(folder: Path) -> Path:
    write_records(folder / "blk00000.dat", [block_of(GENESIS, 1, paid=[TxOut(5_000, SCRIPT)])])
    return folder / "blk00000.dat"


def scan_into(out: Path, blocks: Path) -> PartScan:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    return PartScan(out, Plan.of(BlockFiles(blocks), REGTEST), watch)


async def test_a_second_scan_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    blocks, out, engine = blocks_in(tmp_path), tmp_path / "out", Waiting()
    first = asyncio.create_task(scan_parts(scan_into(out, blocks), engine=engine))
    await engine.is_asked.wait()
    before = sorted(out.rglob("*"))
    for second in (scan_parts(scan_into(out, blocks)), scan_into(out, blocks).run()):
        with pytest.raises(
            DirectoryInUseError, match=f"^{out}: another scan or export of this process is writing to it: wait"
        ):
            await second
    assert sorted(out.rglob("*")) == before
    engine.may_go.set()
    assert b",5000," in (await first).read_bytes()
    await engine.aclose()
    assert await scan_parts(scan_into(out, blocks)) == await first
    assert not (out / ".lock").exists()


async def test_a_cancelled_scan_releases_its_directory(tmp_path: Path) -> None:
    blocks, out, engine = blocks_in(tmp_path), tmp_path / "out", Waiting()
    first = asyncio.create_task(scan_parts(scan_into(out, blocks), engine=engine))
    await engine.is_asked.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await engine.aclose()
    assert (await scan_parts(scan_into(out, blocks))).exists()


async def test_a_directory_stays_locked_while_its_files_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation stops a thread only between two parts."""
    blocks, out = blocks_in(tmp_path), tmp_path / "out"
    merging, may_go, merged = threading.Event(), threading.Event(), outputs.merged_parts

    def waits(*args: object) -> Path:
        merging.set()
        assert may_go.wait(60)
        return merged(*args)  # type: ignore[arg-type]  # as it was called

    with monkeypatch.context() as patched:
        patched.setattr(outputs, "merged_parts", waits)
        first = asyncio.create_task(scan_parts(scan_into(out, blocks)))
        assert await asyncio.to_thread(merging.wait, 60)
        for _ in range(3):
            first.cancel()
            await asyncio.sleep(0)
    with pytest.raises(DirectoryInUseError):
        await scan_parts(scan_into(out, blocks))
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert sorted(path.name for path in out.iterdir()) == ["manifest.json", "parts"]
    assert (await scan_parts(scan_into(out, blocks))).exists()


_ANOTHER = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from scan.test_held import Waiting, scan_into
from spvfilter.scan import scan_parts

async def scan():
    engine = Waiting()
    scanning = asyncio.create_task(scan_parts(scan_into(Path(sys.argv[2]), Path(sys.argv[3])), engine=engine))
    await engine.is_asked.wait()
    print("scanning", flush=True)
    await scanning

asyncio.run(scan())
"""


@pytest.mark.slow
def test_another_process_is_named_and_releases_its_lock_when_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks, out = blocks_in(tmp_path), tmp_path / "out"
    argv = ["scan", str(blocks), "--network", "regtest", "--address", ADDRESS, "--out", str(out)]
    tests = Path(__file__).parents[1]
    with subprocess.Popen(
        [sys.executable, "-c", _ANOTHER, str(tests), str(out), str(blocks)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": ""},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"scanning\n"
        try:
            assert cli.main(argv) == 2
            assert (
                f"{out}: process {other.pid} is writing to it: wait until it ends, or choose another"
                in capsys.readouterr().err
            )
        finally:
            other.kill()
    assert (out / ".lock").exists()  # the lock file is still there
    assert cli.main(argv) == 0
    assert b",5000," in (out / "matches.csv").read_bytes()
    assert not (out / ".lock").exists()
