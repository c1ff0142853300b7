"""Labels of entries as the kernel takes them, packed from their description."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def packed_labels(labels: Mapping[int, bytes]) -> tuple[bytes, bytes]:
    """Return the arguments `label_places` and `label_texts` for labels by entry."""
    places = texts = b""
    for entry, label in sorted(labels.items()):
        places += struct.pack("=2I", entry, len(texts))
        texts += struct.pack("=I", len(label)) + label
    return places, texts
