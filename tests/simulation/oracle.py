"""The oracle: what a wallet has in a chain, found by reading every block with python-bitcoinlib and a dict of scripts and coins.

It shares no code with the engine, the wallet or the kernel: nothing here imports the package under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from bitcoin.core import CBlock, CTransaction


class Place(NamedTuple):
    """Where a match is in a chain."""

    kind: str  # "output" or "input"
    txid: bytes
    number: int  # of the output or the input
    height: int
    block: bytes


class Tx(NamedTuple):
    """What matters of a transaction."""

    txid: bytes
    spends: tuple[bytes, ...]  # outpoints, 36 bytes
    pays: tuple[bytes, ...]  # scripts


_MOST = 20_000  # blocks whose transactions are kept
_read: dict[bytes, tuple[bytes, tuple[Tx, ...]]] = {}  # by the block's bytes: its hash and its transactions


def block_hash(raw: bytes) -> bytes:
    """Hash of a block, wire order."""
    return sha256(sha256(raw[:80]).digest()).digest()


def read_tx(tx: CTransaction) -> Tx:
    """What matters of a transaction that bitcoinlib has parsed."""
    return Tx(tx.GetTxid(), tuple(each.prevout.serialize() for each in tx.vin), tuple(bytes(each.scriptPubKey) for each in tx.vout))


def txid(raw: bytes) -> bytes:
    """Txid of a serialised transaction."""
    found: bytes = CTransaction.deserialize(raw).GetTxid()
    return found


@lru_cache(maxsize=20_000)
def spends(raw: bytes) -> tuple[bytes, ...]:
    """The outpoints that a serialised transaction spends."""
    return read_tx(CTransaction.deserialize(raw)).spends


def read_block(raw: bytes) -> tuple[Tx, ...]:
    """The transactions of a block."""
    return _parse(raw)[1]


def _parse(raw: bytes) -> tuple[bytes, tuple[Tx, ...]]:
    found = _read.get(raw)
    if found is None:
        if len(_read) >= _MOST:
            _read.clear()
        found = _read[raw] = block_hash(raw), tuple(map(read_tx, CBlock.deserialize(raw).vtx))
    return found


def scan(blocks: Sequence[bytes], scripts: set[bytes], first: int = 0) -> set[Place]:
    """Every output of a chain, genesis block first, that pays one of the scripts, and every input that spends such an output.

    Blocks below height `first` are left out.
    """
    found: set[Place] = set()
    coins: set[bytes] = set()
    for height, raw in enumerate(blocks[first:], first):
        digest, txs = _parse(raw)
        for tx in txs:
            for index, outpoint in enumerate(tx.spends):
                if outpoint in coins:
                    found.add(Place("input", tx.txid, index, height, digest))
            for index, script in enumerate(tx.pays):
                if script in scripts:
                    found.add(Place("output", tx.txid, index, height, digest))
                    coins.add(tx.txid + index.to_bytes(4, "little"))
    return found
