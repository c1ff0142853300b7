"""Ctrl-C during a call that would never end: it is handled soon, whatever is iterated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.kernelentries import ENTRIES

pytestmark = pytest.mark.native
ROOT = Path(__file__).parents[2]
PATIENCE = 120  # seconds, where one suffices; a call that misses the signal never ends
LIMIT = 1.0  # seconds of processor time: 0.02 to 0.2 as measured, and room for a busy machine

RUN = """
import itertools, signal, sys, time
sys.path.insert(0, "tests")
from support.kernelentries import *
import numpy as np

seen = []

def interrupt(number, frame):
    seen.append(time.process_time())
    raise KeyboardInterrupt

kernel = {kernel}()
call, keys = {call}
signal.signal(signal.SIGPROF, interrupt)
began = time.process_time()
signal.setitimer(signal.ITIMER_PROF, {after})
try:
    call(keys)
except KeyboardInterrupt:
    print("interrupted after", seen[0] - began - {after})
"""


def interrupted(call: str, kernel: str = "native", after: float = 0.3) -> float:
    """How long after the signal the call was interrupted; `call` makes a function and what it is given. `after` is in seconds."""
    code = RUN.format(call=call, kernel=kernel, after=after)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("interrupted after "), ran.stdout
    return float(ran.stdout.split()[-1])


@pytest.mark.parametrize("kernel", ["native", "reference"])
@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.iterated])
def test_every_entry_that_iterates_sees_signals(name: str, kernel: str) -> None:
    entry, (place, *_) = f"ENTRIES[{name!r}]", ENTRIES[name].iterated
    call = f"(lambda keys: {entry}.make(kernel)(*replaced({entry}.arguments, ({place},), keys)))"
    call += f", itertools.repeat({entry}.arguments[{place}][0])"
    assert interrupted(call, kernel) < LIMIT


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
def test_batches_see_signals_whatever_the_keys_are(kind: str, name: str, method: str) -> None:
    changes, keys = ENCODINGS[name]
    assert interrupted(f"core(kernel, {kind!r}, {changes}).{method}, {keys}") < LIMIT


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
def test_long_batches_see_signals_too(kind: str, name: str) -> None:
    changes, keys = LONG[name]
    assert interrupted(f"core(kernel, {kind!r}, {changes}).update, {keys}") < LIMIT


def test_many_sets_see_signals() -> None:
    assert interrupted("(lambda sets: kernel.GcsQuery(ITEMS).match_many(sets, 19, 784931)), [(SIP_KEY, SET)] * 300_000") < LIMIT


@pytest.mark.parametrize("call", ["kernel.unpack_hits", "(lambda raw: kernel.hit_lines(raw, *ENTRIES['hit_lines'].arguments[1:]))"])
def test_many_packed_hits_see_signals(call: str) -> None:
    """Several tenths of a second of work, and a signal much earlier."""
    assert interrupted(f"{call}, PACKED * 16_000", after=0.02) < 0.15
