"""Transactions of the mempool that came and are still to be recorded, bounded. What becomes of them is sync's business."""

from __future__ import annotations

from collections import deque

MAX_WAITING = 5_000  # transactions, ours; as many more may be under way by the time that there is no room
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
        """How many more may be asked for."""
        return MAX_WAITING - len(self._raws) if self._size < MAX_WAITING_SIZE else 0

    def put(self, raw: bytes) -> bool:
        """Whether it was taken."""
        if len(self._raws) >= 2 * MAX_WAITING or self._size >= MAX_WAITING_SIZE:
            return False
        self._raws.append(raw)
        self._size += len(raw)
        return True

    def take(self) -> bytes:
        raw = self._raws.popleft()
        self._size -= len(raw)
        return raw
