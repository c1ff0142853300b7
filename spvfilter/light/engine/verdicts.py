"""Verdicts: which of two filters of one block is false, judged by the block itself.

A verdict needs the block and both filters. A filter is false only if the block proves it, in one of these ways:

- An output script is missing.
- A script that is known to be spent is missing.
- There are too many elements.

Otherwise both filters remain possible, and no peer is banned. The same holds if no connected peer has the block any
more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from math import inf

from spvfilter.filters.verify import Verdict, verify_filter
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.filterquestions import FilterFlight, FilterQuestions
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.store.store import Store


class Outcome(Enum):
    """Result of a verdict."""

    OURS_FALSE = "ours"
    THEIRS_FALSE = "theirs"
    BOTH_FALSE = "both"
    UNDECIDED = "undecided"


@dataclass(slots=True, eq=False)
class Case:
    """A block for which a peer commits to another filter than ours."""

    peer: Peer
    height: int
    block_hash: bytes
    digest: bytes
    """Hash of the filter that the peer commits to."""
    header: bytes
    """The peer's filter header."""
    then: Callable[[Case, Outcome, str], None]
    opened: float
    since: float = -inf
    """When a peer that has the block was last connected (monotonic seconds)."""
    theirs: bytes | None = None
    ours: bytes | None = None
    raw: bytes | None = None
    supporters_asked: set[Peer] = field(default_factory=set)
    is_asked: bool = False
    """True if the peer was asked for its filter. It is not asked while it owes one of this block from before."""
    is_read: bool = False
    """True if the database was asked for our filter."""
    is_judged: bool = False

    def take(self, raw: bytes) -> None:
        """The block has come."""
        self.raw = raw


class Verdicts:
    """Open cases. `supporters` returns the peers that support our filter header at a height."""

    def __init__(
        self,
        context: Context,
        questions: FilterQuestions,
        blocks: BlockRequests,
        supporters: Callable[[int], Sequence[Peer]],
    ) -> None:
        self._context = context
        self._questions = questions
        self._blocks = blocks
        self._supporters = supporters
        self._cases: dict[Peer, Case] = {}
        context.pool.on_gone(self._close)

    def has_case(self, peer: Peer) -> bool:
        """True if a filter of this peer is being judged."""
        return peer in self._cases

    def lacks_block(self, peer: Peer) -> bool:
        """True if a filter of this peer cannot be judged yet: no prompt peer has the block."""
        case = self._cases.get(peer)
        return case is not None and case.raw is None and not self._blocks.is_to_be_had(case.height, at_once=True)

    def open(self, case: Case) -> None:
        """Begin to judge. `case.then` is called with the outcome and the reason why a filter is false."""
        self._cases[case.peer] = case
        self._ask_theirs(case)
        self._blocks.want(case.height, case.block_hash, case.take)
        self._context.changed()

    def disconnect_to(self, height: int) -> list[Peer]:
        """Close the cases above a height, where blocks or our filter headers changed. Returns their peers."""
        closed = [peer for peer, case in self._cases.items() if case.height > height]
        for peer in closed:
            self._close(peer)
        return closed

    def _close(self, peer: Peer) -> None:
        case = self._cases.pop(peer, None)
        if case is not None:
            self._blocks.forget(case.block_hash, case.take)

    def advance(self) -> None:
        """Request the missing blocks and filters of the open cases."""
        for case in list(self._cases.values()):
            if case.is_judged or not self._is_open(case):  # the end of one case may close other cases
                continue
            if not case.is_asked:
                self._ask_theirs(case)
            if case.ours is None:
                self._ask_ours(case)
            if not self._blocks.is_wanted(case.block_hash) and case.raw is None:
                self._blocks.want(case.height, case.block_hash, case.take)
            if case.raw is None and not self._may_have_block(case):
                self._judged(case, (Outcome.UNDECIDED, ""))
                continue
            if case.raw is not None and case.theirs is not None and (case.ours is not None or not self._may_come(case)):
                self._judge(case)

    def _is_open(self, case: Case) -> bool:
        return self._cases.get(case.peer) is case

    def _may_have_block(self, case: Case) -> bool:
        """True if the block may still come.

        The engine waits `answer_s` for a connection to a peer that has the block (BIP-159). It waits no longer than
        `2 * reply_s` in total, since peers may offer the block and not send it.
        """
        now, timeouts = self._context.now.monotonic, self._context.options.timeouts
        if self._blocks.is_to_be_had(case.height):
            case.since = now
        return now - max(case.since, case.opened) < timeouts.answer_s and now - case.opened < 2 * timeouts.reply_s

    def _may_come(self, case: Case) -> bool:
        """True if our filter may still come: a peer that supports it answers promptly, or can still be asked."""

        def is_late(supporter: Peer) -> bool:
            is_asked = supporter in case.supporters_asked or self._questions.owes(supporter, case.block_hash)
            return is_asked and supporter.state is not PeerState.READY

        return not case.is_read or not all(map(is_late, self._supporters(case.height)))

    def _ask_theirs(self, case: Case) -> None:
        flight = FilterFlight(case.height, [case.block_hash], [case.digest], partial(self._their_filter, case))
        case.is_asked = self._questions.filters(case.peer, flight)

    def _ask_ours(self, case: Case) -> None:
        """Request our filter from the database, or from a peer that supports it."""
        if not case.is_read:
            wanted = self._context.rows.hash_at(case.height)
            self._context.out.read(partial(_kept, height=case.height, wanted=wanted), partial(self._our_filter, case))
            case.is_read = True
            return
        digest = self._context.rows.hash_at(case.height)
        if any(
            self._context.pool.has(peer) and not peer.silent_for(self._context.now.monotonic)
            for peer in case.supporters_asked
        ):
            return
        for supporter in self._supporters(case.height):
            if supporter not in case.supporters_asked:
                flight = FilterFlight(
                    case.height, [case.block_hash], [digest], lambda data: self._our_filter(case, data[0])
                )
                if self._questions.filters(supporter, flight):
                    case.supporters_asked.add(supporter)
                    return

    def _their_filter(self, case: Case, data: list[bytes]) -> None:
        case.theirs = data[0]
        self._context.changed()

    def _our_filter(self, case: Case, data: object) -> None:
        if isinstance(data, bytes) and case.ours is None:
            case.ours = data
        self._context.changed()

    def _judge(self, case: Case) -> None:
        case.is_judged = True
        raw, ours, theirs, block_hash = case.raw, case.ours, case.theirs, case.block_hash
        table = self._context.books.watch.table
        assert raw is not None
        assert theirs is not None

        def known(outpoint: bytes) -> bytes | None:
            coin = table.coin(outpoint)
            return coin.script or None if coin is not None else None

        def work() -> tuple[Outcome, str]:
            their = verify_filter(raw, theirs, block_hash, known)
            our = verify_filter(raw, ours, block_hash, known) if ours is not None else None
            ours_false = our is not None and our.verdict is Verdict.FALSE
            if their.verdict is Verdict.FALSE:
                return (Outcome.BOTH_FALSE if ours_false else Outcome.THEIRS_FALSE), their.reason
            if ours_false or their.verdict is Verdict.TRUE:
                return Outcome.OURS_FALSE, our.reason if our is not None else ""
            return Outcome.UNDECIDED, ""

        self._context.out.work(work, partial(self._judged, case))

    def _judged(self, case: Case, found: object) -> None:
        if not self._is_open(case):
            return
        self._close(case.peer)
        self._context.changed()
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, tuple)
        case.then(case, *found)


def _kept(store: Store, *, height: int, wanted: bytes) -> bytes | None:
    """Return our filter of a block if the database has it."""
    if store.compact_filters.height < height or store.compact_filters.hash_at(height) != wanted:
        return None
    return store.compact_filters.kept(height, height).get(height)
