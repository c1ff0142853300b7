"""What is public: modules and packages that list their names, and the classes and functions among these."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

MODULES = ["address", "errors", "hashes", "network", "primitives", "transaction"]
ROOMS = ["bloom", "bloom.redis", "chain", "filters", "light", "node", "p2p", "scan", "store", "wallet", "watch", "wire", "wire.messages"]


def loaded(room: str) -> ModuleType:
    return import_module(f"spvfilter.{room}")


def public() -> Iterator[tuple[str, str, object]]:
    """Room, name and value of everything public but the names of the package itself, which all come from the rooms."""
    for room in MODULES + ROOMS:
        for name in loaded(room).__all__:
            yield room, name, getattr(loaded(room), name)


def own() -> list[tuple[str, str, Any]]:
    """The package's classes and functions among them; the others are constants and aliases of types."""
    found = [(room, name, value) for room, name, value in public() if inspect.isclass(value) or inspect.isroutine(value)]
    return [(room, name, value) for room, name, value in found if str(value.__module__).startswith("spvfilter")]
