"""Signatures of foreign spends in a running client: bans of peers, and answers of the wallet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from spvfilter.errors import LieError
from spvfilter.light.client import LightClient
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.network import REGTEST
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import SIGHASH_ALL, find_curve
from spvfilter.signing import build_tx
from spvfilter.store.ledger import TxStatus
from spvfilter.testing import RegtestNode
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import MatchUnconfirmed
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from support.blocks.signing import signed_tx, wpkh
from support.client.regtests import mined
from support.wallets.walletbooks import THEIRS

pytestmark = [
    pytest.mark.skipif(find_curve() is None, reason="libsecp256k1 is not installed"),
    pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT]),
]
MINE = wpkh(5)


class _Tells(Responder):
    """Announces transactions that nobody else has, and serves them."""

    made: ClassVar[dict[bytes, Transaction]] = {}

    def on_message(self, message: Message) -> None:
        super().on_message(message)
        if isinstance(message, wire.Mempool):
            self.send(wire.Inv(tuple(InvItem(InvType.WTX, tx_hash) for tx_hash in self.made)))

    def _answer_txs(self) -> None:
        found = self.made.get(self._requests[0].hash)
        if found is None:
            super()._answer_txs()
            return
        self._requests.popleft()
        self.send(wire.Tx(found.raw))


@asynccontextmanager
async def told(mode: Mode, *, is_signed: bool) -> AsyncIterator[tuple[LightClient, Node, Transaction]]:
    """A client of three nodes: two are honest, and one announces a spend of the wallet's only coin."""
    regtest = mined(101)
    point = OutPoint(regtest.pay(TxOut(50_000, MINE.script_pubkey)), 0)
    regtest.mine()
    if is_signed:
        spend, _, _ = signed_tx([(MINE, 50_000)], [TxOut(40_000, THEIRS)], [SIGHASH_ALL], outpoints=[point])
    else:
        spend = Transaction.parse(build_tx([TxIn(point)], [TxOut(40_000, THEIRS)]))
    _Tells.made = {spend.wtxid: spend}
    watch = WatchList(REGTEST)
    watch.add_script(MINE.script_pubkey)
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(Node(regtest, host=host, responder=responder))
            for host, responder in (("127.1.0.1", Responder), ("127.2.0.1", Responder), ("127.3.0.1", _Tells))
        ]
        peers = [f"{node.host}:{node.port}" for node in nodes]
        client = await stack.enter_async_context(LightClient(watch, peers=peers, mode=mode))
        yield client, nodes[2], spend


async def test_unsigned_spend_is_discarded_and_its_sender_banned(mode: Mode) -> None:
    async with told(mode, is_signed=False) as (client, liar, spend):
        await client.wait_synced()
        warnings = (event async for event in client.events() if isinstance(event, PeerWarning) and event.banned)
        warning = await anext(warnings)
        assert warning.address == f"{liar.host}:{liar.port}"
        assert isinstance(warning.error, LieError)
        assert warning.error.cause is Lie.WRONG_SIGNATURE
        balance = await client.balance()
        assert (balance.total, balance.spendable, balance.pending_out) == (50_000, 50_000, 0)
        assert await client.transaction(spend.txid) is None
        assert [coin.value for coin in await client.unspent()] == [50_000]
        assert (await client.status()).checks_signatures


async def test_signed_spend_of_one_peer_takes_the_coin(mode: Mode) -> None:
    async with told(mode, is_signed=True) as (client, _, spend):
        await client.wait_synced()
        async for event in client.events(since=0):
            if getattr(getattr(event, "match", None), "txid", None) == spend.txid:
                break
        assert await client.unspent() == []
        assert (await client.balance()).spendable == 0
        entry = await client.transaction(spend.txid)
        assert entry is not None
        assert entry.status is TxStatus.PENDING


async def test_spend_of_another_device_in_a_stale_block_counts(mode: Mode, tmp_path: Path) -> None:
    """The client was off when it was confirmed. In BIP-37 mode, no peer has shown it the signatures."""
    watch = WatchList(REGTEST)
    watch.add_script(MINE.script_pubkey)
    node = RegtestNode()

    def client() -> LightClient:
        return LightClient(watch, peers=[node.address], store=tmp_path / "wallet.db", mode=mode)

    try:
        point = OutPoint(node.call(lambda regtest: regtest.pay(TxOut(50_000, MINE.script_pubkey))), 0)
        node.mine()
        async with client() as first:
            await first.wait_synced()
            assert [coin.value for coin in await first.unspent()] == [50_000]
        spend, _, _ = signed_tx([(MINE, 50_000)], [TxOut(40_000, THEIRS)], [SIGHASH_ALL], outpoints=[point])
        node.submit(spend.raw)
        node.mine()
        async with client() as second:
            await second.wait_confirmed(spend.txid)
            node.reorg(1)
            async for event in second.events(since=0):
                if isinstance(event, MatchUnconfirmed):
                    break
            assert (await second.balance()).pending_out == 50_000
            assert await second.unspent() == []
        async with client() as third:
            assert (await third.balance()).pending_out == 50_000
            assert await third.unspent() == []
    finally:
        node.close()
