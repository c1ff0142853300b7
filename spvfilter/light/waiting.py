"""Wait for a light client to be synced, for a transaction to be confirmed, or for work to end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from spvfilter.errors import NotConfirmedError, ParameterError
from spvfilter.light.events import Synced
from spvfilter.primitives import hash_of
from spvfilter.store.ledger import TxStatus
from spvfilter.store.views import HistoryEntry

if TYPE_CHECKING:
    from spvfilter.light.running import Running

_MOST_LOGGED = 5  # limit on warnings logged in one wait: with discovery, many addresses do not answer


async def wait_synced(running: Running) -> Synced:
    """Wait until the client is synced, and return the last `Synced` event.

    While waiting, it logs problems with peers, because they may be the cause.
    """
    order, logged = 0, set[tuple[str, str]]()
    while True:
        running.check()
        changed, synced, status = running.hub.changed, running.hub.synced, running.engine.status
        if synced is not None and synced is status.told and status.is_synced(running.now()):
            return synced
        order, warnings = running.hub.warnings(order)
        for warning in warnings:
            said = warning.address, warning.cause
            if said not in logged and len(logged) < _MOST_LOGGED:
                logged.add(said)
                logging.getLogger(__name__).warning("not synced yet: %s: %s", *said)
        await changed.wait()


async def wait_confirmed(running: Running, txid: bytes | str, confirmations: int) -> HistoryEntry:
    """Wait until a transaction has enough confirmations, checking again after each wallet or broadcast event."""
    txid = hash_of(txid, "txid")
    if not isinstance(confirmations, int) or confirmations < 1:
        raise ParameterError(f"confirmations must be at least 1, not {confirmations!r}")
    seen: tuple[int, int] | None = None
    while True:
        running.check()
        changed, told = running.hub.changed, (running.hub.sequence, running.hub.outcomes)
        if told == seen:
            await changed.wait()
            continue
        entry = await running.read(lambda views: views.transaction(txid))
        if entry is not None and entry.confirmations >= confirmations:
            return entry
        if entry is not None and _has_ended(running, entry, confirmations):
            raise NotConfirmedError(txid, entry.status.value, entry.rival)
        seen = told


def _has_ended(running: Running, entry: HistoryEntry, confirmations: int) -> bool:
    """Return True if a transaction has ended, or if a conflicting one has at least `confirmations` confirmations."""
    if entry.status is not TxStatus.CONFLICTED:
        return entry.status in (TxStatus.ABANDONED, TxStatus.EXPIRED, TxStatus.REFUSED)
    chain = running.engine.chain
    height = chain.height_of(entry.block_hash) if entry.block_hash is not None else -1
    return height is not None and chain.height + 1 - height >= confirmations


async def finished(work: Coroutine[None, None, None]) -> None:
    """Wait until work has ended, even if the waiting task is cancelled first.

    Otherwise, a database that is still being closed would keep its lock. Raises the work's error, or else the
    cancellation.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
