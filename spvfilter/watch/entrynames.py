"""Look up the entries of a watch list that a user names."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.errors import ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.network import Network
from spvfilter.primitives import OutPoint
from spvfilter.watch import textfile
from spvfilter.watch.arguments import EntryName
from spvfilter.watch.watchlist import WatchList


def named(entries: Iterable[EntryName], network: Network) -> tuple[tuple[EntryKind, bytes], ...]:
    """Return entries as `WatchList.entries` lists them. A public key (`pubkey:HEX`) stands for its scripts' entries.

    Raises ParameterError if a value is not an entry, or if there are no values.
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
            raise ParameterError(f"an entry must be an address, scriptPubKey or outpoint, not {type(entry).__name__}")
    if not len(made):
        raise ParameterError("no entry was given")
    return tuple((kind, value) for kind, value, _ in made.entries())
