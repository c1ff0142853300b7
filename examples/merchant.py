"""A shop with several branches: an address for each invoice, states that follow the chain, and webhooks.

python merchant.py serve --account 'cafe=wpkh(xpub…/0/*)' --peer 127.0.0.1:8333 --webhook http://127.0.0.1:8000/paid
python merchant.py invoice order-17 cafe 25000

It needs the `descriptors` extra, and the environment variable MERCHANT_SECRET, a key that signs the webhooks. Amounts
are in satoshi. You may stop `serve` at any time, even with kill -9. docs/howto/shop.md explains the program.
"""

import argparse
import asyncio
import hashlib
import hmac
import http.client
import json
import logging
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

from spvfilter import LightClient, Match, MatchKind, WatchList, address_to_script, wallet
from spvfilter.errors import EventGapError, ParameterError
from spvfilter.light import Event, EventStream, Mode
from spvfilter.network import NETWORKS

POLL_S = 0.2  # seconds between two looks for new invoices, and for new webhooks
PAUSE_S = 0.02  # seconds without an event that end a transaction
BATCH = 1_000  # most events in one transaction
TOLD = ("id", "change", "account", "amount", "received", "settled", "state")  # columns of `invoices` in a webhook
log = logging.getLogger("merchant")
APPLICATION_ID = 0x53484F50  # "SHOP", in the header of the file: marks databases of this program
SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS invoices (
    id TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 100), -- the shop's number of the order
    account TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 2100000000000000), -- satoshi
    expires INTEGER NOT NULL, -- Unix time
    address TEXT UNIQUE, -- NULL until `serve` has revealed one
    change INTEGER NOT NULL DEFAULT 0, -- number of the last webhook, which told the next three columns
    state TEXT NOT NULL DEFAULT 'waiting',
    received INTEGER NOT NULL DEFAULT 0, -- satoshi of all payments
    settled INTEGER NOT NULL DEFAULT 0 -- satoshi of the payments with enough confirmations
) STRICT;
CREATE INDEX IF NOT EXISTS new_invoices ON invoices (account) WHERE address IS NULL;
CREATE INDEX IF NOT EXISTS open_invoices ON invoices (expires) WHERE state IN ('waiting', 'underpaid');
CREATE TABLE IF NOT EXISTS payments (
    outpoint TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    value INTEGER NOT NULL, -- satoshi
    height INTEGER, -- NULL while it is unconfirmed
    seen INTEGER NOT NULL, -- when it was first seen (Unix time)
    counts INTEGER NOT NULL, -- 0 if the wallet has withdrawn it, for example after a double spend
    replaced_by TEXT -- txid of the transaction that replaces it, until that one has taken over its time
) STRICT;
CREATE INDEX IF NOT EXISTS payments_by_address ON payments (address);
CREATE INDEX IF NOT EXISTS payments_by_height ON payments (height);
CREATE TABLE IF NOT EXISTS webhooks (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS place ( -- one row: the last event, its run, and the height of the chain after it
    one INTEGER PRIMARY KEY CHECK (one = 1), sequence INTEGER NOT NULL, run_id BLOB, tip INTEGER NOT NULL
) STRICT;
INSERT OR IGNORE INTO place VALUES (1, 0, NULL, -1);
"""


class Payment(NamedTuple):
    value: int
    height: int | None
    seen: int


class Place(NamedTuple):
    sequence: int
    run_id: bytes | None
    tip: int


def judge(amount: int, expires: int, paid: list[Payment], settled: list[Payment], now: float) -> str:
    """Return the state of an invoice. `settled` payments have enough confirmations."""
    in_time = sum(payment.value for payment in paid if payment.seen < expires)
    total = sum(payment.value for payment in settled)
    punctual = [payment for payment in settled if payment.seen < expires]
    if sum(payment.value for payment in punctual) >= amount:
        if any(total - payment.value >= amount for payment in settled):
            return "paid twice"
        return "overpaid" if total > amount else "paid"
    if in_time >= amount:
        return "confirming"
    if total >= amount:
        return "late"  # a person decides: deliver, or pay back
    if now >= expires:
        return "expired"
    return "underpaid" if paid else "waiting"


class Shop:
    """The shop's database. Each method is one transaction: it stores all of its changes or none."""

    def __init__(self, path: Path, confirmations: int = 3, clock: Callable[[], float] = time.time) -> None:
        with suppress(OSError):  # SQLite reports it
            path.touch(mode=0o600)  # customers' orders are nobody else's business
        self.db = sqlite3.connect(path, timeout=30)
        (tables,) = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (made_by,) = self.db.execute("PRAGMA application_id").fetchone()
        if tables and made_by != APPLICATION_ID:
            self.db.close()
            raise ValueError(f"{path} is the database of another program: choose another --folder, or move the file")
        self.db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        self.db.executescript(SCHEMA)
        self.db.row_factory = sqlite3.Row
        self.confirmations = confirmations
        self.clock = clock

    def rows(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self.db.execute(query, values).fetchall()

    def write(self, query: str, *values: object) -> None:
        with self.db:
            self.db.execute(query, values)

    def give(self, addresses: Iterable[tuple[str, str]]) -> None:
        """Store the addresses of invoices. No two invoices share an address."""
        with self.db:
            self.db.executemany("UPDATE OR IGNORE invoices SET address = ? WHERE id = ?", addresses)

    def place(self) -> Place:
        return Place(*self.rows("SELECT sequence, run_id, tip FROM place")[0])

    def apply(self, events: Iterable[Event], first_seen: Mapping[bytes, int], snapshot: Place | None = None) -> None:
        """Process events. Payments, webhooks and the shop's place in the stream of events are stored together.

        `first_seen` says when the wallet first saw transactions, keyed by txid. With `snapshot`, the events are all
        matches that the wallet has at this place.
        """
        with self.db:
            sequence, run_id, tip = before = self.place()
            touched: set[str | None] = set()
            if snapshot is not None:
                sequence, run_id, tip = snapshot
                touched.update(row["address"] for row in self.rows("SELECT address FROM payments"))
                self.db.execute("UPDATE payments SET counts = 0")
            for event in events:
                match event:
                    case wallet.RunStarted(id):
                        run_id = id
                    case wallet.BlockConnected(height):
                        tip = height
                    case wallet.BlockDisconnected(height):
                        tip = height - 1
                    case wallet.MatchFound(found) | wallet.MatchConfirmed(found):
                        touched.add(self._put(found, first_seen, found.height))
                    case wallet.MatchUnconfirmed(found):
                        touched.add(self._put(found, first_seen, None))
                    case wallet.MatchWithdrawn(found):
                        touched.add(self._put(found, first_seen, None, counts=False, replaced_by=event.by_hex))
                if isinstance(event, wallet.WalletEvent):
                    sequence = max(sequence, event.sequence)
            self.db.execute("UPDATE place SET sequence = ?, run_id = ?, tip = ?", (sequence, run_id, tip))
            if tip != before.tip:  # some payments have other confirmations now
                recent = "SELECT address FROM payments WHERE height > ?"
                touched.update(row["address"] for row in self.rows(recent, min(before.tip, tip) - self.confirmations))
            self._judge(touched)

    def overdue(self) -> set[str | None]:
        """Return the addresses of open invoices that have expired."""
        query = """SELECT address FROM invoices
            WHERE state IN ('waiting', 'underpaid') AND expires <= ? AND address IS NOT NULL"""
        return {row["address"] for row in self.rows(query, self.clock())}

    def expire(self, addresses: set[str | None]) -> None:
        """Judge these invoices. Call this only if every payment so far is known."""
        with self.db:
            self._judge(addresses, may_expire=True)

    def _put(
        self,
        found: Match,
        first_seen: Mapping[bytes, int],
        height: int | None,
        *,
        counts: bool = True,
        replaced_by: str | None = None,
    ) -> str | None:
        """Store a payment, and return its address. Its time is when it, or one it replaced, was first seen."""
        if found.kind == MatchKind.OUTPUT and found.address is not None:
            # A replaced payment gives its time to one payment, which is not larger. Otherwise a customer could pay one
            # satoshi in time, and decide later whether to replace it by the amount.
            query = """UPDATE payments SET replaced_by = NULL WHERE outpoint = (SELECT outpoint FROM payments
                WHERE address = ? AND replaced_by = ? AND value >= ? ORDER BY seen LIMIT 1) RETURNING seen"""
            earlier = (row["seen"] for row in self.rows(query, found.address, found.txid_hex, found.value))
            # found.time: of its block, before which it was sent
            times = (self.clock(), found.time, first_seen.get(found.txid), *earlier)
            query = """INSERT INTO payments VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (outpoint) DO UPDATE
                SET height = excluded.height, seen = min(seen, excluded.seen), counts = excluded.counts,
                replaced_by = excluded.replaced_by RETURNING seen"""
            seen = min(int(time) for time in times if time is not None)
            outpoint = str(found.outpoint)
            ((seen,),) = self.rows(query, outpoint, found.address, found.value, height, seen, counts, replaced_by)
            # If only a block shows the replacement, its event comes first.
            query = """UPDATE payments SET seen = min(seen, ?) WHERE outpoint = (SELECT outpoint FROM payments
                WHERE address = ? AND outpoint LIKE ? AND value <= ? ORDER BY seen LIMIT 1) RETURNING outpoint"""
            if replaced_by and self.rows(query, seen, found.address, f"{replaced_by}:%", found.value):
                self.db.execute("UPDATE payments SET replaced_by = NULL WHERE outpoint = ?", (outpoint,))
        return found.address

    def _judge(self, addresses: set[str | None], *, may_expire: bool = False) -> None:
        """Store the states of the invoices with these addresses, and a webhook for each change.

        Without `may_expire` no invoice expires: a later event may bring a payment that arrived in time.
        """
        deep = self.place().tip - self.confirmations + 1
        for address in sorted(filter(None, addresses)):
            query = "SELECT value, height, seen FROM payments WHERE address = ? AND counts"
            paid = [Payment(*row) for row in self.rows(query, address)]
            settled = [payment for payment in paid if payment.height is not None and payment.height <= deep]
            sums = tuple(sum(payment.value for payment in payments) for payments in (paid, settled))
            for old in self.rows("SELECT * FROM invoices WHERE address = ?", address):
                is_over = may_expire or old["state"] in ("expired", "late")
                now = self.clock() if is_over else -math.inf
                state = judge(old["amount"], old["expires"], paid, settled, now)
                if (state, *sums) != (old["state"], old["received"], old["settled"]):
                    query = """UPDATE invoices SET change = change + 1, state = ?, received = ?, settled = ?
                        WHERE id = ? RETURNING *"""
                    (new,) = self.rows(query, state, *sums, old["id"])
                    body = {name: new[name] for name in TOLD} | {"before": old["state"]}
                    self.db.execute("INSERT INTO webhooks (body) VALUES (?)", (json.dumps(body),))
                    log.info("invoice %s: %s, before %s", old["id"], state, old["state"])


async def next_events(stream: EventStream) -> list[Event]:
    """Wait for an event, and return all that are available, so that the events of a block come together."""
    events = [await anext(stream)]
    with suppress(TimeoutError):
        async with asyncio.timeout(PAUSE_S) as limit:
            while len(events) < BATCH:
                events.append(await anext(stream))
                limit.reschedule(asyncio.get_running_loop().time() + PAUSE_S)
    return events


async def has_events_after(client: LightClient, place: Place) -> bool:
    try:
        return place.sequence > 0 and await client.run_id(place.sequence) == place.run_id
    except EventGapError:
        return False


async def is_current(client: LightClient, place: Place) -> bool:
    """Return True if the client is synced, and the shop has processed every event."""
    return (await client.status()).is_synced and (await client.coins(limit=1)).sequence == place.sequence


def has_hole(last: int, events: list[Event]) -> bool:
    """Return True if events about unconfirmed payments were dropped: the shop was away during a flood of them."""
    for event in events:
        if isinstance(event, wallet.WalletEvent):
            if event.sequence > last + 1 and not isinstance(event, wallet.RunStarted):
                return True
            last = event.sequence
    return False


async def first_seen(client: LightClient, events: Iterable[Event]) -> dict[bytes, int]:
    """Return when the wallet first saw the transactions of these events. A crash may have delayed the events."""
    kinds = wallet.MatchFound | wallet.MatchConfirmed | wallet.MatchUnconfirmed | wallet.MatchWithdrawn
    txids = {event.match.txid for event in events if isinstance(event, kinds)}
    entries = await client.read(lambda views: [views.transaction(txid) for txid in txids])
    return {each.txid: each.first_seen for each in entries if each is not None and each.first_seen is not None}


async def read_all(client: LightClient, shop: Shop) -> None:
    """Read all payments, because one of the two databases is new, rebuilt, or restored from a copy."""
    given = shop.rows("SELECT account, address FROM invoices WHERE address IS NOT NULL")
    left = iter(given)  # an older copy of the wallet's database may not know the latest addresses
    for row in given:
        while address_to_script(row["address"], client.network) not in client.watch and next(left, None):
            await client.reveal_address(row["account"])  # not exclusive: all blocks are searched
    await client.wait_synced()
    found = await client.matches()
    seen, run_id = await first_seen(client, found), await client.run_id(found.sequence)
    shop.apply(found, seen, Place(found.sequence, run_id, client.searched_height))


async def follow(client: LightClient, shop: Shop) -> None:
    """Process the events after the shop's place in the stream."""
    stream = client.events(since=shop.place().sequence)
    while True:
        events = await next_events(stream)
        if has_hole(shop.place().sequence, events):
            await read_all(client, shop)
            stream = client.events(since=shop.place().sequence)
        elif any(isinstance(event, wallet.WalletEvent) for event in events):
            shop.apply(events, await first_seen(client, events))


async def expire(client: LightClient, shop: Shop) -> None:
    """Let invoices expire, but only once every payment that arrived in time is known."""
    while True:
        if (overdue := shop.overdue()) and await is_current(client, shop.place()):
            shop.expire(overdue)
        await asyncio.sleep(POLL_S)


async def give_addresses(client: LightClient, shop: Shop) -> None:
    """Give an address to each new invoice. A crash between the two steps skips some addresses."""
    while True:
        for account in await client.accounts():
            query = "SELECT id FROM invoices WHERE address IS NULL AND account = ? LIMIT 100"
            try:
                while ids := [row["id"] for row in shop.rows(query, account)]:
                    revealing = (client.reveal_address(account, exclusive=True) for _ in ids)
                    shop.give(zip(await asyncio.gather(*revealing), ids, strict=True))
            except ParameterError as error:  # for example, a BIP-37 filter has no room for more addresses
                log.error("no address for new invoices; trying again in 60 s: %s", error)
                await asyncio.sleep(60)
        await asyncio.sleep(POLL_S)


def key_of(body: bytes) -> str:
    """Return the key of a webhook. The same content always has the same key."""
    return hashlib.sha256(body).hexdigest()


def post(url: str, secret: bytes, body: bytes) -> None:
    """Send a webhook. Raises OSError or HTTPException unless the receiver answers with a status from 200 to 299."""
    signature = hmac.digest(secret, body, "sha256").hex()
    headers = {"Content-Type": "application/json", "Idempotency-Key": key_of(body), "Signature": signature}
    with urlopen(Request(url, body, headers), timeout=10) as answer:
        if answer.url != url:  # urllib followed the redirect without the body
            raise OSError(f"{url} redirects to {answer.url}: use the new URL")


async def deliver(shop: Shop, url: str, secret: bytes) -> None:
    """Send the webhooks in order. Each is sent at least once, and every time with the same key."""
    pause = POLL_S
    while True:
        await asyncio.sleep(pause)
        try:
            for row in shop.rows("SELECT number, body FROM webhooks ORDER BY number LIMIT ?", BATCH):
                await asyncio.to_thread(post, url, secret, row["body"].encode())
                shop.write("DELETE FROM webhooks WHERE number = ?", row["number"])
            pause = POLL_S
        except (OSError, http.client.HTTPException) as error:
            pause = min(2 * pause, 300)
            log.warning("a webhook was not delivered; trying again in %.1f s: %s", pause, error)


async def serve(client: LightClient, shop: Shop, url: str, secret: bytes) -> None:
    async with client:
        if not await has_events_after(client, shop.place()):
            await read_all(client, shop)
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(client, shop))
            group.create_task(expire(client, shop))
            group.create_task(give_addresses(client, shop))
            group.create_task(deliver(shop, url, secret))


def invoice(shop: Shop, id: str, account: str, amount: int, minutes: float) -> str:
    """Add an invoice unless it exists, wait until `serve` gives it an address, and return the text for the customer."""
    shop.write(
        "INSERT INTO invoices (id, account, amount, expires) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        *(id, account, amount, int(time.time() + 60 * minutes)),
    )
    for _ in range(50):
        (row,) = shop.rows("SELECT * FROM invoices WHERE id = ?", id)
        if (row["account"], row["amount"]) != (account, amount):
            raise ValueError(f"invoice {id} exists with a different account or amount: choose another number")
        if row["address"] is not None:
            return f"bitcoin:{row['address']}?amount={amount // 10**8}.{amount % 10**8:08}"
        time.sleep(POLL_S)
    raise TimeoutError(f"invoice {id} has no address yet: is `serve` running with an account {account!r}?")


def main() -> None:
    parser = argparse.ArgumentParser(description="Give out invoices, and tell a web shop when they are paid.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("serve", help="give out addresses, follow payments, send webhooks")
    command.add_argument("--account", action="append", required=True, metavar="NAME=DESCRIPTOR", help="repeatable")
    command.add_argument("--peer", action="append", required=True, help="HOST:PORT of a node; repeatable")
    command.add_argument("--webhook", required=True, type=Request, metavar="URL")
    command.add_argument("--network", choices=[each.name for each in NETWORKS], default="mainnet")
    command.add_argument("--mode", choices=list(Mode), default="auto")
    command.add_argument("--confirmations", type=int, default=3)
    command = commands.add_parser("invoice", help="add an invoice, and print its bitcoin: URI")
    command.add_argument("id", help="the shop's number of the order; the same number again changes nothing")
    command.add_argument("account")
    command.add_argument("amount", type=int, help="satoshi")
    command.add_argument("--minutes", type=float, default=60.0, help="time to pay")
    for each in commands.choices.values():
        each.add_argument("--folder", type=Path, default=".", help="folder of shop.db and wallet.db")
    args = parser.parse_args()

    secret = os.environ.get("MERCHANT_SECRET", "")
    if args.command == "serve" and not all("=" in each for each in args.account):
        parser.error("argument --account: expected NAME=DESCRIPTOR, found no '='")
    if args.command == "serve" and not secret:
        parser.error("set MERCHANT_SECRET, the key that signs the webhooks")
    try:
        shop = Shop(args.folder / "shop.db", getattr(args, "confirmations", 3))
        with closing(shop.db), suppress(KeyboardInterrupt):
            if args.command == "invoice":
                print(invoice(shop, args.id, args.account, args.amount, args.minutes))
            else:
                logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
                watch = WatchList(args.network)
                for name, _, descriptor in (each.partition("=") for each in args.account):
                    watch.add_account(name, descriptor)
                client = LightClient(watch, peers=args.peer, store=args.folder / "wallet.db", mode=args.mode)
                asyncio.run(serve(client, shop, args.webhook.full_url, secret.encode()))
    except (ValueError, TimeoutError, sqlite3.Error) as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
