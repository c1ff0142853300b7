"""Versions of the Electrum protocol: their order, and the newest version that a client and this server both speak."""

from __future__ import annotations

import re

from spvfilter.electrum.rpcerrors import RpcCode, RpcError

Version = tuple[int, ...]
"""The numbers of a protocol version, without trailing zeros, such as (1, 4, 2)."""

SPOKEN: tuple[Version, ...] = ((1, 4), (1, 4, 1), (1, 4, 2), (1, 4, 3), (1, 6))
"""The versions that this server speaks. There is no version 1.5."""
OLDEST, NEWEST = SPOKEN[0], SPOKEN[-1]
_TEXT = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")


def version_text(version: Version) -> str:
    """Return a version as text, such as "1.4.2"."""
    return ".".join(map(str, version))


def parse_version(text: object) -> Version:
    """Return the numbers of a version. Raises RpcError unless `text` consists of numbers separated by dots."""
    if not isinstance(text, str) or not _TEXT.fullmatch(text):
        raise RpcError(RpcCode.BAD_REQUEST, "expected a protocol version such as '1.4'", ends_session=True)
    parts = [int(part) for part in text.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def negotiated(requested: object, newest: Version = NEWEST) -> Version:
    """Return the newest version that both the client and this server speak.

    Args:
        requested: The `protocol_version` argument: a version, or a list of the oldest and the newest version.
        newest: Newest version that may be chosen.

    Raises:
        RpcError: The argument is malformed, or there is no common version. The session ends.
    """
    given = requested if isinstance(requested, list) else [requested, requested]
    if len(given) != 2:
        raise RpcError(
            RpcCode.BAD_REQUEST, "expected two protocol versions, the oldest and the newest", ends_session=True
        )
    first, last = map(parse_version, given)
    common = [version for version in SPOKEN if first <= version <= min(last, newest)]
    if not common:
        spoken = f"{version_text(OLDEST)} to {version_text(newest)}"
        raise RpcError(RpcCode.BAD_REQUEST, f"unsupported protocol version: use {spoken}", ends_session=True)
    return common[-1]
