"""Silent payments and other features: BIP-37, exports, pruned nodes, damaged databases, removals, many labels."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter import WalletStore, WatchList
from spvfilter.address import script_to_address
from spvfilter.errors import InexpressibleError, ParameterError
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.primitives import TxOut
from spvfilter.rpc import FullNode
from spvfilter.rpc.patience import Patience
from spvfilter.silent.search import Judged, Scripts
from spvfilter.watch import silentkeychain
from spvfilter.watch.labels import Label, write_labels
from spvfilter.watch.silentsearch import SilentSearch
from spvfilter.wire.events import Service
from support.blocks import undo
from support.blocks.silentpayments import output_of
from support.client.lightworld import running
from support.client.silentworld import OTHER, WALLET, SilentWorld, Source, check_tweak, following, watching
from support.peers.corenode import CoreNode

ONLY_BLOOM = replace(SETTINGS, services=SERVICES & ~Service.COMPACT_FILTERS)
SECRET = WALLET.scan_text.encode()
SCRIPT = b"\0\x14" + bytes(range(20))


def plain() -> WatchList:
    """A list without a scan key."""
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    return watch


@pytest.mark.slow
async def test_bip37_is_refused_for_a_database_with_a_scan_key(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    world.send(WALLET.address())
    world.regtest.mine()
    async with Node(world.regtest) as node:
        made = plain()
        with made.within_account("gifts"):
            made.add_descriptor(WALLET.descriptor)
        async with following(world, node, Source(world), path, made) as run:
            await run.synced(world)
        with WalletStore.open(path) as stored, pytest.raises(InexpressibleError, match="silent payment addresses"):
            stored.bip37_elements()
        for watch in (WatchList(REGTEST), plain()):
            with pytest.raises(InexpressibleError, match="filters cannot find payments to silent payment addresses"):
                async with following(world, node, Source(world), path, watch, mode="bip37"):
                    pass
        source = Source(world)
        async with following(world, node, source, path, WatchList(REGTEST)) as run:
            await run.synced(world)
            assert (await run.client.status()).way is Mode.COMPACT
            (coin,) = await run.client.coins(account="gifts")
            check_tweak(coin)
        assert not source.asked  # the refused runs have changed nothing


async def test_a_scan_key_is_refused_in_a_running_bip37_client(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    async with Node(world.regtest) as node:
        async with following(world, node, Source(world), path, plain(), mode="bip37") as run:
            await run.synced(world)
            with pytest.raises(InexpressibleError):
                await run.client.add_account("gifts", WALLET.descriptor)
            world.regtest.mine()
            await run.synced(world)  # it goes on
        assert SECRET not in path.read_bytes()


@pytest.mark.slow
async def test_a_wallet_of_bip37_gains_a_scan_key(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    world.regtest.pay(TxOut(70_000, SCRIPT))
    raw = world.send(WALLET.address(), WALLET.address(0))
    world.regtest.mine()
    async with (
        Node(world.regtest, settings=ONLY_BLOOM) as node,
        running(world, node, store=path, mode="auto", watch=plain()) as run,
    ):
        await run.synced(world)
        assert (await run.client.status()).way is Mode.BIP37
        assert [coin.value for coin in await run.client.coins()] == [70_000]
    async with (
        Node(world.regtest) as node,
        following(world, node, Source(world), path) as run,
    ):
        await run.synced(world)
        assert (await run.client.status()).way is Mode.COMPACT
        coins = await run.client.coins()
        assert {coin.value for coin in coins} == {70_000, 50_000, 50_001}
        world.take(raw)
        world.regtest.mine()
        await run.synced(world)
        assert {coin.value for coin in await run.client.coins()} == {70_000, 50_001}


async def test_exports_of_a_wallet_contain_no_secret(tmp_path: Path) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", watching()
    watch.add_sp_label(1, "Alice")
    world.send(WALLET.address(1), WALLET.address())
    world.regtest.mine()
    async with (
        Node(world.regtest) as node,
        following(world, node, Source(world), path, watch) as run,
    ):
        await run.synced(world)
        coins = await run.client.coins()
    assert {coin.sp_label for coin in coins} == {None, 1}
    secrets = [SECRET, WALLET.scan_key, *(coin.sp_tweak or b"?" for coin in coins)]
    written, saved, copied = (tmp_path / name for name in ("labels.jsonl", "watch.txt", "copy.db"))
    watch.save(saved)
    with WalletStore.open(path) as wallet:
        write_labels(written, wallet.labels())
    for each in (written, saved):
        text = each.read_bytes()
        assert not [secret for secret in secrets if secret in text or secret.hex().encode() in text]
    labels = {each["label"]: each["ref"] for each in map(json.loads, written.read_text(encoding="utf-8").splitlines())}
    (alice,) = (coin for coin in coins if coin.sp_label == 1)
    assert labels["Alice"] == alice.address
    with closing(sqlite3.connect(path)) as original, closing(sqlite3.connect(copied)) as copy:
        original.backup(copy)
    with WalletStore.open(copied) as wallet:
        assert set(wallet.coins()) == set(coins)
        for coin in wallet.coins():
            check_tweak(coin)


async def test_a_payment_gets_the_label_imported_for_its_address(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    raw = world.send(WALLET.address(), WALLET.address())
    label = Label("addr", script_to_address(output_of(raw, 0), REGTEST) or "", "Bob")
    async with Node(world.regtest) as node, following(world, node, Source(world), path, watching()) as run:
        await run.synced(world)
        await run.client.import_labels([label])
        world.regtest.mine()
        await run.synced(world)
        async with asyncio.timeout(20):
            while {coin.label for coin in await run.client.coins()} != {"Bob", "savings"}:
                assert label in await run.client.labels()  # even before the coin has it
                await asyncio.sleep(0.01)
        assert label in await run.client.labels()


@pytest.mark.slow
async def test_a_pruned_node_delays_the_search(tmp_path: Path) -> None:
    world = SilentWorld()
    raw = world.send(WALLET.address())
    world.regtest.mine(2)
    blocks = [block.raw for block in world.regtest.chain.active]
    pruned = len(blocks) - 1  # the block of the payment
    core = CoreNode(blocks, pruned_below=pruned)
    spent = undo.spent_of(blocks)
    for digest, each in list(zip(core.hashes, spent, strict=True))[pruned:]:
        core.spends_of(digest, each)
    with core.in_thread():
        async with (
            FullNode.open(core.url, REGTEST, patience=Patience(0)) as source,
            Node(world.regtest) as node,
            following(world, node, source, from_height=pruned - 1) as run,
        ):
            await run.until(lambda books: books.warnings)
            status = await run.client.status()
            assert status.searched_height == pruned - 2
            assert status.spent_problem is not None
            assert core.url in status.spent_problem
            assert f"outputs that block {pruned - 1} spends" in status.spent_problem
            core.spends(spent)  # it has fetched the block again
            await run.synced(world)
            (coin,) = await run.client.coins()
            assert coin.script_pubkey == output_of(raw, 0)
            assert (await run.client.status()).spent_problem is None


async def test_a_start_above_the_pruned_blocks_needs_none_of_them(tmp_path: Path) -> None:
    world = SilentWorld()
    world.regtest.mine(5)
    raw = world.send(WALLET.address())
    world.regtest.mine()
    blocks = [block.raw for block in world.regtest.chain.active]
    core, pruned = CoreNode(blocks, pruned_below=100), 100
    for digest, each in list(zip(core.hashes, undo.spent_of(blocks), strict=True))[pruned:]:
        core.spends_of(digest, each)
    with core.in_thread():
        async with (
            FullNode.open(core.url, REGTEST, patience=Patience(0)) as source,
            Node(world.regtest) as node,
            following(world, node, source, from_height=pruned) as run,
        ):
            await run.synced(world)
            (coin,) = await run.client.coins()
            assert coin.script_pubkey == output_of(raw, 0)
            assert not run.books.warnings


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "damage",
    ["headers SET raw = zeroblob(length(raw))", "runs SET mark = mark + 1", "sp_outputs SET mark = mark + 1"],
)
async def test_a_rebuild_keeps_the_scan_key_and_finds_the_payments(tmp_path: Path, damage: str) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", watching()
    watch.add_sp_label(7, "Bob")
    first = world.send(WALLET.address(), WALLET.address(7))
    world.regtest.mine()
    async with Node(world.regtest) as node:
        async with following(world, node, Source(world), path, watch) as run:
            await run.synced(world)
            assert await run.client.reveal_address() == str(WALLET.address(1))
            before = await run.client.coins()
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute(f"UPDATE {damage}")
        world.take(first)
        second = world.send(WALLET.address(1))
        world.regtest.mine()
        async with following(world, node, Source(world), path, WatchList(REGTEST), rebuild=True) as run:
            await run.synced(world)
            coins = {coin.outpoint: coin for coin in await run.client.coins()}
            for coin in coins.values():
                check_tweak(coin)
            assert {coin.sp_label for coin in coins.values()} == {7, 1}
            assert {coin.label for coin in coins.values() if coin.sp_label == 7} == {"Bob"}
            assert {coin.script_pubkey for coin in coins.values()} == {output_of(first, 1), output_of(second, 0)}
            assert {coin.outpoint for coin in before} & coins.keys()
            assert await run.client.reveal_address() == str(WALLET.address(2))
    assert (path.stat().st_mode & 0o777) == 0o600


@pytest.mark.few(1)
@pytest.mark.parametrize("has_other", [False, True])
@pytest.mark.parametrize("moment", ["asked", "judged"])
async def test_an_account_is_removed_while_blocks_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, has_other: bool
) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", plain()
    mine, others = world.send(WALLET.address()), world.send(OTHER.address())
    world.regtest.mine()
    with watch.within_account("gifts"):
        watch.add_descriptor(WALLET.descriptor)
    if has_other:
        watch.add_descriptor(OTHER.descriptor)
    source, is_judging, may_judge = Source(world), threading.Event(), threading.Event()
    judge = SilentSearch.block

    def judged(self: SilentSearch, raw: bytes, spent: Sequence[Scripts] | None) -> Judged:
        is_judging.set()
        may_judge.wait()
        return judge(self, raw, spent)

    if moment == "asked":
        source.gate.clear()
        may_judge.set()
    monkeypatch.setattr(SilentSearch, "block", judged)
    async with Node(world.regtest) as node:
        async with following(world, node, source, path, watch) as run:
            try:
                await source.is_asked.wait()
                if moment == "judged":
                    await asyncio.to_thread(is_judging.wait)
                removal = asyncio.create_task(run.client.remove_account("gifts"))
                await asyncio.sleep(0)
            finally:
                source.gate.set()
                may_judge.set()
            await removal
            await run.synced(world)
            coins = await run.client.coins()
            assert [coin.script_pubkey for coin in coins] == ([output_of(others, 0)] if has_other else [])
        assert SECRET not in path.read_bytes()
        async with following(world, node, Source(world), path, WatchList(REGTEST)) as run:
            await run.synced(world)
            await run.client.add_account("gifts", WALLET.descriptor)
            await run.client.wait_synced()
            assert [coin.script_pubkey for coin in await run.client.coins(account="gifts")] == [output_of(mine, 0)]


async def test_a_label_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silentkeychain, "MAX_LABELS", 5)
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", watching()
    for number in (2, 1_000, 1_001):
        watch.add_sp_label(number)
    with pytest.raises(ParameterError, match="at most 5 labels, but 6 labels"):
        watch.search_sp_labels(4)
    async with Node(world.regtest) as node:
        async with following(world, node, Source(world), path, watch) as run:
            await run.synced(world)
            assert await run.client.reveal_address() == str(WALLET.address(1))
            assert await run.client.reveal_address() == str(WALLET.address(3))
            for _ in range(2):
                with pytest.raises(ParameterError, match="at most 5 labels"):
                    await run.client.reveal_address()
            world.send(WALLET.address(1_001), WALLET.address(3))
            world.regtest.mine()
            await run.synced(world)
            assert {coin.sp_label for coin in await run.client.coins()} == {1_001, 3}
        more = watching()
        more.add_sp_label(9)
        with pytest.raises(ParameterError, match="at most 5 labels, but 6 labels"):
            async with following(world, node, Source(world), path, more):
                pass
        async with following(world, node, Source(world), path) as run:
            await run.synced(world)
            assert len(await run.client.coins()) == 2
