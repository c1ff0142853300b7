"""Compact filters from the embedded node over a socket: answered, refused and ignored requests as in Core (BIP-157)."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from spvfilter.filters.bip158 import BasicFilter
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import op_return, p2tr, p2wpkh
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.wire.events import Service
from support.blocks.build import sha256d, var_bytes, var_int
from support.peers.nodeclient import client

OURS = p2wpkh(b"\x02" + bytes(32))


def regtest(blocks: int) -> Regtest:
    made = Regtest(clock=lambda: 1_700_000_000)
    made.mine(blocks)
    return made


def asks(start: int, stop: bytes, kind: int = 0) -> bytes:
    """Payload of getcfilters and getcfheaders."""
    return struct.pack("<BI", kind, start) + stop


def data_of(block: TreeBlock) -> bytes:
    assert block.spent is not None
    return bytes(BasicFilter.build(block.raw, [coin.script_pubkey for coin in block.spent.values()]))


def headers_of(blocks: list[TreeBlock]) -> list[bytes]:
    """The filter headers of blocks from genesis on."""
    headers = [bytes(32)]
    for block in blocks:
        headers.append(sha256d(sha256d(data_of(block)) + headers[-1]))
    return headers[1:]


def busy() -> Regtest:
    """Payments of several kinds, spent and unspent, some in the block that made them."""
    made = regtest(110)
    for number in range(6):
        made.pay(OURS.pays(50_000), op_return(b"x").pays(0), p2tr(bytes(31) + b"\1").pays(7_000))
        if number % 2:
            made.mine()
    return made


async def test_filters_are_served_in_order_one_message_each() -> None:
    made = busy()
    async with Node(made) as node, client(node) as peer:
        answers = await peer.ask("getcfilters", asks(0, made.chain.tip.hash))
        assert answers == [("cfilter", b"\0" + block.hash + var_bytes(data_of(block))) for block in made.chain.active]
        assert BasicFilter.parse(data_of(made.chain.tip), made.chain.tip.hash).match(OURS.script_pubkey)
        (last,) = await peer.ask("getcfilters", asks(made.height, made.chain.tip.hash))
        assert last == answers[-1]


async def test_filter_headers_commit_to_the_previous_header() -> None:
    made = busy()
    headers = headers_of(made.chain.active)
    async with Node(made) as node, client(node) as peer:
        hashes = [sha256d(data_of(block)) for block in made.chain.active]
        for start in (0, 1, 50, made.height):
            (answer,) = await peer.ask("getcfheaders", asks(start, made.chain.tip.hash))
            before = headers[start - 1] if start else bytes(32)
            expected = b"\0" + made.chain.tip.hash + before + var_int(len(hashes) - start) + b"".join(hashes[start:])
            assert answer == ("cfheaders", expected)


async def test_checkpoints_are_the_headers_of_every_thousandth_block() -> None:
    made = regtest(2_001)
    headers = headers_of(made.chain.active)
    async with Node(made) as node, client(node) as peer:
        for height, heights in (
            (2_001, (1_000, 2_000)),
            (2_000, (1_000, 2_000)),
            (1_999, (1_000,)),
            (999, ()),
            (0, ()),
        ):
            stop = made.chain.active[height].hash
            (answer,) = await peer.ask("getcfcheckpt", b"\0" + stop)
            assert answer == (
                "cfcheckpt",
                b"\0" + stop + var_int(len(heights)) + b"".join(headers[at] for at in heights),
            )


async def test_stale_branches_are_served_as_long_as_in_core() -> None:
    made = busy()
    old = list(made.chain.active)
    made.reorg(2)
    async with Node(made) as node, client(node) as peer:
        (answer,) = await peer.ask("getcfheaders", asks(len(old) - 3, old[-1].hash))
        assert answer[1].endswith(b"".join(sha256d(data_of(block)) for block in old[-3:]))
        assert len(await peer.ask("getcfilters", asks(0, old[-1].hash))) == len(old)


async def test_a_block_outside_the_best_chain_has_no_filter() -> None:
    made = regtest(5)
    (aside,) = made.mine(on=made.chain.active[2].hash)
    async with Node(made) as node, client(node) as peer:
        assert await peer.ask("getcfilters", asks(0, aside)) == []
        assert await peer.ask("getcfcheckpt", b"\0" + aside) == []
        assert len(await peer.ask("getcfilters", asks(0, made.chain.tip.hash))) == 6


@pytest.mark.parametrize("command", ["getcfilters", "getcfheaders", "getcfcheckpt"])
@pytest.mark.parametrize("kind", [1, 255])
async def test_an_unknown_type_ends_the_connection(command: str, kind: int) -> None:
    made = regtest(3)
    payload = asks(0, made.chain.tip.hash, kind)
    async with Node(made) as node, client(node) as peer:
        await peer.send(command, payload if command != "getcfcheckpt" else payload[:1] + payload[5:])
        assert await peer.is_cut()


@pytest.mark.parametrize("command", ["getcfilters", "getcfheaders", "getcfcheckpt"])
async def test_an_unknown_stop_hash_ends_the_connection(command: str) -> None:
    async with Node(regtest(3)) as node, client(node) as peer:
        await peer.send(command, asks(0, b"\xee" * 32) if command != "getcfcheckpt" else b"\0" + b"\xee" * 32)
        assert await peer.is_cut()


@pytest.mark.parametrize("command", ["getcfilters", "getcfheaders"])
async def test_a_start_above_the_stop_ends_the_connection(command: str) -> None:
    made = regtest(3)
    async with Node(made) as node, client(node) as peer:
        await peer.send(command, asks(4, made.chain.tip.hash))
        assert await peer.is_cut()


@pytest.mark.parametrize(("command", "most"), [("getcfilters", 1_000), ("getcfheaders", 2_000)])
async def test_a_range_has_cores_maximum(command: str, most: int) -> None:
    made = regtest(most)
    stop = made.chain.tip.hash
    async with Node(made) as node, client(node) as peer:
        answers = await peer.ask(command, asks(1, stop))
        assert len(answers) == (most if command == "getcfilters" else 1)
        await peer.send(command, asks(0, stop))
        assert await peer.is_cut()


async def test_a_node_without_compact_filters_ends_the_connection() -> None:
    made = regtest(3)
    settings = replace(SETTINGS, services=SERVICES & ~Service.COMPACT_FILTERS)
    async with Node(made, settings=settings) as node, client(node) as peer:
        await peer.send("getcfilters", asks(0, made.chain.tip.hash))
        assert await peer.is_cut()
