"""Protocol logic of the embedded node for one peer, without sockets, as in Core's net_processing.

Subclasses may override any `on_…` or `send_…` method to make a node that lies.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import assert_never

from spvfilter._public import public
from spvfilter.chain.difficulty import target
from spvfilter.errors import FormatError, HeaderError, MessageError, PeerError, RefusedError
from spvfilter.filters.bip37 import Bip37Filter, MatchedTx
from spvfilter.kernel import strip_witness, walk_block
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import TipChange, TreeBlock
from spvfilter.node.filterindex import FilterIndex, FilterRequest
from spvfilter.node.regtest import Regtest
from spvfilter.primitives import Header, compact_size, hash_to_hex
from spvfilter.protocol import (
    HEADER_SIZE,
    MAX_ANNOUNCED_HEADERS,
    MAX_BLOCK_INVS,
    MAX_HEADERS,
    MAX_INVENTORY,
    MAX_TX_REQUESTS,
)
from spvfilter.transaction import Transaction
from spvfilter.wire.events import (
    Fenced,
    Misbehaved,
    Ready,
    Received,
    ReceivedFilters,
    Service,
    SessionEnded,
    SessionEvent,
)
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from spvfilter.wire.session import Session

_TX_BATCH = 100  # number of requested transactions that one step sends
_FILTER_BATCH = 100  # number of compact filters that one step sends
_TX_KINDS = (InvType.TX, InvType.WTX, InvType.WITNESS_TX)
_BLOCK_KINDS = (InvType.BLOCK, InvType.FILTERED_BLOCK, InvType.COMPACT_BLOCK, InvType.WITNESS_BLOCK)

_BLOCKS_IN_TRANSIT = 16  # Most blocks requested from the peer at the same time (Core MAX_BLOCKS_IN_TRANSIT_PER_PEER).

_REJECT_INVALID = 0x10  # code of a reject message (BIP-61)

logger: logging.Logger = logging.getLogger(__name__)


@public
class Responder:
    """The embedded node's side of the P2P protocol on one connection.

    The owner of a responder moves bytes between `session` and a socket, and calls `step` as long as it returns True.

    Each connection has its own BIP-37 filter, to which the outpoints of matches in blocks and announcements are added.
    The work queued for the peer is bounded: transactions in the mempool, a few block hashes, the rest of one getdata
    message, and the blocks of one headers message.
    """

    says_why = False
    """True if the node sends a reject message for a transaction that it refuses (BIP-61), as Core did before 0.20."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        self.regtest = regtest
        self.session = session
        self.over: SessionEnded | None = None  # The last event, with the reason; None while connected.
        self.filter: Bip37Filter | None = None  # The peer's BIP-37 filter.
        self.relay: bool = False  # True if transactions are announced to the peer.
        self.prefers_headers: bool = False  # True if blocks are announced with headers messages (BIP-130).
        # Satoshi per 1,000 virtual bytes. Transactions that pay less are not announced (BIP-133).
        self.feerate: int = 0
        self.filters: FilterIndex = regtest.filters
        self._requests: deque[InvItem] = deque()  # Unanswered items of the last getdata message.
        self._answers: Iterator[Message | None] = iter(())  # Answers to the last request for compact filters.
        self._continuation: bytes | None = None  # Hash of the last block in a full answer to getblocks.
        self._last_header: TreeBlock | None = None  # The peer knows this block and all its ancestors.
        self._wanted: deque[bytes] = deque()  # Hashes of blocks that the peer announced, to be requested.
        self._fetched: set[bytes] = set()  # Hashes of blocks that were requested but have not arrived.
        self._new_blocks: list[TreeBlock] = []  # Blocks that are waiting to be announced.
        self._new_txs: dict[bytes, Transaction] = {}  # Transactions that are waiting to be announced, keyed by txid.

    def step(self) -> bool:
        """Make one announcement, answer one request or process one message.

        Returns False if there was nothing to do.
        """
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
        """Send a message to the peer. All messages after the handshake are sent with this method."""
        self.session.send(message)

    def end(self, why: str) -> None:
        """Disconnect the peer, for the reason `why`."""
        self._requests.clear()
        self._answers = iter(())
        self.session.close(PeerError(why))

    def on_event(self, event: SessionEvent) -> None:
        """Handle one event of the P2P session."""
        match event:
            case Ready(version=version):
                self.relay = version.relay
            case Received(message):
                self.on_message(message)
            case Misbehaved(error):
                self.on_misbehaviour(error)
            case SessionEnded():
                logger.debug("peer left: %s", event.error or "closed by us")
                self.over = event
            case ReceivedFilters() | Fenced():
                pass  # the session joins no filters and sends no fences
            case _:
                assert_never(event)

    def on_misbehaviour(self, error: PeerError) -> None:
        """Handle a malformed message from the peer, as Core does.

        Messages with too many items, and filters with too many hash functions, end the connection. The node ignores
        other malformed messages, and an inv with too many items.
        """
        is_too_large = isinstance(error, MessageError) and (
            error.field == "hash_funcs" or "must be at most " in str(error)
        )
        is_too_large = is_too_large and not (isinstance(error, MessageError) and error.command == "inv")
        if is_too_large and "truncated" not in str(error):
            self.end(str(error))

    def on_message(self, message: Message) -> None:
        """Process one message from the peer, and send the answer. Unknown kinds of messages are ignored."""
        match message:
            case wire.GetHeaders():
                self.on_getheaders(message)
            case wire.GetBlocks():
                self.on_getblocks(message)
            case wire.GetData(items):
                self.on_getdata(items)
            case wire.Headers(headers):
                self.on_headers(headers)
            case wire.Unknown("feature"):
                self.end("sent feature after verack")
            case wire.SendHeaders():
                self.prefers_headers = True
            case wire.FeeFilter(feerate):
                self.feerate = feerate
            case wire.Inv(items):
                self.on_inv(items)
            case wire.Tx(raw):
                self.on_tx(raw)
            case wire.Block(raw):
                self.on_block(raw)
            case wire.FilterLoad() | wire.FilterAdd() | wire.FilterClear() | wire.Mempool():
                if not self.session.settings.services & Service.BLOOM:
                    self.end(f"sent {wire.command_of(message)}, but this node does not offer NODE_BLOOM (BIP-111)")
                else:
                    self.on_bloom(message)
            case wire.GetCFilters() | wire.GetCFHeaders() | wire.GetCFCheckpt():
                if not self.session.settings.services & Service.COMPACT_FILTERS:
                    command = wire.command_of(message)
                    self.end(f"sent {command}, but this node does not offer NODE_COMPACT_FILTERS (BIP-157)")
                else:
                    self.on_filters_wanted(message)

    # Headers and announcements

    def on_headers(self, headers: Sequence[bytes]) -> None:
        """Check headers that the peer announces, and request their blocks (Core ProcessHeadersMessage).

        Headers that lack proof of work, or do not follow one another, end the connection. If the first header's parent
        is unknown, the peer is asked for the headers before it.
        """
        parsed = [Header.parse(raw) for raw in headers]
        if not all(map(_has_work, parsed)):
            self.end("sent a header without proof of work")
        elif any(after.previous != before.hash for before, after in pairwise(parsed)):
            self.end("sent headers that do not follow one another")
        elif parsed and parsed[0].previous not in self.regtest.chain.blocks:
            self.send(wire.GetHeaders(tuple(self.regtest.chain.locator())))
        else:
            unknown = (header.hash for header in parsed if header.hash not in self.regtest.chain.blocks)
            self._wanted = deque(block_hash for block_hash in unknown if block_hash not in self._fetched)
            self._fetch_blocks()

    def _fetch_blocks(self) -> None:
        """Request some of the announced blocks."""
        number = min(_BLOCKS_IN_TRANSIT - len(self._fetched), len(self._wanted))
        hashes = [self._wanted.popleft() for _ in range(number)]
        if hashes:
            self._fetched.update(hashes)
            self.send(wire.GetData(tuple(InvItem(InvType.WITNESS_BLOCK, block_hash) for block_hash in hashes)))

    def on_block(self, raw: bytes) -> None:
        """Add a requested block to the chain. A block that breaks a rule ends the connection."""
        block_hash = Header.parse(raw[:HEADER_SIZE]).hash
        if block_hash not in self._fetched:
            return
        self._fetched.discard(block_hash)
        try:
            self.regtest.submit_block(raw)
        except (FormatError, HeaderError, RefusedError) as error:
            self.end(f"sent block {hash_to_hex(block_hash)}: {error}")
            return
        block = self.regtest.chain.blocks[block_hash]
        if self._last_header is None or block.height > self._last_header.height:
            self._last_header = block  # it is not announced to the peer that sent it
        self._fetch_blocks()

    def on_getheaders(self, asked: wire.GetHeaders) -> None:
        """Send up to 2,000 headers of the best chain, after the last block that the peer knows, up to the stop hash."""
        chain = self.regtest.chain
        if asked.locator:
            start = chain.fork_height(asked.locator) + 1
            found = chain.active[start : start + MAX_HEADERS]
            found = found[
                : next((at for at, block in enumerate(found, 1) if block.hash == asked.stop_hash), MAX_HEADERS)
            ]
        else:  # without a locator, only the header of the stop block is sent
            block = chain.blocks.get(asked.stop_hash)
            if block is None or not chain.is_requestable(block):
                return
            found = [block]
        self._last_header = found[-1] if found else chain.tip
        self.send_headers(found)

    def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
        """Send the headers of blocks in one message."""
        self.send(wire.Headers(tuple(block.raw[:HEADER_SIZE] for block in blocks)))

    def on_getblocks(self, asked: wire.GetBlocks) -> None:
        """Send up to 500 block hashes of the best chain, after the last block that the peer knows, up to the stop hash.

        When the peer requests the last block of a full answer, it receives the hash of the tip, so that it asks for
        more hashes.
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
        """Queue the announcement of a change to the best chain."""
        self._new_blocks = [*self._new_blocks, *change.connected[-MAX_ANNOUNCED_HEADERS:]][-MAX_ANNOUNCED_HEADERS - 1 :]

    def queue_tx(self, tx: Transaction) -> None:
        """Queue the announcement of a new transaction in the mempool."""
        if self.session.ready is not None:
            self._new_txs[tx.txid] = tx

    def announce(self) -> None:
        """Announce new blocks and transactions.

        Blocks are announced with headers if the peer prefers that and knows the parent of the first block. Otherwise,
        only the last block is announced, with an inv. Transactions are announced with an inv.
        """
        blocks, self._new_blocks = self._new_blocks, []
        txs, self._new_txs = self._new_txs, {}
        items = self._announce_blocks(blocks) if blocks else []
        if self.relay:
            items += [self._tx_item(tx) for tx in txs.values() if tx.txid in self.regtest.mempool and self._wants(tx)]
        self.send_inv(items)

    def _announce_blocks(self, blocks: Sequence[TreeBlock]) -> list[InvItem]:
        """Announce blocks with headers, or return the inv items that announce them (Core SendMessages)."""
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
        """Return True if this node has sent the header of `block` to the peer."""
        last = self._last_header
        return block is None or (
            last is not None
            and last.height >= block.height
            and self.regtest.chain.ancestor(last, block.height) is block
        )

    # Requested blocks and transactions

    def on_getdata(self, items: Sequence[InvItem]) -> None:
        """Queue requested items. Requesting filtered blocks from a node without NODE_BLOOM ends the connection."""
        offers_bloom = self.session.settings.services & Service.BLOOM
        if not offers_bloom and any(item.kind == InvType.FILTERED_BLOCK for item in items):
            self.end("requested filtered blocks, but this node does not offer NODE_BLOOM (BIP-111)")
        else:
            self._requests.extend(items)

    def _answer(self) -> None:
        """Send some of the transactions or one of the blocks that the peer requested (Core ProcessGetData).

        Requested items of other kinds are skipped.
        """
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
        """Send a requested block: without witnesses, with witnesses, or filtered.

        The answer to a request for a compact block is the whole block.
        """
        match kind:
            case InvType.BLOCK:
                self.send(wire.Block(stripped_block(block.raw)))
            case InvType.FILTERED_BLOCK:
                if self.filter is not None:
                    self.send_merkleblock(block, self.filter.scan_block(block.raw))
            case _:
                self.send(wire.Block(block.raw))

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        """Send a merkle proof of the matched transactions, then the transactions themselves without witnesses."""
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
        """Queue the answer to a request for compact filters, filter headers or checkpoints."""
        self._answers = self.filters.respond(asked)

    def _answer_filters(self) -> bool:
        """Send part of the answer to the latest request for compact filters. Returns True if anything was sent."""
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
        """Request announced transactions that are unknown, and the headers of announced blocks that are unknown."""
        assert self.session.ready is not None
        blocks = [item.hash for item in items if item.kind in _BLOCK_KINDS]
        if blocks and blocks[-1] not in self.regtest.chain.blocks:
            self.send(wire.GetHeaders(tuple(self.regtest.chain.locator()), blocks[-1]))
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
        """Add a transaction from the peer to the mempool if it is valid, and announce it to the other peers."""
        try:
            txid = self.regtest.submit_tx(raw)
        except RefusedError as error:
            logger.debug("transaction refused: %s", error)
            if self.says_why:
                self.send(
                    wire.Reject(b"tx", _REJECT_INVALID, error.reason.encode("ascii"), Transaction.parse(raw).txid)
                )
        else:
            self._new_txs.pop(txid, None)

    # BIP-37

    def on_bloom(self, message: Message) -> None:
        """Process a BIP-37 message: filterload, filteradd, filterclear or mempool.

        The answer to `mempool` announces the transactions in the mempool that the filter matches.
        """
        match message:
            case wire.FilterLoad():
                self.filter = Bip37Filter.parse(bytes(message))
                self.relay = True
            case wire.FilterAdd(data):
                if self.filter is None:
                    self.end("sent filteradd before filterload")
                else:
                    self.filter.insert(data)
            case wire.FilterClear():
                self.filter = None
                self.relay = True
            case wire.Mempool():
                self._new_txs.clear()
                self.send_inv([self._tx_item(tx) for tx in self.regtest.mempool if self._wants(tx)])

    def _wants(self, tx: Transaction) -> bool:
        """Return True if a transaction should be announced to the peer.

        If the BIP-37 filter matches, the transaction's outpoints are added to it.
        """
        if 1_000 * self.regtest.mempool.fees[tx.txid] < self.feerate * tx.virtual_size:
            return False
        return self.filter is None or self.filter.matches_tx(tx.raw)

    def _tx_item(self, tx: Transaction) -> InvItem:
        assert self.session.ready is not None
        return InvItem(InvType.WTX, tx.wtxid) if self.session.ready.wtxid_relay else InvItem(InvType.TX, tx.txid)


def _has_work(header: Header) -> bool:
    """Return True if the hash of a header meets the header's target, which is not above regtest's limit."""
    return int.from_bytes(header.hash, "little") <= target(header.bits) <= target(REGTEST.pow_limit_bits)


def stripped_block(raw: bytes) -> bytes:
    """Serialize a block without witnesses, as before BIP-144."""
    spans = list(walk_block(raw))
    if not any(span.witness for span in spans):
        return raw
    return raw[:HEADER_SIZE] + compact_size(len(spans)) + b"".join(strip_witness(raw, span) for span in spans)
