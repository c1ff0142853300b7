"""Recognize a peer that does not speak the protocol of this network, by the first four bytes that it sends."""

from __future__ import annotations

from spvfilter.network import NETWORKS

_SPEAKERS = (  # first bytes of other protocols, and words for each protocol
    (
        (b"HTTP", b"<!DO", b"<!do", b"<htm", b"<HTM", b"GET ", b"POST", b"HEAD", b"PUT "),
        "HTTP, not Bitcoin's protocol (Bitcoin Core's RPC has a port of its own)",
    ),
    ((b"\x15\x03", b"\x16\x03"), "TLS, not Bitcoin's protocol"),
    ((b"SSH-",), "SSH, not Bitcoin's protocol"),
    ((b"220 ", b"220-"), "a mail or FTP server, not Bitcoin's protocol"),
    ((b'{"', b"{\n", b"{ "), "JSON, not Bitcoin's protocol: an Electrum server perhaps"),
)


def foreign(first: bytes, magic: bytes) -> str:
    """Message about the first four bytes of a stream if they are not the `magic` of the expected network."""
    name = next((known.name for known in NETWORKS if known.magic == magic), "this network")
    bytes_ = f"magic {first.hex()}, but {name} has {magic.hex()}"
    for known in NETWORKS:
        if first == known.magic:
            return f"this is a {known.name} node: {bytes_}"
    for starts, what in _SPEAKERS:
        if first.startswith(starts):
            return f"this is {what}: {bytes_}"
    return bytes_
