"""Files with separate descriptors of receiving and change addresses, such as Bitkey's.

```
External: wpkh([…]xpub…/0/*)#…

Internal: wpkh([…]xpub…/1/*)#…
```

As JSON, these are an object {"external": DESCRIPTOR, "internal": DESCRIPTOR}, or a list of descriptors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

from spvfilter.errors import ParameterError
from spvfilter.watch.descriptor.descriptor import is_descriptor
from spvfilter.watch.descriptor.keys import is_extended_key, private_key_in
from spvfilter.watch.imports.jsontext import JsonObject, field_of
from spvfilter.watch.imports.walletfile import ImportedDescriptor, WalletFile, name_in, networks_of_text

T = TypeVar("T")
_KIND = "descriptors"
_RECEIVING = ("external", "receive", "receiving", "deposit")
_CHANGE = ("internal", "change")
_NAMES = tuple(f"{name}{end}" for name in (*_RECEIVING, *_CHANGE) for end in ("", "_descriptor", "descriptor"))
_LINE = re.compile(rf"\s*({'|'.join((*_RECEIVING, *_CHANGE))})(?:[ _]?descriptor)?\s*[:=]\s*(.*?)\s*", re.IGNORECASE)
_MOST = 100
"""Largest number of lines, or of descriptors in a list (our choice)."""


def read_branch_lines(text: str) -> WalletFile | None:
    """Return the wallet in NAME: DESCRIPTOR lines, or None if the text has a different format.

    Raises ParameterError if a line lacks a descriptor or contains a private key.
    """
    lines = [line for line in text.split("\n", _MOST + 1)[:_MOST] if line.strip() and not line.startswith("#")]
    first = _LINE.fullmatch(lines[0]) if lines else None
    if first is None or not _is_source(first[2]):
        return None
    found = []
    for line in lines:
        pair = _LINE.fullmatch(line)
        if pair is None or not _is_source(pair[2]):
            raise ParameterError("expected only the lines External: DESCRIPTOR and Internal: DESCRIPTOR")
        found.append((pair[1], pair[2]))
    return _wallet(_receiving_first(found), None)


def read_branches(data: object) -> WalletFile | None:
    """Return the wallet that a JSON value describes, or None if the value has a different format.

    Raises ParameterError if a descriptor contains a private key.
    """
    if isinstance(data, dict):
        inner = data.get("descriptors")
        found = inner if isinstance(inner, list) else _named(inner if isinstance(inner, dict) else data)
        name = name_in(field_of(data, "name", "label"))
    else:
        found, name = data if isinstance(data, list) else [], None
    texts = [each.strip() for each in found if isinstance(each, str) and _is_source(each)]
    return _wallet(texts, name) if texts and len(texts) == len(found) <= _MOST else None


def _named(data: JsonObject) -> list[object]:
    """Return the values of the fields whose names stand for receiving or change addresses, receiving first."""
    return _receiving_first((name, value) for name, value in data.items() if name.lower().replace(" ", "_") in _NAMES)


def _receiving_first(named: Iterable[tuple[str, T]]) -> list[T]:
    """Return the values of pairs (name, value), those named for change addresses last."""
    return [value for _, value in sorted(named, key=lambda pair: pair[0].lower().startswith(_CHANGE))]


def _is_source(text: str) -> bool:
    return is_descriptor(text.strip()) or is_extended_key(text.strip())


def _wallet(texts: list[str], name: str | None) -> WalletFile:
    for text in texts:
        if (what := private_key_in(text)) is not None:
            raise ParameterError(f"a descriptor contains {what}, which was not kept: export a watch-only wallet")
    return WalletFile(
        _KIND, name, networks_of_text(texts[0]), descriptors=tuple(ImportedDescriptor(each, name) for each in texts)
    )
