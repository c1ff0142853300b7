"""Wallet of the regtest miner: mature coinbases, and confirmed or unconfirmed change. It does not sign."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from spvfilter.errors import ParameterError
from spvfilter.node.blocktree import BlockTree
from spvfilter.node.mempool import TxMempool
from spvfilter.primitives import OutPoint
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.transaction import Transaction


class MinerWallet:
    """Unspent outputs of the miner's scriptPubKey.

    `Regtest` calls a method of the wallet after every change to the chain or the mempool.
    """

    def __init__(self, chain: BlockTree, mempool: TxMempool, script_pubkey: bytes) -> None:
        self._chain = chain
        self._mempool = mempool
        self._script = script_pubkey
        self._free: dict[bytes, int] = {}  # value in satoshi for each outpoint, oldest first
        self._immature: deque[tuple[int, bytes, int]] = deque()  # coinbases: height, outpoint, satoshi

    @property
    def balance(self) -> int:
        """Value, in satoshi, of the coins that the next block may spend."""
        return sum(self._free.values())

    def choose(self, value: int) -> tuple[list[OutPoint], int]:
        """Return the oldest coins that are worth at least `value` satoshi in total, and their sum.

        Raises ParameterError if there are not enough coins.
        """
        chosen, worth = [], 0
        for outpoint, coin_value in self._free.items():
            if worth >= value:
                break
            chosen.append(OutPoint.parse(outpoint))
            worth += coin_value
        if worth < value:
            raise ParameterError(
                f"{value} satoshi are needed, but only {worth} can be spent: mine more blocks (coinbases mature after"
                " 100)"
            )
        return chosen, worth

    def add_tx(self, tx: Transaction) -> None:
        """Update the coins after a transaction has entered the mempool."""
        for outpoint in tx.inputs:
            self._free.pop(outpoint, None)
        self._free.update(self._own(tx))

    def add_block(self, txs: Sequence[Transaction]) -> None:
        """Update the coins after a block with these transactions, coinbase first, has been connected."""
        coinbase, *others = txs
        for tx in others:
            for outpoint in tx.inputs:
                self._free.pop(outpoint, None)
            self._free.update(
                (outpoint, value) for outpoint, value in self._own(tx).items() if not self._mempool.is_spent(outpoint)
            )
        height = self._chain.tip.height
        self._immature.extend((height, outpoint, value) for outpoint, value in self._own(coinbase).items())
        while self._immature and height + 1 - self._immature[0][0] >= COINBASE_MATURITY:
            _, outpoint, value = self._immature.popleft()
            self._free[outpoint] = value

    def recount(self) -> None:
        """Recompute all coins after a reorganization, or after the mempool has dropped a transaction."""
        own = [(outpoint, coin) for outpoint, coin in self._chain.coins.items() if coin.script_pubkey == self._script]
        own = [(outpoint, coin) for outpoint, coin in own if not self._mempool.is_spent(outpoint)]
        next_height = self._chain.tip.height + 1
        young = {outpoint for outpoint, coin in own if coin.coinbase and next_height - coin.height < COINBASE_MATURITY}
        self._immature = deque(
            sorted((coin.height, outpoint, coin.value) for outpoint, coin in own if outpoint in young)
        )
        self._free = {outpoint: coin.value for outpoint, coin in own if outpoint not in young}
        for tx in self._mempool:
            self._free.update(
                (outpoint, value) for outpoint, value in self._own(tx).items() if not self._mempool.is_spent(outpoint)
            )

    def _own(self, tx: Transaction) -> dict[bytes, int]:
        return {
            tx.outpoint(index): out.value
            for index, out in enumerate(tx.outputs)
            if out.value and out.script_pubkey == self._script
        }
