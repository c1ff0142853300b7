"""Merkleblocks: their payload, and the partial merkle tree that proves some of a block's transactions.

This is the readable reference.
"""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.errors import FormatError, ProofError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import hash_of, hashes_of, snapshot, whole
from spvfilter.kernel.pure.blocks import parse_tx
from spvfilter.kernel.values import Flaw, ProvedTx
from spvfilter.primitives import Reader
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE, MAX_BLOCK_TRANSACTIONS, MAX_FLAG_BYTES


def parse_merkleblock(raw: bytes, /) -> tuple[int, tuple[bytes, ...], bytes]:
    """Return the number of transactions, the hashes and the flag bytes of a merkleblock payload.

    The first 80 bytes of the payload are the header. Raises FormatError if the payload is truncated, contains trailing
    bytes, or contains more hashes or flag bytes than any block needs.
    """
    reader = Reader(snapshot(raw))
    reader.take(HEADER_SIZE, "header")
    total = reader.uint(4, "transaction count")
    count = _count(reader, "hash count", MAX_BLOCK_TRANSACTIONS, HASH_SIZE)
    hashes = tuple([reader.take(HASH_SIZE, "hash") for _ in range(count)])
    flags = reader.take(_count(reader, "flag bytes length", MAX_FLAG_BYTES, 0), "flag bytes")
    reader.finish("merkleblock")
    return total, hashes, flags


def _count(reader: Reader, field: str, most: int, least: int) -> int:
    """Read a count of items of at least `least` bytes each.

    Raises FormatError if it is above `most`, or if the rest of the payload is too short for the items.
    """
    at = reader.at
    count = reader.compact_size(field)
    if count > most:
        raise FormatError(f"must be at most {most}, not {count}", offset=at, field=field)
    left = len(reader.raw) - reader.at
    if count * least > left:
        raise FormatError(
            f"truncated: {count} items of at least {least} bytes each, but only {left} bytes left",
            offset=at,
            field=field,
        )
    return count


def extract_matches(
    root: bytes, total: int, hashes: Iterable[bytes], flags: bytes, /
) -> tuple[tuple[ProvedTx, ...], bool]:
    """Verify a partial merkle tree as Core's CPartialMerkleTree::ExtractMatches does.

    Args:
        root: Merkle root of the block's header.
        total: Number of transactions in the block.
        hashes: Hashes of the tree, 32 bytes each.
        flags: Flag bits of the tree.

    Returns:
        The matched transactions in block order, and True if an inner node also parses as a transaction.

    Raises:
        ProofError: The tree is invalid. Its `cause` is the first Flaw, depth first and left before right.
        ParameterError: A hash is not 32 bytes long.
    """
    root, total = hash_of(root), whole(total, 0, 0xFFFFFFFF, "total must be from 0 to 2^32 - 1")
    hashes, flags = hashes_of(hashes, "hashes"), snapshot(flags)
    if not total:
        raise ProofError("a block must have at least one transaction", cause=Flaw.NO_TRANSACTIONS)
    if total > MAX_BLOCK_TRANSACTIONS:
        raise ProofError(
            f"a block can have at most {MAX_BLOCK_TRANSACTIONS} transactions, not {total}",
            cause=Flaw.TOO_MANY_TRANSACTIONS,
        )
    if len(hashes) > total:
        raise ProofError(
            f"the number of hashes ({len(hashes)}) exceeds the number of transactions ({total})",
            cause=Flaw.TOO_MANY_HASHES,
        )
    if 8 * len(flags) < len(hashes):
        raise ProofError(
            f"the number of flag bits ({8 * len(flags)}) is less than the number of hashes ({len(hashes)})",
            cause=Flaw.TOO_FEW_BITS,
        )
    matched: list[ProvedTx] = []
    ambiguous = False
    bit = used = 0

    def visit(height: int, position: int) -> bytes:
        nonlocal ambiguous, bit, used
        if bit == 8 * len(flags):
            raise ProofError(f"the tree needs more than {bit} flag bits", cause=Flaw.BITS_EXHAUSTED)
        mark = flags[bit >> 3] >> (bit & 7) & 1
        bit += 1
        if not mark or not height:
            if used == len(hashes):
                raise ProofError(f"the tree needs more than {used} hashes", cause=Flaw.HASHES_EXHAUSTED)
            node = hashes[used]
            used += 1
            if mark:
                matched.append(ProvedTx(position, node))
            return node
        left = right = visit(height - 1, 2 * position)
        if 2 * position + 1 < -(-total >> height - 1):
            right = visit(height - 1, 2 * position + 1)
            if left == right:
                at = f"height {height}, position {position}"
                raise ProofError(f"two equal hashes below the node at {at} (CVE-2012-2459)", cause=Flaw.EQUAL_SIBLINGS)
        ambiguous = ambiguous or _can_be_tx(left + right)
        return sha256d(left + right)

    top = visit((total - 1).bit_length(), 0)  # the tree is at most 15 levels deep
    if (bit + 7) // 8 != len(flags):
        raise ProofError(f"the tree uses only {bit} of {8 * len(flags)} flag bits", cause=Flaw.UNUSED_BITS)
    if used != len(hashes):
        raise ProofError(f"the tree uses only {used} of {len(hashes)} hashes", cause=Flaw.UNUSED_HASHES)
    if top != root:
        raise ProofError("the root of the tree is not the header's merkle root", cause=Flaw.WRONG_ROOT)
    return tuple(matched), ambiguous


def _can_be_tx(node: bytes) -> bool:
    """Return True if the 64 bytes of an inner node parse as a transaction without witness.

    A transaction of this size has a single input, whose count is byte 4.
    """
    if node[4] != 1:
        return False
    try:
        return not parse_tx(node).witness
    except FormatError:
        return False
