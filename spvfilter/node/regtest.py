"""Regtest in memory: the embedded node without sockets. It has a chain, a mempool, a miner and the miner's wallet.

Scripts are not checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.node.blocktree import BlockTree, TipChange, TreeBlock, subsidy
from spvfilter.node.build import build_block, build_coinbase
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.mempool import TxMempool
from spvfilter.node.replacement import least_fee
from spvfilter.node.scripts import Lock, p2wsh
from spvfilter.node.spending import copied_inputs, inputs_of, spending, with_fee
from spvfilter.node.wallet import MinerWallet
from spvfilter.primitives import OutPoint, TxOut, hash_of, hash_to_hex
from spvfilter.protocol import MAX_BLOCK_WEIGHT
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn

FEE = 1_000  # Default fee of `pay` and `spend`, in satoshi.
MAX_MEMPOOL = 50_000_000  # Largest total size of the transactions in the mempool, in bytes (our choice).
_DENSE = 1_000  # Most blocks mined in one call that may all have the current time (our choice).
_RESERVED_WEIGHT = 8_000  # Weight units of a block that are reserved for the header and the coinbase.
# P2WSH of OP_TRUE: anybody can spend it, and nodes that check scripts accept and relay its spends.
_MINER = p2wsh(b"\x51")


@public
class ChainListener(Protocol):
    """Callbacks for changes to the chain and the mempool."""

    def on_tip(self, change: TipChange) -> None:
        """Handle a change to the best chain."""

    def on_tx(self, tx: Transaction) -> None:
        """Handle a transaction that has entered the mempool.

        Transactions that a reorganization returns to the mempool are not reported.
        """


@public
class Regtest:
    """The state of a regtest full node, with methods to mine, pay and reorganize.

        regtest = Regtest()
        regtest.mine(101)                              # now the first coinbase may be spent
        txid = regtest.pay(TxOut(50_000, script))      # the payment is in the mempool
        regtest.mine()                                 # it is in a block
        regtest.reorg(1)                               # it is in the mempool again

    The miner's own coins need no signature. Everything else is signed with the private keys that you pass.

    Blocks and transactions must meet the consensus rules, but scripts, signatures, relative lock times (BIP-68) and
    sigop counts are not checked. Hashes are bytes in wire order.

    Args:
        clock: Function that returns the Unix time. The same calls with the same clock produce the same blocks.
        lock: Script to which coinbases and change are paid. Other nodes accept spends of the default, P2WSH of OP_TRUE.
        max_mempool: Size of the mempool, in bytes.
        replace_by_fee: True if transactions in the mempool can be replaced by fee.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        lock: Lock = _MINER,
        max_mempool: int = MAX_MEMPOOL,
        replace_by_fee: bool = True,
    ) -> None:
        self.chain: BlockTree = BlockTree(clock)
        self.filters: FilterIndex = FilterIndex(self.chain)
        self.mempool: TxMempool = TxMempool(self.chain, max_mempool, replace_by_fee=replace_by_fee)
        self.lock = lock
        self.listeners: list[ChainListener] = []
        self._clock = clock
        self._extra = count()
        # transactions of the last connected block, keyed by txid and by wtxid
        self._recent: dict[bytes, Transaction] = {}
        self._wallet = MinerWallet(self.chain, self.mempool, lock.script_pubkey)

    @property
    def time(self) -> int:
        """Current time of the node's clock (Unix time)."""
        return int(self._clock())

    @property
    def height(self) -> int:
        """Height of the tip of the node's best chain."""
        return self.chain.tip.height

    @property
    def balance(self) -> int:
        """Value, in satoshi, of the miner's coins that `pay` can spend."""
        return self._wallet.balance

    def find_tx(self, txid: bytes | str, *, by_wtxid: bool = False) -> Transaction | None:
        """Return a transaction in the mempool or the last connected block, or None if neither contains it.

        `txid` is the txid of the transaction, or its wtxid if `by_wtxid` is True: 32 bytes or 64 hex digits. Core
        serves the same transactions to peers. Raises ParameterError if it is neither.
        """
        wanted = hash_of(txid, "txid")
        found = self.mempool.get_by_wtxid(wanted) if by_wtxid else self.mempool.get(wanted)
        return found or self._recent.get(wanted)

    def submit_block(self, raw: bytes) -> None:
        """Add a serialized block to the chain.

        Raises:
            FormatError: The block is malformed, or its header does not commit to its transactions.
            HeaderError: The header breaks a consensus rule.
            RefusedError: The transactions break a consensus rule.
        """
        self._tip_changed(self.chain.accept(raw))

    def submit_tx(self, raw: bytes) -> bytes:
        """Add a serialized transaction to the mempool, and return its txid.

        The transaction may replace transactions with lower fees.

        Raises:
            FormatError: The transaction is malformed.
            RefusedError: The mempool does not accept it; the error contains Core's reject reason.
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
        on: bytes | str | None = None,
        to: bytes | None = None,
        time: int | None = None,
    ) -> list[bytes]:
        """Mine blocks, and return the block hashes, each 32 bytes in wire order.

        Args:
            blocks: Number of blocks.
            transactions: Serialized transactions for the first block. By default, every block contains transactions
                from the mempool.
            on: Hash of the parent block, 32 bytes or 64 hex digits; by default, the tip. If it is not the tip, the
                mempool is not used.
            to: ScriptPubKey that the coinbases pay; by default, the miner's.
            time: Time of the first block (Unix time); by default, the current time. If there are more than 1,000
                blocks, their times are in the past, one second apart.

        Raises:
            ParameterError: The parent block is unknown.
            RefusedError: The transactions break a consensus rule.
        """
        parent = self.chain.tip if on is None else self._block(on)
        mined = []
        for number in range(blocks):
            chosen = (
                self._template(parent)
                if transactions is None or number
                else [Transaction.parse(raw) for raw in transactions]
            )
            when = time if not number else None
            # one second each, because the medians of that many blocks would run into the future
            if time is None and blocks > _DENSE:
                when = max(int(self._clock()) - (blocks - 1 - number), parent.median_time + 1)
            raw = self._assemble(parent, chosen, to or self.lock.script_pubkey, when)
            self.submit_block(raw)
            parent = self._block(sha256d(raw[:80]))
            mined.append(parent.hash)
        return mined

    def reorg(
        self, depth: int, *, blocks: int | None = None, transactions: Sequence[Sequence[bytes]] = ()
    ) -> list[bytes]:
        """Replace the last blocks of the chain with a new branch, and return the hashes of the new blocks.

        Transactions of the replaced blocks return to the mempool if they are still valid.

        Args:
            depth: Number of blocks to replace.
            blocks: Number of new blocks; by default, `depth + 1`.
            transactions: Serialized transactions for the first new blocks, one sequence per block. Later blocks contain
                only a coinbase.

        Raises:
            ParameterError: `depth` exceeds the height of the chain, or `transactions` contains more items than
                `blocks`.
            RefusedError: The transactions break a consensus rule.
        """
        if not 1 <= depth <= self.height:
            raise ParameterError(f"depth must be from 1 to {self.height}, the height of the tip, not {depth}")
        length = depth + 1 if blocks is None else blocks
        if length < len(transactions):
            raise ParameterError(
                f"there are transactions for {len(transactions)} blocks, but only {length} blocks would be mined"
            )
        parent, mined = self.chain.active[-1 - depth].hash, []
        for number in range(length):
            mined += self.mine(on=parent, transactions=transactions[number] if number < len(transactions) else ())
            parent = mined[-1]
        return mined

    def pay(self, *outputs: TxOut, fee: int = FEE) -> bytes:
        """Add a payment by the miner to the mempool, and return its txid.

        Change goes back to the miner. `fee` is in satoshi.

        Raises ParameterError if the miner does not have enough coins. Raises RefusedError if the mempool does not
        accept the transaction.
        """
        coins, value = self._wallet.choose(sum(out.value for out in outputs) + fee)
        change = value - sum(out.value for out in outputs) - fee
        paid = [*outputs, self.lock.pays(change)] if change else list(outputs)
        return self.submit_tx(build_tx([self.lock.spends(coin) for coin in coins], paid))

    def spend(
        self, *coins: OutPoint, outputs: Sequence[TxOut] = (), fee: int = FEE, keys: Iterable[bytes] = ()
    ) -> bytes:
        """Add a transaction that spends anybody's coins to the mempool, and return its txid.

        Change goes back to the scriptPubKey of the first coin.

        Args:
            coins: The coins, in the chain or in the mempool.
            outputs: Outputs of the transaction, except the change.
            fee: Fee in satoshi.
            keys: Private keys of the coins, 32 bytes each. `build_tx` lists the scripts that they can sign for. The
                miner's coins, and coins of OP_TRUE, need none.

        Raises:
            ParameterError: A coin does not exist, the coins are not worth enough, or none of the keys can sign for a
                coin.
            RefusedError: The mempool does not accept the transaction.
        """
        inputs = inputs_of([(coin, self.mempool.coin_of(bytes(coin))) for coin in coins], self.lock)
        spent = inputs[0].spent
        miner = self.lock.script_pubkey
        change = miner if spent is None else spent.script_pubkey
        return self.submit_tx(spending(inputs, outputs, fee, miner, keys, to=change))

    def bump(self, txid: bytes | str, *, fee: int | None = None, keys: Iterable[bytes] = ()) -> bytes:
        """Replace a transaction in the mempool with a copy that pays a higher fee, and return the copy's txid.

        Args:
            txid: Txid of the transaction to replace, 32 bytes in wire order or 64 hex digits.
            fee: New fee in satoshi; by default, the lowest that replaces the transaction and its descendants. The
                difference is taken from the change or, if there is none, from the largest output.
            keys: Private keys of the coins that the transaction spends. The miner's coins need none.

        Raises:
            ParameterError: The transaction is not in the mempool, its output is worth less than the difference, or none
                of the keys can sign an input.
            RefusedError: The fee is too low to replace the transaction.
        """
        tx, secrets = self._waiting(txid), list(keys)
        inputs, paid = self._inputs_of(tx), self.mempool.fees[tx.txid]

        def build(new: int) -> bytes:
            return with_fee(tx, inputs, new - paid, self.lock.script_pubkey, secrets)

        return self.submit_tx(self._replacement(tx, build, tx.virtual_size) if fee is None else build(fee))

    def double_spend(
        self, txid: bytes | str, *, fee: int | None = None, in_block: bool = False, keys: Iterable[bytes] = ()
    ) -> bytes:
        """Replace a transaction in the mempool with a payment of its coins to the miner, and return the new txid.

        Args:
            txid: Txid of the transaction to double-spend, 32 bytes in wire order or 64 hex digits.
            fee: Fee in satoshi; by default, the lowest that replaces the transaction and its descendants.
            in_block: True to mine the new transaction in a block, where fees do not matter. By default, it goes into
                the mempool.
            keys: Private keys of the coins that the transaction spends. The miner's coins need none.

        Raises:
            ParameterError: The transaction is not in the mempool, its coins do not cover the fee, or none of the keys
                can sign for a coin.
            RefusedError: The fee is too low to replace the transaction.
        """
        tx, secrets = self._waiting(txid), list(keys)
        inputs = self._inputs_of(tx)

        def build(new: int) -> bytes:
            return spending(inputs, (), new, self.lock.script_pubkey, secrets, to=self.lock.script_pubkey)

        raw = self._replacement(tx, build, Transaction.parse(build(0)).virtual_size) if fee is None else build(fee)
        if not in_block:
            return self.submit_tx(raw)
        self.mine(transactions=[raw])
        return Transaction.parse(raw).txid

    def _inputs_of(self, tx: Transaction) -> list[TxIn]:
        return copied_inputs(tx, [self.mempool.coin_of(outpoint) for outpoint in tx.inputs])

    def _replacement(self, tx: Transaction, build: Callable[[int], bytes], size: int) -> bytes:
        """Build the replacement for a transaction with the lowest possible fee.

        `size` is its approximate virtual size.
        """
        family = self.mempool.family(tx.txid)
        while True:
            raw = build(least_fee(family, self.mempool.fees, size))
            if (signed := Transaction.parse(raw).virtual_size) <= size:
                return raw
            size = signed  # a signature is a byte longer than the earlier one

    def evict(self, txid: bytes | str) -> list[bytes]:
        """Remove a transaction and its descendants from the mempool, as a full mempool does, and return their txids.

        The node does not notify its peers, which may announce the transaction again. Raises ParameterError if the
        transaction is not in the mempool.
        """
        gone = self.mempool.evict(self._waiting(txid).txid)
        self._wallet.recount()
        return [tx.txid for tx in gone]

    def _waiting(self, txid: bytes | str) -> Transaction:
        tx = self.mempool.get(found := hash_of(txid, "txid"))
        if tx is None:
            raise ParameterError(f"transaction {hash_to_hex(found)} is not in the mempool")
        return tx

    def _tip_changed(self, change: TipChange) -> None:
        if not change.connected:
            return
        txs = self.chain.txs(self.chain.tip)
        self._recent = {key: tx for tx in txs for key in (tx.txid, tx.wtxid)}
        if change.disconnected:
            self.mempool.rebuild(tx for block in reversed(change.disconnected) for tx in self.chain.txs(block))
            self._wallet.recount()
        elif self.mempool.remove_for(txs):  # one block was connected, on the old tip
            self._wallet.recount()
        else:
            self._wallet.add_block(txs)
        for listener in self.listeners:
            listener.on_tip(change)

    def _block(self, block_hash: bytes | str) -> TreeBlock:
        block = self.chain.blocks.get(found := hash_of(block_hash, "block hash"))
        if block is None:
            raise ParameterError(f"block {hash_to_hex(found)} is unknown")
        return block

    def _template(self, parent: TreeBlock) -> list[Transaction]:
        """Return the mempool's transactions for the next block, up to the first that does not fit."""
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
