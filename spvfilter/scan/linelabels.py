"""Render the labels of a watch list for the kernel: as cells of CSV, as JSON strings, or as UTF-8 for columns."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from spvfilter._public import deferred

if TYPE_CHECKING:
    import json

    from spvfilter.watch.watchlist import WatchList
else:
    json = deferred("json")

Render = Callable[[str], bytes]


def csv_cell(text: str) -> bytes:
    """Return a text as a quoted cell of CSV."""
    return b'"' + text.replace('"', '""').encode() + b'"'


def json_text(text: str) -> bytes:
    """Return a text as a JSON string."""
    return json.dumps(text).encode()


def plain_cell(text: str) -> bytes:
    """Return a text as a cell of CSV, with quotes only if it needs them. It must have no control characters."""
    return csv_cell(text) if "," in text or '"' in text else text.encode()


def labels_digest(watch: WatchList) -> str:
    """Return the SHA-256 of the labels of all entries, in hex. No label has control characters."""
    labels = watch.labels_by_entry()
    return sha256("\0".join(label or "" for label in labels).encode() if any(labels) else b"").hexdigest()


class LineLabels:
    """The rendered labels of all entries: the arguments `label_places` and `label_texts` of the kernel.

    Args:
        watch: The watch list. It may get entries later.
        render: Renders a label.
    """

    def __init__(self, watch: WatchList, render: Render) -> None:
        self._watch = watch
        self._render = render
        self._entries = 0  # number of entries whose labels are known
        self._places = array("I")
        self._texts = bytearray(self._places.itemsize)  # place 0 means no label
        self._last, self._last_place = "", 0  # the last label, and its place
        self._packed = b"", b""

    def packed(self) -> tuple[bytes, bytes]:
        """Return the places and the texts of the labels, also of entries that were added after the last call."""
        first, self._entries = self._entries, len(self._watch)
        if first == self._entries:
            return self._packed
        more = range(first, self._entries)
        labels = self._watch.labels_by_entry() if first == 0 else [self._watch.label(entry) for entry in more]
        if any(labels):
            self._places.frombytes(bytes(self._places.itemsize * (first - len(self._places))))
            self._places.extend(map(self._place, labels))
            self._packed = self._places.tobytes(), bytes(self._texts)
        return self._packed

    def _place(self, label: str | None) -> int:
        """Return the place of a label; 0 for no label. Successive entries with the same label share a place."""
        if not label:
            return 0
        if label != self._last:
            self._last, self._last_place = label, len(self._texts)
            text = self._render(label)
            self._texts += len(text).to_bytes(self._places.itemsize, sys.byteorder)
            self._texts += text
        return self._last_place
