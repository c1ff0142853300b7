"""Builds methods of the client that call the methods of `Views` with the same names, parameters and docstrings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar  # Any: the send type of a coroutine

from spvfilter.store.views import Views

P = ParamSpec("P")
T = TypeVar("T")

_NOT_RUNNING = "NotRunningError: The client is not running."


class _Client(Protocol):
    """LightClient."""

    async def _ask(self, question: Callable[[Views], T]) -> T:
        """Call a function with the database's views, and return its result."""
        ...


def asks(method: Callable[Concatenate[Views, P], T]) -> Callable[Concatenate[_Client, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method of LightClient that calls a method of Views."""

    async def ask(self: _Client, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._ask(lambda views: method(views, *args, **kwargs))

    asking: Callable[Concatenate[_Client, P], Coroutine[Any, Any, T]] = named_as(ask, method, "LightClient")
    asking.__doc__ = _described(method)
    return asking


def named_as(made: Any, method: Any, owner: str, returns: object = None) -> Any:
    """Give a function the name, docstring and signature of another class's method.

    Args:
        made: The function, a method of the class `owner`.
        method: The method of another class.
        owner: Name of the class that the function belongs to.
        returns: Annotation for the return value; by default, that of `method`.
    """
    module, signature = made.__module__, inspect.signature(method)
    functools.update_wrapper(made, method)
    made.__signature__ = signature if returns is None else signature.replace(return_annotation=returns)
    made.__qualname__, made.__module__ = f"{owner}.{method.__name__}", module
    return made


def _described(method: Any) -> str:
    """Return the docstring of a method of Views, plus the error that only a client raises."""
    indent = " " * 12
    return str(method.__doc__).replace(f"{indent}StoreError:", f"{indent}{_NOT_RUNNING}\n{indent}StoreError:")
