"""Decorators and helpers for public names: the package that exports them, and imports deferred until first use."""

from __future__ import annotations

import builtins
import os
import sys
import warnings
from _thread import RLock
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum, EnumType
from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import ForwardRef, TypeVar

from spvfilter._arguments import no_member, wrong_argument

T = TypeVar("T", bound=Callable[..., object])


def public(defined: T) -> T:
    """Decorate a class or function that its module's package exports: its `__module__` becomes that package.

    Reprs, tracebacks and pickles then still work after it moves to another module of the package. This must be the
    outermost decorator, as `dataclass` looks up annotations in the module that `__module__` names. The repr of a
    dataclass or NamedTuple shows hashes in hex and shortens long bytes, unless the class defines a repr.
    """
    written_in = defined.__module__
    defined.__module__ = written_in.rpartition(".")[0]
    # the annotations of the class itself; from Python 3.14 on NamedTuple creates them on the first access
    if isinstance(defined, type) and (hints := defined.__annotations__):
        defined.__annotations__ = {name: _resolvable(hint, written_in) for name, hint in hints.items()}
    defined = _named(defined) if isinstance(defined, type) else naming(defined)
    return readable(defined) if isinstance(defined, type) else defined


_PACKAGE = os.path.dirname(__file__) + os.sep  # noqa: PTH120  pathlib takes a tenth of the import
_COROUTINE = 0x80
"""Flag of coroutines (CPython code.h CO_COROUTINE)."""
_LATE = 0x20 | 0x200
"""Flags of generators, which do not run when they are called (CPython code.h CO_GENERATOR, CO_ASYNC_GENERATOR)."""


def _named(defined: T) -> T:
    """Make a class's constructor and public methods, even inherited ones, name an argument of the wrong type.

    An enumeration raises ParameterError for a value that is not one of its members.
    """
    for base in defined.__mro__:  # type: ignore[attr-defined]  # it is a class
        if base.__module__.partition(".")[0] == "spvfilter" and not base.__module__.startswith("spvfilter.kernel"):
            _name_members(base)  # even of a base class that is not public
    if isinstance(defined, EnumType) and "_missing_" not in vars(defined):
        setattr(defined, "_missing_", classmethod(_no_member))  # noqa: B010  type checkers forbid the assignment
    return defined


def _name_members(cls: type) -> None:
    is_protocol = getattr(cls, "_is_protocol", False)
    for name, member in list(vars(cls).items()):
        if name == "__init__" and (hasattr(cls, "__post_init__") or not is_dataclass(cls)):
            setattr(cls, name, naming(member))
        elif isinstance(member, (classmethod, staticmethod)) and not name.startswith("_"):
            setattr(cls, name, type(member)(naming(member.__func__)))
        elif isinstance(member, FunctionType) and not name.startswith("_") and not is_protocol:
            setattr(cls, name, naming(member))


def _no_member(cls: type[Enum], value: object) -> object:
    return no_member(cls, value)


def naming(function: T) -> T:
    """Decorate a function: if it fails because an argument has the wrong type, a TypeError names the argument.

    Nothing is checked before the call. These errors are raised unchanged:

    - this package's own errors;
    - errors that already name an argument;
    - all errors if all arguments fit their annotations.
    """
    if not isinstance(function, FunctionType) or function.__code__.co_flags & _LATE:
        return function
    if function.__code__.co_filename == naming.__code__.co_filename:  # it is decorated already
        return function
    if function.__code__.co_flags & _COROUTINE:
        return _naming_later(function)  # type: ignore[return-value]  # it takes the arguments of the function

    @wraps(function)
    def call(*given: object, **named: object) -> object:
        try:
            return function(*given, **named)
        except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError) as error:
            if (explained := wrong_argument(function, given, named, error)) is None:
                raise
            raise explained from error

    return call  # type: ignore[return-value]  # it takes the arguments of the function


def _naming_later(function: FunctionType) -> Callable[..., object]:
    """Decorate a coroutine function as `naming` does."""

    @wraps(function)
    async def call(*given: object, **named: object) -> object:
        try:
            return await function(*given, **named)
        except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError) as error:
            if (explained := wrong_argument(function, given, named, error)) is None:
                raise
            raise explained from error

    return call


def warn(message: str, category: type[Warning]) -> None:
    """Warn, and attribute the warning to the line outside the package that led here."""
    level, frame = 2, sys._getframe().f_back
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=2 if frame is None else level)


_HASHES = {
    *("txid", "wtxid", "hash", "block_hash", "by", "rival", "conflicts_with", "spent_by", "previous", "merkle_root"),
    *("best", "stop_hash", "genesis_hash"),
}
"""Names of fields whose 32 bytes are a hash, which people write in reversed order."""
_MOST_BYTES = 40
"""Largest number of bytes that a repr shows in full: enough for every common script that has an address."""
_MOST_ITEMS = 3
"""Largest number of items in a collection that a repr shows in full."""


def readable(defined: T) -> T:
    """Decorate a dataclass or NamedTuple: its repr shows hashes in hex and shortens long bytes and collections.

    If the class defines a repr itself, that one is kept.
    """
    made = vars(defined).get("__repr__")
    if hasattr(made, "__wrapped__") or getattr(made, "__module__", "") == "collections":  # a generated one
        setattr(defined, "__repr__", _repr)  # noqa: B010  type checkers forbid the assignment
    return defined


def _repr(self: object) -> str:
    """Return the class and the fields of a value, with bytes in hex."""
    cls = type(self)
    names = [field.name for field in fields(cls) if field.repr] if is_dataclass(cls) else getattr(cls, "_fields", ())
    return f"{cls.__qualname__}({', '.join(f'{name}={_shown(name, getattr(self, name))}' for name in names)})"


def _shown(name: str, value: object) -> str:
    """Return a field's value for a repr."""
    if isinstance(value, bytes) and value:
        if len(value) == 32 and name in _HASHES:
            return value[::-1].hex()
        return value.hex() if len(value) <= _MOST_BYTES else f"{value[:16].hex()}… ({len(value):,} bytes)"
    if type(value) is tuple or type(value) is list:
        shown = [_shown(name, each) for each in value[:_MOST_ITEMS]]
        shown += [f"… ({len(value):,} items)"] if len(value) > _MOST_ITEMS else []
        if type(value) is list:
            return f"[{', '.join(shown)}]"
        return f"({shown[0]},)" if len(shown) == 1 else f"({', '.join(shown)})"
    if isinstance(value, (dict, set, frozenset)) and len(value) > _MOST_ITEMS:
        return f"{{… ({len(value):,} items)}}"
    if type(value) is dict:
        return f"{{{', '.join(f'{_shown(name, key)}: {_shown(name, each)}' for key, each in value.items())}}}"
    return repr(value)


def _resolvable(hint: object, module: str) -> object:
    """Return an annotation that typing.get_type_hints evaluates in `module` instead of the class's `__module__`."""
    text = hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
    if not isinstance(text, str) or hasattr(builtins, text):  # it means the same in every module
        return hint
    return ForwardRef(text, module=module, is_class=True)


# held while a module of this package is imported late; a fork waits for it, as the child could not finish the import
_importing = RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_importing.acquire, after_in_parent=_importing.release, after_in_child=_importing.release
    )


class deferred:  # noqa: N801  used as a function
    """A stand-in for a module, which is imported on the first use of one of its attributes.

    It is for optional packages, and for the command line, which imports no more than the given command needs. Type
    checkers see an import statement instead.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        module = sys.modules.get(self._name)
        # in the second case another thread is still importing it
        if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
            module = self._imported()
        return getattr(module, attribute)

    def _imported(self) -> ModuleType:
        if not self._name.startswith("spvfilter."):  # other packages have an import order of their own
            return import_module(self._name)
        with _importing:
            return import_module(self._name)


def lazy(package: str, **homes: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package that imports its public names on first use (PEP 562).

    Args:
        package: Name of the package.
        homes: For each module of the package, the names that it defines, separated by spaces.
    """
    home_of = {name: f"{package}.{module}" for module, names in homes.items() for name in names.split()}
    exported = sorted(home_of)

    def load(name: str) -> object:
        room = sys.modules[package]
        if name not in home_of:
            # modules of the package, such as spvfilter.kernel
            if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
                return import_module(f"{package}.{name}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=room)
        value: object = getattr(import_module(home_of[name]), name)
        setattr(room, name, value)  # the next access does not call this function
        return value

    return exported, load, lambda: list(exported)
