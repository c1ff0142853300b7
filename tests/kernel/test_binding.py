"""Rules of the binding's C that no compiler checks."""

from __future__ import annotations

import re
from pathlib import Path

BINDING = Path(__file__).parents[2] / "spvfilter/kernel/csrc/binding"
TAKES_FORMAT = re.compile(
    r"\b(?:_?Py_(?:Va)?BuildValue|_?PyArg_(?:Va)?Parse\w*|_?PyObject_Call(?:Function|Method))(?:_SizeT)?\s*\("
)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def formats(source: str) -> list[str]:
    """The string literals among the arguments of every call that takes a format."""
    found = []
    for call in TAKES_FORMAT.finditer(source):
        depth, end = 1, call.end()
        while depth:
            if literal := STRING.match(source, end):
                found.append(literal.group())
                end = literal.end()
                continue
            depth += {"(": 1, ")": -1}.get(source[end], 0)
            end += 1
    return found


def test_formats_are_found_anywhere_in_a_call() -> None:
    source = (
        """return Py_BuildValue(\n "(y#O)", f(1), ")"); if (!PyArg_ParseTuple(a, "y*|n", k)) """
        """g("s#", _Py_BuildValue_SizeT("i", 0));"""
    )
    assert formats(source) == ['"(y#O)"', '")"', '"y*|n"', '"i"']


def test_no_format_has_a_size_beside_a_pointer() -> None:
    """A wheel built with 3.13's headers calls functions that under 3.11 and 3.12 refuse `#`, or read a C int where a
    Py_ssize_t is.
    """
    everything = [
        text for path in sorted(BINDING.rglob("*.[ch]")) for text in formats(path.read_text(encoding="utf-8"))
    ]
    assert len(everything) > 20
    assert not [text for text in everything if "#" in text]
