"""StatusReports: emits Progress, PeerChanged, Synced and warnings, and decides whether the client is synced."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from spvfilter.errors import UselessPeerError
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.light.events import PeerChanged, PeerWarning, Phase, Progress, Synced
from spvfilter.store.searched import Ranges, join

MIN_CLOCKS = 3
"""Number of network groups whose clocks can show that ours is wrong (our choice)."""
MAX_CLOCK_OFFSET_S = 70 * 60  # between our clock and the median of the peers' clocks, Core timeoffsets.h
MAX_TIP_AGE_S = 24 * 3_600  # Core DEFAULT_MAX_TIP_AGE


class SyncedReports(NamedTuple):
    """The Synced events of one tip."""

    doubt: Ranges = ()
    """All heights that these events reported as disputed."""
    at: float = 0.0
    """Time of the last event (monotonic seconds)."""
    times: int = 0
    """Number of events."""

    def plus(self, doubt: Ranges, now: float) -> SyncedReports:
        """Return these events plus one more, which is emitted now."""
        return SyncedReports(join((*self.doubt, *doubt)), now, self.times + 1)

    def next_at(self, doubt: Ranges, timeouts: PeerTimeouts) -> float:
        """Return the earliest time at which another dispute may be reported (monotonic seconds).

        This is infinity if everything in `doubt` has been reported already. The pause doubles after each report, up to
        `max_retry_s`.
        """
        if join((*self.doubt, *doubt)) == self.doubt:
            return inf
        return self.at + min(timeouts.stall_s * 2.0 ** min(self.times - 1, 16), timeouts.max_retry_s)


class StatusReports:
    """Emits Progress, PeerChanged and Synced, and related warnings.

    The client is synced if all of the following are true:

    - `Synced` was emitted for the tip of the best chain, and the search has not moved back since.
    - A ready peer has the tip. Headers of a better chain would have changed the tip.
    - This peer has sent a message within `PeerTimeouts.silence_s`.

    The age of the last block does not matter. If the last such peer disconnects, `Synced` is emitted again for the same
    tip once a peer confirms it.
    """

    def __init__(self, context: Context, headers: PeerHeaders, coverage: Coverage) -> None:
        self._context = context
        self._headers = headers
        self._coverage = coverage
        self.told: Synced | None = None  # the last event, until blocks are searched again
        self._is_confirmed = False  # True if a peer has confirmed the tip at all times since that event
        self._doubts = SyncedReports()
        self._followed: Peer | None = None
        self._progress: Progress | None = None
        self._first = context.books.cursor + 1  # height at which the current search began
        self._filter_headers = context.rows.height  # height of the last Progress event for filter headers
        self._warned: set[tuple[str, str]] = set()  # address and subject
        self._behind_since: float | None = None
        self._tip = b""
        # When other peers were last given time to answer: after a new tip, a corrected clock, or the return of peers.
        self._tip_since = 0.0
        self._odd: tuple[Peer, ...] = ()  # Connected peers whose clocks differ a lot from ours.

    @property
    def synced(self) -> bytes | None:
        """Block hash of the last Synced event; reset when blocks are searched again."""
        return None if self.told is None else self.told.hash

    def is_synced(self, now: Instant) -> bool:
        """Return True if the client is synced; see the class."""
        return self._is_confirmed and self.synced == self._context.chain.tip_hash and self._has_witness(now)

    def _has_witness(self, now: Instant) -> bool:
        """Return True if a peer has the tip and has sent a message within `PeerTimeouts.silence_s`."""
        return any(self._confirms_tip(peer, now) for peer in self._context.pool.ready())

    def _confirms_tip(self, peer: Peer, now: Instant) -> bool:
        return not self._headers.is_behind(peer) and peer.quiet_for(now) < self._context.options.timeouts.silence_s

    def unsynced(self) -> None:
        """Emit Synced again once all blocks have been searched, even for the same tip."""
        self.told = None

    def look_back(self) -> None:
        """Require another Synced event if the last one is no longer true.

        For example, blocks below the tip are being searched again after a lie, or no peer confirms the tip.
        """
        context = self._context
        if self.synced == context.chain.tip_hash and context.books.cursor < context.chain.height:
            self.unsynced()
        if self.told is None or self._has_witness(context.now):
            return
        self._tip_since = context.now.monotonic
        if self._is_confirmed:
            self._is_confirmed = False
            context.changed()

    # Progress

    def report(self, phase: Phase, done: int, total: int) -> None:
        """Emit Progress if it has changed."""
        progress = Progress(phase, done, total)
        if progress != self._progress:
            self._progress = progress
            self._context.out.emit(progress)

    def report_headers(self) -> None:
        """Report that headers are being fetched."""
        done, total = self._headers.progress()
        self.report(Phase.HEADERS, done, total)

    def report_headers_done(self) -> None:
        """Report that all headers of a peer have arrived."""
        if self._progress is not None and self._progress.phase is Phase.HEADERS:
            height = max(self._context.chain.height, self._progress.done)
            self.report(Phase.HEADERS, height, height)
            self._progress = None

    def report_filter_headers(self) -> None:
        """Report that filter headers have arrived or were discarded."""
        height = self._context.rows.height
        if height != self._filter_headers:
            self._filter_headers = height
            self.report(Phase.FILTER_HEADERS, height, self._context.chain.height)

    def report_search(self, phase: Phase) -> None:
        """Report that blocks are being searched."""
        cursor, total = self._context.books.cursor, self._context.chain.height
        self._first = min(self._first, cursor + 1)
        if cursor + 1 > self._first or cursor < total:
            self.report(phase, cursor - self._first + 1, max(total, cursor) - self._first + 1)
        if cursor >= total:
            self._first = cursor + 1

    def follow(self, peer: Peer | None) -> None:
        """Report the peer from which blocks now come."""
        if peer is self._followed:
            return
        self._followed = peer
        if peer is None or peer.profile is None:
            self._context.out.emit(PeerChanged(None))
        else:
            self._context.out.emit(PeerChanged(peer.address, peer.profile.user_agent, peer.profile.transport))

    @property
    def followed(self) -> Peer | None:
        """The peer last reported as the source of blocks."""
        return self._followed

    # Synced

    def may_say_synced(self) -> bool:
        """Return True if nothing prevents Synced.

        That is, every block has been searched, the peers have answered, the clock is right, and a peer has the tip.
        """
        context, chain = self._context, self._context.chain
        if context.books.cursor < chain.height or context.is_held:
            return False
        if self.awaits_others():
            return False
        # If the clock was just corrected, peers are asked again.
        if not self.clock_is_right() or self.awaits_others():
            return False
        return self.somebody_has_tip()  # checked last: with a wrong clock, no peer seems to have the tip

    def awaits_others(self) -> bool:
        """Return True if a peer may still answer with its headers.

        Peers have `PeerTimeouts.stall_s` to do so after a new tip, a corrected clock, or the return of peers.
        """
        now, chain = self._context.now.monotonic, self._context.chain
        if chain.tip_hash != self._tip:
            self._tip, self._tip_since = chain.tip_hash, now
        if now - self._tip_since >= self._context.options.timeouts.stall_s:
            return False
        return any(
            peer.state in (PeerState.CONNECTING, PeerState.GREETING)
            or (peer.state is PeerState.READY and self._headers.is_asked(peer))
            for peer in self._context.pool
        )

    def somebody_has_tip(self) -> bool:
        """Return True if a ready peer has the tip of the best chain. Otherwise, warn after `PeerTimeouts.stall_s`."""
        context, now = self._context, self._context.now.monotonic
        ready = context.pool.ready()
        if any(not self._headers.is_behind(peer) for peer in ready):
            self._behind_since = None
            return True
        if self._behind_since is None:
            self._behind_since = now
        if now - self._behind_since >= context.options.timeouts.stall_s:
            for peer in ready:
                self._warn(peer, str(self._headers.lack(peer)))
        return False

    def clock_is_right(self) -> bool:
        """Return False, and warn, if the median clock of three or more network groups is far from ours.

        Each group votes with its clock that is closest to ours. If the number of groups is even, the median is the
        middle clock that is closer to ours. A single peer with a different clock causes a warning, because headers are
        checked against our clock.
        """
        now, peers = self._context.now, self._context.pool.connected()
        off = {peer: peer.clock_ahead(now) + now.monotonic - now.wall for peer in peers}
        odd = tuple(peer for peer, each in off.items() if abs(each) > MAX_CLOCK_OFFSET_S)
        if any(peer not in odd for peer in self._odd):  # headers from the future may be the best chain
            self._headers.ask_those_ahead()
            self._tip_since = now.monotonic
        self._odd = odd
        if not odd:
            return True
        votes = dict[str, float]()
        for peer, each in off.items():
            votes[peer.group] = min(each, votes.get(peer.group, each), key=abs)
        ordered = sorted(votes.values())
        middle = ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1]
        median = min(middle, key=abs) if len(ordered) >= MIN_CLOCKS else 0.0
        if abs(median) > MAX_CLOCK_OFFSET_S:
            which = "behind" if median > 0 else "ahead of"
            self._warn(
                peers[0],
                f"this machine's clock is {abs(median) / 60:.0f} minutes {which} the median of {len(ordered)}"
                " network groups' clocks: correct it",
            )
            return False
        for peer in odd:
            which = "ahead of" if off[peer] > 0 else "behind"
            self._warn(
                peer,
                f"its clock is {abs(off[peer]) / 60:.0f} minutes {which} this machine's, which is used to check block"
                " times: if this machine's clock is wrong, correct it",
            )
        return True

    def _warn(self, peer: Peer, text: str) -> None:
        if (peer.address, text) not in self._warned:
            if len(self._warned) >= 1_000:
                self._warned.clear()
            self._warned.add((peer.address, text))
            self._context.out.emit(PeerWarning(peer.address, UselessPeerError(text), False))

    @property
    def is_synced_due(self) -> bool:
        """True if Synced should be emitted now.

        That is the case if it was not emitted for the tip, if for a while no peer confirmed the tip, or if another
        dispute is to be reported now.
        """
        is_new = self.synced != self._context.chain.tip_hash or not self._is_confirmed
        return is_new or self._again_at() <= self._context.now.monotonic

    @property
    def next_at(self) -> float:
        """When the current pause before a Synced event ends (monotonic seconds); infinity if there is none."""
        at = self._again_at() if self.synced == self._context.chain.tip_hash else inf
        return at if at > self._context.now.monotonic else inf

    def _again_at(self) -> float:
        """Return when another dispute of the same tip may be reported (monotonic seconds)."""
        if not self._coverage.has_doubt:
            return inf
        return self._doubts.next_at(self._coverage.in_doubt, self._context.options.timeouts)

    def say_synced(self, peers: Sequence[Peer], *, proven: bool) -> None:
        """Emit Synced for the tip if it is due.

        Args:
            peers: Peers that the result relies on, at least one of which must confirm the tip.
            proven: True if the peers serve compact filters.
        """
        context, chain = self._context, self._context.chain
        peers = [peer for peer in peers if self._confirms_tip(peer, context.now)]
        if not peers or not self.is_synced_due:
            return
        doubt, is_new_tip = self._coverage.in_doubt, self.synced != chain.tip_hash
        self._doubts = (SyncedReports() if is_new_tip else self._doubts).plus(doubt, context.now.monotonic)
        self._is_confirmed = True
        for peer in peers if is_new_tip else ():  # otherwise a peer that only comes and goes would be called useful
            context.pool.did_well(peer)
        age = context.now.wall - chain.time_at(chain.height)
        if age > MAX_TIP_AGE_S:
            self._warn(peers[0], f"the tip of the best chain, block {chain.height}, is {age / 86_400:.1f} days old")
        disputed = tuple((first, last) for first, last in doubt)
        height = min(self._coverage.proven_search, chain.height) if proven else -1
        addresses = tuple(peer.address for peer in peers)
        skipped = tuple((first, last) for first, last in context.books.blocks.skipped(chain.height))
        sees_unconfirmed = context.options.mempool and any(peer.relays for peer in context.pool.ready())
        self.told = Synced(chain.height, chain.tip_hash, addresses, height, disputed, skipped, sees_unconfirmed)
        context.out.emit(self.told)
