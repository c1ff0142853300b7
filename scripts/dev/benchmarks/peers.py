"""First synchronization of the same wallet by spvfilter and by BDK's Kyoto, which `race` explains."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from measure import Row
from race import OURS, Chain, race

_CHAIN = Chain(blocks=5_000, matching=1_000)
_ENCRYPTED = ("compact-addresses", "bip37-addresses")  # run with encryption as well
_UNITS = (
    ("wall", "ms", 1e3),
    ("cpu", "processor ms", 1e3),
    ("new", "ms until a new process has its first balance", 1e3),
    ("size", "MB", 1.0),
)
# at most this many times Kyoto's figure
_GOALS = {
    ("compact-descriptor", "wall"): 0.8,
    ("compact-descriptor", "cpu"): 0.9,
    ("compact-lookahead", "wall"): 0.6,
    ("compact-lookahead", "cpu"): 0.7,
    ("bip37-descriptor", "wall"): 1.0,
    ("bip37-descriptor", "cpu"): 1.0,
}


def peers(_: Path, rounds: int) -> list[Row]:
    """Measure wall time, processor time and memory of a first synchronization, each client in a new process.

    The node is the bitcoind that the variable BITCOIND names, else spvfilter's own.
    """
    if importlib.util.find_spec("bdkpython") is None:
        print("bench: bdkpython is not installed, so Kyoto is left out", file=sys.stderr)
        return []
    node = os.environ.get("BITCOIND")
    best = race(_CHAIN, rounds, (*OURS, *(f"{name}-v2" for name in _ENCRYPTED), "kyoto"), node)
    chain = f"{_CHAIN.matching:,} matching blocks from {'our node' if node is None else 'Bitcoin Core'}"
    rows = []
    for name in OURS:
        label = f"{chain}, {name.replace('-', ', ')}"
        for what, unit, factor in _UNITS:
            ours, kyoto = best[name][what] * factor, best["kyoto"][what] * factor
            rows.append(Row(f"{label}, {unit}", ours, kyoto, "Kyoto, compact filters", _GOALS.get((name, what))))
        if name in _ENCRYPTED:
            encrypted, plain = best[f"{name}-v2"]["cpu"] * 1e3, best[name]["cpu"] * 1e3
            rows.append(Row(f"{label}, encrypted, processor ms", encrypted, plain, "without encryption", 1.3))
    return rows
