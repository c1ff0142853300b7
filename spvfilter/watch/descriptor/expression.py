"""The bracket structure of a descriptor: a tree of functions and arguments, with their positions."""

from __future__ import annotations

import re
from typing import NamedTuple

from spvfilter.errors import DescriptorError

MAX_DEPTH = 402
"""Largest nesting depth of brackets in a descriptor (our choice, which is also rust-miniscript's limit)."""
TREE = "{"
"""The `text` of an expression {A,B}, a branch of a taproot tree."""
_DELIMITER = re.compile(r"[(){},]")
_NAME = re.compile(r"[a-z0-9_]{1,16}")


class Expression(NamedTuple):
    """A function with its arguments, a branch of a taproot tree, or an atom such as a key or a number."""

    text: str
    """Name of the function with its wrappers, `{` for a branch of a tree, or the whole atom."""
    at: int
    """Offset of the expression in the descriptor, in characters."""
    arguments: tuple[Expression, ...] | None = None
    """Arguments of the function, or both sides of the branch, or None for an atom."""
    suffix: str = ""
    """Text after the closing bracket, such as the path after musig(…)."""
    end: int = 0
    """Offset of the suffix in the descriptor."""

    @property
    def shown(self) -> str:
        """The name of the expression in error messages. It never contains a key."""
        if self.arguments is None:
            return "a key or a number"
        if self.text == TREE:
            return "{…}"
        name = self.text.rpartition(":")[2]
        return f"{name}()" if _NAME.fullmatch(name) else "a function"


def fault(at: int, message: str) -> DescriptorError:
    """Return an error about the character at an offset of a descriptor. The message counts from 1."""
    return DescriptorError(f"character {at + 1}: {message}")


def parse_expression(body: str) -> Expression:
    """Parse a descriptor without its checksum as one expression.

    Raises DescriptorError if the brackets or commas are wrong. The message names the position.
    """
    opened: list[tuple[str, int, list[Expression]]] = []
    closed: Expression | None = None  # it may have a suffix
    start = 0
    for found in _DELIMITER.finditer(body):
        at, char = found.start(), found[0]
        if char in "({":
            opened.append((_opening(body[start:at], char, at, closed), start, []))
            if len(opened) > MAX_DEPTH:
                raise fault(at, f"brackets are nested more than {MAX_DEPTH} deep")
        else:
            argument = _ended(body, start, at, closed)
            if not opened:
                raise fault(at, f"'{char}' is outside all brackets: the brackets of the descriptor do not match")
            opened[-1][2].append(argument)
            closed = None
            if char != ",":
                name, begin, arguments = opened.pop()
                if (name == TREE) != (char == "}"):
                    raise fault(at, f"'{char}' closes a different kind of bracket: the brackets do not match")
                closed = Expression(name, begin, tuple(arguments), end=at + 1)
        start = at + 1
    if opened:
        missing = "".join("}" if name == TREE else ")" for name, _, _ in reversed(opened[-8:]))
        raise fault(len(body), f"the brackets of the descriptor do not match: '{missing}' is missing at the end")
    return _ended(body, start, len(body), closed)


def _opening(word: str, char: str, at: int, closed: Expression | None) -> str:
    """Return the name of the function or tree that a bracket opens. `word` is the text before the bracket."""
    if closed is not None:
        raise fault(at, f"unexpected '{char}' after a closing bracket: expected a comma or a closing bracket")
    if char == "(":
        if not word:
            raise fault(at, "expected a function name before '('")
        return word
    if word:
        raise fault(at, "'{' is not allowed within an expression: write a multipath as <0;1>, not as {0,1}")
    return TREE


def _ended(body: str, start: int, at: int, closed: Expression | None) -> Expression:
    """Return the expression that ends at offset `at`: the closed function with its suffix, or else an atom."""
    word = body[start:at]
    if closed is not None:
        return Expression(closed.text, closed.at, closed.arguments, word, start) if word else closed
    if not word:
        raise fault(at, "an argument of the descriptor is empty: there is one bracket or comma too many")
    return Expression(word, start)
