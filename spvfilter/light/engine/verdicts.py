"""Verdicts: which of two filters for the same block is false, judged by the block itself.

A verdict needs the block and both filters. A filter is false only if the block proves it in one of these ways:

- An output script is missing.
- A script that is known to be spent is missing.
- There are too many elements.

Otherwise, both filters remain possible, and no peer is banned. The same applies if no connected peer has the block any
more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from math import inf

from spvfilter.filters.verify import FilterVerdict, verify_filter
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.filterquestions import FilterQuestions
from spvfilter.light.engine.peers import Peer, PeerState
from spvfilter.light.engine.tasks import Change, First, StoppedError, Task, Wait
from spvfilter.store.store import Store


class Outcome(Enum):
    """Result of a verdict."""

    OURS_FALSE = "ours"
    THEIRS_FALSE = "theirs"
    BOTH_FALSE = "both"
    UNDECIDED = "undecided"


Found = tuple[Outcome, str]  # the outcome, and the reason why a filter is false


@dataclass(slots=True, eq=False)
class Case:
    """A block for which a peer commits to a different filter from ours."""

    peer: Peer
    height: int
    block_hash: bytes
    digest: bytes
    """Hash of the filter that the peer commits to."""
    header: bytes
    """The peer's filter header."""
    opened: float
    since: float = -inf
    """When a peer with the block was last connected (monotonic seconds)."""
    block: Wait[bytes] = field(default_factory=lambda: Wait("the disputed block"))
    moved: Change = field(default_factory=lambda: Change("a peer that may decide a dispute"))
    """A change that is announced when peers, blocks or answers may have come or gone."""
    task: Task[Found] | None = None
    supporters_asked: set[Peer] = field(default_factory=set)
    is_read: bool = False
    """True if the database has been asked for our filter."""


class Verdicts:
    """Judges the open cases. `supporters` is a function that returns the peers that support our header at a height."""

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

    def has_case(self, peer: Peer) -> bool:
        """True if a filter of this peer is being judged."""
        return peer in self._cases

    def lacks_block(self, peer: Peer) -> bool:
        """True if a filter of this peer cannot be judged yet, because no peer that answers promptly has the block."""
        case = self._cases.get(peer)
        return case is not None and not case.block.is_done and not self._blocks.is_to_be_had(case.height, at_once=True)

    def advance(self) -> None:
        """Request blocks of open cases again if needed, and announce that peers or answers may have come or gone."""
        for case in list(self._cases.values()):
            if not case.block.is_done:
                if not self._blocks.is_wanted(case.block_hash):  # a new search cancels all requests
                    self._blocks.want(case.height, case.block_hash, case.block.set)
                if self._blocks.is_to_be_had(case.height):
                    case.since = self._context.now.monotonic
            case.moved.announce()

    def disconnect_to(self, height: int) -> list[Peer]:
        """Close the cases above a height, where blocks or our filter headers changed. Returns their peers."""
        closed = [case for case in self._cases.values() if case.height > height]
        for case in closed:
            assert case.task is not None
            case.task.cancel()
            del self._cases[case.peer]
        return [case.peer for case in closed]

    async def judge(self, case: Case) -> Found | None:
        """Return the outcome and why a filter is false, or None if the block or our filter header has since changed."""
        with self._context.tasks.scope() as scope:
            self._cases[case.peer] = case
            case.task = scope.begin(partial(self._judge, case), f"judge the filters of block {case.height}")
            try:
                return await case.task
            except StoppedError:
                return None
            finally:
                if self._cases.get(case.peer) is case:
                    del self._cases[case.peer]
                self._context.changed()

    async def _judge(self, case: Case) -> Found:
        with self._context.tasks.scope() as scope:
            theirs = scope.begin(partial(self._their_filter, case), "get the peer's filter")
            ours = scope.begin(partial(self._our_filter, case), "get our filter")
            raw = await scope.begin(partial(self._block, case), "get the block")
            if raw is None:
                return Outcome.UNDECIDED, ""
            their = await theirs
            await case.moved.until(lambda: ours.is_done or not self._may_come(case))
            our = ours.result() if ours.is_done else None
        table = self._context.books.watch.table

        def known(outpoint: bytes) -> bytes | None:
            coin = table.coin(outpoint)
            return coin.script or None if coin is not None else None

        return await self._context.out.worked(partial(_weigh, raw, our, their, case.block_hash, known), "a verdict")

    async def _their_filter(self, case: Case) -> bytes:
        """Return the peer's filter. The peer is not asked while an earlier request for this block is outstanding."""
        while (asked := self._ask_filter(case, case.peer, case.digest)) is None:
            await case.moved.next()
        return (await asked)[0]

    async def _our_filter(self, case: Case) -> bytes:
        """Return our filter from the database, or from the first peer that supports it and sends it."""
        found = Wait[bytes]("our filter from the database or a supporter")
        await case.moved.next()
        wanted = self._context.rows.hash_at(case.height)
        self._context.out.read(
            partial(_kept, height=case.height, wanted=wanted),
            lambda kept: found.set(kept) if isinstance(kept, bytes) else None,
        )
        case.is_read = True
        while not found.is_done:
            await First(found, case.moved.next())
            if not found.is_done:
                self._ask_supporter(case, found)
        return found.result()

    def _ask_supporter(self, case: Case, found: Wait[bytes]) -> None:
        """Ask one more supporter for our filter, unless an earlier one may still answer promptly."""
        has, now = self._context.pool.has, self._context.now.monotonic
        if any(has(peer) and not peer.silent_for(now) for peer in case.supporters_asked):
            return
        digest = self._context.rows.hash_at(case.height)
        for supporter in self._supporters(case.height):
            if supporter not in case.supporters_asked:
                asked = self._ask_filter(case, supporter, digest)
                if asked is not None:
                    asked.then(partial(_pass_on, asked, found))
                    case.supporters_asked.add(supporter)
                    return

    def _ask_filter(self, case: Case, peer: Peer, digest: bytes) -> Wait[list[bytes]] | None:
        return self._questions.ask_filters(peer, case.height, [case.block_hash], [digest])

    def _may_come(self, case: Case) -> bool:
        """True if our filter may still arrive: a peer that supports it answers promptly, or has not been asked yet."""

        def is_late(supporter: Peer) -> bool:
            is_asked = supporter in case.supporters_asked or self._questions.owes(supporter, case.block_hash)
            return is_asked and supporter.state is not PeerState.READY

        return not case.is_read or not all(map(is_late, self._supporters(case.height)))

    async def _block(self, case: Case) -> bytes | None:
        """Return the block, or None once it can no longer be expected."""
        try:
            self._blocks.want(case.height, case.block_hash, case.block.set)
            await First(case.block, case.moved.until(partial(self._is_block_lost, case)))
            return case.block.result() if case.block.is_done else None
        finally:
            self._blocks.forget(case.block_hash, case.block.set)

    def _is_block_lost(self, case: Case) -> bool:
        """True if the block can no longer be expected.

        The engine waits `answer_s` for a connection to a peer that has the block (BIP-159). It waits no longer than
        `2 * reply_s` in total, because peers may offer the block without sending it.
        """
        now, timeouts = self._context.now.monotonic, self._context.options.timeouts
        return now - max(case.since, case.opened) >= timeouts.answer_s or now - case.opened >= 2 * timeouts.reply_s


def _pass_on(asked: Wait[list[bytes]], found: Wait[bytes]) -> None:
    found.set(asked.result()[0])


def _weigh(
    raw: bytes, ours: bytes | None, theirs: bytes, block_hash: bytes, known: Callable[[bytes], bytes | None]
) -> Found:
    """Return which of two filters a block proves false, and why."""
    their = verify_filter(raw, theirs, block_hash, known)
    our = verify_filter(raw, ours, block_hash, known) if ours is not None else None
    ours_false = our is not None and our.verdict is FilterVerdict.FALSE
    if their.verdict is FilterVerdict.FALSE:
        return (Outcome.BOTH_FALSE if ours_false else Outcome.THEIRS_FALSE), their.reason
    if ours_false or their.verdict is FilterVerdict.TRUE:
        return Outcome.OURS_FALSE, our.reason if our is not None else ""
    return Outcome.UNDECIDED, ""


def _kept(store: Store, *, height: int, wanted: bytes) -> bytes | None:
    """Return our filter for the block at a height if the database contains it, or None."""
    if store.compact_filters.height < height or store.compact_filters.hash_at(height) != wanted:
        return None
    return store.compact_filters.kept(height, height).get(height)
