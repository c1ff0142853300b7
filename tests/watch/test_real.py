"""Exact matching of real blocks: published wallet scans, and an oracle that shares no code with the package."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from bitcoin.core import CBlock

from spvfilter.network import Network
from spvfilter.primitives import OutPoint, hash_from_hex
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks.realdata import RealBlock, real_block_cases, runs
from support.oracles.oracle import Found, Wallet, is_key, pushed
from support.vectors import effort, vector_cases, vector_file, vector_path

Event = tuple[str, bytes, OutPoint, int | None, bytes]  # kind, txid, outpoint, value, script


def event(txid: str, case: dict[str, Any]) -> Event:
    kind = {"receive": "output", "spend": "input"}[case["kind"]]
    return kind, hash_from_hex(txid), OutPoint.from_text(case["outpoint"]), case["value"], bytes.fromhex(case["script"])


def events(txs: Iterable[dict[str, Any]]) -> list[Event]:
    return [event(tx["txid"], case) for tx in txs for case in tx["events"]]


def seen(matches: Iterable[Match]) -> list[Event]:
    return [(str(match.kind), match.txid, match.outpoint, match.value, match.script_pubkey or b"") for match in matches]


def watch_of(case: dict[str, Any], network: Network) -> WatchList:
    """A list of the vector's addresses and bare scripts."""
    watch = WatchList(network)
    for entry in case["watch"]:
        if entry["address"]:
            watch.add_address(entry["address"])
        else:
            watch.add_script(bytes.fromhex(entry["script"]))
    assert list(watch.script_pubkeys()) == [bytes.fromhex(entry["script"]) for entry in case["watch"]]
    return watch


@vector_cases("11_wallet_scan/blocks.json")
def test_a_wallet_finds_the_published_matches_of_a_block(case: dict[str, Any]) -> None:
    raw = vector_path(case["block_file"]).read_bytes()
    network = Network.named(case["block_file"].removeprefix("03_blocks/").partition("_")[0])
    everything = events(case["txs"])
    received = {point for kind, _, point, _, _ in everything if kind == "output"}
    watch = watch_of(case, network)
    matches = watch.match_block(raw)
    assert sorted(seen(matches), key=str) == sorted(
        (e for e in everything if e[0] == "output" or e[2] in received), key=str
    )
    assert all(match.block_hash == hash_from_hex(case["block_hash"]) for match in matches)
    for kind, _, point, value, script in everything:  # and with every outpoint known, all of it
        if kind == "input":
            watch.add_outpoint(point, value=value, script_pubkey=script)
    matches = watch.match_block(raw)
    assert sorted(seen(matches), key=str) == sorted(everything, key=str)
    assert sum(match.value or 0 for match in matches if match.kind == "output") == case["received"]
    assert sum(match.value or 0 for match in matches if match.kind == "input") == case["spent"]


@pytest.mark.vectors
@pytest.mark.parametrize("name", ["mainnet_000000_000255", "signet_000000_000070", "testnet3_000000_000459"])
def test_a_wallet_finds_the_published_matches_of_a_chain(name: str) -> None:
    file = vector_file(f"11_wallet_scan/scan_{name}.json")
    blocks = next(blocks for entry, blocks in runs() if entry["file"] == f"{name}.blk")
    for case in file["vectors"]:
        watch = watch_of(case, Network.named(file["network"]))
        expected = {block["height"]: events(block["txs"]) for block in case["relevant_blocks"]}
        unspent: set[OutPoint] = set()
        for block in blocks:
            matches = watch.match_block(block.raw, height=block.height)
            known = [e for e in expected.get(block.height, []) if e[0] == "output" or e[3] is not None]
            assert sorted(seen(matches), key=str) == sorted(known, key=str)
            for match in matches:
                assert match.height == block.height
                (unspent.add if match.kind == "output" else unspent.discard)(match.outpoint)
        assert len(unspent) == case["unspent_outpoints"]
        assert (
            sum(coin.value for point, coin in watch.table.coins() if OutPoint.parse(point) in unspent)
            == case["unspent_at_end"]
        )


# The oracle

KINDS = ["script", "outpoint", "pubkey", "data", "script outpoint pubkey data"]


def found(matches: Iterable[Match]) -> list[Found]:
    return [(str(match.kind), match.txid, match.index, bytes(match.outpoint), match.value) for match in matches]


def some(rng: random.Random, of: Iterable[bytes], share: float, most: int) -> list[bytes]:
    """A random share of the distinct items, at least one if there are any."""
    distinct = list(dict.fromkeys(of))
    return rng.sample(distinct, min(len(distinct), most, 1 + int(share * len(distinct))))


def draw(rng: random.Random, blocks: list[CBlock], kinds: str) -> tuple[WatchList, Wallet]:
    """A watch list and an oracle with the same entries, drawn from the blocks."""
    watch, wallet = WatchList(), Wallet()
    outputs = [bytes(txout.scriptPubKey) for block in blocks for tx in block.vtx for txout in tx.vout]
    inputs = [txin for block in blocks for tx in block.vtx for txin in tx.vin]
    if "script" in kinds:
        for script in some(rng, filter(None, outputs), 0.03, 200):
            watch.add_script(script)
            wallet.scripts.add(script)
    if "outpoint" in kinds:
        for point in some(rng, (txin.prevout.serialize() for txin in inputs), 0.03, 200):
            watch.add_outpoint(OutPoint.parse(point))
            wallet.coins[point] = None
    pushes = list[bytes]()
    if "pubkey" in kinds or "data" in kinds:
        pushes += [
            push for script in (*outputs, *(bytes(txin.scriptSig) for txin in inputs)) for push in pushed(script)
        ]
    if "pubkey" in kinds:
        for key in some(rng, filter(is_key, pushes), 0.05, 60):
            watch.add_pubkey(key)
            wallet.add_key(key)
    if "data" in kinds:
        for data in some(rng, (push for push in pushes if len(push) <= 520), 0.02, 60):
            watch.add_data(data)
            wallet.data.add(data)
    return watch, wallet


@pytest.mark.few(8)
@real_block_cases()
def test_matches_in_real_blocks_equal_the_oracle(block: RealBlock) -> None:
    rng = random.Random(block.hash)
    parsed = CBlock.deserialize(block.raw)
    for kinds in KINDS[-effort(1, 5, 5) :] * effort(1, 1, 10):
        watch, wallet = draw(rng, [parsed], kinds)
        expected = wallet.block(parsed)
        assert found(watch.match_block(block.raw)) == expected
        assert expected or kinds == "pubkey"  # the entries were drawn from the block
        assert {bytes(point) for point in watch.outpoints()} == set(wallet.coins)


@pytest.mark.slow
@pytest.mark.vectors
def test_matches_in_a_real_chain_equal_the_oracle() -> None:
    for entry, blocks in runs():
        parsed = [CBlock.deserialize(block.raw) for block in blocks]
        for kinds in KINDS:
            watch, wallet = draw(random.Random(f"{entry['file']} {kinds}"), parsed, kinds)
            total = 0
            for block, second in zip(blocks, parsed, strict=True):
                expected = wallet.block(second)
                assert found(watch.match_block(block.raw)) == expected
                total += len(expected)
            assert total
