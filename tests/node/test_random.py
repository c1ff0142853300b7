"""Regtest under random payments, blocks, conflicts and reorganizations: its state depends only on the best chain."""

from __future__ import annotations

import random

import pytest

from spvfilter.errors import ParameterError, RefusedError
from spvfilter.node.consensus import unspent_outputs
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import Lock
from spvfilter.primitives import OutPoint
from spvfilter.signing import build_tx
from support.vectors import effort

NOW = 1_700_000_000
LOCKS = [Lock(bytes((0x51, number)) + bytes(20)) for number in range(5)]


def replayed(made: Regtest) -> Regtest:
    """A second Regtest that gets the best chain's blocks and then the mempool's transactions, in order."""
    twin = Regtest(clock=lambda: NOW)
    for block in made.chain.active[1:]:
        twin.submit_block(block.raw)
    for tx in made.mempool:
        twin.submit_tx(tx.raw)
    return twin


def any_spend(made: Regtest, rng: random.Random) -> bytes:
    """A spend of random coins of the chain or the mempool. Some are spent or immature."""
    coins = [outpoint for tx in made.mempool for outpoint in unspent_outputs(tx, 0)] + list(made.chain.coins)[-60:]
    chosen = rng.sample(coins, min(len(coins), rng.choice((1, 1, 2, 3))))
    outputs = [rng.choice(LOCKS).pays(rng.randrange(1, 5_000)) for _ in range(rng.choice((1, 2)))]
    return build_tx([LOCKS[0].spends(OutPoint.parse(coin)) for coin in chosen], outputs)


def act(made: Regtest, rng: random.Random) -> None:
    match rng.randrange(8):
        case 0 | 1:
            made.pay(*(rng.choice(LOCKS).pays(rng.randrange(10_000, 10**7)) for _ in range(rng.randrange(1, 5))))
        case 2 | 3 | 4:
            made.submit_tx(any_spend(made, rng))
        case 5:
            made.mine(rng.choice((1, 1, 3)))
        case 6:
            made.mine(transactions=[any_spend(made, rng)])  # may conflict with the mempool
        case 7:
            depth = rng.choice((1, 1, 2, 5, 30))
            pool = [tx.raw for tx in made.mempool]
            made.reorg(depth, transactions=[pool[: rng.randrange(1 + len(pool))]] if rng.random() < 0.3 else ())


@pytest.mark.parametrize("seed", range(effort(3, 10, 100)))
def test_the_state_is_that_of_the_best_chain(seed: int) -> None:
    rng = random.Random(seed)
    made = Regtest(clock=lambda: NOW)
    made.mine(120)
    refused = 0
    for step in range(150):
        try:
            act(made, rng)
        except (RefusedError, ParameterError):
            refused += 1
        if step % 15:
            continue
        twin = replayed(made)
        assert twin.chain.tip.hash == made.chain.tip.hash
        assert twin.chain.coins == made.chain.coins
        assert [block.spent for block in twin.chain.active] == [block.spent for block in made.chain.active]
        assert [tx.raw for tx in twin.mempool] == [tx.raw for tx in made.mempool]
        assert (twin.mempool.fees, twin.mempool.size) == (made.mempool.fees, made.mempool.size)
        assert twin.balance == made.balance
    assert 0 < refused < 100
