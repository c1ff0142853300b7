"""Functions that build coinbases and mined regtest blocks without checking them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spvfilter._public import public
from spvfilter.hashes import sha256d
from spvfilter.kernel import merkle_root
from spvfilter.network import REGTEST
from spvfilter.primitives import Header, OutPoint, TxOut, compact_size
from spvfilter.protocol import COMMITMENT_PREFIX
from spvfilter.signing import build_tx
from spvfilter.transaction import NULL_OUTPOINT, Transaction, TxIn, var_bytes

BITS = REGTEST.pow_limit_bits  # compact form of the target 2^255 - 1, which every second hash meets
BLOCK_VERSION = 0x20000000  # version bits without a signal (BIP-9)
_WITNESS_NONCE = bytes(32)
_COINBASE_TAG = b"spvfilter"


def height_push(height: int) -> bytes:
    """Encode the block height as the first push of a coinbase's scriptSig (BIP-34).

    The result is OP_0, OP_1 to OP_16, or a push of the height as the shortest number (Core CScript).
    """
    if height <= 16:
        return bytes((0x50 + height if height else 0,))
    size = height.bit_length() // 8 + 1  # bytes, with room for a sign bit
    return bytes((size,)) + height.to_bytes(size, "little")


@public
def build_coinbase(
    height: int, outputs: Sequence[TxOut], transactions: Sequence[bytes] = (), *, extra: bytes = b""
) -> bytes:
    """Serialize the coinbase of a block. Its last output commits to the witnesses of the block (BIP-141).

    Args:
        height: Height of the block.
        outputs: All outputs that come before the one with the commitment.
        transactions: The other transactions of the block, serialized.
        extra: Up to 80 bytes to add after the height, which distinguish otherwise equal coinbases.
    """
    witness_root, _ = merkle_root([bytes(32), *(Transaction.parse(raw).wtxid for raw in transactions)])
    commitment = TxOut(0, COMMITMENT_PREFIX + sha256d(witness_root + _WITNESS_NONCE))
    script_sig = height_push(height) + var_bytes(_COINBASE_TAG + extra)
    txin = TxIn(OutPoint.parse(NULL_OUTPOINT), script_sig, (_WITNESS_NONCE,), 0xFFFFFFFF)
    return build_tx([txin], [*outputs, commitment])


@public
def build_block(previous: bytes, time: int, transactions: Sequence[bytes], *, version: int = BLOCK_VERSION) -> bytes:
    """Build a block and mine it for regtest.

    Args:
        previous: Hash of the parent block, 32 bytes in wire order.
        time: Time of the block (Unix time).
        transactions: Serialized transactions, coinbase first.
        version: Version of the block.
    """
    root, _ = merkle_root([Transaction.parse(raw).txid for raw in transactions])
    header = mine(Header(version, previous, root, time, BITS, 0))
    return bytes(header) + compact_size(len(transactions)) + b"".join(transactions)


def mine(header: Header) -> Header:
    """Return the header with the lowest nonce that meets regtest's target."""
    nonce = 0
    while (mined := replace(header, nonce=nonce)).hash[31] > 0x7F:  # only the highest bit of the target is 0
        nonce += 1
    return mined
