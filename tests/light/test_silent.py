"""Silent payments in the live client, with a source of spent outputs and with a tweak server."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter import LightClient, MatchKind, WalletStore, WatchList, build_tx
from spvfilter.errors import InexpressibleError, ParameterError
from spvfilter.hashes import hash160
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.primitives import TxOut
from spvfilter.signatures.verify import Validity, verify_spends
from spvfilter.silent.search import Judged, Scripts
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction, TxIn
from spvfilter.watch.silentsearch import SilentSearch
from spvfilter.wire.events import Service
from support.blocks.silentpayments import output_of, psbt_maps, signed
from support.client.silentworld import (
    OTHER,
    WALLET,
    SilentWorld,
    Source,
    TweakServer,
    check_tweak,
    following,
    found,
    watching,
)

H = 1 << 31  # a hardened step
BOTH = pytest.mark.parametrize("kind", [Source, TweakServer])
Kind = type[Source] | type[TweakServer]


@BOTH
async def test_payments_and_their_spends_are_found(kind: Kind, tmp_path: Path) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", watching()
    watch.add_sp_label(3, "Alice")
    first = world.send(WALLET.address(3), OTHER.address(), WALLET.address(), WALLET.address(0), WALLET.address())
    world.regtest.mine(3)
    second = world.send(WALLET.address())
    world.take(first, 2)
    world.regtest.mine(2)
    expected = {output_of(first, n): label for n, label in ((0, 3), (3, 0), (4, None))}
    source = kind(world)
    async with Node(world.regtest) as node:
        async with following(world, node, source, path, watch) as run:
            await run.synced(world)
            assert await found(run) == expected | {output_of(second, 0): None}
            for coin in await run.client.coins():
                assert (coin.label, coin.keychain_index) == ("Alice" if coin.sp_label else "savings", None)
                assert coin.keychain == str(WALLET.address())
                assert coin.sp_tweak is not None
                assert coin.sp_tweak.hex() not in repr(coin)
            assert (await run.client.balance()).confirmed == 50_000 + 50_003 + 50_004 + 50_000
            assert await run.client.next_address() == str(WALLET.address())
            status = await run.client.status()
            assert (status.way, status.silent_source, status.spent_problem) == (Mode.COMPACT, kind.__name__, None)
            assert len(source.asked) == len(set(source.asked)) == world.regtest.height + (kind is Source)
            assert (run.client.metrics().blocks_received < world.regtest.height / 2) == (kind is TweakServer)
        world.take(second)
        third = world.send(WALLET.address())
        world.regtest.mine()
        source = kind(world)
        async with following(world, node, source, path, WatchList(REGTEST)) as run:  # the database has the scan key
            await run.synced(world)
            assert await found(run) == expected | {output_of(third, 0): None}
            assert len(source.asked) == 1
            kinds = [event.match.kind for event in run.books.events if hasattr(event, "match")]
            assert kinds == [MatchKind.INPUT, MatchKind.OUTPUT]
            assert not run.books.warnings
    with WalletStore.open(path) as wallet:
        assert {coin.script_pubkey for coin in wallet.coins()} == {*expected, output_of(third, 0)}
        for coin in wallet.coins():
            check_tweak(coin)
        with pytest.raises(InexpressibleError):
            wallet.bip37_elements()
    assert (path.stat().st_mode & 0o777) == 0o600


@BOTH
async def test_a_reorganization_moves_payments(kind: Kind, tmp_path: Path) -> None:
    world = SilentWorld()
    raw = world.send(WALLET.address())
    world.regtest.mine(2)
    async with Node(world.regtest) as node, following(world, node, kind(world), tmp_path / "wallet.db") as run:
        await run.synced(world)
        world.regtest.reorg(2, blocks=3)
        await run.synced(world)
        other = world.send(WALLET.address(0))
        world.regtest.mine()
        await run.synced(world)
        assert await found(run) == {output_of(raw, 0): None, output_of(other, 0): 0}
        assert None not in {coin.height for coin in await run.client.coins()}


@BOTH
async def test_leaving_does_not_wait_for_a_stalled_source(kind: Kind) -> None:
    world = SilentWorld()
    source = kind(world)
    source.gate.clear()
    async with Node(world.regtest) as node, following(world, node, source) as run:
        await source.is_asked.wait()
        assert (await run.client.status()).searched_height <= 0


@BOTH
async def test_an_account_is_added_and_removed_while_running(kind: Kind, tmp_path: Path) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", WatchList(REGTEST)
    watch.add_script(b"\x51")
    raw = world.send(WALLET.address())
    world.regtest.mine(2)
    async with Node(world.regtest) as node:
        async with following(world, node, None, path, watch) as run:
            await run.synced(world)
            with pytest.raises(ParameterError, match="name your node with --node"):
                await run.client.add_account("gifts", WALLET.descriptor)
        async with following(world, node, source := kind(world), path, watch) as run:
            await run.synced(world)
            assert not source.asked
            assert (await run.client.status()).silent_source is None
            await run.client.add_account("gifts", WALLET.descriptor, label="gift")
            await run.client.wait_synced()
            assert await found(run) == {output_of(raw, 0): None}
        assert {*watch.windows.silent[0].found} == {output_of(raw, 0)}
        watch.save(tmp_path / "watch.txt")
        assert len(WatchList.load(tmp_path / "watch.txt", network=REGTEST)) == 2
        async with following(world, node, source := kind(world), path, watch, since=0) as run:
            (coin,) = await run.client.coins(account="gifts")
            assert (coin.script_pubkey, coin.label, coin.account) == (output_of(raw, 0), "gift", "gifts")
            await run.client.remove_account("gifts")
            world.regtest.mine()
            await run.synced(world)
            assert not await run.client.coins()
            assert not await run.client.keychains()
            assert not source.asked
        assert not watch.windows.silent
        assert WALLET.scan_text.encode() not in path.read_bytes()
        async with following(world, node, None, path, WatchList(REGTEST)) as run:
            await run.synced(world)


@pytest.mark.few(1)
@pytest.mark.parametrize("has_origin", [True, False])
async def test_a_psbt_has_what_a_signer_needs(tmp_path: Path, has_origin: bool) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    raw = world.send(WALLET.address(), WALLET.address(0), value=90_000)
    world.regtest.mine()
    text = WALLET.descriptor if has_origin else f"sp({WALLET.scan_text})"
    async with (
        Node(world.regtest) as node,
        following(world, node, Source(world), path, watching(text)) as run,
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


async def test_a_list_with_a_scan_key_needs_one_source(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="name your node with --node"):
        async with LightClient(watching(), peers=["127.0.0.1:1"]):
            pass
    with pytest.raises(InexpressibleError):
        async with LightClient(watching(), peers=["127.0.0.1:1"], mode="bip37", spent_source=Source(SilentWorld())):
            pass
    with pytest.raises(TypeError, match="spent_source"):
        LightClient(watching(), peers=["127.0.0.1:1"], spent_source="http://127.0.0.1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tweak_source: expected a BlindBitOracle"):
        LightClient(watching(), peers=["127.0.0.1:1"], tweak_source=Source(SilentWorld()))  # type: ignore[arg-type]
    world, path = SilentWorld(), tmp_path / "wallet.db"
    with pytest.raises(ParameterError, match="pass either spent_source or tweak_source"):
        LightClient(watching(), peers=["127.0.0.1:1"], spent_source=Source(world), tweak_source=TweakServer(world))
    async with (
        Node(world.regtest) as node,
        following(world, node, Source(world), path) as run,
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
        following(world, useless, Source(world)) as run,
    ):
        await run.until(lambda books: books.warnings)
        assert "does not serve compact filters" in str(run.books.warnings[0].error)
        assert (await run.client.status()).way is not Mode.BIP37


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
            async with following(world, node, source, path, watch) as run:
                await run.synced(world)
                coins = await run.client.coins()
                assert {coin.sp_label for coin in coins} == labels
                assert {coin.label for coin in coins if coin.sp_label} <= {"Bob"}
            assert len(source.asked) == world.regtest.height + 1
        assert {each.label for each in watch.windows.silent[0].found.values()} == {None, 7}


async def test_a_revealed_label_is_found_from_then_on(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    async with Node(world.regtest) as node:
        async with following(world, node, Source(world), path) as run:
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
        async with following(world, node, source, path) as run:
            await run.synced(world)
            assert {coin.sp_label for coin in await run.client.coins()} == {1, 2, 3}
            assert source.asked == [world.regtest.chain.tip.hash]
            assert await run.client.reveal_address() == str(WALLET.address(4))


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
        following(world, node, Source(world)) as run,
    ):
        await run.synced(world)
        assert len(await run.client.coins()) == 40
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.slow
async def test_a_tweak_server_serves_up_to_twenty_labels(tmp_path: Path) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", watching()
    watch.search_sp_labels(19)
    async with Node(world.regtest) as node:
        async with following(world, node, TweakServer(world), path, watch) as run:
            await run.synced(world)
            for number in range(1, 21):
                assert await run.client.reveal_address() == str(WALLET.address(number))
            with pytest.raises(ParameterError, match="a client can look for at most 20 labels, not 21"):
                await run.client.reveal_address()
            raw = world.send(WALLET.address(20))
            world.regtest.mine()
            await run.synced(world)
            assert await found(run) == {output_of(raw, 0): 20}
        one, many = watching(), watching()
        one.add_sp_label(77)
        many.search_sp_labels(21)
        for store, more in ((path, one), (None, many)):
            with pytest.raises(ParameterError, match="a client can look for at most 20 labels, not 21"):
                async with following(world, node, TweakServer(world), store, more):
                    pass
