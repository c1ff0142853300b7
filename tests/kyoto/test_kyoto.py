"""BDK's Kyoto as judge: it and this client, on one node, have the same confirmed coins after spends and
reorganizations.

Kyoto passes the blocks of an update to BDK from the highest to the lowest, and BDK recognizes only spends of known
coins. Therefore each update of these tests spends only coins of earlier updates or of the same block.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spvfilter.light.events import Mode
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.wire.transport import Transport
from support.blocks.locks import public_key
from support.client.lightworld import Run, World, running
from support.oracles.kyoto import Coin, Kyoto
from support.vectors import effort

pytestmark = pytest.mark.kyoto

PAID = 8  # paid scripts of each keychain: BDK watches all of them from the start


@pytest.fixture(params=[Transport.V1, pytest.param(Transport.V2, marks=pytest.mark.v2)])
async def kyoto_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[World, Node, Kyoto]]:
    """A chain with Kyoto's wallet, a node that serves it, and Kyoto, connected with or without encryption."""
    world, transport = World(7, []), request.param
    async with Node(world.regtest) as node, Kyoto(tmp_path, node.port, is_encrypted=transport is Transport.V2) as kyoto:
        world.locks = [p2wpkh(public_key(secret)) for secret in kyoto.secrets(PAID)]
        assert {lock.script_pubkey for lock in world.locks} <= set(kyoto.scripts())
        yield world, node, kyoto
        # this client has disconnected, and Kyoto is still connected
        assert {responder.session.transport for responder in node.responders} == {transport}


def coins(run: Run) -> set[Coin]:
    """Confirmed outputs that no confirmed input spends."""
    confirmed = [match for match in run.books.matches.values() if match.height is not None]
    spent = {
        (match.outpoint.txid, match.outpoint.index)
        for match in confirmed
        if match.kind == "input" and match.outpoint is not None
    }
    made = {(match.txid, match.index, match.value) for match in confirmed if match.kind == "output"}
    return {(txid, index, value) for txid, index, value in made if value is not None and (txid, index) not in spent}


def receive(world: World, blocks: int) -> None:
    """Mine blocks with payments to the wallet in half of them."""
    for _ in range(blocks):
        world.others()
        if world.rng.random() < 0.5:
            world.receive(value=world.rng.randrange(10_000, 90_000))
        world.regtest.mine()


async def compare(world: World, run: Run, kyoto: Kyoto) -> int:
    """Wait until both clients have the tip, and compare them. Returns the number of coins."""
    async with asyncio.timeout(60):
        await asyncio.gather(run.synced(world), kyoto.until(world.regtest.chain.tip.hash))
    ours = coins(run)
    assert ours == kyoto.confirmed()
    if not run.books.waiting():
        assert sum(value for _, _, value in ours) == kyoto.balance()
    return len(ours)


@pytest.mark.long
@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
async def test_confirmed_coins_equal_those_of_kyoto(
    mode: Mode, kyoto_world: tuple[World, Node, Kyoto], tmp_path: Path
) -> None:
    world, node, kyoto = kyoto_world
    receive(world, effort(60, 120, 600))
    async with running(world, node, mode=mode, store=tmp_path / "ours.db") as run:
        assert await compare(world, run, kyoto) > 10
        for _ in range(effort(10, 20, 200)):
            world.grow(1, share=0.8)
            await compare(world, run, kyoto)
        assert any(match.kind == "input" for match in run.books.matches.values())


@pytest.mark.long
@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
async def test_both_clients_follow_a_reorganization(
    mode: Mode, kyoto_world: tuple[World, Node, Kyoto], tmp_path: Path
) -> None:
    world, node, kyoto = kyoto_world
    receive(world, 40)
    async with running(world, node, mode=mode, store=tmp_path / "ours.db") as run:
        await compare(world, run, kyoto)
        for _ in range(10):
            world.grow(1, share=1.0)
            before = await compare(world, run, kyoto)
        for depth in (1, 5, 30):
            world.regtest.reorg(depth)
            after = await compare(world, run, kyoto)
            assert depth < 30 or after < before
        world.regtest.mine()  # confirms the transactions that returned to the mempool
        await compare(world, run, kyoto)
