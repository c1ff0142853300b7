"""Messages that carry addresses of peers: addr, addrv2 (BIP-155), getaddr."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from enum import IntEnum
from typing import Self

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.errors import FormatError, ParameterError
from spvfilter.primitives import compact_size
from spvfilter.protocol import MAX_ADDRESS_SIZE, MAX_ADDRESSES
from spvfilter.wire.messages.control import Empty
from spvfilter.wire.messages.fields import PayloadReader, check_most, check_uint, var_bytes

_ADDR_ENTRY = 4 + 8 + 16 + 2  # bytes
_LEAST_ENTRY = 4 + 1 + 1 + 1 + 0 + 2  # bytes of an addrv2 entry whose address is empty
ADDR_SIZE = 3 + MAX_ADDRESSES * _ADDR_ENTRY  # bytes
ADDRV2_SIZE = 3 + MAX_ADDRESSES * (4 + 9 + 1 + 3 + MAX_ADDRESS_SIZE + 2)  # bytes
_IPV4_MAPPED = bytes(10) + b"\xff\xff"
_ONIONCAT = bytes.fromhex("fd87d87eeb43")  # Tor v2 addresses embedded in IPv6, obsolete like Tor v2
_INTERNAL = bytes.fromhex("fd6b88c08724")  # Core's internal names embedded in IPv6, never on the wire


@public
class NetId(IntEnum):
    """The address networks of BIP-155."""

    IPV4 = 1
    IPV6 = 2
    TORV2 = 3
    TORV3 = 4
    I2P = 5
    CJDNS = 6


# bytes
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
    """The address of a node, the time when it was last seen, and its services.

    `net` is a NetId or an unknown network.
    """

    time: int
    """Seconds since 1970."""
    services: int
    net: int
    address: bytes
    port: int

    def __post_init__(self) -> None:
        check_uint(self.time, 4, "time")
        check_uint(self.services, 8, "services")
        check_uint(self.net, 1, "network id")
        check_uint(self.port, 2, "port")
        if wrong := _misfit(self.net, len(self.address)):
            raise ParameterError(f"address: {wrong}")

    @property
    def host(self) -> str | None:
        """The address as text; None for one to ignore: of an unknown network, or embedded in IPv6 although it has a
        network of its own.
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
    """What is wrong with an address of `size` bytes, if anything (BIP-155: a known network fixes the size, others have
    at most 512).
    """
    if size > MAX_ADDRESS_SIZE:
        return f"{size} bytes, at most {MAX_ADDRESS_SIZE}"
    wanted = _SIZES.get(net)
    return None if wanted in (None, size) else f"{size} bytes, {NetId(net).name} has {wanted}"


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode("ascii").lower().rstrip("=")


@public
@dataclass(frozen=True, slots=True)
class Addr:
    """IPv4 and IPv6 addresses, at most 1,000:

    CompactSize, then for each time u32, services u64, address (16 bytes), port u16 BE.

    On the wire an IPv4 address is ::ffff:a.b.c.d; here its `net` is IPV4.
    """

    addresses: tuple[PeerAddress, ...]

    def __post_init__(self) -> None:
        check_most(self.addresses, MAX_ADDRESSES, "addresses")
        for entry in self.addresses:
            if entry.net not in (NetId.IPV4, NetId.IPV6):
                raise ParameterError(f"an addr message holds IPv4 and IPv6 addresses, not those of network {entry.net}")
            if entry.net == NetId.IPV6 and entry.address.startswith(_IPV4_MAPPED):
                raise ParameterError("an IPv4 address must have network IPV4, not be embedded in IPv6")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The message in its payload. Raises FormatError."""
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
    """Addresses of any network, at most 1,000 (BIP-155).

    CompactSize, then for each time u32, services as a CompactSize number, network id u8, CompactSize and address, port
    u16 BE.
    """

    addresses: tuple[PeerAddress, ...]

    def __post_init__(self) -> None:
        check_most(self.addresses, MAX_ADDRESSES, "addresses")

    @classmethod
    def parse(cls, payload: bytes) -> Self:
        """The addresses in a payload.

        Raises FormatError, also for an address whose size is wrong for its network, as BIP-155 demands.
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
    """Requests addresses of other peers; answered once per connection."""
