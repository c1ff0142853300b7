"""Hits: the matches of unconfirmed transactions, found through the watch table and through unconfirmed outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from spvfilter.kernel import NO_VALUE, Hit
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.protocol import HASH_SIZE
from spvfilter.transaction import Transaction
from spvfilter.wallet.confirmed import Identity, identity
from spvfilter.wallet.facts import Facts
from spvfilter.wallet.txgraph import TxRecord
from spvfilter.watch.index import TxOutIndex

NO_HITS: Mapping[Identity, Hit] = {}


class Hits:
    """The matches of unconfirmed transactions.

    Here, the watch table learns the outputs of the wallet's own transactions. Foreign unconfirmed transactions never
    change the table.
    """

    def __init__(self, watch: TxOutIndex, facts: Facts) -> None:
        self._watch = watch
        self._facts = facts
        self._hits: dict[bytes, dict[Identity, Hit]] = {}  # by txid

    def of(self, txid: bytes) -> Mapping[Identity, Hit]:
        """Return the matches of an unconfirmed transaction."""
        return self._hits.get(txid, NO_HITS)

    def is_match(self, txid: bytes) -> bool:
        """True if an unconfirmed transaction matches the watch list."""
        return bool(self._hits.get(txid))

    def items(self) -> Iterator[tuple[bytes, Mapping[Identity, Hit]]]:
        """Yield the txids and the matches of all unconfirmed transactions."""
        yield from self._hits.items()

    def of_entries(self, entries: Collection[int]) -> list[bytes]:
        """Return the txids of the unconfirmed transactions that match one of these entries."""
        return [txid for txid, hits in self._hits.items() if any(hit.entry in entries for hit in hits.values())]

    def match(self, record: TxRecord) -> dict[Identity, Hit]:
        """Return the matches of a transaction, given the watch table and the outputs of unconfirmed transactions."""
        hits = self._watch.table.scan_tx(record.raw)
        spent = {hit.n for hit in hits if hit.spend}
        for n, outpoint in enumerate(record.inputs if record.fault is None else ()):
            parent, index = outpoint[:HASH_SIZE], int.from_bytes(outpoint[HASH_SIZE:], "little")
            made = self._hits.get(parent, NO_HITS).get(Identity(False, parent, index))
            if made is not None and n not in spent:
                hits.append(Hit(True, 0, record.txid, n, outpoint, made.value, made.script, made.entry))
        hits.sort(key=lambda hit: (not hit.spend, hit.n))
        return {identity(hit): hit for hit in hits}

    def enter(self, record: TxRecord, hits: dict[Identity, Hit]) -> None:
        """Store the matches of an unconfirmed transaction. If it is the wallet's own, its outputs are now watched."""
        self._hits[record.txid] = hits
        if record.is_own:
            self._watch.table.learn([hit for hit in hits.values() if not hit.spend])

    def drop(self, txid: bytes) -> None:
        """Forget the matches of a transaction."""
        self._hits.pop(txid, None)

    def replace(self, hits: Mapping[bytes, dict[Identity, Hit]]) -> None:
        """Replace the matches of these transactions, keyed by txid, after entries have been removed."""
        self._hits |= hits

    # Values

    def value_of(self, outpoint: bytes) -> int | None:
        """Return the value of an output in satoshi; None if it is not known."""
        value = self.coin_value(outpoint)
        parent = self._facts.record(outpoint[:HASH_SIZE])
        index = OutPoint.parse(outpoint).index
        if value is not None or parent is None or index >= parent.outputs:
            return value
        return Transaction.parse(parent.raw).outputs[index].value

    def coin_value(self, outpoint: bytes) -> int | None:
        """Return the value of an output in satoshi; None if the watch table does not know it."""
        coin = self._watch.table.coin(outpoint)
        return None if coin is None or coin.value == NO_VALUE else coin.value

    def output(self, outpoint: bytes) -> TxOut | None:
        """Return the output that an outpoint refers to; None if the transaction is unknown or lacks that output."""
        parent, index = self._facts.record(outpoint[:HASH_SIZE]), int.from_bytes(outpoint[HASH_SIZE:], "little")
        return None if parent is None or index >= parent.outputs else Transaction.parse(parent.raw).output(index)
