"""Apply a run's changes to the watch list with which the client was created."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, assert_never

from spvfilter.errors import ParameterError
from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.light.engine.requests import (
    AddAccount,
    AddEntries,
    CancelBlock,
    FetchBlock,
    ReachIndex,
    RelabelEntries,
    RelabelKeychains,
    RemoveAccount,
    RemoveEntries,
    RenameAccount,
    Request,
    Rescan,
    RevealAddress,
)
from spvfilter.watch.index import TxOutIndex
from spvfilter.watch.windows import STEP

_Key = tuple[EntryKind, bytes]


def apply_changes(watch: TxOutIndex, done: Iterable[Request], source: TxOutIndex) -> Iterator[None]:
    """Apply a run's changes to the watch list with which the client was created, in steps.

    The generator yields between the steps, so that an event loop can run. All entries are removed in a single step,
    because that takes as long as copying the list.

    Args:
        watch: The list with which the client was created.
        done: The requests that the run carried out, in order.
        source: The run's own list, with the used indexes and the windows.
    """
    added, labels, gone = dict[_Key, None](), dict[_Key, str | None](), set[_Key]()
    for request in done:
        match request:
            case AddEntries(entries):
                given = {(kind, value): label for kind, value, label in entries}
                added.update(dict.fromkeys(given))
                labels.update((key, label) for key, label in given.items() if label is not None)
                _as_new(watch, gone.intersection(given))
                gone.difference_update(given)
            case RemoveEntries(removed):
                gone.update(removed)
                _drop(removed, added, labels)
            case RelabelEntries(labelled):
                labels.update(((kind, value), label) for kind, value, label in labelled if (kind, value) not in gone)
            case RemoveAccount(name):
                yield from _remove_account(watch, name)
            case AddAccount() | RenameAccount() | RelabelKeychains():
                keys = _apply_account(watch, request, gone)
                _drop(keys, added)
                gone.difference_update(keys)
                yield
            case Rescan() | RevealAddress() | ReachIndex() | FetchBlock() | CancelBlock():
                pass
            case _:
                assert_never(request)
    for at, key in enumerate(added, 1):
        watch.table.add(*key)  # another client may work with a copy of the table
        if at % STEP == 0:
            yield
    if numbers := {watch.table.find(*key) for key in gone} - {NO_ENTRY}:
        watch.replace_with(watch.without_entries(numbers))
    yield from watch.take_uses(source)
    for at, (key, label) in enumerate(labels.items(), 1):
        if (number := watch.table.find(*key)) != NO_ENTRY:
            watch.relabel(number, label)
        if at % STEP == 0:
            yield


def _drop(keys: Iterable[_Key], *entries: dict[_Key, Any]) -> None:
    """Remove keys from each of these dictionaries."""
    for key in keys:
        for each in entries:
            each.pop(key, None)


def _as_new(watch: TxOutIndex, keys: Iterable[_Key]) -> None:
    """Clear the old labels and accounts of entries that were removed and added again."""
    for number in {watch.table.find(*key) for key in keys} - {NO_ENTRY}:
        watch.disown(number)


def _remove_account(watch: TxOutIndex, name: str) -> Iterator[None]:
    """Remove an account in steps. If there is no account with that name, nothing changes."""
    with suppress(ParameterError):
        table, entries = watch.table, len(watch)
        numbers, _ = watch.entries_of_account(name)
        left = yield from watch.without_coins_in_steps(numbers, name)
        if watch.table is not table or len(watch) != entries:  # another client has left in the meantime
            numbers, _ = watch.entries_of_account(name)
            left = watch.without_coins(numbers, name)
        left.take_coins(watch, numbers)
        watch.replace_with(left)


def _apply_account(
    watch: TxOutIndex, request: AddAccount | RenameAccount | RelabelKeychains, gone: Collection[_Key]
) -> Iterable[_Key]:
    """Apply a change to an account or to keychains, and return the entries that it adds.

    `gone` contains the entries that earlier requests removed.

    Another client may have added or removed entries in the meantime. A change that is no longer possible is skipped.
    """
    with suppress(ParameterError):
        match request:
            case AddAccount(account):
                keys = [(kind, value) for kind, value, _ in account.entries()]
                _as_new(watch, (key for key in keys if key in gone))
                watch.take_account(watch.plan_account(account.index))
                return keys
            case RenameAccount(old, new):
                watch.rename_account(old, new)
            case RelabelKeychains(names, label):
                watch.relabel_keychains([name for name in names if watch.windows.get(name) is not None], label)
            case _:
                assert_never(request)
    return ()
