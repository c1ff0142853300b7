"""Silent payments in the live client: whole blocks come from peers, spent outputs from a source of the user."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter import LightClient, MatchKind, WalletStore, WatchList, build_tx
from spvfilter.errors import InexpressibleError, ParameterError, SourceError
from spvfilter.hashes import hash160
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.network import REGTEST
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.primitives import TxOut
from spvfilter.signatures.verify import Validity, verify_spends
from spvfilter.silent.search import Judged, Scripts
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction, TxIn
from spvfilter.watch.silentsearch import SilentSearch
from spvfilter.wire.events import Service
from support.blocks import undo
from support.blocks.silentpayments import output_of, psbt_maps, signed
from support.client.compactworld import LIMITS
from support.client.lightworld import Run, running
from support.client.silentworld import OTHER, WALLET, SilentWorld, Source, check_tweak, watching

H = 1 << 31  # a hardened step


def paid(run: Run) -> list[tuple[MatchKind, int | None, int | None, str | None]]:
    """Kind, value, number of the label and text of the label of each match."""
    return [(each.kind, each.value, each.sp_label, each.label) for each in run.books.matches.values()]


async def test_a_payment_is_a_coin_that_its_spend_removes(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    first = world.send(WALLET.address(), OTHER.address(), WALLET.address(0))
    world.regtest.mine()
    async with (
        Node(world.regtest) as node,
        running(
            world, node, limits=LIMITS, store=path, mode="auto", watch=watching(), spent_source=Source(world)
        ) as run,
    ):
        await run.synced(world)
        assert sorted(paid(run), key=str) == sorted(
            [(MatchKind.OUTPUT, value, label, "savings") for value, label in mine(first)], key=str
        )
        coins = await run.client.coins()
        assert {coin.sp_label for coin in coins} == {None, 0}
        for coin in coins:
            check_tweak(coin)
            assert coin.keychain == str(WALLET.address())
            assert coin.keychain_index is None
        assert (await run.client.balance()).confirmed == sum(value for value, _ in mine(first))
        status = await run.client.status()
        assert status.way is Mode.COMPACT
        assert status.spent_problem is None
        index = coins[0].outpoint.index
        world.take(first, index)
        world.regtest.mine()
        await run.synced(world)
        assert [coin.outpoint for coin in await run.client.coins()] == [coins[1].outpoint]
        assert await run.client.next_address() == str(WALLET.address())
        assert not run.books.warnings
    with WalletStore.open(path) as wallet:
        (coin,) = wallet.coins()
        check_tweak(coin)
        assert coin.sp_tweak is not None
        assert coin.sp_tweak.hex() not in repr(coin)
        with pytest.raises(InexpressibleError):
            wallet.bip37_elements()
    assert (path.stat().st_mode & 0o777) == 0o600


def mine(raw: bytes) -> list[tuple[int, int | None]]:
    """Value and label of the outputs of a transaction that pays the wallet, another one, and the wallet's change."""
    values = [(50_000 + n) for n in range(3)]
    del raw
    return [(values[0], None), (values[2], 0)]


@pytest.mark.few(1)
@pytest.mark.parametrize("has_origin", [True, False])
async def test_a_psbt_has_what_a_signer_needs(tmp_path: Path, has_origin: bool) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    raw = world.send(WALLET.address(), WALLET.address(0), value=90_000)
    world.regtest.mine()
    text = WALLET.descriptor if has_origin else f"sp({WALLET.scan_text})"
    async with (
        Node(world.regtest) as node,
        running(
            world, node, limits=LIMITS, store=path, mode="auto", watch=watching(text), spent_source=Source(world)
        ) as run,
    ):
        await run.synced(world)
        coins = await run.client.coins()
        unsigned = build_tx(
            [TxIn(coin.outpoint, sequence=0xFFFFFFFD) for coin in coins],
            [TxOut(50_000, b"\0\x14" + bytes(20)), TxOut(100_000, output_of(raw, 0))],
            lock_time=77,
        )
        psbt = await run.client.psbt(unsigned)
        final = signed(WALLET, psbt)
        tx, before = Transaction.parse(final), Transaction.parse(unsigned)
        assert tx.txid == before.txid
        spent = [TxOut(coin.value, coin.script_pubkey) for coin in coins]
        assert verify_spends(tx, spent).validity is Validity.VALID
        place = bytes.fromhex("deadbeef") + b"".join(step.to_bytes(4, "little") for step in (352 + H, H, H, H, 0))
        own = hash160(WALLET.spend_pubkey)[:4]
        assert {each[0x1F, WALLET.spend_pubkey] for each in psbt_maps(psbt)[1:3]} == {place if has_origin else own}
        assert (await run.client.broadcast(final)).txid == tx.txid


async def test_a_list_with_a_scan_key_needs_a_source(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="name your node with --node"):
        async with LightClient(watching(), peers=["127.0.0.1:1"]):
            pass
    with pytest.raises(InexpressibleError):
        async with LightClient(watching(), peers=["127.0.0.1:1"], mode="bip37", spent_source=Source(SilentWorld())):
            pass
    with pytest.raises(TypeError, match="spent_source"):
        LightClient(watching(), peers=["127.0.0.1:1"], spent_source="http://127.0.0.1")  # type: ignore[arg-type]
    world, path = SilentWorld(), tmp_path / "wallet.db"
    async with (
        Node(world.regtest) as node,
        running(
            world, node, limits=LIMITS, store=path, mode="auto", watch=watching(), spent_source=Source(world)
        ) as run,
    ):
        await run.synced(world)
    with pytest.raises(ParameterError, match="name your node with --node"):
        async with LightClient(WatchList(REGTEST), peers=["127.0.0.1:1"], store=path):
            pass


async def test_peers_without_compact_filters_are_of_no_use() -> None:
    world = SilentWorld()
    world.send(WALLET.address())
    world.regtest.mine()
    only_bloom = replace(SETTINGS, services=SERVICES & ~Service.COMPACT_FILTERS)
    async with (
        Node(world.regtest, settings=only_bloom) as useless,
        running(world, useless, limits=LIMITS, mode="auto", watch=watching(), spent_source=Source(world)) as run,
    ):
        await run.until(lambda books: books.warnings)
        assert "does not serve compact filters" in str(run.books.warnings[0].error)
        assert (await run.client.status()).way is not Mode.BIP37


async def test_a_restart_continues_without_asking_again(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    first = world.send(WALLET.address())
    world.regtest.mine()
    async with Node(world.regtest) as node:
        source = Source(world)
        async with running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watching(), spent_source=source
        ) as run:
            await run.synced(world)
        assert len(source.asked) == len(set(source.asked)) == world.regtest.height + 1
        world.take(first)
        second = world.send(WALLET.address())
        world.regtest.mine()
        source = Source(world)
        async with running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=WatchList(REGTEST), spent_source=source
        ) as run:
            await run.synced(world)
            assert source.asked == [world.regtest.chain.tip.hash]
            (coin,) = await run.client.coins()
            assert coin.script_pubkey == output_of(second, 0)
            check_tweak(coin)
            assert [event.match.kind for event in run.books.events if hasattr(event, "match")] == [
                MatchKind.INPUT,
                MatchKind.OUTPUT,
            ]


async def test_a_reorganization_moves_a_payment(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    raw = world.send(WALLET.address())
    world.regtest.mine()
    async with (
        Node(world.regtest) as node,
        running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watching(), spent_source=Source(world)
        ) as run,
    ):
        await run.synced(world)
        world.regtest.reorg(1, blocks=2)
        await run.synced(world)
        (match,) = run.books.matches.values()
        assert match.txid
        assert match.script_pubkey == output_of(raw, 0)
        if match.height is None:
            world.regtest.mine()
            await run.synced(world)
        (coin,) = await run.client.coins()
        assert coin.height is not None
        check_tweak(coin)


@pytest.mark.slow
async def test_a_new_label_searches_earlier_blocks_again(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    world.send(WALLET.address(), WALLET.address(7))
    world.regtest.mine(3)
    async with Node(world.regtest) as node:
        for text, labels in ((None, {None}), ("Bob", {None, 7})):
            watch, source = watching(), Source(world)
            if text is not None:
                watch.add_sp_label(7, text)
            async with running(
                world, node, limits=LIMITS, store=path, mode="compact", watch=watch, spent_source=source
            ) as run:
                await run.synced(world)
                coins = await run.client.coins()
                assert {coin.sp_label for coin in coins} == labels
                assert {coin.label for coin in coins if coin.sp_label} <= {"Bob"}
            assert len(source.asked) == world.regtest.height + 1
        assert {each.label for each in watch.windows.silent[0].found.values()} == {None, 7}


async def test_a_revealed_label_is_found_from_then_on(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    async with Node(world.regtest) as node:
        async with running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watching(), spent_source=Source(world)
        ) as run:
            await run.synced(world)
            assert await run.client.reveal_address() == str(WALLET.address(1))
            assert await run.client.reveal_address() == str(WALLET.address(2))
            world.send(WALLET.address(2))
            world.regtest.mine()
            await run.synced(world)
            assert [coin.sp_label for coin in await run.client.coins()] == [2]
        with Store.open(path, REGTEST) as store:  # as `spvfilter wallet reveal` does
            store.attach(watch := WatchList(REGTEST))
            (keychain,) = watch.keychains
            number, address = watch.windows.to_reveal(keychain, REGTEST)
            assert (number, address) == (3, str(WALLET.address(3)))
            watch.windows.reveal(keychain, number)
            watch.windows.grow()
            store.attach(watch)
            assert store.cursor == world.regtest.height
        world.send(WALLET.address(1))
        world.send(WALLET.address(3))
        world.regtest.mine()
        source = Source(world)
        async with running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watching(), spent_source=source
        ) as run:
            await run.synced(world)
            assert {coin.sp_label for coin in await run.client.coins()} == {1, 2, 3}
            assert source.asked == [world.regtest.chain.tip.hash]
            assert await run.client.reveal_address() == str(WALLET.address(4))


@pytest.mark.few(1)
@pytest.mark.parametrize("lie", ["counts", "value", "damage", "none", "text", "error", "cancelled"])
async def test_a_block_waits_for_outputs_that_fit(lie: str) -> None:
    world = SilentWorld()
    raw = world.send(WALLET.address())
    world.regtest.mine()
    tip = world.regtest.chain.tip

    class Lying(Source):
        is_lying = True

        async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
            record = await super().undo_record(digest, previous)
            if digest != tip.hash or not self.is_lying:
                return record
            spent = undo.spent_of([block.raw for block in world.regtest.chain.active])[-1]
            if lie == "counts":
                return undo.record_of(tip.raw, undo.undo_of(spent[:-1]))
            if lie == "value":
                spent[-1] = [undo.Spent(each.value - 999_999, each.script) for each in spent[-1]]
                return undo.record_of(tip.raw, undo.undo_of(spent))
            if lie == "damage":
                return bytes((record[0] ^ 1,)) + record[1:] if record else None
            if lie == "none":
                return None
            if lie == "text":
                return record.hex() if record else None  # type: ignore[return-value]
            if lie == "cancelled":
                raise asyncio.CancelledError
            raise SourceError("the node is pruned")

    source = Lying(world)
    async with (
        Node(world.regtest) as node,
        running(world, node, limits=LIMITS, mode="compact", watch=watching(), spent_source=source) as run,
    ):
        await run.until(lambda books: books.warnings)
        status = await run.client.status()
        assert status.searched_height < tip.height
        assert status.spent_problem is not None
        assert f"outputs that block {tip.height} spends" in status.spent_problem
        source.is_lying = False
        await run.synced(world)
        (coin,) = await run.client.coins()
        assert coin.script_pubkey == output_of(raw, 0)
        (warning,) = (event for event in run.books.events if isinstance(event, PeerWarning))
        assert warning.address == "Lying"
        assert (await run.client.status()).spent_problem is None


async def test_the_event_loop_never_searches_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, search = set[int](), SilentSearch.block

    def noted(self: SilentSearch, raw: bytes, spent: Sequence[Scripts] | None) -> Judged:
        threads.add(threading.get_ident())
        return search(self, raw, spent)

    monkeypatch.setattr(SilentSearch, "block", noted)
    world = SilentWorld()
    world.send(*[WALLET.address()] * 40, value=5_000)
    world.regtest.mine()
    async with (
        Node(world.regtest) as node,
        running(world, node, limits=LIMITS, mode="compact", watch=watching(), spent_source=Source(world)) as run,
    ):
        await run.synced(world)
        assert len(await run.client.coins()) == 40
    assert threads
    assert threading.get_ident() not in threads


async def test_leaving_does_not_wait_for_a_stalled_source() -> None:
    world = SilentWorld()
    source = Source(world)
    source.gate.clear()
    async with (
        Node(world.regtest) as node,
        running(world, node, limits=LIMITS, mode="compact", watch=watching(), spent_source=source) as run,
    ):
        await source.is_asked.wait()
        assert (await run.client.status()).searched_height == -1


async def test_an_account_is_added_to_a_running_client(tmp_path: Path) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", WatchList(REGTEST)
    watch.add_script(b"\x51")
    raw = world.send(WALLET.address())
    world.regtest.mine()
    async with Node(world.regtest) as node:
        async with running(world, node, limits=LIMITS, store=path, mode="compact", watch=watch) as run:
            await run.synced(world)
            with pytest.raises(ParameterError, match="name your node with --node"):
                await run.client.add_account("gifts", WALLET.descriptor)
        async with running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watch, spent_source=Source(world)
        ) as run:
            await run.synced(world)
            await run.client.add_account("gifts", WALLET.descriptor, label="gift")
            await run.client.wait_synced()
            (coin,) = await run.client.coins(account="gifts")
            assert (coin.script_pubkey, coin.label) == (output_of(raw, 0), "gift")
            check_tweak(coin)
        assert set(watch.windows.silent[0].found) == {coin.script_pubkey}
        watch.save(tmp_path / "watch.txt")
        assert len(WatchList.load(tmp_path / "watch.txt", network=REGTEST)) == 2
        async with running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watch, spent_source=Source(world)
        ) as run:
            await run.synced(world)
            assert [each.outpoint for each in await run.client.coins(account="gifts")] == [coin.outpoint]


async def test_an_account_is_removed_with_its_payments(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    world.send(WALLET.address())
    world.regtest.mine()
    watch = WatchList(REGTEST)
    watch.add_script(b"\x51")
    with watch.within_account("gifts"):
        watch.add_descriptor(WALLET.descriptor)
    async with Node(world.regtest) as node:
        async with running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watch, spent_source=Source(world)
        ) as run:
            await run.synced(world)
            (coin,) = await run.client.coins(account="gifts")
            assert coin.account == "gifts"
            await run.client.remove_account("gifts")
            assert not await run.client.coins()
            assert not await run.client.keychains()
        assert not watch.windows.silent
        assert WALLET.scan_text.encode() not in path.read_bytes()
        async with running(world, node, limits=LIMITS, store=path, mode="compact", watch=WatchList(REGTEST)) as run:
            await run.synced(world)
