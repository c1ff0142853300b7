"""BDK's Electrum client against the server: receive, confirm, reorganize, send, replace elsewhere, restart."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("aiorpcx")

from spvfilter._public import deferred
from spvfilter.address import address_to_script
from spvfilter.electrum import ElectrumServer
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.primitives import TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.testing import RegtestNode
from spvfilter.wallet.events import MatchFound
from spvfilter.watch.watchlist import WatchList

pytestmark = [pytest.mark.kyoto, pytest.mark.descriptors]
if TYPE_CHECKING:
    bdk: Any
else:
    bdk = deferred("bdkpython")

WORDS = "abandon " * 11 + "about"
PAYEE = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"


class BdkWallet:
    """A BDK wallet with keys, which knows the chain from the Electrum server only."""

    def __init__(self, seed: str = WORDS) -> None:
        secret = bdk.DescriptorSecretKey(bdk.NetworkKind.TEST, bdk.Mnemonic.from_string(seed), None)
        kinds = bdk.KeychainKind.EXTERNAL, bdk.KeychainKind.INTERNAL
        private = [bdk.Descriptor.new_bip84(secret, kind, bdk.NetworkKind.TEST) for kind in kinds]
        self.descriptor: str = str(private[0]).partition("#")[0].replace("/0/*", "/<0;1>/*")
        self.wallet = bdk.Wallet(*private, bdk.Network.REGTEST, bdk.Persister.new_in_memory())
        self.is_scanned = False

    def sync(self, port: int) -> None:
        """Ask the server. The first call searches all addresses, and later ones ask for the known ones."""
        client = bdk.ElectrumClient(f"tcp://127.0.0.1:{port}")
        if self.is_scanned:
            update = client.sync(self.wallet.start_sync_with_revealed_spks().build(), 10, False)
        else:
            update = client.full_scan(self.wallet.start_full_scan().build(), 20, 10, False)
        self.is_scanned = True
        self.wallet.apply_update(update)

    def pay(self, value: int, rate: int) -> Any:
        """A signed payment."""
        payee = bdk.Script(address_to_script(PAYEE, REGTEST))
        builder = bdk.TxBuilder().add_recipient(payee, bdk.Amount.from_sat(value))
        psbt = builder.fee_rate(bdk.FeeRate.from_sat_per_vb(rate)).finish(self.wallet)
        assert self.wallet.sign(psbt)
        return psbt.extract_tx()

    def known(self) -> set[tuple[bytes, bool]]:
        """The transactions that count: txid, and whether a block contains it."""
        return {
            (each.transaction.compute_txid().serialize(), each.chain_position.is_confirmed())
            for each in self.wallet.transactions()
        }


def broadcast(port: int | None, tx: Any) -> None:
    bdk.ElectrumClient(f"tcp://127.0.0.1:{port}").transaction_broadcast(tx)


async def agreed(bdk_wallet: BdkWallet, client: LightClient, server: ElectrumServer) -> int:
    """Ask the server until the wallet knows what the client knows. Returns the balance in satoshi."""
    assert server.port is not None
    async with asyncio.timeout(30):
        while True:
            with suppress(bdk.ElectrumError):  # a reorganization came between two of its questions
                await asyncio.to_thread(bdk_wallet.sync, server.port)
            history = await client.history()
            counts = {
                (each.txid, each.status is TxStatus.CONFIRMED)
                for each in history
                if each.status in (TxStatus.CONFIRMED, TxStatus.PENDING)
            }
            total: int = bdk_wallet.wallet.balance().total.to_sat()
            if bdk_wallet.known() == counts and total == (await client.balance()).total:
                return total
            await asyncio.sleep(0.05)


async def paid(client: LightClient) -> None:
    """Wait for the first payment."""
    async with asyncio.timeout(30):
        async for event in client.events(since=0):
            if isinstance(event, MatchFound):
                return


async def test_life_of_a_bdk_wallet(regtest_node: RegtestNode, tmp_path: Path) -> None:
    owner, twin = BdkWallet(), BdkWallet()  # the same keys on two devices
    script = bytes(owner.wallet.reveal_next_address(bdk.KeychainKind.EXTERNAL).address.script_pubkey().to_bytes())

    def listed() -> WatchList:
        watch = WatchList(REGTEST)
        watch.add_descriptor(owner.descriptor, "savings")
        return watch

    options: dict[str, Any] = {"peers": [regtest_node.address], "mode": "compact", "store": tmp_path / "w.db"}
    async with LightClient(listed(), **options) as client, ElectrumServer(client, port=0) as server:
        await client.wait_synced()
        regtest_node.call(lambda regtest: regtest.pay(TxOut(60_000, script)))
        await paid(client)
        assert await agreed(owner, client, server) == 60_000
        regtest_node.mine()
        (received,) = await client.history()
        await client.wait_confirmed(received.txid)
        assert await agreed(owner, client, server) == 60_000
        regtest_node.reorg(2)
        assert await agreed(owner, client, server) in (0, 60_000)
        regtest_node.mine(2)
        await client.wait_confirmed(received.txid)
        assert await agreed(owner, client, server) == 60_000
        assert await agreed(twin, client, server) == 60_000

        sent = owner.pay(20_000, 2)
        await asyncio.to_thread(broadcast, server.port, sent)
        assert await agreed(owner, client, server) < 40_000
        other = twin.pay(25_000, 9)  # from the other device, in a block
        regtest_node.call(lambda regtest: regtest.mine(transactions=[bytes(other.serialize())]))
        await client.wait_confirmed(other.compute_txid().serialize())
        left = await agreed(owner, client, server)
        assert 30_000 < left < 35_000
        assert (sent.compute_txid().serialize(), False) not in owner.known()
        with pytest.raises(bdk.ElectrumError):
            await asyncio.to_thread(broadcast, server.port, sent)
    async with LightClient(listed(), **options) as client, ElectrumServer(client, port=0) as server:
        await client.wait_synced()
        assert await agreed(owner, client, server) == left
        assert await agreed(BdkWallet(), client, server) == left
