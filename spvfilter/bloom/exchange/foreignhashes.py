"""The hash families of Guava, pybloom-live, pybloomfiltermmap3, bits-and-blooms and Cassandra, written in Python.

The kernel treats them as custom families. The key of a family contains its name and, where they fit, its parameters, so
that you can reopen a filter file without passing the family. Sources:

- Guava: BloomFilterStrategies of Guava 31.1
- pybloom-live: make_hashfuncs of versions 3.1 and 4.0
- pybloomfiltermmap3: bloomfilter.c of version 0.6.3
- bits-and-blooms: bloom.go and murmur.go of version 3.3
- Cassandra: MurmurHash.hash3_x64_128 and BloomFilter.setIndexes of Cassandra 4.1
"""

from __future__ import annotations

import hashlib
import importlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.hashes import murmur3_x64_128
from spvfilter.kernel import Family

_M31, _M32, _M63, _M64 = (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F  # The multipliers of murmur3 x64_128.
Values = Callable[[bytes], Sequence[int]]


class _Shared:
    """The values of all functions for the key that was hashed last, so that each key is hashed only once."""

    __slots__ = ("_seen", "_values")

    def __init__(self, values: Values) -> None:
        self._values = values
        self._seen: tuple[bytes, Sequence[int]] | None = None

    def value(self, i: int, data: bytes) -> int:
        seen = self._seen
        if seen is None or seen[0] is not data:  # the kernel passes the same object to each function
            self._seen = seen = (data, self._values(data))
        return seen[1][i]


def _functions(values: Values, hash_funcs: int) -> list[Callable[[bytes], int]]:
    shared = _Shared(values)
    return [partial(shared.value, i) for i in range(hash_funcs)]


def _tag(name: str) -> bytes:
    """Return the key of a family: its name, padded with zeros to 16 bytes."""
    return name.encode().ljust(16, b"\0")


@public
@dataclass(frozen=True, slots=True)
class GuavaHash:
    """The hash functions of Guava's BloomFilter, as a hash family. Raises ParameterError if the strategy is unknown."""

    strategy: int = 64
    """64 for MURMUR128_MITZ_64, which Guava uses for new filters; 32 for MURMUR128_MITZ_32, which old ones use."""
    family = Family.CUSTOM
    """Number of the family in files."""

    def __post_init__(self) -> None:
        if self.strategy not in (32, 64):
            raise ParameterError(f"strategy must be 32 or 64, not {self.strategy!r}")

    @property
    def key(self) -> bytes:
        """Name and strategy of the family, 16 bytes."""
        return _tag(f"guava-{self.strategy}")

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]]:
        """Return `hash_funcs` functions."""
        return _functions(partial(_guava_64 if self.strategy == 64 else _guava_32, hash_funcs), hash_funcs)


def _guava_32(count: int, data: bytes) -> Sequence[int]:
    low = murmur3_x64_128(data, 0)[0]
    sums = (low + i * (low >> 32) & _M32 for i in range(1, count + 1))
    return [value ^ _M32 if value > _M31 else value for value in sums]


def _guava_64(count: int, data: bytes) -> Sequence[int]:
    low, high = murmur3_x64_128(data, 0)
    return [low + i * high & _M63 for i in range(count)]


@public
@dataclass(frozen=True, slots=True)
class BitsAndBloomsHash:
    """The hash functions of bits-and-blooms (Go, version 2 and later), as a hash family."""

    family = Family.CUSTOM
    """Number of the family in files."""

    @property
    def key(self) -> bytes:
        """Name of the family, 16 bytes."""
        return _tag("bits-and-blooms")

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]]:
        """Return `hash_funcs` functions."""
        return _functions(partial(_bits_and_blooms, hash_funcs), hash_funcs)


def _bits_and_blooms(count: int, data: bytes) -> Sequence[int]:
    # the second hash covers the key and a byte 1
    hashes = *murmur3_x64_128(data, 0), *murmur3_x64_128(data + b"\x01", 0)
    return [hashes[i % 2] + i * hashes[2 + (i + i % 2) % 4 // 2] & _M64 for i in range(count)]


@public
@dataclass(frozen=True, slots=True)
class CassandraHash:
    """The hash functions of Cassandra's Filter.db, as a hash family.

    Raises ParameterError if the release is unknown.
    """

    release: int = 4
    """2 for Cassandra 1.2 to 2.2, 3 for Cassandra 3, 4 for Cassandra 4 and 5. Releases 3 and 4 hash alike."""
    family = Family.CUSTOM
    """Number of the family in files."""

    def __post_init__(self) -> None:
        if self.release not in (2, 3, 4):
            raise ParameterError(f"release must be 2, 3 or 4 (4 also stands for release 5), not {self.release!r}")

    @property
    def key(self) -> bytes:
        """Name and release of the family, 16 bytes."""
        return _tag(f"cassandra-{self.release}")

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]]:
        """Return `hash_funcs` functions."""
        return _functions(partial(_cassandra, self.release, hash_funcs), hash_funcs)


def _cassandra(release: int, count: int, data: bytes) -> Sequence[int]:
    first, second = cassandra_murmur(data)
    base, step = (first, second) if release == 2 else (second, first)
    sums = (base + i * step & _M64 for i in range(count))
    return [value if value <= _M63 else (1 << 64) - value for value in sums]  # the absolute value of a signed integer


def cassandra_murmur(data: bytes) -> tuple[int, int]:
    """Return Cassandra's murmur3 x64_128 of the data, two u64.

    It is the published murmur3, except that bytes after the last whole 16-byte block are sign extended.
    """
    whole = len(data) & ~15
    if all(byte < 128 for byte in data[whole:]):
        return murmur3_x64_128(data, 0)
    h1 = h2 = 0
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 = (_left((h1 ^ _left(k1 * _C1 & _M64, 31) * _C2) & _M64, 27) + h2) * 5 + 0x52DCE729 & _M64
        h2 = (_left((h2 ^ _left(k2 * _C2 & _M64, 33) * _C1) & _M64, 31) + h1) * 5 + 0x38495AB5 & _M64
    tail = data[whole:]
    h2 ^= _left(_extended(tail[8:]) * _C2 & _M64, 33) * _C1 & _M64
    h1 ^= _left(_extended(tail[:8]) * _C1 & _M64, 31) * _C2 & _M64
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = h1 + h2 & _M64
    h2 = h2 + h1 & _M64
    h1, h2 = _mixed(h1), _mixed(h2)
    h1 = h1 + h2 & _M64
    return h1, h2 + h1 & _M64


def _extended(part: bytes) -> int:
    """Return the XOR of the sign-extended bytes, each at its place."""
    value = 0
    for at, byte in enumerate(part):
        value ^= (byte - 256 if byte > 127 else byte) << 8 * at & _M64
    return value


def _left(value: int, turn: int) -> int:
    return (value << turn | value >> 64 - turn) & _M64


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _M64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _M64
    return value ^ value >> 33


@public
@dataclass(frozen=True, slots=True)
class PybloomLiveHash:
    """The hash functions of pybloom-live, as a hash family. They are parts of a salted digest.

    Raises ParameterError if the version or the size is unsupported. `functions` raises ParameterError if version 4
    needs a digest of xxHash128, because that needs the xxhash package.
    """

    version: int
    """Major version of pybloom-live, 3 or 4. They differ if all functions together take at most 128 bits."""
    size: int
    """Bytes of a digest for each function: 2 below 2^15 bits per slice, 4 below 2^31 bits, else 8."""
    family = Family.CUSTOM
    """Number of the family in files."""

    def __post_init__(self) -> None:
        if self.version not in (3, 4):
            raise ParameterError(f"version must be 3 or 4, not {self.version!r}")
        if self.size not in (2, 4, 8):
            raise ParameterError(f"size must be 2, 4 or 8, not {self.size!r}")

    @property
    def key(self) -> bytes:
        """Name, version and size of the family, 16 bytes."""
        return _tag(f"pybloom-live-{self.version}-{self.size}")

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]]:
        """Return `hash_funcs` functions. Raises ParameterError if the xxhash package is needed and missing."""
        digest, length = _digest(self.version, 8 * hash_funcs * self.size)
        parts = struct.Struct("<" + {2: "H", 4: "I", 8: "Q"}[self.size] * (length // self.size))
        count = -(-hash_funcs * self.size // length)
        salts = [digest(i.to_bytes(4, "little")) for i in range(count)]
        return _functions(partial(_pybloom_live, digest, parts, salts, hash_funcs), hash_funcs)


def _digest(version: int, bits: int) -> tuple[Callable[[bytes], bytes], int]:
    """Return the digest function that pybloom-live chooses for a number of bits, and its length in bytes."""
    for most, name, length in ((384, "sha512", 64), (256, "sha384", 48), (160, "sha256", 32), (128, "sha1", 20)):
        if bits > most:
            return partial(_hashlib, name), length
    if version == 3:
        return partial(_hashlib, "md5"), 16
    try:
        return importlib.import_module("xxhash").xxh3_128_digest, 16
    except ImportError:
        raise ParameterError("this filter of pybloom-live 4 needs xxhash; run `python -m pip install xxhash`") from None


def _hashlib(name: str, data: bytes) -> bytes:
    return hashlib.new(name, data, usedforsecurity=False).digest()


def _pybloom_live(
    digest: Callable[[bytes], bytes], parts: struct.Struct, salts: Iterable[bytes], count: int, data: bytes
) -> Sequence[int]:
    def values() -> Iterator[int]:
        for salt in salts:
            yield from parts.unpack(digest(salt + data))

    return list(islice(values(), count))


@public
@dataclass(frozen=True, slots=True)
class Pybloomfiltermmap3Hash:
    """The hash functions of pybloomfiltermmap3, as a hash family. Raises ParameterError if a seed is not a u32."""

    seeds: tuple[int, ...]
    """Seeds of the functions, each a u32."""
    family = Family.CUSTOM
    """Number of the family in files."""

    def __post_init__(self) -> None:
        if not self.seeds or not all(isinstance(seed, int) and 0 <= seed <= _M32 for seed in self.seeds):
            raise ParameterError("seeds must contain at least one number, each from 0 to 2^32 - 1")

    @property
    def key(self) -> bytes:
        """The first 16 bytes of the SHA-256 of name and seeds: a filter file does not contain the seeds."""
        return hashlib.sha256(b"pybloomfiltermmap3" + struct.pack(f"<{len(self.seeds)}I", *self.seeds)).digest()[:16]

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]]:
        """Return one function for each seed. Raises ParameterError if their number is not `hash_funcs`."""
        if hash_funcs != len(self.seeds):
            raise ParameterError(f"expected {hash_funcs} seeds, not {len(self.seeds)}")
        return [partial(_seeded, seed) for seed in self.seeds]


def _seeded(seed: int, data: bytes) -> int:
    low, high = murmur3_x64_128(data, seed)
    return low ^ high


def family_of(key: bytes) -> BitsAndBloomsHash | CassandraHash | GuavaHash | PybloomLiveHash | None:
    """Return the family of this module with this key, or None. The key does not contain seeds."""
    families: tuple[BitsAndBloomsHash | CassandraHash | GuavaHash | PybloomLiveHash, ...] = (
        BitsAndBloomsHash(),
        *(GuavaHash(strategy) for strategy in (32, 64)),
        *(CassandraHash(release) for release in (2, 3, 4)),
        *(PybloomLiveHash(version, size) for version in (3, 4) for size in (2, 4, 8)),
    )
    return next((family for family in families if family.key == key), None)
