"""The package's `dataclass` decorator: the same classes as from `dataclasses.dataclass`, at a quarter of its cost at import.

dataclasses compiles the source of every method, six for a frozen class, which is most of the time that importing a hundred such classes
takes. Here only `__init__` is compiled. The other methods are closures over the fields and give the same results.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, FrozenInstanceError, field as field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import Field, dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False):
        """Like `dataclasses.dataclass` with the same arguments."""

        def make(cls: type) -> type:
            own = set(vars(cls))
            cls.__doc__ = cls.__doc__ or cls.__name__  # else a signature is made for it
            is_heir = any(hasattr(base, "__dataclass_fields__") for base in cls.__mro__[1:])
            # dataclasses checks that an heir of frozen classes is frozen, so there it makes the methods for that
            made = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and is_heir, slots=slots, kw_only=kw_only)(cls)
            own |= {"__setattr__", "__delattr__"} if is_heir else set()
            parameters = made.__dataclass_params__
            parameters.init = parameters.repr = True
            parameters.eq, parameters.frozen = eq, frozen
            methods = _methods(made, fields(made), frozen=frozen, slots=slots, eq=eq)
            for name, method in methods.items():
                if name not in own:
                    method.__name__ = name
                    method.__qualname__ = f"{made.__qualname__}.{name}"
                    method.__module__ = made.__module__
                    setattr(made, name, method)
            if eq and not frozen and "__hash__" not in own:
                made.__hash__ = None
            return made

        return make


class _Factory:
    """The default that a signature shows for a field with a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_BY_FACTORY = _Factory()


def _methods(cls: type, of: tuple[Field[Any], ...], *, frozen: bool, slots: bool, eq: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {"__init__": _init(cls, of, frozen), "__repr__": _repr(of)}
    if eq:
        values = _values([item.name for item in of if item.compare])
        methods["__eq__"] = _eq(values)
        if frozen:
            methods["__hash__"] = _hash(_values([item.name for item in of if (item.compare if item.hash is None else item.hash)]))
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _frozen(cls, {item.name for item in of})
        if slots:
            methods["__getstate__"], methods["__setstate__"] = _state([item.name for item in of])
    return methods


def _values(names: list[str]) -> Any:
    """A function that returns the tuple of these attributes."""
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda self: (one(self),)
    return attrgetter(*names) if names else lambda self: ()


def _init(cls: type, of: tuple[Field[Any], ...], frozen: bool) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _BY_FACTORY}
    plain: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for number, item in enumerate(of):
        name, value, default = item.name, item.name, ""
        if item.default is not MISSING:
            known[f"_default{number}"] = item.default
            default = f"=_default{number}"
        elif item.default_factory is not MISSING:
            known[f"_factory{number}"] = item.default_factory
            default, value = "=_missing", f"_factory{number}() if {name} is _missing else {name}"
        if item.init:
            (named if item.kw_only else plain).append(name + default)
        elif item.default_factory is not MISSING:
            value = f"_factory{number}()"
        else:
            continue  # set in another way, or a default of the class
        body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    exec(f"def __init__({parameters}):\n" + "\n".join(body or [" pass"]), known)  # noqa: S102  names of fields, as dataclasses does
    made = known["__init__"]
    made.__annotations__ = {item.name: item.type for item in of if item.init} | {"return": None}
    return made


def _repr(of: tuple[Field[Any], ...]) -> Any:
    names = [item.name for item in of if item.repr]

    @recursive_repr()
    def represented(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join([f'{name}={getattr(self, name)!r}' for name in names])})"

    return represented


def _eq(values: Any) -> Any:
    def equal(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hash(values: Any) -> Any:
    def hashed(self: object) -> int:
        return hash(values(self))

    return hashed


def _frozen(cls: type[Any], names: set[str]) -> Any:
    def assign(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return assign, delete


def _state(names: list[str]) -> Any:
    def get(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    def put(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=False):  # as in dataclasses: an older pickle may have fewer
            object.__setattr__(self, name, value)

    return get, put
