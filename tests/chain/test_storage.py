"""The packed chain and its forks in memory. The headers are fake, since storage does not validate them."""

from __future__ import annotations

import gc
import random
import struct
from functools import cache
from itertools import accumulate

import pytest
from hypothesis import given, strategies as st

from spvfilter.chain import HeaderChain, total_work
from spvfilter.chain.forks import Fork, Forks
from spvfilter.chain.packed import PackedHeaders
from spvfilter.errors import FormatError, UnconnectedHeadersError
from spvfilter.network import REGTEST
from support.blocks.build import EASY_BITS, sha256d
from support.blocks.headerchains import (
    NOW,
    forks_of,
    indexes_of,
    regular,
    shared_parts,
    shared_segments,
    split,
    tip_hash,
)


def made_up(hashes: list[bytes], bits: int = EASY_BITS) -> bytes:
    """Headers that pretend to have these hashes. The first header has no parent."""
    tail = bits.to_bytes(4, "little") + bytes(4)
    return b"".join(bytes(4) + below + bytes(32) + below[:4] + tail for below in [bytes(32), *hashes[:-1]])


def packed(hashes: list[bytes], first: int = 0) -> PackedHeaders:
    headers = made_up(hashes)
    return PackedHeaders(first, headers, hashes[-1], total_work(headers))


def test_a_hash_across_two_entries_is_not_found() -> None:
    """Bytes that begin in one entry and end in the next are no hash of the chain."""
    low, high = b"ABCD".ljust(32, b"\x01"), b"CDEF".ljust(32, b"\x02")
    chain = packed([low, high])
    assert (chain.height_of(low), chain.height_of(high)) == (0, 1)
    assert chain.height_of(b"CDCD".ljust(32, b"\x01")) is None


def test_hashes_with_equal_prefixes_are_told_apart() -> None:
    hashes = [b"same" + bytes([at]) * 28 for at in range(20)]
    chain = packed(hashes, 100)
    assert [chain.height_of(block_hash) for block_hash in hashes] == list(range(100, 120))
    assert chain.height_of(b"same" + bytes([20]) * 28) is None
    headers, cut = chain.cut(104)
    assert (cut, headers) == (b"".join(hashes[5:]), made_up(hashes)[400:])
    assert [chain.height_of(block_hash) for block_hash in hashes] == [100, 101, 102, 103, 104, *[None] * 15]
    chain.append(headers[:160], cut[32:64])
    assert [chain.height_of(block_hash) for block_hash in hashes[4:8]] == [104, 105, 106, None]


STEPS = st.tuples(st.integers(1, 700) | st.integers(1, 40_000), st.integers(0, 900) | st.integers(0, 40_000))


@given(st.lists(STEPS, min_size=1, max_size=5), st.integers(0, 1 << 32))
def test_a_packed_chain_equals_its_list_of_headers(steps: list[tuple[int, int]], seed: int) -> None:
    rng = random.Random(seed)
    hashes = [rng.randbytes(32)]
    bits = [0x1D00FFFF]
    work_of = cache(lambda value: total_work(bytes(72) + value.to_bytes(4, "little") + bytes(4)))
    chain = PackedHeaders(50, made_up(hashes, bits[0]), hashes[-1], total_work(made_up(hashes, bits[0])))
    for more, less in steps:
        fresh = [rng.randbytes(32) for _ in range(more)]
        each = rng.choice((0x1D00FFFF, 0x1B0404CB))
        headers = bytearray(made_up([hashes[-1], *fresh], each)[80:])
        if rng.random() < 0.5:  # one header inside has another difficulty
            at = 80 * rng.randrange(more)
            headers[at + 72 : at + 76] = (0x1C00FFFF).to_bytes(4, "little")
        bits += [value for (value,) in struct.iter_unpack("<72xI4x", headers)]
        chain.append(bytes(headers), fresh[-1])
        hashes += fresh
        if less and less < len(hashes):
            chain.cut(50 + len(hashes) - 1 - less)
            del hashes[-less:], bits[-less:]
        works = list(accumulate(map(work_of, bits)))  # work of each header and of all headers below it
        assert (chain.height, chain.tip_hash) == (49 + len(hashes), hashes[-1])
        assert chain.work == works[-1]
        assert sum(map(len, indexes_of(chain))) == 6 * len(hashes)
        assert len(indexes_of(chain)) <= len(hashes) // 32_768 + 17
        for at in {0, len(hashes) - 1, *(rng.randrange(len(hashes)) for _ in range(20))}:
            assert chain.work_at(50 + at) == works[at]
            assert chain.hash_at(50 + at) == hashes[at]
            assert chain.time_at(50 + at) == int.from_bytes(hashes[at - 1][:4] if at else b"", "little")
            assert chain.height_of(hashes[at]) == 50 + at


def test_chains_share_old_headers_until_the_last_is_gone() -> None:
    hashes = [sha256d(number.to_bytes(4, "little")) for number in range(40_000)]
    chains = [packed(hashes), packed(hashes, 7)]
    chains.append(packed(hashes[:39_000]))  # it is behind
    chains[0].cut(39_500)
    (first, large), (second, _), (third, third_large) = map(shared_parts, chains)
    assert len(first) == 39_501 // 2_048
    assert large == third_large
    assert second == first
    assert third == first[: 39_000 // 2_048]
    assert [chain.height_of(hashes[38_000]) for chain in chains] == [38_000, 38_007, 38_000]
    keys = [key for key, each in shared_segments().items() if each in first]
    assert len(keys) == len(first)
    del chains
    gc.collect()
    assert not shared_segments().keys() & {*keys}


def test_headers_with_the_same_made_up_hash_are_not_shared() -> None:
    hashes = [sha256d(number.to_bytes(4, "little")) for number in range(40_000)]
    one, other = (
        packed(hashes),
        PackedHeaders(0, headers := made_up(hashes, 0x1D00FFFF), hashes[-1], total_work(headers)),
    )
    assert (one.headers(0, 40_000), other.headers(0, 40_000)) == (made_up(hashes), headers)
    assert (other.work, other.work_at(39_000)) == (total_work(headers), total_work(headers[: 80 * 39_001]))
    assert one.work_at(39_000) == total_work(made_up(hashes)[: 80 * 39_001])


def test_a_chain_is_restored_from_adjacent_pieces_only() -> None:
    chain = HeaderChain(REGTEST)
    chain.accept(regular(chain, 20), NOW)
    pieces = [chain.headers(1, 7), b"", chain.headers(8, 1), chain.headers(9, 12)]
    again = HeaderChain.restore(REGTEST, pieces)
    assert (again.height, again.tip_hash, again.work) == (chain.height, chain.tip_hash, chain.work)
    assert again.headers(0, 30) == chain.headers(0, 30)
    assert [again.height_of(chain.hash_at(height)) for height in range(21)] == list(range(21))
    assert HeaderChain.restore(REGTEST, []).tip_hash == REGTEST.genesis_hash
    for wrong in (pieces[2:], pieces[:1] + pieces[3:]):
        with pytest.raises(UnconnectedHeadersError, match="does not follow the previous one"):
            HeaderChain.restore(REGTEST, wrong)
    with pytest.raises(FormatError, match="truncated"):
        HeaderChain.restore(REGTEST, [pieces[0], chain.headers(8, 1) + b"\0"])


# Forks


def fork(height: int, *numbers: int, work: int = 1) -> Fork:
    hashes = [number.to_bytes(32, "big") for number in numbers]
    return Fork(height, made_up(hashes), b"".join(hashes), work)


def test_a_hash_across_two_others_is_not_found() -> None:
    forks = Forks()
    forks.add(Fork(5, bytes(160), bytes(range(64)), 1))
    assert forks.find(bytes(range(16, 48))) is None
    found = forks.find(bytes(range(32, 64)))
    assert found is not None
    assert found[1] == 7
    assert forks.find(b"\xff" * 32) is None


def test_a_longer_fork_replaces_its_own_beginning() -> None:
    forks = Forks()
    for each in (fork(5, 1, 2), fork(5, 1, 2, 3), fork(5, 1, 4), fork(5, 1, 2, 3, 4)):
        forks.add(each)
    assert sorted(len(each) for each in forks) == [2, 4]


# Reorganizations around forks


@pytest.mark.parametrize("above", [0, 1, 2, 3])
def test_a_fork_on_a_disconnected_branch_can_still_win(above: int) -> None:
    """A fork that starts `above` headers after the point where the new branch starts."""
    chain = HeaderChain(REGTEST)
    chain.accept(regular(chain, 10), NOW)
    side = regular(chain, 9, height=5 + above, branch=7)
    chain.accept(side[:80], NOW)
    expected = chain.headers(1, 5 + above) + side
    chain.accept(regular(chain, 6, height=5, branch=1), NOW)
    assert chain.height == 11
    update = chain.accept(side, NOW)
    assert (update.fork_height, update.stored) == (5, 8)
    assert chain.headers(1, 100) == expected
    assert chain.work == 2 * (chain.height + 1)
    assert [chain.height_of(sha256d(raw)) for raw in split(expected)] == list(range(1, chain.height + 1))


@pytest.mark.parametrize("shared", [0, 1, 2])
def test_a_fork_of_the_new_branch_can_still_win(shared: int) -> None:
    chain = HeaderChain(REGTEST)
    chain.accept(regular(chain, 10), NOW)
    first = regular(chain, 3, height=7, branch=1)
    other = HeaderChain.load(REGTEST, [chain.headers(1, 7), first])
    second = regular(other, 8, height=7 + shared, branch=2)
    chain.accept(first, NOW)
    chain.accept(first[: 80 * shared] + second[: 80 * (4 - shared)], NOW)
    assert (chain.height, chain.tip_hash) == (11, tip_hash(second[: 80 * (4 - shared)]))
    assert tip_hash(first) in chain
    third = regular(other, 5, height=10, branch=3)
    update = chain.accept(third, NOW)
    assert (update.fork_height, chain.height) == (7 + shared, 15)
    assert chain.headers(8, 100) == first + third
    assert update.old_headers == second[: 80 * (4 - shared)]
    assert chain.accept(second, NOW).stored == 4 + shared


@pytest.mark.parametrize("known", [1, 2, 3])
def test_a_fork_that_wins_is_no_longer_a_fork(known: int) -> None:
    chain = HeaderChain(REGTEST)
    chain.accept(regular(chain, 10), NOW)
    branch = regular(chain, 4, height=7, branch=1)
    chain.accept(branch[: 80 * known], NOW)
    assert len(forks_of(chain)) == 1
    chain.accept(branch, NOW)
    (left,) = forks_of(chain)
    assert (left.height, len(left)) == (7, 3)  # the former best chain
