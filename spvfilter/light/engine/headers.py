"""Block headers: requests to every peer, validation, and the best chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spvfilter.chain import HeaderSync, SyncPhase, Update
from spvfilter.errors import FutureHeaderError, LowWorkError, PeerError, UnconnectedHeadersError, UselessPeerError
from spvfilter.hashes import sha256d
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.network import REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HEADER_SIZE, MAX_UNCONNECTING_HEADERS
from spvfilter.wire.messages.table import GetHeaders, SendHeaders

# Number of blocks of one inv that are looked up. Core's answer to getblocks has as many (MAX_BLOCKS_RESULTS).
MAX_ANNOUNCED = 500

# Full messages of known headers that a peer may send (our choice). An honest peer does so if another peer was faster.
MAX_REPEATS = 50

# From this height on, a peer that shares only the genesis block has another chain (our choice). Below, two miners may
# race.
MIN_APART_HEIGHT = 7
_KEY = "headers"


@dataclass(slots=True)
class _View:
    """Headers that a peer has sent or announced."""

    sync: HeaderSync
    best: bytes = b""
    """Hash of the last block that the peer is known to have."""
    fence: int | None = None
    """Token of the ping after the last getheaders. None once the answer has brought new headers."""
    is_due: bool = False
    """True if the peer is asked again when the pong comes."""
    told: int = -1
    """Height up to which full messages of the peer have led."""
    repeats: int = 0
    """Full messages without a new header."""
    unconnected: int = 0
    is_future: bool = False
    """True if the last headers of the peer are ahead of our clock."""
    found: tuple[bytes, bytes, int] | None = (
        None  # `best`, the tip, and the height of `best` in the chain of that tip; None if `best` is not in it
    )
    awaits_commit: bool = False
    """True if the peer is asked for more once the received headers are in the database."""
    is_apart: bool = False
    """True if its last headers follow the genesis block, and the best chain has others there."""


class PeerHeaders:
    """Headers of all peers. `moved` is called with every change of the best chain.

    A ping follows each getheaders. If Core has nothing new, it answers with an empty message. Other nodes do not answer
    at all, and Core in its initial block download does not answer either. A pong without headers before it means the
    same as an empty message.

    A peer may send headers that were not requested. If they bring nothing new, the next getheaders waits for the pong
    of the one before. The client then sends at most one getheaders for each round trip.
    """

    def __init__(self, context: Context, moved: Callable[[Update], None]) -> None:
        self._context = context
        self._moved = moved
        self._views: dict[Peer, _View] = {}
        self._last_news = context.now.monotonic  # when a block came, or all peers were asked
        context.pool.on_gone(lambda peer: self._views.pop(peer, None))

    # Chains of peers

    def knows(self, peer: Peer) -> int:
        """Height up to which a peer is known to have the best chain; -1 if nothing is known."""
        chain, view = self._context.chain, self._views.get(peer)
        if view is None or not view.best:
            return -1
        if view.best == (tip := chain.tip_hash):
            return chain.height
        # This is called often. The result changes only with the peer's best block and the tip.
        if view.found is None or view.found[:2] != (view.best, tip):
            height = chain.height_of(view.best)
            view.found = None if height is None else (view.best, tip, height)
        if view.found is not None:
            return view.found[2]
        height = chain.common_height(view.best)
        return -1 if height is None else height

    def is_behind(self, peer: Peer) -> bool:
        """True if the known chain of a peer has less work than the best chain, or than the network's minimum."""
        chain, view = self._context.chain, self._views.get(peer)
        if view is None or not view.best or view.is_future or chain.work < chain.network.min_chain_work:
            return True  # headers that are ahead of our clock may be the best chain
        return view.best != chain.tip_hash and ((chain.work_of(view.best) or 0) < chain.work or self._is_apart(view))

    def _is_apart(self, view: _View) -> bool:
        """True if the best chain and the known chain of a peer share only the genesis block."""
        chain = self._context.chain
        return (
            chain.height >= MIN_APART_HEIGHT and chain.common_height(view.best) == 0 and view.best != chain.hash_at(0)
        )

    def is_asked(self, peer: Peer) -> bool:
        """True if a peer has yet to send headers, or is asked for more when the database or the peer has caught up."""
        view = self._views.get(peer)
        return _KEY in peer.questions or (view is not None and (view.awaits_commit or view.is_due))

    def progress(self) -> tuple[int, int]:
        """Return the height of the best chain, and the greatest height that a connected peer announces."""
        done = max((view.sync.height for view in self._views.values()), default=self._context.chain.height)
        stated = [peer.profile.start_height for peer in self._context.pool.connected() if peer.profile is not None]
        return done, max(done, self._context.chain.height, *stated, 0)

    # Asking

    def greet(self, peer: Peer) -> None:
        """A peer has connected."""
        salt = self._context.random.randbytes(16)
        self._views[peer] = _View(HeaderSync(self._context.chain, salt))
        self._context.out.send(peer.number, SendHeaders())

    def advance(self) -> None:
        """Ask peers with unknown headers: one first, the others when its headers have come or if it stalls."""
        now, pool = self._context.now, self._context.pool
        greeting = [peer for peer in pool if peer.state is PeerState.GREETING]
        if greeting:
            asked = [peer for peer in greeting if self.is_asked(peer)]
            timeouts = self._context.options.timeouts
            waited = max((now.monotonic - peer.since for peer in asked), default=0.0)
            is_answering = any(peer.silent_for(now.monotonic) < timeouts.stall_s for peer in asked)
            # The peer answers, but maybe late each time. One more peer is asked after every `reply_s`.
            alone = not pool.ready() and is_answering and len(asked) > waited / timeouts.reply_s
            for peer in greeting:
                if not self.is_asked(peer) and not alone:
                    self.ask(peer)
                    alone = not pool.ready()
        if now.monotonic >= self.next_at:
            self._last_news = now.monotonic
            for peer in pool.ready():
                self.ask(peer)

    @property
    def next_at(self) -> float:
        """When to ask all peers if no block comes until then (monotonic seconds)."""
        return self._last_news + self._context.options.timeouts.stale_tip_s

    def ask(self, peer: Peer) -> None:
        """Ask a peer for the headers after its last known header."""
        view = self._views[peer]
        if view.fence is not None and _KEY not in peer.questions:
            view.is_due = True
        elif not self.is_asked(peer):
            locator = tuple(view.sync.locator()[:101])
            tip = self._context.chain.tip_hash
            if view.best != tip and len(locator) > 1 and locator[0] == tip:
                # A peer with our tip then sends its header, as in Core. An empty answer would be ambiguous.
                locator = locator[1:]
            self._context.pool.ask(peer, _KEY, self._context.now, GetHeaders(locator))
            view.fence = self._context.out.fence(peer.number, lambda: self._fenced(peer, view))
            self._context.changed()

    def ask_those_ahead(self) -> None:
        """Ask peers again if their headers were ahead of our clock."""
        for peer, view in self._views.items():
            if view.is_future:
                self.ask(peer)

    def _ask_on(self, peer: Peer, view: _View) -> None:
        """Ask a peer for more headers, now or when the database has caught up. This limits the waiting commits."""

        def caught_up() -> None:
            view.awaits_commit = False
            if self._views.get(peer) is view:
                self.ask(peer)

        if self._context.out.is_busy and not view.awaits_commit:
            view.awaits_commit = True
            self._context.out.after_commit(caught_up)
        else:
            self.ask(peer)

    def announced(self, peer: Peer, hashes: list[bytes]) -> None:
        """A peer announces blocks by inv. Only the last blocks of a long list count: an honest peer lists the highest
        last.
        """
        view = self._views[peer]
        chain, known = self._context.chain, self.knows(peer)
        for block_hash in dict.fromkeys(hashes[-MAX_ANNOUNCED:]):
            height = chain.height_of(block_hash)
            if height is not None and height > known:
                view.best, known = block_hash, height
                self._context.changed()
            elif height is None and not self.is_asked(peer) and block_hash not in chain:
                self.ask(peer)

    # Answers

    def _fenced(self, peer: Peer, view: _View) -> None:
        is_due, view.fence, view.is_due = view.is_due, None, False
        if not self._context.pool.has(peer):
            return
        if _KEY in peer.questions:
            self.take(peer, b"")
        elif is_due:
            self.ask(peer)

    def take(self, peer: Peer, headers: bytes) -> None:
        """Take the headers of one message (80 bytes each), requested or announced. Raises PeerError."""
        view, context = self._views[peer], self._context
        try:
            update, headers = self._receive(peer, view, headers)
        except LowWorkError:
            if view.is_apart:
                raise self._apart(peer) from None
            raise
        if update is None:  # The headers do not connect, so they answer no request. Ask for the headers between.
            self.ask(peer)
            return
        view.unconnected = 0
        self._answered(peer, view, update)
        if headers:
            last = sha256d(headers[-HEADER_SIZE:])
            height = context.chain.height_of(last)
            if height is None or height >= self.knows(peer):  # otherwise the peer repeats known headers
                view.best = last
        elif not view.best and view.sync.phase is SyncPhase.DIRECT:
            self._take_nothing(peer, view)
        if update.stored or update.old_hashes:
            self._last_news = context.now.monotonic
            self._moved(update)
        if view.sync.wants_more:
            self._check_headway(peer, view, update)
            self._ask_on(peer, view)
        elif peer.state is PeerState.GREETING:
            context.pool.move(peer, PeerState.READY)
        if view.is_due and view.fence is None:  # the pong does not count any more
            view.is_due = False
            self.ask(peer)
        context.changed()

    def _latest_time(self, peer: Peer) -> int:
        """Return the time by which a peer's headers are judged (Unix time): ours.

        On regtest it may be the peer's, because tests give nodes a clock of their own (Core's -mocktime).
        """
        now = self._context.now
        theirs = peer.clock_ahead(now) + now.monotonic if self._context.chain.network is REGTEST else now.wall
        return int(max(now.wall, theirs))

    def _receive(self, peer: Peer, view: _View, headers: bytes) -> tuple[Update | None, bytes]:
        """Return the update by these headers, and the headers that are not ahead of our clock.

        The update is None if the headers do not connect.
        """
        wall, chain = self._latest_time(peer), self._context.chain
        if headers and view.sync.phase is SyncPhase.DIRECT:
            is_first = chain.height >= MIN_APART_HEIGHT and headers[4:36] == chain.hash_at(0)
            view.is_apart = is_first and chain.height_of(sha256d(headers[:HEADER_SIZE])) is None
        try:
            update = view.sync.receive(headers, wall)
            view.is_future = False if headers else view.is_future
        except FutureHeaderError as error:
            headers = headers[: error.index * HEADER_SIZE]
            update = view.sync.receive(headers, wall)
            view.sync.wants_more, view.is_future = False, True
        except UnconnectedHeadersError:
            view.unconnected += 1
            if view.unconnected > MAX_UNCONNECTING_HEADERS:
                raise
            return None, headers
        return update, headers

    def _answered(self, peer: Peer, view: _View, update: Update) -> None:
        self._context.pool.answered(peer, _KEY, self._context.now)
        if view.fence is not None and (update.stored or update.old_hashes):
            self._context.out.forget(view.fence)
            view.fence = None

    def _take_nothing(self, peer: Peer, view: _View) -> None:
        """The peer has no header after our locator. It does not have our tip, unless that is the genesis block."""
        assert peer.profile is not None
        stated, chain = peer.profile.start_height, self._context.chain
        if stated >= max(chain.height, 1) and not view.is_future:
            raise UselessPeerError(
                f"claims height {stated} but sends no headers; it may be in its initial block download"
            )
        if not chain.height:
            view.best = chain.tip_hash

    def _check_headway(self, peer: Peer, view: _View, update: Update) -> None:
        """Raise UselessPeerError for a peer that sends the same headers repeatedly."""
        if update.stored or view.sync.phase is not SyncPhase.DIRECT:
            return
        known = self.knows(peer)
        view.repeats += known <= view.told
        view.told = max(view.told, known)
        if view.repeats > MAX_REPEATS:
            raise UselessPeerError(f"sends headers up to {hash_to_hex(view.best)} again and again")

    def lack(self, peer: Peer) -> PeerError:
        """Return the error for a peer that is behind."""
        chain, view = self._context.chain, self._views.get(peer)
        if chain.work < chain.network.min_chain_work:
            return UselessPeerError(
                "has no chain of the network's minimum work; it may be in its initial block download"
            )
        if view is not None and view.best and self._is_apart(view):
            return self._apart(peer)
        return UselessPeerError(f"does not know block {chain.height} of the best chain")

    def _apart(self, peer: Peer) -> PeerError:
        """Return the error for a peer whose chain has no more work and shares only the genesis block."""
        chain, stated = self._context.chain, peer.profile.start_height if peer.profile is not None else 0
        advice = ""
        if not chain.network.min_chain_work:  # a network for tests, whose nodes may begin a new chain
            advice = ". To follow this node, start with a new database (--db)"
        return UselessPeerError(
            f"has another chain, of height {stated}: it lacks blocks 1 to {chain.height} of the chain that this client"
            f" follows, and has no more work than that{advice}"
        )
