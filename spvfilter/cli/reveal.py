"""`spvfilter wallet reveal`: reveal a new address for an invoice from a wallet's database, offline."""

from __future__ import annotations

import argparse

from spvfilter.cli.nodes import in_use
from spvfilter.cli.term.page import Page
from spvfilter.cli.term.rows import Fields, print_rows
from spvfilter.errors import ParameterError, StoreLockedError, UnknownAccountError
from spvfilter.store.store import Store
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.keychain import Keychain
from spvfilter.watch.watchlist import WatchList

_COLUMNS = ("address", "keychain", "index", "label")


def reveal(page: Page, args: argparse.Namespace, form: str) -> None:
    """Reveal the next address of a keychain, record that in the database, and print the address.

    The window of the keychain grows in the same commit, and the next run of a client searches blocks for its scripts.

    If ParameterError, KeychainError or StoreError is raised, the address is not revealed.
    """
    with WalletStore.open(args.db) as wallet:
        watch = WatchList(wallet.network)
    try:
        with Store.open(args.db, watch.network) as store:
            store.attach(watch)
            keychain = _chosen(watch, args)
            index, address = watch.windows.to_reveal(keychain, watch.network)
            watch.windows.reveal(keychain, index)
            watch.windows.grow()
            store.attach(watch)
    except StoreLockedError as error:
        raise in_use(error, args.db, "stop it, or let its program call reveal_address") from None
    if form == "table":
        page.line(address)
        return
    row: Fields = {"address": address, "keychain": keychain.name, "index": index, "label": keychain.label}
    print_rows(page, iter([row]), form, _COLUMNS)


def _chosen(watch: WatchList, args: argparse.Namespace) -> Keychain:
    """Return the keychain that the options name. Raises UnknownAccountError or ParameterError."""
    if args.account is not None and args.account not in watch.accounts:
        raise UnknownAccountError(args.account)
    if args.keychain is None:
        return watch.windows.chosen(args.account, watch.accounts)
    found = watch.windows.chosen(args.keychain, ())
    if args.account not in (None, found.account):
        raise ParameterError(f"keychain {found.name[:80]!r} is not part of account {args.account[:80]!r}")
    return found
