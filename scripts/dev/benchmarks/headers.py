"""The header chain: validation of headers, memory of a long chain, and starts of a light client with a long chain."""

from __future__ import annotations

import hashlib
import os
import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measure import Row, best_of

from spvfilter.chain import HeaderChain, decode_bits, retarget, work
from spvfilter.chain.difficulty import PERIOD, SPACING
from spvfilter.kernel import BACKEND
from spvfilter.network import MAINNET, REGTEST

_COUNT = 2_000  # headers of one message
_LONG = 900_000  # headers, about mainnet's height
_NOW = 1_800_000_000  # seconds since 1970


def headers(_: Path, rounds: int) -> list[Row]:
    """Measure mainnet's first headers in messages of 2,000, and a made-up chain of 900,000 headers."""
    folder = Path(os.environ.get("SPVFILTER_VECTORS", ".")) / "06_headers"
    raw = (folder / "mainnet_0_10236.bin").read_bytes()
    pieces = [raw[at : at + 80 * _COUNT] for at in range(80, len(raw), 80 * _COUNT)]

    def judge() -> None:
        chain = HeaderChain(MAINNET)
        for piece in pieces[:4]:
            chain.store(*chain.examine(piece, _NOW)[2:4])

    (taken,) = best_of(rounds, judge)
    goal = 15.0 if BACKEND == "native" else 60.0
    code = [
        "from spvfilter.chain.packed import PackedHeaders\nimport os",
        "def resident():\n    return int(open('/proc/self/statm').read().split()[1]) * 4096",
        "chain = PackedHeaders(0, os.urandom(80), os.urandom(32), 1)\nbefore = resident()",
        "for _ in range(450):\n    chain.append(os.urandom(80 * 2000), os.urandom(32))",
        "print((resident() - before) / 900_000)",
    ]
    grown = subprocess.run([sys.executable, "-c", "\n".join(code)], check=True, capture_output=True, text=True).stdout
    rows = [
        Row(f"{_COUNT:,} headers validated and stored, ms", taken / 4, goal, "goal", 1.0),
        Row("bytes of memory for each of 900,000", float(grown), 120.0, "goal", 1.0),
    ]
    return rows + (starts(rounds) if BACKEND == "native" else [])


def starts(rounds: int) -> list[Row]:
    """Measure first starts and restarts with 900,000 headers by mainnet's rules, in processes of their own."""
    program = Path(__file__).with_name("firststart.py")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "headers"
        total = make(made, _LONG)
        best: dict[tuple[str, str], tuple[float, int]] = {}
        ways = {
            "headers": ("0", "bip37"),
            "headers in two passes": (str(total), "bip37"),
            "headers and filter headers": ("0", "compact"),
        }
        for turn in range(min(rounds, 3)):
            for name, (least, mode) in ways.items():
                database = Path(folder) / f"{mode}{least}{turn}"
                for when in ("first", "again", "again"):
                    command = [sys.executable, program, database, made, least, mode, when, str(_LONG)]
                    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                    seconds, memory = best.get((name, when), (float("inf"), 0))
                    best[name, when] = min(seconds, float(out[0])), max(memory, int(out[1]))
                for each in Path(folder).glob(f"{database.name}*"):
                    each.unlink()
    goals = {
        ("headers", "first"): (1.5, 110.0),
        ("headers", "again"): (0.4, 110.0),
        ("headers in two passes", "first"): (None, 110.0),
    }
    rows = []
    for (name, when), (seconds, memory) in best.items():
        time_goal, most = goals.get((name, when), (None, 250.0 if "filter" in name else 110.0))
        label = f"{_LONG:,} {name}, {'first start' if when == 'first' else 'restart'}"
        rows.append(
            Row(
                f"{label}, s",
                seconds,
                time_goal or 1.0,
                "goal" if time_goal else "1 second",
                1.0 if time_goal else None,
            )
        )
        rows.append(Row(f"{label}, MB", memory / 1e6, most, "goal", 1.0))
    return rows


def make(path: Path, count: int, root_at: Callable[[int], bytes] | None = None) -> int:
    """Write headers from height 1 on, ten minutes apart, by mainnet's rules at regtest's difficulty.

    `root_at` gives merkle roots by height; by default they are random. Returns the work of the chain.
    """
    source, previous, limit = random.Random(1), REGTEST.genesis_hash, REGTEST.pow_limit
    bits, total = REGTEST.pow_limit_bits, work(REGTEST.pow_limit_bits)
    (time,) = struct.unpack_from("<I", REGTEST.genesis, 68)
    first, target = time, decode_bits(bits)[0]
    with path.open("wb") as file:
        for height in range(1, count + 1):
            if not height % PERIOD:
                bits = retarget(bits, time - first, limit)
                target, first = decode_bits(bits)[0], time + SPACING
            time += SPACING
            root = source.randbytes(32) if root_at is None else root_at(height)
            raw, previous = _mined(struct.pack("<I32s32sII", 0x20000000, previous, root, time, bits), target)
            total += work(bits)
            file.write(raw)
    return total


def _mined(head: bytes, target: int) -> tuple[bytes, bytes]:
    """Find the first nonce that meets the target. Returns the header and its hash."""
    nonce = 0
    while True:
        raw = head + nonce.to_bytes(4, "little")
        block_hash = hashlib.sha256(hashlib.sha256(raw).digest()).digest()
        if int.from_bytes(block_hash, "little") <= target:
            return raw, block_hash
        nonce += 1
