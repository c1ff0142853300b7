"""The generic filter compared with other Bloom filters for Python, and its rates compared with theory."""

from __future__ import annotations

import os
import tracemalloc
import warnings
from collections.abc import Callable, Container, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import mmh3
import numpy as np
from measure import Row, best_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import fastbloom_rs
    import pybloom_live
    import pybloomfilter
    import rbloom

from spvfilter import BloomFilter
from spvfilter.bloom import sizing
from spvfilter.kernel import BACKEND

COUNT = 1_000_000 if BACKEND == "native" else 100_000  # the pure kernel is some hundred times slower
MANY = 40_000_000  # keys; their filter is larger than any cache
RATE = 0.01


def stable(key: bytes) -> int:
    """A hash that survives the process, which rbloom needs before it can save."""
    return mmh3.hash128(key, signed=True)


def fastbloom() -> object:
    return fastbloom_rs.FilterBuilder(COUNT, RATE).build_bloom_filter()


def each(call: Callable[[bytes], object], keys: Iterable[bytes]) -> None:
    for key in keys:
        call(key)


def asked(container: Container[bytes], keys: Iterable[bytes]) -> None:
    for key in keys:
        key in container  # noqa: B015  # the operator's own time


class Peer(NamedTuple):
    """A library: how to make a filter of COUNT keys, add one key, look keys up one by one, add many; our goals as shares of its times."""

    name: str
    make: Callable[[], Any]
    add: Callable[[Any], Callable[[bytes], object]]
    ask: Callable[[Any, list[bytes]], None]
    update: Callable[[Any], Callable[[list[bytes]], object]] | None
    goals: dict[str, float]


RBLOOM = {"add": 0.8, "in, hits": 1.0, "in, misses": 1.0, "list": 0.9}
ABLE_TO_SAVE = dict.fromkeys(RBLOOM, 0.25)
NO_SLOWER = {"add": 1.0, "in, hits": 1.0, "in, misses": 1.0}
COMPILED, PURE = BACKEND == "native", BACKEND == "pure"
PEERS = [
    Peer("rbloom", lambda: rbloom.Bloom(COUNT, RATE), lambda f: f.add, asked, lambda f: f.update, RBLOOM if COMPILED else {}),
    Peer(
        *("rbloom, able to save", lambda: rbloom.Bloom(COUNT, RATE, stable), lambda f: f.add, asked, lambda f: f.update),
        ABLE_TO_SAVE if COMPILED else {},
    ),
    Peer("pybloomfiltermmap3", lambda: pybloomfilter.BloomFilter(COUNT, RATE), lambda f: f.add, asked, lambda f: f.update, {}),
    Peer("fastbloom-rs", fastbloom, lambda f: f.add_bytes, lambda f, keys: each(f.contains_bytes, keys), lambda f: f.add_bytes_batch, {}),
    Peer("pybloom-live", lambda: pybloom_live.BloomFilter(COUNT, RATE), lambda f: f.add, asked, None, NO_SLOWER if PURE else {}),
]

Calls = tuple[Callable[[], object], Callable[[], object]]  # ours, theirs


def comparison(peer: Peer, ours: BloomFilter, keys: list[bytes], strangers: list[bytes]) -> dict[str, Calls]:
    """The calls to compare with one library."""
    theirs = peer.make()
    each(peer.add(theirs), keys)

    def fresh() -> BloomFilter:
        return BloomFilter(COUNT, RATE)

    measured: dict[str, Calls] = {
        "add": (lambda: each(fresh().add, keys), lambda: each(peer.add(peer.make()), keys)),
        "in, hits": (lambda: asked(ours, keys), lambda: peer.ask(theirs, keys)),
        "in, misses": (lambda: asked(ours, strangers), lambda: peer.ask(theirs, strangers)),
    }
    update = peer.update
    if update is not None:
        measured["list"] = (lambda: fresh().update(keys), lambda: update(peer.make())(keys))
    return measured


def generic(_: Path, rounds: int) -> list[Row]:
    """Nanoseconds per key: adding and looking up one by one (hits and misses apart), adding a list, contiguous buffers."""
    rows = []
    for width in (20, 32):
        keys, strangers = ([os.urandom(width) for _ in range(COUNT)] for _ in range(2))
        ours = BloomFilter(COUNT, RATE)
        ours.update(keys)
        for peer in PEERS:
            for name, pair in comparison(peer, ours, keys, strangers).items():
                mine, other = (best * 1e6 / COUNT for best in best_of(rounds, *pair))
                rows.append(Row(f"{BACKEND}, {width} bytes, {name}, ns/key", mine, other, peer.name, peer.goals.get(name)))
        rows += buffers(COUNT, width, rounds, 20)
    rows += small(rounds)
    return rows + (buffers(MANY, 20, min(rounds, 2), 70) if COMPILED else [])


def small(rounds: int) -> list[Row]:
    """Making a filter for 100 keys: microseconds beside rbloom, and bytes besides its bits against the most that they may be."""
    times, many = 20_000, 5_000
    calls = lambda: BloomFilter(100, RATE), lambda: rbloom.Bloom(100, RATE)
    mine, theirs = (best * 1e3 / times for best in best_of(rounds, *(partial(repeat, call, times) for call in calls)))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = [calls[0]() for _ in range(many)]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = (after - before) / many - 8 - len(kept[0].body)  # the list has 8 bytes for each
    return [
        Row(f"{BACKEND}, made for 100 keys, µs", mine, theirs, "rbloom"),
        Row(f"{BACKEND}, made for 100 keys, µs", mine, 2.0, "µs, the goal", 1.0 if COMPILED else None),
        Row(f"{BACKEND}, made for 100 keys, bytes besides the bits", each, 300, "bytes, the goal", 1.0 if COMPILED else None),
    ]


def repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def buffers(count: int, width: int, rounds: int, most: float) -> list[Row]:
    """Contiguous keys, in nanoseconds per key, against a maximum."""
    rng = np.random.default_rng(width)
    flat, strangers = (rng.integers(0, 256, (count, width), np.uint8) for _ in range(2))
    filled = BloomFilter(count, RATE)
    filled.update(flat)
    calls = {
        "update": lambda: BloomFilter(count, RATE).update(flat),
        "contains_many, hits": lambda: filled.contains_many(flat),
        "contains_many, misses": lambda: filled.contains_many(strangers),
    }
    return [
        Row(
            f"{BACKEND}, {width} bytes, buffer of {count:.0e}, {name}, ns/key",
            best * 1e6 / count,
            most,
            "ns, the goal",
            1.0 if COMPILED else None,
        )
        for name, best in zip(calls, best_of(rounds, *calls.values()), strict=True)
    ]


def rates(_: Path, rounds: int) -> list[Row]:
    """For (p, k) at n keys, sized exactly and by Taylor: the share of "seen before" while filling, and the rate at capacity, with theory.

    The two are often confused: TBOX reports the first as the second.
    """
    count = 10_000_000
    rows = []
    for rate, functions in ((0.01, 3), (0.001, 3)):
        for how, bits in (
            ("exact", sizing.bits_for(count, rate, functions)),
            ("Taylor", sizing.bits_for_taylor(count, rate, functions)),
        ):
            filled = BloomFilter(bits=bits, hash_funcs=functions)
            chunk = 1_000_000
            new = sum(filled.update(random_keys(chunk)) for _ in range(0, count, chunk))
            asked = sum(sum(filled.contains_many(random_keys(chunk))) for _ in range(0, count, chunk))
            name = f"n={count:.0e} p={rate} k={functions} {how}, m/n={bits / count:.4f}"
            theory = sizing.fp_rate_while_filling(bits, functions, count)
            rows.append(Row(f"{name}, while filling", 1 - new / count, theory, "theory"))
            rows.append(Row(f"{name}, at capacity", asked / count, sizing.fp_rate(bits, functions, count), "theory"))
    return rows


def random_keys(count: int) -> np.ndarray:
    return np.frombuffer(os.urandom(16 * count), dtype=np.uint8).reshape(count, 16)
