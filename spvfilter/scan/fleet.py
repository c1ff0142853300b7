"""Machines of a cluster that have different files: which workers see which, and what is done only where its files
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.scan.calling import Calls
from spvfilter.scan.onworker import SeenFile, files_here

if TYPE_CHECKING:
    import asyncio
    import time
else:
    asyncio = deferred("asyncio")
    time = deferred("time")

_LOOK_S = 0.5  # between looks at which workers there are
_RETURN_S = 10  # for which a machine may be away

Sight = tuple[SeenFile, ...]  # the files that a worker sees


class AwayError(Exception):
    """No worker is there that sees the files of any of the machines asked for."""


class Fleet:
    """The workers of a cluster by machine: two that see the same files are of one.

    Workers that come later are asked, too.

    `sights` are what is seen on each machine: several, where machines have the same files.
    """

    def __init__(self, calls: Calls, paths: Sequence[str], sights: Sequence[Sequence[Sight]]) -> None:
        self._calls = calls
        self._paths = tuple(paths)
        self._machine_of = {sight: machine for machine, each in enumerate(sights) for sight in each}
        self._workers: dict[str, int | None] = {}  # by address: the machine
        self._load: dict[int, int] = {}  # by machine: calls that are running
        self._looked = 0.0
        self._looking = asyncio.Lock()

    async def workers(self, machine: int) -> list[str]:
        """The workers of a machine that are there."""
        async with self._looking:
            if time.monotonic() - self._looked >= _LOOK_S:
                await self._look()
                self._looked = time.monotonic()
        return [address for address, of in self._workers.items() if of == machine]

    async def _look(self) -> None:
        there = list(await self._calls.call(self._calls.client.nthreads))
        new = [address for address in there if address not in self._workers]
        found: dict[str, object] = {}
        if new:
            with suppress(OSError, TimeoutError):  # one has gone again
                found = await self._calls.call(
                    self._calls.client.run, files_here, self._paths, workers=new, on_error="return"
                )
        known = {address: machine for address, machine in self._workers.items() if address in there}
        for address, seen in found.items():
            if isinstance(seen, tuple):
                known[address] = self._machine_of.get(seen)
        self._workers = known

    async def once(
        self, function: Callable[..., object], args: Callable[[int], Sequence[object]], machines: Sequence[int]
    ) -> object:
        """What a function comes to on a worker of the machine with the least to do, of those named; its arguments
        depend on that.

        Raises AwayError once none of them has had a worker for a while, LostError, and what the function raises.
        """
        machine, workers = await self._chosen(machines)

        async def are_there() -> bool:
            return not set(workers).isdisjoint(await self.workers(machine))

        self._load[machine] = self._load.get(machine, 0) + 1
        try:
            return await self._calls.once(function, args(machine), workers, are_there)
        finally:
            self._load[machine] -= 1

    async def _chosen(self, machines: Sequence[int]) -> tuple[int, list[str]]:
        until = time.monotonic() + _RETURN_S
        while True:
            there = {machine: workers for machine in machines if (workers := await self.workers(machine))}
            if there:
                machine = min(there, key=lambda each: self._load.get(each, 0) / len(there[each]))
                return machine, there[machine]
            if time.monotonic() >= until:
                raise AwayError
            await asyncio.sleep(_LOOK_S)
