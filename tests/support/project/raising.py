"""Which errors of the package a function raises, read from its source: by itself, or through functions that are not
public.

The compiled kernel has no source: its methods raise what the reference's do.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import FunctionType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from spvfilter import _public, errors
from spvfilter.kernel import backend

COMPILED = (GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType)  # attributes, methods, __init__

Error = type[BaseException]
Function = Callable[..., object]


class Raising:
    """`public` are the modules whose functions document their errors. Calls of these functions are not followed."""

    def __init__(self, public: Iterable[str]) -> None:
        self._public = frozenset(public)

    def by(self, function: Function, owner: type | None = None, *, callers: tuple[Function, ...] = ()) -> set[Error]:
        """The classes in spvfilter.errors that leave a function, for a method one of `owner`. A call of a parameter is
        not followed.
        """
        function = decorated(function)
        if function in callers:
            return set()
        found: set[Error] = set()
        for node, caught in _uncaught(_definition(function), lambda name: _named(name, function, owner)):
            if isinstance(node, ast.Raise) and node.exc is not None:
                raised = _error(_named(node.exc.func if isinstance(node.exc, ast.Call) else node.exc, function, owner))
                new = {raised} if raised else set()
            elif isinstance(node, ast.Call):
                called = _named(node.func, function, owner)
                new = (
                    self.by(called, owner, callers=(*callers, function))
                    if self._is_internal(called, function)
                    else set()
                )
            else:
                continue
            found |= {error for error in new if not issubclass(error, caught)}
        return found

    def _is_internal(self, called: object, caller: Function) -> bool:
        if not isinstance(called, FunctionType) or not called.__module__.startswith("spvfilter"):
            return False
        if is_kernel(called):  # followed only within the reference, so that both backends are judged the same
            return is_kernel(caller) and called.__qualname__.split(".")[0] not in backend.reference()
        return (
            called.__name__.startswith("_") and not called.__name__.startswith("__")
        ) or called.__module__ not in self._public


def is_kernel(function: Function) -> bool:
    """Whether a function is the reference's."""
    return function.__module__.startswith("spvfilter.kernel")


def sourced(member: object, owner: type) -> tuple[Any, type]:
    """The function of a class's member, and the class in which its names are looked up.

    A compiled member has those of the reference.
    """
    function = plain(member)
    if isinstance(function, COMPILED):
        twin = backend.reference()[function.__objclass__.__name__]
        assert isinstance(twin, type)
        return plain(inspect.getattr_static(twin, function.__name__)), twin
    return function, owner


def says(doc: str, error: Error) -> bool:
    """Return True if a docstring names an error or one of its base classes."""
    return any(
        kind.__name__ in doc
        for kind in error.__mro__
        if kind.__module__ == errors.__name__ and kind is not errors.SpvFilterError
    )


@cache
def _definition(function: Function) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]


def _error(value: object) -> Error | None:
    """The error that `raise value` raises: its class, or the return annotation of the function that makes it."""
    if isinstance(value, FunctionType):
        value = getattr(errors, str(value.__annotations__.get("return")), None)
    return value if isinstance(value, type) and issubclass(value, errors.SpvFilterError) else None


def _named(node: ast.AST, function: Function, owner: type | None) -> Any:
    """The object that a name in a function refers to: a global, or an attribute of `self` or `cls`."""
    match node:
        case ast.Name(name):
            return plain(function.__globals__.get(name, getattr(builtins, name, None)))
        case ast.Attribute(ast.Name("self" | "cls"), name) if owner is not None:
            return plain(inspect.getattr_static(owner, name, None))
    return None


def plain(member: object) -> object:
    """The function of a method, class method or property, without a decorator that explains wrong arguments."""
    if isinstance(member, (classmethod, staticmethod)):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    return decorated(member) if isinstance(member, FunctionType) else member


def decorated(function: Function) -> Function:
    """The function that `spvfilter._public.naming` decorates, or the function itself."""
    is_naming = isinstance(function, FunctionType) and function.__code__.co_filename == _public.__file__
    return inspect.unwrap(function) if is_naming else function


def _uncaught(
    node: ast.AST, resolve: Callable[[ast.AST], Any], caught: tuple[Error, ...] = ()
) -> Iterator[tuple[ast.AST, tuple[Error, ...]]]:
    """Every node within a function, with the errors that are caught around it. Inner functions are left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.Try):
            here = tuple(error for handler in child.handlers for error in _caught(handler, resolve))
            yield from _uncaught(ast.Module(child.body, []), resolve, (*caught, *here))
            rest: list[Any] = [*child.handlers, *child.orelse, *child.finalbody]
            yield from _uncaught(ast.Module(rest, []), resolve, caught)
        else:
            yield child, caught
            yield from _uncaught(child, resolve, caught)


def _caught(handler: ast.ExceptHandler, resolve: Callable[[ast.AST], Any]) -> Iterator[Error]:
    if handler.type is None:
        yield BaseException
        return
    for node in handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]:
        value = resolve(node)
        yield from value if isinstance(value, tuple) else [value] if isinstance(value, type) else []
