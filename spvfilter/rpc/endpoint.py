"""Where a node's HTTP server is: the URL that a user gives, taken apart."""

from __future__ import annotations

import re

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import ParameterError

_URL = re.compile(r"(?i)(https?)://(?:\[([0-9a-f:.]{2,45})\]|([a-z0-9._-]{1,253}))(?::([0-9]{1,5}))?/?")
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
RPC_PORT = 8332  # Bitcoin Core's on mainnet


def is_url(text: str) -> bool:
    """Whether a text is meant as a URL and not as a path."""
    return _HAS_SCHEME.match(text) is not None


@public
@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a node's HTTP server. It has no user and no password, so that it can be shown."""

    scheme: str
    """Http or https."""
    host: str
    """A name or an address; IPv6 without brackets."""
    port: int = RPC_PORT

    @classmethod
    def parse(cls, url: str) -> Endpoint:
        """From http://HOST:PORT or https://…, IPv6 in brackets; the port is 8332 if it is not given.

        Raises ParameterError, which never repeats the text: there may be a password in it.
        """
        if "@" in url:
            raise ParameterError(
                "a URL with a user or password in it is refused, as URLs are shown: give credentials apart"
            )
        found = _URL.fullmatch(url)
        if found is None:
            raise ParameterError("not a URL of a node: expected http://HOST:PORT or https://HOST:PORT, without a path")
        scheme, v6, name, port = found.groups()
        if not 1 <= int(port or RPC_PORT) <= 65_535:
            raise ParameterError(f"a port is from 1 to 65535: {port}")
        return cls(scheme.lower(), v6 or name, int(port or RPC_PORT))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"
