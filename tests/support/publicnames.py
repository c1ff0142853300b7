"""The public names: modules and packages with `__all__`, and the classes and functions in them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from support.raising import COMPILED, plain

MODULES = ["address", "bloom.sizing", "errors", "hashes", "network", "primitives", "transaction"]
ROOMS = [
    *(
        "bloom",
        "bloom.exchange",
        "bloom.redis",
        "chain",
        "electrum",
        "filters",
        "interop",
        "light",
        "node",
        "p2p",
        "rpc",
        "scan",
        "store",
        "wallet",
    ),
    *("watch", "watch.descriptor", "watch.imports", "wire", "wire.messages"),
]
CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__enter__", "__aenter__")


def loaded(room: str) -> ModuleType:
    return import_module(f"spvfilter.{room}")


def public() -> Iterator[tuple[str, str, object]]:
    """Room, name and value of everything public but the names of the package itself, which all come from the rooms."""
    for room in MODULES + ROOMS:
        for name in loaded(room).__all__:
            yield room, name, getattr(loaded(room), name)


def own() -> list[tuple[str, str, Any]]:
    """The package's classes and functions among them; the others are constants and aliases of types."""
    found = [
        (room, name, value) for room, name, value in public() if inspect.isclass(value) or inspect.isroutine(value)
    ]
    return [(room, name, value) for room, name, value in found if str(value.__module__).startswith("spvfilter")]


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class and of the package's classes it derives from, those that are public or make an
    object.
    """
    seen: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("spvfilter"):
            for name, member in vars(base).items():
                if name not in seen and (not name.startswith("_") or name in CONSTRUCTORS) and is_code(member):
                    yield name, member
        seen |= vars(base).keys()


def is_code(member: object) -> bool:
    """Whether it is compiled, or a function with a source: not one that dataclass or NamedTuple make."""
    function = plain(member)
    if isinstance(function, FunctionType):
        return function.__module__.startswith("spvfilter") and "<" not in function.__code__.co_filename
    return isinstance(function, COMPILED)
