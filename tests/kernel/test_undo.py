"""Undo records on both kernels: those of a real node and of real blocks, damaged ones, and scans that use them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from spvfilter.errors import FormatError, ParameterError, UndoError
from spvfilter.kernel import NO_VALUE, EntryKind, Hit, Place, SpentCoin
from support.blocks.build import GENESIS, TxIn, TxOut, block_hash, block_of, p2pkh, p2sh, p2wpkh, push, sha256d, tx
from support.blocks.realdata import RealBlock, real_block_cases, runs, single_blocks
from support.blocks.undo import (
    KEYS,
    Spent,
    coins_of_block,
    full_key,
    ledger_chain,
    node_records,
    packed_amount,
    record_of,
    spent_of,
    undo_of,
    var,
)
from support.kernels.kernelentries import Kernel, native, outcome, reference
from support.project.installed import is_compiled
from support.vectors import effort, vector_file

pytestmark = pytest.mark.native
KERNELS = {"native": native(), "pure": reference()} if is_compiled() else {}
BOTH = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def both(name: str, *arguments: Any) -> object:
    """The outcome of a function, which must be the same in both kernels."""
    one, other = (outcome(getattr(kernel, name), *arguments) for kernel in (native(), reference()))
    assert one == other
    return one


@pytest.mark.vectors
@BOTH
def test_every_coin_of_a_real_nodes_files_is_true(kernel: Kernel) -> None:
    blocks = {block_hash(raw): raw for raw in node_records("blk00000.dat", 0)}
    records = node_records("rev00000.dat", 32)
    seen = 0
    for facts in vector_file("12_undo/truth.json")["blocks"]:
        raw = blocks[bytes.fromhex(facts["hash"])[::-1]]
        expected = [
            [SpentCoin(value, bytes.fromhex(script), height, coinbase) for value, script, height, coinbase in of]
            for of in facts["spent"]
        ]
        fitting = [record for record in records if sha256d(raw[4:36] + record[:-32]) == record[-32:]]
        assert [kernel.spent_coins(record[:-32]) for record in fitting].count(expected) == (1 if facts["height"] else 0)
        seen += sum(map(len, expected))
    assert seen == 320


@pytest.mark.long
@real_block_cases()
def test_a_real_blocks_undo_gives_every_value_and_fee(block: RealBlock) -> None:
    if not block.facts.get("prevouts_file"):
        assert block not in [each for each in single_blocks() if each.facts.get("prevouts_file")]
        return
    spent = coins_of_block(block)
    undo = undo_of(spent)
    assert both("spent_coins", undo) == [
        [SpentCoin(coin.value, coin.script, None, None) for coin in coins] for coins in spent
    ]
    record = record_of(block.raw, undo)
    scripts = {coin.script for coins in spent for coin in coins}
    some = random.Random(block.height).sample(sorted(scripts), min(len(scripts), 400))
    found = []
    for kernel in (native(), reference()):
        table = kernel.WatchTable()
        for script in some:
            table.add(EntryKind.SCRIPT, script)
        found.append(table.scan_block(block.raw, None, record))
    assert found[0] == found[1]
    expected = [
        (position, n, coin.value, coin.script)
        for position, coins in enumerate(spent, 1)
        for n, coin in enumerate(coins)
        if coin.script in some
    ]
    assert [(hit.position, hit.n, hit.value, hit.script) for hit in found[0] if hit.spend] == expected
    spans = list(native().walk_block(block.raw))
    for hit in found[0]:
        paid = sum(int.from_bytes(block.raw[at : at + 8], "little") for at, _, _ in spans[hit.position].outputs)
        fee = sum(coin.value for coin in spent[hit.position - 1]) - paid if hit.position else NO_VALUE
        assert hit.fee == fee
        assert hit.entry == some.index(hit.script)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8000"),
        (255, "807f"),
        (16383, "fe7f"),
        (16384, "ff00"),
        (65535, "82fe7f"),
        (0xFFFFFFFF, "8efefefe7f"),
    ],
)
def test_varints_equal_cores(number: int, written: str) -> None:
    """The number is the code of a coin. Only the first coin has height 0."""
    assert var(number).hex() == written
    version = b"" if number < 2 else b"\x05"
    undo = b"\x01\x01" + bytes.fromhex(written) + version + b"\x09\x06"
    height = number >> 1
    assert both("spent_coins", undo) == [
        [SpentCoin(100_000_000, b"", height or None, bool(number & 1) if height else None)]
    ]


@pytest.mark.parametrize(
    ("written", "most"),
    [("8efefeff00", 0xFFFFFFFF), ("ffffffffff", 0xFFFFFFFF), ("80fefefefefefefefeff00", None), ("ff" * 30, None)],
)
def test_a_number_with_too_many_bits_is_refused(written: str, most: int | None) -> None:
    undo = b"\x01\x01" + (bytes.fromhex(written) if most else b"\0" + bytes.fromhex(written)) + b"\0" * 40
    refusal = both("spent_coins", undo)
    assert isinstance(refusal, tuple)
    assert refusal[0] is UndoError
    assert "must be at most " in refusal[1]


def test_every_amount_is_restored() -> None:
    rng = random.Random(4)
    known = {0: 0, 1: 1, 1_000_000: 7, 100_000_000: 9, 50 * 10**8: 50, 21_000_000 * 10**8: 21_000_000}
    assert {amount: packed_amount(amount) for amount in known} == known
    amounts = [
        *known,
        *(rng.randrange(10**digits) for digits in range(1, 16) for _ in range(200)),
        *(10**n for n in range(16)),
        2_099_999_999_999_999,
    ]
    undo = undo_of([[Spent(amount, b"") for amount in amounts]])
    coins = both("spent_coins", undo)
    assert isinstance(coins, list)
    assert [coin.value for coin in coins[0]] == amounts


def test_an_amount_above_all_coins_is_refused() -> None:
    rng = random.Random(5)
    for packed in [packed_amount(21_000_000 * 10**8 + more) for more in (1, 10, 10**9)] + [
        rng.randrange(1 << 56, 1 << 64) for _ in range(300)
    ]:
        assert both("spent_coins", b"\x01\x01\0" + var(packed) + b"\x06") == (
            UndoError,
            "undo amount at byte 3: must be at most 21 million coins",
        )


def test_every_type_of_script_is_restored() -> None:
    scripts = [
        *(p2pkh(bytes([n]) * 20) for n in range(3)),
        p2sh(bytes(20)),
        p2wpkh(bytes(20)),
        b"",
        b"\x51",
        bytes(10_000),
        *(push(key) + b"\xac" for key in KEYS),
        *(push(bytes([2 + n % 2]) + KEYS[n][1:33]) + b"\xac" for n in range(8)),
        push(b"\x04" + bytes(64)) + b"\xac",
        push(b"\x06" + KEYS[0][1:]) + b"\xac",
        push(KEYS[0][:64] + bytes([KEYS[0][64] ^ 2])) + b"\xac",
    ]
    coins = both("spent_coins", undo_of([[Spent(7, script, 9, True) for script in scripts]]))
    assert coins == [[SpentCoin(7, script, 9, True) for script in scripts]]


def test_a_key_that_is_not_on_the_curve_is_refused() -> None:
    seen = set()
    for x in range(60):
        result = both("spent_coins", b"\x01\x01\0\x09\x05" + x.to_bytes(32, "big"))
        assert isinstance(result, (list, tuple))
        seen.add(type(result))
        if isinstance(result, tuple):
            assert result == (UndoError, "undo script at byte 2: the key is not on the curve")
    assert seen == {list, tuple}
    field = 2**256 - 2**32 - 977
    for x in (field, field + 1, 2**256 - 1):
        assert both("spent_coins", b"\x01\x01\0\x09\x04" + x.to_bytes(32, "big"))[0] is UndoError  # type: ignore[index]


def test_an_oversized_script_becomes_cores_replacement() -> None:
    undo = b"\x01\x02\0\x09" + var(10_001 + 6) + bytes(10_001) + b"\0\x09\x07\x52"
    assert both("spent_coins", undo) == [[SpentCoin(10**8, b"\x6a", None, None), SpentCoin(10**8, b"\x52", None, None)]]


CHAIN = ledger_chain(7, 12)


def sample() -> tuple[bytes, bytes]:
    """A block with many spends, and its record."""
    _, blocks, records = CHAIN
    return max(zip(blocks, records, strict=True), key=lambda pair: len(pair[1]))


def watching(kernel: Kernel) -> Any:
    table = kernel.WatchTable()
    interest = CHAIN[0].interest
    for script in interest.scripts:
        table.add(EntryKind.SCRIPT, script)
    for data in interest.data:
        table.add(EntryKind.DATA, data)
    table.add(EntryKind.MULTISIG_KEY, interest.keys[0])
    return table


def scanned(raw: bytes, record: bytes) -> object:
    """The outcome of a scan with the record, which must be the same in both kernels."""
    one, other = (outcome(watching(kernel).scan_block, raw, None, record) for kernel in (native(), reference()))
    assert one == other
    return one


def test_every_truncated_or_changed_record_is_an_error() -> None:
    raw, record = sample()
    assert isinstance(scanned(raw, record), list)
    rng = random.Random(9)
    cases = [record[:size] for size in range(0, len(record), 7)] + [record + b"\0"]
    for _ in range(effort(50, 150, 3_000)):
        at = rng.randrange(len(record))
        cases.append(record[:at] + bytes([record[at] ^ 1 << rng.randrange(8)]) + record[at + 1 :])
    for case in cases:
        refusal = scanned(raw, case)
        assert isinstance(refusal, tuple)
        assert refusal[0] is UndoError
        assert "undo check" in refusal[1]


def test_damaged_undo_with_a_valid_check_is_judged_the_same() -> None:
    """Anybody can compute the check, so the kernels also check structure and amounts."""
    raw, record = sample()
    undo, rng = record[:-32], random.Random(10)
    messages = set()
    for number in range(effort(300, 1_500, 20_000)):
        changed = bytearray(undo)
        for _ in range(1 + number % 2):
            at = rng.randrange(len(changed))
            match rng.randrange(4):
                case 0:
                    changed[at] ^= 1 << rng.randrange(8)
                case 1:
                    del changed[at]
                case 2:
                    changed.insert(at, rng.randrange(256))
                case _:
                    changed = changed[:at] or bytearray(b"\0")
        result = scanned(raw, record_of(raw, bytes(changed)))
        if isinstance(result, tuple):
            assert result[0] is UndoError
            messages.add(result[1].split(" at byte")[0] + result[1].split(":")[1][:12])
        both("spent_coins", bytes(changed))
    assert len(messages) > 6


@pytest.mark.parametrize(
    ("spent", "said"),
    [
        ([], "undo transaction count at byte 0: must be 1, as in the block, not 0"),
        ([[Spent(9, b"")], []], "undo transaction count at byte 0: must be 1, as in the block, not 2"),
        ([[]], "undo input count at byte 1: must be 1, as in transaction 1, not 0"),
        ([[Spent(9, b"")] * 2], "undo input count at byte 1: must be 1, as in transaction 1, not 2"),
        ([[Spent(4, b"")]], "undo amount at byte 1: transaction 1 pays more than it spends"),
    ],
)
def test_a_record_of_another_shape_is_refused(spent: list[list[Spent]], said: str) -> None:
    raw = block_of(GENESIS, 1, [tx([TxIn(bytes([1]) * 32, 0)], [TxOut(5, b"\x51")])])
    assert scanned(raw, record_of(raw, undo_of(spent))) == (UndoError, said)
    assert isinstance(scanned(raw, record_of(raw, undo_of([[Spent(5, b"")]]))), list)


def test_sums_out_of_range_are_refused() -> None:
    most = 21_000_000 * 10**8
    two = block_of(GENESIS, 1, [tx([TxIn(bytes([1]) * 32, n) for n in range(2)], [TxOut(5, b"\x51")])])
    refusal = scanned(two, record_of(two, undo_of([[Spent(most, b""), Spent(1, b"")]])))
    assert refusal == (UndoError, "undo amount at byte 8: transaction 1 spends more than 21 million coins")
    for values in ([-1], [most + 1], [most, most, most], [2**63 - 1] * 3):
        raw = block_of(GENESIS, 1, [tx([TxIn(bytes([1]) * 32, 0)], [TxOut(value, b"\x51") for value in values])])
        refusal = scanned(raw, record_of(raw, undo_of([[Spent(most, b"")]])))
        assert refusal == (FormatError, "output values at byte 144: must be from 0 to 2100000000000000 satoshi")


def test_a_transaction_without_inputs_has_no_coins() -> None:
    odd = (2).to_bytes(4, "little") + b"\0\0" + bytes(4)
    raw = block_of(GENESIS, 1, [odd])
    assert isinstance(scanned(raw, record_of(raw, undo_of([[]]))), list)
    assert scanned(raw, record_of(raw, undo_of([[Spent(0, b"")]]))) == (
        UndoError,
        "undo input count at byte 1: must be 0, as in transaction 1, not 1",
    )


def test_a_malformed_block_is_reported_with_any_record() -> None:
    raw, record = sample()
    for cut in (0, 40, 79, 100, len(raw) - 1):
        refusal = scanned(raw[:cut], record)
        assert isinstance(refusal, tuple)
        assert refusal[0] is FormatError


@BOTH
def test_an_uncompressed_key_is_found_only_by_its_point(kernel: Kernel) -> None:
    """A record has x and the parity of y. A watched script with that x and a y off the curve is a different script."""
    key = KEYS[3]
    for y in range(1, 200, 2):
        wrong = key[:33] + (int.from_bytes(key[33:], "big") ^ y << 1).to_bytes(32, "big")
        raw = block_of(GENESIS, 1, [tx([TxIn(bytes([1]) * 32, 0)], [TxOut(5, b"\x51")])])
        record = record_of(raw, undo_of([[Spent(6, push(key) + b"\xac", 3)]]))
        table = kernel.WatchTable()
        table.add(EntryKind.SCRIPT, push(wrong) + b"\xac")
        table.add(EntryKind.DATA, wrong)
        assert table.scan_block(raw, None, record) == []
    assert table.add(EntryKind.DATA, key) == 2
    (hit,) = table.scan_block(raw, None, record)
    assert hit[:2] + hit[5:] == (True, 1, 6, push(key) + b"\xac", 2, 1)
    assert table.add(EntryKind.SCRIPT, push(key) + b"\xac") == 3
    assert [hit.entry for hit in table.scan_block(raw, None, record)] == [3]
    assert [hit.entry for hit in table.copy().scan_block(raw, None, record)] == [3]


def test_many_uncompressed_keys_are_found() -> None:
    keys = [full_key(number) for number in range(1, 200)]
    raw = block_of(GENESIS, 1, [tx([TxIn(bytes([1]) * 32, n) for n in range(len(keys))], [TxOut(5, b"\x51")])])
    record = record_of(raw, undo_of([[Spent(6, push(key) + b"\xac", 3) for key in keys]]))
    for kernel in (native(), reference()):
        table = kernel.WatchTable()
        for key in keys[::2]:
            table.add(EntryKind.SCRIPT, push(key) + b"\xac")
        for each in (table, table.copy(), table.without([])):
            assert [(hit.n, hit.script) for hit in each.scan_block(raw, None, record)] == [
                (n, push(key) + b"\xac") for n, key in enumerate(keys) if n % 2 == 0
            ]


@pytest.mark.parametrize("seed", range(effort(3, 8, 100)))
def test_undo_adds_only_values_of_earlier_outputs(seed: int) -> None:
    ledger, blocks, records = ledger_chain(seed)
    before = set(ledger.before)
    spent = spent_of(blocks, ledger.before, 100)
    results: list[list[Hit]] = []
    for kernel in (native(), reference()):
        with_undo, without = ledger.interest.watch().table, ledger.interest.watch().table
        tables = []
        for table in (with_undo, without):
            made = kernel.WatchTable()
            for kind, value in table.entries():
                made.add(kind, value)
            tables.append(made)
        found: list[Hit] = []
        for number, (raw, record) in enumerate(zip(blocks, records, strict=True)):
            by_undo, plain = tables[0].scan_block(raw, None, record), tables[1].scan_block(raw)
            tables[1].learn(plain)
            earlier = [hit for hit in by_undo if hit.spend and hit.outpoint in before]
            assert all(hit.script == ledger.before[hit.outpoint].script for hit in earlier)
            rest = [hit._replace(fee=NO_VALUE) for hit in by_undo if not (hit.spend and hit.outpoint in before)]
            plain = [hit for hit in plain if not (hit.spend and hit.outpoint in before)]  # watched by hand
            known = [hit for hit in plain if hit.value != NO_VALUE]
            assert [
                hit
                for hit in rest
                if (hit.spend, hit.position, hit.n) in {(hit.spend, hit.position, hit.n) for hit in known}
            ] == known
            assert {(hit.spend, hit.position, hit.n) for hit in rest} == {
                (hit.spend, hit.position, hit.n) for hit in plain
            }
            for hit in by_undo:
                if hit.spend:
                    coin = spent[number][hit.position - 1][hit.n]
                    assert (hit.value, hit.script) == (coin.value, coin.script)
            found += by_undo
        results.append(found)
    assert results[0] == results[1]
    assert any(hit.outpoint in before for hit in results[0])


def test_each_block_of_a_batch_uses_its_record(tmp_path: Any) -> None:
    ledger, blocks, records = ledger_chain(3, 20)
    given: list[bytes | None] = list(records)
    given[3], given[5], given[7] = None, given[6], records[7][:20]
    broken = list(blocks)
    broken[9] = blocks[9][:-1]
    key = bytes(range(1, 9))
    data = bytearray(b"x" * 5)
    places: list[tuple[int, int]] = []
    beside: list[tuple[int, int] | None] = []
    for raw, record in zip(broken, given, strict=True):
        places.append((len(data), len(raw)))
        data += raw
        beside.append(None if record is None else (len(data), len(record)))
        data += record or b""
    path = tmp_path / "file"
    path.write_bytes(bytes(byte ^ key[at % 8] for at, byte in enumerate(data)))
    results = []
    for kernel in (native(), reference()):
        table = kernel.WatchTable()
        for kind, value in ledger.interest.watch().table.entries():
            table.add(kind, value)
        with path.open("rb") as file:
            number = file.fileno()
            blocks_at = [Place(number, *place, key, block_hash(raw)) for place, raw in zip(places, blocks, strict=True)]
            undo_at = [
                place and Place(number, *place, key, raw[4:36]) for place, raw in zip(beside, blocks, strict=True)
            ]
            assert undo_at[11] is not None
            undo_at[11] = undo_at[11]._replace(hash=bytes(32))
            undo_at[12] = Place(number, len(data) - 5, 50, key, blocks[12][4:36])
            undo_at[13] = Place(number, 5, 0, key, blocks[13][4:36])
            in_files = table.scan_files(blocks_at, kernel.ReadBuffer(), None, True, undo_at)
        in_memory = table.scan_blocks(broken, None, True, given)
        results.append([list(map(repr, outcomes)) for outcomes in (in_memory, in_files)])
        for number in (11, 12, 13):
            assert type(in_files[number]) is UndoError
        assert [repr(each) for n, each in enumerate(in_memory) if n not in (11, 12, 13)] == [
            repr(each) for n, each in enumerate(in_files) if n not in (11, 12, 13)
        ]
        assert {n for n, each in enumerate(in_memory) if type(each) is UndoError} == {5, 7}
        assert type(in_memory[9]) is FormatError
        assert in_memory[3] == table.scan_block(blocks[3])
        assert in_memory[4] == table.scan_block(blocks[4], None, records[4])
    assert results[0] == results[1]


@BOTH
def test_a_wrong_number_of_records_is_refused(kernel: Kernel) -> None:
    raw, record = sample()
    for undo in ([], [record, None]):
        with pytest.raises(
            ParameterError, match=rf"the number of undo records \({len(undo)}\) must equal the number of blocks \(1\)"
        ):
            kernel.WatchTable().scan_blocks([raw], None, False, undo)
    for count in (1, 2):
        with pytest.raises(
            ParameterError, match=rf"the number of undo records \({count}\) must equal the number of places \(0\)"
        ):
            kernel.WatchTable().scan_files([], kernel.ReadBuffer(), None, False, [None] * count)


@pytest.mark.vectors
def test_undo_finds_every_spend_of_the_first_testnet_blocks() -> None:
    (chain,) = [blocks for entry, blocks in runs() if entry["file"] == "testnet3_000000_000459.blk"]
    raws = [block.raw for block in chain]
    spent = spent_of(raws)
    table = native().WatchTable()
    for of_block in spent:
        for coins in of_block:
            for coin in coins:
                table.add(EntryKind.SCRIPT, coin.script)
    total = 0
    for raw, of_raw in reversed(list(zip(raws, spent, strict=True))):  # in reverse order
        hits = table.scan_block(raw, None, record_of(raw, undo_of(of_raw)))
        total += sum(hit.spend for hit in hits)
        assert [hit.value for hit in hits if hit.spend] == [coin.value for of_tx in of_raw for coin in of_tx]
    assert total == sum(len(of_tx) for of_block in spent for of_tx in of_block) > 500
