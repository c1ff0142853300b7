"""The labels and accounts of the entries in a compiled watch list, with later changes."""

from __future__ import annotations

import struct
from abc import abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import ItemsView, Iterator, Mapping, MutableMapping, Sequence
from typing import Self

from spvfilter.errors import ParameterError

_MOST_TEXTS = 0xFFFFFFFF  # Most bytes of all labels in total.
RUN = struct.Struct("=III")
"""A run of successive entries with the same account: the first entry, the count, and the number of the account."""


class EntryTexts(MutableMapping[int, str]):
    """Text by entry number. Unchanged text is read from the mapped file."""

    def __init__(self, changed: dict[int, str | None]) -> None:
        self._changed = changed  # None: the text was removed

    @abstractmethod
    def _given(self, entry: int) -> str | None:
        """Return the text that the file contains for an entry, or None."""

    @abstractmethod
    def _all_given(self) -> Iterator[tuple[int, str]]:
        """Yield the entries that have a text in the file, in ascending order, with their texts."""

    @abstractmethod
    def _count(self) -> int:
        """Return the number of entries in the file that have a text."""

    def __getitem__(self, entry: int) -> str:
        text = self._changed[entry] if entry in self._changed else self._given(entry)
        if text is None:
            raise KeyError(entry)
        return text

    def __setitem__(self, entry: int, text: str) -> None:
        self._changed[entry] = text

    def __delitem__(self, entry: int) -> None:
        if entry not in self:
            raise KeyError(entry)
        self._changed[entry] = None

    def pairs(self) -> Iterator[tuple[int, str]]:
        """Yield all entries that have a text, with their texts."""
        changed = self._changed
        yield from ((entry, text) for entry, text in self._all_given() if entry not in changed)
        yield from ((entry, text) for entry, text in changed.items() if text is not None)

    def items(self) -> ItemsView[int, str]:
        """Return a view of the entries and their texts."""
        return _Pairs(self)

    def __iter__(self) -> Iterator[int]:
        return (entry for entry, _ in self.pairs())

    def __len__(self) -> int:
        kept = sum(text is not None for text in self._changed.values())
        return self._count() + kept - sum(self._given(entry) is not None for entry in self._changed)


class _Pairs(ItemsView[int, str]):
    """An items view that iterates without looking up each entry."""

    _mapping: EntryTexts

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return self._mapping.pairs()


class EntryLabels(EntryTexts):
    """The labels of a compiled list. A label is not decoded until it is read.

    Characters that a label must not contain are replaced by U+FFFD.

    Args:
        entries: The entries that have a label, in ascending order.
        ends: The offset at which each label ends in `texts`, in ascending order.
        texts: The concatenated labels in UTF-8.
        changed: Later changes, or None for a label that was removed.
    """

    def __init__(
        self, entries: memoryview, ends: memoryview, texts: memoryview, changed: dict[int, str | None] | None = None
    ) -> None:
        super().__init__({} if changed is None else changed)
        self._entries, self._ends, self._texts = entries, ends, texts

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self._entries, self._ends, self._texts, self._changed.copy())

    @property
    def is_changed(self) -> bool:
        """True if any label was changed, added or removed."""
        return bool(self._changed)

    @property
    def sections(self) -> tuple[memoryview, memoryview, memoryview]:
        """The entries, ends and texts of the file."""
        return self._entries, self._ends, self._texts

    def text(self, at: int) -> bytes:
        """Return the text of label number `at` in the file."""
        return bytes(self._texts[self._ends[at - 1] if at else 0 : self._ends[at]])

    def _given(self, entry: int) -> str | None:
        at = bisect_left(self._entries, entry) if 0 <= entry < 1 << 32 else len(self._entries)
        is_there = at < len(self._entries) and self._entries[at] == entry
        return _shown(self.text(at)) if is_there else None

    def _all_given(self) -> Iterator[tuple[int, str]]:
        start, texts = 0, self._texts
        for entry, end in zip(self._entries, self._ends, strict=True):
            yield entry, _shown(bytes(texts[start:end]))
            start = end

    def _count(self) -> int:
        return len(self._entries)


def packed_texts(labels: Mapping[int, str]) -> tuple[memoryview, memoryview, memoryview]:
    """Return the first three arguments of EntryLabels for these labels: the entries, the ends and the texts.

    Raises ParameterError if the labels exceed 4 GB.
    """
    if isinstance(labels, EntryLabels) and not labels.is_changed:
        return labels.sections
    entries, ends, texts = array("I"), array("I"), bytearray()
    for entry, label in sorted(labels.items()):
        texts += label.encode()
        if len(texts) > _MOST_TEXTS:
            raise ParameterError("the labels exceed 4 GB in total: shorten them")
        entries.append(entry)
        ends.append(len(texts))
    return memoryview(entries), memoryview(ends), memoryview(texts)


def _shown(text: bytes) -> str:
    label = text.decode("utf-8", "replace")
    return label.replace("\0", "\ufffd")


class EntryAccounts(EntryTexts):
    """The accounts of a compiled list.

    Args:
        runs: Runs of entries, in ascending order.
        names: Names of the accounts by their numbers.
        changed: Later changes, or None for an entry that left its account.
    """

    def __init__(self, runs: memoryview, names: Sequence[str], changed: dict[int, str | None] | None = None) -> None:
        super().__init__({} if changed is None else changed)
        self._runs, self._names = runs, names
        self._numbers = runs.cast("I")
        self._firsts = self._numbers[:: RUN.size // 4]

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self._runs, self._names, self._changed.copy())

    def _given(self, entry: int) -> str | None:
        at = bisect_right(self._firsts, entry) - 1
        if at < 0:
            return None
        first, count, name = RUN.unpack_from(self._runs, RUN.size * at)
        return self._names[name] if entry - first < count else None

    def _all_given(self) -> Iterator[tuple[int, str]]:
        for first, count, name in RUN.iter_unpack(self._runs):
            for entry in range(first, first + count):
                yield entry, self._names[name]

    def _count(self) -> int:
        return sum(self._numbers[1 :: RUN.size // 4])
