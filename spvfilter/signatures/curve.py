"""ECDSA and Schnorr signatures on the secp256k1 curve, using libsecp256k1 from wallycore or btclib-secp256k1."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any, Protocol  # wallycore ships no types

__all__ = ["ORDER", "Curve", "find_curve"]

ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
"""Number of points on the curve. Private keys and both numbers in a signature are below it."""
_PRIME = 2**256 - 2**32 - 977  # of the curve's field: y² = x³ + 7 modulo this prime


class Curve(Protocol):
    """Calculations with keys and signatures. Private keys and hashes are 32 bytes long."""

    def is_ecdsa(self, key: bytes, digest: bytes, signature: bytes) -> bool:
        """Return True if an ECDSA signature is valid. It is 64 bytes, r and s, where s is at most half of ORDER.

        The key is 33 bytes long. The result is False if it is not a point on the curve.
        """
        ...

    def is_schnorr(self, key: bytes, digest: bytes, signature: bytes) -> bool:
        """Return True if a 64-byte BIP-340 signature is valid. The key is 32 bytes long."""
        ...

    def public_key(self, secret: bytes) -> bytes:
        """Return the 33-byte public key of a private key. Raises ValueError if the private key is invalid."""
        ...

    def sign_ecdsa(self, secret: bytes, digest: bytes) -> bytes:
        """Return the 64-byte ECDSA signature of a hash, with an RFC 6979 nonce and a low s."""
        ...

    def sign_schnorr(self, secret: bytes, digest: bytes) -> bytes:
        """Return the 64-byte BIP-340 signature of a hash. The same arguments always give the same signature."""
        ...

    def tweak_key(self, key: bytes, tweak: bytes) -> bytes:
        """Return the 33-byte key `key` + `tweak`·G. Raises ValueError if there is no such key."""
        ...

    def tweak_secret(self, secret: bytes, tweak: bytes) -> bytes:
        """Return the private key `secret` + `tweak`. Raises ValueError if there is no such key."""
        ...


@cache
def find_curve() -> Curve | None:
    """Return the libsecp256k1 of `wallycore` or `btclib-secp256k1`, or None if neither package is installed."""
    for backend in (_Wally, _Btclib):
        try:
            return backend()
        except ImportError:
            continue
    return None


def compressed_key(key: bytes) -> bytes | None:
    """Return a public key of 33 or 65 bytes as 33 bytes, or None if it is not a point on the curve.

    Hybrid keys, which start with 06 or 07, are valid in blocks (secp256k1_ec_pubkey_parse).
    """
    if len(key) == 33 and key[0] in (2, 3):
        return key  # the curve checks it
    if len(key) != 65 or key[0] not in (4, 6, 7):
        return None
    x, y = int.from_bytes(key[1:33], "big"), int.from_bytes(key[33:], "big")
    if x >= _PRIME or y >= _PRIME or (y * y - x * x * x - 7) % _PRIME or (key[0] != 4 and key[0] != 6 + y % 2):
        return None
    return bytes((2 + y % 2,)) + key[1:33]


class _Wally:
    """libsecp256k1 of wallycore, from the `descriptors` extra."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # SWIG's types cause warnings on import; if warnings are errors, the interpreter crashes at exit
            warnings.simplefilter("ignore", DeprecationWarning)
            import wallycore
        self._lib: Any = wallycore

    def is_ecdsa(self, key: bytes, digest: bytes, signature: bytes) -> bool:
        return self._is_valid(key, digest, self._lib.EC_FLAG_ECDSA, signature)

    def is_schnorr(self, key: bytes, digest: bytes, signature: bytes) -> bool:
        return self._is_valid(key, digest, self._lib.EC_FLAG_SCHNORR, signature)

    def _is_valid(self, key: bytes, digest: bytes, kind: int, signature: bytes) -> bool:
        try:
            self._lib.ec_sig_verify(key, digest, kind, signature)
        except (ValueError, RuntimeError):  # a wrong signature; a key that is not a point
            return False
        return True

    def public_key(self, secret: bytes) -> bytes:
        return bytes(self._lib.ec_public_key_from_private_key(secret))

    def sign_ecdsa(self, secret: bytes, digest: bytes) -> bytes:
        return bytes(self._lib.ec_sig_from_bytes(secret, digest, self._lib.EC_FLAG_ECDSA))

    def sign_schnorr(self, secret: bytes, digest: bytes) -> bytes:
        return bytes(self._lib.ec_sig_from_bytes_aux(secret, digest, bytes(32), self._lib.EC_FLAG_SCHNORR))

    def tweak_key(self, key: bytes, tweak: bytes) -> bytes:
        try:
            return bytes(self._lib.ec_public_key_tweak(key, tweak))
        except RuntimeError:
            raise ValueError("there is no such key") from None

    def tweak_secret(self, secret: bytes, tweak: bytes) -> bytes:
        try:
            return bytes(self._lib.ec_scalar_add(secret, tweak))
        except RuntimeError:
            raise ValueError("there is no such private key") from None


class _Btclib:
    """libsecp256k1 of btclib-secp256k1, from the `bip324` and `musig` extras."""

    def __init__(self) -> None:
        from btclib_secp256k1 import dsa, keys, ssa

        self._dsa, self._keys, self._ssa = dsa, keys, ssa

    def is_ecdsa(self, key: bytes, digest: bytes, signature: bytes) -> bool:
        try:
            return self._dsa.verify(digest, key, signature, compact=True)
        except ValueError:
            return False

    def is_schnorr(self, key: bytes, digest: bytes, signature: bytes) -> bool:
        try:
            return self._ssa.verify(digest, key, signature)
        except ValueError:
            return False

    def public_key(self, secret: bytes) -> bytes:
        return self._keys.pubkey_from_prvkey(secret)

    def sign_ecdsa(self, secret: bytes, digest: bytes) -> bytes:
        return self._dsa.sign(digest, secret, compact=True)

    def sign_schnorr(self, secret: bytes, digest: bytes) -> bytes:
        return self._ssa.sign(digest, secret, bytes(32))

    def tweak_key(self, key: bytes, tweak: bytes) -> bytes:
        return self._keys.pubkey_tweak_add(key, tweak)

    def tweak_secret(self, secret: bytes, tweak: bytes) -> bytes:
        return bytes(self._keys.prvkey_tweak_add(secret, tweak) or b"")
