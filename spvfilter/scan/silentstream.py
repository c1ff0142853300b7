"""Silent payments in a stream of unconfirmed transactions. A node supplies the outputs that the transactions spend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from spvfilter.kernel import silent_candidate
from spvfilter.primitives import TxOut
from spvfilter.scan.order import ScanReport
from spvfilter.watch.silentsearch import scripts_of_tx
from spvfilter.watch.watchlist import WatchList

SpentBy = Callable[[bytes], Awaitable[Sequence[TxOut] | None]]
"""An asynchronous function that returns the outputs that a transaction spends, or None if they are not known."""


class SilentStream:
    """The search of one stream for silent payments.

    Args:
        watch: The watch list, to which the scripts of payments are added.
        spent: Function that returns the outputs that a transaction spends, or None if there is no such function.
        report: The report in which candidates are counted.
    """

    def __init__(self, watch: WatchList, spent: SpentBy | None, report: ScanReport) -> None:
        self._watch = watch
        self._spent = spent
        self._report = report

    async def look_at(self, raw: bytes) -> None:
        """Watch the scripts of a transaction's silent payments. A thread does the arithmetic, which may take seconds.

        Raises FormatError if the transaction is malformed, or if `spent` returns a different number of outputs.
        """
        if silent_candidate(raw, 0, None)[1] is None:  # most transactions: no taproot output, or no eligible input
            return
        spent = None if self._spent is None else await self._spent(raw)
        scripts = None if spent is None else scripts_of_tx(raw, spent)
        # again, for labels that were revealed in the meantime
        search = await asyncio.to_thread(self._watch.silent_search)
        if search is None:
            return
        judged = await asyncio.to_thread(search.tx, raw, scripts)
        self._report.candidates += judged.candidates
        self._report.unjudged += judged.unjudged
        self._watch.add_payments(search.payments(judged))
