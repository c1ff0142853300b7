"""The checks of the outputs that a block spends: honest records pass, and changed ones are refused."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from spvfilter.errors import FormatError
from spvfilter.light.engine.feerates import subsidy
from spvfilter.light.engine.silentblocks import check_spent
from spvfilter.network import REGTEST
from support.blocks import undo
from support.client.lightworld import World
from support.vectors import effort


def world() -> tuple[list[bytes], list[list[list[undo.Spent]]]]:
    """The blocks of a chain with payments and spends, some of them in one block, and the coins that they spend."""
    made = World(3)
    made.grow(30)
    blocks = [block.raw for block in made.regtest.chain.active]
    return blocks, undo.spent_of(blocks)


BLOCKS, SPENT = world()
BUSY = [height for height, spent in enumerate(SPENT) if spent]


def check(height: int, spent: list[list[undo.Spent]]) -> None:
    check_spent(BLOCKS[height], undo.record_of(BLOCKS[height], undo.undo_of(spent)), subsidy(REGTEST, height))


def test_the_outputs_of_every_block_pass() -> None:
    assert len(BUSY) > 10
    for height, spent in enumerate(SPENT):
        check(height, spent)


@pytest.mark.parametrize("seed", range(effort(30, 100, 1_000)))
def test_changed_outputs_are_refused(seed: int) -> None:
    rng = random.Random(seed)
    height = rng.choice(BUSY)
    spent = [list(coins) for coins in SPENT[height]]
    tx = rng.randrange(len(spent))
    coin = rng.randrange(len(spent[tx]))
    way = rng.choice(("no transaction", "a transaction more", "no coin", "a coin more", "no value"))
    if way == "no transaction":
        del spent[tx]
    elif way == "a transaction more":
        spent.insert(tx, [undo.Spent(1, b"\x51")])
    elif way == "no coin":
        del spent[tx][coin]
    elif way == "a coin more":
        spent[tx].insert(coin, undo.Spent(1, b"\x51"))
    else:
        spent[tx][coin] = replace(spent[tx][coin], value=0)
    with pytest.raises(FormatError):
        check(height, spent)


def test_an_output_of_the_same_block_must_be_the_same() -> None:
    found = 0
    for height in BUSY:
        own = {bytes(each.script) for coins in SPENT[height] for each in coins if each.height == height}
        for tx, coins in enumerate(SPENT[height]):
            for at, coin in enumerate(coins):
                if bytes(coin.script) in own and coin.height == height:
                    spent = [list(each) for each in SPENT[height]]
                    spent[tx][at] = replace(coin, script=b"\x51\x20" + bytes(32))
                    with pytest.raises(FormatError, match="differs from the one in the block"):
                        check(height, spent)
                    found += 1
    assert found
