"""Script templates: constant bytes, and slots for keys, from which the script of each index is assembled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spvfilter.hashes import hash160

Derive = Callable[[Sequence[int]], list[bytes]]
"""A function that returns the public key or the script of each of the given indexes."""
Bind = Callable[[int], Derive]
"""A function that takes the number of a path in the multipath, and returns the function for that path."""
Step = int | tuple[int, ...]
"""A step of a path: a number, or the numbers of a multipath. Hardened steps are 2^31 or more."""


class Key(NamedTuple):
    """A key expression that is ready to derive public keys."""

    at: int
    """Offset of the key in the descriptor."""
    size: int
    """Size of its public keys in bytes: 33 or 65, or 32 in taproot."""
    paths: int
    """Number of paths of its multipath <…>. It is 1 if the key has no multipath."""
    is_ranged: bool
    """True if the key has a wildcard, so each index has a different public key."""
    bind: Bind
    """Function that takes the number of a path, and returns a function that derives the public key of each index."""
    fingerprint: bytes = b""
    """First 4 bytes of the HASH160 of the master key. Empty for musig(), which has several keys."""
    steps: tuple[Step, ...] = ()
    """Steps from the master key to the key, without the wildcard."""

    def path(self, path: int, index: int) -> tuple[int, ...]:
        """Return the derivation path from the master key. `path` is the number of the path in the multipath."""
        numbers = (step if isinstance(step, int) else step[path] for step in self.steps)
        return (*numbers, *([index] if self.is_ranged else []))


@dataclass(frozen=True, slots=True)
class Slot:
    """A part of a script that contains keys."""

    keys: tuple[Key, ...]
    """The keys."""
    write: Callable[[list[bytes]], bytes]
    """Function that returns this part of the script, given the public keys of an index."""
    size: int
    """Size of the part in bytes."""


Script = tuple[bytes | Slot, ...]
"""A template: its parts in the order of the script."""


def size_of(script: Script) -> int:
    """Return the size of a template's scripts in bytes. It is the same for all indexes."""
    return sum(len(part) if isinstance(part, bytes) else part.size for part in script)


def keys_of(script: Script) -> list[Key]:
    """Return the keys of a template, in the order of the script."""
    return [key for part in script if isinstance(part, Slot) for key in part.keys]


def assemble(script: Script, path: int) -> Derive:
    """Return the function that derives the script of each index, for path number `path`."""
    parts: list[tuple[bytes, Callable[[list[bytes]], bytes] | None, list[Derive]]] = [
        (part, None, []) if isinstance(part, bytes) else (b"", part.write, [key.bind(path) for key in part.keys])
        for part in script
    ]

    def derive(indexes: Sequence[int]) -> list[bytes]:
        derived = [(constant, write, [key(indexes) for key in keys]) for constant, write, keys in parts]
        return [
            b"".join(
                constant if write is None else write([key[at] for key in keys]) for constant, write, keys in derived
            )
            for at in range(len(indexes))
        ]

    return derive


def pushed_key(key: Key) -> Slot:
    """Return the slot that pushes a public key."""
    prefix = bytes((key.size,))
    return Slot((key,), lambda keys: prefix + keys[0], key.size + 1)


def pushed_key_hash(key: Key) -> Slot:
    """Return the slot that pushes the HASH160 of a public key."""
    return Slot((key,), lambda keys: b"\x14" + hash160(keys[0]), 21)


def pushed_keys(keys: tuple[Key, ...], *, is_sorted: bool) -> Slot:
    """Return the slot that pushes several public keys, in the given order or sorted (BIP-67)."""

    def write(found: list[bytes]) -> bytes:
        return b"".join(bytes((len(key),)) + key for key in (sorted(found) if is_sorted else found))

    return Slot(keys, write, sum(key.size + 1 for key in keys))


def summed_keys(keys: tuple[Key, ...], *, is_sorted: bool) -> Slot:
    """Return the slot KEY CHECKSIG, KEY CHECKSIGADD, … of multi_a() or sortedmulti_a() (BIP-387)."""

    def write(found: list[bytes]) -> bytes:
        chosen = sorted(found) if is_sorted else found
        return b"".join(b"\x20" + key + (b"\xba" if number else b"\xac") for number, key in enumerate(chosen))

    return Slot(keys, write, 34 * len(keys))


def pushed_number(number: int) -> bytes:
    """Return the shortest bytes that push a number from 0 to 2^31 - 1: little endian, with a sign bit."""
    if number <= 16:
        return bytes((0x50 + number if number else 0,))
    raw = number.to_bytes(number.bit_length() // 8 + 1, "little")
    return bytes((len(raw),)) + raw
