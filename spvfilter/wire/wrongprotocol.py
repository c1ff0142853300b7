"""Name the protocol of a peer that is not a node of the expected network, from the first four bytes that it sends."""

from __future__ import annotations

from spvfilter.network import NETWORKS

_SERVERS = (  # the first bytes that a server of another protocol sends, and its name
    (
        (b"HTTP", b"<!DO", b"<!do", b"<htm", b"<HTM", b"GET ", b"POST", b"HEAD", b"PUT "),
        "an HTTP server, not as a Bitcoin node (Bitcoin Core serves RPC over HTTP on another port than peers)",
    ),
    ((b"\x15\x03", b"\x16\x03"), "a TLS server, not as a Bitcoin node"),
    ((b"SSH-",), "an SSH server, not as a Bitcoin node"),
    ((b"220 ", b"220-"), "a mail or FTP server, not as a Bitcoin node"),
    ((b"-ERR", b"-NOA"), "a Redis server, not as a Bitcoin node"),
    ((b'{"', b"{\n", b"{ "), "a JSON server (Electrum, perhaps), not as a Bitcoin node"),
)


def wrong_protocol(first: bytes, magic: bytes) -> str:
    """Return a text that describes the first four bytes of a stream, which differ from the `magic` of the network."""
    name = next((known.name for known in NETWORKS if known.magic == magic), "this network")
    difference = f"magic {first.hex()}, expected {magic.hex()} of {name}"
    for known in NETWORKS:
        if first == known.magic:
            return f"answered as a {known.name} node, not as a {name} node: {difference}"
    for starts, server in _SERVERS:
        if first.startswith(starts):
            return f"answered as {server}: {difference}"
    return difference
