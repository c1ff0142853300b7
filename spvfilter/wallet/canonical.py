"""Canonical transactions: which transactions count toward the balance, as a pure function of the records about them.

Six rules decide. The first rule that applies to a transaction gives its verdict. The family of a transaction consists
of the transaction itself and its known unconfirmed ancestors.

1. A transaction that a block of the best chain contains is confirmed. Its known ancestors are confirmed through it.
   Confirmed transactions claim their inputs.
2. A coinbase that is not confirmed, and a transaction that no block can contain, are conflicted with their descendants.
   No block can contain a transaction with a fault of its own, or a family that spends an outpoint twice. A spend of
   an output that the known parent does not have is also a fault.
3. A transaction that spends an input claimed by rule 1, and its descendants, are conflicted.
4. A dropped transaction and its descendants are inactive. A broadcast of the transaction after the drop revives it. A
   later observation also revives it, unless the user abandoned it. Nothing that happens to a child revives its parent.
5. A foreign transaction waits until there is evidence for it or for one of its known descendants. Until then, it
   replaces nothing.
6. The other transactions are taken by descending rank, each with its family. If no canonical transaction outside the
   family spends an input of the family, the whole family is canonical. Otherwise the transaction is replaced. If it is
   the wallet's own and lost only because no peer has requested it yet, it waits, with its parents that the wallet
   broadcast.

An input whose parent is unknown conflicts with nothing but another spend of it.

Ranks, from high to low, with equal ranks decided by txid:

- the wallet's own transactions that a peer requested or announced, the latest broadcast first: a peer may replay any
  older version that was signed, so no foreign transaction outranks them
- the wallet's other transactions, the latest broadcast first
- foreign transactions with valid signatures for our coins, the latest observation first
- other foreign transactions that were observed in a mempool, the latest observation first
- transactions that were found only in stale blocks, the greatest height first
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import StrEnum
from itertools import chain
from math import inf
from typing import NamedTuple

from spvfilter.protocol import HASH_SIZE
from spvfilter.wallet.txgraph import Anchor, Component, DropReason, Signatures, TxRecord, creator, is_missing


class Status(StrEnum):
    """Whether a transaction counts toward the balance and, if not, why."""

    CONFIRMED = "confirmed"
    """A block of the best chain contains it, or contains a descendant of it."""
    CANONICAL = "canonical"
    """It is unconfirmed and counts toward the balance."""
    REPLACED = "replaced"
    """A canonical transaction conflicts with it or with one of its ancestors. A block may still contain it."""
    CONFLICTED = "conflicted"
    """No block on the current best chain can contain it, because of a confirmed transaction or rule 2."""
    ABANDONED = "abandoned"
    """Inactive: the user abandoned it or one of its ancestors."""
    REJECTED = "rejected"
    """Inactive: peers rejected it or one of its ancestors."""
    EXPIRED = "expired"
    """Inactive: it or one of its ancestors remained unconfirmed for 336 hours."""
    WAITING = "waiting"
    """It does not count yet. A foreign transaction waits for evidence; one of our own, for a peer's request."""


class Verdict(NamedTuple):
    """The status of a transaction, given the best chain."""

    status: Status
    """Whether the transaction counts and, if not, why."""
    conflicts_with: bytes | None = None
    """Txid of the confirmed or canonical transaction that conflicts with it or with one of its ancestors.

    If one of them spends an output that its confirmed parent does not have, it is the txid of that parent. Among
    several canonical transactions, it is the first that rule 6 chose. None if the transaction is confirmed, canonical
    or inactive, conflicted by rule 2, or waiting by rule 5."""

    @property
    def counts(self) -> bool:
        """True if an unconfirmed transaction with this verdict counts toward the balance."""
        return self.status in (Status.CANONICAL, Status.CONFIRMED)


_INACTIVE = {
    DropReason.ABANDONED: Status.ABANDONED,
    DropReason.REJECTED: Status.REJECTED,
    DropReason.EXPIRED: Status.EXPIRED,
}


def canonical(component: Component, best_chain: Container[Anchor]) -> dict[bytes, Verdict]:
    """Return the verdict on each record of a component, keyed by txid.

    The result does not depend on the order of the records. Several components may be given as one. Work is linear in
    the inputs of the records, with two exceptions. Rule 2 joins sets of bits along the inputs, one bit for each record
    that shares an outpoint with another record. Rule 6 sorts the records.

    Args:
        component: The records, and the confirmed spenders of outpoints that they spend or create.
        best_chain: The best chain, which contains some of the records' anchors.
    """
    if not component.records:  # the only entry that the records matched was removed
        return {}
    judgement = _Judgement(component)
    judgement.confirm(best_chain)
    judgement.rule_out()
    judgement.defer()
    judgement.choose()
    return judgement.verdicts


class _Judgement:
    """The verdicts reached so far on one component. Its four methods apply the six rules in order."""

    def __init__(self, component: Component) -> None:
        self.verdicts: dict[bytes, Verdict] = {}
        self._claims = dict(component.border)  # outpoint → txid of the confirmed transaction that spends it
        self._records = component.records
        self._parents: dict[bytes, list[bytes]] = {}  # of records, among the records
        self._children: dict[bytes, list[bytes]] = {txid: [] for txid in self._records}
        self._shared: dict[bytes, list[bytes]] = {}  # outpoint that several records spend → their txids
        self._missing: dict[bytes, bytes] = {}  # outpoint that its creator does not have → txid of the creator
        spender: dict[bytes, bytes] = {}  # outpoint → txid of one record that spends it
        for txid, record in self._records.items():
            parents = dict.fromkeys([creator(outpoint, self._records) for outpoint in record.inputs])
            self._parents[txid] = [parent for parent in parents if parent is not None]
            for parent in self._parents[txid]:
                self._children[parent].append(txid)
            for outpoint in record.inputs:
                if is_missing(outpoint, self._records):
                    self._missing[outpoint] = outpoint[:HASH_SIZE]
                if (other := spender.setdefault(outpoint, txid)) != txid:
                    txids = self._shared.setdefault(outpoint, [other])
                    if txids[-1] != txid:
                        txids.append(txid)
        self._order = self._parents_first()

    def _parents_first(self) -> list[bytes]:
        """Return all txids, each after its parents."""
        missing = {txid: len(parents) for txid, parents in self._parents.items()}
        order = [txid for txid, count in missing.items() if not count]
        for txid in order:  # the list grows during the loop
            for child in self._children[txid]:
                missing[child] -= 1
                if not missing[child]:
                    order.append(child)
        return order

    # Rule 1

    def confirm(self, best_chain: Container[Anchor]) -> None:
        """Confirm the transactions in the best chain and their ancestors."""
        spent_in_block = {creator(outpoint, self._records) for outpoint in self._claims}
        for txid in reversed(self._order):
            record = self._records[txid]
            is_parent = txid in spent_in_block or any(child in self.verdicts for child in self._children[txid])
            if is_parent or record.is_anchored(best_chain):
                self.verdicts[txid] = Verdict(Status.CONFIRMED)
                for outpoint in record.inputs:
                    # in an invalid chain two transactions may claim it: the lower txid gets it
                    self._claims[outpoint] = min(txid, self._claims.get(outpoint, txid))
        for outpoint in [each for each, txid in self._missing.items() if txid in self.verdicts]:
            self._claims.setdefault(outpoint, self._missing.pop(outpoint))

    # Rules 2, 3 and 4

    def rule_out(self) -> None:
        """Find conflicted and inactive transactions."""
        impossible = self._impossible()
        for txid in self._order:
            if txid not in self.verdicts:
                verdict = Verdict(Status.CONFLICTED) if txid in impossible else self._ruled_out(txid)
                if verdict is not None:
                    self.verdicts[txid] = verdict

    def _ruled_out(self, txid: bytes) -> Verdict | None:
        """Return the verdict that rule 3, rule 4 or a parent gives a transaction, or None. Judge its parents first."""
        for outpoint in self._records[txid].inputs:
            if outpoint in self._claims:
                return Verdict(Status.CONFLICTED, self._claims[outpoint])
        verdicts = [self.verdicts[parent] for parent in self._parents[txid] if parent in self.verdicts]
        for verdict in verdicts:
            if verdict.status is Status.CONFLICTED:
                return verdict
        if (reason := self._records[txid].active_drop) is not None:
            return Verdict(_INACTIVE[reason])
        return next((verdict for verdict in verdicts if verdict.status is not Status.CONFIRMED), None)

    def _impossible(self) -> set[bytes]:
        """Return the transactions that no block can contain, because of a fault or of their family's inputs.

        A set of transactions is an integer with one bit for each transaction that shares an outpoint with another.
        """
        sharing = dict.fromkeys(txid for txids in self._shared.values() for txid in txids)
        bits = {txid: 1 << number for number, txid in enumerate(sharing)}
        masks = {outpoint: sum(bits[txid] for txid in txids) for outpoint, txids in self._shared.items()}
        family, conflicting = dict[bytes, int](), dict[bytes, int]()
        found = set[bytes]()
        for txid in self._order:
            if txid in self.verdicts:
                continue
            record = self._records[txid]
            members = bits.get(txid, 0)
            conflicts = 0  # transactions that spend an outpoint that the family also spends
            for outpoint in record.inputs if members else ():
                conflicts |= masks.get(outpoint, 0) & ~members
            for parent in self._parents[txid]:
                members |= family.get(parent, 0)
                conflicts |= conflicting.get(parent, 0)
            family[txid], conflicting[txid] = members, conflicts
            has_fault = record.fault is not None or not self._missing.keys().isdisjoint(record.inputs)
            if has_fault or members & conflicts:
                found.add(txid)
        return found

    # Rule 5

    def defer(self) -> None:
        """Make transactions wait if there is no evidence for them."""
        supported = set[bytes]()
        for txid in reversed(self._order):
            if self._records[txid].has_evidence or any(child in supported for child in self._children[txid]):
                supported.add(txid)
            elif txid not in self.verdicts:
                self.verdicts[txid] = Verdict(Status.WAITING)

    # Rule 6

    def choose(self) -> None:
        """Choose canonical transactions from among the rest, by rank."""
        waiting = [txid for txid in self._order if txid not in self.verdicts]
        replaced_by, rivals = dict[bytes, bytes](), dict[bytes, list[bytes]]()
        for txid in sorted(waiting, key=lambda txid: _rank(self._records[txid]), reverse=True):
            if txid not in replaced_by:
                for member in self._undecided(txid, self._parents):
                    self.verdicts[member] = Verdict(Status.CANONICAL)
                    shared = (self._shared.get(outpoint, ()) for outpoint in self._records[member].inputs)
                    for spender in dict.fromkeys(chain.from_iterable(shared)):
                        if spender not in self.verdicts:
                            rivals.setdefault(spender, []).append(member)
                            lost = self._undecided(spender, self._children, replaced_by)
                            replaced_by |= dict.fromkeys(lost, member)
        contested = self._contested(replaced_by, rivals)
        for txid, by in replaced_by.items():
            self.verdicts[txid] = Verdict(Status.WAITING if txid in contested else Status.REPLACED, by)

    def _contested(self, lost: Container[bytes], rivals: Mapping[bytes, list[bytes]]) -> set[bytes]:
        """Return our transactions that lost only to earlier broadcasts that peers have requested, and their parents.

        Args:
            lost: The transactions that lost.
            rivals: The canonical transactions that conflict with each of them.
        """
        latest = dict[bytes, float]()  # latest broadcast of each canonical transaction and its canonical descendants
        for txid in reversed(self._order):
            verdict = self.verdicts.get(txid)
            if verdict is not None and verdict.status is Status.CANONICAL:
                numbers = [latest[child] for child in self._children[txid] if child in latest]
                latest[txid] = max([self._records[txid].broadcast_seq or 0, *numbers])
        order = [txid for txid in self._order if txid in lost]
        against, found = dict[bytes, float](), set[bytes]()
        for txid in order:
            numbers = [latest[each] or inf for each in rivals.get(txid, ())]
            against[txid] = max([0, *numbers, *(against.get(parent, 0) for parent in self._parents[txid])])
        for txid in reversed(order):
            record = self._records[txid]
            is_later = record.is_own and not record.was_requested and (record.broadcast_seq or 0) > against[txid]
            if is_later or any(child in found for child in self._children[txid]):
                found.add(txid)
        return {txid for txid in found if self._records[txid].is_own}

    def _undecided(
        self, txid: bytes, relatives: Mapping[bytes, list[bytes]], known: Container[bytes] = ()
    ) -> list[bytes]:
        """Return a transaction and its ancestors or descendants, leaving out any that are `known` or already judged."""
        found = [each for each in (txid,) if each not in self.verdicts and each not in known]
        met = set(found)
        for each in found:  # the list grows during the loop
            for relative in relatives[each]:
                if relative not in self.verdicts and relative not in known and relative not in met:
                    met.add(relative)
                    found.append(relative)
        return found


def _rank(record: TxRecord) -> tuple[int, int, bytes]:
    """Return the rank of a transaction for rule 6. No two transactions have the same rank."""
    if record.broadcast_seq is not None:
        return 4 if record.was_requested else 3, record.broadcast_seq, record.txid
    if record.last_seen:
        return 2 if record.signatures is Signatures.VALID else 1, record.last_seen, record.txid
    return 0, max((anchor.height for anchor in record.anchors), default=-1), record.txid
