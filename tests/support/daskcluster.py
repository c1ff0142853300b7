"""A Dask cluster of processes of this machine. No assertions but of its own start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

PATIENCE_S = 60


class Cluster:
    """A scheduler and workers, each a process of one thread."""

    def __init__(self, workers: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self.scheduler, self.address = self._started("Scheduler at:", "dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        self.workers = [self.add_worker() for _ in range(workers)]

    def _started(self, said: str, name: str, *args: str, folder: Path | None = None) -> tuple[subprocess.Popen[bytes], str]:
        """A process that has said something on standard error, and the last word of that line."""
        argv = [sys.executable, "-m", f"distributed.cli.{name}", *args, "--no-dashboard"]
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(argv, stderr=output, stdout=subprocess.DEVNULL, cwd=folder)
            self._processes.append(process)
            until = time.monotonic() + PATIENCE_S
            while True:
                text = os.pread(output.fileno(), 1 << 20, 0).decode()
                line = next((line for line in text.splitlines(keepends=True) if said in line and line.endswith("\n")), None)
                if line is not None:
                    return process, line.split()[-1]
                assert process.poll() is None, text
                assert time.monotonic() < until, text
                time.sleep(0.02)

    def add_worker(self, folder: Path | None = None) -> subprocess.Popen[bytes]:
        """One whose current directory is `folder`."""
        return self._started("Registered to:", "dask_worker", self.address, "--no-nanny", "--nthreads", "1", folder=folder)[0]

    def kill_worker(self, number: int) -> None:
        """End one at once, and have another in its place."""
        self.workers[number].kill()
        self.workers[number] = self.add_worker()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@asynccontextmanager
async def client_of(made: Cluster) -> AsyncIterator[Any]:
    import distributed

    async with distributed.Client(made.address, asynchronous=True, set_as_default=False) as client:  # type: ignore[no-untyped-call]  # it has no types
        yield client
