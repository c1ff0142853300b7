"""The real Electrum against the server: a watch-only wallet and a wallet with keys, equal to our own books.

The server runs in this process, and Electrum is Debian's package. Its latest security update (4.3.4+dfsg1-1+deb12u2)
switches `bumpfee` off. The replacement here is a second payment of the same coin, which Electrum signs beforehand.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiorpcx")

from electrum.electrumwallet import ElectrumDaemon
from spvfilter.electrum import ElectrumServer
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.testing import RegtestNode
from spvfilter.watch.watchlist import WatchList

pytestmark = [pytest.mark.electrum, pytest.mark.descriptors]

# account m/84h/1h/0h of the words "abandon … about" (BIP-84): as a descriptor needs it, and as Electrum does (SLIP-132)
TPUB = "tpubDC8msFGeGuwnKG9Upg7DM2b4DaRqg3CUZa5g8v2SRQ6K4NSkxUgd7HsL2XVWbVm39yBA4LAxysQAm397zwQSQoQgewGiYZqrA9DsP4zbQ1M"
VPUB = "vpub5Y6cjg78GGuNLsaPhmYsiw4gYX3HoQiRBiSwDaBXKUafCt9bNwWQiitDk5VZ5BVxYnQdwoTyXSs2JHRPAgjAvtbBrf8ZhDYe2jWAqvZVnsc"
VPRV = "vprv9K7GLAaERuM58PVvbk1sMo7wzVCoPwzZpVXLRBmum93gL5pSqQCAAvZjtmz93nnnYMr9i2FwG2fqrwYLRgJmDDwFjGiamGsbRMJ5Y6siJ8H"
FOREIGN = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"


class Wallets:
    """A watch-only wallet and a wallet with keys of the same account, and our own books."""

    def __init__(self, electrum: ElectrumDaemon, client: LightClient) -> None:
        self.electrum = electrum
        self.client = client
        self.watching = {"wallet": str(electrum.home / "watching")}
        self.signing = {"wallet": str(electrum.home / "signing")}

    async def restore(self) -> None:
        for wallet, key in ((self.watching, VPUB), (self.signing, VPRV)):
            await self.electrum.call("restore", text=key, wallet_path=wallet["wallet"])
        await self.load()

    async def load(self) -> None:
        for wallet in (self.watching, self.signing):
            assert await self.electrum.call("load_wallet", wallet_path=wallet["wallet"])

    async def agree(self) -> None:
        """Wait until the books of both wallets are equal to the client's."""
        for wallet in (self.watching, self.signing):
            await self.electrum.until(partial(self._agrees, wallet))

    async def _agrees(self, wallet: dict[str, str]) -> bool:
        balance, coins, history = await self.client.balance(), await self.client.coins(), await self.client.history()
        theirs = await self.electrum.call("getbalance", **wallet)
        told = sum(round(float(theirs.get(part, 0)) * 100_000_000) for part in ("confirmed", "unconfirmed"))
        rows = (await self.electrum.call("onchain_history", **wallet))["transactions"]
        unspent = await self.electrum.call("listunspent", **wallet)
        listed = [each for each in history if each.status in ("confirmed", "pending")]
        info = await self.electrum.call("getinfo")
        return (
            told == balance.total
            and {(each["txid"], max(each["height"], 0)) for each in rows}
            == {(each.txid_hex, each.height or 0) for each in listed}
            and {f"{each['prevout_hash']}:{each['prevout_n']}" for each in unspent}
            == {str(each.outpoint) for each in coins if each.spent_by is None}
            and info["blockchain_height"] == self.client.tip_height
        )


@pytest.mark.long
@pytest.mark.parametrize("mode", ["compact", "bip37"])
async def test_real_electrum_agrees_with_our_books(mode: str, regtest_node: RegtestNode, tmp_path: Path) -> None:
    node = regtest_node
    async with AsyncExitStack() as stack:

        async def serve(port: int = 0) -> tuple[LightClient, ElectrumServer, AsyncExitStack]:
            inner = await stack.enter_async_context(AsyncExitStack())
            watch = WatchList(REGTEST)
            watch.add_descriptor(f"wpkh({TPUB}/<0;1>/*)", "electrum")
            client = LightClient(watch, peers=[node.address], store=tmp_path / "w.db", mode=mode)
            await inner.enter_async_context(client)
            server = ElectrumServer(client, port=port)
            await inner.enter_async_context(server)
            return client, server, inner

        client, server, running = await serve()
        assert server.port is not None
        async with ElectrumDaemon(tmp_path, server.port) as electrum:
            wallets = Wallets(electrum, client)
            await wallets.restore()
            await wallets.agree()
            address = await electrum.call("getunusedaddress", **wallets.watching)
            assert address == await client.next_address()
            node.pay(address, 500_000)
            await pending(client, 1)
            await wallets.agree()
            node.mine()
            await wallets.agree()
            await spend(wallets)
            node.mine(6)
            await wallets.agree()
            node.reorg(6)
            await wallets.agree()
            assert client.tip_height == node.height
            node.mine()
            await wallets.agree()
            await running.aclose()  # the server restarts on its port
            node.pay(await electrum.call("getunusedaddress", **wallets.watching), 70_000)
            node.mine()
            wallets.client, server, _ = await serve(server.port)
            await electrum.until(lambda: is_connected(electrum))
            await wallets.agree()
        assert server.port is not None
        async with ElectrumDaemon(tmp_path, server.port) as electrum:  # Electrum restarts
            wallets = Wallets(electrum, wallets.client)
            await wallets.load()
            await wallets.agree()
            assert len(await wallets.client.history()) == 4
        assert server.status.unknown == ()


async def pending(client: LightClient, count: int) -> None:
    """Wait until the client knows a number of pending transactions."""
    async for _ in client.events(since=0):
        if sum(each.status == "pending" for each in await client.history()) >= count:
            return


async def is_connected(electrum: ElectrumDaemon) -> Any:
    return (await electrum.call("getinfo"))["connected"]


async def spend(wallets: Wallets) -> None:
    """Sign two payments of one coin, and broadcast the one with the lower fee rate first."""
    electrum, signing = wallets.electrum, wallets.signing
    first, second = [
        await electrum.call("payto", destination=FOREIGN, amount=0.001, feerate=rate, rbf=True, **signing)
        for rate in (5, 12)
    ]
    txid = await electrum.call("broadcast", tx=first)
    await wallets.agree()
    replacement = await electrum.call("broadcast", tx=second)
    await wallets.agree()
    found = {each.txid_hex: str(each.status) for each in await wallets.client.history()}
    assert (found[txid], found[replacement]) == ("replaced", "pending")
