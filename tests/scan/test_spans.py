"""Ranges of blocks by height and by time: two ranges that meet at a time have each block once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.errors import ParameterError, SourceError
from spvfilter.network import REGTEST
from spvfilter.scan import BlockFiles, BlockSpan, ScanReport
from spvfilter.scan.order import in_chain_order
from support.blocks.build import block, block_hash, coinbase
from support.blocks.chains import write_records

START = 1_600_000_000
times = st.integers(START, START + 100)


def in_span(folder: Path, span: BlockSpan) -> list[bytes]:
    try:
        _, placed = in_chain_order(BlockFiles(folder, span=span), REGTEST, ScanReport())
    except SourceError as error:
        assert "contains none of" in str(error)
        return []
    return [each.ref.hash for each in placed]


@settings(max_examples=40)
@given(of_blocks=st.lists(times, min_size=1, max_size=12), cut=times, low=st.integers(0, 12))
def test_ranges_that_meet_have_each_block_once(
    tmp_path_factory: pytest.TempPathFactory, of_blocks: list[int], cut: int, low: int
) -> None:
    folder = tmp_path_factory.mktemp("blocks")
    blocks = [block(REGTEST.genesis_hash, [coinbase(1)], time=START, mined=True)]
    for height, time in enumerate(of_blocks, 2):
        blocks.append(block(block_hash(blocks[-1]), [coinbase(height)], time=time, mined=True))
    write_records(folder / "blk00000.dat", blocks)
    hashes = list(map(block_hash, blocks))
    before = in_span(folder, BlockSpan(low, to_time=cut))
    assert before + in_span(folder, BlockSpan(low, from_time=cut + 1)) == hashes[max(low - 1, 0) :]
    late = [number for number, time in enumerate([START, *of_blocks]) if time > cut and number + 1 >= low]
    assert before == hashes[max(low - 1, 0) : late[0] if late else len(hashes)]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ParameterError, match="a range from time 5 to 4 contains no blocks"):
        BlockSpan(from_time=5, to_time=4)
    with pytest.raises(ParameterError, match="to_time must be at least 0, not -1"):
        BlockSpan(to_time=-1)
    assert str(BlockSpan(1, 2, 3, 4)) == "from height 1 to height 2 from time 3 to time 4"
    assert (BlockSpan(to_height=7).last_height, BlockSpan(to_height=7, to_time=9).last_height) == (7, None)
