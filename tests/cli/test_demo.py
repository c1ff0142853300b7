"""`demo`: its output, and its chain checked with python-bitcoinlib."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from bitcoin.core import CBlock

from spvfilter.address import address_to_script
from spvfilter.cli.demo import command
from spvfilter.cli.demo.chain import NETWORK, DemoChain, wallet_addresses
from spvfilter.cli.demo.node import DemoNode
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import check_block
from spvfilter.light.client import LightClient
from spvfilter.light.events import Synced
from spvfilter.p2p.clock import Clock
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.signatures import Validity, find_curve, verify_spends
from spvfilter.transaction import Transaction
from support.commands.processes import WITHOUT_RICH, on_terminal, process


def test_chain_links_to_genesis_and_merkle_roots_hold(chain: Sequence[bytes]) -> None:
    tip = NETWORK.genesis_hash
    for raw in chain:
        block = CBlock.deserialize(raw)
        assert block.hashPrevBlock == tip
        assert block.calc_merkle_root() == block.hashMerkleRoot
        check_block(raw)
        tip = block.GetHash()


def test_foreign_transactions_spend_existing_coins_only(chain: Sequence[bytes]) -> None:
    coins: dict[tuple[bytes, int], int] = {}
    for raw in chain:
        for number, tx in enumerate(CBlock.deserialize(raw).vtx):
            spent = sum(coins.pop((item.prevout.hash, item.prevout.n)) for item in tx.vin) if number else 50 * 10**8
            assert 0 <= spent - sum(out.nValue for out in tx.vout) <= 10**6
            coins.update({(tx.GetTxid(), n): out.nValue for n, out in enumerate(tx.vout)})


def wallet_events(chain: Sequence[bytes]) -> list[tuple[int, int]]:
    """(height, satoshi) of every receipt and spend, by a dict of scripts."""
    scripts = {address_to_script(address, NETWORK) for address in wallet_addresses().values()}
    own: dict[tuple[bytes, int], int] = {}
    events = []
    for height, raw in enumerate(chain, 1):
        for tx in CBlock.deserialize(raw).vtx:
            spent = [own.pop((item.prevout.hash, item.prevout.n), 0) for item in tx.vin]
            events += [(height, -value) for value in spent if value]
            for n, out in enumerate(tx.vout):
                if bytes(out.scriptPubKey) in scripts:
                    own[tx.GetTxid(), n] = out.nValue
                    events.append((height, out.nValue))
    return events


def rows(text: str) -> list[tuple[str, int]]:
    """(height, satoshi) of every row of a match."""
    words = [line.split() for line in text.splitlines() if " received   " in line or " spent   " in line]
    return [(found[0], round(float(found[2]) * 1e8)) for found in words]


@pytest.mark.skipif(find_curve() is None, reason="libsecp256k1 is not installed")
def test_signatures_of_the_wallet_are_valid() -> None:
    """Nodes and `broadcast` refuse spends with wrong signatures."""
    demo = DemoChain()
    raws = [bytes(tx.serialize()) for raw in demo.blocks for tx in CBlock.deserialize(raw).vtx]
    txs = [Transaction.parse(raw) for raw in (*raws, *demo.next_payments())]
    outputs = {(tx.txid, index): output for tx in txs for index, output in enumerate(tx.outputs)}
    scripts = {address_to_script(address, NETWORK) for address in wallet_addresses().values()}
    judged = []
    for tx in txs:
        found = [outputs.get((each[:32], int.from_bytes(each[32:], "little"))) for each in tx.inputs]
        if any(output is not None and output.script_pubkey in scripts for output in found):
            judged.append(verify_spends(tx, found).validity)
    assert judged == [Validity.VALID] * 5


@pytest.mark.long
def test_it_runs_without_libsecp256k1(shown: str) -> None:
    code = WITHOUT_RICH.replace("['rich'] = None", ".update(wallycore=None, btclib_secp256k1=None, rich=None)")
    ran = process("demo", code=code)
    assert (ran.returncode, ran.stderr) == (0, b"")
    plain = ran.stdout.decode()
    assert rows(plain) == rows(shown)
    assert plain.partition("\n3. ")[0] == shown.partition("\n3. ")[0]


@pytest.fixture(scope="module")
def shown() -> str:
    ran = process("demo")
    assert (ran.returncode, ran.stderr) == (0, b"")
    return ran.stdout.decode()


def test_live_client_shows_exactly_the_matches_of_the_chain(shown: str) -> None:
    blocks = DemoChain(COINBASE_MATURITY).blocks
    events = wallet_events(blocks)
    assert rows(shown.partition("\n4. ")[0]) == [(str(height), value) for height, value in events]
    # one block has only foreign transactions
    assert len({height for height, _ in events}) < len(blocks) - COINBASE_MATURITY - 1
    assert f"  {1 + len(blocks)} filtered blocks, " in shown  # the genesis block too
    assert ": 8 transactions of the wallet,\n" in shown


def test_live_payments_survive_a_reorganization(shown: str) -> None:
    seen = rows(shown.partition("\n4. ")[2])
    values = [12_500_000, -12_500_000, 2_490_000]
    # a reorganization reports the last match first
    places = [("mempool", values), ("108", values), ("mempool", values[::-1]), ("110", values)]
    assert seen == [(place, value) for place, each in places for value in each]
    assert shown.partition("Balances, BTC")[2].partition("\n\n")[0].split()[-2:] == ["0.51960000", "16"]


def test_modes_are_compared_and_filter_has_false_positives(shown: str) -> None:
    table = shown.partition("\n5. ")[2].partition("\n6. ")[0]
    said = {cells[0]: cells[1:] for cells in (re.split("  +", line.strip()) for line in table.splitlines())}
    assert said["whole blocks fetched"] == ["0", "6"]  # 102, 103, 104, 106, 107 and 110
    learned = said["the node learned"]
    suspects, _, scripts, _ = learned[0].split()
    assert len(wallet_addresses()) < int(suspects) < int(scripts) // 10
    assert learned[1] == "6 blocks of 111"


def test_demo_prints_payload_and_next_commands(shown: str) -> None:
    lines = shown.split("The filterload payload\n")[1].split("\n\n")[0].splitlines()
    made = Bip37Filter.parse(bytes.fromhex("".join(lines)))
    hashes = [address_to_script(address, NETWORK) for address in wallet_addresses().values()]
    pushes = [
        script[3:23] if len(script) == 25 else script[2:22] if len(script) == 23 else script[2:] for script in hashes
    ]
    assert all(push in made for push in pushes)
    for line in (
        "watch --watch wallet.txt --connect HOST:PORT",
        "scan ~/.bitcoin/blocks --watch wallet.txt",
        "filterload --watch",
    ):
        assert f"spvfilter {line}" in shown


def test_node_receives_the_shown_filter(shown: str) -> None:
    lines = shown.split("The filterload payload\n")[1].split("\n\n")[0].splitlines()

    async def told(folder: Path) -> bytes:
        chain, watch = DemoChain(COINBASE_MATURITY), command.demo_wallet()
        async with DemoNode(chain.blocks, chain.time) as node:
            store = command.prepared_store(folder / "wallet.db", watch)
            clock = Clock(wall=chain.time)
            async with LightClient(
                watch, peers=[node.place], store=store, mode="bip37", fp_rate=command.FP_RATE, clock=clock
            ) as client:
                async for event in client.events():
                    if isinstance(event, Synced):
                        break
            assert node.seen[0].told is not None
            assert node.suspects(node.seen[0].told)[0] > len(wallet_addresses())
            return bytes(node.seen[0].told)

    with TemporaryDirectory() as folder:
        assert asyncio.run(told(Path(folder))).hex() == "".join(line.strip() for line in lines)


def test_two_runs_print_the_same(shown: str) -> None:
    assert process("demo").stdout.decode() == shown
    assert "\x1b" not in shown


def test_a_terminal_of_80_columns_holds_it() -> None:
    code, text = on_terminal("demo")
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    assert max(map(len, plain.splitlines())) <= 80
