"""Chain order of blocks: links, work, and the heights that blocks state."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from bitcoin.core import uint256_from_compact
from hypothesis import given, strategies as st

from spvfilter.chain import Order, Segment, coinbase_height, link, work
from spvfilter.network import MAINNET, NETWORKS, REGTEST, TESTNET3
from spvfilter.scan.sources import PREFIX_SIZE, block_ref
from support.blocks.build import EASY_BITS, TxIn, TxOut, block, block_hash, coinbase, header, tx
from support.blocks.realdata import RealBlock, all_blocks, real_block_cases, runs
from support.vectors import vector_cases

GENESIS_BITS = 0x1D00FFFF


@dataclass(frozen=True)
class Node:
    """The fields of a header that linking needs."""

    hash: bytes
    previous: bytes
    bits: int = EASY_BITS
    time: int = 0
    height: int | None = None


def name(number: int) -> bytes:
    return number.to_bytes(32, "big")


def path(*numbers: int, above: int = 0, bits: int = EASY_BITS, time: int = 0) -> list[Node]:
    return [Node(name(at), name(below), bits, time) for below, at in zip((above, *numbers), numbers, strict=False)]


def linked(nodes: Sequence[Node]) -> tuple[list[tuple[list[int], int | None]], set[int]]:
    """The order, with the blocks' numbers instead of indexes."""
    order = link(nodes, REGTEST)
    number = [int.from_bytes(node.hash, "big") for node in nodes]
    return [([number[at] for at in segment.blocks], segment.height) for segment in order.segments], {
        number[at] for at in order.stale
    }


# Work


def test_work_of_the_first_difficulty_is_well_known() -> None:
    assert work(GENESIS_BITS) == 4295032833
    assert work(EASY_BITS) == 2
    assert work(0x1B0404CB) == 70040908352512  # example of the Bitcoin wiki: difficulty 16307.4


@pytest.mark.parametrize(
    "bits", [0, 0x1D000000, 0x1D80FFFF, 0x01803456, 0x02000000, 0xFF7FFFFF, 0x23000001, 0x22000100, 0x21010000]
)
def test_invalid_bits_count_as_one_hash(bits: int) -> None:
    assert work(bits) == 1


@pytest.mark.parametrize(
    ("bits", "target"),
    [(0x01123456, 0x12), (0x02123456, 0x1234), (0x03123456, 0x123456), (0x20123456, 0x123456 << 232)],
)
def test_bits_of_every_exponent_are_read(bits: int, target: int) -> None:
    assert work(bits) == 2**256 // (target + 1)


@given(st.integers(4, 0x1F), st.integers(1, 0x7FFFFF))
def test_work_agrees_with_bitcoinlibs_target(exponent: int, mantissa: int) -> None:
    bits = exponent << 24 | mantissa
    assert work(bits) == 2**256 // (uint256_from_compact(bits) + 1)


@vector_cases("06_headers/compact_bits.json", lambda case: "work" in case)
def test_work_agrees_with_the_vectors(case: dict[str, object]) -> None:
    expected = case["work"]  # null if the bits encode no target
    assert work(int(str(case["compact"]), 16)) == (1 if expected is None else int(str(expected), 16))


# Linking


def test_no_blocks_give_an_empty_order() -> None:
    assert link([], REGTEST) == Order([], [])


def test_blocks_follow_their_previous_hashes() -> None:
    assert linked(path(1, 2, 3)[::-1]) == ([([1, 2, 3], None)], set())


def test_more_work_beats_more_blocks() -> None:
    nodes = path(1) + path(2, 3, 4, above=1) + path(9, above=1, bits=0x200FFFFF)
    assert linked(nodes) == ([([1, 9], None)], {2, 3, 4})


def test_a_header_without_proof_of_work_has_no_work() -> None:
    damaged = Node(b"\xff" * 32, name(1), GENESIS_BITS)  # it claims as much work as 2^31 other blocks
    assert link([*path(1, 2, 3), damaged], REGTEST) == Order([Segment([0, 1, 2], None)], [3], [3])
    genuine = Node(b"\x09" + bytes(31), name(1), GENESIS_BITS)
    assert link([*path(1, 2, 3), genuine], REGTEST) == Order([Segment([0, 3], None)], [1, 2])


@pytest.mark.parametrize("block_hash", [bytes(32), b"\xff" * 32], ids=["smaller hash", "larger hash"])
def test_a_damaged_copy_never_replaces_the_genuine_block(block_hash: bytes) -> None:
    genuine, damaged = (
        Node(bytes(4) + b"\x05" + bytes(27), name(1), GENESIS_BITS),
        Node(block_hash[:31] + b"\xff", name(1), GENESIS_BITS),
    )
    for blocks in ([genuine, damaged], [damaged, genuine]):
        order = link(blocks, REGTEST)
        assert [blocks[at] for segment in order.segments for at in segment.blocks] == [genuine]
        assert [blocks[at] for at in order.unproven] == [damaged]


def test_a_damaged_block_without_a_copy_is_kept() -> None:
    damaged = Node(b"\xff" * 32, name(3), GENESIS_BITS)
    assert link([*path(1, 2, 3), damaged], REGTEST) == Order([Segment([0, 1, 2, 3], None)], [], [3])


def test_a_heavy_ancestor_counts_for_the_tip() -> None:
    nodes = path(1) + path(2, above=1, bits=0x2007FFFF) + path(3, above=2) + path(4, 5, 6, above=1)
    assert linked(nodes) == ([([1, 2, 3], None)], {4, 5, 6})


def test_forks_of_forks_leave_one_branch() -> None:
    nodes = path(1, 2, 3, 4) + path(12, 13, 14, 15, above=1) + path(23, above=12) + path(34, 35, 36, above=13)
    assert linked(nodes) == ([([1, 12, 13, 34, 35, 36], None)], {2, 3, 4, 14, 15, 23})


def test_equal_work_is_decided_by_the_smaller_tip_hash() -> None:
    assert linked(path(1) + path(7, above=1) + path(5, above=1)) == ([([1, 5], None)], {7})


def test_blocks_with_the_same_absent_parent_compete() -> None:
    assert linked(path(1, above=99) + path(2, 3, above=99)) == ([([2, 3], None)], {1})


def test_segments_come_oldest_first() -> None:
    nodes = path(1, 2, above=80, time=300) + path(3, above=81, time=100) + path(4, above=82, time=200)
    assert linked(nodes) == ([([3], None), ([4], None), ([1, 2], None)], set())


def test_the_genesis_block_has_height_zero() -> None:
    genesis = Node(REGTEST.genesis_hash, bytes(32))
    order = link([Node(name(5), genesis.hash), genesis], REGTEST)
    assert (order.segments[0].blocks, order.segments[0].height) == ([1, 0], 0)
    assert link([genesis], TESTNET3).segments[0].height is None


def test_heights_come_from_the_lowest_block_that_states_one() -> None:
    nodes = path(1, 2, 3, 4)
    for stated, first in (({2: 52}, 50), ({3: 53, 2: 52}, 50), ({0: 0}, 0), ({3: 2}, None), ({3: 3}, 0), ({}, None)):
        told = [Node(node.hash, node.previous, height=stated.get(at)) for at, node in enumerate(nodes)]
        assert link(told, REGTEST).segments[0].height == first


def test_a_height_stated_on_a_stale_branch_is_ignored() -> None:
    nodes = [*path(1, 2, 3), Node(name(9), name(1), height=77)]
    assert linked(nodes) == ([([1, 2, 3], None)], {9})


@st.composite
def forests(draw: st.DrawFn) -> list[Node]:
    """Headers in a tree of any shape; some parents are absent."""
    nodes: list[Node] = []
    for number in range(1, draw(st.integers(1, 25)) + 1):
        below = draw(st.integers(-3, len(nodes)))
        previous = nodes[below - 1].hash if below > 0 else b"absent".ljust(31) + bytes([-below])
        bits = draw(st.sampled_from((EASY_BITS, 0x200FFFFF, GENESIS_BITS, 0)))
        height = draw(st.none() | st.integers(0, 50))
        block_hash = draw(st.integers(0, 255)).to_bytes(1, "big") + name(number)[1:]
        nodes.append(Node(block_hash, previous, bits, draw(st.integers(0, 5)), height))
    return nodes


@given(forests(), st.randoms(use_true_random=False))
def test_the_order_of_headers_does_not_matter(nodes: list[Node], rng: random.Random) -> None:
    mixed = rng.sample(nodes, len(nodes))
    assert linked(mixed) == linked(nodes)


@given(forests())
def test_every_header_is_stale_or_in_one_segment(nodes: list[Node]) -> None:
    order = link(nodes, REGTEST)
    seen = [at for segment in order.segments for at in segment.blocks] + order.stale
    assert sorted(seen) == list(range(len(nodes)))
    for segment in order.segments:
        members = [nodes[at] for at in segment.blocks]
        assert all(above.previous == below.hash for below, above in pairwise(members))
        assert members[0].previous not in {node.hash for node in nodes}
    roots = {node.previous for node in nodes} - {node.hash for node in nodes}
    assert len(order.segments) == len(roots)


@given(forests())
def test_no_stale_tip_has_more_work_than_the_best(nodes: list[Node]) -> None:
    by_hash = {node.hash: node for node in nodes}

    order = link(nodes, REGTEST)
    unproven = {nodes[at].hash for at in order.unproven}

    def weigh(node: Node) -> tuple[bytes, int]:
        """The hash of the absent block below the branch, and the work above it."""
        below = by_hash.get(node.previous)
        root, total = (node.previous, 0) if below is None else weigh(below)
        return root, total + (0 if node.hash in unproven else work(node.bits))

    kept = dict(weigh(nodes[segment.blocks[-1]]) for segment in order.segments)
    for at in order.stale:
        root, total = weigh(nodes[at])
        assert total <= kept[root]


@pytest.mark.vectors
def test_real_chains_link_from_any_order() -> None:
    for entry, blocks in runs():
        network = blocks[0].network
        refs = [
            block_ref(one.raw[:PREFIX_SIZE], 0, 0, len(one.raw), network)
            for one in random.Random(1).sample(blocks, len(blocks))
        ]
        order = link(refs, network)
        assert [refs[at].hash for at in order.segments[0].blocks] == [block_hash(one.raw) for one in blocks]
        assert (len(order.segments), order.stale) == (1, [])
        assert order.segments[0].height == (0 if entry["first_height"] == 0 else None)


# Heights stated by blocks


@real_block_cases()
def test_a_real_block_states_its_height_since_bip34(block: RealBlock) -> None:
    expected = block.height if block.height >= block.network.bip34_height else None
    assert coinbase_height(block.raw, block.network) == expected
    assert coinbase_height(block.raw[:200], block.network) == expected


@pytest.mark.vectors
def test_no_real_block_states_a_wrong_height() -> None:
    told = [(coinbase_height(one.raw, one.network), one.height) for one in all_blocks()]
    assert all(stated in (None, height) for stated, height in told)
    assert sum(stated is not None for stated, _ in told) > 80  # on signet, BIP-34 applies from block 1 on


def stating(script: bytes, version: int = 4, extra: Sequence[bytes] = ()) -> bytes:
    first = tx([TxIn(bytes(32), 0xFFFFFFFF, script)], [TxOut(1, b"\x51")])
    return block(bytes(32), [first, *extra], version=version)


@pytest.mark.parametrize(
    "height", [*range(1, 18), 127, 128, 255, 256, 32_767, 32_768, 65_535, 8_388_607, 8_388_608, 499_999_999]
)
def test_every_height_a_coinbase_can_state_is_read(height: int) -> None:
    assert coinbase_height(block(bytes(32), [coinbase(height)]), REGTEST) == height


@given(st.integers(1, 499_999_999))
def test_every_possible_height_is_read(height: int) -> None:
    assert coinbase_height(block(bytes(32), [coinbase(height)]), REGTEST) == height


@given(st.integers(500_000_000, 2**31 - 1))
def test_a_number_that_is_no_height_is_not_read(number: int) -> None:
    assert coinbase_height(block(bytes(32), [coinbase(number)]), REGTEST) is None


@pytest.mark.parametrize(
    "script",
    [
        b"",
        b"\x00\x00",  # OP_0: height 0 belongs to the genesis block, to which BIP-34 does not apply
        b"\x01\x05",  # OP_5 is the shortest form
        b"\x01\x10",
        b"\x02\x11\x00",  # one byte too many
        b"\x03\xff\x00\x00",
        b"\x04\x11\x00\x00\x00",
        b"\x05\x11\x00\x00\x00\x01",  # longer than a height can be
        b"\x01\x80",  # negative zero
        b"\x02\xff\xff",  # negative
        b"\x03\x01",  # a push that ends after the script
        b"\x4c\x02\x11\x22",  # OP_PUSHDATA1
        b"\x61\x61",  # OP_NOP
        b"\x4f\x4f",  # OP_1NEGATE
    ],
)
def test_only_the_shortest_push_states_a_height(script: bytes) -> None:
    assert coinbase_height(stating(script), REGTEST) is None


def test_other_data_may_follow_the_height() -> None:
    assert coinbase_height(stating(b"\x02\x2c\x01" + bytes(97)), REGTEST) == 300
    assert coinbase_height(stating(b"\x53\x02\x2c\x01"), REGTEST) == 3


@pytest.mark.parametrize("version", [1, 0, -1, -(2**31)])
def test_a_version_below_two_states_no_height(version: int) -> None:
    assert coinbase_height(stating(b"\x02\x2c\x01", version), REGTEST) is None


@pytest.mark.parametrize("version", [2, 4, 0x20000000, 0x7FFFFFFF])
def test_a_version_from_two_on_states_its_height(version: int) -> None:
    assert coinbase_height(stating(b"\x02\x2c\x01", version), REGTEST) == 300


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_height_below_the_networks_activation_is_ignored(network: object) -> None:
    at = network.bip34_height  # type: ignore[attr-defined]
    for height, expected in ((at, at), (at + 1, at + 1), (at - 1, None)):
        if height:
            assert coinbase_height(block(bytes(32), [coinbase(height)]), network) == expected  # type: ignore[arg-type]
    assert MAINNET.bip34_height == 227_931


@pytest.mark.parametrize("count", [0, 1, 252, 253, 70_000])
def test_the_height_is_found_behind_any_transaction_count(count: int) -> None:
    filler = tx([TxIn(b"\x01" * 32, 0)], [])
    assert coinbase_height(stating(b"\x02\x2c\x01", extra=[filler] * count)[:256], REGTEST) == 300


def test_a_first_transaction_without_a_coinbase_states_no_height() -> None:
    spends = tx([TxIn(b"\x01" * 32, 0xFFFFFFFF, b"\x02\x2c\x01")], [])
    two = tx([TxIn(bytes(32), 0xFFFFFFFF, b"\x02\x2c\x01"), TxIn(b"\x01" * 32, 0)], [])
    for first in (spends, two):
        assert coinbase_height(block(bytes(32), [first]), REGTEST) is None


def test_a_prefix_of_a_block_gives_the_height_or_none() -> None:
    for segwit in (False, True):
        raw = block(bytes(32), [coinbase(300, witness=segwit)])
        told = [coinbase_height(raw[:size], REGTEST) for size in range(len(raw) + 1)]
        first = told.index(300)
        assert told == [None] * first + [300] * (len(told) - first)
        assert first <= 140


@given(st.binary(max_size=200))
def test_random_bytes_behind_a_header_cause_no_error(tail: bytes) -> None:
    height = coinbase_height(header(bytes(32), bytes(32)) + tail, REGTEST)
    assert height is None or 1 <= height < 2**31
