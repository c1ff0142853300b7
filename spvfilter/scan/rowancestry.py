"""Chain order of a plan's rows, according to the rules of `chain.link`, in a few bytes per row and without objects."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from spvfilter.chain import is_proven, work
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.rows import NOWHERE, Rows, RowsByHash

_SEVERAL = 2  # number of a row's children; larger numbers count as 2
_WORST = b"\xff" * HASH_SIZE  # the largest hash: it meets only trivial targets


@dataclass(slots=True)
class RowLinks:
    """The rows of a plan, and the parent of each row: the row of the previous block."""

    rows: Rows
    """The rows that are linked."""
    parents: array[int] = field(default_factory=lambda: array("i"))
    """Number of each row's parent row, or NOWHERE if the parent is missing."""
    awaited: dict[bytes, list[int]] = field(default_factory=dict)
    """Numbers of the rows that follow a missing block, keyed by the hash of that block."""


class RowLinker:
    """Links rows. They may be added in any order."""

    def __init__(self) -> None:
        self.links: RowLinks = RowLinks(Rows())
        self._by_hash = RowsByHash(self.links.rows)

    def find(self, block: bytes) -> int:
        """Return the row number of a block, or NOWHERE if no row has this hash."""
        return self._by_hash.find(block)

    def add(self, raw: bytes, block: bytes, previous: bytes) -> None:
        """Append the row of a block that has not been added yet."""
        links = self.links
        row = links.rows.append(raw)
        self._by_hash.add(row, block)
        parent = self._by_hash.find(previous)
        links.parents.append(parent)
        if parent == NOWHERE:
            links.awaited.setdefault(previous, []).append(row)
        for child in links.awaited.pop(block, ()):
            links.parents[child] = row


@dataclass(slots=True)
class RowRun:
    """A run of rows on a best branch."""

    rows: array[int]
    """Numbers of the run's rows, lowest block first."""
    height: int | None
    """Height of the run's first block, or None if it is unknown."""
    is_rooted: bool
    """True if the run begins with the genesis block or the block after it."""


@dataclass(slots=True)
class RowOrder:
    """The rows of a plan in chain order."""

    runs: list[RowRun]
    """Runs of rows on the best branches, oldest first."""
    stale: list[int]
    """Numbers of the rows that are not on a best branch."""
    unproven: list[int] = field(default_factory=list)
    """Numbers of the rows whose hash misses its target, although linked rows meet their targets."""


class _Tip(NamedTuple):
    """A row without children, with sums over the rows on its branch."""

    proven: int
    """Work of the branch's rows that meet their target."""
    claimed: int
    """Work of all rows of the branch."""
    length: int
    """Number of rows in the branch."""
    row: int
    """Number of the row without children."""


@dataclass(slots=True)
class _Family:
    """The rows that descend from the same missing block."""

    members: int = 0
    """Number of rows in the family."""
    unproven: list[int] = field(default_factory=list)
    """Numbers of the family's rows whose hash misses its target."""
    tips: list[_Tip] = field(default_factory=list)
    """The family's rows without children."""

    def best(self, rows: Rows) -> int:
        """Return the tip of the family's best branch."""
        # if no header meets its target, each counts for the work that it claims
        is_claimed = len(self.unproven) == self.members
        return max(
            self.tips,
            key=lambda tip: (
                tip.claimed if is_claimed else tip.proven,
                tip.length,
                -int.from_bytes(rows.hash(tip.row), "big"),
            ),
        ).row


class _Header(NamedTuple):
    """The fields of a row that `is_proven` needs."""

    hash: bytes
    bits: int
    previous: bytes = b""
    time: int = 0
    height: int | None = None


def roots_of(links: RowLinks) -> dict[int, bytes]:
    """Return the rows without a parent, each with the hash of the previous block."""
    return {row: previous for previous, rows in links.awaited.items() for row in rows}


def order_rows(links: RowLinks, network: Network) -> RowOrder:
    """Put rows in chain order. The rules of `chain.link` determine the best branches and the heights."""
    rows, parents = links.rows, links.parents
    families = _families(links)
    order = RowOrder([], [])
    is_best = bytearray(len(rows))
    for previous, family in families.items():
        branch = array("I")
        at = family.best(rows)
        while at != NOWHERE:
            is_best[at] = 1
            branch.append(at)
            at = parents[at]
        branch.reverse()
        order.runs.append(
            RowRun(
                branch, _first_height(rows, branch, network), network.genesis_hash in (rows.hash(branch[0]), previous)
            )
        )
        if len(family.unproven) < family.members:
            order.unproven += sorted(family.unproven)
    order.runs.sort(key=lambda run: (rows.bits_and_time(run.rows[0])[1], rows.hash(run.rows[0])))
    order.stale = [row for row in range(len(rows)) if not is_best[row]]
    return order


def _families(links: RowLinks) -> dict[bytes, _Family]:
    """Group rows by their missing ancestor. Every row is visited once."""
    rows, parents = links.rows, links.parents
    children = bytearray(len(rows))
    for parent in parents:
        if parent != NOWHERE and children[parent] < _SEVERAL:
            children[parent] += 1
    families: dict[bytes, _Family] = {previous: _Family() for previous in links.awaited}
    roots = roots_of(links)
    forks: dict[int, tuple[_Tip, bytes]] = {}  # for each row with several children, the branch up to it and its family
    known: dict[int, tuple[int, bool]] = {}  # for each compact bits, their work, and whether every hash meets them
    for leaf in range(len(rows)):
        if children[leaf]:
            continue
        path = array("I", _up_to_a_fork(parents, forks, leaf))
        below = parents[path[-1]]
        if below == NOWHERE:
            tip, previous = _Tip(0, 0, 0, leaf), roots[path[-1]]
        else:
            tip, previous = forks[below]
        family = families[previous]
        for row in reversed(path):
            bits = rows.bits_and_time(row)[0]
            if bits not in known:
                known[bits] = work(bits), is_proven(_Header(_WORST, bits))
            claimed, proven = known[bits]
            proven = proven or is_proven(_Header(rows.hash(row), bits))
            if not proven:
                family.unproven.append(row)
            tip = _Tip(tip.proven + claimed * proven, tip.claimed + claimed, tip.length + 1, row)
            if children[row] == _SEVERAL:
                forks[row] = tip, previous
        family.members += len(path)
        family.tips.append(tip)
    return families


def _up_to_a_fork(parents: array[int], forks: dict[int, tuple[_Tip, bytes]], row: int) -> Iterator[int]:
    """Yield a row and its ancestors, down to the last row that has not been visited."""
    while row != NOWHERE and row not in forks:
        yield row
        row = parents[row]


def _first_height(rows: Rows, branch: array[int], network: Network) -> int | None:
    """Return the height of a branch's first block: 0 for genesis, or counted from a block that contains its height."""
    if rows.hash(branch[0]) == network.genesis_hash:
        return 0
    for depth, row in enumerate(branch):
        height = rows.height(row)
        if height is not None and height >= depth:
            return height - depth
    return None
