"""The compiled BitCore and CounterCore against their reference: the same results, bytes and errors in any sequence of
calls.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spvfilter.errors import ParameterError
from spvfilter.kernel import Encoding, Family
from spvfilter.kernel.pure import bits
from spvfilter.kernel.values import NUMBERS
from support.kernels import cores
from support.kernels.cores import MAKE_ROOM, SAME_SHAPE
from support.vectors import effort

pytestmark = pytest.mark.native
SEEDS = range(effort(4, 20, 200))
LIVES = effort(25, 100, 250)  # filters for each seed, with twelve operations each
FUNCTIONS: list[Callable[[bytes], int]] = [
    zlib.crc32,
    zlib.adler32,
    len,
    lambda data: -7 * len(data),
    lambda data: int.from_bytes(data, "big") ** 3,
    lambda data: -(1 << 200) + sum(data),
    lambda data: np.uint64(zlib.crc32(data) << 31),  # type: ignore[list-item,return-value]  # NumPy's count as int
]


def refuses(data: bytes) -> int:
    raise RuntimeError("no cell today")


def outcome(call: Callable[..., Any], *arguments: Any) -> object:
    """The result of a call, or its error."""
    try:
        return call(*arguments)
    except Exception as error:
        # Python 3.14 has another message for this error
        return type(error), "" if isinstance(error, ZeroDivisionError) else str(error)


def own_encoding(key: Any) -> Any:
    """A user's function. It returns bytes for most keys, and sometimes another object."""
    return key if isinstance(key, (bytes, memoryview)) else repr(key).encode() if key != 3 else key


class Twins:
    """A compiled core and its reference, each over its own copy of the same bytes. Both get the same calls."""

    def __init__(self, kind: str, arguments: dict[str, Any], raw: bytes, form: str) -> None:
        from spvfilter.kernel import native

        self.kind, self.arguments = kind, arguments
        around = 4 if arguments.get("counter_bits") == 16 else 3  # bytes: only these counters need an even address
        self.memories = [bytearray(b"@" * around + raw + b"@" * around) for _ in range(2)]
        buffers = [holding(memory, around, form) for memory in self.memories]
        classes = (getattr(native, kind), getattr(bits, kind))
        made = [
            outcome(lambda of=of, at=at: of(buffer=at, **arguments)) for of, at in zip(classes, buffers, strict=True)
        ]
        self.refusal = made[0] if isinstance(made[0], tuple) else None
        self.cores: list[Any] = made
        if isinstance(made[0], tuple) or isinstance(made[1], tuple):
            assert made[0] == made[1]

    def same(self, operation: str, *arguments: Any) -> object:
        """The result or error of a method, which must be the same in both, like the bytes afterwards.

        Twins and factories among the arguments are resolved for each core.
        """
        results = []
        for number, core in enumerate(self.cores):
            resolved = [
                item.cores[number] if isinstance(item, Twins) else item() if callable(item) else item
                for item in arguments
            ]
            result = outcome(getattr(core, operation), *resolved)
            results.append("itself" if result is core else bytes(result) if isinstance(result, np.ndarray) else result)
        assert type(results[0]) is type(results[1])
        assert results[0] == results[1], (operation, arguments, self.arguments)
        assert self.memories[0] == self.memories[1], (operation, arguments, self.arguments)
        return results[0]


def holding(memory: bytearray, around: int, form: str) -> Any:
    """Return the bytes of a core, without the bytes around them."""
    view = memoryview(memory)[around:-around]
    match form:
        case "read-only":
            return view.toreadonly()
        case "array":
            return np.frombuffer(view, np.uint8)
        case "gaps":
            return memoryview(bytes(2 * len(view)))[::2]
        case "long":
            return memoryview(memory)[around - 1 : -around]
    return view


def some_arguments(rng: random.Random, kind: str) -> dict[str, Any]:
    hash_funcs = rng.choice([0, 1, 2, 3, 7, 13, 64, 65, 600]) if rng.random() < 0.3 else rng.randrange(1, 12)
    plane = rng.choice([0, 1, 2, 31, 32, 33, 4099]) if rng.random() < 0.4 else rng.randrange(1, 600)
    partitioned = rng.random() < 0.3
    foreign = [Family.SPARK_V1, Family.SPARK_V2, Family.REDISBLOOM, Family.SPLIT_BLOCK]
    family = rng.choice([Family.BIP37, Family.FAST, Family.SIPHASH, Family.FAST, Family.CUSTOM, rng.choice(foreign)])
    if family == Family.SPLIT_BLOCK and rng.random() < 0.9:
        plane, hash_funcs, partitioned = 256 * rng.randrange(1, 9), 8, False
    custom = None
    if family == Family.CUSTOM:
        custom = [rng.choice(FUNCTIONS) for _ in range(hash_funcs)]
        if custom and rng.random() < 0.1:
            custom[rng.randrange(len(custom))] = rng.choice([refuses, lambda data: 1.5])  # type: ignore[assignment]
    own = rng.random() < 0.15
    return {
        "cells": plane * hash_funcs if partitioned and rng.random() < 0.9 else plane,
        "hash_funcs": hash_funcs,
        "family": family,
        "key": rng.randbytes(16 if rng.random() < 0.98 else 9),
        "encoding": Encoding.CALLABLE
        if own
        else rng.choice([Encoding.BYTES, Encoding.BYTES, Encoding.UTF8, rng.choice(NUMBERS)]),
        "partitioned": partitioned,
        "custom": custom,
        "encode": own_encoding if own else None,
        "private": rng.random() < 0.5,
        **({} if kind == "BitCore" else {"counter_bits": rng.choice([4, 4, 8, 16, rng.choice([4, 3, 5, 17, "4"])])}),
    }


def some_key(rng: random.Random, encoding: Encoding) -> Any:
    """Mostly a key of that encoding from a small set, so that many keys are added twice. Some keys are invalid or at a
    limit.
    """
    number = rng.randrange(12)
    if rng.random() < 0.04:
        return rng.choice(
            [
                "str",
                1,
                -1,
                True,
                None,
                1.5,
                b"x",
                2**31,
                2**32,
                -(2**31) - 1,
                2**63,
                2**64,
                -(2**63) - 1,
                "\ud800",
                np.int64(3),
                np.str_("s"),
                np.bool_(1),
                3,
            ]
        )
    match encoding:
        case Encoding.UTF8:
            return rng.choice(["", "k", "schlüssel", "鍵", np.str_("n")]) + str(number)
        case Encoding.INT64:
            return rng.choice([number, -number, 2**63 - 1 - number, -(2**63) + number, np.int32(number)])
        case Encoding.UINT64:
            return rng.choice([number, 2**64 - 1 - number, np.uint8(number)])
        case Encoding.INT32:
            return rng.choice([number, -number, 2**31 - 1 - number, -(2**31) + number, np.int8(number)])
        case Encoding.UINT32:
            return rng.choice([number, 2**32 - 1 - number, np.uint64(number)])
        case Encoding.CALLABLE:
            return rng.choice([number, str(number), b"%d" % number])
    raw = bytes([number]) * rng.choice([0, 1, 3, 4, 7, 8, 9, 12, 15, 16, 17, 20, 31, 32, 33, 71])
    return rng.choice(
        [bytes, bytes, bytes, bytearray, memoryview, lambda raw: memoryview(bytes(2 * len(raw)) + raw)[::3], np.bytes_]
    )(raw)  # type: ignore[operator]  # values that callers may give


def some_batch(rng: random.Random, encoding: Encoding) -> Any:
    """A batch, or a factory that makes one for each core."""
    count = rng.choice([0, 1, 5, 33, 40, 200])
    if rng.random() < 0.3:
        width, dtype = (
            rng.choice([0, 1, 8, 20]),
            rng.choice(["int64", "uint64", "int32", "uint16", "uint8", "float64", ">i8", "bool"]),
        )
        raw = np.frombuffer(bytes(rng.randrange(3) for _ in range(count * 8)), np.uint8)
        table = np.frombuffer(bytes(rng.randrange(3) for _ in range(count * width)), np.uint8).reshape(count, width)
        return rng.choice(
            [table, raw.view(dtype), table[:, 1:], raw[::2], raw.reshape(count, 4, 2), memoryview(table), np.int64(1)]  # type: ignore[arg-type]
        )  # values that callers may give
    keys = [some_key(rng, encoding) for _ in range(count)]
    if rng.random() < 0.05:
        return rng.choice([5, None, b"one", bytearray(b"one"), "one"])
    return rng.choice(
        [keys, keys, tuple(keys), lambda: iter(keys), lambda: (key for key in keys), lambda: map(some_of, keys)]
    )


def some_of(key: Any) -> Any:
    if key in (1, "k1", b"\x01"):
        raise LookupError(key)
    return key


def a_life(rng: random.Random) -> int:
    """Apply twelve operations to a filter and another of its class, mostly of the same shape. Returns their number."""
    kind = rng.choice(["BitCore", "CounterCore"])
    arguments = some_arguments(rng, kind)
    width = arguments.get("counter_bits", 1)
    size = (arguments["cells"] * (width if width in (1, 4, 8, 16) else 4) + 7) // 8
    fillings = [bytes(size), rng.randbytes(size), bytes(size), b"\xff" * size]
    forms = ["view", "view", "view", "array", "read-only"] + ["gaps", "long"] * (rng.random() < 0.1)
    form = rng.choice(forms if size else ["view"])
    twins = Twins(kind, arguments, rng.choice(fillings), form)
    if twins.refusal:
        return 1
    other_arguments = {**arguments, **({rng.choice(["cells", "hash_funcs", "key"]): 5} if rng.random() < 0.1 else {})}
    other_arguments["key"] = rng.randbytes(16) if other_arguments["key"] == 5 else other_arguments["key"]
    other_kind = kind if rng.random() < 0.95 else rng.choice(["BitCore", "CounterCore"])
    if other_kind != kind:
        other_arguments.pop("counter_bits", None)
    elif kind == "CounterCore" and rng.random() < 0.1:
        other_arguments["counter_bits"] = 4
    other = Twins(other_kind, other_arguments, rng.choice([bytes(size), rng.randbytes(size)]), "view")
    others = [twins, other] if not other.refusal else [twins]
    encoding = arguments["encoding"]
    operations = [
        "add",
        "__contains__",
        "update",
        "contains_many",
        "positions",
        "clear",
        SAME_SHAPE,
        "__ior__",
        "cells",
        "body",
    ]
    operations += ["add", "update", "update", "__contains__", "contains_many"]
    operations += ["limit", MAKE_ROOM] if rng.random() < 0.5 else []
    operations += ["set_bits", "union_set_bits", "plane_set_bits", "__iand__", "__le__"] if kind == "BitCore" else []
    operations += ["remove", "remove", "remove", "count", "set_cells", "to_bits"] if kind == "CounterCore" else []
    counted = ["counter_bits", "counter_limit"] if kind == "CounterCore" else []
    for _ in range(12):
        match operation := rng.choice(operations):
            case "add" | "__contains__" | "positions" | "remove" | "count":
                twins.same(operation, some_key(rng, encoding))
            case "update" | "contains_many":
                twins.same(operation, some_batch(rng, encoding))
            case cores.SAME_SHAPE | "__ior__" | "__iand__" | "__le__" | "union_set_bits":
                if operation in ("__ior__", "__iand__", "__le__") and rng.random() < 0.1:
                    twins.same(operation, rng.choice([None, set(), 1]))
                else:
                    twins.same(operation, rng.choice(others))
            case "cells":
                for name in ("cells", "hash_funcs", "family", "key", "encoding", "partitioned", *counted):
                    assert getattr(twins.cores[0], name) == getattr(twins.cores[1], name)
            case "limit":
                twins.same("__setattr__", "room", rng.choice([None, -1, 0, 1, 2, 7, 40, 2**63 - 2, -2, 2**63 - 1, 1.5]))
            case "body":
                assert twins.cores[0].body == twins.cores[1].body
                assert twins.cores[0].body.readonly
            case _:
                twins.same(operation)
        assert twins.cores[0].room == twins.cores[1].room
    return 12


@pytest.mark.parametrize("seed", SEEDS)
def test_both_kernels_give_a_filter_the_same_life(seed: int) -> None:
    rng = random.Random(seed)
    assert sum(a_life(rng) for _ in range(LIVES)) > LIVES


class Meter(type):
    def __index__(cls) -> int:
        return 4


class Unlike(metaclass=Meter):
    """The class and each object have an `__index__`, but Python only looks in the object's type, which has none."""

    def __init__(self) -> None:
        self.__index__ = lambda: 5


@pytest.mark.parametrize("encoding", NUMBERS)
@pytest.mark.parametrize("call", ["add", "__contains__", "positions"])
def test_only_the_type_of_a_key_makes_it_an_integer(call: str, encoding: Encoding) -> None:
    arguments = {"cells": 64, "hash_funcs": 3, "family": Family.FAST, "key": bytes(16), "encoding": encoding}
    twins = Twins("BitCore", arguments, bytes(8), "view")
    assert twins.same(call, Unlike()) == (
        TypeError,
        "the key must be an int, not Unlike: the filter encodes its keys as integers",
    )


@pytest.mark.few(3)
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("width", [4, 8, 20])
@pytest.mark.parametrize("room", [None, 40])
def test_batches_of_split_blocks_are_equal_in_both_kernels(private: bool, width: int, room: int | None) -> None:
    rng = random.Random(width)
    for count in (0, 1, 31, 32, 33, 63, 64, 65, 1_000):
        shape = {"cells": 256 * 5, "hash_funcs": 8, "family": Family.SPLIT_BLOCK, "key": bytes(16)}
        twins = Twins("BitCore", {**shape, "private": private}, bytes(160), "plain")
        for core in twins.cores:
            core.room = room
        keys = np.frombuffer(rng.randbytes(width * count), np.uint8).reshape(count, width)
        twins.same("update", keys)
        twins.same("update", [bytes(key) for key in keys])
        twins.same("contains_many", keys)
        twins.same("contains_many", np.frombuffer(rng.randbytes(width * 500), np.uint8).reshape(500, width))
        assert twins.cores[0].room == twins.cores[1].room


def test_counters_of_16_bits_need_an_even_address() -> None:
    from spvfilter.kernel import native

    shape = (4, 3, Family.FAST, bytes(16))
    made = native.CounterCore(*shape, bytearray(8), counter_bits=16)
    for refused in (
        lambda odd: native.CounterCore(*shape, odd, counter_bits=16),
        lambda odd: setattr(made, "buffer", odd),
    ):
        with pytest.raises(ParameterError, match="must be at an even address"):
            refused(memoryview(bytearray(9))[1:])
