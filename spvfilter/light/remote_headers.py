"""What one peer is asked about headers, and its answers put to the chain. Who is asked is decided elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.chain import HeaderChain, HeaderSync, SyncPhase, Update
from spvfilter.errors import FutureHeaderError, UnconnectedHeadersError, UselessPeerError
from spvfilter.hashes import sha256d
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HEADER_SIZE, MAX_UNCONNECTING_HEADERS
from spvfilter.wire.messages.table import GetHeaders

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = deferred("asyncio")

MAX_REPEATS = 50  # ours: full messages of headers that are known already and lead no further, as where another peer was faster


class HeaderQuestions:
    """Headers of one peer; `came` is called with what the chain took of them.

    Behind each getheaders goes a ping: Core answers with an empty message where it has nothing new, others do not answer at all, and
    neither does Core while it is far behind itself. A pong without headers before it says the same.
    """

    def __init__(
        self, connection: Connection, chain: HeaderChain, came: Callable[[Update], None], *, salt: bytes, limits: Limits, clock: Clock
    ) -> None:
        self.best = b""  # hash of the last block the peer is known to have
        self.is_asked = False
        self._connection = connection
        self._chain = chain
        self._came = came
        self._limits = limits
        self._clock = clock
        self._sync = HeaderSync(chain, salt)
        self._fence: int | None = None  # nonce of the ping behind the last question
        self._waiting: list[asyncio.Future[None]] = []
        self._told = -1  # height up to which its full messages have led
        self._repeats = 0  # full messages of headers that led nowhere
        self._unconnected = 0
        self._ended: Exception | None = None  # what the connection has ended with

    @property
    def height(self) -> int:
        """How far its headers were read in the present pass."""
        return self._sync.height

    @property
    def knows(self) -> int:
        """Height up to which it is known to have the best chain, -1 where nothing is known."""
        height = self._chain.common_height(self.best) if self.best else None
        return -1 if height is None else height

    @property
    def is_behind(self) -> bool:
        """Whether the chain up to that block has less work than the best one, or the best one less than the network's minimum."""
        chain = self._chain
        return not self.best or chain.work < chain.network.min_chain_work or (chain.work_of(self.best) or 0) < chain.work

    @property
    def lack(self) -> UselessPeerError:
        """What a peer that is behind does not know."""
        if self._chain.work < self._chain.network.min_chain_work:
            return UselessPeerError("has no chain of the network's minimum work; it may be in its initial block download")
        return UselessPeerError(f"does not know block {self._chain.height} of the best chain")

    async def sync(self) -> None:
        """Take what headers the peer has beyond ours. Raises PeerError, TimeoutError."""
        if self._ended is not None:
            raise self._ended
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        expected = min(max(0, self._connection.ready.version.start_height - self._chain.height), 10_000_000)
        async with asyncio.timeout(self._limits.headers_s + expected / 1_000):
            if not self.is_asked:
                await self.ask()
            await done

    async def ask(self) -> None:
        self.is_asked = True
        await self._connection.send(GetHeaders(tuple(self._sync.locator()[:101])))
        self._fence = self._connection.fence()
        await self._connection.drain()

    async def fenced(self, nonce: int) -> None:
        """A pong came."""
        if nonce == self._fence and self.is_asked:
            await self.take(b"")

    async def take(self, headers: bytes) -> None:
        """Packed headers that the peer tells. Raises PeerError."""
        try:
            update = self._sync.receive(headers, int(self._clock.wall()))
        except FutureHeaderError as error:
            headers = headers[: error.index * HEADER_SIZE]
            update = self._sync.receive(headers, int(self._clock.wall()))
            self._sync.wants_more = False
        except UnconnectedHeadersError:
            self._unconnected += 1
            if self._unconnected > MAX_UNCONNECTING_HEADERS:
                raise
            await self.ask()
            return
        self._unconnected = 0
        self.is_asked = False
        if headers:
            last = sha256d(headers[-HEADER_SIZE:])
            height = self._chain.height_of(last)
            if height is None or height >= self.knows:  # else it tells again what it has told before
                self.best = last
        elif not self.best:  # it stands on what we told it: where, it has said itself
            self.best = self._chain.hash_at(min(max(0, self._connection.ready.version.start_height), self._chain.height))
        if update.stored or update.old_hashes:
            self._came(update)
        if self._sync.wants_more:
            self._check_headway(update)
            await self.ask()
            return
        done, self._waiting = self._waiting, []
        for future in done:
            if not future.done():
                future.set_result(None)

    def _check_headway(self, update: Update) -> None:
        """Raises UselessPeerError for a peer that tells the same headers over and over."""
        if update.stored or self._sync.phase is not SyncPhase.DIRECT:
            return
        self._repeats += self.knows <= self._told
        self._told = max(self._told, self.knows)
        if self._repeats > MAX_REPEATS:
            raise UselessPeerError(f"tells headers up to {hash_to_hex(self.best)} again and again")

    def end(self, error: Exception) -> None:
        """The connection has ended: whoever waits is told."""
        self._ended = error
        for future in self._waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # nobody need look at it
