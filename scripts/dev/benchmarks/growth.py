"""Growth of costs with the watch list, the filter and the number of blocks, as rows."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import parts
import rbloom
from blocks import chained, fresh_scan, read, strangers, watching
from compact import scripts
from generic import RATE, asked, random_keys
from measure import Row, best_of

from spvfilter import Bip37Filter, BloomFilter, Matcher
from spvfilter.kernel import BACKEND, GcsQuery, gcs_build
from spvfilter.protocol import BASIC_M, BASIC_P

_U = "sha256 (1 u)"
_KEYS = ("keys added to a core filter", "keys looked up in a core filter")
_SERIES = ("scripts watched", "filter elements", "scripts asked of a compact filter", "blocks", *_KEYS, *parts.SERIES)
_AT_ONCE = 1_000_000  # keys


def growth(folder: Path, rounds: int) -> list[Row]:
    """Measure costs in u, the time of SHA-256: of block 413567, of 1 MB for compact filters, or of all blocks."""
    most = 7 if BACKEND == "native" else 4
    raw = dict(read(folder))["413567"]
    unit = partial(hashlib.sha256, raw)
    rows = []
    for count in (10**power for power in range(1, most + 1)):
        ours, one = best_of(rounds, partial(watching(count).table.scan_block, raw), unit)
        rows.append(Row(f"{count:,} {_SERIES[0]}", ours, one, _U))
    for count in (10, 100, 1_000, 10_000, 20_000):
        filter = Bip37Filter(count, 1e-4, 1)
        for element in strangers(count):
            filter.insert(element)
        ours, one = best_of(rounds, partial(fresh_scan, filter, raw), unit)
        rows.append(Row(f"{count:,} {_SERIES[1]}", ours, one, _U))
    key, megabyte = bytes(16), bytes(1_000_000)
    data = gcs_build(scripts(10_000, 1), key, BASIC_P, BASIC_M)
    for count in (10**power for power in range(1, most)):
        ours, one = best_of(
            rounds,
            partial(GcsQuery(scripts(count, 2)).match_any, data, key, BASIC_P, BASIC_M),
            partial(hashlib.sha256, megabyte),
        )
        rows.append(Row(f"{count:,} {_SERIES[2]}", ours, one, _U))
    watch = watching(1_000)
    for size in (4, 16, 64, 256):
        blocks = list(chained(folder, size << 20))
        ours, one = best_of(rounds, partial(_scan, Matcher(watch.copy(), jobs=2), blocks), partial(_hash, blocks))
        rows.append(Row(f"{len(blocks):,} {_SERIES[3]}", ours, one, "sha256 of each (1 u)"))
    rows += [row for power in range(3, 9 if BACKEND == "native" else 6) for row in keys(10**power, rounds)]
    return rows + ([*parts.growth(rounds), *parts.workers(folder, rounds)] if BACKEND == "native" else [])


def keys(count: int, rounds: int) -> Iterator[Row]:
    """Measure a filter that is filled with random keys of 16 bytes and asked for them, also beside rbloom."""
    filled, listing, other = BloomFilter(count, RATE), BloomFilter(count, RATE), rbloom.Bloom(count, RATE)
    spent = dict.fromkeys(("ours", "sha256", "list", "rbloom"), 0.0)
    for start in range(0, count, _AT_ONCE):
        batch = random_keys(min(_AT_ONCE, count - start))
        listed = [key.tobytes() for key in batch]
        calls: dict[str, Callable[[], object]] = {
            "ours": partial(filled.update, batch),
            "sha256": partial(hashlib.sha256, batch),
            "list": partial(listing.update, listed),
            "rbloom": partial(other.update, listed),
        }
        # The first addition of keys also maps the pages of the filter. A filter of one batch is filled again and again,
        # which costs as much without that.
        for name, took in zip(
            calls, best_of(max(rounds, 100_000 // count) if count <= _AT_ONCE else 1, *calls.values()), strict=True
        ):
            spent[name] += took
    yield Row(f"{count:,} {_KEYS[0]}", spent["ours"], spent["sha256"], _U)
    ours, one = best_of(rounds, partial(filled.contains_many, batch), partial(hashlib.sha256, batch))
    yield Row(f"{count:,} {_KEYS[1]}", ours, one, _U)
    each = 1e6 / count, 1e6 / len(listed)
    yield Row(f"{count:,} keys, added as lists, ns/key", spent["list"] * each[0], spent["rbloom"] * each[0], "rbloom")
    ours, one = best_of(rounds, partial(filled.contains_many, listed), partial(asked, other, listed))
    yield Row(f"{count:,} keys, looked up as lists, ns/key", ours * each[1], one * each[1], "rbloom")


def _scan(matcher: Matcher, blocks: list[bytes]) -> None:
    async def scan() -> None:
        async for _ in matcher.scan(blocks):
            pass

    asyncio.run(scan())


def _hash(blocks: list[bytes]) -> None:
    for block in blocks:
        hashlib.sha256(block)
