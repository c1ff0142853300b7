"""The graph of transactions: the facts recorded about each, the spenders of outpoints, and connected components.

A record contains only observations of one transaction. From the records, `canonical` computes whether the transaction
counts toward the balance.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple, Self

from spvfilter.protocol import HASH_SIZE, MEMPOOL_EXPIRY_S
from spvfilter.store.validity import why_impossible
from spvfilter.transaction import NULL_OUTPOINT, Transaction
from spvfilter.wallet.netgroupquota import MANY


class Anchor(NamedTuple):
    """A searched block that contains a transaction. The block may belong to any branch of the chain."""

    height: int
    """Height of the block."""
    block_hash: bytes
    """Hash of the block, 32 bytes in wire order."""
    position: int = 0
    """Position of the transaction in the block, from 0."""


class BestChain:
    """The blocks of the best chain that records refer to, by height. It contains the anchors in these blocks."""

    def __init__(self) -> None:
        self._hashes: dict[int, bytes] = {}

    def __contains__(self, anchor: object) -> bool:
        return isinstance(anchor, Anchor) and self._hashes.get(anchor.height) == anchor.block_hash

    def connect(self, height: int, block_hash: bytes) -> None:
        """Add a block."""
        self._hashes[height] = block_hash

    def disconnect_to(self, height: int) -> None:
        """Remove the blocks above a height."""
        for each in [each for each in self._hashes if each > height]:
            del self._hashes[each]


class DropReason(StrEnum):
    """Why the wallet dropped a transaction."""

    ABANDONED = "abandoned"
    """The user abandoned it. Only a later broadcast by this wallet revives it."""
    REJECTED = "rejected"
    """Every peer that received it rejected it. A later broadcast or observation revives it."""
    EXPIRED = "expired"
    """It remained unconfirmed for 336 hours. A later broadcast or observation revives it."""


class Signatures(StrEnum):
    """Whether a foreign transaction that spends coins of the wallet is known to be signed by their owner.

    Transactions with a wrong signature are not recorded.
    """

    UNKNOWN = "unknown"
    """They were not verified, or the transaction does not spend the wallet's coins."""
    VALID = "valid"
    """They were verified for all coins of the wallet that it spends, or a block that is now stale contained it."""


class LatestDrop(NamedTuple):
    """The latest drop of a transaction."""

    reason: DropReason
    """Why the wallet dropped it."""
    number: int
    """Number of the drop. Broadcasts and observations with a higher number happened later."""


class TxRecord(NamedTuple):
    """The facts about one transaction. No field depends on another transaction.

    A single counter, which starts at 1, numbers the observations, broadcasts and drops of all transactions.
    """

    txid: bytes
    """Txid, 32 bytes in wire order."""
    raw: bytes
    """The serialized transaction, with its witness if it has one."""
    inputs: tuple[bytes, ...]
    """The outpoints that it spends, 36 bytes each, in the order of `raw`. Null outpoints are left out."""
    outputs: int
    """Number of its outputs."""
    wtxid: bytes
    """Witness txid of `raw`, 32 bytes in wire order."""
    fault: str | None
    """Why no block may contain it, except as the coinbase, judging by `raw` alone; None if a block may."""
    anchors: frozenset[Anchor] = frozenset()
    """The searched blocks that contain it, including stale blocks, since a disconnected block stays here."""
    first_seen: int | None = None
    """When it was first observed unconfirmed (Unix time); None if it was first seen in a block."""
    first_height: int = 0
    """Height up to which blocks had been searched when it was first recorded."""
    expires_at: int = 0
    """When it expires unless a block contains it (Unix time)."""
    last_seen: int = 0
    """Number of its latest recorded observation in a mempool; 0 if it was never observed."""
    broadcast_seq: int | None = None
    """Number of its latest broadcast by this wallet; None for a foreign transaction."""
    dropped: LatestDrop | None = None
    """Its latest drop; None if it was not dropped, or if a block has contained it since."""
    signatures: Signatures = Signatures.UNKNOWN
    """Whether its signatures for the wallet's coins are known to be valid."""
    counts_since: int | None = None
    """Number of the observation or block that provided enough evidence for it to count, or None; never reset."""
    announced_by: tuple[str, ...] = ()
    """Network groups that announced it before it counted; empty once it has been in a block."""
    was_requested: bool = False
    """True if a peer requested or announced it after this wallet broadcast it."""

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Create the record of a transaction from its bytes alone. Raises FormatError."""
        tx = Transaction.parse(raw)
        inputs = tuple([outpoint for outpoint in tx.inputs if outpoint != NULL_OUTPOINT])
        return cls(tx.txid, raw, inputs, len(tx.span.outputs), tx.wtxid, why_impossible(tx))

    def announced(self, groups: Iterable[str]) -> Self:
        """Return the record as it is after these network groups announced it. Once it counts, this changes nothing."""
        if self.has_evidence:
            return self
        return self._replace(announced_by=tuple(dict.fromkeys((*self.announced_by, *groups)))[:MANY])

    def with_witness(self, raw: bytes) -> Self:
        """Return the record of the same transaction with the witness from `raw`."""
        return self if raw == self.raw else self._replace(raw=raw, wtxid=Transaction.parse(raw).wtxid)

    @property
    def is_own(self) -> bool:
        """True if this wallet broadcast it."""
        return self.broadcast_seq is not None

    @property
    def has_evidence(self) -> bool:
        """True if it may count: this wallet broadcast it, or there is more evidence than one announcement."""
        return self.is_own or self.counts_since is not None

    @property
    def active_drop(self) -> DropReason | None:
        """Why it was dropped; None if it was not dropped, or has been revived since."""
        if self.dropped is None or (self.broadcast_seq or 0) > self.dropped.number:
            return None
        is_revived = self.last_seen > self.dropped.number and self.dropped.reason is not DropReason.ABANDONED
        return None if is_revived else self.dropped.reason

    @property
    def is_renewed(self) -> bool:
        """True if it was observed more than once, or if a block that contains it has become stale."""
        return self.first_seen is not None and self.expires_at > self.first_seen + MEMPOOL_EXPIRY_S

    def renewed(self, now: int) -> Self:
        """Return the record with an expiry time counted from `now` (Unix time)."""
        first = now if self.first_seen is None else self.first_seen
        return self._replace(first_seen=first, expires_at=max(now, first + 1) + MEMPOOL_EXPIRY_S)

    def is_anchored(self, best_chain: Container[Anchor]) -> bool:
        """True if a block of the best chain contains it."""
        return any(anchor in best_chain for anchor in self.anchors)

    def anchor_in(self, best_chain: Container[Anchor]) -> Anchor | None:
        """Return its block in the best chain, the lower one if there are two (BIP-30); None if no block contains it."""
        return min((anchor for anchor in self.anchors if anchor in best_chain), default=None)


class Component(NamedTuple):
    """Unconfirmed records that are connected to each other, and the confirmed transactions at their border.

    Two records are connected if one spends an output of the other, or if both spend one outpoint.
    """

    records: dict[bytes, TxRecord]
    """The records by txid. No block of the best chain is known to contain any of them."""
    border: dict[bytes, bytes]
    """Outpoints that the records spend or create, each with the txid of the confirmed transaction that spends it.

    If a confirmed transaction lacks the output that an outpoint names, the outpoint counts as spent by it."""


def creator(outpoint: bytes, records: Mapping[bytes, TxRecord]) -> bytes | None:
    """Return the txid of the record whose output an outpoint refers to; None if there is no such record."""
    record = records.get(outpoint[:HASH_SIZE])
    return None if record is None else record.txid


def is_missing(outpoint: bytes, records: Mapping[bytes, TxRecord]) -> bool:
    """True if the transaction that this outpoint refers to is known and does not have such an output."""
    record = records.get(outpoint[:HASH_SIZE])
    return record is not None and int.from_bytes(outpoint[HASH_SIZE:], "little") >= record.outputs


class TxGraph:
    """Records of transactions by txid, and the transactions that spend each outpoint.

    The caller limits the number of records. Each of their inputs takes some 250 bytes of memory.
    """

    def __init__(self) -> None:
        self._records: dict[bytes, TxRecord] = {}
        self._spenders: dict[bytes, tuple[bytes, ...]] = {}  # outpoint → txids
        self._spent: dict[bytes, dict[bytes, None]] = {}  # txid of a transaction → its outpoints that are spent
        self.walked: int = 0
        """Number of records and inputs in all components that have been computed or searched, as a measure of work."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._records

    def __iter__(self) -> Iterator[TxRecord]:
        return iter(self._records.values())

    def get(self, txid: bytes) -> TxRecord | None:
        """Return the record of a transaction, or None."""
        return self._records.get(txid)

    def spenders(self, outpoint: bytes) -> tuple[bytes, ...]:
        """Return the txids of the transactions that spend an outpoint."""
        return self._spenders.get(outpoint, ())

    def spent_outputs(self, txid: bytes) -> list[bytes]:
        """Return those outpoints of a transaction that records spend."""
        return list(self._spent.get(txid, ()))

    def children(self, txid: bytes) -> list[bytes]:
        """Return the txids of the records that spend from a transaction, even from outputs that it does not have."""
        spent = self._spent.get(txid, ())
        return list(dict.fromkeys(child for outpoint in spent for child in self._spenders[outpoint]))

    def descendants(self, txid: bytes) -> list[bytes]:
        """Return a txid and those of the records that spend from it, directly or indirectly, parents first."""
        found = dict.fromkeys([txid])
        for each in (waiting := [txid]):  # the list grows during the loop
            fresh = [child for child in self.children(each) if child not in found]
            found |= dict.fromkeys(fresh)
            waiting += fresh
        return list(found)

    def ancestors(self, record: TxRecord, is_end: Callable[[TxRecord], bool] | None = None) -> list[TxRecord]:
        """Return the records from which a transaction spends, directly or indirectly.

        The search does not go beyond an ancestor for which `is_end` returns True.
        """
        found = dict[bytes, TxRecord]()
        for each in (waiting := [record]):  # the list grows during the loop
            for outpoint in each.inputs:
                parent = creator(outpoint, self._records)
                if parent is not None and parent not in found:
                    found[parent] = ancestor = self._records[parent]
                    if is_end is None or not is_end(ancestor):
                        waiting.append(ancestor)
        return list(found.values())

    def neighbours(self, record: TxRecord) -> set[bytes]:
        """Return the txids of a transaction's parents, children and conflicts."""
        found = {each for outpoint in record.inputs for each in self.spenders(outpoint)}
        found |= {parent for outpoint in record.inputs if (parent := creator(outpoint, self._records)) is not None}
        found.update(self.children(record.txid))
        found.discard(record.txid)
        return found

    def is_missing(self, outpoint: bytes, best_chain: Container[Anchor]) -> bool:
        """True if the transaction that this outpoint refers to is confirmed and does not have such an output."""
        parent = self._records.get(outpoint[:HASH_SIZE])
        return parent is not None and is_missing(outpoint, self._records) and parent.is_anchored(best_chain)

    def put(self, record: TxRecord) -> None:
        """Add a record, replacing an earlier one of the same transaction."""
        is_new = record.txid not in self._records
        self._records[record.txid] = record
        if not is_new:
            return
        for outpoint in dict.fromkeys(record.inputs):
            self._spenders[outpoint] = (*self.spenders(outpoint), record.txid)
            self._spent.setdefault(outpoint[:HASH_SIZE], {})[outpoint] = None

    def remove(self, txid: bytes) -> None:
        """Remove the record of a transaction, if there is one."""
        if (record := self._records.pop(txid, None)) is None:
            return
        for outpoint in dict.fromkeys(record.inputs):
            left = tuple([spender for spender in self._spenders[outpoint] if spender != txid])
            if left:
                self._spenders[outpoint] = left
                continue
            del self._spenders[outpoint]
            spent = self._spent[parent := outpoint[:HASH_SIZE]]
            del spent[outpoint]
            if not spent:
                del self._spent[parent]

    def component(self, txid: bytes, best_chain: Container[Anchor]) -> Component:
        """Return the component that contains a transaction. The work is linear in the inputs of the records found.

        If the transaction is confirmed, the result contains the components of all related unconfirmed transactions,
        which can change when the transaction is confirmed or its block is disconnected.
        """
        found = Component({}, {})
        waiting, met, walked = [txid], {txid}, set[bytes]()
        while waiting:
            record = self._records.get(waiting.pop())
            if record is None:
                continue  # the given transaction is not known
            self.walked += 1 + len(record.inputs)
            if not record.is_anchored(best_chain):
                found.records[record.txid] = record
            elif record.txid != txid:
                continue  # at the border
            for outpoint in self.links(record):
                if outpoint not in walked:
                    walked.add(outpoint)
                    spenders = self._spenders[outpoint]
                    confirmed = [each for each in spenders if self._records[each].is_anchored(best_chain)]
                    parent = creator(outpoint, self._records)
                    if confirmed:  # exactly one, except in an invalid chain
                        found.border[outpoint] = min(confirmed)
                    elif parent is not None and self.is_missing(outpoint, best_chain):
                        found.border[outpoint] = parent
                    near = {*spenders} - met if parent is None else {parent, *spenders} - met
                    met |= near
                    waiting += sorted(near)
        return found

    def nearby(
        self, record: TxRecord, best_chain: Container[Anchor], number: int, size: int, links: int
    ) -> tuple[list[TxRecord], bool]:
        """Return the other records in the component to which an unconfirmed record belongs, or would belong.

        Args:
            record: The record.
            best_chain: The best chain, which contains some of the records' anchors.
            number: The search ends once it has found more records than this number.
            size: The search also ends once their total size exceeds this many bytes.
            links: The search also ends once more than this many outpoints link them.

        Returns:
            The records, and a bool that is True if there are no others.
        """
        found, met, walked, walked_size = [record], {record.txid}, set[bytes](), 0
        for each in found:  # the list grows during the loop
            if len(found) > number or walked_size > size or len(walked) > links:
                return found[1:], False
            walked_size += len(each.raw)
            self.walked += 1 + len(each.inputs)
            for outpoint in self.links(each):
                if outpoint in walked:
                    continue
                walked.add(outpoint)
                for txid in (outpoint[:HASH_SIZE], *self.spenders(outpoint)):
                    near = self._records.get(txid) if txid not in met else None
                    if near is not None and not near.is_anchored(best_chain):
                        found.append(near)
                    met.add(txid)
        return found[1:], True

    def components(self, best_chain: Container[Anchor]) -> Iterator[Component]:
        """Yield every component of unconfirmed records once."""
        done = set[bytes]()
        for txid, record in self._records.items():
            if txid not in done and not record.is_anchored(best_chain):
                component = self.component(txid, best_chain)
                done.update(component.records)
                yield component

    def links(self, record: TxRecord) -> list[bytes]:
        """Return the outpoints that connect a record to others, or would connect it: inputs and spent outputs."""
        records, spenders, alone = self._records, self._spenders, (record.txid,)
        inputs = [
            outpoint
            for outpoint in record.inputs
            if spenders.get(outpoint, alone) != alone or outpoint[:HASH_SIZE] in records
        ]
        return [*inputs, *self._spent.get(record.txid, ())]
