"""Filter rows in segments equal two plain lists, and clients of a process share the segments."""

from __future__ import annotations

import gc
import random

import pytest
from hypothesis import given, strategies as st

from spvfilter.kernel import chain_filter_headers
from spvfilter.light.engine.filterrows import FilterRows
from support.client.engineparts import segments_of, shared_segments

NONE = bytes(32)


def hashes_of(seed: int, count: int) -> bytes:
    return random.Random(seed).randbytes(32 * count)


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 50) | st.integers(0, 6_000), st.integers(0, 50) | st.integers(0, 6_000))),
    st.integers(0, 1 << 32),
)
def test_rows_equal_a_list(steps: list[tuple[int, int]], seed: int) -> None:
    rng, rows = random.Random(seed), FilterRows()
    hashes, headers = list[bytes](), list[bytes]()
    for more, less in steps:
        fresh = rng.randbytes(32 * more)
        made = chain_filter_headers(fresh, rows.header_at(rows.height))
        rows.append(fresh, made)
        hashes += (fresh[at : at + 32] for at in range(0, len(fresh), 32))
        headers += (made[at : at + 32] for at in range(0, len(made), 32))
        if less:
            kept = max(len(hashes) - less, 0)
            rows.cut(kept - 1)
            del hashes[kept:], headers[kept:]
        assert rows.height == len(hashes) - 1
        assert rows.header_at(-1) == NONE
        for height in {0, len(hashes) - 1, *(rng.randrange(len(hashes) or 1) for _ in range(9))}:
            if 0 <= height < len(hashes):
                assert (rows.hash_at(height), rows.header_at(height)) == (hashes[height], headers[height])
                last = rng.randrange(height, min(len(hashes) + 5, height + 5_000))
                assert rows.hashes(height, last) == hashes[height : last + 1]


def test_clients_share_segments_until_the_last_one_is_gone() -> None:
    saved = hashes_of(1, 9_000)
    one, other = FilterRows([saved]), FilterRows([saved[: 32 * 5_000], saved[32 * 5_000 :]])
    segments = segments_of(one)
    assert segments == segments_of(other)
    assert len(segments) == 9_000 // 2_048
    other.cut(100)
    assert one.hashes(0, 8_999) == [saved[at : at + 32] for at in range(0, len(saved), 32)]
    del one, other
    gc.collect()
    assert not shared_segments() & {name for _, name in segments}
