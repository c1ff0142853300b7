"""Loose transactions: one after the other, as a stream, and against a node's filter, beside a loop over
python-bitcoinlib.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from itertools import cycle
from pathlib import Path

from bitcoin.bloom import CBloomFilter
from bitcoin.core import CTransaction
from blocks import is_relevant, read, strangers, watching
from measure import Row, best_of, p99, record_lag

from spvfilter import Bip37Filter, Matcher, WatchList
from spvfilter.kernel import BACKEND, walk_block
from spvfilter.primitives import compact_size
from spvfilter.protocol import MAX_BLOCK_SIZE
from spvfilter.scan import relevant_txs

_SCRIPTS = 100_000
_SINGLE_US, _STREAM_US, _LAG_MS = 5.0, 4.0, 5.0  # goals
_LAGS = 300  # delays of the event loop that are recorded
_PLAIN = "python-bitcoinlib and a set of scripts"
_FILTER = "python-bitcoinlib's filter and our loop"


def txs(folder: Path, rounds: int) -> list[Row]:
    """All in microseconds for a transaction. The filter of python-bitcoinlib does not implement IsRelevantAndUpdate."""
    name, block = read(folder)[-1]
    found = [block[span.start : span.end] for span in walk_block(block)]
    each = 1e3 / len(found)  # microseconds for a transaction, from milliseconds for all
    what = f"{len(found):,} transactions of block {name}"
    watch = watching(_SCRIPTS)
    with asyncio.Runner() as loop:
        matcher = Matcher(watch)
        ways: dict[str, Callable[[], object]] = {
            "WatchList.match_tx": partial(_match_each, watch, found),
            "await Matcher.match_tx": lambda: loop.run(_await_each(matcher, found)),
            "Matcher.match_txs of a list": lambda: loop.run(_stream(matcher, found)),
            "Matcher.match_txs of an asynchronous iterator": lambda: loop.run(_stream(matcher, _asynchronous(found))),
        }
        *ours, plain = best_of(rounds, *ways.values(), partial(_plain_loop, set(watch.script_pubkeys()), found))
        rows = [
            Row(f"{what}, {way}, µs each", best * each, plain * each, _PLAIN)
            for way, best in zip(ways, ours, strict=True)
        ]
        if BACKEND == "native":
            goals = {"await Matcher.match_tx": _SINGLE_US, "Matcher.match_txs of a list": _STREAM_US}
            rows += [
                Row(f"{what}, {way}, µs each", best * each, goals[way], f"at most {goals[way]:g} µs", 1.0)
                for way, best in zip(ways, ours, strict=True)
                if way in goals
            ]
        rows += _of_a_filter(loop, found, rounds, what)
    if BACKEND == "native":
        lag = min(asyncio.run(_lag(watch, found, _block_of(found))) for _ in range(rounds))
        title = "loop lag p99, a block of 4 MB beside a stream, ms"
        rows.append(Row(title, lag, _LAG_MS, f"at most {_LAG_MS:g} ms", 1.0))
    return rows


def _of_a_filter(loop: asyncio.Runner, found: list[bytes], rounds: int, what: str) -> list[Row]:
    each = 1e3 / len(found)
    theirs, made = CBloomFilter(1_000, 1e-4, 1, CBloomFilter.UPDATE_ALL), Bip37Filter(1_000, 1e-4, 1)
    for element in strangers(1_000):
        theirs.insert(element)
        made.insert(element)
    (other,) = best_of(1, lambda: [is_relevant(theirs, CTransaction.deserialize(raw)) for raw in found])
    ways = {
        "Bip37Filter.match_txs": lambda: made.copy().match_txs(found),
        "relevant_txs": lambda: loop.run(_relevant(made.copy(), found)),
    }
    best = best_of(rounds, *ways.values())
    return [
        Row(f"{what}, {way}, µs each", ours * each, other * each, _FILTER) for way, ours in zip(ways, best, strict=True)
    ]


def _match_each(watch: WatchList, found: Sequence[bytes]) -> None:
    for raw in found:
        watch.match_tx(raw)


async def _await_each(matcher: Matcher, found: Sequence[bytes]) -> None:
    for raw in found:
        await matcher.match_tx(raw)


async def _stream(matcher: Matcher, source: Sequence[bytes] | AsyncIterator[bytes]) -> None:
    async for _ in matcher.match_txs(source):
        pass


async def _relevant(made: Bip37Filter, found: Sequence[bytes]) -> None:
    async for _ in relevant_txs(made, found):
        pass


async def _asynchronous(found: Iterable[bytes]) -> AsyncIterator[bytes]:
    for raw in found:
        yield raw


def _plain_loop(scripts: set[bytes], found: Sequence[bytes]) -> int:
    """The matcher that a user of python-bitcoinlib writes: a set of scripts and a dict of outpoints."""
    coins, matches = dict[tuple[bytes, int], int](), 0
    for raw in found:
        tx = CTransaction.deserialize(raw)
        for txin in tx.vin:
            matches += (txin.prevout.hash, txin.prevout.n) in coins
        for index, output in enumerate(tx.vout):
            if bytes(output.scriptPubKey) in scripts:
                coins[tx.GetTxid(), index] = output.nValue
                matches += 1
    return matches


def _block_of(found: Sequence[bytes]) -> bytes:
    """A block of nearly 4 MB with these transactions, as often as they fit."""
    body, size = [], 0
    for raw in cycle(found):
        if size + len(raw) > MAX_BLOCK_SIZE - 100:
            break
        body.append(raw)
        size += len(raw)
    return bytes(80) + compact_size(len(body)) + b"".join(body)


async def _lag(watch: WatchList, found: Sequence[bytes], block: bytes) -> float:
    """The 99th percentile of the event loop's delays, in ms, while blocks and a stream are matched."""
    matcher, delays = Matcher(watch), list[float]()

    async def stream() -> None:
        async with aclosing(matcher.match_txs(_asynchronous(cycle(found)))) as matches:
            async for _ in matches:
                pass

    tasks = [asyncio.create_task(stream()), asyncio.create_task(record_lag(delays))]
    while len(delays) < _LAGS:
        await matcher.match_block(block)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return p99(delays)
