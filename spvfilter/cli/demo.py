"""`spvfilter demo`: a wallet's addresses, its BIP-37 filter and its matches, on a small chain made in memory. No file, no network."""

from __future__ import annotations

import argparse
import asyncio
import sys
import textwrap
from collections.abc import Sequence
from contextlib import aclosing

from spvfilter.aio.matcher import Matcher
from spvfilter.cli.demochain import NETWORK, DemoChain, wallet_addresses
from spvfilter.cli.matches import Totals, printer
from spvfilter.cli.output import Page
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.kernel import walk_block
from spvfilter.watch import Match, WatchList

_FP_RATE = 0.005  # high, so that a chain this small shows false positives
_TWEAK = 0x5EED  # a wallet's is random; here every run shall look the same
_DECOY_KEY = b"the demo's, no secret at all"
_HEX_COLUMNS = 64

_YOUR_OWN = """\
Put your addresses into a file, one a line, each with ,LABEL behind it or not:

  spvfilter filterload --watch wallet.txt
  spvfilter scan ~/.bitcoin/blocks --watch wallet.txt

The first prints the filterload payload for a node, the second what concerns you
in the blocks of your own node. Both know --network and --help."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make a small chain in memory and show a wallet's watch list, BIP-37 filter and matches on it."


def run(args: argparse.Namespace) -> int:
    page = Page(sys.stdout)
    chain = DemoChain()
    watch = WatchList.from_addresses(((address, kind) for kind, address in wallet_addresses().items()), NETWORK)
    made = Bip37Filter.for_watchlist(watch, _FP_RATE, _TWEAK, decoy_key=_DECOY_KEY)

    page.line(f"A {NETWORK} chain of {len(chain.blocks)} blocks, made on the spot and the same on every run:")
    page.line("true proof of work, merkle roots and witness commitments, made-up signatures.")
    page.title("1. The wallet watches")
    page.table({"label": "left", "address": "left"}, [[kind, address] for kind, address in wallet_addresses().items()])

    page.title("2. Its BIP-37 filter")
    page.facts(_filter_facts(made, len(watch)))
    page.title("  The filterload payload")
    for line in textwrap.wrap(bytes(made).hex(), _HEX_COLUMNS):
        page.line(f"  {line}")

    page.title("3. What the blocks hold for it, found exactly")
    matches = asyncio.run(_scan(watch, chain.blocks, page))

    page.title("4. What a node with this filter would send")
    _show_answers(page, made, chain.blocks, matches)

    page.title("5. With your own data")
    for line in _YOUR_OWN.splitlines():
        page.line(line)
    return 0


def _filter_facts(made: Bip37Filter, watched: int) -> list[tuple[str, str]]:
    return [
        ("elements", f"{watched}, in a filter for {made.capacity} filled up with decoys"),
        ("size", f"{made.size} bytes"),
        ("hash functions", str(made.hash_funcs)),
        ("tweak", str(made.tweak)),
        ("flags", "all: the node adds the outpoints of what it matches"),
        ("fp rate asked for", f"{made.nominal_fp_rate:.3%}"),
        ("fp rate as it stands", f"{made.current_fp_rate:.3%} of what is looked up"),
    ]


async def _scan(watch: WatchList, blocks: Sequence[bytes], page: Page) -> list[Match]:
    show, totals, found = printer(page, "table"), Totals(), []
    async with aclosing(Matcher(watch, check=True).scan(blocks)) as matches:
        async for match in matches:
            show(match)
            totals.add(match)
            found.append(match)
    totals.show(page)
    return found


def _show_answers(page: Page, made: Bip37Filter, blocks: Sequence[bytes], matches: Sequence[Match]) -> None:
    """The node's side: its own copy of the filter, which learns outpoints as the flags say."""
    node, ours = made.copy(), {match.txid for match in matches}
    rows, missing = [], set(ours)
    for height, block in enumerate(blocks, 1):
        sent = {match.txid for match in node.scan_block(block)}
        missing -= sent
        counts = (height, sum(1 for _ in walk_block(block)), len(sent), len(sent & ours), len(sent - ours))
        rows.append([str(count) for count in counts])
    page.table({"height": "right", "transactions": "right", "sent": "right", "ours": "right", "false positives": "right"}, rows)
    page.line(f"  {len(ours) - len(missing)} of the wallet's {len(ours)} transactions are among those sent.")
