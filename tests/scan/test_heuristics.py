"""The programs of the page about CoinJoins and change, judged on transactions whose kind is known."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli import main
from spvfilter.hashes import sha256d
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.undo import Spent, record_of, undo_of, write_chain

pytestmark = pytest.mark.columns
PAGE = Path(__file__).parents[2] / "docs/howto/heuristics.md"
POOLS = (100_000, 1_000_000, 5_000_000, 50_000_000)
COIN = 100_000_000
Script = Callable[[], bytes]


@dataclass
class Labelled:
    """The transactions of one block, and the truth about them by txid in hex."""

    rng: random.Random
    txs: list[bytes] = field(default_factory=list)
    spent: list[list[Spent]] = field(default_factory=list)
    shapes: dict[str, str] = field(default_factory=dict)
    change: dict[str, int] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)

    def add(self, coins: list[tuple[int, bytes]], paid: list[tuple[int, bytes]]) -> str:
        """Add a transaction that spends these values and scripts, and return its txid."""
        inputs = [TxIn(self.rng.randbytes(32), 0, witness=(b"signature", b"key")) for _ in coins]
        raw = build.tx(inputs, [TxOut(value, script) for value, script in paid])
        self.txs.append(raw)
        self.spent.append([Spent(value, script, 5) for value, script in coins])
        bare = build.tx([TxIn(each.txid, 0) for each in inputs], [TxOut(*each) for each in paid])
        return sha256d(bare)[::-1].hex()

    def segwit(self) -> bytes:
        return build.p2wpkh(self.rng.randbytes(20))

    def legacy(self) -> bytes:
        return build.p2pkh(self.rng.randbytes(20))

    def taproot(self) -> bytes:
        return b"\x51\x20" + self.rng.randbytes(32)

    def odd(self, least: int, most: int) -> int:
        """A value that is not round."""
        return self.rng.randrange(least // 100_000, most // 100_000) * 100_000 + self.rng.randrange(1, 99_999)

    def coins(self, count: int, value: int, script: Script) -> list[tuple[int, bytes]]:
        """Coins that are worth more than `value` together."""
        return [(value // count + self.odd(200_000, 1_000_000), script()) for _ in range(count)]


def coinjoin(made: Labelled, shape: str) -> None:
    rng, script = made.rng, made.segwit
    match shape:
        case "Whirlpool":
            size, value = rng.randrange(5, 11), rng.choice(POOLS)
            coins = [(value + rng.randrange(300, 9_000), script()) for _ in range(size)]
            paid = [(value, script()) for _ in range(size)]
        case "Wasabi 1":
            size, value = rng.randrange(10, 40), made.odd(9_500_000, 10_500_000)
            paid = [(value, script()) for _ in range(size)] + [(made.odd(20_000, 9 * COIN), script()) for _ in range(9)]
            coins = made.coins(size + rng.randrange(9), sum(value for value, _ in paid), script)
        case "Wasabi 2":
            usual = [2**n for n in range(13, 30)] + [3**n for n in range(8, 17)] + [10**n for n in range(5, 9)]
            paid = [(rng.choice(usual), script()) for _ in range(rng.randrange(40, 80))]
            paid += [(made.odd(100_000, COIN), script()) for _ in range(4)]
            coins = made.coins(rng.randrange(50, 90), sum(value for value, _ in paid), script)
        case _:
            size, value = rng.randrange(3, 9), made.odd(1_000_000, 5_000_000)
            change = [(made.odd(300_000, 2 * COIN), script()) for _ in range(size - rng.randrange(2))]
            paid = [(value, script()) for _ in range(size)] + change
            coins = made.coins(size + rng.randrange(4), sum(value for value, _ in paid), script)
    rng.shuffle(paid)
    made.shapes[made.add(coins, paid)] = shape


def lookalike(made: Labelled, kind: str) -> None:
    """Add a transaction of another kind with one output, or with many."""
    rng, script = made.rng, made.segwit
    match kind:
        case "payout":
            paid = [(1_000_000, script()) for _ in range(rng.randrange(4, 40))]
            paid += [(made.odd(100_000, COIN), script()) for _ in range(rng.randrange(1, 5))]
            made.add(made.coins(rng.randrange(1, 3), sum(value for value, _ in paid), script), paid)
        case "batch":
            paid = [(made.odd(100_000, COIN), made.legacy()) for _ in range(rng.randrange(3, 60))]
            made.add(made.coins(rng.randrange(3, 70), 100 * COIN, script), paid)
        case _:
            made.add(made.coins(rng.randrange(2, 90), 5 * COIN, script), [(4 * COIN, script())])


def payment(made: Labelled, kind: str) -> None:
    """Add a payment with change: one rule sees the change, no rule does, or a rule is wrong."""
    rng = made.rng
    payee: Script = made.segwit
    coins = made.coins(1, 3 * COIN, made.segwit)
    amount, change, back = made.odd(COIN, 2 * COIN), made.odd(COIN // 2, COIN), made.segwit()
    match kind:
        case "reuse":
            back = coins[0][1]
        case "type":
            payee = rng.choice([made.legacy, made.taproot])
        case "round":
            amount = rng.randrange(100, 2_000) * 100_000
        case "small":
            coins = made.coins(2, 4 * COIN, made.segwit)
            amount = made.odd(2 * COIN + COIN // 10, 2 * COIN + COIN // 2)
        case "misleading":
            change = rng.randrange(100, 900) * 100_000
    paid = [(amount, payee()), (change, back)]
    at = rng.randrange(2)
    txid = made.add(coins, paid if at else paid[::-1])
    made.change[txid] = at
    if kind == "unclear":
        made.unclear.add(txid)


def labelled(seed: int) -> Labelled:
    made = Labelled(random.Random(seed))
    jobs: list[tuple[Callable[[Labelled, str], None], str]] = []
    jobs += [(coinjoin, shape) for shape in ("Whirlpool", "Wasabi 1", "Wasabi 2", "JoinMarket") for _ in range(4)]
    jobs += [(lookalike, kind) for kind in ("payout", "batch", "consolidation") for _ in range(10)]
    jobs += [(payment, kind) for kind in ("reuse", "type", "round", "small") for _ in range(20)]
    jobs += [(payment, "unclear")] * 15 + [(payment, "misleading")] * 5
    made.rng.shuffle(jobs)
    for make, kind in jobs:
        make(made, kind)
    return made


def write(made: Labelled, folder: Path) -> None:
    block = build.block_of(bytes(32), 100, made.txs)
    write_chain(folder, [block], [record_of(block, undo_of(made.spent))])


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["duckdb", "polars"])
@pytest.mark.parametrize("seed", range(3))
def test_the_programs_find_what_the_labels_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: str, seed: int
) -> None:
    made = labelled(seed)
    write(made, tmp_path)
    monkeypatch.chdir(tmp_path)
    tables = ["transactions", "outputs:+address", "inputs:+address"]
    assert main(["export", ".", "--out", "tables", "--columns", *tables, "--network", "regtest", "--quiet"]) == 0
    capsys.readouterr()
    page = PAGE.read_text(encoding="utf-8")
    (code,) = [each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if f"import {engine}" in each]
    names: dict[str, Any] = {}
    exec(code, names)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert capsys.readouterr().out == shown
    assert names["coinjoins"] == made.shapes
    found: dict[str, int] = names["change"]
    assert found.keys() == made.change.keys() - made.unclear
    right = [txid for txid, index in found.items() if made.change[txid] == index]
    assert (len(right), len(found), len(made.change)) == (80, 85, 100)
