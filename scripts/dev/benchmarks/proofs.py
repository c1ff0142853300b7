"""Merkleblocks: parses and verifies their proofs, and compares that with Bitcoin Core's algorithm in C."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import Row, best_of

from spvfilter.kernel import BACKEND, extract_matches, merkle_root, parse_merkleblock
from spvfilter.primitives import Header
from spvfilter.wire.messages import MerkleBlock

_ROOT = Path(__file__).parents[3]
_CSRC, _TESTS = _ROOT / "spvfilter/kernel/csrc", _ROOT / "tests/native"
_PEER = _ROOT / "build/bench/peer_merkleblock.so"
_CORE = "Core's ExtractMatches in C"


def peer() -> Callable[[bytes, int, int], bool]:
    """Compile tests/native/peer_merkleblock.c. Its function takes a payload, its size and a number of repetitions."""
    _PEER.parent.mkdir(parents=True, exist_ok=True)
    sources = [
        _CSRC / "spv.c",
        *sorted(_CSRC.glob("hash/**/*.c")),
        *sorted(_CSRC.glob("block/*.c")),
        _TESTS / "peer_merkleblock.c",
    ]
    command = [
        os.environ.get("CC", "cc"),
        "-std=c11",
        "-O3",
        "-fPIC",
        "-shared",
        f"-I{_CSRC}",
        f"-I{_TESTS}",
        *map(str, sources),
    ]
    subprocess.run([*command, "-o", str(_PEER)], check=True)
    prove = ctypes.CDLL(str(_PEER)).peer_prove
    prove.argtypes, prove.restype = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_size_t], ctypes.c_bool
    return prove


def proofs(_: Path, rounds: int) -> list[Row]:
    """Measure microseconds for a proof, in the kernel and with the objects of the public classes."""
    prove, rows = peer(), []
    for total, matches in ((2_000, 1), (2_000, 20), (2_000, 500), (16_666, 16_666)):
        source = random.Random(matches)
        txids = [source.randbytes(32) for _ in range(total)]
        header = Header(4, bytes(32), merkle_root(txids)[0], 1, 0x207FFFFF, 0)
        block = MerkleBlock.from_txids(header, txids, source.sample(range(total), matches))
        payload, times = bytes(block), max(1, 20_000 // len(block.hashes))
        assert prove(payload, len(payload), 1)

        def kernel(payload: bytes, root: bytes, times: int) -> None:
            for _ in range(times):
                extract_matches(root, *parse_merkleblock(payload))

        def objects(payload: bytes, times: int) -> None:
            for _ in range(times):
                MerkleBlock.parse(payload).verify()

        calls = partial(kernel, payload, header.merkle_root, times), partial(objects, payload, times)
        best = best_of(3 * rounds, *calls, partial(prove, payload, len(payload), times))
        mine, whole, core = (each / times * 1e3 for each in best)
        name = f"{matches:,} of {total:,} transactions"
        rows.append(Row(f"{name}: parse and verify, µs", mine, core, _CORE, 1.5 if BACKEND == "native" else None))
        rows.append(Row(f"{name}: MerkleBlock.parse and verify, µs", whole, core, _CORE))
    return rows
