"""The parts of the books: no part inherits from another, and each fact has one owner."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from spvfilter.wallet import intake
from spvfilter.wallet.bookentries import Entries
from spvfilter.wallet.books import Books
from spvfilter.wallet.changes import Changes
from spvfilter.wallet.facts import Facts
from spvfilter.wallet.hits import Hits
from spvfilter.wallet.intake import Intake
from spvfilter.wallet.judgement import Judgement
from spvfilter.wallet.parts import counted
from spvfilter.wallet.reports import Reports
from spvfilter.wallet.searches import Searches
from spvfilter.wallet.txrows import TxRows

PARTS = (Books, Changes, Entries, Facts, Hits, Intake, Judgement, Reports, Searches, TxRows)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_no_base_class(part: type) -> None:
    assert part.__bases__ == (object,)


@pytest.mark.parametrize("part", PARTS[1:])
def test_a_part_does_not_know_the_books(part: type) -> None:
    assert "wallet.books" not in inspect.getsource(inspect.getmodule(part))  # type: ignore[arg-type]  # a module


def test_foreign_transactions_cannot_reach_the_watch_list() -> None:
    source = inspect.getsource(intake)
    assert "spvfilter.watch" not in source
    assert "self._watch" not in source


@pytest.mark.parametrize(
    ("change", "owners"),
    [
        (r"graph\.(put|remove)\(", {"facts"}),
        (r"\.without_block(\[|\.pop)", {"facts"}),
        (r"best\.(connect|disconnect_to)\(", {"facts"}),
        (r"confirmed\.(add|take|prove|change)\(", {"facts"}),
        (r"\.batch\.\w+ (\||\+)?= ", {"changes"}),
        (r"pool\.(put|remove)\(", {"intake"}),
    ],
)
def test_only_its_owner_changes_a_fact(change: str, owners: set[str]) -> None:
    folder = Path(inspect.getfile(Books)).parent
    found = {path.stem for path in folder.glob("*.py") if re.search(change, path.read_text(encoding="utf-8"))}
    assert found == owners


def test_a_change_pauses_after_every_tenth_cheap_item() -> None:
    assert [number for number, is_pause in counted(range(1, 36)) if is_pause] == [10, 20, 30]
