"""Fee rates of whole blocks and of peers, and the bound on the number of rates."""

from __future__ import annotations

import random

import pytest

from light.engine.test_fees import Run
from spvfilter.chain import HeaderChain
from spvfilter.kernel import walk_block
from spvfilter.light.client import LightClient
from spvfilter.light.engine.feerates import BLOCKS, RecentRates, block_fee_rate, subsidy
from spvfilter.light.events import BlockFeeRate, FeeRates, Mode
from spvfilter.network import MAINNET, REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.scripts import p2pkh, p2wpkh
from spvfilter.node.server import Node
from spvfilter.transaction import Transaction
from support.client.lightworld import World, running
from support.client.regtests import mined
from support.held import most_held


@pytest.mark.parametrize(
    ("height", "value"),
    [(0, 50), (209_999, 50), (210_000, 25), (840_000, 3.125), (6_929_999, 1e-8), (6_930_000, 0), (1 << 31, 0)],
)
def test_subsidy_halves(height: int, value: float) -> None:
    assert subsidy(MAINNET, height) == round(value * 100_000_000)
    assert subsidy(REGTEST, 150) == 2_500_000_000


@pytest.mark.parametrize("seed", range(10))
def test_average_is_fees_by_virtual_size(seed: int) -> None:
    rng, regtest = random.Random(seed), mined(101)
    for _ in range(rng.randrange(1, 9)):
        make = rng.choice((p2pkh, p2wpkh))
        regtest.pay(make(b"\x02" + rng.randbytes(32)).pays(rng.randrange(1_000, 9_000)))
    regtest.mine()
    block = regtest.chain.active[-1]
    txs = [Transaction.parse(block.raw[span.start : span.end]) for span in walk_block(block.raw)]
    fees = sum(out.value for out in txs[0].outputs) - subsidy(REGTEST, block.height)
    size = -(-sum(tx.weight for tx in txs[1:]) // 4)
    assert fees > 0
    assert block_fee_rate(block.raw, REGTEST, block.height) == BlockFeeRate(
        block.height, block.hash, fees * 1_000 // size, size
    )


def test_block_with_only_a_coinbase_has_no_rate() -> None:
    regtest = Regtest()
    regtest.mine()
    block = regtest.chain.active[-1]
    assert block_fee_rate(block.raw, REGTEST, block.height) is None


def test_rates_are_bounded_and_follow_the_best_chain() -> None:
    regtest, chain = Regtest(), HeaderChain(REGTEST)
    regtest.mine(BLOCKS + 50)
    blocks = regtest.chain.active[1:]
    chain.accept(b"".join(block.raw[:80] for block in blocks), 4_000_000_000)
    recent = RecentRates(chain)
    for block in blocks:
        recent.add(BlockFeeRate(block.height, block.hash, 1_000, 10))
    recent.add(BlockFeeRate(60, bytes(32), 9_000, 10))  # of a disconnected block
    found = recent.rates([]).block_averages
    assert [each.height for each in found] == [height for height in range(51, BLOCKS + 51) if height != 60]
    assert most_held(recent) == BLOCKS


@pytest.mark.parametrize(
    ("told", "largest", "number"),
    [([], None, 0), ([1_000, 5_000], 5_000, 2), ([1_000, 9_170_997], 1_000, 1), ([9_170_997], None, 0)],
)
def test_largest_fee_filter_counts(told: list[int], largest: int | None, number: int) -> None:
    run = Run(4)
    run.tell(*told)
    assert run.engine.fee_rates() == FeeRates((), largest, number)


@pytest.mark.parametrize("mode", list(Mode))
async def test_client_shows_rates_of_blocks_that_it_fetched(mode: Mode) -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node, mode=mode) as run:
        world.receive()
        world.regtest.mine()
        block = world.regtest.chain.active[-1]
        await run.synced(world)
        client: LightClient = run.client
        expected = block_fee_rate(block.raw, REGTEST, block.height)
        found = client.fee_rates().block_averages
        assert found == (() if mode is Mode.BIP37 else (expected,))
        assert expected is not None
        assert expected.rate > 0
