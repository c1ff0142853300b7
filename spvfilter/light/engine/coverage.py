"""Coverage: which heights are proven, which are disputed, and which still lack witnesses. It survives restarts.

With compact filters, a height is proven once two independent peers have given the same filter header for it or for a
higher block.

With BIP-37, the peers that answered for a block are its witnesses. If there are fewer than three independent ones, more
peers are asked as they connect. A peer in the same network group proves nothing, but its answer may reveal an omission.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple  # JSON

from spvfilter.light.engine.netgroups import host_of
from spvfilter.store.searched import BlockRange, Ranges, join
from spvfilter.watch.match import Completeness

WITNESSES = 3  # Number of independent peers that should answer for each block in a BIP-37 search.

# Largest number of remembered addresses of witnesses for a block (our choice). At this number, only peers in other
# groups are asked.
MAX_ADDRESSES = 8

# Largest number of unwitnessed ranges, which are stored with every block (our choice). Beyond it, the last ranges are
# joined.
MAX_UNWITNESSED_RANGES = 250
MAX_DISPUTED = 1_000  # Limit on blocks searched whole because their filters are disputed (our choice).
MAX_UNDECIDED_RANGES = 100  # Limit on ranges in which a dispute ended without a decision (our choice).
MAX_FILTER_DISPUTES = 8  # Limit on remembered addresses of peers whose filter headers differ from ours.
NOTE = "coverage"


class Witnesses(NamedTuple):
    """Peers that have answered for blocks: their network groups, which are independent, and their addresses."""

    groups: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()

    def plus(self, group: str, address: str) -> Witnesses:
        """Return these witnesses plus the peer with this group and address."""
        return Witnesses(
            self.groups | {group}, self.addresses | {address} if len(self.addresses) < MAX_ADDRESSES else self.addresses
        )

    def minus(self, group: str, address: str) -> Witnesses:
        """Return these witnesses without this group and this address."""
        return Witnesses(self.groups - {group}, self.addresses - {address})

    def lack(self, group: str, address: str) -> bool:
        """True if this peer's answer would be useful."""
        return group not in self.groups or (address not in self.addresses and len(self.addresses) < MAX_ADDRESSES)


class FilterDispute(NamedTuple):
    """Heights up to which a peer has contradicted our filter headers."""

    compared: int
    """Height up to which the peer's filters were compared with ours. Blocks where they differ are searched whole."""
    stated: int
    """Height up to which the peer has given different filter headers."""

    @property
    def is_open(self) -> bool:
        """True if doubt remains, because not all blocks in dispute have been compared."""
        return self.compared < self.stated

    def cut(self, height: int) -> FilterDispute:
        """Return the dispute without the blocks above a height."""
        return FilterDispute(min(self.compared, height), min(self.stated, height))


@dataclass(slots=True)
class UnwitnessedRange:
    """A range of heights that was searched by BIP-37 with fewer than three independent witnesses."""

    first: int
    last: int
    witnesses: Witnesses


@dataclass(slots=True)
class Coverage:
    """How well the search up to the cursor is backed by peers."""

    proven: int = -1
    """Height up to which two independent peers have agreed on the filter headers."""
    disputed: dict[int, bytes] = field(default_factory=dict)
    """Hashes, by height, of blocks that prove neither of two filters false."""
    undecided: list[tuple[int, int]] = field(default_factory=list)
    """Ranges in which a dispute ended without a decision, each with its first and last height."""
    filter_disputes: dict[str, FilterDispute] = field(default_factory=dict)
    """Disputes, keyed by the peer's address, latest last. The peer may no longer be connected."""
    forgotten: FilterDispute | None = None
    """One dispute that covers all open disputes of forgotten addresses."""
    unwitnessed: list[UnwitnessedRange] = field(default_factory=list)
    """Unwitnessed ranges, ascending."""
    is_changed: bool = False
    """True if anything has changed since the last call to `encode`."""

    @classmethod
    def parse(cls, raw: bytes | None) -> Coverage:
        """Parse the coverage that `encode` stored in the database. If `raw` is None, the coverage is empty."""
        if raw is None:
            return cls()
        found: dict[str, Any] = json.loads(raw)
        return cls(
            proven=int(found["proven"]),
            disputed={int(height): bytes.fromhex(block_hash) for height, block_hash in found["disputed"]},
            undecided=[(int(first), int(last)) for first, last in found["doubted"]],
            filter_disputes={
                str(address): FilterDispute(int(compared), int(stated))
                for address, compared, stated in found.get("contests", ())
            },
            forgotten=FilterDispute(*map(int, found["unheard"])) if found.get("unheard") else None,
            unwitnessed=[
                UnwitnessedRange(int(first), int(last), Witnesses(*map(frozenset, witnesses)))
                for first, last, *witnesses in found["debts"]
            ],
        )

    def encode(self) -> bytes:
        """Serialize the coverage for the database."""
        self.is_changed = False
        value = {
            "proven": self.proven,
            "disputed": [[height, block_hash.hex()] for height, block_hash in self.disputed.items()],
            "doubted": self.undecided,
            "contests": [[address, *dispute] for address, dispute in self.filter_disputes.items()],
            "unheard": self.forgotten,
            "debts": [[span.first, span.last, *map(sorted, span.witnesses)] for span in self.unwitnessed],
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")

    # Compact filters

    def agreed(self, height: int) -> None:
        """Record that two independent peers agree on the filter headers up to a height."""
        if height > self.proven:
            self.proven = height
            self.is_changed = True

    def dispute(self, height: int, block_hash: bytes) -> bool:
        """Mark a block to be searched whole, regardless of its filters. Return True if it was not marked before.

        If there are too many blocks, the oldest is marked as undecided instead.
        """
        if self.disputed.get(height) == block_hash:
            return False
        while len(self.disputed) >= MAX_DISPUTED:
            del self.disputed[oldest := next(iter(self.disputed))]
            self.add_undecided(oldest, oldest)
        self.disputed[height] = block_hash
        self.is_changed = True
        return True

    def is_disputed(self, height: int, block_hash: bytes) -> bool:
        """True if a block is to be searched whole."""
        return self.disputed.get(height) == block_hash

    def add_undecided(self, first: int, last: int) -> None:
        """Record that a dispute about a range ended without a decision.

        If there are too many ranges, the two closest ones are joined.
        """
        undecided = [(*each,) for each in join(BlockRange(*each) for each in (*self.undecided, (first, last)))]
        while len(undecided) > MAX_UNDECIDED_RANGES:
            at = min(range(1, len(undecided)), key=lambda each: undecided[each][0] - undecided[each - 1][1])
            undecided[at - 1 : at + 1] = [(undecided[at - 1][0], undecided[at][1])]
        self.undecided, self.is_changed = undecided, True

    def add_filter_dispute(self, address: str, compared: int, stated: int) -> None:
        """Record that a peer gave a filter header that differs from ours at height `stated`.

        The peer's filters have been compared with ours up to height `compared`.
        """
        before = self.filter_disputes.get(address)  # It keeps its place, or else two peers would alternate forever.
        while before is None and len(self.filter_disputes) >= MAX_FILTER_DISPUTES:
            settled = [each for each, dispute in self.filter_disputes.items() if not dispute.is_open]
            of_host = [each for each in self.filter_disputes if host_of(each) == host_of(address)]
            self._keep_doubt(self.filter_disputes.pop((settled or of_host or list(self.filter_disputes))[0]))
        self.filter_disputes[address] = FilterDispute(
            compared, max(stated, before.stated if before is not None else -1)
        )
        self.is_changed = True

    def left(self, address: str) -> None:
        """Record that a peer is gone. If its dispute is open, peers with other open disputes are asked before it."""
        dispute = self.filter_disputes.get(address)
        if dispute is not None and dispute.is_open and address != next(reversed(self.filter_disputes)):
            self.filter_disputes[address] = self.filter_disputes.pop(address)
            self.is_changed = True

    def _keep_doubt(self, dispute: FilterDispute) -> None:
        """Remember which heights an open dispute put in doubt, although its address is forgotten."""
        if dispute.is_open:
            other = self.forgotten or dispute
            self.forgotten = FilterDispute(min(dispute.compared, other.compared), max(dispute.stated, other.stated))

    def lost_supporters(self, first: int, last: int, supporters: Mapping[str, int]) -> None:
        """Record that our filter headers from `first` to `last` are discarded, since no connected peer supports them.

        `supporters` gives, by address, the height up to which each former supporter agreed. These peers contradict the
        next filter headers. If there are none, the range is in doubt, because a peer may have agreed in an earlier run.
        """
        for address, height in supporters.items():
            self.add_filter_dispute(address, first - 1, height)
        if not supporters:
            self._keep_doubt(FilterDispute(first - 1, last))
            self.is_changed = True

    @property
    def disputing(self) -> list[str]:
        """Addresses of peers to ask again, oldest first, but peers with an open dispute before all others."""
        return sorted(self.filter_disputes, key=lambda address: not self.filter_disputes[address].is_open)

    def compared(self, address: str, height: int) -> None:
        """Record that a peer's filters were compared up to a height. Blocks where they differ are searched whole."""
        dispute = self.filter_disputes.get(address)
        if dispute is not None:
            self.filter_disputes[address] = FilterDispute(height, max(dispute.stated, height))
            self.is_changed = True

    def agrees(self, address: str, height: int) -> None:
        """Record that a peer confirms our filter header at a height, and thus all the headers below it."""
        dispute = self.filter_disputes.get(address)
        if dispute is None:
            return
        if dispute.stated <= height:
            self.remove_filter_dispute(address)
        elif dispute.compared < height:
            self.compared(address, height)

    def remove_filter_dispute(self, address: str) -> None:
        """Remove a peer's dispute, because the peer has lied or its blocks are marked as undecided."""
        if self.filter_disputes.pop(address, None) is not None:
            self.is_changed = True

    def outweigh(self, height: int, there: Collection[str]) -> None:
        """Close disputes of absent peers up to a height, because enough independent peers agree up to that height.

        `there` contains the addresses of the connected peers.
        """
        for address, dispute in self.filter_disputes.items():
            if dispute.is_open and dispute.stated <= height and address not in there:
                self.filter_disputes[address] = FilterDispute(dispute.stated, dispute.stated)
                self.is_changed = True
        if self.forgotten is not None and self.forgotten.stated <= height:
            self.forgotten, self.is_changed = None, True

    @property
    def has_doubt(self) -> bool:
        """True if heights may be in doubt. `in_doubt` lists them."""
        return bool(self.undecided or self.filter_disputes or self.forgotten)

    @property
    def in_doubt(self) -> Ranges:
        """Heights at which peers differ, or used to, and whose blocks were not searched whole."""
        if not self.has_doubt:
            return ()
        filter_disputes = [*self.filter_disputes.values(), *((self.forgotten,) if self.forgotten is not None else ())]
        open_ = (BlockRange(each.compared + 1, each.stated) for each in filter_disputes if each.is_open)
        return join((*(BlockRange(*each) for each in self.undecided), *open_))

    def completeness(self, height: int) -> Completeness:
        """Return the completeness of a search with compact filters at a height."""
        is_in_doubt = any(first <= height <= last for first, last in self.in_doubt)
        return Completeness.PROVEN if height <= self.proven and not is_in_doubt else Completeness.ONE_PEER

    @property
    def proven_search(self) -> int:
        """The height up to which blocks were searched with proven filters. It is below the first unwitnessed range."""
        return min(self.proven, self.unwitnessed[0].first - 1) if self.unwitnessed else self.proven

    @property
    def proven_matches(self) -> int:
        """The height up to which matches are proven. It is below the first height in doubt."""
        return min([self.proven_search, *(first - 1 for first, _ in self.in_doubt)])

    def limit(self, height: int) -> None:
        """Forget agreements and disputes about heights above `height`."""
        before = (self.proven, len(self.disputed), self.undecided, self.forgotten, dict(self.filter_disputes))
        self.proven = min(self.proven, height)
        for each in [each for each in self.disputed if each > height]:
            del self.disputed[each]
        self.undecided = [(first, min(last, height)) for first, last in self.undecided if first <= height]
        for address, dispute in self.filter_disputes.items():
            self.filter_disputes[address] = dispute.cut(height)
        self.forgotten = self.forgotten.cut(height) if self.forgotten is not None else None
        after = (self.proven, len(self.disputed), self.undecided, self.forgotten, self.filter_disputes)
        self.is_changed = self.is_changed or before != after

    # BIP-37

    def answered(self, first: int, last: int, group: str, address: str) -> None:
        """Record that the next blocks, from `first` to `last`, were searched with one peer as their witness."""
        self._replace(first, last, Witnesses().plus(group, address))

    def witnessed(self, first: int, last: int, group: str, address: str) -> None:
        """Record that another peer has answered for the blocks from `first` to `last`."""
        self._change(first, last, lambda witnesses: witnesses.plus(group, address))

    def retract(self, group: str, address: str) -> None:
        """Remove the network group of a peer that has lied from the witnesses of all ranges."""
        if self.unwitnessed:
            self._change(
                0,
                self.unwitnessed[-1].last,
                lambda witnesses: witnesses.minus(group, address) if group in witnesses.groups else witnesses,
            )

    def unwitnessed_for(self, group: str, address: str, above: int = -1) -> UnwitnessedRange | None:
        """Return the lowest unwitnessed range above a height for which this peer's answer is useful, or None."""
        return next(
            (span for span in self.unwitnessed if span.last > above and span.witnesses.lack(group, address)),
            None,
        )

    def forget_unwitnessed(self, height: int = -1) -> None:
        """Forget the unwitnessed ranges above a height, because their blocks will be searched again."""
        if any(span.last > height for span in self.unwitnessed):
            self._replace(height + 1, max(span.last for span in self.unwitnessed), None)

    def _change(self, first: int, last: int, change: Callable[[Witnesses], Witnesses]) -> None:
        """Change the witnesses of all unwitnessed blocks in a range, in one pass."""
        changed: list[UnwitnessedRange] = []
        for span in self.unwitnessed:
            low, high = max(first, span.first), min(last, span.last)
            if low > high or (witnesses := change(span.witnesses)) == span.witnesses:
                changed.append(span)
                continue
            parts = (
                (span.first, low - 1, span.witnesses),
                (low, high, witnesses),
                (high + 1, span.last, span.witnesses),
            )
            changed += (UnwitnessedRange(*part) for part in parts)
            self.is_changed = True
        self._set(changed)

    def _replace(self, first: int, last: int, witnesses: Witnesses | None) -> None:
        """Set the witnesses of a range. None means that the range has enough of them."""
        unwitnessed: list[UnwitnessedRange] = []
        for span in self.unwitnessed:
            if span.first < first:
                unwitnessed.append(UnwitnessedRange(span.first, min(span.last, first - 1), span.witnesses))
            if span.last > last:
                unwitnessed.append(UnwitnessedRange(max(span.first, last + 1), span.last, span.witnesses))
        if witnesses is not None:
            unwitnessed.append(UnwitnessedRange(first, last, witnesses))
        unwitnessed.sort(key=lambda span: span.first)
        self._set(unwitnessed)
        self.is_changed = True

    def _set(self, unwitnessed: Iterable[UnwitnessedRange]) -> None:
        """Set the unwitnessed ranges, given in ascending order.

        Ranges with enough groups are left out. Neighbors with equal witnesses are joined, as are ranges beyond the
        limit.
        """
        merged: list[UnwitnessedRange] = []
        for span in unwitnessed:
            if span.first > span.last or len(span.witnesses.groups) >= WITNESSES:
                continue
            is_alike = merged and merged[-1].last + 1 == span.first and merged[-1].witnesses == span.witnesses
            if is_alike or len(merged) >= MAX_UNWITNESSED_RANGES:  # including the blocks between them
                both = zip(merged[-1].witnesses, span.witnesses, strict=True)
                merged[-1] = UnwitnessedRange(
                    merged[-1].first, span.last, Witnesses(*(one & other for one, other in both))
                )
            else:
                merged.append(span)
        self.unwitnessed = merged
