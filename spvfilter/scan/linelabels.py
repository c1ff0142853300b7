"""Render the labels of a watch list for the kernel: as CSV cells, as JSON strings, or as UTF-8 for columns."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Iterable
from hashlib import sha256
from itertools import accumulate, compress, islice
from operator import itemgetter
from typing import NamedTuple, Self

from spvfilter.kernel import hit_sums
from spvfilter.scan.partfile import BlockHits
from spvfilter.watch.entrytexts import packed_texts
from spvfilter.watch.watchlist import WatchList

Render = Callable[[str], bytes]


class AccountCell(NamedTuple):
    """How to render both a label and an account in a line."""

    between: bytes
    """The bytes between the two."""
    none: bytes
    """The bytes for a missing label or account."""


CSV_ACCOUNT = AccountCell(b",", b"")
JSON_ACCOUNT = AccountCell(b',"account":', b"null")
_MOST = 1 << 20  # Number of rendered labels that are kept (our choice).


def csv_cell(text: str) -> bytes:
    """Return a string as a quoted CSV cell."""
    return b'"' + text.replace('"', '""').encode() + b'"'


def json_text(text: str) -> bytes:
    """Return a string as JSON."""
    return json.dumps(text).encode()


def plain_cell(text: str) -> bytes:
    """Return a string as a CSV cell, quoted only if necessary."""
    return csv_cell(text) if any(char in text for char in ',"\r\n') else text.encode()


def labels_digest(watch: WatchList) -> str:
    """Return the SHA-256 of the labels of all entries, and of their accounts if there are any, in hex."""
    digest = sha256()
    for piece in packed_texts(watch.labels()):
        digest.update(piece)
    for entry in range(len(watch) if watch.accounts else 0):
        digest.update(f"{watch.account(entry) or ''}\n".encode())
    return digest.hexdigest()


class LineLabels:
    """Renders the labels of matching entries for the kernel's `label_places` and `label_texts` arguments.

    Threads may share an instance.

    Args:
        watch: The watch list. Entries may be added to it later.
        render: Function that renders a label or an account.
        account: How the account of an entry follows its label, if the list has accounts. None to omit the account.
    """

    def __init__(self, watch: WatchList, render: Render, account: AccountCell | None = None) -> None:
        self._watch = watch
        self._render = render
        self._account = account if watch.accounts else None
        self._text_of = watch.label
        self._rendered: dict[int, bytes] = {}  # labels rendered in earlier calls; empty for an entry without a label

    @classmethod
    def of_accounts(cls, watch: WatchList, render: Render) -> Self:
        """Return an object that renders accounts instead of labels."""
        made = cls(watch, render)
        made._text_of = watch.account
        return made

    @property
    def _is_empty(self) -> bool:
        """True if no entry has a label or account to render."""
        return not self._watch.has_labels and not self._watch.accounts

    def of_hits(self, blocks: Iterable[BlockHits]) -> tuple[bytes, bytes]:
        """Return `label_places` and `label_texts` for all entries that have a match in these blocks."""
        if self._is_empty:
            return b"", b""
        return self.of_entries(map(itemgetter(0), hit_sums(b"".join(block.packed for block in blocks))))

    def of_entries(self, entries: Iterable[int]) -> tuple[bytes, bytes]:
        """Return `label_places` and `label_texts` for these entries, which are in ascending order."""
        if self._is_empty:
            return b"", b""
        asked = list(entries)
        known = self._rendered
        texts = [known[entry] if entry in known else self._of_entry(entry) for entry in asked]
        found, labels = list(compress(asked, texts)), list(filter(None, texts))
        places = array("I", [0]) * (2 * len(found))
        places[::2] = array("I", found)
        places[1::2] = array("I", islice(accumulate(map(len, labels), initial=0), len(labels)))
        return places.tobytes(), b"".join(labels)

    def _of_entry(self, entry: int) -> bytes:
        """Return the rendered label of an entry, preceded by its size."""
        first = self._text_of(entry)
        text = self._render(first) if first else b""
        if self._account is not None:
            between, none = self._account
            account = self._watch.account(entry)
            text = (text or none) + between + (self._render(account) if account else none)
        if text:
            text = len(text).to_bytes(4, sys.byteorder) + text
        if len(self._rendered) >= _MOST:
            self._rendered = {}
        self._rendered[entry] = text
        return text
