"""Unencrypted wallet files of Electrum: JSON, perhaps followed by changes to it.

```
{"wallet_type": "standard", "keystore": {"type": "bip32", "xpub": "zpub…", "derivation": "m/84'/0'/0'", …},
 "addresses": {"receiving": […], "change": […]}, "labels": {ADDRESS or TXID: LABEL}, "seed_version": 60}
```

A multisig wallet has the type "2of3" and the keystores "x1/", "x2/", "x3/". The prefix of the extended keys determines
the type of the addresses (SLIP-132).
"""

from __future__ import annotations

import re

from spvfilter.errors import ParameterError
from spvfilter.network import MAINNET
from spvfilter.watch.descriptor.keys import PREFIXES
from spvfilter.watch.imports.accountkeys import Origins, multisig_descriptor, plain_key, single_descriptor
from spvfilter.watch.imports.jsontext import JsonObject, count_of, parse_json
from spvfilter.watch.imports.walletfile import (
    TEST_NETWORKS,
    ImportedAddress,
    ImportedDescriptor,
    WalletFile,
    name_in,
)

_MULTISIG = re.compile(r"(\d{1,2})of(\d{1,2})")
_SINGLE = {"x": "pkh(KEY)", "t": "pkh(KEY)", "y": "sh(wpkh(KEY))", "u": "sh(wpkh(KEY))", "z": "wpkh(KEY)"} | {
    "v": "wpkh(KEY)"
}
"""Descriptor of a wallet with one key, by the first letter of its extended key."""
_MULTI = {"x": "sh(MULTI)", "t": "sh(MULTI)", "Y": "sh(wsh(MULTI))", "U": "sh(wsh(MULTI))", "Z": "wsh(MULTI)"} | {
    "V": "wsh(MULTI)"
}
"""Descriptor of a multisig wallet, by the first letter of its extended keys."""
_KIND = "Electrum"


def read_electrum(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if the file lacks a key or the wallet's type is unknown.
    """
    if not isinstance(data, dict) or "wallet_type" not in data or not ("seed_version" in data or "keystore" in data):
        return None
    kind = data.get("wallet_type")
    found = _MULTISIG.fullmatch("2of3" if kind == "2fa" and "x3/" in data else kind if isinstance(kind, str) else "")
    labels = _labels(data.get("labels"))
    if kind == "imported":
        return _of_addresses(_strings(data.get("addresses")), labels)
    origins = Origins()
    receiving, change = _used(data.get("addresses"))
    if kind == "standard" and _keystore(data, "keystore").get("type") != "old":
        texts, is_main = _standard(data, origins)
    elif found is not None:
        texts, is_main = _multisig(data, int(found[1]), int(found[2]), origins)
    elif receiving:  # an old or a shared wallet, whose addresses no descriptor derives
        return _of_addresses([*receiving, *change], labels).with_warning(
            "this kind of Electrum wallet has no descriptor: only the addresses in the file are watched. Export the"
            " file again when the wallet shows new addresses"
        )
    else:
        raise ParameterError(
            "this Electrum wallet has an unsupported type: export its addresses, View > Show Addresses > Export"
        )
    return WalletFile(
        _KIND,
        networks=(MAINNET,) if is_main else TEST_NETWORKS,
        descriptors=(
            ImportedDescriptor(texts, None, max(len(receiving), len(change)), receiving[0] if receiving else None),
        ),
        labels=labels,
        warnings=tuple(origins.warnings),
    )


def with_changes(text: str) -> object:
    """Return the JSON value of a wallet file after applying the changes to labels that Electrum appended to it.

    Other changes are ignored. Raises ParameterError if the file is not JSON.
    """
    parts = parse_json(f"[{text}]")
    data = parts[0] if isinstance(parts, list) and parts else None
    if not isinstance(parts, list) or not isinstance(data, dict):
        return data
    labels = data.get("labels")
    named = dict(labels) if isinstance(labels, dict) else {}
    for change in parts[1:]:
        path = change.get("path") if isinstance(change, dict) else None
        if isinstance(path, str) and path.startswith("/labels/"):
            named[path.removeprefix("/labels/")] = change.get("value")
    return {**data, "labels": named}


def _of_addresses(addresses: list[str], labels: tuple[ImportedAddress, ...]) -> WalletFile:
    if not addresses:
        raise ParameterError("this Electrum wallet contains no addresses: open it in Electrum, and export it again")
    named = {each.address: each.label for each in labels}
    return WalletFile(_KIND, addresses=tuple(ImportedAddress(each, named.get(each)) for each in addresses))


def _strings(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, (dict, list)) else []


def _used(value: object) -> tuple[list[str], list[str]]:
    """Return the receiving and the change addresses of the wallet."""
    branches = value if isinstance(value, dict) else {}
    return _strings(branches.get("receiving")), _strings(branches.get("change"))


def _labels(value: object) -> tuple[ImportedAddress, ...]:
    """Return the labels of addresses. Labels of transactions are left out."""
    pairs = value.items() if isinstance(value, dict) else ()
    return tuple(
        ImportedAddress(key, label)
        for key, text in pairs
        if len(key) < 64 or key.startswith(("bc1", "tb1", "bcrt1"))
        if (label := name_in(text)) is not None
    )


def _keystore(data: JsonObject, name: str) -> JsonObject:
    found = data.get(name)
    if not isinstance(found, dict):
        raise ParameterError(f"this Electrum wallet lacks the field {name}: export it again")
    return found


def _key(data: JsonObject, name: str, origins: Origins) -> tuple[str, str]:
    """Return the extended key of a keystore twice: as the wallet writes it, and as an xpub with its origin."""
    store = _keystore(data, name)
    text = store.get("xpub")
    if not isinstance(text, str):
        raise ParameterError(f"the field {name} of an Electrum wallet lacks an extended public key: export it again")
    key = plain_key(text, f"{name}: xpub")
    return text, origins.of(key, _fingerprint(store), store.get("derivation"), f"the key of {name}") + key


def _fingerprint(store: JsonObject) -> object:
    """Return the fingerprint of a keystore's master key. Coldcard writes it as a little-endian number."""
    number = count_of(store.get("ckcc_xfp"))
    return store.get("root_fingerprint") or (None if number is None else number.to_bytes(4, "little").hex())


def _standard(data: JsonObject, origins: Origins) -> tuple[str, bool]:
    text, key = _key(data, "keystore", origins)
    wrapped = _SINGLE.get(text[0])
    if wrapped is None:
        raise ParameterError(f"the key of this Electrum wallet starts with {text[:4]}: expected xpub, ypub or zpub")
    return single_descriptor(wrapped, key), PREFIXES[text[:4]].network == "main"


def _multisig(data: JsonObject, needed: int, count: int, origins: Origins) -> tuple[str, bool]:
    """Return the descriptor of a multisig wallet, and whether it belongs to mainnet."""
    if not 1 <= needed <= count <= 20:
        raise ParameterError(f"this Electrum wallet needs {needed} of {count} keys: expected 1 to 20 keys")
    found = [_key(data, f"x{number}/", origins) for number in range(1, count + 1)]
    kinds = {text[:4] for text, _ in found}
    wrapped = _MULTI.get(found[0][0][0])
    if len(kinds) > 1 or wrapped is None:
        raise ParameterError(
            f"this Electrum multisig wallet contains keys {', '.join(f'{each}…' for each in sorted(kinds))}: expected"
            " all xpub, all Ypub or all Zpub"
        )
    return multisig_descriptor(wrapped, needed, [key for _, key in found]), PREFIXES[kinds.pop()].network == "main"
