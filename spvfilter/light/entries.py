"""Entries of a watch list as a user names them, and the changes of a run, applied to the original list."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.errors import ParameterError
from spvfilter.kernel import NO_ENTRY, EntryKind
from spvfilter.light.engine.requests import AddEntries, RelabelEntries, RemoveEntries, Request
from spvfilter.network import Network
from spvfilter.primitives import OutPoint
from spvfilter.watch import textfile
from spvfilter.watch.watchlist import WatchList

EntryName = str | bytes | OutPoint
"""A line of a watch list's file, such as an address; or a scriptPubKey; or an outpoint."""


def named(entries: Iterable[EntryName], network: Network) -> tuple[tuple[EntryKind, bytes], ...]:
    """Return entries as `WatchList.entries` lists them. A public key (`pubkey:HEX`) means all entries of its scripts.

    Raises ParameterError for a value that is not an entry, and if there is none.
    """
    made = WatchList(network)
    for entry in entries:
        if isinstance(entry, OutPoint):
            made.add_outpoint(entry)
        elif isinstance(entry, bytes):
            made.add_script(entry)
        elif isinstance(entry, str):
            textfile.add(made, entry)
        else:
            raise ParameterError(f"an entry is an address, a scriptPubKey or an outpoint, not {type(entry).__name__}")
    if not len(made):
        raise ParameterError("no entry is given")
    return tuple((kind, value) for kind, value, _ in made.entries())


def apply_changes(watch: WatchList, done: Iterable[Request]) -> None:
    """Apply the changes of a run to the list that the client was created with."""
    for request in done:
        match request:
            case AddEntries(entries):
                for kind, value, label in entries:
                    number = watch.table.add(kind, value)  # another client may work with a copy of the table
                    if label is not None:
                        watch.relabel(number, label)
            case RemoveEntries(removed):
                watch.replace_with(watch.without_entries({watch.table.find(*each) for each in removed}))
            case RelabelEntries(labelled, label):
                for number in (watch.table.find(*each) for each in labelled):
                    if number != NO_ENTRY:
                        watch.relabel(number, label)
            case _:
                pass
