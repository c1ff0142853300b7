"""Every entry point of the kernel, with valid arguments and the places of the bytes among them, for tests of rules that
hold for all.

An entry is a function, a constructor or a method that takes something. `make` returns, for either kernel, the function
to call with `arguments`: it builds the entry's object for each call and returns everything that can be observed of the
call.
"""

from __future__ import annotations

import tempfile
import types
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spvfilter.hashes import sha256d
from spvfilter.kernel import Encoding, EntryKind, Family, Hit, Place, TxSpan, WatchedCoin, backend
from spvfilter.kernel.pure.blocks import block_txids, parse_tx, walk_block
from spvfilter.kernel.pure.gcs import gcs_build
from spvfilter.kernel.pure.headers import header_hashes, index_headers
from spvfilter.kernel.pure.image import image_size
from spvfilter.kernel.pure.packed import pack_hits
from support.blocks import build
from support.blocks.blocktables import EVERY, HEXES
from support.blocks.build import TxIn, TxOut, merkle_root
from support.blocks.merkletree import partial_tree
from support.blocks.undo import Spent, record_of, undo_of
from support.kernels.linelabels import packed_labels

Kernel = Any  # its names
Path = tuple[int, ...]  # from an argument's number down into lists and tuples

KEYS = [b"\x02" + bytes([number]) * 32 for number in range(3)]
SCRIPTS = [build.p2wpkh(bytes([number]) * 20) for number in range(40)]
PAYMENTS = [
    build.tx(
        [TxIn(bytes([number]) * 32, number, b"\x04data", witness=(b"signature", b"key"))],
        [TxOut(number, script), TxOut(9, b"\x6a\x01x")],
    )
    for number, script in enumerate(SCRIPTS)
]
BLOCK = build.block_of(
    build.GENESIS, 1, [*PAYMENTS, build.tx([TxIn(bytes(32), 1)], [TxOut(7, build.multisig(2, KEYS))])]
)
OUTPOINT = bytes(range(36))
ROOM = bytearray(  # for the image of the table of `of_table`
    image_size([(EntryKind.SCRIPT, script) for script in SCRIPTS[:10]], [(OUTPOINT, WatchedCoin(0, 5, None))])
)
ITEMS = [b"item %d" % number for number in range(200)]
SIP_KEY = bytes(range(16))
SET = gcs_build(ITEMS, SIP_KEY, 19, 784931)
BITS = bytes(range(64)) * 4
HIT = Hit(False, 0, bytes(32), 0, OUTPOINT, 5, SCRIPTS[0], 0)
SPEND = HIT._replace(spend=True)
PACKED = pack_hits([SPEND._replace(n=number, entry=number % 3, script=script) for number, script in enumerate(SCRIPTS)])
TXID = block_txids(BLOCK)[3 * 32 : 4 * 32]
# an input and an output of a transaction of BLOCK
IN_BLOCK = pack_hits(
    [
        HIT._replace(position=3, txid=TXID, outpoint=build.outpoint(TXID, 0)),
        SPEND._replace(position=3, txid=TXID),
    ]
)
COLUMNS = [(1, b"\1", b"\0\0\0\0\1\0\0\0", b"x"), (1, None, None, bytes(32))]
LINES = b"1BoatSLRHtKNngkdXEeobR76b53LETtpyT,a label\n" * 20
LEAVES = [bytes([number]) * 32 for number in range(99)]
PARTIAL_TREE = partial_tree(LEAVES, range(99))
FLAGS = PARTIAL_TREE[4 + 1 + 32 * 99 + 1 :]
FRAMES = b"".join(
    b"\xfa\xbf\xb5\xda" + command.ljust(12, b"\0") + len(data).to_bytes(4, "little") + sha256d(data)[:4] + data
    for command, data in ((b"tx", PAYMENTS[0]), (b"block", BLOCK), (b"verack", b""))
)
SILENT = build.tx(
    [TxIn(bytes([7]) * 32, number, witness=(b"signature", KEYS[number])) for number in range(2)],
    [TxOut(5, b"\x51\x20" + bytes(range(32)))],
)
_GENERATOR = bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
ROWS = [b"key %d" % number for number in range(300)]
SPENT = [[Spent(number + 10**6, SCRIPTS[number // 2], 7)] for number in range(41)]
UNDO = undo_of(SPENT)
RECORD = record_of(BLOCK, UNDO)
FILE_KEY = bytes(range(1, 9))
# a block and its undo record, XORed with that key, after five bytes; open until the process ends
FILE = tempfile.TemporaryFile()  # noqa: SIM115
FILE.write(bytes(byte ^ FILE_KEY[at % 8] for at, byte in enumerate(b"ahead" + BLOCK + RECORD)))
FILE.flush()
PLACE = Place(FILE.fileno(), 5, len(BLOCK), FILE_KEY, sha256d(BLOCK[:80]))
RECORD_PLACE = Place(FILE.fileno(), 5 + len(BLOCK), len(RECORD), FILE_KEY, BLOCK[4:36])


@dataclass(frozen=True)
class Entry:
    make: Callable[[Kernel], Callable[..., object]]
    arguments: tuple[Any, ...] = ()
    taken: tuple[Path, ...] = ()  # places that take bytes
    iterated: tuple[int, ...] = ()  # arguments that take any iterable
    keywords: tuple[str, ...] = ()  # of the arguments that callers can name
    unbounded: tuple[int, ...] = ()  # arguments whose value determines the reference's time and memory


def function(name: str) -> Callable[[Kernel], Callable[..., object]]:
    return lambda kernel: getattr(kernel, name)


def exhausted(name: str) -> Callable[[Kernel], Callable[..., object]]:
    return lambda kernel: lambda *arguments: list(getattr(kernel, name)(*arguments))


def core(kernel: Kernel, kind: str, **changes: Any) -> Any:
    cells = 4096
    arguments = {"cells": cells, "hash_funcs": 5, "family": Family.FAST, "key": SIP_KEY, "buffer": None} | changes
    return getattr(kernel, kind)(**arguments)


def of_core(kind: str, method: str, **changes: Any) -> Callable[[Kernel], Callable[..., object]]:
    """A method of a core with a few keys: its result, and the cells afterwards."""

    def make(kernel: Kernel) -> Callable[..., object]:
        def call(*arguments: Any) -> object:
            made = core(kernel, kind, **changes)
            if not changes:
                made.update(ROWS[:20])
            result = getattr(made, method)(*arguments)
            return "itself" if result is made else result, bytes(made.body)

        return call

    return make


def with_core(kind: str, method: str) -> Callable[[Kernel], Callable[..., object]]:
    """A method that takes another core, over a buffer."""
    return lambda kernel: lambda cells: of_core(kind, method)(kernel)(core(kernel, kind, buffer=cells))


def constructor(kind: str) -> Callable[[Kernel], Callable[..., object]]:
    def make(kernel: Kernel) -> Callable[..., object]:
        def call(*arguments: Any) -> object:
            made = getattr(kernel, kind)(*arguments)
            return (
                made.cells,
                made.hash_funcs,
                made.family,
                made.key,
                made.encoding,
                made.partitioned,
                made.add(b"key"),
                bytes(made.body),
            )

        return call

    return make


def of_series(method: str) -> Callable[[Kernel], Callable[..., object]]:
    """A method of a series of two slices with keys: its result, and the cells afterwards. None means another slice."""

    def make(kernel: Kernel) -> Callable[..., object]:
        def call(*arguments: Any) -> object:
            made = kernel.SeriesCore([core(kernel, "BitCore"), core(kernel, "BitCore", hash_funcs=7)])
            made.slices[0].update(ROWS[:20])
            made.slices[1].update(ROWS[20:40])
            result = getattr(made, method)(
                *(core(kernel, "BitCore") if argument is None else argument for argument in arguments)
            )
            return result, [bytes(slice.body) for slice in made.slices]

        return call

    return make


def series_constructor(kernel: Kernel) -> Callable[..., object]:
    return lambda slices: len(kernel.SeriesCore([core(kernel, "BitCore")] if slices is None else slices).slices)


def exchanged(kind: str) -> Callable[[Kernel], Callable[..., object]]:
    def make(kernel: Kernel) -> Callable[..., object]:
        def call(buffer: Any) -> object:
            made = core(kernel, kind)
            made.buffer = buffer
            return bytes(made.body)

        return call

    return make


def limited(kind: str) -> Callable[[Kernel], Callable[..., object]]:
    def make(kernel: Kernel) -> Callable[..., object]:
        def call(room: Any) -> object:
            made = core(kernel, kind)
            made.room = room
            return made.add(ROWS[0]), made.add(ROWS[0]), made.room, bytes(made.body)

        return call

    return make


def of_table(method: str) -> Callable[[Kernel], Callable[..., object]]:
    """A method of a table that watches some scripts: its result, and the table's contents afterwards."""

    def make(kernel: Kernel) -> Callable[..., object]:
        def call(*arguments: Any) -> object:
            table = kernel.WatchTable()
            for script in SCRIPTS[:10]:
                table.add(EntryKind.SCRIPT, script)
            table.set_coin(OUTPOINT, 0, 5, None)
            result = getattr(table, method)(
                *(argument(kernel) if argument is found or argument is buffer else argument for argument in arguments)
            )
            if method in ("entries", "coins"):
                result = list(result)
            elif method in ("copy", "without"):
                result = list(result.entries()), list(result.coins())
            return result, list(table.entries()), list(table.coins())

        return call

    return make


def found(kernel: Kernel) -> object:
    """A stand-in for an argument: a table of that kernel."""
    return kernel.WatchTable()


def buffer(kernel: Kernel) -> object:
    """A stand-in for an argument: a buffer of that kernel."""
    return kernel.ReadBuffer()


def of_kernel(kernel: Kernel, argument: Any) -> Any:
    """The argument, or the object for which it is a stand-in."""
    return argument(kernel) if argument is found or argument is buffer else argument


def query(method: str) -> Callable[[Kernel], Callable[..., object]]:
    return lambda kernel: getattr(kernel.GcsQuery(ITEMS[:3]), method)


HEADERS = BLOCK[:80] * 50
LABELS = packed_labels({0: b'"label"'})
INDEX = index_headers(HEADERS, BLOCK[4:36])
SPAN: TxSpan = next(iter(walk_block(BLOCK)))
_NUMBERS = ("hash_funcs", "tweak", "flags")

ENTRIES: dict[str, Entry] = {
    "walk_tx": Entry(function("walk_tx"), (BLOCK, 81), ((0,),), keywords=("raw", "at")),
    "parse_tx": Entry(function("parse_tx"), (PAYMENTS[0],), ((0,),)),
    "spent_outpoints": Entry(function("spent_outpoints"), (PAYMENTS[0],), ((0,),)),
    "walk_block": Entry(exhausted("walk_block"), (BLOCK,), ((0,),)),
    "txid": Entry(function("txid"), (BLOCK, SPAN), ((0,),), keywords=("raw", "tx")),
    "wtxid": Entry(function("wtxid"), (BLOCK, SPAN), ((0,),), keywords=("raw", "tx")),
    "strip_witness": Entry(
        function("strip_witness"), (PAYMENTS[0], parse_tx(PAYMENTS[0])), ((0,),), keywords=("raw", "tx")
    ),
    "is_pubkey": Entry(function("is_pubkey"), (KEYS[0],), ((0,),)),
    "is_p2pk": Entry(function("is_p2pk"), (build.p2pk(KEYS[0]),), ((0,),)),
    "multisig_keys": Entry(function("multisig_keys"), (build.multisig(2, KEYS),), ((0,),)),
    "merkle_root": Entry(function("merkle_root"), (LEAVES,), ((0, 0), (0, 98)), (0,)),
    "merkle_branches": Entry(function("merkle_branches"), (b"".join(LEAVES), [0, 97, 98]), ((0,),)),
    "block_txids": Entry(function("block_txids"), (BLOCK,), ((0,),)),
    "block_txs": Entry(function("block_txs"), (BLOCK, [3, 0]), ((0,),)),
    "check_amounts": Entry(function("check_amounts"), (BLOCK,), ((0,),)),
    "check_block": Entry(function("check_block"), (BLOCK,), ((0,),)),
    "bip37_scan_block": Entry(
        function("bip37_scan_block"),
        (BLOCK, BITS, 5, 7, 1),
        ((0,), (1,)),
        keywords=("raw", "bits", *_NUMBERS),
        unbounded=(2,),
    ),
    "bip37_scan_tx": Entry(
        function("bip37_scan_tx"),
        (PAYMENTS[0], BITS, 5, 7, 1),
        ((0,), (1,)),
        keywords=("raw", "bits", *_NUMBERS),
        unbounded=(2,),
    ),
    "header_hashes": Entry(function("header_hashes"), (BLOCK[:80] * 50,), ((0,),)),
    "linked_headers": Entry(function("linked_headers"), (HEADERS, header_hashes(HEADERS)), ((0,), (1,))),
    "header_bits": Entry(function("header_bits"), (HEADERS,), ((0,),)),
    "judge_headers": Entry(
        function("judge_headers"),
        (HEADERS, bytes(32 * 50), bytes(44), HEADERS[72:76] + bytes(32), bytes(36), 1 << 32, -(1 << 31), 1 << 32),
        ((0,), (1,), (2,), (3,), (4,)),
    ),
    "index_headers": Entry(function("index_headers"), (HEADERS, BLOCK[4:36]), ((0,), (1,))),
    "join_indexes": Entry(function("join_indexes"), ([INDEX, INDEX],), ((0, 0), (0, 1)), (0,)),
    "find_header": Entry(function("find_header"), ([INDEX, INDEX], BLOCK[4:36]), ((0, 0), (0, 1), (1,)), (0,)),
    "chain_filter_headers": Entry(function("chain_filter_headers"), (BLOCK[:3_200], BLOCK[4:36]), ((0,), (1,))),
    "filter_hashes": Entry(function("filter_hashes"), ([BLOCK[:100], BLOCK[:1]],), ((0, 0), (0, 1)), (0,)),
    "read_at": Entry(function("read_at"), PLACE[:4], ((3,),)),
    "ReadBuffer.__new__": Entry(lambda kernel: lambda: kernel.ReadBuffer() is not None),
    "ReadBuffer.__sizeof__": Entry(lambda kernel: lambda: kernel.ReadBuffer().__sizeof__() > 0),
    "sound_frames": Entry(function("sound_frames"), (FRAMES, FRAMES[:4]), ((0,), (1,))),
    "joined_frames": Entry(function("joined_frames"), (FRAMES, FRAMES[:4]), ((0,), (1,))),
    "parse_merkleblock": Entry(function("parse_merkleblock"), (BLOCK[:80] + PARTIAL_TREE,), ((0,),)),
    "extract_matches": Entry(
        function("extract_matches"), (merkle_root(LEAVES), 99, [*LEAVES], FLAGS), ((0,), (2, 0), (2, 98), (3,)), (2,)
    ),
    "decode_address": Entry(function("decode_address"), ("no address", 0, 5, "bc")),
    "encode_address": Entry(function("encode_address"), (SCRIPTS[0], 0, 5, "bc"), ((0,),)),
    "thrift_end": Entry(function("thrift_end"), (b"\x15\x02\0", 0, 12), ((0,),)),
    "child_keys": Entry(function("child_keys"), (_GENERATOR, bytes(range(32)) * 20), ((0,), (1,))),
    "row_mark": Entry(function("row_mark"), ("watch", (1, b"\x51" * 200, None, "label"))),
    "script_addresses": Entry(
        function("script_addresses"),
        (b"\0\0\0\0\x16\0\0\0\x17\0\0\0", SCRIPTS[0] + b"x", 0, 5, "bc"),
        ((0,), (1,)),
    ),
    "hit_lines": Entry(
        function("hit_lines"),
        (PACKED, 1, *LABELS, bytes(32), 5, 7, 0, 5, "bc"),
        ((0,), (2,), (3,), (4,)),
        keywords=(
            *("packed", "form", "label_places", "label_texts", "block_hash", "height", "time"),
            *("p2pkh_version", "p2sh_version", "hrp"),
        ),
    ),
    "hit_columns": Entry(
        function("hit_columns"),
        ([(bytes(32), 5, 7, PACKED)] * 3, 1, 5, False, *LABELS, 0, 5, "bc"),
        ((0, 0, 0), (0, 2, 3), (4,), (5,)),
        (0,),
    ),
    "is_ascending": Entry(function("is_ascending"), (bytes(400),), ((0,),)),
    "count_hits": Entry(function("count_hits"), (PACKED,), ((0,),)),
    "add_hit_sums": Entry(function("add_hit_sums"), (PACKED, bytearray(32 * 4)), ((0,),)),
    "hit_sums": Entry(function("hit_sums"), (PACKED,), ((0,),)),
    "pack_hits": Entry(function("pack_hits"), ([SPEND, SPEND],), ((0, 0, 2), (0, 0, 4), (0, 1, 4), (0, 1, 6)), (0,)),
    "unpack_hits": Entry(function("unpack_hits"), (PACKED,), ((0,),)),
    "silent_candidate": Entry(
        function("silent_candidate"), (SILENT, 0, [build.p2wpkh(bytes(20)), None]), ((0,), (2, 0)), (2,)
    ),
    "spent_coins": Entry(function("spent_coins"), (UNDO,), ((0,),)),
    "block_columns": Entry(
        function("block_columns"),
        ([BLOCK] * 3, [RECORD] * 3, [7, 8, -1], [*EVERY, *HEXES], 0, 5, "bc", [IN_BLOCK] * 3),
        ((0, 0), (0, 2), (1, 0), (1, 2), (7, 0), (7, 2)),
        (0, 1, 2, 3, 7),
    ),
    "column_lines": Entry(
        function("column_lines"),
        (1, ["a", "b"], ["text", "hash"], COLUMNS),
        ((3, 0, 1), (3, 0, 2), (3, 0, 3), (3, 1, 3)),
        (1, 2, 3),
    ),
    "gcs_build": Entry(
        function("gcs_build"),
        (ITEMS, SIP_KEY, 19, 784931),
        ((0, 0), (0, 199), (1,)),
        (0,),
        keywords=("items", "key", "p", "m"),
    ),
    "gcs_check": Entry(function("gcs_check"), (SET, 19), ((0,),), keywords=("data", "p")),
    "GcsQuery.__new__": Entry(
        lambda kernel: lambda items: kernel.GcsQuery(items).match_any(SET, SIP_KEY, 19, 784931),
        (ITEMS,),
        ((0, 0), (0, 199)),
        (0,),
    ),
    "GcsQuery.match_any": Entry(
        query("match_any"), (SET, SIP_KEY, 19, 784931), ((0,), (1,)), keywords=("data", "key", "p", "m")
    ),
    "GcsQuery.match_many": Entry(
        query("match_many"),
        ([(SIP_KEY, SET)] * 9, 19, 784931),
        ((0, 0, 0), (0, 8, 1)),
        (0,),
        keywords=("sets", "p", "m"),
    ),
    "GcsQuery.__len__": Entry(query("__len__")),
    "WatchTable.__new__": Entry(lambda kernel: lambda: len(kernel.WatchTable())),
    "WatchTable.__len__": Entry(of_table("__len__")),
    "WatchTable.script_totals": Entry(
        of_table("script_totals"), (bytes(31) + b"\1" + bytes(31) + b"\1", 0, *LABELS, 0, 5, "bc"), ((0,), (2,), (3,))
    ),
    "WatchTable.__sizeof__": Entry(lambda kernel: lambda: kernel.WatchTable().__sizeof__() > 0),
    "WatchTable.add": Entry(of_table("add"), (EntryKind.DATA, b"data"), ((1,),)),
    "WatchTable.find": Entry(of_table("find"), (EntryKind.SCRIPT, SCRIPTS[3]), ((1,),)),
    "WatchTable.entry": Entry(of_table("entry"), (3,)),
    "WatchTable.entries": Entry(of_table("entries")),
    "WatchTable.count_of": Entry(of_table("count_of"), (EntryKind.SCRIPT,)),
    "WatchTable.packed_entries": Entry(of_table("packed_entries"), (2, 7)),
    "WatchTable.image": Entry(of_table("image")),
    "WatchTable.image_size": Entry(of_table("image_size")),
    "WatchTable.write_image": Entry(of_table("write_image"), (ROOM, bytes(range(64))), ((1,),)),
    "WatchTable.coin": Entry(of_table("coin"), (OUTPOINT,), ((0,),)),
    "WatchTable.coins": Entry(of_table("coins")),
    "WatchTable.set_coin": Entry(of_table("set_coin"), (bytes(36), 3, 9, SCRIPTS[0]), ((0,), (3,))),
    "WatchTable.learn": Entry(
        of_table("learn"), ([HIT, HIT._replace(outpoint=bytes(36))],), ((0, 0, 4), (0, 1, 4), (0, 1, 6)), (0,)
    ),
    "WatchTable.learn_packed": Entry(of_table("learn_packed"), (PACKED,), ((0,),)),
    "WatchTable.copy": Entry(of_table("copy")),
    "WatchTable.without": Entry(of_table("without"), ([OUTPOINT, bytes(36)],), ((0, 0), (0, 1)), (0,)),
    "WatchTable.match_script": Entry(of_table("match_script"), (SCRIPTS[3],), ((0,),)),
    "WatchTable.scan_block": Entry(
        of_table("scan_block"), (BLOCK, found, RECORD), ((0,), (2,)), keywords=("raw", "found", "undo")
    ),
    "WatchTable.scan_blocks": Entry(
        of_table("scan_blocks"),
        ([BLOCK] * 3, found, True, [RECORD] * 3, True),
        ((0, 0), (0, 2), (3, 0), (3, 2)),
        (0, 3),
        keywords=("blocks", "found", "check", "undo", "packed"),
    ),
    "WatchTable.scan_files": Entry(
        of_table("scan_files"),
        ([PLACE] * 3, buffer, found, True, [RECORD_PLACE] * 3, False),
        ((0, 0, 3), (0, 2, 4), (4, 0, 3), (4, 2, 4)),
        (0, 4),
        keywords=("places", "buffer", "found", "check", "undo", "packed"),
    ),
    "WatchTable.scan_tx": Entry(of_table("scan_tx"), (PAYMENTS[3],), ((0,),)),
    "WatchTable.add_address_lines": Entry(
        lambda kernel: lambda *arguments: kernel.WatchTable().add_address_lines(*arguments) and None,
        (LINES, 0, 0, 5, "bc", 2),
        ((0,),),
    ),
}

for _kind, _size in (("BitCore", 512), ("CounterCore", 2048)):
    _arguments = (4096, 5, Family.FAST, SIP_KEY, None, Encoding.BYTES, False, None, None, False)
    ENTRIES |= {
        f"{_kind}.__init__": Entry(constructor(_kind), _arguments, ((3,),), unbounded=(0, 1)),
        f"{_kind}.add": Entry(of_core(_kind, "add"), (b"key",), ((0,),)),
        f"{_kind}.__contains__": Entry(of_core(_kind, "__contains__"), (ROWS[3],), ((0,),)),
        f"{_kind}.positions": Entry(of_core(_kind, "positions"), (ROWS[3] * 20,), ((0,),)),
        f"{_kind}.update": Entry(of_core(_kind, "update"), (ROWS,), ((0, 0), (0, 299)), (0,)),
        f"{_kind}.contains_many": Entry(of_core(_kind, "contains_many"), (ROWS,), ((0, 0), (0, 299)), (0,)),
        f"{_kind}.__ior__": Entry(with_core(_kind, "__ior__"), (bytes(_size),)),
        f"{_kind}.clear": Entry(of_core(_kind, "clear")),
        f"{_kind}.buffer": Entry(exchanged(_kind), (bytes(_size),)),
        f"{_kind}.room": Entry(limited(_kind), (2,)),
    }
ENTRIES |= {
    "BitCore.set_bits": Entry(of_core("BitCore", "set_bits")),
    "BitCore.plane_set_bits": Entry(of_core("BitCore", "plane_set_bits")),
    "BitCore.union_set_bits": Entry(with_core("BitCore", "union_set_bits"), (bytes(512),)),
    "BitCore.__iand__": Entry(with_core("BitCore", "__iand__"), (bytes(512),)),
    "BitCore.__le__": Entry(with_core("BitCore", "__le__"), (bytes(512),)),
    "CounterCore.remove": Entry(of_core("CounterCore", "remove"), (ROWS[3],), ((0,),)),
    "CounterCore.count": Entry(of_core("CounterCore", "count"), (ROWS[3],), ((0,),)),
    "CounterCore.set_cells": Entry(of_core("CounterCore", "set_cells")),
    "CounterCore.to_bits": Entry(of_core("CounterCore", "to_bits")),
}
ENTRIES |= {
    "SeriesCore.__init__": Entry(series_constructor, (None,)),
    "SeriesCore.add": Entry(of_series("add"), (b"key",), ((0,),)),
    "SeriesCore.append": Entry(of_series("append"), (None, 5)),
    "SeriesCore.__contains__": Entry(of_series("__contains__"), (ROWS[3],), ((0,),)),
    "SeriesCore.update": Entry(of_series("update"), (ROWS,), ((0, 0), (0, 299)), iterated=(0,)),
    "SeriesCore.contains_many": Entry(of_series("contains_many"), (ROWS,), ((0, 0), (0, 299)), iterated=(0,)),
}
FUSED = (8, 0, 64, 4, Family.FAST, SIP_KEY)  # the arguments of a FuseCore before its buffer
HASHES = b"".join(sha256d(row)[:8] for row in ROWS[:200])
FUSE_TABLE = bytes(range(128)) * 3


def fused(method: str) -> Callable[[Kernel], Callable[..., object]]:
    return lambda kernel: getattr(kernel.FuseCore(*FUSED, FUSE_TABLE), method)


def fuse_constructor(kernel: Kernel) -> Callable[..., object]:
    def call(*arguments: Any) -> object:
        made = kernel.FuseCore(*arguments)
        shape = made.fingerprint_bits, made.seed, made.segment_length, made.segments, made.family, made.key
        return shape, made.encoding, made.contains_many(ROWS), made.hash_many(ROWS), bytes(made.body)

    return call


def fuse_builder(kernel: Kernel) -> Callable[..., object]:
    def call(*arguments: Any) -> object:
        return kernel.fuse_build(*arguments), bytes(arguments[-1])

    return call


ENTRIES |= {
    "FuseCore.__init__": Entry(
        fuse_constructor, (*FUSED, FUSE_TABLE, Encoding.BYTES, None, None), ((5,),), unbounded=(2, 3)
    ),
    "FuseCore.__contains__": Entry(fused("__contains__"), (ROWS[3],), ((0,),)),
    "FuseCore.contains_many": Entry(fused("contains_many"), (ROWS,), ((0, 0), (0, 299)), (0,)),
    "FuseCore.hash_many": Entry(fused("hash_many"), (ROWS,), ((0, 0), (0, 299)), (0,)),
    "fuse_merge": Entry(
        lambda kernel: lambda hashes: set(memoryview(kernel.fuse_merge(hashes)).cast("Q")), (HASHES,), ((0,),)
    ),
    "fuse_build": Entry(
        fuse_builder,
        (HASHES, 8, 0, 64, 4, bytearray(384)),
        ((0,),),
        keywords=("hashes", "fingerprint_bits", "seed", "segment_length", "segments", "buffer"),
    ),
}
ATTRIBUTES = {"cells", "hash_funcs", "family", "key", "encoding", "partitioned", "body", "slices"}  # read-only
ATTRIBUTES |= {"fingerprint_bits", "seed", "segment_length", "segments", "counter_bits", "counter_limit"}
OWN_FUNCTIONS = [zlib.crc32] * 5

# the entries again, with user functions that run during the call
CHANGES: dict[str, dict[str, Any]] = {
    "own functions": {"family": Family.CUSTOM, "custom": OWN_FUNCTIONS},
    "own encoding": {"encoding": Encoding.CALLABLE, "encode": bytearray},
}
CALLS: list[tuple[str, tuple[Any, ...], tuple[Path, ...]]] = [
    ("add", (b"key",), ((0,),)),
    ("update", (ROWS,), ((0, 0), (0, 299))),
]
VARIANTS: dict[str, Entry] = {
    f"{kind}.{method}, {name}": Entry(of_core(kind, method, **changes), arguments, taken)
    for kind in ("BitCore", "CounterCore")
    for name, changes in CHANGES.items()
    for method, arguments, taken in CALLS
}


def native() -> Kernel:
    from spvfilter.kernel import native

    return native


def reference() -> Kernel:
    return types.SimpleNamespace(**backend.reference())


def replaced(arguments: Any, path: Path, value: object) -> Any:
    """The arguments with another value at a place."""
    if not path:
        return value
    changed = [replaced(item, path[1:], value) if at == path[0] else item for at, item in enumerate(arguments)]
    if isinstance(arguments, tuple):
        make = getattr(type(arguments), "_make", tuple)
        return make(changed)
    return changed


def at(arguments: Any, path: Path) -> Any:
    for number in path:
        arguments = arguments[number]
    return arguments


def outcome(call: Callable[..., object], *arguments: Any) -> object:
    """The result of a call, or its error."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), "" if isinstance(error, KeyError) else str(error)  # a KeyError holds the key itself


def taken_places() -> list[tuple[str, Entry, Path]]:
    """Every place where an entry takes bytes."""
    return [(name, entry, path) for name, entry in (ENTRIES | VARIANTS).items() for path in entry.taken]
