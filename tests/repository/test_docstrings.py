"""Docstrings of the public names: each one exists, and names the errors that the object raises."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from itertools import takewhile
from types import FunctionType
from typing import Any

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
from support.project.publicnames import CONSTRUCTORS, MODULES, ROOMS, loaded, members, own
from support.project.raising import Raising, says, sourced
from support.project.rules import assert_none

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


def undescribed(name: str, value: Any) -> Iterator[str]:
    """The name itself, or members of it, that have no docstring that starts with a sentence."""
    text = value.__doc__ or ""
    if not is_summed_up(text) or text.startswith(f"{name}("):  # the docstring that dataclass generates
        yield name
    if inspect.isclass(value):
        if "__doc__" not in vars(value):
            yield f"{name} (inherits its docstring)"
        for member, _ in members(value):
            if member not in CONSTRUCTORS and not is_summed_up(inspect.getdoc(getattr(value, member)) or ""):
                yield f"{name}.{member}"


def test_a_public_name_and_its_members_have_docstrings() -> None:
    assert_none(f"{room}: {place}" for room, name, value in own() for place in undescribed(name, value))

    class Undescribed(list[int]):
        def found(self) -> None: ...

    assert [*undescribed("function", lambda: None)] == ["function"]
    Undescribed.found.__module__ = Undescribed.__module__ = "spvfilter.example"
    assert "Undescribed.found" in [*undescribed("Undescribed", Undescribed)]


def unsaid(room: str, name: str, value: Any) -> Iterator[str]:
    """Errors that a function, or a member of a class, raises and its docstring does not name."""
    if isinstance(value, FunctionType):
        yield from (error.__name__ for error in RAISING.by(value) if not says(str(value.__doc__), error))
    elif inspect.isclass(value):
        for member, found in members(value):
            function, owner = sourced(found, value)
            if isinstance(function, FunctionType) and (f"{room}.{name}", member) not in IMPOSSIBLE:
                doc = doc_of(room, name, value, member)
                raised = [error for error in RAISING.by(function, owner) if not says(doc, error)]
                yield from (f"{error.__name__} of {member}" for error in raised)


def test_a_docstring_names_the_errors() -> None:
    assert_none(f"{room}.{name}: {error}" for room, name, value in own() for error in unsaid(room, name, value))


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
