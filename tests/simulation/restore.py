"""Restore: an earlier copy replaces the database, and the client continues with it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from simulation.accountscripts import Account
from simulation.wishes import Wishes
from support.wallets.storesqlite import sqlite_of

if TYPE_CHECKING:
    from simulation.world import World
    from spvfilter.wallet.events import WalletEvent


@dataclass
class Copy:
    """A copy of the database, and the facts that it has."""

    path: Path
    """The file."""
    events: list[WalletEvent]
    """Its events."""
    wishes: Wishes
    """Requests of the user that are answered or wait."""
    answered: dict[bytes, bytes]
    """Own transactions that a peer has, by txid."""
    searched: dict[bytes, bytes]
    """The last searched block at the first sight of each unconfirmed transaction, by txid."""
    tweak: int | None
    """The tweak of its BIP-37 filter."""
    window: int
    """End of the keychain's window."""
    accounts: list[Account]
    """The accounts as the user knows them."""

    @classmethod
    def make(cls, world: World, path: Path) -> Copy | None:
        """Copy the database while the client runs; None if it does not run."""
        if world.process is None:
            return None
        store = world.process.disk.store
        with closing(sqlite3.connect(path)) as target:
            sqlite_of(store).backup(target)
        if world.keychain is not None:
            world.keychain.check_kept(world.process)
        window = 0 if world.keychain is None else world.keychain.window
        world.log.read_on(store)
        events = [event for event in world.log.events if event.sequence <= store.events.log.last]
        wishes, tweak = world.wishes.copy(), world.privacy.tweak
        accounts = [] if world.accounts is None else world.accounts.copy()
        return cls(path, events, wishes, dict(world.answered), dict(world.searched), tweak, window, accounts)

    def restore(self, world: World, path: Path) -> None:
        """Kill the client, and put this copy in the place of its database."""
        world.kill()
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)
        shutil.copy(self.path, path)
        world.restored_at = world.timeline.now
        world.wishes = world.wishes.restored(self.wishes)
        world.answered, world.searched = dict(self.answered), dict(self.searched)
        world.privacy.tweak = self.tweak
        world.log.return_to(self.events)
        if world.keychain is not None:
            world.keychain.window = self.window
        if world.accounts is not None:
            world.accounts.return_to(self.accounts)
