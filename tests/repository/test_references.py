"""Docstrings as the reference shows them: every field has one, and none points to a name that the reference lacks."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from functools import cache
from importlib import import_module
from inspect import isclass
from pathlib import Path

import spvfilter
from repository.publicdocs import Doc, public_docs
from support.project.publicnames import MODULES, ROOMS, public
from support.project.rules import assert_none

CODE = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`")
CAMEL_CASE = re.compile(r"(?<![\w.`/])([A-Z][a-z0-9]+[A-Z]\w*)(\.[a-z]\w*)?")
WORDS = {  # code in docstrings that is not a name of the package
    *(
        "auto",
        "bip37",
        "compact",
        "descriptors",
        "socks",
        "plot",
        "redis",
        "mark",
        "known",
        "bytes",
        "remote",
        "zmq",
        "zstd",
        "bip324",
    ),
    *("main", "test", "testnet4", "signet", "https", "cfilter", "cfheaders", "wants_more", "rawtx"),
    *("bitcoinj", "dask.bag.read_text", "distributed.Client"),
}


@cache
def documented() -> frozenset[str]:
    """Every name that the reference shows: rooms, public names, their members and their parameters."""
    found = {*MODULES, *ROOMS, *dir(spvfilter), "spvfilter"}
    found.update(*(doc.names for doc in docs()))
    for room, name, value in public():
        found |= {name, f"{room}.{name}", f"spvfilter.{room}", f"spvfilter.{room}.{name}"}
        if isclass(value):
            for member in dir(value):
                found |= {member, f"{name}.{member}"}
    return frozenset(found)


@cache
def internal() -> frozenset[str]:
    """Names of the package's classes and functions that the reference lacks."""
    package = Path(spvfilter.__file__).parent
    defined = (re.findall(r"^(?:class|def) (\w+)", path.read_text(), re.MULTILINE) for path in package.rglob("*.py"))
    return frozenset(name for names in defined for name in names) - documented()


def is_known(name: str, own: frozenset[str]) -> bool:
    """True for a name that a reader of the reference can find, or that belongs to Python."""
    first = name.partition(".")[0]
    if name in own or name in documented() or name in WORDS or keyword.iskeyword(name) or hasattr(builtins, first):
        return True
    if first in sys.stdlib_module_names:
        return name == first or hasattr(import_module(first), name.split(".")[1])
    return first in own  # an attribute of a parameter


@cache
def docs() -> list[Doc]:
    return [doc for room in (*MODULES, *ROOMS) for doc in public_docs(room)]


def test_every_field_has_a_docstring() -> None:
    assert_none(doc.place for doc in docs() if doc.is_field and not doc.text)


def lost(doc: Doc) -> list[str]:
    """Names in a docstring that the reference lacks."""
    unknown = [name for name in CODE.findall(doc.text) if not is_known(name, doc.names)]
    return unknown + [name for name, _ in CAMEL_CASE.findall(doc.text) if name in internal()]


def test_docstrings_point_to_documented_names() -> None:
    assert_none(f"{doc.place}: {name}" for doc in docs() for name in lost(doc))
    assert lost(Doc("", "`LightClient.events` and `nonsense` of the EventHub.", frozenset())) == [
        "nonsense",
        "EventHub",
    ]


def test_a_missing_field_docstring_is_found() -> None:
    places = [doc.place for doc in public_docs("network")]
    assert any("Network.name" in place for place in places)
    assert is_known("LightClient.events", frozenset())
    assert is_known("asyncio.run", frozenset())
    assert not is_known("LightClient.nonsense", frozenset())
    assert not is_known("EventHub", frozenset())
    assert "EventHub" in internal()
