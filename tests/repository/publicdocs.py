"""Docstrings of the public names and of their fields, read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from support.project.publicnames import loaded

ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Doc(NamedTuple):
    """A docstring of a class, function, method or field. `text` is empty if there is none."""

    place: str
    """File, line and name, for messages."""
    text: str
    names: frozenset[str]
    """Names that it may mention by themselves: parameters, and members of its class."""
    is_field: bool = False


def public_docs(room: str) -> Iterator[Doc]:
    """Docstrings of the public names of a module or package, and of their public members and fields."""
    package = Path(str(loaded(room).__file__))
    is_room = package.stem == "__init__"
    for path in sorted(package.parent.glob("*.py")) if is_room else [package]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, Definition) and (_is_marked(node) if is_room else node.name in loaded(room).__all__):
                for doc in _docs(node):
                    yield doc._replace(place=f"{path.name}:{doc.place}")


def _is_marked(node: Definition) -> bool:
    return any(ast.unparse(decorator) == "public" for decorator in node.decorator_list)


def _docs(node: Definition) -> Iterator[Doc]:
    names = frozenset(_parameters(node) if not isinstance(node, ast.ClassDef) else _members(node))
    yield Doc(f"{node.lineno}: {node.name}", ast.get_docstring(node) or "", names)
    if isinstance(node, ast.ClassDef):
        yield from _fields(node, names)
        for method in node.body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                text = ast.get_docstring(method) or ""
                yield Doc(f"{method.lineno}: {node.name}.{method.name}", text, names | _parameters(method))


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    given = function.args
    return frozenset(each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs))


def _members(cls: ast.ClassDef) -> Iterator[str]:
    """Fields, constants and methods of a class, and the parameters of its constructor."""
    for node in cls.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
            if node.name in ("__init__", "__new__"):
                yield from _parameters(node)


def _fields(cls: ast.ClassDef, names: frozenset[str]) -> Iterator[Doc]:
    """Public fields of a dataclass or NamedTuple, and members of an enum."""
    bases = {ast.unparse(base) for base in cls.bases}
    has_fields = "NamedTuple" in bases or any("dataclass" in ast.unparse(each) for each in cls.decorator_list)
    for node, below in zip_longest(cls.body, cls.body[1:]):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=hint) if has_fields:
                is_field = not ast.unparse(hint).startswith("ClassVar")
            case ast.Assign(targets=[ast.Name(id=name)]):
                is_field = bool(bases & ENUMS)
            case _:
                continue
        if is_field and not name.startswith("_"):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            yield Doc(f"{node.lineno}: {cls.name}.{name}", str(text), names, is_field=True)
