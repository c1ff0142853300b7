"""Regtest in memory: chain, mempool, miner and its wallet; the embedded node without sockets.

Scripts are not checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.node.blocktree import BlockTree, TipChange, TreeBlock, subsidy
from spvfilter.node.build import build_block, build_coinbase, build_tx
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.mempool import TxMempool
from spvfilter.node.replacement import least_fee
from spvfilter.node.scripts import Lock, p2wpkh
from spvfilter.node.spending import spending, with_fee
from spvfilter.node.wallet import MinerWallet
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.protocol import MAX_BLOCK_WEIGHT
from spvfilter.transaction import Transaction

FEE = 1_000  # satoshi, of every transaction made by `pay`
MAX_MEMPOOL = 50_000_000  # bytes
_RESERVED_WEIGHT = 8_000  # of a block, for header and coinbase
_MINER = p2wpkh(b"\x02" + sha256d(b"spvfilter regtest miner"))


@public
class ChainListener(Protocol):
    """Callbacks for changes of the chain and the mempool."""

    def on_tip(self, change: TipChange) -> None:
        """The best chain has changed."""

    def on_tx(self, tx: Transaction) -> None:
        """A transaction has entered the mempool; not called for transactions that a reorganisation returns to it."""


@public
class Regtest:
    """The state of a regtest full node, with methods to mine, pay and reorganise.

        regtest = Regtest()
        regtest.mine(101)                              # the first coinbase may be spent now
        txid = regtest.pay(TxOut(50_000, script))      # into the mempool
        regtest.mine()
        regtest.reorg(1)                               # into the mempool again

    Blocks and transactions must meet the consensus rules, except for scripts, signatures, relative lock times (BIP-68)
    and sigop counts. Hashes are bytes in wire order. `clock` returns seconds since 1970; the same calls with the same
    clock produce the same blocks. Coinbases and change are paid to `lock`. `replace_by_fee` is TxMempool's.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        lock: Lock = _MINER,
        max_mempool: int = MAX_MEMPOOL,
        replace_by_fee: bool = True,
    ) -> None:
        self.chain = BlockTree(clock)
        self.filters = FilterIndex(self.chain)
        self.mempool = TxMempool(self.chain, max_mempool, replace_by_fee=replace_by_fee)
        self.lock = lock
        self.listeners: list[ChainListener] = []
        self._clock = clock
        self._extra = count()
        self._recent: dict[bytes, Transaction] = {}  # of the last block connected, by txid and wtxid
        self._wallet = MinerWallet(self.chain, self.mempool, lock.script_pubkey)

    @property
    def time(self) -> int:
        """Seconds since 1970, by the node's clock."""
        return int(self._clock())

    @property
    def height(self) -> int:
        """Height of the best chain's tip."""
        return self.chain.tip.height

    @property
    def balance(self) -> int:
        """Satoshi that `pay` can spend."""
        return self._wallet.balance

    def find_tx(self, txid: bytes, *, by_wtxid: bool = False) -> Transaction | None:
        """A transaction of the mempool or of the last connected block, by its txid or wtxid: the ones Core serves to
        peers.
        """
        found = self.mempool.get_by_wtxid(txid) if by_wtxid else self.mempool.get(txid)
        return found or self._recent.get(txid)

    def submit_block(self, raw: bytes) -> None:
        """Add a block to the chain. Raises FormatError, HeaderError, RefusedError."""
        self._tip_changed(self.chain.accept(raw))

    def submit_tx(self, raw: bytes) -> bytes:
        """Add a transaction to the mempool, in place of what it replaces; returns its txid.

        Raises FormatError, RefusedError.
        """
        tx = Transaction.parse(raw)
        if self.mempool.add(tx):
            self._wallet.recount()
        else:
            self._wallet.add_tx(tx)
        for listener in self.listeners:
            listener.on_tx(tx)
        return tx.txid

    def mine(
        self,
        blocks: int = 1,
        *,
        transactions: Sequence[bytes] | None = None,
        on: bytes | None = None,
        to: bytes | None = None,
        time: int | None = None,
    ) -> list[bytes]:
        """Mine a run of blocks; returns their hashes.

        The first block contains `transactions`, or those of the mempool if None; the other blocks contain those of the
        mempool. `on` is the hash of the block to build on, by default the tip; on any other block the mempool is not
        used. Coinbases pay the scriptPubKey `to`. `time` is the time of the first block. Raises ParameterError for an
        unknown block, RefusedError if the transactions break a rule.
        """
        parent = self.chain.tip if on is None else self._block(on)
        mined = []
        for number in range(blocks):
            chosen = (
                self._template(parent)
                if transactions is None or number
                else [Transaction.parse(raw) for raw in transactions]
            )
            raw = self._assemble(parent, chosen, to or self.lock.script_pubkey, time if not number else None)
            self.submit_block(raw)
            parent = self._block(sha256d(raw[:80]))
            mined.append(parent.hash)
        return mined

    def reorg(
        self, depth: int, *, blocks: int | None = None, transactions: Sequence[Sequence[bytes]] = ()
    ) -> list[bytes]:
        """Replace the last `depth` blocks by a branch of `blocks` blocks, by default one more; returns the hashes of
        the new blocks.

        `transactions` are those of the first new blocks, one sequence per block; the others contain only a coinbase.
        Transactions of the replaced blocks return to the mempool if they are still valid. Raises ParameterError for an
        impossible depth, or for transactions of more blocks than are mined; RefusedError if the transactions break a
        rule.
        """
        if not 1 <= depth <= self.height:
            raise ParameterError(f"depth must be 1 to {self.height}, the height of the tip, not {depth}")
        length = depth + 1 if blocks is None else blocks
        if length < len(transactions):
            raise ParameterError(f"transactions for {len(transactions)} blocks, but only {length} are mined")
        parent, mined = self.chain.active[-1 - depth].hash, []
        for number in range(length):
            mined += self.mine(on=parent, transactions=transactions[number] if number < len(transactions) else ())
            parent = mined[-1]
        return mined

    def pay(self, *outputs: TxOut, fee: int = FEE) -> bytes:
        """Add a transaction with these outputs and change to the mempool; returns its txid.

        Raises ParameterError if the miner's coins do not suffice.
        """
        coins, value = self._wallet.choose(sum(out.value for out in outputs) + fee)
        change = value - sum(out.value for out in outputs) - fee
        paid = [*outputs, self.lock.pays(change)] if change else list(outputs)
        return self.submit_tx(build_tx([self.lock.spends(coin) for coin in coins], paid))

    def spend(self, *coins: OutPoint, outputs: Sequence[TxOut] = (), fee: int = FEE) -> bytes:
        """Spend anybody's coins, by made-up signatures, and add the transaction to the mempool; returns its txid.

        What outputs and fee leave goes back to the first coin's scriptPubKey. Raises ParameterError if there is no such
        coin, or the coins do not suffice; RefusedError.
        """
        return self.submit_tx(spending([(coin, self.mempool.coin_of(bytes(coin))) for coin in coins], outputs, fee))

    def bump(self, txid: bytes, *, fee: int | None = None) -> bytes:
        """Replace a transaction of the mempool by one with a higher fee, and else the same; returns the new txid.

        The fee comes from the change or, if there is none, from the largest output; by default it is the least that
        replaces the transaction and what spends from it. Raises ParameterError for a transaction that is not in the
        mempool, and if its output does not suffice; RefusedError for too low a fee.
        """
        tx = self._waiting(txid)
        least = least_fee(self.mempool.family(txid), self.mempool.fees, tx.virtual_size)
        more = (least if fee is None else fee) - self.mempool.fees[txid]
        return self.submit_tx(with_fee(tx, more, self.lock.script_pubkey))

    def double_spend(self, txid: bytes, *, fee: int | None = None, in_block: bool = False) -> bytes:
        """Spend what a transaction of the mempool spends, for the miner, and so take its place; returns the txid.

        By default for the least fee that replaces it and what spends from it. With `in_block` a block is mined with it
        instead, where fees do not matter. Raises ParameterError for a transaction that is not in the mempool, and if
        its coins do not suffice; RefusedError.
        """
        tx = self._waiting(txid)
        found = [(OutPoint.parse(outpoint), self.mempool.coin_of(outpoint)) for outpoint in tx.inputs]
        size = Transaction.parse(spending(found, (), 0, to=self.lock.script_pubkey)).virtual_size
        least = least_fee(self.mempool.family(txid), self.mempool.fees, size)
        raw = spending(found, (), least if fee is None else fee, to=self.lock.script_pubkey)
        if not in_block:
            return self.submit_tx(raw)
        self.mine(transactions=[raw])
        return Transaction.parse(raw).txid

    def evict(self, txid: bytes) -> list[bytes]:
        """Remove a transaction and what spends from it from the mempool, as if it were full; the txids removed.

        Peers are not told: they may offer it again. Raises ParameterError for one that is not there.
        """
        gone = self.mempool.evict(self._waiting(txid).txid)
        self._wallet.recount()
        return [tx.txid for tx in gone]

    def _waiting(self, txid: bytes) -> Transaction:
        tx = self.mempool.get(txid)
        if tx is None:
            raise ParameterError(f"no transaction {hash_to_hex(txid)} in the mempool")
        return tx

    def _tip_changed(self, change: TipChange) -> None:
        if not change.connected:
            return
        txs = self.chain.txs(self.chain.tip)
        self._recent = {key: tx for tx in txs for key in (tx.txid, tx.wtxid)}
        if change.disconnected:
            self.mempool.rebuild(tx for block in reversed(change.disconnected) for tx in self.chain.txs(block))
            self._wallet.recount()
        elif self.mempool.remove_for(txs):  # one block, on the old tip
            self._wallet.recount()
        else:
            self._wallet.add_block(txs)
        for listener in self.listeners:
            listener.on_tip(change)

    def _block(self, block_hash: bytes) -> TreeBlock:
        block = self.chain.blocks.get(block_hash)
        if block is None:
            raise ParameterError(f"no such block: {hash_to_hex(block_hash)}")
        return block

    def _template(self, parent: TreeBlock) -> list[Transaction]:
        """Transactions of the mempool for the next block, up to the first that does not fit."""
        chosen, left = [], MAX_BLOCK_WEIGHT - _RESERVED_WEIGHT
        for tx in self.mempool if parent is self.chain.tip else ():
            left -= tx.weight
            if left < 0:
                break
            chosen.append(tx)
        return chosen

    def _assemble(self, parent: TreeBlock, txs: Sequence[Transaction], to: bytes, time: int | None) -> bytes:
        height = parent.height + 1
        fees = sum(self.mempool.fees.get(tx.txid, 0) for tx in txs)
        transactions = [tx.raw for tx in txs]
        outputs = [TxOut(subsidy(height) + fees, to)]
        when = max(int(self._clock()), parent.median_time + 1) if time is None else time
        while True:
            coinbase = build_coinbase(height, outputs, transactions, extra=next(self._extra).to_bytes(4, "little"))
            raw = build_block(parent.hash, when, [coinbase, *transactions])
            if sha256d(raw[:80]) not in self.chain.blocks:  # another Regtest may have mined the same block
                return raw
