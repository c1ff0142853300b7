"""Cancelled calls: a user of the real client cancels calls at random moments, and leaves the client.

Each call has no effect or its whole effect, in the running client and in the database. A broadcast that began is in the
books. The client runs on the real event loop, against a node on the loopback interface.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulation.plan import Plan
from simulation.truth import LATE_LOCKS, late_lock
from simulation.violation import Violation
from spvfilter.errors import ParameterError
from spvfilter.kernel import EntryKind
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.store.ledger import TxStatus
from spvfilter.store.store import Store
from spvfilter.transaction import Transaction
from spvfilter.watch.watchlist import WatchList
from support.client.lightworld import FAST, START, World, check_events, where
from support.oracles.ledger import check_ledger
from support.wallets.storesqlite import sqlite_of

_LONGEST_S = 60.0  # of one life on the real clock
_RUNS = 3
_CALLS = 12  # of each run


@dataclass
class _Entry:
    """The possible states of a script, as far as calls decide them."""

    is_watched: set[bool] = field(default_factory=lambda: {False})
    """Whether the client watches it."""
    labels: set[str | None] = field(default_factory=lambda: {None})
    """Labels that it may have if the client watches it."""


class _User:
    """Calls the client, cancels some of the calls, and knows which states may follow."""

    def __init__(self, rng: random.Random, world: World) -> None:
        self.entries = {late_lock(number).script_pubkey: _Entry() for number in range(LATE_LOCKS)}
        self.sent: dict[bytes, set[TxStatus | None]] = {}
        """The possible statuses of own transactions, by txid. None: the books do not have it."""
        self._rng = rng
        self._world = world
        self._labels = 0

    async def act(self, client: LightClient) -> None:
        """Make one call."""
        kind = self._rng.choice(
            [self._add, self._add, self._remove, self._relabel, self._rescan, self._send, self._send, self._abandon]
        )
        await kind(client)

    async def _call(self, call: Coroutine[Any, Any, object]) -> bool | None:
        """True if the call succeeded, False if it had no effect, None if it was cancelled after its beginning."""
        task = asyncio.ensure_future(call)
        turns = self._rng.choice([0, 1, 2, 3, 5, 8, 13, 40, 100, 100_000])
        for _ in range(turns):
            if task.done():
                break
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return None if turns else False
        except ParameterError:
            return False
        except OSError:  # no peer accepts the transaction yet: it is in the books
            return None
        return True

    async def _add(self, client: LightClient) -> None:
        script, entry = self._rng.choice(list(self.entries.items()))
        self._labels += 1
        label = f"label {self._labels}"
        done = await self._call(client.add_script(script, label, from_height=0))
        if done:
            entry.is_watched, entry.labels = {True}, {label}
        elif done is None:
            entry.is_watched.add(True)
            entry.labels.add(label)

    async def _remove(self, client: LightClient) -> None:
        script, entry = self._rng.choice(list(self.entries.items()))
        done = await self._call(client.remove(script))
        if done:
            entry.is_watched = {False}
        elif done is None:
            entry.is_watched.add(False)

    async def _relabel(self, client: LightClient) -> None:
        script, entry = self._rng.choice(list(self.entries.items()))
        self._labels += 1
        label = self._rng.choice([None, f"label {self._labels}"])
        done = await self._call(client.relabel(script, label))
        if done:
            entry.labels = {label}
        elif done is None:
            entry.labels.add(label)

    async def _rescan(self, client: LightClient) -> None:
        await self._call(client.rescan(from_height=self._rng.choice([0, 50, 120])))

    async def _send(self, client: LightClient) -> None:
        if not self._world.coins:
            return
        raw = self._world.spending(change=self._rng.choice(self._world.locks))
        txid = Transaction.parse(raw).txid
        done = await self._call(client.broadcast(raw))
        self.sent[txid] = {None} if done is False else {TxStatus.PENDING, TxStatus.REFUSED}
        if done is not False and await client.transaction(txid) is None:
            raise Violation("cancels", f"transaction {txid[::-1].hex()}, whose broadcast began, is not in the books")

    async def _abandon(self, client: LightClient) -> None:
        if not self.sent:
            return
        txid, statuses = self._rng.choice(list(self.sent.items()))
        done = await self._call(client.abandon(txid))
        if done:
            self.sent[txid] = {TxStatus.ABANDONED}
        elif done is None:
            statuses.add(TxStatus.ABANDONED)

    def check(self, store: Store, mined: set[bytes]) -> None:
        """True: the database has a state that the calls may lead to, and no mixture of two. It then is the only one."""
        try:
            check_ledger(store)
            check_events(store)
        except AssertionError as error:
            raise Violation("cancels", f"after cancelled calls the database contradicts itself: {error}") from error
        rows = dict(sqlite_of(store).execute("SELECT value, label FROM watch WHERE kind = ?", (int(EntryKind.SCRIPT),)))
        matched = {found.hit.script for found in store.matches()}
        for script, entry in self.entries.items():
            if (script in rows) not in entry.is_watched:
                raise Violation("cancels", f"{script.hex()} is watched: {script in rows}, and not {entry.is_watched}")
            if script in rows and rows[script] not in entry.labels:
                raise Violation("cancels", f"the label of {script.hex()} is {rows[script]}, and not {entry.labels}")
            if script in matched and script not in rows:
                raise Violation("cancels", f"{script.hex()} was removed, and its matches were not")
            entry.is_watched = {script in rows}
            entry.labels = {rows[script]} if script in rows else {None}
        for txid, statuses in self.sent.items():
            known = store.views.transaction(txid)
            status = None if known is None else known.status
            if status not in statuses and not (txid in mined and status is TxStatus.CONFIRMED):
                raise Violation("cancels", f"transaction {txid[::-1].hex()} is {status}, and not {statuses}")
            if status is None and txid in self._world.regtest.mempool:
                raise Violation("cancels", f"transaction {txid[::-1].hex()} was announced, and is not in the books")
            if status is not TxStatus.CONFIRMED:
                self.sent[txid] = {status}


def happen(plan: Plan, folder: Path) -> None:
    """Live a life of cancelled calls. Raises Violation."""

    async def live() -> None:
        async with asyncio.timeout(_LONGEST_S):
            await _live(plan, folder)

    asyncio.run(live())


async def _live(plan: Plan, folder: Path) -> None:
    rng = random.Random(f"{plan.seed} {plan.mode} cancels")
    world, path = World(plan.seed, mature=110), folder / "wallet.db"
    for _ in range(20):
        if rng.random() < 0.5:
            world.regtest.pay(late_lock(rng.randrange(LATE_LOCKS)).pays(rng.randrange(2_000, 9_000)))
        world.receive()
        world.regtest.mine()
    user = _User(rng, world)
    async with Node(world.regtest) as node:
        for number in range(_RUNS):
            async with _client(plan, world, path, node) as client:
                if rng.random() < 0.7:
                    await client.wait_synced()
                for _ in range(rng.randrange(_CALLS)):
                    await user.act(client)
                if rng.random() < 0.5:
                    world.regtest.mine()
                if number == _RUNS - 1:
                    await _check_end(client, world, user)
            mined = {txid for block in world.regtest.chain.active for txid in block.txids}
            with Store.open(path, REGTEST) as store:
                store.attach(world.watch())
                user.check(store, mined)


def _client(plan: Plan, world: World, path: Path, node: Node) -> LightClient:
    clock = Clock(wall=lambda: START)
    return LightClient(world.watch(), peers=[where(node)], store=path, limits=FAST, clock=clock, mode=plan.mode)


async def _check_end(client: LightClient, world: World, user: _User) -> None:
    """True: once the client is synced, it has every match of the scripts that it watches."""
    tip = world.regtest.chain.tip.hash
    await client.rescan()  # it comes after a cancelled request that is still carried out
    async with aclosing(client.events(since=0)) as events:
        while (await client.wait_synced()).hash != tip:
            await anext(events)
    watch = WatchList(REGTEST)
    for lock in world.locks:
        watch.add_script(lock.script_pubkey)
    for script in user.entries:
        try:
            await client.searched_for(script)
        except ParameterError:
            continue
        watch.add_script(script)
    there = {
        (str(match.kind), match.txid, match.index)
        for block in world.regtest.chain.active
        for match in watch.match_block(block.raw)
    }
    found = {
        (str(each.match.kind), each.match.txid, each.match.index)
        for each in await client.matches()
        if each.match.height is not None
    }
    if found != there:
        raise Violation("cancels", f"{len(there - found)} matches are missing, {len(found - there)} are invented")
