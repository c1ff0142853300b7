"""Credentials for a node's JSON-RPC: a cookie file, or a user and a password. Messages never show them."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Protocol

from spvfilter._public import public
from spvfilter.errors import NodeRefusedError, ParameterError

_LONGEST = 1_024  # longest `user:password` in bytes (our choice)


@public
class Credentials(Protocol):
    """A source of a node's user name and password."""

    def secret(self) -> str:
        """Return the current `user:password`. Raises NodeRefusedError if there is none."""


@public
class Password:
    """A user name and a password, as in the node's rpcuser and rpcpassword options, or rpcauth.

    Raises ParameterError if the user name is empty or contains a colon, or if the two exceed 1,024 bytes in total.
    """

    def __init__(self, user: str, password: str) -> None:
        if not user or ":" in user:
            raise ParameterError("a user name must not be empty or contain a colon")
        self._secret = f"{user}:{password}"
        if len(self._secret.encode()) > _LONGEST:
            raise ParameterError(f"a user name and password must be at most {_LONGEST} bytes long in total")

    def secret(self) -> str:
        """Return `user:password`."""
        return self._secret

    def __repr__(self) -> str:
        return "Password(…)"


@public
class CookieFile:
    """The `.cookie` file in Bitcoin Core's data directory, which Core writes each time it starts.

    It is read again each time it is needed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(path)

    def secret(self) -> str:
        """Read the cookie file and return `user:password`.

        Raises NodeRefusedError if the file is missing or is not a cookie file.
        """
        try:
            with self.path.open("rb") as file:
                raw = file.read(_LONGEST + 1)
        except OSError as error:
            raise NodeRefusedError(
                f"{self.path}: {error.strerror or error}: is the node running, and is this its cookie file?"
            ) from None
        text = raw.rstrip(b"\r\n")
        if len(raw) > _LONGEST or b":" not in text or not text.isascii() or not text.decode("ascii").isprintable():
            raise NodeRefusedError(
                f"{self.path}: this is not a cookie file, which contains a single line USER:PASSWORD"
            )
        return text.decode("ascii")

    def __repr__(self) -> str:
        return f"CookieFile({str(self.path)!r})"


def basic(secret: str) -> str:
    """Return the value of the HTTP Authorization header for `user:password` (RFC 7617)."""
    return f"Basic {base64.b64encode(secret.encode()).decode('ascii')}"


def redacted(text: str, secret: str | None) -> str:
    """Return text from the node without the secret, which the node may have repeated."""
    if not secret:
        return text
    user, _, password = secret.partition(":")
    for part in (secret, basic(secret).partition(" ")[2], password, user):
        if len(part) > 3:  # a shorter part is not secret, and may occur in any text
            text = text.replace(part, "…")
    return text
