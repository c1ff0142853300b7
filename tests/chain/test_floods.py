"""Floods of hostile headers: each has its typed error, stores nothing, and needs constant memory."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spvfilter.chain import HeaderChain, HeaderSync
from spvfilter.chain.forks import MAX_FORK_HEADERS, MAX_FORKS
from spvfilter.errors import FormatError, HeaderError, LowWorkError, UnconnectedHeadersError
from spvfilter.network import REGTEST, Network
from support.blocks.build import sha256d
from support.blocks.headerchains import (
    GENESIS_TIME,
    NOW,
    forks_of,
    grow,
    headers_after,
    mine,
    regular,
    split,
    tip_hash,
    unproven,
)
from support.vectors import effort

SALT = bytes(range(16))
MIB = 1 << 20


def resident() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def grown(count: int, network: Network = REGTEST) -> HeaderChain:
    chain = HeaderChain(network)
    chain.accept(regular(chain, count), NOW)
    return chain


def test_a_million_headers_of_low_work_store_nothing() -> None:
    count = effort(20_000, 100_000, 1_000_000)
    chain = HeaderChain(replace(REGTEST, min_chain_work=1 << 80))
    sync = HeaderSync(chain, SALT)
    tip, time, done, start = chain.tip_hash, GENESIS_TIME, 0, 0
    while done < count:
        message = grow(tip, range(time + 1, time + 2_001))
        tip, time, done = tip_hash(message), time + 2_000, done + 2_000
        assert sync.receive(message, NOW).stored == 0
        assert sync.height == done
        start = start if done > 10_000 else resident()
        assert resident() - start < MIB
    with pytest.raises(LowWorkError):
        sync.receive(b"", NOW)
    assert (chain.height, chain.tip_hash, sync.height) == (0, REGTEST.genesis_hash, 0)


def test_low_work_headers_sent_to_the_chain_store_nothing() -> None:
    chain = HeaderChain(replace(REGTEST, min_chain_work=1 << 80))
    message = regular(chain, 2_000)
    start = 0
    gc.disable()  # memory must be released without the garbage collector
    try:
        for number in range(effort(10, 50, 500)):
            with pytest.raises(LowWorkError):
                chain.accept(message, NOW)
            start = start if number > 4 else resident()
            assert resident() - start < MIB
    finally:
        gc.enable()
    assert chain.height == 0


def test_the_second_pass_holds_only_its_lookahead() -> None:
    source = grown(effort(12_000, 40_000, 300_000))
    chain = HeaderChain(replace(REGTEST, min_chain_work=source.work))
    sync = HeaderSync(chain, SALT)
    start = resident()
    while sync.wants_more:
        sync.receive(headers_after(source, sync.locator()), NOW)
        assert resident() - start < 4 * MIB + 120 * chain.height
    assert chain.tip_hash == source.tip_hash


def test_forks_of_every_shape_stay_within_their_bounds() -> None:
    """Every header meets its target and is near the tip: the forks are valid but useless."""
    chain = grown(3_000)
    rng = random.Random(7)
    tip, best = chain.tip_hash, chain.headers(0, 4_000)
    start = resident()
    for number in range(effort(300, 1_500, 20_000)):
        height = rng.randrange(2_860, 3_000)
        count = 1 if number % 10 else rng.randrange(1, 3_001 - height)
        chain.accept(regular(chain, count, height=height, branch=number + 1), NOW)
        forks = forks_of(chain)
        assert len(forks) <= MAX_FORKS
        assert sum(map(len, forks)) <= MAX_FORK_HEADERS
    assert resident() - start < 8 * MIB
    assert (chain.tip_hash, chain.headers(0, 4_000)) == (tip, best)
    winner = regular(chain, 4, height=2_997, branch=1 << 40)
    assert chain.accept(winner, NOW).stored == 4
    assert chain.tip_hash == tip_hash(winner)
    assert len(forks_of(chain)) <= MAX_FORKS


def test_a_few_long_forks_stay_within_their_bounds() -> None:
    chain = grown(6_000)
    forks = []
    for number in range(1, 8):
        forks.append(regular(chain, 4_990, height=1_000, branch=number))
        sync = HeaderSync(chain, SALT)
        with pytest.raises(LowWorkError):  # the fork never has more work than the best chain
            for at in range(0, len(forks[-1]), 160_000):
                sync.receive(forks[-1][at : at + 160_000], NOW)
        assert chain.accept(forks[-1], NOW).stored == 4_990  # the whole fork has almost as much work as the best chain
    kept = [fork for fork in forks if tip_hash(fork) in chain]
    assert len(kept) == MAX_FORK_HEADERS // 4_990
    assert forks[-1] in kept
    lost = next(fork for fork in forks if fork not in kept)
    better = lost + grow(tip_hash(lost), [NOW - 600 * at for at in range(20, 0, -1)])
    assert chain.accept(better, NOW).stored == len(better) // 80
    assert chain.tip_hash == tip_hash(better)


def test_an_overlong_fork_is_kept_only_if_it_is_better() -> None:
    chain = grown(MAX_FORK_HEADERS + 100)
    fork = regular(chain, MAX_FORK_HEADERS + 101, height=0, branch=1)
    with pytest.raises(
        LowWorkError,
        match=f"a fork of {MAX_FORK_HEADERS + 1} headers up to height {MAX_FORK_HEADERS + 1} does not have more work",
    ):
        chain.accept(fork[: 80 * (MAX_FORK_HEADERS + 1)], NOW)
    old = chain.tip_hash
    update = chain.accept(fork, NOW)
    assert len(update.old_headers) == 80 * (MAX_FORK_HEADERS + 100)
    assert chain.tip_hash == tip_hash(fork)
    assert old not in chain  # the old branch is also too long to be kept


def test_the_fork_with_the_least_work_is_evicted_first() -> None:
    chain = grown(500)
    heavy = regular(chain, 40, height=459, branch=1 << 32)
    light = [regular(chain, 1, height=400 + number % 50, branch=number + 1) for number in range(2 * MAX_FORKS)]
    chain.accept(light[0], NOW)
    chain.accept(heavy, NOW)
    for fork in light[1:]:
        chain.accept(fork, NOW)
    assert tip_hash(heavy) in chain
    assert len(forks_of(chain)) == MAX_FORKS
    assert tip_hash(light[-1]) in chain


def test_unconnected_headers_leave_nothing_in_memory() -> None:
    chain = grown(10)
    start = resident()
    for number in range(effort(200, 1_000, 20_000)):
        with pytest.raises(UnconnectedHeadersError):
            chain.accept(mine(number.to_bytes(32, "big"), NOW), NOW)
    assert resident() - start < MIB


@given(st.data())
def test_a_damaged_message_stores_only_genuine_headers(data: st.DataObject) -> None:
    chain = grown(30)
    before = chain.headers(0, 100)
    message = bytearray(regular(chain, 5))
    genuine = {sha256d(raw) for raw in split(bytes(message))}
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(("flip", "cut", "double", "swap")))
        at = data.draw(st.integers(0, max(0, len(message) - 1)))
        if kind == "flip" and message:
            message[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "cut":
            del message[at:]
        elif kind == "double":
            message[at - at % 80 : at - at % 80] = message[at - at % 80 : at - at % 80 + 80]
        elif len(message) >= 160:
            message[:80], message[80:160] = message[80:160], message[:80]
    try:
        update = chain.accept(bytes(message), NOW)
    except (HeaderError, FormatError):
        assert chain.headers(0, 100) == before
        return
    told = split(bytes(message))
    assert [placed.raw for placed in update.connected] == told[len(told) - update.stored :]
    assert all(sha256d(raw) in genuine or int.from_bytes(sha256d(raw), "little") < 1 << 255 for raw in told)


@given(st.binary(max_size=400))
def test_random_bytes_are_a_typed_error(junk: bytes) -> None:
    chain = HeaderChain(REGTEST)
    if not junk:
        return
    for take in (chain.accept, HeaderSync(chain, SALT).receive):
        with pytest.raises((HeaderError, FormatError)):
            take(junk, NOW)


def test_mutated_headers_end_only_in_typed_errors() -> None:
    """A valid message with mutated fields. Half of the messages get a new proof of work."""
    chain = grown(40)
    rng = random.Random(11)
    before = (chain.height, chain.tip_hash)
    genuine = split(regular(chain, 3))
    refused = 0
    for _ in range(effort(1_000, 10_000, 300_000)):
        pieces = list(genuine)
        number = rng.randrange(3)
        raw = bytearray(pieces[number])
        field, size = rng.choice(((0, 4), (4, 32), (36, 32), (68, 4), (72, 4), (76, 4)))
        raw[field : field + size] = rng.choice(
            (rng.randbytes(size), bytes(size), b"\xff" * size, raw[field : field + size][::-1])
        )
        while rng.random() < 0.5 and int.from_bytes(sha256d(bytes(raw)), "little") >> 255:
            raw[76:80] = rng.randbytes(4)
        pieces[number] = bytes(raw)
        try:
            chain.examine(b"".join(pieces[: number + 1]), NOW)
        except HeaderError as error:
            refused += 1
            assert error.index <= number
        assert (chain.height, chain.tip_hash) == before
    assert refused > effort(500, 5_000, 150_000)


def test_an_unproven_header_is_refused_before_other_rules() -> None:
    chain = grown(5)
    for raw in (unproven(chain.tip_hash, NOW), unproven(bytes(32), NOW)):
        with pytest.raises(HeaderError, match="is above the target"):
            chain.accept(raw, NOW)


MEMORY = """
import sys
from hashlib import sha256
from struct import pack
from spvfilter.chain import HeaderChain
from spvfilter.network import REGTEST

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def pieces(count):
    previous = REGTEST.genesis_hash
    for first in range(0, count, 1_000):
        headers = []
        for number in range(first, first + 1_000):
            headers.append(pack("<i32s32sIII", 4, previous, previous, 1_300_000_000 + number, 0x207FFFFF, number))
            previous = sha256(sha256(headers[-1]).digest()).digest()
        yield b"".join(headers)

HeaderChain.load(REGTEST, pieces(5_000))
before = resident()
count = int(sys.argv[1])
chain = HeaderChain.load(REGTEST, pieces(count))
print((resident() - before) / count)
assert chain.height == count and chain.height_of(chain.hash_at(count // 2)) == count // 2
"""


def test_the_chain_needs_at_most_120_bytes_a_header() -> None:
    count = effort(100_000, 100_000, 900_000)
    done = subprocess.run([sys.executable, "-c", MEMORY, str(count)], capture_output=True, text=True, check=True)
    is_locked = getattr(
        sys, "_is_gil_enabled", lambda: True
    )()  # the allocator of a free-threaded Python releases memory late
    assert 80 < float(done.stdout) <= (120 if is_locked else 240)
