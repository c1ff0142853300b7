"""Scans for data prefixes and script types: the same rows in any way, and spends by undo records alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spvfilter.kernel import ScriptType
from spvfilter.kernel.pure.scripts import solve
from spvfilter.scan import BlockFiles, Matcher, PartScan, Plan, Processes, scan_parts
from spvfilter.watch.match import Match, MatchKind
from spvfilter.watch.watchlist import WatchList
from support.blocks.chains import found_by
from support.blocks.undo import ledger_chain, write_chain

TYPES = (ScriptType.P2WPKH, ScriptType.P2PK, ScriptType.NULLDATA, ScriptType.P2TR)


def watching() -> WatchList:
    watch = WatchList("regtest")
    watch.add_data_prefix(b"\xaa\x21", "commitment")
    for kind in TYPES:
        watch.add_script_type(kind.name.lower(), kind.name)
    return watch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    _, blocks, records = ledger_chain(5)
    return write_chain(tmp_path / "blocks", blocks, records)


def facts(matches: list[Match]) -> list[tuple[object, ...]]:
    return [(str(m.kind), m.height, m.txid_hex, m.index, m.value, m.label) for m in matches]


async def test_outputs_and_spends_are_those_of_the_types(folder: Path) -> None:
    watch = watching()
    matches = await found_by(Matcher(watch), BlockFiles(folder))
    assert {match.kind for match in matches} == set(MatchKind)
    for match in matches:
        script = match.script_pubkey or b""
        assert match.label == ("commitment" if script[:4] == b"\x6a\x24\xaa\x21" else ScriptType(solve(script)).name)
    assert len({match.label for match in matches}) > 2
    assert list(watch.outpoints()) == []
    without = await found_by(Matcher(watching()), BlockFiles(folder, undo="off"))
    assert facts(without) == facts([match for match in matches if match.kind is MatchKind.OUTPUT])
    assert facts(await found_by(Matcher(watching(), jobs=2), BlockFiles(folder))) == facts(matches)


@pytest.mark.few(1)
@pytest.mark.parametrize("undo", ["auto", "off"])
async def test_parts_give_the_same_rows(folder: Path, tmp_path: Path, undo: str) -> None:
    expected = await found_by(Matcher(watching()), BlockFiles(folder, undo=undo))
    engine = Processes(2)
    try:
        plan = Plan.of(BlockFiles(folder, undo=undo), watching().network, part_size=5_000)
        assert len(plan.parts) > 1
        scan = PartScan(tmp_path / "out", plan, watching())
        path = await scan_parts(scan, "jsonl", engine)
    finally:
        await engine.aclose()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = [(row["kind"], row["height"], row["txid"], row["index"], row["value"], row["label"]) for row in rows]
    assert found == facts(expected)
    assert scan.report.passes == 1  # no outpoint was learned, so no second pass is needed


async def test_other_entries_find_spends_without_undo_records(folder: Path) -> None:
    ledger, _, _ = ledger_chain(5)
    alone, both = ledger.interest.watch(), ledger.interest.watch()
    both.add_script_type("p2wpkh")
    both.add_script_type("p2pkh")
    expected = await found_by(Matcher(alone), BlockFiles(folder, undo="off"))
    matches = await found_by(Matcher(both), BlockFiles(folder, undo="off"))
    assert len(matches) > len(expected) > 10
    assert set(facts(expected)) <= set(facts(matches))
    assert [each for each in facts(matches) if each[0] == "input"] == [
        each for each in facts(expected) if each[0] == "input"
    ]
    assert set(both.outpoints()) == set(alone.outpoints())
