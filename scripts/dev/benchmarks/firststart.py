"""First start and restart of a light client at mainnet's size, without sockets. The suite headers runs this program.

A simulated peer sends bytes through the wire session into the engine. The thread of the store writes the commits to a
database file. The program prints the seconds of the client, and the largest memory of the process in bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from measure import peak

from spvfilter import WatchList
from spvfilter.light import Mode
from spvfilter.light.database import Database
from spvfilter.light.engine.effects import Commit, Connect, Effect, Fence, Read, Send, Work
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.inputs import FencePassed, Heard, Input, Instant, PeerConnected, Worked
from spvfilter.light.engine.options import Options
from spvfilter.light.running import opened
from spvfilter.network import REGTEST, Network
from spvfilter.primitives import compact_size
from spvfilter.protocol import HEADER_SIZE, MAX_CFHEADERS, MAX_HEADERS
from spvfilter.wire import Received, Role, Service, Session, Settings, encode_message
from spvfilter.wire.messages import CFHeaders, GetCFHeaders, GetHeaders, Verack, Version

_COUNT = 900_000
_SCRIPT = b"\x00\x14" + bytes(20)
_NODE = int(Service.NETWORK | Service.WITNESS | Service.BLOOM | Service.COMPACT_FILTERS)


def network(work: int) -> Network:
    """Return a network with mainnet's rules at regtest's difficulty, so that a chain can be mined."""
    return replace(REGTEST, name="mainnet's rules", retargets=True, min_difficulty_blocks=False, min_chain_work=work)


class Peer:
    """A peer that sends the headers of a file, and made-up filter hashes."""

    def __init__(self, path: Path, network: Network) -> None:
        self._file = path.open("rb")
        self._network = network
        self._count = path.stat().st_size // HEADER_SIZE
        self._next: dict[bytes, int] = {network.genesis_hash: 1}  # height of the next header, by last hash of a message
        self._filters = bytes(32), 0  # the last filter header sent, and the next height

    def answer(self, message: object) -> bytes:
        """Return the bytes of the answer to a message; empty if there is none."""
        match message:
            case GetHeaders(locator):
                at = next(self._next[each] for each in locator if each in self._next)
                self._file.seek((at - 1) * HEADER_SIZE)
                raw = self._file.read(MAX_HEADERS * HEADER_SIZE)
                pieces = [raw[place : place + HEADER_SIZE] for place in range(0, len(raw), HEADER_SIZE)]
                if pieces:
                    self._next[hashlib.sha256(hashlib.sha256(pieces[-1]).digest()).digest()] = at + len(pieces)
                return encode_message(
                    self._network.magic, "headers", compact_size(len(pieces)) + b"\0".join([*pieces, b""])
                )
            case GetCFHeaders(kind, first, stop):
                previous, height = self._filters
                last = min(first + MAX_CFHEADERS - 1, self._count)
                if first != height:  # the client asks again only for the last filter header
                    return b""
                hashes = tuple(height.to_bytes(32, "little") for height in range(first, last + 1))
                payload = bytes(CFHeaders(kind, stop, previous, hashes))
                for each in hashes:
                    previous = hashlib.sha256(hashlib.sha256(each + previous).digest()).digest()
                self._filters = previous, last + 1
                return encode_message(self._network.magic, "cfheaders", payload)
        return b""


class Host:
    """Runs the engine with one peer, and the thread of the store. It counts only the time of the client."""

    def __init__(self, path: Path, network: Network, mode: Mode, peer: Peer | None) -> None:
        watch = WatchList(network)
        watch.add_script(_SCRIPT)
        options = Options(mode=mode, mempool=False, from_height=_COUNT * 2, max_peers=1)
        begun = time.perf_counter()
        self.store, saved = opened(path, watch, options, rebuild=False)
        self.engine = ClientEngine(options, watch, saved, ["192.0.2.1:8333"], random.Random(1))
        self.seconds = time.perf_counter() - begun
        self._peer = peer
        self._network = network
        self._now = Instant(1.0, 1_840_000_000.0)
        self._inputs: deque[Input | bytes] = deque()
        self._session = Session(Settings(network), Role.OUTBOUND, draw_nonce=lambda: random.getrandbits(64), now=0.0)
        version = Version(70016, _NODE, int(self._now.wall), 7, b"/peer/", _COUNT, True)
        for message, command in ((version, "version"), (Verack(), "verack")):
            self._session.receive_data(encode_message(network.magic, command, bytes(message)))
            list(self._session.events())

    async def run(self, done: Callable[[], bool]) -> None:
        """Run steps until `done()` is true and everything is committed."""
        begun = time.perf_counter()
        with ThreadPoolExecutor(1) as thread:
            database = Database(self.store, thread, self._inputs.append, lambda events: None, self._fail)
            self._carry_out(self.engine.start(self._now), database)
            while not done():
                await asyncio.sleep(0)
                if not self._inputs:
                    await database.drain()
                self._step(self._inputs.popleft(), database)
            await database.drain()
        self.seconds += time.perf_counter() - begun

    def _fail(self, error: Exception) -> None:
        raise error

    def _step(self, each: Input | bytes, database: Database) -> None:
        if not isinstance(each, bytes):
            self._carry_out(self.engine.step(each, self._now), database)
            return
        self._session.receive_data(each)
        for event in self._session.events():
            assert isinstance(event, Received), event
            self._carry_out(self.engine.step(Heard(1, event.message), self._now), database)

    def _carry_out(self, effects: list[Effect], database: Database) -> None:
        for effect in effects:
            match effect:
                case Connect(number, _):
                    self._inputs.append(
                        PeerConnected(number, "192.0.2.1", _NODE, _COUNT, True, True, "/peer/", int(self._now.wall))
                    )
                case Send(_, message):
                    begun = time.perf_counter()
                    assert self._peer is not None
                    if answer := self._peer.answer(message):
                        self._inputs.append(answer)
                    self.seconds -= time.perf_counter() - begun
                case Fence(number, token):
                    self._inputs.append(FencePassed(number, token))
                case Commit() | Read():
                    database.put(effect)
                case Work(token, function):
                    self._inputs.append(Worked(token, function()))


def measure(path: Path, headers: Path, work: int, mode: Mode, is_first: bool, count: int) -> tuple[float, int]:
    """Measure a start, in seconds and bytes. This needs a process of its own."""
    rules = network(work)
    host = Host(path, rules, mode, Peer(headers, rules) if is_first else None)
    engine = host.engine
    rows = engine._context.rows
    if is_first:
        asyncio.run(host.run(lambda: engine.chain.height == count and (mode is Mode.BIP37 or rows.height == count)))
    assert host.store.tip == engine.chain.height == count, (host.store.tip, engine.chain.height)
    if mode is Mode.COMPACT:
        assert rows.height == host.store.compact_filters.height == count
    return host.seconds, peak()


if __name__ == "__main__":
    _, database, made, work_, mode_, first_, count_ = sys.argv
    print(*measure(Path(database), Path(made), int(work_), Mode(mode_), first_ == "first", int(count_)))
