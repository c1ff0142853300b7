"""Checks of the arguments of a watch list: labels, scripts and public keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from spvfilter.errors import ParameterError
from spvfilter.hashes import hash160
from spvfilter.primitives import OutPoint
from spvfilter.watch.descriptor.keys import secret_in

EntryName = str | bytes | OutPoint
"""An entry as a program names it: a line of a watch list's file, such as an address; a scriptPubKey; or an outpoint."""
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters and line breaks, which are escaped on a line of a text file."""
_NEVER = re.compile("[\x00\ud800-\udfff]")
_MOST_LABEL = 10_000
"""Largest length of a label in characters (our choice): each row of a scan's results repeats the label of its entry."""


def checked_label(label: str | None) -> str | None:
    """Return a label without surrounding white space, or None if the label is empty.

    A label may contain line breaks and tabs, as in JSON (BIP-329). Raises ParameterError if the label is too long, or
    contains NUL or surrogates.
    """
    if label and not isinstance(label, str):
        raise ParameterError(f"a label must be text, not {type(label).__name__}")
    label = label.strip() if label else None
    if label and len(label) > _MOST_LABEL:
        raise ParameterError(f"a label must be at most {_MOST_LABEL:,} characters long, not {len(label):,}: shorten it")
    if label and (found := _NEVER.search(label)):
        raise ParameterError(f"a label cannot contain surrogates or NUL, as at character {found.start() + 1}")
    return label or None


def label_line(label: str) -> str:
    """Return a label as a line of a text file shows it: as a JSON string if it contains control characters."""
    if _CONTROL.search(label) is None and label_of_line(label) == label:
        return label
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(label, ensure_ascii=False))


def label_of_line(text: str) -> str:
    """Return the label that `label_line` wrote as `text`. Any other text is itself the label."""
    if len(text) > 2 and text[0] == text[-1] == '"' and "\\" in text:
        try:
            label = json.loads(text)
        except ValueError:
            return text
        if isinstance(label, str) and (_CONTROL.search(label) or label_of_line(label) != label):
            return label
    return text


def check_not_private(label: str | None) -> None:
    """Raise ParameterError if a label may be a private key or a seed phrase, as in a table of exported keys."""
    if label and (what := secret_in(label)) is not None:
        raise ParameterError(f"the label contains {what}: remove it, and keep such a file in a safe place")


def script_of(script: object) -> bytes:
    """Return the result of a keychain's `script_at` as bytes, or unchanged if it has the wrong type.

    Keychain later rejects an object of the wrong type.
    """
    return bytes(script) if isinstance(script, (bytes, bytearray, memoryview)) else script  # type: ignore[return-value]


def single_script(script_at: Callable[[int], object], index: int) -> tuple[bytes, ...]:
    """Return the script of an index as a one-element tuple, for a keychain whose function returns a single script."""
    return (script_of(script_at(index)),)


def pubkey_scripts(key: bytes) -> list[bytes]:
    """Return the P2PK, P2PKH, P2WPKH and P2SH-P2WPKH scripts of a public key."""
    key_hash = hash160(key)
    witness = b"\x00\x14" + key_hash
    return [
        bytes((len(key),)) + key + b"\xac",
        b"\x76\xa9\x14" + key_hash + b"\x88\xac",
        witness,
        b"\xa9\x14" + hash160(witness) + b"\x87",
    ]
