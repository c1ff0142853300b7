"""Tests use no private names of the package, except in the listed files. A test of a private name breaks with it."""

from __future__ import annotations

import ast
from pathlib import Path

from support.project.installed import ROOT
from support.project.rules import assert_none

TESTS = ROOT / "tests"
LISTED = Path(__file__).with_name("private_names.txt")
"""Files that still use private names. The list only becomes shorter: a new fault or view gets a public name."""
STANDARD = {
    "_actions": "options of a parser of argparse",
    **dict.fromkeys(
        ("_constants", "_private_networks", "_public_network", "_multicast_network", "_reserved_network"),
        "special networks of ipaddress",
    ),
    **dict.fromkeys(("_use_fd_functions", "_HAVE_SIGMASK", "_UnixSelectorEventLoop"), "what Windows lacks"),
    **dict.fromkeys(("_run_exitfuncs", "_shutdown"), "of atexit and threading: what an interpreter does at its end"),
}
"""Names of the standard library that have no public counterpart."""
DOCUMENTED = {"_asdict", "_exit", "_field_defaults", "_fields", "_make", "_replace"}
"""Names of the standard library that are public in spite of their underscore: of named tuples, and os._exit."""


def private_names(source: str) -> set[str]:
    """Attributes with one underscore in front that a file reads or sets, but for those of its own classes."""
    nodes = list(ast.walk(ast.parse(source)))
    used = [node for node in nodes if isinstance(node, ast.Attribute) and is_private(node.attr)]
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    own |= {node.attr for node in used if is_self(node.value) and isinstance(node.ctx, ast.Store)}
    return {node.attr for node in used if not is_self(node.value)} - own - DOCUMENTED - STANDARD.keys()


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


FILES = sorted(
    path.relative_to(TESTS).as_posix()
    for path in TESTS.rglob("*.py")
    if "node_modules" not in path.relative_to(TESTS).parts
)


def test_only_the_listed_files_use_private_names() -> None:
    listed = LISTED.read_text(encoding="utf-8").split()
    used = {file: names for file in FILES if (names := private_names((TESTS / file).read_text(encoding="utf-8")))}
    assert_none(f"{file} uses {', '.join(sorted(used[file]))}" for file in used.keys() - {*listed})
    assert_none(
        f"{file} uses none any more, or is gone: leave it out of the list" for file in listed if file not in used
    )
    assert listed == sorted(listed)


def test_private_names_of_other_objects_are_found() -> None:
    source = (
        "class A:\n    def __init__(self): self._own = other._foreign\n    def f(self, a): return a._own, a._replace\n"
    )
    assert private_names(source) == {"_foreign"}
