"""The oracle: finds a wallet's matches with python-bitcoinlib. It reads every block with a dict of scripts and coins.

It shares no code with the engine, the wallet or the kernel: nothing here imports the package under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from bitcoin.core import CBlock, CTransaction


class Place(NamedTuple):
    """The position of a match in a chain."""

    kind: str  # "output" or "input"
    txid: bytes
    number: int  # of the output or the input
    height: int
    block: bytes


class Tx(NamedTuple):
    """The parts of a transaction that the oracle needs."""

    txid: bytes
    spends: tuple[bytes, ...]  # outpoints, 36 bytes
    pays: tuple[bytes, ...]  # scripts
    values: tuple[int, ...]  # satoshi, of each output


class Block(NamedTuple):
    """A block that was read. Most blocks do not touch the wallet; the two sets show this quickly."""

    hash: bytes
    txs: tuple[Tx, ...]
    pays: frozenset[bytes]  # every script that it pays
    spends: frozenset[bytes]  # every outpoint that it spends


_MOST = 20_000  # blocks that are kept
_read: dict[bytes, Block] = {}  # by their bytes


def block_hash(raw: bytes) -> bytes:
    """Hash of a block, wire order."""
    return sha256(sha256(raw[:80]).digest()).digest()


def read_tx(tx: CTransaction) -> Tx:
    """Extract the needed parts from a transaction of bitcoinlib."""
    return Tx(
        tx.GetTxid(),
        tuple(each.prevout.serialize() for each in tx.vin),
        tuple(bytes(each.scriptPubKey) for each in tx.vout),
        tuple(each.nValue for each in tx.vout),
    )


def txid(raw: bytes) -> bytes:
    """Txid of a serialised transaction."""
    found: bytes = CTransaction.deserialize(raw).GetTxid()
    return found


@lru_cache(maxsize=20_000)
def spends(raw: bytes) -> tuple[bytes, ...]:
    """The outpoints that a serialised transaction spends."""
    return read_tx(CTransaction.deserialize(raw)).spends


@lru_cache(maxsize=20_000)
def parse(raw: bytes) -> Tx:
    """Parse a serialised transaction."""
    return read_tx(CTransaction.deserialize(raw))


def read_block(raw: bytes) -> tuple[Tx, ...]:
    """The transactions of a block."""
    return read(raw).txs


def read(raw: bytes) -> Block:
    """A block."""
    found = _read.get(raw)
    if found is None:
        if len(_read) >= _MOST:
            _read.clear()
        txs = tuple(map(read_tx, CBlock.deserialize(raw).vtx))
        pays = frozenset(script for tx in txs for script in tx.pays)
        found = _read[raw] = Block(
            block_hash(raw), txs, pays, frozenset(outpoint for tx in txs for outpoint in tx.spends)
        )
    return found


def scan(blocks: Sequence[bytes], scripts: set[bytes], first: int = 0) -> set[Place]:
    """Every output of a chain, genesis block first, that pays one of the scripts, and every input that spends such an
    output.

    Blocks below height `first` are left out.
    """
    found: set[Place] = set()
    coins: set[bytes] = set()
    for height, raw in enumerate(blocks[first:], first):
        block = read(raw)
        if block.pays.isdisjoint(scripts) and block.spends.isdisjoint(coins):
            continue
        digest = block.hash
        for tx in block.txs:
            for index, outpoint in enumerate(tx.spends):
                if outpoint in coins:
                    found.add(Place("input", tx.txid, index, height, digest))
            for index, script in enumerate(tx.pays):
                if script in scripts:
                    found.add(Place("output", tx.txid, index, height, digest))
                    coins.add(tx.txid + index.to_bytes(4, "little"))
    return found
