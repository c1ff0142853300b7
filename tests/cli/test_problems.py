"""Many problems become a few lines: the first of each kind in each file, and a count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spvfilter.address import script_to_address
from spvfilter.cli.term.problems import Problems
from spvfilter.network import REGTEST
from support.blocks.build import p2wpkh

FILE = "blocks/blk00000.dat"


def address(number: int) -> str:
    found = script_to_address(p2wpkh(number.to_bytes(20, "big")), REGTEST)
    assert found is not None
    return found


def test_problems_are_grouped_by_file_and_kind() -> None:
    problems = Problems()
    assert not problems
    for at in (8, 300, 4_000):
        problems.add(f"{FILE} at byte {at}: the block is damaged")
        problems.add(f"{FILE}: the undo record at byte {at} matches no block that follows {at:064x}")
    problems.add("blocks/blk00001.dat at byte 8: the block is damaged")
    problems.add(f"{FILE}: the file is empty")
    assert list(problems.lines()) == [
        f"{FILE} at byte 8: the block is damaged (and 2 more problems of this kind in this file)",
        f"{FILE}: the undo record at byte 8 matches no block that follows {8:064x}"
        " (and 2 more problems of this kind in this file)",
        "blocks/blk00001.dat at byte 8: the block is damaged",
        f"{FILE}: the file is empty",
    ]
    assert problems


def test_many_files_with_problems_are_counted() -> None:
    problems = Problems()
    for number in range(1_000):
        problems.add(f"blk{number:05}.dat: the file is empty")
    problems.add("blk00000.dat: the file is empty")
    *lines, last = problems.lines()
    assert len(lines) == 50
    assert lines[0] == "blk00000.dat: the file is empty (and 1 more problem of this kind in this file)"
    assert last == "and 950 more problems in other files"


def test_a_single_other_file_is_counted_as_one() -> None:
    problems = Problems()
    for number in range(51):
        problems.add(f"blk{number:05}.dat: the file is empty")
    assert [*problems.lines()][-1] == "and 1 more problem in other files"


def test_a_list_of_another_network_prints_two_lines(run: Any, block_file: Path, tmp_path: Path) -> None:
    watch = tmp_path / "list"
    watch.write_text("".join(f"{address(number)}\n" for number in range(3_000)))
    ran = run("scan", block_file, "--watch", watch)
    first, last = ran.err.splitlines()
    assert first == (
        f"spvfilter: {watch}: line 1: this address is for regtest, not for mainnet: '{address(0)}';"
        " choose its network, or give another address (and 999 more problems of this kind in this file)"
    )
    assert last == f"spvfilter: {watch}: line 1001: the rest of the file was not read after 1,000 invalid lines"
