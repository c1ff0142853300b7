"""Machines of a cluster that have different files: knows which workers see which files, and calls the right machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from spvfilter.scan.daskcalls import Calls
from spvfilter.scan.workertask import SeenFile, files_here

_LOOK_S = 0.5  # Seconds between two checks of which workers are connected (our choice).
RETURN_S = 10  # Seconds to wait for a machine that has no worker at the moment (our choice).

Sight = tuple[SeenFile, ...]  # all files that one worker sees


class AwayError(Exception):
    """None of the machines that have the files has a worker."""


class WorkerPool:
    """The workers of a cluster, grouped by machine. Workers that see the same files count as one machine.

    Workers that join later are also asked which files they see.

    Args:
        calls: The cluster.
        paths: The paths of the files, as the user gave them.
        sights: The files that are seen on each machine. A machine has several entries if machines have copies of the
            same files.
    """

    def __init__(self, calls: Calls, paths: Sequence[str], sights: Sequence[Sequence[Sight]]) -> None:
        self._calls = calls
        self._paths = tuple(paths)
        self._machine_of = {sight: machine for machine, each in enumerate(sights) for sight in each}
        # The machine of each worker, keyed by address. None if the worker sees other files.
        self._workers: dict[str, int | None] = {}
        self._load: dict[int, int] = {}  # Number of running calls on each machine.
        self._looked = 0.0  # Time of the last check, in monotonic seconds.
        self._looking = asyncio.Lock()

    async def workers(self, machine: int) -> list[str]:
        """Return the addresses of a machine's connected workers."""
        async with self._looking:
            if time.monotonic() - self._looked >= _LOOK_S:
                await self._look()
                self._looked = time.monotonic()
        return [address for address, of in self._workers.items() if of == machine]

    async def _look(self) -> None:
        """Check which workers are connected, and ask new workers which files they see."""
        there = list(await self._calls.call(self._calls.client.nthreads))
        new = [address for address in there if address not in self._workers]
        found: dict[str, object] = {}
        if new:
            with suppress(OSError, TimeoutError):  # a worker has left again
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
        """Run a function on a worker of the least busy machine, and return its result.

        Args:
            function: The function.
            args: Function that returns the arguments for a machine.
            machines: Machines that may run the function.

        Raises:
            AwayError: None of these machines has had a worker for 10 seconds.
            LostError: The workers were lost. Errors of the function are also raised.
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
        """Return the least busy of these machines, and its workers. Raises AwayError."""
        until = time.monotonic() + RETURN_S
        while True:
            there = {machine: workers for machine in machines if (workers := await self.workers(machine))}
            if there:
                machine = min(there, key=lambda each: self._load.get(each, 0) / len(there[each]))
                return machine, there[machine]
            if time.monotonic() >= until:
                raise AwayError
            await asyncio.sleep(_LOOK_S)
