"""Chain order of the rows of a plan: as `chain.link` orders blocks, with some bytes for each and no object."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from spvfilter._dataclass import dataclass, field
from spvfilter.chain import is_proven, work
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.scan.rows import NOWHERE, Rows, RowsByHash

_SEVERAL = 2  # children, or more
_WORST = b"\xff" * HASH_SIZE  # a hash that meets only what every hash meets


@dataclass(slots=True)
class RowLinks:
    """Which row is the parent of which."""

    rows: Rows
    parents: array[int] = field(default_factory=lambda: array("i"))
    """By row: that of the block before, or NOWHERE."""
    awaited: dict[bytes, list[int]] = field(default_factory=dict)
    """By the hash of a block that is not there: the rows that follow it."""


class RowLinker:
    """Links rows, which come in any order."""

    def __init__(self) -> None:
        self.links = RowLinks(Rows())
        self._by_hash = RowsByHash(self.links.rows)

    def find(self, block: bytes) -> int:
        """The row of a block, or NOWHERE."""
        return self._by_hash.find(block)

    def add(self, raw: bytes, block: bytes, previous: bytes) -> None:
        """Append a row, of a block that is not there."""
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
class Run:
    """A best branch: its rows, lowest first, and the height of the first, if it is known."""

    rows: array[int]
    height: int | None
    is_rooted: bool
    """It begins with the genesis block or the one after it."""


@dataclass(slots=True)
class RowOrder:
    """Rows in chain order: the best branches, oldest first, and the rows off them."""

    runs: list[Run]
    stale: list[int]
    unproven: list[int] = field(default_factory=list)


class _Tip(NamedTuple):
    """A row without children, and what its branch comes to; a row that misses its target does not count in the first
    number.
    """

    proven: int
    claimed: int
    length: int
    row: int


@dataclass(slots=True)
class _Family:
    """The rows that go back to one block that is not there."""

    members: int = 0
    unproven: list[int] = field(default_factory=list)
    tips: list[_Tip] = field(default_factory=list)

    def best(self, rows: Rows) -> int:
        # no header meets its target: all count with the work that they claim
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
    """What `is_proven` asks of a row."""

    hash: bytes
    bits: int
    previous: bytes = b""
    time: int = 0
    height: int | None = None


def roots_of(links: RowLinks) -> dict[int, bytes]:
    """The rows without a parent, and the hashes of the blocks before them."""
    return {row: previous for previous, rows in links.awaited.items() for row in rows}


def order_rows(links: RowLinks, network: Network) -> RowOrder:
    """Put rows in chain order; which branch is the best, and heights, as `chain.link` says."""
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
            Run(branch, _first_height(rows, branch, network), network.genesis_hash in (rows.hash(branch[0]), previous))
        )
        if len(family.unproven) < family.members:
            order.unproven += sorted(family.unproven)
    order.runs.sort(key=lambda run: (rows.bits_and_time(run.rows[0])[1], rows.hash(run.rows[0])))
    order.stale = [row for row in range(len(rows)) if not is_best[row]]
    return order


def _families(links: RowLinks) -> dict[bytes, _Family]:
    """By the block that is not there: what goes back to it. Every row is visited once."""
    rows, parents = links.rows, links.parents
    children = bytearray(len(rows))
    for parent in parents:
        if parent != NOWHERE and children[parent] < _SEVERAL:
            children[parent] += 1
    families: dict[bytes, _Family] = {previous: _Family() for previous in links.awaited}
    roots = roots_of(links)
    forks: dict[int, tuple[_Tip, bytes]] = {}  # by a row with several children: its branch, and its family
    known: dict[int, tuple[int, bool]] = {}  # by bits: their work, and whether every hash meets them
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
    """A row and those before it, down to one that was not visited and whose parent was, or that has none."""
    while row != NOWHERE and row not in forks:
        yield row
        row = parents[row]


def _first_height(rows: Rows, branch: array[int], network: Network) -> int | None:
    if rows.hash(branch[0]) == network.genesis_hash:
        return 0
    for depth, row in enumerate(branch):
        height = rows.height(row)
        if height is not None and height >= depth:
            return height - depth
    return None
