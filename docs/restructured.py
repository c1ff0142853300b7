"""Docstrings as reStructuredText: plain text with `code`, lists, tables, examples and sections becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import dedent

_CODE = re.compile(r"(`[^`\n]+`)")
# the name of a class, perhaps with a member, as a word without backticks
_NAME = re.compile(r"((?<![\w./])[A-Z][a-z0-9]+[A-Z]\w*(?:\.\w+)?(?=[\s'\")\]}>\-/:.,;!?]|$))")
_MARKUP = re.compile(r"([\\*_|`]|:(?=//[A-Z]))")
_ITEM = re.compile(r"(- |\d+\. )")
_SECTION = re.compile(r"(Args|Attributes|Returns|Yields|Raises):$")
_ENTRY = re.compile(r"(\S.*?): (.*)")
_CELL = re.compile(r"(?<!\\)\|")
_FIELDS = {"Args": "param", "Attributes": "ivar", "Raises": "raises", "Returns": "returns", "Yields": "yields"}
_INDENT = "    "

Links = Mapping[str, str]


def restructured(lines: Iterable[str], links: Links | None = None) -> list[str]:
    """Translate the lines of a docstring, whose indentation is removed, to lines of reStructuredText.

    Args:
        lines: The lines.
        links: Full names by the words in backticks that become links to them.
    """
    known = links or {}
    made: list[str] = []
    for kind, block in _blocks(list(lines)):
        if kind == "section":
            made += [*_fields(block, known), ""]
        elif kind == "table":
            made += [*_table(block, known), ""]
        elif kind == "literal":
            made += ["::", "", *(_INDENT + line for line in block), ""]
        else:
            made += [*_prose(block, known), ""]
    return made


def _blocks(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Runs of lines of one kind. A blank line ends a paragraph, but not an example, a table or a section."""
    block: list[str] = []
    kind = ""
    for line in lines:
        now = _kind(line, kind, block)
        if block and (now != kind or _SECTION.match(line)):
            yield kind, _trimmed(block)
            block = []
        kind = now
        if now:
            block.append(line)
    if block:
        yield kind, _trimmed(block)


def _kind(line: str, before: str, block: Sequence[str]) -> str:
    """Kind of a line that follows a block of a kind: section, table, literal, prose, or nothing if it is blank."""
    if not line.strip():
        return before if before in ("literal", "section") else ""
    if _SECTION.match(line):
        return "section"
    if line.startswith(" "):
        is_rest_of_item = before == "prose" and any(map(_ITEM.match, block))
        return before if before == "section" or is_rest_of_item else "literal"
    return "table" if line.startswith("|") else "prose"


def _trimmed(block: list[str]) -> list[str]:
    """A block without the blank lines at its end."""
    while not block[-1].strip():
        block.pop()
    return block


def _fields(block: Sequence[str], links: Links) -> Iterator[str]:
    """A section as a list of fields: one for each parameter or error, or a single one for the result."""
    head, *body = block
    name = head.rstrip(":")
    text = dedent("\n".join(body)).splitlines()
    if name in ("Returns", "Yields"):
        yield from _field(_FIELDS[name], text, links)
        return
    entries: list[list[str]] = []
    for line in text:
        if line and not line.startswith(" "):
            entries.append([line])
        elif entries:
            entries[-1].append(line)
    for first, *rest in entries:
        named = _ENTRY.match(first)
        subjects, said = (named[1], named[2]) if named else (first.rstrip(":"), "")
        for subject in subjects.replace("`", "").split(", "):
            about = _MARKUP.sub(r"\\\1", subject)
            yield from _field(f"{_FIELDS[name]} {about}", [said, *dedent("\n".join(rest)).splitlines()], links)


def _field(name: str, text: Sequence[str], links: Links) -> Iterator[str]:
    """One field. The lines of its text after the first one are indented."""
    first, *rest = restructured(text, links) or [""]
    yield f":{name}: {first}".rstrip()
    yield from (_INDENT + line if line else "" for line in rest[:-1])


def _table(block: Sequence[str], links: Links) -> Iterator[str]:
    """A Markdown table as a `list-table`. Its second line separates the header."""
    rows = [[cell.strip().replace(r"\|", "|") for cell in _CELL.split(line.strip())[1:-1]] for line in block]
    head, body = rows[0], rows[2:]
    yield from (".. list-table::", *([f"{_INDENT}:header-rows: 1"] if any(head) else []), "")
    for row in [head, *body] if any(head) else body:
        for number, cell in enumerate(row):
            yield f"{_INDENT}{'*' if number == 0 else ' '} - {_escaped(cell, links)}"


def _prose(block: Sequence[str], links: Links) -> Iterator[str]:
    """A paragraph, or a list with the text that stands before it."""
    if not any(_ITEM.match(line) for line in block):
        yield from (_escaped(line, links) for line in block)
        return
    for line in block:
        if item := _ITEM.match(line):
            yield ""  # an item after a paragraph needs a blank line before it
            yield item[0] + _escaped(line[item.end() :], links)
        else:
            yield ("  " if line.startswith(" ") else "") + _escaped(line.strip(), links)


def _escaped(text: str, links: Links) -> str:
    """Text in which nothing is markup but `code` and names with links: no emphasis, and no link to a tcp://HOST."""
    made = []
    for part in _CODE.split(text):
        if part.startswith("`") and len(part) > 2:
            made.append(_link(part[1:-1], links) or f"`{part}`")
        else:
            made += (_link(word, links) or _MARKUP.sub(r"\\\1", word) for word in _NAME.split(part))
    return "".join(made)


def _link(name: str, links: Links) -> str:
    """A link with a name as its text; nothing if the reference lacks the name."""
    target = links.get(name)
    return "" if target is None else f":py:obj:`{name} <{target}>`"
