"""Every way in which the file of a filter can be invalid, and arguments that contradict it."""

from __future__ import annotations

import math
import os
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.hashing import CustomHash, FastHash, SipHash
from spvfilter.errors import FormatError, ParameterError, TooLargeError, counted
from support.filters.filterfiles import CRC, KEYS, KINDS, Filter, sample, whole

# Invalid files


def refused(raw: bytes, path: Path, cls: type[Filter] = BloomFilter, **options: Any) -> set[str]:
    """The messages with which all three ways of reading refuse the bytes."""
    path.write_bytes(raw)
    messages = set()
    for read in (
        lambda: cls.from_bytes(raw, **options),
        lambda: cls.open(path, **options),
        lambda: cls.open(path, mmap=True, **options),
    ):
        with pytest.raises(FormatError) as caught:
            read()  # type: ignore[no-untyped-call]  # the callee has no types
        messages.add(str(caught.value))
    assert len(messages) == 1
    return messages


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_file_is_refused(kind: str, tmp_path: Path) -> None:
    made = KINDS[kind](bits=20, hash_funcs=3)
    made.update(KEYS)
    raw = bytes(made)
    for size in range(len(raw)):
        (message,) = refused(raw[:size], tmp_path / "f", type(made))
        assert "truncated" in message
        with pytest.raises(FormatError, match="truncated"):
            type(made).open(tmp_path / "f", mmap=True, verify=False)


def test_a_file_with_additional_bytes_is_refused(tmp_path: Path) -> None:
    for extra in (b"\x00", bytes(sample())):
        (message,) = refused(bytes(sample()) + extra, tmp_path / "f")
        assert message == f"file at byte {len(bytes(sample()))}: {counted(len(extra), 'trailing byte')}"


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
        (b"", "header at byte 0: truncated: expected 64 bytes, got 0"),
        (
            b"\x89PNG\r\n\x1a\n" * 20,
            "magic at byte 0: not a filter file: it starts with b'\\x89PNG\\r\\n\\x1a\\n'",
        ),
        (whole(version=2), "version at byte 8: unsupported version 2 (only version 1 is supported)"),
        (whole(version=0), "version at byte 8: unsupported version 0 (only version 1 is supported)"),
        (
            whole()[:60] + bytes(4) + whole()[64:],
            "header CRC at byte 60: the header is damaged: its CRC does not match",
        ),
        (whole(kind=0), "kind at byte 10: unknown kind 0"),
        (
            whole(kind=3),
            "kind at byte 10: the file contains a ScalableBloomFilter (kind 3), not a BloomFilter: open it with"
            " ScalableBloomFilter",
        ),
        (
            whole(kind=4),
            "kind at byte 10: the file contains a CountingBloomFilter (kind 4), not a BloomFilter: open it with"
            " CountingBloomFilter",
        ),
        (whole(kind=6), "kind at byte 10: unknown kind 6"),
        (
            whole(bytes(10), kind=2),
            "kind at byte 10: the file contains a CountingBloomFilter (kind 2), not a BloomFilter: open it with"
            " CountingBloomFilter",
        ),
        (whole(family=0), "family at byte 11: unknown hash family 0"),
        (whole(family=7), "family at byte 11: unknown hash family 7"),  # Parquet's filters have a format of their own
        (whole(family=8), "family at byte 11: unknown hash family 8"),
        (
            whole(family=4, key=b"\1" + bytes(15)),
            "key at byte 44: the family has no seed, so the remaining bytes must be zero",
        ),
        (
            whole(family=5, key=bytes(15) + b"\1"),
            "key at byte 48: a tweak or seed is 4 bytes long, so the remaining bytes must be zero",
        ),
        (
            whole(family=6, key=b"\1" + bytes(15)),
            "key at byte 44: the family has no seed, so the remaining bytes must be zero",
        ),
        (whole(encoding=6), "encoding at byte 12: unknown encoding of keys 6"),
        (whole(flags=4), "flags at byte 13: unknown flags 0x04 0x0000"),
        (whole(flags=0x80), "flags at byte 13: unknown flags 0x80 0x0000"),
        (whole(zero=1), "flags at byte 13: unknown flags 0x00 0x0001"),
        (whole(hash_funcs=0), "hash_funcs at byte 16: expected 1 to 1075 hash functions, not 0"),
        (whole(hash_funcs=1076), "hash_funcs at byte 16: expected 1 to 1075 hash functions, not 1076"),
        (whole(hash_funcs=2**32 - 1), "hash_funcs at byte 16: expected 1 to 1075 hash functions, not 4294967295"),
        (whole(b"", bits=0), "bits at byte 20: the number of bits must be 1 to 72057594037927936, not 0"),
        (
            whole(bits=2**56 + 1),
            "bits at byte 20: the number of bits must be 1 to 72057594037927936, not 72057594037927937",
        ),
        (
            whole(bits=2**64 - 1),
            "bits at byte 20: the number of bits must be 1 to 72057594037927936, not 18446744073709551615",
        ),
        (
            whole(bits=20, flags=1),
            "bits at byte 20: the number of bits must be 1 to 72057594037927936, a multiple of 3 (hash_funcs), not 20",
        ),
        (
            whole(bits=2**32 + 1, family=1),
            "bits at byte 20: murmur3 can address at most 4294967296 bits, not 4294967297",
        ),
        (whole(bits=2**56), "file at byte 71: truncated: expected 9007199254741060 bytes, got 71"),
        (
            whole(capacity=2**63, fp_rate=0.5),
            "capacity at byte 28: the capacity must be at most 9223372036854775807, not 9223372036854775808",
        ),
        (whole(capacity=1, fp_rate=1.0), "fp_rate at byte 36: a filter of capacity 1 cannot have the rate 1.0"),
        (whole(capacity=1, fp_rate=-0.5), "fp_rate at byte 36: a filter of capacity 1 cannot have the rate -0.5"),
        (whole(capacity=1, fp_rate=math.nan), "fp_rate at byte 36: a filter of capacity 1 cannot have the rate nan"),
        (whole(capacity=1, fp_rate=math.inf), "fp_rate at byte 36: a filter of capacity 1 cannot have the rate inf"),
        (whole(capacity=1), "fp_rate at byte 36: a filter of capacity 1 cannot have the rate 0.0"),
        (whole(fp_rate=0.5), "fp_rate at byte 36: a filter of capacity 0 cannot have the rate 0.5"),
        (
            whole(key=bytes(4) + b"\x01" + bytes(11)),
            "key at byte 48: a tweak or seed is 4 bytes long, so the remaining bytes must be zero",
        ),
        (
            whole(family=1, key=bytes(15) + b"\x01"),
            "key at byte 48: a tweak or seed is 4 bytes long, so the remaining bytes must be zero",
        ),
        (whole(b"\x00\x00\x10"), "bits at byte 66: padding bits are set"),
        (whole()[:-4] + bytes(4), "CRC at byte 67: the file is damaged: its CRC does not match"),
    ],
)
def test_an_invalid_file_is_refused_by_name(raw: bytes, message: str, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        assert refused(raw, tmp_path / "f") == {message}
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_counters_beyond_the_last_are_refused(tmp_path: Path) -> None:
    raw = whole(bytes(9) + b"\x0f" + b"\x10", kind=2, bits=21)
    assert refused(raw, tmp_path / "f", CountingBloomFilter) == {"bits at byte 74: padding bits are set"}
    assert refused(whole(), tmp_path / "f", CountingBloomFilter) == {
        "kind at byte 10: the file contains a BloomFilter (kind 1), not a CountingBloomFilter: open it with BloomFilter"
    }


@pytest.mark.parametrize("mmap", [False, True])
def test_bits_beyond_the_last_one_are_refused_without_verifying(mmap: bool, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(whole(b"\x00\x00\x10"))
    with pytest.raises(FormatError, match="padding bits are set"):
        BloomFilter.open(tmp_path / "f", mmap=mmap, verify=False)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(raw: bytes) -> None:
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
@example({"fp_rate": -0.0}, b"", True)
def test_a_forged_header_gives_a_filter_or_an_error(changes: dict[str, Any], body: bytes, fitting: bool) -> None:
    if fitting and changes.get("bits", 20) <= 300:
        body = bytes(
            (changes.get("bits", 20) + 7) // 8 if changes.get("kind", 1) == 1 else (changes.get("bits", 20) + 1) // 2
        )
    raw = whole(body, **changes)
    cls = CountingBloomFilter if changes.get("kind") == 2 else BloomFilter
    try:
        made = cls.from_bytes(raw, hashing=None)
    except FormatError:
        return
    except ParameterError:  # the caller did not pass the custom function
        assert 255 in (changes.get("family"), changes.get("encoding"))
        return
    assert bytes(made) == raw
    assert made.approx_len >= 0
    repr(made)


@pytest.mark.posix
def test_a_filter_larger_than_memory_must_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, made = bytes(sample()), sample()
    made.save(tmp_path / "f")
    monkeypatch.setattr(os, "sysconf", lambda name: 1)
    for read in (lambda: BloomFilter.open(tmp_path / "f"), lambda: BloomFilter.from_bytes(raw)):
        with pytest.raises(TooLargeError, match="machine's 1 bytes of memory"):
            read()  # type: ignore[no-untyped-call]  # the callee has no types
    assert BloomFilter.open(tmp_path / "f", mmap=True) == made


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        BloomFilter.open(tmp_path / "f")
    with pytest.raises(IsADirectoryError):
        BloomFilter.open(tmp_path, mmap=True)


# Arguments that the user must pass again


def other(data: bytes, i: int) -> int:
    return i


@pytest.mark.parametrize(
    ("made_with", "opened_with", "message"),
    [
        (
            {"hashing": CRC},
            {},
            "the file was made with a custom hash family: in Python, pass the family as `hashing`",
        ),
        (
            {"hashing": CRC},
            {"hashing": FastHash()},
            "the file was made with a custom hash family: in Python, pass the family as `hashing`",
        ),
        (
            {"hashing": CRC},
            {"hashing": CustomHash("other", other)},
            "the file was made with a hash family of a different name",
        ),
        ({"hashing": CRC}, {"hashing": CustomHash("crc", [zlib.crc32])}, "expected 2 hash functions, but 'crc' has 1"),
        ({"hashing": FastHash(1)}, {"hashing": FastHash(2)}, "the file was not made with FastHash(seed=2)"),
        ({"hashing": FastHash(1)}, {"hashing": CRC}, "the file was not made with CustomHash("),
        ({"hashing": SipHash(bytes(16))}, {"hashing": SipHash(b"k" * 16)}, "the file was not made with SipHash()"),
        ({"encode": str.encode}, {}, "the file's keys were encoded by a custom function: pass it as `encode`"),
        (
            {"encode": str.encode},
            {"encode": "utf-8"},
            "the file's keys were encoded by a custom function: pass it as `encode`",
        ),
        ({"encode": "utf-8"}, {"encode": "int64"}, "the file's keys are encoded as utf8, not int64"),
        ({"encode": "utf-8"}, {"encode": str.encode}, "the file's keys are encoded as utf8, not callable"),
        ({}, {"encode": "utf-8"}, "the file's keys are encoded as bytes, not utf8"),
    ],
)
def test_arguments_that_contradict_the_file_are_refused(
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
            read()  # type: ignore[no-untyped-call]  # the callee has no types
        assert str(caught.value).startswith(message)
    assert BloomFilter.open(tmp_path / "f", **made_with) == made  # the file is unchanged
