"""`spvfilter demo`: show a wallet's filter, then follow the wallet through a local node and a reorganization."""

from __future__ import annotations

import argparse
import asyncio
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import assert_never

from spvfilter.cli.demo.chain import NETWORK, DemoChain, wallet_addresses
from spvfilter.cli.demo.node import DemoNode, RecordingResponder
from spvfilter.cli.term.balances import Balances
from spvfilter.cli.term.matches import printer
from spvfilter.cli.term.page import Page
from spvfilter.cli.term.progress import megabytes
from spvfilter.filters.bip37 import Bip37Filter
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
    Progress,
    Synced,
)
from spvfilter.p2p.clock import Clock
from spvfilter.protocol import COINBASE_MATURITY
from spvfilter.store.batch import Batch, Bip37Parameters
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchUnconfirmed, WalletEvent
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

FP_RATE = 0.005
"""A high false-positive rate, so that a small chain shows false positives."""
_TWEAK = 0x5EED
"""A fixed tweak, so that every run prints the same. A wallet chooses its tweak at random."""
_DECOY_KEY = b"the demo's, no secret at all"
"""A fixed key that selects the decoys. A wallet chooses its key at random and keeps it secret."""
_HEX_COLUMNS = 64  # digits on a line
_TIMEOUT_S = 60.0  # for the whole demo, which usually takes two seconds

_YOUR_OWN = """\
Put your addresses into a file, one per line, optionally followed by ,LABEL:

  spvfilter watch --watch wallet.txt --connect HOST:PORT --db wallet.db
  spvfilter scan ~/.bitcoin/blocks --watch wallet.txt
  spvfilter filterload --watch wallet.txt
  spvfilter node

watch follows the wallet live through a full node and keeps its state in
wallet.db. scan searches the blocks of your own node. filterload prints the
filterload payload. node runs a node like the demo's, for experiments. Each
command has a --help."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Serve a small chain from a node on this machine. Show a wallet's filter, its matches, and a reorganization."
    )


def run(args: argparse.Namespace) -> int:
    page = Page(sys.stdout)
    watch = demo_wallet()
    made = Bip37Filter.for_watchlist(watch, FP_RATE, _TWEAK, decoy_key=_DECOY_KEY)

    page.line("1. The wallet watches", "bold")
    page.table({"label": "left", "address": "left"}, [[kind, address] for kind, address in wallet_addresses().items()])

    page.title("2. Its BIP-37 filter")
    page.facts(_filter_facts(made, len(watch)))
    page.title("  The filterload payload")
    for line in textwrap.wrap(bytes(made).hex(), _HEX_COLUMNS):
        page.line(f"  {line}")

    page.title("3. A light client asks a node on this machine, over a socket")
    chain = DemoChain(COINBASE_MATURITY)
    page.line(f"  It serves a {NETWORK} chain of height {len(chain.blocks)}, the same on every run. Proof of work,")
    page.line("  merkle roots and witness commitments are valid; signatures of others are not.")
    page.line()
    asyncio.run(_live(watch, chain, page))

    page.title("6. With your own data")
    for line in _YOUR_OWN.splitlines():
        page.line(line)
    return 0


def demo_wallet() -> WatchList:
    """Return the watch list of the demo: one address of each kind."""
    return WatchList.from_addresses(((address, kind) for kind, address in wallet_addresses().items()), NETWORK)


def _filter_facts(made: Bip37Filter, watched: int) -> list[tuple[str, str]]:
    return [
        ("elements", f"{watched} of the wallet, and random ones up to {made.capacity}"),
        ("size", f"{made.size} bytes"),
        ("hash functions", str(made.hash_funcs)),
        ("tweak", str(made.tweak)),
        ("flags", "all: the node adds the outpoint of each matching output"),
        ("requested fp rate", f"{made.nominal_fp_rate:.3%}"),
        ("real fp rate", f"{made.current_fp_rate:.3%}"),
    ]


async def _live(watch: WatchList, chain: DemoChain, page: Page) -> None:
    async with asyncio.timeout(_TIMEOUT_S), DemoNode(chain.blocks, chain.time) as node:
        with TemporaryDirectory(prefix="spvfilter-demo-") as folder:
            store = prepared_store(Path(folder) / "wallet.db", watch)
            clock = Clock(wall=chain.time)
            async with LightClient(
                watch, peers=[node.place], store=store, mode=Mode.BIP37, fp_rate=FP_RATE, clock=clock
            ) as client:
                story = _Story(client.events(), page)
                await story.until(Synced)
                _show_traffic(page, node.seen[0], {match.txid for match in story.matches})
                page.title("4. Live")
                await _show_live(client, node, chain, story, page)
                story.balances.show(page)
            page.title("5. The same wallet in both modes, from an empty database")
            await _show_modes(node, prepared_store(Path(folder) / "another.db", demo_wallet()), clock, page)


def prepared_store(path: Path, watch: WatchList) -> Path:
    """Make a wallet's database with the filter that the demo shows, instead of a random one."""
    made = Bip37Filter.for_watchlist(watch, FP_RATE, _TWEAK, decoy_key=_DECOY_KEY)
    assert made.capacity is not None
    store = Store.open(path, NETWORK)
    try:
        store.commit(
            Batch(headers=NETWORK.genesis, bip37_parameters=Bip37Parameters(_TWEAK, made.capacity, FP_RATE, _DECOY_KEY))
        )
    finally:
        store.close()
    return path


class _Story:
    """Prints the matches of a light client, and updates the balances."""

    def __init__(self, events: AsyncIterator[Event], page: Page) -> None:
        self.matches: list[Match] = []
        self.balances = Balances()
        self._events = events
        self._page = page
        self._show: Callable[[Match], None] = printer(page, "table")

    async def until(self, kind: type[Event], count: int = 1) -> None:
        """Print matches until `count` events of one kind have arrived.

        If there is a warning about a peer, raises its error.
        """
        async for event in self._events:
            match event:
                case MatchFound(match) | MatchConfirmed(match) | MatchUnconfirmed(match):
                    if isinstance(event, MatchUnconfirmed):
                        match = replace(match, block_hash=None, height=None, time=None)
                    self.matches.append(match)
                    self.balances.put(match)
                    self._show(match)
                case PeerWarning(_, error):
                    raise error
                case Progress() | Synced() | PeerChanged() | FeeWarning() | PendingWarning():
                    pass
                case BroadcastProgress() | BroadcastChanged():
                    pass
                case _ if isinstance(event, WalletEvent):
                    pass
                case _:
                    assert_never(event)
            count -= isinstance(event, kind)
            if not count:
                return


def _show_traffic(page: Page, responder: RecordingResponder, own: set[bytes]) -> None:
    """Show how much the node sent. `own` contains the txids of the wallet's transactions."""
    blocks, foreign = responder.sent["merkleblock"], responder.sent["tx"] - len(own)
    page.line(f"  {blocks} filtered blocks, {megabytes(responder.size)}: {len(own)} transactions of the wallet,")
    page.line(f"  {foreign} false positives. Each is proved to be in its block.")


async def _show_live(client: LightClient, node: DemoNode, chain: DemoChain, story: _Story, page: Page) -> None:
    payment, spend = chain.next_payments()
    page.line("  A payment to the wallet arrives in the mempool:")
    node.regtest.submit_tx(payment)
    await story.until(MatchFound)
    page.line("  The wallet broadcasts a transaction that spends it; the rest is change:")
    await client.broadcast(spend)
    await story.until(MatchFound, 2)
    page.line("  A block confirms both transactions:")
    node.regtest.mine()
    await story.until(MatchConfirmed, 3)
    page.line("  A longer branch replaces the block: both transactions are unconfirmed again:")
    node.regtest.reorg(1)
    await story.until(MatchUnconfirmed, 3)
    page.line("  The next block confirms them again:")
    node.regtest.mine()
    await story.until(MatchConfirmed, 3)


async def _show_modes(node: DemoNode, store: Path, clock: Clock, page: Page) -> None:
    """Show how much each mode fetches and reveals."""
    own: set[bytes] = set()
    sessions = []
    for mode, path in ((Mode.BIP37, store), (Mode.COMPACT, None)):
        async with LightClient(
            demo_wallet(), peers=[node.place], store=path, mode=mode, fp_rate=FP_RATE, clock=clock
        ) as client:
            async for event in client.events():
                if isinstance(event, Synced):
                    break
            own |= {found.match.txid for found in await client.matches()}
        sessions.append(node.seen[-1])
    bloom, compact = sessions
    assert bloom.told is not None
    suspects, scripts = node.suspects(bloom.told)
    blocks = compact.sent["block"]
    rows = [
        ["traffic", megabytes(bloom.size), megabytes(compact.size)],
        ["for each block", "proof and transactions", "its filter"],
        ["whole blocks fetched", str(bloom.sent["block"]), str(blocks)],
        ["foreign transactions", str(bloom.sent["tx"] - len(own)), "all others in these blocks"],
        ["the node learned", f"{suspects} of {scripts} scripts", f"{blocks} blocks of {node.regtest.height + 1}"],
    ]
    page.table({"": "left", "BIP-37": "left", "compact filters": "left"}, rows)
    page.line(
        f"  The filter matches {suspects} scripts: {len(wallet_addresses())} of the wallet, the others by chance."
    )
    page.line("  With compact filters a node learns only which blocks are fetched.")
