"""The warning of `spvfilter scan` that spends of script types were not found."""

from __future__ import annotations

from spvfilter.cli.term.page import complain
from spvfilter.errors import counted
from spvfilter.kernel import EntryKind
from spvfilter.watch.patterns import SCRIPT_TYPE
from spvfilter.watch.watchlist import WatchList


def warn_of_types(watch: WatchList, blocks: int) -> None:
    """Print a warning if the list has script types, and `blocks` blocks were scanned without their undo records."""
    if blocks and watch.table.count_of(EntryKind.SCRIPT_TYPE):
        complain(
            f"warning: no spends of {SCRIPT_TYPE} entries were found in {counted(blocks, 'block')} without undo"
            " records. Put the rev*.dat files next to the blk*.dat files, or use the REST interface of a node"
        )
