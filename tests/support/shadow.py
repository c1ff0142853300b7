"""Facts recorded beside the books: each input of the books becomes a fact, to compare the books with verdicts."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from spvfilter.kernel import Hit
from spvfilter.protocol import MEMPOOL_EXPIRY_S
from spvfilter.store.ledger import TxStatus
from spvfilter.store.store import Store
from spvfilter.wallet.books import Books
from spvfilter.wallet.canonical import Status
from spvfilter.wallet.events import WalletEvent
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.wallet.txgraph import Anchor, Drop, DropReason, TxRecord
from spvfilter.watch.watchlist import WatchList
from support.facts import Facts

EQUAL = {
    TxStatus.CONFIRMED: Status.CONFIRMED,
    TxStatus.PENDING: Status.CANONICAL,
    TxStatus.REPLACED: Status.REPLACED,
    TxStatus.CONFLICTED: Status.CONFLICTED,
    TxStatus.ABANDONED: Status.ABANDONED,
    TxStatus.REFUSED: Status.REJECTED,
    TxStatus.EXPIRED: Status.EXPIRED,
}
ENDED = (TxStatus.ABANDONED, TxStatus.REFUSED, TxStatus.EXPIRED)


class Shadow(Facts):
    """The facts that the books were told, across restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.arrivals: dict[bytes, int] = {}  # txid → number of its latest arrival
        self.returns: dict[bytes, int] = {}  # the same, where a disconnected block is an arrival
        self.matched: set[bytes] = set()  # txids of foreign transactions that the books kept at any time

    def open(self, watch: WatchList, saved: SavedBooks) -> Books:
        """Books that record here what they are told."""
        return _Recording(watch, saved, self)

    def record(self, raw: bytes, now: int = 0) -> TxRecord:
        record = TxRecord.parse(raw)
        if record.fault is not None:
            self.faulty.add(record.txid)
        self.spends.setdefault(record.txid, list(record.inputs))
        return self.graph.get(record.txid) or record._replace(first_seen=now)

    def change(self, digest: bytes, **facts: Any) -> None:
        self.graph.put(self[digest]._replace(**facts))

    def lacks_output(self, digest: bytes) -> bool:
        """True if a transaction names an output that its known parent does not have."""
        parents = ((spent[:32], int.from_bytes(spent[32:], "little")) for spent in self.spends[digest])
        return any(parent in self.graph and index >= self[parent].outputs for parent, index in parents)

    def variant(self, arrivals: Mapping[bytes, int] | None = None, without: Container[bytes] = ()) -> Facts:
        """The facts without some transactions. With `arrivals`, own and foreign transactions rank by arrival alone."""
        facts = Facts()
        facts.chain, facts.spends, facts.faulty = self.chain, self.spends, self.faulty
        for record in self.graph:
            if arrivals is not None and record.active_drop is None:
                seen = arrivals.get(record.txid, 0)
                record = record._replace(broadcast_seq=None, last_seen=seen, dropped=None)
            if record.txid not in without:
                facts.graph.put(record)
        return facts


class _Recording(Books):
    def __init__(self, watch: WatchList, saved: SavedBooks, shadow: Shadow) -> None:
        self.shadow = shadow
        super().__init__(watch, saved)

    def add_unconfirmed(self, raw: bytes, now: int, *, own: bool = False, **more: Any) -> list[WalletEvent]:
        shadow = self.shadow
        record = shadow.record(raw, now)
        number = shadow.next_number()
        is_dropped = record.active_drop not in (None, DropReason.ABANDONED)
        if own and not record.is_anchored(shadow.chain):
            record = record._replace(broadcast_seq=number)
        elif not own and (not record.last_seen or is_dropped):
            record = record._replace(last_seen=number)
        shadow.graph.put(record._replace(first_seen=record.first_seen or now))
        if own or record.txid not in self.unconfirmed.pending:
            shadow.arrivals[record.txid] = shadow.returns[record.txid] = number
        return super().add_unconfirmed(raw, now, own=own, **more)

    def see_again(self, txid: bytes) -> list[WalletEvent]:
        if txid in self.unconfirmed.pending and not self.unconfirmed.is_live(txid):
            self.shadow.arrivals[txid] = self.shadow.returns[txid] = number = self.shadow.next_number()
            self.shadow.change(txid, last_seen=number)
        return super().see_again(txid)

    def abandon(self, txid: bytes, *, refused: bool = False) -> list[WalletEvent]:
        """The books abandon the earlier versions too."""
        versions = [] if refused else self.unconfirmed.sent.replaced_with(txid)
        for each in (txid, *versions):
            reason = DropReason.REJECTED if refused else DropReason.ABANDONED
            self.shadow.change(each, dropped=Drop(reason, self.shadow.next_number()))
        return super().abandon(txid, refused=refused)

    def expire(self, now: int, *arguments: Any, **more: Any) -> list[WalletEvent]:
        shadow = self.shadow
        arrived = {txid: tx.since or 0 for txid, tx in self.unconfirmed.pending.items()}
        for digest, verdict in shadow.verdicts().items():
            is_counted = verdict.status in (Status.CANONICAL, Status.REPLACED, Status.CONFLICTED)
            old = arrived.get(digest, shadow[digest].first_seen) <= now - MEMPOOL_EXPIRY_S
            if is_counted and old and shadow[digest].active_drop is None:
                shadow.change(digest, dropped=Drop(DropReason.EXPIRED, shadow.next_number()))
        return super().expire(now, *arguments, **more)

    def connect(self, block: ScannedBlock, hits: Sequence[Hit]) -> list[WalletEvent]:
        anchor = Anchor(block.height, block.hash)
        self.shadow.chain.add(anchor)
        for tx in block.txs:
            record = self.shadow.record(tx.raw)
            self.shadow.graph.put(record._replace(anchors=record.anchors | {anchor}, dropped=None))
        return super().connect(block, hits)

    def disconnect(self, fork: int, hashes: Sequence[bytes], headers: bytes, now: int) -> list[WalletEvent]:
        """The books take a transaction of a disconnected block as the latest arrival."""
        shadow = self.shadow
        shadow.chain = {anchor for anchor in shadow.chain if anchor.block_hash not in hashes}
        for record in shadow.graph:
            if any(anchor.block_hash in hashes for anchor in record.anchors):
                shadow.returns[record.txid] = shadow.next_number()
        return super().disconnect(fork, hashes, headers, now)


class Difference(StrEnum):
    """Why the books and `canonical` differ about a transaction."""

    IMPOSSIBLE = "no block can contain it, and the books keep it as pending or replaced"
    BLOCK_FIRST = "a block conflicts with a dropped transaction, and the books leave it as dropped"
    INACTIVE_PARENT = "its parent is dropped, and the books count it"
    REVIVED_PARENT = "its dropped parent was revived, and the books leave it as dropped"
    OWN_FIRST = "an own transaction outranks a foreign one, and the books take the later arrival"
    REORGANIZATION = "a block was disconnected, and the books take its transactions as the latest arrivals"
    UNMATCHED = "a foreign transaction without a match decides, and the books forgot or ignored it"
    NO_SUCH_OUTPUT = "it names an output that a known transaction lacks, and the books take it for a child"
    PATH = "the books keep the version that happened to count, as earlier states left it"


def differences(shadow: Shadow, store: Store) -> dict[bytes, tuple[TxStatus, Status]]:
    """The transactions on which the books and `canonical` differ, with both statuses."""
    verdicts = shadow.verdicts()
    entries = {entry.txid: entry.status for entry in store.views.history(limit=None)}
    shadow.matched |= entries.keys()
    return {
        digest: (status, verdicts[digest].status)
        for digest, status in entries.items()
        if EQUAL[status] is not verdicts[digest].status
    }


def classified(shadow: Shadow, found: Mapping[bytes, tuple[TxStatus, Status]]) -> Iterator[Difference]:
    """The class of each difference: the first cause whose removal gives the status of the books."""
    dropped = {digest for digest, record in shadow.records.items() if record.active_drop is not None}
    foreign = {digest for digest, record in shadow.records.items() if not (record.is_own or record.anchors)}
    unmatched = foreign - shadow.matched
    variants = [
        (Difference.INACTIVE_PARENT, shadow.variant(None, dropped)),
        (Difference.OWN_FIRST, shadow.variant(shadow.arrivals)),
        (Difference.REORGANIZATION, shadow.variant(shadow.returns)),
        (Difference.UNMATCHED, shadow.variant(None, unmatched)),
        (Difference.INACTIVE_PARENT, shadow.variant(shadow.returns, dropped)),
        (Difference.UNMATCHED, shadow.variant(shadow.returns, unmatched)),
        (Difference.UNMATCHED, shadow.variant(shadow.returns, unmatched | dropped)),
    ]
    statuses = [(cause, facts.verdicts()) for cause, facts in variants]
    for digest, (status, verdict) in found.items():
        is_childlike = any(shadow.lacks_output(member) for member in shadow.family(digest))
        otherwise = Difference.NO_SUCH_OUTPUT if is_childlike else Difference.PATH
        if verdict is Status.CONFLICTED:
            yield Difference.BLOCK_FIRST if status in ENDED else Difference.IMPOSSIBLE
        elif status in ENDED:
            yield Difference.REVIVED_PARENT
        else:
            causes = (each for each, known in statuses if digest in known and known[digest].status is EQUAL[status])
            yield next(causes, otherwise)
