"""An independent implementation of partial merkle trees, by their definition and from hashlib alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from support.blocks.build import merkle_root, sha256d, var_bytes, var_int

Node = tuple[int, int, bool]  # first leaf, number of leaves in a full tree, whether one of its leaves is matched


def described(count: int, positions: Collection[int]) -> Iterator[Node]:
    """The visited nodes of a partial tree over `count` leaves, in the order of their flag bits."""
    stack = [(0, 1 << (count - 1).bit_length())]
    while stack:
        first, span = stack.pop()
        mark = any(first <= position < first + span for position in positions)
        yield first, span, mark
        if mark and span > 1:
            middle = first + span // 2
            stack += [(middle, span // 2)] * (middle < count) + [(first, span // 2)]


def partial_tree(txids: Sequence[bytes], positions: Collection[int]) -> bytes:
    """The number of transactions, the hashes and the flag bytes that prove the transactions at `positions`."""
    nodes = list(described(len(txids), positions))
    hashes = [node_hash(txids[first : first + span], span) for first, span, mark in nodes if span == 1 or not mark]
    packed = bytearray((len(nodes) + 7) // 8)
    for at, (_, _, mark) in enumerate(nodes):
        packed[at // 8] |= mark << at % 8
    return len(txids).to_bytes(4, "little") + var_int(len(hashes)) + b"".join(hashes) + var_bytes(bytes(packed))


def node_hash(leaves: Sequence[bytes], span: int) -> bytes:
    """The node above these leaves. At the right edge it has fewer than `span`, and every odd level repeats its last
    hash.
    """
    full = list(leaves)
    while len(full) < span:
        full += full[-(len(full) & -len(full)) :]  # the last complete subtree
    return merkle_root(full)


def extracted(count: int, hashes: Sequence[bytes], flags: bytes) -> tuple[bytes, list[tuple[int, bytes]]] | None:
    """The root and the (position, txid) of the matched leaves that a partial tree proves; None for a tree that no
    builder makes.

    It goes level by level from the top, as the definition does, where an implementation would go depth first.
    """
    bits = [flags[at // 8] >> at % 8 & 1 for at in range(8 * len(flags))]
    height = 0
    while 1 << height < count:
        height += 1
    if not 1 <= count <= 16_666 or len(hashes) > count or len(bits) < len(hashes):
        return None
    order: list[tuple[int, int]] = []  # (height, position) of the nodes that have a bit, in the order of the bits
    stack = [(height, 0)]
    while stack:
        level, position = stack.pop()
        if len(order) == len(bits):
            return None
        order.append((level, position))
        if level and bits[len(order) - 1]:
            stack += [(level - 1, child) for child in (2 * position + 1, 2 * position) if child << (level - 1) < count]
    told = [node for node, bit in zip(order, bits, strict=False) if not node[0] or not bit]
    if len(told) != len(hashes) or (len(order) + 7) // 8 != len(flags):
        return None
    known = dict(zip(told, hashes, strict=True))
    for level, position in sorted(order):  # the lowest first
        if (level, position) in known:
            continue
        left, right = known[level - 1, 2 * position], known.get((level - 1, 2 * position + 1))
        if left == right:
            return None
        known[level, position] = sha256d(left + (right or left))
    marked = [
        (position, known[level, position])
        for (level, position), bit in zip(order, bits, strict=False)
        if bit and not level
    ]
    return known[height, 0], marked
