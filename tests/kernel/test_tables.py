"""Block tables: the rows are those of python-bitcoinlib, and both kernels give the same bytes and errors."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from spvfilter.errors import FormatError, ParameterError, UndoError
from spvfilter.kernel import NO_VALUE, Hit, block_columns, block_txids, pack_hits, unpack_hits, walk_block
from spvfilter.kernel.blocktables import BLOCK_TABLES, HEX, NO_HEIGHT, SCRIPT_TYPES
from spvfilter.kernel.protocols import PROTOCOLS
from spvfilter.network import MAINNET, REGTEST
from spvfilter.protocol import MAX_MONEY
from support.blocks import build
from support.blocks.blocktables import EVERY, HEXES, of_network, rows_of_block, values
from support.blocks.build import TxIn, TxOut
from support.blocks.realdata import RealBlock, real_block_cases, runs, single_blocks
from support.blocks.undo import KEYS, Spent, coins_of_block, ledger_chain, record_of, spent_of, undo_of
from support.kernels.kernelentries import native, outcome, reference
from support.project.installed import is_compiled
from support.vectors import effort

FACTS = ("is_coinbase", "fee", "size", "virtual_size", "weight")
SHARED = ("transaction_hash", "index", "value", "address")
PLACE = {"block_hash": "hash", "block_number": "number", "block_timestamp": "timestamp"}
KEY = b"\x02" + bytes(32)
needs_both = pytest.mark.skipif(not is_compiled(), reason="needs the compiled kernel")


def both(*arguments: Any) -> Any:
    """The result of both kernels, which must be the same."""
    one, other = (outcome(kernel.block_columns, *arguments) for kernel in (native(), reference()))
    assert one == other
    return one


def tables_of(raw: bytes, record: bytes | None, height: int, names: list[str]) -> dict[str, list[Any]]:
    columns = block_columns([raw], [record], [height], names, *of_network(MAINNET), None)
    return {name: values(name, column) for name, column in zip(names, columns, strict=True)}


def assert_rows_of_bitcoinlib(raw: bytes, spent: list[list[Spent]] | None, height: int) -> None:
    expected = rows_of_block(raw, height, spent)
    record = None if spent is None else record_of(raw, undo_of(spent))
    names = [f"{table}.{name}" for table, rows in expected.items() for name in (rows or [{}])[0]]
    found = tables_of(raw, record, height, names + HEXES)
    for name in names:
        table, column = name.split(".")
        assert found[name] == [row[column] for row in expected[table]], name
        if name + HEX in found:
            assert found[name + HEX] == [None if value is None else value.hex() for value in found[name]]


@pytest.mark.long
@real_block_cases()
def test_rows_of_a_real_block_are_those_of_bitcoinlib(block: RealBlock) -> None:
    spent = coins_of_block(block) if block.facts.get("prevouts_file") else None
    assert_rows_of_bitcoinlib(block.raw, spent, block.height)


@pytest.mark.vectors
def test_rows_of_consecutive_real_blocks_are_those_of_bitcoinlib() -> None:
    for _, blocks in runs():
        spent = spent_of([block.raw for block in blocks]) if blocks[0].height == 0 else [None] * len(blocks)
        for block, of_block in zip(blocks, spent, strict=True):
            assert_rows_of_bitcoinlib(block.raw, of_block, block.height)


@pytest.mark.vectors
@needs_both
def test_both_kernels_give_the_same_bytes_for_real_blocks() -> None:
    for block in single_blocks():
        if len(block.raw) < effort(100_000, 400_000, 4_000_000):
            record = None
            if block.facts.get("prevouts_file"):
                record = record_of(block.raw, undo_of(coins_of_block(block)))
            both([block.raw], [record], [block.height], EVERY + HEXES, *of_network(block.network), None)


@needs_both
@pytest.mark.parametrize("seed", range(effort(3, 10, 100)))
def test_both_kernels_agree_on_any_blocks_and_records(seed: int) -> None:
    rng = random.Random(seed)
    _, blocks, records = ledger_chain(seed)
    for _ in range(effort(30, 100, 1_000)):
        numbers = [rng.randrange(len(blocks)) for _ in range(rng.randrange(4))]
        raws: list[Any] = [blocks[number] for number in numbers]
        beside: list[Any] = [rng.choice([records[number], records[number], None]) for number in numbers]
        if numbers and rng.random() < 0.7:
            (raws if rng.random() < 0.6 or beside[0] is None else beside)[0] = damaged(raws, beside, rng)
        heights = [rng.choice([NO_HEIGHT, number, 0x7FFFFFFF]) for number in numbers]
        names = rng.sample(EVERY + HEXES, rng.randrange(1, 20))
        chosen: list[Any] | None = [hits_in(blocks[number], rng) for number in numbers] if rng.random() < 0.7 else None
        network = of_network(rng.choice([MAINNET, REGTEST]))
        both(raws, rng.choice([beside, None]), heights, names, *network, chosen)


def hits_in(raw: bytes, rng: random.Random) -> bytes:
    """The packed hits of some inputs and outputs in any order, sometimes with a hit of another block."""
    txs, joined, hits = list(walk_block(raw)), block_txids(raw), list[Hit]()
    txids = [joined[at : at + 32] for at in range(0, len(joined), 32)]
    for position, tx in enumerate(txs):
        for spend, items in ((True, len(tx.inputs) if position else 0), (False, len(tx.outputs))):
            for n in range(items):
                hits += [hit_of(spend, position, txids[position], n, rng.randrange(9)) for _ in range(rng.randrange(3))]
    rng.shuffle(hits)
    hits = hits[: rng.randrange(len(hits) + 1)]
    if rng.random() < 0.5:
        strange = [(False, len(txs), 0), (True, 0, 0), (False, 0, len(txs[0].outputs))]
        spend, position, n = rng.choice(strange)
        hits.append(hit_of(spend, position, txids[position % len(txids)], n))
        hits.append(hit_of(False, 0, rng.choice([txids[0], bytes(32)]), 0))
    return pack_hits(hits)


def hit_of(spend: bool, position: int, txid: bytes, n: int, entry: int = 0) -> Hit:
    return Hit(spend, position, txid, n, build.outpoint(txid, n), NO_VALUE, None, entry, NO_VALUE)


@pytest.mark.parametrize("seed", range(effort(3, 10, 100)))
def test_only_transactions_with_hits_have_rows(seed: int) -> None:
    rng = random.Random(seed)
    _, blocks, records = ledger_chain(seed)
    names = ["transactions.hash", "inputs.transaction_hash", "outputs.transaction_hash", "blocks.hash"]
    items = ["items.kind", "items.transaction_hash", "items.index", "items.is_match", "items.entry"]
    for raw, record in zip(blocks, records, strict=True):
        packed = b""
        while not packed:
            packed = hits_in(raw, random.Random(rng.random()))
            try:
                block_columns([raw], None, [1], [], *of_network(REGTEST), [packed])
            except FormatError:
                packed = b""
        hits = unpack_hits(packed)
        wanted = {hit.txid[::-1] for hit in hits}
        every = tables_of(raw, record, 1, names + items)
        columns = block_columns([raw], [record], [1], names + items, *of_network(REGTEST), [packed])
        found = {name: values(name, column) for name, column in zip(names + items, columns, strict=True)}
        for name in names[:3]:
            assert found[name] == [txid for txid in every[name] if txid in wanted]
        assert found["blocks.hash"] == every["blocks.hash"]
        rows = list(zip(*(found[name] for name in items), strict=True))
        assert [row[:3] for row in rows] == [
            row for row in zip(*(every[name] for name in items[:3]), strict=True) if row[1] in wanted
        ]
        assert {row[:3] for row in rows if row[3]} == {
            ("input" if hit.spend else "output", hit.txid[::-1], hit.n) for hit in hits
        }
        entries: dict[tuple[str, bytes, int], int] = {}
        for hit in hits:
            item = "input" if hit.spend else "output", hit.txid[::-1], hit.n
            entries[item] = min(entries.get(item, hit.entry), hit.entry)
        assert all(row[4] == entries.get(row[:3]) for row in rows)
        assert not any(every["items.is_match"])
        assert set(every["items.entry"]) == {None}


def test_an_item_has_the_facts_of_its_input_or_output() -> None:
    _, blocks, records = ledger_chain(4)
    for height, (raw, record) in enumerate(zip(blocks, records, strict=True)):
        found = tables_of(raw, record, height, EVERY)
        rows = [
            {name.removeprefix("items."): value for name, value in row}
            for row in zip(
                *([(name, value) for value in found[name]] for name in EVERY if "items." in name), strict=True
            )
        ]
        facts = dict(
            zip(found["transactions.hash"], zip(*(found[f"transactions.{n}"] for n in FACTS), strict=True), strict=True)
        )
        for row in rows:
            assert tuple(row[name] for name in FACTS) == facts[row["transaction_hash"]]
            assert (row["block_time"] * 1000, row["block_number"]) == (found["blocks.timestamp"][0], height)
        for kind, table, script in (("input", "inputs", "spent_script"), ("output", "outputs", "script")):
            expected = [
                dict(zip((*SHARED, "script", "type"), each, strict=True))
                for each in zip(*(found[f"{table}.{name}"] for name in (*SHARED, script, "type")), strict=True)
            ]
            own = [row for row in rows if row["kind"] == kind]
            assert [{name: row[name] for name in (*SHARED, "script")} for row in own] == [
                {name: row[name] for name in (*SHARED, "script")} for row in expected
            ]
            assert [row["type"] for row in own] == [SCRIPT_TYPES[row["type"]] for row in expected]
        sources = [(row["source_transaction_hash"], row["source_output_index"]) for row in rows]
        spent = zip(found["inputs.spent_transaction_hash"], found["inputs.spent_output_index"], strict=True)
        assert [at for at, row in zip(sources, rows, strict=True) if row["kind"] == "input"] == list(spent)
        assert all(
            at == (row["transaction_hash"], row["index"])
            for at, row in zip(sources, rows, strict=True)
            if row["kind"] == "output"
        )


def damaged(raws: list[bytes], beside: list[bytes | None], rng: random.Random) -> bytes:
    """The first block or its record with some bytes changed, cut or added; a record has a right check half the time."""
    raw = bytearray(rng.choice([raws[0], beside[0] or raws[0]]))
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(raw) + 1)
        match rng.randrange(4):
            case 0 if at < len(raw):
                raw[at] ^= 1 << rng.randrange(8)
            case 1:
                raw[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 2:
                del raw[at : at + rng.randrange(1, 9)]
            case _ if at < len(raw):
                raw[at] = rng.choice([0, 0xFD, 0xFE, 0xFF])
    return record_of(raws[0], bytes(raw[:-32])) if rng.random() < 0.5 else bytes(raw)


def pushes(*data: bytes) -> bytes:
    return b"".join(map(build.push, data))


def keys(count: int) -> bytes:
    return pushes(*[KEY] * count)


TYPES = {
    build.p2pk(KEY): "pubkey",
    build.p2pk(KEYS[0]): "pubkey",
    b"\x21\x05" + bytes(32) + b"\xac": "nonstandard",
    build.p2pkh(bytes(20)): "pubkeyhash",
    build.p2pkh(bytes(20))[:-1]: "nonstandard",
    build.p2sh(bytes(20)): "scripthash",
    build.p2wpkh(bytes(20)): "witness_v0_keyhash",
    build.p2wsh(bytes(32)): "witness_v0_scripthash",
    b"\x00\x15" + bytes(21): "nonstandard",
    build.p2tr(bytes(32)): "witness_v1_taproot",
    b"\x51\x02\x4e\x73": "anchor",
    b"\x51\x02\x4e\x74": "witness_unknown",
    b"\x52\x20" + bytes(32): "witness_unknown",
    b"\x60\x28" + bytes(40): "witness_unknown",
    b"\x60\x29" + bytes(41): "nonstandard",
    b"\x51\x01\x01": "nonstandard",
    b"\x6a": "nulldata",
    b"\x6a\x04data": "nulldata",
    b"\x6a\x5d\x02ab\x4c\x01c": "nulldata",
    b"\x6a\x05data": "nonstandard",
    b"\x6a\x61": "nonstandard",
    b"\x51" + keys(1) + b"\x51\xae": "multisig",
    b"\x52" + keys(3) + b"\x53\xae": "multisig",
    b"\x52" + keys(3) + b"\x52\xae": "nonstandard",
    b"\x53" + keys(2) + b"\x52\xae": "nonstandard",
    b"\x00" + keys(1) + b"\x51\xae": "nonstandard",
    b"\x60" + keys(16) + b"\x60\xae": "multisig",
    b"\x51" + keys(17) + b"\x01\x11\xae": "multisig",
    b"\x01\x14" + keys(20) + b"\x01\x14\xae": "multisig",
    b"\x51" + keys(21) + b"\x01\x15\xae": "nonstandard",
    b"\x01\x01" + keys(1) + b"\x51\xae": "nonstandard",
    b"\x51" + keys(1) + b"\x01\x01\xae": "nonstandard",
    b"\x51" + keys(1) + b"\x51\x61\xae": "nonstandard",
    b"": "nonstandard",
    b"\xae": "nonstandard",
    b"\x51\xae": "nonstandard",
}


def paying(scripts: list[bytes]) -> bytes:
    payment = build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(1, script) for script in scripts])
    return build.block_of(build.GENESIS, 1, [payment])


def test_script_types_have_the_words_of_core() -> None:
    found = tables_of(paying(list(TYPES)), None, 1, ["outputs.type", "outputs.transaction_index"])
    names = [SCRIPT_TYPES[number] for number in found["outputs.type"]]
    assert names[-len(TYPES) :] == list(TYPES.values())


def test_spent_types_are_the_types_of_the_scripts() -> None:
    scripts = [script for script in TYPES if script != build.p2pk(KEY)]  # a point that is not on the curve
    block = build.block_of(
        build.GENESIS, 1, [build.tx([TxIn(bytes([1]) * 32, n) for n in range(len(scripts))], [TxOut(1, b"")])]
    )
    record = record_of(block, undo_of([[Spent(5, script, 7) for script in scripts]]))
    names = ["inputs.type", "inputs.spent_script", "inputs.address", "outputs.address"]
    found = tables_of(block, record, 9, names)
    assert [SCRIPT_TYPES[number] for number in found["inputs.type"]] == [TYPES[script] for script in scripts]
    assert found["inputs.spent_script"] == scripts
    paid = tables_of(paying(scripts), None, 1, names)["outputs.address"]
    assert found["inputs.address"] == paid[-len(scripts) :]


@needs_both
@pytest.mark.parametrize("seed", range(effort(2, 5, 50)))
def test_both_kernels_agree_on_any_scripts(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [KEY, KEYS[0], build.push(KEY), build.push(KEYS[0]), b"\x51", b"\x52", b"\x01\x11", b"\xae", b"\xac"]
    pieces += [
        b"\x6a",
        b"\x00",
        b"\x14",
        b"\x20",
        b"\x4c",
        b"\x4d",
        b"\x4e",
        b"\x02\x4e\x73",
        bytes(20),
        b"\xa9",
        b"\x87",
    ]
    scripts = [b"".join(rng.choices(pieces, k=rng.randrange(6))) for _ in range(effort(300, 1_000, 5_000))]
    for script in TYPES:
        raw = bytearray(script)
        for _ in range(20):
            if raw:
                raw[rng.randrange(len(raw))] = rng.choice([0, 1, 2, 0x51, 0x60, 0x6A, 0xAE, rng.randrange(256)])
            scripts.append(bytes(raw))
    both(
        [paying(scripts)],
        None,
        [1],
        [name for name in EVERY if name.startswith("outputs.")],
        *of_network(MAINNET),
        None,
    )


def test_op_return_has_the_joined_pushes() -> None:
    scripts = [b"\x6a", b"\x6a\x04data", b"\x6a\x5d\x02ab\x4c\x01c", b"\x6a\x05data", b"\x04data", b"\x6a\x00\x01x"]
    found = tables_of(paying(scripts), None, 1, ["outputs.op_return"])["outputs.op_return"]
    assert found[-6:] == [b"", b"data", b"\x0dabc", None, None, b"x"]


def test_numbers_after_op_return_are_bytes() -> None:
    scripts = {
        b"\x6a\x4f": b"\x81",
        b"\x6a\x51\x60\x00\x50\x4c\x00\x52\x01z": b"\x01\x10\x02z",
        b"\x6a\x4e\x02\x00\x00\x00ab\x5d\x4d\x01\x00c": b"ab\x0dc",
    }
    found = tables_of(paying(list(scripts)), None, 1, ["outputs.op_return"])["outputs.op_return"]
    assert found[-3:] == list(scripts.values())


def test_the_script_after_op_return_needs_no_pushes() -> None:
    scripts = [b"\x6a", b"\x6a\x5d\x05da", b"\x6a\xff", b"\x51\x6a", b""]
    found = tables_of(paying(scripts), None, 1, ["outputs.op_return_script"])["outputs.op_return_script"]
    assert found[-5:] == [b"", b"\x5d\x05da", b"\xff", None, None]


def rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    i, j, made = 0, 0, b""
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        made += bytes((byte ^ state[(state[i] + state[j]) % 256],))
    return made


def test_rc4_gives_the_published_stream() -> None:
    assert rc4(b"Key", b"Plaintext").hex() == "bbf316e8d940af0ad3"


def counterparty(spent: bytes) -> bytes:
    """The start of a Counterparty message, encrypted by RC4."""
    return rc4(spent[::-1], b"CNTRPRTY\x00\x00\x00\x14a message")


PROTOCOL_SCRIPTS = {
    b"\x6a\x5d\x02ab": "Runes",
    b"\x6a\x5d": "Runes",
    b"\x6a\x5d\xff": "Runes",
    b"\x6a\x01\x0d\x02ab": None,  # a push of the byte 13 is no Runestone
    b"\x6a\x14omni" + bytes(16): "Omni",
    b"\x6a\x4c\x14omni" + bytes(16): "Omni",
    b"\x6a\x04omni": None,
    b"\x6a\x06OA\x01\x00\x01\x00": "Open Assets",
    b"\x6a\x06OA\x02\x00\x01\x00": None,
    b"\x6a\x03X2[": "Stacks",
    b"\x6a\x03X2a": None,
    b"\x6a\x03X2\x00": None,
    b"\x6a\x02X2": None,
    b"\x6a\x29RSKBLOCK:" + bytes(32): None,  # only a coinbase mines
    b"\x6a\x24\xaa\x21\xa9\xed" + bytes(32): None,
    b"\x6a\x14" + counterparty(bytes(range(32)))[:20]: "Counterparty",
    b"\x6a\x14" + counterparty(bytes(32))[:20]: None,
    b"\x6a\x08CNTRPRTY": None,
    b"\x6a": None,
    b"\x51": None,
}


def test_a_protocol_is_recognized_by_its_mark() -> None:
    payment = build.tx([TxIn(bytes(range(32)), 1)], [TxOut(1, script) for script in PROTOCOL_SCRIPTS])
    raw = build.block(bytes(32), [build.coinbase(1), payment])
    found = tables_of(raw, None, 1, ["outputs.op_return_protocol"])["outputs.op_return_protocol"]
    assert dict(zip(PROTOCOL_SCRIPTS, found[-len(PROTOCOL_SCRIPTS) :], strict=True)) == PROTOCOL_SCRIPTS


def test_a_coinbase_has_protocols_of_its_own() -> None:
    scripts = {
        b"\x6a\x29RSKBLOCK:" + bytes(32): "RSK",
        b"\x6a\x09RSKBLOCK:": None,
        b"\x6a\x24\xaa\x21\xa9\xed" + bytes(32): "witness commitment",
        b"\x6a\x24\xaa\x21\xa9\xed" + bytes(31): None,
        b"\x6a\x5d": "Runes",
        b"\x6a\x14" + counterparty(bytes(32))[:20]: None,
    }
    coinbase = build.tx([TxIn(bytes(32), 0xFFFFFFFF, b"\1\1")], [TxOut(1, script) for script in scripts])
    found = tables_of(build.block(bytes(32), [coinbase]), None, 1, ["outputs.op_return_protocol"])
    assert dict(zip(scripts, found["outputs.op_return_protocol"], strict=True)) == scripts


def test_every_protocol_has_a_source_and_an_example() -> None:
    known = {*PROTOCOL_SCRIPTS.values(), "RSK", "witness commitment"} - {None}
    assert {protocol.name for protocol in PROTOCOLS} == known
    assert all(protocol.source and len(protocol.mark) <= protocol.least for protocol in PROTOCOLS)


def test_a_block_without_undo_data_has_nulls() -> None:
    _, blocks, records = ledger_chain(1)
    needs = ["inputs.type", "inputs.value", "inputs.address", "inputs.spent_script", "inputs.spent_block_number"]
    needs += ["transactions.input_value", "transactions.fee", "transactions.fee_rate"]
    number = max(range(len(blocks)), key=lambda each: len(records[each]))
    without = tables_of(blocks[number], None, number, needs)
    assert all(column and set(column) == {None} for column in without.values())
    with_undo = tables_of(blocks[number], records[number], number, needs)
    assert with_undo["transactions.fee"][0] is None
    assert None not in with_undo["transactions.fee"][1:] + with_undo["inputs.value"]


def test_columns_without_rows_are_empty() -> None:
    columns = block_columns([], None, [], EVERY + HEXES, *of_network(MAINNET), None)
    assert all(values(name, column) == [] for name, column in zip(EVERY + HEXES, columns, strict=True))


def test_all_blocks_of_a_call_follow_one_another() -> None:
    _, blocks, records = ledger_chain(2)
    names = EVERY + HEXES
    apart = [
        tables_of(raw, record, number, names) for number, (raw, record) in enumerate(zip(blocks, records, strict=True))
    ]
    together = block_columns(blocks, records, range(len(blocks)), names, *of_network(MAINNET), None)
    for name, column in zip(names, together, strict=True):
        assert values(name, column) == [value for each in apart for value in each[name]]


BLOCK = paying([b""])
SPENDING = build.block_of(build.GENESIS, 1, [build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(5, b"")])])


def paying_values(*values: int) -> bytes:
    payment = build.tx([TxIn(bytes([1]) * 32, 0)], [TxOut(value, b"") for value in values])
    return build.block_of(build.GENESIS, 1, [payment])


def undone(*spent: Spent, block: bytes = SPENDING) -> bytes:
    return record_of(block, undo_of([spent]))


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"blocks": [BLOCK, BLOCK[:-1]], "heights": [1, 2]}, FormatError, "lock time"),
        ({"blocks": [bytes(4_000_001)]}, FormatError, "must be at most 4000000 bytes long, not 4000001"),
        ({"blocks": [paying_values(MAX_MONEY + 1)]}, FormatError, "21 million coins"),
        ({"blocks": [paying_values(-1)]}, FormatError, "21 million coins"),
        ({"blocks": [paying_values(MAX_MONEY, 1)]}, FormatError, "21 million coins"),
        ({"records": [undone(Spent(4, b""))], "blocks": [SPENDING]}, UndoError, "pays more than it spends"),
        (
            {"records": [undone(Spent(9, b""), Spent(9, b""))], "blocks": [SPENDING]},
            UndoError,
            "must be 1, as in transaction 1, not 2",
        ),
        (
            {"records": [undone(Spent(9, b""))[:-1] + b"!"], "blocks": [SPENDING]},
            UndoError,
            "does not match the record",
        ),
        ({"records": [b"short"]}, UndoError, "expected 32 bytes"),
        ({"records": []}, ParameterError, "the number of undo records (0) must equal the number of blocks (1)"),
        ({"heights": []}, ParameterError, "the number of heights (0) must equal the number of blocks (1)"),
        ({"heights": [-2]}, ParameterError, "a height must be from 0 to 2^31 - 1, or -1 if it is not known, not -2"),
        (
            {"heights": [1 << 31]},
            ParameterError,
            "a height must be from 0 to 2^31 - 1, or -1 if it is not known, not 2147483648",
        ),
        ({"columns": ["blocks.height"]}, ParameterError, "no such column: blocks.height"),
        ({"columns": ["outputs.value:hex"]}, ParameterError, "no such column: outputs.value:hex"),
        ({"columns": ["blocks"]}, ParameterError, "no such column: blocks"),
        ({"columns": [b"blocks.hash"]}, TypeError, "the name of a column must be a str, not bytes"),
        ({"p2pkh": 256}, ParameterError, "a version byte must be from 0 to 255, not 256"),
        ({"hits": []}, ParameterError, "the number of items in hits (0) must equal the number of blocks (1)"),
        ({"hits": b"h"}, TypeError, "expected an iterable of bytes"),
        ({"hits": [b"h"]}, FormatError, "hit"),
        ({"blocks": BLOCK}, TypeError, "expected an iterable of bytes"),
    ],
)
def test_bad_arguments_have_their_own_errors(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    given = {
        "blocks": [BLOCK],
        "records": None,
        "heights": [1],
        "columns": EVERY,
        "p2pkh": 0,
        "p2sh": 5,
        "hrp": "bc",
    } | {"hits": None}
    with pytest.raises(kind, match=re.escape(message)):
        block_columns(*(given | arguments).values())
    if is_compiled():
        both(*(given | arguments).values())


def test_a_key_off_the_curve_fails_only_a_wanted_script() -> None:
    off = bytes.fromhex("04") + bytes(32)  # x = 0 has no point
    undo = undo_of([[Spent(9, b"")]])
    record = record_of(SPENDING, undo[:-1] + off)
    assert tables_of(SPENDING, record, 1, ["inputs.type"])["inputs.type"] == [SCRIPT_TYPES.index("pubkey")]
    with pytest.raises(UndoError, match="not on the curve"):
        tables_of(SPENDING, record, 1, ["inputs.spent_script"])


def test_every_table_names_its_columns_for_the_kernel() -> None:
    assert list(BLOCK_TABLES) == ["blocks", "transactions", "inputs", "outputs"]
    for table in ("transactions", "inputs", "outputs"):
        assert PLACE.keys() < BLOCK_TABLES[table].keys()
