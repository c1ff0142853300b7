"""The checksum of an output descriptor (BIP-380 § Checksum): eight characters after a '#'."""

from __future__ import annotations

from functools import reduce
from operator import xor

from spvfilter.errors import DescriptorError

_INPUT = "0123456789()[],'/*abcdefgh@:$%{}IJKLMNOPQRSTUVWXYZ&+-.;<=>?!^_|~ijklmnopqrstuvwxyzABCDEFGH`#\"\\ "
_OUTPUT = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_GENERATOR = (0xF5DEE51989, 0xA9FDCA3312, 0x1BAB10E32D, 0x3706B1677A, 0x644D626FFD)
_TERMS = tuple(reduce(xor, (term for bit, term in enumerate(_GENERATOR) if top >> bit & 1), 0) for top in range(1 << 5))
"""The XOR of the generator's terms for each value of the five bits that are shifted out of the state."""
_SIZE = 8  # characters
_HINTS = {
    **dict.fromkeys("‘’′´", ": write ' or h for a hardened step"),  # programs put them in place of the apostrophe
    "…": ": a shortened key; copy the whole key from the wallet",
}
_VALUES = {char: value for value, char in enumerate(_INPUT)}


def checksum(text: str) -> str:
    """Compute the checksum of a descriptor, which is given without one.

    Raises DescriptorError if the descriptor contains a character that is not allowed.
    """
    state, group, count = 1, 0, 0
    for at, char in enumerate(text, 1):
        value = _VALUES.get(char)
        if value is None:
            hint = _HINTS.get(char, "")
            raise DescriptorError(f"character {at}, U+{ord(char):04X}, is not allowed in a descriptor{hint}")
        state = _next(state, value & 31)
        group, count = group * 3 + (value >> 5), count + 1
        if count == 3:
            state, group, count = _next(state, group), 0, 0
    if count:
        state = _next(state, group)
    for _ in range(_SIZE):
        state = _next(state, 0)
    state ^= 1
    return "".join(_OUTPUT[state >> 5 * (_SIZE - 1 - place) & 31] for place in range(_SIZE))


def _next(state: int, value: int) -> int:
    return (state & 0x7FFFFFFFF) << 5 ^ value ^ _TERMS[state >> 35]


def split_checksum(text: str) -> tuple[str, str]:
    """Return a descriptor without its checksum, and the checksum, which is checked if the descriptor contains one.

    Raises DescriptorError if the checksum is wrong or incomplete, or a character is not allowed in descriptors.
    """
    body = without_checksum(text)
    return body, text[len(body) + 1 :] or checksum(body)


def without_checksum(text: str) -> str:
    """Return a descriptor without its checksum, after checking it. A descriptor without one is also accepted.

    Raises DescriptorError if the checksum is wrong or incomplete.
    """
    body, mark, stated = text.partition("#")
    if mark:
        if len(stated) != _SIZE:
            raise DescriptorError(
                f"the checksum after '#' must be {_SIZE} characters long, not {len(stated)}: correct it, or"
                " remove it with the '#'"
            )
        if (right := checksum(body)) != stated:
            raise DescriptorError(
                "the checksum of the descriptor is wrong: it was mistyped or changed; copy it from the wallet again, or"
                f" write #{right} if the text before '#' is right"
            )
    return body
