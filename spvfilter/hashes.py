"""Hash functions for Bitcoin's identifiers and filters: double SHA-256, HASH160, MurmurHash3, SipHash-2-4.

Hashes are returned as bytes in wire order. Block explorers show them reversed: see `primitives.hash_to_hex`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import mmh3

from spvfilter._arguments import named
from spvfilter.errors import ParameterError

__all__ = [
    "hash160",
    "murmur3",
    "murmur3_x64_128",
    "sha256d",
    "siphash24",
]

_M64 = (1 << 64) - 1


def sha256d(data: bytes) -> bytes:
    """Return the double SHA-256 of `data`, 32 bytes. Txids, block hashes and checksums use it."""
    try:
        return hashlib.sha256(hashlib.sha256(data).digest()).digest()
    except TypeError as error:
        raise named(sha256d, error, data) from None


def hash160(data: bytes) -> bytes:
    """Return the RIPEMD-160 of the SHA-256 of `data`, 20 bytes. Works even if OpenSSL has no RIPEMD-160."""
    try:
        return _ripemd160(hashlib.sha256(data).digest())
    except TypeError as error:
        raise named(hash160, error, data) from None


def _ripemd160(data: bytes) -> bytes:
    try:
        return hashlib.new("ripemd160", data).digest()
    except ValueError:  # OpenSSL 3 without its legacy provider
        from bitcoin.core.contrib.ripemd160 import ripemd160

        return bytes(ripemd160(data))


def murmur3(data: bytes, seed: int) -> int:
    """Return the MurmurHash3 x86_32 of `data`, a u32 (BIP-37 § Bloom filter format).

    Raises ParameterError if `seed` is not a u32.
    """
    try:
        return mmh3.mmh3_32_uintdigest(data, seed)
    except (TypeError, ValueError) as error:
        raise _refused(murmur3, error, data, seed) from None


def murmur3_x64_128(data: bytes, seed: int) -> tuple[int, int]:
    """Return the MurmurHash3 x64_128 of `data` as two u64. Raises ParameterError if `seed` is not a u32."""
    try:
        return mmh3.mmh3_x64_128_utupledigest(data, seed)
    except (TypeError, ValueError) as error:
        raise _refused(murmur3_x64_128, error, data, seed) from None


def _refused(function: Callable[..., object], error: Exception, data: bytes, seed: int) -> Exception:
    if isinstance(error, ValueError):
        return ParameterError(f"seed must be from 0 to 2^32 - 1, not {seed}")
    return named(function, error, data, seed)


def siphash24(data: bytes, key: bytes) -> int:
    """Return the SipHash-2-4 of `data`, a u64 (Aumasson and Bernstein, SipHash § 2).

    `key` is 16 bytes long: k0 and k1, each as u64 little endian.
    """
    try:
        return _siphash24(data, key)
    except TypeError as error:
        raise named(siphash24, error, data, key) from None


def _siphash24(data: bytes, key: bytes) -> int:
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:16], "little")
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    whole = len(data) & ~7
    words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, whole, 8)]
    words.append((len(data) & 0xFF) << 56 | int.from_bytes(data[whole:], "little"))
    for word in words:
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(*_sip_round(v0, v1, v2, v3))
        v0 ^= word
    v2 ^= 0xFF
    for _ in range(4):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _sip_round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = v0 + v1 & _M64
    v2 = v2 + v3 & _M64
    v1 = (v1 << 13 & _M64 | v1 >> 51) ^ v0
    v3 = (v3 << 16 & _M64 | v3 >> 48) ^ v2
    v0 = v0 << 32 & _M64 | v0 >> 32
    v2 = v2 + v1 & _M64
    v0 = v0 + v3 & _M64
    v1 = (v1 << 17 & _M64 | v1 >> 47) ^ v2
    v3 = (v3 << 21 & _M64 | v3 >> 43) ^ v0
    v2 = v2 << 32 & _M64 | v2 >> 32
    return v0, v1, v2, v3
