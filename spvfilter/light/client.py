"""LightClient: a wallet's eyes on the network, by BIP-37 or compact filters. What it puts together here is worked elsewhere."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from spvfilter._public import deferred, public
from spvfilter.chain import HeaderChain
from spvfilter.errors import InexpressibleError, NotRunningError, ParameterError, UselessPeerError
from spvfilter.filters.bip37 import DEFAULT_FP_RATE
from spvfilter.light.compact import CompactSync, Mode
from spvfilter.light.events import Event, PeerWarning
from spvfilter.light.peers import LOST, Peers, resolve_seeds
from spvfilter.light.remote import Remote
from spvfilter.light.sync import Sync
from spvfilter.network import Network
from spvfilter.p2p.address import Address
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.p2p.proxy import Proxy
from spvfilter.primitives import OutPoint, Serializable, to_bytes
from spvfilter.store.store import MEMORY, Batch, Store
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.ledger import Ledger
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Settings

if TYPE_CHECKING:
    import asyncio
    from concurrent import futures
else:
    futures = deferred("concurrent.futures")
    asyncio = deferred("asyncio")

T = TypeVar("T")
_QUEUE = 1_000  # events that wait for whoever iterates; then the client waits
_MEDIAN_SPAN = 11  # blocks
_TIMESTAMP_WINDOW_S = 7_200  # a block's time may be two hours off


@public
class EventStream:
    """An iterator of events; a wait that is cancelled loses none, and the next one goes on."""

    def __init__(self, take: Callable[[], Awaitable[Event]]) -> None:
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._take()

    async def aclose(self) -> None:
        """Nothing is left open; for contextlib.aclosing."""


@public
class LightClient:
    """Finds every payment to and from a watch list in a live network, now and after every restart.

        async with LightClient(watch, peers=["127.0.0.1:8333"], store="wallet.db") as client:
            async for event in client.events():
                ...

    `watch` learns outpoints, and what the database knows is joined with it. `peers` are HOST, HOST:PORT or [IPV6]:PORT. Without
    `store` everything is forgotten at the end. Blocks are searched from `from_height` or from `birthday` (seconds since 1970) on, the
    first time; later from where the last run ended. `proxy` is socks5://[USER:PASSWORD@]HOST:PORT (extra `socks`), where names of peers
    are resolved too. `discover` asks DNS seeds for peers, never with a proxy. Several peers are kept connected; one is asked for blocks,
    another one serves as its witness.

    `mode` "auto" searches blocks as "compact" where a peer serves compact filters and they can find all that is watched, else as "bip37".

    `mode` "bip37" gives a peer a filter of what is ours. Its results are "unproven": a peer can leave a payment out. With two or more peers
    they are compared, and an omission is told as PeerWarning.

    `mode` "compact" fetches the filters of all blocks (BIP-157), from several peers at once, and blocks that match whole: no peer is told
    what is ours. What two peers agree on is "proven", else it is as true as "1 peer". Where they differ the block judges. `keep_filters`
    keeps the filters in `store` (mainnet: 13 GB), so that a search for new addresses needs no network but for blocks that match; filters
    may be brought there before, too (`spvfilter cfilter import`), and those that the peers' filter headers commit to are not fetched.

    With `mempool` payments are told before they are in a block. In compact mode that takes every transaction that the peers announce
    from then on, on mainnet some 300 MB a day: without it a payment shows once it is in a block.

    Raises ParameterError. Entering raises StoreError, InexpressibleError for entries that the mode cannot find, NotRunningError where it is
    running already.
    """

    def __init__(
        self,
        watch: WatchList,
        *,
        network: Network | str | None = None,
        peers: Iterable[str] = (),
        store: str | os.PathLike[str] | None = None,
        mode: Mode | str = Mode.AUTO,
        keep_filters: bool = False,
        mempool: bool = True,
        fp_rate: float = DEFAULT_FP_RATE,
        from_height: int = 0,
        birthday: int | None = None,
        proxy: str | None = None,
        discover: bool = False,
        max_peers: int = 8,
        rebuild: bool = False,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.network = watch.network if network is None else Network.named(network) if isinstance(network, str) else network
        if self.network != watch.network:
            raise ParameterError(f"the watch list is of {watch.network}, not of {self.network}")
        if isinstance(peers, str):
            raise TypeError("an iterable of peers expected, not one string")
        self._addresses = [Address.parse(peer, self.network.default_port) for peer in peers]
        if discover and proxy is not None:
            raise ParameterError("DNS seeds are not asked through a proxy, which would not hide it: name peers")
        if discover and not self.network.dns_seeds:
            raise ParameterError(f"{self.network} has no DNS seeds: name peers")
        if not self._addresses and not discover:
            raise ParameterError("no peers: name some, or let them be discovered")
        if from_height < 0:
            raise ParameterError(f"from_height is not below 0: {from_height}")
        self.watch = watch
        self._path = MEMORY if store is None else store
        self._rebuild = rebuild
        self.mode = Mode(mode)
        self._keep_filters = keep_filters
        self._mempool = mempool
        self._fp_rate = fp_rate
        self._from_height = from_height
        self._birthday = birthday
        self._proxy = None if proxy is None else Proxy.parse(proxy)
        self._discover = discover
        self._max_peers = max_peers
        self._limits = limits or Limits()
        self._clock = clock or Clock()
        self._events: deque[Event] = deque()
        self._changed = asyncio.Event()  # events came or went, or the end did
        self._task: asyncio.Task[None] | None = None
        self._is_left = False
        self._sending: set[asyncio.Task[None]] = set()
        self._database: futures.ThreadPoolExecutor
        self._sync: Sync
        self._peers: Peers
        self._ledger: Ledger
        self.chain: HeaderChain

    async def __aenter__(self) -> Self:
        if self._task is not None and not self._task.done():
            raise NotRunningError("the client is running already")
        self._database = futures.ThreadPoolExecutor(1, "spvfilter-store")
        try:
            await self._in_database(self._open)
            if self._discover:
                self._addresses += await resolve_seeds(self.network.dns_seeds, self.network.default_port)
        except BaseException:
            await self._close_database()
            raise
        kind = Sync if self.mode is Mode.BIP37 else partial(CompactSync, mode=self.mode, keep_filters=self._keep_filters)
        self._sync = kind(
            self._ledger,
            self.chain,
            self._put,
            self._database,
            fp_rate=self._fp_rate,
            start=self._first_height,
            mempool=self._mempool,
            limits=self._limits,
            clock=self._clock,
        )
        self._peers = self._sync.peers = Peers(
            self._addresses,
            Settings(self.network, relay=self._mempool and self.mode is not Mode.BIP37),
            self.chain,
            self._sync,
            warn=self._warn,
            changed=self._sync.wake,
            most=self._max_peers,
            proxy=self._proxy,
            limits=self._limits,
            clock=self._clock,
        )
        self._is_left = False
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._task is not None
        self._is_left = True
        self._task.cancel()
        try:
            await asyncio.gather(self._task, *self._sending, return_exceptions=True)
        finally:
            await self._close_database()

    def _open(self) -> None:
        """In the database's thread."""
        store = Store.open(self._path, self.network, rebuild=self._rebuild)
        try:
            if store.tip < 0:
                store.commit(Batch(headers=self.network.genesis))
            self.chain = HeaderChain.load(self.network, store.headers(1))
            self._check_expressible(self.watch)  # before it is kept
            self._ledger = Ledger(self.watch, store, self._first_height(self.chain))
            self._check_expressible(self.watch)  # with what the database knew
            if not len(self.watch):
                raise ParameterError("nothing to watch for: neither the watch list nor the database has an entry")
        except BaseException:
            store.close()
            raise

    def _check_expressible(self, watch: WatchList) -> None:
        """Raises InexpressibleError for entries that the mode cannot find."""
        if self.mode is not Mode.BIP37:
            try:
                watch.gcs_elements()
                return
            except InexpressibleError:
                if self.mode is Mode.COMPACT:
                    raise
        watch.bloom_elements()

    async def _in_database(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._database, call)

    async def _close_database(self) -> None:
        def close() -> None:
            if hasattr(self, "_ledger"):
                self._ledger.store.close()

        closing = self._database.submit(close)
        self._database.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(closing))

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._peers.run())
            group.create_task(self._sync.run())

    def _warn(self, address: Address, error: Exception, banned: bool) -> None:
        if len(self._events) < 2 * _QUEUE:  # warnings are not worth waiting for
            self._add_events([PeerWarning(str(address), error, banned)])

    async def _put(self, event: Event) -> None:
        while len(self._events) >= _QUEUE:
            self._changed.clear()
            await self._changed.wait()
        self._add_events([event])

    def _add_events(self, events: Iterable[Event]) -> None:
        self._events.extend(events)
        self._changed.set()

    def _first_height(self, chain: HeaderChain) -> int:
        """Where a new wallet's search begins: at its birthday a block's time may be off by two hours, the median of eleven lags."""
        if self._birthday is None:
            return self._from_height
        low, high = 0, chain.height + 1
        while low < high:  # median times ascend
            middle = (low + high) // 2
            if chain.median_time_at(middle) < self._birthday - _TIMESTAMP_WINDOW_S:
                low = middle + 1
            else:
                high = middle
        return max(low - _MEDIAN_SPAN, self._from_height)

    # What users do

    def events(self) -> EventStream:
        """What happens, in order, until the client is left. Each event is given once, whoever asks for it.

        Raises what ended the client: StoreError, PeerError where every peer lied. NotRunningError before it was entered.
        """
        if self._task is None:
            raise NotRunningError("enter the client first: async with")
        return EventStream(self._next_event)

    async def _next_event(self) -> Event:
        assert self._task is not None
        while not self._events:
            if self._task.done():
                self._raise_end(self._task)
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        self._changed.set()  # there is room
        return self._events.popleft()

    def _raise_end(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if error is not None:
            raise error

    def _check_running(self) -> None:
        if self._task is None or self._is_left:
            raise NotRunningError("enter the client first: async with" if self._task is None else "the client was left")

    async def matches(self) -> list[MatchFound]:
        """Every match there is: those of the best chain, lowest first, then those of the mempool. Raises StoreError, NotRunningError."""
        self._check_running()
        return await self._in_database(lambda: list(self._ledger.matches()))

    @property
    def height(self) -> int:
        """Up to here every block of the best chain was searched. Raises NotRunningError."""
        self._check_running()
        return self._ledger.store.cursor

    @property
    def observed_fp_rate(self) -> float:
        """The share of foreign transactions, in the blocks of this run, that a peer's BIP-37 filter let through; 0.0 before any.

        A transaction has a dozen elements or so, each of which is let through at about `fp_rate`. Raises NotRunningError.
        """
        self._check_running()
        return self._ledger.false_positives / max(1, self._ledger.filtered_txs)

    async def broadcast(self, raw_tx: bytes | Serializable) -> bytes:
        """Send a transaction; its txid once a peer has taken it. What of it concerns the list is a match of the mempool from now on.

        Taken means that a peer has fetched it, or had it already: peers do not say whether they keep it. One that is in the books, in a
        block or waiting, is offered again, but not waited for. Raises FormatError for a malformed one, UselessPeerError where no peer
        takes it in time, NotRunningError.
        """
        self._check_running()
        raw = to_bytes(raw_tx)
        txid = Transaction.parse(raw).txid
        offers: dict[asyncio.Future[None], Remote] = {}
        for remote in [remote for remote in self._peers.ready.values() if remote.takes_txs]:
            try:
                offers[await remote.offer(raw, ask=True)] = remote
            except LOST as error:
                self._peers.leave(remote, error)
        if not await self._in_database(lambda: self._ledger.has_tx(txid)):
            await self._taken(offers)
        sending = asyncio.create_task(self._sync.sent(raw, self._add_events))
        self._sending.add(sending)  # it is recorded and told even if nobody waits for it
        sending.add_done_callback(self._sending.discard)
        await asyncio.shield(sending)
        return txid

    async def _taken(self, offers: dict[asyncio.Future[None], Remote]) -> None:
        """Wait for the first peer that takes a transaction. Raises UselessPeerError."""
        left = set(offers)
        taken: list[Remote] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.reply_s):
                while left and not taken:
                    done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                    taken = [offers[offer] for offer in done if not offer.exception()]
                for remote in taken:
                    with suppress(*LOST):
                        await remote.fence()  # it has dealt with it, too
        if not taken:
            raise UselessPeerError(f"of {len(self._peers.ready)} connected peers none takes the transaction")

    async def add_address(self, address: str, label: str | None = None, *, from_height: int = 0) -> None:
        """Watch another address; blocks from `from_height` on are searched again. Raises AddressError, NotRunningError, StoreError."""
        await self._add(lambda watch: watch.add_address(address, label), from_height)

    async def add_script(self, script_pubkey: bytes, label: str | None = None, *, from_height: int = 0) -> None:
        """Watch another scriptPubKey, as `add_address`. Raises ParameterError, InexpressibleError, NotRunningError, StoreError."""
        await self._add(lambda watch: watch.add_script(script_pubkey, label), from_height)

    async def add_pubkey(self, pubkey: bytes, label: str | None = None, *, from_height: int = 0) -> None:
        """Watch another public key, as `add_address`. Raises ParameterError, NotRunningError, StoreError."""
        await self._add(lambda watch: watch.add_pubkey(pubkey, label), from_height)

    async def add_outpoint(self, outpoint: OutPoint | str, label: str | None = None, *, from_height: int = 0) -> None:
        """Watch for the spend of another outpoint, as `add_address`. Raises ParameterError, NotRunningError, StoreError."""
        await self._add(lambda watch: watch.add_outpoint(outpoint, label), from_height)

    async def _add(self, change: Callable[[WatchList], None], from_height: int) -> None:
        self._check_running()
        trial = WatchList(self.network)
        change(trial)
        self._check_expressible(trial)  # before anything is changed

        def work() -> None:
            change(self.watch)
            self._ledger.rewind(from_height - 1)

        self._from_height = min(self._from_height, from_height)  # should the search not have begun
        self._birthday = None if from_height < self._first_height(self.chain) else self._birthday
        self._sync.entries_changed()  # first: what was asked for before is not recorded after
        await self._in_database(work)
        self._sync.wake()
