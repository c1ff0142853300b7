"""What a node's JSON-RPC wants to know of its user: a cookie file, or a user and a password.

None of them is ever shown.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import NodeRefusedError, ParameterError

_LONGEST = 1_024  # bytes of "user:password"


@public
class Credentials(Protocol):
    """Gives the user and password of a node, each time anew."""

    def secret(self) -> str:
        """`user:password`. Raises NodeRefusedError if there are none."""


@public
class Password:
    """A user and a password, as rpcuser and rpcpassword or rpcauth name them.

    Raises ParameterError for an empty user, a user with a colon, and more than 1,024 bytes.
    """

    def __init__(self, user: str, password: str) -> None:
        if not user or ":" in user:
            raise ParameterError("a user is not empty and has no colon")
        self._secret = f"{user}:{password}"
        if len(self._secret.encode()) > _LONGEST:
            raise ParameterError(f"a user and password have at most {_LONGEST} bytes")

    def secret(self) -> str:
        """`user:password`."""
        return self._secret

    def __repr__(self) -> str:
        return "Password(…)"


@public
class CookieFile:
    """The .cookie that Bitcoin Core writes at each start, in its data directory.

    It is read again whenever it is needed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def secret(self) -> str:
        """What the file says now. Raises NodeRefusedError if there is none, or another file."""
        try:
            with self.path.open("rb") as file:
                raw = file.read(_LONGEST + 1)
        except OSError as error:
            raise NodeRefusedError(
                f"{self.path}: {error.strerror or error}: is the node running, and is this its cookie file?"
            ) from None
        text = raw.rstrip(b"\r\n")
        if len(raw) > _LONGEST or b":" not in text or not text.isascii() or not text.decode("ascii").isprintable():
            raise NodeRefusedError(f"{self.path}: not a cookie file, which has one line USER:PASSWORD")
        return text.decode("ascii")

    def __repr__(self) -> str:
        return f"CookieFile({str(self.path)!r})"


def basic(secret: str) -> str:
    """The value of the header Authorization (RFC 7617)."""
    return f"Basic {base64.b64encode(secret.encode()).decode('ascii')}"


def redacted(text: str, secret: str | None) -> str:
    """A text of the node without the secret, which it could repeat."""
    if not secret:
        return text
    user, _, password = secret.partition(":")
    for part in (secret, basic(secret).partition(" ")[2], password, user):
        if len(part) > 3:  # a shorter one is no secret, and is in any text
            text = text.replace(part, "…")
    return text
