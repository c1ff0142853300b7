"""Arguments of requests. Each function checks one argument, and raises an RpcError that says what was expected."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from spvfilter.electrum.rpcerrors import RpcCode, RpcError
from spvfilter.errors import counted
from spvfilter.protocol import MAX_STANDARD_TX_WEIGHT

_HASH = re.compile(r"[0-9a-fA-F]{64}")
_MAX_HEIGHT = (1 << 31) - 1
_MAX_DIGITS = 20
"""Longest number in a string, including spaces (our choice)."""
_MAX_PACKAGE = 25
"""Largest number of transactions in a package (Core MAX_PACKAGE_COUNT)."""


def bound_arguments(
    method: str, given: Sequence[object] | Mapping[str, object], names: Sequence[str], required: int, *, spare: bool
) -> list[object]:
    """Return the arguments of a request in the order of their names. Missing arguments at the end are omitted.

    Args:
        method: Name of the method.
        given: Arguments, in order or by name.
        names: Names of the method's arguments.
        required: Number of arguments that must be given.
        spare: True to ignore extra arguments.

    Raises:
        RpcError: Arguments are missing, or there are too many.
    """
    if isinstance(given, Mapping):
        if (unknown := [name for name in given if name not in names]) and not spare:
            raise RpcError(RpcCode.INVALID_ARGUMENTS, f"{method} takes no argument {unknown[0][:40]!r}")
        found = [name for name in names if name in given]
        if found != list(names[: len(found)]):
            missing = next(name for name in names if name not in given)
            raise RpcError(RpcCode.INVALID_ARGUMENTS, f"{method} needs the argument {missing!r}")
        values = [given[name] for name in found]
    else:
        values = list(given)
    if len(values) < required:
        raise RpcError(RpcCode.INVALID_ARGUMENTS, f"{method} needs {counted(required, 'argument')}, got {len(values)}")
    if len(values) > len(names) and not spare:
        most = counted(len(names), "argument")
        raise RpcError(RpcCode.INVALID_ARGUMENTS, f"{method} takes at most {most}, got {len(values)}")
    return values[: len(names)]


def script_hash(value: object) -> str:
    """Return a script hash in lower case. Raises RpcError if it is malformed."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise RpcError(RpcCode.BAD_REQUEST, "expected a script hash of 64 hex digits")
    return value.lower()


def txid(value: object) -> bytes:
    """Return a txid in wire order. Raises RpcError if it is malformed."""
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise RpcError(RpcCode.BAD_REQUEST, "expected a transaction hash of 64 hex digits")
    return bytes.fromhex(value)[::-1]


def natural(value: object, name: str) -> int:
    """Return a nonnegative number, which may be given as a string, as in ElectrumX.

    Raises RpcError if it is malformed.
    """
    number = value
    if isinstance(value, str) and len(value) <= _MAX_DIGITS:
        with suppress(ValueError):
            number = int(value)
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MAX_HEIGHT:
        raise RpcError(RpcCode.BAD_REQUEST, f"{name} must be a whole number from 0 to {_MAX_HEIGHT}")
    return number


def flag(value: object, name: str) -> bool:
    """Return a boolean, which may be given as 0 or 1, as in ElectrumX. Raises RpcError if it is anything else."""
    if not isinstance(value, (bool, int, float)) or value not in (False, True):
        raise RpcError(RpcCode.BAD_REQUEST, f"{name} must be true or false")
    return bool(value)


def raw_transaction(value: object) -> bytes:
    """Return the bytes of a transaction in hex. Raises RpcError if the hex is malformed or too long."""
    if not isinstance(value, str):
        raise RpcError(RpcCode.BAD_REQUEST, "expected a transaction in hex")
    if len(value) > 2 * MAX_STANDARD_TX_WEIGHT:
        most = f"nodes do not relay transactions of more than {MAX_STANDARD_TX_WEIGHT} weight units"
        raise RpcError(RpcCode.BAD_REQUEST, most)
    try:
        return bytes.fromhex(value)
    except ValueError:
        raise RpcError(RpcCode.BAD_REQUEST, "expected a transaction in hex, two digits for each byte") from None


def package(value: object) -> tuple[bytes, ...]:
    """Return the bytes of a package's transactions.

    Raises RpcError if there are too few or too many, or any of them is malformed.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= _MAX_PACKAGE:
        raise RpcError(RpcCode.BAD_REQUEST, f"expected a list of 1 to {_MAX_PACKAGE} transactions in hex")
    return tuple(map(raw_transaction, value))
