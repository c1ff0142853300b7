"""Silent payments while the source of the user fails: blocks wait, and the wallet gains no false coin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from spvfilter.errors import SourceError
from spvfilter.light.events import PeerWarning
from spvfilter.node.server import Node
from support.blocks import undo
from support.blocks.silentpayments import output_of
from support.client.silentworld import OTHER, WALLET, SilentWorld, Source, TweakServer, following, found


class Liar:
    """Lies about the tip of its world until it is told to stop."""

    is_lying = True
    lie: str


class LyingSource(Liar, Source):
    """Gives wrong spent outputs."""

    async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
        record = await super().undo_record(digest, previous)
        tip = self.world.regtest.chain.tip
        if digest != tip.hash or not self.is_lying:
            return record
        spent = undo.spent_of([block.raw for block in self.world.regtest.chain.active])[-1]
        match self.lie:
            case "counts":
                return undo.record_of(tip.raw, undo.undo_of(spent[:-1]))
            case "value":
                spent[-1] = [undo.Spent(each.value - 999_999, each.script) for each in spent[-1]]
                return undo.record_of(tip.raw, undo.undo_of(spent))
            case "damage":
                return bytes((record[0] ^ 1,)) + record[1:] if record else None
            case "none":
                return None
            case "text":
                return record.hex() if record else None  # type: ignore[return-value]
            case "cancelled":
                raise asyncio.CancelledError
            case _:
                raise SourceError("the node is pruned")


class LyingServer(Liar, TweakServer):
    """Gives wrong tweaks."""

    async def tweaks(self, height: int) -> tuple[bytes, Sequence[bytes]]:
        block, tweaks = await super().tweaks(height)
        if height != self.world.regtest.height or not self.is_lying:
            return block, tweaks
        if self.lie == "error":
            raise ValueError("a bug of the source")
        if self.lie == "cancelled":
            raise asyncio.CancelledError
        lies: dict[str, object] = {
            "hash": (self.world.regtest.chain.active[height - 1].hash, tweaks),
            "short hash": (block[:31], tweaks),
            "type": None,
            "pair": (block,),
            "text": (block, "02" * 33),
            "long": (block, [*tweaks, bytes(34)]),
            "many": (block, [*tweaks] * 9_010),
            "point": (block, [*tweaks, b"\2" + b"\xff" * 32]),
        }
        return lies[self.lie]  # type: ignore[return-value]


OUTPUTS = {
    "counts": "expected outputs for 2 transactions, not 1",
    "value": "differs from the one in the block",
    "damage": "",
    "none": "the source cannot list the outputs",
    "text": "it returned str instead of bytes",
    "error": "the node is pruned",
    "cancelled": "the source has cancelled the request",
}
TWEAKS = {
    "hash": "which is not in the best chain",
    "short hash": "it did not return a 32-byte block hash",
    "type": "it returned NoneType instead of a block hash and tweaks",
    "pair": "it returned tuple instead of a block hash and tweaks",
    "text": "it returned str instead of tweaks",
    "long": "it returned a tweak that is not 33 bytes long",
    "many": "but a block can have at most",
    "point": "",
    "error": "a bug of the source",
    "cancelled": "the source has cancelled the request",
}
LIES = [*((LyingSource, lie) for lie in OUTPUTS), *((LyingServer, lie) for lie in TWEAKS)]


@pytest.mark.few(3)
@pytest.mark.parametrize(("kind", "lie"), LIES)
async def test_a_block_waits_for_a_true_answer(kind: type[LyingSource] | type[LyingServer], lie: str) -> None:
    world = SilentWorld()
    raw = world.send(WALLET.address())
    world.regtest.mine()
    source, tip = kind(world), world.regtest.height
    source.lie = lie
    problem = f"outputs that block {tip} spends" if kind is LyingSource else f"{kind.__name__}: tweaks of block {tip}: "
    async with Node(world.regtest) as node, following(world, node, source) as run:
        await run.until(lambda books: books.warnings)
        status = await run.client.status()
        assert status.searched_height < tip
        assert problem in (status.spent_problem or "")
        assert (OUTPUTS if kind is LyingSource else TWEAKS)[lie] in (status.spent_problem or "")
        source.is_lying = False
        await run.synced(world)
        assert await found(run) == {output_of(raw, 0): None}
        (warning,) = (event for event in run.books.events if isinstance(event, PeerWarning))
        assert warning.address == kind.__name__
        assert (await run.client.status()).spent_problem is None


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


async def test_a_block_that_a_server_lacks_delays_the_search() -> None:
    world = SilentWorld()
    world.regtest.mine()

    class Behind(TweakServer):
        height = world.regtest.height
        failures = 0

        def answer(self, height: int) -> tuple[bytes, list[bytes]]:
            if height > self.height:
                self.failures += 1
                raise SourceError("no such block yet")
            return super().answer(height)

    server = Behind(world)
    async with Node(world.regtest) as node, following(world, node, server) as run:
        await run.synced(world)
        raw = world.send(WALLET.address())
        world.regtest.mine()
        await run.until(lambda books: books.warnings)
        assert server.failures == 1  # the user hears of the first one
        status = await run.client.status()
        assert status.searched_height == world.regtest.height - 1
        assert status.spent_problem == f"Behind: tweaks of block {world.regtest.height}: no such block yet"
        assert not await run.client.coins()
        server.height += 1
        await run.synced(world)
        assert await found(run) == {output_of(raw, 0): None}
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
