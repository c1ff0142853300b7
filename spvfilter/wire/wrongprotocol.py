"""Recognize, from its first four bytes, the protocol of a peer that is not a node of the expected network."""

from __future__ import annotations

from spvfilter.network import NETWORKS

_SERVERS = (  # the first bytes that a server of another protocol sends, and its name
    (
        (b"HTTP", b"<!DO", b"<!do", b"<htm", b"<HTM", b"GET ", b"POST", b"HEAD", b"PUT "),
        "an HTTP server, not as a Bitcoin node (Bitcoin Core's RPC, which uses HTTP, has a different port than its"
        " peers)",
    ),
    ((b"\x15\x03", b"\x16\x03"), "a TLS server, not as a Bitcoin node"),
    ((b"SSH-",), "an SSH server, not as a Bitcoin node"),
    ((b"220 ", b"220-"), "a mail or FTP server, not as a Bitcoin node"),
    ((b"-ERR", b"-NOA"), "a Redis server, not as a Bitcoin node"),
    ((b'{"', b"{\n", b"{ "), "a JSON server (Electrum, perhaps), not as a Bitcoin node"),
)

# First four bytes that are certainly not those of a key of an encrypted connection: a random key begins with one of
# them in one of 200 million connections.
_SIGNATURES = frozenset(
    [start for starts, _ in _SERVERS for start in starts if len(start) == 4] + [known.magic for known in NETWORKS]
)


def is_signature(first: bytes) -> bool:
    """Return True if the first four bytes of a stream certainly belong to a protocol without encryption."""
    return first in _SIGNATURES


def wrong_protocol(first: bytes, magic: bytes) -> str:
    """Describe the first four bytes of a stream if they differ from the network's `magic`."""
    return known_protocol(first, magic) or _difference(first, magic)


def known_protocol(first: bytes, magic: bytes) -> str | None:
    """Return a description of the protocol of a stream's first four bytes, or None if the protocol is unknown.

    The stream was expected to be a connection to the network with this `magic`, encrypted or not.
    """
    if first == magic:
        return "answered without encryption, although it received a key for an encrypted connection (BIP-324)"
    for known in NETWORKS:
        if first == known.magic:
            return f"answered as a {known.name} node, not as a {_name(magic)} node: {_difference(first, magic)}"
    for starts, server in _SERVERS:
        if first.startswith(starts):
            return f"answered as {server}: {_difference(first, magic)}"
    return None


def _difference(first: bytes, magic: bytes) -> str:
    return f"magic {first.hex()}, expected {magic.hex()} of {_name(magic)}"


def _name(magic: bytes) -> str:
    return next((known.name for known in NETWORKS if known.magic == magic), "this network")
