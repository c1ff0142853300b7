"""Tables of addresses (CSV): the column with the addresses is found, and labels are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from spvfilter.errors import WatchFileError
from spvfilter.watch.watchlist import WatchList
from support.wallets.walletfiles import ADDRESS, SECOND
from support.wallets.walletreading import load, write

pytestmark = pytest.mark.descriptors


def test_line_of_words_does_not_make_a_table(tmp_path: Path) -> None:
    with pytest.raises(WatchFileError) as caught:
        WatchList.load(write(tmp_path, "# none\nno address\n"))
    assert [line for line, _ in caught.value.problems] == [2]
    assert "whitespace" in str(caught.value)


def test_label_that_is_no_name_does_not_make_a_table(tmp_path: Path) -> None:
    with pytest.raises(WatchFileError) as caught:
        WatchList.load(write(tmp_path, f"{ADDRESS[:-1]},old address\n{SECOND}\n"))
    assert [line for line, _ in caught.value.problems] == [1]
    watch = WatchList.load(write(tmp_path, f"script:51,my address\n{SECOND},address\n"))
    assert [label for _, _, label in watch.entries()] == ["my address", "address"]


# Each row is a table of two addresses, and the label of each
TABLES: dict[str, tuple[str, list[str | None]]] = {
    "semicolons": (f"{ADDRESS};rent\n{SECOND};flat\n", ["rent", "flat"]),
    "tabs": (f"{ADDRESS}\trent\n{SECOND}\t\n", ["rent", None]),
    "quotes": (f'"{ADDRESS}","rent"\n"{SECOND}","a ""b"""\n', ["rent", 'a "b"']),
    "numbers before addresses": (f"1,{ADDRESS}\n2,{SECOND}\n", ["1", "2"]),
    "bars": (f"date|amount|address|memo\n1|2|{ADDRESS}|rent\n1|2|{SECOND}|\n", ["rent", None]),
    "a comment before the header": (f"# exported\n\naddress\n{ADDRESS}\n\n{SECOND}\n", [None, None]),
    "two lines in a label": (f'address,label\n{ADDRESS},"two\nlines"\n{SECOND},x\n', ["two lines", "x"]),
    "columns without a meaning": (f"x,{ADDRESS},y,z\n,{SECOND},,\n", [None, None]),
}


@pytest.mark.parametrize("kind", TABLES)
def test_address_may_be_in_any_column(kind: str, tmp_path: Path) -> None:
    text, names = TABLES[kind]
    watch = load(tmp_path, text)
    assert [script for _, script, _ in watch.entries()] == [
        script for _, script, _ in WatchList.from_addresses([ADDRESS, SECOND]).entries()
    ]
    assert [label for _, _, label in watch.entries()] == names


def test_quoted_labels_lose_their_quotes_in_tables_only(tmp_path: Path) -> None:
    lines = f'{ADDRESS},"rent, flat"\n{SECOND},a, b\n'
    assert [label for _, _, label in load(tmp_path, lines).entries()] == ["rent, flat", "a, b"]
    watch = load(tmp_path, f"{lines}script:51\n")
    assert [label for _, _, label in watch.entries()] == ['"rent, flat"', "a, b", None]
    watch.save(tmp_path / "saved")
    assert WatchList.load(tmp_path / "saved") == watch
    assert [label for _, _, label in load(tmp_path, f'{ADDRESS},a "b", c\n').entries()] == ['a "b", c']
    (quoted := WatchList()).add_address(ADDRESS, '"x" y')
    quoted.save(tmp_path / "saved")
    assert WatchList.load(tmp_path / "saved") == quoted
