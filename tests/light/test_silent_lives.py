"""Random lives of a wallet with a scan key: payments, spends, reorganizations, restarts and sources that fail."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from spvfilter import WatchList
from spvfilter.errors import SourceError
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.transaction import Transaction
from support.blocks import undo
from support.client.compactworld import reach_tip
from support.client.silentworld import (
    OTHER,
    SISTER,
    WALLET,
    SilentWorld,
    Source,
    TweakServer,
    check_tweak,
    following,
    watching,
)
from support.vectors import effort

Coins = set[tuple[bytes, int, int | None, int | None]]
"""Script, value, label and height of each coin."""


class FailingSource(Source):
    """Fails in a part of the questions."""

    rng: random.Random

    async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
        if self.rng.random() < 0.01:
            raise SourceError("no answer now")
        return await super().undo_record(digest, previous)


class FailingServer(TweakServer):
    """Fails in a part of the questions, or states the block below."""

    rng: random.Random

    async def tweaks(self, height: int) -> tuple[bytes, Sequence[bytes]]:
        if self.rng.random() < 0.02:
            raise SourceError("no answer now")
        block, tweaks = await super().tweaks(height)
        return (bytes(32) if self.rng.random() < 0.005 else block), tweaks


def both() -> WatchList:
    """Two wallets that share a scan key."""
    watch = watching()
    watch.add_descriptor(SISTER.descriptor, "sister")
    return watch


def coins_of_the_chain(world: SilentWorld, labels: int) -> Coins:
    """The coins in blocks, found by reading every block whole with the outputs that it spends."""
    watch = both()
    watch.search_sp_labels(labels)
    blocks = [block.raw for block in world.regtest.chain.active]
    found: dict[bytes, tuple[bytes, int, int | None, int | None]] = {}
    for height, (raw, record) in enumerate(zip(blocks, undo.records_of(blocks), strict=True)):
        for match in watch.match_block(raw, spent=record, height=height):
            if match.kind == "input":
                found.pop(bytes(match.outpoint), None)
            else:
                found[bytes(match.outpoint)] = (match.script_pubkey or b"", match.value or 0, match.sp_label, height)
    return set(found.values())


@pytest.mark.few(1)
@pytest.mark.parametrize("has_server", [False, True])
@pytest.mark.parametrize("seed", range(effort(1, 3, 30)))
async def test_a_life_ends_with_the_coins_of_the_chain(tmp_path: Path, seed: int, has_server: bool) -> None:
    print(f"seed {seed}")
    rng, world, path = random.Random(f"{seed} {has_server}"), SilentWorld(), tmp_path / "wallet.db"
    revealed, paid, taken = 0, list[bytes](), list[bytes]()
    async with Node(world.regtest) as node:
        for run_number in range(3):
            server, source = FailingServer(world), FailingSource(world)
            server.rng = source.rng = rng
            watch = WatchList(REGTEST) if run_number else both()
            async with following(world, node, server if has_server else source, path, watch) as run:
                for _ in range(rng.randrange(2, 5)):
                    match rng.randrange(6):
                        case 0 | 1:
                            known = [None, 0, *range(1, revealed + 1)]
                            addresses = [
                                SISTER.address() if rng.random() < 0.4 else WALLET.address(rng.choice(known))
                                for _ in range(rng.randrange(1, 4))
                            ]
                            paid.append(world.send(*addresses, OTHER.address()))
                            world.regtest.mine()
                        case 2 if paid:
                            taken.append(world.take(paid.pop(rng.randrange(len(paid)))))
                            world.regtest.mine()
                        case 3:
                            revealed += 1
                            assert await run.client.reveal_address() == str(WALLET.address(revealed))
                            continue
                        case 4:
                            depth = rng.randrange(1, 4)
                            world.regtest.reorg(depth, blocks=depth + 1)
                            for raw in taken:  # unsigned: the client would ban a node that sent one
                                world.regtest.mempool.evict(Transaction.parse(raw).txid)
                        case _:
                            world.regtest.mine(rng.randrange(1, 3))
                    if rng.random() < 0.6:
                        await reach_tip(run, world)
                if run_number < 2:
                    continue
                world.regtest.mine(2)
                await reach_tip(run, world)
                coins = await run.client.coins()
                for coin in coins:
                    check_tweak(coin, SISTER if coin.label == "sister" else WALLET)
                    assert coin.height is not None
                assert {
                    (coin.script_pubkey, coin.value, coin.sp_label, coin.height) for coin in coins
                } == coins_of_the_chain(world, revealed)
