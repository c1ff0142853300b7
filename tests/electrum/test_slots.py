"""Slots and rooms of sessions: no mixture of requests makes sessions wait for each other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("aiorpcx")

from spvfilter.chain import HeaderChain
from spvfilter.electrum.budget import SMALL, ElectrumBudget
from spvfilter.electrum.connection import ElectrumConnection
from spvfilter.electrum.headerproofs import HeaderProofs
from spvfilter.electrum.histories import Histories
from spvfilter.electrum.knownscripts import KnownScripts
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.questions import FindTransaction, Question
from spvfilter.electrum.session import WalletState
from spvfilter.electrum.wallet import WalletLink
from spvfilter.network import REGTEST
from support.blocks.headerchains import NOW, regular

LARGE = SMALL + 1
LIMITS = ElectrumLimits(concurrent=2, memory=1, request_size=2 * LARGE, response_size=40 * LARGE, idle_timeout_s=60)


class Socket:
    """The side of the server of a socket to a program that reads everything."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.written: list[bytes] = []
        self.transport = self

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return self.host, 1

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to close."""

    abort = close

    async def wait_closed(self) -> None:
        """Closed already."""


class Link:
    """Answers with as many bytes as the txid says, after as many turns of the loop as it says."""

    def __init__(self) -> None:
        chain = HeaderChain(REGTEST)
        self.state = WalletState(chain, Histories(), KnownScripts(), HeaderProofs(chain), lambda: 1_000, {})
        self.encoded: dict[object, bytes] = {}
        self.running = self.most = 0

    async def settle(self, question: Question) -> object:
        assert isinstance(question, FindTransaction)
        turns, size = question.txid[0], int.from_bytes(question.txid[1:5], "little")
        self.running += 1
        self.most = max(self.most, self.running)
        for _ in range(turns):
            await asyncio.sleep(0)
        self.running -= 1
        return "x" * size


def request(number: int, turns: int, size: int) -> dict[str, Any]:
    txid = bytes([turns]) + size.to_bytes(4, "little") + bytes(27)
    return {"id": number, "method": "blockchain.transaction.get", "params": [txid[::-1].hex()]}


async def use(
    host: str, messages: list[tuple[list[tuple[int, int]], bool]], budget: ElectrumBudget, link: Link | None = None
) -> None:
    """Send messages in one go, read all answers, and leave."""
    reader, socket = asyncio.StreamReader(limit=SMALL), Socket(host)
    connection = ElectrumConnection(
        reader,
        cast(asyncio.StreamWriter, socket),
        cast(WalletLink, link or Link()),
        LIMITS,
        budget,
        lambda: pytest.fail("nobody asks for the status"),
    )
    serving = asyncio.create_task(connection.serve())
    for number, (requests, is_padded) in enumerate(messages):
        made = [request(100 * number + at, *each) for at, each in enumerate(requests)]
        line = json.dumps(made).encode()
        reader.feed_data(line + b" " * (LARGE * is_padded) + b"\n")
    while len(socket.written) < len(messages):
        await asyncio.sleep(0)
        assert not serving.done()
    reader.feed_eof()
    await serving
    found = [each["id"] for line in socket.written for each in json.loads(line)]
    assert sorted(found) == [100 * at + each for at, (asked, _) in enumerate(messages) for each in range(len(asked))]


SIZES = st.tuples(st.integers(0, 8), st.sampled_from([10, LARGE]))
MESSAGES = st.lists(st.tuples(st.lists(SIZES, min_size=1, max_size=5), st.booleans()), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), MESSAGES), min_size=1, max_size=4))
def test_every_message_of_every_session_is_answered(
    sessions: list[tuple[str, list[tuple[list[tuple[int, int]], bool]]]],
) -> None:
    async def life() -> None:
        budget = ElectrumBudget(LIMITS)
        async with asyncio.timeout(20):
            await asyncio.gather(*(use(host, messages, budget) for host, messages in sessions))
            for host in "ab":  # all room was given back
                await budget.rooms.acquire(host)

    asyncio.run(life())


async def test_large_message_behind_large_answers_is_answered() -> None:
    """The first message wants room for its answers, which the second has: it would wait for the slots of the first."""
    messages = [([(5, LARGE)] * 2, False), ([(1, 10)] * 5, True)]
    async with asyncio.timeout(20):
        budget = ElectrumBudget(LIMITS)
        await asyncio.gather(*(use("a", messages, budget) for _ in range(3)))


async def test_requests_that_wait_at_the_same_time_are_bounded() -> None:
    link = Link()
    async with asyncio.timeout(20):
        await use("a", [([(5, 10)] * 3, False)] * 2, ElectrumBudget(LIMITS), link)
    assert link.most == LIMITS.concurrent


async def test_large_answer_from_memory_waits_for_room() -> None:
    link, budget, socket = Link(), ElectrumBudget(LIMITS), Socket("a")
    link.state.chain.accept(regular(link.state.chain, 500), NOW)
    reader = asyncio.StreamReader()
    reader.feed_data(b'{"id": 1, "method": "blockchain.block.headers", "params": [0, 501]}\n')
    connection = ElectrumConnection(
        reader,
        cast(asyncio.StreamWriter, socket),
        cast(WalletLink, link),
        LIMITS,
        budget,
        lambda: pytest.fail("nobody asks for the status"),
    )
    for host in "bc":
        await budget.rooms.acquire(host)
    serving = asyncio.create_task(connection.serve())
    for _ in range(20):
        await asyncio.sleep(0)
    assert socket.written == []
    budget.rooms.release("b")
    reader.feed_eof()
    async with asyncio.timeout(20):
        await serving
    assert json.loads(socket.written[0])["result"]["count"] == 501
    await budget.rooms.acquire("a")  # the room was given back


class SlowSocket(Socket):
    """Sends nothing before it is closed, and loses what is left when it is aborted."""

    def __init__(self) -> None:
        super().__init__("a")
        self.sent = b""
        self.while_closing: Callable[[], object] = lambda: None

    async def wait_closed(self) -> None:
        self.while_closing()
        await asyncio.sleep(0)
        self.sent += b"".join(self.written)

    def abort(self) -> None:
        self.written.clear()


@pytest.mark.parametrize("closes", [0, 1, 2])
async def test_last_answer_is_sent_before_the_connection_ends(closes: int) -> None:
    """The other side ends the session, or the server does, perhaps for two reasons."""
    reader, socket = asyncio.StreamReader(), SlowSocket()
    reader.feed_data(b'{"id": 1, "method": "server.ping", "params": []}\n')
    connection = ElectrumConnection(
        reader,
        cast(asyncio.StreamWriter, socket),
        cast(WalletLink, Link()),
        LIMITS,
        ElectrumBudget(LIMITS),
        lambda: pytest.fail("nobody asks for the status"),
    )
    serving = asyncio.create_task(connection.serve())
    while not socket.written:
        assert not serving.done()
        await asyncio.sleep(0)
    socket.while_closing = connection.close
    for _ in range(closes):
        connection.close()
    if not closes:
        reader.feed_eof()
    await serving
    assert b'"id":1' in socket.sent.replace(b" ", b"")
    assert socket.written == []
