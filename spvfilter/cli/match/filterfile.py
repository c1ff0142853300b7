"""The filter of `spvfilter match --filter`: a filterload payload or message in hex, in JSON, or as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spvfilter.cli.arguments import standard_input
from spvfilter.errors import FormatError, ParameterError, PeerError, counted
from spvfilter.filters.bip37 import Bip37Filter

_STDIN = "-"
_MOST = 200_000
"""Largest file in bytes (our choice): a filter is at most 36,000 bytes long, and its JSON contains twice as many
digits.
"""
_TEXT = frozenset(range(32, 127)) | frozenset(b"\t\r\n")
_HEX = frozenset(b"0123456789abcdefABCDEF \t\r\n")


def read(what: str, files: Sequence[str]) -> Bip37Filter:
    """Return the filter in an argument, in a file, or on standard input. No error repeats the argument.

    Args:
        what: Hex digits, a path, or `-` for standard input.
        files: Paths that the command itself reads.

    Raises:
        ParameterError: The argument or its file is not a filter, or standard input would be read twice.
        OSError: The file cannot be read.
    """
    if what == _STDIN and _STDIN in files:
        raise ParameterError("'-' is standard input: --filter and a SOURCE cannot both be '-'")
    data = _data(what)
    if not data.strip():
        raise ParameterError("--filter: the input is empty")
    if len(data) > _MOST:
        raise ParameterError(f"--filter: the input is longer than {_MOST:,} bytes, so it is not a filterload")
    try:
        return Bip37Filter.parse(data.decode("ascii").strip() if _TEXT.issuperset(data) else data)
    except (FormatError, PeerError) as error:
        raise ParameterError(f"--filter is not a filterload: {error}") from None


def _data(what: str) -> bytes:
    if what == _STDIN:
        return standard_input().read(_MOST + 1)
    try:
        is_file = what != "" and Path(what).exists()
    except (OSError, ValueError):  # too long for a file name, or invalid as one
        is_file = False
    if is_file:
        with Path(what).open("rb") as file:
            return file.read(_MOST + 1)
    data = what.encode("utf-8", "replace")
    if not _HEX.issuperset(data):
        raise ParameterError(
            f"--filter: the argument, {counted(len(what), 'character')}, is neither an existing file nor hex digits"
        )
    return data
