"""The threads that all clients share: order of jobs, bounds, forks, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spvfilter.light.workers import MAX_THREADS, THREAD_NAME, WORKERS, JobQueue

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def worker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


def program(text: str, *arguments: str) -> str:
    """Run a program in a process of its own and return its output."""
    ran = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr
    return ran.stdout


async def end_all(queues: list[JobQueue]) -> None:
    await asyncio.gather(*(queue.end(lambda: None) for queue in queues))


async def test_jobs_of_a_queue_run_in_order() -> None:
    queues = [JobQueue() for _ in range(50)]
    done: list[list[int]] = [[] for _ in queues]
    inside = [threading.Lock() for _ in queues]
    names: set[str] = set()

    def job(queue: int, number: int) -> Callable[[], int]:
        def run() -> int:
            assert inside[queue].acquire(blocking=False)
            done[queue].append(number)
            names.add(threading.current_thread().name)
            inside[queue].release()
            return number

        return run

    futures = [queue.submit(job(at, number)) for number in range(40) for at, queue in enumerate(queues)]
    results = await asyncio.gather(*map(asyncio.wrap_future, futures))
    assert results == [number for number in range(40) for _ in queues]
    assert done == [list(range(40))] * len(queues)
    assert len(names) <= MAX_THREADS
    await end_all(queues)


async def test_queues_do_not_wait_for_a_queue_that_is_busy() -> None:
    busy, other = JobQueue(), JobQueue()
    proceed = threading.Event()
    waits = [busy.submit(proceed.wait) for _ in range(MAX_THREADS + 1)]  # in one thread, not in all threads
    assert await asyncio.wrap_future(other.submit(lambda: "free")) == "free"
    proceed.set()
    await asyncio.gather(*map(asyncio.wrap_future, waits))
    await end_all([busy, other])


async def test_an_error_reaches_its_caller_and_the_next_job_runs() -> None:
    queue = JobQueue()
    failed, fine = queue.submit(lambda: 1 // 0), queue.submit(lambda: 2)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wrap_future(failed)
    assert await asyncio.wrap_future(fine) == 2
    await queue.end(lambda: None)


async def test_a_cancelled_job_is_skipped() -> None:
    queue = JobQueue()
    proceed, ran = threading.Event(), list[int]()
    queue.submit(proceed.wait)
    skipped = queue.submit(lambda: ran.append(1))
    assert skipped.cancel()
    proceed.set()
    await queue.end(lambda: ran.append(2))
    assert ran == [2]


async def test_threads_end_with_their_last_user() -> None:
    first, second = JobQueue(), JobQueue()
    proceed = threading.Event()
    calculation = WORKERS.run(proceed.wait)
    await first.end(lambda: None)
    assert await asyncio.wrap_future(second.submit(lambda: 3)) == 3
    await second.end(lambda: None)
    assert worker_threads()  # the calculation needs a thread, and delays no other job
    proceed.set()
    assert await asyncio.wrap_future(calculation)
    for thread in worker_threads():
        await asyncio.to_thread(thread.join)
    queue = JobQueue()
    assert await asyncio.wrap_future(queue.submit(lambda: 4)) == 4
    await queue.end(lambda: None)
    assert not worker_threads()


async def test_a_cancelled_end_still_runs_the_last_job() -> None:
    queue = JobQueue()
    proceed, ran = threading.Event(), threading.Event()
    queue.submit(proceed.wait)
    ending = asyncio.ensure_future(queue.end(ran.set))
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert not ran.is_set()
    proceed.set()
    assert await asyncio.to_thread(ran.wait, 60)
    for thread in worker_threads():
        await asyncio.to_thread(thread.join)


AT_EXIT = """
import os, threading
from spvfilter.light.workers import JobQueue

proceed = threading.Event()
queues = [JobQueue() for _ in range(3)]
for number in range(20):
    for queue in queues:
        queue.submit(lambda number=number: proceed.wait() and os.write(1, b"%d\\n" % number))
proceed.set()
"""


def test_waiting_jobs_are_finished_at_the_end_of_the_interpreter() -> None:
    assert sorted(map(int, program(AT_EXIT).split())) == sorted([*range(20)] * 3)


FORK = """
import asyncio, os, threading, warnings
from spvfilter import REGTEST, LightClient, WatchList

watch = WatchList.from_addresses(["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"], REGTEST)

async def run():
    async with LightClient(watch.copy(), peers=["127.0.0.1:1"]) as client:
        return (await client.balance()).confirmed

def in_child():
    balances = []
    thread = threading.Thread(target=lambda: balances.append(asyncio.run(run())))  # the child is within a running loop
    thread.start()
    thread.join()
    return balances == [0]

async def main():
    async with LightClient(watch.copy(), peers=["127.0.0.1:1"]) as client:
        await client.balance()
        child = os.fork()
        if not child:
            try:
                os._exit(7 if in_child() else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        print("parent", (await client.balance()).confirmed)

warnings.simplefilter("ignore", DeprecationWarning)  # about a fork of a process with threads
asyncio.run(main())
"""


@pytest.mark.slow
@needs_fork
def test_a_forked_child_has_threads_of_its_own() -> None:
    assert program(FORK).split() == ["parent", "0"]


MANY = """
import asyncio, os, sys, threading
from collections import Counter
from contextlib import AsyncExitStack
from spvfilter import REGTEST, LightClient, WatchList

folder, loops, clients = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
entered, counted = threading.Barrier(loops + 1), threading.Barrier(loops + 1)

def client(name):
    watch = WatchList.from_addresses(["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"], REGTEST)
    return LightClient(watch, peers=["127.0.0.1:1"], store=f"{folder}/{name}.db")

async def run(loop):
    async with AsyncExitStack() as stack:
        names = [f"{loop}-{number}" for number in range(clients // loops)]
        running = await asyncio.gather(*(stack.enter_async_context(client(name)) for name in names))
        assert all([each.confirmed == 0 for each in await asyncio.gather(*(each.balance() for each in running))])
        entered.wait()
        counted.wait()

threads = [threading.Thread(target=lambda loop=loop: asyncio.run(run(loop))) for loop in range(loops)]
for thread in threads:
    thread.start()
entered.wait()
files = Counter()
for number in os.listdir("/proc/self/fd"):
    try:
        path = os.readlink(f"/proc/self/fd/{number}")
    except OSError:  # the folder of the listing itself
        continue
    if path.startswith(folder):
        files[os.path.basename(path).partition(".")[0]] += 1
print(threading.active_count() - len(threads), len(files), max(files.values()))
counted.wait()
for thread in threads:
    thread.join()
print(threading.active_count())
"""


@pytest.mark.long
@needs_proc
@pytest.mark.parametrize("loops", [1, 4])
def test_200_clients_share_threads_and_open_few_files(loops: int, tmp_path: Path) -> None:
    threads, clients, files, left = map(int, program(MANY, str(tmp_path), str(loops), "200").split())
    assert threads <= 1 + MAX_THREADS < 20
    assert clients == 200
    assert files <= 5
    assert left == 1


BLOCKING = """
import threading
from contextlib import ExitStack
from spvfilter import REGTEST, SyncLightClient, WatchList

watch = WatchList.from_addresses(["bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"], REGTEST)
with ExitStack() as stack:
    clients = [stack.enter_context(SyncLightClient(watch.copy(), peers=["127.0.0.1:1"])) for _ in range(30)]
    assert all(client.balance().confirmed == 0 for client in clients)
    loops = [thread for thread in threading.enumerate() if thread.name == "spvfilter-client"]
    print(len(loops), threading.active_count() - len(loops))
print(threading.active_count())
"""


@pytest.mark.slow
def test_blocking_clients_share_the_other_threads() -> None:
    loops, others, left = map(int, program(BLOCKING).split())
    assert loops == 30
    assert others <= 1 + MAX_THREADS
    assert left == 1
