"""Helpers of the matcher's tests: scripts, chains with payments, kinds of sources, and the threads of a scan."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from spvfilter.scan.sources import BlockFiles
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, chain_of, p2wpkh, push, tx, txid
from support.blocks.chains import Interest, identity, slowly, write_records
from support.vectors import effort

MINE = p2wpkh(b"\x11" * 20)
JOBS = pytest.mark.parametrize("jobs", [1, 2, 3])
KINDS = pytest.mark.parametrize("kind", ["list", "iterator", "generator", "in order", "files"])
SEEDS = pytest.mark.parametrize("seed", range(effort(2, 6, 300)))
ANCESTOR = b"\x55" * 32


def scanning() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("spvfilter")]


def threads() -> list[str]:
    return [thread.name for thread in scanning()]


def mine() -> WatchList:
    return Interest([MINE]).watch()


def paying(count: int) -> list[bytes]:
    """A chain in which every block pays us once."""
    return chain_of(
        [[tx([TxIn(bytes([1]) * 32, number)], [TxOut(1_000 + number, MINE)])] for number in range(count)], height=100
    )


def source(kind: str, blocks: list[bytes], tmp_path: Path) -> tuple[object, dict[str, bool]]:
    match kind:
        case "list":
            return blocks, {}
        case "iterator":
            return iter(blocks), {}
        case "generator":
            return slowly(blocks), {}
        case "in order":
            return iter(blocks), {"in_order": True}
    return BlockFiles(write_records(tmp_path / "blk00000.dat", blocks)), {}


def shuffled(blocks: Sequence[bytes], seed: int) -> list[bytes]:
    return random.Random(seed).sample(blocks, len(blocks))


def pay(script: bytes = MINE, salt: int = 0) -> bytes:
    return tx([TxIn(bytes([salt + 1]) * 32, 0, push(b"x"))], [TxOut(1_000, script)])


def spend(of: bytes, script_sig: bytes = b"") -> bytes:
    return tx([TxIn(txid(of), 0, script_sig)], [TxOut(900, p2wpkh(bytes(20)))])


def once(matches: Sequence[Match]) -> set[Match]:
    """The matches as a set; fails if an identity occurs twice."""
    assert not [which for which, count in Counter(map(identity, matches)).items() if count > 1]
    return set(matches)
