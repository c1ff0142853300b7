"""Merkle branches of whole blocks and of merkleblocks, against a tree that is built level by level."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import merkle_branches
from spvfilter.primitives import Header
from spvfilter.wire.merkle import branch_root, merkle_branch, merkle_node, partial_branches
from spvfilter.wire.messages.merkleblock import MerkleBlock


def levels(leaves: list[bytes]) -> list[list[bytes]]:
    """All levels of the tree, the leaves first. An odd level is shown with its last node twice."""
    found = [leaves]
    while len(found[-1]) > 1:
        if len(found[-1]) % 2:
            found[-1] = [*found[-1], found[-1][-1]]
        level = found[-1]
        found.append([sha256d(level[at] + level[at + 1]) for at in range(0, len(level), 2)])
    return found


def leaves_of(count: int) -> list[bytes]:
    return [sha256d(b"%d" % number) for number in range(count)]


@given(st.integers(1, 300), st.data())
def test_branch_has_the_siblings_of_every_level(count: int, data: st.DataObject) -> None:
    leaves, position = leaves_of(count), data.draw(st.integers(0, count - 1))
    tree = levels(list(leaves))
    expected = b"".join(level[position >> height ^ 1] for height, level in enumerate(tree[:-1]))
    assert merkle_branch(leaves, position) == expected
    assert branch_root(leaves[position], position, expected) == tree[-1][0]


@given(st.integers(1, 40), st.integers(0, 3), st.data())
def test_branch_of_a_deeper_tree_pairs_nodes_with_themselves(count: int, more: int, data: st.DataObject) -> None:
    leaves, position = leaves_of(count), data.draw(st.integers(0, count - 1))
    depth = (count - 1).bit_length() + more
    branch = merkle_branch(leaves, position, depth)
    assert len(branch) == 32 * depth
    assert branch_root(leaves[position], position, branch) == merkle_node(leaves, depth, 0)


@given(st.integers(1, 200), st.data())
def test_branches_of_several_leaves_equal_single_branches(count: int, data: st.DataObject) -> None:
    leaves, positions = leaves_of(count), data.draw(st.lists(st.integers(0, count - 1)))
    assert merkle_branches(b"".join(leaves), positions) == [merkle_branch(leaves, each) for each in positions]


@pytest.mark.parametrize(
    ("size", "positions", "message"),
    [
        (33, [0], "leaves must be a multiple of 32 bytes long, not 33"),
        (0, [0], "a position must be the position of a leaf, not 0"),
        (64, [1, 2], "a position must be the position of a leaf, not 2"),
        (64, [-1], "a position must be the position of a leaf, not -1"),
        (64, [1 << 70], f"a position must be the position of a leaf, not {1 << 70}"),
    ],
)
def test_branches_without_a_leaf_are_refused(size: int, positions: list[int], message: str) -> None:
    with pytest.raises(ParameterError, match=f"^{message}$"):
        merkle_branches(bytes(size), positions)
    assert merkle_branches(b"", []) == merkle_branches(bytes(64), []) == []


@given(st.integers(1, 200) | st.sampled_from([1 << depth for depth in range(8)]), st.data())
def test_merkleblock_gives_the_branches_of_its_transactions(count: int, data: st.DataObject) -> None:
    leaves = leaves_of(count)
    positions = data.draw(st.sets(st.integers(0, count - 1), max_size=10))
    header = Header(1, bytes(32), levels(list(leaves))[-1][0], 0, 0, 0)
    made = MerkleBlock.from_txids(header, leaves, positions)
    made.verify()
    expected = {position: merkle_branch(leaves, position) for position in positions}
    assert partial_branches(made.total, made.hashes, made.flags) == expected
