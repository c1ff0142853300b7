"""Published transactions from a real ZMQ publisher: gaps, repeated and late messages, restarts, other forms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spvfilter.errors import ParameterError
from spvfilter.rpc import TxNotices
from support.peers.publisher import Publisher

pytestmark = pytest.mark.usefixtures("nothing_is_left")
PATIENCE_S = 30.0


@asynccontextmanager
async def joined(address: str) -> AsyncIterator[tuple[Publisher, TxNotices]]:
    with Publisher(address, topics=1) as publisher:
        async with TxNotices.subscribed([address]) as notices:
            await publisher.subscribed()
            yield publisher, notices


async def taken(notices: TxNotices, count: int) -> list[bytes]:
    async with asyncio.timeout(PATIENCE_S):
        return [await anext(notices) for _ in range(count)]


def counted(notices: TxNotices) -> tuple[int, int, int, int, int]:
    return notices.received, notices.lost, notices.repeated, notices.restarts, notices.malformed


async def test_published_transactions_arrive_in_order(tmp_path: Path) -> None:
    async with joined(f"ipc://{tmp_path}/zmq") as (publisher, notices):
        for number in range(5):
            await publisher.send("rawtx", bytes([number]))
        assert await taken(notices, 5) == [bytes([number]) for number in range(5)]
        assert counted(notices) == (5, 0, 0, 0, 0)


async def test_missing_transactions_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with joined(f"ipc://{tmp_path}/zmq") as (publisher, notices):
        await publisher.send("rawtx", b"a")
        publisher.lose("rawtx", 3)
        await publisher.send("rawtx", b"b")
        assert await taken(notices, 2) == [b"a", b"b"]
        assert counted(notices) == (2, 3, 0, 0, 0)
        assert "missed published transactions: 3" in caplog.text


async def test_repeated_message_is_skipped_and_late_one_is_not_lost(tmp_path: Path) -> None:
    async with joined(f"ipc://{tmp_path}/zmq") as (publisher, notices):
        for counter, body in [(4, b"a"), (4, b"a"), (6, b"c"), (5, b"b"), (6, b"c"), (7, b"d")]:
            await publisher.send_parts([b"rawtx", body, counter.to_bytes(4, "little")])
        assert await taken(notices, 4) == [b"a", b"c", b"b", b"d"]
        assert counted(notices) == (4, 0, 2, 0, 0)


async def test_counter_that_begins_again_is_a_restart(tmp_path: Path) -> None:
    async with joined(f"ipc://{tmp_path}/zmq") as (publisher, notices):
        for counter, body in [(9, b"a"), (0, b"b"), (1, b"c"), (0xFFFFFFFF, b"d"), (0, b"e")]:
            await publisher.send_parts([b"rawtx", body, counter.to_bytes(4, "little")])
        assert await taken(notices, 5) == [b"a", b"b", b"c", b"d", b"e"]
        assert counted(notices) == (5, 0xFFFFFFFF - 2, 0, 1, 0)


async def test_messages_of_other_forms_are_skipped(tmp_path: Path) -> None:
    async with joined(f"ipc://{tmp_path}/zmq") as (publisher, notices):
        for parts in ([b"rawtx"], [b"rawtx", b"x"], [b"rawtx", b"x", b"123"], [b"rawtx2", b"", bytes(4)]):
            await publisher.send_parts(parts)
        await publisher.send("rawtx", b"a")
        assert await taken(notices, 1) == [b"a"]
        assert counted(notices) == (1, 0, 0, 0, 4)


async def test_node_that_comes_back_is_heard_again() -> None:
    with Publisher("tcp://127.0.0.1:*", topics=1) as publisher:
        address = publisher.address
        async with TxNotices.subscribed([address]) as notices:
            await publisher.subscribed()
            await publisher.send("rawtx", b"a")
            assert await taken(notices, 1) == [b"a"]
            publisher.__exit__()
            following = asyncio.create_task(taken(notices, 1))  # libzmq subscribes again while somebody receives
            with Publisher(address, topics=1) as again:
                await again.subscribed()
                await again.send("rawtx", b"b")
                assert await following == [b"b"]
            assert counted(notices) == (2, 0, 0, 1, 0)


async def test_bad_addresses_are_refused() -> None:
    for address in ("localhost:28332", "tcp://x", "tcp://x:0", "tcp://x:65536", "http://x:1"):
        with pytest.raises(ParameterError, match="a ZMQ address must be"):
            async with TxNotices.subscribed([address]):
                pass
    with pytest.raises(ParameterError, match="at least one address for ZMQ notifications"):
        async with TxNotices.subscribed([]):
            pass


async def test_cancelled_call_loses_no_transaction() -> None:
    messages: list[asyncio.Future[list[bytes]]] = []

    def receive() -> asyncio.Future[list[bytes]]:
        messages.append(asyncio.get_running_loop().create_future())
        return messages[-1]

    notices = TxNotices(receive)
    for number in range(3):
        waiting = asyncio.ensure_future(anext(notices))
        await asyncio.sleep(0)
        if number:
            messages[-1].set_result([b"rawtx", bytes([number]), number.to_bytes(4, "little")])
        waiting.cancel()  # before the call resumes
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if number:
            assert await taken(notices, 1) == [bytes([number])]
    assert counted(notices) == (2, 0, 0, 0, 0)


async def test_calls_at_the_same_time_get_different_transactions(tmp_path: Path) -> None:
    async with joined(f"ipc://{tmp_path}/zmq") as (publisher, notices):
        waiting = asyncio.gather(*(anext(notices) for _ in range(3)))
        await asyncio.sleep(0)
        for number in range(3):
            await publisher.send("rawtx", bytes([number]))
        async with asyncio.timeout(PATIENCE_S):
            assert sorted(await waiting) == [bytes([number]) for number in range(3)]
        assert counted(notices) == (3, 0, 0, 0, 0)
