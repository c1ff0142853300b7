"""MerkleBlock (BIP-37): a header and the partial merkle tree that proves transactions of its block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from spvfilter._public import public
from spvfilter.errors import ParameterError, counted
from spvfilter.hashes import sha256d
from spvfilter.kernel import (
    Flaw as Flaw,
    ProvedTx as ProvedTx,
    extract_matches,
    merkle_root,
    parse_merkleblock,
    parse_tx,
    strip_witness,
    txid,
    walk_block,
)
from spvfilter.primitives import Header, Serializable, to_bytes
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE, MAX_BLOCK_TRANSACTIONS, MAX_FLAG_BYTES
from spvfilter.wire.merkle import merkle_node
from spvfilter.wire.messages.fields import check_each, check_hashes, check_most, check_uint, var_bytes, var_hashes

MERKLEBLOCK_SIZE = HEADER_SIZE + 4 + 3 + HASH_SIZE * MAX_BLOCK_TRANSACTIONS + 3 + MAX_FLAG_BYTES  # bytes, at most
NODE_SIZE = 64  # bytes that the hash of an inner node covers: the hashes of its two children


@public
class Proof(NamedTuple):
    """The transactions that a merkleblock proves, provided that its header is in the best chain."""

    header: Header
    """Header of the block that contains the proved transactions."""
    matched: tuple[ProvedTx, ...]
    """The transactions that the merkleblock proves, in block order."""
    total: int
    """Number of transactions in the block, as the peer claims: the header does not commit to it."""
    ambiguous: bool
    """True if an inner node of the proof also parses as a transaction: see `trusted_with`."""

    def trusted_with(self, txs: Iterable[bytes]) -> bool:
        """Return True if the proof is reliable, given the serialized transactions that it matches (CVE-2017-12842).

        An inner node is the hash of 64 bytes. The txid of a 64-byte transaction is also the hash of 64 bytes. A peer
        can forge a proof in two ways:

        - The proof continues below a 64-byte transaction. An inner node of the proof then parses as a transaction.
        - The proof ends above the leaves and presents an inner node as a transaction, which is then 64 bytes long.

        A proof without these signs is reliable. Because genuine 64-byte transactions exist, fetch the whole block and
        search it if the result is False. Raises FormatError if a transaction is malformed.
        """
        return not self.ambiguous and not any(can_be_node(raw) for raw in txs)


def can_be_node(tx: bytes | Serializable) -> bool:
    """Return True if a transaction is 64 bytes long without its witness, so its txid may be the hash of an inner node.

    Raises FormatError if the transaction is malformed.
    """
    raw = to_bytes(tx)
    return len(strip_witness(raw, parse_tx(raw))) == NODE_SIZE


@public
@dataclass(frozen=True, slots=True)
class MerkleBlock:
    """A merkleblock message, well-formed but not verified (BIP-37, Core merkleblock.h).

    | bytes | field |
    |---|---|
    | 80 | header |
    | 4 | number of transactions in the block, u32 LE |
    | 1 to 3 | number of hashes, CompactSize |
    | 32 each | hashes of nodes |
    | 1 to 3 | number of flag bytes, CompactSize |
    | 1 each | flag bytes |

    The leaves of the merkle tree are the txids. An inner node is sha256d(left ‖ right). The last node of an odd level
    is paired with itself.

    Nodes are visited depth first and left before right. Each has one flag bit, the least significant bit of a byte
    first.

    - A set bit marks a matched transaction or one of its ancestors. The children of an ancestor are visited next.
    - A node with a clear bit, and every visited leaf, is sent as its hash. Subtrees below a clear bit are not visited.
    - The unused bits of the last byte have no meaning.
    """

    header: Header
    """Header of the block that contains the matched transactions."""
    total: int
    """Number of transactions in the block, as the sender claims (u32)."""
    hashes: tuple[bytes, ...]
    """Hashes of merkle tree nodes, 32 bytes each, in the order in which the nodes are visited."""
    flags: bytes
    """Flag bits of the visited nodes, least significant bit first, at most 4,168 bytes."""

    def __post_init__(self) -> None:
        check_uint(self.total, 4, "total")
        check_hashes(self.hashes, MAX_BLOCK_TRANSACTIONS, "hashes")
        check_most(self.flags, MAX_FLAG_BYTES, "flag bytes")

    @classmethod
    def from_txids(cls, header: Header, txids: Sequence[bytes], positions: Iterable[int]) -> Self:
        """Build the merkleblock that proves some transactions of a block, byte for byte as Core builds it.

        Args:
            header: Header of the block.
            txids: Txids of all transactions of the block, 32 bytes each in wire order.
            positions: Positions of the transactions to prove within the block, from 0.

        Raises:
            ParameterError: The number or the size of the txids is wrong, a position is outside the block, two siblings
                are equal (CVE-2012-2459), or the header does not commit to the txids.
        """
        if not 1 <= len(txids) <= MAX_BLOCK_TRANSACTIONS:
            raise ParameterError(f"a block must have 1 to {MAX_BLOCK_TRANSACTIONS} transactions, not {len(txids)}")
        check_each(txids, HASH_SIZE, "txids")
        marked = set(positions)
        if outside := [position for position in marked if not 0 <= position < len(txids)]:
            count = counted(len(txids), "transaction")
            raise ParameterError(f"no transaction at position {outside[0]}: the block has {count}")
        root, is_mutated = merkle_root(txids)
        if is_mutated:
            raise ParameterError(f"two equal hashes are siblings at height {_height_of_twins(txids)} (CVE-2012-2459)")
        if root != header.merkle_root:
            raise ParameterError("the header's merkle root does not match the transactions")
        depth = (len(txids) - 1).bit_length()  # at most 15
        marks = [marked]
        while len(marks) <= depth:
            marks.append({position >> 1 for position in marks[-1]})
        bits: list[str] = []
        hashes: list[bytes] = []

        def visit(height: int, position: int) -> None:
            mark = position in marks[height]
            bits.append("1" if mark else "0")
            if not mark or not height:
                hashes.append(merkle_node(txids, height, position))
                return
            visit(height - 1, 2 * position)
            if (2 * position + 1) << height - 1 < len(txids):
                visit(height - 1, 2 * position + 1)

        visit(depth, 0)
        flags = int("".join(reversed(bits)), 2).to_bytes((len(bits) + 7) // 8, "little")
        return cls(header, len(txids), tuple(hashes), flags)

    @classmethod
    def from_block(cls, block: bytes | Serializable, positions: Iterable[int]) -> Self:
        """Build the merkleblock that proves the transactions at some positions of a serialized block.

        Raises FormatError if the block is malformed, and ParameterError in the same cases as `from_txids`.
        """
        raw = to_bytes(block)
        txids = [txid(raw, tx) for tx in walk_block(raw)]
        return cls.from_txids(Header.parse(raw[:HEADER_SIZE]), txids, positions)

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of a merkleblock message.

        Raises FormatError if the payload is truncated, or contains trailing bytes, or more hashes or flag bytes than
        any block needs.
        """
        total, hashes, flags = parse_merkleblock(payload)
        return cls(Header.parse(payload[:HEADER_SIZE]), total, hashes, flags)

    def __bytes__(self) -> bytes:
        return bytes(self.header) + self.total.to_bytes(4, "little") + var_hashes(self.hashes) + var_bytes(self.flags)

    def verify(self) -> Proof:
        """Verify the merkleblock by the rules of Core's CPartialMerkleTree::ExtractMatches, and return its proof.

        Raises ProofError if the proof is invalid; its `cause` is a Flaw.
        """
        matched, ambiguous = extract_matches(self.header.merkle_root, self.total, self.hashes, self.flags)
        return Proof(self.header, matched, self.total, ambiguous)


def _height_of_twins(level: Sequence[bytes]) -> int:
    """Return the lowest height at which two siblings are equal. The caller knows that there is such a height."""
    height = 0
    while all(level[at] != level[at + 1] for at in range(0, len(level) - 1, 2)):
        level = [sha256d(left + right) for left, right in zip(level[::2], [*level[1::2], level[-1]], strict=False)]
        height += 1
    return height
