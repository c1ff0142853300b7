"""Answers about compact filters are checked against the questions. Any other answer is a named lie."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

from spvfilter.chain import HeaderChain
from spvfilter.errors import LieError
from spvfilter.filters.bip158 import filter_hash, filter_headers
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.effects import Fence, Send
from spvfilter.light.engine.filterheaders import FilterHeaders
from spvfilter.light.engine.filterquestions import FilterQuestions, Stated
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.inputs import Instant, PeerConnected
from spvfilter.light.engine.options import Options, PeerTimeouts
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.peers import PeerPool, PeerState
from spvfilter.light.engine.tasks import Wait
from spvfilter.light.lies import Lie
from spvfilter.network import REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.wallet.books import Books
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages.filters import CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters
from spvfilter.wire.messages.table import Message
from support.blocks.headerchains import chain_of
from support.client.engineparts import EndedDispute, locate

T = TypeVar("T")

NOW = Instant(0.0, 1_700_000_000.0)
BLOCKS = [bytes((number,)) * 32 for number in range(1, 6)]
DATA = [bytes((number,)) for number in range(5)]
HASHES = list(map(filter_hash, DATA))
HEADERS = [bytes(32), *filter_headers(map(filter_hash, DATA), bytes(32))]


def collect(asked: Wait[T] | None, found: list[T]) -> bool:
    """Add the answer to a list when it comes. Returns False if the question was not sent."""
    if asked is not None:
        asked.then(lambda: found.append(asked.result()))
    return asked is not None


class Asked:
    """One peer with the answers to the questions that it received."""

    def __init__(self) -> None:
        books = Books(WatchList(REGTEST), SavedBooks())
        out = Outbox(books, HeaderChain(REGTEST), Journal())
        pool = PeerPool(["10.1.0.1:1"], {}, 8, PeerTimeouts(), out)
        self.context = Context(
            Options(), HeaderChain(REGTEST), FilterRows(), books, pool, out, random.Random(1), NOW, NOW.wall
        )
        self.questions = FilterQuestions(self.context)
        pool.advance(NOW)
        peer = pool.welcome(PeerConnected(1, "10.1.0.1", 0x4D, 0, True, True, "/test/", int(NOW.wall)), NOW)
        assert peer is not None
        pool.move(peer, PeerState.READY)
        self.peer = peer
        self.filters: list[list[bytes]] = []
        self.hashes: list[Stated] = []
        self.checkpoints: list[Sequence[bytes]] = []

    def ask_filters(self) -> bool:
        return collect(self.questions.ask_filters(self.peer, 0, BLOCKS, HASHES), self.filters)

    def ask_hashes(self, first: int = 0) -> bool:
        return collect(self.questions.ask_hashes(self.peer, first, 4, BLOCKS[4]), self.hashes)

    def ask_checkpoints(self, height: int) -> bool:
        return collect(self.questions.ask_checkpoints(self.peer, height, BLOCKS[4]), self.checkpoints)

    def sent(self) -> list[Message]:
        return [effect.message for effect in self.context.out.take() if isinstance(effect, Send)]

    def take(self, message: CFilter | CFHeaders | CFCheckpt) -> None:
        self.questions.take(self.peer, message)
        self.context.tasks.run()

    def locate(self, heard: FilterHeaders, below: int, above: int, header: bytes) -> None:
        locate(self.context, heard, self.peer, below, above, header)


def test_filters_may_come_in_any_order() -> None:
    asked = Asked()
    assert asked.ask_filters()
    assert asked.sent() == [GetCFilters(0, 0, BLOCKS[-1])]
    assert asked.questions.flights(asked.peer) == 1
    for number in (3, 0, 4, 2, 1):
        assert asked.peer.questions
        assert not asked.filters
        asked.take(CFilter(0, BLOCKS[number], DATA[number]))
    assert asked.filters == [DATA]
    assert not asked.peer.questions
    assert asked.questions.flights(asked.peer) == 0


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (CFilter(0, b"\x77" * 32, b"\0"), Lie.UNASKED_FILTER),
        (CFilter(1, BLOCKS[0], DATA[0]), Lie.UNASKED_FILTER),
        (CFilter(0, BLOCKS[0], DATA[1]), Lie.FALSE_FILTER),
        (CFHeaders(0, BLOCKS[3], bytes(32), ()), Lie.UNASKED_FILTER),
        (CFHeaders(0, BLOCKS[4], bytes(32), (bytes(32),) * 4), Lie.UNASKED_FILTER),
        (CFHeaders(0, BLOCKS[4], bytes(32), (bytes(32),) * 6), Lie.UNASKED_FILTER),
        (CFCheckpt(0, BLOCKS[0], ()), Lie.UNASKED_FILTER),
        (CFCheckpt(0, BLOCKS[4], ()), Lie.UNASKED_FILTER),
        (CFCheckpt(0, BLOCKS[4], (bytes(32),) * 3), Lie.UNASKED_FILTER),
    ],
    ids=repr,
)
def test_an_unrequested_answer_is_a_lie(message: CFilter | CFHeaders | CFCheckpt, name: Lie) -> None:
    asked = Asked()
    assert asked.ask_filters()
    assert asked.ask_hashes()
    assert asked.ask_checkpoints(2_004)
    with pytest.raises(LieError) as caught:
        asked.take(message)
    assert caught.value.cause == name
    assert not asked.filters
    assert not asked.hashes
    assert not asked.checkpoints


def test_an_open_question_is_not_repeated() -> None:
    asked = Asked()
    assert asked.ask_filters()
    assert asked.ask_hashes()
    assert asked.ask_checkpoints(1_004)
    assert not asked.ask_filters()
    assert not asked.ask_hashes()
    assert not asked.ask_checkpoints(1_004)
    assert [type(message) for message in asked.sent()] == [GetCFilters, GetCFHeaders, GetCFCheckpt]
    for block, data in zip(BLOCKS, DATA, strict=True):
        asked.take(CFilter(0, block, data))
    asked.take(CFHeaders(0, BLOCKS[4], bytes(32), tuple(map(filter_hash, DATA))))
    asked.take(CFCheckpt(0, BLOCKS[4], (bytes(32),)))
    assert asked.filters == [DATA]
    assert asked.hashes == [(bytes(32), tuple(map(filter_hash, DATA)))]
    assert asked.checkpoints == [(bytes(32),)]
    assert asked.ask_hashes()


def test_an_absent_peer_owes_no_answer() -> None:
    asked = Asked()
    assert asked.ask_filters()
    asked.context.pool.drop(asked.peer, ConnectionAbortedError("gone"), NOW)
    assert asked.questions.flights(asked.peer) == 0


def test_a_checkpoint_then_another_header_are_a_lie() -> None:
    asked = Asked()
    asked.context.chain = chain = chain_of(2_100)
    ours = [bytes([number % 251]) * 32 for number in range(2_101)]
    asked.context.rows.append(b"".join(ours), b"".join(filter_headers(ours, bytes(32))))
    headers = PeerHeaders(asked.context, lambda update: None)
    blocks = BlockRequests(asked.context, headers)
    heard = FilterHeaders(asked.context, headers, asked.questions, blocks, Coverage())
    other = bytes(32)
    *_, header = filter_headers(ours[1_001:2_001], other)
    asked.locate(heard, -1, 2_100, header)
    asked.take(CFCheckpt(0, chain.hash_at(2_100), (asked.context.rows.header_at(1_000), header)))
    assert asked.sent()[-1] == GetCFHeaders(0, 1_001, chain.hash_at(2_000))
    with pytest.raises(LieError) as caught:
        asked.take(CFHeaders(0, chain.hash_at(2_000), other, tuple(ours[1_001:2_001])))
    assert caught.value.cause == Lie.CONTRADICTION


def _heard_of(height: int) -> tuple[Asked, FilterHeaders, list[bytes]]:
    """Return a chain of this height, our filter headers of all its blocks, and their filter hashes."""
    asked = Asked()
    asked.context.chain = chain_of(height)
    ours = [bytes([number % 251]) * 32 for number in range(height + 1)]
    asked.context.rows.append(b"".join(ours), b"".join(filter_headers(ours, bytes(32))))
    headers = PeerHeaders(asked.context, lambda update: None)
    blocks = BlockRequests(asked.context, headers)
    return asked, FilterHeaders(asked.context, headers, asked.questions, blocks, Coverage()), ours


def test_another_header_then_our_checkpoint_are_a_lie() -> None:
    """The client requested the filter hashes of no block, and ended with IndexError if the answer had none."""
    asked, heard, _ = _heard_of(3_000)
    stop = asked.context.chain.hash_at(3_000)
    asked.locate(heard, -1, 3_000, b"\x77" * 32)
    with pytest.raises(LieError) as caught:
        asked.take(CFCheckpt(0, stop, tuple(map(asked.context.rows.header_at, (1_000, 2_000, 3_000)))))
    assert caught.value.cause == Lie.CONTRADICTION
    assert [type(message) for message in asked.sent()] == [GetCFCheckpt]


def test_a_checkpoint_that_has_become_ours_is_no_lie() -> None:
    asked, heard, ours = _heard_of(3_000)
    rows, stop = asked.context.rows, asked.context.chain.hash_at(3_000)
    theirs = [*ours[:2_500], *(b"\x77" * 32 for _ in range(501))]
    told = list(filter_headers(theirs, bytes(32)))
    asked.locate(heard, -1, 3_000, told[-1])
    rows.cut(2_499)
    rows.append(b"".join(theirs[2_500:]), b"".join(told[2_500:]))
    asked.take(CFCheckpt(0, stop, tuple(map(rows.header_at, (1_000, 2_000, 3_000)))))
    assert [type(message) for message in asked.sent()] == [GetCFCheckpt]
    assert not asked.peer.questions


def test_blocks_that_replace_blocks_before_an_ended_dispute_are_judged() -> None:
    asked, heard, ours = _heard_of(50)
    dispute = EndedDispute(heard, asked.peer, 10, resumed=40)
    heard.disconnect_to(30)
    asked.context.rows.append(
        b"".join(ours[31:]), b"".join(filter_headers(ours[31:], asked.context.rows.header_at(30)))
    )
    assert dispute.resume() == 30


def test_filters_that_arrive_together_answer_several_questions() -> None:
    asked, others = Asked(), [bytes((number,)) * 32 for number in range(11, 14)]
    assert asked.ask_filters()
    later: list[list[bytes]] = []
    assert collect(asked.questions.ask_filters(asked.peer, 5, others, HASHES[:3]), later)
    asked.context.now = Instant(5.0, NOW.wall)
    asked.questions.take_filters(asked.peer, [(BLOCKS[0], DATA[0]), (others[0], DATA[0]), (BLOCKS[1], DATA[1])])
    assert asked.peer.silent_for(6.0) == 1.0  # both questions made progress
    together = [*zip(BLOCKS[2:], DATA[2:], strict=True), *zip(others[1:], DATA[1:3], strict=True)]
    asked.questions.take_filters(asked.peer, together)
    assert (asked.filters, later) == ([DATA], [DATA[:3]])
    assert not asked.peer.questions
    assert asked.questions.flights(asked.peer) == 0


def test_only_filters_before_a_lie_count() -> None:
    asked = Asked()
    assert asked.ask_filters()
    with pytest.raises(LieError):
        asked.questions.take_filters(asked.peer, [(BLOCKS[0], DATA[0]), (BLOCKS[0], DATA[0]), (BLOCKS[1], DATA[1])])
    asked.questions.take_filters(asked.peer, zip(BLOCKS[1:], DATA[1:], strict=True))
    assert asked.filters == [DATA]


def test_no_answer_is_delivered_after_its_peer_was_dropped() -> None:
    asked, other = Asked(), b"\x77" * 32
    called: list[list[bytes]] = []
    first = asked.questions.ask_filters(asked.peer, 0, BLOCKS[:1], HASHES[:1])
    assert collect(first, called)
    assert first is not None
    first.then(lambda: asked.context.pool.drop(asked.peer, ConnectionAbortedError("of no use"), NOW))
    assert collect(asked.questions.ask_filters(asked.peer, 1, [other], HASHES[:1]), called)
    asked.questions.take_filters(asked.peer, [(BLOCKS[0], DATA[0]), (other, DATA[0])])
    assert called == [DATA[:1]]


@pytest.mark.parametrize("at", range(5))
def test_a_false_filter_is_named_and_earlier_filters_count(at: int) -> None:
    asked = Asked()
    assert asked.ask_filters()
    changed = [*DATA[:at], b"\x77", *DATA[at + 1 :]]
    with pytest.raises(LieError, match=hash_to_hex(BLOCKS[at])) as caught:
        asked.questions.take_filters(asked.peer, zip(BLOCKS, changed, strict=True))
    assert caught.value.cause == Lie.FALSE_FILTER
    assert not asked.filters
    asked.questions.take_filters(asked.peer, zip(BLOCKS[at:], DATA[at:], strict=True))
    assert asked.filters == [DATA]


def test_a_run_of_filters_may_not_repeat_a_received_filter() -> None:
    asked = Asked()
    assert asked.ask_filters()
    asked.take(CFilter(0, BLOCKS[2], DATA[2]))
    with pytest.raises(LieError, match=hash_to_hex(BLOCKS[2])) as caught:
        asked.questions.take_filters(asked.peer, zip(BLOCKS, DATA, strict=True))
    assert caught.value.cause == Lie.UNASKED_FILTER
    asked.questions.take_filters(asked.peer, zip(BLOCKS[3:], DATA[3:], strict=True))
    assert asked.filters == [DATA]


def test_a_run_of_filters_answers_two_questions() -> None:
    asked, others = Asked(), [bytes((number,)) * 32 for number in range(11, 14)]
    assert asked.ask_filters()
    later: list[list[bytes]] = []
    assert collect(asked.questions.ask_filters(asked.peer, 5, others, HASHES[:3]), later)
    asked.questions.take_filters(asked.peer, zip([*BLOCKS, *others], [*DATA, *DATA[:3]], strict=True))
    assert asked.filters == [DATA]
    assert later == [DATA[:3]]
    assert asked.questions.flights(asked.peer) == 0


def test_a_run_of_filters_answers_a_repeated_question_too() -> None:
    asked, again = Asked(), list[list[bytes]]()
    assert asked.ask_filters()
    asked.take(CFilter(0, BLOCKS[1], DATA[1]))
    assert collect(asked.questions.ask_filters(asked.peer, 1, BLOCKS[1:2], HASHES[1:2]), again)
    asked.questions.take_filters(asked.peer, zip(BLOCKS, DATA, strict=True))
    assert asked.filters == [DATA]
    assert again == [DATA[1:2]]
    assert not asked.peer.questions
    assert asked.questions.flights(asked.peer) == 0


def test_an_answer_closes_only_its_own_question() -> None:
    """A peer sent the last filter, then sent it again on request. It owed the other filters forever without being
    late.
    """
    asked, again = Asked(), list[list[bytes]]()
    assert asked.ask_filters()
    asked.take(CFilter(0, BLOCKS[4], DATA[4]))
    assert collect(asked.questions.ask_filters(asked.peer, 4, BLOCKS[4:], HASHES[4:]), again)
    asked.take(CFilter(0, BLOCKS[4], DATA[4]))
    assert again == [DATA[4:]]
    assert not asked.filters
    assert asked.peer.silent_for(NOW.monotonic + 100) == 100
    asked.questions.take_filters(asked.peer, zip(BLOCKS[:4], DATA[:4], strict=True))
    assert asked.filters == [DATA]
    assert not asked.peer.questions


def ignored(asked: Asked, seconds: float) -> list[Message]:
    """Let time pass and the pongs of all pings come. Returns the messages that were sent meanwhile."""
    sent = asked.sent()
    start = asked.context.now.monotonic
    for step in range(1, int(seconds) + 1):
        asked.context.now = Instant(start + step, NOW.wall + start + step)
        asked.questions.advance()
        effects = asked.context.out.take()
        sent += [effect.message for effect in effects if isinstance(effect, Send)]
        for token in [effect.token for effect in effects if isinstance(effect, Fence)]:
            asked.context.out.done(token, None)
            sent += asked.sent()
    return sent


def test_an_ignored_question_is_repeated_less_and_less_often() -> None:
    asked = Asked()
    assert asked.ask_hashes()
    assert ignored(asked, 1) == [GetCFHeaders(0, 0, BLOCKS[4])]
    assert ignored(asked, 118) == [GetCFHeaders(0, 0, BLOCKS[4])] * 5  # after 2, 6, 14, 30 and 62 seconds
    asked.take(CFHeaders(0, BLOCKS[4], bytes(32), tuple(HASHES)))
    assert asked.hashes == [(bytes(32), tuple(HASHES))]
    assert not asked.peer.questions
    assert ignored(asked, 200) == []


def test_slow_peer_is_not_asked_again_before_its_pong() -> None:
    asked = Asked()
    assert asked.ask_hashes()
    asked.context.now = Instant(10.0, NOW.wall + 10)
    asked.questions.advance()
    (token,) = [effect.token for effect in asked.context.out.take() if isinstance(effect, Fence)]
    asked.take(CFHeaders(0, BLOCKS[4], bytes(32), tuple(HASHES)))
    asked.context.out.done(token, None)
    assert asked.sent() == []


def test_an_answer_to_each_repetition_is_no_lie() -> None:
    asked = Asked()
    assert asked.ask_hashes()
    ignored(asked, 6)
    answer = CFHeaders(0, BLOCKS[4], bytes(32), tuple(HASHES))
    for _ in range(3):  # the question was asked three times
        asked.take(answer)
    assert len(asked.hashes) == 1
    with pytest.raises(LieError) as caught:
        asked.take(answer)
    assert caught.value.cause is Lie.UNASKED_FILTER


def test_a_late_answer_to_a_repetition_answers_no_other_question() -> None:
    asked = Asked()
    assert asked.ask_hashes()
    ignored(asked, 2)
    asked.take(CFHeaders(0, BLOCKS[4], bytes(32), tuple(HASHES)))
    assert asked.ask_hashes(4)
    asked.take(CFHeaders(0, BLOCKS[4], bytes(32), tuple(HASHES)))  # the answer to the repetition
    assert len(asked.hashes) == 1
    asked.take(CFHeaders(0, BLOCKS[4], HEADERS[4], (HASHES[4],)))
    assert asked.hashes[1:] == [(HEADERS[4], (HASHES[4],))]
