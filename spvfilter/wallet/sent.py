"""Which of the unconfirmed transactions that were broadcast here the user still wants: of those that spend the same the
one sent last.

What strangers' transactions do has no part in it: anybody may invent one, and miners decide. So a transaction of ours
that counts no more because of theirs is still wanted, and offered; one that the user has replaced is not, though theirs
may keep both from counting.
"""

from __future__ import annotations

from collections.abc import Mapping

from spvfilter.store.ledger import StoredTx, TxStatus
from spvfilter.transaction import Transaction

MAX_ANCESTORS = 100  # unconfirmed ones that are looked at; Core relays nothing with more than 24


class Sent:
    """Ours among `pending`, numbered as they were broadcast: who changes one there tells it by `changed`."""

    def __init__(self, pending: Mapping[bytes, StoredTx], last: int = 0) -> None:
        """`last` is the highest number of an earlier broadcast that may be pending once more."""
        self._pending = pending
        self._inputs: dict[bytes, tuple[bytes, ...]] = {}  # of ours, by txid
        self._last = last
        self._wanted: dict[bytes, None] | None = None  # txids, as they were sent; None: to be found anew
        self._replaced: dict[
            bytes, bytes
        ] = {}  # txid of ours that are not → of one that is and spends what it or its ancestor spends
        self._looked_for: set[bytes] = set()  # txids of the parents and ancestors of ours, pending or not
        for txid, tx in pending.items():
            if tx.own:
                self.changed(txid)

    def __contains__(self, txid: bytes) -> bool:
        """Whether it is there and we broadcast it."""
        return txid in self._inputs

    def next_number(self) -> int:
        """The number of what is broadcast now."""
        self._last += 1
        return self._last

    def changed(self, txid: bytes) -> None:
        """A transaction has come, has gone or was broadcast again."""
        tx = self._pending.get(txid)
        if tx is not None and tx.own:
            self._last = max(self._last, tx.own)
            self._inputs[txid] = tuple(Transaction.parse(tx.raw).inputs)
        elif self._inputs.pop(txid, None) is None and txid not in self._looked_for:
            return
        self._wanted = None

    @property
    def is_found(self) -> bool:
        """Whether none of ours has come or gone since `wanted` was last asked for."""
        return self._wanted is not None

    @property
    def wanted(self) -> Mapping[bytes, None]:
        """The txids of those that the user wants, in the order in which they were sent."""
        if self._wanted is None:
            self._wanted = self._find_wanted()
        return self._wanted

    def replaced_by(self, txid: bytes) -> bytes | None:
        """What was sent after one of ours, is wanted, and spends what that or its ancestor spends; None if that is
        wanted itself.

        Of one whose ancestors spend the same as one another, or as it does, one of these: no block can have it.
        """
        return None if txid in self.wanted else self._replaced.get(txid)

    def replaced_with(self, txid: bytes) -> list[bytes]:
        """Ours that spend what this one spends, were sent before, and are not wanted any more."""
        inputs, number = set(self._inputs[txid]), self._pending[txid].own
        others = (each for each, spent in self._inputs.items() if each != txid and not inputs.isdisjoint(spent))
        return [each for each in others if self._pending[each].own < number and each not in self.wanted]

    def _find_wanted(self) -> dict[bytes, None]:
        """What was sent last is wanted with all of ours that it spends from, whatever was sent between these."""
        spender: dict[bytes, bytes] = {}  # outpoint → txid of what is wanted and spends it
        wanted = set[bytes]()
        self._replaced.clear()
        self._looked_for.clear()
        ours = sorted(self._inputs, key=lambda txid: _place(self._pending, txid))
        for txid in reversed(ours):
            family = self._family(txid) if txid not in wanted and txid not in self._replaced else {}
            for each, inputs in family.items():
                rivals = (spender.get(outpoint, each) for outpoint in inputs if each in self._inputs)
                lost = (self._replaced.get(outpoint[:32], each) for outpoint in inputs)  # with what it spends from
                if (by := next((rival for rival in (*rivals, *lost) if rival != each), None)) is not None:
                    self._replaced[each] = by
            if txid in self._replaced or not family:
                continue
            ancestry = {each: inputs for each, inputs in family.items() if each in self._inputs}
            spent = {outpoint: each for each, inputs in ancestry.items() for outpoint in inputs}
            if (
                by := next((spent[o] for each, inputs in ancestry.items() for o in inputs if spent[o] != each), None)
            ) is not None:
                self._replaced[txid] = by  # they spend the same as one another: no block can have it
                continue
            wanted |= ancestry.keys()
            spender |= spent
        return dict.fromkeys(txid for txid in ours if txid in wanted)

    def _family(self, txid: bytes) -> dict[bytes, tuple[bytes, ...]]:
        """A transaction and what it spends from, directly or through others, parents first, with the outpoints that
        they spend.
        """
        found: dict[bytes, tuple[bytes, ...]] = {}
        ordered: dict[bytes, tuple[bytes, ...]] = {}
        waiting = [txid]
        while waiting:
            each = waiting[-1]
            if each in found or len(found) > MAX_ANCESTORS:
                waiting.pop()
                ordered.update({each: found[each]} if each in found else {})
                continue
            found[each] = inputs = self._inputs.get(each) or tuple(Transaction.parse(self._pending[each].raw).inputs)
            parents = dict.fromkeys(outpoint[:32] for outpoint in inputs)
            self._looked_for.update(parents)
            waiting += (parent for parent in parents if parent in self._pending and parent not in found)
        return ordered


def renumbered(pending: Mapping[bytes, StoredTx]) -> dict[bytes, StoredTx]:
    """Those of ours that need another number, each with it: in databases of earlier versions all have the same."""
    changed, last = dict[bytes, StoredTx](), 0
    for txid in sorted((txid for txid, tx in pending.items() if tx.own), key=lambda txid: _place(pending, txid)):
        last = max(pending[txid].own, last + 1)
        if last != pending[txid].own:
            changed[txid] = pending[txid]._replace(own=last)
    return changed


def _place(pending: Mapping[bytes, StoredTx], txid: bytes) -> tuple[int, bool, bool, int]:
    """Its place among ours; of those with the same number what counts comes last, or what others have replaced."""
    tx = pending[txid]
    rival = pending.get(tx.rival or b"")
    return tx.own, tx.status is TxStatus.PENDING, rival is None or not rival.own, tx.seen or 0
