"""Hashes of many headers at once, on the active backend and on the reference."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from spvfilter import kernel
from spvfilter.errors import FormatError
from spvfilter.kernel.pure import headers
from support.blocks.build import sha256d

TWINS = pytest.mark.parametrize("header_hashes", [kernel.header_hashes, headers.header_hashes], ids=["chosen", "pure"])


@TWINS
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 2_000])
def test_each_header_is_hashed_in_order(header_hashes: Callable[[bytes], bytes], count: int) -> None:
    headers = random.Random(count).randbytes(80 * count)
    assert header_hashes(headers) == b"".join(sha256d(headers[at : at + 80]) for at in range(0, len(headers), 80))


@TWINS
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_bytes_like_object_is_accepted(header_hashes: Callable[[bytes], bytes], kind: type[bytes]) -> None:
    raw = bytes(range(80)) * 3
    assert header_hashes(kind(raw)) == sha256d(raw[:80]) * 3


@TWINS
@given(size=st.integers(0, 400))
def test_a_truncated_header_is_refused_by_both_kernels(header_hashes: Callable[[bytes], bytes], size: int) -> None:
    if not size % 80:
        assert len(header_hashes(bytes(size))) == size // 80 * 32
        return
    with pytest.raises(FormatError) as caught:
        header_hashes(bytes(size))
    error = caught.value
    assert (error.message, error.offset, error.field) == (
        f"truncated: expected 80 bytes, {size % 80} left",
        size - size % 80,
        "header",
    )


@TWINS
@pytest.mark.parametrize("wrong", [None, 80, "x" * 80, [0] * 80])
def test_an_object_without_bytes_is_a_type_error(header_hashes: Callable[[object], bytes], wrong: object) -> None:
    with pytest.raises(TypeError):
        header_hashes(wrong)
