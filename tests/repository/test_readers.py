"""Only the questions of `Views`, and the code that writes or loads them, read the tables of the books."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from support.project.rules import PACKAGE, modules, nodes, source

BOOKS = [
    *("accounts", "account_txs", "branches", "coins", "events", "frozen", "held", "labels", "matches"),
    *("revealed", "revealed_scripts", "transactions", "tx_labels", "unspent", "used"),
]
"""Tables about the transactions, coins, labels and accounts of a wallet."""
SQL = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+({'|'.join(BOOKS)})\b")
ANY_TABLE = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+$")
VIEWS = {
    "store/views.py": "the questions",
    "store/scriptviews.py": "transactions by their effects on scripts",
    "store/spentviews.py": "facts for the check of a transaction",
    "store/windowviews.py": "keychains",
}
OTHERS = {
    "store/accounts.py": "writes accounts",
    "store/events.py": "writes events, and reads them for `Views` and for streams",
    "store/keychains.py": "writes used and revealed indexes",
    "store/labels.py": "writes labels, and reads them for `Views`",
    "store/ledger.py": "writes transactions and matches, and loads them",
    "store/migrations.py": "migration",
    "store/rebuild.py": "rebuild",
    "store/schema.py": "checks every table",
    "store/sqlite.py": "rows and their marks in every table",
    "store/store.py": "loads the state of a client, and writes its batches",
    "wallet/filterdata.py": "loads the elements of the BIP-37 filter",
}


def tables_in(module: str) -> Iterator[str]:
    """The tables of the books that the SQL of a module names; `*` if an expression stands for the table."""
    for node in nodes(module):
        match node:
            case ast.Constant(value=str(text)):
                yield from SQL.findall(text)
            case ast.JoinedStr(values=parts):
                for part, following in pairwise(parts):
                    match part, following:
                        case ast.Constant(value=str(text)), ast.FormattedValue() if ANY_TABLE.search(text):
                            yield "*"


def readers() -> set[str]:
    found = {source(module).relative_to(PACKAGE).as_posix(): {*tables_in(module)} for module in modules()}
    return {path for path, tables in found.items() if tables and path.startswith(("store/", "wallet/", "light/"))} | {
        path for path, tables in found.items() if tables - {"*"}
    }


def test_nobody_else_reads_the_tables_of_the_books() -> None:
    """An answer that another file computes may differ from that of the questions: add a question instead."""
    assert readers() == VIEWS.keys() | OTHERS.keys()
