"""A network of a thousand addresses in virtual time, for the light client's engine: honest nodes, one attacker with
many addresses, and DNS seeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from simulation.timeline import Timeline, Timer
from spvfilter.light.engine import ClientEngine, Instant, Options, Saved
from spvfilter.light.engine.effects import AskSeeds, Commit, Connect, Drop, Effect, Emit, Fence, Read, Send, Wake, Work
from spvfilter.light.engine.inputs import (
    Committed,
    FencePassed,
    Heard,
    Input,
    Lost,
    PeerConnected,
    SeedAnswer,
    Seeded,
    Tick,
    Worked,
)
from spvfilter.light.engine.netgroups import dialling_group, host_of
from spvfilter.light.engine.options import Reach
from spvfilter.light.engine.peers import Peer
from spvfilter.light.events import Event, Mode, Synced
from spvfilter.network import REGTEST
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.regtest import Regtest
from spvfilter.store.batch import Batch
from spvfilter.store.place import MEMORY
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId, PeerAddress
from spvfilter.wire.messages.table import Message
from support.wallets.stores import opened
from support.wallets.storesqlite import writing

START = 1_700_000_000  # Unix time
FULL, WITH_FILTERS = 0x409, 0x449  # NETWORK, WITNESS, NETWORK_LIMITED; and COMPACT_FILTERS
SEEDS = tuple(f"seed{number}.example" for number in range(8))
SMART_SEEDS = SEEDS[:3]  # seeds that support x49
NETWORK = replace(REGTEST, dns_seeds=SEEDS, default_port=8333)
OURS = b"\x00\x14" + bytes(20)
CONNECT_S = 5.0

ADDRESSES, SERVING, HOSTILE, HOSTILE_GROUPS = 1_000, 0.11, 0.20, 4
_HONEST_LIFE_S = 8 * 3_600  # average life of a connection to an honest node; a hostile one does not end
_UP = 0.8  # share of the honest nodes that are up


@dataclass(eq=False)
class Node:
    host: str
    services: int
    is_hostile: bool
    is_up: bool
    latency_s: float

    @property
    def address(self) -> str:
        return f"{self.host}:8333"

    def told(self, age_s: float, now: float) -> PeerAddress:
        return PeerAddress(int(now - age_s), self.services, NetId.IPV4, bytes(map(int, self.host.split("."))), 8333)


class Swarm:
    """The network. All chance comes from `rng`."""

    def __init__(self, seed: int, *, hostile_groups: int = HOSTILE_GROUPS) -> None:
        self.rng = rng = random.Random(seed)
        self.timeline = Timeline()
        self.regtest = Regtest(clock=lambda: START)
        self.index = FilterIndex(self.regtest.chain)
        groups = rng.sample([f"{a}.{b}" for a in range(11, 100) for b in range(256)], hostile_groups + 600)
        theirs, others = groups[:hostile_groups], groups[hostile_groups:]
        hostile = round(ADDRESSES * HOSTILE)
        self.nodes = [self._node(rng.choice(theirs), hostile=True, number=number) for number in range(hostile)]
        self.nodes += [
            self._node(rng.choice(others), hostile=False, number=number) for number in range(hostile, ADDRESSES)
        ]
        self.directory = {node.address: node for node in self.nodes}
        self.made_up = 0
        self.asked: list[int] = []  # services requested from seeds
        self.seeds_are_hostile = False  # True if seeds name only hostile nodes

    def _node(self, group: str, *, hostile: bool, number: int) -> Node:
        rng = self.rng
        services = WITH_FILTERS if hostile or rng.random() < SERVING else FULL
        host = f"{group}.{number // 250}.{number % 250 + 1}"
        return Node(host, services, hostile, hostile or rng.random() < _UP, 0.05 if hostile else rng.uniform(0.1, 1.5))

    @property
    def hostile(self) -> list[Node]:
        return [node for node in self.nodes if node.is_hostile]

    def wall(self) -> float:
        return START + self.timeline.now

    def stir(self) -> None:
        """Some honest nodes leave, and others come."""
        for node in self.nodes:
            if not node.is_hostile and self.rng.random() < 0.1:
                node.is_up = self.rng.random() < _UP

    def answer_getaddr(self, node: Node) -> list[Message]:
        """An honest node announces 23 % of its addresses. A hostile node announces all hostile and some made-up
        addresses.
        """
        now, rng = self.wall(), self.rng
        if node.is_hostile:
            return [
                wire.AddrV2((*(each.told(60, now) for each in self.hostile), *self._made_up(1_000 - len(self.hostile))))
            ]
        return [
            wire.AddrV2(
                tuple(
                    each.told(rng.uniform(0, 86_400), now) for each in rng.sample(self.nodes, min(230, len(self.nodes)))
                )
            )
        ]

    def spam(self) -> Message:
        """Unsolicited addresses of a hostile node."""
        return wire.AddrV2(tuple(self._made_up(1_000)))

    def _made_up(self, count: int) -> Iterator[PeerAddress]:
        for _ in range(count):
            self.made_up += 1
            address = bytes((self.rng.randrange(100, 120), *self.rng.randbytes(2), self.rng.randrange(1, 255)))
            yield PeerAddress(int(self.wall()) - 60, WITH_FILTERS, NetId.IPV4, address, 8333)

    def resolve(self, services: int) -> tuple[SeedAnswer, ...]:
        """Each seed knows all addresses. Three seeds can filter by services."""
        self.asked.append(services)
        answers = []
        for seed in SEEDS:
            stated = services if seed in SMART_SEEDS else 0
            known = [
                node.host
                for node in (self.hostile if self.seeds_are_hostile else self.nodes)
                if node.services & stated == stated
            ]
            answers.append(SeedAnswer(seed, stated, tuple(self.rng.sample(known, min(25, len(known))))))
        return tuple(answers)


class Client:
    """The engine in this network. It can restart from its database any number of times."""

    def __init__(
        self, swarm: Swarm, *, named: list[str] | None = None, mode: Mode = Mode.COMPACT, **options: object
    ) -> None:
        self.swarm = swarm
        self.store = _store(swarm.rng.randbytes(32))
        self.options = Options(mode=mode, reach=Reach.DIRECT, **options)  # type: ignore[arg-type]  # by name
        self.named = named or []
        self.told: list[Event] = []
        self.dials: list[tuple[float, str]] = []
        self.sent: list[tuple[int, Message]] = []
        self.agent = "/node/"  # of all nodes
        self.withholds = False  # True if hostile nodes announce no new block
        self._timers: set[Timer] = set()
        self._tick: Timer | None = None
        self.lines: dict[int, Node] = {}
        self.engine = self.make()

    def make(self) -> ClientEngine:
        watch = WatchList(NETWORK)
        watch.add_script(OURS)
        return ClientEngine(
            self.options, watch, Saved.read(self.store, watch), self.named, random.Random(self.swarm.rng.random())
        )

    def start(self) -> None:
        """Start or restart. Only the database survives."""
        self.stop()
        self.engine = self.make()
        self._carry_out(self.engine.start(self.now()))

    def stop(self) -> None:
        """End at once."""
        for timer in (*self._timers, self._tick):
            if timer is not None:
                timer.cancel()
        self._timers.clear()
        self._tick = None
        self.lines.clear()

    def forget(self) -> None:
        """Replace the database by an empty one."""
        self.store.close()
        self.store = _store(self.swarm.rng.randbytes(32))

    def now(self) -> Instant:
        return Instant(self.swarm.timeline.now, self.swarm.wall())

    def pass_time(self, seconds: float) -> None:
        self.swarm.timeline.run(self.swarm.timeline.now + seconds)

    # Effects of the engine

    def report(self, event: Input) -> None:
        self._carry_out(self.engine.step(event, self.now()))

    def _after(self, delay: float, event: Input) -> None:
        self._call_after(delay, partial(self.report, event))

    def _call_after(self, delay: float, call: object) -> None:
        def happen() -> None:
            self._timers.discard(timer)
            call()  # type: ignore[operator]

        timer = self.swarm.timeline.after(delay, happen)
        self._timers.add(timer)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Connect(peer, address):
                    self.connect(peer, address)
                case Send(peer, message) if peer in self.lines:
                    self.sent.append((peer, message))
                    self._call_after(self.lines[peer].latency_s, partial(self._answer, peer, message))
                case Fence(peer, token) if peer in self.lines:
                    self._after(self.lines[peer].latency_s, FencePassed(peer, token))
                case Drop(peer):
                    self.lines.pop(peer, None)
                case AskSeeds(services):
                    self._after(1.0, Seeded(self.swarm.resolve(services)))
                case Commit(number, batch):
                    self.store.commit(batch)
                    self._after(0.0, Committed(number))
                case Read(token, function):
                    self._after(0.0, Worked(token, function(self.store)))
                case Work(token, work):
                    self._after(0.0, Worked(token, work()))
                case Wake(at):
                    if self._tick is not None:
                        self._tick.cancel()
                    self._tick = self.swarm.timeline.at(at, partial(self.report, Tick()))
                case Emit(event):
                    self.told.append(event)
                case _:
                    pass

    def connect(self, peer: int, address: str) -> None:
        self.dials.append((self.swarm.timeline.now, address))
        node = self.swarm.directory.get(address)
        if node is None or not node.is_up:
            self._after(CONNECT_S, Lost(peer, TimeoutError("no connection within 5 s")))
            return
        self._call_after(3 * node.latency_s, partial(self._reached, peer, node))

    def _reached(self, peer: int, node: Node) -> None:
        self.lines[peer] = node
        height = self.swarm.regtest.height if not (self.withholds and node.is_hostile) else 0
        self.report(
            PeerConnected(peer, node.host, node.services, height, True, True, self.agent, int(self.swarm.wall()))
        )
        if not node.is_hostile:
            self._call_after(self.swarm.rng.expovariate(1 / _HONEST_LIFE_S), partial(self.end, peer))
        else:
            self._spam(peer)

    def _spam(self, peer: int) -> None:
        if peer in self.lines:
            self.report(Heard(peer, self.swarm.spam()))
            self._call_after(10_000, partial(self._spam, peer))

    def end(self, peer: int) -> None:
        if self.lines.pop(peer, None) is not None:
            self.report(Lost(peer, ConnectionResetError("gone")))

    def _answer(self, peer: int, message: Message) -> None:
        node = self.lines.get(peer)
        if node is None:
            return
        answers: list[Message] = []
        chain = self.swarm.regtest.chain
        match message:
            case wire.GetHeaders(locator):
                known = next((at for at, block in enumerate(chain.active) if block.hash in locator), 0)
                last = 1 if self.withholds and node.is_hostile else len(chain.active)
                answers = [wire.Headers(tuple(block.raw[:80] for block in chain.active[known + 1 : last]))]
            case wire.GetCFHeaders() | wire.GetCFilters() | wire.GetCFCheckpt():
                answers = [each for each in self.swarm.index.respond(message) if each is not None]
            case wire.GetAddr():
                answers = self.swarm.answer_getaddr(node)
            case _:
                pass
        for each in answers:
            if peer in self.lines:
                self.report(Heard(peer, each))

    def announce(self) -> None:
        """Nodes announce the tip."""
        tip = self.swarm.regtest.chain.tip
        for peer, node in list(self.lines.items()):
            if not (self.withholds and node.is_hostile) and peer in self.lines:
                self.report(Heard(peer, wire.Headers((tip.raw[:80],))))

    # State of the client

    @property
    def ready(self) -> tuple[Peer, ...]:
        return self.engine.pool.ready()

    def connected(self) -> list[Node]:
        """The nodes that are ready."""
        return [self.swarm.directory[peer.address] for peer in self.ready]

    def share(self) -> float:
        """The hostile share of the connections."""
        there = self.connected()
        return sum(node.is_hostile for node in there) / len(there) if there else 1.0

    def wait_useful(self, *, honest: bool = False, within: float = 600.0) -> float:
        """Wait for a ready peer that serves filters. Returns the elapsed time."""
        begun = self.swarm.timeline.now
        while not any(not (honest and node.is_hostile) for node in self.connected()):
            assert self.swarm.timeline.now - begun < within, f"no peer within {within} s"
            self.pass_time(0.1)
        return self.swarm.timeline.now - begun

    @property
    def synced(self) -> list[Synced]:
        return [event for event in self.told if isinstance(event, Synced)]

    def groups(self) -> list[str]:
        """The groups of all addresses that are connected or being connected."""
        return [dialling_group(host_of(peer.address)) for peer in self.engine.pool]


def _store(secret: bytes) -> Store:
    """An empty database with a given secret, which is all that is random in it."""
    store = opened(MEMORY, NETWORK)
    with writing(store) as rows:
        rows.set_meta("secret", secret)
    store.commit(Batch(headers=NETWORK.genesis))
    return store


@contextmanager
def client(seed: int, **options: object) -> Iterator[Client]:
    """A client in its own network, not started."""
    made = Client(Swarm(seed), **options)  # type: ignore[arg-type]  # by name
    try:
        yield made
    finally:
        made.stop()
        made.store.close()
