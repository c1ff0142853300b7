"""LightClient: a wallet's eyes on the network, by BIP-37 or compact filters. The shell around the engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from spvfilter._public import deferred, public
from spvfilter.chain import HeaderChain
from spvfilter.errors import NotRunningError, ParameterError
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.light.checks import check_options, check_start, named_peers, patience_of
from spvfilter.light.engine.expressible import check_expressible, ways_of
from spvfilter.light.engine.fees import check_input_values, fee_floor
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.engine.requests import AddEntries, RelabelEntries, RemoveEntries, Rescan
from spvfilter.light.entries import EntryName, apply_changes, named
from spvfilter.light.events import Broadcast, FeeFloor, Mode, Synced
from spvfilter.light.status import ClientStatus
from spvfilter.light.stream import EventStream
from spvfilter.light.waiting import wait_confirmed, wait_synced
from spvfilter.network import Network
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import OutPoint, Serializable, to_bytes
from spvfilter.store.place import MEMORY
from spvfilter.store.searched import BlockRange
from spvfilter.store.views import DEFAULT_LIMIT, Balance, Coin, HistoryEntry, Snapshot
from spvfilter.store.windowviews import KeychainStatus
from spvfilter.transaction import Transaction
from spvfilter.wallet.events import MatchFound
from spvfilter.watch.watchlist import WatchList

if TYPE_CHECKING:
    import asyncio
    import dataclasses
    from concurrent import futures

    from spvfilter.light import running as runs
    from spvfilter.light.running import Running
    from spvfilter.p2p import proxy as proxies
else:
    asyncio = deferred("asyncio")
    dataclasses = deferred("dataclasses")
    futures = deferred("concurrent.futures")
    runs = deferred("spvfilter.light.running")  # the engine, the wire and the database: half of the package
    proxies = deferred("spvfilter.p2p.proxy")


@public
class LightClient:
    """Finds every payment to and from a watch list in a live network, now and after every restart.

        async with LightClient(watch, peers=["127.0.0.1:8333"], store="wallet.db") as client:
            async for event in client.events():
                ...

    The client works with a copy of `watch`, joined with what the database knows. While it runs, `watch` cannot be
    changed; when it is left, `watch` gets what `add_addresses`, `remove` and `relabel` have changed. `peers` are HOST,
    HOST:PORT or [IPV6]:PORT. Without `store` everything is forgotten at the end.

    Blocks are searched from `from_height` or from `birthday` (seconds since 1970, with two hours and eleven blocks to
    spare) on, else all. A start above the tip is the next block. A later run goes on where the last one ended; entries
    that are new are searched for from the start that is given, else from that of the first run. A start that is given
    below that of the first run is a `rescan`: whoever had a wrong birthday gives the right one. Synced and `status`
    name the blocks that were skipped.

    `proxy` is socks5://[USER:PASSWORD@]HOST:PORT (extra `socks`), where names of peers are resolved too. Several peers
    are kept connected. Peers are independent if they are in different network groups: /16 of IPv4, /32 of IPv6, all of
    Tor. A peer is banned, for a day, only for what its own messages or a block prove; anything else costs it the
    connection, with growing pauses. PeerWarning reports both. A node that is named twice is connected once.

    `discover` looks for further peers, at most one of a network group, up to `max_peers` in all; those that are named
    go first. Addresses come from DNS seeds, asked while too few peers are there, and from peers. `store` keeps up to
    20,480 of them, and which two were connected longest: they come first in the next run. With a proxy no seed is
    asked: then peers are named, or an earlier run knew some; onion addresses that peers tell are connected through it.
    Without `discover` only the peers that are named are ever connected.

    `mode` "auto" searches blocks as "compact" where a peer serves compact filters and they can find all that is
    watched, else as "bip37". It waits for the former as long as an address that may offer them is untried.

    `mode` "bip37" gives peers a filter of what is ours. Its results are "unproven": a peer can leave a payment out. Up
    to three independent peers are asked for the same blocks and their answers compared; heights that fewer have
    answered for are remembered in `store`, and asked again when further peers come. An unconfirmed payment of a
    stranger changes no filter, since anybody can invent one; so a conflict with it is not seen until it expires.

    `mode` "compact" fetches the filters of all blocks (BIP-157), from several peers at once, and blocks that match
    whole: no peer is told what is ours. What two independent peers agree on is "proven", else it is as true as "1
    peer". Where they differ, the block judges; where it cannot, it is searched whole. Blocks with a script of an
    unconfirmed payment are fetched, too: who invents a payment to an address, with another output to a script of their
    own, learns from that whether the address is ours. `keep_filters` keeps the filters in `store` (mainnet: 13 GB), so
    that a search for new addresses needs no network but for blocks that match; filters may be brought there before, too
    (`spvfilter cfilter import`), and those that the peers' filter headers commit to are not fetched.

    Scripts of keychains are watched up to twice their lookahead beyond the last one used. Where a use in a block moves
    a window further, all blocks are searched again for the scripts that it adds, before Synced; in mode "bip37"
    keychains look ahead less far, down to the gap limit, where a filter has no room. KeychainError ends the client.
    `store` keeps the keychains: the next run has their windows at once, and those of descriptors even if `watch` lacks
    them; a window of `add_keychain` moves on when that is called again.

    With `mempool` payments are told before they are in a block. In compact mode that takes every transaction that the
    peers announce from then on, on mainnet some 300 MB a day: without it a payment shows once it is in a block. What a
    reorganisation takes out of a block is unconfirmed again.

    Synced is emitted when every block up to the tip was searched, the connected peers were heard, one of them has the
    tip, the chain has the network's minimum work, and our clock agrees with the median of theirs within 70 minutes. It
    is emitted again for the same tip when blocks were searched again, and when more heights have come to be disputed.

    Raises ParameterError. Entering raises StoreError, InexpressibleError for entries that the mode cannot find,
    NotRunningError where it is running already, KeychainMismatchError for another keychain of the same name. Where the
    client ends by itself, as on a full disk, every method raises why, and so does leaving.
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
        birthday: int | None = None,
        proxy: str | None = None,
        discover: bool = False,
        max_peers: int = 8,
        rebuild: bool = False,
        limits: Limits | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.network = (
            watch.network if network is None else Network.named(network) if isinstance(network, str) else network
        )
        if self.network != watch.network:
            raise ParameterError(f"the watch list is of {watch.network}, not of {self.network}")
        self._addresses = named_peers(peers, self.network, discover=discover, proxy=proxy, knows=store is not None)
        self._clock = clock or Clock()
        switches = {"mempool": mempool, "keep_filters": keep_filters, "discover": discover, "rebuild": rebuild}
        check_options(mode, max_peers, fp_rate, **switches)
        check_start(from_height, birthday, self._clock.wall())
        self._watch = watch
        self._path = MEMORY if store is None else store
        self._rebuild = rebuild
        self._proxy = None if proxy is None else proxies.Proxy.parse(proxy)
        self._limits = limits or Limits()
        self.mode = Mode(mode)
        reach = Reach.NAMED if not discover else Reach.DIRECT if proxy is None else Reach.PROXIED
        self._options = Options(
            self.mode,
            mempool,
            keep_filters,
            fp_rate,
            from_height,
            birthday,
            max_peers,
            patience_of(self._limits),
            reach,
            proxy is not None,
        )
        self._running: Running | None = None
        self._is_entering = False

    async def __aenter__(self) -> Self:
        if self._is_entering or (self._running is not None and not self._running.has_ended):
            raise NotRunningError("the client is running already")
        thread = futures.ThreadPoolExecutor(1, "spvfilter-store")
        self._watch.hold()
        watch = self._watch.copy()  # what it learns is this run's
        opening = thread.submit(lambda: runs.opened(self._path, watch, self._options, rebuild=self._rebuild))
        self._is_entering = True
        try:
            store, saved = await asyncio.shield(asyncio.wrap_future(opening))
            if not self._addresses and not saved.addresses and self._options.reach is Reach.PROXIED:
                raise ParameterError(
                    "DNS seeds are not asked through a proxy, and the database knows no address: name peers"
                )
            addresses = list(dict.fromkeys(map(str, self._addresses)))
            self._running = runs.Running(
                self._options,
                watch,
                store,
                saved,
                thread,
                addresses,
                proxy=self._proxy,
                limits=self._limits,
                clock=self._clock,
            )
        except BaseException:
            self._watch.release()
            await runs.end_thread(thread, lambda: runs.close_opened(opening))
            raise
        finally:
            self._is_entering = False
        watch.hold()
        self._running.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave. Raises what ended the client by itself, unless another exception is on its way."""
        assert self._running is not None
        try:
            await self._running.close()
        finally:
            self._watch.release()
            apply_changes(self._watch, self._running.engine.changes.done)
            self._watch.take_uses(self._running.engine.books.watch)
        if error is None:
            self._running.hub.check()

    def _checked(self) -> Running:
        """The present run. Raises NotRunningError, and what ended the client if it has ended by itself."""
        if self._running is None:
            raise NotRunningError("enter the client first: async with")
        self._running.check()
        return self._running

    # What users do

    @property
    def chain(self) -> HeaderChain:
        """The best chain of headers. Raises NotRunningError."""
        return self._checked().engine.chain

    def events(self, since: int | None = None) -> EventStream:
        """What happens, in order, until the client is left; a stream with a position of its own.

        Events of the books (WalletEvent: MatchFound, MatchConfirmed, MatchWithdrawn, BlockConnected, BlockDisconnected)
        have a number, `event.sequence`, and are kept in the database: they survive restarts, and every stream gives
        them with the same number. The number is an attribute of the event, so that it goes along wherever the event is
        handed; `case MatchFound(match)` and comparisons know nothing of it. Progress, PeerChanged, PeerWarning,
        FeeWarning and Synced tell of this run only, and have none.

        With `since` the stream gives the events that follow this number, of earlier runs, too: the number of the last
        event that a program has dealt with, or `sequence` of a snapshot (`matches()`, `balance()`, `coins()`,
        `history()`): the events then tell all that has changed after it, and nothing that it has. Without `since` it
        begins behind the last event that any such stream of this run gave: at first that is where the run began; a loop
        that was left and is begun again goes on; streams that are opened before anything is read give all the same.
        `stream.sequence` is where a stream is.

        Nobody needs to read: the client goes on, and what a stream has not read in time it reads from the database.
        That keeps the latest 250,000 events and those of the last 30 days, but always 10,000. Of what has no number,
        the latest 100 of a kind are held for those who lag, and only the last of Progress, PeerChanged and Synced.

        Raises ParameterError for a number that no event has yet, NotRunningError before the client was entered. The
        stream raises EventGapError where events that it has not given are no longer kept: go on from a snapshot. After
        the last event it raises what ended the client: StoreError, PeerError where every peer lied. One that lags when
        the client is left ends where it is.
        """
        if self._running is None:
            raise NotRunningError("enter the client first: async with")
        last = self._running.engine.last_event
        if since is not None and not (isinstance(since, int) and 0 <= since <= last):
            raise ParameterError(
                f"the number of an event is from 0 to {last} now, not {since!r}: is it one of another database?"
            )
        return EventStream(self._running.hub, since)

    async def bookmark(self, reader: str) -> int | None:
        """Number of the last event that a reader has dealt with, as `set_bookmark` kept it; None if it has kept none.

        Raises ParameterError for a name that is no text, NotRunningError, StoreError.
        """
        return await self._checked().bookmark(reader)

    async def set_bookmark(self, reader: str, sequence: int) -> None:
        """Keep in the database how far a reader has come, for `events(since=await client.bookmark(reader))` in the next
        run.

        What it deals with before a crash and after its last bookmark it is given once more: at least once, never not at
        all. A program with a database of its own keeps the number there, together with what it made of the event.
        Raises ParameterError for a number that no event has yet and for a name that is no text, NotRunningError,
        StoreError.
        """
        await self._checked().set_bookmark(reader, sequence)

    async def matches(self) -> Snapshot[MatchFound]:
        """Every match there is: those of the best chain, lowest first, then those of the mempool; a snapshot for
        `events(since=…)`.

        Raises NotRunningError, StoreError.
        """
        return await self._checked().matches()

    async def wait_synced(self) -> Synced:
        """Wait until every block up to the tip was searched, and return the Synced that says so; at once if that is so
        now.

        What is wrong with peers meanwhile is logged as warnings, the first few of each wait: it may be what it waits
        for. Raises NotRunningError if the client is left meanwhile, and what ends it otherwise.
        """
        return await wait_synced(self._checked())

    async def wait_confirmed(self, txid: bytes, confirmations: int = 1) -> HistoryEntry:
        """Wait until a transaction of the wallet (txid: 32 bytes, wire order) has so many confirmations; its entry of
        the history.

        Confirmations count from blocks of the best chain: where a reorganisation takes its block out, the wait goes on.
        One that was replaced is waited for, since a block may yet have it, and one that the wallet does not know, since
        it may come.

        Raises NotConfirmedError where it ended: a block has a rival of it, with as many confirmations as are waited
        for; it was abandoned; it expired; or all peers refused it. Raises ParameterError, StoreError, NotRunningError
        if the client is left meanwhile, and what ends it otherwise.
        """
        return await wait_confirmed(self._checked(), txid, confirmations)

    async def balance(self, label: str | None = None, *, keychain: str | None = None) -> Balance:
        """What the wallet has, by all that was told so far: everything, or the coins of a label or a keychain.

        Raises NotRunningError, StoreError, ParameterError for an unknown keychain.
        """
        return await self._checked().read(lambda views: views.balance(label, keychain=keychain))

    async def coins(
        self,
        *,
        label: str | None = None,
        keychain: str | None = None,
        limit: int | None = None,
        before: str | None = None,
    ) -> Snapshot[Coin]:
        """Its unspent outputs, in pages, as WalletStore.coins. Raises NotRunningError, StoreError, ParameterError."""
        return await self._checked().read(
            lambda views: views.coins(label=label, keychain=keychain, limit=limit, before=before)
        )

    async def history(
        self,
        *,
        label: str | None = None,
        keychain: str | None = None,
        limit: int | None = DEFAULT_LIMIT,
        before: str | None = None,
    ) -> Snapshot[HistoryEntry]:
        """Its transactions, in pages, as WalletStore.history. Raises NotRunningError, StoreError, ParameterError."""
        return await self._checked().read(
            lambda views: views.history(label=label, keychain=keychain, limit=limit, before=before)
        )

    async def keychains(self) -> tuple[KeychainStatus, ...]:
        """Its keychains, with what was used of them. Raises NotRunningError, StoreError."""
        return await self._checked().read(lambda views: views.keychains())

    async def next_address(self, keychain: str | None = None) -> str:
        """The address to give out next: the lowest one never used, of the keychain with a name or a label, by default
        the first.

        As WalletStore.next_address. Raises NotRunningError, StoreError, ParameterError if there is none.
        """
        return await self._checked().read(lambda views: views.next_address(keychain))

    async def is_used(self, address: str) -> bool:
        """Whether an output that pays this address was found.

        Raises NotRunningError, StoreError, AddressError, WrongNetworkError.
        """
        return await self._checked().read(lambda views: views.is_used(address))

    async def transaction(self, txid: bytes) -> HistoryEntry | None:
        """One of its transactions by txid (32 bytes, wire order), or None. Raises NotRunningError, StoreError."""
        return await self._checked().read(lambda views: views.transaction(txid))

    @property
    def watch(self) -> WatchList:
        """What is watched: while the client runs, with what the database knows; else the list that it was made with.

        It cannot be changed while the client runs: WatchListInUseError; see `add_addresses`, `remove` and `relabel`.
        """
        running = self._running
        return self._watch if running is None or running.is_left else running.engine.books.watch

    @property
    def tip_height(self) -> int:
        """Height of the best chain's last block. Raises NotRunningError."""
        return self._checked().engine.chain.height

    @property
    def searched_height(self) -> int:
        """Up to here the blocks of the best chain were searched, but for those that were skipped (see `status`); -1 for
        none.

        Raises NotRunningError.
        """
        return self._checked().engine.books.cursor

    @property
    def observed_fp_rate(self) -> float:
        """The share of foreign transactions, in the blocks of this run, that a peer's BIP-37 filter let through; 0.0
        before any.

        A transaction has a dozen elements or so, each of which is let through at about `fp_rate`. Raises
        NotRunningError.
        """
        filtered = self._checked().engine.books.filtered
        return filtered.false_positives / max(1, filtered.txs)

    def fee_floor(self) -> FeeFloor | None:
        """The fee rate that the connected peers ask for, as their median; None if no peer has told.

        Raises NotRunningError.
        """
        return fee_floor(self._checked().engine.pool.connected())

    async def broadcast(
        self, raw_tx: bytes | Serializable, *, input_values: Iterable[int] | None = None, private: bool = False
    ) -> Broadcast:
        """Send a transaction, and say what is known of it once a peer has taken it; events tell what follows.

        Taken means that a peer has it: it announces it, had it before, or fetched it and gives it back when it is
        asked. One that does not answer that question is believed. Refused means that a peer says so (BIP-61 reject), or
        fetched it and does not have it for 40 seconds. One that all have refused who were sent it is an error, is not
        offered any more and counts as nothing (TxStatus.REFUSED); a peer that has it nevertheless is believed, and so
        is a block, if anything of it is watched, or the block is fetched whole for something else: for its sake alone
        none is, and it may be on its way. One that somebody has taken counts, whoever refuses it.

        What of it concerns the list is a match of the mempool from the moment on in which a peer fetches it. It is
        offered again, to every peer and in every run, every ten minutes until a peer announces it that did not get it
        from us, then once a day, until a block has it or 336 hours have passed. BroadcastProgress tells what peers do
        with it, BroadcastChanged what becomes of it. One that is in the books, in a block or waiting, is offered again,
        but not waited for. It takes the place of unconfirmed ones that spend the same (see TxStatus): of those
        broadcast here only the last is offered, and who waits for one that no peer has asked for yet gets a
        TxConflictError. A parent that was refused for its fee is offered again with a child that pays for both.

        `private` gives it to one peer first, in a connection made for it alone, through a circuit of its own where
        there is a proxy (with Tor). If two connected peers announce it within two to four minutes, none is told of it,
        and after a day without a block another stranger gets it; if not, all are told: one alone may lie. Without a
        proxy that one peer sees our address. It is said of it that it was sent, not whether it is kept. PrivacyError
        where that cannot be: a peer has a BIP-37 filter that matches it, peers have it already or a parent that nobody
        else is known to have, every known address is connected, or nobody announces anything to us, without `mempool`.

        FeeWarning is emitted if its fee is below `fee_floor()`. The fee is known where the wallet knows what every
        input spends, or where `input_values` states it: satoshi, for each input in order. Otherwise there is no
        warning, however low the fee is.

        Raises FormatError for a malformed one, TxConflictError where another transaction stands against it, in a block
        or known to peers that refuse it, ParameterError for one that no block can have and for input values that cannot
        be, TxRefusedError if every peer that was sent it refuses it, UselessPeerError if no peer fetches it in time,
        PrivacyError, NotRunningError.
        """
        running = self._checked()
        tx = Transaction.parse(to_bytes(raw_tx))
        values = None if input_values is None else tuple(input_values)
        check_input_values(tx, values)
        return await running.broadcast(tx, values, is_private=private)

    async def abandon(self, txid: bytes) -> None:
        """Give up an unconfirmed transaction that was broadcast here, its descendants, and those from here that it had
        replaced.

        They are not offered again, and the coins that they spend can be spent. If a block has one anyway, it is
        confirmed, if anything of it is watched, or the block is fetched whole for something else. Broadcasting it again
        takes this back.

        Raises ParameterError for one that is not unconfirmed, or not from here, NotRunningError.
        """
        await self._checked().abandon(txid)

    # What is searched for, and where

    async def add_address(
        self, address: str, label: str | None = None, *, from_height: int | None = None, birthday: int | None = None
    ) -> None:
        """Watch another address, as `add_addresses`.

        Raises AddressError, ParameterError, NotRunningError, StoreError.
        """
        await self._add(lambda watch: watch.add_address(address, label), from_height, birthday)

    async def add_addresses(
        self,
        addresses: Iterable[str | tuple[str, str | None]],
        *,
        from_height: int | None = None,
        birthday: int | None = None,
    ) -> None:
        """Watch further addresses, or (address, label) pairs, all or none.

        Blocks from a height or a birthday on are searched for them.

        By default that is where the client's search began. If it is above the tip, the next block is the first. What
        was searched already is searched again from there on, for the coins found now; Synced follows. An address that
        is watched already gets the label, and is searched for where it was not. Returns when the addresses are stored;
        until then neither the list nor any peer's filter has them.

        Raises AddressError, ParameterError, InexpressibleError, NotRunningError, and StoreError, which ends the client.
        """
        if isinstance(addresses, str):
            raise TypeError("an iterable of addresses expected, not one string")
        more = WatchList.from_addresses(addresses, self.network)
        await self._add_all(more, from_height, birthday)

    async def add_script(
        self,
        script_pubkey: bytes,
        label: str | None = None,
        *,
        from_height: int | None = None,
        birthday: int | None = None,
    ) -> None:
        """Watch another scriptPubKey, as `add_addresses`.

        Raises ParameterError, InexpressibleError, NotRunningError, StoreError.
        """
        await self._add(lambda watch: watch.add_script(script_pubkey, label), from_height, birthday)

    async def add_pubkey(
        self, pubkey: bytes, label: str | None = None, *, from_height: int | None = None, birthday: int | None = None
    ) -> None:
        """Watch another public key, as `add_addresses`.

        Raises ParameterError, InexpressibleError, NotRunningError, StoreError.
        """
        await self._add(lambda watch: watch.add_pubkey(pubkey, label), from_height, birthday)

    async def add_outpoint(
        self,
        outpoint: OutPoint | str,
        label: str | None = None,
        *,
        from_height: int | None = None,
        birthday: int | None = None,
    ) -> None:
        """Watch for the spend of another outpoint, as `add_addresses`.

        Raises ParameterError, NotRunningError, StoreError.
        """
        await self._add(lambda watch: watch.add_outpoint(outpoint, label), from_height, birthday)

    async def _add(self, change: Callable[[WatchList], None], from_height: int | None, birthday: int | None) -> None:
        more = WatchList(self.network)
        change(more)
        await self._add_all(more, from_height, birthday)

    async def _add_all(self, more: WatchList, from_height: int | None, birthday: int | None) -> None:
        running, start = self._checked(), check_start(from_height, birthday, self._clock.wall())
        check_expressible(more, self.mode)  # before anything is changed
        ways = ways_of(more) if self.mode is Mode.AUTO else frozenset((self.mode,))
        self._searched_from(running, await running.ask(AddEntries(tuple(more.entries()), start, ways)))

    async def remove(self, *entries: EntryName) -> None:
        """Watch entries no more: addresses, scriptPubKeys, outpoints, or what a line of a watch list's file has, such
        as `pubkey:HEX`.

        The books follow the list: what matched only these entries leaves balance, coins and history, as if they had
        never been watched, and MatchWithdrawn(reason=REMOVED) tells of each match. What was broadcast here and is
        unconfirmed stays, and in the history what had ended before (conflicted, abandoned, expired). An entry that is
        added again is searched for anew. Returns when that is stored.

        A script of a keychain is not removed alone.

        Raises ParameterError for an entry that is not watched, for a script of a keychain and if none is left,
        NotRunningError, StoreError.
        """
        await self._checked().ask(RemoveEntries(named(entries, self.network)))

    async def relabel(self, entry: EntryName, label: str | None) -> None:
        """Give an entry (as for `remove`) another label, or none; history and coins show it at once.

        Returns when that is stored.

        Raises ParameterError for an entry that is not watched or an invalid label, NotRunningError, StoreError.
        """
        await self._checked().ask(RelabelEntries(named([entry], self.network), label))

    async def rescan(self, *, from_height: int | None = None, birthday: int | None = None) -> int:
        """Search blocks again for all that is watched, from a height or a birthday on, else all; the first height that
        is searched.

        The wallet's start is then no higher than that. What is known stays and is not told again; what was overlooked
        is found. Blocks above `searched_height` are searched anyway: from there on, or above the tip, this changes
        nothing. Returns when that is stored, so that it goes on after a restart, and is not taken back if the wait is
        cancelled; Synced follows when it is done.

        Raises ParameterError, NotRunningError, StoreError.
        """
        running, start = self._checked(), check_start(from_height, birthday, self._clock.wall())
        return self._searched_from(running, await running.ask(Rescan(start)))

    def _searched_from(self, running: Running, first: object) -> int:
        """Without a database, the next run begins there, too."""
        assert isinstance(first, int)
        begun, given = running.engine.books.blocks.start, self._options.from_height
        lowest = given if self._options.birthday is None or begun is None else begun
        if self._path == MEMORY and lowest is not None and first < lowest:
            self._options = dataclasses.replace(self._options, from_height=first, birthday=None)
        return first

    async def status(self) -> ClientStatus:
        """What the client knows of itself now, with the blocks that were searched for each entry.

        Raises NotRunningError, StoreError.
        """
        return await self._checked().status()

    async def searched_for(self, entry: EntryName) -> tuple[BlockRange, ...]:
        """The blocks that were searched for an entry (as for `remove`).

        Raises ParameterError, NotRunningError, StoreError.
        """
        wanted = named([entry], self.network)
        return await self._checked().read(lambda views: views.searched_for(wanted))
