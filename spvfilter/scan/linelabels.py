"""The labels of a watch list as the kernel takes them: rendered for lines of CSV or JSON, or in UTF-8 for columns."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

Render = Callable[[str], bytes]


def csv_cell(text: str) -> bytes:
    """Return a text as a quoted cell of CSV."""
    return b'"' + text.replace('"', '""').encode() + b'"'


def json_text(text: str) -> bytes:
    """Return a text as a JSON string."""
    return json.dumps(text).encode()


class LineLabels:
    """The rendered labels of all entries: the arguments `label_places` and `label_texts` of the kernel.

    Args:
        watch: The watch list. It may get entries later.
        render: Renders a label; each text is rendered once.
    """

    def __init__(self, watch: WatchList, render: Render) -> None:
        self._watch = watch
        self._render = render
        self._entries = 0  # number of entries whose labels are known
        self._places = array("I")
        self._texts = bytearray(self._places.itemsize)  # place 0 means no label
        self._known: dict[str, int] = {}
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

    def digest(self) -> str:
        """Return the SHA-256 of the labels, in hex."""
        places, texts = self.packed()
        return sha256(len(places).to_bytes(8, "little") + places + texts).hexdigest()

    def _place(self, label: str | None) -> int:
        """Return the place of a label; 0 for no label."""
        if not label:
            return 0
        place = self._known.get(label)
        if place is None:
            place = self._known[label] = len(self._texts)
            text = self._render(label)
            self._texts += array("I", (len(text),)).tobytes() + text
        return place
