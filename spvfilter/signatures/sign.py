"""Signatures for the inputs of a transaction, made with given private keys.

It can sign P2PK, P2PKH, multisig, segwit and taproot inputs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256

from spvfilter.errors import ParameterError, remedy
from spvfilter.hashes import hash160
from spvfilter.kernel import is_p2pk, multisig_keys
from spvfilter.primitives import TxOut
from spvfilter.signatures.curve import ORDER, Curve, find_curve
from spvfilter.signatures.sighash import SIGHASH_ALL, SIGHASH_DEFAULT, SigHashes, tagged_hash
from spvfilter.transaction import Transaction, TxIn, serialize

_PRIME = 2**256 - 2**32 - 977  # of the curve's field
_NO_KEY = "no private key in `keys` matches its script"


class KeyRing:
    """Private keys, looked up by the public keys and hashes in scripts.

    Raises ParameterError if a private key is invalid, or if there are private keys but libsecp256k1 is not installed.
    """

    def __init__(self, secrets: Iterable[bytes]) -> None:
        self._secrets: dict[bytes, bytes] = {}  # keyed by 33-byte public key
        self._keys: dict[bytes, bytes] = {}  # these public keys, keyed by hash160
        for number, secret in enumerate(secrets):
            if len(secret) != 32 or not 0 < int.from_bytes(secret, "big") < ORDER:
                raise ParameterError(f"keys[{number}] is not a private key: expected 32 bytes, from 1 to n - 1")
            key = _curve().public_key(secret)
            self._secrets[key] = secret
            self._keys[hash160(key)] = key

    @cached_property
    def _uncompressed(self) -> dict[bytes, bytes]:
        """The 65-byte public keys, keyed by hash160."""
        forms = map(_uncompressed, self._secrets)
        return {hash160(form): form for form in forms}

    @cached_property
    def _tweaked(self) -> dict[bytes, bytes]:
        """Private keys, keyed by the x coordinate of the public key or of its taproot output key (BIP-86)."""
        found: dict[bytes, bytes] = {}
        for key, secret in self._secrets.items():
            even = secret if key[0] == 2 else (ORDER - int.from_bytes(secret, "big")).to_bytes(32, "big")
            tweaked = _curve().tweak_secret(even, tagged_hash("TapTweak", key[1:]))
            found.update({key[1:]: secret, _curve().public_key(tweaked)[1:]: tweaked})
        return found

    def key_of(self, digest: bytes) -> bytes:
        """Return the public key, 33 or 65 bytes, with this hash160."""
        key = self._keys.get(digest) or self._uncompressed.get(digest)
        if key is None:
            raise _MissingError(_NO_KEY)
        return key

    def witness_program(self, digest: bytes) -> bytes | None:
        """Return the P2WPKH script whose hash160 is `digest`, or None if the key ring lacks its private key."""
        programs = (b"\x00\x14" + hashed for hashed in self._keys)
        return next((program for program in programs if hash160(program) == digest), None)

    def __contains__(self, key: bytes) -> bool:
        return _compressed(key) in self._secrets

    def ecdsa(self, key: bytes, digest: bytes) -> bytes:
        """Sign a hash with the private key of `key`, and return the signature in strict DER with SIGHASH_ALL."""
        return _der(_curve().sign_ecdsa(_found(self._secrets, _compressed(key)), digest)) + bytes((SIGHASH_ALL,))

    def schnorr(self, output_key: bytes, digest: bytes) -> bytes:
        """Sign a hash for a taproot output key: a public key, either as it is or tweaked without scripts (BIP-86)."""
        return _curve().sign_schnorr(_found(self._tweaked, output_key), digest)


def _found(secrets: Mapping[bytes, bytes], key: bytes) -> bytes:
    secret = secrets.get(key)
    if secret is None:
        raise _MissingError(_NO_KEY)
    return secret


def _compressed(key: bytes) -> bytes:
    """Return a public key of 33 or 65 bytes as 33 bytes."""
    return key if len(key) == 33 else bytes((2 + key[-1] % 2,)) + key[1:33]


def _curve() -> Curve:
    curve = find_curve()
    if curve is None:
        raise ParameterError(f"signing needs wallycore; {remedy('descriptors')}")
    return curve


class _MissingError(Exception):
    """A private key or a script is missing."""


def sign_inputs(
    inputs: Sequence[TxIn],
    outputs: Sequence[TxOut],
    keys: Iterable[bytes],
    *,
    version: int,
    lock_time: int,
    others: Container[bytes] | None = None,
) -> list[TxIn]:
    """Return the inputs of a transaction, signed with private keys. `build_tx` explains the arguments.

    Inputs that spend scripts in `others` stay as they are if no key matches. None means all inputs that contain another
    signer's data.

    Raises ParameterError if a private key is invalid, if an input cannot be signed, or if libsecp256k1 is not
    installed.
    """
    ring = KeyRing(keys)
    tx = Transaction.parse(serialize(inputs, outputs, version=version, lock_time=lock_time))
    hashes = SigHashes(tx, [txin.spent for txin in inputs])
    return [_Input(hashes, number, txin, ring).signed(others) for number, txin in enumerate(inputs)]


class _Input:
    """An input to sign."""

    def __init__(self, hashes: SigHashes, number: int, txin: TxIn, ring: KeyRing) -> None:
        self._hashes = hashes
        self._number = number
        self._txin = txin
        self._ring = ring

    def signed(self, others: Container[bytes] | None) -> TxIn:
        """Return the input with its signatures, or unchanged if its script needs none or others have signed it."""
        txin = self._txin
        if txin.spent is None:
            if txin.script_sig or txin.witness:
                return txin
            raise self._error("give `spent`, the output that it spends")
        script = txin.spent.script_pubkey
        try:
            if _is_program(script):
                return replace(txin, witness=self._witness(script))
            if len(script) == 23 and script[:2] == b"\xa9\x14":
                return self._script_hash(script[2:22])
            items = self._legacy(script)
        except _MissingError as missing:
            if self._has_data(script) if others is None else script in others:
                return txin
            raise self._error(str(missing)) from None
        return txin if items is None else replace(txin, script_sig=b"".join(map(_push, items)))

    def _error(self, what: str) -> ParameterError:
        return ParameterError(f"cannot sign input {self._number}, which spends {self._txin.outpoint}: {what}")

    def _has_data(self, script: bytes) -> bool:
        """Return True if the input contains signatures or other data in addition to its redeem or witness script."""
        redeem, witness = _last_push(self._txin.script_sig), self._txin.witness
        is_hashed = (len(script) == 34 and script[0] == 0) or len(script) == 23
        return len(witness) > is_hashed or self._txin.script_sig not in (b"", b"" if redeem is None else _push(redeem))

    def _script_hash(self, digest: bytes) -> TxIn:
        redeem = _last_push(self._txin.script_sig)
        if redeem is None or hash160(redeem) != digest:
            redeem = self._ring.witness_program(digest)
        if redeem is None:
            raise _MissingError("push its redeem script at the end of `script_sig`, or give its private key")
        if _is_program(redeem):
            return replace(self._txin, script_sig=_push(redeem), witness=self._witness(redeem))
        items = self._legacy(redeem)
        return self._txin if items is None else replace(self._txin, script_sig=b"".join(map(_push, (*items, redeem))))

    def _legacy(self, script: bytes) -> list[bytes] | None:
        return self._items(script, self._hashes.legacy(self._number, script, SIGHASH_ALL))

    def _witness(self, program: bytes) -> tuple[bytes, ...]:
        """Return the witness for a witness program."""
        witness = self._txin.witness
        if program[:2] == b"\x51\x20":
            digest = self._hashes.taproot(self._number, SIGHASH_DEFAULT)
            if digest is None:
                raise _MissingError("a taproot signature needs `spent` for all inputs")
            return (self._ring.schnorr(program[2:], digest),)
        if len(program) == 22:
            script = b"\x76\xa9" + program[1:] + b"\x88\xac"
        elif witness and sha256(witness[-1]).digest() == program[2:]:
            script = witness[-1]
        else:
            raise _MissingError("give its witness script as the last item of `witness`")
        items = self._items(script, self._hashes.segwit(self._number, script, SIGHASH_ALL))
        return witness if items is None else (*items, script) if len(program) == 34 else tuple(items)

    def _items(self, script: bytes, digest: bytes | None) -> list[bytes] | None:
        """Return the items that satisfy a script, or None if it is not pk(), pkh() or multi()."""
        if digest is None:
            raise _MissingError("there are too many inputs")
        if len(script) == 25 and script[:3] == b"\x76\xa9\x14" and script[23:] == b"\x88\xac":
            key = self._ring.key_of(script[3:23])
            return [self._ring.ecdsa(key, digest), key]
        if is_p2pk(script):
            return [self._ring.ecdsa(script[1:-1], digest)]
        if keys := multisig_keys(script):
            required = script[0] - 0x50
            known = [key for key in keys if key in self._ring][:required]
            if len(known) < required:
                raise _MissingError(
                    f"{required} private keys are needed, but only {len(known)} of the given keys match"
                )
            return [b"", *(self._ring.ecdsa(key, digest) for key in known)]
        return None


def _is_program(script: bytes) -> bool:
    """Return True for P2WPKH, P2WSH and P2TR."""
    return script[:2] in (b"\x00\x14", b"\x00\x20", b"\x51\x20") and len(script) == 2 + script[1]


def _last_push(script: bytes) -> bytes | None:
    """Return the data of the last push of a script, or None if the script contains anything but pushes."""
    at, data = 0, None
    while at < len(script):
        size, width = script[at], 0
        if size > 0x4E:  # OP_1 and others
            return None
        if size > 0x4B:  # OP_PUSHDATA1, 2, 4
            width = 1 << (size - 0x4C)
            size = int.from_bytes(script[at + 1 : at + 1 + width], "little")
        at += 1 + width + size
        data = script[at - size : at]
    return data if at == len(script) else None


def _push(data: bytes) -> bytes:
    """Encode the shortest push of data. An empty item is OP_0."""
    size = len(data)
    if size <= 75:
        return bytes((size,)) + data
    return bytes((0x4C, size)) + data if size <= 0xFF else b"\x4d" + size.to_bytes(2, "little") + data


def _uncompressed(key: bytes) -> bytes:
    """Convert a 33-byte public key to its 65-byte form."""
    x = int.from_bytes(key[1:], "big")
    y = pow(x**3 + 7, (_PRIME + 1) // 4, _PRIME)
    return b"\x04" + key[1:] + (y if y % 2 == key[0] % 2 else _PRIME - y).to_bytes(32, "big")


def _der(signature: bytes) -> bytes:
    """Encode r and s, 64 bytes in total, in DER (BIP-66)."""
    numbers = b""
    for part in (signature[:32], signature[32:]):
        value = int.from_bytes(part, "big")
        number = value.to_bytes(value.bit_length() // 8 + 1, "big")  # with room for a sign bit
        numbers += bytes((2, len(number))) + number
    return bytes((0x30, len(numbers))) + numbers
