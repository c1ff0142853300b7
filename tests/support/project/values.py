"""Samples of every public value that a program may pickle, by room."""

from __future__ import annotations

import zlib
from operator import methodcaller
from pathlib import Path

from spvfilter import errors
from spvfilter.bloom import (
    Bip37Hash,
    BloomFilter,
    CountingBloomFilter,
    CustomHash,
    FastHash,
    Growth,
    ScalableBloomFilter,
    SipHash,
    Size,
    StaticFilter,
)
from spvfilter.bloom.exchange import (
    BitsAndBloomsHash,
    CassandraHash,
    GuavaHash,
    ParquetDecimal,
    Pybloomfiltermmap3Hash,
    PybloomLiveHash,
    RedisBloomHash,
    SparkHash,
    SplitBlockFilter,
    TypedBlockFilter,
)
from spvfilter.chain import Candidate, ChainHeader, Fork, Order, Segment, Start, Tip, Update
from spvfilter.electrum import ElectrumLimits, ElectrumStatus
from spvfilter.filters import (
    BasicFilter,
    Bip37Filter,
    Exposure,
    GolombCodedSet,
    MatchedTx,
    PrivacyCase,
    SampledRate,
    privacy_report,
)
from spvfilter.kernel import (
    Encoding,
    EntryKind,
    Family,
    Hit,
    Place,
    ProvedTx,
    SilentCandidate,
    SpentCoin,
    TxMatch,
    TxSpan,
    WatchedCoin,
)
from spvfilter.light import (
    BlockFeeRate,
    Broadcast,
    BroadcastChanged,
    BroadcastProgress,
    BroadcastStep,
    ClientStatus,
    FeeFloor,
    FeeRates,
    FeeWarning,
    Metrics,
    Mode,
    PeerChanged,
    PeerStatus,
    PeerWarning,
    PendingWarning,
    Phase,
    Progress,
    Refusal,
    Synced,
)
from spvfilter.network import NETWORKS, REGTEST
from spvfilter.node import TipChange, TreeBlock, UnspentOutput, p2wpkh
from spvfilter.p2p import Address, Clock, Limits, Proxy
from spvfilter.primitives import Header, OutPoint, TxOut
from spvfilter.rpc import ChainInfo, Endpoint, Listing, Patience, RpcLimits as NodeLimits
from spvfilter.scan import (
    BlockHits,
    BlockRef,
    BlockSpan,
    BuiltFilter,
    ChainChange,
    Connected as ScanConnected,
    Disconnected as ScanDisconnected,
    ExportColumns,
    FilterPart,
    OutputFormat,
    Part,
    PartsReport,
    PartSummary,
    PartTask,
    Plan,
    PlannedBlock,
    PlannedFile,
    Problem,
    RawBlock,
    RelevantTx,
    ScannedHeights,
    ScanReport,
    SeenFile,
    TransactionRow,
    TxMatches,
    UndoMode,
    UndoPlace,
    WorkerPlan,
)
from spvfilter.store import (
    AccountChange,
    Balance,
    Batch,
    Bip37Parameters,
    BlockRange,
    CheckCause,
    CheckFinding,
    CheckWeight,
    Coin as UnspentCoin,
    CompactFilterBatch,
    EntryGroup,
    EventLog,
    HistoryEntry,
    ImportCounts,
    ImportedLabels,
    KeychainChange,
    KeychainStatus,
    KnownAddress,
    NewEntry,
    NewKeychain,
    OutputEffect,
    SearchedEntries,
    SilentKeys,
    Snapshot,
    StoredEvent,
    StoredMatch,
    StoredTx,
    TxEffects,
    TxProof,
    TxStatus,
)
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    Reason,
    RunStarted,
    TxReplaced,
)
from spvfilter.watch import AccountPlan, Completeness, Label, Match, MatchKind, WatchList
from spvfilter.watch.descriptor import KeyOrigin, Spending, TapLeaf, parse_descriptor
from spvfilter.watch.imports import ImportedAddress, ImportedDescriptor, WalletFile
from spvfilter.wire import (
    Fenced,
    Frame,
    Misbehaved,
    Ready,
    Received,
    ReceivedFilters,
    SessionEnded,
    Settings,
    Transport,
)
from spvfilter.wire.messages import MerkleBlock, Unknown, Version
from support.samples import BLOCK, H1, H2, ITEMS, PLACES, SAMPLES, WITNESS

ERRORS: dict[str, tuple[tuple[object, ...], dict[str, object]]] = {
    "CapacityError": (("full",), {"count": 100, "capacity": 100, "fp_rate": 0.01}),
    "FormatError": (("truncated",), {"offset": 5, "field": "outpoint"}),
    "UndoError": (("does not match the record and the previous block",), {"offset": 5, "field": "undo check"}),
    "WrongNetworkError": (("an address of testnet3", ("testnet3", "signet")), {}),
    "InexpressibleError": (("cannot find", ("51", "6a")), {}),
    "RefusedError": (("txn-mempool-conflict", "spent already"), {}),
    "WatchFileError": (("wallet.txt", tuple((line, "bad") for line in range(1, 30))), {}),
    "EnvelopeError": (("another network",), {"field": "magic"}),
    "MessageError": (("truncated",), {"command": "inv", "offset": 3, "field": "hash"}),
    "BlockFilterError": (("truncated",), {"offset": 3, "field": "count", "block_hash": bytes(32)}),
    "ColumnError": (("from 5 to 3 of 9",), {"row": 7, "field": "offsets"}),
    "EventGapError": ((4, 9), {}),
    "NotConfirmedError": ((bytes(32), "conflicted", bytes(32)), {}),
    "FalseFilterError": ((7, bytes(32)), {}),
    "SessionError": (("own nonce",), {"cause": "self-connection"}),
    "IncompleteScanError": ((("blk0: gone", "blk1: gone"),), {}),
    "NodeRpcError": (("Method not found",), {"code": -32601}),
    "LieError": (("transaction 00",), {"cause": "a transaction that nobody asked for"}),
    "TxRefusedError": (("every peer refuses it", (("10.0.0.1:8333", "bad-txns (0x10)"),)), {}),
    "TxCheckError": (("it pays a fee of 5 satoshi", ("fee too low",)), {"can_force": True}),
    "TxConflictError": (("it spends what another has spent", bytes(32), 7), {}),
    "ProofError": (("the root is another",), {"cause": "wrong merkle root"}),
}


def of_class(cls: type[Exception]) -> Exception:
    """An error of a class in spvfilter.errors."""
    positional, named = ERRORS.get(cls.__name__, (("what is wrong",), {}))
    return cls(*positional, **named)


def bloom_filters() -> list[object]:
    hashings = (Bip37Hash(7), FastHash(7), SipHash(bytes(range(16))), CustomHash("two", [zlib.crc32, zlib.adler32]))
    plain = [BloomFilter(hash_funcs=2, bits=64, hashing=hashing) for hashing in hashings]
    encoded = BloomFilter(10, 0.01, encode=methodcaller("encode"), partitioned=True)
    counting = CountingBloomFilter(10, 0.01, encode="int64")
    scalable = ScalableBloomFilter(10, 0.01, encode="int64")
    scalable.update(range(50))
    static = StaticFilter(range(50), encode="int64")
    growth, size = Growth(10, 0.01), Size.of(10, 0.01)
    return [
        *plain,
        encoded,
        counting,
        scalable,
        growth,
        growth.expected(50),
        size,
        size.expected(5),
        *hashings,
        counting.header(),
        static,
        static.header(),
    ]


def bip37_filters() -> list[object]:
    received = Bip37Filter.parse(bytes.fromhex("03614e9b050000000000000001"))
    own = Bip37Filter(10, 0.001, tweak=5)
    return [received, own]


def chain_values() -> list[object]:
    header = BLOCK[:80]
    order = Order([Segment([1, 0], 5)], [2], [3])
    tip = Tip(REGTEST, 1, H1, 2, REGTEST.pow_limit_bits, REGTEST.pow_limit_bits, 3, [1, 2])
    fork = Fork(1, header, H1, 2)
    return [
        fork,
        Candidate(fork, 2, header, H1, tip),
        ChainHeader(1, H1, header),
        Start(0, header * 11, 5),
        Update(3, 1, header, H1),
        order,
        *order.segments,
        tip,
    ]


HEADER = Header.parse(BLOCK[:80])
MATCH = Match(MatchKind.OUTPUT, H1, 0, OutPoint(H1, 0), 5_000, b"\x51", None, "savings", H2, 7)
SEARCHED = SearchedEntries(2, (BlockRange(3, 6),), (BlockRange(0, 2),))
HIT = Hit(False, 0, H1, 0, H1 + bytes(4), 5_000, b"\x51", 0)
MERKLEBLOCK = MerkleBlock.from_block(BLOCK, [1])
PROOF = MERKLEBLOCK.verify()
VERSION = SAMPLES["version"]
assert isinstance(VERSION, Version)


def node_values() -> list[object]:
    lock = p2wpkh(bytes([2]) * 33)
    first = TreeBlock(BLOCK, HEADER, Tip(REGTEST, 1, H1, 2, 3, 4, 5, [6]), None, (H1, H2))
    second = TreeBlock(
        BLOCK,
        HEADER,
        Tip(REGTEST, 2, H2, 4, 3, 4, 5, [6, 7]),
        first,
        (H2,),
        {bytes(36): UnspentOutput(1, b"", 0, True)},
    )
    assert second.spent
    return [lock, TxIn(OutPoint(H1, 0), witness=(b"",)), second, TipChange([first], [second]), *second.spent.values()]


PART = Part(0, "mainnet", (PlannedFile("blk0", b"", False, ("rev0", b"")),), bytes(73), {0: H1}, {0: ((0, 1, 2),)}, 90)
PLAN = Plan(NETWORKS[0], "auto", "all blocks", (PART,), (), ScanReport(1))
VALUES: dict[str, list[object]] = {
    "bloom.exchange": [
        *(BitsAndBloomsHash(), CassandraHash(3), GuavaHash(32), PybloomLiveHash(3, 2), Pybloomfiltermmap3Hash((1, 2))),
        *(RedisBloomHash(), SparkHash(2, 5), ParquetDecimal(5, 2), SplitBlockFilter(10, 0.1)),
        TypedBlockFilter(10, 0.1, keys="date"),
    ],
    "electrum": [ElectrumLimits(), ElectrumStatus(1, 2, ("ab" * 32,), 3, 4, 5)],
    "watch.descriptor": [
        *parse_descriptor("raw(51)", REGTEST),
        KeyOrigin(b"\2" * 33, b"abcd", (1 << 31,)),
        TapLeaf(b"\x51", bytes(33)),
        Spending(b"\x51"),
    ],
    "watch.imports": [ImportedAddress("a", "b", 1), ImportedDescriptor("raw(51)"), WalletFile("CSV")],
    "errors": [of_class(getattr(errors, name)) for name in errors.__all__],
    "network": [*NETWORKS],
    "primitives": [HEADER, OutPoint(H1, 3), TxOut(5_000, b"\x51")],
    "bloom": bloom_filters(),
    "chain": chain_values(),
    "filters": [
        *bip37_filters(),
        BasicFilter.build(BLOCK, [b"\x51", b"\x52"]),
        GolombCodedSet.build([b"a"], bytes(16), 19, 784931),
        MatchedTx(1, H1, WITNESS),
        *(Exposure(1, 2, 0.5), SampledRate(1, 2), PrivacyCase("now", "the filter as it is", Exposure(1, 2, 0.5), None)),
        privacy_report(
            WatchList.from_addresses(["1BoatSLRHtKNngkdXEeobR76b53LETtpyT"]),
            0.01,
            5,
            bytes(16),
            probes=0,
            restarts=1,
            added=1,
        ),
    ],
    "kernel": [
        ProvedTx(3, bytes(32)),
        SilentCandidate(bytes(36), b"", bytes(33), [(b"", bytes(20))], [], [(0, bytes(32))], 0),
        SpentCoin(5, b"", 7, True),
        *(
            HIT,
            WatchedCoin(0, 1, None),
            Place(3, 8, 285, bytes(8), H1),
            TxMatch(1, H1, 0, 5),
            TxSpan(0, 9, [(1, 2, 3)], [(4, 5, 6)], 0),
        ),
        *(*EntryKind, *Encoding, *Family),
    ],
    "light": [
        *(
            Progress(Phase.BLOCKS, 1, 2),
            Synced(7, H1),
            PeerChanged(None),
            PeerWarning("peer:1", of_class(errors.LieError), True),
        ),
        *(
            BlockFeeRate(7, H1, 1_000, 900),
            FeeRates((), None, 0),
            FeeFloor(1_000, 3),
            FeeWarning(H1, 500, FeeFloor(1_000, 3)),
        ),
        PendingWarning(2, 10_000, 500),
        *(
            BroadcastProgress(H1, "peer:1", BroadcastStep.REFUSED, "dust (0x41)"),
            BroadcastChanged(H1, TxStatus.REPLACED, H2),
        ),
        *(Refusal("peer:1", "dust"), Broadcast(H1, ("peer:2",), ("peer:3",), (Refusal("peer:1", "dust"),))),
        PeerStatus("peer:1", "/agent/", 0x49, 7, Transport.V1, True),
        ClientStatus(
            Mode.AUTO,
            None,
            7,
            1_700_000_000,
            6,
            False,
            1_700_000_100,
            (PeerStatus("peer:1", "/agent/", 0x49, 7, Transport.V1, True),),
            5,
            (BlockRange(1, 2),),
            0,
            3,
            (SEARCHED,),
            tasks=("move windows: waits for a window to move, 1.5 s",),
        ),
        Metrics(1.5, 1, True, 7, 1_700_000_000, 6, None, *range(1, 19)),
    ],
    "node": node_values(),
    "p2p": [Address("::1", 8333), Clock(), Limits(), Proxy("localhost", 9050, "user", "password")],
    "rpc": [Endpoint("http", "::1"), Listing(5, H1, H2), NodeLimits(), Patience(5.0), ChainInfo("main", 5, H1, 0)],
    "scan": [
        *(BlockRef(0, 8, 90, H1, H2, 3, 4, None), Problem("blk0", "gone"), RawBlock(BLOCK, 1), ScanReport(1, 90)),
        ScannedHeights(((1, 4), (6, 9)), ((5, 5),)),
        *(TxMatches(3, WITNESS, []), RelevantTx(3, WITNESS)),
        *(UndoPlace(0, Path("rev00000.dat"), b"", 8, 40), *UndoMode, *OutputFormat, BlockSpan(1, 2, 3, 4), PART),
        *(PLAN, PlannedFile("blk0", b"", False, None)),
        *(
            PlannedBlock(BlockRef(0, 8, 90, H1, H2, 3, 4, None), (8, 40), False, True),
            ChainChange(2, 1),
            PartsReport(2, 1),
            PartSummary(1, 90),
        ),
        *(ScanConnected(5, H1), ScanDisconnected(5, H1), SeenFile("blk0", 1, 2, 90, 3)),
        *(BuiltFilter(H1, H2, 5, 0, b"\0"), FilterPart([BuiltFilter(H1, H2, 5, 0, b"\0")], [])),
        WorkerPlan(PLAN, ((2, 3),), 0, ("blk0",), (((SeenFile("blk0", 1, 2, 90, 3),),),), {(False, 0): {0: PART}}),
        *(PartTask(PART, Path("0.part"), H1, "auto", False, None), BlockHits(H1, 5, 6, b"")),
        ExportColumns.of(None, is_hex=True),
        TransactionRow("input", H1, 5, 6, H2, 0, H1, 1, 9, b"\x51", None, "nonstandard", True, False, 3, 90, 80, 320),
    ],
    "store": [
        SilentKeys("sp(scan,spend)", {1: "shop", 3: None}, 5),
        Batch(headers=BLOCK[:80], compact_filters=CompactFilterBatch(1)),
        CompactFilterBatch(3, [H1], [(H2, b"")]),
        Bip37Parameters(1, 256, 0.0001, H1),
        ImportCounts(1, stale_blocks=[H1]),
        EventLog(3, 7, 5),
        ImportedLabels(2, (OutPoint(H1, 0),), ()),
        CheckFinding(CheckCause.MALFORMED, CheckWeight.INVALID, "it has no inputs", H1),
        StoredEvent(7, 1, "connected", b"[]"),
        Snapshot([1, 2], 7),
        TxEffects(H1, 7, 1, (OutputEffect(b"\x51", bytes(36), 5, False),)),
        OutputEffect(b"\x51", bytes(36), 5, True),
        TxProof(H1, WITNESS, TxStatus.CONFIRMED, True, 7, H2, 1, H1),
        StoredTx(WITNESS, TxStatus.PENDING, 1, 2),
        Balance(1, 2, 3, 4, 5),
        UnspentCoin(OutPoint(bytes(32), 1), 5, b"\x51", None, "label", 7, False, True, None, "7-00"),
        HistoryEntry(
            bytes(32),
            -5,
            1,
            TxStatus.CONFIRMED,
            7,
            bytes(32),
            8,
            None,
            1,
            None,
            False,
            False,
            ("label",),
            WITNESS,
            "7-00",
        ),
        StoredMatch(HIT, None, None, Completeness.PROVEN),
        KnownAddress("1.2.3.4:8333", 0x49, 1, "1.2.0.0/16", False),
        *(
            SEARCHED,
            BlockRange(3, 6),
            EntryGroup(1, (BlockRange(3, 6),)),
            NewEntry(1, EntryKind.SCRIPT, b"\x51", "label"),
        ),
        KeychainStatus("mine", "label", None, 20, 30, (3,), 5, 0, "bc1"),
        KeychainChange("mine", (3,), 30, ((29, 30),)),
        NewKeychain("mine", "label", None, 20, 30),
        AccountChange("bob", "robert", (NewKeychain("mine", "label", None, 20, 30),)),
    ],
    "wallet": [
        MatchFound(MATCH),
        MatchConfirmed(MATCH, Completeness.ONE_PEER),
        MatchUnconfirmed(MATCH),
        MatchWithdrawn(MATCH, Reason.REORG),
        TxReplaced(H1, H2),
        BlockConnected(7, H1),
        BlockDisconnected(7, H1),
        RunStarted(bytes(16)),
    ],
    "transaction": [Transaction.parse(WITNESS), TxIn(OutPoint(H1, 0), witness=(b"",))],
    "watch": [
        Label("tx", "ab" * 32, "rent"),
        MATCH,
        AccountPlan("bob", (), ((EntryKind.SCRIPT, b"\x51", None),), (1,), ("mine",), ((b"\x51", "rent"),)),
        WatchList.from_addresses([("1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", "one")]),
    ],
    "wire": [
        Frame("verack", b""),
        Settings(REGTEST),
        Ready(VERSION, 70016, True, False),
        Received(VERSION),
        ReceivedFilters(((bytes(32), b"\1"),)),
        Fenced(5),
        Misbehaved(errors.SessionError("late", cause="pong without ping")),
        SessionEnded(None),
    ],
    "wire.messages": [
        *SAMPLES.values(),
        *ITEMS,
        *PLACES,
        MERKLEBLOCK,
        PROOF,
        *PROOF.matched,
        Unknown("alert", b"\x00"),
    ],
}
