"""`spvfilter wallet`: balance, coins and history from a wallet's database, offline."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from spvfilter._public import deferred
from spvfilter.cli.arguments import Parser, add_format, format_of, whole
from spvfilter.cli.reveal import reveal
from spvfilter.cli.term.keychains import show_address, show_keychains
from spvfilter.cli.term.matches import bitcoin
from spvfilter.cli.term.page import Align, Page, complain, shorten
from spvfilter.cli.term.ranges import left_out
from spvfilter.cli.term.rows import Fields, print_rows
from spvfilter.errors import ParameterError, counted
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.store.ledger import TxStatus
from spvfilter.store.views import Balance, Coin, HistoryEntry
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.match import Completeness

if TYPE_CHECKING:
    import datetime
else:
    datetime = deferred("datetime")

_PAGE = 500  # number of rows read in one batch
_LABEL_SIZE = 24  # most characters of a label that a table shows
Row = TypeVar("Row", Coin, HistoryEntry)
Show = Callable[[Page, WalletStore, argparse.Namespace, str], None]
"""A function that prints one view of a wallet. Its last argument is the format."""


def configure(parser: Parser) -> None:
    parser.description = (
        "Show a wallet from the database that `spvfilter watch --db FILE` keeps. This works offline, and `watch` may"
        " be running at the same time. Tables are in BTC; JSON lines and CSV are in satoshi and have more columns."
        " Confirmations are counted from the last header in the database. If any blocks were not searched, standard"
        " error names them."
    )
    balance = parser.add_action(
        "balance",
        "show the balance",
        "Show the balance. Confirmed: unspent outputs in blocks. Immature: coinbase outputs with fewer than 100"
        " confirmations. Pending: outputs of unconfirmed transactions (pending_in), less outputs in blocks that"
        " unconfirmed transactions spend (pending_out). Total: the sum of these three. Spendable: the part of"
        " confirmed that is not frozen and that none of the wallet's own unconfirmed transactions spends."
        " Trusted_pending: the part of pending_in from the wallet's own transactions that spend only its coins, each"
        " confirmed or trusted.",
    )
    coins = parser.add_action(
        "coins",
        "list unspent outputs",
        "List unspent outputs, confirmed and pending, the newest first. State: spendable; pending (no block contains"
        " it); immature (from a coinbase with fewer than 100 confirmations); being spent (by an unconfirmed"
        " transaction); frozen (by a program or by imported labels). If a labeled silent payment address was paid, the"
        " number of the label is shown; 0 is the wallet's change.",
    )
    history = parser.add_action(
        "history", "list transactions", "List the wallet's transactions with their status, the newest first."
    )
    tx = parser.add_action("tx", "show one transaction", "Show everything that the wallet knows about one transaction.")
    tx.add_argument("txid", metavar="TXID", help="the transaction's id, 64 hex digits")
    address = parser.add_action(
        "address",
        "show the next unused address",
        "Show a keychain's lowest address that has never been paid or given out by `reveal`.",
    )
    revealing = parser.add_action(
        "reveal",
        "give out a new address",
        "Print a new address for an invoice: the first above all addresses that were revealed or paid. The database"
        " records it as revealed, so it is never given out again. No client may use the database at the same time.",
    )
    keychains = parser.add_action(
        "keychains",
        "list keychains",
        "List the watched descriptors. Used is the number of addresses that were paid. Window is the number of watched"
        " addresses, starting at index 0. Lookahead, in JSON lines and CSV, is the minimum number of watched addresses"
        " beyond the last used or revealed one.",
    )
    accounts = parser.add_action(
        "accounts",
        "list accounts",
        "List the accounts and their balances. In a watch list, each account is a section that begins with the line"
        " account:NAME.",
    )
    shows: tuple[tuple[Parser, Show | None], ...] = (
        (balance, _balance),
        (coins, _coins),
        (history, _history),
        (tx, _tx),
        (address, _address),
        (revealing, None),
        (keychains, _keychains),
        (accounts, _accounts),
    )
    for action, show in shows:
        action.add_argument("--db", metavar="FILE", required=True, help="the wallet's database")
        if action in (balance, coins, history):
            action.add_argument(
                "--label", metavar="LABEL", help="use only entries that have this label in the watch list"
            )
        if action not in (tx, accounts):
            action.add_argument("--account", metavar="NAME", help="use only this account")
            action.add_argument(
                "--keychain",
                metavar="NAME",
                help="use only the keychain with this descriptor, name or label"
                + ("; default: the first" if action in (address, revealing) else ""),
            )
        if action is history:
            action.add_argument(
                "--address", metavar="ADDRESS", help="use only transactions that pay or spend this watched address"
            )
        if action in (coins, history):
            action.add_argument(
                "--limit",
                metavar="N",
                type=whole(1, 1 << 62),
                help="print at most N rows; default: all",
            )
        add_format(action, "csv")
        action.set_defaults(show=show)


def run(args: argparse.Namespace) -> int:
    page = Page(sys.stdout)
    if args.show is None:
        reveal(page, args, format_of(args.format, page))
        return 0
    with WalletStore.open(args.db) as wallet, wallet.moment():  # all pages of rows come from the same commit
        args.show(page, wallet, args, format_of(args.format, page))
        for line in left_out(wallet) if args.show is not _tx else ():
            complain(line)
    return 0


def _balance(page: Page, wallet: WalletStore, args: argparse.Namespace, chosen: str) -> None:
    _show_balance(page, wallet.balance(args.label, keychain=args.keychain, account=args.account), chosen)
    _note_unused_label(wallet, args)


def _coins(page: Page, wallet: WalletStore, args: argparse.Namespace, chosen: str) -> None:
    coins = islice(_all(wallet.coins, args), args.limit)
    if chosen == "table":
        _coin_table(page, list(coins), wallet.tip())
    else:
        print_rows(page, map(_coin_fields, coins), chosen, _COIN_COLUMNS)
    _note_unused_label(wallet, args)


def _history(page: Page, wallet: WalletStore, args: argparse.Namespace, chosen: str) -> None:
    entries = islice(_all(partial(wallet.history, script=args.address), args), args.limit)
    if chosen == "table":
        _history_table(page, list(entries))
    else:
        print_rows(page, map(_entry_fields, entries), chosen, _ENTRY_COLUMNS)
    _note_unused_label(wallet, args)


def _note_unused_label(wallet: WalletStore, args: argparse.Namespace) -> None:
    """Warn if no transaction matches an entry with this label, because the label may be misspelled."""
    if args.label is not None and not wallet.history(label=args.label, limit=1):
        complain(f"no transaction has the label {args.label[:100]!r}: write a label exactly as the watch list does")


def _tx(page: Page, wallet: WalletStore, args: argparse.Namespace, chosen: str) -> None:
    _show_tx(page, _entry(wallet, args.txid), chosen)


def _address(page: Page, wallet: WalletStore, args: argparse.Namespace, chosen: str) -> None:
    show_address(page, wallet, args.keychain, args.account, chosen)


def _keychains(page: Page, wallet: WalletStore, args: argparse.Namespace, chosen: str) -> None:
    show_keychains(page, wallet, args.keychain, args.account, chosen)


def _accounts(page: Page, wallet: WalletStore, args: argparse.Namespace, chosen: str) -> None:
    found = [(name, wallet.balance(account=name)) for name in wallet.accounts()]
    if chosen != "table":
        print_rows(page, ({"account": name, **_parts(balance)} for name, balance in found), chosen, _ACCOUNT_COLUMNS)
        return
    if not found:
        page.line("no accounts")
        return
    columns: dict[str, Align] = {"account": "left", "confirmed": "right", "pending": "right", "total, BTC": "right"}
    rows = [
        [name, bitcoin(each.confirmed), _signed(each.pending_in - each.pending_out), bitcoin(each.total)]
        for name, each in found
    ]
    page.table(columns, rows, shrink="account")


# Rows


def _all(view: Callable[..., list[Row]], args: argparse.Namespace) -> Iterator[Row]:
    """Yield all rows of a view of the wallet, reading them page by page."""
    before: str | None = None
    chosen = {"label": args.label, "keychain": args.keychain, "account": args.account}
    while page := view(**chosen, limit=_PAGE, before=before):
        yield from page
        before = page[-1].cursor


def _entry(wallet: WalletStore, text: str) -> HistoryEntry:
    try:
        txid = bytes.fromhex(text)[::-1]
    except ValueError:
        txid = b""
    if len(txid) != 32:
        raise ParameterError(
            f"a txid must be 64 hex digits, but this argument is {counted(len(text), 'character')} long"
        )
    entry = wallet.transaction(txid)
    if entry is None:
        raise ParameterError("the wallet has no transaction with this txid")
    return entry


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else hash_to_hex(digest)


_BALANCE_COLUMNS = (*("confirmed", "immature", "pending_in", "pending_out", "spendable", "total", "trusted_pending"),)
_ACCOUNT_COLUMNS = ("account", *_BALANCE_COLUMNS)
_COIN_COLUMNS = (
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
    "time",
    "completeness",
    "output_label",
    "frozen",
    "account",
    "sp_label",
)
_ENTRY_COLUMNS = (
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
    "labels",
    "raw",
    "completeness",
    "label",
)


def _parts(balance: Balance) -> Fields:
    return {name: getattr(balance, name) for name in _BALANCE_COLUMNS}


def _coin_fields(coin: Coin) -> Fields:
    named = (coin.address, coin.script_pubkey.hex(), coin.label, coin.keychain, coin.keychain_index)
    state = (
        coin.height,
        coin.is_coinbase,
        coin.is_spendable,
        _hex(coin.spent_by),
        coin.time,
        _certainty(coin.completeness),
        coin.output_label,
        coin.is_frozen,
        coin.account,
        coin.sp_label,
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
        entry.label,
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
    if chosen != "table":
        print_rows(page, iter([_parts(balance)]), chosen, _BALANCE_COLUMNS)
        return
    parts = [
        ("confirmed", bitcoin(balance.confirmed)),
        ("immature", bitcoin(balance.immature)),
        ("pending", _signed(balance.pending_in - balance.pending_out)),
        ("total", bitcoin(balance.total)),
        ("spendable now", bitcoin(balance.spendable)),
    ]
    wide = max(len(value) for _, value in parts)
    page.facts([(name, f"{value.rjust(wide)} BTC") for name, value in parts if name != "immature" or balance.immature])


def _coin_table(page: Page, coins: list[Coin], tip: int) -> None:
    if not coins:
        page.line("no coins")
        return
    columns: dict[str, Align] = {
        "height": "right",
        "BTC": "right",
        "outpoint": "left",
        "state": "left",
        "label": "left",
    }
    is_silent = any(coin.sp_label is not None for coin in coins)
    if is_silent:
        columns["sp label"] = "right"
    rows = [
        [
            "" if coin.height is None else str(coin.height),
            bitcoin(coin.value),
            str(coin.outpoint),
            _state(coin, tip),
            _short(coin.output_label or coin.label or ""),
            *(["" if coin.sp_label is None else str(coin.sp_label)] if is_silent else []),
        ]
        for coin in coins
    ]
    page.table(columns, rows, shrink="outpoint")


def _state(coin: Coin, tip: int) -> str:
    if coin.is_frozen:
        return "frozen"
    if coin.spent_by is not None:
        return "being spent"
    if coin.height is None:
        return "pending"
    if coin.is_spendable:
        return "spendable"
    is_immature = coin.is_coinbase and tip + 1 - coin.height < COINBASE_MATURITY
    return "immature" if is_immature else "being spent"  # by a broadcast that waits


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
            _short(_labels(entry)),
        ]
        for entry in entries
    ]
    page.table(columns, rows, shrink="txid")


def _labels(entry: HistoryEntry) -> str:
    return ", ".join(filter(None, (entry.label, *entry.labels)))


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
        ("completeness", _certainty(entry.completeness)),
        ("replaced by" if entry.status is TxStatus.REPLACED else "conflicts with", _hex(entry.rival)),
        ("conflict's block", _hex(entry.block_hash) if entry.height is None else None),
        ("time", f"{_when(entry.time)} UTC" if entry.time is not None else None),
        ("first seen", f"{_when(entry.first_seen)} UTC" if entry.first_seen is not None else None),
        ("net", f"{_signed(entry.net)} BTC"),
        ("fee", None if entry.fee is None else f"{bitcoin(entry.fee)} BTC"),
        ("label", _labels(entry) or None),
        ("broadcast here", "yes" if entry.is_own else None),
        ("raw", entry.raw.hex()),
    ]
    page.facts([(name, value) for name, value in facts if value is not None])
