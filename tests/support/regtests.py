"""Changes of a regtest node for tests: forget blocks, change a rule while it runs, recount the miner's coins."""

from __future__ import annotations

from itertools import count

from spvfilter.node import Node, Regtest, Responder
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import InvItem


def recount(regtest: Regtest) -> None:
    """Count the miner's coins again, after a change of the chain or the mempool behind its back."""
    regtest._wallet.recount()


def cut(regtest: Regtest, length: int) -> None:
    """Forget the last blocks of the best chain, as if they had never been mined."""
    for _ in range(length):
        block = regtest.chain.tip
        regtest.chain._disconnect(block)
        del regtest.chain.blocks[block.hash]
    recount(regtest)


def copy_filters(original: Regtest, copy: Regtest) -> None:
    copy.filters._filters.update(original.filters._filters)
    copy.filters._headers.update(original.filters._headers)


def mine_unlike_others(regtest: Regtest) -> None:
    """Give the next blocks coinbases that differ from those of nodes with the same chain."""
    regtest._extra = count(1_000_000)


def accept_replacements(regtest: Regtest) -> None:
    """Let the mempool accept replacements from now on."""
    regtest.mempool._replaces = True


def wake(node: Node) -> None:
    """Send what the responders of a node have written since."""
    for connection in node._connections:
        connection.wake()


def announced(responder: Responder, tx: Transaction) -> InvItem:
    """The item by which a node announces a transaction to this peer: its txid or its wtxid."""
    return responder._tx_item(tx)


def miner_coins(regtest: Regtest, value: int) -> list[OutPoint]:
    """The oldest coins of the miner that are worth at least `value` satoshi."""
    coins, _ = regtest._wallet.choose(value)
    return coins
