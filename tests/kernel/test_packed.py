"""Packed hits, in both kernels: the same hits in another form, their sums, and an error for every kind of damage."""

from __future__ import annotations

import os
import random
import re
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import FormatError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import NO_VALUE, EntryKind, Hit, Place
from spvfilter.kernel.pure.blocks import walk_block
from support.blocks import build
from support.blocks.realdata import RealBlock, real_block_cases
from support.blocks.undo import coins_of_block, ledger_chain, record_of, undo_of
from support.blocks.worlds import World
from support.kernels.kernelentries import PACKED, Kernel, native, outcome, reference
from support.vectors import effort

both = pytest.mark.parametrize("kernel", [pytest.param(native, marks=pytest.mark.native), reference])
TXID, OTHER = bytes(range(32)), bytes(range(7, 39))
OUTPUT = Hit(False, 0, TXID, 3, build.outpoint(TXID, 3), 5_000, b"\x51\x52", 4)
INPUT = Hit(True, 7, TXID, 9, build.outpoint(OTHER, 1), NO_VALUE, None, 2, 120)


def packed_by_hand(hit: Hit) -> bytes:
    """Pack a hit by the format's description, without code of the kernel."""
    numbers = [hit.position, hit.n, hit.entry, 0xFFFFFFFF if hit.script is None else len(hit.script)]
    head = b"".join(number.to_bytes(4, "little") for number in numbers)
    head += b"".join(number.to_bytes(8, "little", signed=True) for number in (hit.value, hit.fee))
    return (
        head
        + (b"\x01" if hit.spend else b"\x00")
        + hit.txid
        + (hit.outpoint if hit.spend else b"")
        + (hit.script or b"")
    )


def hit_of(rng: random.Random, entries: int = 5) -> Hit:
    spend, txid, n = rng.random() < 0.5, rng.choice((TXID, rng.randbytes(32))), rng.choice((0, 1, 2**32 - 1))
    script = rng.choice((None, b"", b"\x51", rng.randbytes(25), rng.randbytes(600)))
    value = rng.choice((NO_VALUE, 0, 1, 5_000, 2**63 - 1))
    outpoint = rng.randbytes(36) if spend else build.outpoint(txid, n)
    return Hit(
        spend,
        rng.choice((0, 5, 2**32 - 1)),
        txid,
        n,
        outpoint,
        value,
        script,
        rng.randrange(entries),
        rng.choice((NO_VALUE, 0, 7)),
    )


@both
def test_packed_hits_follow_the_format(kernel: Callable[[], Kernel]) -> None:
    assert kernel().pack_hits([]) == b""
    assert kernel().unpack_hits(b"") == kernel().hit_sums(b"") == []
    assert packed_by_hand(OUTPUT).hex() == (
        "000000000300000004000000020000008813000000000000ffffffffffffffff00" + TXID.hex() + "5152"
    )
    assert len(packed_by_hand(INPUT)) == 65 + 36
    rng = random.Random(1)
    hits = [OUTPUT, INPUT, *(hit_of(rng) for _ in range(effort(100, 500, 5_000)))]
    packed = b"".join(map(packed_by_hand, hits))
    assert kernel().pack_hits(iter(hits)) == packed
    unpacked = kernel().unpack_hits(packed)
    assert unpacked == hits
    assert all(isinstance(hit, Hit) and isinstance(hit.spend, bool) for hit in unpacked)


def scanned(kernel: Kernel, world: World, blocks: list[bytes], packed: bool) -> list[object]:
    """Outcomes of a scan, with unpacked hits. An error becomes its text."""
    table: Any = world.tables(kernel.WatchTable)[0]
    results: list[Any] = table.scan_blocks(blocks, None, False, None, packed)
    assert all(isinstance(result, (bytes if packed else list, FormatError)) for result in results)
    return [kernel.unpack_hits(result) if isinstance(result, bytes) else result for result in map(told, results)]


def told(result: object) -> object:
    return (type(result), str(result)) if isinstance(result, Exception) else result


@both
@pytest.mark.parametrize("seed", range(effort(5, 40, 400)))
def test_a_packed_scan_has_the_same_hits_and_errors(kernel: Callable[[], Kernel], seed: int) -> None:
    world = World(seed)
    blocks = [world.damaged(world.block(), 0.2) for _ in range(6)]
    state = world.rng.getstate()
    expected = scanned(kernel(), world, blocks, False)
    world.rng.setstate(state)
    assert scanned(kernel(), world, blocks, True) == expected


@both
@pytest.mark.parametrize("seed", range(effort(2, 4, 40)))
def test_a_packed_scan_with_undo_learns_the_same(kernel: Callable[[], Kernel], seed: int) -> None:
    ledger, blocks, records = ledger_chain(seed, 12)
    records[3] = records[3][:-1] + bytes((records[3][-1] ^ 1,))
    outcomes = []
    for packed in (False, True):
        table, found = kernel().WatchTable(), kernel().WatchTable()
        for script in ledger.interest.scripts:
            table.add(EntryKind.SCRIPT, script)
        results = table.scan_blocks(blocks, found, undo=records, packed=packed)
        hits = [kernel().unpack_hits(result) if isinstance(result, bytes) else told(result) for result in results]
        outcomes.append((hits, list(found.coins())))
    assert outcomes[0] == outcomes[1]
    assert sum(isinstance(hits, tuple) for hits in outcomes[0][0]) == 1  # the damaged record
    assert any(hit.fee != NO_VALUE for hits in outcomes[0][0] if isinstance(hits, list) for hit in hits)


@both
def test_blocks_in_files_are_packed_as_in_memory(kernel: Callable[[], Kernel], tmp_path: Path) -> None:
    ledger, blocks, _ = ledger_chain(5, 24)
    table = kernel().WatchTable()
    for script in ledger.interest.scripts:
        table.add(EntryKind.SCRIPT, script)
    path = tmp_path / "blk"
    path.write_bytes(b"".join(blocks) + blocks[2][:-1])
    offsets = [sum(map(len, blocks[:number])) for number in range(len(blocks) + 1)]
    descriptor = os.open(path, os.O_RDONLY)
    try:
        ends = zip(offsets, [*map(len, blocks), len(blocks[2]) - 1], [*blocks, blocks[0]], strict=True)
        places = [Place(descriptor, offset, size, b"", sha256d(block[:80])) for offset, size, block in ends]
        places[-1] = places[-1]._replace(hash=sha256d(blocks[2][:80]))
        results = table.scan_files([*places, places[0]._replace(hash=bytes(32))], kernel().ReadBuffer(), packed=True)
    finally:
        os.close(descriptor)
    assert results[:-2] == table.scan_blocks(blocks, packed=True)
    assert len(set(results[:-2])) > 4
    assert isinstance(results[-2], FormatError)
    assert results[-1] is None


@pytest.mark.native
@real_block_cases(most=400_000)
def test_both_kernels_pack_real_blocks_the_same(block: RealBlock) -> None:
    """The wallet owns every seventh output of the block and every fifth coin that it spends."""
    scripts = [block.raw[start:end] for tx in walk_block(block.raw) for _, start, end in tx.outputs][::7]
    record = None
    if block.facts.get("prevouts_file"):
        spent = coins_of_block(block)
        record = record_of(block.raw, undo_of(spent))
        scripts += [coin.script for coins in spent for coin in coins][::5]
    results = []
    for kernel in (native(), reference()):
        table = kernel.WatchTable()
        for script in scripts:
            table.add(EntryKind.SCRIPT, script)
        [packed] = table.scan_blocks([block.raw], undo=[record], packed=True)
        assert isinstance(packed, bytes), packed
        assert kernel.unpack_hits(packed) == table.scan_block(block.raw, undo=record)
        results.append((packed, kernel.hit_sums(packed)))
    assert results[0] == results[1]
    assert results[0][0]


@both
@pytest.mark.parametrize("seed", range(effort(3, 20, 200)))
def test_sums_equal_those_of_a_dict(kernel: Callable[[], Kernel], seed: int) -> None:
    rng = random.Random(seed)
    hits = [
        hit_of(rng, rng.choice((1, 3, 2**31 - 1)))._replace(value=rng.choice((NO_VALUE, 0, 2**50))) for _ in range(300)
    ]
    sums: dict[int, list[int]] = {}
    for hit in hits:
        of = sums.setdefault(hit.entry, [0, 0, 0, 0])
        of[0] += 1
        if hit.value == NO_VALUE:
            of[3] += 1
        elif hit.spend:
            of[2] += hit.value
        else:
            of[1] += hit.value
    assert kernel().hit_sums(kernel().pack_hits(hits)) == [(entry, *sums[entry]) for entry in sorted(sums)]


@both
@pytest.mark.parametrize("seed", range(effort(3, 20, 200)))
def test_added_sums_are_the_sums_of_all_calls(kernel: Callable[[], Kernel], seed: int) -> None:
    rng = random.Random(seed)
    sums, pieces = array("Q", bytes(32 * 7)), [[hit_of(rng, 7) for _ in range(rng.randrange(40))] for _ in range(4)]
    wrapped = [kernel().add_hit_sums(kernel().pack_hits(piece), sums) for piece in pieces]
    assert kernel().count_hits(kernel().pack_hits(pieces[0])) == len(pieces[0])
    true = [0] * 28
    for hit in (hit for piece in pieces for hit in piece):
        true[4 * hit.entry] += 1
        field, more = (3, 1) if hit.value == NO_VALUE else (1 + hit.spend, hit.value)
        true[4 * hit.entry + field] += more
    beyond = Counter(at for several in wrapped for at in several)
    assert [number + (beyond[at] << 64) for at, number in enumerate(sums)] == true


@both
def test_unsuitable_memory_or_entries_change_no_sum(kernel: Callable[[], Kernel]) -> None:
    packed, sums = kernel().pack_hits([OUTPUT, INPUT]), bytearray(32 * 4)
    assert outcome(kernel().add_hit_sums, packed, sums) == (
        IndexError,
        "a hit belongs to entry 4, but there are sums of 4 entries",
    )
    assert outcome(kernel().add_hit_sums, packed, bytearray(33)) == (
        ParameterError,
        "sums must be a multiple of 32 bytes long, not 33",
    )
    for error, raw, memory in (
        (FormatError, packed + b"behind", sums),
        (BufferError, packed, bytes(32 * 5)),
        (TypeError, packed, []),
    ):
        with pytest.raises(error):
            kernel().add_hit_sums(raw, memory)
    assert sums == bytes(32 * 4)
    assert kernel().add_hit_sums(b"", bytearray()) == []


@both
@pytest.mark.parametrize("hit", [OUTPUT, INPUT], ids=["received", "spent"])
def test_a_sum_above_64_bits_is_refused(kernel: Callable[[], Kernel], hit: Hit) -> None:
    most, other = hit._replace(value=2**63 - 1), hit._replace(entry=9)
    full = kernel().pack_hits([most, other, most, hit._replace(value=1)])
    assert (2**64 - 1) in kernel().hit_sums(full)[0]
    with pytest.raises(FormatError, match=f"a sum for entry {hit.entry} exceeds 64 bits") as raised:
        kernel().hit_sums(full + kernel().pack_hits([hit._replace(value=0), hit._replace(value=1)]) + b"behind")
    size = len(packed_by_hand(hit))
    assert (raised.value.offset, raised.value.field) == (5 * size + 16, "value")


DAMAGES: dict[str, tuple[bytes, int, str, str]] = {
    "a head cut off": (packed_by_hand(OUTPUT)[:64], 0, "hit", "truncated: expected 65 bytes, 64 left"),
    "a byte behind": (packed_by_hand(OUTPUT) + b"\0", 67, "hit", "truncated: expected 65 bytes, 1 left"),
    "a script cut off": (packed_by_hand(OUTPUT)[:-1], 65, "script", "truncated: expected 2 bytes, 1 left"),
    "the longest script": (
        packed_by_hand(OUTPUT)[:12] + b"\xfe\xff\xff\xff" + bytes(49),
        65,
        "script",
        "expected 4294967294 bytes, 0 left",
    ),
    "an outpoint cut off": (packed_by_hand(INPUT)[:-1], 65, "outpoint", "truncated: expected 36 bytes, 35 left"),
    "no such entry": (
        packed_by_hand(OUTPUT._replace(entry=2**31 - 1)),
        8,
        "entry",
        "must be at most 2^31 - 2, not 2147483647",
    ),
    "a negative value": (
        packed_by_hand(OUTPUT._replace(value=-2)),
        16,
        "value",
        "must be at least 0 satoshi, or -1 if it is not known, not -2",
    ),
    "a negative fee": (
        packed_by_hand(OUTPUT._replace(fee=-(2**63))),
        24,
        "fee",
        "must be at least 0 satoshi, or -1 if it is not known, not -9223372036854775808",
    ),
    "neither output nor spend": (
        packed_by_hand(OUTPUT)[:32] + b"\x02" + bytes(34),
        32,
        "spend",
        "must be 0 or 1, not 2",
    ),
}
COLUMN_ARGUMENTS: tuple[Any, ...] = (0, 2**40, True, b"", b"", 0, 5, "bc")
LINE_ARGUMENTS: tuple[Any, ...] = (1, b"", b"", bytes(32), None, 0, 0, 5, "bc")


@both
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named_by_every_function(kernel: Callable[[], Kernel], name: str) -> None:
    damaged, offset, field, message = DAMAGES[name]
    ahead = packed_by_hand(INPUT)
    functions = kernel()
    readers: list[Callable[[bytes], object]] = [functions.unpack_hits, functions.hit_sums, functions.count_hits]
    readers.append(lambda raw: functions.hit_lines(raw, *LINE_ARGUMENTS))
    readers.append(lambda raw: functions.add_hit_sums(raw, bytearray(32 * 9)))
    readers.append(lambda raw: functions.hit_columns([(bytes(32), None, 0, raw)], *COLUMN_ARGUMENTS))
    for read in readers:
        for before in (b"", ahead):
            with pytest.raises(FormatError, match=re.escape(message)) as raised:
                read(before + damaged)
            assert (raised.value.offset, raised.value.field) == (len(before) + offset, field)


def results_of(kernel: Kernel, raw: bytes) -> list[object]:
    """The result of each function for these bytes."""
    return [
        outcome(kernel.unpack_hits, raw),
        outcome(kernel.hit_sums, raw),
        outcome(kernel.hit_lines, raw, *LINE_ARGUMENTS),
        outcome(kernel.hit_columns, [(bytes(32), 9, 0, raw)], *COLUMN_ARGUMENTS),
        outcome(kernel.count_hits, raw),
        added(kernel, raw, bytearray(32 * 9)),
    ]


def added(kernel: Kernel, raw: bytes, sums: bytearray) -> tuple[object, bytearray]:
    """Return the result of add_hit_sums, and the sums afterwards."""
    return outcome(kernel.add_hit_sums, raw, sums), sums


@pytest.mark.native
def test_both_kernels_judge_truncated_and_changed_bytes_the_same() -> None:
    one, other = native(), reference()
    hits = [OUTPUT, INPUT._replace(script=b"\x00\x14" + bytes(20), value=3), OUTPUT._replace(script=b"")]
    raw = b"".join(map(packed_by_hand, hits))
    ends = {len(b"".join(map(packed_by_hand, hits[:count]))) for count in range(len(hits) + 1)}
    for cut in range(len(raw) + 1):
        results = results_of(one, raw[:cut])
        assert results == results_of(other, raw[:cut])
        assert isinstance(results[0], list) == (cut in ends)
    for at in range(len(raw)):
        for byte in {raw[at] ^ 1, raw[at] ^ 0x80, 0, 2, 0xFF} - {raw[at]}:
            changed = raw[:at] + bytes((byte,)) + raw[at + 1 :]
            assert results_of(one, changed) == results_of(other, changed)


@pytest.mark.native
@pytest.mark.parametrize("seed", range(effort(5, 30, 1_000)))
def test_both_kernels_judge_random_damage_the_same(seed: int) -> None:
    world = World(seed)
    for number in range(100):
        if number % 5 == 0:
            raw = native().pack_hits([hit_of(world.rng) for _ in range(world.rng.randrange(1, 6))])
        damaged = world.damaged(raw)
        assert results_of(native(), damaged) == results_of(reference(), damaged)


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a short txid": ({"txid": bytes(31)}, ParameterError, "a txid must be 32 bytes long, not 31"),
    "a long outpoint": ({"outpoint": bytes(37)}, ParameterError, "an outpoint must be 36 bytes long, not 37"),
    "a foreign outpoint": (
        {"outpoint": bytes(36)},
        ParameterError,
        f"the outpoint of an output must be its txid and number, not {bytes(36).hex()}",
    ),
    "a position before the block": (
        {"position": -1},
        ParameterError,
        "a position in a block must be from 0 to 2^32 - 1, not -1",
    ),
    "a number beyond all": (
        {"n": 2**32},
        ParameterError,
        "the number of an output or input must be from 0 to 2^32 - 1, not 4294967296",
    ),
    "no entry": ({"entry": -1}, ParameterError, "the number of an entry must be from 0 to 2^31 - 2, not -1"),
    "the entry that no table has": (
        {"entry": 2**31 - 1},
        ParameterError,
        "the number of an entry must be from 0 to 2^31 - 2, not 2147483647",
    ),
    "a negative value": (
        {"value": -2},
        ParameterError,
        "a value or fee must be at least 0 satoshi, or -1 if it is not known, not -2",
    ),
    "a fee beyond 64 bits": (
        {"fee": 2**63},
        ParameterError,
        "a value or fee must be at least 0 satoshi, or -1 if it is not known, not 9223372036854775808",
    ),
    "a value that is text": (
        {"value": "5"},
        TypeError,
        "a value or fee must be at least 0 satoshi, or -1 if it is not known: expected an int, not str",
    ),
    "a script that is text": ({"script": "51"}, TypeError, "expected a bytes-like object, not str"),
}


@both
@pytest.mark.parametrize("name", REFUSED)
def test_a_hit_that_no_scan_gives_is_refused(kernel: Callable[[], Kernel], name: str) -> None:
    changes, kind, message = REFUSED[name]
    assert outcome(kernel().pack_hits, [OUTPUT, INPUT, OUTPUT._replace(**changes)]) == (kind, message)


@both
def test_only_hits_are_packed_and_only_bytes_unpacked(kernel: Callable[[], Kernel]) -> None:
    assert outcome(kernel().pack_hits, [tuple(OUTPUT)]) == (TypeError, "expected a Hit, not tuple")
    for read in (kernel().unpack_hits, kernel().hit_sums, kernel().count_hits):
        assert outcome(read, "text") == (TypeError, "expected a bytes-like object, not str")


@pytest.mark.native
def test_all_functions_agree_on_many_hits() -> None:
    raw = PACKED * 300  # more than is read between two checks for signals
    assert len(raw) > 1 << 20
    assert results_of(native(), raw) == results_of(reference(), raw)


@both
@pytest.mark.parametrize("seed", range(effort(2, 5, 50)))
def test_packed_hits_teach_the_same_coins_as_hits(kernel: Callable[[], Kernel], seed: int) -> None:
    rng = random.Random(seed)
    hits = [hit_of(rng) for _ in range(rng.randrange(60))]
    # the same outpoints again
    hits += [hit._replace(value=5, script=b"\x53", entry=9) for hit in rng.sample(hits, len(hits) // 2)]
    one, other = kernel().WatchTable(), kernel().WatchTable()
    for table in (one, other):
        table.add(EntryKind.OUTPOINT, OUTPUT.outpoint)
    one.learn([OUTPUT, INPUT, *hits])
    assert other.learn_packed(kernel().pack_hits([OUTPUT, INPUT, *hits])) == sum(
        not hit.spend for hit in [OUTPUT, INPUT, *hits]
    )
    assert dict(other.coins()) == dict(one.coins())
    before = dict(one.coins())
    packed = kernel().pack_hits([OUTPUT._replace(txid=OTHER, outpoint=build.outpoint(OTHER, 3)), INPUT])
    for end in range(1, len(packed) - 1):
        if end != len(packed) - 65 - 36:
            with pytest.raises(FormatError):
                one.learn_packed(packed[:end])
            assert dict(one.coins()) == before


@both
def test_ascending_numbers_are_recognized(kernel: Callable[[], Kernel]) -> None:
    for numbers in ((), (0,), (0, 1), (1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)):
        assert kernel().is_ascending(array("I", numbers))
    for others in ((0, 0), (1, 0), (0, 0xFFFFFFFF, 1), (1, 2, 3, 3)):
        assert not kernel().is_ascending(array("I", others).tobytes())
    with pytest.raises(ParameterError, match="numbers must be a multiple of 4 bytes long, not 5"):
        kernel().is_ascending(bytes(5))
