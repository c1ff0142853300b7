"""Network groups: addresses that one party is likely to own as a whole; and which addresses lead to the public network."""

from __future__ import annotations

import ipaddress

from spvfilter.wire.messages.addresses import NetId

_SIX_TO_FOUR = ipaddress.ip_network("2002::/16")  # IPv4 embedded in IPv6 (RFC 3056)
_TEREDO = ipaddress.ip_network("2001::/32")  # the same (RFC 4380)


def netgroup(host: str) -> str:
    """The part of a host's address that one party is likely to own as a whole: /16 of IPv4, /32 of IPv6, all onion addresses together.

    A host name, as a proxy resolves it, is a group of its own (Core netgroup.cpp, without its map of autonomous systems).
    """
    if host.endswith(".onion"):
        return "onion"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    if address.version == 6:
        mapped = address.ipv4_mapped
        if mapped is None:
            return str(ipaddress.ip_network((address, 32), strict=False))
        address = mapped
    first, second, _ = str(address).split(".", 2)
    return f"{first}.{second}.0.0/16"


def dialling_group(host: str) -> str:
    """The group of which at most one address is dialled: the network group, of onion addresses one of 16 (Core netgroup.cpp).

    Onion addresses cost nothing, so all of them prove as little as one; but a client that reaches nothing else needs several.
    """
    return f"onion {'abcdefghijklmnopqrstuvwxyz234567'.find(host[0]) // 2}" if host.endswith(".onion") else netgroup(host)


def host_of(address: str) -> str:
    """The host of HOST:PORT or [IPV6]:PORT."""
    return address.rpartition(":")[0].strip("[]")


def port_of(address: str) -> str:
    """The port of HOST:PORT or [IPV6]:PORT."""
    return address.rpartition(":")[2]


def is_public(host: str, net: int) -> bool:
    """Whether an IPv4 or IPv6 address is of the public internet and not a way to embed another address; an onion address is public.

    All other networks are refused: I2P and CJDNS need routers that we have not, Tor's second version is gone.
    """
    if net == NetId.TORV3:
        return True
    if net not in (NetId.IPV4, NetId.IPV6):
        return False
    address = ipaddress.ip_address(host)
    if not address.is_global or address.is_multicast:
        return False
    return address.version == 4 or (address not in _SIX_TO_FOUR and address not in _TEREDO)
