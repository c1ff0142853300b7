"""What is asked of one peer, and its answers judged: headers, blocks, transactions. Who is asked is decided elsewhere."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spvfilter._public import deferred
from spvfilter.chain import HeaderChain, Update
from spvfilter.errors import FormatError, LieError, PeerError, UselessPeerError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.hashes import sha256d
from spvfilter.kernel import check_block
from spvfilter.light.flight import Flight, Flights, Lie
from spvfilter.light.remote_compact import CompactQuestions
from spvfilter.light.remote_headers import HeaderQuestions
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HEADER_SIZE, MAX_INVENTORY
from spvfilter.transaction import Transaction
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.wire.events import Fenced, Misbehaved, Received, Service, SessionEvent
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import InvItem, InvType, Message

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

MAX_ASKED_TXS = 5_000  # ours: announced transactions asked for and not yet there
_PEERS = 8  # that may be asked at once
MAX_OFFERED = 1_000  # ours: transactions that a peer may fetch, the latest offered
_BLOCK_KINDS = (InvType.BLOCK, InvType.WITNESS_BLOCK, InvType.FILTERED_BLOCK)
_TX_KINDS = (InvType.TX, InvType.WITNESS_TX, InvType.WTX)
_ANSWERS = (MerkleBlock, wire.Tx, wire.Headers, wire.Block, wire.CFilter, wire.CFHeaders, wire.CFCheckpt)


class Listener(Protocol):
    """Who wants to know what a peer tells unasked."""

    def headers_came(self, remote: Remote, update: Update | None) -> None:
        """The chain took headers of the peer's; or, with None, it was told of blocks the chain had."""
        ...

    def tx_came(self, remote: Remote, raw: bytes) -> None:
        """A transaction outside blocks, which the peer announced."""
        ...

    def txs_announced(self, remote: Remote, items: Sequence[InvItem]) -> None:
        """The peer has these transactions."""
        ...

    def has_tx(self, digest: bytes) -> bool:
        """Whether a transaction, by its txid or wtxid, came before; of those a peer's filter lets through all are wanted."""
        ...

    @property
    def room_for_txs(self) -> int:
        """How many more transactions may be asked for without a filter."""
        ...


class Remote:
    """A connected peer. `run` reads until the end; everything else may be called meanwhile."""

    def __init__(
        self, connection: Connection, chain: HeaderChain, listener: Listener, *, salt: bytes, limits: Limits, clock: Clock
    ) -> None:
        self.connection = connection
        self.address = connection.address
        self.last_heard = clock.monotonic()  # something that was asked for
        self.is_greeted = False  # its headers are known; for its owner
        self.epoch = -1  # of the watch list that its filter was made of; for its owner
        self.covered = -1  # height up to which its filter has what blocks taught; for its owner
        self.takes_all = False  # whether without a filter every transaction announced is asked for; for its owner
        self._chain = chain
        self._listener = listener
        self._limits = limits
        self._clock = clock
        self.headers = HeaderQuestions(connection, chain, partial(listener.headers_came, self), salt=salt, limits=limits, clock=clock)
        self._flights = Flights()
        self.compact = CompactQuestions(connection.send, limits)
        self._whole: dict[bytes, asyncio.Future[bytes]] = {}
        self._asked_txs: dict[bytes, None] = {}  # txid or wtxid
        self._announced: deque[InvItem] = deque(maxlen=MAX_INVENTORY)  # to be asked for, without a filter
        self._misses_txs = False  # since the filter was loaded, something announced was not asked for, or not sent
        self._offered: dict[bytes, tuple[bytes, asyncio.Future[None]]] = {}  # txid or wtxid → raw, asked for
        self._ended: Exception | None = None  # what the connection has ended with
        self._fences: dict[int, asyncio.Future[None]] = {}

    def __repr__(self) -> str:
        return f"<Remote {self.address}>"

    @property
    def filter(self) -> Bip37Filter | None:
        """Our copy of what the peer tests with; changed by load_filter, add_elements and what the peer matches."""
        return self._flights.filter

    @property
    def has_bloom(self) -> bool:
        return bool(self.connection.services & Service.BLOOM)

    @property
    def takes_txs(self) -> bool:
        """Whether it wants transactions; Core with -blocksonly leaves who announces some."""
        return self.connection.ready.version.relay

    @property
    def is_busy(self) -> bool:
        """Whether an answer is due."""
        return bool(self._flights or self._whole or self.headers.is_asked or self.compact)

    @property
    def knows(self) -> int:
        """Height up to which it is known to have the best chain, -1 where nothing is known."""
        return self.headers.knows

    @property
    def is_in_doubt(self) -> bool:
        """Whether its filter has more than our copy of it, so that a new one should be loaded."""
        return self._flights.was_inexact

    # Reading

    async def run(self) -> None:
        """Read and answer until the connection ends; raises what ended it. Nothing that was asked stays open."""
        try:
            await self.connection.send(wire.SendHeaders())
            while True:
                event = await self.connection.receive()
                if isinstance(event, Fenced) or (isinstance(event, Received) and isinstance(event.message, _ANSWERS)):
                    self.last_heard = self._clock.monotonic()
                try:
                    await self._take(event)
                except FormatError as error:
                    raise LieError(str(error), cause=Lie.MALFORMED) from error
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self.connection.close()
        self._ended = shown = error if isinstance(error, (PeerError, OSError)) else ConnectionAbortedError(f"{self.address}: {error!r}")
        self.headers.end(shown)
        self.compact.end(shown)
        waiting: list[asyncio.Future[None] | asyncio.Future[bytes] | asyncio.Future[list[ScannedBlock]]] = [
            *self._fences.values(),
            *self._whole.values(),
            *self._flights.waiting,
            *(asked for _, asked in self._offered.values()),
        ]
        for future in waiting:
            if not future.done():
                future.set_exception(shown)
                future.exception()  # nobody need look at it

    def _check_open(self) -> None:
        if self._ended is not None:
            raise self._ended

    async def _take(self, event: SessionEvent) -> None:
        match event:
            case Received(message):
                await self._receive(message)
            case Fenced(nonce):
                self._fenced(nonce)
                await self.headers.fenced(nonce)
            case Misbehaved(error):
                raise LieError(str(error), cause=Lie.MALFORMED) from error
            case _:
                pass

    async def _receive(self, message: Message) -> None:
        match message:
            case MerkleBlock():
                self._flights.merkleblock(message)
            case wire.Tx(raw):
                self._tx(raw)
            case wire.Headers(headers):
                await self.headers.take(b"".join(headers))
            case wire.Inv(items):
                await self._inv(items)
            case wire.Block(raw):
                self._block(raw)
            case wire.CFilter() | wire.CFHeaders() | wire.CFCheckpt():
                self.compact.take(message)
            case wire.NotFound(items):
                self._not_found(items)
            case wire.GetData(items):
                await self._serve(items)
            case _:
                pass

    # Announcements

    async def _inv(self, items: Sequence[InvItem]) -> None:
        blocks = [item.hash for item in items if item.kind in _BLOCK_KINDS]
        for digest in blocks:
            if (self._chain.height_of(digest) or -1) > self.knows:
                self.headers.best = digest
                self._listener.headers_came(self, None)
        if blocks and not self.headers.is_asked and any(digest not in self._chain for digest in blocks):
            await self.headers.ask()
        txs = [item for item in items if item.kind in _TX_KINDS]
        if not txs:
            return
        self._listener.txs_announced(self, txs)
        for item in txs:
            self._was_taken(item.hash)
        if self.filter is None:
            if self.takes_all:
                self._announced.extend(txs)
                await self.ask_announced()
            return
        unasked = [item for item in txs if item.hash not in self._asked_txs]
        wanted = unasked[: MAX_ASKED_TXS - len(self._asked_txs)]
        self._misses_txs = self._misses_txs or len(wanted) < len(unasked)
        if wanted:
            self._flights.is_exact = False
            await self._ask_txs(wanted)

    async def ask_announced(self) -> None:
        """Ask for what was announced without a filter, as far as there is room; who does not answer takes it from nobody else."""
        room = min(MAX_ASKED_TXS // _PEERS - len(self._asked_txs), self._listener.room_for_txs)
        wanted: dict[bytes, InvItem] = {}
        while self._announced and len(wanted) < room:
            item = self._announced.popleft()
            if item.hash not in self._asked_txs and not self._listener.has_tx(item.hash):
                wanted[item.hash] = item
        if wanted:
            await self._ask_txs(wanted.values())

    async def _ask_txs(self, items: Collection[InvItem]) -> None:
        self._asked_txs.update(dict.fromkeys(item.hash for item in items))
        await self.connection.send(wire.GetData(tuple(InvItem(_fetched_as(item.kind), item.hash) for item in items)))

    # Filter

    async def load_filter(self, filter: Bip37Filter) -> None:
        """Give the peer a filter, and wait until it tests with it. What is under way comes first."""
        if self._flights:
            await self.fence()
        self._flights.filter = filter.copy()
        self._misses_txs, self._flights.is_exact, self._flights.was_inexact = True, False, False
        await self.connection.send(wire.FilterLoad.parse(bytes(filter)))
        await self.fence()
        self._misses_txs = bool(self._asked_txs)  # announced for the sake of the filter before
        self._flights.is_exact = not self._misses_txs

    async def add_elements(self, elements: Sequence[bytes]) -> None:
        """Add elements that the peer's filter has not from what it served itself."""
        if self.filter is None:
            return
        missing = [element for element in elements if element not in self.filter]
        for element in missing:
            self.filter.insert(element)
        if missing:
            await self.connection.send(*(wire.FilterAdd(element) for element in missing))

    async def ask_mempool(self) -> None:
        """Ask for what waits for a block and matches the filter; its announcements come by themselves."""
        await self.connection.send(wire.Mempool())

    async def fence(self) -> None:
        """Wait until the peer has answered all that was sent. Raises PeerError, TimeoutError."""
        self._check_open()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(self._limits.reply_s):
            self._fences[self.connection.fence()] = done
            await self.connection.drain()
            await done

    def _fenced(self, nonce: int) -> None:
        if (fence := self._fences.pop(nonce, None)) is not None and not fence.done():
            fence.set_result(None)
        self._flights.fenced(nonce)

    # Filtered blocks

    async def request(self, wanted: Sequence[tuple[int, bytes]]) -> Flight:
        """Ask for filtered blocks, (height, hash) ascending. Raises PeerError where the peer does not take the question."""
        self._check_open()
        flight = self._flights.begin(wanted)
        await self.connection.send(wire.GetData(tuple(InvItem(InvType.FILTERED_BLOCK, digest) for _, digest in wanted)))
        flight.nonce = self.connection.fence()
        await self.connection.drain()
        return flight

    def _tx(self, raw: bytes) -> None:
        tx = Transaction.parse(raw)
        if self._flights.tx(tx.txid, raw):
            return
        ids = (tx.txid, tx.wtxid)
        was_taken = [self._was_taken(each) for each in ids]
        if not any(each in self._asked_txs for each in ids):
            if any(was_taken):
                return
            cause = Lie.UNPROVED_TX if self._flights.expects_txs else Lie.UNASKED_TX
            raise LieError(f"transaction {hash_to_hex(tx.txid)}", cause=cause)
        for each in ids:
            self._asked_txs.pop(each, None)
        self._flights.is_exact = not self._misses_txs  # what is still to come was announced after this one
        if self.filter is not None:
            self._flights.judge(raw)
        self._flights.is_exact = not self._asked_txs and not self._misses_txs
        self._listener.tx_came(self, raw)

    # Whole blocks

    async def fetch_block(self, digest: bytes) -> bytes:
        """A whole block with its witnesses, checked against its header. Raises PeerError, TimeoutError."""
        self._check_open()
        asked = self._whole.get(digest)
        if asked is None:
            asked = self._whole[digest] = asyncio.get_running_loop().create_future()
            asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # its error may be nobody's business any more
            await self.connection.send(wire.GetData((InvItem(InvType.WITNESS_BLOCK, digest),)))
        async with asyncio.timeout(self._limits.reply_s):
            raw = await asyncio.shield(asked)
        self._whole.pop(digest, None)
        try:
            await asyncio.to_thread(check_block, raw)
        except FormatError as error:
            raise LieError(f"block {hash_to_hex(digest)}: {error}", cause=Lie.FALSE_BLOCK) from error
        return raw

    def _block(self, raw: bytes) -> None:
        digest = sha256d(raw[:HEADER_SIZE])
        future = self._whole.get(digest)
        if future is None:
            raise LieError(f"block {hash_to_hex(digest)}", cause=Lie.UNASKED_BLOCK)
        if not future.done():
            future.set_result(raw)

    def _not_found(self, items: Sequence[InvItem]) -> None:
        for item in items:
            if item.hash in self._asked_txs:
                del self._asked_txs[item.hash]
                self._misses_txs = True
            if item.kind in _BLOCK_KINDS and (future := self._whole.pop(item.hash, None)) is not None and not future.done():
                future.set_exception(UselessPeerError(f"has not block {hash_to_hex(item.hash)}"))

    # Transactions of ours

    async def offer(self, raw: bytes, *, ask: bool = False) -> asyncio.Future[None]:
        """Announce a transaction; the future is done when the peer has fetched it or has shown it. With `ask` it is asked to show it."""
        self._check_open()
        tx = Transaction.parse(raw)
        item = InvItem(InvType.WTX, tx.wtxid) if self.connection.ready.wtxid_relay else InvItem(InvType.TX, tx.txid)
        before = self._offered.get(item.hash)
        fetched: asyncio.Future[None] = before[1] if before and not before[1].done() else asyncio.get_running_loop().create_future()
        self._offered[item.hash] = (raw, fetched)
        if len(self._offered) > MAX_OFFERED:
            _, oldest = self._offered.pop(next(iter(self._offered)))
            if not oldest.done():
                oldest.set_exception(UselessPeerError("did not fetch a transaction"))
                oldest.exception()  # nobody need look at it
        await self.connection.send(wire.Inv((item,)))
        if ask:
            await self.connection.send(wire.GetData((InvItem(_fetched_as(item.kind), item.hash),)))
        return fetched

    def _was_taken(self, digest: bytes) -> bool:
        """Whether it is one we offered; the peer has it."""
        offered = self._offered.get(digest)
        if offered is not None and not offered[1].done():
            offered[1].set_result(None)
        return offered is not None

    def was_offered(self, digest: bytes) -> bool:
        """Whether we announced a transaction by this txid or wtxid."""
        return digest in self._offered

    async def _serve(self, items: Sequence[InvItem]) -> None:
        missing = []
        for item in items:
            offered = self._offered.get(item.hash)
            if offered is None:
                missing.append(item)
                continue
            await self.connection.send(wire.Tx(offered[0]))
            self._was_taken(item.hash)
        if missing:
            await self.connection.send(wire.NotFound(tuple(missing)))


def _fetched_as(kind: int) -> InvType:
    """How an announced transaction is asked for: by wtxid, or by txid with its witness."""
    return InvType.WTX if kind == InvType.WTX else InvType.WITNESS_TX
