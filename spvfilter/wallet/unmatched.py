"""Unconfirmed transactions without a match so far, kept because a late parent may turn them into one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spvfilter.transaction import Transaction

MAX_UNMATCHED = 500  # of them
MAX_UNMATCHED_SIZE = 100_000  # bytes of each, Core's largest standard transaction


class Arrival(NamedTuple):
    """An unconfirmed transaction that is looked at again, and when it came."""

    txid: bytes
    raw: bytes
    since: int
    """Seconds since 1970."""
    age: int
    """Its number in the order in which unconfirmed transactions were seen."""


class Unmatched:
    """The latest of them, by txid and by the outpoints that they spend."""

    def __init__(self) -> None:
        self._txs: dict[bytes, Arrival] = {}  # the oldest first
        self._before_block: set[bytes] = set()  # of these: txids that came before the latest block, which may have them
        self._waiting: dict[bytes, dict[bytes, None]] = {}  # outpoint → txids of those that spend it

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._txs

    def put(self, each: Arrival) -> None:
        """Keep another one, in place of the oldest if they are too many."""
        if len(each.raw) > MAX_UNMATCHED_SIZE or each.txid in self._txs:
            return
        self._txs[each.txid] = each
        for outpoint in Transaction.parse(each.raw).inputs:
            self._waiting.setdefault(outpoint, {})[each.txid] = None
        if len(self._txs) > MAX_UNMATCHED:
            self._drop(next(iter(self._txs)))

    def spenders(self, outpoint: bytes) -> list[Arrival]:
        """Those that spend an outpoint."""
        return [self._txs[txid] for txid in self._waiting.get(outpoint, ())]

    def block_came(self) -> None:
        """The chain has another block. What is in it is not known where it has nothing of the wallet's."""
        self._before_block.update(self._txs)

    def _drop(self, txid: bytes) -> Arrival:
        gone = self._txs.pop(txid)
        self._before_block.discard(txid)
        for outpoint in dict.fromkeys(Transaction.parse(gone.raw).inputs):
            waiting = self._waiting[outpoint]
            del waiting[txid]
            if not waiting:
                del self._waiting[outpoint]
        return gone

    def take(self, made: Iterable[bytes]) -> list[Arrival]:
        """Remove and return those that spend one of these outpoints."""
        txids = {txid for outpoint in made for txid in self._waiting.get(outpoint, ())}
        return [self._drop(txid) for txid in list(self._txs) if txid in txids] if txids else []

    def take_all(self) -> list[Arrival]:
        """Remove all; those that no block can have yet.

        An entry that is searched for from the next block on would not see that an earlier one has them.
        """
        taken = [each for txid, each in self._txs.items() if txid not in self._before_block]
        self._txs, self._before_block, self._waiting = {}, set(), {}
        return taken
