"""The keychain of a simulated wallet: its addresses are used out of order, and the client must follow its window."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING

from simulation import oracle
from simulation.violation import Violation
from spvfilter.node.scripts import Lock, p2wpkh
from spvfilter.watch.keychain import GAP_LIMIT
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import key
from support.wallets.storesqlite import sqlite_of

if TYPE_CHECKING:
    from simulation.host import Process
    from simulation.world import World

NAME = "mine"
LABEL = "mine"
INDEXES = 150  # indexes that may be paid
_PAID = 40
_BEYOND = 100  # most indexes of a window above INDEXES


@cache
def _lock(index: int) -> Lock:
    return p2wpkh(key(2_000 + index))


def script_at(index: int) -> bytes:
    """The script of an index. A spend shows its key."""
    return _lock(index).script_pubkey


class Keychain:
    """The scripts that are paid, and the end of the client's window."""

    def __init__(self, rng: random.Random) -> None:
        self.scripts = {script_at(index): index for index in range(INDEXES + _BEYOND)}
        self.locks = [_lock(index) for index in rng.sample(range(INDEXES), _PAID)]
        self._rng = rng
        self.window = 0  # largest window seen in the database

    def give(self, watch: WatchList) -> None:
        """The user adds the keychain to the client, with a different lookahead each time."""
        watch.add_keychain(NAME, script_at, LABEL, lookahead=self._rng.choice((GAP_LIMIT, GAP_LIMIT, GAP_LIMIT + 7)))

    def check_start(self, process: Process) -> None:
        """True: a restart continues with the window of the database."""
        self.check_kept(process)
        (chain,) = process.watch.keychains
        if chain.end < self.window:
            raise Violation("true", f"the window ended at {self.window}, and ends at {chain.end} after a restart")

    def check_kept(self, process: Process) -> None:
        """True: the keychain's rows in the database are the scripts of its indexes."""
        (stored,) = process.disk.store.keychains.load()
        if stored.window < self.window:
            raise Violation("true", f"the window in the database shrank from {self.window} to {stored.window}")
        self.window = stored.window
        rows = dict(sqlite_of(process.disk.store).execute("SELECT id, value FROM watch"))
        for index, ids in enumerate(stored.rows()):
            if [rows.get(row) for row in ids] != [script_at(index)]:
                raise Violation("true", f"the database has another script for index {index}")
        if len(stored.rows()) != stored.window:
            raise Violation("true", f"of a window of {stored.window} indexes the database has {len(stored.rows())}")

    def check_end(self, world: World, process: Process) -> None:
        """True: the client knows every use, its window extends beyond the last one, and the database agrees."""
        self.check_kept(process)
        (chain,), (stored,) = process.watch.keychains, process.disk.store.keychains.load()
        paid: set[int] = set()
        for height, block in enumerate(world.truth.regtest.chain.active):
            for script in (
                script for tx in oracle.read_block(block.raw) for script in tx.pays if script in self.scripts
            ):
                if self.scripts[script] < chain.end and height >= world.wishes.watched[script].first:
                    paid.add(self.scripts[script])
        if not world.may_miss():
            if missing := paid - set(chain.used):
                raise Violation("true", f"index {min(missing)} of {chain.end} was paid, and does not count as used")
            if max(paid, default=-1) + 1 + GAP_LIMIT > chain.end:
                raise Violation("true", f"the window ends at {chain.end} though index {max(paid)} was paid")
        if not process.disk.waiting and (stored.window, sorted(stored.used)) != (chain.end, sorted(chain.used)):
            raise Violation(
                "true", f"the client has the window {chain.end} with {len(chain.used)} uses, the database {stored}"
            )
