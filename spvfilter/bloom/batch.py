"""Iterate over the keys of a batch, for filters in Redis and for operations that the kernel does key by key."""

from __future__ import annotations

from collections.abc import Iterator

from spvfilter.kernel import Encoding
from spvfilter.kernel.columns import Keys, Nulls, Padding
from spvfilter.kernel.pure.columns import opened


class KeyBatch:
    """The keys of a batch, without the nulls that are skipped. Each key is an object that `add` accepts.

    It accepts whatever a filter's `update` accepts, and can be iterated only once. Raises TypeError, KeyRangeError,
    ColumnError and ParameterError in the same cases as BloomFilter.update.
    """

    def __init__(self, keys: Keys, nulls: Nulls, encoding: Encoding, padding: Padding | None = None) -> None:
        self._keys, self._answer = opened(keys, nulls, lambda key: (key,), encoding, padding)
        self._left_out: list[int] = []  # positions of the skipped nulls among all keys, ascending

    def __iter__(self) -> Iterator[object]:
        """Yield the keys."""
        for number, key in enumerate(self._keys):
            if key is None:
                self._left_out.append(number)
            else:
                yield key[0]

    def answer(self, mask: bytes) -> object:
        """Return `mask` for the batch, in the array type of the batch's library.

        `mask` contains one byte for each key that was yielded.
        """
        if self._left_out:
            spread = bytearray(len(mask) + len(self._left_out))
            left_out = iter([*self._left_out, len(spread)])
            at, done = next(left_out), 0
            for number in range(len(spread)):
                if number == at:
                    at = next(left_out)
                else:
                    spread[number] = mask[done]
                    done += 1
            mask = bytes(spread)
        return self._answer(mask)
