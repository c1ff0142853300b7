"""SparkHash and RedisBloomHash: hash families of other programs, implemented in the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import Family

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1  # Range of an i32.


@public
@dataclass(frozen=True, slots=True)
class SparkHash:
    """The hash functions of Spark's BloomFilter, as a hash family.

    Version 1 belongs to Spark before 4.1, version 2 to later versions. The type of the keys decides which of Spark's
    methods it matches: "int64" for integers (putLong), "utf-8" for strings, bytes for binaries. Raises ParameterError
    if the version is unknown, if version 1 has a seed, or if the seed is not an i32.
    """

    version: int = 2
    """Version of Spark's hash functions, 1 or 2. Version 2 uses the whole 64-bit range of the hash."""
    seed: int = 0
    """Seed of the hash functions in version 2, an i32. It is 0 in version 1, which has no seed."""

    def __post_init__(self) -> None:
        if self.version not in (1, 2):
            raise ParameterError(f"version must be 1 or 2, not {self.version!r}")
        if not isinstance(self.seed, int) or not _LEAST <= self.seed <= _MOST:
            raise ParameterError(f"seed must be a whole number from -2^31 to 2^31 - 1, not {self.seed!r}")
        if self.version == 1 and self.seed:
            raise ParameterError(f"version 1 takes no seed: omit seed={self.seed!r}")

    @property
    def family(self) -> Family:
        """Number of the hash family in files. The two versions have different numbers."""
        return Family.SPARK_V1 if self.version == 1 else Family.SPARK_V2

    @property
    def key(self) -> bytes:
        """The seed as i32 (little endian), then 12 zero bytes."""
        return self.seed.to_bytes(4, "little", signed=True) + bytes(12)

    def functions(self, hash_funcs: int) -> None:
        """Return None, because the kernel implements the family."""


@public
@dataclass(frozen=True, slots=True)
class RedisBloomHash:
    """The hash functions of RedisBloom, as a hash family."""

    family = Family.REDISBLOOM
    """Number of the family in files."""
    key: ClassVar[bytes] = bytes(16)
    """16 zero bytes: the family has no seed."""

    def functions(self, hash_funcs: int) -> None:
        """Return None, because the kernel implements the family."""
