"""A wallet with scripts of every type, a regtest chain with its payments and spends, and a light client run against
nodes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from spvfilter.light.client import LightClient
from spvfilter.light.events import Event, Mode, PeerWarning, Synced
from spvfilter.network import REGTEST
from spvfilter.node.scripts import Lock, p2wpkh
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.store.store import Store
from spvfilter.wallet.events import MatchConfirmed, MatchFound, MatchUnconfirmed, MatchWithdrawn, RunStarted
from spvfilter.wallet.journal import decode
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import (
    FOREIGN as FOREIGN,
    LOCKS as LOCKS,
    STRANGER as STRANGER,
    SignedMempool,
    build_tx,
    key as key,
)
from support.client.regtests import mined
from support.oracles.ledger import check_ledger

START = 1_700_000_000  # Unix time
TIMEOUT_S = 30.0
FAST = Limits(connect_s=2, stall_s=0.2, reply_s=3, send_s=2, retry_s=0.01, max_retry_s=0.05, flight=40)
IMPATIENT = replace(FAST, reply_s=0.2)  # for peers that do not respond

# kind, txid, index, height, block hash, time, coinbase
Place = tuple[str, bytes, int, int | None, bytes | None, int | None, bool]


class World:
    """A chain and a wallet, determined by a seed."""

    def __init__(
        self,
        seed: int = 1,
        locks: Iterable[Lock] = LOCKS,
        *,
        mature: int = 101,
        clock: Callable[[], float] = lambda: START,
    ) -> None:
        self.rng = random.Random(seed)
        self.regtest = mined(mature, clock)
        SignedMempool(self.regtest)
        self.locks = list(locks)
        self.coins: list[tuple[OutPoint, int, Lock]] = []  # of the wallet

    def watch(self) -> WatchList:
        watch = WatchList(REGTEST)
        for number, lock in enumerate(self.locks):
            watch.add_script(lock.script_pubkey, f"lock {number}")
        return watch

    def receive(self, lock: Lock | None = None, value: int = 20_000) -> bytes:
        """Put a payment to the wallet into the mempool; returns its txid."""
        lock = lock or self.rng.choice(self.locks)
        txid = self.regtest.pay(lock.pays(value))
        self.coins.append((OutPoint(txid, 0), value, lock))
        return txid

    def spending(self, *, fee: int = 500, to: Lock = STRANGER, change: Lock | None = None) -> bytes:
        """A transaction that spends a coin of the wallet, not yet submitted."""
        outpoint, value, lock = self.coins.pop(self.rng.randrange(len(self.coins)))
        outputs = [to.pays(value // 2 - fee)] + ([change.pays(value // 2)] if change else [])
        return build_tx([lock.spends(outpoint, value)], outputs)

    def spend(self, **options: object) -> bytes:
        return self.regtest.submit_tx(self.spending(**options))  # type: ignore[arg-type]  # by name

    def others(self, count: int = 1) -> None:
        for _ in range(count):
            self.regtest.pay(p2wpkh(b"\x02" + self.rng.randbytes(32)).pays(self.rng.randrange(1_000, 9_000)))

    def grow(self, blocks: int, share: float = 0.5) -> None:
        """Mine blocks with payments to and from the wallet, sometimes with a receipt and its spend in one block."""
        for _ in range(blocks):
            if self.rng.random() < share:
                self.receive()
                if self.rng.random() < 0.5:
                    self.others()
                while self.coins and self.rng.random() < 0.5:
                    self.spend(change=self.rng.choice(self.locks) if self.rng.random() < 0.3 else None)
            self.regtest.mine()

    def scan(self, watch: WatchList | None = None, above: int = -1) -> set[Place]:
        """Every match of the best chain, found by reading every block whole."""
        watch = watch or self.watch()
        found: set[Place] = set()
        for block in self.regtest.chain.active:
            for match in watch.match_block(block.raw, height=block.height):
                if block.height > above:
                    found.add(place(match))
        return found


def place(match: Match) -> Place:
    return (str(match.kind), match.txid, match.index, match.height, match.block_hash, match.time, match.is_coinbase)


def identity(match: Match) -> tuple[str, bytes, int]:
    return (str(match.kind), match.txid, match.index)


class Books:
    """The state according to the events; fails if events contradict each other."""

    def __init__(self) -> None:
        self.matches: dict[tuple[str, bytes, int], Match] = {}
        self.warnings: list[PeerWarning] = []
        self.withdrawn: list[MatchWithdrawn] = []
        self.events: list[Event] = []
        self.synced: Synced | None = None

    def take(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case MatchFound(match):
                assert identity(match) not in self.matches, "found twice"
                self.matches[identity(match)] = match
            case MatchConfirmed(match):
                before = self.matches[identity(match)]
                assert before.height is None
                assert match.height is not None
                self.matches[identity(match)] = match
            case MatchUnconfirmed(match):
                before = self.matches[identity(match)]
                assert before.height == match.height is not None
                self.matches[identity(match)] = replace(
                    match, height=None, block_hash=None, time=None, completeness=None
                )
            case MatchWithdrawn(match):
                assert self.matches.pop(identity(match)).height == match.height
                self.withdrawn.append(event)
            case PeerWarning():
                self.warnings.append(event)
            case Synced():
                self.synced = event
            case _:
                pass

    def confirmed(self) -> set[Place]:
        return {place(match) for match in self.matches.values() if match.height is not None}

    def waiting(self) -> set[bytes]:
        return {match.txid for match in self.matches.values() if match.height is None}


class Run:
    """A client and its events."""

    def __init__(self, client: LightClient, since: int | None = None) -> None:
        self.client = client
        self.books = Books()
        self.follow(since)

    def follow(self, since: int | None) -> None:
        """Take the events after a number from now on."""
        self.stream = self.client.events(since=since)

    async def until(self, there: Callable[[Books], object]) -> None:
        """Take events until a condition holds."""
        async with asyncio.timeout(TIMEOUT_S):
            while not there(self.books):
                self.books.take(await anext(self.stream))

    async def synced(self, world: World) -> Books:
        """Take events up to the tip of the world's chain."""
        tip = world.regtest.chain.tip
        await self.until(lambda books: books.synced is not None and books.synced.hash == tip.hash)
        return self.books


def where(node: Node) -> str:
    return f"{node.host}:{node.port}"


@asynccontextmanager
async def running(
    world: World,
    *nodes: Node | str,
    store: Path | None = None,
    limits: Limits = FAST,
    watch: WatchList | None = None,
    clock: Clock | None = None,
    mode: Mode | str = Mode.BIP37,
    since: int | None = None,
    **options: object,
) -> AsyncIterator[Run]:
    """A client of the nodes, by BIP-37 unless a test says otherwise; its events from number `since` or now on. No task
    may be left.
    """
    before = asyncio.all_tasks()
    client = LightClient(
        world.watch() if watch is None else watch,
        peers=[node if isinstance(node, str) else where(node) for node in nodes],
        store=store,
        limits=limits,
        clock=clock or Clock(wall=lambda: START),
        mode=mode,
        **options,  # type: ignore[arg-type]  # by name
    )
    try:
        async with client:
            run = Run(client, since)
            async with aclosing(run.stream):
                yield run
        await asyncio.sleep(0)
    finally:
        left = asyncio.all_tasks() - before
        assert not left, left


def check_stored(path: Path, world: World) -> None:
    """Check the database of a client that ended in any way: it has every match of the blocks searched, and no other."""
    with Store.open(path, REGTEST) as store:
        store.attach(world.watch())
        check_ledger(store)
        check_events(store)
        chain = world.regtest.chain.active
        if store.tip < 0 or store.tip >= len(chain) or b"".join(store.headers(store.tip)) != chain[store.tip].raw[:80]:
            return  # on a branch that it has not left yet
        searched = max(store.cursor, store.searched)
        known = {(found.hit.txid, found.hit.n, found.hit.spend) for found in store.matches(confirmed=True)}
        assert known == {
            (txid, n, kind == "input")
            for kind, txid, n, height, *_ in world.scan()
            if height is not None and height <= searched
        }


def check_events(store: Store) -> None:
    """The events of a database, from the first one on, add up to its matches."""
    told, number = Books(), 0
    for stored in store.events.read(0, 1_000_000):
        event = decode(stored)
        assert stored.sequence == number + 1 or (isinstance(event, RunStarted) and stored.sequence > number)
        number = stored.sequence
        told.take(event)
    there = {
        (found.hit.spend, found.hit.txid, found.hit.n): (found.block_hash, found.height) for found in store.matches()
    }
    assert {
        (str(kind) == "input", *rest): (each.block_hash, each.height) for (kind, *rest), each in told.matches.items()
    } == there


def outputs(lock: Lock, *values: int) -> list[TxOut]:
    return [lock.pays(value) for value in values]
