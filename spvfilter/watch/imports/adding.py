"""Add the contents of a wallet file to a watch list."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Protocol

from spvfilter._public import warn
from spvfilter.address import address_to_script, script_to_address
from spvfilter.errors import ParameterError, WalletFileWarning, WatchFileError, counted
from spvfilter.network import Network
from spvfilter.watch.entry import explained
from spvfilter.watch.imports.labelfile import LABELS
from spvfilter.watch.imports.policy import without_template
from spvfilter.watch.imports.walletfile import ImportedAddress, ImportedDescriptor, WalletFile, check_network
from spvfilter.watch.keychain import MAX_REVEALED, Budget, Keychain

_MOST_NAMED = 20
"""Number of invalid lines in a label file that a warning names (our choice)."""
_Problems = list[tuple[int, str]]  # number of a line, 0 for the whole file, and a message


class WalletSink(Protocol):
    """An object to which the contents of a wallet file can be added, such as a WatchList."""

    network: Network

    def add_address(self, address: str, label: str | None = None) -> None: ...
    def keychains_in(self, text: str, label: str | None = None) -> list[Keychain]: ...
    def watch_keychains(self, keychains: Iterable[Keychain], budget: Budget) -> None: ...
    def __contains__(self, script_pubkey: bytes) -> bool: ...


def add_wallet(watch: WalletSink, wallet: WalletFile, name: str, budget: Budget) -> None:
    """Add the descriptors, addresses and labels of a wallet file to `watch`. `name` is the file's name.

    All key derivations are counted before any key is derived. A WalletFileWarning names the parts that were left out.
    Raises WatchFileError if the wallet belongs to a different network, an entry is invalid, or the budget is too small.
    """
    problems: _Problems = []
    found: list[Keychain] = []
    if not _tried(problems, 0, partial(check_network, wallet, watch.network)):
        raise WatchFileError(name, tuple(problems))
    count = 0
    for number, each in enumerate(wallet.descriptors, 1):
        try:
            keychains = _keychains(watch, each)
            found += keychains
            count += sum(keychain.derivations() for keychain in keychains)
            if not _tried(problems, 0, partial(budget.check, count)):
                break
        except ParameterError as error:
            problems.append((0, f"descriptor {number}: {error}" if len(wallet.descriptors) > 1 else str(error)))
    wrong: _Problems = []
    for address in wallet.addresses:
        _tried(wrong, address.line, partial(_add_address, watch, address))
    if wallet.kind == LABELS and len(wrong) < len(wallet.addresses):  # a label may be of another wallet's address
        wallet = wallet.with_warning(*(f"line {line} was left out: {text}" for line, text in wrong[:_MOST_NAMED]))
    else:
        problems += wrong
    if not problems:
        _tried(problems, 0, partial(watch.watch_keychains, found, budget))
    if problems:
        raise WatchFileError(name, tuple(sorted(problems, key=itemgetter(0))))
    for text in (*wallet.warnings, *filter(None, [_add_labels(watch, wallet.labels)])):
        warn(f"{name}: {text}", WalletFileWarning)


def _tried(problems: _Problems, line: int, add: Callable[[], object]) -> bool:
    """Call a function, and return True if it raises no ParameterError. An error's message is added to the problems."""
    try:
        add()
    except ParameterError as error:
        problems.append((line, str(error)))
        return False
    return True


def _keychains(watch: WalletSink, wanted: ImportedDescriptor) -> list[Keychain]:
    """Return the keychains of a descriptor, with windows that include all indexes that the wallet has derived.

    Raises ParameterError if the descriptor's first address is not the one in the file.
    """
    found = watch.keychains_in(without_template(wanted.text), wanted.label)
    for each in found:
        each.reach(wanted.end)
    for each, revealed in zip(found, wanted.revealed, strict=False):
        if revealed:
            each.reveal(min(revealed, each.size, MAX_REVEALED) - 1)
    if wanted.first_address is not None:
        derived = script_to_address(found[0].scripts(0)[0], watch.network)
        if derived != wanted.first_address:
            raise ParameterError(
                "the first address in the file is not the first address of its keys: the file is damaged, was "
                f"changed, or is not for {watch.network}; export it again"
            )
    return found


def _add_address(watch: WalletSink, wanted: ImportedAddress) -> None:
    if (why := explained(wanted.address)) is not None:
        raise ParameterError(why)
    watch.add_address(wanted.address, wanted.label)


def _add_labels(watch: WalletSink, labels: Iterable[ImportedAddress]) -> str | None:
    """Label watched addresses, and return a warning about labels that were left out."""
    unknown = 0
    for address, label, _ in labels:
        try:
            is_watched = address_to_script(address, watch.network) in watch
        except ParameterError:
            is_watched = False
        if is_watched:
            watch.add_address(address, label)
        unknown += not is_watched
    return f"left out {counted(unknown, 'label')} of addresses that are not watched" if unknown else None
