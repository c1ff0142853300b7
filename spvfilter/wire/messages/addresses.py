"""Messages that carry addresses of peers: addr, addrv2 (BIP-155), getaddr."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from spvfilter._public import public
from spvfilter.errors import FormatError, ParameterError
from spvfilter.primitives import compact_size
from spvfilter.protocol import MAX_ADDRESS_SIZE, MAX_ADDRESSES
from spvfilter.wire.messages.control import Empty
from spvfilter.wire.messages.fields import PayloadReader, check_most, check_uint, var_bytes

_ADDR_ENTRY = 4 + 8 + 16 + 2  # bytes of an entry of addr
_LEAST_ENTRY = 4 + 1 + 1 + 1 + 0 + 2  # bytes of an entry of addrv2 with an empty address
ADDR_SIZE = 3 + MAX_ADDRESSES * _ADDR_ENTRY  # bytes of the longest addr payload
ADDRV2_SIZE = 3 + MAX_ADDRESSES * (4 + 9 + 1 + 3 + MAX_ADDRESS_SIZE + 2)  # bytes of the longest addrv2 payload

# Prefixes of IPv6 addresses that encode an address of another network.
_IPV4_MAPPED = bytes(10) + b"\xff\xff"  # IPv4
_ONIONCAT = bytes.fromhex("fd87d87eeb43")  # Tor v2, obsolete
_INTERNAL = bytes.fromhex("fd6b88c08724")  # names inside Core; they are never sent


@public
class NetId(IntEnum):
    """The network of a peer's address, by its number in BIP-155."""

    IPV4 = 1
    """IPv4. An address is 4 bytes long."""
    IPV6 = 2
    """IPv6. An address is 16 bytes long."""
    TORV2 = 3
    """Tor v2, which is obsolete. An address is 10 bytes long."""
    TORV3 = 4
    """Tor v3. An address is a 32-byte public key."""
    I2P = 5
    """I2P. An address is a 32-byte hash."""
    CJDNS = 6
    """CJDNS. An address is 16 bytes long and begins with the byte fc."""


# bytes of an address, by network
_SIZES: dict[int, int] = {
    NetId.IPV4: 4,
    NetId.IPV6: 16,
    NetId.TORV2: 10,
    NetId.TORV3: 32,
    NetId.I2P: 32,
    NetId.CJDNS: 16,
}


@public
@dataclass(frozen=True, slots=True)
class PeerAddress:
    """The address of a node, as the messages addr and addrv2 carry it.

    Raises ParameterError if a value has no encoding, or if the size of an address is wrong for its network.
    """

    time: int
    """Time at which the node was last seen (Unix time) (u32)."""
    services: int
    """Service bits that the node announces (u64)."""
    net: int
    """Network of the address: a NetId, or the number of an unknown network (u8)."""
    address: bytes
    """Bytes of the node's address in the encoding of its network, at most 512."""
    port: int
    """TCP port of the node (u16)."""

    def __post_init__(self) -> None:
        check_uint(self.time, 4, "time")
        check_uint(self.services, 8, "services")
        check_uint(self.net, 1, "network id")
        check_uint(self.port, 2, "port")
        if wrong := _misfit(self.net, len(self.address)):
            raise ParameterError(f"address: {wrong}")

    @property
    def host(self) -> str | None:
        """The address as text, or None if it must be ignored.

        It must be ignored in these cases:

        - Its network is unknown.
        - It is an IPv6 address that encodes an address of another network.
        - It is a CJDNS address that does not begin with fc.
        """
        address = self.address
        match self.net:
            case NetId.IPV4:
                return ".".join(map(str, address))
            case NetId.IPV6 if not address.startswith((_IPV4_MAPPED, _ONIONCAT, _INTERNAL)):
                return str(ipaddress.IPv6Address(address))
            case NetId.CJDNS if address[0] == 0xFC:
                return str(ipaddress.IPv6Address(address))
            case NetId.TORV2:
                return f"{_base32(address)}.onion"
            case NetId.TORV3:
                checksum = hashlib.sha3_256(b".onion checksum" + address + b"\x03").digest()[:2]
                return f"{_base32(address + checksum + bytes((3,)))}.onion"
            case NetId.I2P:
                return f"{_base32(address)}.b32.i2p"
        return None


def _misfit(net: int, size: int) -> str | None:
    """Return why an address of `size` bytes is invalid, or None if it is valid.

    A known network fixes the size; addresses of unknown networks are at most 512 bytes long (BIP-155).
    """
    if size > MAX_ADDRESS_SIZE:
        return f"must be at most {MAX_ADDRESS_SIZE} bytes long, not {size}"
    wanted = _SIZES.get(net)
    return None if wanted in (None, size) else f"{NetId(net).name} addresses are {wanted} bytes long, not {size}"


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode("ascii").lower().rstrip("=")


@public
@dataclass(frozen=True, slots=True)
class Addr:
    """An addr message: addresses of IPv4 and IPv6 nodes, at most 1,000.

    | bytes | field |
    |---|---|
    | 1 or 3 | number of addresses, CompactSize |
    | for each address: 4 | time u32 LE |
    | 8 | services u64 LE |
    | 16 | IPv6 address; the IPv4 address a.b.c.d is ::ffff:a.b.c.d |
    | 2 | port u16 BE |

    In `addresses`, an IPv4 address is 4 bytes long and has the network IPV4.
    """

    addresses: tuple[PeerAddress, ...]
    """The addresses of nodes, at most 1,000, all of the networks IPV4 and IPV6."""

    def __post_init__(self) -> None:
        check_most(self.addresses, MAX_ADDRESSES, "addresses")
        for entry in self.addresses:
            if entry.net not in (NetId.IPV4, NetId.IPV6):
                raise ParameterError(f"an addr message can list only IPv4 and IPv6 addresses, not network {entry.net}")
            if entry.net == NetId.IPV6 and entry.address.startswith(_IPV4_MAPPED):
                raise ParameterError("an IPv4 address must have the network IPV4, not be embedded in IPv6")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of an addr message. Raises FormatError if it is malformed."""
        reader = PayloadReader(payload)
        entries = []
        for _ in range(reader.count("address count", MAX_ADDRESSES, _ADDR_ENTRY)):
            time, services = reader.uint(4, "time"), reader.uint(8, "services")
            address, port = reader.take(16, "address"), int.from_bytes(reader.take(2, "port"), "big")
            mapped = address.startswith(_IPV4_MAPPED)
            net = NetId.IPV4 if mapped else NetId.IPV6
            entries.append(PeerAddress(time, services, net, address[12:] if mapped else address, port))
        reader.finish("addr")
        return cls(tuple(entries))

    def __bytes__(self) -> bytes:
        pieces = [compact_size(len(self.addresses))]
        for entry in self.addresses:
            address = _IPV4_MAPPED + entry.address if entry.net == NetId.IPV4 else entry.address
            pieces += (
                entry.time.to_bytes(4, "little"),
                entry.services.to_bytes(8, "little"),
                address,
                entry.port.to_bytes(2, "big"),
            )
        return b"".join(pieces)


@public
@dataclass(frozen=True, slots=True)
class AddrV2:
    """An addrv2 message: addresses of nodes of any network, at most 1,000 (BIP-155).

    | bytes | field |
    |---|---|
    | 1 or 3 | number of addresses, CompactSize |
    | for each address: 4 | time u32 LE |
    | 1 to 9 | services, a CompactSize number |
    | 1 | network id u8 |
    | 1 or 3 | size of the address, CompactSize, at most 512 |
    | size | address |
    | 2 | port u16 BE |
    """

    addresses: tuple[PeerAddress, ...]
    """The addresses of nodes, at most 1,000."""

    def __post_init__(self) -> None:
        check_most(self.addresses, MAX_ADDRESSES, "addresses")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """Parse the payload of an addrv2 message.

        Raises FormatError if it is malformed. An address whose size is wrong for its network is malformed
        (BIP-155).
        """
        reader = PayloadReader(payload)
        entries = []
        for _ in range(reader.count("address count", MAX_ADDRESSES, _LEAST_ENTRY)):
            time, services, net = reader.uint(4, "time"), reader.number("services"), reader.uint(1, "network id")
            at = reader.at
            address = reader.var_bytes("address", MAX_ADDRESS_SIZE)
            if wrong := _misfit(net, len(address)):
                raise FormatError(wrong, offset=at, field="address length")
            entries.append(PeerAddress(time, services, net, address, int.from_bytes(reader.take(2, "port"), "big")))
        reader.finish("addrv2")
        return cls(tuple(entries))

    def __bytes__(self) -> bytes:
        pieces = [compact_size(len(self.addresses))]
        for entry in self.addresses:
            pieces += entry.time.to_bytes(4, "little"), compact_size(entry.services), bytes((entry.net,))
            pieces += var_bytes(entry.address), entry.port.to_bytes(2, "big")
        return b"".join(pieces)


@public
@dataclass(frozen=True, slots=True)
class GetAddr(Empty):
    """A message that requests addresses of other nodes. A peer answers once per connection. The payload is empty."""
