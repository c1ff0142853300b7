"""Answers of the Electrum server to random questions, against a full scan of the chain by the oracle."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from bitcoin.core import CTransaction

pytest.importorskip("aiorpcx")

from spvfilter.electrum import ElectrumServer
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.scripts import Lock, p2pkh, p2sh, p2tr, p2wpkh
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.testing import RegtestNode
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import key, secret
from support.oracles.electrumoracle import Oracle, hash_of_script, shown
from support.peers.electrumclient import ElectrumClient, ElectrumError
from support.vectors import EFFORT

QUESTIONS = {"quick": 300, "ci": 1_000, "full": 5_000}[EFFORT]
KEYS = list(map(key, range(1, 30)))
WALLET: list[Lock] = [
    *map(p2wpkh, KEYS[:5]),
    *map(p2pkh, KEYS[5:8]),
    *(p2sh(p2wpkh(key)) for key in KEYS[8:10]),
    *(p2tr(key[1:]) for key in KEYS[10:12]),
]
FOREIGN: list[Lock] = [*map(p2wpkh, KEYS[20:23])]


class Life:
    """Random payments, blocks and reorganizations."""

    def __init__(self, node: RegtestNode, seed: int) -> None:
        self.node = node
        self.random = random.Random(seed)

    def step(self) -> None:
        choose, node = self.random, self.node
        match choose.choice(["pay", "pay", "spend", "spend", "chain", "mine", "mine"]):
            case "pay":
                outputs = [
                    TxOut(choose.randrange(10_000, 90_000), lock.script_pubkey)
                    for lock in choose.choices([*WALLET, *FOREIGN], k=choose.randrange(1, 4))
                ]
                node.call(lambda regtest: regtest.pay(*outputs))
            case "spend" | "chain":
                coins = self.coins()
                if coins:
                    chosen = choose.sample(coins, min(len(coins), choose.randrange(1, 3)))
                    value, secrets = choose.randrange(1_000, 4_000), [*map(secret, range(1, 30))]
                    to = TxOut(value, choose.choice([*WALLET, *FOREIGN]).script_pubkey)
                    node.call(
                        lambda regtest: regtest.spend(
                            *chosen, outputs=[to], fee=choose.randrange(300, 900), keys=secrets
                        )
                    )
            case "mine":
                lock = choose.choice([*WALLET, *FOREIGN])
                node.call(lambda regtest: regtest.mine(1, to=lock.script_pubkey))

    def coins(self) -> list[OutPoint]:
        """Coins of the wallet and of others, confirmed and not, that may be spent."""
        oracle = oracle_of(self.node)
        spent = {point for tx in oracle.all().values() for point in oracle.spent_by(tx)}
        scripts = {lock.script_pubkey for lock in (*WALLET, *FOREIGN)}
        coinbases = {ids[0] for ids in oracle.ids}
        return [
            OutPoint(txid, index)
            for (txid, index), (script, value) in oracle.outputs.items()
            if script in scripts and (txid, index) not in spent and value > 6_000 and txid not in coinbases
        ]


def oracle_of(node: RegtestNode) -> Oracle:
    def read(regtest: Any) -> tuple[list[bytes], list[bytes]]:
        return [block.raw for block in regtest.chain.active], [tx.raw for tx in regtest.mempool]

    return Oracle(*node.call(read), (lock.script_pubkey for lock in WALLET))


def without_witness(raw: str) -> str:
    """The txid of a transaction in hex, with or without its witness."""
    return shown(CTransaction.deserialize(bytes.fromhex(raw)).GetTxid())


@asynccontextmanager
async def served(node: RegtestNode, **options: Any) -> AsyncIterator[tuple[LightClient, ElectrumServer]]:
    watch = WatchList(REGTEST)
    for lock in WALLET:
        watch.add_script(lock.script_pubkey)
    async with LightClient(watch, peers=[node.address], **options) as client:
        await client.wait_synced()
        async with ElectrumServer(client, port=0) as server:
            yield client, server


async def agreed(client: ElectrumClient, node: RegtestNode) -> Oracle:
    """Wait until the server shows the node's chain and mempool, and return the oracle for both."""
    async with asyncio.timeout(30):
        while True:
            oracle = oracle_of(node)
            asked = [("blockchain.scripthash.get_history", hash_of_script(lock.script_pubkey)) for lock in WALLET]
            rows = await client.batch(*asked)
            if rows == [oracle.history(lock.script_pubkey) for lock in WALLET]:
                return oracle
            await asyncio.sleep(0.05)


def question(choose: random.Random, oracle: Oracle) -> tuple[str, list[object], Any]:
    """A random question with the oracle's answer."""
    script = choose.choice(WALLET).script_pubkey
    script_hash = hash_of_script(script)
    tip = len(oracle.headers) - 1
    height = choose.randrange(tip + 1)
    checkpoint = choose.randrange(height, tip + 1) if choose.random() < 0.5 else 0
    own = [txid for txid in oracle.confirmed if txid in oracle.own]
    match choose.randrange(11):
        case 0:
            return "blockchain.scripthash.get_history", [script_hash], oracle.history(script)
        case 1:
            return "blockchain.scripthash.get_mempool", [script_hash], oracle.mempool(script)
        case 2:
            return "blockchain.scripthash.get_balance", [script_hash], oracle.balance(script)
        case 3:
            return "blockchain.scripthash.listunspent", [script_hash], oracle.unspent(script)
        case 4:
            return "blockchain.scripthash.subscribe", [script_hash], oracle.status(script)
        case 5:
            raw = oracle.headers[height].hex()
            proved = {"header": raw, **oracle.proof(height, checkpoint)} if checkpoint else raw
            return "blockchain.block.header", [height, checkpoint], proved
        case 6:
            count = choose.randrange(1, 60)
            found = oracle.headers[height : height + count]
            answer: dict[str, Any] = {"count": len(found), "max": 2016}
            arguments: list[object] = [height, count]
            if height + count - 1 <= tip and choose.random() < 0.5:
                arguments.append(last := choose.randrange(height + count - 1, tip + 1))
                answer |= oracle.proof(height + count - 1, last) if last else {}
            return "blockchain.block.headers", arguments, answer | {"hex": b"".join(found).hex()}
        case 7:
            txid = choose.choice([*oracle.own])
            return "blockchain.transaction.get", [shown(txid)], oracle.all()[txid].serialize().hex()
        case 8 if own:
            txid = choose.choice(own)
            _, (at, position) = oracle.confirmed[txid]
            proof = {"block_height": at, "pos": position, "merkle": oracle.merkle(at, position)}
            return "blockchain.transaction.get_merkle", [shown(txid), at], proof
        case 9 if own:
            _, (at, position) = oracle.confirmed[choose.choice(own)]
            txid_at = shown(oracle.ids[at][position])
            if choose.random() < 0.5:
                return "blockchain.transaction.id_from_pos", [at, position], txid_at
            proved = {"tx_hash": txid_at, "merkle": oracle.merkle(at, position)}
            return "blockchain.transaction.id_from_pos", [at, position, True], proved
    return "blockchain.headers.subscribe", [], {"height": tip, "hex": oracle.headers[tip].hex()}


@pytest.mark.long
@pytest.mark.parametrize(("mode", "seed"), [("compact", 1), ("bip37", 2)])
async def test_answers_equal_a_full_scan(
    nothing_is_left: None, mode: str, seed: int, regtest_node: RegtestNode
) -> None:
    life = Life(regtest_node, seed)
    for _ in range(60):
        life.step()
    async with served(regtest_node, mode=mode) as (light, server):
        assert server.port is not None
        async with ElectrumClient(server.port) as client:
            assert (await client.ask("server.version", "test", "1.4"))[1] == "1.4"
            for lock in WALLET:
                await client.ask("blockchain.scripthash.subscribe", hash_of_script(lock.script_pubkey))
            for turn in range(6):
                for _ in range(10 if turn else 0):
                    life.step()
                if turn in (2, 4):
                    regtest_node.reorg(life.random.randrange(1, 6))
                oracle = await agreed(client, regtest_node)
                for _ in range(QUESTIONS // 6):
                    method, arguments, expected = question(life.random, oracle)
                    found = await client.ask(method, *arguments)
                    if mode == "bip37":  # peers send no witness
                        if method == "blockchain.transaction.get":
                            found, expected = map(without_witness, (found, expected))
                        elif (
                            method == "blockchain.scripthash.listunspent"
                        ):  # only signatures in scriptSigs are verified
                            scripts = {hash_of_script(lock.script_pubkey): lock.script_pubkey for lock in WALLET}
                            verified = {(each.txid, each.index) for each in await light.reserved()}
                            expected = oracle.unspent(scripts[str(arguments[0])], verified)
                    assert found == expected, (method, arguments)
            told = {
                params[0]: params[1] for name, params in client.notices if name == "blockchain.scripthash.subscribe"
            }
            changed = {hash_of_script(lock.script_pubkey): oracle.status(lock.script_pubkey) for lock in WALLET}
            assert told == {each: changed[each] for each in told}
            assert told


@pytest.mark.parametrize("mode", ["compact", "bip37"])
async def test_no_block_is_fetched_for_transactions_of_others(mode: str, regtest_node: RegtestNode) -> None:
    regtest_node.call(lambda regtest: regtest.pay(TxOut(50_000, WALLET[0].script_pubkey)))
    for _ in range(4):
        regtest_node.call(lambda regtest: regtest.pay(TxOut(50_000, FOREIGN[0].script_pubkey)))
    regtest_node.mine()
    oracle = oracle_of(regtest_node)
    tip = len(oracle.ids) - 1
    foreign = next(at for at, txid in enumerate(oracle.ids[tip]) if txid not in oracle.own and at)
    txid = shown(oracle.ids[tip][foreign])
    async with served(regtest_node, mode=mode) as (light, server), ElectrumClient(server.port or 0) as client:
        before = light.metrics().blocks_received
        for method, arguments in (
            ("get", (txid,)),
            ("get_merkle", (txid, tip)),
            ("get_merkle", (txid, tip - 1)),
            ("id_from_pos", (tip, foreign)),
            ("id_from_pos", (tip, foreign, True)),
            ("id_from_pos", (tip, 99)),
        ):
            with pytest.raises(ElectrumError) as caught:
                await client.ask(f"blockchain.transaction.{method}", *arguments)
            assert caught.value.code == 2
        assert light.metrics().blocks_received == before
