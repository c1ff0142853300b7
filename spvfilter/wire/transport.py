"""Kinds of connections, with or without encryption (BIP-324), and whether this installation can encrypt."""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module

from spvfilter._public import public
from spvfilter.errors import ParameterError, remedy


@public
class Transport(StrEnum):
    """How the messages of a connection are encoded."""

    V1 = "v1"
    """Each message is in an envelope, without encryption."""
    V2 = "v2"
    """The connection is encrypted (BIP-324). The peer is not authenticated."""


@public
class V2Policy(StrEnum):
    """Whether a client encrypts its connections (BIP-324)."""

    PREFER = "prefer"
    """Try encryption with peers that offer it and with peers that the user named.

    If such a peer closes the connection before sending a byte, the client reconnects without encryption.
    """
    REQUIRE = "require"
    """Encrypt every connection. Peers that do not support encryption are not used."""
    OFF = "off"
    """Never encrypt."""


def is_installed() -> bool:
    """Return True if both packages of the `bip324` extra can be imported."""
    try:
        import_module("btclib_secp256k1.ellswift")
        import_module("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError:  # missing, damaged, or of a different version
        return False
    return True


def check_installed(option: str) -> None:
    """Raise ParameterError, naming the extra to install, if packages that `option` needs are missing."""
    if not is_installed():
        raise ParameterError(f"{option} needs btclib-secp256k1 and cryptography; {remedy('bip324')}")
