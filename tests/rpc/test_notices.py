"""ZMQ notifications from a real publisher: wake-ups, gaps, duplicates, malformed messages, and publishers that come
late or return.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spvfilter.errors import ParameterError
from spvfilter.protocol import MAX_BLOCK_SIZE
from spvfilter.rpc import TipNotices
from support.blocks.build import block_hash
from support.blocks.nodechains import paid_chain
from support.peers.publisher import Publisher

pytestmark = pytest.mark.usefixtures("nothing_is_left")
PATIENCE_S = 30.0


@asynccontextmanager
async def joined(folder: Path) -> AsyncIterator[tuple[Publisher, TipNotices]]:
    """A publisher and the notices connected to it."""
    address = f"ipc://{folder}/zmq"
    with Publisher(address) as publisher:
        async with TipNotices.subscribed([address]) as notices:
            await publisher.subscribed()
            yield publisher, notices


async def until(notices: TipNotices, received: int) -> None:
    """Wait until a number of messages has arrived, valid or malformed."""
    async with asyncio.timeout(PATIENCE_S):
        while notices.received + notices.malformed < received:  # noqa: ASYNC110  the counters tell, and no event
            await asyncio.sleep(0.001)


async def test_only_changes_of_the_chain_wake(tmp_path: Path) -> None:
    raw = paid_chain().blocks[5]
    async with joined(tmp_path) as (publisher, notices):
        for number, (topic, body, wakes) in enumerate(
            [
                ("sequence", bytes(32) + b"C", True),
                ("sequence", bytes(32) + b"A" + bytes(8), False),
                ("sequence", bytes(32) + b"D", True),
                ("sequence", bytes(32) + b"R" + bytes(8), False),
                ("rawblock", raw, True),
                ("hashblock", bytes(32), True),
                ("sequence", b"C", False),
            ],
            1,
        ):
            await publisher.send(topic, body)
            await until(notices, number)
            assert await notices.wait(PATIENCE_S if wakes else 0.001) == wakes, (topic, body[-9:])
        assert notices.block(bytes(32)) is None
        assert notices.block(block_hash(raw)) == raw
        assert notices.block(block_hash(raw)) is None  # a block is returned once
        assert (notices.received, notices.lost, notices.malformed) == (7, 0, 0)


async def test_a_gap_wakes_and_is_counted(tmp_path: Path) -> None:
    async with joined(tmp_path) as (publisher, notices):
        added = bytes(32) + b"A" + bytes(8)
        await publisher.send("sequence", added)
        publisher.lose("sequence", 3)
        await publisher.send("sequence", added)
        assert await notices.wait(PATIENCE_S)
        assert notices.lost == 3
        publisher.counters["sequence"] = 0  # the node was restarted
        await publisher.send("sequence", added)
        assert await notices.wait(PATIENCE_S)
        assert notices.lost == 3
        publisher.counters["sequence"] = (1 << 32) - 1  # the counter wraps around
        await publisher.send("sequence", added)
        await until(notices, 4)
        await publisher.send("sequence", added)
        await until(notices, 5)
        assert notices.lost == 3 + (1 << 32) - 2


async def test_a_malformed_notice_is_counted_and_does_not_wake(tmp_path: Path) -> None:
    async with joined(tmp_path) as (publisher, notices):
        for parts in (
            [b"sequence"],
            [b"rawblock", b"x"],
            [b"rawblock", b"x", b"123"],
            [b"rawblock2", b"", bytes(4)],
            [b"sequence"] * 9,
        ):
            await publisher.send_parts(parts)
        await until(notices, 5)
        assert (notices.received, notices.malformed) == (0, 5)
        assert not await notices.wait(0.001)


async def test_only_a_few_published_blocks_are_kept(tmp_path: Path) -> None:
    blocks = paid_chain().blocks[1:11]
    async with joined(tmp_path) as (publisher, notices):
        for raw in blocks:
            await publisher.send("rawblock", raw)
        await until(notices, len(blocks))
        kept = [raw for raw in blocks if notices.block(block_hash(raw))]
        assert kept == list(blocks[-4:])


async def test_an_oversized_message_disconnects_the_publisher(tmp_path: Path) -> None:
    async with joined(tmp_path) as (publisher, notices):
        await publisher.send("rawblock", bytes(MAX_BLOCK_SIZE))
        assert await notices.wait(PATIENCE_S)
        await publisher.send("rawblock", bytes(MAX_BLOCK_SIZE + 1))
        await publisher.subscribed(b"\x00")
        assert (notices.received, notices.malformed) == (1, 0)


async def test_notices_wait_for_a_late_publisher(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/zmq"
    async with TipNotices.subscribed([address]) as notices:
        assert not await notices.wait(0.001)
        with Publisher(address) as publisher:
            await publisher.subscribed()
            await publisher.send("hashblock", bytes(32))
            assert await notices.wait(PATIENCE_S)


async def test_notices_come_over_tcp_from_two_addresses(tmp_path: Path) -> None:
    with Publisher("tcp://127.0.0.1:*") as one, Publisher(f"ipc://{tmp_path}/zmq") as other:
        async with TipNotices.subscribed([one.address, other.address]) as notices:
            for number, publisher in enumerate((one, other), 1):
                await publisher.subscribed()
                await publisher.send("hashblock", bytes(32))
                await until(notices, number)
        assert notices.received == 2


@pytest.mark.parametrize(
    "address",
    [
        "",
        "127.0.0.1:28332",
        "tcp://*:28332",
        "udp://127.0.0.1:1",
        "inproc://x",
        "tcp://a b:1",
        "tcp://127.0.0.1:99999",
        "pgm://x",
    ],
)
async def test_a_bad_address_is_refused(address: str) -> None:
    with pytest.raises(ParameterError):
        async with TipNotices.subscribed([address]):
            pass


async def test_a_missing_address_or_pyzmq_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ParameterError, match="at least one address"):
        async with TipNotices.subscribed([]):
            pass
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ParameterError, match=r"run `python -m pip install .*extra `zmq`"):
        async with TipNotices.subscribed(["tcp://127.0.0.1:1"]):
            pass
