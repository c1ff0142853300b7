"""Compact bits, targets, work and retargets: published numbers and general properties."""

from __future__ import annotations

import pytest
from bitcoin.core import compact_from_uint256
from hypothesis import given, strategies as st

from spvfilter.chain import decode_bits, encode_bits, retarget, target, total_work, work
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3, TESTNET4, Network
from support.blocks.headerchains import EASY_MAINNET, EASY_TESTNET3, EASY_TESTNET4, tip_of, wide_target
from support.vectors import vector_cases

TWO_WEEKS = 1_209_600


@vector_cases("06_headers/compact_bits.json")
def test_compact_bits_are_read_and_written_as_published(case: dict[str, object]) -> None:
    bits = int(str(case["compact"]), 16)
    value, negative, overflow = decode_bits(bits)
    assert (negative, overflow) == (case["negative"], case["overflow"])
    if not overflow:
        assert value == int(str(case["target"]), 16)
    if case["recompact"] is not None and not negative:
        assert encode_bits(value) == int(str(case["recompact"]), 16)
    if not value or negative or overflow:
        assert target(bits) == 0
    else:
        assert target(bits) == value


@given(st.integers(0, (1 << 256) - 1))
def test_written_bits_are_the_target_without_its_lowest_bytes(value: int) -> None:
    bits = encode_bits(value)
    kept, negative, overflow = decode_bits(bits)
    assert not negative
    assert not overflow
    assert 0 <= value - kept < 1 << max(0, value.bit_length() - 15)
    assert encode_bits(kept) == bits
    assert bits == compact_from_uint256(value)


@vector_cases("06_headers/retargets.json")
def test_retargets_are_as_published(case: dict[str, object]) -> None:
    network = Network.named(str(case["network"]))
    new = retarget(int(str(case["old_bits"]), 16), int(str(case["timespan"])), network.pow_limit)
    assert f"{new:08x}" == case["new_bits"]
    assert case["timespan"] == int(str(case["epoch_last_time"])) - int(str(case["epoch_first_time"]))
    times = [int(str(case["epoch_first_time"])), int(str(case["epoch_last_time"]))]
    before = tip_of(network, 2015, times, int(str(case["old_bits"]), 16))
    assert f"{before.next_bits(times[1] + 600):08x}" == case["new_bits"]


@pytest.mark.parametrize(
    ("span", "new"),
    [
        (TWO_WEEKS, 0x1B0404CB),
        (
            TWO_WEEKS - 600,
            0x1B040448,
        ),  # Core's off-by-one: 2,016 blocks that are ten minutes apart span only 2,015 intervals
        (TWO_WEEKS * 4 - 1, 0x1B10132B),
        (TWO_WEEKS * 4, 0x1B10132C),
        (TWO_WEEKS * 4 + 1, 0x1B10132C),
        (TWO_WEEKS // 4 - 1, 0x1B010132),
        (TWO_WEEKS // 4, 0x1B010132),
        (0, 0x1B010132),
        (-5_000, 0x1B010132),
        (-(1 << 32), 0x1B010132),
    ],
)
def test_a_retarget_is_clamped_to_a_factor_of_four(span: int, new: int) -> None:
    assert f"{retarget(0x1B0404CB, span, MAINNET.pow_limit):08x}" == f"{new:08x}"


@given(st.integers(0x03, 0x1C), st.integers(0x008000, 0x7FFFFF), st.integers(-10_000_000, 10_000_000))
def test_a_retarget_is_the_product_cut_to_three_bytes(length: int, mantissa: int, span: int) -> None:
    bits = length << 24 | mantissa
    clamped = sorted((302_400, span, 4_838_400))[1]
    assert retarget(bits, span, MAINNET.pow_limit) == compact_from_uint256(
        min(wide_target(bits) * clamped // TWO_WEEKS, MAINNET.pow_limit)
    )


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_no_retarget_rises_above_the_networks_limit(network: Network) -> None:
    assert retarget(network.pow_limit_bits, TWO_WEEKS * 4, network.pow_limit) == network.pow_limit_bits
    assert encode_bits(network.pow_limit) == network.pow_limit_bits
    last_digit = 1 << 8 * ((network.pow_limit_bits >> 24) - 3)
    assert target(network.pow_limit_bits) <= network.pow_limit < target(network.pow_limit_bits) + last_digit
    # the product does not overflow Core's 256 bits
    assert not network.retargets or network.pow_limit * TWO_WEEKS * 4 < 1 << 256


# Bits that the next header must have


PERIODS = [
    (MAINNET, 0x1C7FFF80, 0x1C3FFFC0),
    (SIGNET, 0x1D1BBD70, 0x1D0DDEB8),
    (TESTNET3, 0x1C7FFF80, 0x1C3FFFC0),
    (TESTNET4, 0x1C7FFF80, 0x1C3FFFC0),
]


@pytest.mark.parametrize(
    ("network", "bits", "halved"), PERIODS, ids=lambda value: str(value) if isinstance(value, Network) else ""
)
@pytest.mark.parametrize("height", [2015, 4031, 2016 * 400 - 1])
def test_a_period_of_one_week_doubles_the_difficulty(network: Network, bits: int, halved: int, height: int) -> None:
    first = 1_600_000_000
    tip = tip_of(network, height, [first, first + TWO_WEEKS // 2], bits)
    assert f"{tip.next_bits(first + TWO_WEEKS):08x}" == f"{halved:08x}"


@pytest.mark.parametrize(
    ("network", "bits", "halved"), PERIODS, ids=lambda value: str(value) if isinstance(value, Network) else ""
)
@pytest.mark.parametrize("height", [1, 2014, 2016, 2017, 4030, 4032])
def test_within_a_period_bits_stay(network: Network, bits: int, halved: int, height: int) -> None:
    first = 1_600_000_000
    tip = tip_of(network, height, [first, first + TWO_WEEKS // 2], bits)
    assert tip.next_bits(tip.times[-1] + 1) == tip.next_bits(tip.times[-1] + 1_200) == bits


@pytest.mark.parametrize("height", [2015, 4031])
def test_regtest_never_retargets(height: int) -> None:
    tip = tip_of(REGTEST, height, [1_600_000_000, 1_600_000_000 + 60], 0x201FFFFF)
    assert tip.next_bits(1_600_000_120) == tip.next_bits(1_700_000_000) == 0x201FFFFF


def test_testnet3_retargets_from_the_last_bits_be_they_the_minimum() -> None:
    first = 1_600_000_000
    tip = tip_of(TESTNET3, 2015, [first, first + TWO_WEEKS // 2], 0x1D00FFFF, period=(0x1B0404CB, first))
    assert f"{tip.next_bits(first + TWO_WEEKS):08x}" == "1c7fff80"


def test_testnet4_retargets_from_the_periods_first_bits() -> None:
    first = 1_600_000_000
    tip = tip_of(TESTNET4, 2015, [first, first + TWO_WEEKS // 2], 0x1D00FFFF, period=(0x1B0404CB, first))
    assert f"{tip.next_bits(first + TWO_WEEKS):08x}" == "1b020265"


@pytest.mark.parametrize("network", [TESTNET3, TESTNET4, REGTEST, EASY_TESTNET3, EASY_TESTNET4], ids=str)
def test_a_block_more_than_twenty_minutes_late_has_the_minimum(network: Network) -> None:
    for height in (0, 1, 2014, 2016):
        tip = tip_of(network, height, [1_600_000_000], 0x1B0404CB)
        assert tip.next_bits(1_600_001_200) == 0x1B0404CB
        assert tip.next_bits(1_600_001_201) == network.pow_limit_bits
        assert tip.next_bits(1_599_000_000) == 0x1B0404CB


@pytest.mark.parametrize("network", [MAINNET, SIGNET, EASY_MAINNET], ids=str)
def test_elsewhere_late_blocks_are_as_hard_as_others(network: Network) -> None:
    tip = tip_of(network, 100, [1_600_000_000], 0x1B0404CB)
    assert tip.next_bits(1_600_001_201) == tip.next_bits(1_700_000_000) == 0x1B0404CB


@pytest.mark.parametrize("network", [TESTNET3, TESTNET4], ids=str)
def test_at_a_periods_start_no_block_is_late(network: Network) -> None:
    first = 1_600_000_000
    tip = tip_of(network, 2015, [first, first + TWO_WEEKS], 0x1B0404CB)
    assert tip.next_bits(first + 2 * TWO_WEEKS) == 0x1B0404CB


# Work


@given(st.lists(st.sampled_from([0x1D00FFFF, 0x207FFFFF, 0x1B0404CB, 0]), max_size=40), st.data())
def test_work_of_headers_is_the_sum_of_each(bits: list[int], data: st.DataObject) -> None:
    headers = b"".join(bytes(72) + each.to_bytes(4, "little") + bytes(4) for each in bits)
    assert total_work(headers) == sum(work(each) for each in bits)
    cut = 80 * data.draw(st.integers(0, len(bits)))
    assert total_work(headers) == total_work(headers[:cut]) + total_work(headers[cut:])
