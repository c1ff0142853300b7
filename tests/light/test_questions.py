"""One interface of questions: `Views`, `WalletStore`, `LightClient` and `SyncLightClient` agree about each of them."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from spvfilter.errors import FormatError, ParameterError
from spvfilter.light import LightClient, SyncLightClient
from spvfilter.light.events import Synced
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.store.ledger import TxStatus
from spvfilter.store.views import Views
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.merkle import branch_root

ELSEWHERE = {
    "network": "an attribute of every client",
    "searched_height": "a property of a client: it moves while the client searches",
    "moment": "a `with` block, which would keep a client's thread; `read` takes a function instead",
}
QUESTIONS = sorted(
    name for name in vars(Views) if not name.startswith("_") and name not in ELSEWHERE
)  # every public name is a question
LOCK = p2wpkh(b"\x02" + b"\x01" * 32)
ONLY_A_CLIENT = "NotRunningError: The client is not running."


def parameters(function: object) -> list[inspect.Parameter]:
    assert callable(function)
    return list(inspect.signature(function).parameters.values())


def lines(function: object) -> list[str]:
    return [line.strip() for line in (inspect.getdoc(function) or "").splitlines()]


def test_the_usual_questions_are_among_them() -> None:
    wanted = {
        "balance",
        "coins",
        "unspent",
        "history",
        "transaction",
        "keychains",
        "next_address",
        "accounts",
        "labels",
    }
    assert wanted < {*QUESTIONS}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_client_asks_the_same_question_as_a_coroutine(name: str) -> None:
    asked, asking, waiting = (getattr(each, name) for each in (Views, LightClient, SyncLightClient))
    assert getattr(WalletStore, name) is asked
    assert inspect.iscoroutinefunction(asking)
    assert not inspect.iscoroutinefunction(waiting)
    assert inspect.signature(asking) == inspect.signature(asked) == inspect.signature(waiting)
    assert lines(waiting) == lines(asking)
    assert ONLY_A_CLIENT in lines(asking)
    assert [line for line in lines(asking) if line != ONLY_A_CLIENT] == lines(asked)
    assert asking.__qualname__ == f"LightClient.{name}"


@pytest.mark.parametrize("name", ["check", "run_id"])
def test_questions_about_other_facts_have_the_same_parameters(name: str) -> None:
    """A client's answer also depends on its peers or its run, so the docstrings differ."""
    asked = inspect.signature(getattr(WalletStore, name))
    assert inspect.signature(getattr(LightClient, name)) == asked
    assert inspect.signature(getattr(SyncLightClient, name)) == asked


async def test_answers_of_one_read_belong_to_one_commit(tmp_path: Path) -> None:
    watch, regtest = WatchList(REGTEST), Regtest()
    watch.add_script(LOCK.script_pubkey)
    regtest.mine(COINBASE_MATURITY + 1)
    regtest.pay(LOCK.pays(50_000))
    regtest.mine(1)
    async with Node(regtest) as node:
        place, path = f"{node.host}:{node.port}", tmp_path / "wallet.db"
        async with LightClient(watch, peers=[place], store=path, mode="compact") as client:
            async for event in client.events():
                if isinstance(event, Synced):
                    break
            coins, balance, tip = await client.read(lambda views: (views.coins(), views.balance(), views.tip()))
            assert (balance.confirmed, tip) == (50_000, regtest.height)
            assert coins.sequence == balance.sequence == await client.sequence()
            (coin,) = coins
            assert await client.coin(coin.outpoint) == coin == await client.coin(str(coin.outpoint))
            await client.freeze(coin.outpoint)
            assert await client.frozen() == (coin.outpoint,)
            frozen = await client.coin(coin.outpoint)
            assert frozen is not None
            assert frozen.is_frozen
            assert await client.searched_for(LOCK.script_pubkey) == (await client.searched())[0].ranges
        with WalletStore.open(path) as store:
            assert store.read(lambda views: views.coins()) == store.coins() == [frozen]
            assert store.coin(coin.outpoint) == frozen


async def test_a_fetched_block_proves_the_transactions_in_it() -> None:
    watch, regtest = WatchList(REGTEST), Regtest()
    watch.add_script(LOCK.script_pubkey)
    regtest.mine(COINBASE_MATURITY + 1)
    txid = regtest.pay(LOCK.pays(50_000))
    (block,) = regtest.mine(1)
    async with (
        Node(regtest) as node,
        LightClient(watch, peers=[f"{node.host}:{node.port}"], mode="compact") as client,
    ):
        await client.wait_synced()
        raw = await client.fetch_block(block)
        assert raw == await client.fetch_block(hash_to_hex(block)) == regtest.chain.active[-1].raw
        await client.store_proofs(raw)
        proof = await client.proof(txid)
        assert proof is not None
        assert proof.branch is not None
        assert (
            branch_root(txid, proof.position or 0, proof.branch)
            == client.chain.header_at(proof.height or 0).merkle_root
        )
        assert (proof.block_hash, proof.status, proof.is_own) == (block, TxStatus.CONFIRMED, False)
        (effects,) = await client.effects()
        assert [effect.value for effect in effects.effects] == [50_000]
        assert await client.confirmed_in(block, [txid, bytes(32)]) == {txid}
        with pytest.raises(FormatError):
            await client.store_proofs(raw[:-1])
        with pytest.raises(ParameterError):
            await client.fetch_block(bytes(32))
        assert client.missing_parents(txid) == ()
