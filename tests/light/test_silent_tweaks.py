"""Silent payments by a tweak server: filters answer for the first output, and the block has the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from spvfilter import LightClient, WatchList
from spvfilter.errors import ParameterError, SourceError
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.light.tweaksource import TweakSource
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from support.blocks.silentpayments import output_of
from support.client.compactworld import LIMITS
from support.client.lightworld import Run, World, running
from support.client.silentworld import OTHER, WALLET, SilentWorld, Source, TweakServer, check_tweak, watching


def following(
    world: World, node: Node, server: TweakSource, store: Path | None = None, watch: WatchList | None = None
) -> AbstractAsyncContextManager[Run]:
    """A client that follows a wallet with a tweak server."""
    listed = watching() if watch is None else watch
    return running(world, node, limits=LIMITS, store=store, mode="auto", watch=listed, tweak_source=server)


async def found(run: Run) -> dict[bytes, int | None]:
    """The label of each coin, by its script. Their tweaks are right."""
    coins = await run.client.coins()
    for coin in coins:
        check_tweak(coin)
    return {coin.script_pubkey: coin.sp_label for coin in coins}


async def test_blocks_that_pay_only_others_are_not_downloaded() -> None:
    world = SilentWorld()
    for _ in range(12):
        world.send(OTHER.address())
        world.regtest.mine()
    raw = world.send(WALLET.address(), OTHER.address())
    world.regtest.mine()
    async with Node(world.regtest) as node, following(world, node, TweakServer(world)) as run:
        await run.synced(world)
        assert await found(run) == {output_of(raw, 0): None}
        assert run.client.metrics().blocks_received == 1


async def test_payments_and_their_spends_are_found(tmp_path: Path) -> None:
    world, path, watch = SilentWorld(), tmp_path / "wallet.db", watching()
    watch.add_sp_label(3, "Alice")
    first = world.send(WALLET.address(3), OTHER.address(), WALLET.address(), WALLET.address(0), WALLET.address())
    world.regtest.mine(3)
    second = world.send(WALLET.address())
    world.take(first, 2)
    world.regtest.mine(2)
    server = TweakServer(world)
    async with Node(world.regtest) as node:
        async with following(world, node, server, path, watch) as run:
            await run.synced(world)
            status = await run.client.status()
            assert status.way is Mode.COMPACT
            assert (status.silent_source, status.spent_problem) == ("TweakServer", None)
            assert status.proven_height <= status.tip_height
            expected = {output_of(first, n): label for n, label in ((0, 3), (3, 0), (4, None))}
            assert await found(run) == expected | {output_of(second, 0): None}
            assert sorted(server.asked) == list(range(1, world.regtest.height + 1))
            metrics = run.client.metrics()
            assert metrics.blocks_received < world.regtest.height / 2
        world.take(second)
        third = world.send(WALLET.address())
        world.regtest.mine()
        server = TweakServer(world)
        async with following(world, node, server, path, WatchList(REGTEST)) as run:
            await run.synced(world)
            assert await found(run) == expected | {output_of(third, 0): None}
            assert server.asked == [world.regtest.height]
            assert not run.books.warnings


async def test_a_reorganization_moves_payments(tmp_path: Path) -> None:
    world = SilentWorld()
    raw = world.send(WALLET.address())
    world.regtest.mine(2)
    async with (
        Node(world.regtest) as node,
        following(world, node, server := TweakServer(world), tmp_path / "wallet.db") as run,
    ):
        await run.synced(world)
        world.regtest.reorg(2, blocks=3)
        await run.synced(world)
        other = world.send(WALLET.address(0))
        world.regtest.mine()
        await run.synced(world)
        assert await found(run) == {output_of(raw, 0): None, output_of(other, 0): 0}
        assert server.asked.count(world.regtest.height - 3) == 2


async def test_a_block_that_a_server_lacks_delays_the_search() -> None:
    world = SilentWorld()
    world.regtest.mine()

    class Behind(TweakServer):
        height = world.regtest.height

        def answer(self, height: int) -> tuple[bytes, list[bytes]]:
            if height > self.height:
                raise SourceError("no such block yet")
            return super().answer(height)

    server = Behind(world)
    async with Node(world.regtest) as node, following(world, node, server) as run:
        await run.synced(world)
        raw = world.send(WALLET.address())
        world.regtest.mine()
        await run.until(lambda books: books.warnings)
        status = await run.client.status()
        assert status.searched_height == world.regtest.height - 1
        assert status.spent_problem == f"Behind: tweaks of block {world.regtest.height}: no such block yet"
        assert not await run.client.coins()
        server.height += 1
        await run.synced(world)
        assert await found(run) == {output_of(raw, 0): None}
        assert (await run.client.status()).spent_problem is None


LIES = ["hash", "type", "pair", "text", "long", "many", "point", "error", "cancelled", "short hash"]


@pytest.mark.few(1)
@pytest.mark.parametrize("lie", LIES)
async def test_a_lying_server_is_asked_again(lie: str) -> None:
    world = SilentWorld()
    raw = world.send(WALLET.address())
    world.regtest.mine()
    tip = world.regtest.height

    class Lying(TweakServer):
        is_lying = True

        async def tweaks(self, height: int) -> tuple[bytes, Sequence[bytes]]:
            block, tweaks = await super().tweaks(height)
            lies: dict[str, object] = {
                "hash": (world.regtest.chain.active[height - 1].hash, tweaks),
                "short hash": (block[:31], tweaks),
                "type": None,
                "pair": (block,),
                "text": (block, "02" * 33),
                "long": (block, [*tweaks, bytes(34)]),
                "many": (block, [*tweaks] * 9_010),
                "point": (block, [*tweaks, b"\2" + b"\xff" * 32]),
            }
            if height != tip or not self.is_lying:
                return block, tweaks
            if lie == "error":
                raise ValueError("a bug of the source")
            if lie == "cancelled":
                raise asyncio.CancelledError
            return lies[lie]  # type: ignore[return-value]

    server = Lying(world)
    async with Node(world.regtest) as node, following(world, node, server) as run:
        await run.until(lambda books: books.warnings)
        status = await run.client.status()
        assert status.searched_height < tip
        assert status.spent_problem is not None
        assert status.spent_problem.startswith(f"Lying: tweaks of block {tip}: ")
        server.is_lying = False
        await run.synced(world)
        assert await found(run) == {output_of(raw, 0): None}
        (warning,) = (event for event in run.books.events if isinstance(event, PeerWarning))
        assert warning.address == "Lying"
        assert (await run.client.status()).spent_problem is None


@pytest.mark.slow
async def test_wrong_tweaks_hide_but_invent_nothing() -> None:
    world = SilentWorld()
    world.send(WALLET.address())
    world.regtest.mine()

    class Wrong(TweakServer):
        def answer(self, height: int) -> tuple[bytes, list[bytes]]:
            return super().answer(height)[0], [OTHER.spend_pubkey, WALLET.scan_pubkey, WALLET.spend_pubkey]

    async with Node(world.regtest) as node, following(world, node, Wrong(world)) as run:
        await run.synced(world)
        assert not await run.client.coins()
        assert not run.books.matches
        assert (await run.client.status()).silent_source == "Wrong"


async def test_leaving_does_not_wait_for_a_stalled_server() -> None:
    world = SilentWorld()
    server = TweakServer(world)
    server.gate.clear()
    async with Node(world.regtest) as node, following(world, node, server) as run:
        await server.is_asked.wait()
        assert (await run.client.status()).searched_height <= 0


@pytest.mark.slow
async def test_labels_are_revealed_up_to_twenty(tmp_path: Path) -> None:
    world, path = SilentWorld(), tmp_path / "wallet.db"
    watch = watching()
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
        more = watching()
        more.add_sp_label(77)
        with pytest.raises(ParameterError, match="a client can look for at most 20 labels, not 21"):
            async with following(world, node, TweakServer(world), tmp_path / "other.db", _with_labels(21)):
                pass
        with pytest.raises(ParameterError, match="not 21"):
            async with following(world, node, TweakServer(world), path, more):
                pass


def _with_labels(count: int) -> WatchList:
    watch = watching()
    watch.search_sp_labels(count)
    return watch


@pytest.mark.slow
async def test_an_account_is_added_and_removed_by_tweaks(tmp_path: Path) -> None:
    world, watch = SilentWorld(), WatchList(REGTEST)
    watch.add_script(b"\0\x14" + bytes(range(20)))
    raw = world.send(WALLET.address())
    world.regtest.mine(2)
    server = TweakServer(world)
    async with (
        Node(world.regtest) as node,
        following(world, node, server, tmp_path / "wallet.db", watch) as run,
    ):
        await run.synced(world)
        assert not server.asked
        assert (await run.client.status()).silent_source is None
        await run.client.add_account("gifts", WALLET.descriptor)
        await run.client.wait_synced()
        assert await found(run) == {output_of(raw, 0): None}
        await run.client.remove_account("gifts")
        asked = len(server.asked)
        world.regtest.mine()
        await run.synced(world)
        assert not await run.client.coins()
        assert len(server.asked) == asked


async def test_one_source_is_enough() -> None:
    world = SilentWorld()
    with pytest.raises(ParameterError, match="pass either spent_source or tweak_source"):
        LightClient(watching(), peers=["127.0.0.1:1"], spent_source=Source(world), tweak_source=TweakServer(world))
    with pytest.raises(TypeError, match="tweak_source: expected a BlindBitOracle"):
        LightClient(watching(), peers=["127.0.0.1:1"], tweak_source=Source(world))  # type: ignore[arg-type]
