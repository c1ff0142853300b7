"""Entries of a watch list that match many outputs, but only when blocks are scanned."""

from __future__ import annotations

from spvfilter.errors import ParameterError
from spvfilter.kernel import ScriptType

DATA_PREFIX, SCRIPT_TYPE = "data-prefix:", "script-type:"
"""How the lines of such entries start in a watch list."""
KINDS = f"{DATA_PREFIX} and {SCRIPT_TYPE} entries"
_TYPES = {each.name.lower(): each for each in ScriptType}


def is_pattern(entry: str) -> bool:
    """Return True if a line of a watch list contains a data prefix or a script type."""
    return entry.startswith((DATA_PREFIX, SCRIPT_TYPE))


def script_type(name: str) -> ScriptType:
    """Return the type of script with this name. Raises ParameterError for an unknown name."""
    if name not in _TYPES:
        raise ParameterError(f"unknown script type: expected one of {', '.join(_TYPES)}")
    return _TYPES[name]


def type_line(value: bytes) -> str:
    """Return the watch list line of a script type, given its entry in the table."""
    return f"{SCRIPT_TYPE}{ScriptType(value[0]).name.lower()}"
