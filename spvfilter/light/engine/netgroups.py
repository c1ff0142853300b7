"""Network groups: ranges of addresses that probably have the same owner. Also checks whether addresses are public."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

from spvfilter.wire.messages.addresses import NetId

NAMES = "names"  # the group of host names
_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(r"\.".join([_OCTET] * 4))  # as `ipaddress` reads it, which takes ten times as long
_MIXED = frozenset(
    map(str, (0, 10, 100, 127, 169, 172, 192, 198, 203, *range(224, 256)))
)  # first octets with addresses that are not public: IANA
_INTERNET = frozenset((NetId.IPV4, NetId.IPV6))
_IPV4_AT_END = tuple(  # first 12 bytes: mapped, NAT64 (RFC 6052), translated (RFC 6145)
    ipaddress.IPv6Address(each).packed[:12] for each in ("::ffff:0:0", "64:ff9b::", "::ffff:0:0:0")
)
_GLOBAL = ipaddress.ip_network("2000::/3")  # assigned part of IPv6's unicast (RFC 4291 § 2.4 and IANA's registry)
# Teredo, 6to4: IPv4 within; documentation
_SPECIAL = tuple(map(ipaddress.ip_network, ("2001::/32", "2002::/16", "3fff::/20")))
_SERVICE_PORTS = frozenset(  # Ports of other services above 1,023 (our choice, after Core's IsBadPort).
    (
        *(
            1433,
            1521,
            1719,
            1720,
            1723,
            2049,
            3306,
            3389,
            3659,
            4045,
            5060,
            5061,
            5432,
            5900,
            6000,
            6379,
            6566,
            6697,
            9200,
        ),
        *(10_080, 11_211, 27_017),
        *range(6_665, 6_670),
    )
)


@lru_cache(maxsize=1 << 15)
def netgroup(host: str) -> str:
    """Return the part of a host's address that probably identifies its owner.

    It is /16 for IPv4 and /32 for IPv6; all onion addresses form one group. An IPv6 address that contains an IPv4
    address counts as that IPv4 address.

    All host names that only a proxy resolves also form one group, because two of them may lead to the same node. The
    rest is as in Core's netgroup.cpp, without its map of autonomous systems.
    """
    if host.endswith(".onion"):
        return "onion"
    if dotted := _IPV4.fullmatch(host):
        return f"{dotted[1]}.{dotted[2]}.0.0/16"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return NAMES
    if address.version == 6:
        linked = _linked_ipv4(address)
        if linked is None:
            return f"{ipaddress.IPv6Address(address.packed[:4] + bytes(12))}/32"
        address = linked
    first, second, _ = str(address).split(".", 2)
    return f"{first}.{second}.0.0/16"


def _linked_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address whose owner also owns an IPv6 address (Core netaddress.cpp, GetLinkedIPv4).

    These are mapped, translated (RFC 6052, RFC 6145), 6to4 (RFC 3964) and Teredo (RFC 4380) addresses.
    """
    raw = address.packed
    if raw[:12] in _IPV4_AT_END:
        return ipaddress.IPv4Address(raw[12:])
    if address.sixtofour is not None:
        return address.sixtofour
    return None if address.teredo is None else address.teredo[1]


def dialling_group(host: str) -> str:
    """Return the dialling group of a host. The client connects to at most one address in each group.

    It is the network group, except for onion addresses and host names. Onion addresses form 16 groups (Core
    netgroup.cpp): they cost nothing, so many of them prove as little as one, but a client that has no other addresses
    needs several. Each host name forms its own group.
    """
    if (group := netgroup(host)) == NAMES:
        return host.lower()
    return f"onion {'abcdefghijklmnopqrstuvwxyz234567'.find(host[0]) // 2}" if host.endswith(".onion") else group


def host_of(address: str) -> str:
    """Return the host of HOST:PORT or [IPV6]:PORT."""
    return address.rpartition(":")[0].strip("[]")


def port_of(address: str) -> str:
    """Return the port of HOST:PORT or [IPV6]:PORT."""
    return address.rpartition(":")[2]


def is_public(host: str, net: int) -> bool:
    """True if an IPv4 or IPv6 address is public and does not embed another address. Onion addresses are public.

    Addresses in all other networks are not: I2P and CJDNS need routers, and Tor v2 no longer exists.
    """
    if net == NetId.TORV3:
        return True
    if net not in _INTERNET:
        return False
    dotted = _IPV4.fullmatch(host)
    if dotted and dotted[1] not in _MIXED:
        return True
    address = ipaddress.ip_address(host)
    if not address.is_global or address.is_multicast:
        return False
    return address.version == 4 or (address in _GLOBAL and not any(address in each for each in _SPECIAL))


def is_sheltered(host: str) -> bool:
    """True if nobody else can read a connection to a host, because it is this machine or an onion service."""
    if host.lower().endswith(".onion"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_service_port(port: int) -> bool:
    """True if a port belongs to another service, or is below 1,024.

    An attacker could announce such addresses to make many clients connect to the service.
    """
    return port < 1_024 or port in _SERVICE_PORTS
