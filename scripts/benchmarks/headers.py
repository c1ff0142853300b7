"""The header chain: validating headers, and the memory that a long chain takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from measure import Row, best_of

from spvfilter.chain import HeaderChain
from spvfilter.kernel import BACKEND
from spvfilter.network import MAINNET

_COUNT = 2_000  # of a headers message
_NOW = 1_800_000_000


def headers(_: Path, rounds: int) -> list[Row]:
    """Mainnet's first headers in messages of 2,000, and a made-up chain of 900,000 headers."""
    folder = Path(os.environ.get("SPVFILTER_VECTORS", ".")) / "06_headers"
    raw = (folder / "mainnet_0_10236.bin").read_bytes()
    pieces = [raw[at : at + 80 * _COUNT] for at in range(80, len(raw), 80 * _COUNT)]

    def judge() -> None:
        chain = HeaderChain(MAINNET)
        for piece in pieces[:4]:
            chain.store(*chain.examine(piece, _NOW)[2:4])

    (taken,) = best_of(rounds, judge)
    goal = 15.0 if BACKEND == "native" else 60.0
    code = (
        "from spvfilter.chain.packed import PackedHeaders\nimport os\n"
        "def resident():\n    return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "chain = PackedHeaders(0, os.urandom(80), os.urandom(32), 1)\nbefore = resident()\n"
        "for _ in range(450):\n    chain.append(os.urandom(80 * 2000), os.urandom(32 * 2000))\n"
        "print((resident() - before) / 900_000)"
    )
    grown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return [
        Row(f"{_COUNT:,} headers validated and stored, ms", taken / 4, goal, "goal", 1.0),
        Row("bytes of memory for each of 900,000", float(grown), 120.0, "goal", 1.0),
    ]
