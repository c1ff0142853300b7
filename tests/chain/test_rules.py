"""Every rule for headers, on both sides of its boundary."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import replace

import pytest
from bitcoin.core import compact_from_uint256
from hypothesis import given, strategies as st

from spvfilter.chain import HeaderChain, Tip, retarget, work
from spvfilter.errors import (
    CheckpointError,
    DifficultyError,
    FutureHeaderError,
    HeaderError,
    InvalidHeaderError,
    MedianTimeError,
    ProofOfWorkError,
    TargetError,
    TimewarpError,
    VersionError,
)
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3, TESTNET4, Network
from support.blocks.build import EASY_BITS, sha256d
from support.blocks.headerchains import (
    EASY_MAINNET,
    EASY_TESTNET3,
    EASY_TESTNET4,
    NOW,
    hashes,
    judge,
    mine,
    obey,
    split,
    tip_of,
    unproven,
    wide_target,
)

T = 1_600_000_000
HARD = 0x201FFFFF  # four times the minimum difficulty
HARDER = 0x2007FFFF


# Targets and proof of work


@pytest.mark.parametrize(
    ("bits", "cause"),
    [
        (0x20800001, "negative"),
        (0x01FE0000, "negative"),
        (0, "zero"),
        (0x1D000000, "zero"),
        (0x1D800000, "zero"),  # a sign without a mantissa
        (0x01003456, "zero"),  # the mantissa is shifted out
        (0x21010000, "overflowing"),
        (0xFF123456, "overflowing"),
        (0x2100FFFF, "above the network's limit"),
        (0x20FFFFFF, "negative"),
    ],
)
def test_invalid_bits_are_refused_by_their_cause(bits: int, cause: str) -> None:
    tip = tip_of(REGTEST, 5, [T], EASY_BITS)
    with pytest.raises(TargetError, match=f"bits {bits:08x} do not encode a valid target: {cause}"):
        raw = mine(tip.hash, T + 600, bits, limit=1 << 256)
        tip.advance(raw, sha256d(raw), NOW)


@pytest.mark.parametrize(
    ("network", "bits"), [(MAINNET, 0x1D010000), (SIGNET, 0x1E0377AF), (TESTNET4, 0x1D010000)], ids=str
)
def test_a_target_just_above_the_networks_limit_is_refused(network: Network, bits: int) -> None:
    for easiest, error in ((network.pow_limit_bits, ProofOfWorkError), (bits, TargetError)):
        raw = mine(bytes(32), T + 600, easiest, limit=1 << 256)
        tip = tip_of(network, 5, [T], easiest)
        with pytest.raises(error):
            tip.advance(raw, sha256d(raw), NOW)


def test_a_hash_equal_to_the_target_meets_it() -> None:
    raw = mine(bytes(32), T + 600)
    value = int.from_bytes(sha256d(raw), "little")
    tip = tip_of(REGTEST, 5, [T], EASY_BITS)
    for number, meets in (
        (wide_target(EASY_BITS), True),
        (wide_target(EASY_BITS) + 1, False),
        (0, True),
        (value, True),
    ):
        for count in (1, 2):  # two headers take the fast path
            above = tip.copy()
            bytes_of = [number.to_bytes(32, "little"), bytes(32)][:count]
            if meets:
                above.advance(raw + mine(bytes(32), T + 1_200) * (count - 1), b"".join(bytes_of), NOW)
                assert (above.height, above.times[-1]) == (5 + count, T + 600 * count)
                continue
            with pytest.raises(ProofOfWorkError, match="is above the target of bits 207fffff"):
                above.advance(raw + mine(bytes(32), T + 1_200) * (count - 1), b"".join(bytes_of), NOW)


def test_a_header_without_proof_of_work_is_refused() -> None:
    tip = tip_of(REGTEST, 5, [T], EASY_BITS)
    raw = unproven(tip.hash, T + 600)
    with pytest.raises(ProofOfWorkError):
        tip.advance(raw, sha256d(raw), NOW)


# Difficulty


@pytest.mark.parametrize("network", [EASY_MAINNET, EASY_TESTNET3, EASY_TESTNET4, REGTEST], ids=str)
@pytest.mark.parametrize("height", [1, 2014, 2016])
@pytest.mark.parametrize("bits", [HARD - 1, HARD + 1, HARDER, EASY_BITS])
def test_bits_stay_the_same_within_a_period(network: Network, height: int, bits: int) -> None:
    tip = tip_of(network, height, [T], HARD)
    assert judge(tip, T + 600, HARD).bits == HARD
    with pytest.raises(DifficultyError, match=f"header {height + 1} has bits {bits:08x}, not {HARD:08x}"):
        judge(tip, T + 600, bits)


@pytest.mark.parametrize("network", [EASY_MAINNET, EASY_TESTNET3, EASY_TESTNET4], ids=str)
@pytest.mark.parametrize(
    "span", [302_399, 302_400, 302_401, 604_800, 1_209_600, 2_419_200, 4_838_399, 4_838_400, 4_838_401]
)
def test_a_wrong_retarget_is_refused(network: Network, span: int) -> None:
    tip = tip_of(network, 4031, [T, T + span], HARDER)
    expected = retarget(HARDER, span, network.pow_limit)
    assert judge(tip, T + span + 600, expected).period_bits == expected
    for wrong in (expected - 1, expected + 1, HARDER if expected != HARDER else HARD):
        if 0x20000000 < wrong < 0x20800000:
            with pytest.raises(DifficultyError, match=f"not {expected:08x}"):
                judge(tip, T + span + 600, wrong)


@pytest.mark.parametrize("network", [EASY_TESTNET3, EASY_TESTNET4, REGTEST], ids=str)
@pytest.mark.parametrize("height", [1, 2013, 2014, 2016])
def test_the_twenty_minute_rule_applies_after_1200_seconds(network: Network, height: int) -> None:
    tip = tip_of(network, height, [T], HARD)
    for late in (1, 600, 1_199, 1_200):
        assert judge(tip, T + late, HARD).bits == HARD
        with pytest.raises(DifficultyError):
            judge(tip, T + late, EASY_BITS)
    for late in (1_201, 1_202, 100_000):
        above = judge(tip, T + late, EASY_BITS)
        assert (above.bits, above.period_bits, above.work) == (EASY_BITS, HARD, tip.work + 2)
        with pytest.raises(DifficultyError):  # a late block *must* have the minimum difficulty
            judge(tip, T + late, HARD)


def test_mainnet_has_no_twenty_minute_rule() -> None:
    tip = tip_of(EASY_MAINNET, 7, [T], HARD)
    assert judge(tip, T + 1_201, HARD).bits == HARD
    with pytest.raises(DifficultyError):
        judge(tip, T + 1_201, EASY_BITS)


@pytest.mark.parametrize("network", [EASY_TESTNET3, EASY_TESTNET4], ids=str)
def test_a_late_block_is_retargeted_at_a_periods_start(network: Network) -> None:
    tip = tip_of(network, 2015, [T, T + 1_209_600], HARD)
    assert judge(tip, T + 1_209_600 + 100_000, HARD).bits == HARD
    with pytest.raises(DifficultyError):
        judge(tip, T + 1_209_600 + 100_000, EASY_BITS)


def test_the_usual_bits_return_after_late_blocks() -> None:
    tip = tip_of(EASY_TESTNET3, 100, [T], HARD)
    for _ in range(30):  # the window of 11 times now has only such times
        tip = judge(tip, tip.times[-1] + 1_201, EASY_BITS)
    assert (tip.bits, tip.period_bits) == (EASY_BITS, HARD)
    assert judge(tip, tip.times[-1] + 1_200, HARD).period_bits == HARD
    with pytest.raises(DifficultyError):
        judge(tip, tip.times[-1] + 1_200, EASY_BITS)


def test_usual_bits_are_looked_up_only_within_the_period() -> None:
    """A period that starts with the minimum difficulty keeps it to its end, whatever the previous period had."""
    tip = tip_of(EASY_TESTNET3, 2014, [T], HARD)
    tip = judge(tip, T + 1_201, EASY_BITS)  # height 2015, late
    assert tip.period_bits == HARD
    tip.period_time = tip.times[-1] - 1_209_600
    tip = judge(
        tip, tip.times[-1] + 600, EASY_BITS
    )  # height 2016: retargeted from the last bits, which are the minimum
    assert (tip.height, tip.period_bits) == (2016, EASY_BITS)
    assert judge(tip, tip.times[-1] + 600, EASY_BITS).height == 2017
    with pytest.raises(DifficultyError):
        judge(tip, tip.times[-1] + 600, HARD)


# Times


@pytest.mark.parametrize("count", range(1, 12))
def test_a_time_must_be_above_the_median_of_eleven(count: int) -> None:
    times = [T + 60 * (at * 7 % 11) for at in range(count)]  # not sorted
    middle = sorted(times)[count // 2]
    tip = tip_of(REGTEST, count - 1, times, EASY_BITS)
    assert tip.median_time == middle
    assert judge(tip, middle + 1, EASY_BITS).times[-1] == middle + 1
    for time in (middle, middle - 1, 1):
        with pytest.raises(MedianTimeError, match=f"header {count} has time {time}, not above the median {middle}"):
            judge(tip, time, EASY_BITS)


@pytest.mark.parametrize("seed", range(5))
def test_the_median_moves_within_a_message(seed: int) -> None:
    """The times are the lowest allowed ones, with jumps between them.

    If the code dropped the wrong time from the window, it would refuse a valid header or accept an invalid one.
    """
    rng = random.Random(seed)
    tip = tip_of(REGTEST, 100, [T], EASY_BITS)
    later, headers = tip.copy(), b""
    for _ in range(60):
        jump = rng.choice((1, 1, rng.randrange(1, 5_000)))
        headers += obey(later, [later.median_time + jump])
        bad = mine(later.hash, later.median_time)
        with pytest.raises(MedianTimeError):
            tip.copy().advance(headers + bad, hashes(headers + bad), NOW)
        good = mine(later.hash, later.median_time + 1)
        tip.copy().advance(headers + good, hashes(headers + good), NOW)


def test_the_median_is_of_the_last_eleven_not_of_all() -> None:
    tip = tip_of(REGTEST, 50, [T + 100_000] * 5 + [T + 1] * 6, EASY_BITS)
    assert judge(tip, T + 2, EASY_BITS).times == [T + 100_000] * 4 + [T + 1] * 6 + [T + 2]
    above = judge(tip_of(REGTEST, 50, [T + 5] * 6 + [T + 1] * 5, EASY_BITS), T + 6, EASY_BITS)
    assert above.median_time == T + 5
    assert judge(above, T + 6, EASY_BITS).median_time == T + 5


def test_a_time_may_be_two_hours_ahead() -> None:
    tip = tip_of(REGTEST, 5, [T], EASY_BITS)
    assert judge(tip, T + 7_800, EASY_BITS, now=T + 600).height == 6
    with pytest.raises(FutureHeaderError, match="header 6 is 7201 seconds ahead of our clock") as caught:
        judge(tip, T + 7_801, EASY_BITS, now=T + 600)
    assert not isinstance(caught.value, InvalidHeaderError)
    assert judge(tip, T + 7_801, EASY_BITS, now=T + 601).height == 6


def test_a_time_within_a_message_may_be_two_hours_ahead() -> None:
    tip = tip_of(REGTEST, 50, [T] * 11, EASY_BITS)
    headers = obey(tip.copy(), [T + 7_800] * 5)
    above = tip.copy()
    above.advance(headers, hashes(headers), T + 600)
    assert (above.height, above.times) == (55, [T] * 6 + [T + 7_800] * 5)
    with pytest.raises(FutureHeaderError) as caught:
        tip.advance(headers, hashes(headers), T + 599, index=7)
    assert caught.value.index == 7


@pytest.mark.parametrize("back", [0, 599, 600])
def test_bip94_allows_a_period_to_start_ten_minutes_earlier(back: int) -> None:
    tip = tip_of(EASY_TESTNET4, 2015, [T - 10_000] * 10 + [T], EASY_BITS, period=(EASY_BITS, T - 1_209_600))
    assert judge(tip, T - back, EASY_BITS).period_time == T - back


@pytest.mark.parametrize("back", [601, 602, 9_999])
def test_bip94_refuses_a_period_that_starts_earlier(back: int) -> None:
    tip = tip_of(EASY_TESTNET4, 2015, [T - 10_000] * 10 + [T], EASY_BITS, period=(EASY_BITS, T - 1_209_600))
    with pytest.raises(
        TimewarpError, match=f"header 2016 starts a period {back} seconds before the end of the previous one"
    ):
        judge(tip, T - back, EASY_BITS)
    for network in (
        EASY_TESTNET3,
        EASY_MAINNET,
        REGTEST,
    ):  # on these networks a refusal would split the client from the chain
        assert judge(dataclasses.replace(tip, network=network), T - back, EASY_BITS).height == 2016
    for height in (2014, 2016):
        assert judge(dataclasses.replace(tip, height=height), T - back, EASY_BITS).height == height + 1


def test_only_testnet4_has_bip94() -> None:
    assert [network.bip94 for network in NETWORKS] == [False, False, True, False, False]
    assert [network.min_difficulty_blocks for network in NETWORKS] == [False, True, True, False, True]
    assert [network.retargets for network in NETWORKS] == [True, True, True, True, False]


# Versions


HEIGHTS = [
    (MAINNET, 227_931, 363_725, 388_381),
    (TESTNET3, 21_111, 330_776, 581_885),
    (TESTNET4, 1, 1, 1),
    (SIGNET, 1, 1, 1),
    (REGTEST, 1, 1, 1),
]


@pytest.mark.parametrize(
    ("network", "bip34", "bip66", "bip65"), HEIGHTS, ids=lambda value: str(value) if isinstance(value, Network) else ""
)
def test_old_versions_are_refused_from_their_activation_heights(
    network: Network, bip34: int, bip66: int, bip65: int
) -> None:
    easy = replace(
        REGTEST, bip34_height=network.bip34_height, bip66_height=network.bip66_height, bip65_height=network.bip65_height
    )
    for height, below, least in ((bip34, -1, 2), (bip66, 2, 3), (bip65, 3, 4)):
        at = max(least for since, least in ((bip34, 2), (bip66, 3), (bip65, 4)) if height >= since)
        for version in (at, at + 1, 0x20000000, 0x7FFFFFFF):
            assert judge(tip_of(easy, height - 1, [T], EASY_BITS), T + 600, EASY_BITS, version=version).height == height
        for version in (at - 1, 1, 0, -1, -(1 << 31)):
            with pytest.raises(VersionError, match=f"header {height} has version {version}, below {at}"):
                judge(tip_of(easy, height - 1, [T], EASY_BITS), T + 600, EASY_BITS, version=version)
        if height > 1:
            version = 1 if below == -1 else below
            assert (
                judge(tip_of(easy, height - 2, [T], EASY_BITS), T + 600, EASY_BITS, version=version).height
                == height - 1
            )
    if bip34 > 1:
        assert judge(tip_of(easy, bip34 - 2, [T], EASY_BITS), T + 600, EASY_BITS, version=-5).height == bip34 - 1


# Checkpoints


def test_only_the_known_header_is_accepted_at_a_checkpoint() -> None:
    tip = tip_of(REGTEST, 5, [T], EASY_BITS)
    good, bad = mine(tip.hash, T + 600), mine(tip.hash, T + 601)
    network = replace(REGTEST, checkpoints=((6, sha256d(good)),))
    for raw in (good, bad):
        above = dataclasses.replace(tip, network=network, times=list(tip.times))
        if raw == good:
            above.advance(raw, sha256d(raw), NOW)
            continue
        with pytest.raises(CheckpointError, match="header 6 is"):
            above.advance(raw, sha256d(raw), NOW)


# Several causes at once, and many headers at once


def test_the_first_rule_in_cores_order_names_the_error() -> None:
    network = replace(EASY_TESTNET4, checkpoints=((4032, bytes(32)),))
    start = T + 1_209_600
    tip = tip_of(network, 4031, [start - 10_000] * 10 + [start], HARD, period=(HARD, T))

    def cause(header: bytes, now: int = NOW, network: Network = network) -> type[HeaderError]:
        above = dataclasses.replace(tip, network=network, times=list(tip.times))
        with pytest.raises(HeaderError) as caught:
            above.advance(header, sha256d(header), now)
        return type(caught.value)

    free = replace(network, checkpoints=())
    early, warped, future = start - 10_000, start - 601, start + 7_300
    assert cause(mine(tip.hash, early, 0x2100FFFF, version=1, limit=1 << 256)) is TargetError
    assert cause(unproven(tip.hash, early, HARDER)) is ProofOfWorkError
    assert cause(mine(tip.hash, early, HARDER, version=1)) is DifficultyError
    assert cause(mine(tip.hash, early, HARD, version=1)) is CheckpointError
    assert cause(mine(tip.hash, early, HARD, version=1), network=free) is MedianTimeError
    assert cause(mine(tip.hash, warped, HARD, version=1), T, free) is TimewarpError
    assert cause(mine(tip.hash, future, HARD, version=1), start, free) is FutureHeaderError
    assert cause(mine(tip.hash, future, HARD, version=1), network=free) is VersionError


@st.composite
def runs(draw: st.DrawFn) -> tuple[Tip, bytes]:
    """A tip near a boundary, and some valid headers after it."""
    network = draw(st.sampled_from((EASY_MAINNET, EASY_TESTNET3, EASY_TESTNET4, REGTEST)))
    network = replace(network, bip34_height=2017, bip66_height=2019, bip65_height=2022)
    height = draw(st.integers(2008, 2024))
    times = [T + 600 * at for at in range(draw(st.integers(1, 11)))]
    bits = draw(st.sampled_from((EASY_BITS, HARD)))
    tip = tip_of(network, height, times, bits, period=(bits, times[0] - draw(st.sampled_from((0, 600_000, 1_209_600)))))
    later = tip.copy()
    headers = b""
    for step in draw(st.lists(st.sampled_from((-300, 1, 600, 1_200, 1_201, 5_000)), max_size=14)):
        headers += obey(later, [max(later.median_time + 1, later.times[-1] + step)])
    return tip, headers


@given(runs(), st.data())
def test_headers_are_judged_the_same_in_any_pieces(run: tuple[Tip, bytes], data: st.DataObject) -> None:
    tip, headers = run
    one, many, pieces = tip.copy(), tip.copy(), tip.copy()
    for raw in split(headers):
        one.advance(raw, sha256d(raw), NOW)
    many.advance(headers, hashes(headers), NOW)
    cut = 80 * data.draw(st.integers(0, len(headers) // 80))
    pieces.advance(headers[:cut], hashes(headers[:cut]), NOW)
    pieces.advance(headers[cut:], hashes(headers[cut:]), NOW)
    assert one == many == pieces
    assert many.work == tip.work + sum(work(int.from_bytes(raw[72:76], "little")) for raw in split(headers))


@given(runs(), st.data())
def test_a_bad_header_is_named_the_same_in_any_pieces(run: tuple[Tip, bytes], data: st.DataObject) -> None:
    tip, headers = run
    pieces = split(headers)
    if not pieces:
        return
    at = data.draw(st.integers(0, len(pieces) - 1))
    wrong = bytearray(pieces[at])
    wrong[data.draw(st.sampled_from((0, 3, 68, 70, 71, 72, 74, 75, 76)))] ^= 1 << data.draw(st.integers(0, 7))
    pieces[at] = bytes(wrong)
    said: list[tuple[type[HeaderError] | None, str, int]] = []
    for together in (False, True):
        above = tip.copy()
        try:
            if together:
                above.advance(b"".join(pieces), b"".join(map(sha256d, pieces)), NOW, index=0)
            else:
                for index, raw in enumerate(pieces):
                    above.advance(raw, sha256d(raw), NOW, index=index)
            said.append((None, "", 0))
        except HeaderError as error:
            said.append((type(error), str(error), error.index))
    assert said[0] == said[1]


def core_next_bits(network: Network, chain: list[tuple[int, int]], time: int) -> int:
    """Core's GetNextWorkRequired, step by step, over (time, bits) from height 0 on."""
    limit, height = network.pow_limit_bits, len(chain)
    if height % 2016:
        if network.min_difficulty_blocks:
            if time > chain[-1][0] + 1_200:
                return limit
            at = height - 1
            while at and at % 2016 and chain[at][1] == limit:
                at -= 1
            return chain[at][1]
        return chain[-1][1]
    if not network.retargets:
        return chain[-1][1]
    span = min(max(chain[-1][0] - chain[height - 2016][0], 302_400), 4_838_400)
    old = chain[height - 2016][1] if network.bip94 else chain[-1][1]
    return int(compact_from_uint256(min(wide_target(old) * span // 1_209_600, network.pow_limit)))


@pytest.mark.parametrize("network", [EASY_MAINNET, EASY_TESTNET3, EASY_TESTNET4, REGTEST], ids=str)
def test_three_periods_have_the_bits_of_cores_algorithm(network: Network) -> None:
    rng = random.Random(3)
    chain = HeaderChain(network)
    tip = chain.tip()
    quick, slow = [150] * 6 + [1_201], [600, 1_200, 1_201, 1_300]
    steps = [rng.choice(quick) for _ in range(2_500)] + [rng.choice(slow) for _ in range(2_500)]
    steps[2_014] = steps[4_030] = 1_201  # the last headers of their periods are late
    time = tip.times[-1]
    headers = obey(tip, [time := time + step for step in steps])
    told = [(chain.header_at(0).time, chain.header_at(0).bits)]
    for raw in split(headers):
        time, bits = int.from_bytes(raw[68:72], "little"), int.from_bytes(raw[72:76], "little")
        assert bits == core_next_bits(network, told, time)
        told.append((time, bits))
    assert (len({bits for _, bits in told}) > 1) == network.retargets
    assert chain.accept(headers, NOW).stored == 5_000
    assert (chain.height, chain.tip_hash, chain.work) == (5_000, tip.hash, tip.work)
    assert HeaderChain.load(network, [headers]).tip() == chain.tip() == tip
