"""Output of `wallet keychains` and `wallet address`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from spvfilter.cli.term.page import LEAST_SHRUNK, Align, Page
from spvfilter.cli.term.rows import Fields, print_rows
from spvfilter.store.windowviews import KeychainStatus
from spvfilter.wallet.reader import WalletStore

_LAST_STEP = re.compile(r"/(\d+)/\*")
_GAP = 3  # space between two cells, in characters
_ADDRESS_COLUMNS = ("address", "keychain", "index", "label")
_COLUMNS = (
    *("keychain", "label", "descriptor", "lookahead", "window", "used", "last_used", "revealed"),
    *("next_index", "next_address", "account"),
)


def show_address(page: Page, wallet: WalletStore, name: str | None, account: str | None, form: str) -> None:
    """Print the lowest address that is neither used nor revealed.

    Raises ParameterError if there is no such address, or StoreError if the database cannot be read.
    """
    address = wallet.next_address(name, account=account)
    if form == "table":
        page.line(address)
        return
    found = wallet.keychains(name, account=account)[0]
    row: Fields = {"address": address, "keychain": found.name, "index": found.next_index, "label": found.label}
    print_rows(page, iter([row]), form, _ADDRESS_COLUMNS)


def show_keychains(page: Page, wallet: WalletStore, name: str | None, account: str | None, form: str) -> None:
    """Print all keychains, or only those with a given name or label, or of a given account.

    Raises ParameterError if there is no such keychain, or StoreError if the database cannot be read.
    """
    found = wallet.keychains(name, account=account)
    if form != "table":
        print_rows(page, map(_fields, found), form, _COLUMNS)
        return
    if not found:
        page.line("no keychains")
        return
    columns: dict[str, tuple[Align, list[str]]] = {
        "next address": ("left", [each.next_address or "" for each in found]),
        "for": ("left", [_purpose(each.descriptor) for each in found]),
        "label": ("left", [each.label or "" for each in found]),
        "used": ("right", [str(len(each.used)) for each in found]),
        "window": ("right", [str(each.window) for each in found]),
        "keychain": ("left", [each.name for each in found]),
    }
    for name in _fitting({name: cells for name, (_, cells) in columns.items()}, page.width):
        del columns[name]
    rows = list(zip(*(cells for _, cells in columns.values()), strict=True))
    page.table({name: align for name, (align, _) in columns.items()}, rows, "keychain" if "keychain" in columns else "")


def _purpose(descriptor: str | None) -> str:
    """Say what a descriptor's addresses are for, according to the last step before the index (BIP-44)."""
    steps = set(_LAST_STEP.findall(descriptor or ""))
    return {"0": "receiving", "1": "change"}.get(steps.pop(), "") if len(steps) == 1 else ""


def _fitting(columns: Mapping[str, Sequence[str]], width: int | None) -> list[str]:
    """Return the columns to omit so that a terminal with this width shows addresses in full."""
    sizes = {name: max(map(len, (name, *cells))) + _GAP for name, cells in columns.items()}
    sizes["keychain"] = min(sizes["keychain"], LEAST_SHRUNK + _GAP)
    left_out: list[str] = []
    for name in ("keychain", "window", "used", "label"):
        if width is not None and sum(sizes.values()) > width:
            left_out.append(name)
            del sizes[name]
    return left_out


def _fields(each: KeychainStatus) -> Fields:
    """Return a keychain's row for JSON lines and CSV."""
    window = (each.lookahead, each.window, len(each.used), each.used[-1] if each.used else None, each.revealed)
    following = (each.next_index, each.next_address, each.account)
    return dict(zip(_COLUMNS, (each.name, each.label, each.descriptor, *window, *following), strict=True))
