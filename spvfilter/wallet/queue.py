"""A queue of foreign transactions to record. Network groups take turns, each with its oldest transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Queue:
    """A queue that is bounded in count and size.

    A network group that sends too much only delays its own transactions. A full queue drops the latest transactions of
    the largest group to make space for others.
    """

    MOST = 10_000  # transactions
    MOST_SIZE = 20_000_000  # bytes

    def __init__(self) -> None:
        self._waiting: dict[str, deque[bytes]] = {}  # transactions by group, the next group first
        self._sizes: dict[str, int] = {}  # bytes by group
        self._number = 0
        self._size = 0  # bytes

    def __len__(self) -> int:
        return self._number

    @property
    def _is_full(self) -> bool:
        return self._number >= self.MOST or self._size >= self.MOST_SIZE

    def has_room(self, group: str = "") -> bool:
        """True if `put` accepts another transaction from this group."""
        return not self._is_full or self._largest(group) != group

    @property
    def is_half_free(self) -> bool:
        """True if the queue is at most half full, so that dropped transactions may be requested again."""
        return self._number <= self.MOST // 2 and self._size <= self.MOST_SIZE // 2

    def has_much_room(self, group: str) -> bool:
        """True if the queue is at most half full, or if the largest group uses at least twice as much as this group."""
        if self.is_half_free:
            return True
        waiting, size = len(self._waiting.get(group, ())), self._sizes.get(group, 0)
        return 2 * waiting <= max(map(len, self._waiting.values())) and 2 * size <= max(self._sizes.values())

    def put(self, raw: bytes, group: str = "") -> list[bytes] | None:
        """Add a transaction.

        Returns the transactions that were dropped to make space for it, or None if the queue is full and does not
        accept it.
        """
        gone: list[bytes] = []
        while self._is_full and (largest := self._largest(group)) != group:
            gone.append(self._waiting[largest].pop())
            self._left(largest, gone[-1])
        if self._is_full and not gone:
            return None
        self._waiting.setdefault(group, deque()).append(raw)
        self._sizes[group] = self._sizes.get(group, 0) + len(raw)
        self._number += 1
        self._size += len(raw)
        return gone

    @property
    def groups(self) -> Iterable[str]:
        """The groups that have transactions, in the order of their turns."""
        return self._waiting.keys()

    def take(self, group: str | None = None) -> tuple[bytes, str]:
        """Remove the oldest transaction of a group, or of the group whose turn it is. Return it and the group."""
        if group is None:
            group = next(iter(self._waiting))
        waiting = self._waiting[group]
        raw = waiting.popleft()
        self._left(group, raw)
        if waiting:
            self._waiting[group] = self._waiting.pop(group)  # the group's turn is now last
        return raw, group

    def _left(self, group: str, raw: bytes) -> None:
        self._number -= 1
        self._size -= len(raw)
        self._sizes[group] -= len(raw)
        if not self._waiting[group]:
            del self._waiting[group], self._sizes[group]

    def _largest(self, group: str) -> str:
        """Return the group that uses most of the exceeded bound, or `group` if no other group is clearly larger."""
        if self._number >= self.MOST:
            most = max(self._waiting, key=lambda each: len(self._waiting[each]))
            return most if len(self._waiting[most]) > len(self._waiting.get(group, ())) + 1 else group
        most = max(self._sizes, key=self._sizes.__getitem__)
        return most if self._sizes[most] > self._sizes.get(group, 0) else group
