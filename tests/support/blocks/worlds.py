"""Random wallets and blocks with their transactions, sound and damaged, for tests of both kernels. No assertions."""

from __future__ import annotations

import random
from collections.abc import Sequence

from spvfilter.kernel import MAX_PREFIX, NO_VALUE, EntryKind, ScriptType, WatchTable
from support.blocks import build
from support.blocks.build import TxIn, TxOut

VALUES = [0, 1, 5_000, 2**62, 2**63 - 1, NO_VALUE, -2, -(2**63)]
LENGTHS = [*range(1, 60), 62, 63, 64, 67, 71, 105, 252, 253, 254, 600]


class World:
    """Scripts, keys and data that a wallet may watch, and the transactions made from them so far."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.keys = [bytes((rng.choice((2, 3)),)) + rng.randbytes(32) for _ in range(3)] + [b"\x04" + rng.randbytes(64)]
        self.data = [rng.randbytes(rng.choice((1, 4, 12, 20, 32, 33, 76, 300))) for _ in range(4)] + self.keys[:1]
        self.scripts = [
            *(build.p2pkh(rng.randbytes(20)), build.p2sh(rng.randbytes(20)), build.p2wpkh(rng.randbytes(20))),
            *(build.p2wsh(rng.randbytes(32)), build.p2tr(rng.randbytes(32)), build.p2pk(self.keys[0])),
            *(build.multisig(1, self.keys[:2]), build.multisig(2, self.keys[1:]), b"", b"\x51"),
            *(b"\x6a" + build.push(data) for data in self.data),
            *(rng.randbytes(rng.choice(LENGTHS)) for _ in range(3)),
        ]
        self.mined: list[bytes] = []
        self.points = [rng.randbytes(32) + rng.choice((0, 1, 7)).to_bytes(4, "little") for _ in range(4)]

    def entry(self) -> tuple[EntryKind, bytes]:
        match self.rng.choice(list(EntryKind)):
            case EntryKind.MULTISIG_KEY:
                return EntryKind.MULTISIG_KEY, self.rng.choice(self.keys)
            case EntryKind.DATA:
                return EntryKind.DATA, self.rng.choice(self.data)
            case EntryKind.OUTPOINT:
                return EntryKind.OUTPOINT, self.point()
            case EntryKind.DATA_PREFIX:
                return EntryKind.DATA_PREFIX, self.rng.choice(self.data)[: self.rng.randint(1, MAX_PREFIX)]
            case EntryKind.SCRIPT_TYPE if self.rng.random() < 0.2:
                return EntryKind.SCRIPT_TYPE, bytes((self.rng.choice(list(ScriptType)),))
        return EntryKind.SCRIPT, self.rng.choice(self.scripts)

    def point(self) -> bytes:
        return self.rng.choice(self.points + self.points[-6:])

    def coin(self, entries: int) -> tuple[bytes, int, int, bytes | None]:
        """Arguments of set_coin."""
        script = self.rng.choice([None, self.rng.choice(self.scripts), self.rng.randbytes(self.rng.choice(LENGTHS))])
        return self.point(), self.rng.randrange(entries + 2), max(NO_VALUE, self.rng.choice(VALUES)), script

    def tables(self, *kinds: type[WatchTable]) -> list[WatchTable]:
        """One table of each class, all with the same contents."""
        made = [kind() for kind in kinds]
        for _ in range(self.rng.randrange(8)):
            entry = self.entry()
            numbers = {table.add(*entry) for table in made}
            assert len(numbers) == 1
        for _ in range(self.rng.randrange(4)):
            coin = self.coin(len(made[0]))
            for table in made:
                table.set_coin(*coin)
        return made

    def tx(self) -> bytes:
        rng = self.rng
        inputs = []
        for _ in range(rng.choice((1, 1, 1, 2, 3)) if rng.random() < 0.98 else 0):
            point = self.point() if rng.random() < 0.7 else rng.randbytes(36)
            script_sig = rng.choice([b"", build.push(rng.choice(self.data)), rng.randbytes(rng.choice(LENGTHS))])
            witness = (rng.randbytes(rng.randrange(4)),) * rng.randrange(3)
            inputs.append(TxIn(point[:32], int.from_bytes(point[32:], "little"), script_sig, witness=witness))
        outputs = [
            TxOut(
                rng.choice(VALUES),
                rng.choice(self.scripts) if rng.random() < 0.7 else rng.randbytes(rng.choice(LENGTHS)),
            )
            for _ in range(rng.choice((0, 1, 1, 2, 5)))
        ]
        raw = build.tx(inputs, outputs)
        if inputs:  # without inputs, the bytes would parse as another form
            self.points += [build.outpoint(build.txid(raw), n) for n in range(len(outputs))]
        return raw

    def block(self) -> bytes:
        """A block of a few transactions, rarely with a duplicate. They may spend each other's outputs and earlier ones.

        Some were in an earlier block, as after a reorganization or in a repeated scan.
        """
        txs = [self.tx() for _ in range(self.rng.choice((1, 2, 3, 6)))]
        self.mined = [*self.mined[-6:], self.rng.choice(txs)]
        if self.rng.random() < 0.3:
            txs.insert(0, self.rng.choice(self.mined))
        if self.rng.random() < 0.1:
            txs.append(self.rng.choice(txs))
        return bytes(80) + build.var_int(len(txs)) + b"".join(txs)

    def damaged(self, raw: bytes, seldom: float = 0.0) -> bytes:
        """The bytes, sometimes truncated, lengthened, or with a few changes."""
        if self.rng.random() >= seldom:
            return raw
        changed = bytearray(raw)
        match self.rng.randrange(4):
            case 0:
                del changed[self.rng.randrange(len(raw)) :]
            case 1:
                changed += self.rng.randbytes(self.rng.choice((1, 4, 80)))
            case 2:
                at = self.rng.randrange(len(raw))
                changed[at : at + self.rng.randrange(4)] = self.rng.randbytes(self.rng.randrange(4))
            case 3:
                for _ in range(self.rng.randrange(1, 4)):
                    changed[self.rng.randrange(len(raw))] = self.rng.choice(
                        (0, 1, 0x4C, 0xFC, 0xFD, 0xFE, 0xFF, self.rng.randrange(256))
                    )
        return bytes(changed)


def contents(tables: Sequence[WatchTable]) -> list[object]:
    return [(len(table), list(table.entries()), list(table.coins())) for table in tables]
