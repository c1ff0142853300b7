"""Blocks that may double-spend a pending payment to the wallet in a way that a peer's BIP-37 filter can miss."""

from __future__ import annotations

from collections.abc import Sequence

from spvfilter.light.engine.bloomlink import BloomLink
from spvfilter.transaction import Transaction
from spvfilter.wallet.books import Books
from spvfilter.wallet.scanned import ScannedBlock


class DoubleSpends:
    """Other people's pending payments whose double-spends may be missing from a peer's answer.

    A peer's filter matches double-spends of payments that the peer has announced on this connection. The filter lacks
    the inputs of other payments, because these would reveal that the payments are to the wallet.

    The double-spends are looked for only in a rescan. Otherwise, an attacker could make up a payment to an address, and
    the blocks that the client fetches next would reveal whether the address belongs to the wallet.
    """

    def __init__(self, books: Books, link: BloomLink | None, answer: Sequence[ScannedBlock]) -> None:
        """`answer` contains successive blocks. `link` belongs to the peer that sent them; None if the peer is gone."""
        self._judgement = books.judgement
        self._hidden: list[tuple[int, bytes]] = []  # height at first sight, and txid
        if not answer or not books.seeks_double_spends:
            return
        last = answer[-1].height
        pending = [record for record in books.facts.unconfirmed() if record.first_height < last and not record.is_own]
        if not pending:
            return
        made = None if link is None else link.filter
        proved = {Transaction.parse(tx.raw).txid for block in answer for tx in block.txs}
        self._hidden = [
            (record.first_height, record.txid)
            for record in pending
            if record.txid not in proved
            and self._judgement.is_pending(record.txid)
            and (made is None or not all(outpoint in made for outpoint in record.inputs))
        ]

    def may_be_in(self, height: int) -> bool:
        """True if the block at a height may contain a double-spend that is missing from the answer."""
        return any(first < height and self._judgement.is_pending(txid) for first, txid in self._hidden)
