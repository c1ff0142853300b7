"""Make descriptors for extended public keys that wallets export without one."""

from __future__ import annotations

import re

from spvfilter.errors import DescriptorError
from spvfilter.network import MAINNET, REGTEST
from spvfilter.watch.descriptor import keys
from spvfilter.watch.descriptor.checksum import without_checksum

BRANCHES = "/<0;1>/*"
"""Path of the receiving and change addresses below an account key (BIP-389)."""
MULTISIG_FORMATS = {
    "P2SH": "sh(MULTI)",
    "P2WSH": "wsh(MULTI)",
    "P2SH-P2WSH": "sh(wsh(MULTI))",
    "P2WSH-P2SH": "sh(wsh(MULTI))",
}
"""Descriptors of multisig wallets, by the usual name of their type, with MULTI in place of the script."""
_PATH = re.compile(r"(?:[mM]/)?((?:\d{1,10}[hH']?/)*\d{1,10}[hH']?)")
_FINGERPRINT = re.compile(r"(?:0[xX])?([0-9a-fA-F]{8})")


def plain_key(text: str, where: str) -> str:
    """Return an extended public key as an xpub or tpub. `where` names the key in error messages.

    Raises DescriptorError if the text is not an extended public key.
    """
    keys.refuse_private_keys(text)
    if text[:4] not in keys.PREFIXES:
        raise DescriptorError(f"{where} is not an extended public key such as xpub…: export the file again")
    network = MAINNET if keys.PREFIXES[text[:4]].network == "main" else REGTEST
    return keys.as_plain(text, keys.check_key(text, network, f"{where}: "))


class Origins:
    """The key origins […] of one file, and warnings about missing ones.

    A watch list works without origins, but a signing device needs them to recognize its key in a PSBT.
    """

    def __init__(self) -> None:
        self.warnings: list[str] = []
        """One sentence for each key that is watched without its origin."""

    def of(self, key: str, fingerprint: object, path: object, where: str) -> str:
        """Return the origin of a key: the master key's fingerprint and the path. It is empty if either is unknown.

        If the fingerprint is missing, it is taken from a key of depth 1, whose parent is the master key.

        Args:
            key: The extended public key, as `plain_key` returns it.
            fingerprint: 8 hex digits, with or without 0x. None or empty if the file does not give it.
            path: Path such as m/84'/0'/0'. None or empty if the file does not give it.
            where: Name of the key in warnings.
        """
        if fingerprint in (None, "") and path in (None, "", "m", "m/"):
            return ""
        raw = keys.raw_key(key)
        found = _FINGERPRINT.fullmatch(fingerprint) if isinstance(fingerprint, str) else None
        master = found[1].lower().replace("00000000", "") if found else ""
        steps = _PATH.fullmatch(path.strip()) if isinstance(path, str) else None
        if not raw[4] and steps is None:
            return f"[{master}]" if master else ""
        if raw[4] == 1:
            master = master or raw[5:9].hex()
            if path in (None, ""):
                steps = _PATH.fullmatch(last_step(key))
        if not master:
            self._warn(where, "the master key's fingerprint, 8 hex digits")
        elif steps is None or not steps[1]:
            self._warn(where, "its path from the master key, such as m/84'/0'/0'")
        else:
            return f"[{master}/{re.sub('[H' + chr(39) + ']', 'h', steps[1])}]"
        return ""

    def _warn(self, where: str, missing: str) -> None:
        self.warnings.append(
            f"{where} is watched without its origin, because the file does not give {missing}. A signing device will"
            " not recognize the key in a PSBT: write [FINGERPRINT/PATH] before the key in a descriptor yourself"
        )


def last_step(key: str) -> str:
    """Return the last step of the path of an extended key, such as 0h."""
    number = int.from_bytes(keys.raw_key(key)[9:13])
    return f"{number - (1 << 31)}h" if number >> 31 else str(number)


def single_descriptor(wrapped: str, key: str) -> str:
    """Return the descriptor of an account key with its origin. `wrapped` contains KEY where the key belongs."""
    return wrapped.replace("KEY", f"{key}{BRANCHES}")


def multisig_descriptor(wrapped: str, needed: int, account_keys: list[str]) -> str:
    """Return the descriptor of a multisig wallet with sorted keys (BIP-67). It replaces MULTI in `wrapped`."""
    inner = ",".join(f"{key}{BRANCHES}" for key in account_keys)
    return wrapped.replace("MULTI", f"sortedmulti({needed},{inner})")


def both_branches(text: str) -> str:
    """Extend a descriptor of receiving addresses so that it also covers the change addresses.

    Other descriptors are returned unchanged. Raises DescriptorError if the checksum is wrong.
    """
    body = without_checksum(text.strip())
    if "/0/*" not in body or "<" in body:
        return text
    return body.replace("/0/*", BRANCHES)
