"""Labels of a wallet (BIP-329): lines of JSON. The labelled addresses are a watch list.

```
{"type": "addr", "ref": "bc1q…", "label": "shop"}
{"type": "tx", "ref": "f91d…", "label": "rent"}
```
"""

from __future__ import annotations

import json

from spvfilter.errors import ParameterError
from spvfilter.watch.imports.privatekeys import is_private, warning_of
from spvfilter.watch.imports.walletfile import ImportedAddress, WalletFile, name_in

_TYPES = ("tx", "addr", "pubkey", "input", "output", "xpub")


def read_labels(text: str) -> WalletFile | None:
    """Return the labelled addresses of a file of labels. None if the text has another format.

    Raises ParameterError if a line is invalid, or no line has an address.
    """
    if not _is_label(_object(text.lstrip().partition("\n")[0])):
        return None
    found, others, has_private = [], 0, False
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        data = _object(line)
        if not isinstance(data, dict) or not _is_label(data):
            raise ParameterError(f"line {number} of a file of labels (BIP-329): expected type and ref in an object")
        has_private = has_private or any(isinstance(each, str) and is_private(each) for each in data.values())
        if data["type"] == "addr":
            found.append(ImportedAddress(str(data["ref"]), name_in(data.get("label")), number))
        else:
            others += 1
    if not found:
        raise ParameterError(
            "a file of labels (BIP-329) without addresses: watch the wallet's descriptor, and import the labels"
        )
    wallet = WalletFile("BIP-329", addresses=tuple(found))
    if has_private:
        wallet = wallet.with_warning(warning_of(["label"]))
    if others:
        return wallet.with_warning(
            f"{others:,} labels of transactions, outputs or keys were left out: a watch list has labels of addresses"
        )
    return wallet


def _object(line: str) -> object:
    try:
        return json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None


def _is_label(data: object) -> bool:
    return isinstance(data, dict) and data.get("type") in _TYPES and isinstance(data.get("ref"), str)
