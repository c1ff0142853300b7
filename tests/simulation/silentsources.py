"""Sources that a client asks for silent payments: nodes and tweak servers, which are honest, fail or lie."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from simulation.truth import Truth
from spvfilter.errors import SourceError
from spvfilter.light.engine.effects import AskSpent, AskTweaks
from spvfilter.light.engine.options import Options
from spvfilter.light.running import SPENT_S
from spvfilter.node.blocktree import TreeBlock
from spvfilter.transaction import Transaction
from support.blocks import undo
from support.blocks.silentpayments import tweak_of

_SLOWEST_S = 0.5  # Longest time of an honest answer.
_FAILS = 0.06  # Share of the questions that a failing source answers with an error, or wrongly.
_STALLS = 0.01  # Share of the questions that it does not answer.
_HIDES = 0.3  # Share of the transactions that a liar hides.
_BAD_POINT = b"\2" + b"\xff" * 32


class Source(NamedTuple):
    """A node that gives spent outputs, or a tweak server."""

    is_server: bool
    """True for a tweak server."""
    lies: bool
    """True if it hides transactions: a node states false scripts, and a server leaves out tweaks."""
    fails: bool
    """True if it fails, stalls and gives malformed answers until faults end."""

    @property
    def name(self) -> str:
        """The name that the client knows."""
        return "tweak server" if self.is_server else "node"


class Sources:
    """The sources of a life. Each run of the client has one of them."""

    def __init__(self, rng: random.Random, truth: Truth, is_calm: Callable[[], bool]) -> None:
        self._rng = rng
        self._truth = truth
        self._is_calm = is_calm
        self._salt = rng.randbytes(8)
        self._all = [
            Source(rng.random() < 0.5, rng.random() < 0.25, rng.random() < 0.6) for _ in range(rng.choice([1, 1, 2]))
        ]
        self.present = self._all[0]
        """The source of this run."""
        self.used: set[Source] = set()
        """The sources of all runs so far."""
        self._tweaks: dict[bytes, list[tuple[bytes, bytes]]] = {}  # txid and tweak, by block

    def choose(self, options: Options) -> Options:
        """Choose the source of the next run, and return the options that name it."""
        self.present = self._rng.choice(self._all)
        self.used.add(self.present)
        name = self.present.name
        return replace(
            options,
            spent_source=None if self.present.is_server else name,
            tweak_source=name if self.present.is_server else None,
        )

    def may_hide(self, txid: bytes) -> bool:
        """True if a source of any run so far hides a transaction if it can."""
        return any(each.lies for each in self.used) and self._hides(txid)

    def _hides(self, txid: bytes) -> bool:
        return sha256(self._salt + txid).digest()[0] < 256 * _HIDES

    def ask(self, effect: AskSpent | AskTweaks) -> tuple[float, Callable[[], object]]:
        """The seconds until a question is answered, and a function that then returns the answer or the error."""
        chance, delay = self._rng.random(), self._rng.random() * _SLOWEST_S
        if self.present.fails and not self._is_calm():
            if chance < _STALLS:
                return SPENT_S, lambda: SourceError(f"no answer for {SPENT_S:g} s")
            if chance < 2 * _STALLS:
                delay *= SPENT_S / _SLOWEST_S
            elif chance < _FAILS:
                return delay, lambda: self._wrong(effect)
        return delay, lambda: self._right(effect)

    def _right(self, effect: AskSpent | AskTweaks) -> object:
        chain, lies = self._truth.regtest.chain, self.present.lies
        if isinstance(effect, AskSpent):
            block = chain.blocks.get(effect.block_hash)
            if block is None or block.spent is None:
                return SourceError("no such block")
            coins = self._coins(block)
            return undo.record_of(block.raw, undo.undo_of(self._disguised(block, coins) if lies else coins))
        if effect.height >= len(chain.active):
            return SourceError(f"no block at height {effect.height}")
        block = chain.active[effect.height]
        tweaks = [tweak for txid, tweak in self._tweaks_of(block) if not (lies and self._hides(txid))]
        self._rng.shuffle(tweaks)
        return block.hash, tweaks

    def _wrong(self, effect: AskSpent | AskTweaks) -> object:
        """An error, or an answer that the client must refuse."""
        right = self._right(effect)
        if isinstance(right, Exception) or self._rng.random() < 0.4:
            return SourceError("no answer now")
        if isinstance(effect, AskTweaks):
            assert isinstance(right, tuple)
            block, tweaks = right
            below = self._truth.regtest.chain.active[max(effect.height - 1, 0)]
            older = (below.hash, [tweak for _, tweak in self._tweaks_of(below)])
            wrong = [older, older, (block[:31], tweaks), (block,), (block, [*tweaks, bytes(34)])]
            return self._rng.choice([*wrong, (block, [*tweaks, _BAD_POINT]), None, (block, "02" * 33)])
        assert isinstance(right, bytes)
        block = self._truth.regtest.chain.blocks[effect.block_hash]
        coins = self._coins(block)
        odd = [undo.Spent(1, b"\x51")]
        counts = [[*coins, odd], *([coins[:-1], [*coins[:-1], coins[-1] + odd]] if coins else [])]
        records = [undo.record_of(block.raw, undo.undo_of(each)) for each in counts]
        damaged = bytes([right[0] ^ 1]) + right[1:]
        return self._rng.choice([None, "no bytes", b"", right[:-1], damaged, right + b"\0", *records])

    def _coins(self, block: TreeBlock) -> list[list[undo.Spent]]:
        """The coins that each transaction of a block spends after the coinbase."""
        spent = block.spent
        assert spent is not None
        found = []
        for tx in self._truth.regtest.chain.txs(block)[1:]:
            coins = [spent[outpoint] for outpoint in tx.inputs]
            found.append([undo.Spent(each.value, each.script_pubkey, each.height, each.coinbase) for each in coins])
        return found

    def _disguised(self, block: TreeBlock, coins: Sequence[Sequence[undo.Spent]]) -> list[list[undo.Spent]]:
        """The coins of a block, with false scripts for hidden transactions. A coin of the same block shows a lie."""
        txs, made = self._truth.regtest.chain.txs(block), set(block.txids)
        return [
            [
                replace(coin, script=b"\0\x20" + sha256(coin.script).digest())
                if self._hides(tx.txid) and outpoint[:32] not in made
                else coin
                for outpoint, coin in zip(tx.inputs, spent, strict=True)
            ]
            for tx, spent in zip(txs[1:], coins, strict=True)
        ]

    def _tweaks_of(self, block: TreeBlock) -> list[tuple[bytes, bytes]]:
        if block.hash not in self._tweaks:
            txs = self._truth.regtest.chain.txs(block)[1:]
            found = [(tx.txid, _tweak(tx, spent)) for tx, spent in zip(txs, self._coins(block), strict=True)]
            self._tweaks[block.hash] = [(txid, tweak) for txid, tweak in found if tweak is not None]
        return self._tweaks[block.hash]


def _tweak(tx: Transaction, spent: Sequence[undo.Spent]) -> bytes | None:
    """The tweak of a transaction; None if it has none, or if a key is not on the curve."""
    try:
        return tweak_of(tx.raw, [coin.script for coin in spent])
    except ValueError:
        return None
