"""Announcements of the embedded node: blocks by headers or inv, transactions by inv, as in Core's SendMessages."""

from __future__ import annotations

import struct

import pytest

from spvfilter.node.regtest import FEE, Regtest
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from support.peers.nodeclient import (
    BLOCK,
    TX,
    WTX,
    Client,
    client,
    connection,
    inventory,
    locate,
    parse_headers,
    version_payload,
)

LOCK = p2wpkh(b"\x03" + bytes(32))


def regtest(blocks: int) -> Regtest:
    made = Regtest(clock=lambda: 1_700_000_000)
    made.mine(blocks)
    return made


async def sync(peer: Client, made: Regtest) -> None:
    """Fetch the headers up to the tip. The node then knows that the peer has them."""
    await peer.ask("getheaders", locate([made.chain.tip.hash]))


def inv_of_tip(made: Regtest) -> tuple[str, bytes]:
    return ("inv", inventory((BLOCK, made.chain.tip.hash)))


def headers_from(made: Regtest, height: int) -> list[bytes]:
    return [block.raw[:80] for block in made.chain.active[height:]]


async def test_blocks_are_announced_by_inv_without_sendheaders() -> None:
    made = regtest(3)
    async with Node(made) as node, client(node) as peer:
        await sync(peer, made)
        made.mine()
        assert await peer.answers() == [inv_of_tip(made)]
        await sync(peer, made)
        await peer.ask("sendheaders")
        made.mine()
        ((command, payload),) = await peer.answers()
        assert (command, parse_headers(payload)) == ("headers", headers_from(made, 5))
        made.mine()  # announced blocks count as known
        ((command, payload),) = await peer.answers()
        assert (command, parse_headers(payload)) == ("headers", headers_from(made, 6))


async def test_sendheaders_may_come_before_verack() -> None:
    made = regtest(3)
    async with Node(made) as node, client(node, "sendheaders") as peer:
        await sync(peer, made)
        made.mine()
        assert [command for command, _ in await peer.answers()] == ["headers"]


async def test_an_inv_is_sent_to_a_peer_without_the_parent() -> None:
    made = regtest(3)
    async with Node(made) as node, client(node, "sendheaders") as peer:
        made.mine()
        assert await peer.answers() == [inv_of_tip(made)]
        await peer.ask("getheaders", locate([made.chain.active[0].hash], made.chain.active[2].hash))  # knows up to 2
        made.mine()
        assert await peer.answers() == [inv_of_tip(made)]


@pytest.mark.parametrize(("blocks", "command"), [(2, "headers"), (8, "headers"), (9, "inv"), (50, "inv")])
async def test_up_to_8_blocks_at_once_are_announced_by_headers(blocks: int, command: str) -> None:
    made = regtest(3)
    async with Node(made) as node, client(node, "sendheaders") as peer:
        await sync(peer, made)
        made.mine(blocks)
        ((told, payload),) = await peer.answers()
        assert told == command
        if command == "headers":
            assert parse_headers(payload) == headers_from(made, 4)
        else:
            assert (told, payload) == inv_of_tip(made)


@pytest.mark.parametrize(("depth", "command"), [(1, "headers"), (7, "headers"), (8, "inv"), (20, "inv")])
async def test_a_reorganization_is_announced_by_headers_from_the_fork(depth: int, command: str) -> None:
    made = regtest(30)
    async with Node(made) as node, client(node, "sendheaders") as peer:
        await sync(peer, made)
        made.reorg(depth)
        ((told, payload),) = await peer.answers()
        assert told == command
        if command == "headers":
            assert parse_headers(payload) == headers_from(made, 31 - depth)
        else:
            assert (told, payload) == inv_of_tip(made)


async def test_blocks_that_became_stale_meanwhile_are_announced_by_inv() -> None:
    made = regtest(5)
    async with Node(made) as node, client(node, "sendheaders") as peer:
        await sync(peer, made)
        made.mine()
        made.reorg(1)
        assert await peer.answers() == [inv_of_tip(made)]


async def test_a_peer_that_requested_a_block_gets_no_announcement() -> None:
    made = regtest(5)
    async with Node(made) as node, client(node, "sendheaders") as peer:
        await sync(peer, made)
        made.mine()
        assert len(await peer.answers()) == 1
        assert await peer.answers() == []


async def test_only_blocks_of_the_handshakes_time_are_announced() -> None:
    made = regtest(105)
    async with Node(made) as node, connection(node) as peer:
        await peer.send("version", version_payload())
        assert (await peer.receive())[0] == "version"
        made.mine()
        made.pay(LOCK.pays(5))
        await peer.send("verack")
        assert [(await peer.receive())[0] for _ in range(3)] == ["wtxidrelay", "sendaddrv2", "verack"]
        assert await peer.answers() == [inv_of_tip(made)]


@pytest.mark.parametrize("wtxidrelay", [False, True])
async def test_transactions_are_announced_once_by_the_negotiated_hash(wtxidrelay: bool) -> None:
    made = regtest(101)
    async with Node(made) as node, client(node, *(["wtxidrelay"] * wtxidrelay)) as peer:
        first = made.find_tx(made.pay(LOCK.pays(5)))
        second = made.find_tx(made.pay(LOCK.pays(5)))
        assert first is not None
        assert second is not None
        items = [(WTX, tx.wtxid) if wtxidrelay else (TX, tx.txid) for tx in (first, second)]
        assert await peer.answers() == [("inv", inventory(*items))]
        assert await peer.answers() == []


async def test_block_and_transactions_share_an_inv() -> None:
    made = regtest(101)
    async with Node(made) as node, client(node) as peer:
        confirmed = made.pay(LOCK.pays(5))
        made.mine()
        pending = made.pay(LOCK.pays(5))
        assert await peer.answers() == [("inv", inventory((BLOCK, made.chain.tip.hash), (TX, pending)))]
        assert confirmed not in made.mempool


async def test_without_relay_only_blocks_are_announced() -> None:
    made = regtest(101)
    async with Node(made) as node, client(node, relay=False) as peer:
        made.pay(LOCK.pays(5))
        assert await peer.answers() == []
        made.mine()
        assert await peer.answers() == [inv_of_tip(made)]


async def test_transactions_below_the_peers_fee_rate_are_skipped() -> None:
    made = regtest(101)
    async with Node(made) as node, client(node) as peer:
        tx = made.find_tx(made.pay(LOCK.pays(5)))
        assert tx is not None
        exact = FEE * 1_000 // tx.virtual_size
        await peer.answers()
        await peer.ask("feefilter", struct.pack("<q", exact))
        told = made.pay(LOCK.pays(6))
        assert await peer.answers() == [("inv", inventory((TX, told)))]
        await peer.ask("feefilter", struct.pack("<q", exact + 10))
        made.pay(LOCK.pays(7))
        assert await peer.answers() == []
        assert await peer.ask("mempool") == []
        await peer.ask("feefilter", struct.pack("<q", 0))
        assert len(await peer.ask("mempool")) == 1


async def test_transactions_of_a_disconnected_block_are_not_announced() -> None:
    made = regtest(101)
    async with Node(made) as node, client(node) as peer:
        made.pay(LOCK.pays(5))
        made.mine()
        await peer.answers()
        made.reorg(1)
        assert len(made.mempool) == 1
        assert await peer.answers() == [inv_of_tip(made)]


async def test_two_nodes_serve_one_chain() -> None:
    made = regtest(101)
    async with Node(made) as one, Node(made) as two, client(one) as ours, client(two) as theirs:
        assert one.port != two.port
        paid = made.pay(LOCK.pays(5))
        for peer in (ours, theirs):
            assert await peer.answers() == [("inv", inventory((TX, paid)))]
