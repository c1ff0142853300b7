"""Liana's backups, which include the indexes of the addresses that were handed out.

```
{"name": "w", "version": 1, "network": "bitcoin", "accounts": [
  {"name": "a", "descriptor": "wsh(or_d(…))#…", "receive_index": 12, "change_index": 3, "timestamp": 1700000000,
   "labels": {"type": "BIP329", "labels": [{"type": "addr", "ref": "bc1q…", "label": "shop"}]}}]}
```
"""

from __future__ import annotations

from spvfilter.errors import ParameterError, counted
from spvfilter.watch.descriptor.keys import private_key_in
from spvfilter.watch.imports.jsontext import count_of, text_of
from spvfilter.watch.imports.walletfile import (
    ImportedAddress,
    ImportedDescriptor,
    WalletFile,
    label_in,
    name_in,
    named_networks,
    networks_of_text,
)

_KIND = "Liana"


def read_liana(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if a descriptor is missing or contains a private key, or the network is unknown.
    """
    accounts = data.get("accounts") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(accounts, list):
        return None
    if not any(isinstance(each, dict) and "descriptor" in each for each in accounts):
        return None
    found, labels, others = list[ImportedDescriptor](), list[ImportedAddress](), 0
    times: list[int | None] = []
    for number, each in enumerate(accounts, 1):
        where = f"account {number} of a Liana backup"
        if not isinstance(each, dict):
            raise ParameterError(f'{where} is not an object with a "descriptor" field: export the file again')
        text = text_of(each, "descriptor", where)
        if (what := private_key_in(text)) is not None:
            raise ParameterError(f"{where} contains {what}, which was not kept: export the wallet as watch-only")
        indexes = (count_of(each.get(name)) for name in ("receive_index", "change_index"))
        revealed = tuple(0 if index is None else index + 1 for index in indexes)
        found.append(ImportedDescriptor(text, name_in(each.get("name")), revealed=revealed))
        times.append(count_of(each.get("timestamp")))
        records = _records(each.get("labels"))
        for record in records:
            label = label_in(record.get("label"))
            if record.get("type") == "addr" and label is not None:
                labels.append(ImportedAddress(str(record.get("ref")), label))
            elif label is not None:
                others += 1
    known = [time for time in times if time]
    wallet = WalletFile(
        _KIND,
        name_in(data.get("name")),
        named_networks(data.get("network"), networks_of_text(found[0].text), _KIND),
        min(known) if len(known) == len(times) else None,
        descriptors=tuple(found),
        labels=tuple(labels),
    )
    if others:
        return wallet.with_warning(
            f"left out {counted(others, 'label')} of transactions, outputs or keys: a watch list only labels addresses"
        )
    return wallet


def _records(value: object) -> list[dict[str, object]]:
    """Return the BIP-329 records in a backup, which are a list, or a list in the field `labels`."""
    found = value.get("labels") if isinstance(value, dict) else value
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
