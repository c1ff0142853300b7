"""Labels of entries as the kernel takes them, packed from their description."""

from __future__ import annotations

import struct
from collections.abc import Mapping


def packed_labels(labels: Mapping[int, bytes]) -> tuple[bytes, bytes]:
    """Return the arguments `label_places` and `label_texts` for labels by entry."""
    places = [0] * (1 + max(labels, default=-1))
    texts = struct.pack("=I", 0)
    for entry, label in labels.items():
        places[entry] = len(texts)
        texts += struct.pack("=I", len(label)) + label
    return struct.pack(f"={len(places)}I", *places), texts
