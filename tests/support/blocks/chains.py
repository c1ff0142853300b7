"""Random chains with payments and spends of a wallet, trees of branches, blk files, and the expected results of a scan.

No assertions.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from bitcoin.core import CBlock, uint256_from_compact

from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.scan.matcher import Matcher
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import (
    TxIn,
    TxOut,
    block as raw_block,
    block_hash,
    block_of,
    coinbase,
    multisig,
    outpoint,
    p2pk,
    p2pkh,
    p2sh,
    p2tr,
    p2wpkh,
    push,
    tx,
    txid,
)
from support.oracles.oracle import Wallet

Identity = tuple[str, bytes, int, bytes, bytes]  # kind, txid, index, outpoint, block hash
Exact = tuple[str, bytes, int, bytes, bytes, int | None]  # Identity and the value


def identity(match: Match) -> Identity:
    assert match.block_hash is not None
    return (str(match.kind), match.txid, match.index, bytes(match.outpoint), match.block_hash)


def exact(match: Match) -> Exact:
    return (*identity(match), match.value)


async def found_by(matcher: Matcher, blocks: object, **options: bool) -> list[Match]:
    """All matches of a scan."""
    # some tests pass invalid values
    async with aclosing(matcher.scan(blocks, **options)) as matches:  # type: ignore[arg-type]
        return [match async for match in matches]


async def slowly(blocks: Iterable[object]) -> AsyncIterator[object]:
    """The blocks as an asynchronous generator."""
    for block in blocks:
        yield block


def record(raw: bytes, magic: bytes = REGTEST.magic) -> bytes:
    """A block as a record of a blk*.dat file."""
    return magic + len(raw).to_bytes(4, "little") + raw


def write_records(path: Path, blocks: Iterable[bytes], magic: bytes = REGTEST.magic) -> Path:
    path.write_bytes(b"".join(record(raw, magic) for raw in blocks))
    return path


def xored(data: bytes, key: bytes, offset: int = 0) -> bytes:
    return bytes(byte ^ key[(offset + at) % len(key)] for at, byte in enumerate(data))


@dataclass
class Interest:
    """A wallet's entries, for both the package and the oracle."""

    scripts: list[bytes] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    outpoints: list[bytes] = field(default_factory=list)

    def watch(self) -> WatchList:
        watch = WatchList(REGTEST)
        for number, script in enumerate(self.scripts):
            watch.add_script(script, f"script {number}")
        for key in self.keys:
            watch.add_pubkey(key, "key")
        for data in self.data:
            watch.add_data(data, "data")
        for point in self.outpoints:
            watch.add_outpoint(OutPoint.parse(point), "by hand")
        return watch

    def wallet(self) -> Wallet:
        wallet = Wallet()
        wallet.scripts |= set(self.scripts)
        for key in self.keys:
            wallet.add_key(key)
        wallet.data |= set(self.data)
        wallet.coins |= dict.fromkeys(self.outpoints)
        return wallet

    def expected(self, chain: Iterable[bytes]) -> list[Exact]:
        """The oracle's matches in blocks in chain order."""
        wallet = self.wallet()
        return [
            (kind, tx_hash, index, point, block_hash(raw), value)
            for raw in chain
            for kind, tx_hash, index, point, value in wallet.block(CBlock.deserialize(raw))
        ]


class Purse:
    """Unspent outputs of all wallets, and possible payees: the state of a random chain, which can be forked."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.interest = Interest(
            scripts=[
                *(shape(rng.randbytes(20)) for shape in (p2pkh, p2wpkh, p2sh) for _ in range(2)),
                p2tr(rng.randbytes(32)),
                b"\x51",  # anyone can spend
            ],
            keys=[b"\x02" + rng.randbytes(32)],
            data=[rng.randbytes(20)],
        )
        self.unspent: list[tuple[bytes, int, bytes]] = []  # txid, index, script
        self.made: dict[bytes, tuple[list[TxIn], list[TxOut]]] = {}  # shared by all forks

    def fork(self) -> Purse:
        twin = object.__new__(Purse)
        twin.rng, twin.interest, twin.made, twin.unspent = self.rng, self.interest, self.made, list(self.unspent)
        return twin

    def script(self) -> bytes:
        key, data = self.interest.keys[0], self.interest.data[0]
        ours = [
            *self.interest.scripts,
            p2pk(key),
            multisig(1, [b"\x03" + self.rng.randbytes(32), key]),
            b"\x6a" + push(data),
        ]
        return self.rng.choice(ours) if self.rng.random() < 0.3 else p2wpkh(self.rng.randbytes(20))

    def transaction(self) -> bytes:
        """Spend outputs that are mostly new and sometimes old. One input in ten pushes the data element."""
        inputs = []
        for _ in range(self.rng.randint(1, 3)):
            if self.unspent:
                oldest = max(0, len(self.unspent) - 6) if self.rng.random() < 0.6 else 0
                at = self.rng.randrange(oldest, len(self.unspent))
                tx_hash, index, script = self.unspent.pop(at)
            else:
                tx_hash, index, script = self.rng.randbytes(32), self.rng.randrange(3), b""
            if script not in self.interest.scripts and script[:2] == b"\x00\x14" and self.rng.random() < 0.05:
                self.interest.outpoints.append(outpoint(tx_hash, index))
            pushes = push(self.interest.data[0]) if self.rng.random() < 0.1 else push(self.rng.randbytes(9))
            witness = (self.rng.randbytes(5),) if self.rng.random() < 0.5 else ()
            inputs.append(TxIn(tx_hash, index, pushes, witness=witness))
        outputs = [TxOut(self.rng.randrange(1, 10**9), self.script()) for _ in range(self.rng.randint(1, 4))]
        raw = tx(inputs, outputs, lock_time=self.rng.randrange(1 << 30))
        self.made[raw] = (inputs, outputs)
        self.adopt(raw)
        return raw

    def could_make(self, raw: bytes) -> bool:
        """Return True if every output that a transaction of another fork spends is unspent here, or unknown."""
        unspent = {coin[:2] for coin in self.unspent}
        origins = set(map(txid, self.made))
        return all((txin.txid, txin.index) in unspent or txin.txid not in origins for txin in self.made[raw][0])

    def adopt(self, raw: bytes) -> None:
        """Apply a transaction made in this fork or in another."""
        inputs, outputs = self.made[raw]
        spent = {(txin.txid, txin.index) for txin in inputs}
        self.unspent = [coin for coin in self.unspent if coin[:2] not in spent]
        self.unspent += [(txid(raw), index, out.script_pubkey) for index, out in enumerate(outputs)]

    def block(self, previous: bytes, height: int, txs: Sequence[bytes] | None = None, *, time: int = 0) -> bytes:
        paid = [TxOut(self.rng.randrange(1, 10**9), self.script())]
        body = [self.transaction() for _ in range(self.rng.randint(0, 4))] if txs is None else txs
        return block_of(previous, height, body, paid, time)


@cache
def random_chain(seed: int, length: int = 30, *, backwards: bool = False) -> tuple[Interest, tuple[bytes, ...]]:
    """A wallet and a chain in order. With `backwards`, the highest block has the oldest time."""
    purse = Purse(random.Random(seed))
    blocks: list[bytes] = []
    previous = purse.rng.randbytes(32)
    for height in range(100, 100 + length):
        time = 1_700_000_000 + (-600 if backwards else 600) * height
        blocks.append(purse.block(previous, height, time=time))
        previous = block_hash(blocks[-1])
    return purse.interest, tuple(blocks)


@cache
def random_tree(seed: int, length: int = 25) -> tuple[Interest, tuple[bytes, ...]]:
    """A wallet and a tree of branches. Several branches have the same transactions."""
    rng = random.Random(seed)
    root = Purse(rng)
    tips: list[tuple[bytes, int, Purse]] = [(rng.randbytes(32), 100, root)]
    blocks: list[bytes] = []
    pool: list[tuple[bytes, bytes]] = []  # (its previous hash, transaction): a sibling may contain it, too
    for _ in range(length):
        previous, height, purse = tips[rng.choice((-1, -1, -1, rng.randrange(len(tips))))]
        purse = purse.fork()
        shared = []
        for parent, raw in pool:
            if parent == previous and rng.random() < 0.8 and purse.could_make(raw):
                purse.adopt(raw)
                shared.append(raw)
        fresh = [purse.transaction() for _ in range(rng.randint(0, 3))]
        pool += [(previous, raw) for raw in fresh]
        body = shared + fresh
        if rng.random() < 0.15:  # eight times the work of another block
            first = coinbase(height, [TxOut(7, purse.script())], rng.randbytes(4))
            raw = raw_block(previous, [first, *body], 1_300_000_000 + 600 * height, 0x200FFFFF, mined=True)
        else:
            raw = purse.block(previous, height, body)
        blocks.append(raw)
        tips.append((block_hash(raw), height + 1, purse))
    return root.interest, tuple(blocks)


def best_chain(blocks: Iterable[bytes]) -> list[bytes]:
    """The branch with the most work among blocks above one root.

    The longest of equal branches is the best, and then the tip with the smallest hash decides.
    """
    known = {block_hash(raw): raw for raw in blocks}

    def branch(raw: bytes) -> list[bytes]:
        chain = [raw]
        while (before := known.get(chain[-1][4:36])) is not None:
            chain.append(before)
        return chain[::-1]

    def rank(chain: list[bytes]) -> tuple[int, int, bytes]:
        total = sum(2**256 // (uint256_from_compact(int.from_bytes(raw[72:76], "little")) + 1) for raw in chain)
        return -total, -len(chain), block_hash(chain[-1])

    return min((branch(raw) for raw in known.values()), key=rank)
