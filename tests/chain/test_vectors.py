"""The real and published header chains of the vectors in 06_headers, validated completely."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from spvfilter.chain import HeaderChain, HeaderSync, Start, Tip, encode_bits, target, total_work, work
from spvfilter.errors import (
    CheckpointError,
    DifficultyError,
    FutureHeaderError,
    HeaderError,
    MedianTimeError,
    ProofOfWorkError,
    TargetError,
    UnconnectedHeadersError,
    VersionError,
)
from spvfilter.network import MAINNET, REGTEST, SIGNET, TESTNET3, Network
from spvfilter.primitives import Header, hash_from_hex, hash_to_hex
from support.blocks.build import sha256d
from support.blocks.headerchains import NOW, OPEN_MAINNET, hashes, header_file, headers_after, split, tip_hash
from support.blocks.realdata import runs
from support.vectors import vector_cases, vector_file, vectors_root

pytestmark = pytest.mark.vectors


def checkpoints(network: str) -> dict[int, dict[str, Any]]:
    return {entry["height"]: entry for entry in vector_file(f"06_headers/checkpoints_{network}.json")["checkpoints"]}


# Whole chains


FROM_GENESIS = [
    ("mainnet_0_10236.bin", MAINNET),
    ("signet_0_2015.bin", SIGNET),
    ("testnet3_0_546.bin", TESTNET3),
    *(
        (f"bip54_chain_{number}.bin", MAINNET) for number in (0, 2, 4, 5, 6, 7)
    ),  # all of them are valid by today's rules, without BIP-54
]


@pytest.mark.parametrize(("name", "network"), FROM_GENESIS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_chain_from_its_genesis_block_is_accepted(name: str, network: Network) -> None:
    headers = header_file(name)
    chain = HeaderChain(replace(network, min_chain_work=0))
    assert headers[:80] == network.genesis
    for at in range(80, len(headers), 160_000):
        chain.accept(headers[at : at + 160_000], NOW)
    assert chain.height == len(headers) // 80 - 1
    assert chain.headers(0, chain.height + 1) == headers
    assert chain.tip_hash == tip_hash(headers)
    assert chain.work == total_work(headers)
    for entry in vector_file("06_headers/index.json")["files"]:
        if entry["file"] == name:
            assert hash_to_hex(chain.hash_at(entry["last_height"])) == entry["last_hash"]
            assert f"{chain.work:x}" == entry["sum_of_work"]


FROM_THE_MIDDLE = [("mainnet_80001_100000.bin", 80_001, 80_640), ("mainnet_150001_230000.bin", 150_001, 151_200)]


@pytest.mark.parametrize(
    ("name", "first", "period"), FROM_THE_MIDDLE, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_chain_is_judged_after_a_trusted_start(name: str, first: int, period: int) -> None:
    """The trusted headers reach into the first whole period.

    Every later retarget and the work of each header are therefore exact.
    """
    headers = header_file(name)
    known = checkpoints("mainnet")
    trusted = 80 * (period + 11 - first)
    at_period = 80 * (period + 1 - first)
    start = Start(
        first, headers[:trusted], int(known[period]["chainwork"], 16) + total_work(headers[at_period:trusted])
    )
    chain = HeaderChain(MAINNET, start)  # the network's minimum work does not apply to trusted headers
    assert chain.height == period + 10
    with pytest.raises(HeaderError, match="below 0x1128750f82f4c366153a3a030"):
        chain.accept(headers[trusted : trusted + 160_000], NOW)
    chain = HeaderChain(OPEN_MAINNET, start)
    for at in range(trusted, len(headers), 160_000):
        chain.accept(headers[at : at + 160_000], NOW)
    (entry,) = (entry for entry in vector_file("06_headers/index.json")["files"] if entry["file"] == name)
    assert (chain.height, hash_to_hex(chain.tip_hash)) == (entry["last_height"], entry["last_hash"])
    assert f"{total_work(headers):x}" == entry["sum_of_work"]
    judged = [height for height in entry["retargets_verifiable"] if height > period]
    assert len(judged) >= 9
    for height in judged:
        assert hash_to_hex(chain.hash_at(height)) == known[height]["hash"]
        assert f"{chain.work_at(height):064x}" == known[height]["chainwork"]
    for height, bits in entry["bits_changes"]:
        assert f"{chain.header_at(height).bits:08x}" == bits
    for height, block_hash in MAINNET.checkpoints:
        if first <= height <= chain.height:
            assert chain.hash_at(height) == block_hash


def test_a_chain_of_testnet3_obeys_the_twenty_minute_rule() -> None:
    (blocks,) = (blocks for entry, blocks in runs() if entry["first_height"] == 1000)
    headers = b"".join(block.raw[:80] for block in blocks)
    start = Start(1000, headers[:880], 1 << 40)
    with pytest.raises(ValueError, match="headers 1000 to 1010 are not enough"):
        HeaderChain(TESTNET3, start)
    tip = HeaderChain(
        TESTNET3
    ).tip()  # all headers of the period have the easiest bits, so the start of the period does not matter
    tip.height, tip.hash, tip.times = (
        1010,
        tip_hash(headers[:880]),
        [Header.parse(raw).time for raw in split(headers[:880])],
    )
    tip.advance(headers[880:], hashes(headers[880:]), NOW)
    assert (tip.height, tip.hash) == (1999, tip_hash(headers))


def test_mainnet_needs_two_passes_up_to_its_minimum_work() -> None:
    headers = header_file("mainnet_0_10236.bin")
    network = replace(MAINNET, min_chain_work=total_work(headers[: 80 * 9_000]))
    whole = HeaderChain.load(OPEN_MAINNET, [headers[80:]])
    chain = HeaderChain(network)
    sync = HeaderSync(chain, bytes(range(16)))
    taken = b""
    while sync.wants_more:
        update = sync.receive(headers_after(whole, sync.locator()), NOW)
        assert not update.old_headers
        taken += update.new_headers
    assert taken == headers[80:]
    assert (chain.height, chain.work) == (10_236, whole.work)


# Single steps


@vector_cases("06_headers/chain_state.json")
def test_a_header_changes_the_tip_as_published(case: dict[str, Any]) -> None:
    bits = encode_bits(int(case["current_target"], 16))
    tip = Tip(
        network=MAINNET,
        height=case["height"],
        hash=hash_from_hex(case["best_block_hash"]),
        work=int(case["total_work"]),
        bits=bits,
        period_bits=bits,
        period_time=case["epoch_start_time"],
        times=case["prev_timestamps"],
    )
    headers = bytes.fromhex("".join(case["headers"]))
    assert headers[4:36] == tip.hash
    tip.advance(headers, hashes(headers), NOW)
    after = case["expected"]
    assert (tip.height, hash_to_hex(tip.hash), tip.work) == (
        after["height"],
        after["best_block_hash"],
        int(after["total_work"]),
    )
    assert target(tip.next_bits(tip.times[-1] + 600)) == int(after["current_target"], 16)
    assert (tip.period_time, tip.times) == (after["epoch_start_time"], after["prev_timestamps"])


CAUSES: dict[str, type[HeaderError]] = {
    "parent 705601 missing": UnconnectedHeadersError,
    "bits differ from the parent": ProofOfWorkError,  # the bits were changed, so the hash does not meet them
    "time-too-old": MedianTimeError,
    "time-too-new": FutureHeaderError,
    "high-hash": ProofOfWorkError,
    "bad-diffbits": DifficultyError,
    "target above": TargetError,
    "negative target": TargetError,
    "zero target": TargetError,
    "overflowing target": TargetError,
    "prev block not known": UnconnectedHeadersError,
}


@vector_cases("06_headers/header_checks.json", lambda case: case["network"] == "regtest")
def test_a_regtest_header_is_accepted_or_refused_by_its_cause(case: dict[str, Any]) -> None:
    before = bytes.fromhex("".join(case["prev_headers"]))
    chain = HeaderChain(REGTEST)
    chain.accept(before[80:], case["adjusted_time"])
    header = bytes.fromhex(case["header"])
    known = (chain.height, chain.tip_hash, chain.work)
    if case["valid"]:
        assert chain.accept(header, case["adjusted_time"]).stored == 1
        assert sha256d(header) in chain
        assert (chain.tip_hash == sha256d(header)) == (header[4:36] == known[1])
        return
    (error,) = (error for cause, error in CAUSES.items() if case["reason"].startswith(cause))
    with pytest.raises(error) as caught:
        chain.accept(header, case["adjusted_time"])
    assert type(caught.value) is error
    assert (chain.height, chain.tip_hash, chain.work) == known
    assert sha256d(header) not in chain


@vector_cases("06_headers/header_checks.json", lambda case: case["network"] == "mainnet")
def test_a_mainnet_header_is_accepted_or_refused_by_its_cause(case: dict[str, Any]) -> None:
    before, header = bytes.fromhex(case["prev_headers"][0]), bytes.fromhex(case["header"])
    parsed = Header.parse(before)  # height 705,600, where a period starts
    tip = Tip(MAINNET, 705_600, parsed.hash, 0, parsed.bits, parsed.bits, parsed.time, [parsed.time])
    if case["reason"] and case["reason"].startswith("parent"):
        assert header[4:36] != tip.hash
        return
    assert header[4:36] == tip.hash
    if case["valid"]:
        tip.advance(header, sha256d(header), NOW)
        assert (tip.height, tip.work) == (705_601, work(parsed.bits))
        return
    with pytest.raises(
        ProofOfWorkError if int.from_bytes(sha256d(header), "little") > MAINNET.pow_limit else DifficultyError
    ):
        tip.advance(header, sha256d(header), NOW)


def test_the_fork_of_july_2015_is_refused_by_its_version() -> None:
    case = vector_file("06_headers/july2015_fork_headers.json")
    headers = bytes.fromhex("".join(case["headers"]))
    first = Header.parse(headers[:80])
    tip = Tip(
        MAINNET,
        case["first_height"] - 1,
        first.previous,
        0,
        first.bits,
        first.bits,
        first.time - 86_400,
        [first.time - 600],
    )
    with pytest.raises(VersionError, match="header 363731 has version 2, below 3") as caught:
        tip.copy().advance(headers, hashes(headers), NOW)
    assert caught.value.index == 0
    tip.height, tip.hash, tip.times = case["first_height"], first.hash, [first.time]
    tip.advance(headers[80:], hashes(headers[80:]), NOW)  # the later headers violate no rule themselves
    assert hash_to_hex(tip.hash) == case["hashes"][-1]


def test_the_published_reorganization_is_followed_step_by_step() -> None:
    (case,) = vector_file("06_headers/reorg_btcd.json")["vectors"]
    chain = HeaderChain(OPEN_MAINNET)
    for step in case["steps"]:
        for block in step["connect"]:
            update = chain.accept(bytes.fromhex(block)[:80], NOW)
        assert (hash_to_hex(chain.tip_hash), chain.height) == (step["tip"], step["height"])
    assert [placed.height for placed in update.disconnected] == [4, 3]
    assert [placed.height for placed in update.connected] == [3, 4, 5]
    assert hash_to_hex(next(placed.hash for placed in update.disconnected)) == case["steps"][0]["tip"]


def test_a_checkpoint_ends_testnet3s_fork_at_the_genesis_block() -> None:
    fork = bytes.fromhex("".join(vector_file("06_headers/testnet3_genesis_fork.json")["headers"]))
    headers = header_file("testnet3_0_546.bin")
    chain = HeaderChain(replace(TESTNET3, min_chain_work=0))
    assert chain.accept(fork, NOW).stored == 2  # the chain cannot know yet that this is a fork
    update = chain.accept(headers[80 : 80 * 546], NOW)
    assert [placed.height for placed in update.disconnected] == [2, 1]
    assert fork[4:36] == chain.hash_at(0)
    assert sha256d(fork[80:]) in chain
    chain = HeaderChain(chain.network)
    chain.accept(headers[80 : 80 * 101], NOW)
    assert chain.accept(fork, NOW).stored == 2
    chain = HeaderChain(chain.network)
    chain.accept(headers[80:], NOW)
    assert chain.height == 546
    with pytest.raises(CheckpointError, match="a fork leaves the best chain at height 0, below the checkpoint 546"):
        chain.accept(fork, NOW)
    assert sha256d(fork[80:]) not in chain


# Published checkpoints


@pytest.mark.parametrize("name", ["mainnet", "signet", "testnet3"])
def test_published_checkpoints_and_their_chain_prove_their_work(name: str) -> None:
    known = checkpoints(name)
    network = Network.named(name)
    for height, entry in known.items():
        header = bytes.fromhex(entry["header"])
        parsed = Header.parse(header)
        assert hash_to_hex(parsed.hash) == entry["hash"]
        assert f"{parsed.bits:08x}" == entry["bits"]
        before = Tip(
            network,
            height - 1,
            parsed.previous,
            0,
            parsed.bits,
            parsed.bits,
            parsed.time - 1_209_600,
            [parsed.time - 1],
        )
        before.network = replace(network, retargets=False)  # the duration of the previous period is unknown
        before.advance(header, sha256d(header), NOW)
        assert before.hash == parsed.hash
    if name == "testnet3":
        return
    for (low, below), (high, above) in pairwise(known.items()):
        assert high - low == 2_016
        gained = 2_015 * work(int(below["bits"], 16)) + work(int(above["bits"], 16))
        assert int(above["chainwork"], 16) - int(below["chainwork"], 16) == gained


def test_own_checkpoints_and_minimum_work_are_the_published_ones() -> None:
    entries = vector_file("06_headers/electrum_checkpoints_mainnet.json")["checkpoints"]
    published = {2_016 * (number + 1) - 1: block_hash for number, (block_hash, _) in enumerate(entries)}
    ours = [(height, block_hash) for height, block_hash in MAINNET.checkpoints if height in published]
    assert len(ours) == 6
    assert all(hash_to_hex(block_hash) == published[height] for height, block_hash in ours)
    total, below, found = 2_016 * work(0x1D00FFFF), 0, None
    for number, (_, goal) in enumerate(entries):
        each = (1 << 256) // (int(goal) + 1)
        if total <= MAINNET.min_chain_work < total + 2_016 * each:
            below, rest = divmod(MAINNET.min_chain_work - total, each)
            found = 2_016 * (number + 1) + below - 1
            assert rest == 0
        total += 2_016 * each
    assert found == 938_343
    for height, entry in checkpoints("mainnet").items():
        if height - 1 in published:
            assert bytes.fromhex(entry["header"])[4:36] == hash_from_hex(published[height - 1])
    for name in ("testnet3", "signet"):
        assert (
            max(int(entry["chainwork"], 16) for entry in checkpoints(name).values())
            < Network.named(name).min_chain_work
        )


def test_the_bits_of_electrums_checkpoints_are_the_chains() -> None:
    entries = vector_file("06_headers/electrum_checkpoints_mainnet.json")["checkpoints"]
    compared = 0
    for number, (_, goal) in enumerate(entries):
        entry = checkpoints("mainnet").get(2_016 * (number + 1))
        if entry:
            assert target(int(entry["bits"], 16)) == int(goal)
            compared += 1
    assert compared == 290


def test_every_file_of_the_folder_has_a_test() -> None:
    root = vectors_root()
    assert root is not None
    here = {name for name, *_ in (*FROM_GENESIS, *FROM_THE_MIDDLE)}
    here |= {f"checkpoints_{name}.json" for name in ("mainnet", "signet", "testnet3")}
    here |= {"chain_state.json", "header_checks.json", "index.json", "july2015_fork_headers.json", "reorg_btcd.json"}
    here |= {"testnet3_genesis_fork.json", "electrum_checkpoints_mainnet.json", "compact_bits.json", "retargets.json"}
    assert {path.name for path in (root / "06_headers").iterdir()} == here
