"""What a watch list is given, checked and taken apart: labels, scripts, public keys."""

from __future__ import annotations

from collections.abc import Callable
from unicodedata import category

from spvfilter.errors import ParameterError
from spvfilter.hashes import hash160


def checked_label(label: str | None) -> str | None:
    """A label without blanks around it, None for an empty one.

    Raises ParameterError for one that no line could hold.
    """
    if label and not isinstance(label, str):
        raise ParameterError(f"a label is text, not {type(label).__name__}")
    label = label.strip() if label else None
    # UTF-8 has no surrogates
    if label and not label.isprintable() and any(category(char) in ("Cc", "Cs", "Zl", "Zp") for char in label):
        raise ParameterError(f"a label cannot contain control characters, line ends or surrogates: {label[:80]!r}")
    return label or None


def script_of(script: object) -> bytes:
    """What the `script_at` of a keychain gave, as bytes; what is none is left for Keychain to refuse."""
    # any object
    return bytes(script) if isinstance(script, (bytes, bytearray, memoryview)) else script  # type: ignore[return-value]


def single_script(script_at: Callable[[int], object], index: int) -> tuple[bytes, ...]:
    """The scripts of an index of a keychain whose maker gives one for each."""
    return (script_of(script_at(index)),)


def pubkey_scripts(key: bytes) -> list[bytes]:
    """The P2PK, P2PKH, P2WPKH and P2SH-P2WPKH scripts of a public key."""
    key_hash = hash160(key)
    witness = b"\x00\x14" + key_hash
    return [
        bytes((len(key),)) + key + b"\xac",
        b"\x76\xa9\x14" + key_hash + b"\x88\xac",
        witness,
        b"\xa9\x14" + hash160(witness) + b"\x87",
    ]
