"""`spvfilter wallet`: balance, coins and history from a wallet's database, without a network, also while `watch` writes
it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from spvfilter._public import deferred
from spvfilter.cli.arguments import FORMATS, whole
from spvfilter.cli.term.keychains import show_address, show_keychains
from spvfilter.cli.term.matches import bitcoin
from spvfilter.cli.term.page import Align, Page, complain, shorten
from spvfilter.cli.term.ranges import left_out
from spvfilter.cli.term.rows import Fields, print_rows
from spvfilter.errors import ParameterError
from spvfilter.primitives import hash_to_hex
from spvfilter.store.views import Balance, Coin, HistoryEntry
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Completeness

if TYPE_CHECKING:
    import datetime
else:
    datetime = deferred("datetime")

_VIEWS = ("balance", "coins", "history", "tx", "address", "keychains")
_PAGE = 500  # rows read at once
_LABEL_SIZE = 24  # characters of a label in a table
_DEFAULT_LIMIT = 100  # rows of a table
Row = TypeVar("Row", Coin, HistoryEntry)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter wallet VIEW [TXID] --db FILE [OPTION ...]"
    parser.description = (
        "Show what a wallet has by the database that `spvfilter watch --db FILE` keeps. No network is used, and `watch`"
        " may run meanwhile. Tables are in BTC; JSON lines and CSV are in satoshi, with all columns. Confirmations"
        " count from the last header in the database. Standard error names the blocks that were not searched, if there"
        " are any."
    )
    parser.add_argument(
        "view",
        metavar="VIEW",
        choices=_VIEWS,
        help=(
            "balance; coins: unspent outputs; history: transactions, the latest first; tx: one transaction; address:"
            " the next unused one; keychains: whose addresses are watched, and how far they were used"
        ),
    )
    parser.add_argument("txid", metavar="TXID", nargs="?", help="of the transaction that tx shows")
    parser.add_argument("--db", metavar="FILE", required=True, help="the wallet's database")
    parser.add_argument("--label", metavar="LABEL", help="only what concerns entries of the watch list with this label")
    parser.add_argument(
        "--keychain",
        metavar="NAME",
        help=(
            "only what concerns a keychain, by its descriptor, name or label; of several with a label address takes the"
            " first"
        ),
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=whole(1, 1 << 62),
        help=f"at most so many rows; default: {_DEFAULT_LIMIT} in a table, else all",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="table" if sys.stdout.isatty() else "jsonl",
        help="default: table on a terminal, JSON lines elsewhere",
    )


def run(args: argparse.Namespace) -> int:
    if (args.txid is None) == (args.view == "tx"):
        raise ParameterError(
            "give the TXID of the transaction: wallet tx TXID" if args.txid is None else f"{args.view} takes no TXID"
        )
    if args.view == "tx" and any(each is not None for each in (args.label, args.limit, args.keychain)):
        raise ParameterError("tx shows one transaction: it takes neither --label nor --limit nor --keychain")
    if args.view in ("address", "keychains") and (args.label is not None or args.limit is not None):
        raise ParameterError(f"{args.view} takes neither --label nor --limit: choose with --keychain")
    page = Page(sys.stdout)
    limit = _DEFAULT_LIMIT if args.limit is None and args.format == "table" else args.limit
    with WalletStore.open(args.db) as wallet, wallet.moment():  # pages of one commit, whoever writes meanwhile
        if args.view == "balance":
            _show_balance(page, wallet.balance(args.label, keychain=args.keychain), args.format)
        elif args.view == "address":
            show_address(page, wallet, args.keychain, args.format)
        elif args.view == "keychains":
            show_keychains(page, wallet, args.keychain, args.format)
        elif args.view == "coins":
            coins = islice(_all(wallet.coins, args.label, args.keychain), limit)
            if args.format == "table":
                _coin_table(page, list(coins))
            else:
                print_rows(page, map(_coin_fields, coins), args.format, _COIN_COLUMNS)
        elif args.view == "history":
            entries = islice(_all(wallet.history, args.label, args.keychain), limit)
            if args.format == "table":
                _history_table(page, list(entries))
            else:
                print_rows(page, map(_entry_fields, entries), args.format, _ENTRY_COLUMNS)
        else:
            _show_tx(page, _entry(wallet, args.txid), args.format)
        for line in left_out(wallet) if args.view != "tx" else ():
            complain(line)
    return 0


# Rows


def _all(view: Callable[..., list[Row]], label: str | None, keychain: str | None) -> Iterator[Row]:
    """All rows of a view, page by page."""
    before: str | None = None
    while page := view(label=label, keychain=keychain, limit=_PAGE, before=before):
        yield from page
        before = page[-1].cursor


def _entry(wallet: WalletStore, text: str) -> HistoryEntry:
    try:
        txid = bytes.fromhex(text)[::-1]
    except ValueError:
        txid = b""
    if len(txid) != 32:
        raise ParameterError(f"a txid has 64 hexadecimal digits: {text[:80]!r}")
    entry = wallet.transaction(txid)
    if entry is None:
        raise ParameterError(f"the wallet has no transaction {text}")
    return entry


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else hash_to_hex(digest)


_COIN_COLUMNS = (
    *(
        "outpoint",
        "value",
        "address",
        "script",
        "label",
        "keychain",
        "keychain_index",
        "height",
        "coinbase",
        "spendable",
        "spent_by",
    ),
    *("time", "completeness"),
)
_ENTRY_COLUMNS = (
    *(
        "txid",
        "net",
        "fee",
        "status",
        "height",
        "block",
        "time",
        "first_seen",
        "confirmations",
        "rival",
        "own",
        "coinbase",
    ),
    *("labels", "raw", "completeness"),
)


def _coin_fields(coin: Coin) -> Fields:
    named = (coin.address, coin.script_pubkey.hex(), coin.label, coin.keychain, coin.keychain_index)
    state = (
        coin.height,
        coin.is_coinbase,
        coin.is_spendable,
        _hex(coin.spent_by),
        coin.time,
        _certainty(coin.completeness),
    )
    row = (str(coin.outpoint), coin.value, *named, *state)
    return dict(zip(_COIN_COLUMNS, row, strict=True))


def _entry_fields(entry: HistoryEntry) -> dict[str, object]:
    place = (entry.height, _hex(entry.block_hash), entry.time, entry.first_seen, entry.confirmations)
    kind = (
        _hex(entry.rival),
        entry.is_own,
        entry.is_coinbase,
        list(entry.labels),
        entry.raw.hex(),
        _certainty(entry.completeness),
    )
    return dict(
        zip(_ENTRY_COLUMNS, (_hex(entry.txid), entry.net, entry.fee, entry.status.value, *place, *kind), strict=True)
    )


def _certainty(completeness: Completeness | None) -> str | None:
    return None if completeness is None else completeness.value


# Tables


def _signed(value: int) -> str:
    return f"{'+' if value > 0 else ''}{bitcoin(value)}"


def _when(time: int | None) -> str:
    return "" if time is None else f"{datetime.datetime.fromtimestamp(time, datetime.UTC):%Y-%m-%d %H:%M}"


def _show_balance(page: Page, balance: Balance, chosen: str) -> None:
    names = ("confirmed", "immature", "pending_in", "pending_out", "spendable", "total")
    if chosen != "table":
        print_rows(page, iter([{name: getattr(balance, name) for name in names}]), chosen, names)
        return
    parts = [
        ("in blocks", bitcoin(balance.confirmed)),
        ("immature", bitcoin(balance.immature)),
        ("pending", _signed(balance.pending_in - balance.pending_out)),
        ("total", bitcoin(balance.total)),
        ("spendable now", bitcoin(balance.spendable)),
    ]
    wide = max(len(value) for _, value in parts)
    page.facts([(name, f"{value.rjust(wide)} BTC") for name, value in parts if name != "immature" or balance.immature])


def _coin_table(page: Page, coins: list[Coin]) -> None:
    if not coins:
        page.line("no coins")
        return
    columns: dict[str, Align] = {"height": "right", "BTC": "right", "outpoint": "left", "": "left", "label": "left"}
    rows = [
        [
            "" if coin.height is None else str(coin.height),
            bitcoin(coin.value),
            str(coin.outpoint),
            _state(coin),
            _short(coin.label or ""),
        ]
        for coin in coins
    ]
    page.table(columns, rows, shrink="outpoint")


def _state(coin: Coin) -> str:
    if coin.spent_by is not None:
        return "being spent"
    if coin.height is None:
        return "pending"
    return "" if coin.is_spendable else "immature"


def _history_table(page: Page, entries: list[HistoryEntry]) -> None:
    if not entries:
        page.line("no transactions")
        return
    columns: dict[str, Align] = {
        "time, UTC": "left",
        "height": "right",
        "BTC": "right",
        "txid": "left",
        "label": "left",
    }
    rows = [
        [
            _when(entry.time),
            str(entry.height) if entry.height is not None else entry.status.value,
            _signed(entry.net),
            hash_to_hex(entry.txid),
            _short(", ".join(entry.labels)),
        ]
        for entry in entries
    ]
    page.table(columns, rows, shrink="txid")


def _short(label: str) -> str:
    return shorten(label, _LABEL_SIZE)


def _show_tx(page: Page, entry: HistoryEntry, chosen: str) -> None:
    if chosen != "table":
        print_rows(page, iter([_entry_fields(entry)]), chosen, _ENTRY_COLUMNS)
        return
    facts: list[tuple[str, str | None]] = [
        ("txid", hash_to_hex(entry.txid)),
        ("status", entry.status.value),
        ("confirmations", f"{entry.confirmations:,}" if entry.confirmations else None),
        ("height", None if entry.height is None else str(entry.height)),
        ("block", _hex(entry.block_hash) if entry.height is not None else None),
        ("rival", _hex(entry.rival)),
        ("rival's block", _hex(entry.block_hash) if entry.height is None else None),
        ("time", f"{_when(entry.time)} UTC" if entry.time is not None else None),
        ("first seen", f"{_when(entry.first_seen)} UTC" if entry.first_seen is not None else None),
        ("net", f"{_signed(entry.net)} BTC"),
        ("fee", None if entry.fee is None else f"{bitcoin(entry.fee)} BTC"),
        ("label", ", ".join(entry.labels) or None),
        ("broadcast here", "yes" if entry.is_own else None),
        ("raw", entry.raw.hex()),
    ]
    page.facts([(name, value) for name, value in facts if value is not None])
