"""Compressed streams: any content, cut at any byte, and never more than some MB in memory."""

from __future__ import annotations

import gzip
import io
import sys
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.compression import is_compressed, unpacked
from spvfilter.errors import SourceError
from support.kernels.zstd import reads_zstd, zstd_bomb, zstd_frame

PACKERS = [pytest.param(gzip.compress, id="gzip"), pytest.param(zstd_frame, id="zstd", marks=reads_zstd)]
Pack = Callable[[bytes], bytes]


def read(raw: bytes) -> bytes:
    return unpacked(io.BytesIO(raw)).read()


@given(st.binary().filter(lambda data: data[:2] != b"\x1f\x8b" and data[:4] != b"\x28\xb5\x2f\xfd"))
def test_a_stream_that_is_not_compressed_is_unchanged(data: bytes) -> None:
    assert read(data) == data


@pytest.mark.parametrize("pack", PACKERS)
def test_compressed_streams_are_decompressed(pack: Pack) -> None:
    for data in (b"", b"a\n", bytes(range(256)) * 2_000, b"a" * 3_000_000):
        assert read(pack(data)) == data
        assert read(pack(data[:100]) + pack(data[100:])) == data  # files may be joined
    assert read(pack(pack(b"twice"))) == b"twice"
    assert read(gzip.compress(pack(b"mixed"))) == b"mixed"


@pytest.mark.parametrize("pack", PACKERS)
def test_a_stream_that_is_cut_off_is_an_error(pack: Pack) -> None:
    whole = pack(b"some text that repeats: some text that repeats")
    for end in range(5, len(whole)):
        with pytest.raises(SourceError, match="damaged or cut off"):
            read(whole[:end])


@pytest.mark.parametrize("pack", PACKERS)
@settings(max_examples=50)
@given(at=st.integers(4, 60), bit=st.integers(0, 7))
def test_a_damaged_stream_is_an_error_or_other_bytes(pack: Pack, at: int, bit: int) -> None:
    raw = bytearray(pack(b"some text that repeats: some text that repeats"))
    raw[at % len(raw)] ^= 1 << bit
    try:
        read(bytes(raw))
    except SourceError as error:
        assert "damaged or cut off" in str(error)


@pytest.mark.parametrize(
    "make",  # when the test runs, as it takes half a second
    [
        pytest.param(lambda: gzip.compress(bytes(100_000_000)), id="gzip"),
        pytest.param(lambda: zstd_bomb(1_000_000_000), id="zstd", marks=reads_zstd),
    ],
)
def test_a_bomb_takes_little_memory(make: Callable[[], bytes]) -> None:
    bomb = make()
    tracemalloc.start()
    try:
        stream = unpacked(io.BytesIO(bomb))
        for _ in range(50):
            assert stream.read(1_000_000) == bytes(1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@reads_zstd
def test_a_zstd_window_above_128_mb_is_refused() -> None:
    assert read(zstd_frame(b"small", 27)) == b"small"
    with pytest.raises(SourceError, match="damaged or cut off"):
        read(zstd_frame(b"large", 30))


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python reads zstd")
def test_an_absent_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(SourceError, match=r"pip install \"zstandard>=.*, or decompress the file first"):
        read(zstd_frame(b"text"))


def test_names_of_compressed_files() -> None:
    assert all(map(is_compressed, ("blk00000.dat.gz", "a/B.ZST", "list.txt.zst")))
    assert not any(map(is_compressed, ("blk00000.dat", "gz", "a.gz/blk00000.dat", "-")))
