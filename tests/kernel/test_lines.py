"""Lines of packed hits, in both kernels. The modules json and csv write the expected lines of the same matches."""

from __future__ import annotations

import csv
import io
import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from spvfilter.address import script_to_address
from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import NO_VALUE, EntryKind, Hit
from spvfilter.kernel.pure.blocks import walk_block
from spvfilter.kernel.pure.undo import spent_coins
from spvfilter.network import MAINNET, NETWORKS, REGTEST, Network
from spvfilter.primitives import hash_to_hex
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks import build
from support.blocks.undo import node_records
from support.commands.csvrows import csv_row, utc
from support.kernels.kernelentries import Kernel, native, outcome, reference
from support.kernels.linelabels import packed_labels
from support.vectors import effort, vector_file

both = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])
COLUMNS = [
    *(
        "kind",
        "block_hash",
        "height",
        "time",
        "txid",
        "index",
        "outpoint_txid",
        "outpoint_index",
        "value",
        "script_pubkey",
    ),
    *("address", "label", "coinbase", "fee"),
]
LABELS = ["savings", 'a "quoted", label', "Ünï ☃ \U0001f600", " 　x,́", "x" * 3_000, "\\", "'"]
KEYS = [b"\x02" + bytes((number,)) * 32 for number in range(3)]
RNG = random.Random(7)
SCRIPTS = [
    *(build.p2pkh(RNG.randbytes(20)), build.p2pkh(bytes(20)), build.p2sh(RNG.randbytes(20)), build.p2pk(KEYS[0])),
    *(build.p2pk(b"\x04" + RNG.randbytes(64)), build.multisig(1, KEYS), build.multisig(3, KEYS), b"", b"\x51", b"\x6a"),
    *(b"\x6a" + build.push(RNG.randbytes(size)) for size in (1, 20, 75, 76, 400)),
    *(
        bytes((version, size)) + RNG.randbytes(size)
        for version in (0, *range(0x51, 0x61))
        for size in (2, 3, 19, 20, 32, 33, 40)
    ),
    *(bytes((version, size)) + RNG.randbytes(size) for version in (0x50, 0x61) for size in (20, 32)),
    *(b"\x51\x01x", b"\x51\x29" + bytes(41), build.p2wpkh(bytes(20)) + b"\0", build.p2pkh(bytes(20))[:-1] + b"\xad"),
    *(build.p2sh(bytes(20))[:-1] + b"\x88", RNG.randbytes(25), RNG.randbytes(10_001), bytes(65_000)),
]
HASH = bytes(range(100, 132))
MINE = packed_labels({1: b'"mine"'})


def hit_of(rng: random.Random, script: bytes | None, entries: int) -> Hit:
    spend, txid, n = rng.random() < 0.5, rng.randbytes(32), rng.choice((0, 1, 4_294_967_295))
    value, fee = (rng.choice((NO_VALUE, 0, 1, 12_345_678_901, 2**63 - 1)) for _ in range(2))
    outpoint = rng.randbytes(36) if spend else build.outpoint(txid, n)
    return Hit(spend, rng.choice((0, 1, 2**32 - 1)), txid, n, outpoint, value, script, rng.randrange(entries), fee)


def wallet(rng: random.Random, network: Network) -> tuple[WatchList, int]:
    """A list of labelled scripts, and the number of its entries."""
    watch = WatchList(network=network)
    for number, label in enumerate([None, *LABELS, None]):
        watch.add_script(b"\x51" + bytes((number,)), label=label)
    return watch, len(watch.table)


def row(match: Match) -> dict[str, object]:
    """A match as the columns of a line."""
    values = (
        *(
            match.kind.value,
            hash_to_hex(match.block_hash or b""),
            match.height,
            match.time,
            hash_to_hex(match.txid),
            match.index,
        ),
        *(hash_to_hex(match.outpoint.txid), match.outpoint.index, match.value),
        *(
            None if match.script_pubkey is None else match.script_pubkey.hex(),
            match.address,
            match.label,
            match.is_coinbase,
            match.fee,
        ),
    )
    return dict(zip(COLUMNS, values, strict=True))


def json_lines(rows: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode() + b"\n" for row in rows)


def labels_of(watch: WatchList, entries: int, shown: Callable[[str], str]) -> tuple[bytes, bytes]:
    labels = {entry: watch.label(entry) for entry in range(entries)}
    return packed_labels({entry: shown(label).encode() for entry, label in labels.items() if label is not None})


def cell(label: str) -> str:
    return '"' + label.replace('"', '""') + '"'


def quoted(label: str) -> str:
    return json.dumps(label, ensure_ascii=False)


def of_network(network: Network) -> tuple[int, int, str]:
    return network.p2pkh_version, network.p2sh_version, network.hrp


@both
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_lines_equal_those_of_json_and_csv(kernel: Callable[[], Kernel], network: Network) -> None:
    rng = random.Random(str(network))
    watch, entries = wallet(rng, network)
    hits = [hit_of(rng, script, entries) for script in [*SCRIPTS, None, None, *SCRIPTS[:20]]]
    packed = kernel().pack_hits(hits)
    for height, time in ((0, 0), (None, 1_231_006_505), (2**32 - 1, 2**32 - 1)):
        rows = [row(match) for match in watch.matches(hits, block_hash=HASH, height=height, time=time)]
        assert {each["address"] is None for each in rows} == {each["label"] is None for each in rows} == {True, False}
        of = (HASH, height, time, *of_network(network))
        assert kernel().hit_lines(packed, 1, *labels_of(watch, entries, quoted), *of) == json_lines(rows)
        written = kernel().hit_lines(packed, 0, *labels_of(watch, entries, cell), *of).decode()
        shown = [value for each in rows for value in csv_row(each).values()]
        read = list(csv.reader(io.StringIO(written, newline="")))
        assert [value for line in read for value in line] == shown
        assert {len(line) for line in read} == {len(COLUMNS) + 1}
        assert written.endswith("\n")
        assert "\r" not in written


@both
def test_a_line_has_these_characters(kernel: Callable[[], Kernel]) -> None:
    txid, other = bytes(31) + b"\x01", b"\x0a" + bytes(31)
    paid = Hit(False, 0, txid, 2, build.outpoint(txid, 2), 5_000, b"\x00\x14" + bytes(20), 1)
    spent = Hit(True, 3, txid, 0, build.outpoint(other, 7), NO_VALUE, None, 0, 99)
    packed = kernel().pack_hits([paid, spent])
    block, text, source = HASH[::-1].hex(), "01" + "00" * 31, "00" * 31 + "0a"
    address = script_to_address(paid.script or b"", MAINNET)
    assert kernel().hit_lines(packed, 0, *MINE, HASH, 1, 2, *of_network(MAINNET)).decode() == (
        f'output,{block},1,2,1970-01-01T00:00:02Z,{text},2,{text},2,5000,0014{"00" * 20},{address},"mine",true,\n'
        f"input,{block},1,2,1970-01-01T00:00:02Z,{text},0,{source},7,,,,,false,99\n"
    )
    assert kernel().hit_lines(packed, 1, *MINE, HASH, None, 2, *of_network(MAINNET)).decode() == (
        f'{{"kind":"output","block_hash":"{block}","height":null,"time":2,"txid":"{text}","index":2,"outpoint_txid":"{text}",'
        f'"outpoint_index":2,"value":5000,"script_pubkey":"0014{"00" * 20}","address":"{address}","label":"mine",'
        f'"coinbase":true,"fee":null}}\n'
        f'{{"kind":"input","block_hash":"{block}","height":null,"time":2,"txid":"{text}","index":0,"outpoint_txid":"{source}",'
        f'"outpoint_index":7,"value":null,"script_pubkey":null,"address":null,"label":null,"coinbase":false,"fee":99}}\n'
    )


@both
@settings(max_examples=effort(50, 500, 10_000))
@given(time=st.integers(0, 2**32 - 1))
@example(time=951_868_799)  # the end of 29 February 2000
@example(time=4_107_542_399)  # the end of 28 February 2100: that year has no leap day
@example(time=4_107_542_400)
def test_csv_shows_every_time_as_a_date(kernel: Callable[[], Kernel], time: int) -> None:
    packed = kernel().pack_hits([Hit(False, 0, bytes(32), 0, build.outpoint(bytes(32), 0), 1, b"\x51", 0)])
    line = kernel().hit_lines(packed, 0, b"", b"", HASH, 1, time, *of_network(MAINNET)).decode()
    assert line.split(",")[3:5] == [str(time), utc(time)]


@both
def test_no_hits_give_no_lines(kernel: Callable[[], Kernel]) -> None:
    for form in (0, 1):
        assert kernel().hit_lines(b"", form, b"", b"", HASH, 1, 2, *of_network(MAINNET)) == b""


@pytest.mark.native
@pytest.mark.parametrize("seed", range(effort(20, 100, 2_000)))
def test_both_kernels_write_random_hits_the_same(seed: int) -> None:
    rng = random.Random(seed)
    entries = rng.choice((1, 10, 2_000))
    hits = [
        hit_of(rng, rng.choice((None, rng.randbytes(rng.randrange(60)), *SCRIPTS[:-1])), entries)
        for _ in range(rng.choice((1, 9, 99)))
    ]
    hits = [hit if rng.random() < 0.5 else hits[0]._replace(spend=True, position=hit.position) for hit in hits]
    labels = {hit.entry: rng.randbytes(rng.choice((0, 1, 30))) for hit in hits if rng.random() < 0.5}
    labels |= {rng.randrange(entries): b'"of no hit"' for _ in range(3)}
    packed = native().pack_hits(hits)
    hrp = rng.choice(("bc", "tb", "bcrt", "", "q" * 18, "q" * 19, "BC"))
    for form in (0, 1):
        arguments = (
            packed,
            form,
            *packed_labels(labels),
            rng.randbytes(32),
            rng.choice((None, 0, 900_000)),
            rng.randrange(2**32),
        )
        of = (rng.randrange(256), rng.randrange(256), hrp)
        assert outcome(native().hit_lines, *arguments, *of) == outcome(reference().hit_lines, *arguments, *of)


PACKED = reference().pack_hits(
    [hit_of(random.Random(number), SCRIPTS[number], 2)._replace(entry=number) for number in range(4)]
)
ARGUMENTS: dict[str, Any] = {
    "packed": PACKED,
    "form": 1,
    "label_places": b"",
    "label_texts": b"",
    "block_hash": HASH,
    "height": 5,
    "time": 6,
    "p2pkh_version": 0,
    "p2sh_version": 5,
    "hrp": "bc",
}
WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "text for hits": ({"packed": "hits"}, TypeError, "expected a bytes-like object, not str"),
    "no such form": ({"form": 2}, ParameterError, "a form must be 0 or 1, not 2"),
    "a form by name": ({"form": "csv"}, TypeError, "a form must be 0 or 1: expected an int, not str"),
    "a list of places": ({"label_places": [0]}, TypeError, "expected a bytes-like object, not list"),
    "labels that are text": ({"label_texts": "label"}, TypeError, "expected a bytes-like object, not str"),
    "a short hash": ({"block_hash": bytes(31)}, ParameterError, "a block hash must be 32 bytes long, not 31"),
    "a hash that is text": ({"block_hash": "00" * 32}, TypeError, "expected a bytes-like object, not str"),
    "a height below nothing": ({"height": -1}, ParameterError, "a height must be from 0 to 2^32 - 1, not -1"),
    "a height beyond all": ({"height": 2**32}, ParameterError, "a height must be from 0 to 2^32 - 1, not 4294967296"),
    "no time": ({"time": None}, TypeError, "a block's time must be from 0 to 2^32 - 1: expected an int, not NoneType"),
    "a time beyond headers": (
        {"time": 2**32},
        ParameterError,
        "a block's time must be from 0 to 2^32 - 1, not 4294967296",
    ),
    "no version byte": ({"p2pkh_version": 256}, ParameterError, "a version byte must be from 0 to 255, not 256"),
    "no other version byte": ({"p2sh_version": -1}, ParameterError, "a version byte must be from 0 to 255, not -1"),
    "a prefix that is bytes": ({"hrp": b"bc"}, TypeError, "the human-readable part must be a str, not bytes"),
}


@both
@pytest.mark.parametrize("name", WRONG)
def test_invalid_arguments_are_refused(kernel: Callable[[], Kernel], name: str) -> None:
    changes, kind, message = WRONG[name]
    assert outcome(lambda: kernel().hit_lines(**(ARGUMENTS | changes))) == (kind, message)


@both
def test_an_entry_without_a_place_has_no_label(kernel: Callable[[], Kernel]) -> None:
    def lines(labels: dict[int, bytes]) -> list[Any]:
        places, texts = packed_labels(labels)
        named = {"label_places": bytearray(places), "label_texts": memoryview(texts)}
        return [json.loads(line)["label"] for line in kernel().hit_lines(**(ARGUMENTS | named)).splitlines()]

    assert lines({2: b'"two"', 9: b"unused"}) == [None, None, "two", None]
    assert lines({1: b"", 2: b'"two"'}) == [None, None, "two", None]
    assert lines({}) == [None] * 4


@both
@pytest.mark.parametrize("place", [2, 5, 2**32 - 1])
def test_labels_outside_of_the_texts_are_refused(kernel: Callable[[], Kernel], place: int) -> None:
    """A size that is cut off, a label that is cut off, and a place after the texts."""
    places, texts = struct.pack("=4I", 0, 0, 1, place), bytes(4) + struct.pack("<BIB", 0, 2, 0)[:6]
    if place == 2:
        texts = texts[:5]
    with pytest.raises(FormatError, match="the label of entry 1 is outside the texts") as raised:
        kernel().hit_lines(**(ARGUMENTS | {"label_places": places, "label_texts": texts}))
    assert (raised.value.offset, raised.value.field) == (8, "labels")


@both
def test_a_network_without_segwit_has_no_such_addresses(
    kernel: Callable[[], Kernel],
) -> None:
    of = random.Random(3)
    packed = kernel().pack_hits([hit_of(of, build.p2pkh(bytes(20)), 1), hit_of(of, build.p2wpkh(bytes(20)), 1)])
    lines = kernel().hit_lines(**(ARGUMENTS | {"packed": packed, "hrp": ""}))
    assert [json.loads(line)["address"] for line in lines.splitlines()] == ["1111111111111111111114oLvT2", None]
    assert script_to_address(build.p2wpkh(bytes(20)), replace(MAINNET, name="custom", hrp="")) is None
    message = "a human-readable part must be lower-case printable ASCII, not 'BC'"
    assert outcome(lambda: kernel().hit_lines(**(ARGUMENTS | {"packed": packed, "hrp": "BC"}))) == (
        ParameterError,
        message,
    )


def coins_in(record: bytes) -> list[tuple[int, str]]:
    return [(coin.value, coin.script.hex()) for of in spent_coins(record[:-32]) for coin in of]


@both
@pytest.mark.vectors
def test_lines_of_a_real_nodes_blocks_have_every_coin(kernel: Callable[[], Kernel]) -> None:
    """The wallet owns all scripts: it sees every output, and every input with its true value and script."""
    functions = kernel()
    blocks = {sha256d(raw[:80]): raw for raw in node_records("blk00000.dat", 0)}
    records = node_records("rev00000.dat", 32)
    seen = 0
    for facts in vector_file("12_undo/truth.json")["blocks"]:
        block_hash = bytes.fromhex(facts["hash"])[::-1]
        raw = blocks[block_hash]
        spent = [(value, script) for of in facts["spent"] for value, script, _, _ in of]
        txs = list(walk_block(raw))
        paid = [raw[start:end].hex() for tx in txs for _, start, end in tx.outputs]
        table = functions.WatchTable()
        for script in {*paid, *(script for _, script in spent)}:
            table.add(EntryKind.SCRIPT, bytes.fromhex(script))
        # records of stale blocks included
        fitting = [record for record in records if sha256d(raw[4:36] + record[:-32]) == record[-32:]]
        record = next((record for record in fitting if coins_in(record) == spent), None)
        assert record or not facts["height"]
        [packed] = table.scan_blocks([raw], undo=[record], packed=True)
        lines = functions.hit_lines(
            packed, 1, b"", b"", block_hash, facts["height"], 7, *of_network(REGTEST)
        ).splitlines()
        rows = [json.loads(line) for line in lines]
        assert [(row["value"], row["script_pubkey"]) for row in rows if row["kind"] == "input"] == spent
        assert [row["script_pubkey"] for row in rows if row["kind"] == "output"] == paid
        assert {row["address"] for row in rows} == {
            script_to_address(bytes.fromhex(row["script_pubkey"]), REGTEST) for row in rows
        }
        assert {(row["block_hash"], row["height"]) for row in rows} == {(facts["hash"], facts["height"])}
        sums = functions.hit_sums(packed)
        assert sum(spent for _, _, _, spent, _ in sums) == sum(value for value, _ in spent)
        assert sum(matches for _, matches, _, _, _ in sums) == len(rows)
        seen += len(spent)
    assert seen == 320
