"""Many clients in one process: threads, open files besides sockets, memory, and time to enter, for 10, 100 and 200."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import AsyncExitStack
from pathlib import Path

from measure import Row

from spvfilter import LightClient, WatchList

_CLIENTS = (10, 100, 200)
_ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
_GOAL_THREADS = 20
_GOAL_FILES = 5  # of one client


def clients(_: Path, rounds: int) -> list[Row]:
    """Open clients without reachable peers, each number in a process of its own."""
    del rounds  # the numbers do not depend on other load
    rows = []
    for number in _CLIENTS:
        ran = subprocess.run([sys.executable, __file__, str(number)], stdout=subprocess.PIPE, check=True)
        found = json.loads(ran.stdout)
        title = f"{number} clients"
        rows += [
            Row(f"{title}: threads", found["threads"], _GOAL_THREADS, "goal", 1.0),
            Row(f"{title}: open files of a client", found["files"] / number, _GOAL_FILES, "goal", 1.0),
            Row(f"{title}: memory of a client, MB", found["memory"] / number / 1e6, 1, "1 MB"),
            Row(f"{title}: enter a client, processor ms", found["processor"] / number * 1e3, 1, "1 ms"),
        ]
    return rows


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _files() -> int:
    """Count the open files of this process, without its sockets and its standard streams."""
    links = []
    for each in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            links.append(os.readlink(f"/proc/self/fd/{each}"))  # noqa: PTH115
        except OSError:  # the listing's own
            continue
    return sum(link.startswith("/") and not link.startswith("/dev/") for link in links)


async def _measured(number: int) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        with tempfile.TemporaryDirectory() as folder:
            before: tuple[int, int] | None = None
            running: list[LightClient] = []
            begun = 0.0
            for each in range(number + 1):
                watch = WatchList.from_addresses([_ADDRESS], "regtest")
                client = LightClient(watch, peers=["127.0.0.1:1"], store=Path(folder) / f"{each}.db")
                running.append(await stack.enter_async_context(client))
                if before is None:  # the first client loads the modules
                    before, begun = (_resident(), _files()), time.process_time()
            processor = time.process_time() - begun
            await asyncio.gather(*(client.balance() for client in running))
            assert before is not None
            found = {
                "threads": threading.active_count(),
                "files": _files() - before[1],
                "memory": _resident() - before[0],
                "processor": processor,
            }
            await stack.aclose()
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measured(int(sys.argv[1])))))
