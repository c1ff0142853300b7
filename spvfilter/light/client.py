"""LightClient: finds a wallet's transactions on the live network, by BIP-37 or compact filters."""

from __future__ import annotations

import asyncio
import datetime
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from spvfilter._public import public
from spvfilter.chain import HeaderChain
from spvfilter.errors import NotRunningError, ParameterError
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.light import entries as changes, steps, workers
from spvfilter.light.checks import (
    check_groups,
    check_most,
    check_options,
    check_start,
    check_v2,
    name_of_server,
    name_of_source,
    named_peers,
    timeouts_of,
)
from spvfilter.light.engine.expressible import check_expressible, check_followable, ways_of
from spvfilter.light.engine.fees import fee_floor
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.engine.requests import (
    AddAccount,
    AddEntries,
    ReachIndex,
    RelabelEntries,
    RelabelKeychains,
    RemoveAccount,
    RemoveEntries,
    RenameAccount,
    Rescan,
    RevealAddress,
)
from spvfilter.light.events import Broadcast, FeeFloor, FeeRates, Mode, Synced
from spvfilter.light.questions import asks
from spvfilter.light.spentsource import SpentSource
from spvfilter.light.status import ClientStatus, Metrics
from spvfilter.light.stream import EventStream
from spvfilter.light.tweaksource import TweakSource
from spvfilter.light.waiting import finished, wait_confirmed, wait_synced
from spvfilter.network import Network
from spvfilter.p2p import proxy as proxies
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import OutPoint, Serializable, hash_of, outpoint_of, to_bytes
from spvfilter.store import labels as labelrows
from spvfilter.store.place import MEMORY
from spvfilter.store.txcheck import CheckFinding, check_input_values
from spvfilter.store.views import HistoryEntry, Snapshot, Views
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound
from spvfilter.wallet.pendinglimits import PendingLimits
from spvfilter.watch import entrynames
from spvfilter.watch.accounts import normalized
from spvfilter.watch.arguments import EntryName, checked_label
from spvfilter.watch.keychain import LOOKAHEAD, Keychain
from spvfilter.watch.labels import Label, read_labels, write_labels
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.transport import V2Policy

if TYPE_CHECKING:
    from spvfilter.light.running import Running

T = TypeVar("T")


def _check_watch(watch: object) -> None:
    """Check the `watch` argument of LightClient. Raises TypeError unless it is a WatchList."""
    if not isinstance(watch, WatchList):
        found = "None" if watch is None else type(watch).__name__
        raise TypeError(f"watch: expected a WatchList, such as WatchList.from_addresses(addresses), not {found}")


@public
class LightClient:
    """A wallet's connection to the Bitcoin network: it finds every payment to and from a watch list.

        async with LightClient(watch, peers=["127.0.0.1:8333"], store="wallet.db") as client:
            async for event in client.events():
                ...

    The client runs within the `async with` block. It works with a copy of `watch` and the entries in the database; in
    the meantime, `watch` is read-only. When you leave the block, `watch` receives the changes made by `add_addresses`,
    `remove` and `relabel`.

    If the client stops on its own, for example because the disk is full, its methods raise the error that stopped it.
    Leaving the block raises it as well. The page "How the live client works" explains the details.

    Args:
        watch: The addresses, scripts, outpoints and keychains to watch. It may be empty if the database contains
            entries.
        network: The network, or its name such as "regtest"; by default, the network of `watch`.
        peers: Nodes to connect to, as HOST, HOST:PORT or [IPV6]:PORT. All of them are used, up to `max_peers`.
        store: Path of the wallet's database, which is created if needed. Without it, everything is lost at the end of
            the run.
        mode: How to search blocks; see `Mode`.
        keep_filters: True to keep compact filters in the database, 13 GB on mainnet. A search for new addresses then
            downloads only blocks that match.
        mempool: True to report unconfirmed payments. In compact mode the client then downloads every transaction that
            peers announce, about 300 MB a day on mainnet.
        fp_rate: False-positive rate of the BIP-37 filter for each element, above 0 and below 1.
        from_height: First block to search; by default, the first block of the chain. A height above the tip stands for
            the next block.
        birthday: Date, datetime or Unix time at which to start the search, with a margin of two hours and eleven
            blocks. Pass either this or `from_height`.
        proxy: socks5://[USER:PASSWORD@]HOST:PORT (extra `socks`). The proxy also resolves host names.
        v2: When to encrypt connections (BIP-324, extra `bip324`); see `V2Policy`. Without the extra, "prefer" means
            "off".
        discover: True to find more peers through DNS seeds and other peers. Otherwise, only `peers` are used.
        max_peers: Number of peers to stay connected to, from 1 to 125.
        max_pending_matches: Largest number of matches of other people's unconfirmed transactions, from 1 to 1,000,000.
        max_pending_bytes: Largest total size of these transactions in bytes, from 1 to 1,000,000,000.
        mempool_groups: Number of network groups that must announce such a transaction before it counts: 1 or 2. With 2,
            one is enough if there cannot be a second, for example with a single named peer.
        rebuild: True to replace a damaged or older database but keep its watch list. The chain is then searched again.
        spent_source: Source of the outputs that blocks spend, such as a `FullNode`. A list with an sp() descriptor
            needs it: the client then reads every block, in compact mode, to find silent payments.
        tweak_source: Source of blocks' tweaks, such as a `BlindBitOracle`, instead of `spent_source`. The client then
            reads only blocks whose filters match.
        limits: Timeouts for peers, and sizes of requests.
        clock: Clock of the client, for tests.

    Raises:
        ParameterError: A parameter is out of range, or two contradict each other.
        StoreError: On entering, the database cannot be opened.
        InexpressibleError: On entering, the mode cannot find some entries of the watch list.
        KeychainMismatchError: On entering, the database contains a different keychain with the same name.
        NotRunningError: On entering, the client is already running.
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
        from_height: int | None = None,
        birthday: int | datetime.date | None = None,
        proxy: str | None = None,
        v2: V2Policy | str = V2Policy.PREFER,
        discover: bool = False,
        max_peers: int = 8,
        max_pending_matches: int = 10_000,
        max_pending_bytes: int = 5_000_000,
        mempool_groups: int = 2,
        rebuild: bool = False,
        spent_source: SpentSource | None = None,
        tweak_source: TweakSource | None = None,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        _check_watch(watch)
        self.network: Network = (
            watch.network if network is None else Network.named(network) if isinstance(network, str) else network
        )
        """Network of the watch list."""
        if self.network != watch.network:
            raise ParameterError(f"the watch list belongs to {watch.network}, not to {self.network}")
        self._addresses = named_peers(peers, self.network, discover=discover, proxy=proxy, knows=store is not None)
        self._clock = clock or Clock()
        switches = {"mempool": mempool, "keep_filters": keep_filters, "discover": discover, "rebuild": rebuild}
        check_options(mode, max_peers, fp_rate, **switches)
        matches = check_most("max_pending_matches", max_pending_matches)
        size = check_most("max_pending_bytes", max_pending_bytes)
        pending = PendingLimits(matches, size, number=max(matches, PendingLimits().number))
        start = check_start(from_height, birthday, self._clock.wall())
        self._watch = watch
        self._path = MEMORY if store is None else store
        self._rebuild = rebuild
        self._proxy = None if proxy is None else proxies.Proxy.parse(proxy)
        self._limits = limits or Limits()
        self.mode: Mode = Mode(mode)
        """Mode that the user chose."""
        reach = Reach.NAMED if not discover else Reach.DIRECT if proxy is None else Reach.PROXIED
        self._options = Options(
            self.mode,
            mempool,
            keep_filters,
            fp_rate,
            *start,
            max_peers,
            timeouts_of(self._limits),
            reach,
            proxy is not None,
            pending,
            check_v2(v2),
            check_groups(mempool_groups),
            None if spent_source is None else name_of_source(spent_source),
            None if tweak_source is None else name_of_server(tweak_source),
        )
        if spent_source is not None and tweak_source is not None:
            raise ParameterError("pass either spent_source or tweak_source, not both: each finds all silent payments")
        self._spent_source = spent_source
        self._tweak_source = tweak_source
        self._running: Running | None = None
        self._is_entering = False

    async def __aenter__(self) -> Self:
        """Open the database and start connecting to peers. See the class for the errors."""
        if self._is_entering or (self._running is not None and not self._running.has_ended):
            raise NotRunningError("the client is already running")
        from spvfilter.light import running as runs  # the engine and the database: half of the package

        jobs = workers.JobQueue()
        self._watch.hold()
        watch = self._watch.copy()  # it learns only the outpoints of this run
        addresses = list(dict.fromkeys(map(str, self._addresses)))
        opening = jobs.submit(lambda: runs.entered(self._path, watch, self._options, addresses, rebuild=self._rebuild))
        self._is_entering = True
        try:
            store, engine = await asyncio.shield(asyncio.wrap_future(opening))
            self._running = runs.Running(
                engine,
                store,
                jobs,
                watch,
                proxy=self._proxy,
                limits=self._limits,
                clock=self._clock,
                spent_source=self._spent_source,
                tweak_source=self._tweak_source,
            )
        except BaseException:
            self._watch.release()
            await finished(jobs.end(lambda: runs.close_opened(opening)))
            raise
        finally:
            self._is_entering = False
        watch.hold()
        self._running.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the client. If it stopped on its own, raise the error that stopped it, unless the block raised one.

        The database is closed when this returns or raises, even if the task is cancelled in the meantime.
        """
        running = self._running
        assert running is not None
        await finished(self._leave(running))
        if error is None:
            running.hub.check()

    async def _leave(self, running: Running) -> None:
        """Stop the run, and apply its changes to the watch list."""
        engine = running.engine
        try:
            await running.close()
        finally:
            try:
                await steps.in_steps(changes.apply_changes(self._watch.index, engine.changes.done, engine.books.watch))
            finally:
                self._watch.release()

    def _checked(self) -> Running:
        """Return the current run. Raises NotRunningError, or the error that stopped the client."""
        if self._running is None:
            raise NotRunningError("the client is not running: enter it with `async with` first")
        self._running.check()
        return self._running

    async def _ask(self, question: Callable[[Views], T]) -> T:
        return await self._checked().read(question)

    # Reading

    @property
    def chain(self) -> HeaderChain:
        """Headers of the best chain. Raises NotRunningError if the client is not running."""
        return self._checked().engine.chain

    def events(self, since: int | None = None, *, account: str | None = None) -> EventStream:
        """Return a stream of events, in order, until the `async with` block of the client ends.

        Wallet events (`WalletEvent`) have a number, `sequence`, and stay in the database. All other events belong to
        this run and have no number. If an error ends the client, the stream finally raises it.

        The client never waits for a reader. A slow reader gets older wallet events from the database, which keeps up to
        250,000 events from the last 30 days, and at least 10,000. It also keeps the latest 10,000 events about other
        people's unconfirmed transactions; events that were dropped leave gaps in the numbering.

        A slow reader gets only the latest 100 unnumbered events of each kind, and only the last `Progress`,
        `PeerChanged` and `Synced`.

        Args:
            since: Number of the last event that the program has processed, or `sequence` of a `Snapshot` or `Balance`.
                The stream yields the events after it, including those from earlier runs. By default, it continues after
                the last event that any stream without `since` yielded in this run.
            account: Name of an account. The stream then yields only wallet events about this account's matches, about
                blocks, and about starts of runs. By default, it starts with this run. It ends when the account is
                removed.

        Raises:
            UnknownAccountError: The wallet has no such account.
            EventGapError: Immediately or while reading: `since` is neither 0 nor the number of an event, or later
                events were dropped because they were too old or too many. Read a snapshot, such as `matches`, and
                continue from its `sequence`.
            ParameterError: `since` is negative or not a number.
            NotRunningError: The client was never entered.
        """
        if self._running is None:
            raise NotRunningError("the client is not running: enter it with `async with` first")
        if since is not None:
            self._running.check_since(since)
        if account is not None:
            return self._running.account_stream(normalized(account), since)
        return EventStream(self._running.hub, since)

    async def run_id(self, sequence: int) -> bytes | None:
        """Return the id of the client's run that stored an event; see `RunStarted`.

        A program that remembers the number of its last event can store this id with it. If the two no longer match, an
        older copy of the database was restored and the clock was set back. The program should then read a snapshot.

        Returns None for the number 0, or if the run's `RunStarted` event has been dropped.

        Args:
            sequence: Number of the event.

        Raises:
            EventGapError: The number is neither 0 nor the number of an event in this database.
            ParameterError: The number is negative or not a number.
            NotRunningError: The client is not running.
            StoreError: The database cannot be read.
        """
        return await self._checked().run_id(sequence)

    async def bookmark(self, reader: str) -> int | None:
        """Return the number that `set_bookmark` stored for a reader, or None.

        Args:
            reader: Name of the reader, chosen by the program.

        Raises:
            ParameterError: The name is not valid text.
            NotRunningError: The client is not running.
            StoreError: The database cannot be read.
        """
        return await self._checked().bookmark(reader)

    async def set_bookmark(self, reader: str, sequence: int) -> None:
        """Store in the database the number of the last event that a reader has processed.

        In the next run, `events(since=await client.bookmark(reader))` continues there. Delivery is at least once: after
        a crash, events since the last bookmark are delivered again. A program with its own database should store the
        number there instead, in the same commit as the result of the event.

        Args:
            reader: Name of the reader, chosen by the program.
            sequence: Number of the event.

        Raises:
            ParameterError: The name is not valid text, or no event has this number yet.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written.
        """
        await self._checked().set_bookmark(reader, sequence)

    async def matches(self) -> Snapshot[MatchFound]:
        """Return all matches: the confirmed matches by ascending height, then the unconfirmed matches.

        `events(since=matches.sequence)` continues from this snapshot.

        Raises:
            NotRunningError: The client is not running.
            StoreError: The database cannot be read.
        """
        return await self._checked().matches()

    async def wait_synced(self) -> Synced:
        """Wait until the client is synced, and return the `Synced` event of the tip.

        The client is synced if every block has been searched and a connected peer confirms that there is none above the
        tip; see `ClientStatus.is_synced`. If it already is, this returns immediately. While waiting, it logs the first
        five problems with peers as warnings.

        Raises:
            NotRunningError: The client is not running, or its `async with` block ends during the wait. If the client
                stops on its own, the error that stopped it is raised instead.
        """
        return await wait_synced(self._checked())

    async def wait_confirmed(self, txid: bytes | str, confirmations: int = 1) -> HistoryEntry:
        """Wait until a transaction has enough confirmations, and return its entry in the history.

        The wait continues through reorganizations, and in two other cases:

        - The transaction was replaced. A block may still contain it.
        - The wallet does not know the transaction. It may still arrive.

        Args:
            txid: Txid of the transaction, 32 bytes in wire order or 64 hex digits.
            confirmations: Number of confirmations in the best chain, at least 1.

        Raises:
            NotConfirmedError: The transaction was abandoned, expired or refused by all peers, or a conflicting one has
                that many confirmations.
            ParameterError: The txid or the number is not valid.
            StoreError: The database cannot be read.
            NotRunningError: The client is not running, or its `async with` block ends during the wait. If the client
                stops on its own, the error that stopped it is raised instead.
        """
        return await wait_confirmed(self._checked(), txid, confirmations)

    # Queries, which `Views` answers from one commit of the database

    tip: Final = asks(Views.tip)
    sequence: Final = asks(Views.sequence)
    balance: Final = asks(Views.balance)
    coins: Final = asks(Views.coins)
    coin: Final = asks(Views.coin)
    unspent: Final = asks(Views.unspent)
    frozen: Final = asks(Views.frozen)
    reserved: Final = asks(Views.reserved)
    history: Final = asks(Views.history)
    transaction: Final = asks(Views.transaction)
    proof: Final = asks(Views.proof)
    effects: Final = asks(Views.effects)
    confirmed_in: Final = asks(Views.confirmed_in)
    keychains: Final = asks(Views.keychains)
    accounts: Final = asks(Views.accounts)
    next_address: Final = asks(Views.next_address)
    is_used: Final = asks(Views.is_used)
    labels: Final = asks(Views.labels)
    psbt: Final = asks(Views.psbt)
    searched: Final = asks(Views.searched)
    searched_for: Final = asks(Views.searched_for)
    block_time: Final = asks(Views.block_time)
    read: Final = asks(Views.read)

    # Changes to the wallet

    async def freeze(self, outpoint: OutPoint | str) -> None:
        """Freeze a coin, so that `unspent` and `Balance.spendable` exclude it.

        The database stores this, and a rebuild preserves it. The wallet still accepts transactions that spend the coin.

        Args:
            outpoint: The coin's outpoint, or a string TXID:INDEX.

        Raises:
            ParameterError: The wallet has no such coin.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written.
        """
        await self._checked().freeze(outpoint_of(outpoint), is_frozen=True)

    async def unfreeze(self, outpoint: OutPoint | str) -> None:
        """Unfreeze a coin that `freeze` froze.

        Args:
            outpoint: The coin's outpoint, or a string TXID:INDEX.

        Raises:
            ParameterError: The output is not frozen.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written.
        """
        await self._checked().freeze(outpoint_of(outpoint), is_frozen=False)

    async def reveal_address(self, account: str | None = None, *, exclusive: bool = False) -> str:
        """Return a new address for an invoice: the first one above all revealed and used addresses.

        It is marked as revealed in the database before the method returns, so it is never handed out twice. The
        keychain's window grows with it, so all revealed addresses are watched. See "Run a shop" in the documentation.

        Args:
            account: Name of an account, whose first keychain reveals the address, or the name or label of a keychain;
                by default, the first keychain.
            exclusive: True if no other program or database reveals addresses of this keychain. Old blocks then rarely
                need to be searched when its window grows. By default, all blocks are searched.

        Raises:
            ParameterError: There is no such account or keychain, it has no more addresses, or its scripts do not have
                addresses.
            KeychainError: No function can derive the keychain's scripts.
            InexpressibleError: The BIP-37 filter has no room for more scripts.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        if not (account is None or isinstance(account, str)):
            raise ParameterError(f"account must be the name of an account or a keychain, not {type(account).__name__}")
        if not isinstance(exclusive, bool):
            raise ParameterError(f"exclusive must be True or False, not {exclusive!r}")
        address = await self._checked().ask(RevealAddress(account, exclusive))
        assert isinstance(address, str)
        return address

    @property
    def watch(self) -> WatchList:
        """The watch list: while the client is running, its own copy with the entries in the database.

        The copy is read-only: changing it raises WatchListInUseError. Use `add_addresses`, `remove` and `relabel`
        instead. When the client is not running, this is the list with which it was created.
        """
        running = self._running
        return self._watch if running is None or running.is_left else running.watch

    @property
    def tip_height(self) -> int:
        """Height of the tip of the best chain. Raises NotRunningError if the client is not running."""
        return self._checked().engine.chain.height

    @property
    def searched_height(self) -> int:
        """Blocks up to this height have been searched, except for skipped blocks, which `status` lists; -1 for none.

        Raises NotRunningError if the client is not running.
        """
        return self._checked().engine.books.cursor

    @property
    def observed_fp_rate(self) -> float:
        """Share of other people's transactions in this run's blocks that the filter matched; 0.0 before any block.

        A transaction has about a dozen elements, each of which matches by chance with probability `fp_rate`. Raises
        NotRunningError if the client is not running.
        """
        filtered = self._checked().engine.books.filtered
        return filtered.false_positives / max(1, filtered.txs)

    def fee_floor(self) -> FeeFloor | None:
        """Return the lowest fee rate that the connected peers relay, or None if no peer has announced one.

        Raises NotRunningError if the client is not running.
        """
        return fee_floor(self._checked().engine.pool.connected())

    def fee_rates(self) -> FeeRates:
        """Return average fee rates of recent blocks that the client fetched whole, and the peers' highest fee limit.

        In compact mode, these are blocks that contain a match, and a few false positives. In bip37 mode, there are
        hardly any. Raises NotRunningError if the client is not running.
        """
        return self._checked().engine.fee_rates()

    def metrics(self) -> Metrics:
        """Return counters and gauges of this run, for monitoring. This takes microseconds and does not read any file.

        Raises NotRunningError if the client is not running.
        """
        return self._checked().metrics()

    async def broadcast(
        self,
        raw_tx: bytes | Serializable,
        *,
        parents: Iterable[bytes | Serializable] = (),
        input_values: Iterable[int] | None = None,
        private: bool = False,
        force: bool = False,
    ) -> Broadcast:
        """Check a transaction, store it, send it, and wait until a peer has accepted it.

        A transaction that `check` finds invalid or refused is not stored. Cancelling the call only stops the wait; to
        stop the broadcast, call `abandon`.

        The client announces the transaction again, to every peer and in every run, until it is confirmed, replaced,
        abandoned, or 336 hours old. `BroadcastProgress` and `BroadcastChanged` events report later changes. If the
        wallet already had the transaction before this run, the client announces it again and returns immediately.

        If the fee is known and below `fee_floor`, the client emits a `FeeWarning`. The page "How the live client works"
        explains what counts as accepted and as refused.

        Args:
            raw_tx: The signed transaction, as bytes or as an object that serializes to them.
            parents: Transactions that it spends from, parents first. They are sent with it, and their fees are added
                up.
            input_values: Value of each input in satoshi, in order. Needed only if it spends other people's coins.
            private: True to send it first to one peer through a new connection, over Tor if there is a proxy.
            force: True to send it even if all connected peers will refuse it.

        Returns:
            The peers that have requested, echoed or refused the transaction so far.

        Raises:
            FormatError: The bytes are not a transaction.
            TxCheckError: No block can contain the transaction, all connected peers will refuse it, or an ancestor was
                abandoned.
            ParameterError: The input values are wrong, or `private` was combined with `parents`.
            TxConflictError: A conflicting transaction is confirmed or preferred by peers, or a later broadcast has
                replaced it.
            TxRefusedError: Every peer that received the transaction rejected it.
            UselessPeerError: No peer accepted the transaction in time. The client will announce it to every new peer.
            PrivacyError: The transaction cannot be sent privately. The message says why.
            NotRunningError: The client is not running.
        """
        running = self._checked()
        tx = Transaction.parse(to_bytes(raw_tx))
        values = None if input_values is None else tuple(input_values)
        check_input_values(tx, values)
        earlier = [Transaction.parse(to_bytes(parent)) for parent in parents]
        if private and earlier:
            raise ParameterError("private: a package cannot be sent privately; send its parents first")
        return await running.broadcast(tx, values, is_private=private, parents=earlier, is_forced=force)

    async def relay(
        self, raw_tx: bytes | Serializable, *, parents: Iterable[bytes | Serializable] = (), guest: str = ""
    ) -> Broadcast:
        """Broadcast a transaction for somebody else, as a server does for its users' wallets.

        If the transaction or one of its parents pays or spends a script of the wallet, or is in the database, this is
        the same as `broadcast`.

        Otherwise, the client stores nothing. It announces the transaction to its peers, and forgets it after 20 minutes
        or when the client ends. It keeps at most 100 such transactions, 5 MB in total. One guest gets at most half of
        that.

        Args:
            raw_tx: The signed transaction, as bytes or as an object that serializes to them.
            parents: Transactions that it spends from, parents first, which are sent with it.
            guest: Name of the sender, for example its address. Without a name, the sender may use all the space.

        Returns:
            The peers that have requested, echoed or refused the transaction so far.

        Raises:
            ParameterError: The client already keeps too many such transactions, in total or from this guest, or this
                one is too large for nodes to relay.
            FormatError: The bytes are not a transaction.
            TxCheckError: No block can contain the transaction, or all connected peers will refuse it.
            TxConflictError: A conflicting transaction is confirmed or preferred by peers.
            TxRefusedError: Every peer that received the transaction rejected it.
            UselessPeerError: No peer requested the transaction in time.
            NotRunningError: The client is not running.
        """
        running = self._checked()
        tx = Transaction.parse(to_bytes(raw_tx))
        earlier = [Transaction.parse(to_bytes(parent)) for parent in parents]
        return await running.broadcast(tx, None, is_private=False, parents=earlier, guest=guest)

    async def check(
        self,
        raw_tx: bytes | Serializable,
        *,
        parents: Iterable[bytes | Serializable] = (),
        input_values: Iterable[int] | None = None,
    ) -> tuple[CheckFinding, ...]:
        """Return the problems with a transaction that can be found without asking a node.

        `broadcast` refuses a transaction with an INVALID finding and, without `force`, also one with a REFUSED finding.
        Signatures are verified for inputs whose coins the wallet knows. Nothing is stored or sent.

        Args:
            raw_tx: The signed transaction, as bytes or as an object that serializes to them.
            parents: Transactions that it spends from, parents first. Their fees are added up.
            input_values: Value of each input in satoshi, in order, if the wallet does not know them.

        Returns:
            The findings, most serious first; empty if no problem was found.

        Raises:
            FormatError: The bytes are not a transaction.
            ParameterError: The input values are wrong.
            NotRunningError: The client is not running.
        """
        running = self._checked()
        tx = Transaction.parse(to_bytes(raw_tx))
        values = None if input_values is None else tuple(input_values)
        check_input_values(tx, values)
        earlier = [Transaction.parse(to_bytes(parent)) for parent in parents]
        await running.settled()
        running.check()
        return running.engine.check([*earlier, tx], values)

    async def abandon(self, txid: bytes | str) -> None:
        """Stop broadcasting one of the wallet's unconfirmed transactions, so that its coins can be spent again.

        The wallet also abandons the descendants of the transaction, and its own transactions that this one replaced.
        Call `broadcast` to undo this.

        A block may still contain an abandoned transaction. The wallet counts it as confirmed if the transaction matches
        an entry, or if the client downloads the whole block for another reason.

        Args:
            txid: Txid of the transaction, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: The txid is not valid, or it does not name one of the wallet's own unconfirmed transactions.
            NotRunningError: The client is not running.
        """
        await self._checked().abandon(hash_of(txid, "txid"))

    async def abandon_unsent(self, txid: bytes | str) -> bool:
        """Abandon a transaction unless a peer may have it, for example if `broadcast` takes too long.

        The coins that it spends can then be spent again, and versions that it replaced count again. A relayed
        transaction is forgotten.

        Args:
            txid: Txid of the transaction, 32 bytes in wire order or 64 hex digits.

        Returns:
            True if it was broadcast in this run, no peer requested or announced it, and it is now abandoned. False if a
            peer may have it or it is not an unconfirmed transaction of the wallet; nothing has then changed.

        Raises:
            ParameterError: The txid is not valid.
            NotRunningError: The client is not running.
        """
        return await self._checked().abandon_unsent(hash_of(txid, "txid"))

    def is_sending(self, txid: bytes | str) -> bool:
        """Return True if the client is announcing a transaction that was passed to `broadcast` or `relay`.

        Args:
            txid: Txid of the transaction, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: The txid is not valid.
            NotRunningError: The client is not running.
        """
        return self._checked().engine.is_sending(hash_of(txid, "txid"))

    def missing_parents(self, txid: bytes | str) -> tuple[bytes, ...]:
        """Return the parents of a broadcast transaction that a peer lacks and the wallet cannot send.

        A node requests them if it receives the transaction but does not know what it spends. Broadcast them first.

        Args:
            txid: Txid of a transaction that was broadcast or relayed, 32 bytes in wire order or 64 hex digits.

        Returns:
            Their txids, 32 bytes each in wire order; empty for a transaction that is not being broadcast.

        Raises:
            ParameterError: The txid is not valid.
            NotRunningError: The client is not running.
        """
        return self._checked().engine.lacking(hash_of(txid, "txid"))

    # Blocks

    async def fetch_block(self, block: bytes | str) -> bytes:
        """Fetch a block of the best chain from a peer. The bytes are checked against its header.

        The peer learns which block you are interested in. There is no time limit; to set one, use `asyncio.timeout`.

        Args:
            block: Block hash, 32 bytes in wire order or 64 hex digits.

        Raises:
            ParameterError: The hash is not valid, or the block is not in the best chain.
            NotRunningError: The client is not running.
        """
        return await self._checked().fetch_block(hash_of(block, "block hash"))

    async def store_proofs(self, raw_block: bytes) -> None:
        """Store the merkle branches of the wallet's transactions in a block, so that `proof` can return them.

        A client stores the branches of its matches automatically, but matches found by an older version have none.

        Args:
            raw_block: A block of the best chain, such as `fetch_block` returns. Other blocks are ignored.

        Raises:
            FormatError: The bytes are not a block, or its header does not commit to its transactions.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written.
        """
        await self._checked().in_store(lambda store: store.store_proofs(raw_block))

    # Accounts

    async def add_account(
        self,
        name: str,
        *sources: str | Keychain | os.PathLike[str],
        label: str | None = None,
        lookahead: int = LOOKAHEAD,
        extend: bool = False,
        from_height: int | None = None,
        birthday: int | datetime.date | None = None,
    ) -> None:
        """Watch an account: a part of the wallet with its own balance and history.

        The method returns once the account is in the database. Blocks that were already searched are searched again for
        its new scripts, and `Synced` follows.

        A source that is already watched, but belongs to no account, moves into this account along with its payments. No
        event reports this. If the account already has all sources, only skipped blocks are searched. With
        `extend=True`, you can add addresses.

        Args:
            name: Name of the account, 1 to 255 printable characters. It is stored and compared in Unicode form NFC.
            sources: One or more addresses, descriptors, extended public keys, Keychain objects, and paths
                (`pathlib.Path`) of files that a wallet exported. Give a receiving descriptor before its change
                descriptor.
            label: Label of the sources' matches, unless they have labels of their own.
            lookahead: Number of indexes of a descriptor to watch after the last used index, from 20 to 10,000,000.
            extend: True to add sources to an existing account. Otherwise, new sources are an error.
            from_height: First block to search for the account; by default, the start of the client's search.
            birthday: Date or time at which to start the search. Pass either this or `from_height`.

        Raises:
            ParameterError: An argument is invalid, a source belongs to another account, or the account exists with
                different sources. A descriptor spelled differently is the same descriptor.
            AddressError: A string is not an address.
            DescriptorError: A string is not a valid descriptor.
            InexpressibleError: The mode cannot find an entry.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        running, start = self._checked(), check_start(from_height, birthday, self._clock.wall())
        network = self.network

        def derived() -> tuple[WatchList, frozenset[Mode]]:
            more = WatchList.of_account(name, sources, network, label=label, lookahead=lookahead)
            has_spent, has_tweaks = self._spent_source is not None, self._tweak_source is not None
            check_followable(more.index, has_spent=has_spent, has_tweaks=has_tweaks)
            more.windows.anchor_silent()
            check_expressible(more.index, self.mode)
            return more, ways_of(more.index) if self.mode is Mode.AUTO else frozenset((self.mode,))

        more, ways = await asyncio.to_thread(derived)
        if await running.take_revealed(more):
            await asyncio.to_thread(more.windows.grow)
        self._searched_from(running, await running.ask(AddAccount(more, start, ways, extend)))
        await running.take_labels(more)

    async def remove_account(self, name: str) -> None:
        """Stop watching an account, and remove its entries and matches from the wallet; see `remove`.

        An address stays in the wallet if a descriptor outside the account also derives it.

        Args:
            name: Name of the account.

        Raises:
            UnknownAccountError: The wallet has no such account.
            ParameterError: No entry would be left.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        await self._checked().ask(RemoveAccount(normalized(name)))

    async def rename_account(self, old: str, new: str) -> None:
        """Rename an account. Matches, coins and stored events show the new name immediately.

        Args:
            old: Current name of the account.
            new: New name, 1 to 255 printable characters.

        Raises:
            UnknownAccountError: The wallet has no account `old`.
            ParameterError: The new name is invalid or taken.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        await self._checked().ask(RenameAccount(normalized(old), normalized(new)))

    # Changing the search

    async def add_address(
        self,
        address: str,
        label: str | None = None,
        *,
        from_height: int | None = None,
        birthday: int | datetime.date | None = None,
    ) -> None:
        """Watch another address. See `add_addresses`.

        Args:
            address: Address of the client's network.
            label: Label of the entry's matches.
            from_height: First block to search for it; by default, the start of the client's search.
            birthday: Date or time at which to start the search. Pass either this or `from_height`.

        Raises:
            AddressError: The string is not an address of this network.
            ParameterError: An argument is not valid.
            InexpressibleError: The mode cannot find the entry.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        await self._add(lambda watch: watch.add_address(address, label), from_height, birthday)

    async def add_addresses(
        self,
        addresses: Iterable[str | tuple[str, str | None]],
        *,
        from_height: int | None = None,
        birthday: int | datetime.date | None = None,
    ) -> None:
        """Watch more addresses, either all or none of them, and search blocks for them.

        Blocks that were already searched are searched again for the new addresses, and `Synced` follows. An address
        that is already watched gets the new label, and blocks that were skipped for it are searched. The method returns
        once the addresses are in the database, and only then do the watch list and the filters contain them.

        Args:
            addresses: Addresses, or pairs of an address and a label.
            from_height: First block to search for them; by default, the start of the client's search. A height above
                the tip stands for the next block.
            birthday: Date or time at which to start the search. Pass either this or `from_height`.

        Raises:
            AddressError: A string is not an address of this network.
            ParameterError: An argument is not valid.
            InexpressibleError: The mode cannot find an entry.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        if isinstance(addresses, str):
            raise TypeError("addresses: expected an iterable of addresses, not a string; use add_address for one")
        more = WatchList.from_addresses(addresses, self.network)
        await self._add_all(more, from_height, birthday)

    async def add_script(
        self,
        script_pubkey: bytes,
        label: str | None = None,
        *,
        from_height: int | None = None,
        birthday: int | datetime.date | None = None,
    ) -> None:
        """Watch another scriptPubKey. See `add_addresses`.

        Args:
            script_pubkey: The script, as bytes.
            label: Label of the entry's matches.
            from_height: First block to search for it; by default, the start of the client's search.
            birthday: Date or time at which to start the search. Pass either this or `from_height`.

        Raises:
            ParameterError: An argument is not valid.
            InexpressibleError: The mode cannot find the entry.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        await self._add(lambda watch: watch.add_script(script_pubkey, label), from_height, birthday)

    async def add_pubkey(
        self,
        pubkey: bytes,
        label: str | None = None,
        *,
        from_height: int | None = None,
        birthday: int | datetime.date | None = None,
    ) -> None:
        """Watch the scripts of another public key. See `add_addresses`.

        Args:
            pubkey: The public key, 33 or 65 bytes.
            label: Label of the entry's matches.
            from_height: First block to search for it; by default, the start of the client's search.
            birthday: Date or time at which to start the search. Pass either this or `from_height`.

        Raises:
            ParameterError: An argument is not valid.
            InexpressibleError: The mode cannot find the entry.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        await self._add(lambda watch: watch.add_pubkey(pubkey, label), from_height, birthday)

    async def add_outpoint(
        self,
        outpoint: OutPoint | str,
        label: str | None = None,
        *,
        from_height: int | None = None,
        birthday: int | datetime.date | None = None,
    ) -> None:
        """Watch for the transaction that spends an outpoint. See `add_addresses`.

        Args:
            outpoint: The outpoint, or a string TXID:INDEX.
            label: Label of the entry's matches.
            from_height: First block to search for it; by default, the start of the client's search.
            birthday: Date or time at which to start the search. Pass either this or `from_height`.

        Raises:
            ParameterError: An argument is not valid.
            InexpressibleError: The mode cannot find the entry.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        await self._add(lambda watch: watch.add_outpoint(outpoint, label), from_height, birthday)

    async def _add(
        self, change: Callable[[WatchList], None], from_height: int | None, birthday: int | datetime.date | None
    ) -> None:
        more = WatchList(self.network)
        change(more)
        await self._add_all(more, from_height, birthday)

    async def _add_all(self, more: WatchList, from_height: int | None, birthday: int | datetime.date | None) -> None:
        running, start = self._checked(), check_start(from_height, birthday, self._clock.wall())
        check_expressible(more.index, self.mode)  # before anything is changed
        ways = ways_of(more.index) if self.mode is Mode.AUTO else frozenset((self.mode,))
        self._searched_from(running, await running.ask(AddEntries(tuple(more.entries()), start, ways)))
        await running.take_labels(more)

    async def remove(self, *entries: EntryName) -> None:
        """Stop watching entries, and remove their matches from the wallet.

        Balance, coins and history then look as if the entries had never been watched. Each removed match is reported as
        `MatchWithdrawn` with `Reason.REMOVED`. The wallet keeps its own unconfirmed transactions. They stay in the
        history, as do its conflicted, abandoned and expired ones.

        The method returns once the change is in the database. If you add an entry again later, blocks are searched for
        it again.

        Args:
            entries: Addresses, scriptPubKeys as bytes, outpoints, or lines of a watch list file, such as `pubkey:HEX`.

        Raises:
            ParameterError: An entry is not watched or belongs to a keychain, or no entry would be left.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        await self._checked().ask(RemoveEntries(entrynames.named(entries, self.network)))

    async def watch_to(self, keychain: str, index: int) -> None:
        """Watch a keychain up to an index that another program uses, plus its lookahead.

        This does not reveal anything. Blocks that were already searched are searched again for the new scripts. The
        method returns once the change is in the database.

        Args:
            keychain: Name of the keychain, as `keychains` returns it.
            index: Index that the window must contain.

        Raises:
            ParameterError: There is no keychain with this name, or it has no scripts at this index.
            KeychainError: No function can derive the keychain's scripts.
            InexpressibleError: The BIP-37 filter has no room for more scripts.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        if not isinstance(keychain, str) or not isinstance(index, int):
            raise ParameterError("watch_to takes a keychain's name (str) and an index (int)")
        await self._checked().ask(ReachIndex(keychain, index))

    async def relabel(self, entry: EntryName, label: str | None) -> None:
        """Change the label of an entry. History and coins show it immediately.

        A keychain is relabelled as a whole, including scripts that its window gains later, but scripts with labels of
        their own keep them. The method returns once the change is in the database.

        Args:
            entry: The entry (see `remove`), or the name of a keychain, such as a descriptor with or without a checksum.
                A descriptor with `<0;1>` names both of its keychains.
            label: The new label, or None to remove it.

        Raises:
            ParameterError: The entry or the keychain is not watched, or the label is not valid.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        running = self._checked()
        if isinstance(entry, str) and (names := running.engine.books.watch.keychains_named(entry)):
            await running.ask(RelabelKeychains(names, checked_label(label)))
            return
        entries = tuple((kind, value, label) for kind, value in entrynames.named([entry], self.network))
        await running.ask(RelabelEntries(entries))

    # Labels exchanged with other wallets

    async def import_labels(self, source: str | os.PathLike[str] | Iterable[Label]) -> labelrows.ImportedLabels:
        """Store labels of transactions, addresses, outputs and other things (BIP-329).

        The label of a watched address becomes that of its entry. The label of any other address waits until the address
        is added or a keychain's window reaches it. A label of an output with `spendable` false freezes the output.
        Records of unknown types are kept, and exported again by `export_labels`.

        Args:
            source: Path of a JSON Lines file, or labels.

        Returns:
            The number of labels, and the outputs that the import froze and unfroze.

        Raises:
            FormatError: None of the file's lines is a label. Otherwise, a WalletFileWarning names malformed lines.
            OSError: The file cannot be read.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written.
        """
        running = self._checked()
        if isinstance(source, (str, os.PathLike)):
            labels = await asyncio.to_thread(read_labels, source)
        else:
            labels = list(source)
            if wrong := [each for each in labels if not isinstance(each, Label)]:
                raise TypeError(f"source: expected Label objects, not {type(wrong[0]).__name__}")
        return await running.import_labels(labels)

    async def export_labels(self, path: str | os.PathLike[str]) -> None:
        """Write all labels of the wallet to a JSON Lines file (BIP-329), replacing an existing file.

        Args:
            path: Path of the file.

        Raises:
            OSError: The file cannot be written.
            NotRunningError: The client is not running.
            StoreError: The database cannot be read.
        """
        labels = await self.labels()
        await asyncio.to_thread(write_labels, path, labels)

    async def rescan(self, *, from_height: int | None = None, birthday: int | datetime.date | None = None) -> int:
        """Search blocks again for all entries, for example if you started with a wrong birthday.

        Known matches stay and are not reported again. If the wallet's start was higher, it moves down to the new one.
        Blocks above `searched_height` are searched anyway, so a start above that changes nothing. The method returns
        once the request is in the database, so it survives a restart. `Synced` follows at the end.

        Args:
            from_height: First block to search; by default, all blocks are searched.
            birthday: Date or time at which to start the search. Pass either this or `from_height`.

        Returns:
            The first height to be searched.

        Raises:
            ParameterError: An argument is not valid.
            NotRunningError: The client is not running.
            StoreError: The database cannot be written. The client ends.
        """
        running, start = self._checked(), check_start(from_height, birthday, self._clock.wall())
        return self._searched_from(running, await running.ask(Rescan(start)))

    def _searched_from(self, running: Running, first: object) -> int:
        """Return the first height to search. Without a database, the next run also starts there."""
        assert isinstance(first, int)
        begun, given = running.engine.books.blocks.start, self._options.from_height
        lowest = given if self._options.birthday is None or begun is None else begun
        if self._path == MEMORY and lowest is not None and first < lowest:
            self._options = replace(self._options, from_height=first, birthday=None)
        return first

    async def status(self) -> ClientStatus:
        """Return the state of the client, including which blocks have been searched for each entry.

        Raises:
            NotRunningError: The client is not running.
            StoreError: The database cannot be read.
        """
        return await self._checked().status()
