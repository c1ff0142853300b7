"""Sans-IO protocol logic of the embedded node for one peer, after Core's net_processing: answers, announcements,
disconnects.

Every `on_…` and `send_…` method may be overridden for a node that lies.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from spvfilter._public import public
from spvfilter.errors import MessageError, PeerError, RefusedError
from spvfilter.filters.bip37 import Bip37Filter, MatchedTx
from spvfilter.kernel import strip_witness, walk_block
from spvfilter.node.blocktree import TipChange, TreeBlock
from spvfilter.node.filterindex import FilterRequest
from spvfilter.node.regtest import Regtest
from spvfilter.primitives import compact_size
from spvfilter.protocol import (
    HEADER_SIZE,
    MAX_ANNOUNCED_HEADERS,
    MAX_BLOCK_INVS,
    MAX_HEADERS,
    MAX_INVENTORY,
    MAX_TX_REQUESTS,
)
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Disconnected, Misbehaved, Ready, Received, Service, SessionEvent
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from spvfilter.wire.session import Session

_TX_BATCH = 100  # transactions answered in one step
_FILTER_BATCH = 100  # compact filters sent in one step
_TX_KINDS = (InvType.TX, InvType.WTX, InvType.WITNESS_TX)
_BLOCK_KINDS = (InvType.BLOCK, InvType.FILTERED_BLOCK, InvType.COMPACT_BLOCK, InvType.WITNESS_BLOCK)

_REJECT_INVALID = 0x10  # BIP-61

logger = logging.getLogger(__name__)


@public
class Responder:
    """The node's side of one connection.

    Its owner moves bytes between `session` and a socket and calls `step` while it returns True.

    Each connection has its own filter, which learns from what it matches in blocks and announcements. The queue of work
    for the peer is bounded: the transactions of the mempool, a few block hashes, and the rest of one getdata. A
    subclass with `says_why` tells why it refuses a transaction, as Core did before 0.20 and others do (BIP-61).
    """

    says_why = False

    def __init__(self, regtest: Regtest, session: Session) -> None:
        self.regtest = regtest
        self.session = session
        self.over: Disconnected | None = None  # set when the connection has ended, with the reason
        self.filter: Bip37Filter | None = None
        self.relay = False  # whether transactions are announced
        self.prefers_headers = False  # BIP-130
        self.feerate = 0  # satoshi per 1,000 virtual bytes: transactions below it are not announced (BIP-133)
        self.filters = regtest.filters
        self._requests: deque[InvItem] = deque()  # items of the last getdata that are not answered yet
        self._answers: Iterator[Message | None] = iter(())  # to the last request for compact filters
        self._continuation: bytes | None = None  # last block of a full answer to getblocks
        self._last_header: TreeBlock | None = None  # the peer knows it and all blocks below it
        self._new_blocks: list[TreeBlock] = []  # to be announced
        self._new_txs: dict[bytes, Transaction] = {}  # to be announced, by txid

    def step(self) -> bool:
        """Do one piece of work: announce, answer a request or process a message. False if there was nothing to do."""
        if self.over is not None:
            return False
        if self.session.ready is not None and (self._new_blocks or self._new_txs):
            self.announce()
            return True
        if self._requests:
            self._answer()
            return True
        if self._answer_filters():
            return True
        event = self.session.next_event()
        if event is None:
            return False
        self.on_event(event)
        return True

    def send(self, message: Message) -> None:
        """Send a message; every message after the handshake goes through here."""
        self.session.send(message)

    def end(self, why: str) -> None:
        """Disconnect the peer, for the reason `why`."""
        self._requests.clear()
        self._answers = iter(())
        self.session.close(PeerError(why))

    def on_event(self, event: SessionEvent) -> None:
        """Handle one event of the session."""
        match event:
            case Ready(version=version):
                self.relay = version.relay
            case Received(message):
                self.on_message(message)
            case Misbehaved(error):
                self.on_misbehaviour(error)
            case Disconnected():
                logger.debug("peer left: %s", event.error or "closed by us")
                self.over = event

    def on_misbehaviour(self, error: PeerError) -> None:
        """Ignore malformed messages, as Core does, but disconnect a peer whose filterload has too many hash
        functions.
        """
        if isinstance(error, MessageError) and error.field == "hash_funcs" and "truncated" not in str(error):
            self.end(str(error))

    def on_message(self, message: Message) -> None:
        """Answer one message; messages of other kinds are ignored."""
        match message:
            case wire.GetHeaders():
                self.on_getheaders(message)
            case wire.GetBlocks():
                self.on_getblocks(message)
            case wire.GetData(items):
                self._requests.extend(items)
            case wire.SendHeaders():
                self.prefers_headers = True
            case wire.FeeFilter(feerate):
                self.feerate = feerate
            case wire.Inv(items):
                self.on_inv(items)
            case wire.Tx(raw):
                self.on_tx(raw)
            case wire.FilterLoad() | wire.FilterAdd() | wire.FilterClear() | wire.Mempool():
                if not self.session.settings.services & Service.BLOOM:
                    self.end(f"{wire.command_of(message)} without NODE_BLOOM (BIP-111)")
                else:
                    self.on_bloom(message)
            case wire.GetCFilters() | wire.GetCFHeaders() | wire.GetCFCheckpt():
                if not self.session.settings.services & Service.COMPACT_FILTERS:
                    self.end(f"{wire.command_of(message)} without NODE_COMPACT_FILTERS (BIP-157)")
                else:
                    self.on_filters_wanted(message)

    # Headers and announcements

    def on_getheaders(self, asked: wire.GetHeaders) -> None:
        """Send the headers after the fork up to the stop hash, at most 2,000."""
        chain = self.regtest.chain
        if asked.locator:
            start = chain.fork_height(asked.locator) + 1
            found = chain.active[start : start + MAX_HEADERS]
            found = found[
                : next((at for at, block in enumerate(found, 1) if block.hash == asked.stop_hash), MAX_HEADERS)
            ]
        else:  # without locator: the stop block's header alone
            block = chain.blocks.get(asked.stop_hash)
            if block is None or not chain.is_requestable(block):
                return
            found = [block]
        self._last_header = found[-1] if found else chain.tip
        self.send_headers(found)

    def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
        """Send the headers of some blocks in one message."""
        self.send(wire.Headers(tuple(block.raw[:HEADER_SIZE] for block in blocks)))

    def on_getblocks(self, asked: wire.GetBlocks) -> None:
        """Send the hashes after the fork and before the stop hash; a full answer continues once the peer requests its
        last block.
        """
        start = self.regtest.chain.fork_height(asked.locator) + 1
        hashes = [block.hash for block in self.regtest.chain.active[start : start + MAX_BLOCK_INVS]]
        if asked.stop_hash in hashes:
            hashes = hashes[: hashes.index(asked.stop_hash)]
        elif len(hashes) == MAX_BLOCK_INVS:
            self._continuation = hashes[-1]
        self.send_inv([InvItem(InvType.BLOCK, block_hash) for block_hash in hashes])

    def send_inv(self, items: Sequence[InvItem]) -> None:
        """Send inventory items, at most 50,000 per message."""
        for start in range(0, len(items), MAX_INVENTORY):
            self.send(wire.Inv(tuple(items[start : start + MAX_INVENTORY])))

    def queue_tip(self, change: TipChange) -> None:
        """Queue the announcement of a change of the best chain."""
        self._new_blocks = [*self._new_blocks, *change.connected[-MAX_ANNOUNCED_HEADERS:]][-MAX_ANNOUNCED_HEADERS - 1 :]

    def queue_tx(self, tx: Transaction) -> None:
        """Queue the announcement of a new transaction of the mempool."""
        if self.session.ready is not None:
            self._new_txs[tx.txid] = tx

    def announce(self) -> None:
        """Announce new blocks by headers if the peer prefers them and knows the parent, else the last one by inv;
        transactions by inv.
        """
        blocks, self._new_blocks = self._new_blocks, []
        txs, self._new_txs = self._new_txs, {}
        items = self._announce_blocks(blocks) if blocks else []
        if self.relay:
            items += [self._tx_item(tx) for tx in txs.values() if tx.txid in self.regtest.mempool and self._wants(tx)]
        self.send_inv(items)

    def _announce_blocks(self, blocks: Sequence[TreeBlock]) -> list[InvItem]:
        """Send headers, or return the inv items that announce the blocks instead (Core SendMessages)."""
        if self.prefers_headers and len(blocks) <= MAX_ANNOUNCED_HEADERS:
            unknown = [block for block in blocks if not self._knows(block)]
            chained = all(below is block.previous for below, block in pairwise(blocks))
            if (
                chained
                and self.regtest.chain.is_active(blocks[-1])
                and (not unknown or self._knows(unknown[0].previous))
            ):
                if unknown:
                    self._last_header = unknown[-1]
                    self.send_headers(unknown)
                return []
        return [] if self._knows(blocks[-1]) else [InvItem(InvType.BLOCK, blocks[-1].hash)]

    def _knows(self, block: TreeBlock | None) -> bool:
        """Whether this node has sent the peer the header of `block`."""
        last = self._last_header
        return block is None or (
            last is not None
            and last.height >= block.height
            and self.regtest.chain.ancestor(last, block.height) is block
        )

    # Requested blocks and transactions

    def _answer(self) -> None:
        """Send some transactions or one block (Core ProcessGetData). Items of other kinds are skipped."""
        if self._requests[0].kind in _TX_KINDS:
            self._answer_txs()
            return
        item = self._requests.popleft()
        block = self.regtest.chain.blocks.get(item.hash) if item.kind in _BLOCK_KINDS else None
        if block is None or not self.regtest.chain.is_requestable(block):
            return
        self.on_block_wanted(block, item.kind)
        if block.hash == self._continuation:
            self._continuation = None
            self.send_inv([InvItem(InvType.BLOCK, self.regtest.chain.tip.hash)])

    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        """Send a block without witness, with witness, or filtered. A request for a compact block gets the whole one."""
        match kind:
            case InvType.BLOCK:
                self.send(wire.Block(stripped_block(block.raw)))
            case InvType.FILTERED_BLOCK:
                if self.filter is not None:
                    self.send_merkleblock(block, self.filter.scan_block(block.raw))
            case _:
                self.send(wire.Block(block.raw))

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        """Send the proof, then every transaction it proves, without witness."""
        self.send(wire.MerkleBlock.from_txids(block.header, block.txids, [match.position for match in matched]))
        for match in matched:
            self.send(wire.Tx(match.stripped))

    def _answer_txs(self) -> None:
        missing = []
        for _ in range(_TX_BATCH):
            if not self._requests or self._requests[0].kind not in _TX_KINDS or not self.session.can_send:
                break
            item = self._requests.popleft()
            tx = self.regtest.find_tx(item.hash, by_wtxid=item.kind == InvType.WTX)
            if tx is None:
                missing.append(item)
            else:
                self.send(wire.Tx(tx.stripped if item.kind == InvType.TX else tx.raw))
        if missing:
            self.send(wire.NotFound(tuple(missing)))

    # BIP-157

    def on_filters_wanted(self, asked: FilterRequest) -> None:
        """Queue the answer to a request for filters, filter headers or checkpoints."""
        self._answers = self.filters.respond(asked)

    def _answer_filters(self) -> bool:
        """Send a part of the answer to the last request for compact filters; whether there was one."""
        worked = False
        try:
            for message in islice(self._answers, _FILTER_BATCH):
                worked = True
                if message is None:
                    break
                self.send(message)
                if not self.session.can_send:
                    break
        except RefusedError as error:
            self.end(str(error))
        return worked

    # Transactions from the peer

    def on_inv(self, items: Sequence[InvItem]) -> None:
        """Request the announced transactions that are not known. Announced blocks are ignored: only this node mines."""
        assert self.session.ready is not None
        announced, asked = (
            (InvType.WTX, InvType.WTX) if self.session.ready.wtxid_relay else (InvType.TX, InvType.WITNESS_TX)
        )
        hashes = dict.fromkeys(item.hash for item in items[:MAX_TX_REQUESTS] if item.kind == announced)
        wanted = [
            tx_hash for tx_hash in hashes if self.regtest.find_tx(tx_hash, by_wtxid=announced == InvType.WTX) is None
        ]
        if wanted:
            self.send(wire.GetData(tuple(InvItem(asked, tx_hash) for tx_hash in wanted)))

    def on_tx(self, raw: bytes) -> None:
        """Add a transaction to the mempool, if it is valid, which announces it to the other peers."""
        try:
            txid = self.regtest.submit_tx(raw)
        except RefusedError as error:
            logger.debug("not taken: %s", error)
            if self.says_why:
                self.send(
                    wire.Reject(b"tx", _REJECT_INVALID, error.reason.encode("ascii"), Transaction.parse(raw).txid)
                )
        else:
            self._new_txs.pop(txid, None)

    # BIP-37

    def on_bloom(self, message: Message) -> None:
        """Set, extend or remove the filter, or announce the transactions of the mempool that it matches."""
        match message:
            case wire.FilterLoad():
                self.filter = Bip37Filter.parse(bytes(message))
                self.relay = True
            case wire.FilterAdd(data):
                if self.filter is None:
                    self.end("filteradd without a filter")
                else:
                    self.filter.insert(data)
            case wire.FilterClear():
                self.filter = None
                self.relay = True
            case wire.Mempool():
                self._new_txs.clear()
                self.send_inv([self._tx_item(tx) for tx in self.regtest.mempool if self._wants(tx)])

    def _wants(self, tx: Transaction) -> bool:
        """Whether to announce a transaction to the peer; the filter learns from what it matches."""
        if 1_000 * self.regtest.mempool.fees[tx.txid] < self.feerate * tx.virtual_size:
            return False
        return self.filter is None or self.filter.matches_tx(tx.raw)

    def _tx_item(self, tx: Transaction) -> InvItem:
        assert self.session.ready is not None
        return InvItem(InvType.WTX, tx.wtxid) if self.session.ready.wtxid_relay else InvItem(InvType.TX, tx.txid)


def stripped_block(raw: bytes) -> bytes:
    """A block without witnesses, as serialised before BIP-144."""
    spans = list(walk_block(raw))
    if not any(span.witness for span in spans):
        return raw
    return raw[:HEADER_SIZE] + compact_size(len(spans)) + b"".join(strip_witness(raw, span) for span in spans)
