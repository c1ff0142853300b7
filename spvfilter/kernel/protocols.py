"""Protocols that write into OP_RETURN outputs, and the mark of each. The C twin is watch/protocols.c.

The table contains only protocols that a mark identifies with certainty. An output without a known mark has none.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Where(Enum):
    """The place of a mark."""

    SCRIPT = "script"
    """The bytes after OP_RETURN."""
    PUSH = "push"
    """The first data push after OP_RETURN."""
    RC4 = "rc4"
    """The first push, decrypted by RC4. The key is the txid that the first input spends, in display order."""


class Protocol(NamedTuple):
    """A protocol and its mark."""

    name: str
    """Value in the `op_return_protocol` column."""
    where: Where
    """The place of the mark."""
    mark: bytes
    """The bytes with which that place must begin."""
    next: bytes
    """Bytes, one of which must follow the mark, or empty if anything may follow."""
    least: int
    """Smallest number of bytes in that place."""
    in_coinbase: bool
    """True if only outputs of a coinbase count."""
    source: str
    """The specification that defines the mark."""


PROTOCOLS = (
    Protocol(
        "witness commitment",
        Where.SCRIPT,
        bytes.fromhex("24aa21a9ed"),
        b"",
        37,
        True,
        "BIP-141, Commitment structure",
    ),
    Protocol("RSK", Where.PUSH, b"RSKBLOCK:", b"", 41, True, "RSKIP-92 and RSKIP-110: merge mining, tag RSKBLOCK:"),
    Protocol("Runes", Where.SCRIPT, b"\x5d", b"", 1, False, "ord, docs/src/runes/specification.md: OP_RETURN OP_13"),
    Protocol("Omni", Where.PUSH, b"omni", b"", 8, False, "Omni Protocol Specification, Class C: marker 6f6d6e69"),
    Protocol(
        "Open Assets",
        Where.PUSH,
        bytes.fromhex("4f410100"),
        b"",
        6,
        False,
        "Open Assets Protocol Specification: marker 4f41, version 0100",
    ),
    Protocol(
        "Stacks",
        Where.PUSH,
        b"X2",
        b"[^_x$#pv",
        3,
        False,
        "SIP-001 and SIP-007: magic X2, then the operation; vote-for-aggregate-key is v",
    ),
    Protocol(
        "Counterparty", Where.RC4, b"CNTRPRTY", b"", 8, False, "Counterparty, protocol_specification.md: OP_RETURN"
    ),
)
"""The protocols in the order in which they are tried."""
