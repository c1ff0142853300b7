"""Docstrings as reStructuredText: plain text with `code`, lists, tables and indented examples becomes markup that says
the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

_CODE = re.compile(r"(`[^`\n]+`)")
_MARKUP = re.compile(r"([\\*_|`]|:(?=//[A-Z]))")
_ITEM = re.compile(r"(- |\d+\. )")


def restructured(lines: Iterable[str]) -> list[str]:
    """The lines of a docstring, whose indentation is removed, as lines of reStructuredText."""
    made: list[str] = []
    for block in _blocks(list(lines)):
        if all(line.startswith(" ") for line in block) or all(line.startswith("|") for line in block):
            made += ["::", "", *(f"    {line}" for line in block), ""]
        else:
            made += [*_prose(block), ""]
    return made


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Runs of lines without a blank one. What is indented, or a table, is a block of its own, with the blank lines
    within it.
    """
    block: list[str] = []
    kind = ""
    for line in lines:
        now = (
            ""
            if not line.strip()
            else "literal"
            if line.startswith(" ")
            else "table"
            if line.startswith("|")
            else "prose"
        )
        if now == "literal" and kind == "prose" and any(map(_ITEM.match, block)):
            now = "prose"  # the rest of an item of a list
        if block and now != kind:
            yield block
            block = []
        kind = now
        if now:
            block.append(line)
    if block:
        yield block


def _prose(block: Sequence[str]) -> Iterator[str]:
    if not any(_ITEM.match(line) for line in block):
        yield from (_escaped(line) for line in block)
        return
    for line in block:
        if item := _ITEM.match(line):
            yield ""  # an item after a paragraph needs a blank line before it
            yield item[0] + _escaped(line[item.end() :])
        else:
            yield ("  " if line.startswith(" ") else "") + _escaped(line.strip())


def _escaped(text: str) -> str:
    """Text in which nothing is markup but `code`: no emphasis, and no link to a tcp://HOST."""
    parts = _CODE.split(text)
    return "".join(
        f"`{part}`" if part.startswith("`") and len(part) > 2 else _MARKUP.sub(r"\\\1", part) for part in parts
    )
