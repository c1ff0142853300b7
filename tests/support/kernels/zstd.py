"""Frames of zstd (RFC 8878) that need no compressor, and a marker for tests that decompress them."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest

_MAGIC = bytes.fromhex("28b52ffd")
_MOST = 1 << 17  # bytes of a block
READS_ZSTD = sys.version_info >= (3, 14) or find_spec("zstandard") is not None
reads_zstd = pytest.mark.skipif(not READS_ZSTD, reason="needs the extra zstd")


def zstd_frame(data: bytes, window_log: int = 17) -> bytes:
    """A frame with the uncompressed data."""
    pieces = [data[at : at + _MOST] for at in range(0, len(data), _MOST)] or [b""]
    return _frame(window_log, [(0, piece, len(piece)) for piece in pieces])


def zstd_bomb(size: int) -> bytes:
    """A frame of zeros that is 30,000 times smaller than they are."""
    return _frame(17, [(1, b"\0", _MOST)] * (size // _MOST))


def _frame(window_log: int, blocks: list[tuple[int, bytes, int]]) -> bytes:
    raw = _MAGIC + bytes((0, window_log - 10 << 3))
    for number, (kind, body, size) in enumerate(blocks, 1):
        raw += (size << 3 | kind << 1 | (number == len(blocks))).to_bytes(3, "little") + body
    return raw
