"""The true chain of a world, and the wallet that receives and spends payments in it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from math import inf
from typing import NamedTuple

from simulation import oracle, strangers
from spvfilter.errors import ParameterError, RefusedError
from spvfilter.node.blocktree import TipChange, TreeBlock
from spvfilter.node.consensus import UnspentOutput
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock, op_return, p2wpkh
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction, TxIn
from support.blocks.locks import LOCKS, STRANGER, build_tx, check_signed, key
from support.client.regtests import (
    accept_replacements,
    copied,
    mine_unlike_others,
    recount,
    refusing_replacements,
)

START = 1_700_000_000  # Unix time, when a life begins
TEMPLATES = 8
LONG = TEMPLATES  # Number of an additional, long chain. Its headers and filter headers need several messages.
_LONG_SHARE = 0.01  # Share of lives.
LATE_LOCKS = 3  # Scripts that the wallet gets later.
_MATURE = 101
_INTERVAL_S = 600
_MOST_SCANS = 4


class Coin(NamedTuple):
    """An output of the wallet."""

    outpoint: OutPoint
    value: int
    lock: Lock

    def spend(self) -> TxIn:
        """An input that spends it. `build_tx` signs the input."""
        return self.lock.spends(self.outpoint, self.value)


class Truth:
    """The best chain as honest peers see it, with the wallet's payments and spends. Some of these are in no block."""

    def __init__(
        self,
        rng: random.Random,
        regtest: Regtest,
        locks: list[Lock],
        coins: list[Coin],
        now: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.regtest = regtest
        self.locks = locks
        self.coins = coins
        self._locks = {lock.script_pubkey: lock for lock in (*locks, regtest.lock, STRANGER)}
        self._accounts: frozenset[bytes] = frozenset()  # scripts that accounts may have, and silent payments
        self.others_blocks: dict[
            bytes, TreeBlock
        ] = {}  # blocks of other miners that are not in the tree of the true chain
        self._rng = rng
        self.past: set[bytes] = set()  # earlier scripts of the wallet
        self._strange: list[Coin] = []
        self.relayed: set[bytes] = set()  # txids of transactions that entered every honest mempool
        self.replaced_at = -inf  # latest time at which a mempool transaction may have been replaced
        self._now = now
        self.forks: list[tuple[float, int]] = []  # time of each reorganization, and height of its last common block
        self._last_tip = regtest.chain.tip.hash
        self._left_at: dict[bytes, float] = {}  # when a block stopped being the tip
        self._scans: dict[tuple[bytes, int, int], frozenset[oracle.Place]] = {}  # matches of the latest tips
        regtest.listeners.append(self)

    @property
    def height(self) -> int:
        return self.regtest.height

    @property
    def tip(self) -> bytes:
        return self.regtest.chain.tip.hash

    def scripts(self) -> set[bytes]:
        return {lock.script_pubkey for lock in self.locks} | self._accounts

    def has_had(self, script: bytes) -> bool:
        """Return True if the wallet has a script, had it, or may get it with an account."""
        return (
            script in self._accounts or script in self.past or any(script == lock.script_pubkey for lock in self.locks)
        )

    def scan(self, from_height: int = 0) -> frozenset[oracle.Place]:
        """The wallet's matches in the best chain, from a height on."""
        key = self.tip, len(self.locks) + len(self._accounts), from_height
        found = self._scans.get(key)
        if found is None:
            while len(self._scans) >= _MOST_SCANS:
                del self._scans[next(iter(self._scans))]
            blocks = [block.raw for block in self.regtest.chain.active]
            found = self._scans[key] = frozenset(oracle.scan(blocks, self.scripts(), from_height))
        return found

    def stale_for(self, digest: bytes, now: float) -> float:
        """Seconds since a block stopped being the tip. 0 for the tip, and for a block that never was the tip."""
        if digest == self.tip:
            return 0.0
        left_at = self._left_at.get(digest)
        return 0.0 if left_at is None else now - left_at

    def on_tip(self, change: TipChange) -> None:
        """Callback of the chain."""
        for block in change.disconnected[-1:]:
            self.forks.append((self._now(), block.height - 1))
        self._left_at[self._last_tip] = self._now()
        self._last_tip = self.tip

    def on_tx(self, tx: Transaction) -> None:
        """Callback of the mempool."""
        check_signed(tx, self.regtest.mempool.coin_of)
        self.relayed.add(tx.txid)

    def block(self, digest: bytes) -> TreeBlock | None:
        """A block of any branch, including blocks of other miners."""
        return self.regtest.chain.blocks.get(digest) or self.others_blocks.get(digest)

    def learn(self, lock: Lock) -> None:
        """Add a script to the wallet."""
        self.locks.append(lock)
        self._locks[lock.script_pubkey] = lock

    def forget(self, lock: Lock) -> None:
        """Remove a script from the wallet. Payments to it continue."""
        self.locks.remove(lock)
        self.past.add(lock.script_pubkey)

    def learn_accounts(self, locks: Mapping[bytes, Lock]) -> None:
        """Note the scripts of accounts. Only accounts pay them on purpose."""
        self._locks.update(locks)
        self._accounts = frozenset(locks)

    def learn_payments(self, spent: Sequence[Lock], paid: Sequence[Lock]) -> None:
        """Note the scripts that a silent payment spends, and those by which it pays the wallet."""
        self._locks.update((lock.script_pubkey, lock) for lock in (*spent, *paid))
        self._accounts |= {lock.script_pubkey for lock in paid}

    def lock_of(self, script: bytes) -> Lock | None:
        """The lock of a script for which the simulation can sign; None for any other script."""
        return self._locks.get(script)

    def would_take(self, raw: bytes) -> bool:
        """Return True if a transaction could enter the mempool."""
        mempool, tx = self.regtest.mempool, Transaction.parse(raw)
        with refusing_replacements(self.regtest):
            try:
                mempool.add(tx)
            except RefusedError:
                return False
        mempool.remove_for([tx])
        return True

    def bump(self, tx: Transaction, fee: int) -> list[bytes]:
        """A conflicting transaction. Nodes accept it as a replacement from now on if its fee is high enough."""
        accept_replacements(self.regtest)
        self.replaced_at = self._now()
        return self.rival(tx.inputs, self.regtest.chain.coins, fee)

    def ours_waiting(self, is_wanted: Callable[[bytes], bool] = lambda script: True) -> set[bytes]:
        """Txids of mempool transactions that pay wanted scripts of the wallet."""
        scripts = set(filter(is_wanted, self.scripts()))
        return {tx.txid for tx in self.regtest.mempool if any(out.script_pubkey in scripts for out in tx.outputs)}

    # Events in the world. An event that the chain does not allow (any more) is skipped.

    def receive(self, lock: Lock | None = None) -> None:
        """Send a payment to the wallet into the mempool."""
        lock, value = lock or self._rng.choice(self.locks), self._rng.randrange(10_000, 90_000)
        with suppress(ParameterError, RefusedError):
            txid = self.regtest.pay(lock.pays(value))
            self.coins.append(Coin(OutPoint(txid, 0), value, lock))

    def others(self, number: int = 1) -> None:
        """Foreign wallets pay each other and themselves. Their scripts are of every type."""
        for _ in range(number):
            with suppress(ParameterError, RefusedError):
                if self._strange and self._rng.random() < 0.5:
                    coin = self._strange.pop(self._rng.randrange(len(self._strange)))
                    lock = coin.lock if self._rng.random() < 0.5 else strangers.lock(self._rng)
                    value = coin.value - 300
                    txid = self.regtest.submit_tx(
                        build_tx([coin.spend()], [lock.pays(value), op_return(b"odd").pays(0)])
                    )
                else:
                    lock, value = strangers.lock(self._rng), self._rng.randrange(3_000, 90_000)
                    txid = self.regtest.pay(lock.pays(value))
                if value > 1_000:
                    self._strange.append(Coin(OutPoint(txid, 0), value, lock))

    def spending(self) -> bytes | None:
        """A transaction, not submitted, that spends a coin of the wallet. Some have change."""
        if not self.coins:
            return None
        coin = self.coins.pop(self._rng.randrange(len(self.coins)))
        change = self._rng.choice(self.locks) if self._rng.random() < 0.5 else None
        if coin.value < 1_000:  # it cannot pay its fee
            return None
        outputs = [STRANGER.pays(coin.value // 2 - 500)] + ([change.pays(coin.value // 2)] if change else [])
        raw = build_tx([coin.spend()], outputs)
        if change is not None:
            self.coins.append(Coin(OutPoint(oracle.txid(raw), 1), coin.value // 2, change))
        return raw

    def spend(self) -> None:
        """Another program with the same keys spends a coin of the wallet."""
        raw = self.spending()
        with suppress(RefusedError):
            if raw is not None:
                self.regtest.submit_tx(raw)

    def replace(self) -> None:
        """Replace a mempool transaction. The new one conflicts with it and pays a foreign script or the wallet."""
        waiting = list(self.regtest.mempool)
        if waiting:
            old = self._rng.choice(waiting)
            for raw in self.rival(old.inputs, self.regtest.chain.coins):
                if oracle.txid(raw) == old.txid:
                    return  # the same transaction
                self.regtest.mempool.remove_for([Transaction.parse(raw)])
                recount(self.regtest)
                self.replaced_at = self._now()
                try:
                    self.regtest.submit_tx(raw)
                except RefusedError:  # otherwise the mempool stays unchanged
                    for tx in waiting:
                        if tx.txid not in self.regtest.mempool:
                            self.regtest.mempool.add(tx)

    def rival(self, spends: Sequence[bytes], coins: Mapping[bytes, UnspentOutput], fee: int = 5_000) -> list[bytes]:
        """A transaction that spends these outpoints to another script. Empty if it cannot be signed or pay its fee."""
        found = [coins.get(outpoint) for outpoint in spends]
        locks = [self._locks.get(coin.script_pubkey) if coin is not None else None for coin in found]
        if None in locks:
            return []
        value = sum(coin.value for coin in found if coin is not None) - fee
        if value < 0:
            return []
        to = self._rng.choice([STRANGER, *self.locks])
        inputs = [
            lock.spends(OutPoint.parse(outpoint), coin.value)
            for lock, outpoint, coin in zip(locks, spends, found, strict=True)
            if lock is not None and coin is not None
        ]
        raw = build_tx(inputs, [to.pays(value)])
        if to is not STRANGER:
            self.coins.append(Coin(OutPoint(oracle.txid(raw), 0), value, to))
        return [raw]

    def handed_over(self) -> bytes | None:
        """A payment to the wallet that the user receives directly. No node has it."""
        if not self._strange:
            return None
        coin = self._strange.pop(self._rng.randrange(len(self._strange)))
        lock, value = self._rng.choice(self.locks), coin.value - 500
        raw = build_tx([coin.spend()], [lock.pays(value)])
        self.coins.append(Coin(OutPoint(oracle.txid(raw), 0), value, lock))
        return raw

    def mine(self, blocks: int = 1) -> None:
        """Mine blocks with the mempool's transactions. Some coinbases pay the wallet."""
        for _ in range(blocks):
            to = self._rng.choice(self.locks).script_pubkey if self._rng.random() < 0.08 else None
            self.regtest.mine(to=to)

    def reorganise(self, depth: int) -> None:
        """Replace the last blocks: by empty ones, by the same payments one block later, or by conflicting payments."""
        regtest, kind = self.regtest, self._rng.random()
        depth = min(depth, regtest.height - _MATURE)
        leaving = regtest.chain.active[-depth:]
        with suppress(ParameterError, RefusedError):
            if kind < 0.4:
                regtest.reorg(depth)
            elif kind < 0.7:
                later = [[tx.raw for tx in regtest.chain.txs(block)[1:]] for block in leaving]
                regtest.reorg(depth, transactions=[[], *later], blocks=depth + 1)
            else:
                regtest.reorg(depth, transactions=[self._contradiction(leaving)])

    def _contradiction(self, leaving: Sequence[TreeBlock]) -> list[bytes]:
        """A transaction that conflicts with the first transaction of these blocks."""
        for block in leaving:
            for tx in self.regtest.chain.txs(block)[1:]:
                return self.rival(tx.inputs, block.spent or {})
        return []


class Template(NamedTuple):
    """A chain mined in advance. Lives start from it."""

    regtest: Regtest
    coins: tuple[Coin, ...]


@cache
def template(number: int) -> Template:
    """A chain of 200 to 320 blocks, or a long one, with payments to the wallet and spends. A life begins minutes after
    its tip.
    """
    rng = random.Random(f"template {number}")
    length = {0: 320, LONG: 2_150}.get(number, rng.randrange(200, 260))  # a pruned node lacks the first blocks of 320
    times = count(START - (length + 1) * _INTERVAL_S, _INTERVAL_S)
    now = [next(times)]
    regtest = Regtest(clock=lambda: now[0], replace_by_fee=False)
    truth = Truth(rng, regtest, list(LOCKS), [])
    for height in range(length):
        now[0] = next(times)
        if height >= _MATURE and rng.random() < 400 / length:
            if rng.random() < 0.25:
                truth.receive()
                while truth.coins and rng.random() < 0.4:
                    truth.spend()
            if rng.random() < 0.3:
                truth.others(rng.randrange(1, 4))
            if rng.random() < 0.05:
                regtest.pay(late_lock(rng.randrange(LATE_LOCKS)).pays(rng.randrange(1_000, 50_000)))
        regtest.mine()
    regtest.filters.header(regtest.chain.tip)  # lives copy the filters
    return Template(regtest, tuple(truth.coins))


def copy_chain(original: Regtest, clock: Callable[[], float]) -> Regtest:
    """An independent node with the same chain and an empty mempool."""
    made = copied(original, clock, replace_by_fee=False)  # the simulation decides about replacements
    mine_unlike_others(made)
    return made


def begin(rng: random.Random, now: Callable[[], float], *, is_high: bool = False) -> Truth:
    """The true chain of a new life; `now` is virtual time."""
    made = template(LONG if rng.random() < _LONG_SHARE or is_high else rng.randrange(TEMPLATES))
    return Truth(rng, copy_chain(made.regtest, lambda: START + now()), list(LOCKS), list(made.coins), now)


def late_lock(number: int) -> Lock:
    """A script that is paid before the wallet watches it."""
    return p2wpkh(key(1_000 + number))
