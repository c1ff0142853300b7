"""Orphanage: foreign unconfirmed transactions that neither match nor affect a stored one, kept only in memory.

A parent that arrives later may turn one of them into a match.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from spvfilter.wallet.netgroupquota import MANY
from spvfilter.wallet.txgraph import TxRecord

MAX_ORPHANS = 500
"""Largest number of transactions in the orphanage (our choice)."""
MAX_ORPHAN_INPUTS = 25_000
"""Largest total number of inputs of all orphans (our choice). Each takes 400 bytes."""
MAX_ORPHAN_SIZE = 100_000
"""Largest size of one transaction in bytes: the size of Core's largest standard transaction."""


class Orphan(NamedTuple):
    """A transaction in the orphanage."""

    record: TxRecord
    """The transaction's record, with the number of its observation."""
    groups: tuple[str, ...] = ()
    """Network groups that announced it."""
    arrived: int | None = None
    """How many chain changes preceded its arrival; None if the orphanage should fill in the current number."""


class Orphanage:
    """The latest orphans, which can be looked up by txid and by the outpoints that they spend."""

    def __init__(self) -> None:
        self._orphans: dict[bytes, Orphan] = {}  # the oldest first
        self._inputs = 0  # total of all orphans
        self._blocks = 0  # number of changes to the chain
        self._spenders: dict[bytes, dict[bytes, None]] = {}  # outpoint → txids

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._orphans

    def __len__(self) -> int:
        return len(self._orphans)

    def get(self, txid: bytes) -> TxRecord | None:
        """Return the record of an orphan; None if there is no such orphan."""
        orphan = self._orphans.get(txid)
        return None if orphan is None else orphan.record

    def find(self, txid: bytes) -> Orphan | None:
        """Return an orphan; None if there is no such orphan."""
        return self._orphans.get(txid)

    def put(self, orphan: Orphan) -> None:
        """Add a transaction. If there are too many, the oldest is dropped."""
        record = orphan.record
        if len(record.raw) > MAX_ORPHAN_SIZE or record.txid in self._orphans:
            return
        arrived = self._blocks if orphan.arrived is None else orphan.arrived
        self._orphans[record.txid] = orphan._replace(arrived=arrived)
        for outpoint in record.inputs:
            self._spenders.setdefault(outpoint, {})[record.txid] = None
        self._inputs += len(record.inputs)
        while len(self._orphans) > MAX_ORPHANS or self._inputs > MAX_ORPHAN_INPUTS:
            self._drop(next(iter(self._orphans)))

    def announce(self, txid: bytes, groups: Iterable[str], quorum: int, number: int) -> None:
        """Record that network groups announced an orphan.

        Once `quorum` groups have announced it, it has enough evidence to count, as of observation `number`.
        """
        orphan, names = self._orphans[txid], tuple(groups)
        record = orphan.record.announced(names)
        if not record.has_evidence and len(record.announced_by) >= quorum:
            record = record._replace(counts_since=number)
        groups = tuple(dict.fromkeys((*orphan.groups, *names)))[:MANY]
        self._orphans[txid] = orphan._replace(record=record, groups=groups)

    def note_block(self) -> None:
        """Record that the chain has a new block, which may contain any of the orphans."""
        self._blocks += 1

    def take(self, txid: bytes) -> Orphan | None:
        """Remove and return an orphan; None if there is no such orphan."""
        return self._drop(txid) if txid in self._orphans else None

    def relatives(self, record: TxRecord) -> list[bytes]:
        """Return the txids of a transaction's parents, children and conflicts, in order of arrival."""
        if not self._orphans:
            return []
        outputs = (record.txid + index.to_bytes(4, "little") for index in range(record.outputs))
        txids = {txid for outpoint in (*record.inputs, *outputs) for txid in self._spenders.get(outpoint, ())}
        txids |= {outpoint[:32] for outpoint in record.inputs if outpoint[:32] in self._orphans}
        return [txid for txid in self._orphans if txid in txids] if txids else []

    def spenders(self, outpoints: Iterable[bytes]) -> list[bytes]:
        """Return the txids of the transactions that spend one of these outpoints, in order of arrival."""
        if not self._orphans:
            return []
        txids = {txid for outpoint in outpoints for txid in self._spenders.get(outpoint, ())}
        return [txid for txid in self._orphans if txid in txids] if txids else []

    def keep_recent(self) -> list[bytes]:
        """Drop the orphans that arrived before the latest block, and return the txids of the others.

        The search for new entries starts at the next block, so an earlier block that contains one of the older orphans
        would be missed.
        """
        for txid in [txid for txid, orphan in self._orphans.items() if orphan.arrived != self._blocks]:
            self._drop(txid)
        return list(self._orphans)

    def _drop(self, txid: bytes) -> Orphan:
        gone = self._orphans.pop(txid)
        self._inputs -= len(gone.record.inputs)
        for outpoint in dict.fromkeys(gone.record.inputs):
            spenders = self._spenders[outpoint]
            del spenders[txid]
            if not spenders:
                del self._spenders[outpoint]
        return gone
