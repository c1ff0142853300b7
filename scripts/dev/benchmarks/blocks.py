"""Scans of real blocks: the exact scan and the BIP-37 relevance test.

They are compared with SHA-256 of the same bytes, and with python-bitcoinlib.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from bitcoin.bloom import CBloomFilter
from bitcoin.core import CBlock, COutPoint, CTransaction
from measure import Row, best_of, p99, record_lag

from spvfilter import Bip37Filter, BlockFiles, Matcher, WatchList
from spvfilter.hashes import sha256d
from spvfilter.kernel import BACKEND

_LARGE = 600_000  # bytes; smaller blocks are not used
_DIFFERENT = 165  # number of different blocks
NAMES = ("mainnet_0413567_25aff8be", "mainnet_0574200_1602407a", "mainnet_0866342_14ce9ba7")


def read(folder: Path) -> list[tuple[str, bytes]]:
    return [(name.split("_")[1].lstrip("0"), (folder / f"{name}.raw").read_bytes()) for name in NAMES]


def chained(folder: Path, size: int) -> Iterator[bytes]:
    """Yield the large real blocks again and again, until `size` bytes, which exceed the caches of the processor.

    Each block names the block before it as its parent.
    """
    large = [raw for path in sorted(folder.glob("mainnet_*.raw")) if len(raw := path.read_bytes()) > _LARGE]
    previous, made = bytes(32), 0
    while made < size:
        for raw in large:
            block = raw[:4] + previous + raw[36:]
            previous = sha256d(block[:80])
            made += len(block)
            yield block


def strangers(count: int) -> list[bytes]:
    """Make hashes that no block contains; they are the same in each run."""
    source = random.Random(count)
    return [source.randbytes(20) for _ in range(count)]


def watching(count: int, coins: int = 3_000) -> WatchList:
    """Make a watch list of scripts and outpoints that no block contains."""
    watch = WatchList()
    source = random.Random(count)
    for _ in range(count):
        watch.add_script(b"\x00\x14" + source.randbytes(20))
    for _ in range(coins):
        watch.table.set_coin(source.randbytes(36), 0, 1, None)
    return watch


def scan(folder: Path, rounds: int) -> list[Row]:
    """Measure the exact scan. 10,000,000 scripts are measured only with the compiled kernel."""
    rows = []
    counts = (
        {1_000: 0.25, 100_000: 0.25, 1_000_000: 0.25, 10_000_000: 0.6}
        if BACKEND == "native"
        else {1_000: None, 100_000: None}
    )
    for count, goal in counts.items():
        watch = watching(count)
        for name, raw in read(folder):
            ours, unit = best_of(rounds, partial(watch.table.scan_block, raw), partial(hashlib.sha256, raw))
            rows.append(Row(f"block {name}, exact, {count:,} scripts", ours, unit, "sha256 (1 u)", goal))
            if count == 1_000:
                parse, oracle = best_of(1, partial(watch.table.scan_block, raw), partial(CBlock.deserialize, raw))
                rows.append(
                    Row(f"block {name}, exact, {count:,} scripts", parse, oracle, "python-bitcoinlib, deserialise only")
                )
    return rows + different(folder, rounds) if BACKEND == "native" else rows


def different(folder: Path, rounds: int) -> list[Row]:
    """Measure many different blocks, each read once from memory, with the kernel alone and with the matcher.

    The event loop of the matcher runs already.
    """
    rows = []
    blocks = list(islice(chained(folder, sys.maxsize), _DIFFERENT))
    name = f"{_DIFFERENT} different blocks, exact"
    with asyncio.Runner() as loop:
        for count in (1_000, 100_000, 1_000_000):
            watch = watching(count)
            ours, kernel, unit = best_of(
                3 * rounds,
                partial(_run_match_all, loop, watch, blocks),
                partial(scan_each, watch, blocks),
                partial(hash_each, blocks),
            )
            rows.append(Row(f"{name}, {count:,} scripts", kernel, unit, "sha256 (1 u)", 0.25))
            rows.append(Row(f"{name}, {count:,} scripts, Matcher", ours, kernel, "the kernel alone", 1.1))
    return rows


async def match_all(watch: WatchList, blocks: BlockFiles | list[bytes], jobs: int) -> None:
    async for _ in Matcher(watch, jobs=jobs).scan(blocks):
        pass


def _run_match_all(loop: asyncio.Runner, watch: WatchList, blocks: list[bytes]) -> None:
    loop.run(match_all(watch, blocks, 1))


def scan_each(watch: WatchList, blocks: list[bytes]) -> None:
    for raw in blocks:
        watch.table.scan_block(raw)


def hash_each(blocks: list[bytes]) -> None:
    for raw in blocks:
        hashlib.sha256(raw)


def bip37(folder: Path, rounds: int) -> list[Row]:
    """Measure the relevance test of every transaction, with updates of the filter."""
    rows = []
    for name, raw in read(folder):
        for count, rate in ((1_000, 1e-4), (1_000, 1e-2), (1_000, 1e-6), (10, 1e-4), (10_000, 1e-4)):
            ours = Bip37Filter(count, rate, 1)
            for element in strangers(count):
                ours.insert(element)
            mine, unit = best_of(rounds, partial(fresh_scan, ours, raw), partial(hashlib.sha256, raw))
            goal = 1.6 if BACKEND == "native" and (count, rate) == (1_000, 1e-4) else None
            rows.append(Row(f"block {name}, n={count} p={rate:g}", mine, unit, "sha256 (1 u)", goal))
        theirs = CBloomFilter(1_000, 1e-4, 1, CBloomFilter.UPDATE_ALL)
        ours = Bip37Filter(1_000, 1e-4, 1)
        for element in strangers(1_000):
            ours.insert(element)
            theirs.insert(element)
        mine, other = best_of(1, partial(fresh_scan, ours, raw), partial(relevance_test, theirs, raw))
        rows.append(Row(f"block {name}, n=1000 p=0.0001", mine, other, "python-bitcoinlib's filter and our loop"))
    return rows


def fresh_scan(loaded: Bip37Filter, raw: bytes) -> int:
    """Scan with a copy of the loaded filter, since a scan changes it."""
    return len(loaded.copy().scan_block(raw))


def relevance_test(theirs: CBloomFilter, raw: bytes) -> int:
    """Do the relevance test with parts of python-bitcoinlib, which does not implement IsRelevantAndUpdate."""
    return sum(is_relevant(theirs, tx) for tx in CBlock.deserialize(raw).vtx)


def is_relevant(theirs: CBloomFilter, tx: CTransaction) -> bool:
    """Whether a node with this filter sends the transaction; its matching outputs are inserted."""
    txid = tx.GetTxid()
    found = theirs.contains(txid)
    for index, output in enumerate(tx.vout):
        if any(theirs.contains(push) for push in pushes(output.scriptPubKey)):
            found = True
            theirs.insert(COutPoint(txid, index))
    return found or any(
        theirs.contains(txin.prevout) or any(theirs.contains(push) for push in pushes(txin.scriptSig))
        for txin in tx.vin
    )


def pushes(script: object) -> list[bytes]:
    found = []
    try:
        for _, data, _ in script.raw_iter():  # type: ignore[attr-defined]  # a CScript
            if data:
                found.append(data)
    except Exception:
        return found
    return found


def lag(folder: Path, rounds: int) -> list[Row]:
    """Measure how late the event loop wakes a sleeper while the matcher scans: the 99th percentile in milliseconds."""
    blocks = [raw for _, raw in read(folder)]
    watch = WatchList()
    watch.add_script(b"\x00\x14" + bytes(20))

    async def scan_all(jobs: int) -> None:
        async for _ in Matcher(watch, jobs=jobs).scan(blocks):
            pass

    idle = min(asyncio.run(_lag_while(lambda: asyncio.sleep(0.1))) for _ in range(rounds))
    return [
        Row(f"loop lag p99 while scanning, jobs={jobs}, ms", best, idle, "an idle loop")
        for jobs in (1, 2)
        for best in [min(asyncio.run(_lag_while(partial(scan_all, jobs))) for _ in range(rounds))]
    ]


async def _lag_while(work: Callable[[], Awaitable[object]]) -> float:
    delays: list[float] = []

    sleeper = asyncio.create_task(record_lag(delays))
    while len(delays) < 200:
        await work()
    sleeper.cancel()
    return p99(delays)
