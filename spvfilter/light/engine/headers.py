"""Block headers: requests to every peer, validation, and the best chain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from spvfilter.chain import HeaderSync, SyncPhase, Update
from spvfilter.errors import FutureHeaderError, LowWorkError, PeerError, UnconnectedHeadersError, UselessPeerError
from spvfilter.hashes import sha256d
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.light.engine.tasks import Change, First, Task
from spvfilter.network import REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HEADER_SIZE, MAX_UNCONNECTING_HEADERS
from spvfilter.wire.messages.table import GetHeaders, SendHeaders

# Number of blocks that are looked up for one inv: as many as Core's answer to getblocks contains (MAX_BLOCKS_RESULTS).
MAX_ANNOUNCED = 500

# Full messages of known headers that a peer may send (our choice). Honest peers send them if another peer was faster.
MAX_REPEATS = 50

# If our chain has at least this height, a peer that shares only the genesis block follows a different chain (our
# choice). In a shorter chain, two miners may be racing.
MIN_APART_HEIGHT = 7
_KEY = "headers"


@dataclass(slots=True)
class _View:
    """Headers that a peer has sent or announced."""

    sync: HeaderSync
    best: bytes = b""
    """Hash of the last block that the peer is known to have."""
    is_due: bool = False
    """True if the peer is to be asked for headers, after its pong or once the received ones are in the database."""
    awaits_commit: bool = False
    """True if the next request waits until the received headers are in the database, which limits pending commits."""
    wanted: Change = field(default_factory=lambda: Change("a reason to ask"))
    news: Change = field(default_factory=lambda: Change("new headers"))
    task: Task[None] | None = None
    """The task that asks the peer for headers."""
    told: int = -1
    """Height that full messages from the peer have reached."""
    repeats: int = 0
    """Number of full messages without a new header."""
    unconnected: int = 0
    is_future: bool = False
    """True if the last headers of the peer are ahead of our clock."""
    found: tuple[bytes, bytes, int] | None = (
        None  # `best`, the tip, and the height of `best` in the chain of that tip; None if `best` is not in it
    )
    is_apart: bool = False
    """True if its last headers follow the genesis block, where the best chain contains different blocks."""


class PeerHeaders:
    """Headers of all peers. `moved` is called with every change of the best chain.

    A ping follows each getheaders. If Core has nothing new, it answers with an empty message. Other nodes do not answer
    at all, and Core in its initial block download does not answer either. A pong without headers before it means the
    same as an empty message.

    A peer may send headers that were not requested. If they bring nothing new, the next getheaders waits for the
    previous one's pong. The client then sends at most one getheaders for each round trip.
    """

    def __init__(self, context: Context, moved: Callable[[Update], None]) -> None:
        self._context = context
        self._moved = moved
        self._views: dict[Peer, _View] = {}
        self._last_news = context.now.monotonic  # when a block arrived, or all peers were asked
        context.pool.on_gone(self._gone)

    def _gone(self, peer: Peer) -> None:
        view = self._views.pop(peer, None)
        if view is not None and view.task is not None:
            view.task.cancel()

    # Chains of peers

    def knows(self, peer: Peer) -> int:
        """Return the height up to which a peer is known to have the best chain; -1 if nothing is known."""
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
        """True if a peer's known chain has less work than the best chain, or less than the network's minimum."""
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
        """True if a peer has not answered yet, or will be asked for more once it or the database has caught up."""
        view = self._views.get(peer)
        return _KEY in peer.questions or (view is not None and view.is_due)

    def progress(self) -> tuple[int, int]:
        """Return the height of the best chain, and the greatest height that a connected peer announces."""
        done = max((view.sync.height for view in self._views.values()), default=self._context.chain.height)
        stated = [peer.profile.start_height for peer in self._context.pool.connected() if peer.profile is not None]
        return done, max(done, self._context.chain.height, *stated, 0)

    # Asking

    def greet(self, peer: Peer) -> None:
        """Start following the headers of a peer that has just connected."""
        salt = self._context.random.randbytes(16)
        self._views[peer] = _View(HeaderSync(self._context.chain, salt))
        self._context.out.send(peer.number, SendHeaders())

    async def _follow(self, peer: Peer, view: _View) -> None:
        """Ask a peer for headers whenever there is a reason, one request at a time, until it disconnects."""
        out = self._context.out
        while True:
            if _KEY not in peer.questions:  # else the task was cancelled after a request, and started again
                if not view.is_due:
                    await view.wanted.next()
                if view.awaits_commit:
                    await out.committed_all()
                view.is_due = view.awaits_commit = False
                self._send(peer, view)
            await First(out.fenced(peer.number), view.news.next())
            if _KEY in peer.questions:  # the pong arrived, and no headers before it
                self.take(peer, b"")

    def _send(self, peer: Peer, view: _View) -> None:
        """Request the headers after the last known header of a peer."""
        locator = tuple(view.sync.locator()[:101])
        tip = self._context.chain.tip_hash
        if view.best != tip and len(locator) > 1 and locator[0] == tip:
            # A peer with our tip then sends its header, as in Core. An empty answer would be ambiguous.
            locator = locator[1:]
        self._context.pool.ask(peer, _KEY, self._context.now, GetHeaders(locator))
        self._context.changed()

    def advance(self) -> None:
        """Ask peers whose headers are not known yet: one at first, then the others.

        The others are asked once the first has sent its headers, or if it stalls. If no block has arrived for a while,
        all peers are asked.
        """
        now, pool = self._context.now, self._context.pool
        for peer, view in list(self._views.items()):
            if view.task is None or view.task.is_done:
                story, what = partial(self._follow, peer, view), f"ask {peer.address} for headers"
                view.task = self._context.tasks.begin(story, what, partial(self._context.failed, peer))
                self._context.tasks.run()
        greeting = [peer for peer in pool if peer.state is PeerState.GREETING]
        if greeting:
            asked = [peer for peer in greeting if self.is_asked(peer)]
            timeouts = self._context.options.timeouts
            waited = max((now.monotonic - peer.since for peer in asked), default=0.0)
            is_answering = any(peer.silent_for(now.monotonic) < timeouts.stall_s for peer in asked)
            # The peer is answering, but each answer may be late. One more peer is asked after every `reply_s`.
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
        """When to ask all peers if no block arrives before then (monotonic seconds)."""
        return self._last_news + self._context.options.timeouts.stale_tip_s

    def ask(self, peer: Peer) -> None:
        """Ask a peer for the headers after its last known header, unless such a request is already outstanding."""
        if _KEY in peer.questions:
            return
        view = self._views[peer]
        view.is_due = True
        view.wanted.announce()
        self._context.tasks.run()

    def ask_those_ahead(self) -> None:
        """Ask peers again if their headers were ahead of our clock."""
        for peer, view in self._views.items():
            if view.is_future:
                self.ask(peer)

    def announced(self, peer: Peer, hashes: list[bytes]) -> None:
        """Handle the blocks that a peer has announced in an inv message.

        Only the last blocks of a long list count, because an honest peer lists the highest last.
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

    def take(self, peer: Peer, headers: bytes) -> None:
        """Process the headers in one message (80 bytes each), requested or announced. Raises PeerError."""
        view, context = self._views[peer], self._context
        try:
            update, headers = self._receive(peer, view, headers)
        except LowWorkError:
            if view.is_apart:
                raise self._apart(peer) from None
            raise
        if update is None:  # The headers do not connect, so they answer no request. Ask for those in between.
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
            view.awaits_commit = context.out.is_busy
            self.ask(peer)
        elif peer.state is PeerState.GREETING:
            context.pool.move(peer, PeerState.READY)
        context.changed()

    def _latest_time(self, peer: Peer) -> int:
        """Return the current time against which a peer's headers are checked (Unix time).

        This is our time. On regtest, it may be the peer's, because tests set nodes' clocks (Core's -mocktime).
        """
        now = self._context.now
        theirs = peer.clock_ahead(now) + now.monotonic if self._context.chain.network is REGTEST else now.wall
        return int(max(now.wall, theirs))

    def _receive(self, peer: Peer, view: _View, headers: bytes) -> tuple[Update | None, bytes]:
        """Return the update from these headers, and the headers that are not ahead of our clock.

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
        if update.stored or update.old_hashes:
            view.news.announce()

    def _take_nothing(self, peer: Peer, view: _View) -> None:
        """Handle an empty answer, which means that the peer has no header after our locator.

        The peer does not have our tip, unless that is the genesis block.
        """
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
            raise UselessPeerError(f"keeps sending headers up to {hash_to_hex(view.best)}")

    def lack(self, peer: Peer) -> PeerError:
        """Return the error for a peer that is behind."""
        chain, view = self._context.chain, self._views.get(peer)
        if chain.work < chain.network.min_chain_work:
            return UselessPeerError(
                "does not have a chain with the network's minimum work; it may be in its initial block download"
            )
        if view is not None and view.best and self._is_apart(view):
            return self._apart(peer)
        return UselessPeerError(f"does not know block {chain.height} of the best chain")

    def _apart(self, peer: Peer) -> PeerError:
        """Return the error for a peer whose chain shares only the genesis block with ours, and has no more work."""
        chain, stated = self._context.chain, peer.profile.start_height if peer.profile is not None else 0
        advice = ""
        if not chain.network.min_chain_work:  # a test network, whose nodes may start a new chain
            advice = ". To follow this node, start with a new database (--db)"
        return UselessPeerError(
            f"has a different chain, of height {stated}: it lacks blocks 1 to {chain.height} of the chain that this"
            f" client follows, and does not have more work{advice}"
        )
