"""The package's `dataclass` decorator: the same classes as from `dataclasses.dataclass`, at a tenth of its cost at
import.

dataclasses compiles the source of every method, six for a frozen class, which is most of the time that importing a
hundred such classes takes; and importing it takes another seven milliseconds, since it needs `inspect`. Here only
`__init__` is compiled, when it is first used: most classes that a program imports have no instance in it. The other
methods are closures over the fields and give the same results. What `dataclasses.fields`, `replace` and the like ask of
a class, dataclasses itself makes when they ask.

Annotations are strings (`from __future__ import annotations`), and all of them but `ClassVar[…]` are fields.
"""

from __future__ import annotations

from abc import update_abstractmethods
from operator import attrgetter
from reprlib import recursive_repr
from sys import version_info
from typing import TYPE_CHECKING, Any

from spvfilter._public import deferred

if TYPE_CHECKING:
    import dataclasses
    from dataclasses import dataclass as dataclass, field as field
else:
    dataclasses = deferred("dataclasses")

    def field(**given: Any) -> _Field:
        """Like `dataclasses.field` with the same arguments."""
        return _Field(**given)

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False):
        """Like `dataclasses.dataclass` with the same arguments."""
        return lambda cls: _made(cls, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)


_MISSING: Any = object()  # instead of a default


class _Field:
    """What a field's class says of it; attributes are called as those of `dataclasses.Field`."""

    __slots__ = ("compare", "default", "default_factory", "hash", "init", "kw_only", "name", "repr", "type")

    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,
        hash: bool | None = None,
        compare: bool = True,
        kw_only: bool | None = None,
    ) -> None:
        self.default = default
        self.default_factory = default_factory
        self.init = init
        self.repr = repr
        self.hash = hash
        self.compare = compare
        self.kw_only = kw_only
        self.name = ""
        self.type = ""

    def standard(self) -> Any:
        """The same from `dataclasses.field`."""
        given = {name: getattr(self, name) for name in ("init", "repr", "hash", "compare", "kw_only")}
        given |= {
            name: value for name in ("default", "default_factory") if (value := getattr(self, name)) is not _MISSING
        }
        return dataclasses.field(**given)


class _Standard:
    """An attribute of a class that only `dataclasses` asks for, taken from a class of the same fields that dataclasses
    makes then.
    """

    def __init__(self, name: str, shape: _Shape) -> None:
        self._name = name
        self.shape = shape

    def __get__(self, instance: object, owner: type) -> Any:
        return getattr(self.shape.standard(), self._name)


class _Shape:
    """The fields of a class, inherited ones first, and the arguments of its decorator."""

    def __init__(self, cls: type, of: dict[str, _Field], given: dict[str, bool]) -> None:
        self.fields = of
        self.given = given
        self._constants = {name: hint for name, hint in _hints(cls).items() if name not in of}
        self._cls = cls
        self._standard: type | None = None

    def standard(self) -> type:
        """A class of the same fields, made by `dataclasses`."""
        if self._standard is None:
            hints = {each.name: each.type for each in self.fields.values()} | self._constants
            values = {name: vars(self._cls)[name] for name in self._constants if name in vars(self._cls)}
            values |= {name: each.standard() for name, each in self.fields.items()}
            named = {"__module__": self._cls.__module__, "__annotations__": hints, "__doc__": self._cls.__doc__}
            self._standard = dataclasses.dataclass(**self.given)(type(self._cls.__name__, (), named | values))
        return self._standard


def _made(cls: type, **given: bool) -> type:
    """The class as its decorator returns it: itself, or another with `__slots__`."""
    own = set(vars(cls))
    cls.__doc__ = cls.__doc__ or cls.__name__  # dataclasses would make a signature
    of = _fields(cls, frozen=given["frozen"], kw_only=given["kw_only"])
    made = _with_slots(cls, of) if given["slots"] else cls
    shape = _Shape(made, of, given)
    known: dict[str, Any] = {name: _Standard(name, shape) for name in ("__dataclass_fields__", "__dataclass_params__")}
    known["__match_args__"] = tuple(each.name for each in of.values() if each.init and not each.kw_only)
    known["__init__"] = _Init(made, tuple(of.values()), given["frozen"])
    for name, method in _methods(made, tuple(of.values()), given).items():
        known[name] = _named(method, made, name)
    for name, value in known.items():
        if name not in own:
            setattr(made, name, value)
    if given["eq"] and not given["frozen"] and "__hash__" not in own:
        made.__hash__ = None  # type: ignore[assignment]  # as dataclasses does
    return update_abstractmethods(made)


def _hints(cls: type) -> dict[str, str]:
    """The annotations of a class, without those of its bases. From Python 3.14 on they need not be in its namespace."""
    return cls.__annotations__ if version_info >= (3, 14) else vars(cls).get("__annotations__", {})


def _fields(cls: type, *, frozen: bool, kw_only: bool) -> dict[str, _Field]:
    """The fields of a class by name. Their defaults, and nothing else, stay attributes of the class."""
    of: dict[str, _Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        if isinstance(known := vars(base).get("__dataclass_fields__"), _Standard):
            of |= known.shape.fields
            if known.shape.given["frozen"] != frozen:
                raise TypeError(f"{cls.__qualname__} has to be frozen as {base.__qualname__} is, or not as that is not")
    for name, hint in _hints(cls).items():
        if hint.startswith("ClassVar"):
            continue
        value = vars(cls).get(name, _MISSING)
        each = value if isinstance(value, _Field) else _Field(default=value)
        each.name, each.type = name, hint
        each.kw_only = kw_only if each.kw_only is None else each.kw_only
        of[name] = each
        if isinstance(value, _Field) and each.default is _MISSING:
            delattr(cls, name)
        elif isinstance(value, _Field):
            setattr(cls, name, each.default)
    return of


def _with_slots(cls: type, of: dict[str, _Field]) -> type:
    """The same class with `__slots__`, which only a new one can have."""
    inherited = {name for base in cls.__mro__[1:-1] for name in vars(base).get("__slots__", ())}
    namespace = {
        name: value for name, value in vars(cls).items() if name not in of and name not in ("__dict__", "__weakref__")
    }
    namespace["__slots__"] = tuple(name for name in of if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _named(method: Any, cls: type, name: str) -> Any:
    method.__name__ = name
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    method.__module__ = cls.__module__
    return method


class _Init:
    """`__init__` of a class until it is first called or looked at: then the compiled function takes its place."""

    __slots__ = ("_cls", "_fields", "_frozen", "_module")

    def __init__(self, cls: type, of: tuple[_Field, ...], frozen: bool) -> None:
        self._cls = cls
        self._fields = of
        self._frozen = frozen
        self._module = cls.__module__  # `public` changes the class's

    def __get__(self, instance: object, owner: type) -> Any:
        made = _named(_init(self._cls, self._fields, self._frozen), self._cls, "__init__")
        made.__module__ = self._module
        self._cls.__init__ = made  # type: ignore[misc]  # of two threads that come first, both make the same
        return made.__get__(instance, owner)


class _Factory:
    """The default that a signature shows for a field with a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_BY_FACTORY = _Factory()


def _methods(cls: type, of: tuple[_Field, ...], given: dict[str, bool]) -> dict[str, Any]:
    """All but `__init__`."""
    frozen = given["frozen"]
    methods: dict[str, Any] = {"__repr__": _repr(of)}
    if given["eq"]:
        values = _values([item.name for item in of if item.compare])
        methods["__eq__"] = _eq(values)
        if frozen:
            methods["__hash__"] = _hash(
                _values([item.name for item in of if (item.compare if item.hash is None else item.hash)])
            )
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _frozen(cls, {item.name for item in of})
        if given["slots"]:
            methods["__getstate__"], methods["__setstate__"] = _state([item.name for item in of])
    if version_info >= (3, 13):  # what copy.replace calls
        methods["__replace__"] = lambda self, /, **changes: dataclasses.replace(self, **changes)
    return methods


def _values(names: list[str]) -> Any:
    """A function that returns the tuple of these attributes."""
    if len(names) == 1:
        one = attrgetter(names[0])
        return lambda self: (one(self),)
    return attrgetter(*names) if names else lambda self: ()


def _init(cls: type, of: tuple[_Field, ...], frozen: bool) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_missing": _BY_FACTORY}
    plain: list[str] = []
    named: list[str] = []
    body: list[str] = []
    for number, item in enumerate(of):
        name, value, default = item.name, item.name, ""
        if item.default is not _MISSING:
            known[f"_default{number}"] = item.default
            default = f"=_default{number}"
        elif item.default_factory is not _MISSING:
            known[f"_factory{number}"] = item.default_factory
            default, value = "=_missing", f"_factory{number}() if {name} is _missing else {name}"
        if item.init:
            (named if item.kw_only else plain).append(name + default)
        elif item.default_factory is not _MISSING:
            value = f"_factory{number}()"
        else:
            continue  # set in another way, or a default of the class
        body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    # names of fields, as dataclasses does
    exec(f"def __init__({parameters}):\n" + "\n".join(body or [" pass"]), known)  # noqa: S102
    made = known["__init__"]
    made.__annotations__ = {item.name: item.type for item in of if item.init} | {"return": None}
    return made


def _repr(of: tuple[_Field, ...]) -> Any:
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
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return assign, delete


def _state(names: list[str]) -> Any:
    def get(self: object) -> list[object]:
        return [getattr(self, name) for name in names]

    def put(self: object, state: list[object]) -> None:
        for name, value in zip(names, state, strict=False):  # as in dataclasses: an older pickle may have fewer
            object.__setattr__(self, name, value)

    return get, put
