"""WalletLink: the link between an Electrum server and a light client, which finds the facts that sessions ask for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from spvfilter.electrum.headerproofs import HeaderProofs
from spvfilter.electrum.histories import Histories
from spvfilter.electrum.knownscripts import KnownScripts, derived
from spvfilter.electrum.limits import ElectrumLimits
from spvfilter.electrum.questions import (
    Answer,
    ExploreScript,
    FetchBranch,
    FindReserved,
    FindTransaction,
    PrepareProof,
    SendTransactions,
)
from spvfilter.electrum.rpcerrors import RpcCode, RpcError
from spvfilter.electrum.session import Notice, WalletState
from spvfilter.errors import (
    EventGapError,
    FormatError,
    InexpressibleError,
    KeychainError,
    ParameterError,
    PeerError,
    TxCheckError,
    TxConflictError,
    TxRefusedError,
)
from spvfilter.kernel import block_txids
from spvfilter.light.client import LightClient
from spvfilter.light.steps import in_steps
from spvfilter.light.stream import EventStream
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE
from spvfilter.store.txcheck import CheckWeight
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import (
    BlockConnected,
    BlockDisconnected,
    MatchConfirmed,
    MatchFound,
    MatchUnconfirmed,
    MatchWithdrawn,
    RunStarted,
    TxReplaced,
    WalletEvent,
)
from spvfilter.watch.keychain import Keychain
from spvfilter.wire.merkle import merkle_branch

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
LOOK_S = 1.0
"""Seconds after which the link checks for a new tip even if no wallet event has arrived (our choice)."""
_MAX_BLOCKS = 4
"""Largest number of blocks that are fetched for sessions at the same time (our choice)."""
_RESERVED_READS = 3
"""Largest number of times that a request reads the reserved outpoints because the histories change (our choice)."""
_DEFAULT_FEE = 1_000
"""Lowest fee rate if no peer announces one, in satoshi per 1,000 virtual bytes (Core DEFAULT_MIN_RELAY_TX_FEE)."""
_MatchEvent = (MatchFound, MatchConfirmed, MatchUnconfirmed, MatchWithdrawn)


class WalletLink:
    """Keeps the histories of a running client's scripts in memory, and answers the questions of sessions."""

    def __init__(self, client: LightClient, limits: ElectrumLimits, hosts: dict[str, dict[str, int]]) -> None:
        """Link to a client. Raises NotRunningError unless the client is running."""
        self._client = client
        self._limits = limits
        chain = client.chain
        self.state: WalletState = WalletState(
            chain, Histories(), KnownScripts(), HeaderProofs(chain), self._relay_fee, hosts
        )
        self.encoded: dict[tuple[bytes, Notice], bytes] = {}
        """Latest notifications about scripts, keyed by the variant of JSON-RPC. Each is encoded once for all
        sessions.
        """
        self._exploring = asyncio.Lock()
        self._fetching = asyncio.Semaphore(_MAX_BLOCKS)
        self._fetches: dict[bytes, asyncio.Task[list[bytes]]] = {}  # txids in each block, keyed by block hash
        self._wake = asyncio.Event()
        self._events: EventStream | None = None  # the stream that `_read_events` reads
        self._is_updating = self._has_ended = False
        self._updates = 0  # number of updates that have ended
        self._updated = asyncio.Condition()  # notified after each check for changes, and at the end
        self._txids: dict[bytes, None] = {}  # transactions that events have named
        self._is_gap = False
        self._has_block = self._has_reorg = False  # an event has connected a block, or disconnected one

    def _relay_fee(self) -> int:
        floor = self._client.fee_floor()
        return _DEFAULT_FEE if floor is None else floor.rate

    # Following the wallet

    async def load(self) -> int:
        """Read all transactions in the database, and return the number of the last event that they include."""

        found = await self._client.effects()
        await asyncio.to_thread(self.state.histories.replace, found)  # no session uses them yet
        await self._look()
        return found.sequence

    async def _look(self) -> None:
        """Update the known scripts from the watch list."""
        await in_steps(self.state.scripts.update(self._client.watch))

    async def follow(self, tell: Callable[[Collection[str]], Awaitable[None]], since: int) -> None:
        """Follow the events of the client, and call `tell` with the script hashes that may have changed.

        `tell` is also called without script hashes if the tip may have changed. The method returns when the client is
        closed. If an error ended the client, that error is raised.

        Args:
            tell: Function that passes the changes to the sessions.
            since: Number of the last event that `load` included.
        """
        reading = asyncio.create_task(self._read_events(since))
        tip = self.state.chain.tip_hash
        try:
            while not reading.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._wake.wait()
                await self._look()
                changed = await self._update() if self._wake.is_set() else set()
                await self._tell_updated()
                if changed or self.state.chain.tip_hash != tip:
                    tip = self.state.chain.tip_hash
                    self.encoded.clear()
                    await tell(changed)
            await reading
        finally:
            tasks = [reading, *self._fetches.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._has_ended = True
            await self._tell_updated()

    @property
    def is_current(self) -> bool:
        """True if the histories include all of the client's events so far."""
        is_read = self._events is not None and self._events.is_current
        return self._has_ended or (is_read and not self._wake.is_set() and not self._is_updating)

    async def catch_up(self) -> None:
        """Wait until the histories include all of the client's events up to this call."""
        if self.is_current:
            return
        await asyncio.sleep(0)  # `_read_events` reads all available events before it waits
        enough = self._updates + 1 + self._is_updating  # the current update may have begun before the last event
        async with self._updated:
            await self._updated.wait_for(lambda: self._updates >= enough or self.is_current)

    async def _tell_updated(self) -> None:
        async with self._updated:
            self._updated.notify_all()

    async def _read_events(self, since: int) -> None:
        while True:
            try:
                self._events = self._client.events(since=since)
                async for event in self._events:
                    if isinstance(event, _MatchEvent):
                        self._txids[event.match.txid] = None
                    elif isinstance(event, TxReplaced):
                        self._txids[event.txid] = None
                    if isinstance(event, WalletEvent):
                        # numbers are missing within a run if the database has dropped events from a flood
                        self._is_gap |= event.sequence > since + 1 and not isinstance(event, RunStarted)
                        self._has_block |= isinstance(event, BlockConnected)
                        self._has_reorg |= isinstance(event, BlockDisconnected)
                        since = event.sequence
                        self._wake.set()
                return
            except EventGapError as gap:  # the stream lags behind, so read everything again
                since, self._is_gap = gap.sequence, True
            finally:
                self._wake.set()

    async def _update(self) -> set[str]:
        """Read the transactions that events have named, and their unconfirmed children.

        Returns the script hashes that may have changed.
        """
        self._wake.clear()
        named, self._txids = self._txids, {}
        has_block, has_reorg = self._has_block, self._has_reorg
        self._has_block = self._has_reorg = False
        self._is_updating = True
        try:
            if self._is_gap:
                self._is_gap = False
                return self.state.histories.replace(await self._client.effects())
            txids = self.state.histories.affected(named, has_block=has_block, has_reorg=has_reorg)
            return self.state.histories.replace(await self._client.effects(txids), txids) if txids else set()
        finally:
            self._is_updating = False
            self._updates += 1

    # Questions of sessions

    async def settle(self, answer: Answer) -> object:
        """Answer a method's questions until it returns its answer. Raises RpcError."""
        while True:
            match answer:
                case ExploreScript(script_hash, then):
                    await self._explore(script_hash)
                    answer = then()
                case FindTransaction(txid, found):
                    answer = found(await self._client.proof(txid))
                case FindReserved(then):
                    answer = then(await self._reserved())
                case FetchBranch(height, txid, proved):
                    answer = proved(*await self._branch(height, txid))
                case PrepareProof(checkpoint, then):
                    await in_steps(self.state.proofs.prepare(checkpoint))
                    # again, because there may have been a reorganization in the meantime
                    for _ in self.state.proofs.prepare(checkpoint):
                        pass
                    answer = then()
                case SendTransactions(raws, host, sent):
                    answer = sent(await self._send(raws, host))
                case _:
                    return answer

    async def _reserved(self) -> Collection[bytes]:
        """Find the reserved outpoints as of the histories.

        If a block has just confirmed a spend, its coin is no longer reserved, but the histories must show the spend.
        """
        for _ in range(_RESERVED_READS):
            updates = self._updates
            found = frozenset(map(bytes, await self._client.reserved()))
            if self.is_current and self._updates == updates:
                break
            await self.catch_up()
        return found

    async def _branch(self, height: int, txid: bytes) -> tuple[int, bytes]:
        """Get a transaction's position in its block, and its merkle branch, from a peer. Raises RpcError.

        Requests for the same block share one download, and the branches of all the wallet's transactions in it are
        stored.
        """
        block_hash = self.state.chain.hash_at(height)
        fetching = self._fetches.get(block_hash)
        if fetching is None:
            fetching = self._fetches[block_hash] = asyncio.create_task(self._fetch(block_hash))
            fetching.add_done_callback(lambda _: self._fetches.pop(block_hash))
        try:
            txids = await asyncio.shield(fetching)  # other sessions get it even if this one ends
        except (TimeoutError, ParameterError):
            raise RpcError(RpcCode.NOT_FOUND, f"no peer has sent block {height} in time: try again") from None
        if txid not in txids:
            raise RpcError(RpcCode.NOT_FOUND, f"transaction {hash_to_hex(txid)} has left block {height}")
        position = txids.index(txid)
        return position, merkle_branch(txids, position)

    async def _fetch(self, block_hash: bytes) -> list[bytes]:
        """Fetch a block, store the merkle branches of the wallet's transactions in it, and return its txids."""
        async with asyncio.timeout(self._limits.block_timeout_s), self._fetching:
            raw = await self._client.fetch_block(block_hash)
        await self._client.store_proofs(raw)
        joined = block_txids(raw)
        return [joined[at : at + HASH_SIZE] for at in range(0, len(joined), HASH_SIZE)]

    async def _send(self, raws: Sequence[bytes], host: str) -> list[str | None]:
        """Broadcast transactions together, parents first. For each, return why it was not sent, or None if it was.

        A transaction counts as sent if a peer has requested or announced it. If no peer does so in time, none can have
        it, so it is abandoned.
        """
        *parents, last = transactions = [Transaction.parse(raw) for raw in raws]
        known = set(filter(self._client.is_sending, (tx.txid for tx in transactions)))
        try:
            async with asyncio.timeout(self._limits.broadcast_timeout_s):
                await self._client.relay(last, parents=parents, guest=host)
        except TxCheckError as error:
            if not parents:
                return [str(error)]
            found = await self._client.check(last, parents=parents)
            grave = {each.txid: each.message for each in found if each.weight is not CheckWeight.WARNING}
            return [(grave or {last.txid: str(error)}).get(tx.txid) for tx in transactions]
        except (TxRefusedError, TxConflictError, FormatError, ParameterError) as error:
            is_sent = self._client.is_sending
            return [*(None if is_sent(tx.txid) else str(error) for tx in parents), str(error)]
        except (TimeoutError, PeerError):
            pass  # no verdict yet
        finally:
            if parents:  # no event names transactions without a match
                self._txids |= {parent.txid: None for parent in parents}
                self._wake.set()
        return [await self._unsent(tx, is_known=tx.txid in known) for tx in reversed(transactions)][::-1]

    async def _unsent(self, tx: Transaction, *, is_known: bool) -> str | None:
        """Abandon a transaction without a verdict and return why it was not sent, or return None if a peer may have it.

        The client keeps announcing a transaction that it was announcing before (`is_known`).
        """
        if not is_known and await self._client.abandon_unsent(tx.txid):
            return "not sent: no peer requested it in time, and it was abandoned. Connect to a node and send it again"
        if lacking := self._client.missing_parents(tx.txid):
            named = ", ".join(map(hash_to_hex, lacking))
            return f"a peer received it, but does not know the transaction that it spends from: {named}"
        return None

    async def _explore(self, script_hash: str) -> None:
        """Search the scripts past the keychain windows for a script hash, and move its keychain's window that far."""
        scripts = self.state.scripts
        async with self._exploring:
            await in_steps(scripts.update(self._client.watch))
            if script_hash in scripts:
                return
            for keychain, first, last in self._to_derive():
                try:
                    found = await asyncio.to_thread(derived, keychain, first, last)
                except KeychainError as error:
                    _LOG.debug("more scripts of a keychain cannot be derived: %s", error)
                    found = []
                scripts.take_derived(keychain.name, first, found)
            place = scripts.find(script_hash)
            if place is not None:
                try:
                    await self._client.watch_to(place.keychain, place.index)
                    _LOG.debug("keychain %s: its window moves to index %d", place.keychain, place.index)
                except (InexpressibleError, ParameterError) as error:
                    _LOG.warning("the window of a keychain cannot move: %s", error)
                await in_steps(scripts.update(self._client.watch))
        if script_hash not in scripts and scripts.note_unknown(script_hash):
            _LOG.debug("script hash %s belongs to no keychain and no entry", script_hash)
            if str(scripts.unknown_count).strip("0") == "1":  # the first, the tenth, the hundredth
                _LOG.info("unknown script hashes: %d. Add the wallet's file to the watch list", scripts.unknown_count)

    def _to_derive(self) -> list[tuple[Keychain, int, int]]:
        return self.state.scripts.to_derive(self._client.watch.keychains)
