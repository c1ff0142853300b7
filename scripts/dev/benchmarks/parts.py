"""Scans in parts into a directory: plain, with undo files, XORed, with many matches, and with many parts."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from measure import Row, best_of, times_of
from pipeline import gigabytes, read_and_hash, written

from spvfilter import MAINNET, BlockFiles, WatchList
from spvfilter.hashes import sha256d
from spvfilter.kernel import walk_block
from spvfilter.scan import PartScan, Plan, Processes, Threads, scan_cluster, scan_parts

sys.path.append(str(Path(__file__).parents[3] / "tests"))

if TYPE_CHECKING:
    from support.commands.daskcluster import Cluster

_KEY = bytes(range(1, 9))
_HASHED = "read the blocks and sha256 them once"
_GROWN = 128_000_000  # bytes of blocks in the chain of the suite growth
_LARGE = 100_000  # bytes; smaller blocks are not used
SERIES = ("matches of a scan in parts", "parts of a scan", "Dask workers of a scan")
_PART = 64_000_000  # bytes of blocks and undo records


class Chain(NamedTuple):
    """A blk file and the rev file beside it."""

    blocks: Path
    """Path of the blk file."""
    outputs: list[bytes]
    """ScriptPubKeys of all outputs, each once."""


def chain(folder: Path, size: int, key: bytes = b"", *, is_distinct: bool = False) -> Chain:
    """Write large real blocks again and again, with their undo records, until `size` bytes.

    Only blocks with known spent outputs are used. Each block names the block before it as its parent. If `is_distinct`,
    each copy has other outpoints, addresses and values, so that it compresses as blocks of a real chain do.
    """
    from support.blocks.realdata import single_blocks
    from support.blocks.undo import coins_of_block, undo_of

    if is_distinct:
        return _distinct(folder, size, key)

    real = [
        block
        for block in single_blocks()
        if block.facts.get("prevouts_file") and len(block.raw) > _LARGE and block.network is MAINNET
    ]
    templates = [(block.raw, undo_of(coins_of_block(block))) for block in real]
    records: list[bytes] = []

    def blocks() -> Iterator[bytes]:
        previous, made = bytes(32), 0
        for raw, undo in cycle(templates):
            if made >= size:
                return
            block = raw[:4] + previous + raw[36:]
            records.append(undo + sha256d(previous + undo))
            previous, made = sha256d(block[:80]), made + len(block)
            yield block

    folder.mkdir()
    path = written(folder, blocks(), key)
    written(folder, records, key, name="rev00000.dat", tail=32)
    scripts = {raw[start:end] for raw, _ in templates for tx in walk_block(raw) for _, start, end in tx.outputs}
    return Chain(path, sorted(scripts))


def _distinct(folder: Path, size: int, key: bytes) -> Chain:
    """Write copies of real blocks whose transactions differ."""
    from support.blocks.realdata import single_blocks
    from support.blocks.undo import Spent, coins_of_block, undo_of

    source = random.Random(size)
    templates = [
        (block.raw, coins_of_block(block))
        for block in single_blocks()
        if block.facts.get("prevouts_file") and len(block.raw) > _LARGE and block.network is MAINNET
    ]
    folder.mkdir()
    blocks, records, previous = list[bytes](), list[bytes](), bytes(32)
    for raw, coins in cycle(templates):
        if sum(map(len, blocks)) >= size:
            break
        block = bytearray(raw[:4] + previous + raw[36:])
        for number, tx in enumerate(walk_block(raw)):
            for at, _, _ in tx.inputs if number else ():
                block[at : at + 32] = source.randbytes(32)
            for at, start, end in tx.outputs:
                value = int.from_bytes(raw[at : at + 8], "little")
                block[at : at + 8] = (value - source.randrange(value // 50 + 1)).to_bytes(8, "little")
                block[start:end] = _other_script(raw[start:end], source)
        undo = undo_of(
            [
                [
                    Spent(coin.value + source.randrange(coin.value // 50 + 1), _other_script(coin.script, source))
                    for coin in of
                ]
                for of in coins
            ]
        )
        records.append(undo + sha256d(previous + undo))
        blocks.append(bytes(block))
        previous = sha256d(blocks[-1][:80])
    path = written(folder, iter(blocks), key)
    written(folder, records, key, name="rev00000.dat", tail=32)
    scripts = {raw[start:end] for raw in blocks for tx in walk_block(raw) for _, start, end in tx.outputs}
    return Chain(path, sorted(scripts))


def _other_script(script: bytes, source: random.Random) -> bytes:
    """Return a script of the same type with other hashes; other scripts stay as they are."""
    ends = {25: (3, 23), 23: (2, 22), 22: (2, 22), 34: (2, 34)}
    if len(script) not in ends:
        return script
    start, end = ends[len(script)]
    return script[:start] + source.randbytes(end - start) + script[end:]


def wallet(made: Chain, share: float) -> WatchList:
    """Make a watch list of a share of the paid scripts, and of a thousand scripts that no block contains."""
    source = random.Random(1)
    watch = WatchList()
    for _ in range(1_000):
        watch.add_script(b"\x00\x14" + source.randbytes(20))
    for script in source.sample(made.outputs, round(share * len(made.outputs))):
        watch.add_script(script)
    return watch


def scanned(
    loop: asyncio.Runner,
    made: Chain,
    watch: WatchList,
    out: Path,
    undo: str = "require",
    form: str = "csv",
    *,
    transactions: bool = False,
    **how: int,
) -> PartScan:
    """Scan as the command does it: plan, parts, a file of matches and totals."""

    async def scan() -> PartScan:
        size = how.get("part_size")
        plan = Plan.of(BlockFiles(made.blocks, undo=undo), MAINNET, **({} if size is None else {"part_size": size}))
        scan = PartScan(out, plan, watch, transactions=transactions)
        engine = Processes(how["processes"]) if "processes" in how else Threads(how.get("jobs", 1))
        try:
            await scan_parts(scan, form, engine)
        finally:
            await engine.aclose()
        return scan

    shutil.rmtree(out, ignore_errors=True)
    return loop.run(scan())


def parts(folder: Path, rounds: int) -> list[Row]:
    """Measure scans of 1 GB of real blocks. A match costs little more than the hash of its transaction."""
    with TemporaryDirectory() as name, asyncio.Runner() as loop:
        plain, mixed = (
            chain(Path(name) / each, int(gigabytes() * 1e9), key) for each, key in (("plain", b""), ("xored", _KEY))
        )
        few, dense = wallet(plain, 0), wallet(plain, 0.01)
        out = Path(name) / "out"
        run = partial(scanned, loop, out=out)
        off, undo, xored, two, processes, many, unit = times_of(
            rounds,
            partial(run, plain, few, undo="off"),
            partial(run, plain, few),
            partial(run, mixed, few),
            partial(run, plain, few, jobs=2),
            partial(run, plain, few, processes=2),
            partial(run, plain, dense),
            partial(read_and_hash, plain.blocks),
        )
        found = run(plain, dense).report.summary.matches
        small = chain(Path(name) / "small", _GROWN)
        none, everything = wallet(small, 0), wallet(small, 1)
        least, most = best_of(rounds, partial(run, small, none), partial(run, small, everything))
        more = run(small, everything).report.summary.matches
        distinct = chain(Path(name) / "distinct", _GROWN, is_distinct=True)
        tenth, parquet = wallet(distinct, 0.1), partial(run, distinct, form="parquet")
        alone, whole = times_of(rounds, partial(parquet, tenth), partial(parquet, tenth, transactions=True))
        rows = sum(1 for _ in parquet(tenth, transactions=True).transactions())
    of = f"{gigabytes():g} GB in parts"
    return [
        Row(of, off.processor, unit.processor, _HASHED, 0.3),
        Row(f"{of}, with undo", undo.processor, unit.processor, _HASHED, 0.6),
        Row(f"{of}, with undo", undo.processor, off.processor, "without", 3.0),
        Row(f"{of}, with undo, XORed", xored.processor, undo.processor, "not XORed", 1 / 0.9),
        Row(f"{of}, with undo, 2 threads", two.clock, undo.clock, "1 thread", 0.75),
        Row(f"{of}, with undo, 2 processes", processes.clock, two.clock, "2 threads", 1.25),
        Row(f"{of}, with undo, {found:,} matches (1 % of scripts)", many.processor, undo.processor, "no match", 1.5),
        Row(f"µs for each of {more:,} matches (all scripts)", (most - least) * 1e3 / more, 3.0, "goal", 1.0),
        Row(f"{rows:,} rows of whole transactions, Parquet", whole.processor, alone.processor, "matches alone", 2.5),
    ]


def on_cluster(loop: asyncio.Runner, made: Chain, watch: WatchList, out: Path, cluster: Cluster) -> None:
    """Scan with the workers of a cluster, as the command does it."""

    async def scan() -> None:
        plan = Plan.of(BlockFiles(made.blocks, undo="require"), MAINNET, part_size=_PART)
        from support.commands.daskcluster import client_of

        async with client_of(cluster) as client:
            await scan_cluster(client, plan, watch, out)

    shutil.rmtree(out, ignore_errors=True)
    loop.run(scan())


def workers(folder: Path, rounds: int) -> list[Row]:
    """Measure the same scan with 1, 2 and 4 Dask workers on this machine.

    The times are longer if there are fewer processors than workers, or other load.
    """
    from support.commands.daskcluster import Cluster

    clusters = {count: Cluster(count) for count in (1, 2, 4)}
    with TemporaryDirectory() as name, asyncio.Runner() as loop:
        try:
            made, out = chain(Path(name) / "blocks", int(gigabytes() * 1e9)), Path(name) / "out"
            watch = wallet(made, 0)
            measured = times_of(
                rounds,
                partial(scanned, loop, made, watch, out, part_size=_PART),
                *(partial(on_cluster, loop, made, watch, out, cluster) for cluster in clusters.values()),
            )
        finally:
            for cluster in clusters.values():
                cluster.end()
    one, *times = (each.clock for each in measured)
    return [
        Row(f"{count} {SERIES[2]}", ours, one, "1 thread, without Dask")
        for count, ours in zip(clusters, times, strict=True)
    ]


def growth(rounds: int) -> list[Row]:
    """Measure how the time for one chain grows with the number of matches, and with the number of parts."""
    rows = []
    with TemporaryDirectory() as name, asyncio.Runner() as loop:
        made, out = chain(Path(name) / "blocks", _GROWN), Path(name) / "out"
        hashed = partial(read_and_hash, made.blocks)
        for share in (1e-3, 1e-2, 1e-1, 1.0):
            watch = wallet(made, share)
            found = scanned(loop, made, watch, out).report.summary.matches
            ours, unit = best_of(rounds, partial(scanned, loop, made, watch, out), hashed)
            rows.append(Row(f"{found:,} {SERIES[0]}", ours, unit, _HASHED))
        watch = wallet(made, 0)
        for part_size in (_GROWN * 2, _GROWN // 4, _GROWN // 16, 1_000):
            count = len(scanned(loop, made, watch, out, part_size=part_size).plan.parts)
            ours, unit = best_of(rounds, partial(scanned, loop, made, watch, out, part_size=part_size), hashed)
            rows.append(Row(f"{count:,} {SERIES[1]}", ours, unit, _HASHED))
    return rows
