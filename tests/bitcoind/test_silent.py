"""Silent payments through a real Bitcoin Core: blocks by its peer-to-peer port, spent outputs by its REST or RPC."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spvfilter import OutPoint, WatchList, build_tx
from spvfilter.address import script_to_address
from spvfilter.hashes import hash160
from spvfilter.light import LightClient, Synced
from spvfilter.network import REGTEST
from spvfilter.primitives import TxOut
from spvfilter.rpc import CookieFile, FullNode
from spvfilter.silent.address import SilentAddress
from spvfilter.transaction import Transaction, TxIn
from support.blocks.silentpayments import Wallet, output_of, public, signed
from support.oracles.bitcoind import PATIENCE_S, Bitcoind, running_bitcoind

pytest.importorskip("btclib_secp256k1")
pytestmark = pytest.mark.bitcoind

WALLET = Wallet(network=REGTEST)
PRIVATE = 4_711
KEY = public(PRIVATE)
PAYER = b"\0\x14" + hash160(KEY)
FOREIGN = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"  # the key of BIP-173


class Payer:
    """A key that gets the coins of the first blocks, and pays silent payment addresses with them."""

    def __init__(self, node: Bitcoind) -> None:
        self.node = node
        self._next = 0

    async def begin(self) -> None:
        await self.mine(10, to=script_to_address(PAYER, REGTEST) or "")
        await self.mine(100)

    async def mine(self, blocks: int = 1, *, to: str = FOREIGN) -> None:
        await self.node.call("generatetoaddress", blocks, to)

    async def pay(self, *addresses: SilentAddress) -> bytes:
        """Pay addresses, with an output for each. Returns the transaction, which waits in the mempool."""
        from btclib_secp256k1 import silentpayments

        self._next += 1
        block = await self.node.call("getblock", await self.node.call("getblockhash", self._next))
        coin = TxIn(OutPoint.from_text(f"{block['tx'][0]}:0"), spent=TxOut(5_000_000_000, PAYER))
        made = silentpayments.create_outputs(
            [(each.scan_pubkey, each.spend_pubkey) for each in addresses],
            bytes(coin.outpoint),
            prvkeys=[PRIVATE.to_bytes(32, "big")],
        )
        outputs = [TxOut(100_000_000 + n, b"\x51\x20" + bytes(each)) for n, each in enumerate(made)]
        change = TxOut(5_000_000_000 - sum(each.value for each in outputs) - 10_000, PAYER)
        raw = build_tx([coin], [*outputs, change], keys=[PRIVATE.to_bytes(32, "big")])
        await self.node.call("sendrawtransaction", raw.hex())
        return raw


def watching() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_descriptor(WALLET.descriptor, "savings")
    return watch


@pytest.mark.long
@pytest.mark.parametrize("way", ["rest", "rpc"])
async def test_core_finds_what_the_client_finds_and_spends(tmp_path: Path, way: str) -> None:
    rest = ("-rest=1",) if way == "rest" else ()
    async with core(tmp_path, *rest) as node:
        payer, path = Payer(node), tmp_path / "wallet.db"
        await payer.begin()
        first = await payer.pay(WALLET.address(), WALLET.address(0))
        await payer.mine()
        credentials = None if rest else CookieFile(node.folder / "regtest/.cookie")
        async with (
            FullNode.open(node.url, REGTEST, credentials=credentials) as source,
            LightClient(watching(), peers=[node.peer], store=path, spent_source=source) as client,
        ):
            await synced(client, node)
            coins = {coin.outpoint.index: coin for coin in await client.coins()}
            assert {coin.sp_label for coin in coins.values()} == {None, 0}
            coin = coins[0]
            assert coin.script_pubkey == output_of(first, 0)
            unsigned = build_tx([TxIn(coin.outpoint)], [TxOut(coin.value - 1_000, PAYER)])
            spend = signed(WALLET, await client.psbt(unsigned))
            assert await node.call("sendrawtransaction", spend.hex()) == Transaction.parse(spend).txid_hex
            await payer.mine()
            await synced(client, node)
            assert [each.outpoint for each in await client.coins()] == [coins[1].outpoint]
        second = await payer.pay(WALLET.address())
        await payer.mine()
        tip = await node.call("getbestblockhash")
        async with (
            FullNode.open(node.url, REGTEST, credentials=credentials) as source,
            LightClient(WatchList(REGTEST), peers=[node.peer], store=path, spent_source=source) as client,
        ):
            await synced(client, node)
            assert {each.script_pubkey for each in await client.coins()} == {
                coins[1].script_pubkey,
                output_of(second, 0),
            }
            await node.call("invalidateblock", tip)
            await payer.mine(2, to=script_to_address(PAYER, REGTEST) or "")
            await synced(client, node)
            (moved,) = (each for each in await client.coins() if each.script_pubkey == output_of(second, 0))
            assert moved.height == (await node.call("getblockcount")) - 1
        assert WALLET.scan_text.encode() in path.read_bytes()


@pytest.mark.long
async def test_the_command_follows_a_wallet_through_core(tmp_path: Path) -> None:
    async with core(tmp_path, "-rest=1") as node:
        payer, watch = Payer(node), tmp_path / "watch.txt"
        await payer.begin()
        raw = await payer.pay(WALLET.address(3))
        await payer.mine()
        watch.write_text(f"{WALLET.descriptor},savings\nsp-label:3,Alice\n", encoding="utf-8")
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "spvfilter", "watch", "--watch", watch, "--connect", node.peer, "--node", node.url),
            *("--db", tmp_path / "wallet.db", "--network", "regtest", "--format", "jsonl", "--once"),
            env=os.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(ran.communicate(), PATIENCE_S)
        assert ran.returncode == 0, err
        found = [line for line in map(json.loads, out.splitlines()) if line["event"] == "found"]
        assert [(line["txid"], line["label"], line["sp_label"]) for line in found] == [
            (Transaction.parse(raw).txid_hex, "Alice", 3)
        ]
        assert WALLET.scan_text not in f"{out!r}{err!r}"


@asynccontextmanager
async def core(folder: Path, *options: str) -> AsyncIterator[Bitcoind]:
    (folder / "node").mkdir()
    async with running_bitcoind(folder / "node", *options) as node:
        yield node


async def synced(client: LightClient, node: Bitcoind) -> None:
    """Wait until the client has searched the node's new tip."""
    tip = await node.call("getbestblockhash")
    async with asyncio.timeout(PATIENCE_S):
        async for event in client.events():
            if isinstance(event, Synced) and event.hash_hex == tip:
                return
