"""Wallets of Bitcoin Core: the output of `listdescriptors`, and requests for `importdescriptors`.

```
{"wallet_name": "w", "descriptors": [{"desc": "wpkh(…)#…", "timestamp": 1700000000, "range": [0, 999], …}]}
[{"desc": "wpkh(…)#…", "timestamp": "now", "label": "shop"}]
```
"""

from __future__ import annotations

from spvfilter.errors import ParameterError
from spvfilter.watch.descriptor.keys import private_key_in
from spvfilter.watch.imports.jsontext import JsonObject, count_of, field_of, text_of
from spvfilter.watch.imports.walletfile import ImportedDescriptor, WalletFile, name_in, networks_of_text

_GENESIS_TIMES = 2
"""A timestamp below this number means "since the genesis block"."""


def read_core(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if a descriptor is missing or contains a private key.
    """
    name: str | None = None
    requests = data
    if isinstance(data, dict):
        if isinstance(data.get("result"), dict):  # the whole answer of the RPC
            return read_core(data["result"])
        if data.get("method") == "importdescriptors" and isinstance(data.get("params"), list) and data["params"]:
            return read_core(data["params"][0])
        if "descriptors" in data:
            name, requests = name_in(field_of(data, "wallet_name", "name")), data["descriptors"]
        elif isinstance(data.get("desc"), str):
            name, requests = name_in(data.get("name")), [data]
    if not isinstance(requests, list) or not any(isinstance(each, dict) and "desc" in each for each in requests):
        return None
    numbered = sorted(enumerate(requests), key=lambda pair: _is_change(pair[1]))  # the first keychain is for receiving
    found = [_descriptor(each, f"descriptors[{at}]", name) for at, each in numbered]
    networks = networks_of_text(found[0].text)
    return WalletFile("Bitcoin Core", name, networks, _birthday(requests), descriptors=tuple(found))


def _descriptor(request: object, where: str, name: str | None) -> ImportedDescriptor:
    if not isinstance(request, dict):
        raise ParameterError(f'{where} is not an object with a "desc" field: export the file again')
    text = text_of(request, "desc", where)
    if (what := private_key_in(text)) is not None:
        raise ParameterError(
            f"{where} contains {what}, which was not kept: export it with `bitcoin-cli listdescriptors`, without `true`"
        )
    return ImportedDescriptor(text, name_in(request.get("label")) or name, _end(request), revealed=(_next(request),))


def _is_change(request: object) -> bool:
    return isinstance(request, dict) and request.get("internal") is True


def _end(request: JsonObject) -> int:
    """Return the end of the wallet's window: the first index that it does not watch."""
    span = request.get("range")
    last = span[-1] if isinstance(span, list) and span else span
    end = count_of(last)
    return 0 if end is None else end + 1


def _next(request: JsonObject) -> int:
    """Return the first index that the wallet has not handed out."""
    return count_of(field_of(request, "next_index", "next")) or 0


def _birthday(requests: list[object]) -> int | None:
    """Return the earliest timestamp, or None if a descriptor has none or the earliest one means the genesis block."""
    times = [count_of(each.get("timestamp")) for each in requests if isinstance(each, dict)]
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) and min(known) >= _GENESIS_TIMES else None
