"""Data prefixes and script types in watch lists and their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.cli.arguments import watch_list
from spvfilter.errors import InexpressibleError, ParameterError, WatchFileError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import EntryKind, ScriptType
from spvfilter.light.engine.expressible import check_followable
from spvfilter.network import MAINNET
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import TxIn, TxOut, multisig, p2wpkh, tx

KEY = bytes((2,)) + bytes(31) + b"\x01"
LINES = "data-prefix:6f6d6e69,Omni\ndata-prefix:0d\nscript-type:p2ms,bare\nscript-type:nulldata\n"


def loaded(tmp_path: Path, text: str) -> WatchList:
    (tmp_path / "list").write_text(text)
    return WatchList.load(tmp_path / "list")


def test_lines_match_with_their_labels_and_learn_nothing(tmp_path: Path) -> None:
    watch = loaded(tmp_path, LINES)
    outputs = [b"\x6a\x06omni!!", b"\x6a\x5d\x02ab", multisig(1, [KEY]), b"\x6a\x01x", p2wpkh(bytes(20))]
    paying = tx([TxIn(bytes(range(32)), 0)], [TxOut(number, script) for number, script in enumerate(outputs)])
    assert [(match.index, match.label) for match in watch.match_tx(paying)] == [
        (0, "Omni"),
        (1, None),
        (2, "bare"),
        (3, None),
    ]
    assert list(watch.outpoints()) == []


def test_a_list_survives_a_file_a_copy_and_a_pickle(tmp_path: Path) -> None:
    watch = loaded(tmp_path, LINES)
    watch.save(tmp_path / "saved")
    assert WatchList.load(tmp_path / "saved") == watch == watch.copy()
    assert (tmp_path / "saved").read_text().partition("\n")[2] == LINES
    assert watch.has_patterns
    assert not WatchList().has_patterns


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("data-prefix:", "a data prefix must be 1 to 64 bytes long, not 0"),
        ("data-prefix:" + "00" * 65, "a data prefix must be 1 to 64 bytes long, not 65"),
        ("data-prefix:0", "expected pairs of hex digits, not these 1 characters"),
        ("script-type:P2MS", "unknown script type: expected one of nonstandard, p2pk, p2pkh"),
        ("script-type:", "unknown script type"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, cause: str) -> None:
    with pytest.raises(WatchFileError) as caught:
        loaded(tmp_path, f"# comment\n{line}\n")
    ((number, message),) = caught.value.problems
    assert number == 2
    assert cause in message


def test_commands_without_blocks_refuse_the_line_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "list").write_text(f"1BoatSLRHtKNngkdXEeobR76b53LETtpyT\n{LINES}")
    options = {"strict": False, "max_derivations": 0}
    with pytest.raises(WatchFileError) as caught:
        watch_list(MAINNET, str(tmp_path / "list"), [], **options)  # type: ignore[arg-type]
    assert [number for number, _ in caught.value.problems] == [2, 3, 4, 5]
    assert {message for _, message in caught.value.problems} == {
        "data-prefix: and script-type: entries work only in `spvfilter scan`: delete the line"
    }
    with pytest.raises(ParameterError, match="script-type:… is a line of a watch list, not an address"):
        watch_list(MAINNET, None, ["script-type:p2ms"], **options)  # type: ignore[arg-type]


def test_filters_and_clients_refuse_the_list(tmp_path: Path) -> None:
    watch = loaded(tmp_path, LINES)
    for elements in (watch.bloom_elements, watch.gcs_elements):
        with pytest.raises(InexpressibleError, match="filters cannot find data prefixes or script types"):
            elements()
    with pytest.raises(InexpressibleError):
        Bip37Filter.for_watchlist(watch, 0.001)
    with pytest.raises(ParameterError, match="a client cannot follow data-prefix: and script-type: entries"):
        check_followable(watch.index)


def test_each_type_has_a_name() -> None:
    watch = WatchList()
    for kind in ScriptType:
        watch.add_script_type(kind.name.lower())
    assert [value for _, value in watch.table.entries()] == [bytes((kind,)) for kind in ScriptType]
    assert {kind for kind, _ in watch.table.entries()} == {EntryKind.SCRIPT_TYPE}
