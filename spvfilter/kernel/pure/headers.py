"""Hashing runs of block headers: the readable reference."""

from __future__ import annotations

from spvfilter.errors import FormatError
from spvfilter.hashes import sha256d
from spvfilter.kernel.pure.arguments import snapshot
from spvfilter.protocol import HEADER_SIZE


def header_hashes(headers: bytes, /) -> bytes:
    """The block hashes, 32 bytes each, of headers of 80 bytes each.

    Raises FormatError if the last header is truncated.
    """
    headers = snapshot(headers)
    size = len(headers)
    left = size % HEADER_SIZE
    if left:
        raise FormatError(f"truncated: {HEADER_SIZE} bytes wanted, {left} left", offset=size - left, field="header")
    return b"".join([sha256d(headers[at : at + HEADER_SIZE]) for at in range(0, size, HEADER_SIZE)])
