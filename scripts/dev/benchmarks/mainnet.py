"""A light client at mainnet's size: 900,000 headers, filter headers and filters, and 100 blocks that match.

The client knows 10,000 addresses of peers. The suite mainnet runs this file in processes of their own. Two simulated
peers send bytes through wire sessions into the engine. The thread of the store writes the commits to a database file.

The filters are small, since their number is measured here. For filters of mainnet's average size, add the times of the
suite gcs. With a link, the clock is virtual, and shows the time of the transfers.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import json
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import NamedTuple

import headers
from firststart import network
from measure import Row, peak

from spvfilter import TxOut, WatchList
from spvfilter.kernel import gcs_build
from spvfilter.light import Event, Mode, Synced
from spvfilter.light.database import Database
from spvfilter.light.engine.effects import Commit, Connect, Effect, Emit, Fence, Read, Send, Wake, Work
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.inputs import FencePassed, Input, Instant, Lost, PeerConnected, Tick, Worked, inputs_of
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.running import opened
from spvfilter.primitives import OutPoint, compact_size
from spvfilter.protocol import BASIC_M, BASIC_P, HEADER_SIZE, MAX_CFHEADERS, MAX_HEADERS
from spvfilter.signing import build_tx
from spvfilter.store import KnownAddress, Store
from spvfilter.store.batch import Batch
from spvfilter.transaction import TxIn
from spvfilter.wire import Role, Service, Session, Settings, encode_message
from spvfilter.wire.messages import (
    CFCheckpt,
    CFHeaders,
    CFilter,
    GetCFCheckpt,
    GetCFHeaders,
    GetCFilters,
    GetData,
    GetHeaders,
    Ping,
    Pong,
    Verack,
    Version,
)

_BLOCKS, _MATCHING, _ADDRESSES, _SCRIPTS = 900_000, 100, 10_000, 1_000
_LATE = 890_000  # Height of a wallet's birthday, ten weeks ago.
_ELEMENTS = 8  # Elements of a filter.
_HELD = _BLOCKS * (HEADER_SIZE + 32)  # Bytes of headers and filter hashes.
_NODE = int(Service.NETWORK | Service.WITNESS | Service.COMPACT_FILTERS)
_PEERS = ("192.0.2.1:8333", "198.51.100.1:8333")
_NOW = 1_840_000_000
_PIECE = 1 << 16  # bytes that arrive together over a link


def script(number: int) -> bytes:
    """Return a P2WPKH script. The scripts with numbers below _SCRIPTS are watched."""
    return b"\x00\x14" + hashlib.sha256(number.to_bytes(4, "little")).digest()[:20]


class World:
    """The chain in a folder, which `make` wrote: headers, filters, filter hashes, and payments to watched scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        raw = (folder / "headers").read_bytes()
        self.hashes = (folder / "hashes").read_bytes()
        self.count = len(raw) // HEADER_SIZE
        self.headers = raw
        self.filters = (folder / "filters").read_bytes()
        # Offsets behind each filter, from height 0 on.
        self.ends = struct.unpack(f"<{self.count + 1}I", (folder / "ends").read_bytes())
        self.filter_hashes = (folder / "filterhashes").read_bytes()
        self.filter_headers = (folder / "filterheaders").read_bytes()
        self.paid = {int(height): number for height, number in json.loads((folder / "paid").read_text()).items()}
        self.heights = {self.hash_at(height): height for height in range(self.count + 1)}

    def hash_at(self, height: int) -> bytes:
        return self.hashes[32 * height : 32 * height + 32]

    def block_at(self, height: int) -> bytes:
        header = self.headers[(height - 1) * HEADER_SIZE : height * HEADER_SIZE]
        return header + b"\1" + coinbase(height, self.paid.get(height))

    def filter_at(self, height: int) -> bytes:
        return self.filters[self.ends[height - 1] if height else 0 : self.ends[height]]


def make(folder: Path) -> int:
    """Write a world to a folder, and return the work of its chain."""
    draw = random.Random(1)
    paid = {height: draw.randrange(_SCRIPTS) for height in sorted(draw.sample(range(1_000, _BLOCKS), _MATCHING))}
    total = headers.make(folder / "headers", _BLOCKS, lambda height: _sha256d(coinbase(height, paid.get(height))))
    raw = (folder / "headers").read_bytes()
    chain = [network(0).genesis, *(raw[at : at + HEADER_SIZE] for at in range(0, len(raw), HEADER_SIZE))]
    hashes = [_sha256d(each) for each in chain]
    ends, filter_header = [], bytes(32)
    with ExitStack() as stack:
        filters, digests, linked = (
            stack.enter_context((folder / name).open("wb")) for name in ("filters", "filterhashes", "filterheaders")
        )
        for height, block_hash in enumerate(hashes):
            scripts = [_paid_script(height, paid.get(height)), *(draw.randbytes(22) for _ in range(_ELEMENTS - 1))]
            data = gcs_build(scripts, block_hash[:16], BASIC_P, BASIC_M)
            filters.write(data)
            ends.append(filters.tell())
            digest = _sha256d(data)
            filter_header = _sha256d(digest + filter_header)
            digests.write(digest)
            linked.write(filter_header)
    (folder / "hashes").write_bytes(b"".join(hashes))
    (folder / "ends").write_bytes(struct.pack(f"<{len(ends)}I", *ends))
    (folder / "paid").write_text(json.dumps(paid))
    return total


def coinbase(height: int, number: int | None) -> bytes:
    """Make the only transaction of a block. It pays a watched script, or another one if `number` is None."""
    txin = TxIn(OutPoint(bytes(32), 0xFFFFFFFF), b"\x04" + height.to_bytes(4, "little"))
    return build_tx([txin], [TxOut(50_000, _paid_script(height, number))])


def _paid_script(height: int, number: int | None) -> bytes:
    return script(_SCRIPTS + height if number is None else number)


def _sha256d(data: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


class Peer:
    """An honest peer that answers from the world."""

    def __init__(self, world: World, magic: bytes) -> None:
        self._world = world
        self._magic = magic

    def answer(self, message: object) -> bytes:
        """Return the bytes of the answer to a message; empty if there is none."""
        world = self._world
        match message:
            case GetHeaders(locator):
                at = next((world.heights[each] for each in locator if each in world.heights), 0)
                raw = world.headers[at * HEADER_SIZE : (at + MAX_HEADERS) * HEADER_SIZE]
                pieces = [raw[place : place + HEADER_SIZE] + b"\0" for place in range(0, len(raw), HEADER_SIZE)]
                return encode_message(self._magic, "headers", compact_size(len(pieces)) + b"".join(pieces))
            case GetCFCheckpt(kind, stop):
                every = range(1_000, world.heights[stop] + 1, 1_000)
                found = tuple(world.filter_headers[32 * height : 32 * height + 32] for height in every)
                return encode_message(self._magic, "cfcheckpt", bytes(CFCheckpt(kind, stop, found)))
            case GetCFHeaders(kind, first, stop):
                last = world.heights[stop]
                assert last - first < MAX_CFHEADERS
                previous = world.filter_headers[32 * first - 32 : 32 * first] if first else bytes(32)
                digests = tuple(
                    world.filter_hashes[32 * height : 32 * height + 32] for height in range(first, last + 1)
                )
                return encode_message(self._magic, "cfheaders", bytes(CFHeaders(kind, stop, previous, digests)))
            case GetCFilters(kind, first, stop):
                return b"".join(
                    encode_message(
                        self._magic, "cfilter", bytes(CFilter(kind, world.hash_at(height), world.filter_at(height)))
                    )
                    for height in range(first, world.heights[stop] + 1)
                )
            case GetData(items):
                return b"".join(
                    encode_message(self._magic, "block", world.block_at(world.heights[item.hash])) for item in items
                )
            case Ping(nonce):
                return encode_message(self._magic, "pong", bytes(Pong(nonce)))
        return b""


class Link(NamedTuple):
    """A line that all peers share, such as that of a phone."""

    delay_s: float
    """Seconds of a round trip."""
    bytes_per_s: float
    """Bytes per second."""


class Client:
    """Runs the engine with two peers, and the thread of the store.

    `seconds` is the processor time of the client, and `now` is the virtual clock of the lines.
    """

    def __init__(self, path: Path, world: World, work: int, from_height: int, link: Link | None) -> None:
        rules = network(work)
        watch = WatchList(rules)
        for number in range(_SCRIPTS):
            watch.add_script(script(number))
        options = Options(mode=Mode.COMPACT, mempool=False, from_height=from_height, max_peers=2, reach=Reach.DIRECT)
        begun = time.process_time()
        self.store, saved = opened(path, watch, options, rebuild=False)
        self._engine = ClientEngine(options, watch, saved, _PEERS, random.Random(1))
        self.seconds = time.process_time() - begun
        self.received = 0
        self._link = link
        self._peer = Peer(world, rules.magic)
        self._sessions: dict[int, Session] = {}
        self._rules = rules
        self._ready: deque[Input | tuple[int, bytes]] = deque()
        self._lines: list[tuple[float, int, Input | tuple[int, bytes]]] = []  # heap of the bytes and inputs on the way
        self._order = count()
        self._free = 0.0  # virtual time when the link is free again
        self._wake = float("inf")
        self.now = 1.0
        self.synced = False

    async def run(self) -> None:
        """Run steps until Synced is reported and everything is committed."""
        begun, away = time.process_time(), 0.0
        with ThreadPoolExecutor(1) as thread:
            database = Database(self.store, thread, self._ready.append, self._emitted, self._fail)
            away += self._carry_out(self._engine.start(self._instant()), database)
            while not self.synced:
                await asyncio.sleep(0)
                if not self._ready:
                    await database.drain()
                if not self._ready:
                    self._pass_time()
                each = self._ready.popleft()
                inputs = self._heard(*each) if isinstance(each, tuple) else [each]
                for one in inputs:
                    away += self._carry_out(self._engine.step(one, self._instant()), database)
            await database.drain()
        self.seconds += time.process_time() - begun - away

    def _instant(self) -> Instant:
        return Instant(self.now, _NOW + self.now)

    def _pass_time(self) -> None:
        """Advance the virtual clock to the next input or tick."""
        if self._lines and self._lines[0][0] <= self._wake:
            at, _, piece = heapq.heappop(self._lines)
            self._ready.append(piece)
        else:
            at, self._wake = self._wake, float("inf")
            self._ready.append(Tick())
        self.now = max(self.now, at)

    def _emitted(self, events: Sequence[Event]) -> None:
        self.synced = self.synced or any(isinstance(event, Synced) for event in events)

    def _fail(self, error: Exception) -> None:
        raise error

    def _heard(self, number: int, raw: bytes) -> list[Input]:
        session = self._sessions[number]
        session.receive_data(raw)
        return list(inputs_of(number, session.events(), lambda nonce: nonce))

    def _carry_out(self, effects: list[Effect], database: Database) -> float:
        """Carry out effects of the engine. Returns the seconds that the peers took."""
        away = 0.0
        for effect in effects:
            match effect:
                case Connect(number, address):
                    self._ready.append(
                        self._connected(number) if address in _PEERS else Lost(number, OSError("nobody is there"))
                    )
                case Send(number, message):
                    begun = time.process_time()
                    self._bring(number, self._peer.answer(message))
                    away += time.process_time() - begun
                case Fence(number, token):
                    self._come(FencePassed(number, token), 0)
                case Commit() | Read() | Emit():
                    database.put(effect)
                case Work(token, function):
                    self._ready.append(Worked(token, function()))
                case Wake(at):
                    self._wake = at
        return away

    def _connected(self, number: int) -> PeerConnected:
        session = self._sessions[number] = Session(
            Settings(self._rules), Role.OUTBOUND, draw_nonce=lambda: random.getrandbits(64), now=0.0
        )
        version = Version(70016, _NODE, int(_NOW + self.now), 7, b"/peer/", _BLOCKS, True)
        for message, command in ((version, "version"), (Verack(), "verack")):
            session.receive_data(encode_message(self._rules.magic, command, bytes(message)))
            list(session.events())
        host = _PEERS[(number - 1) % len(_PEERS)].partition(":")[0]
        return PeerConnected(number, host, _NODE, _BLOCKS, True, True, "/peer/", int(_NOW + self.now))

    def _bring(self, number: int, raw: bytes) -> None:
        self.received += len(raw)
        size = len(raw) if self._link is None else _PIECE
        for at in range(0, len(raw), size or 1):
            self._come((number, raw[at : at + size]), len(raw[at : at + size]))

    def _come(self, each: Input | tuple[int, bytes], size: int) -> None:
        """Deliver an input after all earlier ones."""
        if self._link is None:
            self._ready.append(each)
            return
        self._free = max(self.now + self._link.delay_s, self._free) + size / self._link.bytes_per_s
        heapq.heappush(self._lines, (self._free, next(self._order), each))


def know_addresses(path: Path, work: int) -> None:
    """Make a database that knows addresses of peers, as after gossip."""
    draw = random.Random(2)
    store = Store.open(path, network(work))
    known: dict[str, KnownAddress | None] = {}
    while len(known) < _ADDRESSES:
        address = f"{draw.randrange(11, 100)}.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(1, 255)}:8333"
        known[address] = KnownAddress(
            address, _NODE, _NOW - draw.randrange(86_400 * 20), f"ip4 {draw.randrange(11, 100)}.1", False
        )
    store.commit(Batch(headers=network(work).genesis, addresses=known))
    store.close()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def measure(path: Path, folder: Path, work: int, from_height: int, link: Link | None) -> dict[str, float]:
    """Measure a start until Synced. This needs a process of its own."""
    world = World(folder)
    if not path.exists():
        know_addresses(path, work)
    base = resident()  # includes the world of the peers
    client = Client(path, world, work, from_height, link)
    asyncio.run(client.run())
    found = sum(height >= from_height for height in world.paid)
    assert client.store.tip == world.count
    memory = peak() - base
    matches = sum(1 for _ in client.store.matches())
    assert matches == found, (matches, found)
    client.store.close()
    return {
        "seconds": client.seconds,
        "memory": memory,
        "file": sum(each.stat().st_size for each in path.parent.glob(path.name + "*")),
        "received": client.received,
        "virtual": client.now - 1.0,
    }


def mainnet(folder: Path, rounds: int) -> list[Row]:
    """Measure starts of a wallet: processor time, memory and disk, and time on the clock over a phone's line."""
    rows = []
    with tempfile.TemporaryDirectory() as made:
        work = make(Path(made))
        for name, from_height in ((f"last {_BLOCKS - _LATE:,} blocks", _LATE), ("all blocks", 0)):
            database = Path(made) / f"{from_height}.db"
            for when in ("first start", "restart"):
                taken = _run(database, made, work, from_height, "0", "0")
                label = f"900,000 headers, filters of the {name}, {when}"
                rows.append(Row(f"{label}, s", taken["seconds"], 1.0, ""))
                rows.append(Row(f"{label}, MB", taken["memory"] / 1e6, 250.0, "goal", 1.0))
            rows.append(
                Row("the database with them, MB", taken["file"] / 1e6, _HELD / 1e6, "headers and filter hashes")
            )
        taken = _run(Path(made) / "phone.db", made, work, _LATE, "0.06", "1250000")
        wire = taken["received"] / 1_250_000
        rows.append(
            Row("first start of the former on 10 Mbit/s and 60 ms, s", taken["virtual"], wire, "its bytes at that rate")
        )
        average = (_BLOCKS - _LATE) * 13_500 / 1_250_000
        rows.append(
            Row("on paper: with filters of 13.5 kB, s", taken["virtual"] + average, average, "these filters alone")
        )
    return rows


def _run(*words: object) -> dict[str, float]:
    command = [sys.executable, __file__, *map(str, words)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


if __name__ == "__main__":
    _, database, folder_, work_, from_, delay_, rate_ = sys.argv
    link_ = Link(float(delay_), float(rate_)) if float(rate_) else None
    print(json.dumps(measure(Path(database), Path(folder_), int(work_), int(from_), link_)))
