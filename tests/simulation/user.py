"""An active user of a simulated client. It broadcasts often and again, bumps fees, abandons transactions, hands over
payments, and changes labels.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from simulation import oracle
from simulation.keychain import LABEL as KEYCHAIN_LABEL
from simulation.violation import Violation
from spvfilter.kernel import EntryKind
from spvfilter.light.engine.inputs import Abandon
from spvfilter.store.ledger import TxStatus
from spvfilter.store.txcheck import CheckWeight
from spvfilter.transaction import Transaction
from spvfilter.wallet.refusals import check_abandon
from spvfilter.wire.messages.table import Inv, Message, Tx
from support.wallets.storesqlite import sqlite_of

if TYPE_CHECKING:
    from simulation.host import Process
    from simulation.world import World

_KEPT_S = 10.0  # until a request is in the database, unless the process ended meanwhile
_COUNTING = (TxStatus.PENDING, TxStatus.REPLACED)


class User:
    """The broadcasts, abandoned transactions and labels of this user."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self._rng = rng
        self._world = world
        self._sent: dict[bytes, bytes] = {}  # raw transactions, by txid
        self._broadcasts: dict[bytes, Transaction] = {}  # own transactions of all users of this life, by txid
        self._txids: dict[bytes, bytes] = {}  # txids of these, by txid and wtxid
        self._order: dict[
            bytes, Process | None
        ] = {}  # txids in the order of public broadcasts → process that got the request; None once it is stored
        self._private: set[bytes] = set()  # txids that no new peer has received
        # txids of abandoned transactions. They stay abandoned until the user sends them again or a block confirms them.
        self._given_up: set[bytes] = set()
        self._sends = 0
        self._labels = 0

    def schedule(self, duration: float) -> None:
        """Schedule all acts of this user within a number of seconds."""
        kinds = [
            self._send,
            self._send,
            self._send_again,
            self._bump,
            self._bump,
            self._give_up,
            self._give_up,
            self._hand_over,
            self._label,
        ]
        for _ in range(self._rng.randrange(10, 30)):
            at = self._rng.uniform(0, self._rng.choice([30.0, duration, duration]))
            kind = self._rng.choice(kinds)
            self._world.at(at, f"the user: {kind.__name__.strip('_').replace('_', ' ')}", kind)
            if self._rng.random() < 0.3:  # before the answer arrives
                kind = self._rng.choice(kinds)
                self._world.at(
                    at + self._rng.choice([0.0, 0.1, 2.0, 50.0]), f"the user: {kind.__name__.strip('_')}", kind
                )

    # Acts of the user

    def _send(self) -> None:
        if self._world.process is not None and (raw := self._world.truth.spending()) is not None:
            self._broadcast(raw)

    def _send_again(self) -> None:
        if self._sent:
            self._broadcast(self._rng.choice(list(self._sent.values())))

    def _bump(self) -> None:
        """Broadcast a conflicting transaction with a higher fee, which is not always high enough."""
        found = [raw for txid in self._ours() if (raw := self._sent.get(txid)) is not None]
        if found:
            for raw in self._world.truth.bump(
                Transaction.parse(self._rng.choice(found)), self._rng.choice([600, 5_000])
            ):
                self._broadcast(raw)

    def _give_up(self) -> None:
        """Abandon a transaction. If the process is killed before this is stored, the request is lost."""
        process = self._world.process
        if process is None or not (found := self._ours()):
            return
        txid = self._rng.choice(found)
        check_abandon(process.engine.books, txid)
        process.report(Abandon(txid))
        self._world.timeline.after(_KEPT_S, partial(self._check_given_up, process, txid, self._sends))

    def _hand_over(self) -> None:
        """The user receives a payment directly from its sender. No node has it."""
        raw = self._world.truth.handed_over()
        if raw is not None:
            self._broadcast(raw)

    def _label(self) -> None:
        self._labels += 1
        label = self._rng.choice([None, f"label {self._labels}"])
        self._world.relabel(self._rng.choice(sorted(self._world.wishes.watched)), label)

    def _broadcast(self, raw: bytes) -> None:
        """Broadcast as the client does: it refuses a transaction that cannot be canonical."""
        process, txid = self._world.process, oracle.txid(raw)
        if process is None:
            return
        found = process.engine.check([Transaction.parse(raw)])
        if any(each.weight is CheckWeight.INVALID for each in found):
            return
        self._sends += 1
        self._sent[txid] = raw
        self._given_up.discard(txid)
        self._world.broadcast(raw, is_private=self._rng.random() < 0.2)

    def _ours(self) -> list[bytes]:
        """Txids of transactions that can be abandoned."""
        process = self._world.process
        if process is None:
            return []
        books = process.engine.books
        statuses = {each.txid: books.judgement.status(each.txid) for each in books.judgement.own_records()}
        return [txid for txid, status in statuses.items() if status is not None and status.is_open]

    def broadcast(self, raw: bytes, process: Process, *, is_private: bool) -> None:
        """The user gives a transaction to the client."""
        tx, count = Transaction.parse(raw), len(self._broadcasts)
        self._broadcasts[tx.txid] = tx
        self._txids.update({tx.txid: tx.txid, tx.wtxid: tx.txid})
        if not is_private:
            self._private.discard(tx.txid)
        elif len(self._broadcasts) > count:  # its first broadcast
            self._private.add(tx.txid)
        if process.engine.books.facts.anchor(tx.txid) is None:  # otherwise nothing is sent
            self._order.pop(tx.txid, None)
            if not is_private:  # a private broadcast may be refused
                self._order[tx.txid] = process
                self._world.timeline.after(_KEPT_S, partial(self._keep_order, process, tx.txid))

    def _keep_order(self, process: Process, txid: bytes) -> None:
        if self._world.process is process is self._order.get(txid) and not process.disk.waiting:
            self._order[txid] = None

    # Checks

    def announced(self, message: Message, *, is_private: bool) -> None:
        """True: a transaction is stored before it is announced, and no longer announced once the user replaced it.

        A replacement of an accepted transaction takes its place only once a peer requested it.

        Quiet: connected peers learn of a private transaction only after a new peer received it.
        """
        process = self._world.process
        assert process is not None
        if isinstance(message, Tx) and is_private:
            self._private.discard(Transaction.parse(message.raw).txid)
        hashes = [item.hash for item in message.items] if isinstance(message, Inv) else []
        hashes += [Transaction.parse(message.raw).txid] if isinstance(message, Tx) and not is_private else []
        for txid in map(self._txids.get, hashes):
            if txid is not None and process.disk.store.views.transaction(txid) is None:
                raise Violation("true", f"our transaction {txid[::-1].hex()} is announced before it is stored")
            if txid in self._private and not is_private:
                raise Violation("quiet", "a private transaction is announced to a connected peer")
            if txid is not None and (by := self._replaced_by(txid)) is not None and not _is_contested(process, by):
                raise Violation(
                    "true",
                    f"our transaction {txid[::-1].hex()} is offered, which {by[::-1].hex()} replaces, sent later",
                )

    def _replaced_by(self, txid: bytes) -> bytes | None:
        """The txid of a later public broadcast that conflicts with a transaction, or None.

        None also if a descendant of the transaction was broadcast still later.
        """
        process = self._world.process
        assert process is not None
        own, order = self._ours(), list(self._order)
        family, found = {txid}, 1
        while len(family) >= found:  # until the family stops growing
            found = len(family) + 1
            family |= {
                each for each, tx in self._broadcasts.items() if any(outpoint[:32] in family for outpoint in tx.inputs)
            }
        if not family <= self._order.keys():
            return None
        inputs, replaced = set(self._broadcasts[txid].inputs), None
        for each in order[order.index(txid) + 1 :]:
            if each in family:
                replaced = None
            elif self._order[each] not in (process, None) or each not in own:
                continue  # the process ended before the request was stored, or is ending
            elif not inputs.isdisjoint(self._broadcasts[each].inputs):
                replaced = each
        return replaced

    def _check_given_up(self, process: Process, txid: bytes, sends: int) -> None:
        if self._world.process is process and not process.disk.waiting and self._sends == sends:
            self._given_up.add(txid)
            self._check_ended(process, txid)

    def _check_ended(self, process: Process, txid: bytes) -> None:
        known = process.disk.store.views.transaction(txid)
        if self._was_mined(txid):
            return
        if known is None and txid in self._sent:
            raise Violation("true", f"our transaction {txid[::-1].hex()}, which was given up, was forgotten")
        if known is not None and known.status in _COUNTING:
            raise Violation(
                "true", f"our transaction {txid[::-1].hex()}, which was given up, counts again: {known.status}"
            )

    def _was_mined(self, txid: bytes) -> bool:
        truth = self._world.truth
        return any(
            txid in block.txids for block in (*truth.regtest.chain.blocks.values(), *truth.others_blocks.values())
        )

    def ruled_out(self) -> set[bytes]:
        """Txids of mempool transactions that the user abandoned, and of their descendants."""
        process = self._world.process
        assert process is not None
        found = set[bytes]()
        for tx in self._world.truth.regtest.mempool:  # parents first
            known = process.disk.store.views.transaction(tx.txid)
            is_given_up = known is not None and known.status is TxStatus.ABANDONED
            if is_given_up or any(outpoint[:32] in found for outpoint in tx.inputs):
                found.add(tx.txid)
        return found

    def check_end(self) -> None:
        """True: abandoned transactions are not canonical, and every script has its latest label."""
        process, wishes = self._world.process, self._world.wishes
        assert process is not None
        for txid in self._given_up:
            self._check_ended(process, txid)
        stored = dict(
            sqlite_of(process.disk.store).execute(
                "SELECT value, label FROM watch WHERE kind = ?", (int(EntryKind.SCRIPT),)
            )
        )
        for script, given in wishes.labels.items():
            keychain = self._world.keychain  # keychains of accounts have no label
            label = KEYCHAIN_LABEL if given is None and keychain and script in keychain.scripts else given
            told = process.watch.label(process.watch.table.find(EntryKind.SCRIPT, script))
            if (told, stored.get(script)) != (label, label):
                raise Violation(
                    "true",
                    f"the label of {script.hex()} is {told!r}, in the database {stored.get(script)!r}, not {label!r}",
                )


def _is_contested(process: Process, txid: bytes) -> bool:
    """True if a broadcast waits for a peer to request it, because it conflicts with an accepted transaction."""
    books = process.engine.books
    record = books.facts.record(txid)
    return books.judgement.is_waiting(txid) and record is not None and not record.was_requested
