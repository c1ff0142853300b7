"""For tests of rules: the package's modules, each parsed once, and an assertion that shows every place at fault."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import spvfilter

PACKAGE = Path(spvfilter.__file__).parent


@cache
def modules() -> list[str]:
    """Dotted names within the package. "__init__" is the package itself."""
    return sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py"))


def source(module: str) -> Path:
    return (PACKAGE / Path(*module.split("."))).with_suffix(".py")


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(source(module).read_text(encoding="utf-8"))


@cache
def nodes(module: str) -> list[ast.AST]:
    """All nodes of a module's syntax tree."""
    return list(ast.walk(tree(module)))


def assert_none(faults: Iterable[object]) -> None:
    """Fail if there is a fault, and show all of them, one a line."""
    __tracebackhide__ = True
    found = [str(fault) for fault in faults]
    assert not found, "\n".join(["", *found])
