"""Dishonest addresses do not decide what the client does: false services, hosts with many ports, and false gossip."""

from __future__ import annotations

from collections import Counter, deque

import pytest

from spvfilter.errors import LieError
from spvfilter.light.engine.addressbook import AddressBook
from spvfilter.light.engine.effects import Commit, Connect, Effect, Fence, Read, Send, Work
from spvfilter.light.engine.engine import ClientEngine, SearchMode
from spvfilter.light.engine.inputs import (
    Committed,
    FencePassed,
    Heard,
    Instant,
    Lost,
    Malformed,
    PeerConnected,
    Seeded,
    Tick,
    Worked,
)
from spvfilter.light.engine.netgroups import host_of, is_public, is_service_port
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.events import Mode
from spvfilter.light.lies import Lie
from spvfilter.network import REGTEST
from spvfilter.primitives import Header
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId
from spvfilter.wire.messages.merkleblock import MerkleBlock
from support.client.discovery import NAMED, Run
from support.client.engineparts import never_ask_seeds
from support.client.swarm import START, Client, Swarm

LIAR = "203.0.113.5"


def book_in(engine: ClientEngine) -> AddressBook:
    discovery = engine.pool.discovery
    assert discovery is not None
    return discovery.book


class Pretending:
    """A named honest peer without compact filters, and addresses that claim compact filters but serve none."""

    def __init__(self, addresses: list[str], *, are_there: bool = True, dial_s: float = 0.0) -> None:
        """The engine hears of a failed attempt after `dial_s` seconds."""
        self.are_there = are_there
        self.dial_s = dial_s
        self.dialling: deque[tuple[float, int]] = deque()  # when attempts fail, with the numbers of the peers
        self.client = Client(Swarm(1), named=[NAMED], mode=Mode.AUTO)
        self.client.options = Options(mode=Mode.AUTO, reach=Reach.DIRECT)
        self.engine = self.client.make()
        self.now = 0.0
        for number, address in enumerate(addresses):
            book_in(self.engine).add(address, 0x449, START, f"{number}.0.0.0/16", START)
        never_ask_seeds(self.engine)
        self.queue: deque[Effect] = deque(self.engine.start(self.instant()))
        self.work()

    def instant(self) -> Instant:
        return Instant(self.now, START + self.now)

    def work(self) -> None:
        def step(event: object) -> None:
            self.queue.extend(self.engine.step(event, self.instant()))  # type: ignore[arg-type]

        while self.queue:
            match self.queue.popleft():
                case Connect(peer, address) if address != NAMED and not self.are_there:
                    self.dialling.append((self.now + self.dial_s, peer))
                case Connect(peer, address):
                    services = 0x40D if address == NAMED else 0x449
                    step(PeerConnected(peer, host_of(address), services, 0, True, True, "/x/", int(START + self.now)))
                case Send(peer, wire.GetHeaders()):
                    step(Heard(peer, wire.Headers(())))
                case Send(peer, wire.GetData(items)) if items[0].kind == wire.InvType.FILTERED_BLOCK:
                    step(
                        Heard(peer, MerkleBlock.from_txids(Header.parse(REGTEST.genesis), [REGTEST.genesis[36:68]], ()))
                    )
                case Fence(peer, token):
                    step(FencePassed(peer, token))
                case Commit(number, batch):
                    self.client.store.commit(batch)
                    step(Committed(number))
                case Read(token, function):
                    step(Worked(token, function(self.client.store)))
                case Work(token, made):
                    step(Worked(token, made()))
                case _:
                    pass
            while not self.queue and self.dialling and self.dialling[0][0] <= self.now:
                step(Lost(self.dialling.popleft()[1], TimeoutError("no connection")))

    def ways(self, seconds: int) -> Counter[SearchMode]:
        """Return the seconds that were spent in each search mode."""
        spent: Counter[SearchMode] = Counter()
        for _ in range(seconds):
            self.now += 1.0
            self.queue.extend(self.engine.step(Tick(), self.instant()))
            self.work()
            spent[self.engine.search_mode] += 1
        return spent


@pytest.mark.long
@pytest.mark.parametrize("ports", [1, 20])
def test_a_host_with_false_services_delays_auto_briefly(ports: int) -> None:
    world = Pretending([f"{LIAR}:{2_000 + number}" for number in range(ports)])
    world.ways(2 * 3_600)
    later = world.ways(2 * 3_600)
    assert later[SearchMode.BLOOM] > 0.8 * later.total()
    world.client.store.close()


@pytest.mark.long
def test_a_thousand_dead_addresses_delay_auto_for_twenty_minutes() -> None:
    world = Pretending([f"{20 + number // 200}.{number % 200}.1.1:8333" for number in range(1_000)], are_there=False)
    assert world.ways(600)[SearchMode.BLOOM] == 0
    world.ways(600)
    later = world.ways(3_600)
    assert later[SearchMode.BLOOM] > 0.95 * later.total()
    world.client.store.close()


@pytest.mark.long
def test_few_dead_addresses_delay_auto_for_half_an_hour() -> None:
    """Each address is tried again only after its pause. Hours passed until the attempts sufficed, and each one delayed
    auto.
    """
    world = Pretending([f"20.{number}.1.1:8333" for number in range(60)], are_there=False, dial_s=5.0)
    assert world.ways(1_800)[SearchMode.WAIT] > 60
    assert world.ways(1_800) == {SearchMode.BLOOM: 1_800}
    world.client.store.close()


@pytest.mark.slow
def test_attempts_while_offline_say_nothing_about_compact_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.light.engine.addresses.MAX_HOPES", 1)
    run = Run(Mode.AUTO)
    run.do(Lost(run.peer, ConnectionResetError("gone")))
    for number in range(300):
        book_in(run.engine).add(f"{101 + number // 256}.{number % 256}.0.1:8333", 0x49, START, "1.1", START)
    for _ in range(2_000):
        for effect in run.do(Tick(), 5.0):
            if isinstance(effect, Connect):
                run.do(Lost(effect.peer, OSError("unreachable")))
    discovery = run.engine.pool.discovery
    assert discovery is not None
    assert not discovery.serves(0x0D)  # all but compact filters


@pytest.mark.parametrize("lied", [False, True])
@pytest.mark.parametrize("port", [8333, 8334])
def test_a_named_peer_is_never_dialled_as_a_discovered_one(lied: bool, port: int) -> None:
    run = Run()
    error = LieError("x", cause=Lie.FALSE_BLOCK)
    run.do(Malformed(run.peer, error) if lied else Lost(run.peer, ConnectionResetError("gone")), 100.0)
    book_in(run.engine).add(f"{host_of(NAMED)}:{port}", 0x49, START, "1.1.0.0/16", START)
    assert not any(isinstance(effect, Connect) for effect in run.do(Seeded(()), 0.2))
    dialled = [effect.address for _ in range(60) for effect in run.do(Tick(), 60.0) if isinstance(effect, Connect)]
    assert (NAMED in dialled) is not lied
    assert (NAMED in run.engine.pool.bans) is lied


@pytest.mark.slow
def test_dead_named_peers_do_not_disconnect_other_peers() -> None:
    client = Client(Swarm(1), named=[f"198.51.{number}.1:8333" for number in range(8)], mode=Mode.COMPACT)
    client.start()
    client.pass_time(600)
    for _ in range(360):
        client.pass_time(10)
        assert len(client.engine.pool.ready()) >= 5
    client.stop()
    client.store.close()


def test_a_stored_onion_address_is_never_looked_up() -> None:
    run = Run(reach=Reach.DIRECT)
    book_in(run.engine).add(f"{'a' * 56}.onion:8333", 0x49, START, "onion", START)
    dialled = [effect.address for _ in range(50) for effect in run.do(Tick(), 60.0) if isinstance(effect, Connect)]
    assert not any(".onion" in address for address in dialled)


def test_another_source_does_not_change_an_address() -> None:
    book = book_in(Run().engine)
    book.add("1.2.3.4:8333", 0x9, START, "9.9.0.0/16", START)
    book.add("1.2.3.4:8333", 0x49, START, "8.8.0.0/16", START)
    known = book.get("1.2.3.4:8333")
    assert known is not None
    assert known.services == 0x9


@pytest.mark.parametrize("port", [0, 22, 53, 80, 443, 3306, 6379, 6667])
def test_a_port_of_another_service_is_refused(port: int) -> None:
    assert is_service_port(port)


@pytest.mark.parametrize("port", [8333, 18333, 38333, 48333, 18444, 8433])
def test_a_port_of_a_node_is_accepted(port: int) -> None:
    assert not is_service_port(port)


@pytest.mark.parametrize(
    "host",
    [
        "64:ff9b::c0a8:101",
        "::ffff:0:8.8.8.8",
        "::8.8.8.8",
        "::ffff:8.8.8.8",
        "fec0::1",
        "4000::1",
        "3fff::1",
        "2002:808:808::1",
        "2001::1",
    ],
)
def test_an_embedded_or_unassigned_address_is_not_public(host: str) -> None:
    assert not is_public(host, NetId.IPV6)


def test_an_assigned_address_is_public() -> None:
    assert is_public("2a00:1450:4001::1", NetId.IPV6)
    assert is_public("8.8.8.8", NetId.IPV4)
