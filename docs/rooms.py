"""The package as Sphinx has to see it: the modules that define the names of each room, and the targets of links."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.pycode import ModuleAnalyzer

MODULES = ("address", "bloom.sizing", "errors", "hashes", "network", "primitives", "signing", "transaction", "testing")
ROOMS = (
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
    ),
    *("wallet", "watch", "watch.descriptor", "watch.imports", "wire", "wire.messages"),
)


def room(name: str) -> ModuleType:
    """A public module or package."""
    return import_module(f"spvfilter.{name}")


def join_sources() -> None:
    """Let autodoc find docstrings of fields and the order of members in the modules of each room.

    Public names belong to their room's package, which only imports them from the modules that define them.
    """
    for name in ROOMS:
        package = room(name)
        joined = _analyzed(package.__name__)
        for path in sorted(Path(str(package.__file__)).parent.glob("*.py")):
            if path.stem == "__init__":
                continue
            part = _analyzed(f"{package.__name__}.{path.stem}")
            joined.attr_docs |= {at: doc for at, doc in part.attr_docs.items() if at[0] or at[1] in package.__all__}
            joined.annotations |= part.annotations
            joined.overloads |= part.overloads
            last = max(joined.tagorder.values(), default=0) + 1
            joined.tagorder |= {tag: last + order for tag, order in part.tagorder.items()}


def _analyzed(module: str) -> ModuleAnalyzer:
    """Sphinx's analysis of a module, which Sphinx keeps and will use again."""
    from sphinx.pycode import ModuleAnalyzer  # not needed by generate.py

    found = ModuleAnalyzer.for_module(module)
    found.analyze()
    return found


class Code:
    """A default value that a signature shows as this string."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def name_defaults(function: object) -> None:
    """Let the signature of a function show the name of a default, such as MAINNET, if its repr is long or not code."""
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType):
        return
    signature = inspect.signature(function)
    shown = [named(parameter) for parameter in signature.parameters.values()]
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]


def named(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter as its signature shows it."""
    default = parameter.default
    if default is parameter.empty or is_short_code(repr(default)):
        return parameter
    return parameter.replace(default=Code(name_of(default)))


def is_short_code(text: str) -> bool:
    """True if a text is a short expression of Python, or the repr of an enum member, which Sphinx knows."""
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return bool(re.match(r"<\w+\.\w+: ", text))
    return len(text) <= 60


def name_of(value: object) -> str:
    """The name of a function, class or public constant that a default is; three dots if it has none."""
    if callable(value) and hasattr(value, "__qualname__"):
        is_own = value.__module__.startswith("spvfilter")
        return value.__qualname__ if is_own else f"{value.__module__}.{value.__qualname__}"
    names = ((place, name) for place in (*MODULES, *ROOMS) for name in room(place).__all__)
    return next((name for place, name in names if getattr(room(place), name) is value), "...")


def links() -> dict[str, str]:
    """Full names by the words that mean them, such as `Name`, `Name.member` and `function()`.

    A name that several rooms have gets no link. A function needs its `()`, as a parameter may have the same name.
    """
    everywhere = [(place, name) for place in (*MODULES, *ROOMS) for name in room(place).__all__]
    count = Counter(name for _, name in everywhere)
    found: dict[str, str] = {}
    for place, name in everywhere:
        value, full = getattr(room(place), name), f"spvfilter.{place}.{name}"
        if count[name] > 1:
            continue
        found[f"{name}()" if inspect.isroutine(value) else name] = full
        if inspect.isclass(value):
            for member in vars(value):
                if not member.startswith("_"):
                    found[f"{name}.{member}"] = found[f"{name}.{member}()"] = f"{full}.{member}"
    return found
