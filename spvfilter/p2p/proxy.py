"""A SOCKS5 proxy (RFC 1928, 1929): its URL, and connections through it.

The proxy resolves the host names of peers. A look-up by this machine would reveal which peers are contacted.
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Self
from urllib.parse import unquote, urlsplit

from spvfilter._public import public
from spvfilter.errors import ParameterError, remedy

_CODE = re.compile(r"Invalid reply code: 0[xX]([0-9A-Fa-f]{1,2})\b")
_VERSION = re.compile(r"Unexpected SOCKS version number: (\d+)")
_TOR_ERRORS = {
    0xF0: "it cannot find the descriptor of this onion service, which may be offline: check the address",
    0xF1: "the descriptor of this onion service is invalid",
    0xF2: "this onion service did not answer at its introduction points: try again later",
    0xF3: "this onion service did not appear at the rendezvous: try again later",
    0xF4: "this onion service requires client authorization, but Tor has no key for it",
    0xF5: "this onion service rejects Tor's client authorization",
    0xF6: "this is not a valid onion address: copy it again",
    0xF7: "the introduction to this onion service took too long: try again later",
}
"""Errors that Tor's SocksPort reports with the ExtendedErrors option (Tor proposal 304)."""
_MAX_CREDENTIAL = 255  # bytes of a user name or a password (RFC 1929)


@public
@dataclass(frozen=True, slots=True)
class Proxy:
    """The address of a SOCKS5 proxy and the credentials for it."""

    host: str
    """Host name or IP address of the proxy."""
    port: int
    """TCP port of the proxy."""
    username: str = field(default="", repr=False)
    """User name for the proxy; empty if it needs none."""
    password: str = field(default="", repr=False)
    """Password for the proxy; empty if it needs none."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Parse a URL of the form socks5://[USER:PASSWORD@]HOST:PORT.

        Raises ParameterError if the URL is not of this form, or if python-socks is not installed. The message does not
        repeat the URL, which may contain a password.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or not url.isprintable() or " " in url or parts.scheme != "socks5":
            raise ParameterError("a proxy must be written as socks5://[USER:PASSWORD@]HOST:PORT")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ParameterError(
                "a proxy must be written as socks5://[USER:PASSWORD@]HOST:PORT, with nothing after the port"
            )
        username, password = unquote(parts.username or ""), unquote(parts.password or "")
        if "@" in parts.netloc and not all(
            word.isascii() and 0 < len(word) <= _MAX_CREDENTIAL for word in (username, password)
        ):
            raise ParameterError(
                f"a proxy's user and password must each be 1 to {_MAX_CREDENTIAL} ASCII characters long"
            )
        if find_spec("python_socks") is None:
            raise ParameterError(f"a proxy needs python-socks; {remedy('socks')}")
        return cls(host, port, username, password)

    def isolated(self, name: str) -> Proxy:
        """Return a copy of this proxy with the user name `name`.

        Tor builds separate circuits for each user name (IsolateSOCKSAuth). If the proxy already has a user name, it is
        returned unchanged.
        """
        return self if self.username else Proxy(self.host, self.port, name, name)

    async def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Connect to a host through the proxy, and return the connected socket.

        Raises OSError if the connection fails, and TimeoutError after `timeout_s` seconds. The message says whether the
        proxy or the peer failed.
        """
        from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError, ProxyType
        from python_socks.async_.asyncio import Proxy as Socks

        socks = Socks(ProxyType.SOCKS5, self.host, self.port, self.username, self.password, rdns=True)
        try:
            return await socks.connect(host, port, timeout=timeout_s)
        except ProxyTimeoutError:
            raise TimeoutError(f"no connection through the proxy within {timeout_s:g} s") from None
        except ProxyConnectionError as error:  # without its errno, which would look like the peer's
            raise ConnectionRefusedError(f"no connection to the proxy {self.host}:{self.port}") from error
        except (ProxyError, OSError, ValueError) as error:  # ValueError: a malformed reply
            raise ConnectionRefusedError(_explained(str(error))) from error


def _explained(said: str) -> str:
    """Return the error message for a reply from the proxy, given python-socks' wording."""
    code, version = _CODE.search(said), _VERSION.search(said)
    if code is not None and (why := _TOR_ERRORS.get(int(code[1], 16))) is not None:
        return f"Tor cannot connect: {why}"
    if version is None:
        return f"the proxy cannot connect: {said}"
    if version[1] == str(ord("H")):  # the first byte of "HTTP/1.1 400 Bad Request"
        return "this is not a SOCKS5 proxy: it answered like HTTP. Use its SOCKS5 port, such as Tor's 9050"
    return "this is not a SOCKS5 proxy: it answered in a different protocol. Use its SOCKS5 port, such as Tor's 9050"
