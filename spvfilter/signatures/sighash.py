"""The hash that a transaction's signature signs: legacy, witness version 0 (BIP-143), or taproot key path (BIP-341)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import cached_property

from spvfilter.errors import ParameterError
from spvfilter.hashes import sha256d
from spvfilter.primitives import TxOut, compact_size
from spvfilter.protocol import OUTPOINT_SIZE
from spvfilter.transaction import Transaction

__all__ = [
    "MAX_HASHED_SIZE",
    "SIGHASH_ALL",
    "SIGHASH_ANYONECANPAY",
    "SIGHASH_DEFAULT",
    "SIGHASH_NONE",
    "SIGHASH_SINGLE",
    "SigHashes",
    "tagged_hash",
]

SIGHASH_DEFAULT = 0  # all inputs and outputs, in a 64-byte taproot signature (BIP-341)
SIGHASH_ALL = 1
SIGHASH_NONE = 2  # no output
SIGHASH_SINGLE = 3  # the output at the position of the input
SIGHASH_ANYONECANPAY = 0x80  # only this input; may be combined with the others
MAX_HASHED_SIZE = 32_000_000
"""Largest total size, in bytes, of the legacy messages that are hashed for one transaction (our choice).

A legacy signature signs the whole transaction, so the work is quadratic in the number of inputs. A transaction of
standard size needs less than 26 MB.
"""
_ONE = b"\x01" + bytes(31)  # the legacy hash for SIGHASH_SINGLE without an output at its position, an old bug
_BLANK_INPUT_SIZE = OUTPOINT_SIZE + 5  # outpoint, empty script, sequence
_BLANK_OUTPUT = b"\xff" * 8 + b"\x00"  # value -1, empty script


def tagged_hash(tag: str, message: bytes) -> bytes:
    """Return the tagged hash of BIP-340."""
    prefix = hashlib.sha256(tag.encode()).digest()
    return hashlib.sha256(prefix + prefix + message).digest()


class SigHashes:
    """The signature hashes of one transaction.

    The parts that several inputs share are hashed once, so the work for BIP-143 and BIP-341 is linear.

    Args:
        tx: The transaction.
        spent: The output that each input spends, or None if it is unknown.

    Raises:
        ParameterError: The number of outputs in `spent` differs from the number of inputs.
    """

    def __init__(self, tx: Transaction, spent: Sequence[TxOut | None]) -> None:
        if len(spent) != len(tx.span.inputs):
            raise ParameterError(f"spent: expected {len(tx.span.inputs)} outputs, one for each input, got {len(spent)}")
        self.tx = tx
        self.spent: tuple[TxOut | None, ...] = tuple(spent)
        self.hashed_size: int = 0  # bytes of legacy messages hashed so far
        self._version = tx.raw[:4]
        self._lock_time = tx.raw[-4:]

    # Parts that inputs share

    @cached_property
    def _outpoints(self) -> tuple[bytes, ...]:
        return self.tx.inputs

    @cached_property
    def _sequences(self) -> tuple[bytes, ...]:
        return tuple([self.tx.raw[end : end + 4] for _, _, end in self.tx.span.inputs])

    @cached_property
    def _outputs(self) -> bytes:
        """Return all serialized outputs, without their count."""
        spans = self.tx.span.outputs
        return self.tx.raw[spans[0][0] : spans[-1][2]] if spans else b""

    def _output(self, index: int) -> bytes:
        start, _, end = self.tx.span.outputs[index]
        return self.tx.raw[start:end]

    @cached_property
    def _sha_prevouts(self) -> bytes:
        return _sha256(b"".join(self._outpoints))

    @cached_property
    def _sha_sequences(self) -> bytes:
        return _sha256(b"".join(self._sequences))

    @cached_property
    def _sha_outputs(self) -> bytes:
        return _sha256(self._outputs)

    @cached_property
    def _sha_amounts_and_scripts(self) -> bytes | None:
        """The hashes of the values and scripts of all spent outputs, or None if an output is unknown."""
        known = [out for out in self.spent if out is not None]
        if len(known) < len(self.spent):
            return None
        amounts = struct.pack(f"<{len(known)}q", *[out.value for out in known])
        return _sha256(amounts) + _sha256(b"".join([_with_size(out.script_pubkey) for out in known]))

    # Legacy

    def legacy(self, index: int, script_code: bytes, hash_type: int) -> bytes | None:
        """Return the hash that a legacy input's signature signs (Core SignatureHash, SigVersion::BASE).

        Returns None if the transaction's messages would exceed MAX_HASHED_SIZE. `script_code` must contain neither
        OP_CODESEPARATOR nor the signature.
        """
        base, count = hash_type & 0x1F, len(self._outpoints)
        if base == SIGHASH_SINGLE and index >= len(self.tx.span.outputs):
            return _ONE
        tail = self._legacy_outputs(index, base) + self._lock_time + struct.pack("<I", hash_type & 0xFFFFFFFF)
        this = self._outpoints[index] + _with_size(script_code) + self._sequences[index]
        is_alone = bool(hash_type & SIGHASH_ANYONECANPAY)
        size = 8 + len(this) + len(tail) + (0 if is_alone else _BLANK_INPUT_SIZE * (count - 1))
        if self.hashed_size + size > MAX_HASHED_SIZE:
            return None
        self.hashed_size += size
        if is_alone:
            return sha256d(self._version + b"\x01" + this + tail)
        blanks = self._blank_inputs if base not in (SIGHASH_NONE, SIGHASH_SINGLE) else self._blank_inputs_any_sequence
        at = index * _BLANK_INPUT_SIZE
        hasher = hashlib.sha256(self._version + compact_size(count))
        hasher.update(blanks[:at])
        hasher.update(this)
        hasher.update(blanks[at + _BLANK_INPUT_SIZE :])
        hasher.update(tail)
        return _sha256(hasher.digest())

    def _legacy_outputs(self, index: int, base: int) -> bytes:
        if base == SIGHASH_NONE:
            return b"\x00"
        if base == SIGHASH_SINGLE:
            return compact_size(index + 1) + _BLANK_OUTPUT * index + self._output(index)
        return compact_size(len(self.tx.span.outputs)) + self._outputs

    @cached_property
    def _blank_inputs(self) -> memoryview:
        """All inputs with empty scripts."""
        pairs = zip(self._outpoints, self._sequences, strict=True)
        return memoryview(b"".join([outpoint + b"\x00" + sequence for outpoint, sequence in pairs]))

    @cached_property
    def _blank_inputs_any_sequence(self) -> memoryview:
        """All inputs with empty scripts and sequence 0."""
        return memoryview(b"".join([outpoint + bytes(5) for outpoint in self._outpoints]))

    # Witness version 0

    def segwit(self, index: int, script_code: bytes, hash_type: int) -> bytes | None:
        """Return the hash that a witness version 0 input's signature signs (BIP-143).

        Returns None if the value of the spent output is unknown.
        """
        spent, base = self.spent[index], hash_type & 0x1F
        if spent is None:
            return None
        is_alone = bool(hash_type & SIGHASH_ANYONECANPAY)
        is_all = base not in (SIGHASH_NONE, SIGHASH_SINGLE)
        if is_all:
            outputs = _sha256(self._sha_outputs)
        elif base == SIGHASH_SINGLE and index < len(self.tx.span.outputs):
            outputs = sha256d(self._output(index))
        else:
            outputs = bytes(32)
        return sha256d(
            b"".join(
                (
                    self._version,
                    bytes(32) if is_alone else _sha256(self._sha_prevouts),
                    bytes(32) if is_alone or not is_all else _sha256(self._sha_sequences),
                    self._outpoints[index],
                    _with_size(script_code),
                    struct.pack("<q", spent.value),
                    self._sequences[index],
                    outputs,
                    self._lock_time,
                    struct.pack("<I", hash_type & 0xFFFFFFFF),
                )
            )
        )

    # Taproot

    def taproot(self, index: int, hash_type: int, annex: bytes | None = None) -> bytes | None:
        """Return the hash that the signature of a taproot key path spend signs (BIP-341).

        Returns None if a spent output that the signature commits to is unknown. It commits to all spent outputs or,
        with SIGHASH_ANYONECANPAY, only to the output that this input spends.

        Raises:
            ParameterError: BIP-341 does not allow the hash type, or there is no output for SIGHASH_SINGLE.
        """
        base, is_alone = hash_type & 3, bool(hash_type & SIGHASH_ANYONECANPAY)
        if hash_type not in (0, 1, 2, 3, 0x81, 0x82, 0x83):
            raise ParameterError(f"not a BIP-341 hash type: 0x{hash_type:02x}")
        if base == SIGHASH_SINGLE and index >= len(self.tx.span.outputs):
            raise ParameterError(f"SIGHASH_SINGLE needs output {index}, which does not exist")
        spent = self.spent[index]
        parts = [b"\x00", bytes((hash_type,)), self._version, self._lock_time]  # epoch 0 comes first
        if not is_alone:
            if self._sha_amounts_and_scripts is None:
                return None
            parts += [self._sha_prevouts, self._sha_amounts_and_scripts, self._sha_sequences]
        elif spent is None:
            return None
        if base not in (SIGHASH_NONE, SIGHASH_SINGLE):
            parts.append(self._sha_outputs)
        parts.append(bytes((0 if annex is None else 1,)))  # the key path has extension 0
        if is_alone and spent is not None:
            parts += [self._outpoints[index], bytes(spent), self._sequences[index]]
        else:
            parts.append(struct.pack("<I", index))
        if annex is not None:
            parts.append(_sha256(_with_size(annex)))
        if base == SIGHASH_SINGLE:
            parts.append(_sha256(self._output(index)))
        return tagged_hash("TapSighash", b"".join(parts))


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _with_size(data: bytes) -> bytes:
    return compact_size(len(data)) + data
