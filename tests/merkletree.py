"""A partial merkle tree by its definition, from hashlib alone: what the package builds must equal it. No assertions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from build import merkle_root, var_bytes, var_int

Node = tuple[int, int, bool]  # its first leaf, leaves it would have in a full tree, whether it is above a matched one


def described(count: int, positions: Collection[int]) -> Iterator[Node]:
    """The nodes of which a tree over `count` leaves tells something, in the order of their flag bits."""
    stack = [(0, 1 << (count - 1).bit_length())]
    while stack:
        first, span = stack.pop()
        mark = any(first <= position < first + span for position in positions)
        yield first, span, mark
        if mark and span > 1:
            middle = first + span // 2
            stack += [(middle, span // 2)] * (middle < count) + [(first, span // 2)]


def partial_tree(txids: Sequence[bytes], positions: Collection[int]) -> bytes:
    """Number of transactions, hashes and flag bytes that prove the ones at `positions`."""
    nodes = list(described(len(txids), positions))
    hashes = [node_hash(txids[first : first + span], span) for first, span, mark in nodes if span == 1 or not mark]
    packed = bytearray((len(nodes) + 7) // 8)
    for at, (_, _, mark) in enumerate(nodes):
        packed[at // 8] |= mark << at % 8
    return len(txids).to_bytes(4, "little") + var_int(len(hashes)) + b"".join(hashes) + var_bytes(bytes(packed))


def node_hash(leaves: Sequence[bytes], span: int) -> bytes:
    """A node above these leaves; at the edge of the tree it has fewer than `span`, and every odd level repeats its last hash."""
    full = list(leaves)
    while len(full) < span:
        full += full[-(len(full) & -len(full)) :]  # the last complete subtree
    return merkle_root(full)
