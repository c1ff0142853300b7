"""A BDK wallet from a client's history: it builds payments and fee bumps, which the client broadcasts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spvfilter._public import deferred
from spvfilter.address import address_to_script
from spvfilter.errors import ParameterError, UnknownAccountError
from spvfilter.interop import bdk_wallet
from spvfilter.interop.bdk import _name_of
from spvfilter.light.client import LightClient
from spvfilter.network import MAINNET, REGTEST, SIGNET, Network
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.watch.labels import Label
from spvfilter.watch.match import MatchKind
from spvfilter.watch.watchlist import WatchList

pytestmark = [pytest.mark.kyoto, pytest.mark.descriptors]
if TYPE_CHECKING:
    bdk: Any
else:
    bdk = deferred("bdkpython")

WORDS = "abandon " * 11 + "about"
PAYEE = "bcrt1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqdku202"


def descriptors() -> tuple[list[Any], str]:
    """The private descriptors of a signer, and the public descriptor of both keychains."""
    secret = bdk.DescriptorSecretKey(bdk.NetworkKind.TEST, bdk.Mnemonic.from_string(WORDS), None)
    kinds = bdk.KeychainKind.EXTERNAL, bdk.KeychainKind.INTERNAL
    private = [bdk.Descriptor.new_bip84(secret, kind, bdk.NetworkKind.TEST) for kind in kinds]
    return private, str(private[0]).partition("#")[0].replace("/0/*", "/<0;1>/*")


def signed(psbt: Any) -> bytes:
    """The final transaction of a PSBT, signed by a wallet that has the keys and no history."""
    private, _ = descriptors()
    signer = bdk.Wallet(*private, bdk.Network.REGTEST, bdk.Persister.new_in_memory())
    assert signer.sign(psbt)
    raw: bytes = psbt.extract_tx().serialize()
    return raw


def watching() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_descriptor(descriptors()[1], "savings")
    return watch


async def funded(node: Node, client: LightClient, *values: int) -> None:
    """Pay these values to the next addresses of the wallet, each in its own block."""
    for value in values:
        address = await client.next_address()
        txid = node.regtest.pay(TxOut(value, address_to_script(address, REGTEST)))
        node.regtest.mine()
        await client.wait_confirmed(txid)


async def test_payment_is_built_bumped_and_confirmed() -> None:
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        async with LightClient(watching(), peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            await funded(node, client, 60_000, 50_000)
            wallet = await bdk_wallet(client)
            assert wallet.balance().confirmed.to_sat() == (await client.balance()).confirmed == 110_000
            assert wallet.latest_checkpoint().height == client.tip_height
            payee = bdk.Script(address_to_script(PAYEE, REGTEST))
            builder = bdk.TxBuilder().add_recipient(payee, bdk.Amount.from_sat(30_000))
            psbt = builder.fee_rate(bdk.FeeRate.from_sat_per_vb(2)).finish(wallet)
            first = await client.broadcast(signed(psbt))
            (entry,) = [each for each in await client.history() if each.txid == first.txid]
            assert (entry.status, entry.fee) == (TxStatus.PENDING, psbt.fee())
            wallet = await bdk_wallet(client, "savings")
            assert wallet.balance().total.to_sat() == (await client.balance()).total
            bump = bdk.BumpFeeTxBuilder(bdk.Txid.from_bytes(first.txid), bdk.FeeRate.from_sat_per_vb(9)).finish(wallet)
            assert bump.fee() > psbt.fee()
            raw = signed(bump)
            node.regtest.mempool.remove_for([Transaction.parse(raw)])  # the node replaces by fee
            second = await client.broadcast(raw)
            node.regtest.mine()
            await client.wait_confirmed(second.txid)
            assert (await client.balance()).confirmed == 80_000 - bump.fee()
            wallet = await bdk_wallet(client)
            assert wallet.balance().confirmed.to_sat() == 80_000 - bump.fee()
            assert {each.outpoint.txid.serialize() for each in wallet.list_unspent()} == {
                coin.outpoint.txid for coin in await client.coins()
            }


async def test_addresses_far_away_count() -> None:
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        watch = watching()
        script = watch.keychains[0].scripts_at(400)[0]
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            txid = node.regtest.pay(TxOut(7_000, script))
            node.regtest.mine()
            await client.wait_confirmed(txid)
            assert (await bdk_wallet(client)).balance().confirmed.to_sat() == 7_000


async def test_frozen_coins_are_not_spent() -> None:
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        async with LightClient(watching(), peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            await funded(node, client, 60_000, 50_000)
            frozen = next(coin for coin in await client.coins() if coin.value == 60_000)
            await client.import_labels([Label("output", str(frozen.outpoint), spendable=False)])
            builder = bdk.TxBuilder().add_recipient(
                bdk.Script(address_to_script(PAYEE, REGTEST)), bdk.Amount.from_sat(55_000)
            )
            with pytest.raises(bdk.CreateTxError.CoinSelection):
                builder.finish(await bdk_wallet(client))


@pytest.mark.parametrize("account", [None, "cafe"])
async def test_bdk_gives_no_address_that_was_revealed(account: str | None, tmp_path: Path) -> None:
    """Change of a payment would otherwise pay the open invoice of a customer."""
    watch, path = WatchList(REGTEST), tmp_path / "w.db"
    watch.add_account("cafe", descriptors()[1].replace("<0;1>", "0"))
    if account is not None:
        watch.add_account("other", descriptors()[1].replace("<0;1>", "<2;3>"))
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        invoices, paid = list[str](), 0
        for _ in range(3):  # each run begins with the invoices of the runs before
            async with LightClient(watch, peers=[f"{node.host}:{node.port}"], store=path) as client:
                await client.wait_synced()
                invoices += [await client.reveal_address("cafe") for _ in range(4)]
                value = 90_000 + len(invoices)
                txid = node.regtest.pay(TxOut(value, address_to_script(invoices[-3], REGTEST)))
                node.regtest.mine()
                await client.wait_confirmed(txid)
                paid += value
                wallet = await bdk_wallet(client, account=account)
                psbt = (
                    bdk.TxBuilder()
                    .add_recipient(bdk.Script(address_to_script(PAYEE, REGTEST)), bdk.Amount.from_sat(10_000))
                    .finish(wallet)
                )
                sent = await client.broadcast(signed(psbt))
                paid -= 10_000 + psbt.fee()
                node.regtest.mine()
                await client.wait_confirmed(sent.txid)
                wallet = await bdk_wallet(client, account=account)
                assert wallet.balance().confirmed.to_sat() == (await client.balance(account="cafe")).confirmed == paid
                unused = wallet.next_unused_address(bdk.KeychainKind.EXTERNAL)
                assert str(unused.address) == await client.next_address(account=account) not in invoices
                found = await client.matches()
                payments = [each.match for each in found if each.match.kind is MatchKind.OUTPUT]
                assert sorted(each.value or 0 for each in payments if each.address in invoices) == [
                    90_000 + 4 * (run + 1) for run in range(len(invoices) // 4)
                ]


async def test_bdk_wallet_of_one_account() -> None:
    watch = WatchList(REGTEST)
    watch.add_account("alice", descriptors()[1])
    receiving, change = watch.keychains
    watch.add_account("bob", descriptors()[1].replace("<0;1>", "<2;3>"))
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            for name, value in (("alice", 60_000), ("bob", 7_000)):
                address = await client.next_address(account=name)
                txid = node.regtest.pay(TxOut(value, address_to_script(address, REGTEST)))
                node.regtest.mine()
                await client.wait_confirmed(txid)
            for name, keychain in (("alice", None), ("alice", change.name), ("bob", None)):
                wallet = await bdk_wallet(client, keychain, account=name)
                total = (await client.balance(account=name, keychain=keychain)).total
                assert wallet.balance().total.to_sat() == total
                unused = wallet.next_unused_address(bdk.KeychainKind.EXTERNAL)
                assert str(unused.address) == await client.next_address(keychain, account=name)
            with pytest.raises(ParameterError, match="the account has no keychain"):
                await bdk_wallet(client, receiving.name, account="bob")
            with pytest.raises(UnknownAccountError):
                await bdk_wallet(client, account="carol")


async def test_keychains_that_bdk_cannot_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Node(Regtest()) as node:
        watch = watching()
        watch.add_keychain("own", lambda index: b"\x00\x14" + index.to_bytes(20, "little"))
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            with pytest.raises(ParameterError, match="not 3: select them by label or account"):
                await bdk_wallet(client)
            with pytest.raises(ParameterError, match="each with a descriptor"):
                await bdk_wallet(client, "own")
            assert (await bdk_wallet(client, "savings")).balance().total.to_sat() == 0
            monkeypatch.setitem(sys.modules, "bdkpython", None)
            with pytest.raises(ParameterError, match=r"run `python -m pip install .*extra `bdk`"):
                await bdk_wallet(client, "savings")


def test_a_network_that_bdk_does_not_know_is_an_error() -> None:
    """Its wallet was one of the signet, whose addresses look different."""
    assert [_name_of(each) for each in (MAINNET, SIGNET, Network.signet("51"))] == ["BITCOIN", "SIGNET", "SIGNET"]
    with pytest.raises(ParameterError, match="BDK does not support the network 'liquid'"):
        _name_of(replace(REGTEST, name="liquid"))
