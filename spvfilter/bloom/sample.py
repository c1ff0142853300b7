"""A quick look at the fill of a filter: small filters are counted, larger ones are estimated from a sample."""

from __future__ import annotations

from typing import NamedTuple

# Pieces of a sample, evenly spread. Each piece is a page that may have to be read from disk if the file is mapped.
_PIECES = 16
# Bytes of a piece. The 2^19 bits of 16 pieces show the fill with a standard deviation of 0.07 percentage points.
_PIECE = 1 << 12


class Glance(NamedTuple):
    """A quick estimate of a filter's fill."""

    fill: float
    """Share of the cells that are not zero, from 0 to 1."""
    is_exact: bool
    """True if all cells were counted, False if the fill was estimated from a sample."""

    def told(self, rate: float) -> str:
        """Describe the fill and the false-positive rate that follows from it, in words."""
        about = "" if self.is_exact else "≈"
        return f"fill {about}{self.fill:.1%}, rate {about}{rate:.3g}"


def glance(body: memoryview, cells: int, width: int) -> Glance:
    """Look at the cells of `width` bits: at all of them if they take up to 64 KiB, else at 16 pieces of 4 KiB."""
    size = len(body)
    if size <= _PIECES * _PIECE:
        return Glance(sum(_count(body[at : at + _PIECE], width) for at in range(0, size, _PIECE)) / cells, True)
    starts = [(size - _PIECE) * number // (_PIECES - 1) & ~1 for number in range(_PIECES)]  # even: counters of 16 bits
    seen = _PIECES * _PIECE * 8 // width
    return Glance(sum(_count(body[at : at + _PIECE], width) for at in starts) / seen, False)


def _count(piece: memoryview, width: int) -> int:
    """Return the number of cells that are not 0."""
    whole = int.from_bytes(piece, "little")
    for shift in (1, 2, 4, 8)[: width.bit_length() - 1]:  # the lowest bit of each cell becomes the OR of all its bits
        whole |= whole >> shift
    lowest = sum(1 << at for at in range(0, 16, width)).to_bytes(2, "little")
    return (whole & int.from_bytes(lowest * (len(piece) // 2 + 1), "little")).bit_count()
