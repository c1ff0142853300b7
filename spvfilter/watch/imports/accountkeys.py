"""Descriptors of the extended public keys that wallets export without a descriptor."""

from __future__ import annotations

import re

from spvfilter.errors import DescriptorError
from spvfilter.network import MAINNET, REGTEST
from spvfilter.watch.descriptor import keys
from spvfilter.watch.descriptor.checksum import without_checksum

BRANCHES = "/<0;1>/*"
"""Path of the receiving and change addresses below an account key (BIP-389)."""
_PATH = re.compile(r"(?:m/)?((?:\d{1,10}[hH']?/)*\d{1,10}[hH']?)")
_FINGERPRINT = re.compile(r"[0-9a-fA-F]{8}")


def plain_key(text: str, where: str) -> str:
    """Return an extended public key as an xpub or tpub. `where` names the key in error messages.

    Raises DescriptorError if the text is not an extended public key.
    """
    keys.refuse_private_keys(text)
    if text[:4] not in keys.PREFIXES:
        raise DescriptorError(f"{where} is not an extended public key such as xpub…: export the file again")
    network = MAINNET if keys.PREFIXES[text[:4]].network == "main" else REGTEST
    return keys.as_plain(text, keys.check_key(text, network, f"{where}: "))


def origin(fingerprint: object, path: object) -> str:
    """Return the key origin […] of a master key's fingerprint and a path. It is empty if the file does not have them.

    A watch list does not need the origin. It makes the descriptor equal to that of other programs.
    """
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        return ""
    if path in ("m", "m/", ""):
        return f"[{fingerprint.lower()}]"
    found = _PATH.fullmatch(path) if isinstance(path, str) else None
    return f"[{fingerprint.lower()}/{re.sub('[H' + chr(39) + ']', 'h', found[1])}]" if found else ""


def single_descriptor(wrapped: str, key: str) -> str:
    """Return the descriptor of an account key with its origin. `wrapped` is a descriptor with the word KEY."""
    return wrapped.replace("KEY", f"{key}{BRANCHES}")


def multisig_descriptor(wrapped: str, needed: int, account_keys: list[str]) -> str:
    """Return the descriptor of a multisig wallet with sorted keys (BIP-67). `wrapped` has the word MULTI."""
    inner = ",".join(f"{key}{BRANCHES}" for key in account_keys)
    return wrapped.replace("MULTI", f"sortedmulti({needed},{inner})")


def both_branches(text: str) -> str:
    """Return a descriptor of receiving addresses as a descriptor of receiving and change addresses.

    Other descriptors are returned unchanged. Raises DescriptorError if the checksum is wrong.
    """
    body = without_checksum(text.strip())
    if "/0/*" not in body or "<" in body:
        return text
    return body.replace("/0/*", BRANCHES)
