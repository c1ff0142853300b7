"""Versions of the Electrum protocol: their order, and the version that a client and this server have in common."""

from __future__ import annotations

import re

from spvfilter.electrum.rpcerrors import RpcCode, RpcError

Version = tuple[int, ...]
"""Numbers of a protocol version, without zeros at the end, such as (1, 4, 2)."""

OLDEST: Version = (1, 4)
"""Oldest version that this server speaks."""
NEWEST: Version = (1, 6)
"""Newest version that this server speaks."""
_UNDEFINED: Version = (1, 5)
"""No protocol of this version exists."""
_LAST_BEFORE: Version = (1, 4, 3)
"""Last version before the undefined one."""
_TEXT = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")


def version_text(version: Version) -> str:
    """Return a version as text, such as "1.4.2"."""
    return ".".join(map(str, version))


def parse_version(text: object) -> Version:
    """Return the numbers of a version. Raises RpcError for anything but numbers with dots between them."""
    if not isinstance(text, str) or not _TEXT.fullmatch(text):
        raise RpcError(RpcCode.BAD_REQUEST, "expected a protocol version such as '1.4'", ends_session=True)
    parts = [int(part) for part in text.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def negotiated(requested: object, newest: Version = NEWEST) -> Version:
    """Return the newest version that the client and this server speak.

    Args:
        requested: The argument `protocol_version`: a version, or a list of the oldest and the newest one.
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
    found = min(last, newest)
    if _UNDEFINED <= found < NEWEST:
        found = _LAST_BEFORE
    if found < max(first, OLDEST):
        spoken = f"{version_text(OLDEST)} to {version_text(newest)}"
        raise RpcError(RpcCode.BAD_REQUEST, f"unsupported protocol version: use {spoken}", ends_session=True)
    return found
