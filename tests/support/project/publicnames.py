"""The public names: modules and packages with `__all__`, and the classes and functions in them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from support.project.raising import COMPILED, plain

MODULES = ["address", "bloom.sizing", "errors", "hashes", "network", "primitives", "signing", "transaction"]
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
    """Room, name and value of every public name, except those of the package itself, which come from the rooms."""
    for room in MODULES + ROOMS:
        for name in loaded(room).__all__:
            yield room, name, getattr(loaded(room), name)


def own() -> list[tuple[str, str, Any]]:
    """The package's public classes and functions. All other public names are constants and aliases of types."""
    found = [
        (room, name, value) for room, name, value in public() if inspect.isclass(value) or inspect.isroutine(value)
    ]
    return [(room, name, value) for room, name, value in found if str(value.__module__).startswith("spvfilter")]


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods, properties and constructors of a class and of its bases in the package."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("spvfilter"):
            for name, member in vars(base).items():
                if name not in seen and (not name.startswith("_") or name in CONSTRUCTORS) and is_code(member):
                    yield name, member
        seen |= vars(base).keys()


def is_code(member: object) -> bool:
    """Return True for compiled code and for a function with a source. Functions of dataclass or NamedTuple
    have none.
    """
    function = plain(member)
    if isinstance(function, FunctionType):
        return function.__module__.startswith("spvfilter") and "<" not in function.__code__.co_filename
    return isinstance(function, COMPILED)
