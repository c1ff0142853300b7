"""The file format of a filter: golden bytes, every field at its offset, and round trips of every filter."""

from __future__ import annotations

import copy
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import FastHash, HashFamily, SipHash
from support.filters.filterfiles import CRC, FAMILIES, KEYS, KINDS, Filter, sample, whole

# m = 20, k = 3, keys a, b, a. Never change one of these: users have files in this format.
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
    "bits spark1": (
        "535056424c4f4f4d010001040000000003000000140000000000000000000000000000000000000000000000000000000000000000000000000000008063774a"
        "c89002b0f39f9d"
    ),
    "bits spark2": (
        "535056424c4f4f4d010001050000000003000000140000000000000000000000000000000000000000000000f9ffffff000000000000000000000000dd91fa85"
        "58a00486d8a956"
    ),
    "bits redisbloom": (
        "535056424c4f4f4d01000106000000000300000014000000000000000000000000000000000000000000000000000000000000000000000000000000e73bb68f"
        "b04c006721fe04"
    ),
    "counters spark1": (
        "535056424c4f4f4d01000204000000000300000014000000000000000000000000000000000000000000000000000000000000000000000000000000d24f551d"
        "00200021000001102000fb299e0b"
    ),
    "counters spark2": (
        "535056424c4f4f4d010002050000000003000000140000000000000000000000000000000000000000000000f9ffffff0000000000000000000000008fbdd8d2"
        "002001010000201000022c9d8d6b"
    ),
    "counters redisbloom": (
        "535056424c4f4f4d01000206000000000300000014000000000000000000000000000000000000000000000000000000000000000000000000000000b51794d8"
        "00001220001100020000511c9c7e"
    ),
}


def golden_filter(name: str) -> Filter:
    kind, family = name.split()
    made = KINDS[kind](bits=20, hash_funcs=3, hashing=FAMILIES[family])
    made.update(KEYS)
    return made


# Contents


@pytest.mark.parametrize("name", [f"{kind} {family}" for kind in KINDS for family in FAMILIES])
def test_the_format_does_not_drift(name: str) -> None:
    made = golden_filter(name)
    assert bytes(made).hex() == GOLDEN[name]
    again = type(made).from_bytes(bytes.fromhex(GOLDEN[name]), hashing=CRC if "custom" in name else None)
    assert again == made
    assert (b"a" in again, b"b" in again, again.hashing) == (True, True, made.hashing)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_at_its_offset(kind: str) -> None:
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
    assert raw[64:-4] == bytes(made.buffer)
    assert raw[-4:] == zlib.crc32(raw[:-4]).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("encode", "number"),
    [(None, 0), ("utf-8", 1), ("int64", 2), ("uint64", 3), ("int32", 4), ("uint32", 5), (str.encode, 255)],
)
def test_encodings_have_stable_numbers(encode: Any, number: int) -> None:
    assert bytes(BloomFilter(bits=8, hash_funcs=1, encode=encode))[12] == number


def test_a_hand_written_file_is_a_filter() -> None:
    assert BloomFilter.from_bytes(whole()) == BloomFilter(bits=20, hash_funcs=3)
    assert CountingBloomFilter.from_bytes(whole(bytes(10), kind=2)) == CountingBloomFilter(bits=20, hash_funcs=3)
    for counter_bits, kind in ((8, 4), (16, 5)):
        empty = CountingBloomFilter(bits=20, hash_funcs=3, counter_bits=counter_bits)
        assert CountingBloomFilter.from_bytes(whole(bytes(20 * counter_bits // 8), kind=kind)) == empty
    planes = BloomFilter.from_bytes(whole(flags=1, bits=21, capacity=9, fp_rate=0.5, key=b"\x01" + bytes(15)))
    assert (planes.partitioned, planes.capacity, planes.nominal_fp_rate, planes.hashing) == (True, 9, 0.5, FastHash(1))


# Round trips


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
def test_every_filter_is_restored_unchanged(form: dict[str, Any], kind: str, tmp_path: Path) -> None:
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
        assert (again.capacity, again.nominal_fp_rate, again.hashing) == (
            made.capacity,
            made.nominal_fp_rate,
            made.hashing,
        )
        assert again.positions(key) == made.positions(key)


@given(
    st.integers(1, 500),
    st.integers(1, 20),
    st.sampled_from([*FAMILIES.values(), FastHash(2**32 - 1)]),
    st.booleans(),
    st.lists(st.binary(max_size=4), max_size=20),
    st.sampled_from(list(KINDS)),
)
def test_from_bytes_accepts_any_bytes_like_object(
    bits: int, hash_funcs: int, hashing: HashFamily, planes: bool, keys: list[bytes], kind: str
) -> None:
    made = KINDS[kind](
        bits=bits * hash_funcs if planes else bits, hash_funcs=hash_funcs, hashing=hashing, partitioned=planes
    )
    made.update(keys)
    again = KINDS[kind].from_bytes(bytes(made), hashing=CRC if hashing is CRC else None)
    assert again == made
    assert bytes(again) == bytes(made)
    assert again.contains_many(keys) == b"\x01" * len(keys)


def test_a_restored_filter_is_independent_of_its_bytes() -> None:
    raw = bytearray(bytes(sample()))
    made = BloomFilter.from_bytes(raw)
    raw[64:-4] = bytes(len(raw) - 68)
    assert made == sample()
    made.add(b"new")
    del raw[:]  # raises BufferError if the filter still refers to it


def test_a_filter_with_other_writers_is_saved_consistently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
