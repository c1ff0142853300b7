"""The package's `dataclass` makes what `dataclasses.dataclass` makes, for its own classes and for every kind of field
that they use.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pydoc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest

import spvfilter
from spvfilter import _dataclass

OPTIONS = [
    {"frozen": True, "slots": True},
    {"frozen": True},
    {"slots": True},
    {},
    {"slots": True, "eq": False},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "kw_only": True},
]
options = pytest.mark.parametrize("given", OPTIONS, ids=str)
Decorator = Callable[..., Callable[[type], Any]]


def plain(decorator: Decorator, given: dict[str, Any]) -> Any:
    field = _dataclass.field if decorator is _dataclass.dataclass else dataclasses.field

    class Plain:
        command: ClassVar[str] = "plain"
        first: int
        second: bytes = b"2"
        many: list[int] = field(default_factory=list)
        hidden: str = field(default="h", repr=False)
        apart: int = field(default=4, compare=False)
        unhashed: int = field(default=5, hash=False)
        later: int = field(default=6, kw_only=True)

    return decorator(**given)(Plain)


def single(decorator: Decorator, given: dict[str, Any]) -> Any:
    class Single:
        """With one field."""

        value: bytes

        def __post_init__(self) -> None:
            object.__setattr__(self, "value", bytes(self.value))

        def __repr__(self) -> str:
            return "its own"

    return decorator(**given)(Single)


def empty(decorator: Decorator, given: dict[str, Any]) -> Any:
    class Empty:
        """Without a field."""

    return decorator(**given)(Empty)


def heir(decorator: Decorator, given: dict[str, Any]) -> Any:
    class Base:
        first: int
        second: int = 2

    class Heir(decorator(**given)(Base)):  # type: ignore[misc]  # a class made here
        third: int = 3

    return decorator(**given)(Heir)


CASES: list[tuple[Callable[..., Any], list[dict[str, Any]]]] = [
    (
        plain,
        [
            {"first": 1},
            {"first": 1, "second": b"x"},
            {"first": 1, "many": [2]},
            {"first": 1, "apart": 9},
            {"first": 2, "later": 0},
        ],
    ),
    (single, [{"value": b"a"}, {"value": bytearray(b"b")}]),
    (empty, [{}]),
    (heir, [{"first": 1}, {"first": 1, "second": 5}, {"first": 1, "third": 2}]),
]
cases = pytest.mark.parametrize(("make", "arguments"), CASES, ids=[make.__name__ for make, _ in CASES])


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def hashed(value: object) -> object:
    """Its hash; of a class that compares by identity that it has one."""
    return hash(value) if type(value).__eq__ is not object.__eq__ else hash(value) is not None


@options
@cases
def test_instances_are_made_shown_compared_and_hashed_alike(
    make: Any, arguments: list[dict[str, Any]], given: dict[str, Any]
) -> None:
    ours, theirs = make(_dataclass.dataclass, given), make(dataclasses.dataclass, given)
    mine, others = [ours(**each) for each in arguments], [theirs(**each) for each in arguments]
    assert list(map(repr, mine)) == list(map(repr, others))
    assert [one == other for one in mine for other in mine] == [one == other for one in others for other in others]
    assert mine[0] != others[0]
    assert [outcome(partial(hashed, one)) for one in mine] == [outcome(partial(hashed, one)) for one in others]
    assert [one == ours(**each) for one, each in zip(mine, arguments, strict=True)] == [given.get("eq", True)] * len(
        mine
    )
    for wrong in ({"unknown": 1}, {"first": 1, "value": b"", "unknown": 2}):
        assert outcome(partial(ours, **wrong)) == outcome(partial(theirs, **wrong))
    if "kw_only" in given:
        assert outcome(lambda: ours(1)) == outcome(lambda: theirs(1))


@options
@cases
def test_attributes_are_set_and_deleted_alike(
    make: Any, arguments: list[dict[str, Any]], given: dict[str, Any]
) -> None:
    ours, theirs = (
        make(decorator, given)(**arguments[0]) for decorator in (_dataclass.dataclass, dataclasses.dataclass)
    )
    for name in [*arguments[0], "other"]:
        for change in (partial(setattr, ours, name, 3), partial(delattr, ours, name)):
            mine, other = outcome(change), outcome(partial(change.func, theirs, *change.args[1:]))
            if name in arguments[0] or "slots" not in given or "frozen" not in given:
                assert mine == other
            else:  # where dataclasses of 3.11 stumble over the class that they have replaced
                assert isinstance(mine, tuple)
                assert issubclass(mine[0], (FrozenInstanceError, AttributeError, TypeError))


@options
@cases
def test_classes_look_alike(make: Any, arguments: list[dict[str, Any]], given: dict[str, Any]) -> None:
    ours, theirs = make(_dataclass.dataclass, given), make(dataclasses.dataclass, given)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__init__.__qualname__ == theirs.__init__.__qualname__
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    assert repr(dataclasses.fields(ours)) == repr(dataclasses.fields(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert getattr(ours, "__slots__", None) == getattr(theirs, "__slots__", None)
    names = set(vars(theirs))
    if "slots" in given:
        names.discard("__weakref__")  # which Python 3.11.2 leaves there, though its class has no such slot
    assert set(vars(ours)) == names
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    mine = ours(**arguments[0])
    assert copy.copy(mine).__class__ is ours
    assert dataclasses.replace(mine).__class__ is ours
    assert dataclasses.asdict(mine) == dataclasses.asdict(theirs(**arguments[0]))


@_dataclass.dataclass(frozen=True, slots=True)
class Pickled:
    first: int
    second: list[int] = _dataclass.field(default_factory=list)


def test_frozen_instances_with_slots_are_pickled() -> None:
    made = Pickled(1, [2, 3])
    assert pickle.loads(pickle.dumps(made)) == made
    assert copy.deepcopy(made) == made


def test_an_instance_that_holds_itself_is_shown() -> None:
    made = Pickled(1, [])
    made.second.append(made)  # type: ignore[arg-type]
    assert repr(made) == "Pickled(first=1, second=[...])"


@options
def test_what_dataclasses_tells_of_an_heir_has_the_fields_and_the_constants_of_its_base(given: dict[str, Any]) -> None:
    def heirs(decorator: Decorator) -> tuple[Any, Any]:
        field = _dataclass.field if decorator is _dataclass.dataclass else dataclasses.field

        class Base:
            command: ClassVar[str] = "base"
            first: int = 1
            many: list[int] = field(default_factory=list)

        base = decorator(**given)(Base)

        class Heir(base):  # type: ignore[misc,valid-type]  # a class made here
            first: int = 2
            last: int = field(default=3, compare=False)

        return base, decorator(**given)(Heir)

    ours, theirs = heirs(_dataclass.dataclass), heirs(dataclasses.dataclass)
    for mine, other in zip(ours, theirs, strict=True):
        assert repr(dataclasses.fields(mine)) == repr(dataclasses.fields(other))
        assert (repr(mine()), mine.__match_args__) == (repr(other()), other.__match_args__)
        assert repr(dataclasses.replace(mine(), first=5)) == repr(mine(first=5)) == repr(other(first=5))
        assert dataclasses.is_dataclass(mine)


def test_a_frozen_class_has_no_heir_that_is_not() -> None:
    class Heir(Pickled):
        third: int = 3

    with pytest.raises(TypeError, match="has to be frozen as Pickled is"):
        _dataclass.dataclass(slots=True)(Heir)


def test_an_initialiser_is_compiled_when_it_is_first_used_and_stays() -> None:
    @_dataclass.dataclass(slots=True)
    class Made:
        first: int

    class Heir(Made):
        pass

    assert not inspect.isfunction(vars(Made)["__init__"])
    assert Heir(4).first == 4
    made = vars(Made)["__init__"]
    assert inspect.isfunction(made)
    assert (made.__name__, made.__module__, made.__qualname__) == (
        "__init__",
        __name__,
        f"{Made.__qualname__}.__init__",
    )
    assert Made(5).first == 5
    assert (vars(Made)["__init__"], "__init__" in vars(Heir)) == (made, False)


def test_the_threads_that_make_the_first_instances_make_the_same() -> None:
    count = 8

    @_dataclass.dataclass(frozen=True, slots=True)
    class Made:
        first: int
        second: list[int] = _dataclass.field(default_factory=list)

    together = threading.Barrier(count)

    def make(number: int) -> Made:
        together.wait(60)
        return Made(number)

    with ThreadPoolExecutor(count) as threads:
        assert list(threads.map(make, range(count))) == [Made(number) for number in range(count)]


def test_help_shows_a_class_as_ever() -> None:
    class Shown:
        """Of one field."""

        first: int = 1

    made = [make(frozen=True, slots=True)(Shown) for make in (_dataclass.dataclass, dataclasses.dataclass)]
    texts = [pydoc.plain(pydoc.render_doc(each)).splitlines() for each in made]
    shown, standard = ([line for line in text if "first" in line and "-> None" in line] for text in texts)
    assert shown == standard  # Python 3.14 shows annotations in another way
    assert [line.partition("(")[0].strip(" |") for line in shown] == ["Shown", "__init__"]


def test_every_dataclass_of_the_package_has_only_fields_that_this_one_knows() -> None:
    found = 0
    for path in sorted(Path(spvfilter.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "InitVar" not in text
        assert path.name == "_dataclass.py" or "from dataclasses import dataclass" not in text
        found += "@dataclass" in text
        assert "@dataclass" not in text or "from __future__ import annotations" in text
    assert found > 30
    assert import_module("spvfilter.wire.messages").Ping(5) == import_module("spvfilter.wire.messages").Ping(5)
