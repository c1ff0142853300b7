"""Check whether a transaction's inputs satisfy the scripts of the coins that they spend, if these are known.

The checks follow Core's VerifyScript for the scripts of common wallets. They apply the rules that every block must
follow today: strict DER (BIP-66), an empty dummy item (BIP-147), segwit (BIP-141) and taproot (BIP-341). Breaking a
rule that applies only to relay, such as a low s, does not make a signature wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from spvfilter.errors import ParameterError, remedy
from spvfilter.hashes import hash160
from spvfilter.primitives import TxOut, compact_size
from spvfilter.protocol import MAX_SCRIPT_SIZE
from spvfilter.signatures.curve import ORDER, Curve, compressed_key, find_curve
from spvfilter.signatures.sighash import SIGHASH_ANYONECANPAY, SIGHASH_DEFAULT, SigHashes, tagged_hash
from spvfilter.transaction import Transaction

__all__ = ["InputCheck", "SpendCheck", "Validity", "verify_input", "verify_spends"]

MAX_CHECKS = 4_000
"""Largest number of signatures to verify for one transaction (Core MAX_STANDARD_TX_SIGOPS_COST, at a cost of 4)."""
_MAX_ITEM_SIZE = 520  # bytes (Core script/script.h MAX_SCRIPT_ELEMENT_SIZE)
_MAX_ITEMS = 970  # most items in a scriptSig; a template pushes up to 23 more, and Core's MAX_STACK_SIZE is 1,000
_MAX_CONTROL_SIZE = 33 + 32 * 128  # bytes of a control block (BIP-341)
_ANNEX_TAG = 0x50


class Validity(Enum):
    """Whether an input may spend its coin."""

    VALID = "valid"
    """Its signatures are valid, and the rest of its data satisfies the coin's script."""
    WRONG = "wrong"
    """No block can contain these bytes: a signature is wrong, or the data does not satisfy the coin's script."""
    UNKNOWN = "unknown"
    """Undecided: a spent output is unknown, its script is not of a supported type, or libsecp256k1 is not installed."""


@dataclass(frozen=True, slots=True)
class InputCheck:
    """The result for one input."""

    validity: Validity
    """Whether the input may spend its coin."""
    reason: str = ""
    """Why the input is wrong or unknown. Empty if it is valid."""
    unrelayed: str | None = None
    """Why nodes do not relay the input although it is valid, such as a high s; None if they relay it."""


@dataclass(frozen=True, slots=True)
class SpendCheck:
    """The result for several inputs of a transaction."""

    validity: Validity
    """WRONG if an input is wrong; otherwise UNKNOWN if one is unknown or none was checked; otherwise VALID."""
    index: int | None = None
    """Index of the first wrong input or, if none is wrong, of the first unknown one. None if all are valid."""
    reason: str = ""
    """Why this input is wrong or unknown."""
    unrelayed: tuple[tuple[int, str], ...] = ()
    """Index and reason of each valid input that nodes do not relay."""


def verify_input(tx: Transaction, index: int, spent: Sequence[TxOut | None]) -> InputCheck:
    """Check the input at `index` against the output that it spends.

    Args:
        tx: The transaction.
        index: Position of the input, starting at 0.
        spent: For each input, the output that it spends, or None if it is unknown. A taproot signature commits to all
            of them unless it has SIGHASH_ANYONECANPAY.

    Raises:
        ParameterError: `spent` and the inputs differ in length.
        IndexError: There is no such input.
    """
    return _Inputs(tx, spent).check(index)


def verify_spends(tx: Transaction, spent: Sequence[TxOut | None], indexes: Iterable[int] | None = None) -> SpendCheck:
    """Check the inputs at `indexes` until one is wrong. By default, all inputs whose output is known are checked.

    Args:
        tx: The transaction.
        spent: For each input, the output that it spends, or None if it is unknown. A taproot signature commits to all
            of them unless it has SIGHASH_ANYONECANPAY.
        indexes: Positions of the inputs to check.

    Raises:
        ParameterError: `spent` and the inputs differ in length.
        IndexError: There is no such input.
    """
    inputs = _Inputs(tx, spent)
    chosen = [at for at, out in enumerate(spent) if out is not None] if indexes is None else list(indexes)
    unknown: tuple[int, str] | None = None
    unrelayed = []
    for index in chosen:
        found = inputs.check(index)
        if found.validity is Validity.WRONG:
            return SpendCheck(Validity.WRONG, index, found.reason)
        if found.validity is Validity.UNKNOWN:
            unknown = unknown or (index, found.reason)
        elif found.unrelayed is not None:
            unrelayed.append((index, found.unrelayed))
    if unknown is not None:
        return SpendCheck(Validity.UNKNOWN, *unknown, tuple(unrelayed))
    return SpendCheck(Validity.VALID if chosen else Validity.UNKNOWN, unrelayed=tuple(unrelayed))


# Scripts


class _Template(NamedTuple):
    """A script that needs `required` signatures by `keys`, or by the key whose hash160 is `key_hash`."""

    required: int
    keys: tuple[bytes, ...] = ()
    key_hash: bytes | None = None
    is_multi: bool = False


def _template(script: bytes) -> _Template | None:
    """Return what a pk(), pkh() or multi() script needs, or None for any other script."""
    if len(script) == 25 and script[:3] == b"\x76\xa9\x14" and script[23:] == b"\x88\xac":
        return _Template(1, key_hash=script[3:23])
    operations = operations_of(script)
    match operations:
        case [(_, bytes(key)), (0xAC, None)] if len(key) in (33, 65):
            return _Template(1, (key,))
        case [first, *pushes, last, (0xAE, None)]:
            required, count = _number(first), _number(last)
            keys = tuple([data for _, data in pushes if data is not None and len(data) in (33, 65)])
            if len(keys) == len(pushes) == count and 1 <= required <= count <= 20:
                return _Template(required, keys, is_multi=True)
    return None


def operations_of(script: bytes) -> list[tuple[int, bytes | None]] | None:
    """Return the opcode of each operation, and the data that it pushes or None.

    Returns None instead of a list if the last push is malformed.
    """
    operations: list[tuple[int, bytes | None]] = []
    at, size = 0, len(script)
    while at < size:
        opcode = script[at]
        at += 1
        length, width = opcode, 0
        if opcode > 0x4E:
            operations.append((opcode, None))
            continue
        if opcode > 0x4B:  # OP_PUSHDATA1, 2, 4
            width = 1 << (opcode - 0x4C)
            length = int.from_bytes(script[at : at + width], "little")
        if at + width + length > size:
            return None
        operations.append((opcode, script[at + width : at + width + length]))
        at += width + length
    return operations


def _number(operation: tuple[int, bytes | None]) -> int:
    """Return the number from 1 to 127 that an operation pushes, by OP_1 to OP_16 or as one byte; otherwise 0."""
    opcode, data = operation
    if 0x51 <= opcode <= 0x60:
        return opcode - 0x50
    return data[0] if opcode == 1 and data is not None and 16 < data[0] < 128 else 0


def _witness_program(script: bytes) -> tuple[int, bytes] | None:
    """Return the version and the program of a witness program (BIP-141), or None for any other script."""
    if not 4 <= len(script) <= 42 or script[1] + 2 != len(script):
        return None
    if script[0] == 0:
        return 0, script[2:]
    return (script[0] - 0x50, script[2:]) if 0x51 <= script[0] <= 0x60 else None


def _der_signature(signature: bytes) -> tuple[int, int] | None:
    """Return r and s of a signature that ends with its hash type. Return None unless it is strict DER.

    The rules are those of BIP-66 (Core IsValidSignatureEncoding).
    """
    size = len(signature)
    if not 9 <= size <= 73 or signature[0] != 0x30 or signature[1] != size - 3:
        return None
    r_size = signature[3]
    if 5 + r_size >= size:
        return None
    s_size = signature[5 + r_size]
    if r_size + s_size + 7 != size or signature[2] != 2 or signature[4 + r_size] != 2:
        return None
    numbers = signature[4 : 4 + r_size], signature[6 + r_size : -1]
    for number in numbers:
        if not number or number[0] & 0x80 or (len(number) > 1 and not number[0] and not number[1] & 0x80):
            return None
    return int.from_bytes(numbers[0], "big"), int.from_bytes(numbers[1], "big")


# Inputs


class _Wrong(Exception):  # noqa: N818  it is an answer
    """The input cannot be in a block."""


class _Unknown(Exception):  # noqa: N818
    """The input cannot be judged."""


_Hasher = Callable[[int], bytes | None]
"""A function that takes a hash type, and returns the hash that a signature of this type signs, or None if it cannot be
computed.
"""


class _Inputs:
    """The inputs of one transaction, which share hashes and a budget of work."""

    def __init__(self, tx: Transaction, spent: Sequence[TxOut | None]) -> None:
        self._hashes = SigHashes(tx, spent)
        self._spent = spent
        self._curve: Curve | None = find_curve()
        self._checks = 0
        self._unrelayed: str | None = None  # of the input being checked
        self._tx = tx

    @cached_property
    def _script_sigs(self) -> tuple[bytes, ...]:
        return self._tx.script_sigs

    @cached_property
    def _witnesses(self) -> tuple[tuple[bytes, ...], ...]:
        return self._tx.witnesses

    def check(self, index: int) -> InputCheck:
        """Check one input."""
        self._unrelayed = None
        coin = self._spent[index]
        if coin is None:
            return InputCheck(Validity.UNKNOWN, "the output that it spends is unknown")
        try:
            self._check(index, coin.script_pubkey, self._script_sigs[index], self._witnesses[index])
        except _Wrong as why:
            return InputCheck(Validity.WRONG, str(why))
        except _Unknown as why:
            return InputCheck(Validity.UNKNOWN, str(why))
        return InputCheck(Validity.VALID, unrelayed=self._unrelayed)

    def _check(self, index: int, script: bytes, script_sig: bytes, witness: tuple[bytes, ...]) -> None:
        if (program := _witness_program(script)) is not None:
            if script_sig:
                raise _Wrong("its scriptSig must be empty: the coin is native segwit")
            self._check_program(index, *program, witness, is_native=True)
        elif len(script) == 23 and script[:2] == b"\xa9\x14" and script[22] == 0x87:
            self._check_script_hash(index, script[2:22], script_sig, witness)
        else:
            if witness:
                raise _Wrong("it has a witness, but the coin is not segwit")
            self._check_bare(index, script, script_sig)

    def _check_bare(self, index: int, script: bytes, script_sig: bytes) -> None:
        template, hasher = _template(script), self._legacy(index, script)
        items, is_push_only = _evaluated(script_sig)
        if template is None:
            raise _Unknown("the coin's script is not of a supported type")
        if is_push_only:
            self._satisfy(template, items, hasher, is_exact=False)
        else:
            self._find_signature(template, items, hasher)
            raise _Unknown("its scriptSig is not push-only")

    def _check_script_hash(self, index: int, digest: bytes, script_sig: bytes, witness: tuple[bytes, ...]) -> None:
        items, is_push_only = _evaluated(script_sig)
        if not is_push_only:
            raise _Wrong("its scriptSig is not push-only")
        if not items:
            raise _Wrong("it is not signed: its scriptSig is empty")
        *items, redeem = items
        if hash160(redeem) != digest:
            raise _Wrong("its redeem script does not match the hash in the coin's script")
        if (program := _witness_program(redeem)) is not None:
            if script_sig != bytes((len(redeem),)) + redeem:
                raise _Wrong("its scriptSig must contain nothing but the witness program")
            self._check_program(index, *program, witness, is_native=False)
            return
        if witness:
            raise _Wrong("it has a witness, but its redeem script is not segwit")
        if (template := _template(redeem)) is None:
            raise _Unknown("its redeem script is not of a supported type")
        self._satisfy(template, items, self._legacy(index, redeem), is_exact=False)

    def _check_program(
        self, index: int, version: int, program: bytes, witness: tuple[bytes, ...], *, is_native: bool
    ) -> None:
        if version == 0:
            self._check_version_0(index, program, witness)
        elif version == 1 and len(program) == 32 and is_native:
            self._check_taproot(index, program, witness)
        else:
            raise _Unknown("the coin's witness version has no rules yet")

    def _check_version_0(self, index: int, program: bytes, witness: tuple[bytes, ...]) -> None:
        if not witness:
            raise _Wrong("it is not signed: its witness is empty")
        if len(program) == 20:
            if len(witness) != 2:
                raise _Wrong(f"its witness must have 2 items, not {len(witness)}")
            script, items = b"\x76\xa9\x14" + program + b"\x88\xac", list(witness)
        elif len(program) == 32:
            *items, script = witness
            if hashlib.sha256(script).digest() != program:
                raise _Wrong("its witness script does not match the hash in the coin's script")
        else:
            raise _Wrong("the coin's witness program has the wrong length: nobody can spend it")
        if len(script) > MAX_SCRIPT_SIZE or any(len(item) > _MAX_ITEM_SIZE for item in items):
            raise _Wrong("an item of its witness is too long")
        if (template := _template(script)) is None:
            raise _Unknown("its witness script is not of a supported type")

        def hasher(hash_type: int) -> bytes | None:
            return self._hashes.segwit(index, script, hash_type)

        self._satisfy(template, items, hasher, is_exact=True)

    def _legacy(self, index: int, script: bytes) -> _Hasher:
        return lambda hash_type: self._hashes.legacy(index, script, hash_type)

    # ECDSA

    def _satisfy(self, template: _Template, items: Sequence[bytes], hasher: _Hasher, *, is_exact: bool) -> None:
        """Check that the items on the stack satisfy a script.

        Args:
            template: The keys and signatures that the script needs.
            items: The stack, with its top last.
            hasher: Function that computes the hashes that are signed.
            is_exact: True for segwit, where no item may be left over.
        """
        wanted = template.required + (1 if template.is_multi or template.key_hash is not None else 0)
        if len(items) < wanted or (is_exact and len(items) > wanted):
            raise _Wrong("it is not signed" if not items else f"expected {wanted} items, got {len(items)}")
        if len(items) > wanted:
            self._unrelayed = "its scriptSig contains more items than the script needs"
        keys, signatures = template.keys, list(items[-template.required :])
        if template.key_hash is not None:
            keys, signatures = (items[-1],), [items[-2]]
            if hash160(items[-1]) != template.key_hash:
                raise _Wrong("its public key does not match the hash in the coin's script")
        if template.is_multi and items[-wanted]:
            raise _Wrong("the item before the signatures must be empty (BIP-147)")
        for key in keys:
            if is_exact and len(key) != 33:
                self._unrelayed = "its public key is not compressed"
            elif len(key) == 65 and key[0] != 4:
                self._unrelayed = "its public key is in hybrid form"
        hashes: dict[int, bytes] = {}
        at = 0
        for number, signature in enumerate(signatures):
            if _der_signature(signature) is None:
                raise _Wrong("a signature is missing" if not signature else "a signature is not strict DER (BIP-66)")
            while not self._is_signed(keys[at], signature, hasher, hashes):
                at += 1
                if len(keys) - at < len(signatures) - number:
                    raise _Wrong("a signature is wrong")
            at += 1
            self._note_form(signature)

    def _note_form(self, signature: bytes) -> None:
        numbers = _der_signature(signature)
        if numbers is not None and numbers[1] > ORDER // 2:
            self._unrelayed = "a signature has a high s"
        elif signature[-1] & ~SIGHASH_ANYONECANPAY not in (1, 2, 3):
            self._unrelayed = "a signature has an undefined hash type"

    def _is_signed(self, key: bytes, signature: bytes, hasher: _Hasher, hashes: dict[int, bytes]) -> bool:
        """Return True if a strict DER signature is valid for a key. `hashes` caches the hash for each type."""
        numbers, point = _der_signature(signature), compressed_key(key)
        if numbers is None or point is None or not all(0 < number < ORDER for number in numbers):
            return False
        curve = self._spend_check()
        hash_type = signature[-1]
        if hash_type not in hashes:
            digest = hasher(hash_type)
            if digest is None:
                raise _Unknown("the transaction has too many inputs to verify all signatures")
            hashes[hash_type] = digest
        r, s = numbers[0], min(numbers[1], ORDER - numbers[1])
        return curve.is_ecdsa(point, hashes[hash_type], r.to_bytes(32, "big") + s.to_bytes(32, "big"))

    def _spend_check(self) -> Curve:
        """Count a verified signature. Raises _Unknown if there were too many, or libsecp256k1 is not installed."""
        if self._curve is None:
            raise _Unknown(f"signatures are not verified without wallycore; {remedy('descriptors')}")
        self._checks += 1
        if self._checks > MAX_CHECKS:
            raise _Unknown("the transaction has too many signatures to verify all")
        return self._curve

    def _find_signature(self, template: _Template, items: Sequence[bytes], hasher: _Hasher) -> None:
        """Check that a scriptSig with operations other than pushes contains at least one valid signature.

        Operations cannot create a key or a signature, because numbers are shorter and hashes are random. The script can
        check only pushed data, so the input is wrong if none of that is a valid signature.
        """
        keys = template.keys
        if template.key_hash is not None:
            keys = tuple({item: None for item in items if hash160(item) == template.key_hash})
        hashes: dict[int, bytes] = {}
        for signature in {item: None for item in items if _der_signature(item) is not None}:
            for key in keys:
                if self._is_signed(key, signature, hasher, hashes):
                    return
        raise _Wrong("no signature in its scriptSig is valid")

    # Taproot

    def _check_taproot(self, index: int, program: bytes, witness: tuple[bytes, ...]) -> None:
        if not witness:
            raise _Wrong("it is not signed: its witness is empty")
        annex: bytes | None = None
        if len(witness) >= 2 and witness[-1][:1] == bytes((_ANNEX_TAG,)):
            *witness_items, annex = witness
            witness = tuple(witness_items)
        if len(witness) > 1:
            self._check_commitment(program, *witness[-2:])
            raise _Unknown("taproot scripts are not evaluated")
        signature = witness[0]
        if len(signature) not in (64, 65) or (len(signature) == 65 and signature[64] == SIGHASH_DEFAULT):
            raise _Wrong("its signature must be 64 bytes long, or 65 with a hash type")
        hash_type = signature[64] if len(signature) == 65 else SIGHASH_DEFAULT
        try:
            digest = self._hashes.taproot(index, hash_type, annex)
        except ParameterError as error:
            raise _Wrong(f"its signature is wrong: {error}") from None
        if digest is None:
            raise _Unknown("its taproot signature commits to outputs that are unknown")
        if not self._spend_check().is_schnorr(program, digest, signature[:64]):
            raise _Wrong("its signature is wrong")
        if annex is not None:
            self._unrelayed = "it has an annex"

    def _check_commitment(self, program: bytes, script: bytes, control: bytes) -> None:
        """Check that the output key commits to a script (BIP-341)."""
        if not 33 <= len(control) <= _MAX_CONTROL_SIZE or (len(control) - 33) % 32:
            raise _Wrong(f"its control block must not be {len(control)} bytes long")
        node = tagged_hash("TapLeaf", bytes((control[0] & 0xFE,)) + compact_size(len(script)) + script)
        for at in range(33, len(control), 32):
            node = tagged_hash("TapBranch", b"".join(sorted((node, control[at : at + 32]))))
        curve = self._spend_check()
        try:
            key = curve.tweak_key(b"\x02" + control[1:33], tagged_hash("TapTweak", control[1:33] + node))
        except ValueError:
            key = b""
        if key != bytes((2 + (control[0] & 1),)) + program:
            raise _Wrong("its control block does not commit to the coin's output key")


def _evaluated(script_sig: bytes) -> tuple[list[bytes], bool]:
    """Return the items that a scriptSig pushes, and whether it does nothing else."""
    operations = operations_of(script_sig)
    if operations is None or len(script_sig) > MAX_SCRIPT_SIZE:
        raise _Wrong("its scriptSig is malformed" if operations is None else "its scriptSig is too long")
    items: list[bytes] = []
    is_push_only = True
    for opcode, data in operations:
        if data is not None:
            items.append(data)
        elif opcode == 0x4F:  # OP_1NEGATE
            items.append(b"\x81")
        elif 0x51 <= opcode <= 0x60:  # OP_1 to OP_16
            items.append(bytes((opcode - 0x50,)))
        else:
            is_push_only = False
    if any(len(item) > _MAX_ITEM_SIZE for item in items):
        raise _Wrong("its scriptSig pushes an item that is too long")
    if len(items) > _MAX_ITEMS:
        raise _Unknown("its scriptSig pushes too many items")
    return items, is_push_only
