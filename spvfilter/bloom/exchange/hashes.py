"""SparkHash and RedisBloomHash: the hash families of other programs' filters, which the kernel implements."""

from __future__ import annotations

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import Family

_LEAST, _MOST = -(1 << 31), (1 << 31) - 1  # of an i32


@public
@dataclass(frozen=True, slots=True)
class SparkHash:
    """The hash functions of Spark's BloomFilter, as a hash family.

    Version 1 is that of Spark before 4.1, version 2, which has a seed, an i32, of later ones; it needs a filter's whole
    64-bit range. Keys that are encoded as int64 are Spark's integers (putLong), as utf-8 its strings, bytes its
    binaries. Raises ParameterError for other versions, a seed in version 1, and one that is no i32.
    """

    version: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        if self.version not in (1, 2):
            raise ParameterError(f"version must be 1 or 2: {self.version!r}")
        if not isinstance(self.seed, int) or not _LEAST <= self.seed <= _MOST:
            raise ParameterError(f"seed is not an i32: {self.seed!r}")
        if self.version == 1 and self.seed:
            raise ParameterError(f"version 1 has no seed: {self.seed!r}")

    @property
    def family(self) -> Family:
        """That of its version."""
        return Family.SPARK_V1 if self.version == 1 else Family.SPARK_V2

    @property
    def key(self) -> bytes:
        """The seed as i32, then 12 zeros."""
        return self.seed.to_bytes(4, "little", signed=True) + bytes(12)

    def functions(self, hash_funcs: int) -> None:
        """None: the kernel implements the family."""


@public
@dataclass(frozen=True, slots=True)
class RedisBloomHash:
    """The hash functions of RedisBloom, as a hash family."""

    family = Family.REDISBLOOM
    key = bytes(16)

    def functions(self, hash_funcs: int) -> None:
        """None: the kernel implements the family."""
