"""Electrum clients against the server: receive, confirm, reorganize, send, replace elsewhere, restart."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

pytest.importorskip("aiorpcx")

from spvfilter import build_tx
from spvfilter._public import deferred
from spvfilter.address import address_to_script
from spvfilter.electrum import ElectrumServer
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.testing import RegtestNode
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import MatchFound
from spvfilter.watch.watchlist import WatchList
from support.blocks import signing
from support.oracles.electrumoracle import hash_of_script

if TYPE_CHECKING:
    bdk: Any
else:
    bdk = deferred("bdkpython")

WORDS = "abandon " * 11 + "about"
PAYEE = address_to_script("bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202", REGTEST)
CALLS = Path(__file__).parent / "npm/calls.js"


class ServerError(Exception):
    """An error that the server sent."""


class Wallet(Protocol):
    """A wallet with keys, which knows the chain from the Electrum server only. Two of a kind have the same keys."""

    script: bytes
    """The script of its first address."""
    total: int
    """Its balance, in satoshi."""
    known: set[tuple[bytes, bool]]
    """The transactions that count: txid, and whether a block contains it."""

    def watch(self) -> WatchList:
        """Its scripts."""
        ...

    async def sync(self, port: int) -> None:
        """Ask the server. Raises ServerError."""
        ...

    def pay(self, value: int, rate: int) -> bytes:
        """Sign a payment, with a fee rate in satoshi per virtual byte."""
        ...

    async def broadcast(self, port: int, raw: bytes) -> None:
        """Give a transaction to the server. Raises ServerError."""
        ...

    async def close(self) -> None:
        """End its connection."""
        ...


class BdkWallet:
    """BDK's wallet and Electrum client."""

    def __init__(self) -> None:
        secret = bdk.DescriptorSecretKey(bdk.NetworkKind.TEST, bdk.Mnemonic.from_string(WORDS), None)
        kinds = bdk.KeychainKind.EXTERNAL, bdk.KeychainKind.INTERNAL
        private = [bdk.Descriptor.new_bip84(secret, kind, bdk.NetworkKind.TEST) for kind in kinds]
        self._descriptor: str = str(private[0]).partition("#")[0].replace("/0/*", "/<0;1>/*")
        self._wallet = bdk.Wallet(*private, bdk.Network.REGTEST, bdk.Persister.new_in_memory())
        self._is_scanned = False
        address = self._wallet.reveal_next_address(bdk.KeychainKind.EXTERNAL).address
        self.script = bytes(address.script_pubkey().to_bytes())
        self.total = 0
        self.known: set[tuple[bytes, bool]] = set()

    def watch(self) -> WatchList:
        watch = WatchList(REGTEST)
        watch.add_descriptor(self._descriptor, "savings")
        return watch

    async def sync(self, port: int) -> None:
        """The first call searches all addresses, and later ones ask for the known ones."""
        try:
            await asyncio.to_thread(self._sync, port)
        except bdk.ElectrumError as error:
            raise ServerError(str(error)) from error
        self.total = self._wallet.balance().total.to_sat()
        self.known = {
            (each.transaction.compute_txid().serialize(), each.chain_position.is_confirmed())
            for each in self._wallet.transactions()
        }

    def _sync(self, port: int) -> None:
        client = bdk.ElectrumClient(f"tcp://127.0.0.1:{port}")
        if self._is_scanned:
            update = client.sync(self._wallet.start_sync_with_revealed_spks().build(), 10, False)
        else:
            update = client.full_scan(self._wallet.start_full_scan().build(), 20, 10, False)
        self._is_scanned = True
        self._wallet.apply_update(update)

    def pay(self, value: int, rate: int) -> bytes:
        builder = bdk.TxBuilder().add_recipient(bdk.Script(PAYEE), bdk.Amount.from_sat(value))
        psbt = builder.fee_rate(bdk.FeeRate.from_sat_per_vb(rate)).finish(self._wallet)
        assert self._wallet.sign(psbt)
        return bytes(psbt.extract_tx().serialize())

    async def broadcast(self, port: int, raw: bytes) -> None:
        def send() -> None:
            bdk.ElectrumClient(f"tcp://127.0.0.1:{port}").transaction_broadcast(bdk.Transaction(raw))

        try:
            await asyncio.to_thread(send)
        except bdk.ElectrumError as error:
            raise ServerError(str(error)) from error

    async def close(self) -> None:
        pass  # each of its calls has a connection of its own


class NpmWallet:
    """A client from npm, which asks for two scripts, and a payer with their keys.

    The statuses that the server tells it must be those of the histories that it gets.
    """

    def __init__(self, package: str) -> None:
        kinds = signing.wpkh(1), signing.wpkh(2)
        self._scripts = [each.script_pubkey for each in kinds]
        self._package = package
        self._port: int | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._told: dict[str, str | None] = {}
        self._coins: list[TxIn] = []
        self.script = self._scripts[0]
        self.total = 0
        self.known: set[tuple[bytes, bool]] = set()

    def watch(self) -> WatchList:
        watch = WatchList(REGTEST)
        for script in self._scripts:
            watch.add_script(script)
        return watch

    async def _call(self, port: int, method: str, *given: object) -> Any:
        if self._process is None or port != self._port:
            await self.close()
            words = ["node", str(CALLS), self._package, str(port)]
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
            self._port = port
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, *given]).encode() + b"\n")
        while line := await self._process.stdout.readline():
            found = json.loads(line)
            if "told" in found:
                script_hash, status = found["told"]
                self._told[script_hash] = status
            elif "error" in found:
                raise ServerError(found["error"])
            else:
                return found["result"]
        raise AssertionError("the client ended")

    async def sync(self, port: int) -> None:
        known, coins, total = set(), [], 0
        for script in self._scripts:
            script_hash = hash_of_script(script)
            if port != self._port or script_hash not in self._told:
                self._told[script_hash] = await self._call(port, "blockchainScripthash_subscribe", script_hash)
            history = await self._call(port, "blockchainScripthash_getHistory", script_hash)
            balance = await self._call(port, "blockchainScripthash_getBalance", script_hash)
            total += balance["confirmed"] + balance["unconfirmed"]
            for coin in await self._call(port, "blockchainScripthash_listunspent", script_hash):
                outpoint = OutPoint.from_text(f"{coin['tx_hash']}:{coin['tx_pos']}")
                coins.append(TxIn(outpoint, spent=TxOut(coin["value"], script)))
            for each in history:
                known.add((bytes.fromhex(each["tx_hash"])[::-1], each["height"] > 0))
                if each["height"] > 0:
                    place = each["tx_hash"], each["height"]
                    proof = await self._call(port, "blockchainTransaction_getMerkle", *place)
                    assert proof["block_height"] == each["height"]
            text = "".join(f"{each['tx_hash']}:{each['height']}:" for each in history)
            if self._told[script_hash] != (hashlib.sha256(text.encode()).hexdigest() if text else None):
                raise ServerError("a notification is on its way")
        self.known, self._coins, self.total = known, coins, total

    def pay(self, value: int, rate: int) -> bytes:
        left = sum(each.spent.value for each in self._coins if each.spent) - value
        keys = [signing.secret(1), signing.secret(2)]

        def signed(fee: int) -> bytes:
            outputs = [TxOut(value, PAYEE), TxOut(left - fee, self._scripts[1])]
            return build_tx(self._coins, outputs, keys=keys)

        return signed(rate * Transaction.parse(signed(0)).virtual_size)

    async def broadcast(self, port: int, raw: bytes) -> None:
        txid = await self._call(port, "blockchainTransaction_broadcast", raw.hex())
        assert txid == Transaction.parse(raw).txid_hex

    async def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._told.clear()
            await self._process.wait()
            self._process = None


@asynccontextmanager
async def opened(make: Callable[[], Wallet]) -> AsyncIterator[Wallet]:
    wallet = make()
    try:
        yield wallet
    finally:
        await wallet.close()


async def agreed(wallet: Wallet, client: LightClient, server: ElectrumServer) -> int:
    """Ask the server until the wallet knows what the client knows. Returns the balance in satoshi."""
    assert server.port is not None
    async with asyncio.timeout(30):
        while True:
            with suppress(ServerError):  # a reorganization came between two of its questions
                await wallet.sync(server.port)
            history = await client.history()
            counts = {
                (each.txid, each.status is TxStatus.CONFIRMED)
                for each in history
                if each.status in (TxStatus.CONFIRMED, TxStatus.PENDING)
            }
            if wallet.known == counts and wallet.total == (await client.balance()).total:
                return wallet.total
            await asyncio.sleep(0.05)


async def paid(client: LightClient) -> None:
    """Wait for the first payment."""
    async with asyncio.timeout(30):
        async for event in client.events(since=0):
            if isinstance(event, MatchFound):
                return


KINDS: list[Any] = [
    pytest.param(BdkWallet, id="bdk", marks=[pytest.mark.kyoto, pytest.mark.descriptors]),
    *(
        pytest.param(partial(NpmWallet, package), id=package, marks=[pytest.mark.mempool, pytest.mark.v2])
        for package in ("@mempool/electrum-client", "electrum-client")
    ),
]


@pytest.mark.parametrize("make", KINDS)
async def test_life_of_a_wallet(make: Callable[[], Wallet], regtest_node: RegtestNode, tmp_path: Path) -> None:
    async with opened(make) as owner, opened(make) as twin, opened(make) as restored:  # the same keys on three devices
        options: dict[str, Any] = {"peers": [regtest_node.address], "mode": "compact", "store": tmp_path / "w.db"}
        async with LightClient(owner.watch(), **options) as client, ElectrumServer(client, port=0) as server:
            await client.wait_synced()
            regtest_node.call(lambda regtest: regtest.pay(TxOut(60_000, owner.script)))
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

            assert server.port is not None
            sent = owner.pay(20_000, 2)
            await owner.broadcast(server.port, sent)
            assert await agreed(owner, client, server) < 40_000
            other = twin.pay(25_000, 9)  # from the other device, in a block
            regtest_node.call(lambda regtest: regtest.mine(transactions=[other]))
            await client.wait_confirmed(Transaction.parse(other).txid)
            left = await agreed(owner, client, server)
            assert 30_000 < left < 35_000
            assert (Transaction.parse(sent).txid, False) not in owner.known
            with pytest.raises(ServerError):
                await owner.broadcast(server.port, sent)
        async with LightClient(owner.watch(), **options) as client, ElectrumServer(client, port=0) as server:
            await client.wait_synced()
            assert await agreed(owner, client, server) == left
            assert await agreed(restored, client, server) == left
