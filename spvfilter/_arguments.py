"""Errors that name the argument of the wrong type, found from a function's annotations after it has failed."""

from __future__ import annotations

import collections.abc
import enum
import inspect
import itertools
import re
import types
import typing
from collections.abc import Callable, Mapping

from spvfilter.errors import ParameterError, SpvFilterError

_MOST_ITEMS = 1_000
"""Largest number of items in a collection that are checked (our choice)."""
_COLLECTIONS = (list, tuple, set, frozenset, dict, str, bytes)
_ONLY_TYPED = {"Buffer": memoryview, "Keys": collections.abc.Iterable | memoryview}
"""Stand-ins for names that only type checkers know."""


def wrong_argument(
    function: Callable[..., object], given: tuple[object, ...], named: Mapping[str, object], error: Exception
) -> TypeError | None:
    """Return an error that names the first argument of the wrong type, or None if `error` should be raised unchanged.

    Args:
        function: The function that failed.
        given: Its positional arguments.
        named: Its keyword arguments.
        error: The error that it raised.
    """
    if isinstance(error, SpvFilterError):
        return None
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*given, **named).arguments
    except TypeError:  # too many arguments, or too few: Python's own error names them
        return None
    text = str(error)
    if isinstance(error, TypeError) and any(re.search(rf"\b{name}\b", text) for name in signature.parameters):
        return None
    for name, value in bound.items():
        parameter = signature.parameters[name]
        if parameter.annotation is parameter.empty or parameter.kind is parameter.VAR_KEYWORD:
            continue
        hint = _hint(parameter.annotation, function)
        if parameter.kind is parameter.VAR_POSITIONAL:
            place = _misfit_inside(value, tuple, (hint, ...), name)
        else:
            place = _misfit(value, hint, name)
        if place is not None:
            where, found = place
            wanted = (
                _written(parameter.annotation)
                if where == name
                else f"a value that fits {_written(parameter.annotation)}"
            )
            return TypeError(f"{where}: expected {wanted}, not {type(found).__name__}: {text}")
    return None


def named(function: Callable[..., object], error: Exception, *given: object) -> Exception:
    """Return the error to raise in place of `error`. If an argument has the wrong type, the new error names it.

    Use it in functions that are called too often for the `naming` decorator: a `try` costs nothing. `given` contains
    the arguments.
    """
    return wrong_argument(function, given, {}, error) or error


def _hint(annotation: object, function: Callable[..., object]) -> object:
    """Return the type of an annotation, or Any if it cannot be evaluated here."""
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, function.__globals__ | _ONLY_TYPED)  # noqa: S307  text of this package's own source
    except Exception:  # a name that only type checkers import
        return typing.Any


def _written(annotation: object) -> str:
    """Return the text of an annotation, as written in the source."""
    if isinstance(annotation, str):
        return annotation
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def _misfit(value: object, hint: object, where: str) -> tuple[str, object] | None:
    """If a value certainly does not fit a type, return its place and the value itself, otherwise None."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        found = [_misfit(value, each, where) for each in typing.get_args(hint)]
        return None if None in found else (where, value)
    if hint is None or hint is types.NoneType:
        return None if value is None else (where, value)
    if origin is typing.Literal or hint is typing.Any or isinstance(hint, typing.TypeVar):
        return None
    kind = origin or hint
    if not isinstance(kind, type):
        return None
    if not _fits(value, kind):
        return where, value
    return _misfit_inside(value, kind, typing.get_args(hint), where)


def _fits(value: object, kind: type) -> bool:
    """Return True if a value can be used where a type is expected. Other libraries' numbers and all buffers can."""
    if kind is int or kind is float:
        return hasattr(value, "__index__") or (kind is float and hasattr(value, "__float__"))
    if kind is bytes or kind is memoryview or kind is bytearray:
        return _is_buffer(value)
    if getattr(kind, "_is_protocol", False):
        needed = (name for base in kind.__mro__ for name in vars(base) if getattr(base, "_is_protocol", False))
        return all(hasattr(value, name) for name in needed if not name.startswith("_") or name == "__bytes__")
    if kind.__module__ == "collections.abc" and kind.__name__ == "Buffer":
        return _is_buffer(value)
    try:
        return isinstance(value, kind)
    except TypeError:
        return True


def _is_buffer(value: object) -> bool:
    try:
        memoryview(value)  # type: ignore[arg-type]  # that is the question
    except (TypeError, ValueError, BufferError):  # NumPy refuses the dtype of dates
        return False
    return True


def _misfit_inside(value: object, kind: type, inner: tuple[object, ...], where: str) -> tuple[str, object] | None:
    """Return the place and value of a collection's first item of the wrong type. Iterators are not consumed."""
    if not isinstance(value, _COLLECTIONS) or not inner or not issubclass(kind, collections.abc.Iterable):
        return None
    is_fixed = kind is tuple and inner[-1] is not Ellipsis
    if is_fixed and len(inner) != len(value):
        return where, value
    hints = iter(inner) if is_fixed else itertools.repeat(inner[0])
    for number, (item, hint) in enumerate(zip(itertools.islice(value, _MOST_ITEMS), hints, strict=False)):
        if (found := _misfit(item, hint, f"{where}[{number}]")) is not None:
            return found
    return None


def no_member(cls: type[enum.Enum], value: object) -> object:
    """Return a combination of flags. Raise ParameterError for any other value, since no member of `cls` has it."""
    if issubclass(cls, enum.Flag) and isinstance(value, int):
        return super(cls, cls)._missing_(value)
    members = ", ".join(str(each.value) for each in cls)
    shown = repr(value) if isinstance(value, (str, int)) else type(value).__name__
    raise ParameterError(f"{cls.__name__} must be one of {members}, not {shown}")
