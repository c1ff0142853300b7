"""What the client reports about itself: progress, whom it follows, and Synced, when that is true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from spvfilter.errors import UselessPeerError
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.headers import Headers
from spvfilter.light.engine.options import Patience
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.light.events import PeerChanged, PeerWarning, Phase, Progress, Synced
from spvfilter.store.searched import Ranges, join

MAX_CLOCK_OFFSET_S = 70 * 60  # between our clock and the median of the peers', Core timeoffsets.h
MAX_TIP_AGE_S = 24 * 3_600  # Core DEFAULT_MAX_TIP_AGE


@dataclass(frozen=True, slots=True)
class Told:
    """What Synced has told for a tip: the heights in doubt, all together; when it was last told, and how often."""

    doubt: Ranges = ()
    at: float = 0.0
    times: int = 0

    def plus(self, doubt: Ranges, now: float) -> Told:
        """It is told again."""
        return Told(join((*self.doubt, *doubt)), now, self.times + 1)

    def next_at(self, doubt: Ranges, patience: Patience) -> float:
        """When it may be told again; never, if nothing is in doubt that was not told. The pauses double."""
        if join((*self.doubt, *doubt)) == self.doubt:
            return inf
        return self.at + min(patience.stall_s * 2.0 ** min(self.times - 1, 16), patience.max_retry_s)


class Status:
    """Emits Progress, PeerChanged and Synced, and warnings that belong to them."""

    def __init__(self, context: Context, headers: Headers, coverage: Coverage) -> None:
        self._context = context
        self._headers = headers
        self._coverage = coverage
        self.told: Synced | None = None  # the last one, while it holds
        self._doubts = Told()
        self._followed: Peer | None = None
        self._progress: Progress | None = None
        self._first = context.books.cursor + 1  # height at which the present search began
        self._filter_headers = context.rows.height  # up to which they were last told of
        self._warned: set[tuple[str, str]] = set()  # address and subject
        self._behind_since: float | None = None
        self._tip = b""
        self._tip_since = 0.0  # when the best chain got its tip, the run began, or our clock was set right
        self._is_clock_wrong = False  # by the median of the peers' clocks
        # connected peers; the middle of their clocks less our monotonic one
        self._clocks: tuple[tuple[Peer, ...], list[float]] = ((), [])

    @property
    def synced(self) -> bytes | None:
        """The tip that Synced was last emitted for, while it holds."""
        return None if self.told is None else self.told.hash

    def unsynced(self) -> None:
        """The next time that everything is searched, Synced is emitted, even for the same tip."""
        self.told = None

    def look_back(self) -> None:
        """Synced holds no more for this tip where the search has gone back below it, as when those on whose word it
        rests have lied.
        """
        if self.synced == self._context.chain.tip_hash and self._context.books.cursor < self._context.chain.height:
            self.unsynced()

    # Progress

    def report(self, phase: Phase, done: int, total: int) -> None:
        """Emit Progress where it has changed."""
        progress = Progress(phase, done, total)
        if progress != self._progress:
            self._progress = progress
            self._context.out.emit(progress)

    def report_headers(self) -> None:
        """Headers are being fetched."""
        done, total = self._headers.progress()
        self.report(Phase.HEADERS, done, total)

    def report_headers_done(self) -> None:
        """All headers of a peer are there."""
        if self._progress is not None and self._progress.phase is Phase.HEADERS:
            height = max(self._context.chain.height, self._progress.done)
            self.report(Phase.HEADERS, height, height)
            self._progress = None

    def report_filter_headers(self) -> None:
        """Filter headers are being fetched, or were taken back."""
        height = self._context.rows.height
        if height != self._filter_headers:
            self._filter_headers = height
            self.report(Phase.FILTER_HEADERS, height, self._context.chain.height)

    def report_search(self, phase: Phase) -> None:
        """Blocks are being searched."""
        cursor, total = self._context.books.cursor, self._context.chain.height
        self._first = min(self._first, cursor + 1)
        if cursor + 1 > self._first or cursor < total:
            self.report(phase, cursor - self._first + 1, max(total, cursor) - self._first + 1)
        if cursor >= total:
            self._first = cursor + 1

    def follow(self, peer: Peer | None) -> None:
        """Blocks come from this peer now."""
        if peer is self._followed:
            return
        self._followed = peer
        if peer is None or peer.profile is None:
            self._context.out.emit(PeerChanged(None))
        else:
            self._context.out.emit(PeerChanged(peer.address, peer.profile.user_agent))

    @property
    def followed(self) -> Peer | None:
        """The peer that was last told of, while it is there."""
        return self._followed

    # Synced

    def may_say_synced(self) -> bool:
        """Whether nothing speaks against Synced: every block is searched, everybody was heard, the clock and the chain
        are right.
        """
        context, chain = self._context, self._context.chain
        if context.books.cursor < chain.height or context.is_held:
            return False
        if self.awaits_others():
            return False
        # it may just have been set right, and peers are asked again
        if not self.clock_is_right() or self.awaits_others():
            return False
        return self.somebody_has_tip()  # a wrong clock may be why nobody has it

    def awaits_others(self) -> bool:
        """Whether a peer has not had its time to tell of its headers.

        That time is as long as a stall, after each new tip.
        """
        now, chain = self._context.now.monotonic, self._context.chain
        if chain.tip_hash != self._tip:
            self._tip, self._tip_since = chain.tip_hash, now
        if now - self._tip_since >= self._context.options.patience.stall_s:
            return False
        return any(
            peer.state in (PeerState.CONNECTING, PeerState.GREETING)
            or (peer.state is PeerState.READY and self._headers.is_asked(peer))
            for peer in self._context.pool
        )

    def somebody_has_tip(self) -> bool:
        """Whether a peer that is there knows the best chain's tip; those that do not are named after a while."""
        context, now = self._context, self._context.now.monotonic
        ready = context.pool.ready()
        if any(not self._headers.is_behind(peer) for peer in ready):
            self._behind_since = None
            return True
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since >= context.options.patience.stall_s:
            for peer in ready:
                self._warn(peer, str(self._headers.lack(peer)))
        return False

    def clock_is_right(self) -> bool:
        """Whether our clock agrees with the median of the peers'; a warning where it does not.

        Of an even number it is the one of the middle two that is closer to ours: one liar and an honest peer leave us
        our own clock.
        """
        now, peers = self._context.now, self._context.pool.connected()
        if self._clocks[0] is not peers:
            ahead: dict[str, float] = {}
            for peer in peers:
                ahead.setdefault(peer.group, peer.clock_ahead(now))
            ordered = sorted(ahead.values())
            self._clocks = peers, ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
        median = min((each + now.monotonic - now.wall for each in self._clocks[1]), key=abs, default=0.0)
        if abs(median) <= MAX_CLOCK_OFFSET_S:
            if self._is_clock_wrong:  # what was from the future by the wrong clock may be the best chain
                self._is_clock_wrong = False
                self._headers.ask_those_ahead()
                self._tip_since = now.monotonic  # they have the same time as after a new tip
            return True
        self._is_clock_wrong = True
        which, groups = "behind" if median > 0 else "ahead of", len({peer.group for peer in peers})
        self._warn(
            peers[0],
            f"the clock of this machine is {abs(median) / 60:.0f} minutes {which} the median of {groups} peers' clocks:"
            " set it right",
        )
        return False

    def _warn(self, peer: Peer, text: str) -> None:
        if (peer.address, text) not in self._warned:
            if len(self._warned) >= 1_000:
                self._warned.clear()
            self._warned.add((peer.address, text))
            self._context.out.emit(PeerWarning(peer.address, UselessPeerError(text), False))

    @property
    def is_synced_due(self) -> bool:
        """Whether Synced was not emitted for the tip, or more is in doubt than it told, and the pause before it is told
        again is over.
        """
        return self.synced != self._context.chain.tip_hash or self._again_at() <= self._context.now.monotonic

    @property
    def next_at(self) -> float:
        """When a pause ends after which Synced is due again, by the monotonic clock."""
        at = self._again_at() if self.synced == self._context.chain.tip_hash else inf
        return at if at > self._context.now.monotonic else inf

    def _again_at(self) -> float:
        """When Synced may be emitted again for the tip that it was emitted for; never without a reason."""
        if not self._coverage.has_doubt:
            return inf
        return self._doubts.next_at(self._coverage.in_doubt, self._context.options.patience)

    def say_synced(self, peers: Sequence[Peer], *, proven: bool) -> None:
        """Emit Synced for the tip on the word of peers, unless there are none or it is not due."""
        context, chain = self._context, self._context.chain
        if not peers or not self.is_synced_due:
            return
        doubt = self._coverage.in_doubt
        self._doubts = (self._doubts if self.synced == chain.tip_hash else Told()).plus(doubt, context.now.monotonic)
        for peer in peers:
            context.pool.did_well(peer)
        age = context.now.wall - chain.header_at(chain.height).time
        if age > MAX_TIP_AGE_S:
            self._warn(peers[0], f"the tip of the best chain, block {chain.height}, is {age / 86_400:.1f} days old")
        disputed = tuple((first, last) for first, last in doubt)
        height = min(self._coverage.proven_search, chain.height) if proven else -1
        addresses = tuple(peer.address for peer in peers)
        skipped = tuple((first, last) for first, last in context.books.blocks.skipped(chain.height))
        self.told = Synced(chain.height, chain.tip_hash, addresses, height, disputed, skipped)
        context.out.emit(self.told)
