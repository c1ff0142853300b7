"""Whole tasks as users do them: many blocks through the matcher and the command, long address lists, starting up."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from blocks import read, watching
from measure import Row, best_of

from spvfilter import MAINNET, BloomFilter, Matcher, WatchList, script_to_address
from spvfilter.hashes import sha256d

_STREAM = 200  # blocks
_ADDRESSES = 1_000_000
_KEYS = 4_000_000


def chained(folder: Path, size: int) -> Iterator[bytes]:
    """The real blocks over and over, each upon the one before, until `size` bytes."""
    previous, made = bytes(32), 0
    while made < size:
        for _, raw in read(folder):
            block = raw[:4] + previous + raw[36:]
            previous = sha256d(block[:80])
            made += len(block)
            yield block


def threads(folder: Path, rounds: int) -> list[Row]:
    """A stream of blocks with two workers, against one; and what this machine's two processors can do at best."""
    blocks = list(chained(folder, _STREAM << 20))
    watch = watching(100_000)

    async def scan(jobs: int) -> None:
        async for _ in Matcher(watch.copy(), jobs=jobs).scan(blocks):
            pass

    def hash_all(jobs: int) -> None:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(_hash_each, (blocks[number::jobs] for number in range(jobs))))

    keys = memoryview(random.Random(_KEYS).randbytes(20 * _KEYS)).cast("B", [_KEYS, 20])

    def build(jobs: int) -> None:
        BloomFilter.build(keys, _KEYS, 0.01, jobs=jobs)

    two, one, built_by_two, built_by_one, hashed_by_two, hashed_by_one = best_of(
        *(rounds, lambda: asyncio.run(scan(2)), lambda: asyncio.run(scan(1)), partial(build, 2), partial(build, 1)),
        *(partial(hash_all, 2), partial(hash_all, 1)),
    )
    return [
        Row(f"{len(blocks)} blocks in memory, jobs=2", two, one, "jobs=1", 1 / 1.8),
        Row(f"BloomFilter.build of {_KEYS:,} keys, jobs=2", built_by_two, built_by_one, "jobs=1", 1 / 1.6),
        Row("sha256 of them by two threads: the machine's best", hashed_by_two, hashed_by_one, "by one"),
    ]


def _hash_each(blocks: list[bytes]) -> None:
    for raw in blocks:
        hashlib.sha256(raw)


def pipeline(folder: Path, rounds: int) -> list[Row]:
    """`spvfilter scan` of a blk file, start-up and progress included, against reading and hashing it once in Python."""
    size = int(float(os.environ.get("SPVFILTER_BENCH_GB", "1")) * 1e9)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "blk00000.dat"
        with path.open("wb") as file:
            for block in chained(folder, size):
                file.write(MAINNET.magic + len(block).to_bytes(4, "little") + block)
        wallet = Path(name) / "wallet.txt"
        watching(1_000).save(wallet)
        rows = []
        for jobs in (1, 2):
            command = [sys.executable, "-m", "spvfilter", "scan", str(path), "--watch", str(wallet), "--jobs", str(jobs)]
            ours, unit = best_of(
                min(rounds, 3), partial(subprocess.run, command, check=True, capture_output=True), partial(_read_and_hash, path)
            )
            goal = 1 / 0.6 if jobs == 2 else None
            rows.append(Row(f"spvfilter scan of {size / 1e9:g} GB, jobs={jobs}", ours, unit, "read it and sha256 it once", goal))
    return rows


def _read_and_hash(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()


def addresses(_: Path, rounds: int) -> list[Row]:
    """A million mixed addresses from a file, in seconds and in bytes of resident memory each; the goals are 2 s and 150 bytes."""
    source = random.Random(1)
    makers = [
        lambda: b"\x76\xa9\x14" + source.randbytes(20) + b"\x88\xac",
        lambda: b"\xa9\x14" + source.randbytes(20) + b"\x87",
        lambda: b"\x00\x14" + source.randbytes(20),
        lambda: b"\x00\x20" + source.randbytes(32),
        lambda: b"\x51\x20" + source.randbytes(32),
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for number in range(_ADDRESSES):
            file.write(f"{script_to_address(makers[number % 5](), MAINNET)}\n")
        file.flush()
        (taken,) = best_of(min(rounds, 3), partial(WatchList.load, file.name))
        code = (
            "import sys\nfrom spvfilter import WatchList\nwatch = WatchList()\n"
            "def resident():\n    return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
            "before = resident()\nwatch = WatchList.load(sys.argv[1])\nprint(resident() - before)"
        )
        grown = subprocess.run([sys.executable, "-c", code, file.name], check=True, capture_output=True, text=True).stdout
    return [
        Row(f"{_ADDRESSES:,} addresses loaded, s", taken / 1e3, 2.0, "goal", 1.0),
        Row("bytes of memory for each", int(grown) / _ADDRESSES, 150.0, "goal", 1.0),
    ]


def start(_: Path, rounds: int) -> list[Row]:
    """A new interpreter that imports the package, and one that shows the help; milliseconds beyond an empty one's, and in all."""
    empty, imported, shown = best_of(
        4 * rounds,
        partial(_python, "-c", "pass"),
        partial(_python, "-c", "import spvfilter"),
        partial(_python, "-m", "spvfilter", "--help"),
    )
    return [
        Row("import spvfilter, ms beyond an empty interpreter", imported - empty, 60.0, "goal", 1.0),
        Row("spvfilter --help, ms", shown, 200.0, "goal", 1.0),
    ]


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
