"""Hash families: how a filter derives the k positions of a key."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from spvfilter._public import public
from spvfilter.bloom.exchange import foreignhashes, hashes
from spvfilter.errors import ParameterError
from spvfilter.kernel import Family


@public
class HashFamily(Protocol):
    """A family of hash functions. The file of a filter stores `family` and `key`."""

    @property
    def family(self) -> Family:
        """Number of the family. It never changes, because files contain it."""
        ...

    @property
    def key(self) -> bytes:
        """16-byte value, such as a seed, that distinguishes two hash families with the same number."""
        ...

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]] | None:
        """Return `hash_funcs` custom functions, or None if the kernel implements the family."""
        ...


def _check_u32(value: int, name: str) -> None:
    if not isinstance(value, int) or not 0 <= value <= 0xFFFFFFFF:
        raise ParameterError(f"{name} must be a whole number from 0 to 2^32 - 1, not {value!r}")


@public
@dataclass(frozen=True, slots=True)
class Bip37Hash:
    """The hash family of BIP-37: function i is murmur3 x86_32 with the seed i * 0xFBA4C795 + tweak, modulo m.

    A filter with this family has m bits, at most 2^32.

    Raises ParameterError unless `tweak` is a u32.
    """

    tweak: int = 0
    """Tweak of the filter, a u32."""
    family = Family.BIP37
    """Number of the family in files."""

    def __post_init__(self) -> None:
        _check_u32(self.tweak, "tweak")

    @property
    def key(self) -> bytes:
        """The tweak as u32 (little endian), then 12 zero bytes."""
        return self.tweak.to_bytes(4, "little") + bytes(12)

    def functions(self, hash_funcs: int) -> None:
        """Return None, because the kernel implements the family."""


@public
@dataclass(frozen=True, slots=True)
class FastHash:
    """The default hash family: all functions are derived from one murmur3 x64_128 of the key.

    Its result has two halves, h1 and h2. Function i is h1 + i * h2, mixed again and mapped onto m bits by
    multiply-shift. Do not use this family if an attacker can choose the keys. Raises ParameterError unless `seed` is a
    u32.
    """

    seed: int = 0
    """Seed of murmur3, a u32."""
    family = Family.FAST
    """Number of the family in files."""

    def __post_init__(self) -> None:
        _check_u32(self.seed, "seed")

    @property
    def key(self) -> bytes:
        """The seed as u32 (little endian), then 12 zero bytes."""
        return self.seed.to_bytes(4, "little") + bytes(12)

    def functions(self, hash_funcs: int) -> None:
        """Return None, because the kernel implements the family."""


@public
@dataclass(frozen=True, slots=True)
class SipHash:
    """A hash family whose functions are derived from one SipHash-2-4 of the key, with a 16-byte secret.

    An attacker without the secret cannot choose keys that fill the filter or that are false positives. Raises
    ParameterError unless `key` is 16 bytes long.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    """Secret key of SipHash, 16 bytes; random by default. Files of the filter contain it."""
    family = Family.SIPHASH
    """Number of the family in files."""

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes) or len(self.key) != 16:
            raise ParameterError("a SipHash key must be 16 bytes long")

    def functions(self, hash_funcs: int) -> None:
        """Return None, because the kernel implements the family."""


@public
@dataclass(frozen=True, slots=True)
class CustomHash:
    """A custom family of hash functions, written in Python.

    It is one function `f(key, i) -> int`, or a list of k functions `f(key) -> int`. The filter reduces their results
    modulo its number of bits. The functions receive encoded keys. The file of a filter stores a hash of `name`, and can
    be opened only with a family of the same name. Raises ParameterError if the name is empty.
    """

    name: str
    """Name of the family, not empty."""
    function: Callable[[bytes, int], int] | Sequence[Callable[[bytes], int]] = field(compare=False)
    """Function of the encoded key and of the function's number, from 0; or a list of k functions of the encoded key."""
    family = Family.CUSTOM
    """Number of the family in files."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ParameterError("a custom hash family needs a name")

    @property
    def key(self) -> bytes:
        """The first 16 bytes of the SHA-256 of the name."""
        return hashlib.sha256(self.name.encode()).digest()[:16]

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]]:
        """Return `hash_funcs` functions. Raises ParameterError if the family is a list of a different length."""
        if callable(self.function):
            return [partial(_call, self.function, i) for i in range(hash_funcs)]
        if len(self.function) != hash_funcs:
            raise ParameterError(f"expected {hash_funcs} hash functions, but {self.name!r} has {len(self.function)}")
        return list(self.function)


def _call(function: Callable[[bytes, int], int], i: int, data: bytes) -> int:
    return function(data, i)


def refuse_other_objects(hashing: object) -> None:
    """Raise TypeError unless `hashing` is a hash family."""
    if isinstance(hashing, type):
        raise TypeError(f"expected a hash family, not the class {hashing.__name__}: pass {hashing.__name__}()")
    if not all(hasattr(hashing, name) for name in ("family", "key", "functions")):
        raise TypeError(f"expected a hash family such as SipHash(), not {type(hashing).__name__}")


def stored_family(number: int, key: bytes, given: HashFamily | None) -> HashFamily:
    """Return the hash family that a file's header describes.

    Raises ParameterError if `given` is a different family, or if it is missing for a custom family. Raises TypeError if
    `given` is not a hash family.
    """
    if given is not None:
        refuse_other_objects(given)
    if number == Family.CUSTOM:
        if given is None and (known := foreignhashes.family_of(key)) is not None:
            return known
        if given is None or given.family != Family.CUSTOM:
            raise ParameterError("the file was made with a custom hash family: in Python, pass the family as `hashing`")
        if given.key != key:
            raise ParameterError("the file was made with a hash family of a different name")
        return given
    seed = int.from_bytes(key[:4], "little")
    match number:
        case Family.BIP37:
            stored: HashFamily = Bip37Hash(seed)
        case Family.FAST:
            stored = FastHash(seed)
        case Family.SPARK_V1:
            stored = hashes.SparkHash(1)
        case Family.SPARK_V2:
            stored = hashes.SparkHash(2, int.from_bytes(key[:4], "little", signed=True))
        case Family.REDISBLOOM:
            stored = hashes.RedisBloomHash()
        case _:
            stored = SipHash(key)
    if given is not None and given != stored:
        raise ParameterError(f"the file was not made with {given!r}")
    return stored
