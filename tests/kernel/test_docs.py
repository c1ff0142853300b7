"""Docstrings and signatures of the compiled functions and types: those of the reference, as help() and inspect show
them.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter
from support.kernels.kernelentries import ENTRIES, FUSE_TABLE, FUSED, Entry, Kernel, core, native, of_kernel, reference

SCRIPTS = Path(__file__).parents[2] / "scripts/dev/native"
NAMES = sorted(vars(reference()))
TYPES = [name for name in NAMES if isinstance(getattr(reference(), name), type)]
MEMBERS = [
    f"{owner}.{name}" for owner in TYPES for name in dir(getattr(reference(), owner)) if not name.startswith("_")
]


def named(kernel: Kernel, name: str) -> Any:
    owner, _, member = name.partition(".")
    value = getattr(kernel, owner)
    return inspect.getattr_static(value, member) if member else value


def said_by_the_reference(name: str) -> str:
    """A docstring without its indentation; a slot's is in `__slots__`."""
    owner, _, member = name.partition(".")
    bases = getattr(reference(), owner).__mro__ if member else ()
    slots = [
        base.__slots__[member]
        for base in bases
        if isinstance(vars(base).get("__slots__"), dict) and member in base.__slots__
    ]
    return inspect.cleandoc(slots[0] if slots else named(reference(), name).__doc__)


def parameters(function: Any) -> list[tuple[str, object, object]]:
    taken = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    return [(each.name, each.kind, each.default) for each in taken]


def public(value: object) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]


@pytest.mark.native
def test_the_twins_have_the_same_members() -> None:
    for owner in TYPES:
        assert public(getattr(native(), owner)) == public(getattr(reference(), owner)), owner


@pytest.mark.native
def test_the_compiled_kernel_has_the_docstrings_of_the_reference() -> None:
    for name in NAMES + MEMBERS:
        assert named(native(), name).__doc__ == said_by_the_reference(name) != "", name


@pytest.mark.native
def test_the_signatures_are_equal() -> None:
    for name in NAMES + MEMBERS:
        if callable(function := named(reference(), name)):
            assert named(native(), name).__text_signature__, name
            assert parameters(named(native(), name)) == parameters(function), name


def bound(kernel: Kernel, name: str) -> Callable[..., object]:
    """A function, or a method of a new object."""
    owner, _, member = name.partition(".")
    made: dict[str, Callable[[], Any]] = {
        "BitCore": lambda: core(kernel, "BitCore"),
        "CounterCore": lambda: core(kernel, "CounterCore"),
        "FuseCore": lambda: kernel.FuseCore(*FUSED, FUSE_TABLE),
        "SeriesCore": lambda: kernel.SeriesCore([core(kernel, "BitCore")]),
        "GcsQuery": lambda: kernel.GcsQuery([]),
        "WatchTable": kernel.WatchTable,
    }
    value: Callable[..., object] = getattr(made[owner](), member) if member else getattr(kernel, owner)
    return value


CALLED = [
    (name, entry)
    for name, entry in ENTRIES.items()
    if entry.arguments and "__" not in name and not name.endswith((".buffer", ".room"))
]


@pytest.mark.few(99)
@pytest.mark.native
@pytest.mark.parametrize("kernel", [native, reference])
@pytest.mark.parametrize(("name", "entry"), CALLED, ids=lambda part: part if isinstance(part, str) else "")
def test_the_signatures_are_true(name: str, entry: Entry, kernel: Callable[[], Kernel]) -> None:
    function = bound(kernel(), name)
    signature = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    unnamed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
    assert entry.keywords == tuple(each.name for each in signature if each.kind not in unnamed)
    arguments = [of_kernel(kernel(), argument) for argument in entry.arguments]
    by_name = dict(zip((each.name for each in signature), arguments, strict=True))
    if entry.keywords:
        function(**by_name)
    else:
        with pytest.raises(TypeError, match=r"keyword|positional"):
            function(**by_name)


def test_help_tells_the_formats_of_a_batch() -> None:
    doc = " ".join((BloomFilter.update.__doc__ or "").split())
    assert "iterable of keys" in doc
    assert "n×w bytes" in doc
    assert "integers of any width" in doc
    assert "__arrow_c_stream__" in doc


@pytest.mark.posix
def test_the_docstrings_in_the_c_are_those_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else scripts/dev/docstrings is to be run."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    try:
        docstrings = import_module("docstrings")
        made = docstrings.headers()
        assert {path: path.read_text(encoding="utf-8") for path in docstrings.FOLDER.iterdir()} == made
    finally:
        for name in ("docstrings", "programs"):
            sys.modules.pop(name, None)
