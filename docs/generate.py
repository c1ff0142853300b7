"""Copies docs/ to a folder and writes the reference beside it, from the package: names, commands, formats, schema,
events, errors.

python docs/generate.py FOLDER
"""

from __future__ import annotations

import argparse
import ast
import inspect
import shutil
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module, util
from pathlib import Path

from spvfilter import cli, errors
from spvfilter.cli.arguments import Parser
from spvfilter.store.schema import APPLICATION_ID, MARKED, SCHEMA, SCHEMA_VERSION

DOCS = Path(__file__).parent
MODULES = ("address", "bloom.sizing", "hashes", "network", "primitives", "transaction", "testing")
ROOMS = (
    *(
        "bloom",
        "bloom.exchange",
        "bloom.redis",
        "chain",
        "filters",
        "light",
        "node",
        "p2p",
        "rpc",
        "scan",
        "store",
        "wallet",
        "watch",
        "watch.descriptor",
    ),
    *("wire", "wire.messages"),
)
FOREIGN = (
    "object, str, int, float, tuple, list, dict, BaseException, Enum, IntEnum, StrEnum, IntFlag, Flag, Protocol,"
    " Generic, ABC, Sequence"
)
FORMATS = (
    ("Watch lists", "watch.textfile"),
    ("Bloom filters and counting filters", "bloom.fileformat"),
    ("Scalable Bloom filters", "bloom.seriesformat"),
    ("Bloom filters in Redis", "bloom.redis.layout"),
    ("Parts of a scan", "scan.partfile"),
)


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("__pycache__", "generate.py", "screenshots.py"))
    reference = folder / "reference"
    for name in ("api", "cli"):
        (reference / name).mkdir()
    for room in (*MODULES, *ROOMS, "errors"):
        write(reference / "api" / f"{room}.rst", api_page(room))
    for command in cli.COMMANDS:
        write(reference / "cli" / f"{command}.md", command_page(command))
    write(reference / "formats.md", formats_page())
    write(reference / "database.md", database_page())
    write(reference / "errors.md", errors_page())


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# Names


def api_page(room: str) -> Iterator[str]:
    module = import_module(f"spvfilter.{room}")
    title = f"spvfilter.{room}"
    yield from (title, "=" * len(title), "", f".. currentmodule:: {title}", "", escaped(summary(module.__doc__)), "")
    yield from (", ".join(f":py:obj:`~{title}.{name}`" for name in module.__all__), "")
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value):
            yield from (
                f".. autoclass:: {title}.{name}",
                "   :members:",
                f"   :inherited-members: {FOREIGN}",
                "   :show-inheritance:",
                "",
            )
        elif inspect.isroutine(value):
            yield from (f".. autofunction:: {title}.{name}", "")
        else:
            yield from (f".. py:data:: {title}.{name}", f"   :value: {shown(value)}", "")


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else type(value).__name__


def summary(docstring: str | None) -> str:
    return " ".join((docstring or "").split("\n\n")[0].split())


def escaped(text: str) -> str:
    from restructured import restructured

    return "\n".join(restructured([text]))


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
        if isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
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
    """Text in which nothing is Markdown."""
    return "".join(f"\\{char}" if char in "\\`*_{}[]<>|#$" else char for char in text)


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
        yield from (f"## {title}", "", "```text", docstring_of(module), "```", "")


def database_page() -> Iterator[str]:
    intro = (DOCS / "reference" / "database.txt").read_text(encoding="utf-8")
    yield from (
        "# Database schema",
        "",
        intro.format(application=f"0x{APPLICATION_ID:08X}", version=SCHEMA_VERSION),
        "",
    )
    yield from (
        "```sql",
        SCHEMA.strip(),
        "```",
        "",
        "Columns that the checksum in `mark` covers:",
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
    """An error and those below it, as a list within a list."""
    builtin = next(
        (
            base.__name__
            for base in error.__mro__[1:]
            if base.__module__ == "builtins" and base not in (object, Exception)
        ),
        "",
    )
    also = f", also a `{builtin}`" if builtin not in ("", "BaseException", "Warning") else ""
    yield f"{'  ' * depth}- `{error.__name__}`{also}: {plain(summary(error.__doc__))}"
    for heir in sorted(error.__subclasses__(), key=lambda cls: cls.__name__):
        if heir.__name__ in errors.__all__ and heir.__bases__[0] is error:
            yield from branch(heir, depth + 1)


if __name__ == "__main__":
    sys.path.insert(0, str(DOCS))
    main(Path(sys.argv[1]))
