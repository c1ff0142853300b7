"""Texts that people read, taken out of source files: docstrings, comments, messages, Markdown and test names."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LONGEST_LINE = 100  # columns of a line of prose in Markdown
LONGEST_DOCSTRING = 12  # lines of prose in a public docstring
_SECTIONS = re.compile(r"(Args|Returns|Raises|Yields|Attributes|Example|Examples):$")
_CODE = re.compile(r"``[^`]+``|`[^`]*`|https?://\S+|\{[^{}]*\}|%\(?\w*\)?[sdr]")
_SQL = re.compile(r"\s*(SELECT|CREATE|INSERT|UPDATE|DELETE|FROM|WHERE|PRAGMA|WITH|DROP|ALTER|JOIN|VALUES|ORDER)\b")
_ITEM = re.compile(r"\s*([-*+•]|\d+\.)\s+")


class Kind:
    """Kinds of texts, as the reports name them."""

    DOCSTRING = "docstring"
    COMMENT = "comment"
    MESSAGE = "message"
    PAGE = "page"
    NAME = "name"
    LINE = "line"
    LONG = "long docstring"


class Text(NamedTuple):
    """A text, its first line and its kind. `is_public` is True for a docstring that the site shows."""

    line: int
    kind: str
    words: str
    is_public: bool = False


def texts(path: Path) -> Iterator[Text]:
    """All texts of a file. Raises SyntaxError for Python that does not parse."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from _markdown(source)
    elif path.suffix in {".c", ".h", ".js"}:
        yield from _c_comments(source)
    elif path.suffix == ".py":
        yield from _python(source, is_test="tests" in path.parts)
    else:
        yield from _comments((n, line.strip()) for n, line in enumerate(source.splitlines(), 1))


def plain(text: str) -> str:
    """Text without markup: list items and table rows become paragraphs, code becomes one word."""
    lines = []
    for line in text.splitlines():
        if line.strip().startswith(("|", ">>>", "+--")) or re.match(r"\s*(:?\w+:?){0,2}::?$", line):
            lines.append("")
        elif _ITEM.match(line):
            lines += ["", _ITEM.sub("", line)]
        else:
            lines.append(re.sub(r"^\s*(\w[\w*, ]*): (?=[A-Z])", r"\n", line) if "  " in line[:6] else line)
    return _CODE.sub("Code", "\n".join(lines))


def _python(source: str, *, is_test: bool) -> Iterator[Text]:
    tree = ast.parse(source)
    docstrings: set[ast.expr] = set()
    for docstring, is_public in _docstrings(tree):
        docstrings.add(docstring.value)
        doc = str(ast.literal_eval(docstring.value))
        yield Text(docstring.lineno, Kind.DOCSTRING, _indented_apart(doc), is_public)
        if is_public and _length(doc) > LONGEST_DOCSTRING:
            yield Text(docstring.lineno, Kind.LONG, doc.strip().splitlines()[0], is_public)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    yield from _comments((token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT)
    if is_test:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                yield Text(node.lineno, Kind.NAME, node.name)
    else:
        yield from _messages(tree, docstrings)


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.Expr, bool]]:
    """String statements: docstrings of modules, classes and functions, and those below fields."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_public = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                is_decorated = any("public" in ast.unparse(each) for each in child.decorator_list)
                is_hidden = child.name.startswith("_") and not child.name.startswith("__")
                is_member = is_public and not is_hidden and isinstance(node, ast.ClassDef)
                waiting.append((child, is_decorated or is_member))
            elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                if isinstance(child.value.value, str):
                    yield child, is_public
            else:
                waiting.append((child, False))


def _indented_apart(doc: str) -> str:
    """A docstring in which indented examples are no prose; the text of sections such as `Args:` is."""
    head, *rest = doc.splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    lines, in_section = [head], False
    for line in rest:
        line = line[margin:]
        if line and not line.startswith(" "):
            in_section = bool(_SECTIONS.match(line))
        is_example = line.startswith("    ") and not in_section and not lines[-1].strip()
        lines.append("" if is_example or _SECTIONS.match(line) else line)
        if in_section and re.match(r"    [\w*`, ]+: ", line):
            lines[-1] = "\n" + line.partition(": ")[2]
    return plain("\n".join(lines))


def _length(doc: str) -> int:
    """Lines of prose before the first section, without tables and examples."""
    count = 0
    for line in doc.strip().splitlines():
        if _SECTIONS.match(line.strip()):
            break
        count += bool(line.strip()) and not line.strip().startswith("|")
    return count


def _comments(found: Iterator[tuple[int, str]]) -> Iterator[Text]:
    """Comments, those on consecutive lines as one. Directives for tools are left out."""
    start, last, words = 0, -1, ""
    for line, comment in found:
        if not comment.startswith("#") or comment.startswith("#!"):
            continue
        text = re.sub(r"#\s*(noqa|type:|pragma|nosec|fmt:|shellcheck).*", "", comment).lstrip("# ").strip()
        if line == last + 1:
            words += "\n" + text
        else:
            if words.strip():
                yield Text(start, Kind.COMMENT, plain(words))
            start, words = line, text
        last = line
    if words.strip():
        yield Text(start, Kind.COMMENT, plain(words))


def _messages(tree: ast.Module, docstrings: set[ast.expr]) -> Iterator[Text]:
    """String literals that are sentences: messages, help texts, descriptions."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            words = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            words = "" if node in docstrings else node.value
        else:
            continue
        if len(words.split()) >= 4 and re.search(r"[a-z]{2}", words) and not _SQL.match(words):
            yield Text(node.lineno, Kind.MESSAGE, plain(words))


def _c_comments(source: str) -> Iterator[Text]:
    for match in re.finditer(r"/\*(.*?)\*/|(?<![:\"'])//([^\n]*)", source, re.DOTALL):
        words = re.sub(r"\n\s*\*? ?", "\n", match[1] or match[2] or "")
        yield Text(source.count("\n", 0, match.start()) + 1, Kind.COMMENT, plain(words))


def _markdown(source: str) -> Iterator[Text]:
    """Paragraphs outside of code blocks. Tables are no prose, and links are their text."""
    start, is_code = 1, False
    paragraph: list[str] = []
    for n, line in enumerate([*source.splitlines(), ""], 1):
        stripped = line.strip()
        if stripped.startswith(("```", ":::")):
            is_code = stripped.startswith("```") and not is_code
        is_prose = not (is_code or stripped.startswith(("```", ":::", "|", "<", "![", "%", "("))) and bool(stripped)
        if is_prose and len(line) > LONGEST_LINE and "](" not in line and "http" not in line:
            yield Text(n, Kind.LINE, line)
        if paragraph and (not is_prose or _ITEM.match(line) or stripped.startswith("#")):
            yield Text(start, Kind.PAGE, plain(re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(paragraph))))
            paragraph = []
        if is_prose and not stripped.startswith("#"):
            start = start if paragraph else n
            paragraph.append(_ITEM.sub("", line))
