"""Filter files of Guava, pybloom-live, pybloomfiltermmap3, bits-and-blooms and Cassandra, and bytes that are none."""

from __future__ import annotations

import base64
import io
import json
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import mmh3
import pytest
from hypothesis import given, strategies as st

from spvfilter.bloom import BloomFilter
from spvfilter.bloom.exchange import (
    BitsAndBloomsHash,
    CassandraHash,
    GuavaHash,
    Pybloomfiltermmap3Hash,
    PybloomLiveHash,
    read_bits_and_blooms,
    read_cassandra,
    read_guava,
    read_pybloom_live,
    read_pybloomfiltermmap3,
    read_scalable_pybloom_live,
    read_spark,
    write_guava,
)
from spvfilter.bloom.exchange.foreignhashes import cassandra_murmur
from spvfilter.errors import FormatError, ParameterError

GUAVA = Path("/usr/share/java/guava.jar")

TEXTS = ["grün", "abc", "", "long key of more than sixteen bytes"]
BYTES = [text.encode() for text in TEXTS]
INTS = [0, 1, -1, (1 << 31) - 1, -(1 << 31)]
LONGS = [0, -1, (1 << 63) - 1]
GUAVA_FILES: list[tuple[str, int, Sequence[object], str]] = [  # made by Guava 31.1 with GuavaJudge.java
    ("byteArray", 64, BYTES, "0107000000020a088000020248231088048221280000"),
    ("byteArray", 32, BYTES, "00070000000200008011262002030000080a2a882020"),
    ("string", 64, TEXTS, "0107000000020200804001004c2310084483210c0000"),
    ("unencodedChars", 64, TEXTS, "010700000002070840000001c4210000007e10800000"),
    ("integer", 64, INTS, "01070000000250202020420080214022002420200222"),
    ("integer", 32, INTS, "0007000000029103fac008a00004626c2160202a0088"),
    ("long", 64, LONGS, "0107000000020080c00420092101000c842040121802"),
]
PYBLOOM_KEYS = ["a", "b", "grün", "5"]
PYBLOOM_LONG = (  # made by versions 3.1 and 4.0 for 20 keys at 0.0001
    "2d431cebe2361a3f0e000000000000001c0000000000000014000000000000000400000000000000200100820000680005030000028404400004"
    "20800c40205000088102440400680010040228403020000844810000230040"
)
PYBLOOM_SHORT = {  # made by each version for 10 keys at 0.1 and at 0.01
    3: (
        "9a9999999999b93f04000000000000000c000000000000000a0000000000000004000000000000000c8429a8b008",
        "7b14ae47e17a843f07000000000000000e000000000000000a00000000000000040000000000000019804008a88480882405240a01",
    ),
    4: (
        "9a9999999999b93f04000000000000000c000000000000000a00000000000000040000000000000088ea10285950",
        "7b14ae47e17a843f07000000000000000e000000000000000a000000000000000400000000000000a0201884c21450013022418900",
    ),
}
MMAP3_START = bytes.fromhex(  # made by version 0.6.3 for 10 keys at 0.05, with the seeds 1, 2^32 - 1, 77 and 9
    "4d42495441525241598000000000000000b00400000a000000000000009a9999999999a93f0400000001000000ffffffff4d000000"
)
MMAP3_FILE = (
    MMAP3_START
    + (9).to_bytes(4, "little")
    + bytes(1077 - len(MMAP3_START) - 4)
    + b"\x01\x01"
    + bytes(1280 - 1079)
    + bytes.fromhex("00900000100080000002100110004090")
)
ENCODES: dict[str, Any] = {
    "byteArray": None,
    "string": partial(str.encode, encoding="latin-1"),
    "unencodedChars": partial(str.encode, encoding="utf-16-le"),
    "integer": "int32",
    "long": "int64",
}
OTHERS = [str(number) for number in range(1000, 1200)]


def charset_of(funnel: str) -> str | None:
    return "latin-1" if funnel == "string" else None


@pytest.mark.parametrize(("funnel", "strategy", "keys", "file"), GUAVA_FILES)
def test_guava_files_contain_their_keys_and_come_back(
    funnel: str, strategy: int, keys: Sequence[object], file: str
) -> None:
    made = read_guava(bytes.fromhex(file), funnel=funnel, charset=charset_of(funnel))
    assert all(key in made for key in keys)
    assert bytes(made.contains_many(list(keys))) == b"\1" * len(keys)
    assert made.hashing == GuavaHash(strategy)
    assert abs(len(made) - len(keys)) <= 2
    assert write_guava(made).hex() == file
    again = BloomFilter(bits=made.bits, hash_funcs=made.hash_funcs, hashing=made.hashing, encode=ENCODES[funnel])
    again.update(list(keys))
    assert again.dump() == made.dump()


@pytest.mark.long
@pytest.mark.guava
@pytest.mark.parametrize(("funnel", "strategy", "keys", "file"), GUAVA_FILES)
def test_guava_agrees_with_the_reader_and_the_writer(
    tmp_path: Path, funnel: str, strategy: int, keys: Sequence[object], file: str
) -> None:
    javac, java = shutil.which("javac"), shutil.which("java")
    assert javac is not None and java is not None
    subprocess.run([javac, "-cp", GUAVA, "-d", tmp_path, Path(__file__).with_name("GuavaJudge.java")], check=True)
    words = [java, "-cp", f"{GUAVA}:{tmp_path}", "GuavaJudge"]
    lines = [key.decode() if isinstance(key, bytes) else str(key) for key in keys]
    (tmp_path / "keys").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    made = tmp_path / "made"
    subprocess.run([*words, "make", funnel, str(strategy), tmp_path / "keys", made], check=True)
    assert made.read_bytes().hex() == file

    others = lines + OTHERS
    (tmp_path / "others").write_text("".join(f"{line}\n" for line in others), encoding="utf-8")
    read = read_guava(made.read_bytes(), funnel=funnel, charset=charset_of(funnel))
    (tmp_path / "written").write_bytes(write_guava(read))
    subprocess.run([*words, "ask", funnel, tmp_path / "others", tmp_path / "written", tmp_path / "found"], check=True)
    kinds: dict[str, Callable[[str], object]] = {"byteArray": str.encode, "integer": int, "long": int}
    kind = kinds.get(funnel, str)
    assert (tmp_path / "found").read_bytes() == bytes(kind(other) in read for other in others)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "pass funnel="),
        ({"funnel": "double"}, "funnel must be"),
        ({"funnel": "string"}, "needs its charset"),
        ({"funnel": "string", "charset": "klingon"}, "unknown charset"),
        ({"funnel": "string", "charset": "UTF-16"}, "different byte orders"),
        ({"funnel": "long", "charset": "utf-8"}, "has no charset"),
    ],
)
def test_missing_or_wrong_choice_for_guava_is_an_error(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        read_guava(bytes.fromhex(GUAVA_FILES[0][3]), **arguments)


def test_funnel_for_text_takes_only_text() -> None:
    made = read_guava(bytes.fromhex(GUAVA_FILES[3][3]), funnel="unencodedChars")
    with pytest.raises(TypeError, match="takes str"):
        made.add(b"abc")
    made.add("\ud800")  # a lone surrogate, which Java allows
    assert "\ud800" in made


@pytest.mark.parametrize(
    "shape",
    [
        {"bits": 65, "hash_funcs": 3, "hashing": GuavaHash()},
        {"bits": 64, "hash_funcs": 256, "hashing": GuavaHash()},
        {"bits": 128, "hash_funcs": 2, "hashing": GuavaHash(), "partitioned": True},
        {"bits": 64, "hash_funcs": 3},
    ],
)
def test_filter_that_guava_lacks_is_not_written(shape: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match="Guava"):
        write_guava(BloomFilter(**shape))  # type: ignore[arg-type]


def test_only_a_bloom_filter_is_written_for_guava() -> None:
    with pytest.raises(TypeError, match="expected a BloomFilter"):
        write_guava(b"")  # type: ignore[arg-type]


def test_pybloom_live_files_contain_their_keys() -> None:
    for version in (None, 3, 4):
        made = read_pybloom_live(bytes.fromhex(PYBLOOM_LONG), version=version)
        assert all(key in made for key in PYBLOOM_KEYS)
        assert sum(key in made for key in OTHERS) == 0
        assert (made.capacity, made.nominal_fp_rate, made.partitioned) == (20, 0.0001, True)
        assert len(made) == 4


@pytest.mark.parametrize("version", [3, pytest.param(4, marks=pytest.mark.xxhash)])
def test_short_digests_of_pybloom_live_depend_on_the_version(version: int) -> None:
    for file in PYBLOOM_SHORT[version]:
        made = read_pybloom_live(bytes.fromhex(file), version=version)
        assert all(key in made for key in PYBLOOM_KEYS)
        empty = BloomFilter(
            bits=made.bits, hash_funcs=made.hash_funcs, hashing=made.hashing, encode="utf-8", partitioned=True
        )
        empty.update(PYBLOOM_KEYS)
        assert empty.dump() == made.dump()


@pytest.mark.parametrize(
    ("version", "slices", "span", "found"),
    [
        (3, 1, 74426, [28023]),
        (3, 2, 43854, [34369, 67933]),
        pytest.param(4, 2, 43854, [29999, 65442], marks=pytest.mark.xxhash),
        (3, 10, 50322, [1084, 73499, 132294, 186391, 238245, 255386, 323549, 354227, 413351, 470884]),
    ],
)
def test_wide_slices_of_pybloom_live_take_four_bytes(version: int, slices: int, span: int, found: list[int]) -> None:
    size = (slices * span + 7) // 8
    made = read_pybloom_live(struct.pack("<dQQQQ", 0.3, slices, span, 9, 1) + bytes(size), version=version)
    made.add("a")
    assert [8 * at + bit for at, byte in enumerate(made.dump()) if byte for bit in range(8) if byte >> bit & 1] == found


def test_pybloom_live_needs_the_version_of_a_short_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    file = bytes.fromhex(PYBLOOM_SHORT[3][0])
    with pytest.raises(ParameterError, match="pass version="):
        read_pybloom_live(file)
    with pytest.raises(ParameterError, match="version must be"):
        read_pybloom_live(file, version=2)
    monkeypatch.setitem(sys.modules, "xxhash", None)
    with pytest.raises(ParameterError, match="pip install xxhash"):
        read_pybloom_live(file, version=4)


def scalable(*files: bytes, count: int | None = None) -> bytes:
    """The file of a ScalableBloomFilter of pybloom-live with these filters."""
    head = struct.pack("<idQdi", 2, 0.9, 20, 0.001, len(files) if count is None else count)
    return head + struct.pack(f"<{len(files)}Q", *map(len, files)) + b"".join(files)


def test_scalable_filter_of_pybloom_live_has_its_filters() -> None:
    assert read_scalable_pybloom_live(scalable()) == []
    long, short = bytes.fromhex(PYBLOOM_LONG), bytes.fromhex(PYBLOOM_SHORT[3][0])
    first, second = read_scalable_pybloom_live(scalable(long, short), version=3)
    assert (first, second) == (read_pybloom_live(long), read_pybloom_live(short, version=3))
    with pytest.raises(ParameterError, match="pass version="):
        read_scalable_pybloom_live(scalable(long, short))


@pytest.mark.parametrize("growth", [2, 4])
def test_pybloom_live_itself_writes_the_same_scalable_file(growth: int) -> None:
    judge = pytest.importorskip("pybloom_live")
    made, file = judge.ScalableBloomFilter(20, 0.0001, growth), io.BytesIO()
    keys = [f"key {number}" for number in range(1_000)]
    for key in keys:
        made.add(key)
    made.tofile(file)
    filters = read_scalable_pybloom_live(file.getvalue())
    assert len(filters) == len(made.filters) > 3
    assert all(any(key in each for each in filters) for key in keys)
    assert not any(f"other {number}" in each for number in range(100) for each in filters)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (b"", "truncated"),
        (scalable(count=-1), "expected 0 to 64 filters, not -1"),
        (scalable(count=65), "filters, not 65"),
        (scalable(count=1), "truncated: expected 40 bytes"),
        (scalable(bytes.fromhex(PYBLOOM_LONG)) + b"x", "1 trailing byte"),
        (scalable(bytes.fromhex(PYBLOOM_LONG))[:-1], "truncated"),
        (scalable(bytes.fromhex(PYBLOOM_LONG) + b"x"), "1 trailing byte"),
        (bytes.fromhex(PYBLOOM_LONG), "not a pybloom-live ScalableBloomFilter"),
        (MMAP3_FILE, "pybloomfiltermmap3"),
    ],
)
def test_malformed_scalable_file_is_a_format_error(file: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_scalable_pybloom_live(file)


def test_pybloomfiltermmap3_files_contain_their_keys() -> None:
    made = read_pybloomfiltermmap3(MMAP3_FILE)
    assert all(key in made for key in (b"a", b"b", "grün".encode()))
    assert all(key in read_pybloomfiltermmap3(MMAP3_FILE, encode="utf-8") for key in ("a", "b", "grün"))
    assert made.hashing == Pybloomfiltermmap3Hash((1, (1 << 32) - 1, 77, 9))
    assert (made.bits, made.capacity, made.nominal_fp_rate, len(made)) == (128, 10, 0.05, 3)
    with pytest.raises(ParameterError, match="custom hash family"):
        BloomFilter.from_bytes(bytes(made))
    assert BloomFilter.from_bytes(bytes(made), hashing=made.hashing) == made


@pytest.mark.parametrize("size", [1, 100, 5_000])
def test_pybloomfiltermmap3_itself_finds_the_same_keys(size: int, tmp_path: Path) -> None:
    judge = pytest.importorskip("pybloomfilter")
    other = judge.BloomFilter(size, 0.05, str(tmp_path / "filter"))
    other.update([b"key %d" % number for number in range(size)])
    other.sync()
    made = read_pybloomfiltermmap3((tmp_path / "filter").read_bytes())
    asked = [b"key %d" % number for number in range(2 * size + 1_000)]
    assert [key in made for key in asked] == [key in other for key in asked]
    assert (made.bits, made.hash_funcs) == (other.num_bits, other.num_hashes)
    assert isinstance(made.hashing, Pybloomfiltermmap3Hash)
    assert list(made.hashing.seeds) == list(other.hash_seeds)


def go_file(keys: Sequence[bytes], bits: int, functions: int) -> bytes:
    """Return a filter as bits-and-blooms writes it, made by an implementation of its own."""
    words = [0] * -(-bits // 64)
    for key in keys:
        a, b = mmh3.hash64(key, 0, signed=False)
        c, d = mmh3.hash64(key + b"\1", 0, signed=False)
        for i in range(functions):
            start = b if i & 1 else a
            step = (c, d, d, c)[i % 4]
            at = (start + i * step) % (1 << 64) % bits
            words[at // 64] |= 1 << at % 64
    return struct.pack(f">QQQ{len(words)}Q", bits, functions, bits, *words)


def cassandra_file(keys: Sequence[bytes], words: int, functions: int, release: int) -> bytes:
    """Return a Filter.db, made by an implementation of its own."""
    bits = [0] * (64 * words)
    for key in keys:
        pair = cassandra_murmur(key)
        base, step = pair if release == 2 else pair[::-1]
        for i in range(functions):
            sum_ = (base + i * step) % (1 << 64)
            signed = sum_ - (1 << 64) if sum_ >> 63 else sum_
            bits[abs(signed) % len(bits)] = 1
    numbers = [sum(bit << i for i, bit in enumerate(bits[at : at + 64])) for at in range(0, len(bits), 64)]
    order = "<" if release == 4 else ">"
    return struct.pack(">ii", functions, words) + struct.pack(f"{order}{words}Q", *numbers)


@given(keys=st.lists(st.binary(max_size=40), max_size=8), bits=st.integers(64, 700), functions=st.integers(1, 12))
def test_bits_and_blooms_files_are_read_binary_and_as_json(keys: list[bytes], bits: int, functions: int) -> None:
    file = go_file(keys, bits, functions)
    read = read_bits_and_blooms(file)
    assert all(key in read for key in keys)
    made = BloomFilter(bits=bits, hash_funcs=functions, hashing=BitsAndBloomsHash())
    made.update(keys)
    assert made == read
    members = {"m": bits, "k": functions, "b": base64.urlsafe_b64encode(file[16:]).decode()}
    assert read_bits_and_blooms(json.dumps(members, separators=(",", ":")).encode()) == read


@pytest.mark.parametrize(
    ("key", "token"),
    [  # published by the tests of Cassandra's driver for Python
        (b"123", -7468325962851647638),
        (b"\x00\xff\x10\xfa\x99" * 10, 5837342703291459765),
        (b"\xfe" * 8, -8927430733708461935),
        (b"\x10" * 8, 1446172840243228796),
        (b"9223372036854775807", 7162290910810015547),
    ],
)
def test_murmur_of_cassandra_extends_the_sign(key: bytes, token: int) -> None:
    assert cassandra_murmur(key)[0] == token % (1 << 64)


@given(
    keys=st.lists(st.binary(max_size=40), max_size=8),
    words=st.integers(1, 9),
    functions=st.integers(1, 12),
    release=st.sampled_from([2, 3, 4]),
)
def test_cassandra_files_are_read(keys: list[bytes], words: int, functions: int, release: int) -> None:
    read = read_cassandra(cassandra_file(keys, words, functions, release), release=release)
    made = BloomFilter(bits=64 * words, hash_funcs=functions, hashing=CassandraHash(release))
    made.update(keys)
    assert made == read
    assert all(key in read for key in keys)


def test_cassandra_needs_its_release() -> None:
    file = cassandra_file([b"a"], 2, 3, 4)
    with pytest.raises(ParameterError, match="pass release="):
        read_cassandra(file)
    with pytest.raises(ParameterError, match="release must be"):
        read_cassandra(file, release=1)
    assert read_cassandra(file, release=5) == read_cassandra(file, release=4)


READERS: dict[str, tuple[Callable[[bytes], BloomFilter], bytes]] = {
    "guava": (partial(read_guava, funnel="byteArray"), bytes.fromhex(GUAVA_FILES[0][3])),
    "pybloom-live": (read_pybloom_live, bytes.fromhex(PYBLOOM_LONG)),
    "pybloomfiltermmap3": (read_pybloomfiltermmap3, MMAP3_FILE),
    "bits-and-blooms": (read_bits_and_blooms, go_file([b"a"], 100, 3)),
    "cassandra": (partial(read_cassandra, release=3), cassandra_file([b"a"], 2, 3, 3)),
}


@pytest.mark.parametrize("name", READERS)
def test_read_filters_are_copied_pickled_and_saved(name: str, tmp_path: Path) -> None:
    read, file = READERS[name]
    made = read(file)
    assert pickle.loads(pickle.dumps(made)) == made.copy() == made
    made.save(tmp_path / "filter")
    own = made.hashing if name == "pybloomfiltermmap3" else None
    assert BloomFilter.open(tmp_path / "filter", hashing=own) == made


@pytest.mark.parametrize("name", READERS)
def test_every_truncated_or_longer_file_is_an_error(name: str) -> None:
    read, file = READERS[name]
    for size in range(len(file)):
        with pytest.raises(FormatError):
            read(file[:size])
    with pytest.raises(FormatError, match="trailing"):
        read(file + b"\0")


@given(name=st.sampled_from([*READERS]), data=st.data())
def test_damaged_file_is_read_or_a_format_error(name: str, data: st.DataObject) -> None:
    read, file = READERS[name]
    damaged = bytearray(file)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(file) - 1))] = data.draw(st.integers(0, 255))
    try:
        read(bytes(damaged))
    except FormatError:
        pass
    except ParameterError as error:
        assert "pass version=" in str(error)  # the digest is now short


def mmap3_with(at: int, change: bytes) -> bytes:
    return MMAP3_FILE[:at] + change + MMAP3_FILE[at + len(change) :]


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("guava", b"\2\7\0\0\0\1" + bytes(8), "strategy 0 or 1, not 2"),
        ("guava", b"\1\0\0\0\0\1" + bytes(8), "hash functions, not 0"),
        ("guava", b"\1\7\0\0\0\0", "word, not 0"),
        ("guava", b"\1\7\xff\xff\xff\xff", "word, not -1"),
        ("pybloom-live", struct.pack("<dQQQQ", 2.0, 1, 8, 1, 1), "not 2.0"),
        ("pybloom-live", struct.pack("<dQQQQ", float("nan"), 1, 8, 1, 1), "not nan"),
        ("pybloom-live", struct.pack("<dQQQQ", 0.1, 0, 8, 1, 1), "hash functions, not 0"),
        ("pybloom-live", struct.pack("<dQQQQ", 0.1, 1, 0, 1, 1), "bit per slice, got 0"),
        ("pybloom-live", struct.pack("<dQQQQ", 0.1, 1, 8, 0, 1), "capacity must be 1 to"),
        ("pybloom-live", struct.pack("<dQQQQ", 0.1, 9, 1 << 60, 1, 1), "truncated"),
        ("pybloom-live", struct.pack("<dQQQQ", 0.1, 13, 15, 1, 1) + b"\xff" * 25, "bits beyond the first 195"),
        ("pybloomfiltermmap3", mmap3_with(0, b"X"), "starts with"),
        ("pybloomfiltermmap3", mmap3_with(17, b"\0"), "structure of 1200 bytes, got 1024"),
        ("pybloomfiltermmap3", mmap3_with(1077, b"\2"), "version 2"),
        ("pybloomfiltermmap3", mmap3_with(37, b"\0"), "hash functions, not 0"),
        ("pybloomfiltermmap3", mmap3_with(37, b"\1\1"), "hash functions, not 257"),
        ("pybloomfiltermmap3", mmap3_with(9, bytes(8)), "cannot have 0 bits"),
        ("bits-and-blooms", struct.pack(">QQQ", 0, 1, 0), "1 bit, not 0"),
        ("bits-and-blooms", struct.pack(">QQQ", 64, 0, 64) + bytes(8), "hash functions, not 0"),
        ("bits-and-blooms", struct.pack(">QQQ", 64, 1, 63) + bytes(8), "bit set of 64 bits, got 63"),
        ("bits-and-blooms", struct.pack(">QQQ", 1 << 63, 1, 1 << 63), "truncated"),
        ("bits-and-blooms", struct.pack(">QQQ", 60, 1, 60) + b"\xff" * 8, "bits beyond the first 60"),
        ("bits-and-blooms", b'{"m":1', "malformed JSON"),
        ("bits-and-blooms", b'{"m":1,"k":true,"b":""}', "expected numbers"),
        ("bits-and-blooms", b'{"m":1,"k":1,"b":"?"}', "malformed base64"),
        ("bits-and-blooms", b'{"m":' + b"[" * 100_000, "malformed JSON"),
        ("cassandra", struct.pack(">ii", 0, 1) + bytes(8), "hash functions, not 0"),
        ("cassandra", struct.pack(">ii", 1, -1), "word, not -1"),
    ],
)
def test_malformed_file_is_a_format_error(name: str, file: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        READERS[name][0](file)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (bytes(BloomFilter(10, 0.1)), "a filter file of spvfilter"),
        (MMAP3_FILE, "pybloomfiltermmap3"),
        (b"PAR1", "a Parquet file"),
        (pickle.dumps([1, 2, 3]), "a Python pickle"),
        (b"\xac\xed\x00\x05sr", "serialized Java object"),
        (b"\x1f\x8b\x08", "a gzip file"),
        (bytes.fromhex("04000000cdccccccccccec3f04000000000000007b14ae47e17a843f0100"), "ScalableBloomFilter"),
        (b'{"m":1,"k":1,"b":""}', "bits-and-blooms"),
        (b"\x06" + bytes(7) + b"\xff" * 120, "rbloom file, which cannot be read because it does not contain"),
        (b"\x01" + bytes(9), "rbloom"),
    ],
)
def test_file_of_another_make_is_named(file: bytes, said: str) -> None:
    padded = file + bytes(64)
    for read in (*(read for read, _ in READERS.values()), read_spark):
        if read is read_pybloomfiltermmap3 and said == "pybloomfiltermmap3":
            continue
        if read is read_bits_and_blooms and said == "bits-and-blooms":
            continue
        with pytest.raises(FormatError, match=said):
            read(padded)


@pytest.mark.parametrize(
    "make",
    [
        partial(GuavaHash, 16),
        partial(CassandraHash, 5),
        partial(PybloomLiveHash, 5, 2),
        partial(PybloomLiveHash, 3, 3),
        partial(Pybloomfiltermmap3Hash, ()),
        partial(Pybloomfiltermmap3Hash, (1 << 32,)),
        partial(Pybloomfiltermmap3Hash((1, 2)).functions, 3),
    ],
)
def test_impossible_parameter_of_a_family_is_an_error(make: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        make()


@pytest.mark.parametrize("read", [read_bits_and_blooms, read_pybloomfiltermmap3, partial(read_cassandra, release=4)])
def test_other_types_of_keys_are_an_error(read: Callable[..., BloomFilter]) -> None:
    for encode in ("int64", str.encode):
        with pytest.raises(ParameterError, match="encode must be"):
            read(b"", encode=encode)
