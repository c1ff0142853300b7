"""A wallet's labels (BIP-329) as JSON lines. The labelled addresses become a watch list.

```
{"type": "addr", "ref": "bc1q…", "label": "shop"}
{"type": "tx", "ref": "f91d…", "label": "rent"}
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice

from spvfilter.errors import ParameterError, counted
from spvfilter.watch.imports.privatekeys import is_private, warning_of
from spvfilter.watch.imports.walletfile import ImportedAddress, WalletFile, label_in

LABELS = "BIP-329"
"""The name of these files in messages."""
_MOST_BEFORE = 20
"""Number of lines at the start of a file, one of which must be a label if it is a label file (our choice)."""
_MOST_NAMED = 20
"""Number of malformed lines that a warning names (our choice)."""
_LINE = re.compile(r"[^\n]*[^\s][^\n]*")
_TYPES = ("tx", "addr", "pubkey", "input", "output", "xpub")


def read_labels(text: str) -> WalletFile | None:
    """Return the labelled addresses in a BIP-329 label file, or None if the text has a different format.

    Malformed lines are skipped with a warning. Raises ParameterError if no line contains an address.
    """
    if not any(_is_label(_object(line)) for _, line in islice(_lines(text), _MOST_BEFORE)):
        return None
    found, others, has_private = [], 0, False
    wrong: list[int] = []
    for number, line in _lines(text):
        data = _object(line)
        if not isinstance(data, dict) or not _is_label(data):
            wrong.append(number)
            continue
        has_private = has_private or any(isinstance(each, str) and is_private(each) for each in data.values())
        if data["type"] == "addr":
            found.append(ImportedAddress(str(data["ref"]), label_in(data.get("label")), number))
        else:
            others += 1
    if not found:
        raise ParameterError(
            "this label file (BIP-329) contains no addresses: watch the wallet's descriptor, and import the labels"
        )
    wallet = WalletFile(LABELS, addresses=tuple(found))
    if wrong:
        named = ", ".join(map(str, wrong[:_MOST_NAMED])) + (", …" if len(wrong) > _MOST_NAMED else "")
        lines, were = ("lines", "were") if len(wrong) > 1 else ("line", "was")
        wallet = wallet.with_warning(
            f"{lines} {named} of the labels (BIP-329) {were} left out: expected an object with type and ref"
        )
    if has_private:
        wallet = wallet.with_warning(warning_of(["label"]))
    if others:
        return wallet.with_warning(
            f"left out {counted(others, 'label')} of transactions, outputs or keys: a watch list only labels addresses"
        )
    return wallet


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers. A label may contain line breaks other than LF."""
    number, at = 1, 0
    for found in _LINE.finditer(text):
        number += text.count("\n", at, found.start())
        at = found.start()
        yield number, found[0]


def _object(line: str) -> object:
    try:
        return json.loads(line) if line.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None


def _is_label(data: object) -> bool:
    return isinstance(data, dict) and data.get("type") in _TYPES and isinstance(data.get("ref"), str)
