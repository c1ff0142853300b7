"""Address: a peer's host and port."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass

from spvfilter._public import public
from spvfilter.errors import ParameterError


@public
@dataclass(frozen=True, slots=True)
class Address:
    """A peer's host and port.

    Raises ParameterError if the host is empty, or if the port is not from 1 to 65535.
    """

    host: str
    """Host of the peer: a host name, an IPv4 address, or an IPv6 address without brackets."""
    port: int
    """TCP port of the peer, 1 to 65535."""

    def __post_init__(self) -> None:
        if not self.host or not 0 < self.port < 65536:
            raise ParameterError(f"a peer's address must be a host and a port from 1 to 65535, not {str(self)[:80]!r}")

    @classmethod
    def parse(cls, text: str, default_port: int) -> Address:
        """Parse an address such as `node.example:8333`, `1.2.3.4`, `::1` or `[::1]:8333`.

        Args:
            text: HOST, HOST:PORT, IPV6 or [IPV6]:PORT. Spaces around it are ignored.
            default_port: Port of the result if the text contains no port.

        Raises:
            ParameterError: The text is not an address.
            TypeError: `text` is not a str.
        """
        if not isinstance(text, str):
            raise TypeError(f"a peer's address must be a str such as 'HOST:PORT', not {type(text).__name__}")
        host, port = text.strip(), str(default_port)
        if host.startswith("["):
            host, bracket, rest = host[1:].partition("]")
            if not bracket or (rest and not rest.startswith(":")):
                raise ParameterError(f"an address must be HOST:PORT or [IPV6]:PORT, not {text[:80]!r}")
            port = rest[1:] or port
        elif host.count(":") == 1:
            host, _, port = host.partition(":")
        if not port.isascii() or not port.isdigit() or len(port) > 5:
            raise ParameterError(f"a port must be a number from 1 to 65535, not {port[:20]!r}")
        if not (is_ip(host) or _is_name(host)):
            raise ParameterError(f"a host must be a name or an IP address, not {host[:80]!r}")
        return cls(host, int(port))

    @property
    def is_onion(self) -> bool:
        """True if the host is an onion service: only Tor reaches it, and resolvers are never asked (RFC 7686 § 2)."""
        return self.host.lower().endswith(".onion")

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def needed_proxy(host: str) -> str | None:
    """Say which proxy a host needs. Returns None if it does not need one."""
    name = host.lower().rstrip(".")
    if name.endswith(".onion"):
        return "an onion address can be reached only through Tor: name Tor's proxy, such as socks5://127.0.0.1:9050"
    if name.endswith(".i2p"):
        return (
            "an I2P address can be reached only through I2P: name its router's proxy, such as socks5://127.0.0.1:4447"
        )
    return None


def is_ip(host: str) -> bool:
    """Return True if `host` is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_name(host: str) -> bool:
    """Return True if resolvers and proxies can encode the name (RFC 1035 § 2.3.4)."""
    if not all(part and part.replace("-", "").replace("_", "").isalnum() for part in host.split(".")):
        return False
    try:
        return len(host.encode("idna")) <= 253
    except UnicodeError:
        return False


def cause_of(error: Exception, address: str) -> str:
    """Say why a connection failed or ended, without the peer's address (HOST:PORT)."""
    said = str(error).removeprefix(f"{address}: ")
    if isinstance(error, OSError):
        # asyncio's own words repeat the address
        numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", said)}
        if len(numbers) == 1:
            return os.strerror(numbers.pop()).lower()
        said = error.strerror or said
    return said or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
