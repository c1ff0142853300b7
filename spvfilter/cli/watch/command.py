"""`spvfilter watch`: follow a wallet live through full nodes and print its events."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from spvfilter.cli.arguments import (
    add_format,
    add_network,
    add_watch_file,
    birthday,
    format_of,
    network_of,
    options_of,
    probability,
    whole,
)
from spvfilter.cli.delivery import deliver
from spvfilter.cli.interrupts import terminable
from spvfilter.cli.nodes import ClientOptions, PeerMessages, add_mempool_groups, add_nodes, add_timeout, in_use
from spvfilter.cli.nodesource import Helper, NodeSource, ServerSource, add_node, warn_of_server
from spvfilter.cli.term.balances import Balances
from spvfilter.cli.term.logs import UnrepeatedMessages, handled_by
from spvfilter.cli.term.matches import printer, record
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.ranges import never_searched
from spvfilter.cli.watch.bookmark import Bookmark
from spvfilter.cli.watch.status import TICK_S, StatusDisplay, status
from spvfilter.errors import EventGapError, ParameterError, StoreLockedError, UselessPeerError
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.light.client import LightClient
from spvfilter.light.events import (
    BroadcastChanged,
    BroadcastProgress,
    Event,
    FeeWarning,
    Mode,
    PeerChanged,
    PeerWarning,
    PendingWarning,
    Phase,
    Progress,
    Synced,
)
from spvfilter.primitives import hash_to_hex
from spvfilter.store.rebuild import damaged
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

_PATIENCE_S = 60.0  # default of --timeout
_MatchEvent = MatchFound | MatchConfirmed | MatchUnconfirmed | MatchWithdrawn
_NAMES = {
    MatchFound: "found",
    MatchConfirmed: "confirmed",
    MatchUnconfirmed: "unconfirmed",
    MatchWithdrawn: "withdrawn",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter watch [ADDRESS ...] --connect HOST:PORT [OPTION ...]"
    parser.description = (
        "Connect to full nodes that serve compact or BIP-37 filters, verify what they send, and print every payment to"
        " and from the wallet. Old payments come first, then new ones as they arrive. A single node can withhold"
        " payments, so connect to two or more: their answers are compared. Press Ctrl-C to stop."
    )
    parser.add_argument(
        "addresses",
        metavar="ADDRESS",
        nargs="*",
        help="an address or a descriptor to watch; --db keeps it for later runs",
    )
    add_watch_file(parser)
    add_nodes(parser)
    add_network(parser, has_database=True)
    parser.add_argument(
        "--no-mempool",
        action="store_true",
        help=(
            "report a payment only once it is in a block. With compact filters, this avoids fetching every announced"
            " transaction, 300 MB a day on mainnet"
        ),
    )
    add_mempool_groups(parser)
    parser.add_argument(
        "--db",
        metavar="FILE",
        help="keep headers, matches and the wallet's filter in FILE; without it, every run starts from scratch",
    )
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="replace a damaged --db with a new one, saving as much as possible; the old file becomes FILE.damaged",
    )
    parser.add_argument(
        "--keep-filters",
        action="store_true",
        help=(
            "keep compact filters in --db, so that a search for new addresses need not fetch them again; cfilter import"
            " adds filters from files"
        ),
    )
    add_start(parser)
    parser.add_argument(
        "--fp-rate",
        metavar="P",
        type=probability,
        default=DEFAULT_FP_RATE,
        help=(
            "with --mode bip37: the share of other people's transactions that the filter matches. A higher rate hides"
            " more and costs more traffic; default %(default)s"
        ),
    )
    _add_output(parser)
    add_node(parser)


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose which blocks are searched."""
    since = parser.add_mutually_exclusive_group()
    since.add_argument(
        "--from-height",
        metavar="N",
        type=whole(0, 0xFFFFFFFF),
        help=(
            "search blocks starting at height N or, if N is above the tip, at the next block. On later runs with --db,"
            " N matters only if it is below the original start"
        ),
    )
    since.add_argument(
        "--birthday",
        metavar="YYYY-MM-DD",
        type=birthday,
        help="search blocks starting on that day, or at that Unix time, like --from-height",
    )
    parser.add_argument(
        "--rescan",
        action="store_true",
        help=(
            "search all blocks again, or those starting at --from-height or --birthday; this downloads little if"
            " --keep-filters kept the filters"
        ),
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay",
        action="store_true",
        help=(
            "with --format jsonl and --db: also print the events that earlier runs printed. Without it, a run prints"
            " only new events"
        ),
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help=(
            "stop at the tip, once the `synced` line is printed and nodes have requested the wallet's own transactions"
            " (this waits at most 10 seconds for them). A table lists every match; jsonl lists new events, see"
            " --replay"
        ),
    )
    add_timeout(parser, _PATIENCE_S, "with --once: give up after this long without progress; default %(default)g")
    add_format(parser)


@dataclass(frozen=True, kw_only=True)
class WatchOptions(ClientOptions):
    """The options of `watch`. Each field holds the option of the same name.

    Raises ParameterError if the options contradict each other.
    """

    addresses: list[str]
    no_mempool: bool
    fp_rate: float
    keep_filters: bool
    rebuild: bool
    replay: bool
    once: bool
    timeout: float
    format: str | None

    def __post_init__(self) -> None:
        if not self.addresses and self.watch is None:
            if self.db is None:
                raise ParameterError("nothing to watch for: give addresses, --watch FILE or the --db of an earlier run")
            if not Path(self.db).exists():  # otherwise the client would create it, possibly for the wrong network
                raise ParameterError(
                    f"nothing to watch for: {self.db} does not exist yet: give addresses or --watch FILE"
                )
        super().__post_init__()
        needs_db = {"--rebuild": self.rebuild, "--keep-filters": self.keep_filters, "--replay": self.replay}
        for option, is_given in needs_db.items():
            if is_given and self.db is None:
                raise ParameterError(f"{option} needs --db FILE")


def run(args: argparse.Namespace) -> int:
    options = options_of(WatchOptions, args, network=network_of(args))
    source = options.source()
    client = LightClient(
        options.watch_list(options.addresses),
        peers=options.connect,
        store=options.db,
        mode=Mode(options.mode),
        keep_filters=options.keep_filters,
        mempool=not options.no_mempool,
        mempool_groups=options.mempool_groups,
        fp_rate=options.fp_rate,
        from_height=options.from_height,
        birthday=options.birthday,
        proxy=options.proxy,
        v2=options.v2,
        discover=options.discover,
        rebuild=options.rebuild,
        spent_source=source if isinstance(source, NodeSource) else None,
        tweak_source=source if isinstance(source, ServerSource) else None,
    )
    warn_of_server(source)
    return asyncio.run(terminable(_Watch(client, source, Page(sys.stdout), options).run()))


class _Patience:
    """A countdown of the time without progress. When it ends, `timeout` expires.

    A connected node does not stop it: a node may have none of the blocks that are missing.
    """

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout = timeout
        self._seconds = seconds
        self.has_node = False
        """True while there is a usable node."""
        self.progress()

    def progress(self) -> None:
        """Start the countdown again."""
        self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)


class _Watch:
    """One run of `spvfilter watch`: the light client, and the output of its events."""

    def __init__(self, client: LightClient, source: Helper | None, page: Page, options: WatchOptions) -> None:
        self._client = client
        self._source = source
        self._page = page
        self._options = options
        self._patience: _Patience | None = None  # only with --once
        self._rebuilt = Path(options.db) if options.rebuild and options.db and Path(options.db).is_file() else None
        """An existing database that --rebuild may replace."""
        self._balances = Balances()
        self._json = format_of(options.format, page) == "jsonl"
        self._show = printer(page, "table")
        self._skipped: tuple[tuple[int, int], ...] = ()  # skipped ranges that the last warning named
        self._peers = PeerMessages()
        self._furthest: dict[Phase, int] = {}

    async def run(self) -> int:
        """Follow the wallet until the end of the run, and return the exit code."""
        try:
            async with AsyncExitStack() as stack:
                if self._source is not None:
                    await stack.enter_async_context(self._source)
                client = await self._opened(stack)
                if not len(client.watch):
                    raise ParameterError("nothing to watch for: the database knows no addresses")
                if self._options.rescan:
                    await client.rescan(from_height=self._options.from_height, birthday=self._options.birthday)
                with status(None if self._json else self._page.console, self._balances) as shown:
                    ticker = asyncio.create_task(tick(shown))
                    try:
                        await self._follow(client, shown)
                    finally:
                        ticker.cancel()
        finally:
            if not self._json:
                self._balances.show(self._page)
        return 0

    async def _opened(self, stack: AsyncExitStack) -> LightClient:
        """Enter the client. If the database was replaced by a new one, say so, even if entering fails."""
        before = self._rebuilt.stat().st_ino if self._rebuilt is not None else 0
        stack.enter_context(handled_by("spvfilter.store.rebuild", UnrepeatedMessages()))
        try:
            return await stack.enter_async_context(self._client)
        except StoreLockedError as error:
            advice = "stop it, or use `spvfilter wallet`, which can read it now"
            raise in_use(error, str(self._options.db), advice) from None
        finally:
            if self._rebuilt is not None and self._rebuilt.is_file() and self._rebuilt.stat().st_ino != before:
                complain(
                    f"{self._rebuilt} was rebuilt, and headers and matches are being fetched again; the old file is"
                    f" {damaged(self._rebuilt)}"
                )

    async def _follow(self, client: LightClient, shown: StatusDisplay) -> None:
        """Print events: with --once until the first `Synced` event, otherwise forever."""
        read = self._print_lines if self._json else self._print_table
        if not self._options.once:
            await read(client, shown)
            return
        try:
            async with asyncio.timeout(None) as timeout:
                self._patience = _Patience(timeout, self._options.timeout)
                await read(client, shown)
            await deliver(client, shown.complain)
        except TimeoutError:
            if not timeout.expired():
                raise
            lacking = "progress" if self._patience is not None and self._patience.has_node else "usable node"
            raise UselessPeerError(f"gave up: no {lacking} for {self._options.timeout:g} s") from None

    async def _print_table(self, client: LightClient, shown: StatusDisplay) -> None:
        """Print all matches, then events as they arrive.

        With --once, print all matches after the tip has been searched.
        """
        events = client.events(since=None if self._options.once else await self._print_all(shown))
        async for event in events:
            if await self._take(event, shown, events.sequence):
                return

    async def _print_lines(self, client: LightClient, shown: StatusDisplay) -> None:
        """Print each event that no earlier run printed, with its own sequence number.

        If a run is killed, the last lines that it wrote may be printed again by the next run.
        """
        bookmark = Bookmark(client)
        since = await bookmark.begin()
        events = client.events(since=0 if self._options.replay else since)
        keeper = asyncio.create_task(bookmark.keep())
        try:
            while True:
                before = events.sequence
                try:
                    event = await anext(events)
                    if _is_behind_hole(event, before):
                        raise EventGapError(before, events.sequence)
                except StopAsyncIteration:
                    return
                except EventGapError as gap:
                    events = client.events(since=await self._print_snapshot(gap, shown))
                    if not (await client.status()).is_synced:
                        continue
                    event = await client.wait_synced()  # it may have happened before the snapshot
                is_last = await self._take(event, shown, events.sequence)
                bookmark.told(events.sequence)
                if is_last:
                    return
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await bookmark.end()

    async def _print_snapshot(self, gap: EventGapError, shown: StatusDisplay) -> int:
        """Print all current matches in place of events that the database does not contain.

        These lines are not events and have no number. The `dropped` line before them gives the number of the snapshot.
        """
        if gap.since and self._rebuilt is None:  # otherwise no earlier line is replaced, or a message says why
            shown.complain(
                f"the database does not contain every event after number {gap.since}: all current matches follow the"
                " `dropped` line; use them instead of the matches in earlier lines"
            )
        matches = await self._client.matches()
        self._line({"event": "dropped", "sequence": matches.sequence, "since": gap.since})
        for found in matches:
            self._match(found, shown, None)
        return matches.sequence

    async def _print_all(self, shown: StatusDisplay) -> int:
        """Print a table row for each current match, and return the number of the last event that the rows include."""
        matches = await self._client.matches()
        for found in matches:
            self._match(found, shown, None)
        return matches.sequence

    async def _take(self, event: Event, shown: StatusDisplay, sequence: int) -> bool:
        """Print an event and return whether the run ends with it.

        Args:
            event: The event.
            shown: The status display.
            sequence: Number of the event, or of the last numbered event before it if it has no number.
        """
        match event:
            case MatchFound() | MatchConfirmed() | MatchUnconfirmed() | MatchWithdrawn():
                if self._json or not self._options.once:
                    self._match(event, shown, sequence)
            case TxReplaced():
                self._replaced(event, shown, sequence)
            case Progress():
                self._advanced(event, shown)
            case BlockConnected():
                self._progressed()
            case Synced():
                if self._options.once and not self._json:
                    await self._print_all(shown)
                await self._synced(event, shown, sequence)
                return self._options.once
            case BlockDisconnected(height, block_hash):
                self._disconnected(height, block_hash, shown, sequence)
            case PeerChanged():
                self._peer_changed(event, shown)
            case PeerWarning():
                if (message := self._peers.of(event)) is not None:
                    shown.complain(message)
            case PendingWarning(number, matches):
                shown.complain(
                    f"an unconfirmed payment was dropped: {number:,} transactions from other people with {matches:,}"
                    " matches are pending, which is the limit. Blocks still confirm payments."
                )
            case BroadcastProgress() | BroadcastChanged():
                self._sent(event, shown)
            case FeeWarning() | RunStarted():
                pass
            case _:
                assert_never(event)
        return False

    def _advanced(self, event: Progress, shown: StatusDisplay) -> None:
        shown.progress(event.phase.value, event.done, event.total)
        if event.done > self._furthest.get(event.phase, 0):
            self._furthest[event.phase] = event.done
            self._progressed()

    def _progressed(self) -> None:
        if self._patience is not None:
            self._patience.progress()

    def _match(self, event: _MatchEvent, shown: StatusDisplay, sequence: int | None) -> None:
        match = event.match
        if isinstance(event, MatchUnconfirmed):
            match = replace(match, block_hash=None, height=None, time=None)  # in its current state
        if self._json:
            fields = record(match)
            del fields["fee"]  # it belongs to the transaction, not to one match: `wallet history` prints it
            late = {key: fields.pop(key) for key in ("time", "coinbase")}
            if match.account is not None:
                late["account"] = match.account
            if match.sp_label is not None:
                late["sp_label"] = match.sp_label
            self._line({"event": _NAMES[type(event)], "sequence": sequence, **fields, **_how(event), **late})
            return
        shown.clear()
        if isinstance(event, MatchWithdrawn):
            self._balances.remove(match)
            by = f" by {hash_to_hex(event.by)}" if event.by is not None else ""
            self._page.line(f"withdrawn ({event.reason}{by}):", "yellow")
        else:
            self._balances.put(match)
            if isinstance(event, MatchUnconfirmed):
                self._page.line("unconfirmed again:", "yellow")
        self._show(match)
        shown.changed()

    def _replaced(self, event: TxReplaced, shown: StatusDisplay, sequence: int) -> None:
        if self._json:
            txids = {"txid": hash_to_hex(event.txid), "by": hash_to_hex(event.by)}
            self._line({"event": "replaced", "sequence": sequence, **txids})
        elif not self._options.once:
            shown.clear()
            self._page.line(f"{hash_to_hex(event.txid)} was replaced by {hash_to_hex(event.by)}", "yellow")

    async def _synced(self, event: Synced, shown: StatusDisplay, sequence: int) -> None:
        height = event.height
        shown.synced(height, sees_unconfirmed=event.sees_unconfirmed)
        if event.skipped != self._skipped:
            self._skipped = event.skipped
            if event.skipped:
                shown.complain(never_searched(event.skipped))
        if self._json:
            status = await self._client.status()
            facts = {"disputed": event.disputed, "skipped": event.skipped, "silent_source": status.silent_source}
            named = {name: each for name, each in facts.items() if each}
            place = {"height": height, "block": hash_to_hex(event.hash), **named}
            peers = {peer.address: peer.transport.value for peer in status.peers}
            seen = {"sees_unconfirmed": event.sees_unconfirmed, "peers": peers}
            self._line({"event": "synced", "sequence": sequence, **place, **seen})
        elif self._options.once:
            count = len(self._balances)
            found = f"{count:,} match{'es' if count != 1 else ''}" if count else "nothing found"
            shown.complain(f"synced to height {height:,}: {found}")

    def _disconnected(self, height: int, block_hash: bytes, shown: StatusDisplay, sequence: int) -> None:
        if self._json:
            self._line(
                {"event": "disconnected", "sequence": sequence, "height": height, "block": hash_to_hex(block_hash)}
            )
        elif not self._options.once:
            shown.clear()
            self._page.line(f"block {height} {hash_to_hex(block_hash)} left the best chain", "yellow")

    def _sent(self, event: BroadcastProgress | BroadcastChanged, shown: StatusDisplay) -> None:
        """Print what a peer did with one of the wallet's own transactions, or its new status."""
        if self._json:
            self._line(sending(event))
            return
        said = (
            f"{event.step}: {event.peer} {event.reason}"
            if isinstance(event, BroadcastProgress)
            else f"now {event.status}"
        )
        shown.complain(f"your transaction {hash_to_hex(event.txid)} {said.rstrip()}")

    def _peer_changed(self, event: PeerChanged, shown: StatusDisplay) -> None:
        shown.peer(event.address, event.user_agent, event.transport)
        if event.address is not None:
            self._peers.connected(event.address)
        if self._patience is not None:
            self._patience.has_node = event.address is not None

    def _line(self, fields: dict[str, object]) -> None:
        self._page.record(fields)


def sending(event: BroadcastProgress | BroadcastChanged) -> dict[str, object]:
    """Return the JSON fields of an event about one of the wallet's own transactions."""
    txid = hash_to_hex(event.txid)
    if isinstance(event, BroadcastProgress):
        reason = {"reason": event.reason} if event.reason else {}
        return {"event": event.step.value, "txid": txid, "peer": event.peer, **reason}
    by = {} if event.by is None else {"by": hash_to_hex(event.by)}
    return {"event": "broadcast", "txid": txid, "status": event.status.value, **by}


def _how(event: _MatchEvent) -> dict[str, str]:
    """Return the JSON fields that say how completely the match's block was searched, or why the match was withdrawn."""
    if isinstance(event, MatchUnconfirmed):
        return {}
    if not isinstance(event, MatchWithdrawn):
        return {"completeness": event.completeness.value}
    by = {} if event.by is None else {"by": hash_to_hex(event.by)}
    return {"reason": event.reason.value, **by}


def _is_behind_hole(event: Event, before: int) -> bool:
    """Return True if the database has dropped events about foreign transactions between `before` and an event."""
    return isinstance(event, WalletEvent) and not isinstance(event, RunStarted) and event.sequence > before + 1


async def tick(shown: StatusDisplay) -> None:
    """Update a status display repeatedly, until the terminal goes away."""
    with suppress(OSError):  # the terminal is gone; the next output reports it
        while True:
            shown.tick()
            await asyncio.sleep(TICK_S)
