"""Filters of Spark: bytes that Spark wrote, Spark's own code as the judge, and bytes that are no filter."""

from __future__ import annotations

import pickle
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter, CustomHash
from spvfilter.bloom.exchange import RedisBloomHash, SparkHash, read_spark, spark_filter, write_spark
from spvfilter.errors import FormatError, MismatchError, ParameterError, TooLargeError

STRINGS = ["", "a", "ab", "abc", "abcd", "grün", "€uro", "https://example.org/", "x" * 33]
LONGS = [0, 1, -1, 42, 1 << 40, -(1 << 63), (1 << 63) - 1]
VECTORS: dict[str, tuple[int, int, str]] = {  # made by Spark 4.3.0 with SparkJudge.java: version, seed, bytes
    "V1": (
        1,
        0,
        "00000001000000070000000313a3b3240f4ec43da415d4063c5ca4bec855090351429ec6",
    ),
    "V2": (
        2,
        0,
        "00000002000000070000000000000003594b1413e3b0cbcd2d4f9155d4e87425463457001a1635c8",
    ),
    "V2 of seed 7": (
        2,
        7,
        "000000020000000700000007000000031ec6d9aca34ce39bc57f43817c4160684848c8a1f4d44a90",
    ),
}
Judge = Callable[..., bytes]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    """Run SparkJudge on the spark-sketch of pyspark. Bytes arguments become files. Returns the output."""
    spec = find_spec("pyspark")
    javac, java = shutil.which("javac"), shutil.which("java")
    assert spec is not None and spec.origin is not None and javac is not None and java is not None
    (jar,) = (Path(spec.origin).parent / "jars").glob("spark-sketch_*.jar")
    folder = tmp_path_factory.mktemp("judge")
    subprocess.run([javac, "-cp", jar, "-d", folder, Path(__file__).with_name("SparkJudge.java")], check=True)

    def ask(*words: object) -> bytes:
        given: list[str] = []
        for number, word in enumerate(words):
            if isinstance(word, bytes):
                (folder / str(number)).write_bytes(word)
                word = folder / str(number)
            given.append(str(word))
        subprocess.run([java, "-cp", f"{jar}:{folder}", "SparkJudge", *given], check=True)
        return (folder / "out").read_bytes()

    ask.__dict__["out"] = folder / "out"
    return ask


def lines(strings: list[str], longs: list[int]) -> bytes:
    return "".join([*(f"s {text}\n" for text in strings), *(f"l {number}\n" for number in longs)]).encode()


@pytest.mark.spark
@pytest.mark.parametrize(("version", "seed"), [(1, 0), (2, 0), (2, 7), (2, -3)])
def test_spark_writes_the_same_bytes_and_reads_these(judge: Judge, version: int, seed: int) -> None:
    rng = random.Random(version * 100 + seed)
    strings = [*STRINGS, *("".join(rng.choices("abcäöü€", k=rng.randrange(20))) for _ in range(200))]
    longs = [*LONGS, *(rng.randrange(-(1 << 63), 1 << 63) for _ in range(200))]
    out = judge.__dict__["out"]
    theirs = judge("make", version, seed, lines(strings, longs), out, 400, 0.01)
    ours = spark_filter(400, 0.01, version=version, seed=seed, encode="utf-8")
    numbers = spark_filter(400, 0.01, version=version, seed=seed, encode="int64")
    ours.update(strings)
    numbers.update(longs)
    assert judge("unite", write_spark(ours), write_spark(numbers), out) == theirs
    asked = [str(number) for number in range(2_000)]
    assert judge("ask", lines(asked, []), theirs, out) == read_spark(theirs, encode="utf-8").contains_many(asked)
    others = [*range(2_000)]
    assert judge("ask", lines([], others), theirs, out) == read_spark(theirs, encode="int64").contains_many(others)


@pytest.mark.parametrize("name", ["V1", "V2", "V2 of seed 7"])
def test_filters_of_spark_are_read_and_written(name: str) -> None:
    version, seed, vector = VECTORS[name]
    raw = bytes.fromhex(vector)
    strings, numbers = read_spark(raw, encode="utf-8"), read_spark(raw, encode="int64")
    assert strings.hashing == SparkHash(version, seed)
    assert (strings.capacity, strings.nominal_fp_rate) == (None, None)
    assert strings.contains_many(STRINGS) == b"\1" * len(STRINGS)
    assert numbers.contains_many(LONGS) == b"\1" * len(LONGS)
    assert read_spark(raw).contains_many([text.encode() for text in STRINGS]) == b"\1" * len(STRINGS)
    assert write_spark(strings) == write_spark(numbers) == raw
    made = spark_filter(20, 0.01, version=version, seed=seed, encode="utf-8")
    made.update(STRINGS)
    other = spark_filter(20, 0.01, version=version, seed=seed, encode="int64")
    other.update(LONGS)
    assert bytes(a | b for a, b in zip(write_spark(made), write_spark(other), strict=True)) == raw


def test_a_spark_filter_is_an_ordinary_filter() -> None:
    made = spark_filter(1_000, 0.001, encode="int64")
    assert made.update(range(1_000)) > 990
    asked = 4_000
    assert sum(made.contains_many(range(10**6, 10**6 + asked))) / asked < 0.001 + 4 * (0.001 / asked) ** 0.5
    again = pickle.loads(pickle.dumps(made))
    assert again == made
    assert again.hashing == SparkHash()
    assert BloomFilter.from_bytes(bytes(made), hashing=SparkHash()) == BloomFilter.from_bytes(bytes(made)) == made
    for other in (SparkHash(1), SparkHash(2, 1), RedisBloomHash()):
        with pytest.raises(ParameterError, match="the file was not made with"):
            BloomFilter.from_bytes(bytes(made), hashing=other)
    with pytest.raises(MismatchError):
        made | spark_filter(1_000, 0.001, version=1, encode="int64")
    for key in ("1", b"1", True):
        with pytest.raises(TypeError):
            made.add(key)
    with pytest.raises(OverflowError):
        made.add(1 << 63)


def test_truncated_or_longer_bytes_are_refused() -> None:
    for version, seed in ((1, 0), (2, 5)):
        made = spark_filter(5, 0.1, version=version, seed=seed)
        made.add(b"key")
        raw = write_spark(made)
        for size in range(len(raw)):
            with pytest.raises(FormatError, match="truncated"):
                read_spark(raw[:size])
        with pytest.raises(FormatError, match="1 trailing byte"):
            read_spark(raw + b"\0")
        assert read_spark(bytearray(raw)) == made


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ((0, 1, 1), "unsupported version 0 \\(only 1 and 2 are supported\\)"),
        ((3, 1, 1), "version 3"),
        ((-1, 1, 1), "version -1"),
        ((1, 0, 1), "hash functions, not 0"),
        ((1, -5, 1), "hash functions, not -5"),
        ((1, 1 << 30, 1), "hash functions, not 1073741824"),
        ((1, 3, 0), "word, not 0"),
        ((1, 3, -1), "word, not -1"),
        ((1, 3, (1 << 31) - 1), "truncated: expected 17179869188 bytes, got 20"),
        ((2, 3, 9, 0), "word, not 0"),
    ],
)
def test_absurd_numbers_are_refused_before_an_allocation(head: tuple[int, ...], said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read_spark(struct.pack(f">{len(head)}i", *head) + bytes(8))


def test_arguments_that_spark_does_not_have_are_refused() -> None:
    for wrong in ((3, 0), (0, 0), (1, 7), (2, 1 << 31), (2, "x")):
        with pytest.raises(ParameterError):
            SparkHash(*wrong)
    sizes: list[tuple[Any, Any]] = [(0, 0.1), (True, 0.1), (1.5, 0.1), (5, 0.0), (5, 1.0), (5, 1), (1, 0.999)]
    for capacity, rate in sizes:
        with pytest.raises(ParameterError):
            spark_filter(capacity, rate)
    with pytest.raises(TooLargeError):
        spark_filter(1 << 48, 1e-9)
    for encode in ("uint64", "utf8", lambda key: b""):
        with pytest.raises(ParameterError, match="encode must be None, 'utf-8' or 'int64'"):
            read_spark(write_spark(spark_filter(5, 0.1)), encode=encode)
    for foreign in (
        BloomFilter(10, 0.1),
        BloomFilter(bits=64, hash_funcs=2, hashing=CustomHash("own", lambda data, i: i)),
        BloomFilter(bits=96, hash_funcs=2, hashing=SparkHash()),
        BloomFilter(bits=64, hash_funcs=2, hashing=SparkHash(), partitioned=True),
        BloomFilter(bits=64, hash_funcs=2, hashing=SparkHash(), encode="uint64"),
    ):
        with pytest.raises(ParameterError, match="Spark"):
            write_spark(foreign)
