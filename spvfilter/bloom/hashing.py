"""Hash families as values: how a filter's k functions come from a key. The functions themselves are the kernel's."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import ParameterError
from spvfilter.kernel import Family


@public
class HashFamily(Protocol):
    """What a filter needs to know of its hash functions; a filter's file keeps `family` and `key`."""

    @property
    def family(self) -> Family:
        """The stable number."""
        ...

    @property
    def key(self) -> bytes:
        """16 bytes that tell members of the family apart."""
        ...

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]] | None:
        """The user's own functions; None where the kernel has them."""
        ...


def _check_u32(value: int, name: str) -> None:
    if not isinstance(value, int) or not 0 <= value <= 0xFFFFFFFF:
        raise ParameterError(f"{name} is not a u32: {value!r}")


@public
@dataclass(frozen=True, slots=True)
class Bip37Hash:
    """Function i is murmur3 x86_32 with seed i * 0xFBA4C795 + tweak, modulo m (BIP-37); m ≤ 2^32.

    Raises ParameterError unless `tweak` is a u32.
    """

    tweak: int = 0
    family = Family.BIP37

    def __post_init__(self) -> None:
        _check_u32(self.tweak, "tweak")

    @property
    def key(self) -> bytes:
        """The tweak as u32, then 12 zeros."""
        return self.tweak.to_bytes(4, "little") + bytes(12)

    def functions(self, hash_funcs: int) -> None:
        """None: the kernel has them."""


@public
@dataclass(frozen=True, slots=True)
class FastHash:
    """One murmur3 x64_128 of the key makes all functions: h1 + i * h2, remixed, multiply-shift onto m. For keys that nobody chooses.

    Raises ParameterError unless `seed` is a u32.
    """

    seed: int = 0
    family = Family.FAST

    def __post_init__(self) -> None:
        _check_u32(self.seed, "seed")

    @property
    def key(self) -> bytes:
        """The seed as u32, then 12 zeros."""
        return self.seed.to_bytes(4, "little") + bytes(12)

    def functions(self, hash_funcs: int) -> None:
        """None: the kernel has them."""


@public
@dataclass(frozen=True, slots=True)
class SipHash:
    """One SipHash-2-4 with a secret key of 16 bytes makes all functions: nobody without it can choose keys that fill or hit the filter.

    Raises ParameterError unless `key` has 16 bytes.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    family = Family.SIPHASH

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes) or len(self.key) != 16:
            raise ParameterError("a SipHash key is 16 bytes")

    def functions(self, hash_funcs: int) -> None:
        """None: the kernel has them."""


@public
@dataclass(frozen=True, slots=True)
class CustomHash:
    """A user's own: one function `f(key, i) -> int`, or a list of k functions `f(key) -> int`; results are taken modulo m.

    A filter's file keeps a digest of `name`, so that it is opened again with the same one; keys come to the functions encoded.
    Raises ParameterError for an empty name.
    """

    name: str
    function: Callable[[bytes, int], int] | Sequence[Callable[[bytes], int]] = field(compare=False)
    family = Family.CUSTOM

    def __post_init__(self) -> None:
        if not self.name:
            raise ParameterError("a user's hash family needs a name")

    @property
    def key(self) -> bytes:
        """The first 16 bytes of the SHA-256 of the name."""
        return hashlib.sha256(self.name.encode()).digest()[:16]

    def functions(self, hash_funcs: int) -> Sequence[Callable[[bytes], int]]:
        """Raises ParameterError if a list of functions has not `hash_funcs` of them."""
        if callable(self.function):
            return [partial(_call, self.function, i) for i in range(hash_funcs)]
        if len(self.function) != hash_funcs:
            raise ParameterError(f"{hash_funcs} hash functions wanted, {self.name!r} has {len(self.function)}")
        return list(self.function)


def _call(function: Callable[[bytes, int], int], i: int, data: bytes) -> int:
    return function(data, i)


def stored_family(number: int, key: bytes, given: HashFamily | None) -> HashFamily:
    """The family a file names. Raises ParameterError where it is the user's own and `given` is not it, or another one is given."""
    if number == Family.CUSTOM:
        if given is None or given.family != Family.CUSTOM:
            raise ParameterError("the file was made with a user's own hash family: pass it as `hashing`")
        if given.key != key:
            raise ParameterError("the file was made with a hash family of another name")
        return given
    seed = int.from_bytes(key[:4], "little")
    match number:
        case Family.BIP37:
            stored: HashFamily = Bip37Hash(seed)
        case Family.FAST:
            stored = FastHash(seed)
        case _:
            stored = SipHash(key)
    if given is not None and given != stored:
        raise ParameterError(f"the file was not made with {given!r}")
    return stored
