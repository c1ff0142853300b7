"""Parse JSON within limits, and access its fields."""

from __future__ import annotations

import json

from spvfilter.errors import ParameterError

MAX_VALUES = 2_000_000
"""Largest number of values in a JSON file (our choice). It limits the memory that parsing takes."""
JsonObject = dict[str, object]
"""A JSON object."""


def parse_json(text: str) -> object:
    """Parse JSON and return its value.

    Raises ParameterError if the text is not JSON, contains too many values or is nested too deeply. The message never
    repeats the text, which may be a secret.
    """
    if text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        raise ParameterError(
            f"this JSON file contains more than {MAX_VALUES:,} values: export only the wallet's descriptors"
        )
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ParameterError(
            f"this looks like JSON, but it is damaged at line {error.lineno}, character {error.colno}: export it again"
        ) from None
    except (ValueError, RecursionError):
        raise ParameterError(
            "this looks like JSON, but it is nested too deeply or contains an invalid number: export it again"
        ) from None


def _refuse_constant(name: str) -> object:
    raise ValueError(name)


def field_of(data: JsonObject, *names: str) -> object:
    """Return the value of the first of these fields that is present and not null, or None if there is none."""
    return next((data[name] for name in names if data.get(name) is not None), None)


def text_of(data: JsonObject, name: str, where: str) -> str:
    """Return a field that must be text. `where` names the object in the error message.

    Raises ParameterError if the field is missing or not text.
    """
    value = data.get(name)
    if not isinstance(value, str):
        found = "is missing" if value is None else "is not text"
        raise ParameterError(f"the field {name} of {where} {found}: export the file again")
    return value


def count_of(value: object) -> int | None:
    """Return a JSON value as a whole number from 0 to 2^32 - 1, even if it is quoted, or None for any other value."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
    return value if is_count and isinstance(value, int) else None


def is_object(value: object) -> bool:
    """Return True if a JSON value is an object."""
    return isinstance(value, dict)
