"""The address of a node's HTTP server, parsed from a URL."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.errors import ParameterError

_URL = re.compile(r"(?i)(https?)://(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::([0-9]{1,5}))?/?")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
RPC_PORT = 8332  # Bitcoin Core's default port for RPC and REST on mainnet


def is_url(text: str) -> bool:
    """Return True if the text begins like a URL rather than a path."""
    return _HAS_SCHEME.match(text) is not None


@public
@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a node's HTTP server, without user name and password, so messages may show it."""

    scheme: str
    """`http` or `https`."""
    host: str
    """A host name or an IP address. IPv6 addresses have no brackets."""
    port: int = RPC_PORT
    """TCP port, 1 to 65535."""

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """Parse a URL such as http://HOST:PORT or https://[IPV6]:PORT. The default port is 8332.

        Raises ParameterError if the text is not such a URL. The message does not repeat the text, which may contain a
        password.
        """
        if "@" in url:
            raise ParameterError(
                "a URL must not contain a user or password, because URLs appear in messages and logs: pass credentials"
                " separately"
            )
        found = _URL.fullmatch(url)
        if found is None:
            raise ParameterError("not a URL of a node: expected http://HOST:PORT or https://HOST:PORT, without a path")
        scheme, v6, name, port = found.groups()
        if not 1 <= int(port or RPC_PORT) <= 65_535:
            raise ParameterError(f"a port must be from 1 to 65535, not {port}")
        return cls(scheme.lower(), v6 or name, int(port or RPC_PORT))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"
