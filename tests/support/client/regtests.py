"""Changes of a regtest node for tests: forget blocks, change a rule while it runs, recount the miner's coins."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from unittest.mock import patch

from spvfilter.node import Node, Regtest, Responder
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import InvItem

_BEGUN = time.time()  # Unix time


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


def copied(original: Regtest, clock: Callable[[], float], *, replace_by_fee: bool = True) -> Regtest:
    """An independent node with the same chain and an empty mempool."""
    made = Regtest(clock=clock, replace_by_fee=replace_by_fee)
    made.chain.blocks = dict(original.chain.blocks)
    made.chain.coins = dict(original.chain.coins)
    made.chain.active = list(original.chain.active)
    made.filters._filters.update(original.filters._filters)
    made.filters._headers.update(original.filters._headers)
    made._recent = dict(original._recent)
    recount(made)
    return made


@lru_cache(maxsize=8)
def _mined(length: int, now: float) -> Regtest:
    regtest = Regtest(clock=lambda: now)
    regtest.mine(length)
    regtest.filters.header(regtest.chain.tip)
    return regtest


def mined(length: int, clock: Callable[[], float] = time.time) -> Regtest:
    """A node that has just mined `length` blocks. They are mined once in a process, and then copied."""
    made = copied(_mined(length, _BEGUN if clock is time.time else clock()), clock)
    made._extra = count(length)
    return made


def mine_unlike_others(regtest: Regtest) -> None:
    """Give the next blocks coinbases that differ from those of nodes with the same chain."""
    regtest._extra = count(1_000_000)


def accept_replacements(regtest: Regtest) -> None:
    """Let the mempool accept replacements from now on."""
    regtest.mempool._replaces = True


@contextmanager
def refusing_replacements(regtest: Regtest) -> Iterator[None]:
    """Context manager: the mempool refuses replacements."""
    with patch.object(regtest.mempool, "_replaces", False):
        yield


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
