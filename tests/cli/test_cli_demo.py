"""`demo`, and that its chain is what it says: judged by python-bitcoinlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bitcoin.core import CBlock
from processes import process

from spvfilter.address import address_to_script
from spvfilter.cli.demochain import NETWORK, wallet_addresses
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import check_block


def test_the_chain_is_linked_from_regtests_genesis_and_its_merkle_roots_hold(chain: Sequence[bytes]) -> None:
    tip = NETWORK.genesis_hash
    for raw in chain:
        block = CBlock.deserialize(raw)
        assert block.hashPrevBlock == tip
        assert block.calc_merkle_root() == block.hashMerkleRoot
        check_block(raw)
        tip = block.GetHash()


def test_its_strangers_spend_only_what_exists_and_create_no_value(chain: Sequence[bytes]) -> None:
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


def test_the_demo_shows_every_match_and_nothing_else(run: Any, chain: Sequence[bytes]) -> None:
    ran = run("demo")
    assert (ran.code, ran.err) == (0, "")
    shown = [line.split() for line in ran.out.splitlines() if " received   " in line or " spent   " in line]
    shown = [words for words in shown if words[0].isdigit()]
    assert [(int(words[0]), round(float(words[2]) * 1e8)) for words in shown] == wallet_events(chain)
    assert len({height for height, _ in wallet_events(chain)}) < len(chain) - 1  # a block with transactions that is all strangers'


def test_it_prints_the_payload_that_finds_the_wallet_and_says_how_to_go_on(run: Any) -> None:
    out = run("demo").out
    lines = out.split("The filterload payload\n")[1].split("\n\n")[0].splitlines()
    made = Bip37Filter.parse(bytes.fromhex("".join(lines)))
    hashes = [address_to_script(address, NETWORK) for address in wallet_addresses().values()]
    pushes = [script[3:23] if len(script) == 25 else script[2:22] if len(script) == 23 else script[2:] for script in hashes]
    assert all(push in made for push in pushes)
    assert "8 of the wallet's 8 transactions are among those sent." in out
    assert "spvfilter filterload --watch wallet.txt\n" in out
    assert "spvfilter scan ~/.bitcoin/blocks --watch wallet.txt\n" in out


def test_two_runs_print_the_same() -> None:
    first, second = process("demo"), process("demo")
    assert first.returncode == 0
    assert first.stdout == second.stdout
    assert b"\x1b" not in first.stdout
