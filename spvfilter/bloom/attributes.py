"""When filters are copied or pickled, keep the attributes that a subclass has added to them."""

from __future__ import annotations

from typing import TypeVar

_PACKAGE = __name__.partition(".")[0] + "."
T = TypeVar("T")


def added_attributes(made: object) -> dict[str, object]:
    """Return the attributes in an object's `__dict__`, and in the slots of its classes outside this package."""
    found = dict(getattr(made, "__dict__", {}))
    for kind in type(made).__mro__:
        slots = vars(kind).get("__slots__", ())
        if kind.__module__.startswith(_PACKAGE):
            continue
        for slot in (slots,) if isinstance(slots, str) else slots:
            is_mangled = slot.startswith("__") and not slot.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{slot}" if is_mangled else slot
            if slot not in ("__dict__", "__weakref__") and hasattr(made, name):
                found[name] = getattr(made, name)
    return found


def with_attributes_of(made: T, original: object) -> T:
    """Copy the added attributes of `original` to `made`, and return `made`."""
    for name, value in added_attributes(original).items():
        object.__setattr__(made, name, value)
    return made


def pickled(make: object, arguments: tuple[object, ...], made: object) -> tuple[object, ...]:
    """Return what `__reduce__` should return for an object made by `make(*arguments)`."""
    added = added_attributes(made)
    return (make, arguments, (None, added)) if added else (make, arguments)
