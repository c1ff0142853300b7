"""Test transactions outside blocks against a BIP-37 filter, to find the transactions that a node would send for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import FormatError
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.primitives import hash_to_hex, to_bytes
from spvfilter.scan.threadwork import to_its_end
from spvfilter.scan.transactions import AT_ONCE, EACH, RawTransactions, each_of
from spvfilter.transaction import Transaction


@public
class RelevantTx(NamedTuple):
    """A transaction in a stream. It is malformed, or a node would send it to a client with this BIP-37 filter."""

    number: int
    """Position of the transaction in the source, starting at 0."""
    raw: bytes
    """The serialized transaction, as it arrived."""
    error: FormatError | None = None
    """The error in the transaction if it is malformed, or None."""

    @property
    def txid(self) -> bytes:
        """The txid of the transaction, 32 bytes in wire order. Raises FormatError if the transaction is malformed."""
        return Transaction.parse(self.raw).txid

    @property
    def txid_hex(self) -> str:
        """The txid of the transaction in display order, as hex. Raises FormatError if the transaction is malformed."""
        return hash_to_hex(self.txid)


@public
async def relevant_txs(
    bloom: Bip37Filter, source: RawTransactions, *, strict: bool = False
) -> AsyncGenerator[RelevantTx]:
    """Yield the transactions of a source that a node would send for this BIP-37 filter, in order of arrival.

    Each yielded transaction updates the filter, as the filter's flags say, before the next transaction is tested (Core
    bloom.cpp IsRelevantAndUpdate).

    The next transaction is taken from the source when the caller asks for the next result. With the compiled kernel,
    the event loop runs at least once per millisecond of work. A thread tests transactions larger than 64 kB.

    Args:
        bloom: The filter, which is updated. Do not change it yourself until the iteration ends.
        source: An iterable or asynchronous iterable of raw transactions, or of objects that serialize to them. An
            iterable that waits, such as a pipe, stops the event loop.
        strict: True to raise FormatError for a malformed transaction. By default, such a transaction yields a result
            with an `error`.

    Raises:
        FormatError: A transaction is malformed, and `strict` is True.
    """
    number = work = 0
    async with aclosing(each_of(source)) as arriving:
        async for item in arriving:
            raw = to_bytes(item)
            work += len(raw) + EACH
            if work > AT_ONCE:
                work = 0
                await asyncio.sleep(0)
            error = None
            try:
                test = bloom.matches_tx
                is_relevant = test(raw) if len(raw) <= AT_ONCE else await to_its_end(test, raw)
            except FormatError as caught:
                if strict:
                    raise
                error = caught.with_traceback(None)
            if error is not None or is_relevant:
                yield RelevantTx(number, raw, error)
            number += 1
