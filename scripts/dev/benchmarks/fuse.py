"""The static filter: its build and look-ups against the goals, the Bloom filter, and pyfusefilter if it is installed.

pyfusefilter needs xxhash below version 4, so it is measured in an environment of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import Row, best_of

from spvfilter.bloom import BloomFilter, StaticFilter
from spvfilter.kernel import BACKEND

try:
    import pyfusefilter
except ImportError:
    pyfusefilter = None

COMPILED = BACKEND == "native"
COUNT = 10_000_000 if COMPILED else 20_000  # keys of the column of integers
LISTED = 500_000 if COMPILED else 5_000  # keys of lists
RATE = 2.0**-8


def static(_: Path, rounds: int) -> list[Row]:
    """Measure the build and the look-ups, in nanoseconds per key."""
    return [*column(rounds), *lists(rounds), *peer(rounds)]


def column(rounds: int) -> list[Row]:
    keys = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, COUNT)
    made, plain = StaticFilter(keys, encode="int64"), BloomFilter(COUNT, RATE, encode="int64")
    plain.update(keys)
    singles = keys[: COUNT // 10].tolist()
    calls: list[tuple[str, int, float, Callable[[], object]]] = [
        ("build", COUNT, 60, partial(StaticFilter, keys, encode="int64")),
        ("contains_many", COUNT, 25, partial(made.contains_many, keys)),
        ("in", len(singles), 90, partial(asked, made, singles)),
        ("BloomFilter, contains_many", COUNT, 0, partial(plain.contains_many, keys)),
        ("BloomFilter, in", len(singles), 0, partial(asked, plain, singles)),
    ]
    best = best_of(rounds, *(call for _, _, _, call in calls))
    found = {name: milliseconds * 1e6 / count for (name, count, _, _), milliseconds in zip(calls, best, strict=True)}
    share = 1.0 if COMPILED else None
    rows = [
        Row(f"{BACKEND}, static, int64 column of {COUNT:.0e}, {name}, ns/key", found[name], goal, "ns, the goal", share)
        for name, _, goal, _ in calls
        if goal
    ]
    rows += [
        Row(f"{BACKEND}, static, int64 column of {COUNT:.0e}, {name}, ns/key", found[name], found[other], "BloomFilter")
        for name, other in (("contains_many", "BloomFilter, contains_many"), ("in", "BloomFilter, in"))
    ]
    return rows


def lists(rounds: int) -> list[Row]:
    """Measure batches of strings and of bytes; they may take 15 ns more than with a BloomFilter."""
    rows = []
    text = [f"https://host{number}.example/" for number in range(LISTED)]
    for kind, encode, keys in (("str", "utf-8", text), ("bytes", None, [key.encode() for key in text])):
        made, plain = StaticFilter(keys, encode=encode), BloomFilter(LISTED, RATE, encode=encode)
        plain.update(keys)
        mine, other = (
            milliseconds * 1e6 / LISTED
            for milliseconds in best_of(rounds, partial(made.contains_many, keys), partial(plain.contains_many, keys))
        )
        name = f"{BACKEND}, static, list of {kind}, contains_many, ns/key"
        rows.append(Row(name, mine, other + 15, "BloomFilter plus 15 ns", 1.0 if COMPILED else None))
    return rows


def peer(rounds: int) -> list[Row]:
    """Measure beside pyfusefilter, which hashes each key by Python's own hash."""
    if pyfusefilter is None:
        return []
    keys = [f"https://host{number}.example/" for number in range(LISTED)]
    made, other = StaticFilter(keys, encode="utf-8"), pyfusefilter.Fuse8(keys)
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "build": (partial(StaticFilter, keys, encode="utf-8"), partial(pyfusefilter.Fuse8, keys)),
        "in": (partial(asked, made, keys), partial(asked, other, keys)),
    }
    rows = []
    for name, pair in pairs.items():
        mine, theirs = (milliseconds * 1e6 / LISTED for milliseconds in best_of(rounds, *pair))
        rows.append(Row(f"{BACKEND}, static, list of str, {name}, ns/key", mine, theirs, "pyfusefilter"))
    return rows


def asked(container: Any, keys: list[Any]) -> None:
    for key in keys:
        key in container  # noqa: B015  # only the operator is measured
