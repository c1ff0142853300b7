"""Entries that match by a data prefix or a script type, in the compiled table and in its reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.kernel import MAX_PREFIX, NO_ENTRY, EntryKind, ScriptType, WatchTable, native, pack_hits, unpack_hits
from spvfilter.kernel.pure.blocks import null_data
from spvfilter.kernel.pure.scripts import solve
from spvfilter.kernel.pure.table import WatchTable as Reference
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.undo import Spent, full_key, record_of, undo_of

SCRIPT = build.p2sh(bytes(range(20)))
KEY = bytes((2,)) + bytes(31) + b"\x01"
EXAMPLES = {
    ScriptType.P2PK: [build.p2pk(KEY), build.p2pk(full_key(7))],
    ScriptType.P2PKH: [build.p2pkh(bytes(20))],
    ScriptType.P2SH: [build.p2sh(bytes(20))],
    ScriptType.P2MS: [build.multisig(1, [KEY]), build.multisig(2, [KEY] * 3)],
    ScriptType.P2WPKH: [build.p2wpkh(bytes(20))],
    ScriptType.P2WSH: [build.p2wsh(bytes(32))],
    ScriptType.P2TR: [build.p2tr(bytes(32))],
    ScriptType.P2A: [b"\x51\x02\x4e\x73"],
    ScriptType.NULLDATA: [b"\x6a", b"\x6a\x04omni", b"\x6a\x5d\x02ab", b"\x6a\x4c\x01x", b"\x6a\x50"],
    ScriptType.WITNESS_UNKNOWN: [b"\x52\x02ab", b"\x51\x02ab", b"\x60\x28" + bytes(40), b"\x52\x20" + bytes(32)],
    ScriptType.NONSTANDARD: [
        b"",
        b"\x51",
        b"\x00\x03abc",
        b"\x6a\x04omn",
        b"\x6a\xac",
        b"\x6a\x4d\x01",
        b"\x52\x29" + bytes(41),
        build.p2pkh(bytes(20)) + b"\x61",
    ],
}


def filled(table: type[WatchTable], *prefixes: bytes) -> WatchTable:
    """A table with all script types, each with its number as entry, and then the prefixes."""
    made = table()
    for kind in ScriptType:
        made.add(EntryKind.SCRIPT_TYPE, bytes((kind,)))
    for prefix in prefixes:
        made.add(EntryKind.DATA_PREFIX, prefix)
    return made


@pytest.fixture(params=["reference", pytest.param("compiled", marks=pytest.mark.native)])
def table(request: pytest.FixtureRequest) -> type[WatchTable]:
    if request.param == "reference":
        return Reference
    found: type[WatchTable] = native.WatchTable
    return found


def near_scripts() -> st.SearchStrategy[bytes]:
    """Scripts of all types, with some bytes changed, removed or added."""
    whole = st.sampled_from([script for scripts in EXAMPLES.values() for script in scripts])
    cut = st.builds(lambda script, end: script[:end], whole, st.integers(0, 70))
    changed = st.builds(
        lambda script, at, byte: script[: at % (len(script) + 1)] + byte + script[at % (len(script) + 1) + 1 :],
        whole,
        st.integers(0, 70),
        st.binary(max_size=2),
    )
    return st.one_of(
        whole, cut, changed, st.binary(max_size=80), st.binary(max_size=80).map(lambda data: b"\x6a" + data)
    )


@pytest.mark.parametrize("kind", ScriptType)
def test_scripts_of_each_type(table: type[WatchTable], kind: ScriptType) -> None:
    for script in EXAMPLES[kind]:
        assert (solve(script), filled(table).match_script(script)) == (kind, kind)
    alone = table()
    alone.add(EntryKind.SCRIPT_TYPE, bytes((kind,)))
    for other, scripts in EXAMPLES.items():
        assert {alone.match_script(script) for script in scripts} == {0 if other == kind else NO_ENTRY}


@pytest.mark.native
@given(near_scripts(), st.lists(st.binary(min_size=1, max_size=5), max_size=5))
def test_the_twins_find_the_same_type_and_prefix(script: bytes, prefixes: list[bytes]) -> None:
    twins = [filled(each, *prefixes, script[2:6] or b"x") for each in (native.WatchTable, Reference)]
    assert len({twin.match_script(script) for twin in twins}) == 1
    assert list(twins[0].entries()) == list(twins[1].entries())


@given(st.binary(min_size=1, max_size=100), st.sets(st.integers(1, MAX_PREFIX), max_size=6))
def test_the_longest_prefix_matches(data: bytes, sizes: set[int]) -> None:
    for script in (b"\x6a" + build.push(data), b"\x6a" + build.push(data) + b"\x02ab"):
        made = WatchTable()
        prefixes = list(dict.fromkeys([data[:size] for size in sizes] + [b"\xff" + data[:3]]))
        for prefix in prefixes:
            made.add(EntryKind.DATA_PREFIX, prefix)
        fitting = [number for number, prefix in enumerate(prefixes) if data.startswith(prefix)]
        longest = max(fitting, key=lambda number: len(prefixes[number]), default=NO_ENTRY)
        assert null_data(script) == data
        assert made.match_script(script) == longest


def test_a_prefix_needs_the_first_push_of_an_op_return(table: type[WatchTable]) -> None:
    made = table()
    made.add(EntryKind.DATA_PREFIX, b"omni")
    made.add(EntryKind.DATA_PREFIX, b"\x0d")
    assert made.match_script(b"\x6a\x4c\x05omni!") == 0
    assert made.match_script(b"\x6a\x5d\x02ab") == 1  # OP_13, as Runes use it
    made.add(EntryKind.DATA_PREFIX, b"\x81")
    assert made.match_script(b"\x6a\x4f\x02ab") == 2  # OP_1NEGATE
    for script in (
        b"\x04omni",
        b"\x6aomni",
        b"\x6a\x01x\x04omni",
        b"\x6a\x00\x04omni",
        b"\x6a\x03omn",
        b"\x6a\x05omni",
    ):
        assert made.match_script(script) == NO_ENTRY
    made.add(EntryKind.DATA, b"omni!")
    assert made.match_script(b"\x6a\x05omni!") == 3  # an exact element comes first


def coins() -> Iterator[Spent]:
    yield from (Spent(1_000, script) for scripts in EXAMPLES.values() for script in scripts)


def test_spends_of_a_type_are_found_by_undo_records_only(table: type[WatchTable]) -> None:
    spent = list(coins())
    spending = build.tx([TxIn(bytes(range(32)), number) for number in range(len(spent))], [TxOut(5, SCRIPT)])
    again = build.tx([TxIn(build.txid(spending), 0)], [TxOut(1, b"\x51")])
    raw = build.block(bytes(32), [build.coinbase(1), spending, again])
    undo = undo_of([spent, [Spent(5, SCRIPT)]])
    made = filled(table)
    found = table()
    hits = made.scan_block(raw, found, record_of(raw, undo))
    inputs = [hit for hit in hits if hit.spend and hit.position == 1]
    assert [hit.script for hit in inputs] == [coin.script for coin in spent]
    assert [hit.entry for hit in inputs] == [solve(coin.script) for coin in spent]
    assert [(hit.entry, hit.position) for hit in hits if hit.spend and hit.position == 2] == [(ScriptType.P2SH, 2)]
    without = made.scan_block(raw, found)
    assert [hit for hit in without if hit.spend] == []
    assert [hit.entry for hit in without if hit.position == 1] == [ScriptType.P2SH]
    assert list(found.coins()) == []
    assert made.learn_packed(pack_hits(hits)) == 0
    made.learn(hits)
    assert list(made.coins()) == []
    assert unpack_hits(pack_hits(hits)) == hits


def test_only_patterns_are_not_learned(table: type[WatchTable]) -> None:
    made = filled(table)
    script = EXAMPLES[ScriptType.P2TR][0]
    entry = made.add(EntryKind.SCRIPT, script)
    paying = build.tx([TxIn(bytes(range(32)), 0)], [TxOut(5, script), TxOut(6, EXAMPLES[ScriptType.P2SH][0])])
    hits = made.scan_tx(paying)
    assert [hit.entry for hit in hits] == [entry, ScriptType.P2SH]
    assert made.learn_packed(pack_hits(hits)) == 1
    assert [point for point, _ in made.coins()] == [build.txid(paying) + bytes(4)]


def test_copies_keep_patterns(table: type[WatchTable]) -> None:
    made = filled(table, b"omni", b"x" * 64)
    made.add(EntryKind.SCRIPT, b"\x51" * 62)
    for twin in (made.copy(), made.without([])):
        assert list(twin.entries()) == list(made.entries())
        assert [twin.find(kind, value) for kind, value in made.entries()] == list(range(len(made)))
        assert twin.match_script(b"\x6a\x04omni") == made.match_script(b"\x6a\x04omni") == len(ScriptType)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (EntryKind.DATA_PREFIX, b"", "a data prefix must be 1 to 64 bytes long, not 0"),
        (EntryKind.DATA_PREFIX, bytes(65), "a data prefix must be 1 to 64 bytes long, not 65"),
        (EntryKind.SCRIPT_TYPE, b"", "the number of a ScriptType"),
        (EntryKind.SCRIPT_TYPE, bytes((len(ScriptType),)), "the number of a ScriptType"),
        (EntryKind.SCRIPT_TYPE, bytes(2), "the number of a ScriptType"),
    ],
)
def test_a_bad_pattern_is_refused(table: type[WatchTable], kind: EntryKind, value: bytes, message: str) -> None:
    made = table()
    with pytest.raises(ParameterError, match=message):
        made.add(kind, value)
    assert made.find(kind, value) == NO_ENTRY
    assert len(made) == 0
