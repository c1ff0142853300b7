"""The best chain: lookups, locators, reorganizations, refusals, and loading it again."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.chain import HeaderChain, Start, Update, total_work
from spvfilter.errors import (
    DiscontinuousHeadersError,
    FormatError,
    FutureHeaderError,
    LowWorkError,
    MedianTimeError,
    ParameterError,
    ProofOfWorkError,
    UnconnectedHeadersError,
)
from spvfilter.network import NETWORKS, REGTEST, Network
from spvfilter.primitives import Header
from support.blocks.build import EASY_BITS, sha256d
from support.blocks.headerchains import (
    EASY_TESTNET3,
    GENESIS_TIME,
    NOW,
    chain_of,
    grow,
    hashes,
    obey,
    regular,
    split,
    state,
    tip_hash,
    unproven,
)

# Lookups


def test_blocks_of_forks_have_work_and_a_common_height() -> None:
    chain = chain_of(30)
    beside = regular(chain, 5, height=20, branch=1)
    chain.accept(beside, NOW)
    assert chain.height == 30
    for at, block_hash in enumerate(map(sha256d, split(beside)), 1):
        assert (chain.work_of(block_hash), chain.common_height(block_hash)) == (chain.work_at(20 + at), 20)
    for height in (0, 20, 30):
        assert (chain.work_of(chain.hash_at(height)), chain.common_height(chain.hash_at(height))) == (
            chain.work_at(height),
            height,
        )
    assert chain.work_of(bytes(32)) is chain.common_height(bytes(32)) is None


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_new_chain_is_its_genesis_block(network: Network) -> None:
    chain = HeaderChain(network)
    assert (chain.height, chain.tip_hash) == (0, network.genesis_hash)
    assert bytes(chain.header_at(0)) == network.genesis
    assert chain.work == total_work(network.genesis) > 0
    assert chain.locator() == [network.genesis_hash]
    assert chain.median_time_at(0) == chain.header_at(0).time


def test_every_height_and_hash_is_found() -> None:
    chain = HeaderChain(REGTEST)
    headers = REGTEST.genesis + regular(chain, 700)
    chain.accept(headers[80:], NOW)
    block_hashes = [sha256d(raw) for raw in split(headers)]
    assert [chain.hash_at(height) for height in range(701)] == block_hashes
    for first, last in ((0, 700), (0, 0), (700, 700), (3, 699), (699, 700), (5, 4)):
        assert chain.hashes(first, last) == block_hashes[first : last + 1]
    for first, last in ((-1, 3), (0, 701), (701, 701)):
        with pytest.raises(ParameterError):
            chain.hashes(first, last)
    assert [chain.height_of(block_hash) for block_hash in block_hashes] == list(range(701))
    assert [bytes(chain.header_at(height)) for height in range(701)] == split(headers)
    assert [chain.time_at(height) for height in range(701)] == [Header.parse(raw).time for raw in split(headers)]
    assert [chain.work_at(height) for height in range(701)] == [2 * height + 2 for height in range(701)]
    assert all(block_hash in chain for block_hash in block_hashes)
    for absent in (bytes(32), sha256d(b""), block_hashes[5][::-1], block_hashes[5][:6] + bytes(26)):
        assert chain.height_of(absent) is None
        assert absent not in chain


def test_the_median_time_is_that_of_the_last_eleven() -> None:
    tip = HeaderChain(REGTEST).tip()
    jumps = itertools.cycle((100, 700, -50, 1_300, 0, -400))
    times = [GENESIS_TIME]
    for _ in range(60):
        window = sorted(times[-11:])
        times.append(max(window[len(window) // 2] + 1, times[-1] + next(jumps)))
    chain = HeaderChain(REGTEST)
    chain.accept(obey(tip, times[1:]), NOW)
    for height in range(61):
        window = sorted(times[max(0, height - 10) : height + 1])
        assert chain.median_time_at(height) == window[len(window) // 2]


@pytest.mark.parametrize("height", [-1, 12, 1 << 40])
def test_a_height_without_a_header_is_refused(height: int) -> None:
    chain = chain_of(10)
    with pytest.raises(ParameterError):
        chain.hash_at(11)
    for ask in (
        chain.hash_at,
        chain.header_at,
        chain.time_at,
        chain.work_at,
        chain.median_time_at,
        lambda height: chain.headers(height, 1),
    ):
        with pytest.raises(ParameterError, match=f"no header at height {height}: the chain covers heights 0 to 10"):
            ask(height)
    with pytest.raises(ParameterError, match="count must be 0 or more, not -1"):
        chain.headers(0, -1)


def test_headers_end_at_the_tip() -> None:
    chain = chain_of(10)
    assert chain.headers(8, 100) == bytes(chain.header_at(8)) + bytes(chain.header_at(9)) + bytes(chain.header_at(10))
    assert chain.headers(3, 0) == chain.headers(11, 5) == b""


# Locators


@pytest.mark.parametrize(
    ("height", "heights"),
    [
        (0, [0]),
        (1, [1, 0]),
        (10, list(range(10, -1, -1))),
        (11, list(range(11, -1, -1))),
        (12, list(range(12, -1, -1))),
        (13, [*range(13, 1, -1), 0]),
        (100, [*range(100, 88, -1), 87, 83, 75, 59, 27, 0]),
    ],
)
def test_a_locator_equals_cores(height: int, heights: list[int]) -> None:
    chain = chain_of(height)
    assert [chain.height_of(block_hash) for block_hash in chain.locator()] == heights


# Adding headers


def test_headers_are_connected_in_order() -> None:
    chain = HeaderChain(REGTEST)
    headers = regular(chain, 30)
    update = chain.accept(headers, NOW)
    assert (update.fork_height, update.stored, list(update.disconnected)) == (0, 30, [])
    assert [tuple(placed) for placed in update.connected] == [
        (at + 1, sha256d(raw), raw) for at, raw in enumerate(split(headers))
    ]


def test_known_headers_are_skipped() -> None:
    chain = HeaderChain(REGTEST)
    headers = regular(chain, 30)
    chain.accept(headers[: 80 * 20], NOW)
    assert chain.accept(headers[: 80 * 20], NOW) == chain.accept(b"", NOW) == Update(20)
    assert chain.accept(REGTEST.genesis, NOW) == Update(20)
    update = chain.accept(REGTEST.genesis + headers, NOW)
    assert (update.fork_height, update.stored, update.new_headers) == (20, 10, headers[80 * 20 :])
    with pytest.raises(ProofOfWorkError) as caught:
        chain.accept(headers + unproven(tip_hash(headers), NOW - 1), NOW)
    assert caught.value.index == 30


def test_the_first_branch_stays_until_another_has_more_work() -> None:
    chain = chain_of(10)
    ours = chain.headers(8, 10)
    theirs = regular(chain, 4, height=7, branch=1)
    before = state(chain)
    assert chain.accept(theirs[:160], NOW) == Update(10, 2)
    assert chain.accept(theirs[160:240], NOW) == Update(10, 1)
    assert state(chain) == before
    update = chain.accept(theirs[240:], NOW)
    assert (chain.height, chain.tip_hash) == (11, tip_hash(theirs))
    assert (update.fork_height, update.stored) == (7, 1)
    assert [placed.raw for placed in update.disconnected] == split(ours)[::-1]
    assert [(placed.height, placed.hash) for placed in update.disconnected] == [
        (at, before_hash(ours, at - 8)) for at in (10, 9, 8)
    ]
    assert [placed.raw for placed in update.connected] == split(theirs)
    assert chain.headers(8, 10) == theirs
    assert chain.height_of(tip_hash(ours)) is None
    assert tip_hash(ours) in chain


def before_hash(headers: bytes, number: int) -> bytes:
    return sha256d(headers[80 * number : 80 * number + 80])


def test_more_work_beats_more_headers() -> None:
    """Late blocks are easy: four of them have less work than one block of the usual difficulty."""
    tip = HeaderChain(EASY_TESTNET3).tip()
    time = GENESIS_TIME
    first = obey(tip, [time := time + 1 for _ in range(2_015)])
    hard = obey(tip, [time := time + 1])  # height 2,016, four times as hard
    root = tip.copy()
    chain = HeaderChain(EASY_TESTNET3)
    chain.accept(first + hard, NOW)
    easy = obey(root.copy(), [time + 1_201 * at for at in (1, 2, 3)])
    assert {raw[72:76] for raw in split(easy)} == {EASY_BITS.to_bytes(4, "little")}
    chain.accept(easy, NOW)
    assert chain.height == 2_019
    one = obey(root.copy(), [time + 600])
    update = chain.accept(one, NOW)
    assert chain.height == 2_017
    assert len(list(update.disconnected)) == 3
    # equal work
    assert chain.accept(obey(root.copy(), [time + 1_201 * at for at in (1, 2, 3, 4)])[240:], NOW) == Update(2_017, 1)


def test_reorganizations_switch_among_three_branches() -> None:
    chain = chain_of(20)
    branches = {number: regular(chain, 12, height=10 + number, branch=number) for number in (1, 2, 3)}
    follow = chain.headers(1, 20)
    for count, number in ((10, 1), (10, 2), (12, 1), (11, 3), (12, 3)):
        height = 10 + number
        update = chain.accept(branches[number][: 80 * count], NOW)
        known = split(follow)
        for placed in update.disconnected:
            assert known.pop() == placed.raw
            assert len(known) + 1 == placed.height
        for placed in update.connected:
            known.append(placed.raw)
            assert len(known) == placed.height
        follow = b"".join(known)
        assert follow == chain.headers(1, 100)
        assert height + count >= chain.height
    assert chain.tip_hash == tip_hash(branches[3])
    for number in (1, 2):
        assert tip_hash(branches[number][: 80 * (12 if number == 1 else 10)]) in chain


@pytest.mark.parametrize("depth", [1, 143, 144, 145, 2_015, 2_016, 2_017, 3_000])
def test_a_reorganization_of_any_depth_is_followed_at_once(depth: int) -> None:
    chain = chain_of(3_000)
    old = chain.headers(3_001 - depth, depth)
    new = regular(chain, depth + 1, height=3_000 - depth, branch=1)
    update = chain.accept(new, NOW)
    assert (update.old_headers, update.old_hashes, update.new_headers, update.new_hashes) == (
        old,
        hashes(old),
        new,
        hashes(new),
    )
    assert (chain.height, chain.tip_hash, chain.work) == (3_001, tip_hash(new), 2 * 3_002)
    assert [chain.height_of(block_hash) for block_hash in (tip_hash(new), tip_hash(old))] == [3_001, None]
    back = (
        regular(chain, 1, height=3_000 - depth)[:0]
        + old
        + grow(tip_hash(old), [Header.parse(old[-80:]).time + 600 * at for at in (1, 2)])
    )
    update = chain.accept(back, NOW)
    assert (update.old_headers, update.new_headers) == (new, back)
    assert chain.height_of(tip_hash(old)) == 3_000


# Starts and loading


def test_a_trusted_start_replaces_the_genesis_block() -> None:
    source = chain_of(60)
    start = Start(30, source.headers(30, 11), 77)
    with pytest.raises(ParameterError, match="headers 30 to 40 are not enough to validate the next one"):
        HeaderChain(REGTEST, start)  # the difficulty period began at height 0
    for first, count, suffices in ((0, 1, True), (0, 41, True), (1, 40, False)):
        start = Start(first, source.headers(first, count), 1_000)
        if not suffices:
            with pytest.raises(ParameterError):
                HeaderChain(REGTEST, start)
            continue
        chain = HeaderChain(REGTEST, start)
        assert (chain.start, chain.height, chain.work) == (start, first + count - 1, 1_000)
        chain.accept(source.headers(first + count, 100), NOW)
        assert chain.tip_hash == source.tip_hash
        assert chain.tip().times == source.tip().times


@pytest.mark.parametrize(
    ("first", "count", "suffices"),
    [
        (2_016, 11, True),
        (2_016, 10, False),
        (2_010, 11, True),
        (2_011, 10, False),
        (2_012, 4, False),
        (2_007, 11, True),
        (2_006, 11, True),
        (2_008, 9, False),
        (2_010, 20, True),
        (2_017, 11, False),
    ],
)
def test_a_start_needs_its_period_or_eleven_headers(first: int, count: int, suffices: bool) -> None:
    source = chain_of(2_040)
    start = Start(first, source.headers(first, count), 5_000)
    if not suffices:
        with pytest.raises(ParameterError):
            HeaderChain(REGTEST, start)
        return
    chain = HeaderChain(REGTEST, start)
    assert chain.headers(first, count) == start.headers
    assert chain.locator()[-1] == source.hash_at(first)
    assert chain.accept(source.headers(first + count, 500), NOW).stored == 2_041 - first - count
    assert chain.work_at(2_040) == 5_000 + 2 * (2_041 - first - count)
    assert [chain.median_time_at(2_040), chain.height_of(source.hash_at(2_030))] == [
        source.median_time_at(2_040),
        2_030,
    ]
    with pytest.raises(ParameterError, match=f"no header at height {first - 1}"):
        chain.header_at(first - 1)


def test_a_damaged_start_is_refused() -> None:
    headers = chain_of(20).headers(0, 20)
    for damage, error in (
        (headers[:-1], FormatError),
        (headers[:80] + headers[160:], DiscontinuousHeadersError),
        (b"", ParameterError),
    ):
        with pytest.raises(error):
            HeaderChain(REGTEST, Start(0, damage, 1))


@pytest.mark.parametrize("now", [None, NOW])
def test_a_stored_chain_is_loaded_again(now: int | None) -> None:
    chain = chain_of(5_000)
    for size in (1, 700, 2_000, 10_000):
        pieces = (
            (chain.headers(height, size) for height in range(1, 5_001, size))
            if size > 1
            else split(chain.headers(1, 5_000))
        )
        again = HeaderChain.load(REGTEST, pieces, now)
        assert state(again) == state(chain)
        assert again.tip() == chain.tip()
        assert [again.work_at(height) for height in (0, 255, 256, 257, 4_999)] == [2, 512, 514, 516, 10_000]
        assert [again.height_of(chain.hash_at(height)) for height in (0, 1, 4_999, 5_000)] == [0, 1, 4_999, 5_000]


def test_loading_finds_damage_and_judges_on_request() -> None:
    chain = chain_of(50)
    headers = chain.headers(1, 50)
    early = headers + grow(tip_hash(headers), [GENESIS_TIME])
    assert HeaderChain.load(REGTEST, [early]).height == 51
    with pytest.raises(MedianTimeError):
        HeaderChain.load(REGTEST, [early], NOW)
    with pytest.raises(FutureHeaderError):
        HeaderChain.load(REGTEST, [headers], GENESIS_TIME)
    for at in range(0, len(headers) - 80, 61):
        damaged = headers[:at] + bytes((headers[at] ^ 1,)) + headers[at + 1 :]
        with pytest.raises((DiscontinuousHeadersError, UnconnectedHeadersError)):
            HeaderChain.load(REGTEST, [damaged])
    with pytest.raises(UnconnectedHeadersError):
        HeaderChain.load(REGTEST, [headers[80:]])
    with pytest.raises(FormatError):
        HeaderChain.load(REGTEST, [headers[:-1]])


def test_a_loaded_chain_may_have_less_than_the_minimum_work() -> None:
    source = chain_of(30)
    network = replace(REGTEST, min_chain_work=2 * 28)
    chain = HeaderChain.load(network, [source.headers(1, 10)])
    assert chain.height == 10
    with pytest.raises(LowWorkError):
        chain.accept(source.headers(11, 16), NOW)
    assert chain.accept(source.headers(11, 17), NOW).stored == 17


@settings(max_examples=30)
@given(st.integers(1, 600), st.integers(0, 600), st.integers(1, 300))
def test_cutting_and_growing_keeps_work_and_index(count: int, cut: int, more: int) -> None:
    chain = chain_of(count)
    root = max(0, count - cut)
    branch = regular(chain, count - root + more, height=root, branch=1)
    chain.accept(branch, NOW)
    total = root + len(branch) // 80
    assert (chain.height, chain.work) == (total, 2 * (total + 1))
    assert [chain.work_at(height) for height in range(0, total + 1, 7)] == [
        2 * (height + 1) for height in range(0, total + 1, 7)
    ]
    assert [chain.height_of(chain.hash_at(height)) for height in range(total + 1)] == list(range(total + 1))
