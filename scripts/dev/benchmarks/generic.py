"""The generic Bloom filter compared with other Bloom filters for Python, and its rates compared with theory."""

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
import pyarrow as pa
from measure import Row, best_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import fastbloom_rs
    import pybloom_live
    import pybloomfilter
    import rbloom

from spvfilter import BloomFilter
from spvfilter.bloom import ScalableBloomFilter, sizing
from spvfilter.bloom.exchange import SplitBlockFilter
from spvfilter.kernel import BACKEND

COUNT = 1_000_000 if BACKEND == "native" else 100_000  # the pure kernel is some hundred times slower
LISTED = 200_000  # keys of lists and columns
LARGE = 20_000_000 if BACKEND == "native" else 5_000  # keys of a split-block filter
MANY = 40_000_000  # keys; their filter is larger than any cache
RATE = 0.01


def stable(key: bytes) -> int:
    """Hash a key in the same way in every process. rbloom needs such a function to save a filter."""
    return mmh3.hash128(key, signed=True)


def fastbloom(count: int = COUNT) -> object:
    return fastbloom_rs.FilterBuilder(count, RATE).build_bloom_filter()


def each(call: Callable[[bytes], object], keys: Iterable[bytes]) -> None:
    for key in keys:
        call(key)


def asked(container: Container[bytes], keys: Iterable[bytes]) -> None:
    for key in keys:
        key in container  # noqa: B015  # only the operator is measured


class Peer(NamedTuple):
    """Another library of Bloom filters."""

    name: str
    """Its name."""
    make: Callable[[], Any]
    """Makes a filter for COUNT keys."""
    add: Callable[[Any], Callable[[bytes], object]]
    """Returns a filter's function that adds one key."""
    ask: Callable[[Any, list[bytes]], None]
    """Looks up keys one by one."""
    update: Callable[[Any], Callable[[list[bytes]], object]] | None
    """Returns a filter's function that adds many keys; None if there is none."""
    goals: dict[str, float]
    """Goals of spvfilter, as shares of the library's times, by name of the measurement."""


RBLOOM = {"add": 0.8, "in, hits": 1.0, "in, misses": 1.0, "list": 0.9}
ABLE_TO_SAVE = dict.fromkeys(RBLOOM, 0.25)
NO_SLOWER = {"add": 1.0, "in, hits": 1.0, "in, misses": 1.0}
COMPILED, PURE = BACKEND == "native", BACKEND == "pure"
PEERS = [
    Peer(
        "rbloom",
        lambda: rbloom.Bloom(COUNT, RATE),
        lambda f: f.add,
        asked,
        lambda f: f.update,
        RBLOOM if COMPILED else {},
    ),
    Peer(
        *(
            "rbloom, able to save",
            lambda: rbloom.Bloom(COUNT, RATE, stable),
            lambda f: f.add,
            asked,
            lambda f: f.update,
        ),
        ABLE_TO_SAVE if COMPILED else {},
    ),
    Peer(
        "pybloomfiltermmap3",
        lambda: pybloomfilter.BloomFilter(COUNT, RATE),
        lambda f: f.add,
        asked,
        lambda f: f.update,
        {},
    ),
    Peer(
        "fastbloom-rs",
        fastbloom,
        lambda f: f.add_bytes,
        lambda f, keys: each(f.contains_bytes, keys),
        lambda f: f.add_bytes_batch,
        {},
    ),
    Peer(
        "pybloom-live",
        lambda: pybloom_live.BloomFilter(COUNT, RATE),
        lambda f: f.add,
        asked,
        None,
        NO_SLOWER if PURE else {},
    ),
]

Calls = tuple[Callable[[], object], Callable[[], object]]  # of spvfilter, and of the other library


def comparison(peer: Peer, ours: BloomFilter, keys: list[bytes], strangers: list[bytes]) -> dict[str, Calls]:
    """Make the calls that compare spvfilter with one library."""
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
    """Measure nanoseconds per key: add and look up keys one by one, add lists, columns and contiguous buffers."""
    rows = []
    for width in (20, 32):
        keys, strangers = ([os.urandom(width) for _ in range(COUNT)] for _ in range(2))
        ours = BloomFilter(COUNT, RATE)
        ours.update(keys)
        for peer in PEERS:
            for name, pair in comparison(peer, ours, keys, strangers).items():
                mine, other = (best * 1e6 / COUNT for best in best_of(rounds, *pair))
                rows.append(
                    Row(f"{BACKEND}, {width} bytes, {name}, ns/key", mine, other, peer.name, peer.goals.get(name))
                )
        rows += buffers(COUNT, width, rounds, 20)
    rows += lists(rounds) + columns(rounds) if COMPILED else []
    rows += small(rounds)
    rows += split_blocks(rounds)
    return rows + (buffers(MANY, 20, min(rounds, 2), 70) if COMPILED else [])


def lists(rounds: int) -> list[Row]:
    """Measure lists of bytes and of text beside fastbloom-rs and rbloom. rbloom looks keys up one by one."""
    rows = []
    for kind, keys, encode in (
        ("bytes", [os.urandom(20) for _ in range(LISTED)], None),
        ("text", [os.urandom(10).hex() for _ in range(LISTED)], "utf-8"),
    ):
        of_keys = (
            ("add_bytes_batch", "contains_bytes_batch") if encode is None else ("add_str_batch", "contains_str_batch")
        )
        filled, rust, other = BloomFilter(LISTED, RATE, encode=encode), fastbloom(LISTED), rbloom.Bloom(LISTED, RATE)
        filled.update(keys)
        getattr(rust, of_keys[0])(keys)
        other.update(keys)
        calls: list[tuple[str, str, Callable[[], object], Callable[[], object]]] = [
            ("update", "rbloom", partial(_updated, encode, keys), partial(_updated_rbloom, keys)),
            ("update", "fastbloom-rs", partial(_updated, encode, keys), partial(_added_fastbloom, of_keys[0], keys)),
            ("contains_many", "rbloom", partial(filled.contains_many, keys), partial(asked, other, keys)),
            (
                "contains_many",
                "fastbloom-rs",
                partial(filled.contains_many, keys),
                partial(getattr(rust, of_keys[1]), keys),
            ),
        ]
        for name, peer, mine, theirs in calls:
            best, reference = (found * 1e6 / LISTED for found in best_of(rounds, mine, theirs))
            rows.append(Row(f"{BACKEND}, list of {kind}, {name}, ns/key", best, reference, peer, 1.0))
    return rows


def _updated(encode: str | None, keys: list[Any]) -> object:
    return BloomFilter(LISTED, RATE, encode=encode).update(keys)


def _updated_rbloom(keys: list[Any]) -> object:
    return rbloom.Bloom(LISTED, RATE).update(keys)


def _added_fastbloom(add: str, keys: list[Any]) -> object:
    return getattr(fastbloom(LISTED), add)(keys)


def columns(rounds: int) -> list[Row]:
    """Measure columns of texts of 20 bytes and of integers, in nanoseconds per key."""
    text = [os.urandom(10).hex() for _ in range(LISTED)]
    whole = np.arange(LISTED)
    filled, numbers = BloomFilter(LISTED, RATE, encode="utf-8"), BloomFilter(LISTED, RATE, encode="int64")
    filled.update(text)
    numbers.update(whole)
    calls: dict[str, tuple[BloomFilter, Any]] = {
        "Arrow string": (filled, pa.array(text)),
        "Arrow string_view": (filled, pa.array(text, pa.string_view())),
        "NumPy U20": (filled, np.array(text)),
        "NumPy StringDType": (filled, np.array(text, np.dtypes.StringDType())),
        "NumPy int64": (numbers, whole),
        "Arrow int64": (numbers, pa.array(whole)),
    }
    best = best_of(rounds, *(partial(held.contains_many, column) for held, column in calls.values()))
    return [
        Row(
            f"{BACKEND}, column, {name}, contains_many, ns/key",
            found * 1e6 / LISTED,
            30,
            "ns, the goal of Arrow strings",
            goal,
        )
        for name, found, goal in zip(calls, best, [1.0, 1.0, None, None, None, None], strict=True)
    ]


def small(rounds: int) -> list[Row]:
    """Measure a new filter for 100 keys: microseconds beside rbloom, and bytes of memory besides its bits."""
    times, many = 20_000, 5_000
    calls = lambda: BloomFilter(100, RATE), lambda: rbloom.Bloom(100, RATE)
    mine, theirs = (best * 1e3 / times for best in best_of(rounds, *(partial(repeat, call, times) for call in calls)))
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = [calls[0]() for _ in range(many)]
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = (after - before) / many - 8 - len(kept[0].body)  # the list itself takes 8 bytes for each filter
    return [
        Row(f"{BACKEND}, made for 100 keys, µs", mine, theirs, "rbloom"),
        Row(f"{BACKEND}, made for 100 keys, µs", mine, 2.0, "µs, the goal", 1.0 if COMPILED else None),
        Row(
            f"{BACKEND}, made for 100 keys, bytes besides the bits",
            each,
            300,
            "bytes, the goal",
            1.0 if COMPILED else None,
        ),
    ]


def repeat(call: Callable[[], object], times: int) -> None:
    for _ in range(times):
        call()


def buffers(count: int, width: int, rounds: int, most: float) -> list[Row]:
    """Measure contiguous keys, in nanoseconds per key, against a goal."""
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


def split_blocks(rounds: int) -> list[Row]:
    """Measure the filter of Parquet beside the plain filter, both larger than the cache, in nanoseconds per key."""
    keys, strangers = (np.random.default_rng(seed).integers(-(1 << 62), 1 << 62, LARGE) for seed in (1, 2))
    made = SplitBlockFilter(LARGE, RATE, keys="int64"), BloomFilter(LARGE, RATE, encode="int64")
    for filled in made:
        filled.update(keys)
    calls = {
        "update": [partial(filled.update, keys) for filled in made],
        "contains_many, hits": [partial(filled.contains_many, keys) for filled in made],
        "contains_many, misses": [partial(filled.contains_many, strangers) for filled in made],
    }
    rows = []
    for name, pair in calls.items():
        mine, other = (best * 1e6 / LARGE for best in best_of(rounds, *pair))
        goal = 0.8 if COMPILED else None
        rows.append(
            Row(f"{BACKEND}, split blocks, {LARGE:.0e} integers, {name}, ns/key", mine, other, "BloomFilter", goal)
        )
    return rows


def scalable(_: Path, rounds: int) -> list[Row]:
    """Measure a filter that has grown to ten times its initial capacity, beside a plain filter for as many keys."""
    keys, strangers = ([os.urandom(20) for _ in range(COUNT)] for _ in range(2))
    made: dict[str, Callable[[], BloomFilter | ScalableBloomFilter]] = {
        "grown": lambda: ScalableBloomFilter(COUNT // 10, RATE),
        "plain": lambda: BloomFilter(COUNT, RATE),
    }
    grown, plain = (make() for make in made.values())
    grown.update(keys)
    plain.update(keys)
    calls = {
        ("add", 1.5): [partial(_added, make, keys) for make in made.values()],
        ("update", None): [partial(_updated_fresh, make, keys) for make in made.values()],
        ("in, hits", 2.5): [partial(asked, filled, keys) for filled in (grown, plain)],
        ("in, misses", 2.5): [partial(asked, filled, strangers) for filled in (grown, plain)],
        ("contains_many, hits", None): [partial(filled.contains_many, keys) for filled in (grown, plain)],
        ("contains_many, misses", None): [partial(filled.contains_many, strangers) for filled in (grown, plain)],
    }
    rows = []
    for (name, goal), pair in calls.items():
        mine, other = (best * 1e6 / COUNT for best in best_of(rounds, *pair))
        rows.append(
            Row(
                f"{BACKEND}, grown to 10 times its capacity, {name}, ns/key",
                mine,
                other,
                "BloomFilter made for as many",
                goal,
            )
        )
    return rows


def _added(make: Callable[[], BloomFilter | ScalableBloomFilter], keys: list[bytes]) -> None:
    each(make().add, keys)


def _updated_fresh(make: Callable[[], BloomFilter | ScalableBloomFilter], keys: list[bytes]) -> None:
    make().update(keys)


def rates(_: Path, rounds: int) -> list[Row]:
    """Compare rates with theory, for filters that are sized exactly and by a Taylor series.

    The first rate is the share of new keys that are "seen before" while the filter is filled. The second is the rate at
    capacity. They are often confused: TBOX reports the first as the second.
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
