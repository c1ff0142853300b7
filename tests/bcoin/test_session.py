"""Our sans-IO session against bcoin: handshake, headers, filterload, filtered blocks with every proof verified, relay,
a reorganisation.
"""

from __future__ import annotations

from typing import Any

import pytest

from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.network import REGTEST
from spvfilter.primitives import Header
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Service, Settings
from spvfilter.wire.messages.merkleblock import MerkleBlock
from spvfilter.wire.messages.table import (
    Block,
    FilterLoad,
    GetData,
    GetHeaders,
    Headers,
    Inv,
    InvItem,
    InvType,
    Mempool,
    Tx,
)
from support.bcoin.conversation import Conversation, conversation
from support.bcoin.process import Bcoin
from support.bcoin.wallets import Wallets
from support.blocks.build import block_hash, txid
from support.vectors import effort

pytestmark = [pytest.mark.bcoin, pytest.mark.long]

SETTINGS = Settings(REGTEST, required_services=Service.NETWORK | Service.BLOOM | Service.WITNESS)
BLOCKS = 600
BUSY = effort(10, 30, 100)  # of them with payments
BATCH = 50  # blocks per request


def filterload(filter_: Bip37Filter) -> FilterLoad:
    return FilterLoad.parse(bytes(filter_))


async def headers_after(talk: Conversation, known: bytes) -> list[Header]:
    """The headers after a block, each linked to the one before."""
    [message] = [told for told in await talk.answers(GetHeaders((known,))) if isinstance(told, Headers)]
    found = [Header.parse(raw) for raw in message.headers]
    previous = known
    for header in found:
        assert header.previous == previous
        previous = header.hash
    return found


async def filtered(talk: Conversation, hashes: list[bytes]) -> list[tuple[MerkleBlock, list[bytes]]]:
    """Each block's merkleblock, and the transactions sent after it."""
    asked = GetData(tuple(InvItem(InvType.FILTERED_BLOCK, digest) for digest in hashes))
    answered: list[tuple[MerkleBlock, list[bytes]]] = []
    for message in await talk.answers(asked):
        match message:
            case MerkleBlock():
                answered.append((message, []))
            case Tx(raw):
                answered[-1][1].append(raw)
    return answered


async def whole(talk: Conversation, hashes: list[bytes]) -> list[bytes]:
    asked = GetData(tuple(InvItem(InvType.WITNESS_BLOCK, digest) for digest in hashes))
    return [message.raw for message in await talk.answers(asked) if isinstance(message, Block)]


def judged(watch: WatchList, height: int, answer: tuple[MerkleBlock, list[bytes]]) -> list[Match]:
    """The wallet's matches in a filtered block, after checking its proof and that every transaction it proves has
    arrived.
    """
    block, txs = answer
    proof = block.verify()
    assert [proved.txid for proved in proof.matched] == [txid(raw) for raw in txs]
    assert proof.trusted_with(txs)
    header = proof.header
    return [
        match for raw in txs for match in watch.match_tx(raw, block_hash=header.hash, height=height, time=header.time)
    ]


async def test_six_hundred_filtered_blocks_are_proved_and_say_what_the_whole_blocks_say(
    bcoin: Bcoin, wallets: Wallets
) -> None:
    await wallets.prepare(BLOCKS - BUSY)
    for number in range(BUSY):
        await wallets.receive(1_000_000 + number, others=number % 4)
        if number % 3 == 1:
            await wallets.spend(700_000)
        if number % 5 == 2:
            for outputs in range(1, 6):
                await wallets.pay_strangers(outputs)
        await wallets.mine()
    # the rate is high enough for false positives
    ours = Bip37Filter.for_watchlist(wallets.watch, 0.001, tweak=5, decoy_key=bytes(16))
    by_filter, by_block = wallets.watch.copy(), wallets.watch.copy()
    seen: list[Match] = []
    expected: list[Match] = []
    async with conversation(bcoin.port, SETTINGS) as talk:
        ready = await talk.ready()
        assert (ready.version.agent, ready.version.start_height) == ("/bcoin:v1.0.2/", BLOCKS)
        hashes = [header.hash for header in await headers_after(talk, REGTEST.genesis_hash)]
        assert [digest[::-1].hex() for digest in hashes] == [
            event["hash"] for event in bcoin.events if event["event"] == "connect"
        ]
        talk.send(filterload(ours))
        for at in range(0, BLOCKS, BATCH):
            batch = hashes[at : at + BATCH]
            answers = await filtered(talk, batch)
            blocks = await whole(talk, batch)
            assert [answer.header.hash for answer, _ in answers] == [block_hash(raw) for raw in blocks] == batch
            for height, (answer, raw) in enumerate(zip(answers, blocks, strict=True), at + 1):
                matched = ours.scan_block(raw)  # our copy learns what bcoin's does
                assert [(tx.position, tx.txid) for tx in matched] == list(answer[0].verify().matched)
                assert answer[0] == MerkleBlock.from_block(raw, [tx.position for tx in matched])
                assert answer[1] == [tx.stripped for tx in matched]
                seen += judged(by_filter, height, answer)
                expected += by_block.match_block(raw, height=height)
    assert seen == expected
    kinds = [match.kind for match in seen]
    assert kinds.count(MatchKind.OUTPUT) >= BUSY
    assert kinds.count(MatchKind.INPUT) >= BUSY // 3


async def test_a_payment_is_relayed_then_proved_in_the_block_that_is_announced(bcoin: Bcoin, wallets: Wallets) -> None:
    await wallets.prepare(110)
    early = await wallets.receive(1_000_000)
    async with conversation(bcoin.port, SETTINGS) as talk:
        await talk.ready()
        script = bytes.fromhex((await bcoin.call("address", {"account": "segwit"}))["script"])
        wallets.watch.add_script(script)
        talk.send(filterload(Bip37Filter.for_watchlist(wallets.watch, tweak=1, decoy_key=bytes(16))), Mempool())
        announced = await relayed(talk, early)
        assert txid(announced) == bytes.fromhex(early)[::-1]
        paid = await bcoin.call("send", {"outputs": [[script.hex(), 5_000_000]], "account": "default"})
        raw = await relayed(talk, paid["txid"])
        assert [(match.value, match.height) for match in wallets.watch.match_tx(raw)] == [(5_000_000, None)]
        [mined] = await wallets.mine()
        await talk.message(Inv, lambda inv: InvItem(InvType.BLOCK, mined) in inv.items)
        [answer] = await filtered(talk, [mined])
        assert {match.value for match in judged(wallets.watch, 111, answer)} == {1_000_000, 5_000_000}


async def relayed(talk: Conversation, display: str) -> bytes:
    """Wait until the transaction is announced, request it and return it."""
    wanted = InvItem(InvType.TX, bytes.fromhex(display)[::-1])
    await talk.message(Inv, lambda inv: wanted in inv.items)
    talk.send(GetData((InvItem(InvType.WITNESS_TX, wanted.hash),)))
    return (await talk.message(Tx, lambda tx: tx.txid == wanted.hash)).raw


async def test_a_reorganisation_is_followed_by_headers_and_proved_again(bcoin: Bcoin, wallets: Wallets) -> None:
    await wallets.prepare(110)
    paid = await wallets.receive(1_000_000)
    async with conversation(bcoin.port, SETTINGS) as talk:
        await talk.ready()
        talk.send(filterload(Bip37Filter.for_watchlist(wallets.watch, tweak=1, decoy_key=bytes(16))))
        [stale] = await wallets.mine()
        [answer] = await filtered(talk, [stale])
        assert [match.txid[::-1].hex() for match in judged(wallets.watch, 111, answer)] == [paid]
        fork = answer[0].header.previous
        branch: list[Any] = await bcoin.call("branch", {"depth": 1, "count": 2, "address": wallets.mined_to})
        after = await headers_after(talk, fork)
        assert [header.hash[::-1].hex() for header in after] == branch
        answers = await filtered(talk, [header.hash for header in after])
        assert [judged(wallets.watch, 111, answer) for answer in answers] == [[], []]
        [again] = await filtered(talk, [stale])  # no longer in the chain, but its proof holds as it did
        assert again[0].verify() == answer[0].verify()
