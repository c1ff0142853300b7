"""Compact filters: decodes, queries and builds them, and simulates all filters of mainnet."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from functools import partial
from itertools import chain, repeat
from pathlib import Path

from measure import Row, best_of, times_of

from spvfilter.filters import match_filters
from spvfilter.kernel import BACKEND, GcsQuery, gcs_build, gcs_check
from spvfilter.protocol import BASIC_M, BASIC_P

_ELEMENTS = 10_000  # of the filter Bitcoin Core was measured with
_AVERAGE = 5_100  # elements of mainnet's average filter, 13.5 kB
_MAINNET = 900_000  # filters
_CORE = "sha256 of 1 MB (1 u)"


def scripts(count: int, seed: int) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(25 if number % 2 else 22) for number in range(count)]


def gcs(_: Path, rounds: int) -> list[Row]:
    """Measure queries without a hit, which decode every set to its end."""
    raw, key = bytes(1_000_000), bytes(range(16))
    items = scripts(_ELEMENTS, 1)
    data = gcs_build(items, key, BASIC_P, BASIC_M)
    native = BACKEND == "native"
    sizes = (
        {10: None, 100: None, 1_000: 0.14, 10_000: None, 100_000: 2.5, 1_000_000: None}
        if native
        else {10: None, 1_000: None}
    )
    unit = partial(hashlib.sha256, raw)
    rows = []
    checked, one = best_of(rounds, partial(gcs_check, data, BASIC_P), unit)
    rows.append(Row(f"N={_ELEMENTS:,}: decode and check", checked, one, _CORE))
    for count, goal in sizes.items():
        query = GcsQuery(scripts(count, 2))
        asked, one = best_of(rounds, partial(query.match_any, data, key, BASIC_P, BASIC_M), unit)
        rows.append(Row(f"N={_ELEMENTS:,}: match_any, {count:,} scripts", asked, one, _CORE, goal))
    built, one = best_of(rounds, partial(gcs_build, items, key, BASIC_P, BASIC_M), unit)
    rows.append(Row(f"N={_ELEMENTS:,}: build", built, one, _CORE, 0.4 if native else None))
    if native:
        rows += _stream(average_filters(), GcsQuery(scripts(1_000, _MAINNET)), rounds)
    return rows


def average_filters() -> list[tuple[bytes, bytes]]:
    """Make a thousand filters of the average size, with the hashes of their blocks."""
    source = random.Random(3)
    keys = [source.randbytes(32) for _ in range(1_000)]
    return [
        (each, gcs_build(scripts(_AVERAGE, number), each[:16], BASIC_P, BASIC_M)) for number, each in enumerate(keys)
    ]


def ask(filters: list[tuple[bytes, bytes]], query: GcsQuery, jobs: int) -> None:
    """Match each filter four times, one by one, as from a file."""
    deque(match_filters(chain.from_iterable(repeat(filters, 4)), query, jobs=jobs), maxlen=0)


def _stream(filters: list[tuple[bytes, bytes]], query: GcsQuery, rounds: int) -> list[Row]:
    count = 4 * len(filters)
    two, one = times_of(rounds, partial(ask, filters, query, 2), partial(ask, filters, query, 1))
    return [
        Row(
            "average mainnet filters, 1,000 scripts, µs each",
            one.processor / count * 1e3,
            1e6 / 30_000,
            "30,000 a second and core",
            1.0,
        ),
        Row(f"all {_MAINNET:,} of them, jobs=2, s by the clock", two.clock / count * _MAINNET / 1e3, 30.0, "goal", 1.0),
    ]
