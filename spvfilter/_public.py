"""Public names: the package that each is imported from; and loading names and modules when they are first used."""

from __future__ import annotations

import builtins
import os
import sys
from _thread import RLock
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import ForwardRef, TypeVar

T = TypeVar("T", bound=Callable[..., object])


def public(defined: T) -> T:
    """Decorate a class or function that the package around its module exports: `__module__` names that package.

    Reprs, tracebacks and pickles then survive a move between the package's modules. It is the outermost decorator:
    `dataclass` looks up annotations in the module that `__module__` names.
    """
    written_in = defined.__module__
    defined.__module__ = written_in.rpartition(".")[0]
    # its own; since 3.14 a NamedTuple's are made when asked for
    if isinstance(defined, type) and (hints := defined.__annotations__):
        defined.__annotations__ = {name: _resolvable(hint, written_in) for name, hint in hints.items()}
    return defined


def _resolvable(hint: object, module: str) -> object:
    """An annotation that typing.get_type_hints, which looks names up in the class's `__module__`, evaluates in `module`
    instead.
    """
    text = hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
    if not isinstance(text, str) or hasattr(builtins, text):  # the same everywhere
        return hint
    return ForwardRef(text, module=module, is_class=True)


# held while a module of this package is imported late; a fork waits for it: nobody would end the import in the child
_importing = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
    )


class deferred:  # noqa: N801  used as a function
    """A stand-in for a module, which is imported when one of its attributes is first used.

    It is for modules that take long to import and are not needed until a function is called. Type checkers see an
    import statement instead.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        module = sys.modules.get(self._name)
        # another thread is still importing it
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            module = self._imported()
        return getattr(module, attribute)

    def _imported(self) -> ModuleType:
        if not self._name.startswith("spvfilter."):  # what others' modules import has locks and an order of its own
            return import_module(self._name)
        with _importing:
            return import_module(self._name)


def lazy(package: str, **homes: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package that loads its public names when they are first used (PEP
    562).

    Each of `homes` is a module or package in it with the names that come from there, separated by spaces.
    """
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}
    exported = sorted(home_of)

    def load(name: str) -> object:
        room = sys.modules[package]
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=room)
        value: object = getattr(import_module(home_of[name]), name)
        setattr(room, name, value)  # from now on it is found without this function
        return value

    return exported, load, lambda: list(exported)
