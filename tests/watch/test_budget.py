"""The budget of a file: keys × indexes × paths are counted before any key is derived."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import ParameterError, WatchFileError
from spvfilter.primitives import OutPoint
from spvfilter.watch.keychain import Budget, Keychain
from spvfilter.watch.watchlist import WatchList

KEY = "xpub661MyMwAqRbcFtXgS5sYJABqqG9YLmC4Q1Rdap9gSE8NqtwybGhePY2gZ29ESFjqJoCu1Rupje8YtGqsefD265TMg7usUDFdp6W1EGMcet8"
PUBKEY = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
pytestmark = pytest.mark.descriptors


def load(path: Path, *lines: str, most: int = 10_000_000) -> WatchList:
    (path / "watch").write_text("\n".join(lines))
    return WatchList.load(path / "watch", max_derivations=most)


def problem(path: Path, *lines: str, most: int = 10_000_000) -> tuple[int, str]:
    with pytest.raises(WatchFileError) as caught:
        load(path, *lines, most=most)
    (found,) = caught.value.problems
    return found


@pytest.fixture
def no_derivation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Keychain, margin: int = 0) -> None:
        raise AssertionError("keys were derived")

    monkeypatch.setattr(Keychain, "grow", fail)


@pytest.mark.usefixtures("no_derivation")
def test_line_that_derives_too_many_keys_is_refused_at_once(tmp_path: Path) -> None:
    keys = ",".join(f"{KEY}/{number}/*" for number in range(300))
    line, message = problem(tmp_path, "# a comment", f"keychain:0:10000000:tr({KEY}/0/*,multi_a(2,{keys}))")
    assert line == 2
    assert "needs 3,010,000,000 key derivations" in message
    assert "but at most 10,000,000 are allowed" in message
    assert "--max-derivations" in message


@pytest.mark.usefixtures("no_derivation")
def test_all_lines_of_a_file_share_one_budget(tmp_path: Path) -> None:
    lines = [f"wpkh({KEY}/{number}/*)" for number in range(4)]
    assert problem(tmp_path, *lines, most=3_999)[0] == 4
    assert problem(tmp_path, f"wpkh({KEY}/<0;1;2>/*)", most=2_999)[1].startswith("the file needs 3,000 key")
    saved = f"keychain:900000:20:wpkh({KEY}/0/*)"
    assert problem(tmp_path, saved, most=899_999)[1].startswith("the file needs 900,000 key")
    multisig = f"wsh(sortedmulti(2,{KEY}/0/*,{KEY}/1/*,{KEY}/2/*))"
    assert problem(tmp_path, multisig, most=2_999)[1].startswith("the file needs 3,000 key")


def test_a_file_within_its_budget_is_read(tmp_path: Path) -> None:
    watch = load(tmp_path, f"wpkh({KEY}/<0;1>/*)", f"wpkh({KEY}/0/*)", most=3_000)
    assert [each.end for each in watch.keychains] == [1_000, 1_000]
    assert len(load(tmp_path, "raw(51)", f"wpkh({PUBKEY})", most=1)) == 2


@pytest.mark.slow
def test_four_thousand_keychains_fit_the_default_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Keychain, "grow", lambda self, margin=0: [])
    watch = load(tmp_path, *(f"wpkh({KEY}/{number}/*)" for number in range(4_000)))
    assert sum(each.derivations() for each in watch.keychains) == 4_000_000


def test_windows_that_outpoints_move_stay_within_the_budget(tmp_path: Path) -> None:
    watch = WatchList()
    (chain,) = watch.add_descriptor(f"wpkh({KEY}/0/*)", lookahead=30)
    (script,) = chain.scripts(29)
    lines = f"outpoint:{OutPoint(bytes(32), 1)}:1:{script.hex()}", f"keychain:0:30:{chain.descriptor}"
    assert load(tmp_path, *lines, most=60).keychains[0].end == 60
    number, message = problem(tmp_path, *lines, most=59)
    assert number == 1
    assert "60 key derivations" in message


def test_a_negative_budget_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="must be 0 or more, not -1"):
        Budget(-1)
    with pytest.raises(ParameterError, match="must be 0 or more, not -1"):
        load(tmp_path, most=-1)
