"""What becomes of our transactions: told as events, and as answers to calls of `broadcast` that wait."""

from __future__ import annotations

from spvfilter.errors import TxConflictError, TxRefusedError, UselessPeerError
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.owntx import OwnTx, Taken
from spvfilter.light.events import Broadcast, BroadcastChanged, BroadcastProgress, BroadcastStep
from spvfilter.primitives import hash_to_hex
from spvfilter.store.ledger import TxStatus

# after which a peer that does not have what it fetched has refused it: eight of Core's intervals between announcements
KEEP_S = 40.0
MAX_TOLD = 1_000  # ours: peers of which it is remembered what they did with a transaction, the latest


class Outcomes:
    """Tells each thing once, and answers a call as soon as something is known.

    One that is refused by all counts no more.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def keep_s(self) -> float:
        """For how long a peer is asked whether it keeps what it fetched."""
        return min(KEEP_S, self._context.options.patience.reply_s / 3)

    # Of single peers

    def sent(self, own: OwnTx, address: str) -> None:
        """A peer was sent a transaction."""
        self._tell(own, own.sent, address, BroadcastStep.SENT)

    def echoed(self, own: OwnTx, address: str) -> None:
        """A peer has a transaction that it did not get from us."""
        self._tell(own, own.echoed, address, BroadcastStep.ECHOED)

    def _tell(self, own: OwnTx, told: dict[str, None], address: str, step: BroadcastStep) -> None:
        if address not in told:
            told[address] = None
            shorten(told)
            self._context.out.emit(BroadcastProgress(own.tx.txid, address, step))

    def refused(self, own: OwnTx, address: str, reason: str) -> None:
        """A peer refuses a transaction."""
        is_told = address in own.refused
        own.refused[address] = reason
        own.left.pop(address, None)  # it had left before it decided, and came back
        shorten(own.refused)
        if not is_told:
            self._context.out.emit(BroadcastProgress(own.tx.txid, address, BroadcastStep.REFUSED, reason))

    # Of the books

    def look_at(self, own: OwnTx) -> None:
        """Tell where the books have something new of a transaction."""
        if not own.is_recorded:
            return
        books, txid = self._context.books, own.tx.txid
        pending, ended = books.unconfirmed.pending.get(txid), books.ended.own(txid)
        if pending is not None:
            status, by = pending.status, pending.rival
        elif ended is not None and books.in_block(txid) is None:
            status, by = ended.status, ended.rival
        else:
            status, by = TxStatus.CONFIRMED, None
        if pending is not None and (later := books.unconfirmed.sent.replaced_by(txid)) is not None:
            self.answer(
                own,
                TxConflictError(f"it conflicts with {_name(later)}, which was broadcast later: it is {status}", later),
            )
        if status is own.status:
            return
        own.status = status
        self._context.out.emit(BroadcastChanged(txid, status, by))
        if status is TxStatus.REPLACED:
            return  # if not by ours, by what anybody may have invented: what peers do with ours tells
        if status is TxStatus.CONFLICTED:
            height = None if ended is None else ended.height
            self.answer(own, TxConflictError(f"it conflicts with {_name(by)}: it is {status}", by, height))
        elif status is TxStatus.ABANDONED:
            self.answer(own, TxConflictError("it was abandoned"))
        elif status is not TxStatus.PENDING:
            self.answer(own, own.known())

    # Of all

    def settle(self, own: OwnTx) -> bool:
        """Tell and answer what there is to say; whether the transaction is still to be offered."""
        self.look_at(own)
        if own.is_recorded and own.tx.txid not in self._context.books.unconfirmed.pending:
            return False
        if own.is_taken:
            self.answer(own, own.known())
        now, patience = self._context.now.monotonic, self._context.options.patience
        if own.began is None or own.is_taken or now < own.began:
            return True
        is_late = now >= own.began + patience.reply_s  # as the moment was computed for which a timer rang
        if (own.refused and not self._may_be_taken(own, now)) or (is_late and (own.refused or own.left)):
            return not self.give_up(own)
        if is_late and own.is_recorded:  # it is offered on, even if who asked for it left before it was stored
            self.answer(own, own.known())
        elif is_late:
            peers = len(self._context.pool.connected())
            self.answer(own, UselessPeerError(f"none of the {peers} connected peers accepts the transaction"))
            return False
        return True

    def _may_be_taken(self, own: OwnTx, now: float) -> bool:
        """Whether somebody may yet take it: who has not decided, or was not asked."""
        if own.left or any(peer not in own.offers for peer in own.due):
            return True
        undecided = (offer for offer in own.offers.values() if not offer.is_settled)
        return any(offer.fetched_at is not None or now < offer.at + self.keep_s for offer in undecided)

    def give_up(self, own: OwnTx) -> bool:
        """All that were asked have refused it; whether it counts no more.

        It does where somebody has it with another witness.
        """
        if own.taken is Taken.BEFORE:
            own.taken = Taken.YES
            self.answer(own, own.known())
            return False
        for address in own.left:
            own.refused.setdefault(address, "the peer disconnected after it received the transaction")
        shorten(own.refused)
        books, txid = self._context.books, own.tx.txid
        rivals = (each for outpoint in own.tx.inputs for each in books.unconfirmed.spenders(outpoint) if each != txid)
        rival = next(rivals, None)
        told = "; ".join(f"{peer}: {reason}" for peer, reason in own.refused.items())
        if rival is not None:
            answer: Exception = TxConflictError(f"it conflicts with {_name(rival)}, and peers reject it: {told}", rival)
        else:
            answer = TxRefusedError(
                f"every peer that received the transaction rejected it: {told}", tuple(own.refused.items())
            )
        self.answer(own, answer)
        if txid in books.unconfirmed.pending:
            self._context.out.emit(*books.abandon(txid, refused=True))
            self.look_at(own)
        return True

    def answer(self, own: OwnTx, answer: Broadcast | Exception) -> None:
        """The answer to the call that waits, if one does."""
        if own.is_called:
            own.is_called = False
            self._context.out.answer(own.tx.txid, answer)


def _name(txid: bytes | None) -> str:
    return "another transaction" if txid is None else hash_to_hex(txid)


def shorten(told: dict[str, None] | dict[str, str]) -> None:
    """Keep the latest peers only."""
    while len(told) > MAX_TOLD:
        del told[next(iter(told))]
