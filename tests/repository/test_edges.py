"""The Electrum server, `interop`, the command line and the examples use public names of the live client only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from support.project.installed import ROOT
from support.project.rules import PACKAGE, assert_none

EDGES = (PACKAGE / "electrum", PACKAGE / "interop", PACKAGE / "cli", ROOT / "examples")
BEHIND = ("light", "store", "wallet")
"""Packages with facts about a wallet. Other packages hold tools."""
TOOLS = {
    "in_steps": "runs a generator in the event loop",
    "join": "joins ranges of blocks",
    "SUFFIX": "the name of a lock file",
    "damaged": "the name of a damaged file that was replaced",
    "reader": "a module whose import is deferred",
}
"""Names that no program needs, and that know nothing about a wallet."""
OTHERS = {
    **dict.fromkeys(
        ("_actions", "_SubParsersAction", "_ArgumentGroup", "_MutuallyExclusiveGroup"),
        "argparse has no other names for them",
    ),
    "_added": "adds keys to a Bloom filter in Redis, which belongs to no wallet",
}
"""Private names of other things than a wallet."""


def files() -> list[Path]:
    return [path for edge in EDGES for path in sorted(edge.rglob("*.py"))]


def named(path: Path) -> str:
    return path.relative_to(PACKAGE.parent if path.is_relative_to(PACKAGE) else ROOT).as_posix()


def private_imports(tree: ast.Module) -> Iterator[str]:
    """Names that a file imports from the packages behind the edges, and that these do not export."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("spvfilter."):
                room = module.split(".")[1]
                exported = (
                    import_module(f"spvfilter.{room}").__all__ if room in BEHIND else [each.name for each in names]
                )
                yield from (each.name for each in names if each.name not in exported and each.name not in TOOLS)


def private_attributes(tree: ast.Module) -> Iterator[str]:
    """Private attributes of objects whose classes are in other files."""
    found = [each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr.startswith("_")]
    defined = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    for each in found:
        match each.value:
            case ast.Name(id="self" | "cls"):
                defined.add(each.attr)
    yield from (each.attr for each in found if each.attr not in defined and not each.attr.startswith("__"))


def test_edges_use_public_names() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files()}
    assert_none(f"{named(path)} imports {name}" for path, tree in trees.items() for name in private_imports(tree))
    assert_none(
        f"{named(path)} uses {name}"
        for path, tree in trees.items()
        for name in {*private_attributes(tree)} - OTHERS.keys()
    )
    wrong = ast.parse("from spvfilter.store import Store, Gaps\nstore._rows")
    assert ([*private_imports(wrong)], [*private_attributes(wrong)]) == (["Gaps"], ["_rows"])


def test_the_edges_are_found() -> None:
    assert {"spvfilter/electrum/wallet.py", "spvfilter/interop/bdk.py", "examples/merchant.py"} < set(
        map(named, files())
    )
