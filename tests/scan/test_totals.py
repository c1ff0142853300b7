"""Totals by entry: sums of any size, in little memory, and their file."""

from __future__ import annotations

import csv
import tracemalloc
from pathlib import Path

import pytest

from spvfilter.kernel import NO_VALUE, Hit, pack_hits
from spvfilter.primitives import OutPoint
from spvfilter.scan.balance import BalanceHistory
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.totals import EntryTotal, EntryTotals, entry_name, read_totals, write_totals
from spvfilter.watch.textfile import add
from spvfilter.watch.watchlist import WatchList


def in_block(hits: list[Hit]) -> BlockHits:
    return BlockHits(bytes(32), None, 0, pack_hits(hits))


def output(entry: int, value: int) -> Hit:
    return Hit(False, 0, bytes(32), 0, bytes(36), value, b"\x51", entry)


def test_sums_beyond_64_bits_are_exact() -> None:
    totals = EntryTotals(3)
    spend = output(2, 7)._replace(spend=True)
    block = in_block([output(0, 2**63 - 1), output(0, 2**63 - 1), output(2, NO_VALUE), spend])
    for _ in range(5):
        totals.add(block)
    assert list(totals) == [(0, EntryTotal(10, 10 * (2**63 - 1), 0, 0)), (2, EntryTotal(10, 0, 35, 5))]
    with pytest.raises(IndexError):
        totals.add(in_block([output(3, 1)]))


def test_a_spend_of_unknown_value_changes_no_balance() -> None:
    spend = output(0, NO_VALUE)._replace(spend=True)
    blocks = [in_block([output(0, 7), spend])._replace(time=5), in_block([spend, spend])._replace(time=6)]
    history = BalanceHistory.of(blocks)
    assert list(history.points()) == [(5, 7)]
    assert history.unknown == 3


@pytest.mark.slow
def test_a_million_entries_take_some_bytes_each(tmp_path: Path) -> None:
    count = 20_000
    watch = WatchList("regtest")
    for number in range(count):
        watch.add_script(b"\x00\x14" + number.to_bytes(20, "big"), f"label {number}" if number % 3 else None)
    blocks = [in_block([output(entry, entry + 1)]) for entry in range(count)]
    tracemalloc.start()
    try:
        totals = EntryTotals(count)
        for each in blocks:
            totals.add(each)
        write_totals(tmp_path / "totals.csv", totals, watch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 33 * count + 2_000_000
    rows = list(read_totals(tmp_path / "totals.csv"))
    with (tmp_path / "totals.csv").open(newline="") as file:
        assert rows == list(csv.DictReader(file))
    assert [int(row["received"]) for row in rows] == list(range(1, count + 1))
    assert (rows[4]["label"], rows[3]["label"], rows[0]["address"][:5]) == ("label 4", "", "bcrt1")


def written(path: Path, totals: EntryTotals, watch: WatchList) -> list[list[str]]:
    write_totals(path, totals, watch)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def test_every_kind_of_entry_has_its_line_in_order(tmp_path: Path) -> None:
    """Also sums beyond 64 bits, at the first, a middle and the last entry of scripts."""
    watch = WatchList("regtest")
    labels = ["plain", 'with "quotes"', "a, comma", "Ünï ☃", "", "same", "same"]
    for number in range(3 * len(labels)):
        watch.add_script(b"\x00\x14" + bytes((number,)) * 20, labels[number % len(labels)] or None)
        if number % 3 == 0:
            watch.add_outpoint(OutPoint(bytes((number,)) * 32, number), labels[number % len(labels)] or None)
            watch.add_data(b"data%d" % number)
    watch.add_script(b"\x51")
    for number in range(4):
        watch.add_script(b"\x52" + bytes((number,)), "last")
    count = len(watch)
    totals = EntryTotals(count)
    large = [output(entry, 2**63 - 1) for entry in (0, 7, count - 1) for _ in range(5)]
    totals.add_all([in_block([output(entry, entry) for entry in range(count) if entry % 4]), in_block(large)])
    rows = written(tmp_path / "totals.csv", totals, watch)
    expected = [
        [*entry_name(watch, entry), watch.label(entry) or "", *map(str, (total[1], total[2], total[3], total[0]))]
        for entry, total in totals
    ]
    assert rows == expected
    assert {row[0].partition(":")[0] for row in rows} == {"script", "outpoint", "data"}
    assert sum(int(row[3]) > 2**64 for row in rows) == 3
    assert {row[2] for row in rows} == {*labels, "last"}


def test_totals_widen_with_the_list() -> None:
    totals = EntryTotals(1)
    totals.add(in_block([output(0, 5)]))
    totals.widen(3)
    totals.widen(2)
    totals.add(in_block([output(2, 7)]))
    assert [(entry, total.received) for entry, total in totals] == [(0, 5), (2, 7)]


def test_an_entry_has_the_name_of_its_line() -> None:
    watch = WatchList("regtest")
    watch.add_script(b"\x51")
    watch.add_pubkey(bytes([2]) + bytes(31) + b"\x01")
    watch.add_data(b"omni")
    watch.add_outpoint(OutPoint(bytes(range(32)), 7))
    watch.add_data_prefix(b"\xaa\x21")
    watch.add_script_type("p2tr")
    again = WatchList("regtest")
    for entry in range(len(watch)):
        add(again, entry_name(watch, entry)[0])
    assert again == watch
