"""`spvfilter watch`: a wallet followed live through a full node, printed as it happens. What is done for it is aio.light's."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import sys
from contextlib import suppress

from spvfilter.aio.compact import Mode
from spvfilter.aio.events import (
    BlockDisconnected,
    Event,
    MatchConfirmed,
    MatchFound,
    MatchWithdrawn,
    PeerChanged,
    PeerWarning,
    Progress,
    Synced,
)
from spvfilter.aio.light import LightClient
from spvfilter.cli.arguments import add_network, add_watch_file, probability, watch_list, whole
from spvfilter.cli.balances import Balances
from spvfilter.cli.matches import printer, record
from spvfilter.cli.output import Page, complain
from spvfilter.cli.status import Status, status
from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import DEFAULT_FP_RATE
from spvfilter.primitives import hash_to_hex

FORMATS = ("table", "jsonl")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter watch [ADDRESS ... | --watch FILE] --connect HOST:PORT [OPTION ...]"
    parser.description = (
        "Connect to full nodes that serve BIP-37 or compact filters, verify what they send, and print every payment to and from the "
        "wallet, now and after every restart. A node can leave payments out; connect to two or more, and they are compared."
    )
    parser.add_argument("addresses", metavar="ADDRESS", nargs="*", help="to watch; with --db, those of earlier runs are watched as well")
    add_watch_file(parser)
    parser.add_argument(
        "--connect", metavar="HOST:PORT", nargs="+", action="extend", default=[], help="full nodes; the port may be left out; repeatable"
    )
    parser.add_argument("--discover", action="store_true", help="ask DNS seeds for nodes, which tells them that you use Bitcoin")
    parser.add_argument("--proxy", metavar="URL", help="socks5://HOST:PORT, such as Tor's; names are resolved there")
    add_network(parser)
    parser.add_argument(
        "--mode", choices=[mode.value for mode in Mode], default=Mode.BIP37.value,
        help="bip37: the node filters, and tells of unconfirmed payments; compact: BIP-157 filters, from which a node learns next to "
        "nothing and cannot leave payments out unseen; auto: compact where it is served and will do; default %(default)s",
    )  # fmt: skip
    parser.add_argument("--keep-filters", action="store_true", help="keep compact filters in --db, to search them again without a network")
    parser.add_argument("--db", metavar="FILE", help="where to keep headers, matches and the wallet's filter; without it all is forgotten")
    parser.add_argument("--rebuild", action="store_true", help="make a damaged --db anew, keeping what can be kept")
    since = parser.add_mutually_exclusive_group()
    since.add_argument(
        "--from-height", metavar="N", type=whole(0, 0xFFFFFFFF), default=0, help="search blocks from there on, the first time"
    )
    since.add_argument("--birthday", metavar="YYYY-MM-DD", type=_date, help="search from that day on, the first time")
    parser.add_argument(
        "--fp-rate", metavar="P", type=probability, default=DEFAULT_FP_RATE,
        help="share of foreign transactions that the filter lets through: higher hides more and costs more; default %(default)s",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="end at the tip, having printed every match of the best chain")
    parser.add_argument(
        "--format", choices=FORMATS, help="table, or jsonl (one JSON object a line, values in satoshi); default: table on a terminal"
    )


def _date(text: str) -> int:
    try:
        day = datetime.date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a day YYYY-MM-DD expected, not {text[:40]!r}") from None
    return max(0, int(datetime.datetime.combine(day, datetime.time(), datetime.UTC).timestamp()))


def run(args: argparse.Namespace) -> int:
    watch = watch_list(args.network, args.watch, args.addresses)
    if not len(watch) and args.db is None:
        raise ParameterError("nothing to watch for: give addresses, --watch FILE or a --db of an earlier run")
    client = LightClient(
        watch,
        peers=args.connect,
        store=args.db,
        mode=args.mode,
        keep_filters=args.keep_filters,
        fp_rate=args.fp_rate,
        from_height=args.from_height,
        birthday=args.birthday,
        proxy=args.proxy,
        discover=args.discover,
        rebuild=args.rebuild,
    )
    page = Page(sys.stdout)
    chosen = args.format or ("table" if page.is_terminal else "jsonl")
    with suppress(asyncio.CancelledError):
        asyncio.run(_Watch(client, page, chosen, args.once).run())
    return 0


class _Watch:
    """One run and what is printed of it."""

    def __init__(self, client: LightClient, page: Page, chosen: str, once: bool) -> None:
        self._client = client
        self._once = once
        self._page = page
        self._balances = Balances()
        self._json = chosen == "jsonl"
        self._show = printer(page, "table")

    async def run(self) -> None:
        async with self._client as client:
            if not len(client.watch):
                raise ParameterError("nothing to watch for: the database knows no addresses")
            with status(None if self._json else self._page.console, self._balances) as shown:
                if not self._once:
                    await self._print_all(shown)
                async for event in client.events():
                    if await self._take(event, shown):
                        break
        if not self._json:
            self._balances.show(self._page)

    async def _print_all(self, shown: Status) -> None:
        for found in await self._client.matches():
            self._match("found", found, shown)

    async def _take(self, event: Event, shown: Status) -> bool:
        """Print what an event tells; whether that was the end."""
        match event:
            case MatchFound() | MatchConfirmed() | MatchWithdrawn():
                if not self._once:
                    name = {MatchFound: "found", MatchConfirmed: "confirmed", MatchWithdrawn: "withdrawn"}[type(event)]
                    self._match(name, event, shown)
            case Progress(phase, done, total):
                shown.progress(phase.value, done, total)
            case Synced(height, digest):
                if self._once:
                    await self._print_all(shown)
                self._synced(height, digest, shown)
                return self._once
            case BlockDisconnected(height, digest):
                if self._json and not self._once:
                    self._line({"event": "disconnected", "height": height, "block": hash_to_hex(digest)})
            case PeerChanged(address, agent):
                shown.peer(address, agent)
            case PeerWarning(address, error, banned):
                shown.clear()
                complain(f"{address}: {error}{' (left for good)' if banned else ''}")
            case _:
                pass
        return False

    def _match(self, name: str, event: MatchFound | MatchConfirmed | MatchWithdrawn, shown: Status) -> None:
        if isinstance(event, MatchWithdrawn):
            self._balances.remove(event.match)
        else:
            self._balances.put(event.match)
        if self._json:
            how = {"reason": event.reason.value} if isinstance(event, MatchWithdrawn) else {"completeness": event.completeness}
            self._line({"event": name, **record(event.match), **how})
            return
        shown.clear()
        if isinstance(event, MatchWithdrawn):
            self._page.line(f"withdrawn ({event.reason}):", "yellow")
        self._show(event.match)
        shown.changed()

    def _synced(self, height: int, digest: bytes, shown: Status) -> None:
        shown.synced(height)
        if self._json:
            self._line({"event": "synced", "height": height, "block": hash_to_hex(digest)})

    def _line(self, fields: dict[str, object]) -> None:
        self._page.line(json.dumps(fields, separators=(",", ":")))
