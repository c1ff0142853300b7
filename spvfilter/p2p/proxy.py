"""A SOCKS5 proxy (RFC 1928, 1929): its URL read, connections made through it. What is said on them is not its business.

Names of peers are resolved at the proxy and nowhere else: a look-up of our own would tell who is asked for.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Self
from urllib.parse import unquote, urlsplit

from spvfilter._public import public
from spvfilter.errors import ParameterError

_MAX_CREDENTIAL = 255  # bytes of a user's name or password, RFC 1929


@public
@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a SOCKS5 proxy listens, and who we are to it."""

    host: str
    port: int
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str) -> Self:
        """From socks5://[USER:PASSWORD@]HOST:PORT. Raises ParameterError, which does not repeat it: there may be a password in it."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port or not url.isprintable() or " " in url or parts.scheme != "socks5":
            raise ParameterError("socks5://[USER:PASSWORD@]HOST:PORT expected for a proxy")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ParameterError("socks5://[USER:PASSWORD@]HOST:PORT expected for a proxy, with nothing behind the port")
        username, password = unquote(parts.username or ""), unquote(parts.password or "")
        if "@" in parts.netloc and not all(word.isascii() and 0 < len(word) <= _MAX_CREDENTIAL for word in (username, password)):
            raise ParameterError(f"a proxy's user and password are both of 1 to {_MAX_CREDENTIAL} ASCII characters")
        if find_spec("python_socks") is None:
            raise ParameterError("a proxy needs python-socks: pip install 'spvfilter[socks]'")
        return cls(host, port, username, password)

    async def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """A connected socket. Raises OSError, TimeoutError, which tell whether proxy or peer is at fault."""
        from python_socks import ProxyConnectionError, ProxyError, ProxyTimeoutError, ProxyType
        from python_socks.async_.asyncio import Proxy as Socks

        socks = Socks(ProxyType.SOCKS5, self.host, self.port, self.username, self.password, rdns=True)
        try:
            return await socks.connect(host, port, timeout=timeout_s)
        except ProxyTimeoutError:
            raise TimeoutError(f"no connection through the proxy within {timeout_s:g} s") from None
        except ProxyConnectionError as error:  # not by its number, which would be taken for the peer's
            raise ConnectionRefusedError(f"no connection to the proxy {self.host}:{self.port}") from error
        except (ProxyError, OSError, ValueError) as error:  # ValueError: a reply that is no text where it should be
            raise ConnectionRefusedError(f"the proxy does not connect: {error}") from error
