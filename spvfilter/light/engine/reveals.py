"""Reveals: hands out each address of a keychain only once, and records this in the database before answering.

A revealed address is always watched: if its window must grow, the growth is stored before the revealed index.
"""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.errors import InexpressibleError, ParameterError
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.expressible import MOST_LABELS, too_many
from spvfilter.light.engine.requests import ReachIndex, RevealAddress
from spvfilter.light.engine.tasks import Change
from spvfilter.light.engine.windowgrowth import fits, start_of
from spvfilter.store.keychains import KeychainChange
from spvfilter.watch.keychain import MAX_REVEALED, Keychain, identity_of
from spvfilter.watch.windows import is_silent


class Reveals:
    """Reveals addresses, and decides which blocks to search for the scripts that a window gains in the process.

    A program may promise that a keychain is exclusive: no other program or database reveals its addresses. Then blocks
    contain no payments to scripts above every revealed index, with two exceptions:

    - Nobody has searched for addresses that were revealed before the flag was set. The first growth of a window is
      therefore followed by a search of all blocks.
    - The database may be an older copy, and addresses may have been revealed since it was made. The first growth in
      each run is therefore followed by a search of the blocks that have arrived since the run began.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._opened = context.chain.height
        """Height of the tip when the run began, or of the lowest fork since then."""
        self._stated: dict[str, bool] = {}
        """The `exclusive` flag of the latest request in this run, by the keychain's name."""
        self._grown: set[str] = set()
        """Names of exclusive keychains whose window has grown in this run."""
        self._grew = Change("the window of a revealed address to grow")
        self._removed: dict[bytes, int] = {}
        """The index after the last revealed one, for each keychain that was removed in this run, by its identity."""

    def disconnect_to(self, fork: int) -> None:
        """Record that the blocks above `fork` were disconnected, so other blocks may now contain their transactions."""
        self._opened = min(self._opened, fork)

    async def reveal(self, request: RevealAddress) -> str:
        """Reveal the next index of a keychain, and return its address once the whole window is watched.

        The caller stores the changes before it answers. Call this only while no window is due to move and no entries
        are being stored.

        After ParameterError, KeychainError or InexpressibleError, nothing is revealed.
        """
        context, watch = self._context, self._context.books.watch
        windows, keychain = watch.windows, watch.chosen_keychain(request.account)
        if is_silent(keychain) and context.options.tweak_source is not None and keychain.count > MOST_LABELS:
            raise ParameterError(too_many(keychain.count))
        index, address = windows.to_reveal(keychain, context.chain.network)
        self._check_room(keychain, index)
        self._state(keychain, is_exclusive=request.exclusive)
        await self._change(windows.reveal(keychain, index))
        return address

    async def reach(self, request: ReachIndex) -> None:
        """Watch a keychain up to an index that another program watches. Call this only while no window is due to move.

        This does not reveal indexes, because wallets also watch addresses that they have not handed out yet.

        After ParameterError, KeychainError or InexpressibleError, the window is unchanged.
        """
        keychain = self._context.books.watch.windows.get(request.keychain)
        if keychain is None:
            raise ParameterError(f"the watch list has no keychain {request.keychain[:80]!r}")
        if not 0 <= request.index < min(keychain.size, MAX_REVEALED):
            raise ParameterError(f"keychain {keychain.name[:80]!r} has no index {request.index} that can be watched")
        self._check_room(keychain, request.index)
        self._state(keychain, is_exclusive=False)
        self._context.books.watch.windows.reach(keychain, request.index + 1 + keychain.lookahead)
        await self._change([keychain])

    def _check_room(self, keychain: Keychain, index: int) -> None:
        """Raise InexpressibleError if the filters have no room for the window that this index requires."""
        context = self._context
        if keychain.finds_scripts:
            return
        missing = min(keychain.size, index + 1 + keychain.lookahead) - keychain.end
        if missing > 0 and not fits(context.books.watch, missing * len(keychain.scripts(index)), context.options):
            raise InexpressibleError(
                f"a BIP-37 filter has no room for {keychain.lookahead} scripts after index {index} of keychain"
                f" {keychain.name[:80]!r}: use compact mode, or reveal no more addresses",
                (),
            )

    def _state(self, keychain: Keychain, *, is_exclusive: bool) -> None:
        """Record whether another program or database may have revealed addresses of a keychain."""
        self._stated[keychain.name] = is_exclusive
        keychain.is_exclusive = keychain.is_exclusive and is_exclusive

    async def _change(self, changed: list[Keychain]) -> None:
        """Wait for the windows of changed keychains to grow, then store their revealed indexes."""
        context = self._context
        if any(each.end < each.required for each in changed):
            context.books.is_window_due = True
            context.changed()
        if context.is_held:
            await self._grew.until(lambda: not context.is_held)
        context.books.batch.keychains += (
            KeychainChange(each.name, revealed=each.revealed, exclusive=each.is_exclusive) for each in changed
        )

    def grew(self) -> None:
        """Record that windows have grown and their scripts are watched."""
        self._grew.announce()

    def removing(self, keychains: Iterable[Keychain]) -> None:
        """Remember the revealed indexes of keychains that are about to be removed along with their account."""
        for each in keychains:
            if each.revealed and not each.is_dormant:  # without a function, nothing was revealed in this run
                self._removed[identity_of(each.scripts(0))] = each.revealed

    def added(self, keychains: Iterable[Keychain]) -> None:
        """Restore the revealed indexes of keychains that were removed earlier in this run and have been added again.

        The indexes that the program read from the database may be too low, because a reveal may have been waiting then.
        """
        for each in keychains if self._removed else ():
            if revealed := self._removed.get(identity_of(each.scripts(0))):
                each.reveal(revealed - 1)

    def first_to_search(self, keychain: Keychain) -> int | None:
        """Return the height at which to start searching for a window's new scripts; None if no search is needed."""
        whole = start_of(self._context.books, keychain)
        is_used_beyond = keychain.last_used >= keychain.revealed
        if is_used_beyond or not self._stated.get(keychain.name, False):
            keychain.is_exclusive = False  # another program or database has revealed addresses, or may have
            return whole
        is_first = keychain.name not in self._grown
        self._grown.add(keychain.name)
        if not keychain.is_exclusive:
            keychain.is_exclusive = True
            return whole
        return max(self._opened + 1, whole) if is_first else None
