"""Counts and lengths at and beyond their limits, and limits of the constructors.

A claimed length alone must not make the parser allocate memory.
"""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from typing import Any, SupportsBytes

import pytest

from spvfilter.errors import MessageError, ParameterError
from spvfilter.protocol import BASIC_M, BASIC_P
from spvfilter.wire.messages.filters import MAX_CFILTER_SIZE
from spvfilter.wire.messages.table import (
    LIMITS,
    Addr,
    AddrV2,
    Block,
    CFCheckpt,
    CFHeaders,
    CFilter,
    FeeFilter,
    FilterAdd,
    FilterLoad,
    GetBlocks,
    GetCFCheckpt,
    GetCFHeaders,
    GetCFilters,
    GetHeaders,
    Headers,
    Inv,
    InvItem,
    InvType,
    NetId,
    PeerAddress,
    Ping,
    Reject,
    SendCmpct,
    Version,
    parse_message,
)
from support.blocks.build import var_int
from support.samples import H1, H2, PLACES, SAMPLES

HEAD = bytes(4 + 8 + 8 + 26 + 26 + 8)  # the fields of a version before its user agent
# For each count or length: the bytes before it, its maximum, one item, and the bytes after it.
COUNTS: dict[str, tuple[str, bytes, int, bytes, bytes]] = {
    "user agent": ("version", HEAD, 256, b"x", bytes(5)),
    "reject message": ("reject", b"", 12, b"x", b"\x10\x00"),
    "reject reason": ("reject", b"\x02tx\x10", 1_000, b"x", b""),
    "addr": ("addr", b"", 1_000, bytes(30), b""),
    "addrv2": ("addrv2", b"", 1_000, bytes(4) + b"\x01\x07\x00" + bytes(2), b""),
    "addrv2 address": ("addrv2", b"\x01" + bytes(4) + b"\x01\x07", 512, b"x", bytes(2)),
    "getheaders": ("getheaders", bytes(4), 101, H1, H2),
    "getblocks": ("getblocks", bytes(4), 101, H1, H2),
    "headers": ("headers", b"", 2_000, bytes(81), b""),
    "inv": ("inv", b"", 50_000, bytes(36), b""),
    "getdata": ("getdata", b"", 50_000, bytes(36), b""),
    "notfound": ("notfound", b"", 50_000, bytes(36), b""),
    "merkleblock hashes": ("merkleblock", bytes(84), 16_666, H1, b"\0"),
    "merkleblock flags": ("merkleblock", bytes(85), 4_168, b"x", b""),
    "filterload": ("filterload", b"", 36_000, b"x", bytes(9)),
    "filteradd": ("filteradd", b"", 520, b"x", b""),
    "cfilter": ("cfilter", bytes(33), 250_000, b"x", b""),
    "cfheaders": ("cfheaders", bytes(65), 2_000, H1, b""),
    "cfcheckpt": ("cfcheckpt", bytes(33), 20_000, H1, b""),
}
CLAIMS = {"transactions": ("block", bytes(80)), "inputs": ("tx", bytes(4)), "marker": ("tx", bytes(4) + b"\x00\x01")}
CLAIMS |= {name: (command, before) for name, (command, before, *_) in COUNTS.items()}


@pytest.mark.parametrize("case", COUNTS.values(), ids=COUNTS)
def test_a_count_at_its_limit_is_accepted(case: tuple[str, bytes, int, bytes, bytes]) -> None:
    command, before, most, item, behind = case
    payload = before + var_int(most) + item * most + behind
    assert bytes(parse_message(command, payload)) == payload
    assert len(payload) <= LIMITS[command]
    with pytest.raises(MessageError, match=f"must be at most {most}, not {most + 1}") as caught:
        parse_message(command, before + var_int(most + 1) + item * (most + 1) + behind)
    assert caught.value.offset == len(before)


@pytest.mark.parametrize("case", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("claimed", [1 << 25, (1 << 32) - 1, (1 << 64) - 1])
def test_a_huge_count_is_refused_without_memory(case: tuple[str, bytes], claimed: int) -> None:
    command, before = case
    payload = before + var_int(claimed) + bytes(64)
    tracemalloc.start()
    try:
        with pytest.raises(MessageError) as caught:
            parse_message(command, payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert caught.value.offset == len(before)


@pytest.mark.parametrize("case", CLAIMS.values(), ids=CLAIMS)
@pytest.mark.parametrize("padded", [b"\xfd\x01\x00", b"\xfe\x01\x00\x00\x00", b"\xff\x01" + bytes(7)])
def test_a_count_in_a_longer_form_is_refused(case: tuple[str, bytes], padded: bytes) -> None:
    command, before = case
    with pytest.raises(MessageError, match="non-canonical"):
        parse_message(command, before + padded + bytes(200))


def test_services_of_an_addrv2_are_a_number() -> None:
    numbers = (0, 252, 253, (1 << 16) - 1, 1 << 16, (1 << 32) - 1, 1 << 32, (1 << 64) - 1)
    entries = tuple(PeerAddress(0, number, NetId.IPV4, bytes(4), 1) for number in numbers)
    assert parse_message("addrv2", bytes(AddrV2(entries))) == AddrV2(entries)
    with pytest.raises(MessageError, match="services at byte 5: non-canonical CompactSize for 252"):
        parse_message("addrv2", b"\x01" + bytes(4) + b"\xfd\xfc\x00" + b"\x01\x04" + bytes(6))


def test_the_largest_addrv2_has_the_size_of_its_limit() -> None:
    entry = PeerAddress(0, (1 << 64) - 1, 0xAA, bytes(512), 1)
    payload = bytes(AddrV2((entry,) * 1_000))
    assert bytes(parse_message("addrv2", payload)) == payload
    assert len(payload) == LIMITS["addrv2"]


def test_more_than_50_hash_functions_are_refused_at_once() -> None:
    assert parse_message("filterload", b"\x01\xff\x32\x00\x00\x00" + bytes(5)) == FilterLoad(b"\xff", 50, 0, 0)
    for wrong in (51, (1 << 32) - 1):
        with pytest.raises(MessageError, match=f"hash_funcs at byte 2: must be at most 50, not {wrong}"):
            parse_message("filterload", b"\x01\xff" + wrong.to_bytes(4, "little") + bytes(5))


def test_unknown_flags_of_a_filter_are_kept() -> None:
    raw = b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff"
    assert parse_message("filterload", raw) == FilterLoad(b"", 0, 0, 0xFF)


def test_headers_have_no_transactions() -> None:
    payload = bytearray(bytes(SAMPLES["headers"]))
    payload[1 + 81 + 80] = 1
    with pytest.raises(MessageError, match="transaction count at byte 162: must be 0, not 1"):
        parse_message("headers", bytes(payload))


def test_an_announcement_of_compact_blocks_is_a_boolean() -> None:
    with pytest.raises(MessageError, match="announce at byte 0: must be 0 or 1, not 2"):
        parse_message("sendcmpct", b"\x02" + bytes(8))


def test_a_block_without_transactions_is_refused() -> None:
    with pytest.raises(MessageError, match="transaction count at byte 80: a block must contain at least its coinbase"):
        parse_message("block", bytes(81 + 60))


WRONG: dict[str, tuple[Callable[..., SupportsBytes], tuple[Any, ...], str]] = {
    "protocol version": (Version, (1 << 31, 0, 0, 0, b"", 0), "version must be from -2^31 to 2^31 - 1, not 2147483648"),
    "services": (Version, (1, -1, 0, 0, b"", 0), "services must be from 0 to 2^64 - 1, not -1"),
    "timestamp": (Version, (1, 0, 1 << 63, 0, b"", 0), "timestamp must be from -2^63 to 2^63 - 1"),
    "nonce": (Version, (1, 0, 0, 1 << 64, b"", 0), "nonce must be from 0 to 2^64 - 1"),
    "user agent": (Version, (1, 0, 0, 0, b"x" * 257, 0), "user agent: the length must be at most 256, not 257"),
    "start height": (Version, (1, 0, 0, 0, b"", -(1 << 31) - 1), "start height must be from -2^31 to 2^31 - 1"),
    "receiver": (Version, (1, 0, 0, 0, b"", 0, True, b""), "receiver must be 26 bytes long, not 0"),
    "sender": (Version, (1, 0, 0, 0, b"", 0, True, bytes(26), bytes(27)), "sender must be 26 bytes long, not 27"),
    "compact": (SendCmpct, (True, -1), "version must be from 0 to 2^64 - 1"),
    "fee": (FeeFilter, (1 << 63,), "feerate must be from -2^63 to 2^63 - 1"),
    "ping": (Ping, (-1,), "nonce must be from 0 to 2^64 - 1, not -1"),
    "refused": (Reject, (b"x" * 13, 1, b""), "message: the length must be at most 12"),
    "code": (Reject, (b"", 256, b""), "code must be from 0 to 2^8 - 1, not 256"),
    "reason": (Reject, (b"", 1, b"x" * 1_001), "reason: the length must be at most 1000"),
    "data": (Reject, (b"", 1, b"", b"x"), "data must be 0 or 32 bytes long, not 1"),
    "addresses": (Addr, (PLACES * 501,), "addresses: the length must be at most 1000, not 1002"),
    "new addresses": (AddrV2, (PLACES * 501,), "addresses: the length must be at most 1000, not 1002"),
    "onion in addr": (
        Addr,
        ((PeerAddress(0, 0, NetId.TORV3, H1, 1),),),
        "list only IPv4 and IPv6 addresses, not network 4",
    ),
    "mapped": (Addr, ((PeerAddress(0, 0, NetId.IPV6, bytes(10) + b"\xff\xff1234", 1),),), "must have the network IPV4"),
    # each is a bad value, and refused
    "address": (PeerAddress, (0, 0, NetId.IPV4, b"123", 1), "address: IPV4 addresses are 4 bytes long, not 3"),  # type: ignore[dict-item]
    # each is a bad value, and refused
    "unknown address": (PeerAddress, (0, 0, 99, bytes(513), 1), "address: must be at most 512 bytes long, not 513"),  # type: ignore[dict-item]
    # each is a bad value, and refused
    "time": (PeerAddress, (1 << 32, 0, 1, bytes(4), 1), "time must be from 0 to 2^32 - 1"),  # type: ignore[dict-item]
    # each is a bad value, and refused
    "network": (PeerAddress, (0, 0, 256, bytes(4), 1), "network id must be from 0 to 2^8 - 1"),  # type: ignore[dict-item]
    # each is a bad value, and refused
    "port": (PeerAddress, (0, 0, 1, bytes(4), 65536), "port must be from 0 to 2^16 - 1, not 65536"),  # type: ignore[dict-item]
    "locator": (GetHeaders, ((H1,) * 102,), "locator: the length must be at most 101, not 102"),
    "locator hash": (GetBlocks, ((H1, b"short"),), "locator: each must be 32 bytes long, not 5"),
    "stop hash": (GetHeaders, ((), b""), "stop hash must be 32 bytes long, not 0"),
    "locator version": (GetHeaders, ((), H1, -1), "version must be from 0 to 2^32 - 1"),
    "headers": (Headers, ((bytes(80),) * 2_001,), "headers: the length must be at most 2000, not 2001"),
    "header": (Headers, ((bytes(81),),), "headers: each must be 80 bytes long, not 81"),
    "inventory": (Inv, ((InvItem(1, H1),) * 50_001,), "inventory: the length must be at most 50000, not 50001"),
    "item": (Inv, ((InvItem(InvType.TX, b"\0"),),), "inventory hashes: each must be 32 bytes long, not 1"),
    "low kind": (Inv, ((InvItem(-1, H1), InvItem(1, H1)),), "kind must be from 0 to 2^32 - 1, not -1"),
    "high kind": (Inv, ((InvItem(1, H1), InvItem(1 << 32, H1)),), "kind must be from 0 to 2^32 - 1, not 4294967296"),
    "block": (Block, (bytes(140),), "a block must be at least 141 bytes, not 140"),
    "filter": (FilterLoad, (bytes(36_001), 1, 0, 0), "filter: the length must be at most 36000, not 36001"),
    "functions": (FilterLoad, (b"", 51, 0, 0), "hash_funcs must be at most 50, not 51"),
    "tweak": (FilterLoad, (b"", 1, -1, 0), "tweak must be from 0 to 2^32 - 1"),
    "flags": (FilterLoad, (b"", 1, 0, 256), "flags must be from 0 to 2^8 - 1"),
    "element": (FilterAdd, (bytes(521),), "element: the length must be at most 520, not 521"),
    "filter type": (GetCFilters, (256, 0, H1), "filter type must be from 0 to 2^8 - 1"),
    "start": (GetCFHeaders, (0, 1 << 32, H1), "start height must be from 0 to 2^32 - 1"),
    "stop": (GetCFCheckpt, (0, bytes(31)), "stop hash must be 32 bytes long, not 31"),
    "compact filter": (CFilter, (0, H1, bytes(250_001)), "filter: the length must be at most 250000"),
    "previous": (CFHeaders, (0, H1, b"", ()), "previous filter header must be 32 bytes long, not 0"),
    "filter hashes": (
        CFHeaders,
        (0, H1, H1, (H1,) * 2_001),
        "filter hashes: the length must be at most 2000, not 2001",
    ),
    "filter headers": (CFCheckpt, (0, H1, (b"",)), "filter headers: each must be 32 bytes long, not 0"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_message_that_cannot_be_parsed_is_not_made(
    case: tuple[Callable[..., SupportsBytes], tuple[Any, ...], str],
) -> None:
    cls, arguments, message = case
    with pytest.raises(ParameterError, match=re.escape(message)):
        cls(*arguments)


def test_the_largest_possible_filter_of_a_block_fits() -> None:
    """The block has as many different scripts as 1 MB of outputs can hold, the shortest first.

    The distances between their hashes are the worst for the size of the filter.
    """
    room, elements, size = 1_000_000, 0, 1
    while room >= 9 + size:
        fitting = min(256**size, room // (9 + size))
        elements, room, size = elements + fitting, room - fitting * (9 + size), size + 1
    bits = elements * (1 + BASIC_P) + elements * BASIC_M // 2**BASIC_P
    assert elements < 90_000
    assert 5 + -(-bits // 8) < MAX_CFILTER_SIZE
