"""Transactions of the mempool that came and are still to be recorded, bounded. What becomes of them is sync's business."""

from __future__ import annotations

from collections import deque

MAX_WAITING = 5_000  # transactions, ours
MAX_WAITING_SIZE = 20_000_000  # bytes, ours


class WaitingTxs:
    """First come, first served."""

    def __init__(self) -> None:
        self._raws: deque[bytes] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._raws)

    @property
    def room(self) -> int:
        """How many more may come."""
        return MAX_WAITING - len(self._raws) if self._size < MAX_WAITING_SIZE else 0

    def put(self, raw: bytes) -> bool:
        """Whether there was room for it."""
        if not self.room:
            return False
        self._raws.append(raw)
        self._size += len(raw)
        return True

    def take(self) -> bytes:
        raw = self._raws.popleft()
        self._size -= len(raw)
        return raw
