"""A filter of a Dask bag is the filter of its keys, however they are partitioned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spvfilter.bloom import BloomFilter, SipHash
from spvfilter.errors import CapacityError, ParameterError

pytestmark = pytest.mark.dask


def bag_of(keys: list[object], partitions: int) -> Any:
    import dask.bag

    return dask.bag.from_sequence(keys, npartitions=partitions)  # type: ignore[no-untyped-call]  # it has no types


@pytest.fixture(autouse=True)
def in_this_process() -> Any:
    import dask

    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.mark.few(1)
@pytest.mark.parametrize("partitions", [1, 7, 40])
def test_a_bag_gives_the_filter_of_its_keys(partitions: int) -> None:
    keys: list[object] = [f"host{number}.example" for number in range(500)]
    hashing = SipHash(bytes(range(16)))
    whole = BloomFilter.build(keys, 500, 0.001, hashing=hashing, encode="utf-8")
    built = BloomFilter.build(bag_of(keys, partitions), 500, 0.001, hashing=hashing, encode="utf-8")
    assert built == whole
    assert "host7.example" in built
    with pytest.raises(CapacityError):
        built.update(f"another{number}" for number in range(500))


def test_many_files_are_a_bag(tmp_path: Path) -> None:
    import dask.bag

    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("".join(f"host{number * 10 + each}\n" for each in range(10)))
    # it has no types
    lines = dask.bag.read_text(str(tmp_path / "*.txt")).map(str.rstrip)  # type: ignore[no-untyped-call]
    built = BloomFilter.build(lines, 30, 0.01, encode="utf-8")
    assert all(f"host{number}" in built for number in range(30))
    assert len(built) == pytest.approx(30, abs=4)


def test_too_many_or_wrong_keys_are_errors() -> None:
    with pytest.raises(CapacityError):
        BloomFilter.build(bag_of([f"{number}".encode() for number in range(400)], 4), 100, 0.001)
    with pytest.raises(TypeError):
        BloomFilter.build(bag_of(["text"], 1), 100, 0.001)
    with pytest.raises(ParameterError, match="importable, not lambdas"):
        BloomFilter.build(bag_of(["text"], 1), 100, 0.001, encode=lambda text: b"")
