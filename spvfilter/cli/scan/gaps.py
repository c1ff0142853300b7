"""Missing heights of `spvfilter scan`: messages on standard error, and the file of `--report`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from spvfilter.cli.blockoptions import BlockOptions
from spvfilter.cli.term.page import complain
from spvfilter.scan.gaps import Heights, ScannedHeights, in_words

_MOST_SENTENCES = 20  # most lines on standard error; the file of --report lists all ranges


def report_heights(
    options: BlockOptions,
    heights: ScannedHeights,
    tell: Callable[[str], None] = complain,
    not_searched: tuple[Heights, ...] = (),
) -> bool:
    """Report missing heights, write the file of `--report`, and return True if the exit code must report a gap.

    `not_searched` contains the heights of pruned blocks that should have been searched again. Raises OSError if the
    file cannot be written.
    """
    begin = 1  # the genesis block has no coin to find
    if heights.found and heights.found[0][0] > begin and options.from_height is None and not options.quiet:
        tell(f"the blocks begin at height {heights.found[0][0]:,}: earlier ones are not in this scan")
    sentences = heights.sentences()
    sentences += [
        f"not searched again: {in_words(each)}; their blocks have been pruned, and the wallet has new scripts or"
        " outputs"
        for each in not_searched
    ]
    for sentence in sentences[:_MOST_SENTENCES]:
        tell(sentence)
    if (more := len(sentences) - _MOST_SENTENCES) > 0:
        tell(f"and {more:,} more ranges: --report FILE.json lists all of them")
    if options.report is not None:
        text = {
            "found": heights.found,
            "missing": heights.gaps,
            "without_undo": heights.without_undo,
            "unknown_heights": heights.is_unplaced,
            "ends_early": heights.is_cut,
            "begins_late": heights.begins_late,
        } | {"not_searched": not_searched}
        Path(options.report).write_text(f"{json.dumps(text)}\n", encoding="utf-8")
    lacks = not options.allow_gaps and bool(not heights.is_whole or not_searched)
    if lacks and not options.follow:
        tell("because of these gaps the exit code is 1; --allow-gaps accepts them")
    return lacks
