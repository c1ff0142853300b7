"""Ranges of blocks in words, and warnings about blocks that were not searched for a wallet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spvfilter.store.searched import join
from spvfilter.store.views import Views

_MOST = 3  # most ranges that a message names


def blocks(ranges: Iterable[tuple[int, int]]) -> str:
    """Describe ranges of blocks, as in "blocks 0 to 499 and block 700"."""
    named = [f"block {first}" if first == last else f"blocks {first} to {last}" for first, last in ranges]
    if len(named) > _MOST:
        named[_MOST - 1 :] = [f"{len(named) - _MOST + 1} more ranges"]
    return " and ".join(named) if len(named) < 3 else f"{', '.join(named[:-1])} and {named[-1]}"


def never_searched(ranges: Sequence[tuple[int, int]]) -> str:
    """Return a warning about blocks below the start of the search."""
    return f"{blocks(ranges)} {_were(ranges)} never searched: watch --rescan --from-height {ranges[0][0]} searches them"


def left_out(wallet: Views) -> list[str]:
    """Return a warning line for each range of blocks that were not searched for a wallet."""
    groups, tip, searched = wallet.searched(), wallet.tip(), wallet.searched_height()
    total = sum(each.entries for each in groups)
    lines = []
    for skipped in dict.fromkeys(each.skipped for each in groups if each.skipped):
        number = sum(each.entries for each in groups if each.skipped == skipped)
        whom = "" if number == total else f" for {number:,} of {total:,} watched entries"
        lines.append(
            f"{blocks(skipped)} {_were(skipped)} never searched{whom}: watch --rescan --from-height {skipped[0].first}"
            " searches them"
        )
    if len(lines) > _MOST:
        lines = [
            never_searched(join(gap for each in groups for gap in each.skipped))
            + " (for some entries only a part of these blocks)"
        ]
    if searched < 0 <= tip:
        lines.append("no block has been searched yet: spvfilter watch searches them")
    elif searched < tip:
        rest = [(searched + 1, tip)]
        them = "it" if searched + 1 == tip else "them"
        lines.append(f"{blocks(rest)} {_were(rest)} not searched yet: spvfilter watch searches {them}")
    return lines


def _were(ranges: Sequence[tuple[int, int]]) -> str:
    return "was" if len(ranges) == 1 and ranges[0][0] == ranges[0][1] else "were"
