"""Verify a compact filter against its block.

The filter must match every output script of the block, unless the script is empty or starts with OP_RETURN. It must
also match every spent script that is known or was created in the same block.

A spent script is the scriptPubKey of an output that the block spends. The input does not prove it, because the same
input can spend different scripts. For example, a P2SH redeem script of 33 bytes that starts with 02 looks like the
public key of a P2PKH spend.

If a spent script is unknown, a filter can be proved wrong but not right.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from hashlib import sha256
from typing import NamedTuple

from spvfilter.errors import FormatError
from spvfilter.filters.bip158 import BasicFilter, basic_data, filter_elements
from spvfilter.hashes import hash160
from spvfilter.kernel import TxSpan, is_pubkey, txid, walk_block
from spvfilter.primitives import read_compact_size, script_pushes

_MULTISIG, _CHECKSIG = 0xAE, 0xAC
_MAX_SIGNATURE = 73
"""Largest size of a signature in bytes, in DER with the sighash byte."""
_CONTROL_BLOCK = 33
"""Size of the shortest control block in bytes (BIP-341)."""
_ANNEX = 0x50
"""First byte of an annex (BIP-341)."""


class FilterVerdict(Enum):
    """The result of verifying a compact filter against its block."""

    FALSE = "false"
    """The filter is wrong: it contradicts the block."""
    POSSIBLE = "possible"
    """The filter may be right: it contains all known scripts of the block, but some spent scripts are unknown."""
    TRUE = "true"
    """The filter is right, and all scripts of the block are known."""


class FilterJudgement(NamedTuple):
    """The verdict on a compact filter, and its reason."""

    verdict: FilterVerdict
    """The result of the verification."""
    reason: str = ""
    """Why the filter is false. It is empty for any other verdict."""


def verify_filter(
    raw_block: bytes, data: bytes, block_hash: bytes, known: Callable[[bytes], bytes | None]
) -> FilterJudgement:
    """Verify the bytes of a filter against its block, and return the verdict. The caller has validated the block.

    Args:
        raw_block: The block.
        data: The filter's bytes.
        block_hash: Hash of the block, 32 bytes in wire order.
        known: Function that returns the scriptPubKey of an outpoint (36 bytes). It returns None if the script is
            unknown.
    """
    try:
        claimed = BasicFilter.parse(data, block_hash)
    except FormatError as error:
        return FilterJudgement(FilterVerdict.FALSE, str(error))
    required, unknown = _scripts(raw_block, known)
    if not unknown:
        true = basic_data(block_hash, required) == data
        return (
            FilterJudgement(FilterVerdict.TRUE)
            if true
            else FilterJudgement(FilterVerdict.FALSE, "its elements are not the block's scripts")
        )
    for script in sorted(required):
        if not claimed.match(script):
            return FilterJudgement(FilterVerdict.FALSE, f"it lacks the script {script.hex()}")
    if not len(required) <= claimed.n <= len(required) + unknown:
        return FilterJudgement(
            FilterVerdict.FALSE, f"it must have {len(required)} to {len(required) + unknown} elements, not {claimed.n}"
        )
    return FilterJudgement(FilterVerdict.POSSIBLE)


def _scripts(raw: bytes, known: Callable[[bytes], bytes | None]) -> tuple[set[bytes], int]:
    """Return the scripts that the block's filter must contain, and the number of inputs whose spent script is unknown.

    `known` returns the scriptPubKey of an outpoint (36 bytes). It returns None if the script is unknown.
    """
    outputs: list[bytes] = []
    spent: list[bytes] = []
    unknown = 0
    made: dict[bytes, bytes] = {}  # outputs of the block: outpoint → scriptPubKey
    for position, tx in enumerate(walk_block(raw)):
        scripts = [raw[start:end] for _, start, end in tx.outputs]
        if position:
            for at, _, _ in tx.inputs:
                outpoint = raw[at : at + 36]
                script = made[outpoint] if outpoint in made else known(outpoint)
                if script is None:
                    unknown += 1
                else:
                    spent.append(script)
        this_txid = txid(raw, tx)
        made.update((this_txid + index.to_bytes(4, "little"), script) for index, script in enumerate(scripts))
        outputs += scripts
    return filter_elements(outputs, spent), unknown


def spent_script(script_sig: bytes, witness: list[bytes]) -> bytes | None:
    """Guess the scriptPubKey that an input spends. Returns None if it cannot be guessed.

    The guess is never certain, because the same input can spend different scripts. `witness` is the input's witness
    stack.
    """
    if witness:
        return _nested(script_sig) if script_sig else _native(witness)
    pushes = list(script_pushes(script_sig))
    if not pushes:
        return None
    last = pushes[-1]
    if len(pushes) == 2 and _is_signature(pushes[0]) and is_pubkey(last):
        return b"\x76\xa9\x14" + hash160(last) + b"\x88\xac"
    if len(last) > 1 and last[-1] in (_MULTISIG, _CHECKSIG) and not _is_signature(last):
        return b"\xa9\x14" + hash160(last) + b"\x87"
    return None


def _nested(script_sig: bytes) -> bytes | None:
    """Return the P2SH scriptPubKey of the redeem script that a scriptSig pushes, or None if it is not a single push."""
    return b"\xa9\x14" + hash160(script_sig[1:]) + b"\x87" if script_sig[0] == len(script_sig) - 1 else None


def _native(witness: list[bytes]) -> bytes | None:
    """Guess the P2WPKH or P2WSH script that a witness spends. Returns None if it may be taproot or is unknown."""
    last = witness[-1]
    if len(witness) == 2 and len(last) == 33 and is_pubkey(last) and _is_signature(witness[0]):
        return b"\x00\x14" + hash160(last)
    is_control_block = len(witness) > 1 and len(last) >= _CONTROL_BLOCK and (len(last) - 1) % 32 == 0
    if len(witness) < 2 or not last or is_control_block or last[0] == _ANNEX or last[-1] not in (_MULTISIG, _CHECKSIG):
        return None
    return b"\x00\x20" + sha256(last).digest()


def _is_signature(push: bytes) -> bool:
    return not push or (push[0] == 0x30 and 8 < len(push) <= _MAX_SIGNATURE)


def witnesses(raw: bytes, tx: TxSpan) -> list[list[bytes]]:
    """Return the witness stack of each input of transaction `tx` in `raw`."""
    at, stacks = tx.witness, []
    for _ in tx.inputs:
        stack: list[bytes] = []
        if at:
            count, at = read_compact_size(raw, at, "witness item count")
            for _ in range(count):
                size, at = read_compact_size(raw, at, "witness item length")
                stack.append(raw[at : at + size])
                at += size
        stacks.append(stack)
    return stacks
