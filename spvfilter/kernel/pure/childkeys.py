"""The children of an extended public key (BIP-32 CKDpub), in readable Python: the reference for block/curve.h."""

from __future__ import annotations

from spvfilter.errors import ParameterError
from spvfilter.kernel.pure.arguments import snapshot
from spvfilter.kernel.pure.undo import full_key

_P = 2**256 - 2**32 - 977  # The prime of secp256k1's field.
_N = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141  # The order of the generator.
_G = b"\x02" + bytes.fromhex("79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
_KEY, _TWEAK = 33, 32  # Bytes of a compressed key and of a tweak.

_Point = tuple[int, int] | None  # None is the point at infinity.


def child_keys(parent: bytes, tweaks: bytes, /) -> bytes:
    """For each tweak, return the compressed public key (33 bytes) of the parent key plus the tweak times the generator.

    A key is 33 zero bytes if its tweak is too large for a private key, or if the sum is the point at infinity.

    Args:
        parent: A compressed public key.
        tweaks: The tweaks, 32 bytes each: the left halves of BIP-32.

    Raises:
        ParameterError: The parent is not a compressed public key, or the last tweak is truncated.
    """
    parent, tweaks = snapshot(parent), snapshot(tweaks)
    full = full_key(parent) if len(parent) == _KEY and parent[0] in (2, 3) else None
    if full is None:
        raise ParameterError("the parent must be a compressed public key of 33 bytes")
    if len(tweaks) % _TWEAK:
        raise ParameterError(f"the tweaks must be a multiple of 32 bytes long, not {len(tweaks)}")
    start = _point(full)
    return b"".join(_child(start, tweaks[at : at + _TWEAK]) for at in range(0, len(tweaks), _TWEAK))


def _child(parent: _Point, raw: bytes) -> bytes:
    tweak, found, power = int.from_bytes(raw, "big"), parent, _point(full_key(_G) or b"")
    if tweak >= _N:
        return bytes(_KEY)
    while tweak:
        if tweak & 1:
            found = _sum(found, power)
        tweak, power = tweak >> 1, _sum(power, power)
    return bytes(_KEY) if found is None else bytes((2 + (found[1] & 1),)) + found[0].to_bytes(32, "big")


def _point(full: bytes) -> _Point:
    return int.from_bytes(full[1:33], "big"), int.from_bytes(full[33:], "big")


def _sum(one: _Point, other: _Point) -> _Point:
    """Return the sum of two points."""
    if one is None or other is None:
        return other if one is None else one
    if one[0] != other[0]:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P)
    elif one[1] == other[1]:
        slope = 3 * one[0] ** 2 * pow(2 * one[1], -1, _P)
    else:
        return None
    x = (slope**2 - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P
