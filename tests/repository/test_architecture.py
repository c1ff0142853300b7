"""ARCHITECTURE.md matches the tree: its rooms, and the C functions that it names for each function of the reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from support.project.rules import assert_none

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CSRC = ROOT / "spvfilter/kernel/csrc"
MAP = [tuple(row.strip("|").split(" | ")) for row in re.findall(r"^\| `.*\|$", PAGE, re.MULTILINE)]


def test_the_map_has_every_shared_kernel_function() -> None:
    backend = import_module("spvfilter.kernel.backend")
    named = {dotted.split(".")[1] for reference, _ in MAP for dotted in re.findall(r"`(\w+\.[\w.]+)`", reference)}
    shared = {*backend.reference()}
    assert len(shared) > 40
    assert shared <= named, shared - named


def missing(reference: str, compiled: str) -> Iterator[str]:
    """Functions of a row that the Python reference, or a header of the C code, lacks."""
    owner = None
    for dotted in re.findall(r"`([\w.]+)`", reference):
        if not dotted.startswith("."):
            module, _, name = dotted.partition(".")
            owner, *members = name.split(".")
            value = getattr(import_module(f"spvfilter.kernel.pure.{module}"), owner)
        else:
            members = [dotted[1:]]
        yield from (f"{owner}.{member}" for member in members if not hasattr(value, member))
    for header, functions in re.findall(r"`([\w/]+\.h)`: ((?:`\w+`(?:, )?)+)", compiled):
        declared = (CSRC / header).read_text(encoding="utf-8")
        named = re.findall(r"`(\w+)`", functions)
        yield from (f"{function} in {header}" for function in named if not re.search(rf"\b{function}\(", declared))


def test_every_function_in_the_map_exists() -> None:
    assert len(MAP) > 50
    assert_none(each for reference, compiled in MAP for each in missing(reference, compiled))
    lacking = missing("`blocks.walk_tx`, `.nonsense`", "`block/walk.h`: `spv_walk_tx`, `spv_nonsense`")
    assert [*lacking] == ["walk_tx.nonsense", "spv_nonsense in block/walk.h"]


def test_the_map_shows_all_existing_rooms() -> None:
    drawn = set(re.findall(r"^[├└]── ([\w/. ]+?)(?:   .*)?$", PAGE, re.MULTILINE))
    names = {name.rstrip("/") for line in drawn for name in line.split() if not name.startswith("_")}
    there = {
        path.name for path in (ROOT / "spvfilter").iterdir() if path.name[0] not in "_." and path.name != "py.typed"
    }
    assert names == there
