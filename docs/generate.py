"""Copies docs/ to a folder and writes the reference into it: names, commands, formats, schema and errors.

python docs/generate.py FOLDER
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module, util
from pathlib import Path
from types import ModuleType, UnionType
from typing import get_args

sys.path.insert(0, str(Path(__file__).parent))  # which PYTHONSAFEPATH leaves out

from restructured import restructured
from rooms import MODULES, ROOMS, links, room as loaded

from spvfilter import cli, errors
from spvfilter.cli.arguments import Parser
from spvfilter.store.schema import APPLICATION_ID, MARKED, RELEASED, SCHEMA, SCHEMA_VERSION

DOCS = Path(__file__).parent
LINKS = links()
FIRST = {  # names that come before the others of their room
    "bloom": "BloomFilter CountingBloomFilter",
    "chain": "HeaderChain",
    "errors": "SpvFilterError",
    "filters": "Bip37Filter BasicFilter",
    "light": "LightClient SyncLightClient",
    "node": "Node Regtest",
    "p2p": "Connection",
    "rpc": "FullNode",
    "scan": "Matcher BlockFiles",
    "store": "Store Views",
    "transaction": "Transaction",
    "wallet": "WalletStore",
    "watch": "WatchList",
    "wire": "Session",
}
CODE = re.compile(r"(`[^`\n]+`)")
LISTED = re.compile(r"^\| (`(?:spvfilter\.)?([a-z][\w.]*)`) \|", re.MULTILINE)
"""A row for a module or a command. Its page exists only on the site, so a link to it is added here."""
TOCTREE = """
```{{toctree}}
:glob:
:hidden:
:maxdepth: 1

{}/*
```
"""
MARKDOWN = re.compile(r"[\\`*_{}\[\]<>|#$]")
FOREIGN = (
    "object, str, int, float, tuple, list, dict, BaseException, Enum, IntEnum, StrEnum, IntFlag, Flag, Protocol,"
    " Generic, ABC, Sequence"
)
FORMATS = (
    ("Watch lists", "watch.textfile"),
    ("Compiled watch lists", "watch.compiled"),
    ("Bloom filters and counting filters", "bloom.fileformat"),
    ("Scalable Bloom filters", "bloom.seriesformat"),
    ("Static filters", "bloom.fuseformat"),
    ("Bloom filters in Redis", "bloom.redis.layout"),
    ("Parts of a scan", "scan.partfile"),
)


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("__pycache__", "generate.py", "screenshots.py"))
    reference = folder / "reference"
    for name in ("api", "cli"):
        (reference / name).mkdir()
    for room in (*MODULES, *ROOMS):
        write(reference / "api" / f"{room}.rst", api_page(room))
    for command in cli.COMMANDS:
        write(reference / "cli" / f"{command}.md", command_page(command))
    write(reference / "formats.md", formats_page())
    write(reference / "database.md", database_page())
    write(reference / "errors.md", errors_page())
    for name, suffix in (("api", "rst"), ("cli", "md")):
        page = reference / f"{name}.md"
        text = LISTED.sub(rf"| [\1]({name}/\2.{suffix}) |", page.read_text(encoding="utf-8"))
        page.write_text(text + TOCTREE.format(name), encoding="utf-8")


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# Names


def api_page(room: str) -> Iterator[str]:
    """The page of a module or a package: a list of its names, then each of them in full."""
    module = loaded(room)
    title = f"spvfilter.{room}"
    first = FIRST.get(room, "").split()
    names = [*first, *(name for name in module.__all__ if name not in first)]
    yield from (title, "=" * len(title), "", f".. currentmodule:: {title}", "", *markup(summary(module.__doc__)))
    documented = variable_docs(module)
    for name in names:
        value = getattr(module, name)
        is_code = inspect.isclass(value) or inspect.isroutine(value)
        text = summary(value.__doc__ if is_code else documented.get(name))
        yield f"- :py:obj:`~{title}.{name}`: {' '.join(markup(text)).strip() or type(value).__name__}"
    yield ""
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value):
            yield from (
                f".. autoclass:: {title}.{name}",
                "   :members:",
                f"   :inherited-members: {FOREIGN}",
                *(["   :show-inheritance:"] if value.__bases__ != (object,) else []),
                "",
            )
        elif inspect.isroutine(value):
            yield from (f".. autofunction:: {title}.{name}", "")
        else:
            yield from (f".. py:data:: {title}.{name}", f"   :value: {shown(value)}", "")
            yield from (f"   {line}" for line in markup(documented.get(name) or ""))


def variable_docs(module: ModuleType) -> dict[str, str]:
    """The docstrings below the variables of a module, or of all modules of a package."""
    path = Path(str(module.__file__))
    found: dict[str, str] = {}
    for each in sorted(path.parent.glob("*.py")) if path.stem == "__init__" else [path]:
        body = ast.parse(each.read_text(encoding="utf-8")).body
        for statement, below in itertools.pairwise(body):
            match statement, below:
                case (
                    ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
    return found


def shown(value: object) -> str:
    """A constant or an alias of types as a page shows it. The type stands for a value that is too long."""
    if isinstance(value, UnionType):
        return " | ".join(getattr(each, "__name__", str(each)) for each in get_args(value))
    text = repr(value)
    return text if len(text) <= 80 else type(value).__name__


def summary(docstring: str | None) -> str:
    """The first paragraph of a docstring, as one line."""
    return " ".join((docstring or "").split("\n\n")[0].split())


def markup(text: str) -> list[str]:
    return restructured(text.splitlines(), LINKS)


# Commands


def command_page(command: str) -> Iterator[str]:
    module = import_module(f"spvfilter.cli.{cli.COMMANDS[command]}")
    parser = Parser(prog=f"spvfilter {command}")
    module.configure(parser)
    yield from parser_part(parser, "#")
    if parser._subcommands is not None:
        for action in parser._subcommands.choices.values():
            yield from parser_part(action, "##")


def parser_part(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (f"{heading} {parser.prog}", "", plain(parser.description or ""), "", "```text", usage, "```", "")
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
        value = "" if action.nargs == 0 or not action.option_strings else f" `{value_of(action)}`"
        said = (action.help or "") % {**vars(action), "prog": parser.prog}
        yield from (names + value, f": {plain(said) or '…'}", "")


def value_of(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()


def plain(text: str) -> str:
    """Text in which nothing is Markdown but `code`."""
    return "".join(part if CODE.fullmatch(part) else MARKDOWN.sub(r"\\\g<0>", part) for part in CODE.split(text))


# Formats, schema, errors


def docstring_of(module: str) -> str:
    spec = util.find_spec(f"spvfilter.{module}")
    assert spec is not None
    assert spec.origin is not None
    found = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    assert found is not None
    return found


def formats_page() -> Iterator[str]:
    yield from ("# File formats", "", (DOCS / "reference" / "formats.txt").read_text(encoding="utf-8"), "")
    for title, module in FORMATS:
        yield from (f"## {title}", "", "```{eval-rst}", *markup(docstring_of(module)), "```", "")


def database_page() -> Iterator[str]:
    intro = (DOCS / "reference" / "database.txt").read_text(encoding="utf-8")
    yield from (
        "# Database schema",
        "",
        intro.format(application=f"0x{APPLICATION_ID:08X}", version=SCHEMA_VERSION, released=RELEASED[-1]),
        "",
    )
    yield from (
        "```sql",
        SCHEMA.strip(),
        "```",
        "",
        "The checksum in `mark` covers these columns:",
        "",
        "| table | columns |",
        "|---|---|",
    )
    yield from (f"| `{table}` | {columns} |" for table, columns in MARKED.items())


def errors_page() -> Iterator[str]:
    yield from ("# Errors by cause", "", (DOCS / "reference" / "errors.txt").read_text(encoding="utf-8"), "")
    for top in (errors.SpvFilterError, errors.SpvFilterWarning):
        yield from branch(top, 0)
        yield ""


def branch(error: type[Exception], depth: int) -> Iterator[str]:
    """An error and its subclasses, as a list within a list."""
    builtin = builtin_base(error)
    also = f" (also {builtin})" if builtin and builtin != builtin_base(error.__bases__[0]) else ""
    yield f"{'  ' * depth}- `{error.__name__}`{also}: {plain(summary(error.__doc__))}"
    for heir in sorted(error.__subclasses__(), key=lambda cls: cls.__name__):
        if heir.__name__ in errors.__all__ and heir.__bases__[0] is error:
            yield from branch(heir, depth + 1)


def builtin_base(error: type) -> str:
    """The name of a built-in base class that says something, such as ValueError; nothing if there is none."""
    builtin = (base.__name__ for base in error.__mro__ if base.__module__ == "builtins")
    return next((name for name in builtin if name not in ("Exception", "BaseException", "Warning", "object")), "")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
