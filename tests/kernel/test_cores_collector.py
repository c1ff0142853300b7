"""Filters in reference cycles: the collector may clear them in any order, without a crash or a leak."""

from __future__ import annotations

import gc
import itertools
import mmap
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spvfilter.kernel import Family
from support.kernels.kernelentries import native

pytestmark = pytest.mark.native
SIZE = 512  # bytes
ROOT = Path(__file__).parents[2]

# Run in a separate process, because a bug would crash the interpreter. Collections of each generation run in every
# order, with new buffers between them. Then a young collection runs between the creation of a core and of its memory.
ORDERS = """
import gc, itertools
from spvfilter.kernel import Family
from spvfilter.kernel.native import BitCore, CounterCore

class Memory(bytearray):
    pass

def memory(size, ring):
    made = Memory(size)
    made.ring = ring
    return made

BUFFERS = {
    "own": lambda size, ring: None,
    "bytearray": lambda size, ring: bytearray(size),
    "memoryview": lambda size, ring: memoryview(bytearray(size)),
    "of the ring": memory,
    "a view of one of the ring": lambda size, ring: memoryview(memory(size, ring)),
    "a slice of one of the ring": lambda size, ring: memoryview(memory(size + 2, ring))[1:-1],
}
gc.collect()
gc.freeze()  # what the interpreter has is not looked through again each time
gc.disable()
for kind, size in ((BitCore, 512), (CounterCore, 2048)):
    class Core(kind):
        pass
    for name, make in BUFFERS.items():
        for length in range(5):
            for steps in itertools.product("012b", repeat=length):
                ring = []
                core = Core(4096, 3, Family.FAST, bytes(16), make(size, ring))
                ring += [core, core.add]
                core.ring = ring
                for step in steps:
                    if step == "b":
                        core.buffer = make(size, ring) or bytearray(size)
                    else:
                        gc.collect(int(step))
                core.add(b"key")
                del core, ring
                if length == 4 and steps[0] == steps[1]:
                    gc.collect()
        gc.collect()
        late = Core.__new__(Core)
        gc.collect(0)  # it is older than what it will hold
        ring = [late]
        late.__init__(4096, 3, Family.CUSTOM, bytes(16), make(size, ring), custom=[ring.index, ring.count, ring.append])
        ring.append(late)
        del late, ring
        gc.collect()
        left = [each for each in gc.get_objects() if isinstance(each, (Core, Memory))]
        assert not left, (kind, name, len(left))
print("survived")
"""


def test_no_order_of_collections_crashes_or_leaks() -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", ORDERS], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "survived\n", "")


class Derived(bytearray):
    pass


def in_a_ring(buffer: Any, ring: list[object]) -> weakref.ref[Any]:
    class Core(native().BitCore):  # type: ignore[misc]
        pass

    made = Core(SIZE * 8, 3, Family.FAST, bytes(16), buffer)
    ring += [made, made.body]
    return weakref.ref(made)


@pytest.mark.parametrize(
    "view",
    [lambda memory: memory, memoryview, lambda memory: memoryview(memory)[:]],
    ids=["itself", "a view", "a view of a view"],
)
def test_a_cycle_through_the_cells_owner_is_collected(view: Callable[[Any], Any]) -> None:
    memory, ring = Derived(SIZE), list[object]()
    memory.ring = ring  # type: ignore[attr-defined]
    gone = in_a_ring(view(memory), ring)
    del memory, ring
    gc.collect()
    assert gone() is None


def test_the_cells_owner_lives_as_long_as_the_filter() -> None:
    memory = Derived(SIZE)
    made = native().BitCore(SIZE * 8, 3, Family.FAST, bytes(16), memory)
    with pytest.raises(BufferError):
        memory.append(0)
    gone = weakref.ref(memory)
    del memory
    gc.collect()
    assert made.add(b"key")
    made.buffer = bytearray(SIZE)
    assert gone() is None
    mapped = mmap.mmap(-1, SIZE)
    made.buffer = mapped
    with pytest.raises(BufferError):
        mapped.close()
    del made
    mapped.close()


def test_no_user_can_release_the_filters_view_of_a_buffer() -> None:
    """gc.get_referents and gc.get_objects show every object that the collector knows."""
    memory = bytearray(SIZE)
    made = native().BitCore(SIZE * 8, 3, Family.FAST, bytes(16), memory)
    near = [made]
    for _ in range(3):
        near += gc.get_referents(*near)
    for each in itertools.chain(near, gc.get_objects()):
        if type(each) is memoryview and each.nbytes == SIZE:
            each.release()
    with pytest.raises(BufferError):
        memory.append(0)
    assert made.add(b"key")
    assert any(memory)


def test_a_view_keeps_the_memory_of_a_deleted_filter() -> None:
    made = native().BitCore(SIZE * 8, 3, Family.FAST, bytes(16), None)
    made.add(b"key")
    view, body = made.buffer, made.body
    del made
    gc.collect()
    assert view == body
    assert view.nbytes == SIZE
    assert not view.readonly
    assert body.readonly
    assert any(view)
    view[0] ^= 1
    assert view == body
