"""Bitcoin Core as judge of the embedded node: both have the same best chain after valid and invalid blocks."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from spvfilter.errors import FormatError, HeaderError, RefusedError
from spvfilter.node.blocktree import TreeBlock, subsidy
from spvfilter.node.build import build_block, build_coinbase, mine
from spvfilter.node.consensus import UnspentOutput, unspent_outputs
from spvfilter.node.regtest import Regtest
from spvfilter.primitives import Header, OutPoint, TxOut, compact_size
from spvfilter.protocol import MAX_MONEY
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from support.blocks.openlocks import open_lock
from support.oracles.coreengine import CoreEngine
from support.vectors import effort

pytestmark = pytest.mark.core
FUTURE = 7_200  # seconds that a block may be ahead of the clock
MARGIN = 600  # seconds, because Core and the test read the clock one after the other


class Builder:
    """Makes blocks on top of recent blocks of a Regtest. Some of them break a rule."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made = Regtest()
        self.locks = {lock.script_pubkey: lock for lock in (open_lock(rng) for _ in range(200))}
        self.locks[self.made.lock.script_pubkey] = self.made.lock
        self.extra = count()

    def rarely(self) -> bool:
        return self.rng.random() < 0.03

    def txs(self, parent: TreeBlock) -> list[bytes]:
        """Spends of coins of the best chain and of one another."""
        height = parent.height + 1
        coins = dict(self.rng.sample(list(self.made.chain.coins.items()), min(len(self.made.chain.coins), 8)))
        coins = {
            place: coin
            for place, coin in coins.items()
            if coin.script_pubkey in self.locks and (not coin.coinbase or height - coin.height >= 100 or self.rarely())
        }
        made: list[bytes] = []
        for _ in range(self.rng.randrange(5)):
            if not coins:
                break
            made.append(self.tx(parent, coins))
            tx = Transaction.parse(made[-1])
            for place in () if self.rarely() else tx.inputs:
                coins.pop(place, None)
            coins |= {
                place: coin for place, coin in unspent_outputs(tx, height).items() if coin.script_pubkey in self.locks
            }
        return made

    def tx(self, parent: TreeBlock, coins: dict[bytes, UnspentOutput]) -> bytes:
        """A transaction that spends up to three coins."""
        rng = self.rng
        chosen = rng.sample(list(coins), min(len(coins), rng.randrange(1, 4)))
        value = sum(coins[place].value for place in chosen)
        inputs = [self.locks[coins[place].script_pubkey].spends(OutPoint.parse(place)) for place in chosen]
        if self.rarely():
            inputs.append(
                rng.choice((inputs[0], TxIn(OutPoint(rng.randbytes(32), 0)), TxIn(OutPoint(bytes(32), 0xFFFFFFFF))))
            )
        outputs = []
        for _ in range(rng.randrange(1, 4)):
            paid = rng.randrange(value + 1)
            value -= paid
            outputs.append(rng.choice(list(self.locks.values())).pays(paid))
        if rng.random() < 0.2:
            outputs.append(TxOut(0, b"\x6a" + rng.randbytes(rng.randrange(40))))
        if self.rarely():
            outputs[0] = TxOut(rng.choice((outputs[0].value + value + 1, MAX_MONEY, MAX_MONEY + 1)), b"\x51")
        lock_time, sequence = 0, 0xFFFFFFFE
        if rng.random() < 0.2:
            height = parent.height + 1 - rng.choice((0, 1, 2)) + self.rarely()
            seconds = parent.median_time - rng.choice((1, 2, 1_000)) + self.rarely()
            lock_time, sequence = rng.choice((height - 1, seconds)), rng.choice((0xFFFFFFFF, 0xFFFFFFFE, 1 << 31))
        inputs = [replace(each, sequence=sequence) for each in inputs]
        return build_tx(inputs, outputs, version=rng.choice((1, 2)), lock_time=lock_time)

    def block(self, parent: TreeBlock) -> bytes:
        rng, height = self.rng, parent.height + 1
        txs = self.txs(parent)
        lock = rng.choice(list(self.locks.values()))
        value = subsidy(height) + rng.choice((0, 0, -1)) + self.rarely()
        named = height + (rng.choice((-1, 1)) if self.rarely() else 0)
        coinbase = build_coinbase(named, [lock.pays(value)], txs, extra=next(self.extra).to_bytes(4, "little"))
        if self.rarely():
            coinbase = Transaction.parse(coinbase).stripped
        body = [coinbase, *txs]
        if self.rarely():
            rng.choice((body.reverse, lambda: rng.shuffle(body), lambda: body.append(body[-1]), body.clear))()
        when = max(int(time.time()), parent.median_time + 1)
        if rng.random() < 0.1:
            limit = int(time.time()) + FUTURE
            when = rng.choice((parent.median_time + 1, parent.median_time, limit - MARGIN, limit + MARGIN))
        if not body:
            return bytes(mine(replace(parent.header, previous=parent.hash, time=when))) + b"\x00"
        raw = build_block(parent.hash, when, body, version=rng.choice((1, 2, 3)) if self.rarely() else 4)
        return self.damaged(raw, body) if self.rarely() else raw

    def damaged(self, raw: bytes, body: list[bytes]) -> bytes:
        """Return the block with damage: repeated transactions, another root or target, a cut, or a wrong bit."""
        header, rng = Header.parse(raw[:80]), self.rng
        match rng.randrange(5):
            case 0:  # the last transactions twice, with the same merkle root (CVE-2012-2459)
                size = len(body) & -len(body)
                more = body + body[-size:]
                return raw[:80] + compact_size(len(more)) + b"".join(more)
            case 1:
                return bytes(mine(replace(header, merkle_root=rng.randbytes(32)))) + raw[80:]
            case 2:
                return raw[: rng.randrange(80, len(raw))]
            case 3:
                return bytes(mine(replace(header, bits=rng.choice((0x207FFFFE, 0x1F7FFFFF, 0x20800000, 0))))) + raw[80:]
            case _:
                place = rng.randrange(80, len(raw))
                return raw[:place] + bytes([raw[place] ^ 1 << rng.randrange(8)]) + raw[place + 1 :]


def is_taken(made: Regtest, raw: bytes) -> bool:
    try:
        made.submit_block(raw)
    except (FormatError, HeaderError, RefusedError):
        return False
    return True


@pytest.mark.parametrize("seed", range(effort(1, 4, 100)))
def test_core_and_the_node_refuse_the_same_blocks(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    builder = Builder(rng)
    made, verdicts = builder.made, Counter[bool]()
    made.mine(110)
    with CoreEngine(tmp_path) as core:
        assert all(core.accepts(block.raw) for block in made.chain.active[1:])
        for _ in range(300):
            parent = made.chain.tip if rng.random() < 0.8 else made.chain.active[-rng.randrange(1, 5)]
            was_tip = parent is made.chain.tip
            raw = builder.block(parent)
            taken = is_taken(made, raw)
            agreed = core.accepts(raw)
            if was_tip:  # other blocks are not validated at once
                assert taken == agreed, raw.hex()
            verdicts[taken] += 1
            assert core.tip == made.chain.tip.hash
        assert min(verdicts[True], verdicts[False]) > 30
        assert core.coins() == {place: (coin.value, coin.script_pubkey) for place, coin in made.chain.coins.items()}
