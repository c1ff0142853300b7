"""Wrong kinds of arguments in all public functions, constructors and class methods: the error names the argument."""

from __future__ import annotations

import asyncio
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from enum import EnumMeta
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from spvfilter._public import naming
from spvfilter.errors import SpvFilterError
from spvfilter.primitives import TxOut
from support.publicnames import own
from support.raising import is_kernel, plain

WRONG: list[Any] = [object(), "text", 5, -1, 0.5, None, b"bytes", {"a": 1}, [object()], ["x"], (1, "x"), len]
Call = Callable[..., object]
HOT = {
    *("hashes.hash160", "hashes.murmur3", "hashes.murmur3_x64_128", "hashes.sha256d", "hashes.siphash24"),
    *("primitives.Header", "primitives.Header.parse", "primitives.OutPoint", "primitives.OutPoint.parse"),
    *("primitives.compact_size", "primitives.hash_to_hex", "primitives.read_compact_size"),
    "transaction.Transaction.parse",
}
"""Called millions of times, without a check of their own: Python's own error has to do."""
GIVEN = {"address.Bech32Encoding", "wire.messages.Flaw"}  # enumerations that no program makes from values


def doors() -> Iterator[tuple[str, Call]]:
    """Public functions, constructors and class methods that are written in Python and take arguments."""
    for room, name, value in own():
        if isinstance(value, FunctionType):
            yield f"{room}.{name}", value
        elif inspect.isclass(value) and not issubclass(value, BaseException):
            is_protocol, made = getattr(value, "_is_protocol", False), plain(value.__init__)
            is_python = isinstance(made, FunctionType) and not is_kernel(made)  # the kernel has a compiled twin
            if not is_protocol and (is_python or issubclass(value, tuple)):
                yield f"{room}.{name}", value
            for member, found in vars(value).items():
                if isinstance(found, (classmethod, staticmethod)) and not member.startswith("_"):
                    yield f"{room}.{name}.{member}", getattr(value, member)


DOORS = {name: door for name, door in doors() if name not in GIVEN}


def called_with(door: Call, wrong: object) -> tuple[list[str], object]:
    """The names of the parameters, and a call with `wrong` for each argument that is needed."""
    if isinstance(door, EnumMeta):  # its signature says `value` in Python 3.11 only
        return ["value"], lambda: door(wrong)
    parameters = inspect.signature(door).parameters
    needed = [each for each in parameters.values() if each.default is each.empty]
    given = [wrong for each in needed if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    named = {each.name: wrong for each in needed if each.kind is each.KEYWORD_ONLY}
    return [*parameters], lambda: door(*given, **named)


@pytest.mark.parametrize("name", DOORS)
def test_a_wrong_kind_of_argument_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some of them make a file
    for wrong in WRONG:
        names, call = called_with(DOORS[name], wrong)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = call()  # type: ignore[operator]
        except (SpvFilterError, OSError):
            continue
        except (AttributeError, LookupError, ValueError):  # a slice of a dict is a KeyError since Python 3.12
            assert name in HOT, f"{wrong!r}"
        except TypeError as error:
            assert name in HOT or any(re.search(rf"\b{each}\b", str(error)) for each in names), f"{wrong!r}: {error}"
        else:
            if asyncio.iscoroutine(found):
                found.close()


def test_naming_leaves_other_errors_as_they_are() -> None:
    @naming
    def call(numbers: list[int], then: Callable[[int], int], *, name: str = "") -> int:
        return sum(map(then, numbers)) + len(name)

    def fails(number: int) -> int:
        raise LookupError(number)

    assert call([1], abs, name="x") == 2
    with pytest.raises(LookupError, match="1"):
        call([1], fails)
    with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'then'"):
        call([1])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^numbers\[1\]: expected what fits list\[int\], not str: ") as seen:
        call([1, "2"], abs)  # type: ignore[list-item]
    assert isinstance(seen.value.__cause__, TypeError)
    with pytest.raises(TypeError, match=r"^then: expected Callable\[\[int\], int\], not int: "):
        call([1], 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^name: expected str, not float: "):
        call([1], abs, name=0.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("value", "error"), [(0.5, TypeError), (-1, SpvFilterError), ("5", TypeError)])
def test_a_wrong_value_of_an_output_is_named(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="value"):
        TxOut(value, b"\x51")
