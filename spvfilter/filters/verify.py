"""Judging a compact filter by its block, as far as the block alone tells.

Every output script must match, but for empty ones and OP_RETURN, and so must the spent script of every output that the same block made or
that is known. What an input spends cannot be told from the input alone: a script that it seems to show may be another one with the same
bytes (a P2SH redeem script of 33 bytes that starts with 02 looks like the public key of a P2PKH spend). Such scripts may be in the filter
or not, so a filter is often neither refuted nor proved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

from spvfilter.errors import FormatError
from spvfilter.filters.bip158 import BasicFilter, basic_data, filter_elements
from spvfilter.hashes import hash160
from spvfilter.kernel import TxSpan, is_pubkey, txid, walk_block
from spvfilter.primitives import read_compact_size, script_pushes

_MULTISIG, _CHECKSIG = 0xAE, 0xAC
_MAX_SIGNATURE = 73  # bytes, DER and the sighash byte
_CONTROL_BLOCK = 33  # bytes of the shortest, BIP-341
_ANNEX = 0x50  # BIP-341


class Verdict(Enum):
    """What the block says of a filter."""

    FALSE = "false"
    POSSIBLE = "possible"
    TRUE = "true"  # every script of the block is known


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    reason: str = ""  # why it is false


def judge(raw_block: bytes, data: bytes, block_hash: bytes, known: Callable[[bytes], bytes | None]) -> Judgement:
    """Judge the bytes of a filter by its whole block, which was checked; `known` gives the script of an outpoint (36 bytes) if it can."""
    try:
        claimed = BasicFilter.parse(data, block_hash)
    except FormatError as error:
        return Judgement(Verdict.FALSE, str(error))
    required, untold = _scripts(raw_block, known)
    if not untold:
        true = basic_data(block_hash, required) == data
        return Judgement(Verdict.TRUE) if true else Judgement(Verdict.FALSE, "has other elements than the block")
    for script in required:
        if not claimed.match(script):
            return Judgement(Verdict.FALSE, f"lacks the script {script.hex()}")
    if not len(required) <= claimed.n <= len(required) + untold:
        return Judgement(Verdict.FALSE, f"{claimed.n} elements, where the block has {len(required)} to {len(required) + untold}")
    return Judgement(Verdict.POSSIBLE)


def _scripts(raw: bytes, known: Callable[[bytes], bytes | None]) -> tuple[set[bytes], int]:
    """The elements that the block's filter has for certain, and how many inputs spend a script that the block does not tell."""
    outputs: list[bytes] = []
    spent: list[bytes] = []
    untold = 0
    made: dict[bytes, bytes] = {}  # outpoint → script, of this block
    for position, tx in enumerate(walk_block(raw)):
        scripts = [raw[start:end] for _, start, end in tx.outputs]
        if position:
            for at, _, _ in tx.inputs:
                outpoint = raw[at : at + 36]
                script = made[outpoint] if outpoint in made else known(outpoint)
                if script is None:
                    untold += 1
                else:
                    spent.append(script)
        this_txid = txid(raw, tx)
        made.update((this_txid + index.to_bytes(4, "little"), script) for index, script in enumerate(scripts))
        outputs += scripts
    return filter_elements(outputs, spent), untold


def spent_script(script_sig: bytes, witness: list[bytes]) -> bytes | None:
    """The scriptPubKey that an input seems to spend, None where it shows none. Never certain: other scripts can have the same bytes."""
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
    """P2SH around a witness program, which is all of the scriptSig."""
    return b"\xa9\x14" + hash160(script_sig[1:]) + b"\x87" if script_sig[0] == len(script_sig) - 1 else None


def _native(witness: list[bytes]) -> bytes | None:
    last = witness[-1]
    if len(witness) == 2 and len(last) == 33 and is_pubkey(last) and _is_signature(witness[0]):
        return b"\x00\x14" + hash160(last)
    is_control_block = len(witness) > 1 and len(last) >= _CONTROL_BLOCK and (len(last) - 1) % 32 == 0
    if len(witness) < 2 or not last or is_control_block or last[0] == _ANNEX or last[-1] not in (_MULTISIG, _CHECKSIG):
        return None  # taproot's, or what may be
    return b"\x00\x20" + sha256(last).digest()


def _is_signature(push: bytes) -> bool:
    return not push or (push[0] == 0x30 and 8 < len(push) <= _MAX_SIGNATURE)


def witnesses(raw: bytes, tx: TxSpan) -> list[list[bytes]]:
    """The witness stack of each input."""
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
