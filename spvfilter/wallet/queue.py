"""Transactions that wait to be recorded: those of each network group in order of arrival, the groups in turn."""

from __future__ import annotations

from collections import deque


class Queue:
    """Bounded in number and bytes.

    Who sends too many holds up its own alone: those of others are taken in between, and take its room.
    """

    MOST = 10_000
    MOST_SIZE = 20_000_000  # bytes

    def __init__(self) -> None:
        self._waiting: dict[str, deque[bytes]] = {}  # by group; the one whose turn it is comes first
        self._sizes: dict[str, int] = {}  # bytes of these
        self._number = 0
        self._size = 0  # bytes

    def __len__(self) -> int:
        return self._number

    @property
    def _is_full(self) -> bool:
        return self._number >= self.MOST or self._size >= self.MOST_SIZE

    def has_room(self, group: str = "") -> bool:
        """Whether `put` takes another transaction of a group: there is room for all, or another group has more."""
        return not self._is_full or self._largest(group) != group

    @property
    def is_half_free(self) -> bool:
        """Whether there is room for so much that what did not fit may be asked for again."""
        return self._number <= self.MOST // 2 and self._size <= self.MOST_SIZE // 2

    def has_much_room(self, group: str) -> bool:
        """The same for one group, for which another that has more than twice as much makes room."""
        if self.is_half_free:
            return True
        waiting, size = len(self._waiting.get(group, ())), self._sizes.get(group, 0)
        return 2 * waiting <= max(map(len, self._waiting.values())) and 2 * size <= max(self._sizes.values())

    def put(self, raw: bytes, group: str = "") -> list[bytes] | None:
        """Add a transaction:

        None if there was no room, else those that made room for it, the latest ones of the group that has most.
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

    def take(self) -> tuple[bytes, str]:
        """The oldest transaction of the group whose turn it is, and that group."""
        group, waiting = next(iter(self._waiting.items()))
        raw = waiting.popleft()
        self._left(group, raw)
        if waiting:
            self._waiting[group] = self._waiting.pop(group)  # its next turn comes after the others'
        return raw, group

    def _left(self, group: str, raw: bytes) -> None:
        self._number -= 1
        self._size -= len(raw)
        self._sizes[group] -= len(raw)
        if not self._waiting[group]:
            del self._waiting[group], self._sizes[group]

    def _largest(self, group: str) -> str:
        """The group that has most of what there is too much of; this one where no other has more by two."""
        if self._number >= self.MOST:
            most = max(self._waiting, key=lambda each: len(self._waiting[each]))
            return most if len(self._waiting[most]) > len(self._waiting.get(group, ())) + 1 else group
        most = max(self._sizes, key=self._sizes.__getitem__)
        return most if self._sizes[most] > self._sizes.get(group, 0) else group
