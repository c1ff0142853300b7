"""The compiled SeriesCore against its reference: the same results, bytes, slices and errors in any sequence of
calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spvfilter.errors import CapacityError
from spvfilter.kernel import Encoding, Family
from support.kernels.kernelentries import Kernel, native, reference
from support.vectors import effort

pytestmark = pytest.mark.native
SEEDS = range(effort(3, 3, 60))
LIVES = effort(10, 20, 200)  # of series, per seed, of twelve operations each


def own_function(data: bytes) -> int:
    return sum(data) * 77


def a_slice(kernel: Kernel, shape: dict[str, Any], keys: list[Any]) -> Any:
    """A slice that contains some keys, and has the room that they left."""
    made = kernel.BitCore(**{name: value for name, value in shape.items() if name != "room"}, buffer=None)
    made.update(keys)
    made.room = shape["room"]
    return made


def a_series(kernel: Kernel, slices: list[Any], reaction: str, further: list[dict[str, Any]]) -> Any:
    """A series that reacts in this way to the last slice being full; its further slices have these shapes."""
    left = list(further)

    class Growing(kernel.SeriesCore):  # type: ignore[misc]  # of either kernel
        def _make_room(self) -> None:
            last = self.slices[-1]
            match reaction:
                case "grows" if left:
                    self.append(a_slice(kernel, left.pop(), []), len(self.slices))
                case "lifts":
                    last.room = None
                case "sets":
                    last.room = 2
                case "refuses":
                    raise CapacityError("full today")
                case "breaks":
                    raise LookupError("nothing of ours")

    return Growing(slices) if reaction != "plain" else kernel.SeriesCore(slices)


def outcome(call: Callable[..., Any], *arguments: Any) -> object:
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error)


def some_shape(rng: random.Random, common: dict[str, Any]) -> dict[str, Any]:
    functions = rng.choice([1, 2, 3, 5, 13, 40])
    return {
        **common,
        "cells": functions * rng.randrange(1, 600),
        "hash_funcs": functions,
        "partitioned": rng.random() < 0.3,
        "custom": [own_function] * functions if common["family"] == Family.CUSTOM else None,
        "room": rng.choice([None, None, -1, 0, 1, 3, 40, 100]),
    }


def some_keys(rng: random.Random, encoding: Encoding) -> list[Any]:
    numbers = [rng.randrange(rng.choice([30, 400])) for _ in range(rng.choice([0, 1, 5, 33, 100]))]
    makers: dict[Encoding, Callable[[int], Any]] = {
        Encoding.UTF8: str,
        Encoding.BYTES: b"%d".__mod__,
        Encoding.INT64: int,
    }
    keys = [makers[encoding](number) for number in numbers]
    if keys and rng.random() < 0.05:
        keys[rng.randrange(len(keys))] = rng.choice([None, 1.5, 2**63, "\ud800"])
    return keys


def some_form(rng: random.Random, keys: list[Any], encoding: Encoding) -> Callable[[], Any]:
    if encoding == Encoding.INT64 and rng.random() < 0.4 and all(type(key) is int and key < 2**63 for key in keys):
        return lambda: np.array(keys, np.int64)
    return rng.choice([lambda: keys, lambda: tuple(keys), lambda: iter(keys)])


def a_life(rng: random.Random) -> None:
    common: dict[str, Any] = {
        "family": rng.choice(
            [Family.BIP37, Family.FAST, Family.SIPHASH, Family.CUSTOM, Family.SPARK_V2, Family.REDISBLOOM]
        ),
        "key": rng.randbytes(16),
        "encoding": rng.choice([Encoding.BYTES, Encoding.UTF8, Encoding.INT64]),
    }
    encoding: Encoding = common["encoding"]
    shapes = [some_shape(rng, common) for _ in range(rng.randrange(1, 6))]
    keys = [
        [key for key in some_keys(rng, encoding) if key is not None and key != 1.5 and key not in (2**63, "\ud800")]
        for _ in shapes
    ]
    reaction = rng.choice(["plain", "grows", "grows", "lifts", "sets", "refuses", "breaks", "nothing"])
    further = [some_shape(rng, common) for _ in range(3)]
    kernels = (native(), reference())
    twins = [
        a_series(kernel, [a_slice(kernel, *of) for of in zip(shapes, keys, strict=True)], reaction, further)
        for kernel in kernels
    ]

    def same(operation: str, given: list[Any], *more: Any) -> None:
        results = [
            outcome(getattr(twin, operation), argument, *more) for twin, argument in zip(twins, given, strict=True)
        ]
        results = [bytes(result) if isinstance(result, np.ndarray) else result for result in results]
        assert results[0] == results[1], (operation, shapes, reaction)
        bodies = [[(bytes(each.body), each.room) for each in twin.slices] for twin in twins]
        assert bodies[0] == bodies[1], (operation, shapes, reaction)

    for _ in range(12):
        match rng.choice(["add", "__contains__", "update", "update", "contains_many", "append", "room"]):
            case "add" | "__contains__" as single:
                for key in some_keys(rng, encoding)[:3]:
                    same(single, [key, key])
            case "update" | "contains_many" as many:
                form = some_form(rng, some_keys(rng, encoding), encoding)
                same(many, [form(), form()])
            case "append":
                shape = some_shape(rng, {**common, **({"key": bytes(16)} if rng.random() < 0.2 else {})})
                same("append", [a_slice(kernel, shape, []) for kernel in kernels], rng.choice([0, 1, 3, 9, -1, 2**63]))
            case _:
                room = rng.choice([None, -1, 0, 1, 2, 7, 40])
                for twin in twins:
                    twin.slices[-1].room = room


@pytest.mark.parametrize("seed", SEEDS)
def test_any_life_of_a_series_is_the_same(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(LIVES):
        a_life(rng)
