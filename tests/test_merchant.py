"""examples/merchant.py: every fate of a payment, a kill at any point, and webhooks that arrive once for each key."""

from __future__ import annotations

import ast
import asyncio
import hashlib
import hmac
import http.server
import json
import os
import random
import shutil
import sqlite3
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given, strategies as st

from spvfilter.address import address_to_script
from spvfilter.errors import InexpressibleError
from spvfilter.light import LightClient, Mode
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.spending import copied_inputs, spending
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.testing import RegtestNode
from spvfilter.wallet import MatchFound
from spvfilter.watch.watchlist import WatchList
from support.project.merchant import ACCOUNTS, PATH, merchant, private_key
from support.vectors import effort

pytestmark = pytest.mark.descriptors

HOUR = 3_600
ALWAYS = 4_000_000_000  # an expiry that no test reaches
PATIENCE_S = 60.0
SECRET = "key of the webhooks"

MODES = ["compact", "bip37"]

State = tuple[str, int, int]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    return Mode(request.param)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merchant, "POLL_S", 0.02)


class Receiver:
    """The web shop that receives webhooks. It keeps the first one with each key."""

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}
        self.posts = 0

    def post(self, _url: str, _secret: bytes, body: bytes) -> None:
        """Take the place of `merchant.post`."""
        self.posts += 1
        key = merchant.key_of(body)
        assert self.bodies.setdefault(key, body.decode()) == body.decode()

    def changes(self, id: str) -> list[State]:
        """The reported states and amounts of an invoice, in order."""
        webhooks = [json.loads(body) for body in self.bodies.values()]
        mine = [each for each in webhooks if each["id"] == id]
        assert [each["change"] for each in mine] == list(range(1, len(mine) + 1))
        assert [each["before"] for each in mine] == ["waiting", *(each["state"] for each in mine)][: len(mine)]
        return [(each["state"], each["received"], each["settled"]) for each in mine]

    def told(self, id: str) -> list[str]:
        """The reported states of an invoice, in order."""
        return [state for state, _, _ in self.changes(id)]


@contextmanager
def receiving(receiver: Receiver) -> Iterator[str]:
    """Receive webhooks by HTTP, and yield the URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.headers["Idempotency-Key"] == hashlib.sha256(body).hexdigest()
            assert self.headers["Signature"] == hmac.digest(SECRET.encode(), body, "sha256").hex()
            receiver.post(self.path, b"", body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/paid"
        finally:
            server.shutdown()
            thread.join()


class World:
    """A node, the merchant's folder with its databases, and the receiver of its webhooks."""

    def __init__(self, folder: Path, mode: Mode, node: RegtestNode, receiver: Receiver) -> None:
        self.folder, self.mode, self.node, self.receiver = folder, mode, node, receiver
        self.now = 1_000_000_000.0  # before all blocks
        self.shop = self.opened()
        self.crashes = 0

    @classmethod
    @contextmanager
    def new(cls, folder: Path, mode: Mode) -> Iterator[Self]:
        folder.mkdir(exist_ok=True)
        world = cls(folder, mode, RegtestNode(), Receiver())
        try:
            yield world
        finally:
            world.shop.db.close()
            world.node.close()

    def opened(self) -> merchant.Shop:
        return merchant.Shop(self.folder / "shop.db", 2, lambda: self.now)

    def client(self) -> LightClient:
        watch = WatchList(REGTEST)
        for name, descriptor in ACCOUNTS.items():
            watch.add_account(name, descriptor, lookahead=20)
        return LightClient(watch, peers=[self.node.address], store=self.folder / "wallet.db", mode=self.mode)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Run the program. An error of the program is an error of the test."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(merchant.serve(self.client(), self.shop, "http://shop.example/", b"secret"))
            yield
            task.cancel()

    @asynccontextmanager
    async def crashing(self) -> AsyncIterator[None]:
        """Run the program, and start it again after each crash of a commit."""
        seen, is_over = Counter[str](), False

        async def run() -> None:
            while not is_over:  # a crash may hide the cancellation
                shop = self.opened()
                with closing(shop.db):
                    shop.db = CrashingDatabase(shop.db, seen)  # type: ignore[assignment]
                    try:
                        await merchant.serve(self.client(), shop, "http://shop.example/", b"secret")
                    except* CrashError:
                        self.crashes += 1

        async with asyncio.TaskGroup() as group:
            task = group.create_task(run())
            try:
                yield
            finally:
                is_over = True
                task.cancel()

    @asynccontextmanager
    async def killed(self, url: str, dice: random.Random) -> AsyncIterator[None]:
        """Run the program in its own process, which is killed and restarted at random times."""
        words = [sys.executable, "-W", "error", str(PATH), "serve", "--network", "regtest", "--peer", self.node.address]
        words += ["--webhook", url, "--mode", self.mode, "--confirmations", "2", "--folder", str(self.folder)]
        words += [word for pair in ACCOUNTS.items() for word in ("--account", "=".join(pair))]

        async def run() -> None:
            with (self.folder / "errors").open("w") as errors:
                while True:
                    process = await asyncio.create_subprocess_exec(
                        *words, env={**os.environ, "MERCHANT_SECRET": SECRET}, stderr=errors
                    )
                    try:
                        if dice.random() < 0.7:
                            await self.moves()
                        await asyncio.sleep(dice.uniform(0, 1.5))
                        assert process.returncode is None, "the program ended by itself"
                    finally:
                        with suppress(ProcessLookupError):
                            process.kill()
                        await process.wait()
                    self.crashes += 1

        async with asyncio.TaskGroup() as group:
            task = group.create_task(run())
            yield
            task.cancel()

    async def moves(self) -> None:
        """Wait until the program has stored another place in the events."""
        before = self.shop.place()
        await until(lambda: self.shop.place() != before)

    async def invoice(self, id: str, amount: int = 1_000, account: str = "cafe", expires: int = ALWAYS) -> str:
        """Add an invoice, and return its address."""
        values = (id, account, amount, expires)
        self.shop.write("INSERT INTO invoices (id, account, amount, expires) VALUES (?, ?, ?, ?)", *values)
        return str(await until(lambda: self.column(id, "address")))

    def column(self, id: str, name: str) -> Any:
        ((value,),) = self.shop.rows(f"SELECT {name} FROM invoices WHERE id = ?", id)
        return value

    def state(self, id: str) -> State:
        ((*state,),) = self.shop.rows("SELECT state, received, settled FROM invoices WHERE id = ?", id)
        return tuple(state)

    async def counts(self, txid: bytes) -> None:
        """Wait until the shop has a payment of a transaction that counts."""
        query = "SELECT 1 FROM payments WHERE counts AND outpoint LIKE ?"
        await until(lambda: self.shop.rows(query, f"{hash_to_hex(txid)}:%"))

    async def reaches(self, id: str, state: str, received: int, settled: int = 0) -> None:
        """Wait until an invoice has a state, the program has processed all blocks, and all webhooks are delivered."""
        wanted = (state, received, settled)

        def is_reached() -> bool:
            waits = self.shop.rows("SELECT 1 FROM webhooks")
            return self.state(id) == wanted and self.shop.place().tip == self.node.height and not waits

        try:
            await until(is_reached)
        except TimeoutError:
            raise AssertionError(f"{self.state(id)}, not {wanted}; told: {self.receiver.told(id)}") from None


async def live(world: World) -> None:
    """Bring the invoices through every fate. Each step waits until the program has told its result."""
    node = world.node
    first, second = await world.invoice("a"), await world.invoice("b", account="bar")
    node.pay(first, 600)
    await world.reaches("a", "underpaid", 600)
    node.pay(first, 400)
    await world.reaches("a", "confirming", 1_000)
    node.mine()
    await world.reaches("a", "confirming", 1_000)
    node.mine()
    await world.reaches("a", "paid", 1_000, 1_000)
    node.pay(first, 1_000)
    await world.reaches("a", "paid", 2_000, 1_000)
    node.mine(2)
    await world.reaches("a", "paid twice", 2_000, 2_000)
    txid = node.pay(second, 1_500)
    await world.reaches("b", "confirming", 1_500)
    node.bump(txid)
    node.mine(2)
    await world.reaches("b", "overpaid", 1_500, 1_500)
    node.reorg(2)
    await world.reaches("b", "confirming", 1_500)
    node.mine()
    await world.reaches("b", "confirming", 1_500)
    third, fourth = await world.invoice("c"), await world.invoice("d")
    txid = node.pay(third, 1_000)
    await world.reaches("c", "confirming", 1_000)
    await world.reaches("b", "confirming", 1_500)
    node.call(lambda regtest: spent_again(regtest, txid, fourth))
    await world.reaches("d", "confirming", 1_000)
    await world.reaches("c", "waiting", 0)
    node.mine()
    await world.reaches("b", "overpaid", 1_500, 1_500)
    node.mine()
    await world.reaches("d", "paid", 1_000, 1_000)
    late = await world.invoice("e", expires=1)
    await world.reaches("e", "expired", 0)
    node.pay(late, 1_000)
    await world.reaches("e", "expired", 1_000)
    node.mine(2)
    await world.reaches("e", "late", 1_000, 1_000)


STATE = (  # an address that a crash has skipped makes no other state
    "SELECT id, address IS NULL, change FROM invoices",
    "SELECT value, height, counts FROM payments",
    "SELECT number FROM webhooks",
)


class CrashError(Exception):
    """A crash of the program."""


class CrashingDatabase:
    """A connection that interrupts each new state of the shop twice: before its commit, and just after it."""

    def __init__(self, db: sqlite3.Connection, seen: Counter[str]) -> None:
        self.db, self.seen = db, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.db, name)

    def __enter__(self) -> None:
        self.db.__enter__()

    def __exit__(self, *error: Any) -> None:
        state = repr([[*map(tuple, self.db.execute(query))] for query in STATE])
        self.seen[state] += 1
        if self.seen[state] == 1:
            self.db.rollback()
            raise CrashError
        self.db.__exit__(*error)
        if self.seen[state] == 2:
            raise CrashError


async def until(condition: Callable[[], Any]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not (found := condition()):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found


@pytest.fixture
def world(tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with World.new(tmp_path, mode) as made:
        monkeypatch.setattr(merchant, "post", made.receiver.post)
        yield made


Fate = list[tuple[str, str, int, int]]

# Each row is what happens to an invoice, its state after that, and the satoshi that were received and settled. The
# invoice is over 1,000 satoshi, and expires in an hour. A payment is settled after two confirmations.
FATES: dict[str, Fate] = {
    "paid": [
        ("pay 1000", "confirming", 1_000, 0),
        ("mine 1", "confirming", 1_000, 0),
        ("mine 1", "paid", 1_000, 1_000),
    ],
    "paid in two parts": [
        ("pay 600", "underpaid", 600, 0),
        ("mine 2", "underpaid", 600, 600),
        ("pay 400", "confirming", 1_000, 600),
        ("mine 2", "paid", 1_000, 1_000),
    ],
    "overpaid": [
        ("pay 1500", "confirming", 1_500, 0),
        ("mine 2", "overpaid", 1_500, 1_500),
    ],
    "paid twice": [
        ("pay 1000", "confirming", 1_000, 0),
        ("mine 2", "paid", 1_000, 1_000),
        ("pay 1000", "paid", 2_000, 1_000),
        ("mine 2", "paid twice", 2_000, 2_000),
    ],
    "paid once, with a higher fee": [
        ("pay 1000", "confirming", 1_000, 0),
        ("bump", "confirming", 1_000, 0),
        ("mine 2", "paid", 1_000, 1_000),
    ],
    "paid in time, confirmed later": [
        ("pay 1000", "confirming", 1_000, 0),
        ("wait", "confirming", 1_000, 0),
        ("mine 2", "paid", 1_000, 1_000),
    ],
    "paid in time, with a higher fee later": [
        ("pay 1000", "confirming", 1_000, 0),
        ("wait", "confirming", 1_000, 0),
        ("bump", "confirming", 1_000, 0),
        ("bump", "confirming", 1_000, 0),
        ("mine 2", "paid", 1_000, 1_000),
    ],
    "paid in time, with a higher fee later that only a block shows": [
        ("pay 1000", "confirming", 1_000, 0),
        ("wait", "confirming", 1_000, 0),
        ("bump and mine 1", "confirming", 1_000, 0),
        ("mine 1", "paid", 1_000, 1_000),
    ],
    "paid too late": [
        ("wait", "expired", 0, 0),
        ("pay 1000", "expired", 1_000, 0),
        ("mine 2", "late", 1_000, 1_000),
    ],
    "paid in part, and no more": [
        ("pay 600", "underpaid", 600, 0),
        ("wait", "expired", 600, 0),
        ("mine 2", "expired", 600, 600),
    ],
    # a small payment in time gives no right to pay the amount later
    "replaced too late by the amount": [
        ("pay 500", "underpaid", 500, 0),
        ("wait", "expired", 500, 0),
        ("replace 1000", "expired", 1_000, 0),
        ("mine 2", "late", 1_000, 1_000),
    ],
    "replaced too late by two halves": [
        ("pay 500", "underpaid", 500, 0),
        ("wait", "expired", 500, 0),
        ("replace 500 500", "expired", 1_000, 0),
        ("mine 2", "late", 1_000, 1_000),
    ],
    "double-spent": [
        ("pay 1000", "confirming", 1_000, 0),
        ("double-spend", "waiting", 0, 0),
    ],
    "reorganized, and double-spent": [
        ("pay 1000", "confirming", 1_000, 0),
        ("mine 2", "paid", 1_000, 1_000),
        ("reorganize 2", "confirming", 1_000, 0),
        ("mine 2", "paid", 1_000, 1_000),
        ("reorganize 2", "confirming", 1_000, 0),
        ("double-spend", "waiting", 0, 0),
    ],
}


async def meets(world: World, fate: Fate) -> None:
    """Bring an invoice through a fate. Each step waits until the program has told its result."""
    address, txid = await world.invoice("a", expires=int(world.now) + HOUR), b""
    for step, state, received, settled in fate:
        match step.split():
            case ["pay", value]:
                txid = world.node.pay(address, int(value))
            case ["bump"]:
                txid = world.node.bump(txid)
                await world.counts(txid)
            case ["bump", "and", "mine", count]:
                world.node.call(partial(bumped_in_block, txid=txid, blocks=int(count)))
            case ["replace", *values]:
                world.node.call(partial(spent_again, txid=txid, address=address, values=[*map(int, values)]))
            case ["double-spend"]:
                world.node.double_spend(txid, in_block=True)
            case ["mine", count]:
                world.node.mine(int(count))
            case ["reorganize", count]:
                world.node.reorg(int(count))
            case ["wait"]:
                world.now += 2 * HOUR
            case _:
                raise AssertionError(step)
        await world.reaches("a", state, received, settled)


@pytest.mark.parametrize(
    ("mode", "fate"),
    [
        pytest.param(mode, fate, marks=[pytest.mark.slow] * is_left_out)
        for number, fate in enumerate(FATES)  # without the slow cases, each fate is tested in one mode
        for is_left_out, mode in enumerate(MODES if number % 2 else MODES[::-1])
    ],
    indirect=["mode"],
)
async def test_each_change_of_an_invoice_is_told_once(world: World, fate: str) -> None:
    async with world.serving():
        await meets(world, FATES[fate])
    states = [("waiting", 0, 0), *(state for _, *state in FATES[fate])]
    changes = [tuple(after) for before, after in pairwise(states) if tuple(after) != tuple(before)]
    assert world.receiver.changes("a") == changes


@pytest.mark.few(1)
async def test_replacement_is_in_time_if_each_event_is_stored_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merchant, "BATCH", 1)
    async with world.serving():
        await meets(world, FATES["paid in time, with a higher fee later"])


@pytest.mark.few(1)
async def test_double_spent_payment_does_not_count(world: World) -> None:
    async with world.serving():
        txid = world.node.pay(await world.invoice("a"), 1_000)
        await world.reaches("a", "confirming", 1_000)
        other = await world.invoice("b", account="bar")
        twin = world.node.call(lambda regtest: spent_again(regtest, txid, other))
        await world.reaches("b", "confirming", 1_000)
        await world.reaches("a", "waiting", 0)
        world.node.mine(2)
        await world.reaches("b", "paid", 1_000, 1_000)
    assert world.receiver.told("a") == ["confirming", "waiting"]
    assert twin != txid


@pytest.mark.few(1)
async def test_disconnected_block_below_the_required_depth_is_reported(world: World) -> None:
    """The payment stays in its block, and only its second confirmation is lost for a moment."""
    async with world.serving():
        world.node.pay(await world.invoice("a"), 1_000)
        world.node.mine(2)
        await world.reaches("a", "paid", 1_000, 1_000)
        world.node.reorg(1)
        await world.reaches("a", "paid", 1_000, 1_000)


@pytest.mark.few(1)
async def test_payment_during_a_stop_is_in_time(world: World) -> None:
    """The invoice does not expire after the restart, before the wallet has searched the blocks of the stop."""
    world.now = world.node.call(lambda regtest: regtest.time)
    expires = int(world.now) + HOUR
    async with world.serving():
        address = await world.invoice("a", expires=expires)
        unpaid = await world.invoice("b", expires=expires)
    world.node.pay(address, 1_000)
    world.node.mine(3)
    world.now += 3 * HOUR
    async with world.serving():
        await world.reaches("a", "paid", 1_000, 1_000)
        await world.reaches("b", "expired", 0)
    assert world.receiver.told("a") == ["paid"]
    assert unpaid != address


@pytest.mark.few(1)
async def test_payment_seen_only_by_the_wallet_is_in_time(world: World) -> None:
    """The program is killed after the wallet has stored an unconfirmed payment, and before the shop has."""
    world.now = time.time()  # the clock of the wallet
    async with world.serving():
        address = await world.invoice("a", expires=int(world.now) + HOUR)
    async with world.client() as client:
        txid = world.node.pay(address, 1_000)
        async for event in client.events():
            if isinstance(event, MatchFound):
                break
    world.now += 2 * HOUR
    async with world.serving():
        await world.reaches("a", "confirming", 1_000)
        await world.counts(world.node.bump(txid))
        await world.reaches("a", "confirming", 1_000)
    assert world.receiver.told("a") == ["confirming"]


@pytest.mark.few(1)
async def test_older_copy_of_the_shop_keeps_a_payment_in_time(world: World) -> None:
    world.now = time.time()  # the clock of the wallet
    async with world.serving():
        address = await world.invoice("a", expires=int(world.now) + HOUR)
    world.shop.db.execute("VACUUM INTO ?", (str(world.folder / "copy.db"),))
    async with world.serving():
        world.node.pay(address, 1_000)
        await world.reaches("a", "confirming", 1_000)
    world.shop.db.close()
    for path in world.folder.glob("shop.db*"):
        path.unlink()
    (world.folder / "copy.db").rename(world.folder / "shop.db")
    world.shop = world.opened()
    world.now += 2 * HOUR
    async with world.serving():
        await world.reaches("a", "confirming", 1_000)
    assert world.receiver.told("a") == ["confirming"]


@pytest.mark.few(1)
async def test_payment_in_two_parts_during_a_stop_is_in_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The invoice does not expire after the first part, although its time is over."""
    monkeypatch.setattr(merchant, "BATCH", 1)
    world.now = world.node.call(lambda regtest: regtest.time)
    async with world.serving():
        address = await world.invoice("a", expires=int(world.now) + HOUR)
    for value in (600, 400):
        world.node.pay(address, value)
        world.node.mine()
    world.node.mine()
    world.now += 3 * HOUR
    async with world.serving():
        await world.reaches("a", "paid", 1_000, 1_000)
    assert "expired" not in world.receiver.told("a")


@pytest.mark.long
async def test_3000_unpaid_invoices_do_not_hide_a_paid_one(world: World) -> None:
    async with world.serving():
        await world.invoice("first")
        with world.shop.db:
            values = [(f"order-{number}", number % 7 + 1) for number in range(3_000)]
            query = f"INSERT INTO invoices (id, account, amount, expires) VALUES (?, 'cafe', ?, {ALWAYS})"
            world.shop.db.executemany(query, values)
        last = await world.invoice("last")
        given = {row["address"] for row in world.shop.rows("SELECT address FROM invoices")}
        assert len(given) == 3_002
        world.node.pay(last, 1_000)
        world.node.mine(2)
        await world.reaches("last", "paid", 1_000, 1_000)
    assert len(world.receiver.bodies) <= 3


@pytest.mark.few(1)
async def test_each_account_has_its_own_addresses(world: World) -> None:
    async with world.serving():
        unknown = ("none", "pub", 1_000, ALWAYS)
        world.shop.write("INSERT INTO invoices (id, account, amount, expires) VALUES (?, ?, ?, ?)", *unknown)
        cafe, bar = await world.invoice("a"), await world.invoice("b", 1_500, account="bar")
        world.node.pay(cafe, 1_000)
        world.node.pay(bar, 2_000)
        world.node.mine(2)
        await world.reaches("a", "paid", 1_000, 1_000)
        await world.reaches("b", "overpaid", 2_000, 2_000)
    assert world.column("none", "address") is None
    async with world.client() as client:
        assert (await client.balance(account="cafe")).total == 1_000
        assert (await client.balance(account="bar")).total == 2_000


@pytest.mark.few(1)
async def test_older_copy_of_the_wallet_gives_no_address_twice(world: World) -> None:
    async with world.serving():
        first = await world.invoice("a")
    shutil.copy(world.folder / "wallet.db", world.folder / "copy.db")
    async with world.serving():
        world.node.pay(first, 1_000)
        addresses = {first, *[await world.invoice(f"b{number}") for number in range(3)]}
        world.node.mine(2)
        await world.reaches("a", "paid", 1_000, 1_000)
    told = dict(world.receiver.bodies)
    shutil.copy(world.folder / "copy.db", world.folder / "wallet.db")
    async with world.serving():
        assert await world.invoice("c") not in addresses
        world.node.mine()
        await world.reaches("a", "paid", 1_000, 1_000)
    assert world.receiver.bodies == told


@pytest.mark.few(1)
async def test_lost_database_of_the_wallet_changes_no_invoice(world: World) -> None:
    async with world.serving():
        world.node.pay(await world.invoice("a", expires=int(world.now) + HOUR), 1_000)
        await world.reaches("a", "confirming", 1_000)
        world.node.mine(2)
        await world.reaches("a", "paid", 1_000, 1_000)
        world.now += 2 * HOUR
    told = dict(world.receiver.bodies)
    (world.folder / "wallet.db").unlink()
    async with world.serving():
        world.node.mine()
        await world.reaches("a", "paid", 1_000, 1_000)
        await until(lambda: len(world.shop.rows("SELECT 1 FROM payments WHERE counts AND height = 102")) == 1)
    assert world.receiver.bodies == told


@pytest.mark.few(1)
async def test_spent_coin_stays_a_payment(world: World) -> None:
    """The shop's owner moves the money, first unconfirmed."""
    async with world.serving():
        address = await world.invoice("a")
        txid = world.node.pay(address, 1_000)
        world.node.mine(2)
        await world.reaches("a", "paid", 1_000, 1_000)
        elsewhere = await world.invoice("b", 300)
        world.node.spend(OutPoint(txid, 0), to=elsewhere, value=300, fee=700, keys=[private_key(0, 0)])
        await world.reaches("b", "confirming", 300)
        world.node.mine(2)
        await world.reaches("b", "paid", 300, 300)
        await world.reaches("a", "paid", 1_000, 1_000)
    assert world.receiver.told("a")[-1] == "paid"
    assert len(world.receiver.told("a")) <= 2


@pytest.mark.few(1)
async def test_payment_that_a_new_database_does_not_have_is_withdrawn(world: World) -> None:
    async with world.serving():
        txid = world.node.pay(await world.invoice("a"), 1_000)
        await world.reaches("a", "confirming", 1_000)
    (world.folder / "wallet.db").unlink()
    world.node.double_spend(txid, in_block=True)
    async with world.serving():
        await world.reaches("a", "waiting", 0)


@pytest.mark.few(1)
async def test_place_of_another_run_is_not_continued(world: World) -> None:
    """The number of the last event exists, but another run stored it: an older copy, and the clock was set back."""
    async with world.serving():
        world.node.pay(await world.invoice("a"), 1_000)
        world.node.mine(2)
        await world.reaches("a", "paid", 1_000, 1_000)
    world.shop.write("UPDATE place SET run_id = ?", bytes(16))
    world.shop.write("DELETE FROM payments")
    async with world.serving():
        await until(lambda: world.shop.rows("SELECT 1 FROM payments"))
        await world.reaches("a", "paid", 1_000, 1_000)


@pytest.mark.few(1)
async def test_new_database_of_the_wallet_watches_every_given_address(world: World) -> None:
    async with world.serving():
        addresses = [await world.invoice(f"a{number}") for number in range(70)]  # more than the lookahead of 20
    (world.folder / "wallet.db").unlink()
    world.node.pay(addresses[-1], 1_000)
    world.node.mine(2)
    async with world.serving():
        await world.reaches("a69", "paid", 1_000, 1_000)
        assert await world.invoice("b") not in addresses


@pytest.mark.few(1)
async def test_refused_reveal_does_not_stop_the_program(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> str:
        raise InexpressibleError("a BIP-37 filter has no room", ())

    async with world.serving():
        address = await world.invoice("a")
        monkeypatch.setattr(LightClient, "reveal_address", refuse)
        world.shop.write("INSERT INTO invoices (id, account, amount, expires) VALUES ('b', 'cafe', 1, 1)")
        world.node.pay(address, 1_000)
        world.node.mine(2)
        await world.reaches("a", "paid", 1_000, 1_000)
    assert world.column("b", "address") is None


@pytest.mark.long
async def test_crash_at_every_commit_changes_no_webhook(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.serving():
        await live(world)
    with World.new(world.folder / "other", world.mode) as other:
        monkeypatch.setattr(merchant, "post", other.receiver.post)
        async with other.crashing():
            await live(other)
    assert other.receiver.bodies == world.receiver.bodies
    assert other.crashes >= 2 * other.receiver.posts >= 4 * len(other.receiver.bodies)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(effort(1, 1, 10)))
async def test_kill_at_any_time_changes_no_webhook(world: World, seed: int) -> None:
    async with world.serving():
        await live(world)
    with World.new(world.folder / "other", world.mode) as other, receiving(other.receiver) as url:
        async with other.killed(url, random.Random(seed)):
            await live(other)
    assert other.receiver.bodies == world.receiver.bodies
    assert other.crashes >= 5


ANSWERS = {
    "error": b"HTTP/1.0 500 Sorry\r\n\r\n",
    "redirect": b"HTTP/1.0 302 Found\r\nLocation: /other\r\n\r\n",
    "nonsense": b"\x00\x01",
    "silence": b"",
    "stored": b"HTTP/1.0 204 No Content\r\n\r\n",
}


async def test_webhook_is_repeated_until_the_receiver_has_stored_it(tmp_path: Path) -> None:
    """Only a success that is no redirect ends the repetition. The order stays, and each repetition has the same key."""
    received: list[tuple[str, str, bytes]] = []
    answers = [ANSWERS[name] for name in ("error", "redirect", "stored", "nonsense", "stored", "silence", "stored")]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if head.startswith("POST "):
            fields = dict(line.split(": ", 1) for line in head.splitlines()[1:-1])
            body = await reader.readexactly(int(fields["Content-Length"]))
            received.append((fields["Idempotency-Key"], fields["Signature"], body))
            writer.write(answers[len(received) - 1])
        else:
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        await writer.drain()
        writer.close()

    shop = merchant.Shop(tmp_path / "shop.db")
    with closing(shop.db):
        for number in range(3):
            shop.write("INSERT INTO webhooks (body) VALUES (?)", f'{{"id": {number}}}')
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            task = asyncio.create_task(merchant.deliver(shop, f"http://127.0.0.1:{port}/", SECRET.encode()))
            await until(lambda: not shop.rows("SELECT 1 FROM webhooks"))
            task.cancel()
    assert [body for _, _, body in received] == [b'{"id": %d}' % number for number in (0, 0, 0, 1, 1, 2, 2)]
    for key, signature, body in received:
        assert key == hashlib.sha256(body).hexdigest()
        assert signature == hmac.digest(SECRET.encode(), body, "sha256").hex()


def payment(value: int, height: int | None = 5, seen: int = 10) -> merchant.Payment:
    return merchant.Payment(value, height, seen)


@pytest.mark.parametrize(
    ("paid", "settled", "now", "state"),
    [
        ([], 0, 99, "waiting"),
        ([], 0, 100, "expired"),
        ([payment(60)], 1, 99, "underpaid"),
        ([payment(60)], 1, 100, "expired"),
        ([payment(100)], 0, 500, "confirming"),
        ([payment(100)], 1, 500, "paid"),
        ([payment(60), payment(40)], 2, 500, "paid"),
        ([payment(101)], 1, 500, "overpaid"),
        ([payment(60), payment(60)], 2, 500, "overpaid"),
        ([payment(100), payment(100)], 2, 500, "paid twice"),
        ([payment(1), payment(100)], 2, 500, "paid twice"),
        ([payment(100), payment(100)], 1, 500, "paid"),
        ([payment(100, seen=99)], 1, 500, "paid"),
        ([payment(100, seen=100)], 0, 500, "expired"),
        ([payment(100, seen=100)], 1, 500, "late"),
        ([payment(60), payment(40, seen=100)], 2, 500, "late"),
        ([payment(100, seen=100), payment(100)], 1, 500, "confirming"),
        ([payment(100, seen=100), payment(100)], 2, 500, "paid twice"),
        ([payment(100, seen=100), payment(99)], 1, 500, "late"),
    ],
)
def test_state_follows_from_payments_and_time(paid: list[merchant.Payment], settled: int, now: int, state: str) -> None:
    assert merchant.judge(100, 100, paid, paid[:settled], now) == state


PAYMENTS = st.lists(st.builds(payment, st.integers(1, 150), seen=st.integers(90, 110)), max_size=4)


@given(PAYMENTS, st.data(), st.integers(90, 110))
def test_state_is_final_only_if_settled_payments_suffice(
    paid: list[merchant.Payment], data: st.DataObject, now: int
) -> None:
    settled = [each for each in paid if data.draw(st.booleans())]
    state = merchant.judge(100, 100, paid, settled, now)
    in_time = [sum(each.value for each in group if each.seen < 100) >= 100 for group in (paid, settled)]
    is_settled = sum(each.value for each in settled) >= 100 and in_time != [True, False]
    assert (state in ("paid", "overpaid", "paid twice", "late")) == is_settled
    assert state == merchant.judge(100, 100, paid[::-1], settled[::-1], now)
    if state in ("waiting", "underpaid", "confirming", "expired"):
        assert (state == "expired") == (now >= 100 and sum(each.value for each in paid if each.seen < 100) < 100)


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE invoices (id TEXT, price REAL)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is the database of another program: choose another --folder"):
        merchant.Shop(path)
    assert path.read_bytes() == before
    merchant.Shop(tmp_path / "own.db").db.close()
    merchant.Shop(tmp_path / "own.db").db.close()
    assert stat.S_IMODE((tmp_path / "own.db").stat().st_mode) == 0o600


def test_page_shows_the_function_of_the_program() -> None:
    """The page breaks a long line, so the trees of both are compared."""
    page = (PATH.parents[1] / "docs/howto/shop.md").read_text(encoding="utf-8")
    shown = [code.split("```")[0] for code in page.split("```python\n")[1:]]
    true = definitions(PATH.read_text(encoding="utf-8"))
    assert definitions(shown[0]).items() <= true.items()
    assert "judge" in definitions(shown[0])


def definitions(code: str) -> dict[str, str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: ast.dump(node) for node in ast.parse(code).body if isinstance(node, kinds)}


def bumped_in_block(regtest: Regtest, txid: bytes, blocks: int) -> None:
    """Raise the fee of a transaction, and mine it before any client sees it."""
    regtest.bump(txid)
    regtest.mine(blocks)


def spent_again(regtest: Regtest, txid: bytes, address: str, values: Sequence[int] = (1_000,)) -> bytes:
    """Replace a transaction: spend its coins, and pay these values to an address."""
    tx = regtest.find_tx(txid)
    assert tx is not None
    outputs = [TxOut(value, address_to_script(address, REGTEST)) for value in values]
    inputs = copied_inputs(tx, [regtest.mempool.coin_of(outpoint) for outpoint in tx.inputs])
    miner = regtest.lock.script_pubkey
    return regtest.submit_tx(spending(inputs, outputs, 20_000, miner, (), to=miner))
