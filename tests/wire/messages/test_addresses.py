"""Addresses of peers: the published forms of BIP-155, and addresses to ignore."""

from __future__ import annotations

from typing import Any

import pytest

from spvfilter.errors import MessageError
from spvfilter.wire.messages.table import Addr, AddrV2, NetId, PeerAddress, parse_message
from support.vectors import vector_file


def entry(encoded: str) -> bytes:
    """An addrv2 payload of one address; `encoded` starts with the network id."""
    return b"\x01" + bytes(4) + b"\x01" + bytes.fromhex(encoded) + bytes(2)


@pytest.mark.vectors
def test_published_addresses_are_read_shown_and_written() -> None:
    cases = [case for case in vector_file("10_p2p/addrv2.json")["addresses"] if case["valid"]]
    assert len(cases) == 8
    for case in cases:
        message = parse_message("addrv2", entry(case["encoded"]))
        assert isinstance(message, AddrV2)
        (address,) = message.addresses
        assert (address.net, address.address.hex(), address.host) == (
            case["network_id"],
            case["address_bytes"],
            case["address"],
        )
        assert bytes(message) == entry(case["encoded"])


@pytest.mark.vectors
def test_published_bad_addresses_are_refused_or_to_be_ignored() -> None:
    ignored = []
    for case in vector_file("10_p2p/addrv2.json")["addresses"]:
        if case["valid"]:
            continue
        try:
            message = parse_message(
                "addrv2", entry(case["encoded"]) if "truncated" not in case["reason"] else entry(case["encoded"])[:-2]
            )
        except MessageError as error:
            assert error.field in ("address length", "address")
        else:
            assert isinstance(message, AddrV2)
            assert message.addresses[0].host is None
            ignored.append(case["reason"])
    assert ignored == [
        "IPv4 embedded in IPv6: parse but ignore",
        "CJDNS not starting with fc",
    ]  # Core ignores them, too


@pytest.mark.vectors
def test_published_messages_of_addresses_are_read_and_written() -> None:
    for case in vector_file("10_p2p/addrv2.json")["messages"]:
        message: Any = parse_message(case["command"], bytes.fromhex(case["payload"]))
        assert bytes(message).hex() == case["payload"]
        for address, wanted in zip(message.addresses, case["entries"], strict=True):
            assert (address.time, address.services, address.host, address.port) == tuple(
                wanted[name] for name in ("time", "services", "address", "port")
            )
            assert address.net == wanted.get("network_id", NetId.IPV6)


def test_ipv4_in_an_addr_is_ipv4() -> None:
    mapped = bytes(10) + b"\xff\xff" + bytes((192, 0, 2, 1))
    message = parse_message("addr", b"\x01" + bytes(12) + mapped + b"\x20\x8d")
    assert message == Addr((PeerAddress(0, 0, NetId.IPV4, bytes((192, 0, 2, 1)), 8333),))
    assert message.addresses[0].host == "192.0.2.1"
    assert bytes(message)[13:29] == mapped


@pytest.mark.parametrize("prefix", ["fd87d87eeb43", "fd6b88c08724", "00000000000000000000ffff"])
def test_ipv6_that_embeds_another_network_is_ignored(prefix: str) -> None:
    assert PeerAddress(0, 0, NetId.IPV6, bytes.fromhex(prefix).ljust(16, b"\x01"), 1).host is None


def test_an_address_of_the_wrong_size_refuses_the_message() -> None:
    for net in NetId:
        with pytest.raises(
            MessageError, match=rf"addrv2: address length at byte 7: {net.name} addresses are \d+ bytes long, not 3"
        ):
            parse_message("addrv2", entry(f"{net:02x}03010203"))
