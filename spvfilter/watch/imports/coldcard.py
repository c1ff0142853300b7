"""Coldcard's files: `coldcard-export.json`, and the text file of a multisig wallet.

```
{"chain": "BTC", "xfp": "0F056943", "account": 0,
 "bip84": {"name": "p2wpkh", "deriv": "m/84'/0'/0'", "xpub": "xpub…", "first": "bc1q…"}, …}
```

```
# Coldcard Multisig setup file
Name: savings
Policy: 2 of 3
Derivation: m/48'/0'/0'/2'
Format: P2WSH
0F056943: xpub…
```
"""

from __future__ import annotations

import re

from spvfilter.errors import ParameterError
from spvfilter.network import MAINNET, REGTEST, Network
from spvfilter.watch.imports.accountkeys import (
    MULTISIG_FORMATS,
    Origins,
    multisig_descriptor,
    plain_key,
    single_descriptor,
)
from spvfilter.watch.imports.jsontext import text_of
from spvfilter.watch.imports.walletfile import (
    PUBLIC_TEST_NETWORKS,
    ImportedDescriptor,
    WalletFile,
    name_in,
    networks_of_text,
)

_CHAINS: dict[str, tuple[Network, ...]] = {"BTC": (MAINNET,), "XTN": PUBLIC_TEST_NETWORKS, "XRT": (REGTEST,)}
_SECTIONS = {"bip44": "pkh(KEY)", "bip49": "sh(wpkh(KEY))", "bip84": "wpkh(KEY)", "bip86": "tr(KEY)"}
"""Descriptor of each section with a single key."""
_MULTISIG_SECTIONS = ("bip45", "bip48_1", "bip48_2", "bip48_3")
_SIGNER = ("p2sh_deriv", "p2wsh_deriv", "p2sh_p2wsh_deriv", "p2wsh_p2sh_deriv")
_LINE = re.compile(r"\s*([A-Za-z0-9 ]{1,20}?)\s*:\s*(.*?)\s*")
_POLICY = re.compile(r"(\d{1,2})\s*(?:of|/)\s*(\d{1,2})", re.IGNORECASE)
_FINGERPRINT = re.compile(r"[0-9A-Fa-f]{8}")
_MOST_TEXT = 1_000_000
"""Largest length of a multisig wallet's text in characters (our choice)."""
_MOST_LINES = 1_000
"""Largest number of lines in a multisig wallet's text (our choice)."""


def read_coldcard(data: object) -> WalletFile | None:
    """Return the accounts in `coldcard-export.json`, or None if the value has a different format.

    Raises ParameterError if the file contains no single-key account, or the network is unknown.
    """
    if not isinstance(data, dict):
        return None
    if "xfp" in data and any(name in data for name in _SIGNER):
        raise ParameterError(
            "this file contains one signer's keys of a multisig wallet (Coldcard): export the wallet instead,"
            " Settings > Multisig Wallets > the wallet > Coldcard Export"
        )
    if "xfp" not in data or not any(name in data for name in (*_SECTIONS, *_MULTISIG_SECTIONS)):
        return None
    found, origins = [], Origins()
    for name, wrapped in _SECTIONS.items():
        section = data.get(name)
        if isinstance(section, dict):
            key = plain_key(text_of(section, "xpub", name), f"{name}: xpub")
            place = origins.of(key, data["xfp"], section.get("deriv"), f"the key of {name}")
            text = single_descriptor(wrapped, place + key)
            first = section.get("first")
            found.append(ImportedDescriptor(text, name_in(section.get("name")), 0, _text_or_none(first)))
    if not found:
        raise ParameterError("this Coldcard file contains no single-key account: export it again as generic JSON")
    networks = networks_of_text(found[0].text)
    if "chain" in data:
        chain = text_of(data, "chain", "the file")
        if chain not in _CHAINS:
            raise ParameterError("this Coldcard file is for an unknown chain: expected BTC, XTN or XRT")
        networks = _CHAINS[chain]
    wallet = WalletFile("Coldcard", networks=networks, descriptors=tuple(found), warnings=tuple(origins.warnings))
    if any(name in data for name in _MULTISIG_SECTIONS):
        return wallet.with_warning(
            "the file also contains this Coldcard's keys for multisig wallets. They are not watched: a multisig wallet "
            "needs its own file"
        )
    return wallet


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


def read_multisig_text(text: str) -> WalletFile | None:
    """Return the wallet in Coldcard's text for multisig wallets, or None if the text has a different format.

    Raises ParameterError if a line is invalid, or if the number of keys does not match the policy.
    """
    head = text[:_MOST_TEXT].splitlines()[:40]
    if len(text) > _MOST_TEXT or not any(re.match(r"\s*policy\s*:", line, re.IGNORECASE) for line in head):
        return None
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        return None
    fields: dict[str, str] = {}
    keys: list[tuple[int, str, str, str | None]] = []  # line, fingerprint, key and the path before it
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pair = _LINE.fullmatch(line)
        if pair is None:
            raise ParameterError(f"line {number} of a multisig wallet (Coldcard): expected NAME: VALUE")
        if _FINGERPRINT.fullmatch(pair[1]):
            keys.append((number, pair[1], plain_key(pair[2], f"line {number}: the key"), fields.get("derivation")))
        else:
            fields[pair[1].lower()] = pair[2]
    origins, found = Origins(), list[str]()
    one = fields.get("derivation") if all(path is None for *_, path in keys) else None  # a path below all keys
    for number, fingerprint, key, path in keys:
        found.append(origins.of(key, fingerprint, path or one, f"the key of line {number}") + key)
    return _multisig(fields, found).with_warning(*origins.warnings)


def _multisig(fields: dict[str, str], found: list[str]) -> WalletFile:
    policy = _POLICY.fullmatch(fields["policy"])
    if policy is None or not 1 <= int(policy[1]) <= int(policy[2]) <= 20:
        raise ParameterError("the policy of a multisig wallet (Coldcard) must be Policy: M of N, such as 2 of 3")
    if len(found) != int(policy[2]):
        raise ParameterError(
            f"this multisig wallet (Coldcard) has {policy[2]} keys, but the file contains {len(found)}: export it again"
        )
    wrapped = MULTISIG_FORMATS.get(fields.get("format", "P2SH").upper())
    if wrapped is None:
        raise ParameterError(f"the format of a multisig wallet (Coldcard) must be one of {', '.join(MULTISIG_FORMATS)}")
    name = name_in(fields.get("name"))
    text = multisig_descriptor(wrapped, int(policy[1]), found)
    return WalletFile("Coldcard", name, networks_of_text(text), descriptors=(ImportedDescriptor(text, name),))
