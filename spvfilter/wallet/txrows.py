"""TxRows: writes complete rows of transactions, computed from facts, matches and verdicts."""

from __future__ import annotations

from collections.abc import Iterable

from spvfilter.wallet.changes import Changes
from spvfilter.wallet.facts import Facts
from spvfilter.wallet.hits import Hits
from spvfilter.wallet.judgement import Judgement
from spvfilter.wallet.rows import row_of


class TxRows:
    """Writes the rows of transactions."""

    def __init__(self, facts: Facts, hits: Hits, judgement: Judgement, changes: Changes) -> None:
        self._facts = facts
        self._hits = hits
        self._judgement = judgement
        self._changes = changes

    def write(self, txid: bytes) -> None:
        """Write a transaction's complete row."""
        facts, judgement = self._facts, self._judgement
        judgement.note_own(txid)
        record, verdict, status = facts.record(txid), judgement.verdict(txid), judgement.status(txid)
        if record is None or verdict is None or status is None:
            return
        hits, anchor = self._hits.of(txid), record.anchor_in(facts.best)
        is_found = anchor is not None and facts.confirmed.has_tx(txid)
        is_listed = record.is_own or is_found or (record.has_evidence and bool(hits))
        row = row_of(record, status, verdict.conflicts_with, anchor, tuple(hits.values()), is_listed=is_listed)
        self._changes.put_tx(txid, row)

    def write_all(self, txids: Iterable[bytes]) -> None:
        """Write the complete rows of these transactions."""
        for txid in txids:
            self.write(txid)
