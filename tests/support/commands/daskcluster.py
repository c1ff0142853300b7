"""A Dask cluster of local processes, forked from a process that has imported Dask. It asserts only its own start."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from support.peers.namespaces import enter

PATIENCE_S = 60
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["distributed", "spvfilter.scan.cluster"])


class Cluster:
    """A scheduler and workers, each a process of one thread, on the loopback or in named network namespaces.

    `config` is Dask's configuration in all of them.
    """

    def __init__(
        self,
        workers: int,
        *,
        host: str = "127.0.0.1",
        namespace: str | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self._processes: list[ForkServerProcess] = []
        # wait this long for a killed process
        self._config = {"distributed.comm.timeouts.connect": "5s", **(config or {})}
        self.scheduler, self.address = self._started(_schedule, host, None, namespace)
        self.workers = [self.add_worker() for _ in range(workers)]

    def _started(
        self, program: Callable[..., None], where: str, folder: Path | None, namespace: str | None
    ) -> tuple[ForkServerProcess, str]:
        """A started process, and its address."""
        ours, theirs = _FORKS.Pipe(duplex=False)
        process = _FORKS.Process(target=program, args=(theirs, where, folder, namespace, self._config), daemon=True)
        process.start()
        self._processes.append(process)
        theirs.close()
        with ours:
            assert ours.poll(PATIENCE_S), f"{program.__name__} does not begin"
            return process, ours.recv()

    def add_worker(self, folder: Path | None = None, namespace: str | None = None) -> ForkServerProcess:
        """Add a worker whose current directory is `folder`."""
        return self._started(_work, self.address, folder, namespace)[0]

    def kill_worker(self, number: int) -> None:
        """Kill a worker, and start a new one in its place."""
        self.workers[number].kill()
        self.workers[number] = self.add_worker()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _schedule(
    told: Connection, host: str, folder: Path | None, namespace: str | None, config: Mapping[str, object]
) -> None:
    import distributed

    def made() -> Any:
        return distributed.Scheduler(host=host, port=0, dashboard=False, dashboard_address=f"{host}:0")

    _run(made, told, folder, namespace, config)


def _work(
    told: Connection, scheduler: str, folder: Path | None, namespace: str | None, config: Mapping[str, object]
) -> None:
    import distributed

    def made() -> Any:
        return distributed.Worker(scheduler, nthreads=1, dashboard=False, dashboard_address=":0")

    _run(made, told, folder, namespace, config)


def _run(
    made: Callable[[], Any], told: Connection, folder: Path | None, namespace: str | None, config: Mapping[str, object]
) -> None:  # Any: distributed has no types
    """Run a server of distributed until it ends. Reports its address once it has started."""
    import asyncio
    import logging

    import dask

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    dask.config.set(dict(config))
    if folder is not None:
        os.chdir(folder)
    if namespace is not None:
        enter(namespace)

    async def serve() -> None:
        async with made() as server:
            told.send(server.address)
            told.close()
            await server.finished()

    asyncio.run(serve())


@asynccontextmanager
async def client_of(made: Cluster) -> AsyncIterator[Any]:
    import distributed

    # it has no types
    async with distributed.Client(made.address, asynchronous=True, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        yield client
