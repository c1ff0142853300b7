"""Merkle branches: the hashes that connect a leaf of a merkle tree to its root.

The last node of an odd level is paired with itself, as in Bitcoin's blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.hashes import sha256d
from spvfilter.kernel import merkle_root
from spvfilter.protocol import HASH_SIZE


def merkle_node(leaves: Sequence[bytes], height: int, position: int) -> bytes:
    """Return the hash of the node at a height and position of the merkle tree (Core merkleblock.cpp CalcHash)."""
    below = leaves[position << height : position + 1 << height]
    node, _ = merkle_root(below)
    for _ in range((len(below) - 1).bit_length(), height):  # at the right edge, a node is paired with itself
        node = sha256d(node + node)
    return node


def merkle_branch(leaves: Sequence[bytes], position: int, depth: int | None = None) -> bytes:
    """Return the branch of a leaf: the hashes that its path is paired with, deepest first, 32 bytes each.

    Args:
        leaves: Hashes of all leaves.
        position: Position of the leaf, from 0.
        depth: Number of levels below the root; by default, the fewest that the leaves need.
    """
    levels = (len(leaves) - 1).bit_length() if depth is None else depth
    hashes: list[bytes] = []
    for height in range(levels):
        sibling = (position >> height) ^ 1
        is_there = sibling << height < len(leaves)
        hashes.append(merkle_node(leaves, height, sibling if is_there else sibling ^ 1))
    return b"".join(hashes)


def branch_root(leaf: bytes, position: int, branch: bytes) -> bytes:
    """Return the merkle root that follows from a leaf and its branch."""
    node = leaf
    for height in range(len(branch) // HASH_SIZE):
        sibling = branch[height * HASH_SIZE : (height + 1) * HASH_SIZE]
        node = sha256d(sibling + node if position >> height & 1 else node + sibling)
    return node


def partial_branches(total: int, hashes: Sequence[bytes], flags: bytes) -> dict[int, bytes]:
    """Return the branch of each matched transaction of a merkleblock, keyed by its position in the block.

    The caller has verified the partial merkle tree; see `MerkleBlock.verify`.

    Args:
        total: Number of transactions in the block.
        hashes: Hashes of the tree.
        flags: Flag bits of the tree.
    """
    nodes: dict[tuple[int, int], bytes] = {}
    matched: list[int] = []
    left = iter(hashes)
    marks = iter([flags[bit >> 3] >> (bit & 7) & 1 for bit in range(8 * len(flags))])

    def visit(height: int, position: int) -> bytes:
        is_marked = next(marks)
        if is_marked and height:
            first = second = visit(height - 1, 2 * position)
            if (2 * position + 1) << height - 1 < total:
                second = visit(height - 1, 2 * position + 1)
            node = sha256d(first + second)
        else:
            node = next(left)
            if is_marked:
                matched.append(position)
        nodes[height, position] = node
        return node

    depth = (total - 1).bit_length()  # at most 15
    visit(depth, 0)
    return {
        position: b"".join(
            nodes.get((height, position >> height ^ 1), nodes[height, position >> height]) for height in range(depth)
        )
        for position in matched
    }
