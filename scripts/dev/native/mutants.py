"""One-token mutations of C sources and the places for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

TOKEN = re.compile(
    r"""(?P<comment>/\*.*?\*/|//[^\n]*)
    |(?P<string>"(?:\\.|[^"\\])*")
    |(?P<char>'(?:\\.|[^'\\])+')
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>0[xX][0-9A-Fa-f]+[uUlL]*|\d+(?:\.\d+)?[uUlL]*)
    |(?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?!define)\w+.*(?:\\\n.*)*$", re.MULTILINE)

BINARY = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=",),
    "!=": ("==",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "/": ("*",),
    "%": ("/",),
    "<<": (">>",),
    ">>": ("<<",),
    "&": ("|",),
    "|": ("&",),
    "^": ("|",),
    "&&": ("||",),
    "||": ("&&",),
    "+=": ("-=",),
    "-=": ("+=",),
    "*=": ("+=",),
    "|=": ("&=",),
    "&=": ("|=",),
    "^=": ("|=",),
    "<<=": (">>=",),
    ">>=": ("<<=",),
}
UNARY = {"++": ("--",), "--": ("++",), "!": ("",), "~": ("",)}
WORDS = {"true": ("false",), "false": ("true",), "continue": ("break",), "break": ("continue",)}
BEFORE_CALL = {*"=(,!;{})+-*<>?:[", "&&", "||", "<=", ">=", "==", "!=", "return", "else"}
NO_STATEMENT = {
    "return",
    "if",
    "for",
    "while",
    "do",
    "switch",
    "case",
    "default",
    "else",
    "typedef",
    "static",
    "const",
    "struct",
    "enum",
}
DOES = {"(", "=", "++", "--", *(sign for sign in BINARY if sign.endswith("=") and sign not in ("<=", ">=", "==", "!="))}


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Mutant:
    """A change of a file: `text` replaces source[start:end]."""

    path: Path
    """The file."""
    start: int
    """Offset of the first changed character."""
    end: int
    """Offset behind the last changed character."""
    text: str
    """The new text."""

    def apply(self, source: str) -> str:
        """Return the changed source."""
        return source[: self.start] + self.text + source[self.end :]

    def line(self, source: str) -> int:
        return source.count("\n", 0, self.start) + 1

    def shown(self, source: str) -> tuple[str, str]:
        """Return the changed lines before and after the change, without indentation."""
        first, last = source.rfind("\n", 0, self.start) + 1, source.find("\n", self.end)
        mutated = self.apply(source)
        return (
            " ".join(source[first:last].split()),
            " ".join(mutated[first : last + len(mutated) - len(source)].split()),
        )


def tokens(source: str) -> list[Token]:
    """Return the tokens of a source. Blanks, comments, and directives other than #define are left out."""
    skipped = [match.span() for match in DIRECTIVE.finditer(source)]
    found = []
    for match in TOKEN.finditer(source):
        if match.lastgroup == "comment" or match[0].isspace() or match[0] == "\\":
            continue
        if not any(start <= match.start() < end for start, end in skipped):
            found.append(Token(match.lastgroup or "sign", match[0], match.start()))
    return found


def number(text: str) -> Iterator[str]:
    """Yield the number plus one and the number minus one."""
    match = re.fullmatch(r"(0[xX][0-9A-Fa-f]+|\d+)([uUlL]*)", text)
    if not match:
        return
    digits, suffix = match.groups()
    value = (
        int(digits, 0) if digits == "0" or not digits.startswith("0") or digits[:2] in ("0x", "0X") else int(digits, 8)
    )
    for other in (value + 1, value - 1):
        if other >= 0:
            yield (f"0x{other:X}" if digits[:2] in ("0x", "0X") else str(other)) + suffix


def arguments(found: list[Token], opening: int) -> list[tuple[int, int]]:
    """Return the first and the last token of each argument of a call. `opening` is the token of its parenthesis."""
    depth, first, spans = 0, opening + 1, []
    for at in range(opening, len(found)):
        text = found[at].text
        depth += (text in "([{") - (text in ")]}")
        if depth == 0 or (depth == 1 and text == ","):
            if at > first:
                spans.append((first, at - 1))
            first = at + 1
        if depth == 0:
            break
    return spans


def statement_end(found: list[Token], first: int) -> int | None:
    """Find the semicolon of the simple statement that begins at token `first`."""
    for at in range(first, len(found)):
        if found[at].text in "{}":
            return None
        if found[at].text == ";":
            return at
    return None


def sites(path: Path, source: str) -> Iterator[list[Mutant]]:
    """Yield the possible changes of each place of a file."""
    found = tokens(source)
    depth = 0  # of parentheses
    for at, token in enumerate(found):
        depth += (token.text == "(") - (token.text == ")")
        spaced = source[token.start - 1 : token.start].isspace() and source[token.end : token.end + 1].isspace()
        before = found[at - 1].text if at else ";"

        def change(*texts: str, token: Token = token) -> list[Mutant]:
            return [Mutant(path, token.start, token.end, text) for text in texts]

        if token.kind == "number":
            if texts := tuple(number(token.text)):
                yield change(*texts)
        elif token.kind == "char" and len(token.text) == 3:
            yield change(f"'{chr(ord(token.text[1]) + 1)}'")
        elif token.text in WORDS:
            yield change(*WORDS[token.text])
        elif token.text in BINARY and spaced:
            yield change(*BINARY[token.text])
        elif token.text in UNARY:
            yield change(*UNARY[token.text])
        elif token.kind == "word" and found[at + 1 : at + 2] and found[at + 1].text == "(" and before in BEFORE_CALL:
            spans = arguments(found, at + 1)
            for left, right in pairwise(spans):
                start, end = found[left[0]].start, found[right[1]].end
                one, other = source[start : found[left[1]].end], source[found[right[0]].start : end]
                if one != other:
                    yield [Mutant(path, start, end, f"{other}, {one}")]
        begins = before in (";", "{", "}", "else") or (before == ")" and depth == 0)
        if begins and depth == 0 and (token.kind == "word" or token.text in "*(") and token.text not in NO_STATEMENT:
            end_at = statement_end(found, at)
            if end_at is not None and any(part.text in DOES for part in found[at:end_at]):
                yield [Mutant(path, token.start, found[end_at].start, "")]
