"""How far `spvfilter watch` has told a wallet's events, kept in the database: after a restart it goes on from there."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from spvfilter.errors import SpvFilterError
from spvfilter.light.client import LightClient

READER = "watch"
_PAUSE_S = 0.5  # between two writes: a commit takes a disk its time


class Place:
    """The number of the last event whose line was written to standard output.

    It is kept after the line, so that none is left out.
    """

    def __init__(self, client: LightClient) -> None:
        self._client = client
        self._told = self._kept = -1
        self._changed = asyncio.Event()

    async def begin(self) -> int:
        """Number of the last event that an earlier run told; 0 for none."""
        self._told = self._kept = await self._client.bookmark(READER) or 0
        return self._told

    def told(self, sequence: int) -> None:
        """The lines of all events up to this one are written."""
        if sequence > self._told:
            self._told = sequence
            self._changed.set()

    async def keep(self) -> None:
        """Keep it, now and then, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            with suppress(SpvFilterError):  # why the client has ended its events say
                await self._write()
            await asyncio.sleep(_PAUSE_S)

    async def end(self) -> None:
        """Keep it for the last time. Where the client has ended, what was told since the last time is told again."""
        with suppress(SpvFilterError):
            await self._write()

    async def _write(self) -> None:
        told = self._told
        if told > self._kept:
            await self._client.set_bookmark(READER, told)
            self._kept = told
