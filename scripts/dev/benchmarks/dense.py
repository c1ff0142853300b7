"""Scans whose watch list owns every output: the time of a match, the gain of a second thread, and memory."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import Row, memory_folder, times_of
from pipeline import written

from spvfilter import MAINNET, BlockFiles, WatchList, script_to_address
from spvfilter.hashes import sha256d
from spvfilter.kernel import merkle_root
from spvfilter.primitives import compact_size
from spvfilter.scan import PartScan, Plan, Threads, scan_parts

sys.path.append(str(Path(__file__).parents[3] / "tests"))

_SCRIPTS = 200_000  # different scripts: an exchange has many addresses, each with a few payments
_TXS = 2_600  # transactions of a block, each with one input and two outputs
_BLOCKS = 240
_LONG = 20  # repetitions: a sparse scan is so fast that its start would else be measured
_ROOM = 3_000_000_000  # bytes of all files
_PART = 8_000_000  # bytes of blocks and undo records
_WAYS = {
    "rows to a pipe": ("--format", "csv"),
    "rows and totals": ("--format", "csv", "--totals", "totals.csv"),
    "--out, csv": ("--out", "out"),
    "--out, parquet": ("--out", "out", "--format", "parquet"),
    "--out, parquet, binary": ("--out", "out", "--format", "parquet", "--binary"),
}


def _script(rng: random.Random) -> bytes:
    """A script of one of the four common types with addresses."""
    prefix, size, end = rng.choice(
        ((b"\x00\x14", 20, b""), (b"\x76\xa9\x14", 20, b"\x88\xac"), (b"\xa9\x14", 20, b"\x87"), (b"\x51\x20", 32, b""))
    )
    return prefix + rng.randbytes(size) + end


def _output(value: int, script: bytes) -> bytes:
    return value.to_bytes(8, "little") + compact_size(len(script)) + script


def dense_chain(folder: Path, count: int, times: int = 1) -> Path:
    """Write blocks with undo records, a list of all their scripts, and a list of as many other scripts.

    Each block is written `times` times, with another coinbase and another previous block.
    """
    from support.blocks.undo import Spent, undo_of

    rng = random.Random(39)
    scripts = [_script(rng) for _ in range(_SCRIPTS)]
    records: list[bytes] = []

    def transactions() -> tuple[list[bytes], bytes]:
        txs: list[bytes] = []
        spent: list[list[Spent]] = []
        for _ in range(_TXS):
            outputs = [(rng.randrange(10**4, 10**9), rng.choice(scripts)) for _ in range(2)]
            source = rng.randbytes(32) + bytes(4) + b"\x6b" + rng.randbytes(107) + b"\xff" * 4
            paid = b"".join(_output(*each) for each in outputs)
            txs.append(b"\x01\0\0\0\x01" + source + b"\x02" + paid + bytes(4))
            spent.append([Spent(sum(value for value, _ in outputs) + 1_000, rng.choice(scripts), 600_000)])
        return txs, undo_of(spent)

    def blocks() -> Iterator[bytes]:
        previous = bytes(32)
        made = [transactions() for _ in range(count)]
        for number, (paying, undo) in enumerate(made * times):
            height = b"\x03" + (700_000 + number).to_bytes(3, "little")
            start = b"\x01\0\0\0\x01" + bytes(32) + b"\xff" * 4 + b"\x04" + height + b"\xff" * 4
            txs = [start + b"\x01" + _output(625_000_000, rng.choice(scripts)) + bytes(4), *paying]
            root, _ = merkle_root([sha256d(tx) for tx in txs])
            time = (1_630_000_000 + 600 * number).to_bytes(4, "little")
            header = b"\0\0\0\x20" + previous + root + time + b"\xff\xff\x7f\x20" + bytes(4)
            records.append(undo + sha256d(previous + undo))
            previous = sha256d(header)
            yield header + compact_size(len(txs)) + b"".join(txs)

    folder.mkdir()
    path = written(folder, blocks())
    written(folder, records, name="rev00000.dat", tail=32)
    others = [_script(rng) for _ in range(_SCRIPTS)]
    for name, several in (("dense.txt", scripts), ("sparse.txt", others)):
        (folder / name).write_text("".join(f"{script_to_address(each, MAINNET)}\n" for each in several))
    return path


def _command(folder: Path, path: Path, watch: str, *options: str) -> tuple[list[str], Path]:
    """The command of a scan, and the folder for its results, which is empty."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    given = ["scan", str(path), "--watch", str(path.with_name(watch)), "--quiet", "--allow-gaps", *options]
    return [sys.executable, "-m", "spvfilter", *given], work


def _scan(folder: Path, path: Path, watch: str, *options: str) -> None:
    command, work = _command(folder, path, watch, *options)
    subprocess.run(command, cwd=work, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _in_parts(loop: asyncio.Runner, path: Path, watch: WatchList, out: Path, form: str, jobs: int) -> None:
    """Scan into an empty folder. The parts are small, so that all threads have work until the end."""

    async def scan() -> None:
        engine = Threads(jobs)
        try:
            plan = Plan.of(BlockFiles(path, undo="require"), MAINNET, part_size=_PART)
            await scan_parts(PartScan(out, plan, watch), form, engine)
        finally:
            await engine.aclose()

    shutil.rmtree(out, ignore_errors=True)
    loop.run(scan())


def _peak(folder: Path, path: Path, *options: str) -> float:
    """The most memory of a dense scan, in MB.

    A small process starts the scan: the peak of a process includes the memory of the process that forked it.
    """
    command, work = _command(folder, path, "dense.txt", *options)
    measure = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stderr=subprocess.DEVNULL);"
        " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    measured = subprocess.run(
        [sys.executable, "-c", measure, *command], cwd=work, check=True, capture_output=True, text=True
    )
    return int(measured.stdout) / 1_000


def dense(folder: Path, rounds: int) -> list[Row]:
    """Measure scans as the command makes them. Every output and input of the dense scans is a match."""
    with TemporaryDirectory(dir=memory_folder(_ROOM)) as name, asyncio.Runner() as loop:
        home = Path(name)
        path, quarter = dense_chain(home / "blocks", _BLOCKS), dense_chain(home / "quarter", _BLOCKS // 4)
        long = dense_chain(home / "long", _BLOCKS // 4, _LONG)
        matches = _BLOCKS * (3 * _TXS + 1)
        calls: list[Callable[[], None]] = []
        for options in _WAYS.values():
            calls += (partial(_scan, home, path, watch, *options) for watch in ("dense.txt", "sparse.txt"))
        threads = [("sparse", "csv", long), ("dense", "csv", path), ("dense", "parquet", path)]
        for kind, form, scanned in threads:
            watch = WatchList.load(scanned.with_name(f"{kind}.txt"))
            calls += (partial(_in_parts, loop, scanned, watch, home / "out", form, jobs) for jobs in (1, 2))
        times = times_of(rounds, *calls)
        ways = ("--out, csv", "--out, parquet")
        peaks = [(way, _peak(home, path, *_WAYS[way]), _peak(home, quarter, *_WAYS[way])) for way in ways]
    rows = [
        Row(
            f"µs of {matches:,} matches: {way}",
            (times[2 * number].processor - times[2 * number + 1].processor) * 1e3 / matches,
            *(1.0, "goal", 1.0),
        )
        for number, way in enumerate(_WAYS)
    ]
    left = times[2 * len(_WAYS) :]
    for number, (kind, form, _) in enumerate(threads):
        one, two = left[2 * number], left[2 * number + 1]
        rows.append(
            Row(f"{kind} scan in parts, {form}: 2 threads", two.clock, one.clock, "1 thread, on the clock", 0.6)
        )
    rows += [
        Row(f"MB of memory, dense scan, {way}", most, few, "a quarter of the matches", 1.1) for way, most, few in peaks
    ]
    return rows
