"""Network groups of addresses, and public addresses: the fast functions agree with `ipaddress`."""

from __future__ import annotations

import ipaddress
from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from light.engine.test_slots import Pool
from spvfilter.light.engine.netgroups import NAMES, dialling_group, is_public, netgroup
from spvfilter.wire.messages.addresses import NetId, PeerAddress

OCTETS = st.sampled_from((0, 1, 2, 88, 99, 255)) | st.integers(0, 255)


def check(packed: bytes) -> None:
    host = ".".join(map(str, packed))
    address = ipaddress.IPv4Address(packed)
    assert host == str(address)
    assert is_public(host, NetId.IPV4) == (address.is_global and not address.is_multicast), host
    assert netgroup(host) == str(ipaddress.ip_network((host, 16), strict=False))
    assert PeerAddress(0, 0, NetId.IPV4, packed, 8333).host == host


@given(st.tuples(st.integers(0, 255), OCTETS, OCTETS, OCTETS).map(bytes))
def test_ipv4_groups_and_public_addresses_agree_with_ipaddress(packed: bytes) -> None:
    check(packed)


@pytest.mark.parametrize("first", range(0, 256, 16))
def test_the_ends_of_each_network_agree_with_ipaddress(first: int) -> None:
    for octet in range(first, first + 16):
        for second in (0, 1, 254, 255):
            for ends in (bytes(2), b"\0\1", b"\xff\xfe", b"\xff\xff"):
                check(bytes((octet, second)) + ends)


def test_the_shortcut_for_public_contains_no_special_network() -> None:
    """The special networks are known to the `ipaddress` module of this interpreter."""
    constants = ipaddress.IPv4Address._constants  # type: ignore[attr-defined]  # no public name
    special = [
        *constants._private_networks,
        constants._public_network,
        constants._multicast_network,
        constants._reserved_network,
    ]
    for network in special:
        for address in (network[0], network[-1]):
            check(address.packed)


PARTS = st.integers(0, 300).map(str) | st.sampled_from(
    ("", "00", "01", "007", "0255", " 1", "1\n", "+1", "-1", "٣", "1_0", "0x1", "²")
)


@given(st.lists(PARTS, min_size=3, max_size=5).map(".".join))
def test_text_is_an_ipv4_address_if_ipaddress_parses_it(text: str) -> None:
    read = None
    with suppress(ValueError):
        read = ipaddress.IPv4Address(text)
    assert netgroup(text) == (NAMES if read is None else str(ipaddress.ip_network((read, 16), strict=False)))
    if read is None:
        with pytest.raises(ValueError, match="does not appear to be"):
            is_public(text, NetId.IPV4)


@given(st.lists(st.sampled_from((0, 1, 0x20, 0x26, 0xFF)) | st.integers(0, 255), min_size=16, max_size=16).map(bytes))
def test_ipv6_groups_agree_with_ipaddress(packed: bytes) -> None:
    address = ipaddress.IPv6Address(packed)
    if not any(address in network for network in WITH_IPV4):
        assert netgroup(str(address)) == str(ipaddress.ip_network((packed, 32), strict=False))


# Core netaddress.cpp, GetLinkedIPv4: mapped, translated (RFC 6145), NAT64 (RFC 6052), 6to4 and Teredo addresses
WITH_IPV4 = tuple(
    map(ipaddress.IPv6Network, ("::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96", "2002::/16", "2001::/32"))
)
# Core test/netbase_tests.cpp, netbase_getgroup
LINKED = {
    "::ffff:1.2.3.4": "1.2.0.0/16",
    "::ffff:0:102:304": "1.2.0.0/16",
    "64:ff9b::102:304": "1.2.0.0/16",
    "2002:102:304:9999:9999:9999:9999:9999": "1.2.0.0/16",
    "2001:0:9999:9999:9999:9999:fefd:fcfb": "1.2.0.0/16",
    "64:ff9b:1::102:304": "64:ff9b::/32",
    "2001:470:abcd:9999:9999:9999:9999:9999": "2001:470::/32",
}


@pytest.mark.parametrize(("host", "group"), LINKED.items())
def test_an_address_with_an_ipv4_address_is_in_its_group(host: str, group: str) -> None:
    assert netgroup(host) == group


def test_names_behind_a_proxy_share_one_network_group() -> None:
    names = ["one.example", "two.example", "Two.Example"]
    assert {netgroup(name) for name in names} == {NAMES}
    assert len({dialling_group(name) for name in names}) == 2
    pool = Pool([f"{name}:1" for name in names[:2]] + ["10.1.0.1:1", "10.1.0.2:1"], 3)
    pool.hosts = {f"{name}:1": name for name in names}
    pool.pass_time(2)
    assert {"one.example:1", "two.example:1"} < pool.there
    assert len({peer.group for peer in pool.ready()}) == 2
