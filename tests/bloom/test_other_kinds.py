"""An object of a wrong kind is a TypeError that names the kind, in every method that takes a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter, CountingBloomFilter, FastHash, ScalableBloomFilter, SipHash
from spvfilter.bloom.exchange import RedisBloomHash, SparkHash, SplitBlockFilter, write_redisbloom, write_spark
from spvfilter.errors import MismatchError

OTHERS = {
    "counting": lambda: CountingBloomFilter(100, 0.01),
    "scalable": lambda: ScalableBloomFilter(100, 0.01),
    "set": lambda: {b"key"},
    "none": lambda: None,
}
METHODS = [
    *("union", "intersection", "union_update", "intersection_update", "issubset", "issuperset"),
    *("union_len", "intersection_len", "union_set_bits"),
]


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("method", METHODS)
def test_plain_filter_refuses_other_kinds_by_name(method: str, other: Callable[[], Any]) -> None:
    mine, theirs = BloomFilter(100, 0.01), other()
    mine.add(b"key")
    with pytest.raises(TypeError, match=f"not {type(theirs).__name__}"):
        getattr(mine, method)(theirs)
    assert mine == BloomFilter.build([b"key"], 100, 0.01)


@pytest.mark.parametrize("method", ["union", "union_update"])
def test_counting_filter_refuses_plain_filters_by_name(method: str) -> None:
    with pytest.raises(TypeError, match="not BloomFilter"):
        getattr(CountingBloomFilter(100, 0.01), method)(BloomFilter(100, 0.01))


@pytest.mark.parametrize("write", [write_spark, write_redisbloom])
@pytest.mark.parametrize("hashing", [SparkHash(1), RedisBloomHash()])
def test_writers_for_other_programs_refuse_counters(write: Callable[[Any], Any], hashing: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a BloomFilter, not CountingBloomFilter: to_bloom\(\) makes one"):
        write(CountingBloomFilter(100, 0.01, hashing=hashing))
    with pytest.raises(TypeError, match="not SplitBlockFilter"):
        write(SplitBlockFilter(100, 0.01))


@pytest.mark.parametrize(
    ("hashing", "said"),
    [
        (SipHash, r"not the class SipHash: pass SipHash\(\)"),
        ("fast", r"such as SipHash\(\), not str"),
        (0, "not int"),
    ],
)
def test_hashing_must_be_a_hash_family(hashing: Any, said: str) -> None:
    raw = bytes(BloomFilter(100, 0.01))
    for call in (
        lambda: BloomFilter(100, 0.01, hashing=hashing),
        lambda: CountingBloomFilter(100, 0.01, hashing=hashing),
        lambda: ScalableBloomFilter(100, 0.01, hashing=hashing),
        lambda: BloomFilter.from_bytes(raw, hashing=hashing),
        lambda: BloomFilter.load(raw[64:-4], 100, 0.01, hashing=hashing),
    ):
        with pytest.raises(TypeError, match=said):
            call()


def test_filters_of_one_kind_must_agree_in_shape_and_hash() -> None:
    mine = BloomFilter(100, 0.01)
    for theirs in (
        BloomFilter(101, 0.001),
        BloomFilter(100, 0.01, hashing=FastHash(1)),
        BloomFilter(100, 0.01, hashing=SipHash()),
        BloomFilter(100, 0.01, encode="utf-8"),
    ):
        for method in METHODS:
            with pytest.raises(MismatchError):
                getattr(mine, method)(theirs)
