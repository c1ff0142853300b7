"""Runs of headers that the kernel validates at once, compared with the same headers validated one by one.

The headers are real ones and mutated ones.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from spvfilter.chain import HeaderChain, Start, Tip
from spvfilter.errors import HeaderError
from spvfilter.network import MAINNET, SIGNET, TESTNET3, Network
from support.blocks.build import sha256d
from support.blocks.headerchains import (
    EASY_MAINNET,
    EASY_TESTNET3,
    EASY_TESTNET4,
    NOW,
    hashes,
    header_file,
    obey,
    split,
)
from support.vectors import effort

Outcome = tuple[Tip, str, int]


def one_by_one(tip: Tip, headers: bytes, names: bytes, now: int) -> Outcome:
    """The tip after the last header that obeys all rules, and the error of the next header."""
    for index, raw in enumerate(split(headers)):
        before = tip.copy()
        try:
            tip.advance(raw, names[32 * index : 32 * index + 32], now, index=index)
        except HeaderError as error:
            return before, repr(error), error.index
    return tip, "", -1


def at_once(tip: Tip, headers: bytes, names: bytes, now: int) -> Outcome:
    whole = tip.copy()
    try:
        whole.advance(headers, names, now)
    except HeaderError as error:
        tip.advance(headers[: 80 * error.index], names[: 32 * error.index], now)
        return tip, repr(error), error.index
    return whole, "", -1


def compare(tip: Tip, headers: bytes, now: int = NOW) -> Outcome:
    names = hashes(headers)
    expected = one_by_one(tip.copy(), headers, names, now)
    assert at_once(tip.copy(), headers, names, now) == expected
    return expected


def mutated(headers: bytes, rng: random.Random) -> bytes:
    """Change one to three fields of some headers.

    Most mutated headers then lack their proof of work, so targets and hashes are changed as well.
    """
    raw = bytearray(headers)
    for _ in range(rng.randrange(1, 4)):
        at = 80 * rng.randrange(len(raw) // 80)
        field, size = rng.choice(((0, 4), (68, 4), (72, 4), (36, 32)))
        value = int.from_bytes(raw[at + field : at + field + size], "little")
        change = rng.choice((1, -1, 600, -600, 7_200, -7_200, 1 << 8, 1 << 31, rng.randrange(1 << 32)))
        raw[at + field : at + field + size] = ((value + change) % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(raw)


REAL = [("mainnet_0_10236.bin", MAINNET), ("signet_0_2015.bin", SIGNET), ("testnet3_0_546.bin", TESTNET3)]


@pytest.mark.vectors
@pytest.mark.parametrize(("name", "network"), REAL)
def test_real_headers_are_judged_at_once_as_one_by_one(name: str, network: Network) -> None:
    headers = header_file(name)[80:]
    tip, error, _ = compare(HeaderChain(network).tip(), headers)
    assert (error, tip.height, tip.hash) == ("", len(headers) // 80, sha256d(headers[-80:]))


@pytest.mark.slow
@pytest.mark.vectors
def test_real_headers_across_the_changes_of_rules_are_judged_alike() -> None:
    raw = header_file("mainnet_150001_230000.bin")
    first = 151_200  # the first header of a difficulty period
    raw = raw[80 * (first - 150_001) :]
    chain = HeaderChain(replace(MAINNET, min_chain_work=0), Start(first, raw[: 80 * 2_016], 1))
    tip, error, _ = compare(chain.tip(), raw[80 * 2_016 :])
    assert (error, tip.height) == ("", 230_000)  # the run passes the activation height of BIP-34 and six checkpoints


def judged_anyhow(headers: bytes, tip: Tip, rng: random.Random) -> str:
    """Validate mutated headers with made-up low hashes, so that rules after the proof of work are reached."""
    changed = mutated(headers, rng)
    names = bytearray(hashes(changed))
    if rng.random() < 0.8:
        for at in range(len(names) // 32):
            names[32 * at + 31] = names[32 * at + 30] = names[32 * at + 29] = names[32 * at + 28] = 0
    now = rng.choice((NOW, tip.times[-1] + 600 * len(headers) // 80, tip.times[-1]))
    expected = one_by_one(tip.copy(), changed, bytes(names), now)
    assert at_once(tip.copy(), changed, bytes(names), now) == expected
    return expected[1].partition("(")[0]


@pytest.mark.vectors
@pytest.mark.parametrize(("name", "network"), REAL)
def test_mutated_real_headers_are_refused_alike(name: str, network: Network) -> None:
    rng, causes = random.Random(7), set[str]()
    network = replace(network, checkpoints=())
    headers = header_file(name)[80:]
    for _ in range(effort(100, 300, 3_000)):
        start, count = rng.randrange(500), rng.choice((1, 12, 50, 300))
        tip = HeaderChain(network).tip()
        tip.advance(headers[: 80 * start], hashes(headers[: 80 * start]), NOW)
        causes.add(judged_anyhow(headers[80 * start :][: 80 * count], tip, rng))
    assert causes >= {"DifficultyError", "MedianTimeError", "ProofOfWorkError", "FutureHeaderError", "TargetError"}


@pytest.mark.parametrize("network", [EASY_MAINNET, EASY_TESTNET3, EASY_TESTNET4], ids=str)
def test_made_headers_of_each_rule_set_are_judged_alike(network: Network) -> None:
    rng, causes = random.Random(3), set[str]()
    tip = HeaderChain(network).tip()
    start, times = tip.copy(), [tip.times[-1]]
    for _ in range(2_100):
        times.append(
            max(times[-1] + rng.choice((600, 1_200, 1_201, -300)), sorted(times[-11:])[len(times[-11:]) // 2] + 1)
        )
    if network.bip94:
        times[2_016] = max(times[2_016], times[2_015] - 600)
    headers = obey(tip, times[1:])
    assert compare(start, headers)[:2] == (tip, "")
    for _ in range(effort(60, 150, 2_000)):
        at = rng.choice((0, 0, 1_900, 2_000, 2_014, 2_015, 2_016))
        below = start.copy()
        below.advance(headers[: 80 * at], hashes(headers[: 80 * at]), NOW)
        causes.add(judged_anyhow(headers[80 * at :][: 80 * rng.choice((1, 2, 40, 200))], below, rng))
    assert causes >= {"DifficultyError", "MedianTimeError"}
