"""`spvfilter match`: print the transactions that match a watch list, or that a node would send for a filter."""

from __future__ import annotations

import argparse
import sys
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_format, add_network, add_watch_file, format_of, watch_list
from spvfilter.cli.credentials import add_credentials
from spvfilter.cli.nodes import add_proxy
from spvfilter.cli.term.page import Page, complain
from spvfilter.errors import ParameterError, counted
from spvfilter.primitives import hash_to_hex

if TYPE_CHECKING:
    import asyncio

    from spvfilter.cli import interrupts
    from spvfilter.cli.match import filterfile, sources
    from spvfilter.cli.term import matches, progress
    from spvfilter.filters.bip37 import Bip37Filter
    from spvfilter.scan import matcher as matchers, relevance
else:  # not needed to show --help
    asyncio = deferred("asyncio")
    interrupts = deferred("spvfilter.cli.interrupts")
    filterfile = deferred("spvfilter.cli.match.filterfile")
    sources = deferred("spvfilter.cli.match.sources")
    matches = deferred("spvfilter.cli.term.matches")
    progress = deferred("spvfilter.cli.term.progress")
    matchers = deferred("spvfilter.scan.matcher")
    relevance = deferred("spvfilter.scan.relevance")

_OK, _INCOMPLETE = 0, 1  # exit codes
_MOST_PRINTED = 100_000
"""Number of printed rows to remember, so that a transaction from two sources is printed only once (our choice)."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter match SOURCE ... (--watch FILE | --address A | --filter F) ..."
    parser.description = (
        "Print every output of a transaction that pays a watched entry and every input that spends such an output, as"
        " soon as the transaction arrives. A spend that arrives before its parent is printed with the parent. With"
        " --filter, print the transactions that a node sends to a client with this BIP-37 filter. Signatures and"
        " conflicts are not checked: anybody can make up a transaction."
    )
    parser.add_argument(
        "sources",
        metavar="SOURCE",
        nargs="*",
        help=(
            "a transaction in hex, a file, or - for standard input. A line of a file is a transaction in hex, or a"
            " JSON object with a hex or rawtx field. Other sources are nodes: tcp://HOST:PORT or ipc://PATH publishes"
            " transactions over ZMQ (-zmqpubrawtx; needs the zmq extra); http://HOST:PORT has a mempool (rpc extra);"
            " p2p://HOST:PORT relays transactions. Several sources are matched together"
        ),
    )
    add_watch_file(parser)
    parser.add_argument(
        "--address",
        metavar="A",
        nargs="+",
        action="extend",
        default=[],
        help="addresses or descriptors to watch; repeatable",
    )
    parser.add_argument(
        "--filter",
        metavar="FILTER",
        help="a filterload payload in hex, or a file in any format that spvfilter filterload prints; - is standard"
        " input",
    )
    add_network(parser)
    of_node = parser.add_argument_group("mempool of a node", "These options need http://HOST:PORT or https://….")
    add_credentials(of_node)
    of_node.add_argument(
        "--follow",
        action="store_true",
        help=(
            "list the mempool again every 10 seconds, and match new transactions. Without this, the mempool is matched"
            " once. To see every new transaction immediately, also give the node's tcp://HOST:PORT"
        ),
    )
    add_proxy(parser)
    add_format(parser, "csv")
    parser.add_argument(
        "--quiet", action="store_true", help="do not print the summary; errors still go to standard error"
    )


def run(args: argparse.Namespace) -> int:
    if not args.sources:
        cause = ": --address takes everything up to the next option: put SOURCE before it" if args.address else ""
        raise ParameterError(f"no SOURCE of transactions given{cause} (see 'spvfilter match --help')")
    if args.filter is not None and (args.watch is not None or args.address):
        raise ParameterError("--filter cannot be combined with --watch or --address: use only one of them")
    given = sources.Sources.of(args)
    page = Page(sys.stdout)
    if args.filter is not None:
        bloom = filterfile.read(args.filter, given.files)
        return asyncio.run(interrupts.terminable(_Run(args, given, page).relevant(bloom)))
    watch = watch_list(
        args.network, args.watch, args.address, args.sources, strict=args.strict, max_derivations=args.max_derivations
    )
    if not len(watch) and args.watch is None:
        raise ParameterError("nothing to match against: give --watch FILE, --address ADDRESS or --filter FILTER")
    return asyncio.run(interrupts.terminable(_Run(args, given, page).matches(matchers.Matcher(watch))))


class _Run:
    """One run of the command, with its counts."""

    def __init__(self, args: argparse.Namespace, given: sources.Sources, page: Page) -> None:
        self._given = given
        self._page = page
        self._format = format_of(args.format, page)
        self._is_quiet: bool = args.quiet
        self._begun = time.monotonic()
        self._txs = 0  # number of transactions that have arrived
        self._bytes = 0  # their total size in bytes
        self._rows = 0  # number of printed rows
        self._bad = 0  # number of lines and messages that are not transactions
        self._printed: OrderedDict[object, None] = OrderedDict()

    async def matches(self, matcher: matchers.Matcher) -> int:
        """Print the matches of a watch list, and return the exit code."""
        try:
            return await self._matches(matcher)
        finally:
            if not self._is_quiet:
                _report_silent(matcher.report.candidates, matcher.report.unjudged)

    async def _matches(self, matcher: matchers.Matcher) -> int:
        async with (
            self._opened("match", "matches") as txs,
            aclosing(matcher.match_txs(txs, spent=self._given.spent_by)) as found,
        ):
            has_accounts = bool(matcher.watch.accounts)
            show = matches.arrival_printer(self._page, self._format, has_accounts=has_accounts)
            async for each in found:
                for match in each.matches:
                    if self._is_new((match.kind, match.txid, match.index)):
                        show(match, self._given.arrivals.time_of(each.raw))
        return _INCOMPLETE if self._bad else _OK

    async def relevant(self, bloom: Bip37Filter) -> int:
        """Print the transactions that a node would send for this filter, and return the exit code."""
        async with (
            self._opened("transaction to send", "transactions to send") as txs,
            aclosing(relevance.relevant_txs(bloom, txs)) as found,
        ):
            show = _tx_printer(self._page, self._format)
            async for each in found:
                if self._is_new(id_ := each.txid):
                    show(id_, each.raw)
        return _INCOMPLETE if self._bad else _OK

    @asynccontextmanager
    async def _opened(self, one: str, many: str) -> AsyncIterator[sources.Txs]:
        """Context manager: opens the sources, returns their transactions, and prints a summary at the end."""
        async with AsyncExitStack() as stack:
            txs = await self._given.open(stack, self._refuse)
            if self._given.endless and not self._is_quiet:
                complain(f"waiting for transactions from {', '.join(self._given.endless)}; press Ctrl-C to stop")
            try:
                async with aclosing(self._arriving(txs)) as arriving:
                    yield arriving
            finally:
                if not self._is_quiet:
                    self._summarise(one, many)

    async def _arriving(self, txs: sources.Txs) -> sources.Txs:
        """Yield the transactions from the sources, and count them."""
        async with aclosing(txs):
            async for raw in txs:
                self._txs += 1
                self._bytes += len(raw)
                yield raw

    def _refuse(self, problem: str) -> None:
        """Print a message about input that is not a transaction."""
        self._bad += 1
        complain(problem)

    def _is_new(self, row: object) -> bool:
        """Return True if a row has not been printed yet. Several sources may contain the same transaction."""
        if row in self._printed:
            return False
        self._rows += 1
        self._printed[row] = None
        if len(self._printed) > _MOST_PRINTED:
            self._printed.popitem(last=False)
        return True

    def _summarise(self, one: str, many: str) -> None:
        seconds = time.monotonic() - self._begun
        found = f"{self._rows:,} {one if self._rows == 1 else many}" if self._rows else "nothing found"
        complain(f"{counted(self._txs, 'transaction')}, {progress.megabytes(self._bytes)} in {seconds:.1f} s: {found}")


def _report_silent(candidates: int, unjudged: int) -> None:
    """Print how many transactions were searched for silent payments, and how many of them may hide a missed payment."""
    if candidates:
        complain(f"{counted(candidates, 'transaction')} searched for silent payments")
    if unjudged:
        complain(
            f"warning: {unjudged:,} of them may hide a silent payment, because the outputs that they spend are"
            " unknown: also give your node's http://HOST:PORT as a SOURCE"
        )


def _tx_printer(page: Page, chosen: str) -> Callable[[bytes, bytes], None]:
    """Return a function that prints a transaction's txid, size in bytes and hex; a table omits the hex."""

    def show(id_: bytes, raw: bytes) -> None:
        fields = {"txid": hash_to_hex(id_), "size": len(raw), "raw": raw.hex()}
        if chosen == "jsonl":
            page.record(fields)
        elif chosen == "csv":
            page.line(",".join(map(str, fields.values())))
        else:
            page.line(f"  {fields['txid']}  {len(raw):>9,}")

    if chosen == "csv":
        page.line("txid,size,raw")
    elif chosen == "table":
        page.line(f"  {'txid':<64}  {'bytes':>9}", "cyan")
    return show
