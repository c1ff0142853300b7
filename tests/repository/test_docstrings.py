"""Docstrings of the public names: each one exists, and names the errors that the object raises."""

from __future__ import annotations

import inspect
from itertools import takewhile
from types import FunctionType
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter
from spvfilter.errors import (
    CommitmentError,
    FormatError,
    LowWorkError,
    MessageError,
    MismatchError,
    NotRunningError,
    ParameterError,
    ReadOnlyError,
)
from spvfilter.filters import GcsQuery
from spvfilter.light import LightClient
from spvfilter.node import p2pkh
from spvfilter.primitives import compact_size
from spvfilter.wire.messages import Version, parse_message
from support.publicnames import CONSTRUCTORS, MODULES, ROOMS, loaded, members, own
from support.raising import Raising, says, sourced

RAISING = Raising(f"spvfilter.{room}" for room in MODULES + ROOMS)
IMPOSSIBLE = {  # members that cannot raise an error which their source seems to raise, and the reason
    ("wire.Session", "__init__"): "a version message fits into the 16 MB of the send buffer",
    ("wire.Session", "next_event"): "a pong fits, as no message is processed while 1 MB waits to be sent",
    ("wire.Session", "more_events"): "a pong fits, as no message is processed while 1 MB waits to be sent",
    ("wire.Session", "events"): "a pong fits, as no message is processed while 1 MB waits to be sent",
    ("wire.Session", "tick"): "the session sends one ping at a time",
    ("scan.NodeExport", "run"): "the headers of blocks are read only after the blocks were checked",
    ("store.Views", "reserved"): "it asks for no label, keychain or account",
    ("wallet.WalletStore", "reserved"): "it asks for no label, keychain or account",
}


def is_summed_up(doc: str) -> bool:
    """True if the first line of a docstring is a whole sentence, and a blank line follows it."""
    first, *rest = doc.strip().splitlines() or [""]
    is_sentence = first.endswith((".", ":")) and (first[0].isupper() or not first.split()[0].isalpha())
    return is_sentence and (not rest or not rest[0].strip())


def doc_of(room: str, name: str, value: Any, member: str) -> str:
    """The docstring of a member. For a constructor, also those of its class and its room, which may name the errors."""
    own = inspect.getdoc(getattr(value, member)) or ""
    if member not in CONSTRUCTORS:
        return own
    inheriting = takewhile(lambda base: member not in vars(base), value.__mro__)
    defining = next(base for base in value.__mro__ if member in vars(base))
    return " ".join(
        str(doc) for doc in [own, *(base.__doc__ for base in [*inheriting, defining]), loaded(room).__doc__]
    )


@pytest.mark.parametrize(("room", "name", "value"), own(), ids=lambda part: part if isinstance(part, str) else "")
def test_a_public_name_has_a_docstring(room: str, name: str, value: Any) -> None:
    text = value.__doc__ or ""
    assert is_summed_up(text)
    assert not text.startswith(f"{name}(")  # the docstring that dataclass generates
    if inspect.isclass(value):
        assert "__doc__" in vars(value)
        said = {
            member: inspect.getdoc(getattr(value, member)) for member, _ in members(value) if member not in CONSTRUCTORS
        }
        assert not [member for member, doc in {**said, name: text}.items() if not is_summed_up(doc or "")]


@pytest.mark.parametrize(("room", "name", "value"), own(), ids=lambda part: part if isinstance(part, str) else "")
def test_a_docstring_names_the_errors(room: str, name: str, value: Any) -> None:
    unsaid = {}
    if isinstance(value, FunctionType):
        unsaid[name] = [error for error in RAISING.by(value) if not says(str(value.__doc__), error)]
    elif inspect.isclass(value):
        for member, found in members(value):
            function, owner = sourced(found, value)
            if isinstance(function, FunctionType) and (f"{room}.{name}", member) not in IMPOSSIBLE:
                doc = doc_of(room, name, value, member)
                unsaid[member] = [error for error in RAISING.by(function, owner) if not says(doc, error)]
    assert not {member: errors for member, errors in unsaid.items() if errors}


def test_the_errors_that_leave_a_function_are_seen() -> None:
    assert RAISING.by(compact_size) == {ParameterError}  # its own
    assert RAISING.by(p2pkh) == {ParameterError}  # a private function's
    assert RAISING.by(Version.__post_init__, Version) == {ParameterError}  # those of a module that is not public
    assert RAISING.by(parse_message) == {MessageError}  # errors that are caught do not count
    assert RAISING.by(LightClient.matches, LightClient) == {NotRunningError}  # a private method's
    # of either kernel
    assert RAISING.by(*sourced(inspect.getattr_static(BloomFilter, "clear"), BloomFilter)) == {ReadOnlyError}
    assert RAISING.by(*sourced(inspect.getattr_static(BloomFilter, "_same_shape"), BloomFilter)) == {MismatchError}
    assert RAISING.by(*sourced(inspect.getattr_static(GcsQuery, "match_many"), GcsQuery)) == {
        FormatError,
        ParameterError,
    }
    assert says("Raises HeaderError.", LowWorkError)
    assert not says("Raises LowWorkError, SpvFilterError.", CommitmentError)
