"""Tests use no private names of the package, except in the named seams. A test of a private name breaks with it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

import pytest

from support.project.installed import ROOT
from support.project.rules import assert_none, modules, nodes

TESTS = ROOT / "tests"
SEAMS = {
    "simulation/planted.py": "replaces methods of the engine and the books by faulty ones",
    "support/blocks/headerchains.py": "shows forks, shared segments, and the state of a header sync",
    "support/client/engineparts.py": "shows parts of an open client and its engine, and causes faults there",
    "support/client/regtests.py": "changes a regtest node behind its back",
    "support/filters/redisoperations.py": "lets something happen between two requests of one operation",
    "support/kernels/cores.py": "builds filters over a chosen kernel, as their classes tell it",
    "support/peers/sessionparts.py": "sends what a session refuses to send, and reads what waits to be sent",
    "support/wallets/storesqlite.py": "damages an open database, and checks it",
}
"""Why each of these files uses private names. Tests call its functions, which have public names.

Add none: a new test uses public behaviour, a constructor argument, or a public name of an internal module.
"""
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
FILES = sorted(
    path.relative_to(TESTS).as_posix()
    for path in TESTS.rglob("*.py")
    if "node_modules" not in path.relative_to(TESTS).parts
)


@cache
def defined() -> frozenset[str]:
    """Private names of the package: of functions, classes and attributes, and those assigned in modules and classes."""
    names = {name for module in modules() for node in nodes(module) for name in names_of(node) if is_private(name)}
    return frozenset(names - DOCUMENTED)


def names_of(node: ast.AST) -> Iterator[str]:
    """The names that a definition or an assignment makes, but for local variables."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr
    if isinstance(node, (ast.Module, ast.ClassDef)):
        assigned = (each for each in node.body if not isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
        for each in (each for statement in assigned for each in ast.walk(statement) if isinstance(each, ast.Name)):
            if isinstance(each.ctx, ast.Store):
                yield each.id


def private_names(source: str) -> set[str]:
    """Private names that a file uses: attributes but for those of its own classes, imports, and names in strings.

    A string is such a name if it consists of one of the package's, as in `monkeypatch.setattr(module, "_name", 1)` or
    `patch("spvfilter.module._name")`.
    """
    tree = list(ast.walk(ast.parse(source)))
    used = [node for node in tree if isinstance(node, ast.Attribute) and is_private(node.attr)]
    own = {node.name for node in tree if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    own |= {node.attr for node in used if is_self(node.value) and isinstance(node.ctx, ast.Store)}
    own |= {node.id for node in tree if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    found = {node.attr for node in used if not is_self(node.value)} - own - DOCUMENTED - STANDARD.keys()
    endings = {id(each) for node in tree for each in parts_of_text(node)}
    for node in tree:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spvfilter."):
            found |= {alias.name for alias in node.names} & defined()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in endings:
            owner, _, name = node.value.rpartition(".")
            if not owner or owner.startswith("spvfilter."):
                found |= ({name} & defined()) - own
    return found


def parts_of_text(node: ast.AST) -> list[ast.expr]:
    """The literals of an f-string or of `removesuffix` and `endswith`, which are the ends of names."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.args if node.func.attr in ("removesuffix", "endswith") else []
    return node.values if isinstance(node, ast.JoinedStr) else []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_only_seams_use_private_names() -> None:
    used = {
        file: names
        for file in FILES
        if not file.startswith("repository/")  # its rules are about names
        and (names := private_names((TESTS / file).read_text(encoding="utf-8")))
    }
    assert_none(f"{file} uses {', '.join(sorted(used[file]))}" for file in used.keys() - SEAMS.keys())
    assert_none(f"{file} uses none any more: it is no seam" for file in SEAMS.keys() - used.keys())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class A:\n    def __init__(self): self._own = other._foreign\n", {"_foreign"}),
        ("class A:\n    def __init__(self): self._own = 1\n    def f(self, a): return a._own, a._replace\n", set()),
        ("from simulation.behaviours.relay import _GivenResponder\n", set()),
        ("from spvfilter.wallet.canonical import _Judgement\n", {"_Judgement"}),
        ("monkeypatch.setattr(Store, '_write', 1)\n", {"_write"}),
        ("monkeypatch.setattr('spvfilter.store.store.Store._write', 1)\n", {"_write"}),
        ("CHANGES = [(Store, '_write', None)]\n", {"_write"}),
        ("name.removesuffix('_hex'), f'{name}_hex', {'_pub': 1}\n", set()),
    ],
)
def test_private_names_are_found(source: str, found: set[str]) -> None:
    assert private_names(source) == found
