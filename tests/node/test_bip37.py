"""The embedded node's BIP-37: filtered blocks, the filter of each connection and its updates, relay, mempool, limits
and disconnections.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock, multisig, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.primitives import OutPoint, script_pushes
from spvfilter.signing import build_tx
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Service
from spvfilter.wire.messages.merkleblock import MerkleBlock
from support.blocks.build import stripped, txid, var_bytes
from support.peers.nodeclient import BLOCK, FILTERED_BLOCK, TX, Client, Received, client, inventory

KEY, OTHER = b"\x02" + b"\x11" * 32, b"\x03" + b"\x22" * 32
STRANGER = p2wpkh(b"\x02" + b"\x33" * 32)
LOCKS: dict[str, Lock] = {
    "p2pk": p2pk(KEY),
    "p2pkh": p2pkh(KEY),
    "p2sh": p2sh(multisig(1, [KEY, OTHER])),
    "p2wpkh": p2wpkh(KEY),
    "p2wsh": p2wsh(multisig(1, [KEY]).script_pubkey, (b"", b"signature")),
    "p2sh-p2wpkh": p2sh(p2wpkh(KEY)),
    "p2sh-p2wsh": p2sh(p2wsh(b"\x51")),
    "p2tr": p2tr(b"\x44" * 32),
    "multisig": multisig(2, [KEY, OTHER]),
}


def regtest(blocks: int = 105) -> Regtest:
    made = Regtest(clock=lambda: 1_700_000_000)
    made.mine(blocks)
    return made


def filter_of(*elements: bytes, flags: int = UpdateFlags.ALL) -> Bip37Filter:
    made = Bip37Filter(max(len(elements), 10), 1e-9, 7, flags)
    for element in elements:
        made.insert(element)
    return made


def filterload(data: bytes, hash_funcs: int = 5, flags: int = 1) -> bytes:
    return var_bytes(data) + struct.pack("<IIB", hash_funcs, 7, flags)


def element(lock: Lock) -> bytes:
    return max(script_pushes(lock.script_pubkey), key=len)


def matched(answer: Sequence[Received], block: bytes) -> list[bytes]:
    """The transactions after a merkleblock of the block. Checks that they are its proven transactions, in order."""
    (command, payload), *txs = answer
    assert command == "merkleblock"
    assert payload[:80] == block[:80]
    proof = MerkleBlock.parse(payload).verify()
    assert [command for command, _ in txs] == ["tx"] * len(txs)
    assert [tx.txid for tx in proof.matched] == [txid(raw) for _, raw in txs]
    return [raw for _, raw in txs]


async def filtered(peer: Client, made: Regtest, height: int | None = None) -> list[bytes]:
    block = made.chain.tip if height is None else made.chain.active[height]
    return matched(await peer.ask("getdata", inventory((FILTERED_BLOCK, block.hash))), block.raw)


# Filtered blocks


@pytest.mark.parametrize("kind", LOCKS)
async def test_receipt_and_spend_of_every_type_of_output_are_found(kind: str) -> None:
    lock, made = LOCKS[kind], regtest()
    for _ in range(3):
        made.pay(STRANGER.pays(5))
    paid = made.pay(lock.pays(50_000))
    made.mine()
    spend = build_tx([lock.spends(OutPoint(paid, 0))], [STRANGER.pays(40_000)])
    made.pay(STRANGER.pays(5))
    made.submit_tx(spend)
    made.mine()
    watch = WatchList("regtest")
    watch.add_script(lock.script_pubkey)
    async with Node(made) as node, client(node, relay=False) as peer:
        await peer.ask("filterload", bytes(Bip37Filter.for_watchlist(watch, 1e-9, decoy_key=bytes(16))))
        assert list(map(txid, await filtered(peer, made, 106))) == [paid]
        assert await filtered(peer, made, 107) == [stripped(spend)]  # it has learned the outpoint
        assert await filtered(peer, made, 105) == []


async def test_without_update_flags_a_witness_spend_is_not_matched() -> None:
    lock, made = LOCKS["p2wpkh"], regtest()
    paid = made.pay(lock.pays(50_000))
    made.mine()
    made.submit_tx(build_tx([lock.spends(OutPoint(paid, 0))], [STRANGER.pays(40_000)]))
    made.mine()
    async with Node(made) as node, client(node) as peer:
        await peer.ask("filterload", bytes(filter_of(element(lock), flags=UpdateFlags.NONE)))
        assert list(map(txid, await filtered(peer, made, 106))) == [paid]
        assert await filtered(peer, made, 107) == []
        await peer.ask("filteradd", var_bytes(paid + bytes(4)))
        assert len(await filtered(peer, made, 107)) == 1


@pytest.mark.parametrize(("kind", "found"), [("p2pk", 1), ("multisig", 1), ("p2wpkh", 0), ("p2pkh", 0)])
async def test_p2pubkey_only_learns_outpoints_of_bare_keys(kind: str, found: int) -> None:
    made = regtest()
    lock = replace(LOCKS[kind], script_sig=b"", witness=(b"no push of a key in the spend",))
    paid = made.pay(lock.pays(50_000))
    made.mine()
    made.submit_tx(build_tx([lock.spends(OutPoint(paid, 0))], [STRANGER.pays(40_000)]))
    made.mine()
    async with Node(made) as node, client(node) as peer:
        await peer.ask("filterload", bytes(filter_of(element(lock), flags=UpdateFlags.P2PUBKEY_ONLY)))
        assert len(await filtered(peer, made, 106)) == 1
        assert len(await filtered(peer, made, 107)) == found


async def test_chained_transactions_of_a_block_follow_the_learning_filter() -> None:
    lock, made = LOCKS["p2wpkh"], regtest()
    paid = made.pay(lock.pays(50_000))
    raw = build_tx([lock.spends(OutPoint(paid, 0))], [STRANGER.pays(40_000), lock.pays(5_000)])
    again = build_tx([lock.spends(OutPoint(txid(raw), 1))], [STRANGER.pays(4_000)])
    made.submit_tx(raw)
    made.submit_tx(again)
    made.mine()
    async with Node(made) as node, client(node) as peer:
        await peer.ask("filterload", bytes(filter_of(element(lock))))
        assert [txid(found) for found in await filtered(peer, made)] == [paid, txid(raw), txid(again)]


async def test_every_connection_has_its_own_filter() -> None:
    lock, made = LOCKS["p2tr"], regtest()
    paid = made.pay(lock.pays(50_000))
    made.mine()
    made.submit_tx(build_tx([lock.spends(OutPoint(paid, 0))], [STRANGER.pays(40_000)]))
    made.mine()
    async with Node(made) as node, client(node) as one, client(node) as two, client(node) as three:
        for peer in (one, two):
            await peer.ask("filterload", bytes(filter_of(element(lock))))
        assert len(await filtered(one, made, 106)) == 1
        assert len(await filtered(one, made, 107)) == 1
        assert await filtered(two, made, 107) == []  # it has not seen the receipt
        assert await three.ask("getdata", inventory((FILTERED_BLOCK, made.chain.tip.hash))) == []


async def test_a_filterload_replaces_the_filter_and_its_outpoints() -> None:
    lock, made = LOCKS["p2tr"], regtest()
    paid = made.pay(lock.pays(50_000))
    made.mine()
    made.submit_tx(build_tx([lock.spends(OutPoint(paid, 0))], [STRANGER.pays(40_000)]))
    made.mine()
    async with Node(made) as node, client(node) as peer:
        for _ in range(2):
            await peer.ask("filterload", bytes(filter_of(element(lock))))
            assert await filtered(peer, made, 107) == []
            await filtered(peer, made, 106)
            assert len(await filtered(peer, made, 107)) == 1


async def test_a_filter_without_bytes_or_functions_matches_everything() -> None:
    made = regtest()
    made.pay(STRANGER.pays(5))
    made.mine()
    async with Node(made) as node, client(node) as peer:
        for payload in (filterload(b""), filterload(bytes(5), 0), filterload(b"", 0)):
            await peer.ask("filterload", payload)
            assert len(await filtered(peer, made)) == 2
            assert await peer.ask("filteradd", var_bytes(b"anything")) == []
            assert len(await filtered(peer, made)) == 2


async def test_filterclear_ends_filtered_blocks() -> None:
    made = regtest()
    async with Node(made) as node, client(node) as peer:
        await peer.ask("filterload", filterload(b"\xff"))
        assert len(await filtered(peer, made)) == 1
        await peer.ask("filterclear")
        assert await peer.ask("getdata", inventory((FILTERED_BLOCK, made.chain.tip.hash))) == []


async def test_answers_keep_the_order_of_a_long_getdata() -> None:
    made = regtest(300)
    lock = LOCKS["p2pkh"]
    made.pay(lock.pays(7))
    made.mine()
    async with Node(made) as node, client(node) as peer:
        await peer.send("filterload", bytes(filter_of(element(lock))))
        await peer.send("getdata", inventory(*((FILTERED_BLOCK, block.hash) for block in made.chain.active)))
        got = await peer.answers()
        assert [command for command, _ in got] == ["merkleblock"] * 302 + ["tx"]
        assert [payload[:80] for _, payload in got[:-1]] == [block.raw[:80] for block in made.chain.active]


# Relay


async def test_relay_begins_with_filterload_and_is_filtered() -> None:
    lock, made = LOCKS["p2wpkh"], regtest()
    async with Node(made) as node, client(node, relay=False) as peer:
        made.pay(lock.pays(5))
        assert await peer.answers() == []
        await peer.ask("filterload", bytes(filter_of(element(lock))))
        assert await peer.answers() == []  # earlier transactions must be requested
        made.pay(STRANGER.pays(5))
        ours = made.pay(lock.pays(9_000))
        assert await peer.answers() == [("inv", inventory((TX, ours)))]
        spend = made.submit_tx(build_tx([lock.spends(OutPoint(ours, 0))], [STRANGER.pays(8_000)]))
        assert await peer.answers() == [("inv", inventory((TX, spend)))]  # the filter has learned the outpoint


async def test_filterclear_starts_the_relay_of_all_transactions() -> None:
    made = regtest()
    async with Node(made) as node, client(node, relay=False) as peer:
        await peer.ask("filterclear")
        paid = made.pay(STRANGER.pays(5))
        assert await peer.answers() == [("inv", inventory((TX, paid)))]


async def test_outpoints_learned_from_the_mempool_match_in_blocks() -> None:
    lock, made = LOCKS["p2tr"], regtest()
    async with Node(made) as node, client(node, relay=False) as peer:
        await peer.ask("filterload", bytes(filter_of(element(lock))))
        paid = made.pay(lock.pays(9_000))
        await peer.answers()
        made.mine()
        made.submit_tx(build_tx([lock.spends(OutPoint(paid, 0))], [STRANGER.pays(8_000)]))
        made.mine()
        await peer.answers()
        assert len(await filtered(peer, made)) == 1  # the block with the receipt was never requested


@pytest.mark.parametrize("relay", [False, True])
async def test_mempool_is_answered_with_matching_transactions(relay: bool) -> None:
    lock, made = LOCKS["p2wpkh"], regtest()
    ours = made.pay(lock.pays(9_000))
    other = made.pay(STRANGER.pays(5))
    spend = made.submit_tx(build_tx([lock.spends(OutPoint(ours, 0))], [STRANGER.pays(8_000)]))
    async with Node(made) as node, client(node, relay=relay) as peer:
        assert await peer.ask("mempool") == [("inv", inventory((TX, ours), (TX, other), (TX, spend)))]
        await peer.ask("filterload", bytes(filter_of(element(lock))))
        assert await peer.ask("mempool") == [("inv", inventory((TX, ours), (TX, spend)))]
        await peer.ask("filterload", bytes(filter_of(b"nothing of the kind")))
        assert await peer.ask("mempool") == []


# Limits and disconnections


async def test_filters_at_the_limits_are_accepted() -> None:
    made = regtest()
    async with Node(made) as node, client(node) as peer:
        await peer.ask("filterload", filterload(b"\xff" * 36_000, 50))
        assert len(await filtered(peer, made)) == 1
        await peer.ask("filterload", filterload(bytes(36_000), 50))
        assert await filtered(peer, made) == []
        assert await peer.ask("filteradd", var_bytes(bytes(520))) == []
        await peer.ask("filteradd", var_bytes(made.chain.tip.txids[0]))
        assert len(await filtered(peer, made)) == 1
        assert await peer.ask("filteradd", b"\0") == []


@pytest.mark.parametrize(
    ("command", "payload"),
    [
        ("filterload", filterload(bytes(36_001))),
        ("filterload", filterload(bytes(10), 51)),
        ("filterload", filterload(bytes(10), 0xFFFFFFFF)),
        ("filteradd", var_bytes(bytes(521))),
    ],
)
async def test_a_message_above_a_limit_ends_the_connection(command: str, payload: bytes) -> None:
    async with Node() as node, client(node) as peer, client(node) as other:
        await peer.ask("filterload", filterload(bytes(10)))
        await peer.send(command, payload)
        assert await peer.is_cut()
        assert await other.answers() == []


async def test_filteradd_without_a_filter_ends_the_connection() -> None:
    async with Node() as node, client(node) as peer, client(node) as other:
        await peer.send("filteradd", var_bytes(b"element"))
        assert await peer.is_cut()
        await other.ask("filterload", filterload(b"\xff"))
        await other.ask("filterclear")
        await other.send("filteradd", var_bytes(b"element"))
        assert await other.is_cut()


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x05abc",
        filterload(bytes(10))[:-1],
        filterload(bytes(10))[:-8],
        b"\xfd\x05\x00" + filterload(bytes(5))[1:],
    ],
)
async def test_a_malformed_filterload_keeps_the_old_filter(payload: bytes) -> None:
    made = regtest()
    async with Node(made) as node, client(node) as peer:
        await peer.ask("filterload", filterload(b"\xff", 1))
        assert await peer.ask("filterload", payload) == []
        assert len(await filtered(peer, made)) == 1


@pytest.mark.parametrize(
    ("command", "payload"),
    [("filterload", filterload(b"\xff")), ("filteradd", var_bytes(b"x")), ("filterclear", b""), ("mempool", b"")],
)
async def test_without_node_bloom_its_messages_end_the_connection(command: str, payload: bytes) -> None:
    settings = replace(SETTINGS, services=SERVICES & ~Service.BLOOM)
    async with Node(regtest(), settings=settings) as node, client(node) as peer:
        assert peer.greeting[0][1][4] == 1 | 8 | 64
        assert [
            command for command, _ in await peer.ask("getdata", inventory((BLOCK, node.regtest.chain.tip.hash)))
        ] == ["block"]
        await peer.send(command, payload)
        assert await peer.is_cut()
