"""The warning of `spvfilter scan` that it could not find spends of script types."""

from __future__ import annotations

from spvfilter.cli.term.page import complain
from spvfilter.errors import counted
from spvfilter.kernel import EntryKind
from spvfilter.watch.patterns import SCRIPT_TYPE
from spvfilter.watch.watchlist import WatchList


def warn_of_types(watch: WatchList, blocks: int) -> None:
    """Print a warning if the watch list contains script types and `blocks` blocks were scanned without undo records."""
    if blocks and watch.table.count_of(EntryKind.SCRIPT_TYPE):
        complain(
            f"warning: no spends of {SCRIPT_TYPE} entries were found in {counted(blocks, 'block')} without undo"
            " records. Put the rev*.dat files next to the blk*.dat files, or use the REST interface of a node"
        )
