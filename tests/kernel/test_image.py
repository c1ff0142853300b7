"""Images of watch tables: a table over an image is the same table, and no damage makes a lookup fail or run on."""

from __future__ import annotations

import gc
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from spvfilter.errors import FormatError, ParameterError
from spvfilter.kernel import NO_ENTRY, EntryKind, WatchTable
from spvfilter.kernel.pure.table import WatchTable as Reference
from support.blocks.worlds import World, contents
from support.vectors import effort

SEEDS = range(effort(20, 100, 1_000))
HEADER = 192
KEY = bytes.fromhex(  # the generator, uncompressed
    "0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
    "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8"
)
KINDS = list(dict.fromkeys((WatchTable, Reference)))
kinds = pytest.mark.parametrize("kind", KINDS, ids=["chosen", "reference"][: len(KINDS)])


def image_of(table: WatchTable, key: bytes) -> bytearray:
    room = bytearray(table.image_size())
    table.write_image(room, key)
    return room


def world(seed: int) -> tuple[World, list[WatchTable], bytes]:
    """A world, a table of each kind with many entries, and a key."""
    made = World(seed)
    made.scripts += [made.rng.randbytes(made.rng.choice((20, 22, 25, 34))) for _ in range(made.rng.randrange(200))]
    tables = made.tables(*KINDS)
    for _ in range(made.rng.randrange(300)):
        entry = made.entry()
        for table in tables:
            table.add(*entry)
    return made, tables, made.rng.randbytes(64)


def outcome(call: Callable[[], Any]) -> object:
    try:
        return call()
    except FormatError as error:
        return type(error), error.offset, error.field, error.message


def answers(table: WatchTable, known: WatchTable, block: bytes) -> object:
    """All that a table finds: the entries of another table, and matches in a block."""
    found = [table.find(kind, value) for kind, value in known.entries()]
    return found, list(table.entries()), list(table.coins()), outcome(lambda: table.scan_block(block))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_table_over_an_image_is_the_same_table(seed: int) -> None:
    made, tables, key = world(seed)
    images = [image_of(table, key) for table in tables]
    assert all(image == images[0] for image in images)
    opened = [kind(image) for kind, image in zip(KINDS, images, strict=True)]
    block, more = made.block(), made.entry()
    for table, over in zip(tables, opened, strict=True):
        assert contents((over,)) == contents((table,))
        assert answers(over, table, block) == answers(table, table, block)
        assert [over.count_of(kind) for kind in EntryKind] == [table.count_of(kind) for kind in EntryKind]
        assert over.packed_entries(0, 1_000) == table.packed_entries(0, 1_000)
        assert image_of(over, key) == images[0]
        given = over.image()
        assert given is not None
        assert given == memoryview(images[0])
        assert table.image() is None
        copy = over.copy()
        for each in (copy, table):
            each.add(EntryKind.SCRIPT, b"a new script of an address")
            each.add(*more)
            each.set_coin(made.points[0], 0, 77, None)
        assert copy.image() is None
        assert over.image() is not None
        assert contents((copy,)) == contents((table,))
        assert answers(copy, table, block) == answers(table, table, block)
    points = [made.points[1]]
    assert contents([over.without(points) for over in opened[:1]]) == contents([opened[-1].without(points)])


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_sections_give_the_same_answers_in_both_kernels(seed: int) -> None:
    made, tables, key = world(seed)
    image = image_of(tables[0], key)
    offsets = range(_offsets(image), _offsets(image) + 8 * len(tables[0])) if seed % 4 else ()  # else mostly refused
    for _ in range(made.rng.randrange(1, 200)):
        at = made.rng.randrange(HEADER, len(image))
        if at not in offsets:
            image[at] = made.rng.choice((0, 0xFF, made.rng.randrange(256)))
    block = made.block()
    results = []
    for kind, table in zip(KINDS, tables, strict=True):
        over = outcome(lambda kind=kind: kind(image))  # type: ignore[misc]
        results.append(answers(over, table, block) if isinstance(over, kind) else over)
        if isinstance(over, kind):
            over.add(EntryKind.SCRIPT, b"a script after the damage")
            assert over.find(EntryKind.SCRIPT, b"a script after the damage") == len(table)
            outcome(lambda over=over: over.copy().scan_block(block))  # type: ignore[misc]
            outcome(lambda over=over: image_of(over, key))  # type: ignore[misc]
    assert all(result == results[0] for result in results)


@kinds
def test_a_cut_image_is_refused_at_every_length(kind: type[WatchTable]) -> None:
    _, tables, key = world(3)
    image = bytes(image_of(tables[0], key))
    for size in [*range(HEADER + 40), len(image) - 64, len(image) - 1]:
        with pytest.raises(FormatError) as caught:
            kind(image[:size])
        assert caught.value.field == ("image" if size < HEADER else "size")


@kinds
@pytest.mark.parametrize(
    ("at", "form", "value", "field"),
    [
        (0, "=8s", b"SPVTABLF", "magic"),
        (8, "=I", 0x04030201, "byte order"),
        (12, "=I", 2, "version"),
        (16, "=Q", 1 << 63, "size"),
        (24, "=Q", 1 << 63, "size"),
        (32, "=Q", (1 << 64) - 64, "size"),
        (40, "=Q", 3, "groups"),
        (40, "=Q", 1 << 62, "size"),
        (48, "=Q", 6, "groups"),
        (56, "=I", 0xFFFFFFFF, "entries"),
        (56, "=I", 1 << 20, "size"),
        (60, "=I", 1 << 20, "coin"),
        (60, "=I", 0, "coin"),
        (64, "=I", 0xFFFFFFFF, "full keys"),
    ],
)
def test_a_wrong_field_of_the_header_is_refused(
    kind: type[WatchTable], at: int, form: str, value: object, field: str
) -> None:
    table = kind()
    for number in range(20):
        table.add(EntryKind.SCRIPT, bytes((number,)) * 22)
    table.set_coin(bytes(36), 1, 5, b"script")
    image = image_of(table, bytes(range(64)))
    struct.pack_into(form, image, at, value)
    with pytest.raises(FormatError) as caught:
        kind(image)
    assert caught.value.field == field


@kinds
@pytest.mark.parametrize("damage", ["entry", "value", "size", "more"])
def test_damaged_coins_are_refused(kind: type[WatchTable], damage: str) -> None:
    table = kind()
    table.add(EntryKind.SCRIPT, b"script")
    table.set_coin(bytes(36), 0, 5, b"script")
    image = image_of(table, bytes(range(64)))
    at, form, value = {
        "entry": (36, "<I", 1),
        "value": (40, "<q", -2),
        "size": (48, "<I", 7),
        "more": (48, "<I", 5),
    }[damage]
    struct.pack_into(form, image, len(image) - 64 + at, value)
    with pytest.raises(FormatError) as caught:
        kind(image)
    assert caught.value.field == ("script" if damage == "size" else "coin")


@kinds
def test_a_full_index_ends_lookups_until_an_addition_replaces_it(kind: type[WatchTable]) -> None:
    """The index says that every hash may be in every group. A table that changes makes an index of its own."""
    table = kind()
    scripts = [bytes((number, *range(21))) for number in range(100)]
    for script in scripts:
        table.add(EntryKind.SCRIPT, script)
    image = image_of(table, bytes(range(64)))
    groups = struct.unpack_from("=Q", image, 40)[0]
    image[HEADER : HEADER + 32 * groups] = b"\xff" * (32 * groups)
    image[HEADER + 32 * groups : HEADER + 96 * groups] = b"\xfe" * (64 * groups)
    over = kind(image)
    assert over.find(EntryKind.SCRIPT, scripts[0]) == NO_ENTRY
    assert over.add(EntryKind.SCRIPT, b"new") == 100
    assert over.find(EntryKind.SCRIPT, b"new") == 100
    assert over.find(EntryKind.SCRIPT, b"other") == NO_ENTRY


@kinds
def test_wrong_counts_do_not_overfill_the_index_in_memory(kind: type[WatchTable]) -> None:
    """The header says that no entry has an uncompressed key, but all records contain one."""
    table, rng = kind(), random.Random(1)
    for _ in range(200):
        table.add(EntryKind.DATA, rng.randbytes(65))
    table.add(EntryKind.DATA, KEY)
    image = image_of(table, bytes(range(64)))
    struct.pack_into("=I", image, 64, 0)
    for number in range(200):
        record = _records(image) + 70 * number
        image[record : record + 70] = image[_records(image) + 70 * 200 :][:70]
    over = kind(image)
    assert over.add(EntryKind.SCRIPT, b"\x41" + KEY + b"\xac") == 201
    assert over.find(EntryKind.SCRIPT, b"\x41" + KEY + b"\xac") == 201


def _offsets(image: bytearray) -> int:
    groups, full_groups = (int(number) for number in struct.unpack_from("=QQ", image, 40))
    return HEADER + -(-96 * groups // 64) * 64 + -(-96 * full_groups // 64) * 64


def _records(image: bytearray) -> int:
    entries: int = struct.unpack_from("=I", image, 56)[0]
    return _offsets(image) + -(-8 * entries // 64) * 64


@kinds
def test_an_entry_that_occurs_twice_cannot_be_written(kind: type[WatchTable]) -> None:
    table = kind()
    for number in range(3):
        table.add(EntryKind.SCRIPT, bytes((number,)) * 22)
    image = image_of(table, bytes(range(64)))
    image[_records(image) + 23 : _records(image) + 46] = image[_records(image) :][:23]
    with pytest.raises(FormatError, match="the same entry occurs twice"):
        image_of(kind(image), bytes(64))


@kinds
def test_entries_that_no_table_has_cannot_be_written(kind: type[WatchTable]) -> None:
    table = kind()
    table.add(EntryKind.SCRIPT, bytes(22))
    for damage in (21 << 2, 23 << 2, 22 << 2 | EntryKind.OUTPOINT, 62 << 2, 63 << 2):
        image = image_of(table, bytes(range(64)))
        image[_records(image)] = damage
        over = kind(image)
        assert over.entry(0) == (EntryKind.OUTPOINT, b"")
        assert len(over.packed_entries(0, 1)) == 5
        with pytest.raises(FormatError, match="a watch list cannot contain this entry"):
            image_of(over, bytes(64))


@kinds
def test_a_hidden_outpoint_cannot_be_written(kind: type[WatchTable]) -> None:
    """Its coin is that of another outpoint, or of another entry."""
    table = kind()
    table.add(EntryKind.SCRIPT, b"script")
    table.add(EntryKind.OUTPOINT, bytes(36))
    for at in (0, 36):
        image = image_of(table, bytes(range(64)))
        image[len(image) - 64 + at] ^= 1
        over = kind(image)
        assert over.find(EntryKind.OUTPOINT, bytes(36)) == NO_ENTRY
        with pytest.raises(FormatError, match="no coin has this outpoint, or another entry has it"):
            image_of(over, bytes(64))


@kinds
def test_a_coin_of_no_entry_cannot_be_written(kind: type[WatchTable]) -> None:
    table = kind()
    table.set_coin(bytes(36), 0, 5, None)
    with pytest.raises(FormatError, match="it belongs to an entry that the table does not have"):
        image_of(table, bytes(64))


@kinds
@pytest.mark.parametrize("offsets", [(0, 0), (23, 0), (0, 46), (0, 1 << 63)])
def test_overlapping_records_are_refused(kind: type[WatchTable], offsets: tuple[int, int]) -> None:
    """A file of a few megabytes could otherwise have a million entries of a few megabytes each."""
    table = kind()
    for number in range(2):
        table.add(EntryKind.SCRIPT, bytes((number,)) * 22)
    image = image_of(table, bytes(range(64)))
    struct.pack_into("=2Q", image, _offsets(image), *offsets)
    with pytest.raises(FormatError, match="the records of the entries are not in order"):
        kind(image)


@pytest.mark.few(1)
@kinds
def test_chosen_collisions_are_refused(kind: type[WatchTable]) -> None:
    """The middle bytes of the scripts equal a word of the key, so that all hashes are 0."""
    table, middle = kind(), b"collides"
    for number in range(256 * 15 + 1):
        table.add(EntryKind.SCRIPT, number.to_bytes(7, "little") + middle + bytes(7))
    key = bytes(40) + middle + bytes(16)
    with pytest.raises(FormatError, match="hashes that collide under this key"):
        image_of(table, key)
    assert image_of(table, bytes(range(64)))


@kinds
def test_a_wrong_key_or_room_is_refused(kind: type[WatchTable]) -> None:
    table = kind()
    table.add(EntryKind.SCRIPT, bytes(22))
    with pytest.raises(ParameterError, match="a key must be 64 bytes long, not 63"):
        table.write_image(bytearray(table.image_size()), bytes(63))
    with pytest.raises(FormatError, match=r"the buffer must be \d+ bytes long, not \d+"):
        table.write_image(bytearray(table.image_size() + 1), bytes(64))
    with pytest.raises((TypeError, BufferError)):
        table.write_image(bytes(table.image_size()), bytes(64))
    with pytest.raises(TypeError, match="expected a bytes-like object, not int"):
        kind(5)  # type: ignore[arg-type]


@pytest.mark.native
def test_an_image_is_held_in_place_at_an_aligned_address() -> None:
    from spvfilter.kernel.native import WatchTable

    table = WatchTable()
    table.add(EntryKind.SCRIPT, bytes(22))
    image = image_of(table, bytes(64))
    with pytest.raises(ParameterError, match="at an address divisible by 8"):
        WatchTable(memoryview(b"\0" + bytes(image))[1:])
    over = WatchTable(image)
    twin = over.copy()
    for each in (over, twin):
        with pytest.raises(BufferError):
            image.append(0)
        assert each.find(EntryKind.SCRIPT, bytes(22)) == 0
    del over, twin, each
    gc.collect()
    image.append(0)


class Holder:
    table: WatchTable
    view: memoryview
    me: Holder


def test_garbage_in_a_cycle_with_an_image_is_collected() -> None:
    """Python before 3.11.8 crashed when it cleared a memoryview whose buffer was still exported."""
    table = WatchTable()
    table.add(EntryKind.SCRIPT, bytes(22))
    image = image_of(table, bytes(64))
    for _ in range(100):
        view, holder = memoryview(image).toreadonly(), Holder()  # the collector clears the view first
        holder.table, holder.view, holder.me = WatchTable(view), view, holder
        assert holder.table.image() == view
        del view, holder
        gc.collect()
    image.append(0)


@kinds
def test_packed_entries_have_the_form_of_the_digest(kind: type[WatchTable]) -> None:
    table = kind()
    table.add(EntryKind.SCRIPT, b"abc")
    table.add(EntryKind.SCRIPT_TYPE, b"\4")
    assert table.packed_entries(0, 9) == b"\0\3\0\0\0abc\5\1\0\0\0\4"
    assert table.packed_entries(1, 1) == b"\5\1\0\0\0\4"
    assert table.packed_entries(2, 1) == table.packed_entries(0, 0) == b""
    with pytest.raises(ParameterError, match=r"the number of an entry must be from 0 to 2\^32 - 1, not -1"):
        table.packed_entries(-1, 1)
    with pytest.raises(ParameterError, match=r"a number of entries must be from 0 to 2\^32 - 1, not 4294967296"):
        table.packed_entries(0, 1 << 32)
