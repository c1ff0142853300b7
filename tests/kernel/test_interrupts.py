"""Ctrl-C during an endless call is handled soon, whatever object is iterated."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kernels.kernelentries import ENTRIES

pytestmark = pytest.mark.native
ROOT = Path(__file__).parents[2]
PATIENCE = 120  # seconds, where one suffices; a call that misses the signal never ends
LIMIT = 1.0  # seconds of processor time: 0.02 to 0.2 as measured, and room for a busy machine

# During calls of the native kernel, another thread takes the signal, as one of numpy's can. Python before 3.13 then
# handles the signal only if C code asks for it: the kernel must ask.
SERVE = """
import ctypes, itertools, json, signal, sys, threading, time
sys.path.insert(0, "tests")
from support.kernels import kernelentries
import numpy as np

seen = []

def interrupt(number, frame):
    seen.append(time.process_time())
    raise KeyboardInterrupt

signal.signal(signal.SIGPROF, interrupt)
main = ctypes.c_ulong(threading.get_ident())
threading.Thread(target=ctypes.CDLL(None).pthread_join, args=(main, None), daemon=True).start()
for line in sys.stdin:
    text, name, after = json.loads(line)
    names = vars(kernelentries) | {"itertools": itertools, "np": np, "kernel": getattr(kernelentries, name)()}
    call, keys = eval(text, names)
    signal.pthread_sigmask(signal.SIG_BLOCK if name == "native" else signal.SIG_UNBLOCK, {signal.SIGPROF})
    seen.clear()
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, after)
    try:
        call(keys)
        print("not interrupted", flush=True)
    except KeyboardInterrupt:
        print("interrupted after", seen[0] - began - after, flush=True)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    del names, call, keys
"""


# A call in a thread, over an iterator that runs no Python code and fails as soon as the main thread empties the list.
# If the call lets no other thread run, the main thread never empties it. The process has one core, and a thread that
# wakes up does not stop the running one: the call must wait until the main thread has taken the GIL.
YIELD = """
import functools, json, operator, os, sys, threading, time
if hasattr(os, "SCHED_BATCH"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
sys.path.insert(0, "tests")
from support.kernels import kernelentries
from spvfilter.bloom import BloomFilter, CountingBloomFilter, ScalableBloomFilter
import numpy as np

for line in sys.stdin:
    text, name, key = json.loads(line)
    names = vars(kernelentries) | {"np": np, "kernel": getattr(kernelentries, name)()}
    names |= {"BloomFilter": BloomFilter, "CountingBloomFilter": CountingBloomFilter}
    names |= {"ScalableBloomFilter": ScalableBloomFilter}
    call, box = eval(text, names), [eval(key, names)]
    ended = []
    def work():
        try:
            call(iter(functools.partial(operator.getitem, box, 0), None))
        except IndexError:
            ended.append("interrupted after")
    thread = threading.Thread(target=work)
    thread.start()
    waits = []
    for _ in range(3):
        start = time.process_time()
        time.sleep(0.001)
        waits.append(time.process_time() - start)
    box.clear()
    thread.join()
    print(*ended, max(waits), flush=True)
"""


class Calls:
    """A process that makes calls, one after the other, and interrupts each call. If the process does not answer, it is
    ended, and the next call starts another process.
    """

    def __init__(self, script: str = SERVE) -> None:
        self._script = script
        self._process: subprocess.Popen[str] | None = None

    def longest_wait(self, call: str, item: str) -> float:
        """How long the main thread waited for the GIL, in seconds of processor time. Needs the script YIELD.

        `call` makes a function, and `item` the item that its argument repeats.
        """
        return self._interrupted_once(call, "native", item)

    def interrupted(self, call: str, kernel: str = "native", after: float = 0.02) -> float:
        """How long after the signal the call was interrupted, the least of up to five times, as the machine may be
        busy.

        `call` makes a function and its argument. `after` is in seconds.
        """
        least = math.inf
        for _ in range(5):
            least = min(least, self._interrupted_once(call, kernel, after))
            if least < LIMIT:
                break
        return least

    def _interrupted_once(self, call: str, kernel: str, after: float | str) -> float:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", self._script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # threads of numpy could take a signal
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        killing = threading.Timer(PATIENCE, process.kill)
        killing.start()
        try:
            process.stdin.write(json.dumps([call, kernel, after]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        finally:
            killing.cancel()
        if not answer.startswith("interrupted after "):
            self.end()
            pytest.fail(answer or "it never ended, or failed: see standard error")
        return float(answer.split()[-1])

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="module")
def calls() -> Iterator[Calls]:
    made = Calls()
    yield made
    made.end()


@pytest.fixture(scope="module")
def threads() -> Iterator[Calls]:
    made = Calls(YIELD)
    yield made
    made.end()


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.iterated])
def test_every_entry_that_iterates_lets_threads_run(threads: Calls, name: str) -> None:
    entry, (place, *_) = f"ENTRIES[{name!r}]", ENTRIES[name].iterated
    call = f"lambda keys: {entry}.make(kernel)(*replaced({entry}.arguments, ({place},), keys))"
    assert threads.longest_wait(call, f"{entry}.arguments[{place}][0]") < LIMIT


FILTERS = {
    "BloomFilter": "BloomFilter(100, .5, encode='int64')",
    "CountingBloomFilter": "CountingBloomFilter(100, .5, encode='int64')",
    "ScalableBloomFilter": "ScalableBloomFilter(100, .5, encode='int64')",
    "own encoding": "BloomFilter(100, .5, encode=bytes)",
}


@pytest.mark.parametrize("method", ["update", "contains_many"])
@pytest.mark.parametrize("name", FILTERS)
def test_every_batch_of_ints_lets_threads_run(threads: Calls, name: str, method: str) -> None:
    assert threads.longest_wait(f"{FILTERS[name]}.{method}", "7") < LIMIT


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.iterated])
def test_every_entry_that_iterates_sees_signals(calls: Calls, name: str, kernel: str) -> None:
    entry, (place, *_) = f"ENTRIES[{name!r}]", ENTRIES[name].iterated
    call = f"(lambda made: lambda keys: made(*replaced({entry}.arguments, ({place},), keys)))({entry}.make(kernel))"
    call += f", itertools.repeat({entry}.arguments[{place}][0])"
    assert calls.interrupted(call, kernel) < LIMIT


ENCODINGS = {
    "of ints": ("encoding=Encoding.INT64", "itertools.count()"),
    "of texts": ("encoding=Encoding.UTF8", "map(str, itertools.count())"),
    "by an own encoding": ("encoding=Encoding.CALLABLE, encode=bytes", "itertools.repeat(7)"),
    "by own functions": ("family=Family.CUSTOM, custom=[len] * 5", "itertools.repeat(b'key')"),
    "of views": ("family=Family.SIPHASH", "itertools.repeat(memoryview(b'key'))"),
    "by many functions": ("hash_funcs=5000", "itertools.repeat(b'key')"),
}


@pytest.mark.parametrize("method", ["update", "contains_many"])
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("kind", ["BitCore", "CounterCore"])
def test_batches_see_signals_whatever_the_keys_are(calls: Calls, kind: str, name: str, method: str) -> None:
    changes, keys = ENCODINGS[name]
    assert calls.interrupted(f"core(kernel, {kind!r}, {changes}).{method}, {keys}") < LIMIT


LONG = {
    "a list": ("hash_funcs=50", "[b'key' * 100] * (1 << 22)"),
    "a list of long keys": ("hash_funcs=2", "[bytes(1 << 20)] * 20_000"),
    "a tuple of ints": ("encoding=Encoding.UINT64, hash_funcs=300", "(7,) * (1 << 22)"),
    "a buffer": ("hash_funcs=300", "np.zeros((1 << 21, 20), np.uint8)"),
    "a buffer of wide rows": ("hash_funcs=3, family=Family.BIP37", "np.zeros((3000, 1 << 20), np.uint8)"),
    "a buffer by own functions": ("family=Family.CUSTOM, custom=[len] * 5", "np.zeros((1 << 21, 20), np.uint8)"),
}


@pytest.mark.parametrize("kind", ["BitCore", "CounterCore"])
@pytest.mark.parametrize("name", LONG)
def test_long_batches_see_signals_too(calls: Calls, kind: str, name: str) -> None:
    changes, keys = LONG[name]
    assert calls.interrupted(f"core(kernel, {kind!r}, {changes}).update, {keys}") < LIMIT


def test_many_sets_see_signals(calls: Calls) -> None:
    assert (
        calls.interrupted(
            "(lambda sets: kernel.GcsQuery(ITEMS).match_many(sets, 19, 784931)), [(SIP_KEY, SET)] * 300_000"
        )
        < LIMIT
    )


@pytest.mark.parametrize(
    "call", ["kernel.unpack_hits", "(lambda raw: kernel.hit_lines(raw, *ENTRIES['hit_lines'].arguments[1:]))"]
)
def test_many_packed_hits_see_signals(calls: Calls, call: str) -> None:
    """Several tenths of a second of work, and a signal much earlier."""
    assert calls.interrupted(f"{call}, PACKED * 16_000") < 0.15
