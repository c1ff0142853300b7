"""The client's encrypted connections (BIP-324): its policy, and its reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spvfilter.errors import ParameterError, SessionError
from spvfilter.light import LightClient
from spvfilter.light.events import Mode, PeerChanged
from spvfilter.node.server import SERVICES, SETTINGS, Node
from spvfilter.wire.events import Cause, Service
from spvfilter.wire.transport import Transport, V2Policy, is_installed
from support.client.lightworld import World, running, where
from support.peers.v2peers import without_extra

PLAIN = replace(SETTINGS, services=SERVICES & ~Service.P2P_V2)


@pytest.mark.few(1)
@pytest.mark.v2
@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
async def test_a_client_encrypts_by_default_and_reports_it(mode: Mode) -> None:
    world = World(71)
    world.grow(20, share=0.8)
    async with Node(world.regtest) as node, running(world, node, mode=mode) as run:
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert [peer.transport for peer in (await run.client.status()).peers] == [Transport.V2]
        changed = [event for event in run.books.events if isinstance(event, PeerChanged)]
        assert {event.transport for event in changed if event.address is not None} == {Transport.V2}
        assert all(event.transport is None for event in changed if event.address is None)
        world.grow(3, share=1.0)
        await run.synced(world)
        assert run.books.confirmed() == world.scan()
        assert not run.books.warnings


@pytest.mark.parametrize("lacks", ["the node", "the client"])
async def test_a_connection_is_unencrypted_if_one_end_lacks_encryption(
    lacks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(72)
    world.grow(5)
    async with Node(world.regtest, settings=PLAIN if lacks == "the node" else SETTINGS) as node:
        if lacks == "the client":
            without_extra(monkeypatch)
            assert not is_installed()
        async with running(world, node, v2="prefer") as run:
            await run.synced(world)
            assert [peer.transport for peer in (await run.client.status()).peers] == [Transport.V1]
            assert not run.books.warnings


@pytest.mark.v2
async def test_a_required_encryption_uses_only_peers_with_it() -> None:
    world = World(73)
    world.grow(5)
    async with (
        Node(world.regtest, settings=PLAIN) as plain,
        Node(world.regtest) as node,
        running(world, plain, node, v2="require") as run,
    ):
        await run.synced(world)
        await run.until(lambda books: books.warnings)
        assert [peer.address for peer in (await run.client.status()).peers] == [where(node)]
        for warning in run.books.warnings:
            assert warning.address == where(plain) and not warning.banned
            assert isinstance(warning.error, SessionError) and warning.error.cause == Cause.NO_V2


@pytest.mark.v2
async def test_one_client_uses_both_transports_and_restarts(tmp_path: Path) -> None:
    world = World(74)
    world.grow(10, share=0.8)
    async with Node(world.regtest) as node:
        for policy in (V2Policy.PREFER, V2Policy.OFF, V2Policy.REQUIRE):
            async with running(world, node, store=tmp_path / "wallet.db", v2=policy) as run:
                await run.client.wait_synced()
                (peer,) = (await run.client.status()).peers
                assert (peer.transport is Transport.V2) == (policy is not V2Policy.OFF)
            world.grow(2)


def test_require_without_the_extra_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    without_extra(monkeypatch)
    with pytest.raises(ParameterError, match=r"v2='require' needs .*extra `bip324`"):
        LightClient(World(1).watch(), peers=["127.0.0.1"], v2="require")
