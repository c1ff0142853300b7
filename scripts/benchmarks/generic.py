"""The generic filter beside Python's other Bloom filters, and its rates beside their theory."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

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
from spvfilter.filters import sizing
from spvfilter.kernel import BACKEND

COUNT = 1_000_000 if BACKEND == "native" else 100_000  # the pure kernel is some hundred times slower
RATE = 0.01


class Peer(NamedTuple):
    """One library: how to make a filter of COUNT keys, to add and ask one key, and to add many."""

    name: str
    make: Callable[[], object]
    add: Callable[[object], Callable[[bytes], object]]
    contains: Callable[[object], Callable[[bytes], object]]
    update: Callable[[object], Callable[[list[bytes]], object]] | None


def stable(key: bytes) -> int:
    """A hash that survives the process, which rbloom needs before it can save."""
    return mmh3.hash128(key, signed=True)


def fastbloom() -> object:
    return fastbloom_rs.FilterBuilder(COUNT, RATE).build_bloom_filter()


PEERS = [
    Peer("rbloom", lambda: rbloom.Bloom(COUNT, RATE), lambda f: f.add, lambda f: f.__contains__, lambda f: f.update),
    Peer("rbloom, able to save", lambda: rbloom.Bloom(COUNT, RATE, stable), lambda f: f.add, lambda f: f.__contains__, lambda f: f.update),
    Peer(
        "pybloomfiltermmap3", lambda: pybloomfilter.BloomFilter(COUNT, RATE), lambda f: f.add, lambda f: f.__contains__, lambda f: f.update
    ),
    Peer("fastbloom-rs", fastbloom, lambda f: f.add_bytes, lambda f: f.contains_bytes, lambda f: f.add_bytes_batch),
    Peer("pybloom-live", lambda: pybloom_live.BloomFilter(COUNT, RATE), lambda f: f.add, lambda f: f.__contains__, None),
]


def each(call: Callable[[bytes], object], keys: Iterable[bytes]) -> None:
    for key in keys:
        call(key)


Calls = tuple[Callable[[], object], Callable[[], object]]  # ours, theirs


def comparison(peer: Peer, ours: BloomFilter, keys: list[bytes], strangers: list[bytes], flat: np.ndarray) -> dict[str, Calls]:
    """What is measured against one peer."""
    theirs = peer.make()
    each(peer.add(theirs), keys)

    def fresh() -> BloomFilter:
        return BloomFilter(COUNT, RATE)

    def asked(wanted: list[bytes]) -> Calls:
        return lambda: each(ours.__contains__, wanted), lambda: each(peer.contains(theirs), wanted)

    measured: dict[str, Calls] = {
        "add": (lambda: each(fresh().add, keys), lambda: each(peer.add(peer.make()), keys)),
        "in, hits": asked(keys),
        "in, misses": asked(strangers),
    }
    update = peer.update
    if update is not None:
        measured["list"] = (lambda: fresh().update(keys), lambda: update(peer.make())(keys))
        measured["buffer, against its list"] = (lambda: fresh().update(flat), lambda: update(peer.make())(keys))
    return measured


def generic(_: Path, rounds: int) -> list[Row]:
    """Nanoseconds a key: add one by one, ask one by one (hits and misses apart), add a list, add a contiguous buffer."""
    rows = []
    for width in (20, 32):
        keys = [os.urandom(width) for _ in range(COUNT)]
        strangers = [os.urandom(width) for _ in range(COUNT)]
        flat = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(COUNT, width)
        ours = BloomFilter(COUNT, RATE)
        ours.update(keys)
        for peer in PEERS:
            for name, pair in comparison(peer, ours, keys, strangers, flat).items():
                mine, other = (best * 1e6 / COUNT for best in best_of(rounds, *pair))
                rows.append(Row(f"{BACKEND}, {width} bytes, {name}, ns/key", mine, other, peer.name))
    return rows


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
