"""Output of `wallet keychains` and `wallet address`."""

from __future__ import annotations

from spvfilter.cli.term.page import Align, Page
from spvfilter.cli.term.rows import Fields, print_rows
from spvfilter.store.windowviews import KeychainStatus
from spvfilter.wallet.reader import WalletStore

_ADDRESS_COLUMNS = ("address", "keychain", "index", "label")
_COLUMNS = (
    *("keychain", "label", "descriptor", "lookahead", "window", "used", "last_used", "revealed"),
    *("next_index", "next_address", "account"),
)


def show_address(page: Page, wallet: WalletStore, name: str | None, account: str | None, form: str) -> None:
    """Print the lowest address that is neither used nor revealed.

    Raises ParameterError if there is no such address, StoreError if the database cannot be read.
    """
    address = wallet.next_address(name, account=account)
    if form == "table":
        page.line(address)
        return
    found = wallet.keychains(name, account=account)[0]
    row: Fields = {"address": address, "keychain": found.name, "index": found.next_index, "label": found.label}
    print_rows(page, iter([row]), form, _ADDRESS_COLUMNS)


def show_keychains(page: Page, wallet: WalletStore, name: str | None, account: str | None, form: str) -> None:
    """Print all keychains, or only the keychains of a name, label or account.

    Raises ParameterError if there is no such keychain, StoreError if the database cannot be read.
    """
    found = wallet.keychains(name, account=account)
    if form != "table":
        print_rows(page, map(_fields, found), form, _COLUMNS)
        return
    if not found:
        page.line("no keychains")
        return
    columns: dict[str, Align] = {
        "used": "right",
        "window": "right",
        "next address": "left",
        "label": "left",
        "keychain": "left",
    }
    rows = [
        [str(len(each.used)), str(each.window), each.next_address or "", each.label or "", each.name] for each in found
    ]
    page.table(columns, rows, shrink="keychain")


def _fields(each: KeychainStatus) -> Fields:
    """Return the row of a keychain for JSON lines and CSV."""
    window = (each.lookahead, each.window, len(each.used), each.used[-1] if each.used else None, each.revealed)
    following = (each.next_index, each.next_address, each.account)
    return dict(zip(_COLUMNS, (each.name, each.label, each.descriptor, *window, *following), strict=True))
