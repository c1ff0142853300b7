"""Whole tasks of users: scans of many blocks with the matcher and the command, long address lists, and starts."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from blocks import chained, hash_each, match_all, watching
from compact import ask, average_filters, scripts
from measure import Row, best_of, times_of

import spvfilter
from spvfilter import MAINNET, BlockFiles, WatchList, script_to_address
from spvfilter.kernel import GcsQuery
from spvfilter.kernel.pure.files import xored
from spvfilter.scan.manifest import table_digest

_STREAM = 200  # MiB of blocks
_ADDRESSES = (1_000_000, 10_000_000)  # addresses of a watch list


def threads(folder: Path, rounds: int) -> list[Row]:
    """Measure the gain of a second thread. The reference is the gain for hashing, which is the best on this machine."""
    blocks = list(chained(folder, _STREAM << 20))
    watch = watching(100_000)
    filters = average_filters()
    query = GcsQuery(scripts(1_000, len(filters)))
    with tempfile.TemporaryDirectory() as name, asyncio.Runner() as loop:
        files = BlockFiles(written(Path(name), blocks))
        tasks: dict[str, Callable[[int], object]] = {
            f"{len(blocks)} blocks in memory": lambda jobs: loop.run(match_all(watch, blocks, jobs)),
            "them in a file": lambda jobs: loop.run(match_all(watch, files, jobs)),
            f"{4 * len(filters):,} filters, match_filters": lambda jobs: ask(filters, query, jobs),
        }
        rows = []
        for task, run in tasks.items():
            measured = times_of(
                3 * rounds,
                partial(run, 2),
                partial(run, 1),
                partial(_hash_all, blocks, 2),
                partial(_hash_all, blocks, 1),
            )
            two, one, hashed_by_two, hashed_by_one = (times.clock for times in measured)
            rows.append(
                Row(
                    f"{task}: time with jobs=2, of that with 1",
                    two / one,
                    hashed_by_two / hashed_by_one,
                    "sha256",
                    1 / 0.9,
                )
            )
    return rows


def _hash_all(blocks: list[bytes], jobs: int) -> None:
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(hash_each, (blocks[number::jobs] for number in range(jobs))))


def gigabytes() -> float:
    """Gigabytes of blocks to scan."""
    return float(os.environ.get("SPVFILTER_BENCH_GB", "1"))


def written(
    folder: Path, blocks: Iterable[bytes], key: bytes = b"", *, name: str = "blk00000.dat", tail: int = 0
) -> Path:
    """Write blocks to a blk file, XORed if there is a key, which is then written beside it.

    Undo records state a size that is smaller by `tail` bytes.
    """
    path = folder / name
    with path.open("wb") as file:
        for block in blocks:
            record = MAINNET.magic + (len(block) - tail).to_bytes(4, "little") + block
            file.write(xored(record, file.tell(), key) if key else record)
    if key:
        (folder / "xor.dat").write_bytes(key)
    return path


def files(folder: Path, rounds: int) -> list[Row]:
    """Measure the matcher on a blk file in the page cache, plain and XORed. The reference reads and hashes it once."""
    size = int(gigabytes() * 1e9)
    watch = watching(1_000)
    rows = []
    with tempfile.TemporaryDirectory() as name, asyncio.Runner() as loop:
        plain, mixed = Path(name) / "plain", Path(name) / "xored"
        for place, key in ((plain, b""), (mixed, bytes(range(1, 9)))):
            place.mkdir()
            written(place, chained(folder, size), key)
        for jobs, goal in ((1, 0.45), (2, 0.3)):
            measured = times_of(
                3 * rounds,
                lambda jobs=jobs: loop.run(match_all(watch, BlockFiles(plain), jobs)),
                lambda jobs=jobs: loop.run(match_all(watch, BlockFiles(mixed), jobs)),
                partial(read_and_hash, plain / "blk00000.dat"),
            )
            ours, xor, unit = (times.processor if jobs == 1 else times.clock for times in measured)
            rows.append(Row(f"{size / 1e9:g} GB of files, jobs={jobs}", ours, unit, "read it and sha256 it once", goal))
            rows.append(
                Row(f"{size / 1e9:g} GB of XORed files, jobs={jobs}", xor, unit, "read it and sha256 it once", goal)
            )
            rows.append(Row(f"XORed, jobs={jobs}", xor, ours, "plain", 1 / 0.9))
    return rows


def pipeline(folder: Path, rounds: int) -> list[Row]:
    """Measure `spvfilter scan` of a blk file, with its start. The reference reads and hashes it once in Python."""
    size = int(gigabytes() * 1e9)
    with tempfile.TemporaryDirectory() as name:
        path = written(Path(name), chained(folder, size))
        wallet = Path(name) / "wallet.txt"
        watching(1_000).save(wallet)
        rows = []
        for jobs in (1, 2):
            command = [
                sys.executable,
                "-m",
                "spvfilter",
                "scan",
                str(path),
                "--watch",
                str(wallet),
                "--jobs",
                str(jobs),
            ]
            measured = times_of(
                min(rounds, 3),
                partial(subprocess.run, command, check=True, capture_output=True),
                partial(read_and_hash, path),
            )
            ours, unit = (times.processor if jobs == 1 else times.clock for times in measured)
            goal = 1 / 0.6 if jobs == 2 else None
            rows.append(
                Row(f"spvfilter scan of {size / 1e9:g} GB, jobs={jobs}", ours, unit, "read it and sha256 it once", goal)
            )
    return rows


def read_and_hash(path: Path) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.digest()


def addresses(_: Path, rounds: int) -> list[Row]:
    """Measure lists of mixed addresses as text and compiled: seconds to load, and bytes of resident memory for each.

    The digest is that of a scan with `--out`. The pages of a compiled list that a scan reads are shared.
    """
    source = random.Random(1)
    makers = [
        lambda: b"\x76\xa9\x14" + source.randbytes(20) + b"\x88\xac",
        lambda: b"\xa9\x14" + source.randbytes(20) + b"\x87",
        lambda: b"\x00\x14" + source.randbytes(20),
        lambda: b"\x00\x20" + source.randbytes(32),
        lambda: b"\x51\x20" + source.randbytes(32),
    ]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for count in _ADDRESSES:
            text, compiled = Path(name, f"{count}.txt"), Path(name, f"{count}.spvwl")
            with text.open("w") as file:
                file.writelines(f"{script_to_address(makers[number % 5](), MAINNET)}\n" for number in range(count))
            WatchList.load(text).compile(compiled)
            plain, mapped = best_of(min(rounds, 3), partial(WatchList.load, text), partial(WatchList.load, compiled))
            (digest,) = best_of(min(rounds, 3), partial(table_digest, WatchList.load(compiled).table))
            millions = count / 1e6
            rows += [
                Row(f"{count:,} addresses loaded, s", plain / 1e3, 2.0 * millions, "goal", 1.0),
                Row(f"{count:,} addresses, bytes of memory for each", _grown(text) / count, 150.0, "goal", 1.0),
                Row(f"{count:,} compiled addresses loaded, s", mapped / 1e3, 0.2, "goal", 1.0),
                Row(f"{count:,} compiled addresses, bytes for each", _grown(compiled) / count, 10.0, "goal", 1.0),
                Row(f"digest of {count:,} addresses, s", digest / 1e3, millions, "goal", 1.0),
            ]
    return rows


def _grown(path: Path) -> int:
    """Return the bytes of resident memory by which a process grows that loads a list."""
    code = (
        "import sys\nfrom spvfilter import WatchList\nwatch = WatchList()\n"
        "def resident():\n    return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "before = resident()\nwatch = WatchList.load(sys.argv[1])\nprint(resident() - before)"
    )
    ran = subprocess.run([sys.executable, "-c", code, path], check=True, capture_output=True, text=True)
    return int(ran.stdout)


def start(_: Path, rounds: int) -> list[Row]:
    """Measure processes that import the package or show the help, in milliseconds of processor time.

    The time is that of the whole process. The row of the empty interpreter shows the share of Python itself. Modules
    are compiled before. Imports of .pth files in the environment do not count (python -S): an editable installation
    takes some ten milliseconds for them.
    """
    empty, imported, shown, *named, awaiting = _processor_ms(
        8 * rounds,
        ("-c", "pass"),
        ("-c", "import spvfilter"),
        ("-m", "spvfilter", "--help"),
        *_IMPORTS.values(),
        ("-c", "import asyncio"),
    )
    return [
        Row("import spvfilter, ms beyond an empty interpreter", imported - empty, 60.0, "goal", 1.0),
        Row("spvfilter --help, ms", shown, 200.0, "goal", 1.0),
        *(
            Row(f"{name}, ms of processor time", spent, 50.0, "goal", 1.0)
            for name, spent in zip(_IMPORTS, named, strict=True)
        ),
        Row("an empty interpreter, ms of processor time", empty, 50.0, "goal of the imports"),
        Row("import asyncio alone, ms of processor time", awaiting, 50.0, "goal of the imports"),
    ]


_IMPORTS = {
    "from spvfilter import LightClient": ("-c", "from spvfilter import LightClient"),
    "from spvfilter import Matcher": ("-c", "from spvfilter import Matcher"),
    "spvfilter scan --help": ("-m", "spvfilter", "scan", "--help"),
}


def _processor_ms(rounds: int, *commands: Sequence[str]) -> list[float]:
    """Measure the shortest processor time of each command, in turns. The processes find the package by PYTHONPATH."""
    keeping = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    keeping["PYTHONPATH"] = str(Path(spvfilter.__file__).parent.parent)

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (usage.ru_utime + usage.ru_stime) * 1e3

    least = [float("inf")] * len(commands)
    for command in commands:  # compile the modules first
        subprocess.run([sys.executable, "-S", *command], check=True, capture_output=True, env=keeping)
    for _ in range(rounds):
        for number, command in enumerate(commands):
            before = spent()
            subprocess.run([sys.executable, "-S", *command], check=True, capture_output=True, env=keeping)
            least[number] = min(least[number], spent() - before)
    return least
