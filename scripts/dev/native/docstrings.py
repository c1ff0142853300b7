"""Writes csrc/binding/docs/: signatures and docstrings of the reference, for the compiled functions and types."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from types import FunctionType

from programs import CSRC

from spvfilter.kernel.backend import reference

FOLDER = CSRC / "binding/docs"


def text_signature(function: FunctionType, receiver: str) -> str:
    """Format a signature as CPython reads it at the beginning of a docstring.

    `receiver` is $module for a function, $self for a method, and empty for a class.
    """
    signature = inspect.signature(function)
    bare = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=int(parameter.default) if isinstance(parameter.default, IntEnum) else parameter.default,
        )
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    shown = str(inspect.Signature(bare)).removeprefix("(").removesuffix(")")
    return f"({', '.join(part for part in (receiver, shown) if part)})"


def members(cls: type) -> Iterator[tuple[str, str]]:
    """Yield macro and text of the public methods, properties and slots that a class defines, without inherited ones."""
    slots = vars(cls).get("__slots__")
    for name, member in vars(cls).items():
        macro = f"{cls.__name__}_{name}"
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType):
            yield macro, f"{name}{text_signature(member, '$self')}\n--\n\n{inspect.getdoc(member)}"
        else:
            yield macro, slots[name] if isinstance(slots, dict) and name in slots else str(inspect.getdoc(member))


def texts(*, of_types: bool) -> Iterator[tuple[str, str]]:
    """Yield macro and text of every type of the compiled kernel with its members, or of every function.

    Inherited members belong to the class that defines them.
    """
    done: set[type] = set()
    for name, value in reference().items():
        if isinstance(value, type) != of_types:
            continue
        if isinstance(value, type):
            yield name, f"{name}{text_signature(value, '')}\n--\n\n{inspect.getdoc(value)}"
            for cls in value.__mro__[:-1]:
                if cls not in done:
                    yield from members(cls)
                    done.add(cls)
        else:
            assert isinstance(value, FunctionType)
            yield name, f"{name}{text_signature(value, '$module')}\n--\n\n{inspect.getdoc(value)}"


def literal(text: str) -> str:
    """Format a C string literal, with one line of the text on each line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return " \\\n".join(f'    "{line}\\n"' for line in escaped.split("\n"))[: -len('\\n"')] + '"'


def header(name: str) -> str:
    """Make the contents of types.h or functions.h."""
    macros = "\n".join(
        f"#define SPV_DOC_{macro} \\\n{literal(text)}" for macro, text in texts(of_types=name == "types")
    )
    return f"""\
/* Signatures and docstrings of the compiled {name}: scripts/dev/docstrings makes them of kernel/pure/. Do not edit. */
#ifndef SPV_BINDING_DOCS_{name.upper()}_H
#define SPV_BINDING_DOCS_{name.upper()}_H

{macros}

#endif
"""


def headers() -> dict[Path, str]:
    """Make the contents of all headers, by path."""
    return {FOLDER / f"{name}.h": header(name) for name in ("types", "functions")}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in headers().items():
        path.write_text(text, encoding="utf-8")
