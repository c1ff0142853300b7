"""Coverage: what has been agreed for which heights, what is disputed, and which heights still lack witnesses.

It survives restarts.

With compact filters, a height is proven when two independent peers have stated the same filter header there, or above.
With BIP-37 each block has those who answered for it; while they are fewer than three independent ones, further peers
are asked when they come: also another of the same group, which proves nothing but may show what was left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple  # JSON

from spvfilter._public import deferred
from spvfilter.light.engine.netgroups import host_of
from spvfilter.store.searched import BlockRange, Ranges, join
from spvfilter.watch.match import Completeness

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")


WITNESSES = 3  # independent peers that answer for a block in BIP-37, where there are as many
# of those who answered for a block that are remembered; when there are so many, only other groups are asked; ours
MAX_ADDRESSES = 8
MAX_DEBTS = (
    250  # ranges that lack witnesses: they are stored with every block. Of more the last are asked for again; ours
)
MAX_DISPUTED = 1_000  # blocks searched whole since their filters are disputed; ours
MAX_DOUBTED = 100  # ranges in which a dispute was ended without a decision; ours
MAX_CONTESTS = 8  # addresses that are remembered since they stated other filter headers than ours; ours
NOTE = "coverage"


class Witnesses(NamedTuple):
    """Who has answered for blocks: the network groups, which are independent of each other, and addresses."""

    groups: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()

    def plus(self, group: str, address: str) -> Witnesses:
        """With another one."""
        return Witnesses(
            self.groups | {group}, self.addresses | {address} if len(self.addresses) < MAX_ADDRESSES else self.addresses
        )

    def minus(self, group: str, address: str) -> Witnesses:
        """Without that group and that address."""
        return Witnesses(self.groups - {group}, self.addresses - {address})

    def lack(self, group: str, address: str) -> bool:
        """Whether it is worth asking a peer."""
        return group not in self.groups or (address not in self.addresses and len(self.addresses) < MAX_ADDRESSES)


class Contest(NamedTuple):
    """How far a peer has contradicted our filter headers."""

    compared: (
        int  # height up to which its filters were compared with ours, and each block of difference is searched whole
    )
    stated: int
    """Height up to which it has stated others."""

    @property
    def is_open(self) -> bool:
        """Whether it leaves doubt."""
        return self.compared < self.stated

    def cut(self, height: int) -> Contest:
        """What is left of it without the blocks above a height."""
        return Contest(min(self.compared, height), min(self.stated, height))


@dataclass(slots=True)
class Debt:
    """A range of heights searched by BIP-37, and who has answered for it."""

    first: int
    last: int
    witnesses: Witnesses


@dataclass(slots=True)
class Coverage:
    """What is known about the heights up to the cursor."""

    proven: int = -1
    """Height up to which two independent peers agreed on the filter headers."""
    disputed: dict[int, bytes] = field(default_factory=dict)
    """Height → hash of blocks whose filters no block decided about."""
    doubted: list[tuple[int, int]] = field(default_factory=list)
    """Ranges where a dispute was ended without a decision."""
    contests: dict[str, Contest] = field(default_factory=dict)
    """By address, of peers that are there or not; the latest is last."""
    unheard: Contest | None = None
    """All of those whose addresses were too many to be remembered."""
    debts: list[Debt] = field(default_factory=list)
    """Ascending."""
    is_changed: bool = False
    """Since `encode` was last called."""

    @classmethod
    def parse(cls, raw: bytes | None) -> Coverage:
        """From the database; empty if there is nothing."""
        if raw is None:
            return cls()
        found: dict[str, Any] = json.loads(raw)
        return cls(
            proven=int(found["proven"]),
            disputed={int(height): bytes.fromhex(block_hash) for height, block_hash in found["disputed"]},
            doubted=[(int(first), int(last)) for first, last in found["doubted"]],
            contests={
                str(address): Contest(int(compared), int(stated))
                for address, compared, stated in found.get("contests", ())
            },
            unheard=Contest(*map(int, found["unheard"])) if found.get("unheard") else None,
            debts=[
                Debt(int(first), int(last), Witnesses(*map(frozenset, witnesses)))
                for first, last, *witnesses in found["debts"]
            ],
        )

    def encode(self) -> bytes:
        """For the database."""
        self.is_changed = False
        value = {
            "proven": self.proven,
            "disputed": [[height, block_hash.hex()] for height, block_hash in self.disputed.items()],
            "doubted": self.doubted,
            "contests": [[address, *contest] for address, contest in self.contests.items()],
            "unheard": self.unheard,
            "debts": [[debt.first, debt.last, *map(sorted, debt.witnesses)] for debt in self.debts],
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")

    # Compact filters

    def agreed(self, height: int) -> None:
        """Two independent peers agree on the filter headers up to a height."""
        if height > self.proven:
            self.proven = height
            self.is_changed = True

    def dispute(self, height: int, block_hash: bytes) -> bool:
        """Search a block whole, whatever its filters say; whether that is new.

        Of too many the oldest is in doubt instead.
        """
        if self.disputed.get(height) == block_hash:
            return False
        while len(self.disputed) >= MAX_DISPUTED:
            del self.disputed[oldest := next(iter(self.disputed))]
            self.doubt(oldest, oldest)
        self.disputed[height] = block_hash
        self.is_changed = True
        return True

    def is_disputed(self, height: int, block_hash: bytes) -> bool:
        """Whether a block is to be searched whole."""
        return self.disputed.get(height) == block_hash

    def doubt(self, first: int, last: int) -> None:
        """A dispute about a range was ended without a decision.

        Of too many ranges the two that are nearest become one.
        """
        doubted = [(*each,) for each in join(BlockRange(*each) for each in (*self.doubted, (first, last)))]
        while len(doubted) > MAX_DOUBTED:
            at = min(range(1, len(doubted)), key=lambda each: doubted[each][0] - doubted[each - 1][1])
            doubted[at - 1 : at + 1] = [(doubted[at - 1][0], doubted[at][1])]
        self.doubted, self.is_changed = doubted, True

    def contest(self, address: str, compared: int, stated: int) -> None:
        """A peer has stated another filter header than ours at height `stated`, and was compared with ours up to height
        `compared`.
        """
        before = self.contests.get(address)  # it keeps its place: two that go behind each other take turns for ever
        while before is None and len(self.contests) >= MAX_CONTESTS:
            settled = [each for each, contest in self.contests.items() if not contest.is_open]
            of_host = [each for each in self.contests if host_of(each) == host_of(address)]
            self._let_go(self.contests.pop((settled or of_host or list(self.contests))[0]))
        self.contests[address] = Contest(compared, max(stated, before.stated if before is not None else -1))
        self.is_changed = True

    def left(self, address: str) -> None:
        """A peer is gone: if it leaves doubt, others that do are to be heard before it is again."""
        contest = self.contests.get(address)
        if contest is not None and contest.is_open and address != next(reversed(self.contests)):
            self.contests[address] = self.contests.pop(address)
            self.is_changed = True

    def _let_go(self, contest: Contest) -> None:
        """Its address is remembered no more, its doubt is."""
        if contest.is_open:
            other = self.unheard or contest
            self.unheard = Contest(min(contest.compared, other.compared), max(contest.stated, other.stated))

    def left_alone(self, first: int, last: int, stood: Mapping[str, int]) -> None:
        """Nobody is left who stands by our filter headers from height `first` to `last`, and others are taken.

        Who `stood` by them before it was gone, up to which height by address, contradicts those others. It may have
        been in an earlier run.
        """
        for address, height in stood.items():
            self.contest(address, first - 1, height)
        if not stood:
            self._let_go(Contest(first - 1, last))
            self.is_changed = True

    @property
    def contesting(self) -> list[str]:
        """The addresses that are to be heard again: first those that leave doubt, the oldest first."""
        return sorted(self.contests, key=lambda address: not self.contests[address].is_open)

    def compared(self, address: str, height: int) -> None:
        """Up to a height, each block is searched whole where the filters of a peer that contradicts ours differ from
        them.
        """
        contest = self.contests.get(address)
        if contest is not None:
            self.contests[address] = Contest(height, max(contest.stated, height))
            self.is_changed = True

    def agrees(self, address: str, height: int) -> None:
        """A peer states our filter header at a height, hence all below."""
        contest = self.contests.get(address)
        if contest is None:
            return
        if contest.stated <= height:
            self.uncontested(address)
        elif contest.compared < height:
            self.compared(address, height)

    def uncontested(self, address: str) -> None:
        """What a peer stated counts no more: it has lied, or is told of as doubt."""
        if self.contests.pop(address, None) is not None:
            self.is_changed = True

    def outweigh(self, height: int, there: Collection[str]) -> None:
        """As many peers as are enough agree up to a height: what those stated who are not there is no reason for doubt
        any more.
        """
        for address, contest in self.contests.items():
            if contest.is_open and contest.stated <= height and address not in there:
                self.contests[address] = Contest(contest.stated, contest.stated)
                self.is_changed = True
        if self.unheard is not None and self.unheard.stated <= height:
            self.unheard, self.is_changed = None, True

    @property
    def has_doubt(self) -> bool:
        """Whether there may be heights in doubt: `in_doubt` tells which."""
        return bool(self.doubted or self.contests or self.unheard)

    @property
    def in_doubt(self) -> Ranges:
        """The heights where peers differ, or differed, and what follows from that was not searched."""
        contests = [*self.contests.values(), *((self.unheard,) if self.unheard is not None else ())]
        open_ = (BlockRange(each.compared + 1, each.stated) for each in contests if each.is_open)
        return join((*(BlockRange(*each) for each in self.doubted), *open_))

    def completeness(self, height: int) -> Completeness:
        """How sure it is that nothing at a height was left out, by compact filters."""
        is_doubted = any(first <= height <= last for first, last in self.in_doubt)
        return Completeness.PROVEN if height <= self.proven and not is_doubted else Completeness.ONE_PEER

    @property
    def proven_search(self) -> int:
        """The height up to which blocks were searched by proven filters: below the first that was searched by BIP-37 on
        too few words.
        """
        return min(self.proven, self.debts[0].first - 1) if self.debts else self.proven

    @property
    def proven_matches(self) -> int:
        """The height up to which matches are proven: below the first doubt."""
        return min([self.proven_search, *(first - 1 for first, _ in self.in_doubt)])

    def limit(self, height: int) -> None:
        """What was said of the heights above no longer counts."""
        before = (self.proven, len(self.disputed), self.doubted, self.unheard, dict(self.contests))
        self.proven = min(self.proven, height)
        for each in [each for each in self.disputed if each > height]:
            del self.disputed[each]
        self.doubted = [(first, min(last, height)) for first, last in self.doubted if first <= height]
        for address, contest in self.contests.items():
            self.contests[address] = contest.cut(height)
        self.unheard = self.unheard.cut(height) if self.unheard is not None else None
        after = (self.proven, len(self.disputed), self.doubted, self.unheard, self.contests)
        self.is_changed = self.is_changed or before != after

    # BIP-37

    def answered(self, first: int, last: int, group: str, address: str) -> None:
        """Blocks above all recorded ones were searched, on the word of a peer."""
        self._replace(first, last, Witnesses().plus(group, address))

    def witnessed(self, first: int, last: int, group: str, address: str) -> None:
        """A further peer has answered for blocks."""
        self._change(first, last, lambda witnesses: witnesses.plus(group, address))

    def retract(self, group: str, address: str) -> None:
        """A peer has lied: what its group answered for counts as unanswered."""
        if self.debts:
            self._change(
                0,
                self.debts[-1].last,
                lambda witnesses: witnesses.minus(group, address) if group in witnesses.groups else witnesses,
            )

    def owed_to(self, group: str, address: str, above: int = -1) -> Debt | None:
        """The lowest range above a height for which a peer is to be asked."""
        return next((debt for debt in self.debts if debt.last > above and debt.witnesses.lack(group, address)), None)

    def forgive(self, height: int = -1) -> None:
        """Blocks above a height are to be searched again, so there is no debt for them."""
        if any(debt.last > height for debt in self.debts):
            self._replace(height + 1, max(debt.last for debt in self.debts), None)

    def _change(self, first: int, last: int, change: Callable[[Witnesses], Witnesses]) -> None:
        """Change who answered for what is owed in a range: all debts in one pass, however many there are."""
        changed: list[Debt] = []
        for debt in self.debts:
            low, high = max(first, debt.first), min(last, debt.last)
            if low > high or (witnesses := change(debt.witnesses)) == debt.witnesses:
                changed.append(debt)
                continue
            parts = (debt.first, low - 1, debt.witnesses), (low, high, witnesses), (high + 1, debt.last, debt.witnesses)
            changed += (Debt(*part) for part in parts)
            self.is_changed = True
        self._set(changed)

    def _replace(self, first: int, last: int, witnesses: Witnesses | None) -> None:
        """State for a range who answered for it; None means that nothing is owed."""
        debts: list[Debt] = []
        for debt in self.debts:
            if debt.first < first:
                debts.append(Debt(debt.first, min(debt.last, first - 1), debt.witnesses))
            if debt.last > last:
                debts.append(Debt(max(debt.first, last + 1), debt.last, debt.witnesses))
        if witnesses is not None:
            debts.append(Debt(first, last, witnesses))
        debts.sort(key=lambda debt: debt.first)
        self._set(debts)
        self.is_changed = True

    def _set(self, debts: Iterable[Debt]) -> None:
        """Debts in ascending order: such as have enough groups are paid, and those that are alike, or too many, are
        joined.
        """
        merged: list[Debt] = []
        for debt in debts:
            if debt.first > debt.last or len(debt.witnesses.groups) >= WITNESSES:
                continue
            is_alike = merged and merged[-1].last + 1 == debt.first and merged[-1].witnesses == debt.witnesses
            if is_alike or len(merged) >= MAX_DEBTS:  # with what is between them
                both = zip(merged[-1].witnesses, debt.witnesses, strict=True)
                merged[-1] = Debt(merged[-1].first, debt.last, Witnesses(*(one & other for one, other in both)))
            else:
                merged.append(debt)
        self.debts = merged
