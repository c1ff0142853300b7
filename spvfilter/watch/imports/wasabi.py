"""Wasabi's wallet files, and the skeleton files that Coldcard exports for Wasabi.

```
{"MasterFingerprint": "0f056943", "ExtPubKey": "xpub…", "TaprootExtPubKey": "xpub…", "AccountKeyPath": "84'/0'/0'",
 "BlockchainState": {"Network": "Main", "BirthHeight": 800000}, "HdPubKeys": [{"PubKey": "02…", "FullKeyPath": …}]}
```
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from spvfilter.address import script_to_address
from spvfilter.hashes import hash160
from spvfilter.network import Network
from spvfilter.watch.imports.accountkeys import Origins, last_step, plain_key, single_descriptor
from spvfilter.watch.imports.jsontext import JsonObject, count_of, text_of
from spvfilter.watch.imports.walletfile import (
    ImportedAddress,
    ImportedDescriptor,
    WalletFile,
    name_in,
    named_networks,
    networks_of_text,
)

_PUBLIC_KEY = re.compile(r"0[23][0-9a-fA-F]{64}")
_PATH = re.compile(r"(?:m/)?(\d+)['hH]/.*/(\d{1,9})")


def read_wasabi(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if a key is invalid or the network is unknown.
    """
    if not isinstance(data, dict) or "ExtPubKey" not in data:
        return None
    origins, used = Origins(), _used(data)
    found = [_account(data, "ExtPubKey", "AccountKeyPath", "84", used, origins)]
    if data.get("TaprootExtPubKey"):
        found.append(_account(data, "TaprootExtPubKey", "TaprootAccountKeyPath", "86", used, origins))
    state = data.get("BlockchainState")
    state = state if isinstance(state, dict) else {}
    networks = named_networks(state.get("Network"), networks_of_text(found[0].text), "Wasabi")
    return WalletFile(
        "Wasabi",
        name_in(data.get("WalletName")),
        networks,
        birth_height=count_of(state.get("BirthHeight")) or None,
        descriptors=tuple(found),
        labels=tuple(_labels(data, networks[0])),
        warnings=tuple(origins.warnings),
    )


def _account(
    data: JsonObject, name: str, path_name: str, purpose: str, used: dict[str, int], origins: Origins
) -> ImportedDescriptor:
    """Return the descriptor of an account. A skeleton gives no path, but the key contains its last step."""
    key = plain_key(text_of(data, name, "the wallet"), name)
    path = data.get(path_name) or f"m/{purpose}'/{'1' if key.startswith('tpub') else '0'}'/{last_step(key)}"
    place = origins.of(key, data.get("MasterFingerprint"), path, name) if "MasterFingerprint" in data else ""
    wrapped = "tr(KEY)" if purpose == "86" else "wpkh(KEY)"
    return ImportedDescriptor(single_descriptor(wrapped, place + key), None, used.get(purpose, 0))


def _keys(data: JsonObject) -> Iterator[tuple[JsonObject, str, int]]:
    """Yield each derived key with the purpose in its path, such as "84", and its index."""
    found = data.get("HdPubKeys")
    for each in found if isinstance(found, list) else ():
        path = each.get("FullKeyPath") if isinstance(each, dict) else None
        parts = _PATH.fullmatch(path) if isinstance(path, str) else None
        if parts is not None:
            yield each, parts[1], int(parts[2])


def _used(data: JsonObject) -> dict[str, int]:
    """Return the first index that has not been derived, keyed by the purpose in the path."""
    ends: dict[str, int] = {}
    for _, purpose, index in _keys(data):
        ends[purpose] = max(ends.get(purpose, 0), index + 1)
    return ends


def _labels(data: JsonObject, network: Network) -> Iterator[ImportedAddress]:
    """Yield the labels of segwit addresses. Wasabi's labels name the people who know an address."""
    for each, purpose, _ in _keys(data):
        key, label = each.get("PubKey"), each.get("Label", each.get("Labels"))
        text = name_in(", ".join(map(str, label)) if isinstance(label, list) else label)
        if purpose == "84" and text and isinstance(key, str) and _PUBLIC_KEY.fullmatch(key):
            script = b"\x00\x14" + hash160(bytes.fromhex(key))
            yield ImportedAddress(script_to_address(script, network) or "", text)
