"""A BDK wallet from a client's history: it builds payments and fee bumps, which the client broadcasts."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spvfilter._public import deferred
from spvfilter.address import address_to_script
from spvfilter.errors import DescriptorWarning, ParameterError, UnknownAccountError
from spvfilter.interop import bdk_wallet
from spvfilter.interop.bdk import network_name
from spvfilter.light.client import LightClient
from spvfilter.network import MAINNET, REGTEST, SIGNET, Network
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut
from spvfilter.signing import build_tx
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction, TxIn
from spvfilter.watch.labels import Label
from spvfilter.watch.match import MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks.miniscripts import HEX, HEX_Y
from support.peers.hostile import until

pytestmark = [pytest.mark.kyoto, pytest.mark.descriptors]
if TYPE_CHECKING:
    bdk: Any
    wally: Any
else:
    bdk = deferred("bdkpython")
    wally = deferred("wallycore")

WORDS = "abandon " * 11 + "about"
OTHER = "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9"
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


def secret(keychain: int, index: int) -> bytes:
    """The private key of an address."""
    seed = wally.bip39_mnemonic_to_seed512(WORDS, None)
    master = wally.bip32_key_from_seed(seed, wally.BIP32_VER_TEST_PRIVATE, 0)
    path = [84 | 1 << 31, 1 | 1 << 31, 1 << 31, keychain, index]
    return bytes(
        wally.bip32_key_get_priv_key(wally.bip32_key_from_parent_path(master, path, wally.BIP32_FLAG_KEY_PRIVATE))
    )


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
            node.regtest.mine()  # the tip has none of the wallet's transactions
            await until(partial(has_height, client, node.regtest.height))
            wallet = await bdk_wallet(client)
            assert wallet.balance().confirmed.to_sat() == (await client.balance()).confirmed == 110_000
            placed = [each.chain_position.confirmation_block_time for each in wallet.transactions()]
            assert {(each.block_id.height, each.confirmation_time) for each in placed} == {
                (each.height, each.time) for each in await client.history()
            }
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


async def test_bdk_has_the_same_pending_payments() -> None:
    """Also one far above the last used index, and none above the window, where BDK would look by itself."""
    watch = WatchList(REGTEST)
    receiving, change = watch.add_descriptor(descriptors()[1], "savings", lookahead=20)
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            await client.watch_to(receiving.name, 400)
            end = (await client.keychains())[1].window
            places = [(70_000, receiving, 400), (8_000, change, end - 1), (900, change, end)]
            txid = node.regtest.pay(*(TxOut(value, keychain.scripts_at(at)[0]) for value, keychain, at in places))
            for total in (78_000, 78_900):  # the window grows with the block
                await until(partial(has_total, client, total))
                wallet = await bdk_wallet(client)
                assert wallet.balance().total.to_sat() == total
                for name in (receiving.name, change.name):
                    alone = await bdk_wallet(client, name)
                    assert alone.balance().total.to_sat() == (await client.balance(keychain=name)).total
                for kind, status in zip(bdk.KeychainKind, await client.keychains(), strict=True):
                    assert str(wallet.next_unused_address(kind).address) == status.next_address
                assert can_pay(wallet, 60_000) is bool(await client.unspent())
                node.regtest.mine()
                await client.wait_confirmed(txid)


async def has_height(client: LightClient, height: int) -> bool:
    return client.tip_height == height


async def has_total(client: LightClient, total: int) -> bool:
    return (await client.balance()).total == total


def can_pay(wallet: Any, value: int) -> bool:
    """True if BDK finds coins of this value."""
    payee = bdk.Script(address_to_script(PAYEE, REGTEST))
    try:
        bdk.TxBuilder().add_recipient(payee, bdk.Amount.from_sat(value)).finish(wallet)
    except bdk.CreateTxError.CoinSelection:
        return False
    return True


async def test_bdk_spends_own_change_but_no_unconfirmed_payment() -> None:
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        async with LightClient(watching(), peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            await funded(node, client, 60_000)
            (coin,) = await client.unspent()
            spent, change = TxOut(coin.value, coin.script_pubkey), client.watch.keychains[1].scripts_at(0)[0]
            await client.broadcast(
                build_tx([TxIn(coin.outpoint, spent=spent)], [TxOut(59_000, change)], keys=[secret(0, 0)])
            )
            node.regtest.pay(TxOut(50_000, address_to_script(await client.next_address(), REGTEST)))
            await until(partial(has_total, client, 109_000))
            wallet = await bdk_wallet(client)
            assert wallet.balance().total.to_sat() == 109_000
            assert can_pay(wallet, 58_000)
            assert not can_pay(wallet, 60_000)


async def test_coins_of_a_waiting_transaction_are_not_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits because peers have an earlier version, which does not spend all of its coins."""
    payee = address_to_script(PAYEE, REGTEST)
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        async with LightClient(watching(), peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            await funded(node, client, 60_000, 50_000)
            second, first = [
                TxIn(each.outpoint, spent=TxOut(each.value, each.script_pubkey)) for each in await client.coins()
            ]
            keys = [secret(0, 0), secret(0, 1)]
            await client.broadcast(build_tx([first], [TxOut(59_000, payee)], keys=keys))
            monkeypatch.setattr(Responder, "on_inv", lambda responder, items: None)
            later = asyncio.create_task(client.broadcast(build_tx([first, second], [TxOut(99_000, payee)], keys=keys)))

            async def is_waiting() -> bool:
                return TxStatus.WAITING in [entry.status for entry in await client.history()]

            await until(is_waiting)
            later.cancel()
            assert not await client.unspent()
            wallet = await bdk_wallet(client)
            assert wallet.balance().confirmed.to_sat() == 50_000
            assert not can_pay(wallet, 30_000)


async def test_frozen_coins_are_not_spent() -> None:
    async with Node(Regtest()) as node:
        node.regtest.mine(101)
        async with LightClient(watching(), peers=[f"{node.host}:{node.port}"]) as client:
            await client.wait_synced()
            await funded(node, client, 60_000, 50_000)
            frozen = next(coin for coin in await client.coins() if coin.value == 60_000)
            await client.import_labels([Label("output", str(frozen.outpoint), spendable=False)])
            assert not can_pay(await bdk_wallet(client), 55_000)


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


async def test_bdk_gives_no_address_that_a_removed_account_revealed() -> None:
    watch, receiving = WatchList(REGTEST), descriptors()[1].replace("<0;1>", "0")
    with pytest.warns(DescriptorWarning, match="only one address"):
        watch.add_account("donations", receiving.replace("*", "1"))
    watch.add_script(b"\x51")  # some entry must always be left
    async with Node(Regtest()) as node, LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
        given = [await client.reveal_address("donations")]
        await client.remove_account("donations")
        await client.add_account("cafe", receiving)
        given.append(await client.reveal_address("cafe"))
        unused = (await bdk_wallet(client)).next_unused_address(bdk.KeychainKind.EXTERNAL)
        assert str(unused.address) == await client.next_address() not in given
        assert unused.index == 2


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
        watch = WatchList(REGTEST)
        watch.add_script(b"\x51")
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            with pytest.raises(ParameterError, match=r"needs one or two keychains, .* not 0"):
                await bdk_wallet(client)
        watch = watching()
        watch.add_keychain("own", lambda index: b"\x00\x14" + index.to_bytes(20, "little"))
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            with pytest.raises(ParameterError, match="not 3: select them by label or account"):
                await bdk_wallet(client)
            await client.add_account("cold", "raw(51)")
            with pytest.raises(ParameterError, match=r"BDK does not support the keychain 'raw\("):
                await bdk_wallet(client, account="cold")
            # BDK sorts it before the other key, and would show no payment
            uncompressed = f"04{HEX}{HEX_Y}"
            await client.add_account("old", f"sh(sortedmulti(1,{uncompressed},03{OTHER}))")
            with pytest.raises(ParameterError, match="BDK derives other addresses than Bitcoin Core"):
                await bdk_wallet(client, account="old")
            with pytest.raises(ParameterError, match="each with a descriptor"):
                await bdk_wallet(client, "own")
            assert (await bdk_wallet(client, "savings")).balance().total.to_sat() == 0
            monkeypatch.setitem(sys.modules, "bdkpython", None)
            with pytest.raises(ParameterError, match=r"run `python -m pip install .*extra `bdk`"):
                await bdk_wallet(client, "savings")


def test_a_network_that_bdk_does_not_know_is_an_error() -> None:
    """Its wallet was one of the signet, whose addresses look different."""
    assert [network_name(each) for each in (MAINNET, SIGNET, Network.signet("51"))] == ["BITCOIN", "SIGNET", "SIGNET"]
    with pytest.raises(ParameterError, match="BDK does not support the network 'liquid'"):
        network_name(replace(REGTEST, name="liquid"))
