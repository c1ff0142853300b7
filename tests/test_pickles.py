"""Pickles: a fresh interpreter reads every public value, and its pickle contains only public module names."""

from __future__ import annotations

import dataclasses
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from inspect import isclass, isroutine
from io import BytesIO
from pathlib import Path

import pytest

from spvfilter.errors import SpvFilterError, SpvFilterWarning
from spvfilter.filters import GcsQuery, GolombCodedSet
from spvfilter.network import REGTEST
from spvfilter.p2p import Connection
from spvfilter.scan import BlockFiles, BlockRef
from spvfilter.watch.descriptor import parse_descriptor
from support.project.values import VALUES
from support.wallets.walletfiles import TPUB

BLOCK = BlockRef(0, 8, 90, bytes(32), bytes(32), 3, 4, None)
PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)
HOMES = {f"spvfilter.{room}" for room in [*VALUES, "address", "hashes"]}
ROOMS = pytest.mark.parametrize("room", [*VALUES, "address", "hashes"])
AGAIN = """
import pickle, sys
assert not any(name.startswith("spvfilter") for name in sys.modules)
for protocol in {protocols}:
    pickle.dump(pickle.load(sys.stdin.buffer), sys.stdout.buffer, protocol)
"""


def named(room: str) -> list[object]:
    """The room's classes and functions, which are pickled by name, and the members of its enums."""
    module = import_module(f"spvfilter.{room}")
    found = [
        value for value in (getattr(module, name) for name in module.__all__) if isclass(value) or isroutine(value)
    ]
    return found + [member for cls in found if isinstance(cls, type) and issubclass(cls, Enum) for member in cls]


def values(room: str) -> list[object]:
    return [*VALUES.get(room, []), *([] if room == "kernel" else named(room))]


def is_value(cls: type) -> bool:
    """Return True if objects of a class are plain data, without connections, files, tasks or learned state."""
    data = (
        issubclass(cls, (tuple, SpvFilterError, SpvFilterWarning))
        or dataclasses.is_dataclass(cls)
        or "__reduce__" in vars(cls)
    )
    # the fields of a connection belong to a socket, and a query is equal only to itself: it has a test of its own
    return data and cls not in (Connection, GcsQuery)


def modules_in(pickled: bytes) -> Iterator[str]:
    """The package's modules that a pickle names, as complete strings."""
    for opcode, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, str) and argument.startswith("spvfilter"):
            yield argument.split(" ")[0] if opcode.name == "GLOBAL" else argument


def same(mine: object, theirs: object) -> bool:
    """Return True if two objects have the same contents, even if they are equal only to themselves."""
    if type(mine) is not type(theirs):
        return False
    match mine:
        case BaseException():
            return same((mine.args, vars(mine)), (theirs.args, vars(theirs)))  # type: ignore[attr-defined]
        case list() | tuple():
            return len(mine) == len(theirs) and all(map(same, mine, theirs))  # type: ignore[arg-type, call-overload]
        case dict():
            return same(list(mine.items()), list(theirs.items()))  # type: ignore[attr-defined]
        case _ if dataclasses.is_dataclass(mine) and not isinstance(mine, type):
            made = dataclasses.fields(mine)  # a function that is made again from the other fields is not compared
            names = [each.name for each in made if each.compare or not callable(getattr(mine, each.name))]
            return all(same(getattr(mine, name), getattr(theirs, name)) for name in names)
    return mine == theirs


@ROOMS
def test_a_fresh_interpreter_reads_all_values(room: str) -> None:
    given = values(room)
    code = AGAIN.format(protocols=[*PROTOCOLS])
    pickles = b"".join(pickle.dumps(given, protocol) for protocol in PROTOCOLS)
    answer = BytesIO(
        subprocess.run([sys.executable, "-c", code], input=pickles, stdout=subprocess.PIPE, check=True).stdout
    )
    for _ in PROTOCOLS:
        for mine, theirs in zip(given, pickle.load(answer), strict=True):
            assert same(mine, theirs), mine
    assert not answer.read()


@ROOMS
def test_a_pickle_contains_only_public_module_names(room: str) -> None:
    for value in values(room):
        for protocol in PROTOCOLS:
            assert set(modules_in(pickle.dumps(value, protocol))) <= HOMES, value


@ROOMS
def test_every_value_is_tested(room: str) -> None:
    tried = {type(value) for value in VALUES.get(room, [])}
    assert {
        cls for cls in named(room) if isinstance(cls, type) and not issubclass(cls, Enum) and is_value(cls)
    } <= tried


@pytest.mark.descriptors
def test_pickled_descriptor_derives_the_same_scripts() -> None:
    for each in parse_descriptor(f"wpkh({TPUB}/<0;1>/*)", REGTEST):
        again = pickle.loads(pickle.dumps(each))
        assert (again, again.scripts(7), again.spending(7)) == (each, each.scripts(7), each.spending(7))


def test_sources_and_queries_are_pickled(tmp_path: Path) -> None:
    (tmp_path / "blk00000.dat").write_bytes(b"")
    files, query = BlockFiles(tmp_path), GcsQuery([b"a", b"bc"])
    for protocol in PROTOCOLS:
        again = pickle.loads(pickle.dumps(files, protocol))
        assert (again.mode, again.span, again.name(BLOCK)) == (files.mode, files.span, files.name(BLOCK))
        asked = pickle.loads(pickle.dumps(query, protocol))
        assert len(asked) == 2
        for items, found in (([b"bc", b"x"], True), ([b"y"], False)):
            assert GolombCodedSet.build(items, bytes(16), 19, 784931).match_any(asked) is found
