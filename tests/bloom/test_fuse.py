"""StaticFilter: its keys, rate and size, failed seeds, copies and files. The bytes are compared in tests/kernel."""

from __future__ import annotations

import pickle
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom import Bip37Hash, BloomFilter, CustomHash, FastHash, SipHash, StaticFilter, fuse, sizing
from spvfilter.errors import FormatError, KeyRangeError, ParameterError
from spvfilter.kernel import fuse_build
from support.vectors import effort

SIZES = [*range(effort(40, 200, 2_000)), 500, 1_000, 1_999, 2_000]
SECRET = SipHash(bytes(range(16)))


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_filters_of_every_size_contain_their_keys(bits: Any) -> None:
    for size in SIZES[:: {8: 1, 16: 7, 32: 7}[bits]]:
        made = StaticFilter(range(size), bits, encode="int64")
        assert made.contains_many(range(size)) == b"\1" * size
        assert len(made) == size
        assert all(number in made for number in range(size))


@given(st.lists(st.text(max_size=3)), st.sampled_from([8, 16, 32]), st.sampled_from([FastHash(7), SECRET]))
def test_no_key_is_missed(keys: list[str], bits: Any, hashing: Any) -> None:
    made = StaticFilter(keys, bits, hashing=hashing, encode="utf-8")
    assert len(made) == len(set(keys))
    assert all(made.contains_many(keys))
    assert bytes(made) == bytes(StaticFilter(set(keys), bits, hashing=hashing, encode="utf-8"))
    read = StaticFilter.from_bytes(bytes(made))
    assert read == made
    assert bytes(read.contains_many(["a", "b", *keys])) == bytes(made.contains_many(["a", "b", *keys]))


@pytest.mark.parametrize(("bits", "keys"), [(8, 1), (8, 2), (8, 30), (8, 3_000), (16, 3_000)])
def test_the_rate_is_the_claimed_one(bits: Any, keys: int) -> None:
    count = effort(100_000, 400_000, 4_000_000)
    made = StaticFilter(np.arange(keys), bits, encode="int64")
    found = int(np.count_nonzero(made.contains_many(np.arange(keys, keys + count))))
    expected = made.fp_rate * count
    assert abs(found - expected) < 6 * expected**0.5 + 2


def test_fingerprints_of_32_bits_report_no_other_key() -> None:
    made = StaticFilter(np.arange(1_000), 32, encode="int64")
    assert made.fp_rate == 2.0**-32
    assert not made.contains_many(np.arange(1_000, 100_000)).any()


def test_a_filter_without_keys_contains_nothing() -> None:
    made = StaticFilter([])
    assert (len(made), made.fp_rate, len(bytes(made))) == (0, 0.0, 68)
    assert made.contains_many([b"", b"key"]) == bytes(2)
    assert StaticFilter.from_bytes(bytes(made)) == made


@pytest.mark.parametrize(("items", "bits"), [(1_000, 11.3), (100_000, 9.5), (1_000_000, 9.05), (10_000_000, 9.02)])
def test_bits_per_key_are_as_documented(items: int, bits: float) -> None:
    assert sizing.fuse_bits_per_item(items) == pytest.approx(bits, abs=0.05)
    assert sizing.fuse_bits_per_item(items, 32) == 4 * sizing.fuse_bits_per_item(items)


def test_the_size_is_the_computed_one() -> None:
    made = StaticFilter(range(1_000), encode="int64")
    assert 8 * made.header().body_size / 1_000 == sizing.fuse_bits_per_item(1_000)


@pytest.mark.parametrize("failures", [1, 99, 100, 350])
def test_a_failed_seed_is_replaced_and_then_the_table_grows(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    build, tried = fuse_build, []

    def failing(hashes: bytes, bits: int, seed: int, *rest: Any) -> bool:
        tried.append((seed, rest[:2]))
        return len(tried) > failures and build(hashes, bits, seed, *rest)

    monkeypatch.setattr(fuse, "fuse_build", failing)
    made = StaticFilter(range(500), encode="int64")
    assert all(made.contains_many(range(500)))
    assert [seed for seed, _ in tried] == list(range(len(tried)))
    assert made.header().seed == tried[-1][0] >= failures
    sizes = [(segments + 2) * length for _, (length, segments) in tried[::100]]
    assert sizes == sorted(set(sizes))
    assert StaticFilter.from_bytes(bytes(made)) == made


def test_a_build_that_always_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "fuse_build", lambda *arguments: False)
    with pytest.raises(ParameterError, match="with 1000 seeds"):
        StaticFilter([b"key"])


def test_equal_hashes_are_merged() -> None:
    same = CustomHash("constant", lambda data, number: 7)
    made = StaticFilter([b"a", b"b", b"c"], hashing=same)
    assert len(made) == 1
    assert b"other" in made


def test_a_custom_family_is_needed_again_to_read() -> None:
    family = CustomHash("mine", lambda data, number: int.from_bytes(data, "big") * 0x9E3779B97F4A7C15)
    made = StaticFilter((b"%d" % number for number in range(200)), 16, hashing=family)
    with pytest.raises(ParameterError, match="pass the family as `hashing`"):
        StaticFilter.from_bytes(bytes(made))
    assert StaticFilter.from_bytes(bytes(made), hashing=family) == made
    assert b"7" in made
    assert pickle.loads(pickle.dumps(StaticFilter([b"a"]))) == StaticFilter([b"a"])


def test_columns_and_iterables_give_one_filter() -> None:
    numbers = np.random.default_rng(3).integers(-(1 << 62), 1 << 62, 5_000)
    made = StaticFilter(numbers, encode="int64")
    assert made == StaticFilter(numbers.tolist(), encode="int64") == StaticFilter(iter(numbers), encode="int64")
    assert made.contains_many(numbers).all()
    masked = np.ma.masked_array(np.arange(4), mask=[False, True, False, False])
    assert StaticFilter(masked, encode="int64", nulls="skip") == StaticFilter([0, 2, 3], encode="int64")


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (([b"a"], 12), {}, ParameterError),
        (([b"a"], "8"), {}, TypeError),
        (([b"a"],), {"hashing": Bip37Hash()}, ParameterError),
        (([b"a"],), {"hashing": SipHash}, TypeError),
        (([b"a"],), {"encode": "latin-1"}, ParameterError),
        (([b"a"],), {"nulls": "keep"}, ParameterError),
        (([b"a", "b"],), {}, TypeError),
        (([b"a", None],), {}, TypeError),
        ((b"a",), {}, TypeError),
        ((7,), {}, TypeError),
        (([1 << 63],), {"encode": "int64"}, KeyRangeError),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        StaticFilter(*arguments, **options)


def test_more_keys_than_cells_have_numbers_are_refused() -> None:
    assert sizing.fuse_segments(3_800_000_000)[0] == 1 << 18
    with pytest.raises(ParameterError, match="billion keys, not 4,000,000,000"):
        sizing.fuse_segments(4_000_000_000)
    with pytest.raises(ParameterError, match="8, 16 or 32"):
        sizing.fuse_bits_per_item(9, 10)


class Named(StaticFilter):
    """A class of a user, with an attribute."""

    name = "none"


def test_copies_and_pickles_keep_attributes_of_derived_classes() -> None:
    made = Named([b"a"], hashing=SECRET)
    made.name = "mine"
    for other in (made.copy(), pickle.loads(pickle.dumps(made))):
        assert type(other) is Named
        assert (other.name, other) == ("mine", made)
    assert "1 keys, 8-bit fingerprints" in repr(made)
    assert made != StaticFilter([b"a"])
    assert made != BloomFilter(1, 0.1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("verify", [False, True])
def test_a_saved_filter_is_opened(tmp_path: Path, mmap: bool, verify: bool) -> None:
    path = tmp_path / "f"
    keys = [f"host{number}.example" for number in range(3_000)]
    made = StaticFilter(keys, 16, hashing=SECRET, encode="utf-8")
    made.save(path)
    assert path.read_bytes() == bytes(made)
    found = StaticFilter.open(path, mmap=mmap, verify=verify)
    assert (found, len(found), found.hashing) == (made, 3_000, SECRET)
    made.save(path)  # replaces the file while it is mapped
    assert all(found.contains_many(keys))
    with pytest.raises(ParameterError, match="not int64"):
        StaticFilter.open(path, encode="int64")


# The file format


def refused(raw: bytes, path: Path) -> str:
    """The message with which the bytes are refused, in all three ways of reading them."""
    path.write_bytes(raw)
    messages = set()
    for read in (
        lambda: StaticFilter.from_bytes(raw),
        lambda: StaticFilter.open(path),
        lambda: StaticFilter.open(path, mmap=True),
    ):
        with pytest.raises(FormatError) as caught:
            read()  # type: ignore[no-untyped-call]  # the callee has no types
        messages.add(str(caught.value))
    (message,) = messages
    return message


@pytest.mark.parametrize("size", [0, 3])
def test_a_truncated_or_longer_file_is_refused(size: int, tmp_path: Path) -> None:
    raw = bytes(StaticFilter(range(size), encode="int64"))
    for end in range(len(raw)):
        assert "truncated" in refused(raw[:end], tmp_path / "f")
    assert "2 trailing bytes" in refused(raw + b"ab", tmp_path / "f")


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    raw = bytes(StaticFilter(range(3), hashing=SECRET, encode="int64"))
    for bit in range(8 * len(raw)):
        changed = bytearray(raw)
        changed[bit >> 3] ^= 1 << (bit & 7)
        with pytest.raises(FormatError):
            StaticFilter.from_bytes(changed)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"SPVBLOOM", "not a static filter's file"),
        (8, b"\2\0", "version 2"),
        (10, b"\x0c", "not 12"),
        (11, b"\1", "unknown hash family 1"),
        (12, b"\6", "unknown encoding of keys 6"),
        (13, b"\x13", r"at most 2^18 cells, not 2^19"),
        (14, b"\1", "reserved bytes must be zero"),
        (16, b"\xff\xff\xff\xff", "a table must have at most"),
        (16, b"\0\0\0\0", "a table of 0 cells cannot contain 3 keys"),
        (24, b"\0", "a table without keys must be empty"),
        (24, b"\x19", "a table of 24 cells cannot contain 25 keys"),
        (36, b"\1", "a seed is 4 bytes long"),
        (59, b"\1", "reserved bytes must be zero"),
    ],
)
def test_a_header_that_no_filter_can_have_is_refused(at: int, value: bytes, message: str, tmp_path: Path) -> None:
    raw = bytearray(bytes(StaticFilter(range(3), encode="int64")))
    raw[at : at + len(value)] = value
    raw[60:64] = zlib.crc32(raw[:60]).to_bytes(4, "little")
    raw[-4:] = zlib.crc32(raw[:-4]).to_bytes(4, "little")
    assert message in refused(bytes(raw), tmp_path / "f")


def test_random_headers_are_refused_or_read_back() -> None:
    rng, good = random.Random(5), bytes(StaticFilter(range(3), encode="int64"))
    for _ in range(effort(500, 5_000, 100_000)):
        raw = bytearray(good)
        for _ in range(rng.randrange(1, 5)):
            raw[rng.randrange(60)] = rng.choice([0, 1, 2, 8, 16, 32, 255, rng.randrange(256)])
        raw[60:64] = zlib.crc32(raw[:60]).to_bytes(4, "little")
        raw[-4:] = zlib.crc32(raw[:-4]).to_bytes(4, "little")
        try:
            made = StaticFilter.from_bytes(raw)
        except (FormatError, ParameterError):
            continue
        assert bytes(made) == raw
        made.hash_many([] if made.encoding != 2 else range(9))


def test_files_of_the_other_kinds_name_the_class_to_use(tmp_path: Path) -> None:
    path = tmp_path / "f"
    StaticFilter([b"key"]).save(path)
    with pytest.raises(FormatError, match="open it with StaticFilter"):
        BloomFilter.open(path)
    BloomFilter(1, 0.1).save(path)
    assert "open it with the class of a Bloom filter" in refused(path.read_bytes(), path)
