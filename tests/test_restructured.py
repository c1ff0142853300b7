"""docs/restructured.py: a docstring becomes reStructuredText that says the same."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

DOCS = str(Path(__file__).parents[1] / "docs")


def restructured(text: str, links: dict[str, str] | None = None) -> list[str]:
    sys.path.insert(0, DOCS)
    try:
        lines: list[str] = import_module("restructured").restructured(text.splitlines(), links)
        return lines
    finally:
        sys.path.remove(DOCS)


def test_only_code_is_markup() -> None:
    assert restructured("A *star* of `a_b`, x_ and |.\n\n    code *as it is*") == [
        *(r"A \*star\* of ``a_b``, x\_ and \|.", "", "::", "", "        code *as it is*", ""),
    ]
    assert restructured("At http://HOST:PORT, see https://example.org.") == [
        r"At http\://HOST:PORT, see https://example.org.",
        "",
    ]


def test_list_is_separated_from_its_text() -> None:
    assert restructured("These:\n- one\n  more\n- two") == ["These:", "", "- one", "  more", "", "- two", ""]


def test_table_has_a_header_unless_that_is_empty() -> None:
    assert restructured("| name | value |\n|---|---|\n| `a` | 1 |\n| b | 2 \\| 3 |") == [
        *(".. list-table::", "    :header-rows: 1", ""),
        *("    * - name", "      - value", "    * - ``a``", "      - 1", "    * - b", r"      - 2 \| 3", ""),
    ]
    assert restructured("| | |\n|---|---|\n| a | 1 |") == [".. list-table::", "", "    * - a", "      - 1", ""]


def test_sections_become_fields() -> None:
    doc = """Do it.

Args:
    raw_tx: The transaction,
        signed.
    first, last: Heights:

        - one
        - two

Returns:
    A number: 1.

Raises:
    FormatError: It is *malformed*.
Text after a section."""
    assert restructured(doc) == [
        *("Do it.", ""),
        *(r":param raw\_tx: The transaction,", "    signed."),
        *(":param first: Heights:", "", "", "    - one", "", "    - two"),
        *(":param last: Heights:", "", "", "    - one", "", "    - two", ""),
        *(":returns: A number: 1.", ""),
        *(r":raises FormatError: It is \*malformed\*.", ""),
        *("Text after a section.", ""),
    ]


def test_names_of_the_reference_become_links() -> None:
    links = {"TxStatus": "spvfilter.store.TxStatus", "Views.coins": "spvfilter.store.Views.coins"}
    assert restructured("See `Views.coins`, TxStatus, `x` and MyTxStatus.", links) == [
        "See :py:obj:`Views.coins <spvfilter.store.Views.coins>`, :py:obj:`TxStatus <spvfilter.store.TxStatus>`,"
        " ``x`` and MyTxStatus.",
        "",
    ]
    assert restructured("TxStatus(1) is no link.", links) == ["TxStatus(1) is no link.", ""]
