"""`spvfilter watch`: follow a wallet live through full nodes and print its events."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from spvfilter.cli.arguments import add_network, add_watch_file, day, probability, watch_list, whole
from spvfilter.cli.term.balances import Balances
from spvfilter.cli.term.matches import printer, record
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.ranges import never_searched
from spvfilter.cli.watch.place import Place
from spvfilter.cli.watch.status import TICK_S, Status, status
from spvfilter.errors import EventGapError, ParameterError, UselessPeerError
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.light.client import LightClient
from spvfilter.light.events import (
    BroadcastChanged,
    BroadcastProgress,
    Event,
    Mode,
    PeerChanged,
    PeerWarning,
    Phase,
    Progress,
    Synced,
)
from spvfilter.p2p.address import Address
from spvfilter.p2p.proxy import Proxy
from spvfilter.primitives import hash_to_hex
from spvfilter.store.rebuild import damaged
from spvfilter.wallet.events import BlockConnected, BlockDisconnected, MatchConfirmed, MatchFound, MatchWithdrawn

FORMATS = ("table", "jsonl")
TERMINATED = 143  # exit code, 128 + SIGTERM
_PATIENCE_S = 30.0
_LONGEST_NAME = (
    25  # characters of a host without a dot; a longer name is probably an address or a key, which no resolver must see
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter watch [ADDRESS ...] --connect HOST:PORT [OPTION ...]"
    parser.description = (
        "Connect to full nodes that serve compact or BIP-37 filters, verify what they send, and print every payment to"
        " and from the wallet, now and after every restart. One node alone can leave payments out; connect to two or"
        " more, and they are compared."
    )
    parser.add_argument(
        "addresses",
        metavar="ADDRESS",
        nargs="*",
        help="addresses or descriptors to watch; with --db, also those of earlier runs",
    )
    add_watch_file(parser)
    parser.add_argument(
        "--connect",
        metavar="HOST:PORT",
        type=_peer,
        action="append",
        default=[],
        help="a full node; the port may be left out; repeatable",
    )
    parser.add_argument(
        "--discover",
        action="store_true",
        help=(
            "look for further nodes: DNS seeds are asked, which tells them that you use Bitcoin, and nodes; --db keeps"
            " their addresses"
        ),
    )
    parser.add_argument(
        "--proxy",
        metavar="URL",
        type=_proxy,
        help="socks5://[USER:PASSWORD@]HOST:PORT, such as Tor's; it resolves host names, too",
    )
    add_network(parser)
    parser.add_argument(
        "--mode",
        choices=[str(mode) for mode in Mode],
        default=Mode.AUTO,
        help=(
            "compact: nodes learn nothing of the wallet; bip37: nodes get a filter of it; auto (default): compact where"
            " a node serves it and it can find everything watched, else bip37"
        ),
    )
    parser.add_argument(
        "--no-mempool",
        action="store_true",
        help=(
            "report payments only once they are in a block; with compact filters this saves fetching every transaction"
            " (300 MB a day)"
        ),
    )
    parser.add_argument(
        "--db",
        metavar="FILE",
        help="where to keep headers, matches and the wallet's filter; without it nothing is remembered",
    )
    parser.add_argument(
        "--rebuild",
        action="store_true",
        help="rebuild a damaged --db, keeping what can be kept; the old one becomes FILE.damaged",
    )
    parser.add_argument(
        "--keep-filters",
        action="store_true",
        help=(
            "keep compact filters in --db, so that a search for new addresses need not fetch them; cfilter import adds"
            " filters from files"
        ),
    )
    _add_start(parser)
    parser.add_argument(
        "--fp-rate",
        metavar="P",
        type=probability,
        default=DEFAULT_FP_RATE,
        help=(
            "bip37: share of foreign transactions that the filter lets through: higher hides more and costs more;"
            " default %(default)s"
        ),
    )
    _add_output(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--replay",
        action="store_true",
        help="jsonl: print events that earlier runs have printed once more, as far back as --db keeps them",
    )
    parser.add_argument(
        "--once", action="store_true", help="stop at the tip, after every match of the best chain is printed"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=_PATIENCE_S,
        help="with --once: give up after this long without a usable node; default %(default)g",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="table, or jsonl (one JSON object per line, values in satoshi); default: table on a terminal",
    )


def _add_start(parser: argparse.ArgumentParser) -> None:
    since = parser.add_mutually_exclusive_group()
    since.add_argument(
        "--from-height",
        metavar="N",
        type=whole(0, 0xFFFFFFFF),
        help=(
            "search blocks from height N on; if N is above the tip, from the next block on; a later run goes back there"
            " only if N is below the start of the first"
        ),
    )
    since.add_argument("--birthday", metavar="YYYY-MM-DD", type=day, help="search from that day on, as --from-height")
    parser.add_argument(
        "--rescan",
        action="store_true",
        help=(
            "search the blocks from --from-height or --birthday on again, else all of them; --keep-filters makes that"
            " cheap"
        ),
    )


def _peer(text: str) -> str:
    """Argument type: HOST or HOST:PORT. An error does not repeat the text, which may be a key."""
    try:
        host = Address.parse(text, 1).host
    except ParameterError:
        host = ""
    if not host or (len(host) > _LONGEST_NAME and not {".", ":"} & set(host)):
        raise argparse.ArgumentTypeError(f"expected HOST or HOST:PORT (1 to 65535), not these {len(text)} characters")
    return text


def _proxy(text: str) -> str:
    try:
        Proxy.parse(text)
    except ParameterError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text[:40])
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"expected seconds up to 86400, not {text[:40]!r}")
    return value


def run(args: argparse.Namespace) -> int:
    watch = watch_list(args.network, args.watch, args.addresses)
    if not len(watch) and args.db is None:
        raise ParameterError("nothing to watch for: give addresses, --watch FILE or a --db of an earlier run")
    if not args.connect and not args.discover:
        raise ParameterError("no node to ask: give --connect HOST:PORT, or --discover")
    if args.once and args.replay:
        raise ParameterError("--replay is for a run that goes on: --once prints all matches in any case")
    for given, name in ((args.rebuild, "--rebuild"), (args.keep_filters, "--keep-filters"), (args.replay, "--replay")):
        if given and args.db is None:
            raise ParameterError(f"{name} needs --db FILE")
    client = LightClient(
        watch,
        peers=args.connect,
        store=args.db,
        mode=Mode(args.mode),
        keep_filters=args.keep_filters,
        mempool=not args.no_mempool,
        fp_rate=args.fp_rate,
        from_height=args.from_height,
        birthday=args.birthday,
        proxy=args.proxy,
        discover=args.discover,
        rebuild=args.rebuild,
    )
    page = Page(sys.stdout)
    chosen = args.format or ("table" if page.is_terminal else "jsonl")
    rebuilt = Path(args.db) if args.rebuild and Path(args.db).is_file() else None
    again = {"from_height": args.from_height, "birthday": args.birthday} if args.rescan else None
    patience_s = args.timeout if args.once else None
    return asyncio.run(
        _terminable(_Watch(client, page, chosen == "jsonl", patience_s, rebuilt, again=again, replay=args.replay))
    )


async def _terminable(watch: _Watch) -> int:
    """Run until the end or until SIGTERM, which shuts down in order; a second SIGTERM kills."""
    loop, task, told = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
    assert task is not None

    def terminate() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        told.set()
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        await watch.run()
    except asyncio.CancelledError:
        if not told.is_set():
            raise
        complain("terminated")
        return TERMINATED
    return 0


class _Patience:
    """Lets `timeout` expire after `seconds` without a usable node, added up since the last progress."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout = timeout
        self._seconds = self._left = seconds
        self._since: float | None = None
        self.without_peer()

    def without_peer(self) -> None:
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
            self._timeout.reschedule(self._since + self._left)

    def with_peer(self) -> None:
        if self._since is not None:
            self._left -= asyncio.get_running_loop().time() - self._since
            self._since = None
            self._timeout.reschedule(None)

    def progress(self) -> None:
        """Start again: progress means that there is a usable node, whatever was reported of it."""
        self._left = self._seconds
        if self._since is not None:
            self._since = None
            self.without_peer()


class _Watch:
    """One run and its output; `patience_s` is for --once only, `rebuilt` is the database to rebuild, `again` where to
    search again.
    """

    def __init__(
        self,
        client: LightClient,
        page: Page,
        as_json: bool,
        patience_s: float | None,
        rebuilt: Path | None = None,
        *,
        again: dict[str, int | None] | None = None,
        replay: bool = False,
    ) -> None:
        self._client = client
        self._replay = replay
        self._again = again
        self._skipped: tuple[tuple[int, int], ...] = ()  # that was complained of
        self._rebuilt = rebuilt
        self._once = patience_s is not None
        self._patience_s = patience_s or 0.0
        self._patience: _Patience | None = None
        self._page = page
        self._balances = Balances()
        self._json = as_json
        self._show = printer(page, "table")
        self._told: dict[str, str] = {}  # the last warning about a peer
        self._furthest: dict[Phase, int] = {}

    async def run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await self._opened(stack)
                if not len(client.watch):
                    raise ParameterError("nothing to watch for: the database knows no addresses")
                if self._again is not None:
                    await client.rescan(**self._again)
                with status(None if self._json else self._page.console, self._balances) as shown:
                    ticker = asyncio.create_task(_tick(shown))
                    try:
                        await self._follow(client, shown)
                    finally:
                        ticker.cancel()
        finally:
            if not self._json:
                self._balances.show(self._page)

    async def _opened(self, stack: AsyncExitStack) -> LightClient:
        """Enter the client. Whether that succeeds or not, report a database that was set aside for a new one."""
        if self._rebuilt is None:
            return await stack.enter_async_context(self._client)
        before = self._rebuilt.stat().st_ino
        try:
            return await stack.enter_async_context(self._client)
        finally:
            if self._rebuilt.is_file() and self._rebuilt.stat().st_ino != before:
                complain(
                    f"{self._rebuilt} was rebuilt, headers and matches are fetched again; the old one is"
                    f" {damaged(self._rebuilt)}"
                )

    async def _follow(self, client: LightClient, shown: Status) -> None:
        if self._json and not self._once:
            await self._follow_on(client, shown)
            return
        events = client.events()
        if not self._once:
            events = client.events(since=await self._print_all(shown))
        try:
            async with asyncio.timeout(None) as timeout:
                if self._once:
                    self._patience = _Patience(timeout, self._patience_s)
                async for event in events:
                    if await self._take(event, shown, events.sequence):
                        return
        except TimeoutError:
            if not timeout.expired():
                raise
            raise UselessPeerError(f"gave up: no usable node for {self._patience_s:g} s") from None

    async def _follow_on(self, client: LightClient, shown: Status) -> None:
        """Print the events that no earlier run has printed; a line that was written just before a run was killed may
        come again.
        """
        place = Place(client)
        since = await place.begin()
        events = client.events(since=0 if self._replay else since)
        keeper = asyncio.create_task(place.keep())
        try:
            while True:
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                except EventGapError as gap:
                    events = client.events(since=await self._print_snapshot(gap, shown))
                    continue
                await self._take(event, shown, events.sequence)
                place.told(events.sequence)
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
            await place.end()

    async def _print_snapshot(self, gap: EventGapError, shown: Status) -> int:
        """Events are gone that were not printed: print what there is instead."""
        matches = await self._client.matches()
        self._line({"event": "dropped", "sequence": matches.sequence, "first": gap.since + 1, "last": gap.first - 1})
        for found in matches:
            self._match("found", found, shown, matches.sequence)
        return matches.sequence

    async def _print_all(self, shown: Status) -> int:
        matches = await self._client.matches()
        for found in matches:
            self._match("found", found, shown, matches.sequence)
        return matches.sequence

    async def _take(self, event: Event, shown: Status, sequence: int) -> bool:
        """Print an event, the last one of the books up to which is number `sequence`, and return whether it ends the
        run.
        """
        match event:
            case MatchFound() | MatchConfirmed() | MatchWithdrawn():
                if not self._once:
                    name = {MatchFound: "found", MatchConfirmed: "confirmed", MatchWithdrawn: "withdrawn"}[type(event)]
                    self._match(name, event, shown, sequence)
            case Progress(phase, done, total):
                shown.progress(phase.value, done, total)
                if done > self._furthest.get(phase, 0):
                    self._furthest[phase] = done
                    self._progressed()
            case BlockConnected():
                self._progressed()
            case Synced():
                if self._once:
                    sequence = await self._print_all(shown)
                self._synced(event, shown, sequence)
                return self._once
            case BlockDisconnected(height, block_hash):
                self._disconnected(height, block_hash, shown, sequence)
            case PeerChanged(address, agent):
                self._peer_changed(address, agent, shown)
            case PeerWarning():
                self._warn(event, shown)
            case BroadcastProgress() | BroadcastChanged():
                self._sent(event, shown)
        return False

    def _progressed(self) -> None:
        if self._patience is not None:
            self._patience.progress()

    def _match(
        self, name: str, event: MatchFound | MatchConfirmed | MatchWithdrawn, shown: Status, sequence: int
    ) -> None:
        if self._json:
            fields = record(event.match)
            del fields["fee"]  # of a transaction, not of a match of it: `wallet` tells it
            late = {key: fields.pop(key) for key in ("time", "coinbase")}
            self._line({"event": name, "sequence": sequence, **fields, **_how(event), **late})
            return
        if isinstance(event, MatchWithdrawn):
            self._balances.remove(event.match)
        else:
            self._balances.put(event.match)
        shown.clear()
        if isinstance(event, MatchWithdrawn):
            by = f" by {hash_to_hex(event.by)}" if event.by is not None else ""
            self._page.line(f"withdrawn ({event.reason}{by}):", "yellow")
        self._show(event.match)
        shown.changed()

    def _synced(self, event: Synced, shown: Status, sequence: int) -> None:
        height = event.height
        shown.synced(height)
        if event.skipped != self._skipped:
            self._skipped = event.skipped
            if event.skipped:
                shown.complain(never_searched(event.skipped))
        if self._json:
            ranges = {"disputed": event.disputed, "skipped": event.skipped}
            named = {name: each for name, each in ranges.items() if each}
            self._line(
                {"event": "synced", "sequence": sequence, "height": height, "block": hash_to_hex(event.hash), **named}
            )
        elif self._once:
            count = len(self._balances)
            shown.clear()
            found = f"{count:,} match{'es' if count != 1 else ''}" if count else "nothing found"
            Page(sys.stderr).line(f"height {height:,}: {found}")

    def _disconnected(self, height: int, block_hash: bytes, shown: Status, sequence: int) -> None:
        if self._once:
            return
        if self._json:
            self._line(
                {"event": "disconnected", "sequence": sequence, "height": height, "block": hash_to_hex(block_hash)}
            )
        else:
            shown.clear()
            self._page.line(f"block {height} {hash_to_hex(block_hash)} left the best chain", "yellow")

    def _sent(self, event: BroadcastProgress | BroadcastChanged, shown: Status) -> None:
        """Print what peers do with a transaction that was broadcast with this database, or what became of it."""
        if self._once:
            return
        if self._json:
            self._line(sending(event))
            return
        said = (
            f"{event.step}: {event.peer} {event.reason}"
            if isinstance(event, BroadcastProgress)
            else f"now {event.status}"
        )
        shown.complain(f"own transaction {hash_to_hex(event.txid)} {said.rstrip()}")

    def _peer_changed(self, address: str | None, agent: str, shown: Status) -> None:
        shown.peer(address, agent)
        if address is not None:
            self._told.pop(address, None)
        if self._patience is not None:
            if address is None:
                self._patience.without_peer()
            else:
                self._patience.with_peer()

    def _warn(self, event: PeerWarning, shown: Status) -> None:
        """Print what went wrong with a peer, unless it repeats the peer's last warning."""
        cause = event.cause
        kind = re.sub(r"[0-9.]+", "#", cause)
        if self._told.get(event.address) != kind:
            self._told[event.address] = kind
            shown.complain(f"{event.address}: {cause}{'; not used again' if event.banned else '; it will be retried'}")

    def _line(self, fields: dict[str, object]) -> None:
        self._page.line(json.dumps(fields, separators=(",", ":")))


def sending(event: BroadcastProgress | BroadcastChanged) -> dict[str, object]:
    """The JSON fields of what happens to a transaction that was broadcast."""
    txid = hash_to_hex(event.txid)
    if isinstance(event, BroadcastProgress):
        reason = {"reason": event.reason} if event.reason else {}
        return {"event": event.step.value, "txid": txid, "peer": event.peer, **reason}
    by = {} if event.by is None else {"by": hash_to_hex(event.by)}
    return {"event": "broadcast", "txid": txid, "status": event.status.value, **by}


def _how(event: MatchFound | MatchConfirmed | MatchWithdrawn) -> dict[str, str]:
    """How certain a match is, or why it was withdrawn, and by which transaction."""
    if not isinstance(event, MatchWithdrawn):
        return {"completeness": event.completeness.value}
    by = {} if event.by is None else {"by": hash_to_hex(event.by)}
    return {"reason": event.reason.value, **by}


async def _tick(shown: Status) -> None:
    with suppress(OSError):  # the terminal has gone; the next output reports it
        while True:
            shown.tick()
            await asyncio.sleep(TICK_S)
