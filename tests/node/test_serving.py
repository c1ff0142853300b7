"""The embedded node over a socket: handshake, headers, inventories, blocks and transactions, and ignored requests."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from spvfilter.hashes import sha256d
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.wire.events import Service
from spvfilter.wire.messages.table import GetHeaders
from support.blocks.build import stripped, txid, wtxid
from support.peers.nodeclient import (
    BLOCK,
    COMPACT_BLOCK,
    FILTERED_BLOCK,
    TX,
    WITNESS_BLOCK,
    WITNESS_TX,
    WTX,
    client,
    connection,
    inventory,
    locate,
    message,
    parse_headers,
    parse_inventory,
    version_payload,
)

GENESIS = REGTEST.genesis_hash
LOCK = p2wpkh(b"\x03" + bytes(32))
PLAIN = replace(SETTINGS, services=SERVICES & ~Service.P2P_V2)  # without encrypted connections
UNKNOWN = b"\xee" * 32


def regtest(blocks: int) -> Regtest:
    made = Regtest(clock=lambda: 1_700_000_000)
    made.mine(blocks)
    return made


def hashes(made: Regtest, start: int, end: int) -> list[bytes]:
    """The hashes from height `start` to `end`, both included."""
    return [block.hash for block in made.chain.active[start : end + 1]]


def headers(made: Regtest, start: int, end: int) -> list[bytes]:
    return [block.raw[:80] for block in made.chain.active[start : end + 1]]


async def test_the_handshake_states_services_height_and_relay() -> None:
    async with Node(regtest(7)) as node, client(node) as peer:
        commands = [command for command, _ in peer.greeting]
        assert commands == ["version", "wtxidrelay", "sendaddrv2", "verack"]
        payload = peer.greeting[0][1]
        version, services = struct.unpack("<iQ", payload[:12])
        assert (version, services) == (70016, SERVICES)
        assert SERVICES & ~Service.P2P_V2 == 1 | 4 | 8 | 64
        assert payload[81:].startswith(b"/spvfilter:")
        assert struct.unpack("<i?", payload[-5:]) == (7, True)


async def test_an_older_peer_gets_no_newer_messages() -> None:
    async with Node() as node, client(node, version=70015) as peer:
        assert [command for command, _ in peer.greeting] == ["version", "verack"]


async def test_requests_before_the_handshake_get_no_response() -> None:
    async with Node(regtest(3), settings=PLAIN) as node, connection(node) as peer:
        await peer.send("getheaders", locate([GENESIS]))
        await peer.send("version", version_payload())
        await peer.send("getheaders", locate([GENESIS]))
        await peer.send("mempool")
        await peer.send("verack")
        assert [(await peer.receive())[0] for _ in range(4)] == ["version", "wtxidrelay", "sendaddrv2", "verack"]
        assert await peer.answers() == []


# Headers


@pytest.mark.parametrize(
    ("locator", "start"),
    [([0], 1), ([3], 4), ([5], 6), ([None, 2, 0], 3), ([None], 1), ([4, 2], 5)],
)
async def test_headers_begin_after_the_first_known_hash(locator: list[int | None], start: int) -> None:
    made = regtest(5)
    async with Node(made) as node, client(node) as peer:
        payload = locate([UNKNOWN if height is None else hashes(made, height, height)[0] for height in locator])
        ((command, answer),) = await peer.ask("getheaders", payload)
        assert command == "headers"
        assert parse_headers(answer) == headers(made, start, 5)


async def test_headers_end_after_2000_or_at_the_stop_hash() -> None:
    made = regtest(2_005)
    async with Node(made) as node, client(node) as peer:
        ((_, answer),) = await peer.ask("getheaders", locate([GENESIS]))
        assert parse_headers(answer) == headers(made, 1, 2_000)
        ((_, answer),) = await peer.ask("getheaders", locate(hashes(made, 2_000, 2_000)))
        assert parse_headers(answer) == headers(made, 2_001, 2_005)
        ((_, answer),) = await peer.ask("getheaders", locate([GENESIS], hashes(made, 3, 3)[0]))
        assert parse_headers(answer) == headers(made, 1, 3)
        ((_, answer),) = await peer.ask(
            "getheaders", locate(hashes(made, 9, 9), hashes(made, 3, 3)[0])
        )  # the stop hash is below the locator
        assert parse_headers(answer) == headers(made, 10, 2_005)


async def test_without_a_locator_only_the_stop_header_is_sent() -> None:
    made = regtest(5)
    stale = made.mine(on=hashes(made, 3, 3)[0])[0]
    async with Node(made) as node, client(node) as peer:
        ((_, answer),) = await peer.ask("getheaders", locate([], hashes(made, 2, 2)[0]))
        assert parse_headers(answer) == headers(made, 2, 2)
        ((_, answer),) = await peer.ask("getheaders", locate([], stale))
        assert parse_headers(answer) == [made.chain.blocks[stale].raw[:80]]
        assert await peer.ask("getheaders", locate([], UNKNOWN)) == []


async def test_at_the_tip_headers_are_empty() -> None:
    made = regtest(2)
    async with Node(made) as node, client(node) as peer:
        assert await peer.ask("getheaders", locate(hashes(made, 2, 2))) == [("headers", b"\0")]


async def test_a_locator_may_have_101_hashes_but_not_102() -> None:
    made = regtest(2)
    for command in ("getheaders", "getblocks"):
        async with Node(made) as node, client(node) as peer:
            assert len(await peer.ask(command, locate([UNKNOWN] * 100 + [GENESIS]))) == 1
            await peer.send(command, locate([UNKNOWN] * 101 + [GENESIS]))
            assert await peer.is_cut()


# getblocks


async def test_getblocks_continues_after_the_last_of_500_blocks() -> None:
    made = regtest(1_003)
    async with Node(made) as node, client(node) as peer:
        ((command, answer),) = await peer.ask("getblocks", locate([GENESIS]))
        assert command == "inv"
        assert parse_inventory(answer) == [(BLOCK, block_hash) for block_hash in hashes(made, 1, 500)]
        got = await peer.ask("getdata", inventory((BLOCK, hashes(made, 499, 499)[0])))
        assert [command for command, _ in got] == ["block"]
        got = await peer.ask("getdata", inventory((BLOCK, hashes(made, 500, 500)[0])))
        assert got[1:] == [("inv", inventory((BLOCK, made.chain.tip.hash)))]
        got = await peer.ask("getdata", inventory((BLOCK, hashes(made, 500, 500)[0])))
        assert [command for command, _ in got] == ["block"]  # once only
        ((_, answer),) = await peer.ask("getblocks", locate(hashes(made, 1_000, 1_000)))
        assert parse_inventory(answer) == [(BLOCK, block_hash) for block_hash in hashes(made, 1_001, 1_003)]
        got = await peer.ask("getdata", inventory((BLOCK, made.chain.tip.hash)))
        assert [command for command, _ in got] == ["block"]  # the answer was not full


async def test_the_continuation_also_follows_filtered_blocks() -> None:
    made = regtest(501)
    async with Node(made) as node, client(node, relay=False) as peer:
        await peer.ask("filterload", b"\x01\x00\x01\0\0\0\0\0\0\0\0")
        await peer.ask("getblocks", locate([GENESIS]))
        got = await peer.ask("getdata", inventory((FILTERED_BLOCK, hashes(made, 500, 500)[0])))
        assert got[-1] == ("inv", inventory((BLOCK, made.chain.tip.hash)))


async def test_getblocks_excludes_the_stop_hash() -> None:
    made = regtest(5)
    async with Node(made) as node, client(node) as peer:
        ((_, answer),) = await peer.ask("getblocks", locate([GENESIS], hashes(made, 4, 4)[0]))
        assert parse_inventory(answer) == [(BLOCK, block_hash) for block_hash in hashes(made, 1, 3)]
        assert await peer.ask("getblocks", locate([made.chain.tip.hash])) == []
        assert await peer.ask("getblocks", locate([GENESIS], hashes(made, 1, 1)[0])) == []


# Blocks


async def test_blocks_are_served_with_and_without_witness() -> None:
    made = regtest(101)
    made.pay(LOCK.pays(5))
    made.mine()
    tip = made.chain.tip
    async with Node(made) as node, client(node) as peer:
        got = await peer.ask(
            "getdata", inventory((WITNESS_BLOCK, tip.hash), (BLOCK, tip.hash), (COMPACT_BLOCK, tip.hash))
        )
        assert [command for command, _ in got] == ["block"] * 3
        assert got[0][1] == got[2][1] == tip.raw
        coinbase, payment = made.chain.txs(tip)
        assert got[1][1] == tip.raw[:80] + b"\x02" + stripped(coinbase.raw) + stripped(payment.raw)
        assert len(got[1][1]) < len(tip.raw)
        ((_, genesis),) = await peer.ask("getdata", inventory((BLOCK, GENESIS)))
        assert genesis == made.chain.active[0].raw


async def test_requests_for_unknown_blocks_get_no_response() -> None:
    made = regtest(2)
    tip = made.chain.tip.hash
    async with Node(made) as node, client(node) as peer:
        wanted = [
            (BLOCK, UNKNOWN),
            (WITNESS_BLOCK, UNKNOWN),
            (FILTERED_BLOCK, UNKNOWN),
            (FILTERED_BLOCK, tip),
            (0x40000003, tip),
            (77, tip),
        ]
        assert await peer.ask("getdata", inventory(*wanted)) == []
        assert [command for command, _ in await peer.ask("getdata", inventory(*wanted, (BLOCK, tip)))] == ["block"]


async def test_stale_blocks_are_served() -> None:
    made = regtest(3)
    stale = made.chain.tip
    made.reorg(1)
    async with Node(made) as node, client(node) as peer:
        assert await peer.ask("getdata", inventory((WITNESS_BLOCK, stale.hash))) == [("block", stale.raw)]


# Transactions


async def test_transactions_are_served_from_mempool_and_last_block() -> None:
    made = regtest(101)
    confirmed = made.pay(LOCK.pays(5))
    made.mine()
    pending = made.pay(LOCK.pays(6))
    async with Node(made) as node, client(node) as peer:
        for digest in (confirmed, pending):
            tx = made.find_tx(digest)
            assert tx is not None
            got = await peer.ask("getdata", inventory((TX, digest), (WITNESS_TX, digest), (WTX, tx.wtxid)))
            assert got == [("tx", stripped(tx.raw)), ("tx", tx.raw), ("tx", tx.raw)]
        made.mine()
        got = await peer.ask("getdata", inventory((WITNESS_TX, confirmed), (WITNESS_TX, pending)))
        assert [command for command, _ in got] == ["inv", "tx", "notfound"]
        assert got[2][1] == inventory((WITNESS_TX, confirmed))


async def test_notfound_lists_unknown_items_as_requested() -> None:
    async with Node() as node, client(node) as peer:
        wanted = [(TX, UNKNOWN), (WITNESS_TX, GENESIS), (WTX, UNKNOWN)]
        assert await peer.ask("getdata", inventory(*wanted)) == [("notfound", inventory(*wanted))]


async def test_50000_items_are_answered_but_50001_end_the_connection() -> None:
    async with Node() as node, client(node) as peer:
        got = await peer.ask("getdata", inventory(*[(TX, UNKNOWN)] * 50_000))
        assert {command for command, _ in got} == {"notfound"}
        assert sum(len(parse_inventory(payload)) for _, payload in got) == 50_000
        await peer.send("getdata", inventory(*[(TX, UNKNOWN)] * 50_001))
        assert await peer.is_cut()


@pytest.mark.parametrize("wtxidrelay", [False, True])
async def test_an_announced_transaction_is_fetched_and_relayed(wtxidrelay: bool) -> None:
    made = regtest(101)
    raw = build_tx([made.lock.spends(OutPoint(made.chain.active[1].txids[0], 0))], [TxOut(1, LOCK.script_pubkey)])
    announced, fetched = (
        ((WTX, wtxid(raw)), (WTX, wtxid(raw))) if wtxidrelay else ((TX, txid(raw)), (WITNESS_TX, txid(raw)))
    )
    async with Node(made) as node, client(node, *(["wtxidrelay"] * wtxidrelay)) as sender, client(node) as other:
        assert await sender.ask("inv", inventory(announced)) == [("getdata", inventory(fetched))]
        assert await sender.ask("tx", raw) == []  # it is not announced to its sender
        assert await other.answers() == [("inv", inventory((TX, txid(raw))))]
        assert txid(raw) in made.mempool
        assert await sender.ask("inv", inventory(announced)) == []  # known
        assert await other.ask("getdata", inventory((WITNESS_TX, txid(raw)))) == [("tx", raw)]
        wrong = (TX, UNKNOWN) if wtxidrelay else (WTX, UNKNOWN)
        assert await sender.ask("inv", inventory(wrong)) == []  # the other hash type was negotiated (BIP-339)


async def test_an_invalid_transaction_is_dropped_silently() -> None:
    made = regtest(101)
    async with Node(made) as node, client(node) as peer, client(node) as other:
        raw = build_tx([made.lock.spends(OutPoint(UNKNOWN, 0))], [TxOut(1, LOCK.script_pubkey)])
        assert await peer.ask("tx", raw) == []
        assert await peer.ask("tx", raw[:-1]) == []
        assert await other.answers() == []
        assert len(made.mempool) == 0


# Silence


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        ("getaddr", b""),
        ("sendheaders", b""),
        ("sendcmpct", b"\0\2\0\0\0\0\0\0\0"),
        ("feefilter", bytes(8)),
        ("addr", b"\0"),
        ("headers", b"\0"),
        ("notfound", b"\0"),
        ("inv", b"\0"),
        ("getdata", b"\0"),
        ("pong", bytes(8)),
        ("version", version_payload()),
        ("verack", b""),
        ("mempool", b""),
        ("nonsense", b"junk"),
        ("getheaders", b"\0"),
        ("tx", b"\xff"),
    ],
)
async def test_the_node_ignores_the_same_messages_as_core(command: str, payload: bytes) -> None:
    async with Node(regtest(2)) as node, client(node) as peer:
        assert await peer.ask(command, payload) == []
        assert len(await peer.ask("getheaders", locate([GENESIS]))) == 1


async def test_a_message_with_a_wrong_checksum_is_dropped() -> None:
    async with Node(regtest(2)) as node, client(node) as peer:
        await peer.send_bytes(message("getheaders", locate([GENESIS]), checksum=b"bad!"))
        assert await peer.answers() == []


@pytest.mark.parametrize("command", ["wtxidrelay", "sendaddrv2"])
async def test_negotiation_after_verack_ends_the_connection(command: str) -> None:
    async with Node() as node, client(node) as peer:
        await peer.send(command)
        assert await peer.is_cut()


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        ("feature", b""),
        ("getdata", b"\xfd\x51\xc3" + bytes(36 * 50_001)),
        ("headers", b"\xfd\xd1\x07" + bytes(81 * 2_001)),
        ("getblocks", locate([UNKNOWN] * 102)),
        ("filteradd", b"\xfd\x09\x02" + bytes(521)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_messages_that_core_punishes_end_the_connection(command: str, payload: bytes) -> None:
    async with Node(regtest(2)) as node, client(node) as peer:
        await peer.send(command, payload)
        assert await peer.is_cut()


async def test_an_inv_with_too_many_items_is_ignored() -> None:
    async with Node(regtest(2)) as node, client(node) as peer:
        assert await peer.ask("inv", b"\xfd\x51\xc3" + bytes(36 * 50_001)) == []
        assert await peer.ask("getdata", inventory((TX, UNKNOWN))) == [("notfound", inventory((TX, UNKNOWN)))]


def header_list(*raws: bytes) -> bytes:
    """Return the payload of a headers message."""
    return bytes([len(raws)]) + b"".join(raw + b"\0" for raw in raws)


async def test_headers_must_have_work_and_a_known_order() -> None:
    made = regtest(3)
    good = headers(made, 1, 3)
    easy = good[0][:72] + bytes.fromhex("ffff7f22") + good[0][76:]  # a target above the limit
    weak = next(raw for nonce in range(99) if sha256d(raw := good[0][:76] + bytes([nonce, 0, 0, 0]))[31] > 0x7F)
    for payload in (header_list(easy), header_list(weak), header_list(good[0], good[2])):
        async with Node(made) as node, client(node) as peer:
            await peer.send("headers", payload)
            assert await peer.is_cut()
    async with Node(made) as node, client(node) as peer:
        assert await peer.ask("headers", header_list(*good)) == []
        assert await peer.ask("headers", header_list()) == []


def longer(made: Regtest, count: int) -> Regtest:
    """A chain that continues another one."""
    other = Regtest(clock=lambda: 1_700_000_500)
    for block in made.chain.active[1:]:
        other.submit_block(block.raw)
    other.mine(count)
    return other


async def test_announced_blocks_are_fetched_some_at_a_time() -> None:
    made = regtest(3)
    other = longer(made, 20)
    blocks = [block.raw for block in other.chain.active[4:]]
    async with Node(made) as node, client(node) as peer:
        asked = await peer.ask("headers", header_list(*(raw[:80] for raw in blocks)))
        assert asked == [("getdata", inventory(*((WITNESS_BLOCK, sha256d(raw[:80])) for raw in blocks[:16])))]
        assert await peer.ask("block", other.chain.tip.raw) == []  # it was not requested yet
        assert made.height == 3
        asked = [each for raw in blocks[:16] for each in await peer.ask("block", raw)]
        assert asked == [("getdata", inventory((WITNESS_BLOCK, sha256d(raw[:80])))) for raw in blocks[16:]]
        for raw in blocks[16:]:
            assert await peer.ask("block", raw) == []  # and it is not announced to its sender
    assert made.chain.tip.hash == other.chain.tip.hash


async def test_an_inv_of_an_unknown_block_is_answered_by_getheaders() -> None:
    made = regtest(3)
    other = longer(made, 1)
    tip = other.chain.tip
    async with Node(made) as node, client(node) as peer:
        ((command, payload),) = await peer.ask("inv", inventory((BLOCK, tip.hash)))
        assert command == "getheaders"
        assert GetHeaders.parse(payload).stop_hash == tip.hash
        assert await peer.ask("inv", inventory((BLOCK, made.chain.tip.hash))) == []


async def test_an_invalid_block_ends_the_connection_of_its_sender() -> None:
    made = regtest(3)
    tip = longer(made, 1).chain.tip
    async with Node(made) as node, client(node) as peer:
        assert await peer.ask("headers", header_list(tip.raw[:80]))
        await peer.send("block", tip.raw[:81] + bytes(len(tip.raw) - 81))
        assert await peer.is_cut()
    assert made.height == 3


async def test_headers_of_an_unknown_parent_are_answered_by_getheaders() -> None:
    made, other = regtest(30), Regtest(clock=lambda: 1_700_000_500)
    other.mine(2)
    async with Node(made) as node, client(node) as peer:
        ((command, payload),) = await peer.ask("headers", header_list(other.chain.tip.raw[:80]))
    asked = GetHeaders.parse(payload)
    assert (command, asked.locator[:2], asked.locator[-1]) == ("getheaders", tuple(hashes(made, 29, 30)[::-1]), GENESIS)
    assert len(asked.locator) < 20
    assert asked.stop_hash == bytes(32)


async def test_filtered_blocks_need_node_bloom() -> None:
    settings = replace(SETTINGS, services=SETTINGS.services & ~Service.BLOOM)
    made = regtest(2)
    async with Node(made, settings=settings) as node, client(node) as peer:
        assert len(await peer.ask("getdata", inventory((BLOCK, hashes(made, 1, 1)[0])))) == 1
        await peer.send("getdata", inventory((FILTERED_BLOCK, hashes(made, 1, 1)[0])))
        assert await peer.is_cut()


async def test_another_networks_magic_ends_the_connection() -> None:
    async with Node(settings=PLAIN) as node, connection(node) as peer:
        await peer.send_bytes(b"\xf9\xbe\xb4\xd9" + bytes(20))
        assert await peer.reader.read() == b""


async def test_a_half_closed_connection_still_gets_its_response() -> None:
    made = regtest(2)
    async with Node(made) as node, client(node) as peer:
        await peer.send("getheaders", locate([GENESIS]))
        peer.writer.write_eof()
        command, payload = await peer.receive()
        assert (command, parse_headers(payload)) == ("headers", headers(made, 1, 2))
        assert await peer.reader.read() == b""
