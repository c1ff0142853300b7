"""ForeignEvents: combines events about other people's unconfirmed transactions into each step's net change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import assert_never

from spvfilter.wallet.confirmed import Identity
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    Reason,
    RunStarted,
    TxReplaced,
    WalletEvent,
)
from spvfilter.watch.match import Match, MatchKind


class ForeignEvents:
    """Recognizes foreign events, and combines them until a step ends.

    An event is foreign if it is about somebody else's unconfirmed transaction that has never been in a block. An
    attacker can cause any number of these events, so the database keeps fewer of them than of other events. If a match
    is found and withdrawn in one step, nothing has changed, so neither event is reported.
    """

    def __init__(self, is_own: Callable[[bytes], bool], mined: Iterable[bytes] = ()) -> None:
        """Begin without events.

        Args:
            is_own: Function that returns True if this wallet broadcast the transaction with a given txid.
            mined: Txids of transactions whose blocks have left the best chain.
        """
        self._is_own = is_own
        self._mined = set(mined)
        self._joined: dict[Identity | bytes, MatchFound | MatchWithdrawn | TxReplaced] = {}

    def is_foreign(self, event: WalletEvent) -> bool:
        """True if this event is about somebody else's unconfirmed transaction that has never been in a block."""
        match event:
            case MatchFound(found) | MatchWithdrawn(found):
                return found.height is None and self._is_foreign(found.txid)
            case TxReplaced(txid):
                return self._is_foreign(txid)
            case MatchConfirmed() | MatchUnconfirmed() | BlockConnected() | BlockDisconnected() | RunStarted():
                return False
            case _:
                assert_never(event)

    def _is_foreign(self, txid: bytes) -> bool:
        return txid not in self._mined and not self._is_own(txid)

    def note(self, event: WalletEvent) -> None:
        """Process a reported event, which may show that a transaction's block has left the best chain."""
        match event:
            case MatchUnconfirmed(found):
                self._mined.add(found.txid)
            case MatchWithdrawn(found):
                if found.height is not None:
                    self._mined.add(found.txid)
            case MatchFound() | MatchConfirmed() | TxReplaced() | BlockConnected() | BlockDisconnected() | RunStarted():
                pass
            case _:
                assert_never(event)

    def join(self, event: WalletEvent) -> list[WalletEvent]:
        """Combine a foreign event with the others in this step. Returns the events to report now, in order."""
        match event:
            case TxReplaced(txid):
                self._joined.pop(txid, None)  # the latest replacement counts
                self._joined[txid] = event
                return []
            case MatchWithdrawn(reason=Reason.REMOVED):
                return [*self.take(), event]  # the entry, and perhaps its account, are removed with the current changes
            case MatchFound(found) | MatchWithdrawn(found):
                return self._join(event, found)
            case MatchConfirmed() | MatchUnconfirmed() | BlockConnected() | BlockDisconnected() | RunStarted():
                raise AssertionError(event)  # it is not foreign
            case _:
                assert_never(event)

    def _join(self, event: MatchFound | MatchWithdrawn, found: Match) -> list[WalletEvent]:
        key = Identity(found.kind is MatchKind.INPUT, found.txid, found.index)
        if isinstance(event, MatchFound):
            self._joined.pop(found.txid, None)  # it is no longer replaced
        told = list[WalletEvent]()
        match self._joined.get(key):
            case None:
                self._joined[key] = event
            case MatchFound() if isinstance(event, MatchWithdrawn):
                del self._joined[key]
            case MatchWithdrawn(same) if isinstance(event, MatchFound) and same == found:
                del self._joined[key]
            case _:  # such as a match that returns with a different label
                told = self.take()
                self._joined[key] = event
        return told

    def take(self) -> list[WalletEvent]:
        """Return the combined events of this step, in order, to be reported now."""
        told, self._joined = list[WalletEvent](self._joined.values()), {}
        return told
