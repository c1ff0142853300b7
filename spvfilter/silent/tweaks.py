"""The search for silent payments by the tweaks of a block's transactions, which a server computes (BIP-352)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spvfilter.errors import FormatError
from spvfilter.kernel import walk_block
from spvfilter.silent.scanner import SilentOutput, SilentScanner, find_by_tweak
from spvfilter.silent.search import Payment, groups_of

MAX_TWEAKS = 9_009
"""Largest number of tweaks in a block: a transaction with one input and one taproot output weighs 444 units."""
_P2TR = b"\x51\x20"
_P2TR_SIZE = 34


def first_scripts(tweaks: Iterable[bytes], scanners: Sequence[SilentScanner]) -> list[bytes]:
    """Return the scripts of the first outputs with which transactions with these tweaks would pay the addresses.

    If none of these scripts is in a block, no transaction with these tweaks pays an address there. Raises FormatError
    if a tweak is not a point on the curve.
    """
    return [
        _P2TR + key
        for tweak in dict.fromkeys(tweaks)
        for scanner in scanners
        for key, _ in scanner.keys(_shared(scanner, tweak), 0)
    ]


def search_block_by_tweaks(raw: bytes, tweaks: Iterable[bytes], scanners: Sequence[SilentScanner]) -> list[Payment]:
    """Search a block, given the tweaks of its transactions in any order.

    Raises FormatError if the block is malformed, or if it has taproot outputs and a tweak is not on the curve.
    """
    outputs = [_taproot_keys(raw, span.outputs) for span in walk_block(raw)]
    holders: dict[bytes, list[int]] = {}
    for at, keys in enumerate(outputs):
        for key in keys:
            holders.setdefault(key, []).append(at)
    groups = groups_of(scanners)
    found: list[Payment] = []
    for tweak in dict.fromkeys(tweaks) if holders else ():
        for group in groups:
            together = [scanners[number] for number in group]
            secret = _shared(together[0], tweak)
            first = (key for scanner in together for key, _ in scanner.keys(secret, 0))
            for at in {at for key in first for at in holders.get(key, ())}:
                found += (
                    Payment(group[owner], SilentOutput(index, key, whole, label))
                    for owner, key, label, whole in find_by_tweak(together, secret, outputs[at])
                    for index in outputs[at][key]
                )
    return found


def _shared(scanner: SilentScanner, tweak: bytes) -> bytes:
    if (secret := scanner.shared(tweak)) is None:
        raise FormatError("it is not a point on the secp256k1 curve", offset=0, field="tweak")
    return secret


def _taproot_keys(raw: bytes, outputs: Iterable[tuple[int, int, int]]) -> dict[bytes, list[int]]:
    """Return the indexes of a transaction's taproot outputs, by their x-only keys."""
    keys: dict[bytes, list[int]] = {}
    for index, (_, start, end) in enumerate(outputs):
        if end - start == _P2TR_SIZE and raw.startswith(_P2TR, start):
            keys.setdefault(raw[start + 2 : end], []).append(index)
    return keys
