"""Wallets of Specter, and of other programs whose JSON contains a descriptor of the receiving addresses.

```
{"label": "w", "blockheight": 481824, "descriptor": "wsh(sortedmulti(2,…/0/*))#…", "devices": […]}
{"name": "w", "recv_descriptor": "wpkh(…/0/*)#…", "change_descriptor": "wpkh(…/1/*)#…", "labels": {…}}
```
"""

from __future__ import annotations

from collections.abc import Iterator

from spvfilter.errors import ParameterError
from spvfilter.watch.descriptor.keys import private_key_in
from spvfilter.watch.imports.accountkeys import both_branches
from spvfilter.watch.imports.jsontext import count_of, field_of, text_of
from spvfilter.watch.imports.walletfile import (
    ImportedAddress,
    ImportedDescriptor,
    WalletFile,
    name_in,
    networks_of_text,
)


def read_specter(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if a descriptor is not text, contains a private key, or has the wrong checksum.
    """
    if not isinstance(data, dict) or ("descriptor" not in data and "recv_descriptor" not in data):
        return None
    name = name_in(field_of(data, "label", "name", "wallet_name"))
    if "recv_descriptor" in data:
        texts = [text_of(data, "recv_descriptor", "the wallet")]
        texts.append(text_of(data, "change_descriptor", "the wallet") if "change_descriptor" in data else "")
    else:
        texts = [text_of(data, "descriptor", "the wallet")]
    for text in texts:
        if (what := private_key_in(text)) is not None:
            raise ParameterError(f"the descriptor contains {what}, which was not kept: export the wallet as watch-only")
    if not texts[1:] or not texts[1]:
        texts = [both_branches(texts[0])]
    ends = [count_of(field_of(data, field)) or 0 for field in ("keypool", "change_keypool")]
    shown = [count_of(data.get(field)) for field in ("address_index", "change_index")]
    revealed = tuple(0 if index is None else index + 1 for index in shown)
    return WalletFile(
        "Specter",
        name,
        networks_of_text(texts[0]),
        birth_height=count_of(data.get("blockheight")) or None,
        descriptors=tuple(
            ImportedDescriptor(text, name, end, revealed=revealed if len(texts) == 1 else revealed[at : at + 1])
            for at, (text, end) in enumerate(zip(texts, [max(ends), *ends[1:]], strict=False))
        ),
        labels=tuple(_labels(data.get("labels"))),
    )


def _labels(found: object) -> Iterator[ImportedAddress]:
    """Yield the labels of addresses. Some versions map addresses to labels, others map labels to addresses."""
    for key, value in found.items() if isinstance(found, dict) else ():
        if isinstance(value, list):
            yield from (ImportedAddress(address, name_in(key)) for address in value if isinstance(address, str))
        elif (label := name_in(value)) is not None:
            yield ImportedAddress(key, label)
