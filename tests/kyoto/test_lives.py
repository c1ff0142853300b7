"""BDK as judge of keychains: at every tip of random lives, it agrees with this client's balance, coins and history.

The next addresses are compared, too. The client runs against a node, with moving windows, restarts and reorganizations.
BDK gets the blocks of the best chain and the ends of the client's windows. From these facts it computes the wallet.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spvfilter._public import deferred
from spvfilter.light import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.scripts import SIGNATURE, Lock
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.store.views import Balance, Coin, HistoryEntry
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.descriptor import parse_descriptor
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from support.client.lightworld import FAST, START, World, where
from support.vectors import effort
from support.wallets.keychains import RandomDescriptors

pytestmark = [pytest.mark.kyoto, pytest.mark.descriptors]
if TYPE_CHECKING:
    bdk: Any
else:
    bdk = deferred("bdkpython")

KINDS = ("wpkh", "pkh", "sh(wpkh)", "tr", "wsh(sortedmulti)", "miniscript")
INDEXES = 120  # paid indexes of each keychain
TIPS = effort(3, 3, 60)  # number of tips in a life


class Judge:
    """BDK's wallet of two descriptors, built from the facts at each tip."""

    def __init__(self, receiving: str, change: str) -> None:
        self.descriptors = [bdk.Descriptor(text, bdk.NetworkKind.TEST) for text in (receiving, change)]

    def wallet(self, world: World, ends: list[int]) -> Any:
        """The wallet with the blocks of the best chain and the scripts of both keychains up to these ends.

        BDK looks ahead by one script.
        """
        changes, txs, anchors = [], [], []
        for block in world.regtest.chain.active:
            changes.append(bdk.ChainChange(height=block.height, hash=bdk.BlockHash.from_bytes(block.hash)))
            place = bdk.BlockId(height=block.height, hash=bdk.BlockHash.from_bytes(block.hash))
            for tx in world.regtest.chain.txs(block):
                txs.append(bdk.Transaction(tx.raw))
                time = bdk.ConfirmationBlockTime(block_id=place, confirmation_time=block.height)
                anchors.append(bdk.Anchor(confirmation_block_time=time, txid=bdk.Txid.from_bytes(tx.txid)))
        revealed = {each.descriptor_id(): end - 2 for each, end in zip(self.descriptors, ends, strict=True)}
        facts = bdk.ChangeSet.from_aggregate(
            *self.descriptors,
            bdk.Network.REGTEST,
            bdk.LocalChainChangeSet(changes=changes),
            bdk.TxGraphChangeSet(txs=txs, txouts={}, anchors=anchors, last_seen={}, first_seen={}, last_evicted={}),
            bdk.IndexerChangeSet(last_revealed=revealed),
        )

        class Facts(bdk.Persistence):  # type: ignore[misc]  # without types
            def initialize(self) -> Any:
                return facts

            def persist(self, changeset: Any) -> None:
                pass  # the wallet is rebuilt each time, so nothing is stored

        return bdk.Wallet.load(*self.descriptors, bdk.Persister.custom(Facts()), 1)

    def check(
        self,
        world: World,
        ends: list[int],
        balance: Balance,
        coins: list[Coin],
        history: list[HistoryEntry],
        next_: list[str],
    ) -> None:
        """Check that both wallets agree on everything."""
        wallet = self.wallet(world, ends)
        theirs = wallet.balance()
        assert (theirs.confirmed.to_sat(), theirs.immature.to_sat()) == (balance.confirmed, balance.immature)
        assert (theirs.total.to_sat(), balance.pending_in, balance.pending_out) == (balance.total, 0, 0)
        unspent = {(each.outpoint.txid.serialize(), each.outpoint.vout): each for each in wallet.list_unspent()}
        assert {(coin.outpoint.txid, coin.outpoint.index): coin.value for coin in coins} == {
            place: each.txout.value.to_sat() for place, each in unspent.items()
        }
        for coin in coins:
            each = unspent[coin.outpoint.txid, coin.outpoint.index]
            kind = (bdk.KeychainKind.EXTERNAL, bdk.KeychainKind.INTERNAL)["/1/*" in (coin.keychain or "")]
            assert (each.keychain, each.derivation_index) == (kind, coin.keychain_index)
        listed = {each.transaction.compute_txid().serialize(): each for each in wallet.transactions()}
        assert {entry.txid for entry in history} == listed.keys()
        for entry in history:
            moved, position = (
                wallet.sent_and_received(listed[entry.txid].transaction),
                listed[entry.txid].chain_position,
            )
            assert entry.net == moved.received.to_sat() - moved.sent.to_sat()
            assert position.confirmation_block_time.block_id.height == entry.height
        kinds = bdk.KeychainKind.EXTERNAL, bdk.KeychainKind.INTERNAL
        assert next_ == [str(wallet.next_unused_address(kind).address) for kind in kinds]


def descriptors(made: RandomDescriptors, kind: str) -> tuple[str, str]:
    """A receiving and a change descriptor of the same keys."""
    while len(found := parse_descriptor(made.text(kind, is_main=False), REGTEST)) != 2:
        pass
    return found[0].text, found[1].text


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["compact", "bip37"])
async def test_bdk_agrees_at_every_tip(kind: str, mode: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng, path = random.Random(seed), tmp_path / "wallet.db"
    texts = descriptors(RandomDescriptors(rng), kind)
    judge, world = Judge(*texts), World(seed, [])
    scripts = [each.scripts for text in texts for each in parse_descriptor(text, REGTEST)]
    bare = b"\x51" if kind in ("pkh", "sh(wpkh)") else b""
    world.locks = [Lock(at(index)[0], bare, (SIGNATURE,)) for at in scripts for index in rng.sample(range(INDEXES), 40)]
    used: list[set[int]] = [set(), set()]  # indexes paid by a block of any branch
    async with Node(world.regtest) as node:
        tips = TIPS
        while tips > 0:
            watch = WatchList(REGTEST)
            for text in texts if tips == TIPS or rng.random() < 0.5 else ():  # otherwise the database knows them
                watch.add_descriptor(text, lookahead=GAP_LIMIT)
            clock = Clock(wall=lambda: START)
            async with LightClient(
                watch, peers=[where(node)], store=path, mode=mode, limits=FAST, clock=clock
            ) as client:
                for _ in range(rng.randrange(1, 5)):
                    if rng.random() < 0.2 and world.regtest.height > 110:
                        world.regtest.reorg(rng.randrange(1, 5))
                        while list(world.regtest.mempool):
                            world.regtest.mine()
                    else:
                        world.grow(rng.randrange(1, 4), share=0.9)
                    await _checked(client, world, judge, texts, used)
                    tips -= 1
            with WalletStore.open(path) as wallet:
                assert [each.used for each in wallet.keychains()] == [tuple(sorted(each)) for each in used]


async def _checked(
    client: LightClient, world: World, judge: Judge, texts: tuple[str, str], used: list[set[int]]
) -> None:
    async with asyncio.timeout(60):
        while (await client.wait_synced()).hash != world.regtest.chain.tip.hash:  # noqa: ASYNC110
            await asyncio.sleep(0)
    chains = [next(each for each in await client.keychains() if each.name == text) for text in texts]
    for each, known in zip(chains, used, strict=True):
        known.update(each.used)  # even if the payments are stale
        assert each.used == tuple(sorted(known))
        assert max(each.used, default=-1) + 1 + GAP_LIMIT <= each.window
    next_ = [await client.next_address(text) for text in texts]
    history = await client.history(limit=None)
    judge.check(world, [each.window for each in chains], await client.balance(), await client.coins(), history, next_)
