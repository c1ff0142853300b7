"""Messages of every command: a fixed sample of each, and hypothesis strategies that reach the bounds of every field."""

from __future__ import annotations

from hypothesis import strategies as st

from spvfilter.primitives import Header
from spvfilter.wire.messages.table import (
    Addr,
    AddrV2,
    Block,
    CFCheckpt,
    CFHeaders,
    CFilter,
    FeeFilter,
    FilterAdd,
    FilterClear,
    FilterLoad,
    GetAddr,
    GetBlocks,
    GetCFCheckpt,
    GetCFHeaders,
    GetCFilters,
    GetData,
    GetHeaders,
    Headers,
    Inv,
    InvItem,
    InvType,
    Mempool,
    MerkleBlock,
    Message,
    NetId,
    NotFound,
    PeerAddress,
    Ping,
    Pong,
    Reject,
    SendAddrV2,
    SendCmpct,
    SendHeaders,
    Tx,
    Unknown,
    Verack,
    Version,
    WtxidRelay,
)
from support.blocks import build

H1, H2, H3 = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
FUNDING = build.tx([build.TxIn(H1, 0, b"\x01\x02")], [build.TxOut(5_000, b"\x51")])
WITNESS = build.tx(
    [build.TxIn(H2, 1, witness=(b"sig", b"key"))], [build.TxOut(4_000, b"\x00\x14" + bytes(20)), build.TxOut(1, b"")]
)
BLOCK = build.block(build.GENESIS, [build.coinbase(1, witness=True), FUNDING, WITNESS])
ITEMS = (InvItem(InvType.TX, H1), InvItem(InvType.WITNESS_BLOCK, H2), InvItem(0xFFFFFFFF, H3))
PLACES = (
    PeerAddress(1_700_000_000, 0, NetId.IPV4, bytes((203, 0, 113, 7)), 8333),
    PeerAddress(0, 1, NetId.IPV6, bytes.fromhex("20010db8") + bytes(11) + b"\x01", 0),
)

SAMPLES: dict[str, Message] = {
    "version": Version(
        70016, 1033, 1_700_000_000, 7, b"/spvfilter:1/", 800_000, False, bytes(range(26)), bytes(range(26, 52))
    ),
    "verack": Verack(),
    "wtxidrelay": WtxidRelay(),
    "sendaddrv2": SendAddrV2(),
    "sendheaders": SendHeaders(),
    "sendcmpct": SendCmpct(True, 2),
    "feefilter": FeeFilter(1_000),
    "ping": Ping(0x0123456789ABCDEF),
    "pong": Pong(0xFEDCBA9876543210),
    "reject": Reject(b"tx", 0x12, b"txn-mempool-conflict", H1),
    "getaddr": GetAddr(),
    "addr": Addr(PLACES),
    "addrv2": AddrV2((*PLACES, PeerAddress(1, 1 << 63, NetId.TORV3, H1, 65535), PeerAddress(2, 253, 0xAA, b"", 1))),
    "getheaders": GetHeaders((H1, H2), H3),
    "getblocks": GetBlocks((H2,), H1, 1),
    "headers": Headers((BLOCK[:80], FUNDING[:50].ljust(80, b"\xff"))),
    "inv": Inv(ITEMS),
    "getdata": GetData(ITEMS[:2]),
    "notfound": NotFound(ITEMS[:1]),
    "mempool": Mempool(),
    "tx": Tx(WITNESS),
    "block": Block(BLOCK),
    "merkleblock": MerkleBlock.from_block(BLOCK, [1]),
    "filterload": FilterLoad(b"\x61\x4e\x9b", 5, 0xFFFFFFFF, 1),
    "filteradd": FilterAdd(b"\xab" * 20),
    "filterclear": FilterClear(),
    "getcfilters": GetCFilters(0, 2, H1),
    "cfilter": CFilter(0, H1, b"\x01\x93\xcc\xd8"),
    "getcfheaders": GetCFHeaders(255, 0xFFFFFFFF, H2),
    "cfheaders": CFHeaders(0, H1, H2, (H3, H1)),
    "getcfcheckpt": GetCFCheckpt(0, H3),
    "cfcheckpt": CFCheckpt(0, H1, (H2, H3)),
}


def payloads() -> list[tuple[str, bytes]]:
    """Command and payload of every sample."""
    return [(command, bytes(message)) for command, message in SAMPLES.items()]


def uint(size: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << 8 * size) - 1)


def sint(size: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << 8 * size - 1), (1 << 8 * size - 1) - 1)


def exactly(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


def some(pieces: st.SearchStrategy[object], most: int = 8) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(pieces, max_size=most).map(tuple)


HASHES = exactly(32)
HEADERS = st.builds(Header, sint(4), HASHES, HASHES, uint(4), uint(4), uint(4))
INVENTORY = some(st.builds(InvItem, uint(4), HASHES))
KNOWN_NETS = {NetId.IPV4: 4, NetId.IPV6: 16, NetId.TORV2: 10, NetId.TORV3: 32, NetId.I2P: 32, NetId.CJDNS: 16}
IPV6 = exactly(16).filter(lambda raw: raw[:12] != bytes(10) + b"\xff\xff")


def place(net: st.SearchStrategy[int], address: st.SearchStrategy[bytes]) -> st.SearchStrategy[PeerAddress]:
    return st.builds(PeerAddress, uint(4), uint(8), net, address, uint(2))


OLD_PLACES = st.one_of(place(st.just(NetId.IPV4), exactly(4)), place(st.just(NetId.IPV6), IPV6))
NEW_PLACES = st.one_of(
    *(place(st.just(net), exactly(size)) for net, size in KNOWN_NETS.items()),
    place(st.integers(7, 255), st.binary(max_size=512)),
)

MESSAGES: dict[str, st.SearchStrategy[Message]] = {
    "version": st.builds(
        Version,
        sint(4),
        uint(8),
        sint(8),
        uint(8),
        st.binary(max_size=256),
        sint(4),
        st.booleans(),
        exactly(26),
        exactly(26),
    ),
    "verack": st.just(Verack()),
    "wtxidrelay": st.just(WtxidRelay()),
    "sendaddrv2": st.just(SendAddrV2()),
    "sendheaders": st.just(SendHeaders()),
    "sendcmpct": st.builds(SendCmpct, st.booleans(), uint(8)),
    "feefilter": st.builds(FeeFilter, sint(8)),
    "ping": st.builds(Ping, uint(8)),
    "pong": st.builds(Pong, uint(8)),
    "reject": st.builds(Reject, st.binary(max_size=12), uint(1), st.binary(max_size=1_000), st.just(b"") | HASHES),
    "getaddr": st.just(GetAddr()),
    "addr": st.builds(Addr, some(OLD_PLACES)),
    "addrv2": st.builds(AddrV2, some(NEW_PLACES)),
    "getheaders": st.builds(GetHeaders, some(HASHES, 101), HASHES, uint(4)),
    "getblocks": st.builds(GetBlocks, some(HASHES, 101), HASHES, uint(4)),
    "headers": st.builds(Headers, some(exactly(80))),
    "inv": st.builds(Inv, INVENTORY),
    "getdata": st.builds(GetData, INVENTORY),
    "notfound": st.builds(NotFound, INVENTORY),
    "mempool": st.just(Mempool()),
    "tx": st.builds(Tx, st.sampled_from([FUNDING, WITNESS])),
    "block": st.builds(Block, st.sampled_from([BLOCK])),
    "merkleblock": st.builds(MerkleBlock, HEADERS, uint(4), some(HASHES, 20), st.binary(max_size=40)),
    "filterload": st.builds(FilterLoad, st.binary(max_size=600), st.integers(0, 50), uint(4), uint(1)),
    "filteradd": st.builds(FilterAdd, st.binary(max_size=520)),
    "filterclear": st.just(FilterClear()),
    "getcfilters": st.builds(GetCFilters, uint(1), uint(4), HASHES),
    "cfilter": st.builds(CFilter, uint(1), HASHES, st.binary(max_size=600)),
    "getcfheaders": st.builds(GetCFHeaders, uint(1), uint(4), HASHES),
    "cfheaders": st.builds(CFHeaders, uint(1), HASHES, HASHES, some(HASHES, 300)),
    "getcfcheckpt": st.builds(GetCFCheckpt, uint(1), HASHES),
    "cfcheckpt": st.builds(CFCheckpt, uint(1), HASHES, some(HASHES)),
}
UNKNOWN = st.builds(Unknown, st.sampled_from(["alert", "sendtxrcncl", "twelve_chars"]), st.binary(max_size=64))
ANY = st.one_of(*MESSAGES.values(), UNKNOWN)
