"""Books: the balance that a user computes from the matches at the start and from later events.

They raise a Violation if an event contradicts an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from simulation.oracle import Place
from simulation.violation import Violation
from spvfilter.light.events import Event, PeerWarning, Synced
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchUnconfirmed, MatchWithdrawn
from spvfilter.wallet.reader import decoded
from spvfilter.watch.match import Completeness, Match

Identity = tuple[str, bytes, int]
Told = tuple[int | None, bytes | None, Completeness]  # height, block hash


@dataclass
class Books:
    """The user's view of one run of the client, from its start to its end."""

    matches: dict[Identity, Told] = field(default_factory=dict)
    warnings: list[PeerWarning] = field(default_factory=list)
    synced: Synced | None = None
    coins: dict[Identity, tuple[bytes, int]] = field(default_factory=dict)  # outpoint and value of each match
    ahead: dict[Identity, Match] = field(default_factory=dict)  # reported, but not yet in the database

    @classmethod
    def start(cls, stored: Iterable[tuple[Match, Completeness]]) -> Books:
        """Start with the matches of the database."""
        books = cls()
        for match, completeness in stored:
            books._put(match, completeness)
        return books

    def take(self, event: Event) -> None:
        """Apply an event. Raises Violation."""
        match event:
            case MatchFound(match, completeness):
                self._check(identity(match) not in self.matches, "found twice", match)
                self._put(match, completeness)
            case MatchConfirmed(match, completeness):
                before = self.matches.get(identity(match))
                self._check(before is not None and before[0] is None, "confirmed, but was not waiting", match)
                self._check(match.height is not None, "confirmed without a block", match)
                self._put(match, completeness)
            case MatchUnconfirmed(match):
                before = self.matches.get(identity(match))
                self._check(
                    before is not None and before[:2] == (match.height, match.block_hash) and match.height is not None,
                    f"unconfirmed, but was {before}",
                    match,
                )
                self.matches[identity(match)] = (None, None, Completeness.UNPROVEN)
            case MatchWithdrawn(match):
                before = self.matches.pop(identity(match), None)
                self._check(
                    before is not None and before[:2] == (match.height, match.block_hash),
                    f"withdrawn, but was {before}",
                    match,
                )
            case PeerWarning():
                self.warnings.append(event)
            case Synced():
                self.synced = event
            case _:
                pass

    def compare(self, event: Event, store: Store) -> None:
        """Note a reported match if the database lacks it.

        Commits that were written together may have withdrawn it again. The database then has that event already.
        """
        match event:
            case MatchFound(match) | MatchConfirmed(match) | MatchUnconfirmed(match):
                mark = (str(match.kind) == "input", match.txid, match.index)
                if mark not in store.blocks_of([mark]) and not _is_withdrawn(match, event.sequence, store):
                    self.ahead[identity(match)] = match
            case MatchWithdrawn(match):
                self.ahead.pop(identity(match), None)
            case _:
                pass

    def check_durable(self) -> None:
        """True: before each commit, every reported match is in the database."""
        for match in self.ahead.values():
            raise Violation("true", f"told, but not in the database: {match}")

    def confirmed(self) -> set[Place]:
        """The matches in blocks."""
        return {
            Place(kind, txid, index, height, block)
            for (kind, txid, index), (height, block, _) in self.matches.items()
            if height is not None and block is not None
        }

    def waiting(self) -> set[bytes]:
        """Txids of the unconfirmed matches."""
        return {txid for (_, txid, _), (height, _, _) in self.matches.items() if height is None}

    def unspent(self) -> dict[bytes, tuple[int | None, int]]:
        """Height and value of each reported output that is unspent.

        A confirmed output counts until a block spends it. An unconfirmed output counts until any transaction spends it.
        """
        spent = {self.coins[mark][0]: height for mark, (height, _, _) in self.matches.items() if mark[0] == "input"}
        found = {}
        for mark, (height, _, _) in self.matches.items():
            outpoint, value = self.coins[mark]
            if mark[0] == "output" and (outpoint not in spent or (spent[outpoint] is None and height is not None)):
                found[outpoint] = height, value
        return found

    def _put(self, match: Match, completeness: Completeness) -> None:
        self.coins[identity(match)] = bytes(match.outpoint), match.value or 0
        self.matches[identity(match)] = (match.height, match.block_hash, completeness)

    def _check(self, holds: bool, what: str, match: Match) -> None:
        if not holds:
            raise Violation("true", f"{what}: {match}")


def identity(match: Match) -> Identity:
    return (str(match.kind), match.txid, match.index)


def _is_withdrawn(match: Match, since: int, store: Store) -> bool:
    """True if the database has a later event that withdraws a match."""
    later = decoded(store.events.read(since, 1_000), store.path)
    return any(isinstance(event, MatchWithdrawn) and identity(event.match) == identity(match) for event in later)
