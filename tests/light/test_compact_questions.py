"""Answers about compact filters checked against the requests: any other answer is a named lie, and nothing waits for ever."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from spvfilter.light.remote_compact import CompactQuestions

from spvfilter.errors import LieError
from spvfilter.filters.bip158 import filter_hash, filter_headers
from spvfilter.light.lies import Lie
from spvfilter.wire.messages.filters import CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters
from spvfilter.wire.messages.table import Message
from support.lightworld import FAST

BLOCKS = [bytes((number,)) * 32 for number in range(1, 6)]
DATA = [bytes((number,)) for number in range(5)]
HEADERS = [bytes(32), *filter_headers(map(filter_hash, DATA), bytes(32))]


class Asked(CompactQuestions):
    def __init__(self, reply_s: float = 20) -> None:
        self.sent: list[Message] = []
        super().__init__(self._note, replace(FAST, reply_s=reply_s))

    async def _note(self, message: Message) -> None:
        self.sent.append(message)


async def begun(task: asyncio.Task[object]) -> asyncio.Task[object]:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_filters_may_come_in_any_order() -> None:
    peer = Asked()
    task = await begun(asyncio.create_task(peer.filters(0, BLOCKS, HEADERS)))
    assert peer.sent == [GetCFilters(0, 0, BLOCKS[-1])]
    for number in (3, 0, 4, 2, 1):
        peer.take(CFilter(0, BLOCKS[number], DATA[number]))
    assert await task == DATA
    assert not peer
    assert peer.flights == 0


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
async def test_what_was_not_asked_for_is_a_lie_and_no_question_waits_then(message: CFilter | CFHeaders | CFCheckpt, name: Lie) -> None:
    peer = Asked()
    tasks = [
        await begun(asyncio.create_task(peer.filters(0, BLOCKS, HEADERS))),
        await begun(asyncio.create_task(peer.headers(0, 4, BLOCKS[4]))),
        await begun(asyncio.create_task(peer.checkpoints(2_004, BLOCKS[4]))),
    ]
    with pytest.raises(LieError) as caught:
        peer.take(message)
    assert caught.value.cause == name
    peer.end(caught.value)
    assert await asyncio.gather(*tasks, return_exceptions=True) == [caught.value] * 3
    with pytest.raises(LieError):
        await peer.headers(0, 0, BLOCKS[0])


async def test_an_answer_to_a_question_whose_asker_has_gone_is_no_lie_and_serves_the_next() -> None:
    peer = Asked()
    for task in (
        await begun(asyncio.create_task(peer.filters(0, BLOCKS, HEADERS))),
        await begun(asyncio.create_task(peer.headers(0, 4, BLOCKS[4]))),
        await begun(asyncio.create_task(peer.checkpoints(1_004, BLOCKS[4]))),
    ):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert peer.owes(BLOCKS)
    again = await begun(asyncio.create_task(peer.filters(0, BLOCKS, HEADERS)))
    for block, data in zip(BLOCKS, DATA, strict=True):
        peer.take(CFilter(0, block, data))
    peer.take(CFHeaders(0, BLOCKS[4], bytes(32), tuple(map(filter_hash, DATA))))
    peer.take(CFCheckpt(0, BLOCKS[4], (bytes(32),)))
    assert await again == DATA
    assert [type(message) for message in peer.sent] == [GetCFilters, GetCFHeaders, GetCFCheckpt]


async def test_headers_are_those_of_the_hashes_upon_the_one_before() -> None:
    peer = Asked()
    task = await begun(asyncio.create_task(peer.headers(0, 4, BLOCKS[4])))
    peer.take(CFHeaders(0, BLOCKS[4], bytes(32), tuple(map(filter_hash, DATA))))
    told = await task
    assert told.headers() == HEADERS[1:]  # type: ignore[attr-defined]  # Told


async def test_silence_ends_a_question() -> None:
    peer = Asked(reply_s=0.01)
    for asking in (peer.filters(0, BLOCKS, HEADERS), peer.headers(0, 4, BLOCKS[4]), peer.checkpoints(1_000, BLOCKS[4])):
        with pytest.raises(TimeoutError):
            await asking
