"""`check` and `broadcast` of a running client: refused transactions are not stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import TxCheckError, TxConflictError
from spvfilter.light import LightClient
from spvfilter.network import REGTEST
from spvfilter.node import Node
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.store.txcheck import CheckCause, CheckFinding, CheckWeight
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet import WalletStore
from spvfilter.watch import WatchList
from support.blocks import signing
from support.client.regtests import mined

pytestmark = pytest.mark.descriptors

KIND, THEIRS = signing.wpkh(1), signing.wpkh(2).script_pubkey


def wallet() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(KIND.script_pubkey)
    return watch


def payment(coin: OutPoint, paid: int, value: int = 100_000, **options: int) -> bytes:
    tx, _, _ = signing.signed_tx([(KIND, value)], [TxOut(paid, THEIRS)], [1], outpoints=[coin], **options)
    return tx.raw


def causes(findings: tuple[CheckFinding, ...]) -> list[tuple[CheckCause, CheckWeight]]:
    return [(each.cause, each.weight) for each in findings]


async def test_check_of_the_client_and_of_its_database_agree(tmp_path: Path) -> None:
    chain = mined(101)
    coin = OutPoint(chain.pay(TxOut(100_000, KIND.script_pubkey)), 0)
    chain.mine()
    cases = {
        payment(coin, 99_000): [],
        payment(coin, 99_000, 100_001): [CheckCause.WRONG_SIGNATURE],
        build_tx([TxIn(coin)], [TxOut(99_000, THEIRS)]): [CheckCause.UNSIGNED],
        payment(coin, 100_001): [CheckCause.OUTPUTS_ABOVE_INPUTS],
        payment(coin, 99_000, lock_time=103): [CheckCause.LOCK_TIME],
        payment(coin, 99_000, sequence=2): [CheckCause.LOCK_TIME],
        payment(coin, 99_000, sequence=1): [],
        payment(coin, 100): [CheckCause.DUST],
        payment(OutPoint(coin.txid, 9), 99_000): [CheckCause.MISSING_OUTPUT],
        payment(OutPoint(bytes(31) + b"\x01", 0), 99_000): [CheckCause.UNKNOWN],
    }
    async with (
        Node(chain) as node,
        LightClient(wallet(), peers=[f"127.0.0.1:{node.port}"], store=tmp_path / "w.db", mode="compact") as client,
    ):
        await client.wait_synced()
        for raw, expected in cases.items():
            found = await client.check(raw)
            assert [each.cause for each in found][:1] == expected, found
            with WalletStore.open(tmp_path / "w.db") as stored:
                again = stored.check(raw)
            assert [each.cause for each in again][:1] == expected, again


async def test_an_impossible_transaction_is_not_stored() -> None:
    chain = mined(101)
    coin = OutPoint(chain.pay(TxOut(100_000, KIND.script_pubkey)), 0)
    chain.mine()
    async with Node(chain) as node, LightClient(wallet(), peers=[f"127.0.0.1:{node.port}"], mode="compact") as client:
        await client.wait_synced()
        with pytest.raises(TxCheckError, match="it is not signed"):
            await client.broadcast(build_tx([TxIn(coin)], [TxOut(99_000, THEIRS)]), force=True)
        early = payment(coin, 99_000, lock_time=200)
        for force in (False, True):
            with pytest.raises(TxCheckError, match="its lock time has not passed") as caught:
                await client.broadcast(early, force=force)
            assert (caught.value.causes, caught.value.can_force) == (("lock time",), False)
        assert await client.transaction(Transaction.parse(early).txid) is None
        balance = await client.balance()
        assert (balance.total, balance.pending_out) == (100_000, 0)
        assert [each.outpoint for each in await client.unspent()] == [coin]


async def test_a_replacement_that_pays_too_little_is_refused_unless_forced() -> None:
    chain = mined(101)
    coin = OutPoint(chain.pay(TxOut(100_000, KIND.script_pubkey)), 0)
    chain.mine()
    async with Node(chain) as node, LightClient(wallet(), peers=[f"127.0.0.1:{node.port}"], mode="compact") as client:
        await client.wait_synced()
        first, cheaper = payment(coin, 95_000), payment(coin, 96_000)
        await client.broadcast(first)
        assert causes(await client.check(cheaper)) == [
            (CheckCause.REPLACEMENT_FEE, CheckWeight.REFUSED),
            (CheckCause.REPLACES, CheckWeight.WARNING),
        ]
        with pytest.raises(TxCheckError, match="its fee of 4000 satoshi is too low to replace") as caught:
            await client.broadcast(cheaper)
        assert caught.value.can_force
        assert await client.transaction(Transaction.parse(cheaper).txid) is None
        entry = await client.transaction(Transaction.parse(first).txid)
        assert entry is not None
        assert entry.status == "pending"
        assert await client.check(payment(coin, 90_000)) != ()  # a warning: it replaces the first one
        await client.broadcast(payment(coin, 90_000))


async def test_a_conflict_with_a_block_is_a_finding() -> None:
    chain = mined(101)
    coin = OutPoint(chain.pay(TxOut(100_000, KIND.script_pubkey)), 0)
    chain.mine()
    spend = payment(coin, 95_000)
    async with Node(chain) as node, LightClient(wallet(), peers=[f"127.0.0.1:{node.port}"], mode="compact") as client:
        await client.wait_synced()
        await client.broadcast(spend)
        chain.mine()
        await client.wait_confirmed(Transaction.parse(spend).txid)
        (finding,) = await client.check(payment(coin, 90_000))
        assert (finding.cause, finding.by, finding.height) == (
            CheckCause.CONFLICT,
            Transaction.parse(spend).txid,
            chain.height,
        )
        with pytest.raises(TxConflictError, match="which is in a block"):
            await client.broadcast(payment(coin, 90_000), force=True)
        assert causes(await client.check(spend)) == [(CheckCause.CONFIRMED, CheckWeight.INVALID)]
        await client.broadcast(spend)  # is done already
