"""Undo records of blocks whose spent outputs are known, written from the format's description. No assertions."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bitcoin.core import CBlock

from spvfilter.network import REGTEST
from spvfilter.primitives import Reader
from support.blocks.build import TxIn, TxOut, block_hash, outpoint, sha256d, tx, txid, var_int
from support.blocks.chains import Purse, record, xored
from support.blocks.realdata import RealBlock
from support.vectors import vector_path

P = 2**256 - 2**32 - 977  # the field of secp256k1
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)


@dataclass(frozen=True)
class Spent:
    """A spent output: satoshi, scriptPubKey, the height of its block (0: unknown), whether a coinbase made it."""

    value: int
    script: bytes
    height: int = 0
    coinbase: bool = False
    version: int = 0


def var(number: int) -> bytes:
    """A VARINT of Core's serialize.h."""
    groups = [number & 0x7F]
    while number > 0x7F:
        number = (number >> 7) - 1
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))


def packed_amount(satoshi: int) -> int:
    """Core's CompressAmount: removes up to nine decimal zeros."""
    if not satoshi:
        return 0
    zeros = 0
    while zeros < 9 and satoshi % 10 == 0:
        satoshi //= 10
        zeros += 1
    if zeros < 9:
        return 1 + 10 * (9 * (satoshi // 10) + satoshi % 10 - 1) + zeros
    return 1 + 10 * (satoshi - 1) + 9


def on_curve(key: bytes) -> bool:
    x, y = int.from_bytes(key[1:33], "big"), int.from_bytes(key[33:], "big")
    return x < P and y < P and (y * y - x * x * x - 7) % P == 0


def packed_script(script: bytes) -> bytes:
    """Core's CScript compression."""
    if len(script) == 25 and script[:3] == b"\x76\xa9\x14" and script[23:] == b"\x88\xac":
        return b"\x00" + script[3:23]
    if len(script) == 23 and script[:2] == b"\xa9\x14" and script[22:] == b"\x87":
        return b"\x01" + script[2:22]
    if len(script) == 35 and script[0] == 33 and script[34] == 0xAC and script[1] in (2, 3):
        return script[1:34]
    if len(script) == 67 and script[0] == 65 and script[66] == 0xAC and script[1] == 4 and on_curve(script[1:66]):
        return bytes((4 + (script[65] & 1),)) + script[2:34]
    return var(len(script) + 6) + script


def packed(coin: Spent) -> bytes:
    version = var(coin.version) if coin.height else b""
    return var(2 * coin.height + coin.coinbase) + version + var(packed_amount(coin.value)) + packed_script(coin.script)


def undo_of(spent: Sequence[Sequence[Spent]]) -> bytes:
    """The undo of a block, from the coins of each transaction except the coinbase."""
    return var_int(len(spent)) + b"".join(var_int(len(coins)) + b"".join(map(packed, coins)) for coins in spent)


def record_of(raw: bytes, undo: bytes) -> bytes:
    """The undo record of that block, with its checksum."""
    return undo + sha256d(raw[4:36] + undo)


def spent_of(
    blocks: Iterable[bytes], known: dict[bytes, Spent] | None = None, start: int = 0
) -> list[list[list[Spent]]]:
    """The coins that each block of a chain spends, in order. All must come from these blocks or from `known`, by
    outpoint.
    """
    coins = {} if known is None else dict(known)
    spent = []
    for height, raw in enumerate(blocks, start):
        of_block = []
        for position, each in enumerate(CBlock.deserialize(raw).vtx):
            if position:
                of_block.append([coins.pop(outpoint(txin.prevout.hash, txin.prevout.n)) for txin in each.vin])
            for n, out in enumerate(each.vout):
                coins[outpoint(each.GetTxid(), n)] = Spent(out.nValue, bytes(out.scriptPubKey), height, position == 0)
        spent.append(of_block)
    return spent


def coins_of_block(block: RealBlock) -> list[list[Spent]]:
    """The spent outputs of a real block, from its file of prevouts."""
    reader = Reader(vector_path(f"03_blocks/{block.facts['prevouts_file']}").read_bytes())
    txs = CBlock.deserialize(block.raw).vtx[1:]

    def coin() -> Spent:
        value = int.from_bytes(reader.take(8, "value"), "little")
        return Spent(value, reader.take(reader.compact_size("length"), "script"))

    return [[coin() for _ in each.vin] for each in txs]


def records_of(blocks: Sequence[bytes], known: dict[bytes, Spent] | None = None, start: int = 0) -> list[bytes]:
    """The undo record of each block of a chain."""
    return [record_of(raw, undo_of(spent)) for raw, spent in zip(blocks, spent_of(blocks, known, start), strict=True)]


def framed(record: bytes, magic: bytes = REGTEST.magic) -> bytes:
    """A record in the format of rev*.dat: magic, size without the check, undo, check."""
    return magic + struct.pack("<I", len(record) - 32) + record


def write_undo(path: Path, records: Iterable[bytes], magic: bytes = REGTEST.magic) -> Path:
    path.write_bytes(b"".join(framed(record, magic) for record in records))
    return path


def write_chain(
    folder: Path, blocks: Iterable[bytes], records: Iterable[bytes] | None = None, number: int = 0, *, key: bytes = b""
) -> Path:
    """Write a blk*.dat and, if undo records are given, its rev*.dat. Bitcoin Core XORs both if there is a key."""
    folder.mkdir(exist_ok=True)
    pieces = {"blk": map(record, blocks)} | ({} if records is None else {"rev": map(framed, records)})
    for name, raws in pieces.items():
        raw = b"".join(raws)
        (folder / f"{name}{number:05}.dat").write_bytes(xored(raw, key) if key else raw)
    if key:
        (folder / "xor.dat").write_bytes(key)
    return folder


def full_key(number: int) -> bytes:
    """The uncompressed public key of a small private key, by repeated addition of the generator."""
    x, y = G
    for _ in range(number - 1):
        slope = (3 * x * x * pow(2 * y, -1, P) if (x, y) == G else (y - G[1]) * pow(x - G[0], -1, P)) % P
        x2 = (slope * slope - x - G[0]) % P
        x, y = x2, (slope * (x - x2) - y) % P
    return b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")


KEYS = [full_key(number) for number in range(1, 9)]


class Ledger(Purse):
    """A random chain that creates no money, so that undo records can be made: a transaction pays its inputs
    less a fee.
    """

    def __init__(self, rng: random.Random, *, closed: bool = False) -> None:
        super().__init__(rng)
        self.closed = closed  # True if no output from before the chain is spent
        self.interest.scripts += [b"\x41" + KEYS[0] + b"\xac", b"\x21" + b"\x02" + KEYS[1][1:33] + b"\xac"]
        self.interest.data.append(KEYS[2])
        self.values: dict[tuple[bytes, int], int] = {}
        self.before: dict[bytes, Spent] = {}  # coins from before the chain

    def script(self) -> bytes:
        if self.rng.random() < 0.2:
            key = self.rng.choice(KEYS)
            return (
                b"\x41" + key + b"\xac"
                if self.rng.random() < 0.7
                else b"\x21" + bytes((2 + key[64] % 2,)) + key[1:33] + b"\xac"
            )
        return super().script()

    def transaction(self) -> bytes:
        inputs, total = [], 0
        for _ in range(self.rng.randint(1, 3)):
            if self.unspent and (self.closed or self.rng.random() < 0.8):
                oldest = max(0, len(self.unspent) - 6) if self.rng.random() < 0.6 else 0
                tx_hash, index, script = self.unspent.pop(self.rng.randrange(oldest, len(self.unspent)))
                total += self.values[tx_hash, index]
            elif not self.closed:
                tx_hash, index, script = self.rng.randbytes(32), self.rng.randrange(3), self.script()
                coin = Spent(
                    self.rng.randrange(10**6, 10**9), script, self.rng.randrange(1, 90), self.rng.random() < 0.1
                )
                self.before[outpoint(tx_hash, index)] = coin
                total += coin.value
            else:
                break
            if script not in self.interest.scripts and script[:2] == b"\x00\x14" and self.rng.random() < 0.05:
                self.interest.outpoints.append(outpoint(tx_hash, index))
            witness = (self.rng.randbytes(5),) if self.rng.random() < 0.5 else ()
            inputs.append(TxIn(tx_hash, index, b"\x05" + self.rng.randbytes(5), witness=witness))
        count = self.rng.randint(1, 4)
        outputs = [
            TxOut((total - self.rng.randrange(min(total, 500) + 1)) // count, self.script()) for _ in range(count)
        ]
        raw = tx(inputs, outputs, lock_time=self.rng.randrange(1 << 30))
        self.made[raw] = (inputs, outputs)
        self.adopt(raw)
        return raw

    def block(self, previous: bytes, height: int, txs: Sequence[bytes] | None = None, *, time: int = 0) -> bytes:
        """A block whose coinbase can be spent in the chain."""
        raw = super().block(previous, height, [] if self.closed and not self.unspent else txs, time=time)
        first = CBlock.deserialize(raw).vtx[0]
        for index, out in enumerate(first.vout):
            if out.nValue:
                self.unspent.append((first.GetTxid(), index, bytes(out.scriptPubKey)))
                self.values[first.GetTxid(), index] = out.nValue
        return raw

    def adopt(self, raw: bytes) -> None:
        super().adopt(raw)
        self.values.update(((txid(raw), index), out.value) for index, out in enumerate(self.made[raw][1]))


def ledger_chain(seed: int, length: int = 30, *, closed: bool = False) -> tuple[Ledger, list[bytes], list[bytes]]:
    """A wallet, a chain in order, and the undo record of each block."""
    ledger = Ledger(random.Random(seed), closed=closed)
    blocks: list[bytes] = []
    previous = ledger.rng.randbytes(32)
    for height in range(100, 100 + length):
        blocks.append(ledger.block(previous, height))
        previous = block_hash(blocks[-1])
    return ledger, blocks, records_of(blocks, ledger.before, 100)


def node_records(name: str, tail: int) -> list[bytes]:
    """The records of a file of 12_undo, each with `tail` bytes after its size."""
    raw, at, records = vector_path(f"12_undo/{name}").read_bytes(), 0, []
    while raw[at : at + 4] == REGTEST.magic:
        end = at + 8 + int.from_bytes(raw[at + 4 : at + 8], "little") + tail
        records.append(raw[at + 8 : end])
        at = end
    return records
