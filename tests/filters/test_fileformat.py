"""The file of a filter: golden bytes that never drift, every field by its place, and every way a file can be wrong."""

from __future__ import annotations

import copy
import math
import os
import pickle
import resource
import stat
import struct
import subprocess
import sys
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import FormatError, ParameterError, ReadOnlyError, TooLargeError
from spvfilter.filters.bloom import BloomFilter
from spvfilter.filters.counting import CountingBloomFilter
from spvfilter.filters.families import Bip37Hash, CustomHash, FastHash, HashFamily, SipHash

Filter = BloomFilter | CountingBloomFilter
CRC = CustomHash("crc", zlib.crc32)
KEYS = [b"a", b"b", b"a"]
FAMILIES: dict[str, HashFamily] = {"bip37": Bip37Hash(0xDEADBEEF), "fast": FastHash(7), "siphash": SipHash(bytes(range(16))), "custom": CRC}
KINDS: dict[str, type[Filter]] = {"bits": BloomFilter, "counters": CountingBloomFilter}

# m = 20, k = 3, keys a, b, a. Never change one of these: what they are, others have on their disks.
GOLDEN = {
    "bits bip37": (
        "535056424c4f4f4d010001010000000003000000140000000000000000000000000000000000000000000000efbeadde000000000000000000000000fd4d32bb"
        "1409010d5f8620"
    ),
    "bits fast": (
        "535056424c4f4f4d010001020000000003000000140000000000000000000000000000000000000000000000070000000000000000000000000000001d75bc22"
        "82340067e3f7c4"
    ),
    "bits siphash": (
        "535056424c4f4f4d010001030000000003000000140000000000000000000000000000000000000000000000000102030405060708090a0b0c0d0e0fa60b6872"
        "280503d96d4c4f"
    ),
    "bits custom": (
        "535056424c4f4f4d010001ff00000000030000001400000000000000000000000000000000000000000000009da15eda078f68c45064326a70cf8c8bb468ef6a"
        "a280003bce137c"
    ),
    "counters bip37": (
        "535056424c4f4f4d010002010000000003000000140000000000000000000000000000000000000000000000efbeadde000000000000000000000000af6110ec"
        "0001030001200000020044f4e470"
    ),
    "counters fast": (
        "535056424c4f4f4d010002020000000003000000140000000000000000000000000000000000000000000000070000000000000000000000000000004f599e75"
        "10000010000322000000847950dc"
    ),
    "counters siphash": (
        "535056424c4f4f4d010002030000000003000000140000000000000000000000000000000000000000000000000102030405060708090a0b0c0d0e0ff4274a25"
        "0010200002010000120088a1518c"
    ),
    "counters custom": (
        "535056424c4f4f4d010002ff00000000030000001400000000000000000000000000000000000000000000009da15eda078f68c45064326a70cf8c8be644cd3d"
        "100030200000003000005e770e98"
    ),
}


def golden_filter(name: str) -> Filter:
    kind, family = name.split()
    made = KINDS[kind](bits=20, hash_funcs=3, hashing=FAMILIES[family])
    made.update(KEYS)
    return made


def header(**changes: Any) -> bytes:
    """64 bytes written from the documented layout, with a CRC that holds."""
    fields: dict[str, Any] = {
        "magic": b"SPVBLOOM",
        "version": 1,
        "kind": 1,
        "family": 2,
        "encoding": 0,
        "flags": 0,
        "zero": 0,
        "hash_funcs": 3,
        "bits": 20,
        "capacity": 0,
        "fp_rate": 0.0,
        "key": bytes(16),
    } | changes
    raw = struct.pack("<8sHBBBBHIQQd16s", *fields.values())
    assert len(raw) == 60
    closed = raw[:13] + bytes([raw[13] & ~2]) + raw[14:]
    return raw + zlib.crc32(closed).to_bytes(4, "little")


def whole(body: bytes = bytes(3), **changes: Any) -> bytes:
    """A file written from the documented layout."""
    raw = header(**changes)
    closed = raw[:13] + bytes([raw[13] & ~2]) + raw[14:]
    return raw + body + zlib.crc32(closed + body).to_bytes(4, "little")


def sample() -> BloomFilter:
    made = BloomFilter(5, 0.1, 3, hashing=FastHash(5))
    made.update(KEYS)
    return made


def open_any(cls: type[Filter], path: Path, mmap: bool) -> Filter:
    return cls.open(path, mmap=mmap, hashing=None)


# What is in it


@pytest.mark.parametrize("name", [f"{kind} {family}" for kind in KINDS for family in FAMILIES])
def test_the_format_does_not_drift(name: str) -> None:
    made = golden_filter(name)
    assert bytes(made).hex() == GOLDEN[name]
    again = type(made).from_bytes(bytes.fromhex(GOLDEN[name]), hashing=CRC if "custom" in name else None)
    assert again == made
    assert (b"a" in again, b"b" in again, again.hashing) == (True, True, made.hashing)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_where_the_layout_says(kind: str) -> None:
    made = KINDS[kind](1000, 0.01, 3, hashing=SipHash(bytes(range(16))), encode="int64", partitioned=True)
    made.update(range(500))
    raw = bytes(made)
    size = (made.cells + 7) // 8 if kind == "bits" else (made.cells + 1) // 2
    assert len(raw) == 64 + size + 4
    assert raw[:8] == b"SPVBLOOM"
    assert raw[8:10] == b"\x01\x00"
    assert raw[10] == {"bits": 1, "counters": 2}[kind]
    assert raw[11] == 3
    assert raw[12] == 2
    assert raw[13] == 1
    assert raw[14:16] == b"\x00\x00"
    assert struct.unpack_from("<I", raw, 16) == (3,)
    assert struct.unpack_from("<Q", raw, 20) == (made.cells,)
    assert struct.unpack_from("<Q", raw, 28) == (1000,)
    assert struct.unpack_from("<d", raw, 36) == (0.01,)
    assert raw[44:60] == bytes(range(16))
    assert raw[60:64] == zlib.crc32(raw[:60]).to_bytes(4, "little")
    assert raw[64:-4] == bytes(made.buffer)  # type: ignore[arg-type]
    assert raw[-4:] == zlib.crc32(raw[:-4]).to_bytes(4, "little")


@pytest.mark.parametrize(("encode", "number"), [(None, 0), ("utf-8", 1), ("int64", 2), ("uint64", 3), (str.encode, 255)])
def test_encodings_have_stable_numbers(encode: Any, number: int) -> None:
    assert bytes(BloomFilter(bits=8, hash_funcs=1, encode=encode))[12] == number


def test_a_file_written_by_hand_is_a_filter() -> None:
    assert BloomFilter.from_bytes(whole()) == BloomFilter(bits=20, hash_funcs=3)
    assert CountingBloomFilter.from_bytes(whole(bytes(10), kind=2)) == CountingBloomFilter(bits=20, hash_funcs=3)
    planes = BloomFilter.from_bytes(whole(flags=1, bits=21, capacity=9, fp_rate=0.5, key=b"\x01" + bytes(15)))
    assert (planes.partitioned, planes.capacity, planes.nominal_fp_rate, planes.hashing) == (True, 9, 0.5, FastHash(1))


# There and back


FORMS = [
    {"capacity": 50, "fp_rate": 0.01},
    {"bits": 77, "hash_funcs": 7, "partitioned": True},
    {"bits": 1, "hash_funcs": 1},
    {"bits": 33, "hash_funcs": 1075},
    {"capacity": 50, "fp_rate": 0.01, "encode": "utf-8"},
    {"capacity": 50, "fp_rate": 0.01, "encode": "int64"},
    {"capacity": 50, "fp_rate": 0.01, "encode": str.encode},
    *({"capacity": 50, "fp_rate": 0.01, "hashing": hashing} for hashing in FAMILIES.values()),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_filter_comes_back_as_it_was(form: dict[str, Any], kind: str, tmp_path: Path) -> None:
    made = KINDS[kind](**form)
    key = {"utf-8": "ä", "int64": -5, str.encode: "ä", None: b"a"}[form.get("encode")]
    made.add(key)
    given_back: dict[str, Any] = {}
    if form.get("hashing") is CRC:
        given_back["hashing"] = CRC
    if callable(form.get("encode")):
        given_back["encode"] = form["encode"]
    made.save(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == bytes(made)
    for again in (
        type(made).from_bytes(bytes(made), **given_back),
        type(made).from_bytes(bytearray(bytes(made)), **given_back),
        type(made).open(tmp_path / "f", **given_back),
        type(made).open(str(tmp_path / "f"), mmap=True, **given_back),
        pickle.loads(pickle.dumps(made)),
        copy.copy(made),
        copy.deepcopy(made),
        made.copy(),
    ):
        assert type(again) is type(made)
        assert again == made
        assert bytes(again) == bytes(made)
        assert key in again
        assert (again.capacity, again.nominal_fp_rate, again.hashing) == (made.capacity, made.nominal_fp_rate, made.hashing)
        assert again.positions(key) == made.positions(key)


@given(
    st.integers(1, 500),
    st.integers(1, 20),
    st.sampled_from([*FAMILIES.values(), FastHash(2**32 - 1)]),
    st.booleans(),
    st.lists(st.binary(max_size=4), max_size=20),
    st.sampled_from(list(KINDS)),
)
def test_from_bytes_of_bytes_is_the_same(
    bits: int, hash_funcs: int, hashing: HashFamily, planes: bool, keys: list[bytes], kind: str
) -> None:
    made = KINDS[kind](bits=bits * hash_funcs if planes else bits, hash_funcs=hash_funcs, hashing=hashing, partitioned=planes)
    made.update(keys)
    again = KINDS[kind].from_bytes(bytes(made), hashing=CRC if hashing is CRC else None)
    assert again == made
    assert bytes(again) == bytes(made)
    assert again.contains_many(keys) == b"\x01" * len(keys)


def test_what_comes_back_is_independent_of_its_bytes() -> None:
    raw = bytearray(bytes(sample()))
    made = BloomFilter.from_bytes(raw)
    raw[64:-4] = bytes(len(raw) - 68)
    assert made == sample()
    made.add(b"new")
    del raw[:]  # nothing holds on to it


def test_a_filter_that_others_write_to_is_saved_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = bytearray(32)
    made = BloomFilter(bits=256, hash_funcs=2, buffer=bits)
    crc32 = zlib.crc32

    def while_it_is_summed(data: Any, start: int = 0) -> int:
        bits[0] ^= 0xFF
        return crc32(data, start)

    monkeypatch.setattr(zlib, "crc32", while_it_is_summed)
    made.save(tmp_path / "f")
    monkeypatch.undo()
    BloomFilter.open(tmp_path / "f")


# Mapped files


def test_a_read_only_mapped_file_is_not_written_to(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    made = BloomFilter.open(tmp_path / "f", mmap=True)
    assert made == sample()
    for change in (lambda: made.add(b"a"), lambda: made.update([b"x"]), made.clear, lambda: made.__ior__(sample())):
        with pytest.raises(ReadOnlyError):
            change()
    made.close()  # nothing to finish
    assert (tmp_path / "f").read_bytes() == bytes(sample())
    assert made | sample() == sample()


def test_a_writable_mapped_file_keeps_what_is_added(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    expected = sample()
    expected.add(b"new")
    with BloomFilter.open(tmp_path / "f", mmap=True, writable=True) as made:
        assert made.add(b"new")
        twin = made.copy()
    assert (tmp_path / "f").read_bytes() == bytes(expected) == bytes(twin)
    assert made == expected  # still readable
    with pytest.raises(ReadOnlyError):
        made.add(b"too late")
    made.close()
    twin.add(b"in memory")
    assert (tmp_path / "f").read_bytes() == bytes(expected)


def test_readers_that_map_the_same_file_see_what_is_added(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    reader = BloomFilter.open(tmp_path / "f", mmap=True)
    with BloomFilter.open(tmp_path / "f", mmap=True, writable=True) as writer:
        writer.add(b"new")
        assert b"new" in reader


@pytest.mark.parametrize("mmap", [False, True])
def test_a_file_that_is_open_or_was_not_closed_is_refused(tmp_path: Path, mmap: bool) -> None:
    sample().save(tmp_path / "f")
    made: BloomFilter | None = BloomFilter.open(tmp_path / "f", mmap=True, writable=True)
    assert made is not None
    made.add(b"new")
    while True:
        with pytest.raises(FormatError, match=r"flags at byte 13: it is open for writing, or was not closed: verify=False takes it"):
            BloomFilter.open(tmp_path / "f", mmap=mmap)
        with pytest.raises(FormatError, match="not closed"):
            BloomFilter.from_bytes((tmp_path / "f").read_bytes())
        with pytest.raises(FormatError, match="not closed"):
            BloomFilter.open(tmp_path / "f", mmap=True, writable=True)
        assert b"new" in BloomFilter.open(tmp_path / "f", mmap=mmap, verify=False)
        if made is None:
            break
        made = None  # as if the process had died
    with BloomFilter.open(tmp_path / "f", mmap=True, writable=True, verify=False) as saved:
        assert b"new" in saved
    assert b"new" in BloomFilter.open(tmp_path / "f", mmap=mmap)


def test_an_error_inside_with_still_closes_the_file(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    with pytest.raises(RuntimeError), BloomFilter.open(tmp_path / "f", mmap=True, writable=True) as made:
        made.add(b"new")
        raise RuntimeError
    assert b"new" in BloomFilter.open(tmp_path / "f")


def test_a_file_refused_for_writing_is_left_as_it_was(tmp_path: Path) -> None:
    raw = bytearray(bytes(sample()))
    raw[-1] ^= 1
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(FormatError):
        BloomFilter.open(tmp_path / "f", mmap=True, writable=True)
    assert (tmp_path / "f").read_bytes() == raw


def test_writable_is_for_mapped_files(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    with pytest.raises(ParameterError, match="writable is for mmap"):
        BloomFilter.open(tmp_path / "f", writable=True)


def test_a_sparse_file_beyond_2_to_the_32_bits_is_mapped_without_reading_it(tmp_path: Path) -> None:
    bits = (1 << 33) + 5
    with (tmp_path / "f").open("wb") as file:
        file.write(header(bits=bits, hash_funcs=7))
        file.truncate(64 + (bits + 7) // 8 + 4)
    made = BloomFilter.open(tmp_path / "f", mmap=True, writable=True, verify=False)
    assert made.bits == bits
    keys = [bytes([i]) * 20 for i in range(30)]
    made.update(keys)
    again = BloomFilter.open(tmp_path / "f", mmap=True, verify=False)
    assert all(again.contains_many(keys))
    assert max(at for key in keys for at in made.positions(key)) > 1 << 32
    assert (tmp_path / "f").stat().st_blocks * 512 < 50_000_000


# Every way to be wrong


def refused(raw: bytes, path: Path, cls: type[Filter] = BloomFilter, **options: Any) -> set[str]:
    """The messages with which the bytes are refused in all three ways; they agree."""
    path.write_bytes(raw)
    messages = set()
    for read in (
        lambda: cls.from_bytes(raw, **options),
        lambda: cls.open(path, **options),
        lambda: cls.open(path, mmap=True, **options),
    ):
        with pytest.raises(FormatError) as caught:
            read()
        messages.add(str(caught.value))
    assert len(messages) == 1
    return messages


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_cut_at_any_byte_is_refused(kind: str, tmp_path: Path) -> None:
    made = KINDS[kind](bits=20, hash_funcs=3)
    made.update(KEYS)
    raw = bytes(made)
    for size in range(len(raw)):
        (message,) = refused(raw[:size], tmp_path / "f", type(made))
        assert "truncated" in message
        with pytest.raises(FormatError, match="truncated"):
            type(made).open(tmp_path / "f", mmap=True, verify=False)


def test_a_file_that_goes_on_is_refused(tmp_path: Path) -> None:
    for extra in (b"\x00", bytes(sample())):
        (message,) = refused(bytes(sample()) + extra, tmp_path / "f")
        assert message == f"file at byte {len(bytes(sample()))}: {len(extra)} trailing bytes"


@pytest.mark.parametrize("kind", KINDS)
def test_any_flipped_bit_is_found(kind: str) -> None:
    made = KINDS[kind](bits=20, hash_funcs=3)
    made.update(KEYS)
    raw = bytes(made)
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(FormatError):
            type(made).from_bytes(flipped)


def test_a_flipped_bit_of_the_header_is_found_without_verifying(tmp_path: Path) -> None:
    raw = bytes(sample())
    for bit in range(8 * 64):
        flipped = bytearray(raw)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        (tmp_path / "f").write_bytes(flipped)
        if bit == 13 * 8 + 1:  # open for writing
            assert BloomFilter.open(tmp_path / "f", verify=False) == sample()
            continue
        for mmap in (False, True):
            with pytest.raises(FormatError):
                BloomFilter.open(tmp_path / "f", mmap=mmap, verify=False)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "header at byte 0: truncated: 64 bytes wanted, 0 there"),
        (b"\x89PNG\r\n\x1a\n" * 20, "magic at byte 0: not a filter's file: it starts with b'\\x89PNG\\r\\n\\x1a\\n'"),
        (whole(version=2), "version at byte 8: version 2; this reads version 1"),
        (whole(version=0), "version at byte 8: version 0; this reads version 1"),
        (whole()[:60] + bytes(4) + whole()[64:], "header CRC at byte 60: the header is damaged: its CRC does not match"),
        (whole(kind=0), "kind at byte 10: unknown kind 0"),
        (whole(kind=3), "kind at byte 10: unknown kind 3"),
        (whole(bytes(10), kind=2), "kind at byte 10: kind 2 is not a BloomFilter"),
        (whole(family=0), "family at byte 11: unknown hash family 0"),
        (whole(family=4), "family at byte 11: unknown hash family 4"),
        (whole(encoding=4), "encoding at byte 12: unknown encoding of keys 4"),
        (whole(flags=4), "flags at byte 13: unknown flags 0x04 0x0000"),
        (whole(flags=0x80), "flags at byte 13: unknown flags 0x80 0x0000"),
        (whole(zero=1), "flags at byte 13: unknown flags 0x00 0x0001"),
        (whole(hash_funcs=0), "hash_funcs at byte 16: 0 hash functions"),
        (whole(hash_funcs=1076), "hash_funcs at byte 16: 1076 hash functions"),
        (whole(hash_funcs=2**32 - 1), "hash_funcs at byte 16: 4294967295 hash functions"),
        (whole(b"", bits=0), "bits at byte 20: 0 bits for 3 functions"),
        (whole(bits=2**56 + 1), "bits at byte 20: 72057594037927937 bits for 3 functions"),
        (whole(bits=2**64 - 1), "bits at byte 20: 18446744073709551615 bits for 3 functions"),
        (whole(bits=20, flags=1), "bits at byte 20: 20 bits for 3 functions"),
        (whole(bits=2**32 + 1, family=1), "bits at byte 20: 4294967297 bits, which murmur3 does not reach"),
        (whole(bits=2**56), "file at byte 71: truncated: 9007199254741060 bytes wanted, 71 there"),
        (whole(capacity=2**63, fp_rate=0.5), "capacity at byte 28: 9223372036854775808 keys"),
        (whole(capacity=1, fp_rate=1.0), "fp_rate at byte 36: 1.0 for 1 keys"),
        (whole(capacity=1, fp_rate=-0.5), "fp_rate at byte 36: -0.5 for 1 keys"),
        (whole(capacity=1, fp_rate=math.nan), "fp_rate at byte 36: nan for 1 keys"),
        (whole(capacity=1, fp_rate=math.inf), "fp_rate at byte 36: inf for 1 keys"),
        (whole(capacity=1), "fp_rate at byte 36: 0.0 for 1 keys"),
        (whole(fp_rate=0.5), "fp_rate at byte 36: 0.5 for 0 keys"),
        (whole(key=bytes(4) + b"\x01" + bytes(11)), "key at byte 48: a tweak or seed has 4 bytes, the others are zero"),
        (whole(family=1, key=bytes(15) + b"\x01"), "key at byte 48: a tweak or seed has 4 bytes, the others are zero"),
        (whole(b"\x00\x00\x10"), "bits at byte 66: bits are set beyond the last"),
        (whole()[:-4] + bytes(4), "CRC at byte 67: the file is damaged: its CRC does not match"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_name(raw: bytes, message: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        assert refused(raw, tmp_path / "f") == {message}
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_counters_beyond_the_last_are_refused(tmp_path: Path) -> None:
    raw = whole(bytes(9) + b"\x0f" + b"\x10", kind=2, bits=21)
    assert refused(raw, tmp_path / "f", CountingBloomFilter) == {"bits at byte 74: bits are set beyond the last"}
    assert refused(whole(), tmp_path / "f", CountingBloomFilter) == {"kind at byte 10: kind 1 is not a CountingBloomFilter"}


@pytest.mark.parametrize("mmap", [False, True])
def test_bits_beyond_the_last_are_refused_without_verifying_too(mmap: bool, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(whole(b"\x00\x00\x10"))
    with pytest.raises(FormatError, match="bits are set beyond the last"):
        BloomFilter.open(tmp_path / "f", mmap=mmap, verify=False)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_such(raw: bytes) -> None:
    for cls in KINDS.values():
        for forged in (raw, b"SPVBLOOM" + raw, b"SPVBLOOM\x01\x00" + raw):
            with pytest.raises(FormatError):
                cls.from_bytes(forged)


numbers = st.one_of(st.integers(0, 300), st.sampled_from([2**31, 2**32 - 1]))


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "kind": st.sampled_from([1, 2]),
            "family": st.sampled_from([0, 1, 2, 3, 255]),
            "encoding": st.sampled_from([0, 1, 2, 3, 4, 255]),
            "flags": st.integers(0, 4),
            "hash_funcs": numbers,
            "bits": st.one_of(numbers, st.integers(0, 2**64 - 1)),
            "capacity": st.one_of(numbers, st.integers(0, 2**64 - 1)),
            "fp_rate": st.floats(),
            "key": st.one_of(st.just(bytes(16)), st.binary(min_size=16, max_size=16)),
        },
    ),
    st.binary(max_size=20),
    st.booleans(),
)
def test_a_forged_header_with_a_good_crc_is_a_filter_or_an_error(changes: dict[str, Any], body: bytes, fitting: bool) -> None:
    if fitting and changes.get("bits", 20) <= 300:
        body = bytes((changes.get("bits", 20) + 7) // 8 if changes.get("kind", 1) == 1 else (changes.get("bits", 20) + 1) // 2)
    raw = whole(body, **changes)
    cls = CountingBloomFilter if changes.get("kind") == 2 else BloomFilter
    try:
        made = cls.from_bytes(raw, hashing=None)
    except FormatError:
        return
    except ParameterError:  # a user's own, which was not passed
        assert 255 in (changes.get("family"), changes.get("encoding"))
        return
    assert bytes(made) == raw
    assert made.approx_len >= 0
    repr(made)


def test_more_than_the_machine_has_is_refused_unless_it_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, made = bytes(sample()), sample()
    made.save(tmp_path / "f")
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    for read in (lambda: BloomFilter.open(tmp_path / "f"), lambda: BloomFilter.from_bytes(raw)):
        with pytest.raises(TooLargeError, match="machine's 1 bytes of memory"):
            read()
    assert BloomFilter.open(tmp_path / "f", mmap=True) == made


def test_no_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        BloomFilter.open(tmp_path / "f")
    with pytest.raises(IsADirectoryError):
        BloomFilter.open(tmp_path, mmap=True)


# What the user must bring along


def other(data: bytes, i: int) -> int:
    return i


@pytest.mark.parametrize(
    ("made_with", "opened_with", "message"),
    [
        ({"hashing": CRC}, {}, "the file was made with a user's own hash family: pass it as `hashing`"),
        ({"hashing": CRC}, {"hashing": FastHash()}, "the file was made with a user's own hash family: pass it as `hashing`"),
        ({"hashing": CRC}, {"hashing": CustomHash("other", other)}, "the file was made with a hash family of another name"),
        ({"hashing": CRC}, {"hashing": CustomHash("crc", [zlib.crc32])}, "2 hash functions wanted, 'crc' has 1"),
        ({"hashing": FastHash(1)}, {"hashing": FastHash(2)}, "the file was not made with FastHash(seed=2)"),
        ({"hashing": FastHash(1)}, {"hashing": CRC}, "the file was not made with CustomHash("),
        ({"hashing": SipHash(bytes(16))}, {"hashing": SipHash(b"k" * 16)}, "the file was not made with SipHash()"),
        ({"encode": str.encode}, {}, "the file's keys were encoded by a user's own function: pass it as `encode`"),
        ({"encode": str.encode}, {"encode": "utf-8"}, "the file's keys were encoded by a user's own function: pass it as `encode`"),
        ({"encode": "utf-8"}, {"encode": "int64"}, "the file's keys are encoded as utf8, not int64"),
        ({"encode": "utf-8"}, {"encode": str.encode}, "the file's keys are encoded as utf8, not callable"),
        ({}, {"encode": "utf-8"}, "the file's keys are encoded as bytes, not utf8"),
    ],
)
def test_what_does_not_go_with_the_file_is_refused(
    made_with: dict[str, Any], opened_with: dict[str, Any], message: str, tmp_path: Path
) -> None:
    made = BloomFilter(bits=64, hash_funcs=2, **made_with)
    made.save(tmp_path / "f")
    for read in (
        lambda: BloomFilter.from_bytes(bytes(made), **opened_with),
        lambda: BloomFilter.open(tmp_path / "f", **opened_with),
        lambda: BloomFilter.open(tmp_path / "f", mmap=True, writable=True, **opened_with),
    ):
        with pytest.raises(ParameterError) as caught:
            read()
        assert str(caught.value).startswith(message)
    assert BloomFilter.open(tmp_path / "f", **made_with) == made  # and is as it was


# Saving


def test_a_save_replaces_the_file_with_one_that_others_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    sample().save(tmp_path / "f")
    assert BloomFilter.open(tmp_path / "f") == sample()
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o600


def test_a_save_that_fails_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    sample().save(tmp_path / "f")
    large = BloomFilter(bits=1 << 25, hash_funcs=1)  # 4 MiB
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))  # as if the disk were full after 2
    try:
        with pytest.raises(OSError, match="File too large"):
            large.save(tmp_path / "f")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert BloomFilter.open(tmp_path / "f") == sample()
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


MEMORY = """
import sys
from pathlib import Path
from spvfilter.filters.bloom import BloomFilter

def high_water():  # MiB; ru_maxrss would start from the parent's
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024

path = Path(sys.argv[1])
raw = path.read_bytes() if sys.argv[2] == "from_bytes" else b""
before = high_water()
match sys.argv[2]:
    case "open":
        made = BloomFilter.open(path)
    case "from_bytes":
        made = BloomFilter.from_bytes(raw)
    case "save":
        BloomFilter.open(path, mmap=True, verify=False).save(path.with_suffix(".copy"))
print(high_water() - before)
"""


@pytest.mark.parametrize("how", ["open", "from_bytes", "save"])
def test_loading_takes_the_filters_memory_once(how: str, tmp_path: Path) -> None:
    made = BloomFilter(bits=1 << 29, hash_funcs=3)  # 64 MiB
    made.add(b"a")
    made.save(tmp_path / "f")
    run = subprocess.run([sys.executable, "-c", MEMORY, str(tmp_path / "f"), how], capture_output=True, text=True, check=True)
    assert float(run.stdout) < 64 * 1.2
