"""Multisig wallets of Caravan and Unchained.

```
{"name": "w", "addressType": "P2WSH", "network": "mainnet", "quorum": {"requiredSigners": 2, "totalSigners": 3},
 "extendedPublicKeys": [{"name": "k", "bip32Path": "m/48'/0'/0'/2'", "xpub": "xpub…", "xfp": "0f056943"}, …],
 "startingAddressIndex": 0}
```
"""

from __future__ import annotations

from spvfilter.errors import ParameterError
from spvfilter.watch.imports.accountkeys import MULTISIG_FORMATS, Origins, multisig_descriptor, plain_key
from spvfilter.watch.imports.jsontext import count_of, text_of
from spvfilter.watch.imports.walletfile import (
    ImportedDescriptor,
    WalletFile,
    name_in,
    named_networks,
    networks_of_text,
)

_KIND = "Caravan"
_UNKNOWN = "unknown"
"""The text, in lower case, that Caravan writes for a path or a fingerprint that it does not know."""


def read_caravan(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if a field is missing or invalid, or if the number of keys does not match the quorum.
    """
    if not isinstance(data, dict) or "extendedPublicKeys" not in data or "quorum" not in data:
        return None
    wrapped = MULTISIG_FORMATS.get(text_of(data, "addressType", "the wallet").upper())
    if wrapped is None:
        raise ParameterError(f"the addressType of a Caravan wallet must be one of {', '.join(MULTISIG_FORMATS)}")
    origins, found = Origins(), list[str]()
    listed = data["extendedPublicKeys"]
    for number, each in enumerate(listed if isinstance(listed, list) else [], 1):
        where = f"key {number} of a Caravan wallet"
        if not isinstance(each, dict):
            raise ParameterError(f'{where} is not an object with an "xpub" field: export the file again')
        key = plain_key(text_of(each, "xpub", where), where)
        found.append(origins.of(key, _known(each.get("xfp")), _known(each.get("bip32Path")), where) + key)
    quorum = data["quorum"] if isinstance(data["quorum"], dict) else {}
    needed, total = count_of(quorum.get("requiredSigners")), count_of(quorum.get("totalSigners"))
    if needed is None or not 1 <= needed <= len(found) <= 20 or total not in (None, len(found)):
        raise ParameterError(
            f"this Caravan wallet has {len(found)} keys, but its quorum is not M of {len(found)}: export it again"
        )
    text, name = multisig_descriptor(wrapped, needed, found), name_in(data.get("name"))
    start = count_of(data.get("startingAddressIndex")) or 0
    return WalletFile(
        _KIND,
        name,
        named_networks(data.get("network"), networks_of_text(text), _KIND),
        descriptors=(ImportedDescriptor(text, name, revealed=(start, start)),),
        warnings=tuple(origins.warnings),
    )


def _known(value: object) -> object:
    return None if isinstance(value, str) and value.lower() == _UNKNOWN else value
