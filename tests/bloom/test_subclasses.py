"""Classes that a user derives from a filter: copies, pickles and set operations keep class and attributes."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter, ScalableBloomFilter
from spvfilter.bloom.exchange import SplitBlockFilter
from spvfilter.filters.bip37 import Bip37Filter


class Slotted(BloomFilter):
    """Attributes in slots, one of them private."""

    __slots__ = ("__secret", "unset")

    def __init__(self, label: str) -> None:
        super().__init__(100, 0.01)
        self.__secret = label

    @property
    def label(self) -> str:
        return self.__secret


class Plain(BloomFilter):
    """A subclass with attributes in a `__dict__` and its own constructor."""

    def __init__(self, label: str) -> None:
        super().__init__(100, 0.01)
        self.label = label


class Counting(CountingBloomFilter):
    label: str


class Scalable(ScalableBloomFilter):
    label: str


class Bip37(Bip37Filter):
    label: str


class SplitBlock(SplitBlockFilter):
    label: str


def labelled(made: Any) -> Any:
    made.label = "seen"
    return made


MAKERS: dict[str, Callable[[], Any]] = {
    "slots": lambda: Slotted("seen"),
    "dict": lambda: Plain("seen"),
    "counting": lambda: labelled(Counting(100, 0.01)),
    "scalable": lambda: labelled(Scalable(100, 0.01)),
    "bip37": lambda: labelled(Bip37(100, 0.01)),
    "split block": lambda: labelled(SplitBlock(100, 0.01)),
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "copy": lambda made: made.copy(),
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda made: pickle.loads(pickle.dumps(made)),
    "|": lambda made: made | made.copy(),
    "&": lambda made: made & made.copy(),
    "union": lambda made: made.union(made.copy()),
    "intersection": lambda made: made.intersection(made.copy()),
}
LACKING = {("counting", "&"), ("counting", "intersection")} | {
    ("scalable", way) for way in ("|", "&", "union", "intersection")
}


@pytest.mark.parametrize(("kind", "way"), [pair for pair in itertools.product(MAKERS, WAYS) if pair not in LACKING])
def test_attributes_of_a_subclass_survive(kind: str, way: str) -> None:
    made = MAKERS[kind]()
    made.add(b"key")
    other = WAYS[way](made)
    assert type(other) is type(made)
    assert other is not made
    assert other.label == "seen"
    assert b"key" in other
    assert not hasattr(other, "unset")


@pytest.mark.slow
def test_attributes_are_not_part_of_the_file() -> None:
    made = Plain("seen")
    assert bytes(made) == bytes(BloomFilter(100, 0.01))
    assert not hasattr(Plain.from_bytes(bytes(made)), "label")
