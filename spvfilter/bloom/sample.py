"""The fill of a filter's cells at a glance: counted if they are few, else estimated from a sample, so that a look takes
no time.
"""

from __future__ import annotations

from typing import NamedTuple

_PIECES = 16  # of a sample, evenly spread: as many pages, which a mapped file may have to read from a disk
_PIECE = 1 << 12  # bytes; the 2^19 bits of 16 pieces tell the fill within 0.07 percent points, one standard deviation


class Glance(NamedTuple):
    """The share of a filter's cells that are not zero, and whether all of them were counted."""

    fill: float
    is_exact: bool

    def told(self, rate: float) -> str:
        """In words, with the false-positive rate that follows from it."""
        about = "" if self.is_exact else "≈"
        return f"fill {about}{self.fill:.1%}, rate {about}{rate:.3g}"


def glance(body: memoryview, cells: int, counting: bool) -> Glance:
    """Look at bits or 4-bit counters: at all of them if they take up to 64 KiB, else at 16 pieces of 4 KiB."""
    size = len(body)
    if size <= _PIECES * _PIECE:
        return Glance(sum(_count(body[at : at + _PIECE], counting) for at in range(0, size, _PIECE)) / cells, True)
    starts = [(size - _PIECE) * number // (_PIECES - 1) for number in range(_PIECES)]
    seen = _PIECES * _PIECE * (2 if counting else 8)
    return Glance(sum(_count(body[at : at + _PIECE], counting) for at in starts) / seen, False)


def _count(piece: memoryview, counting: bool) -> int:
    """The number of bits, or of counters, that are not 0."""
    whole = int.from_bytes(piece, "little")
    if counting:
        whole = (whole | whole >> 1 | whole >> 2 | whole >> 3) & int.from_bytes(b"\x11" * len(piece), "little")
    return whole.bit_count()
