"""The position of `spvfilter watch` in a wallet's events, stored in the database for the next run."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from spvfilter.errors import SpvFilterError
from spvfilter.light.client import LightClient

READER = "watch"  # name of the bookmark in the database
_PAUSE_S = 0.5  # time between two writes, because each is flushed to disk (our choice)


class Bookmark:
    """The number of the last event whose line was written to standard output.

    It is stored after the line is written, so that no event is lost.
    """

    def __init__(self, client: LightClient) -> None:
        self._client = client
        self._told = self._kept = -1
        self._changed = asyncio.Event()

    async def begin(self) -> int:
        """Return the number of the last event that an earlier run printed, or 0 if there is none."""
        self._told = self._kept = await self._client.bookmark(READER) or 0
        return self._told

    def told(self, sequence: int) -> None:
        """Record that the lines of all events up to this one have been written."""
        if sequence > self._told:
            self._told = sequence
            self._changed.set()

    async def keep(self) -> None:
        """Store the position from time to time, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            with suppress(SpvFilterError):  # the stream of events raises the error that ended the client
                await self._write()
            await asyncio.sleep(_PAUSE_S)

    async def end(self) -> None:
        """Store the position one last time. If the client has ended, the next run prints some events again."""
        with suppress(SpvFilterError):
            await self._write()

    async def _write(self) -> None:
        told = self._told
        if told > self._kept:
            await self._client.set_bookmark(READER, told)
            self._kept = told
