"""The hash functions of Bitcoin's filters and identifiers. Digests are bytes in wire order."""

from __future__ import annotations

import hashlib

import mmh3


def sha256d(data: bytes) -> bytes:
    """Double SHA-256, 32 bytes: txids, block hashes, checksums."""
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def hash160(data: bytes) -> bytes:
    """RIPEMD-160 of SHA-256, 20 bytes. Works where OpenSSL no longer has RIPEMD-160."""
    return _ripemd160(hashlib.sha256(data).digest())


def _ripemd160(data: bytes) -> bytes:
    try:
        return hashlib.new("ripemd160", data).digest()
    except ValueError:  # OpenSSL 3 without its legacy provider
        from bitcoin.core.contrib.ripemd160 import ripemd160

        return bytes(ripemd160(data))


def murmur3(data: bytes, seed: int) -> int:
    """MurmurHash3 x86_32 of `data` as u32, seed u32 (BIP-37 § Bloom filter format)."""
    return mmh3.hash(data, seed, signed=False)
