"""Context: the objects that all parts of the engine share, such as the wallet's books, the chain and the peers."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from spvfilter.chain import HeaderChain
from spvfilter.errors import PeerError
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.engine.longchange import LongChange
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.peers import Peer, PeerPool
from spvfilter.light.engine.tasks import Tasks
from spvfilter.wallet.books import Books
from spvfilter.wallet.scanned import ScannedBlock


@dataclass(slots=True)
class Context:
    """The shared objects. The engine creates them once, and sets `now` at every step."""

    options: Options
    chain: HeaderChain
    rows: FilterRows
    books: Books
    pool: PeerPool
    out: Outbox
    random: random.Random
    now: Instant
    unix_now: float
    """Unix time at the first step, plus the seconds of the monotonic clock since then."""
    is_storing: bool = False
    """True if entries of the watch list are being stored, or are about to be removed."""
    matches_left: int = 0
    """Number of matches that this step may still record. If none are left, the next step records the next block."""
    looks_left: int = 0
    """How many more pairs of one of our transactions and a peer this step may check. The next step checks the rest."""
    is_due: bool = True
    """True if the parts of the engine should decide what to do next."""
    tasks: Tasks = field(default_factory=Tasks)
    """The running tasks."""
    change: LongChange = field(default_factory=LongChange)
    """The change to the books that takes several steps, if any."""

    @property
    def is_held(self) -> bool:
        """True if no block may be recorded, because watch list entries are being stored or a window must move."""
        return self.is_storing or self.books.is_window_due

    def stamp(self) -> int:
        """Return the time to record for current events (Unix time).

        The time is never before the median time of the tip, even if our clock is behind.
        """
        return max(int(self.unix_now), self.chain.median_time_at(self.chain.height))

    def changed(self) -> None:
        """Record that something happened that may allow the engine to do more."""
        self.is_due = True

    def failed(self, peer: Peer, error: Exception) -> None:
        """Drop a peer whose task ended with an error that the peer caused. Raise any other error, which is a bug."""
        if not isinstance(error, PeerError):
            raise error
        self.pool.drop(peer, error, self.now)
        self.changed()


def is_next(context: Context, block: ScannedBlock) -> bool:
    """Return True if a block of the best chain may be recorded next."""
    is_above = context.books.cursor == block.height - 1 and context.chain.hash_at(block.height) == block.hash
    return is_above and not context.is_held
