"""Slots of named peers with more addresses than connections: many networks get one, and disputing peers are heard
again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.compact import OmitsScripts
from spvfilter.chain import HeaderChain
from spvfilter.errors import LieError
from spvfilter.light.engine.effects import Emit
from spvfilter.light.engine.inputs import Instant, PeerConnected
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.outboundslots import wanted_of
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.peers import COMPACT_FILTERS, PeerPool, PeerState
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.network import REGTEST
from spvfilter.wallet.books import Books
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Service
from support.client.engineparts import named_slots
from support.client.stage import Prompt, at, stage

NOW = 1_700_000_000.0


class Pool(PeerPool):
    """Peers under a virtual clock; a connected peer is ready at once."""

    def __init__(self, addresses: list[str], most: int, disputing: list[str] | None = None) -> None:
        self.out = Outbox(Books(WatchList(REGTEST), SavedBooks()), HeaderChain(REGTEST), Journal())
        self.disputing = disputing if disputing is not None else []
        self.hosts: dict[str, str] = {}  # of names
        self.dead: set[str] = set()
        super().__init__(addresses, {}, most, PeerTimeouts(), self.out, None, lambda: self.disputing)
        self.now = 0.0

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            now = Instant(self.now, NOW + self.now)
            self.advance(now)
            for peer in self:
                if peer.state is PeerState.CONNECTING:
                    if peer.address in self.dead:
                        self.lost(peer.number, ConnectionRefusedError("refused"), now)
                        continue
                    host = self.hosts.get(peer.address, peer.address.rpartition(":")[0])
                    made = self.welcome(
                        PeerConnected(peer.number, host, COMPACT_FILTERS, 0, True, True, "/", int(now.wall)), now
                    )
                    if made is not None:
                        self.move(made, PeerState.READY)
            self.advance(now)
            self.settle(COMPACT_FILTERS, now)
            self.now += 1.0

    @property
    def there(self) -> set[str]:
        return {peer.address for peer in self.ready()}


LIARS = [f"10.{net}.0.1:{port}" for net in (3, 99) for port in range(1, 4)]


def test_networks_come_before_further_addresses_of_one_network() -> None:
    pool = Pool([*LIARS, "10.1.0.1:1", "10.2.0.1:1"], 4)
    pool.pass_time(1)
    assert pool.there == {"10.3.0.1:1", "10.99.0.1:1", "10.1.0.1:1", "10.2.0.1:1"}


def test_hosts_come_before_further_ports_of_one_host() -> None:
    pool = Pool(["10.1.0.1:1", "10.1.0.1:2", "10.1.0.2:1", "10.1.0.3:1"], 3)
    pool.pass_time(1)
    assert pool.there == {"10.1.0.1:1", "10.1.0.2:1", "10.1.0.3:1"}


def test_a_later_network_takes_a_slot_of_a_crowded_one() -> None:
    pool = Pool([*LIARS, "10.1.0.1:1", "10.2.0.1:1"], 4)
    pool.dead = {"10.1.0.1:1", "10.2.0.1:1"}
    pool.pass_time(30)
    before = pool.there
    assert len(before) == 4
    pool.dead.clear()
    pool.pass_time(600)
    assert {"10.1.0.1:1", "10.2.0.1:1"} <= pool.there
    assert len(pool.there) == 4
    assert {address.split(".")[1] for address in pool.there} == {"1", "2", "3", "99"}
    there = pool.there
    pool.pass_time(600)
    assert pool.there == there  # and nothing changes any longer


def test_a_later_host_takes_a_slot_of_a_crowded_one() -> None:
    pool = Pool(["10.1.0.1:1", "10.1.0.1:2", "10.1.0.2:1"], 2)
    pool.dead = {"10.1.0.2:1"}
    pool.pass_time(30)
    assert pool.there == {"10.1.0.1:1", "10.1.0.1:2"}
    pool.dead.clear()
    pool.pass_time(600)
    assert "10.1.0.2:1" in pool.there
    assert len(pool.there) == 2


def test_an_unreachable_address_costs_no_peer_its_slot() -> None:
    pool = Pool([*LIARS, "10.1.0.1:1"], 4)
    pool.dead = {"10.1.0.1:1"}
    pool.pass_time(10)
    before = list(pool.ready())
    pool.pass_time(3_600)
    assert list(pool.ready()) == before


def test_the_network_of_a_name_is_known_after_its_connection() -> None:
    pool = Pool([f"name{number}.example:{number}" for number in range(1, 5)] + ["10.1.0.1:1"], 4)
    pool.hosts = {f"name{number}.example:{number}": "10.9.0.1" for number in range(1, 5)}
    pool.pass_time(60)
    assert "10.1.0.1:1" in pool.there
    assert len(pool.there) == 4


def test_disputing_addresses_come_first_in_a_quarter_of_the_slots() -> None:
    disputing = [f"11.{net}.0.1:1" for net in range(8)]
    addresses = [*(f"10.{net}.0.1:1" for net in range(10)), *disputing]
    for most, number in [(1, 0), (2, 1), (4, 1), (8, 2), (12, 3)]:
        pool = Pool(addresses, most, disputing)
        pool.pass_time(1)
        chosen = [*disputing[:number], *(address for address in addresses if address not in disputing[:number])]
        assert pool.there == set(chosen[:most])
    other = Pool(addresses, 4)
    other.pass_time(1)
    assert other.there == set(addresses[:4])
    other.disputing.append(addresses[9])
    other.pass_time(60)
    assert addresses[9] in other.there
    assert len(other.there) == 4
    other.disputing += addresses[:9]
    there = other.there
    other.pass_time(600)
    assert other.there == there


@pytest.mark.parametrize("lost", [0, 2])
def test_successive_disputing_peers_get_a_quarter_of_the_slots(lost: int) -> None:
    """A compared peer leaves no doubt, so the next two disputing peers come first. The client dropped honest peers for
    them.
    """
    disputing = [f"11.{net}.0.1:1" for net in range(8)]
    honest = [f"10.{net}.0.1:1" for net in range(10)]
    pool = Pool([*honest, *disputing], 8)
    pool.pass_time(1)
    assert pool.there == set(honest[:8])
    pool.disputing += disputing
    for turn in range(60):
        pool.pass_time(10)
        pool.disputing.sort(key=pool.there.__contains__)
        assert len(pool.there & set(disputing)) <= 2
        if turn < lost:
            gone = next(peer for peer in pool if peer.address in honest)
            pool.lost(gone.number, ConnectionResetError("gone"), Instant(pool.now, NOW + pool.now))
    assert len(pool.there) == 8


def test_disputing_addresses_do_not_come_first_beyond_their_quarter() -> None:
    disputing = [f"11.{net}.0.1:1" for net in range(8)]
    assert wanted_of(disputing, disputing[1:2], 8) == disputing[:1]
    assert wanted_of(disputing, disputing[7:], 8) == disputing[:1]
    assert wanted_of(disputing, disputing[6:], 8) == []
    assert wanted_of(disputing, disputing[6:], 8, makes_room=True) == disputing[:2]


def test_an_unreachable_disputing_address_costs_no_peer_its_slot() -> None:
    pool = Pool([f"10.{net}.0.1:1" for net in range(6)], 4, ["10.5.0.1:1"])
    pool.dead = {"10.5.0.1:1"}
    pool.pass_time(10)
    before = list(pool.ready())
    assert len(before) == 4
    pool.pass_time(3_600)
    assert list(pool.ready()) == before


class WithoutFilters(Prompt):
    """Serves blocks and no compact filters."""

    services = Service.NETWORK | Service.WITNESS


def test_a_peer_without_the_needed_services_takes_no_slot(tmp_path: Path) -> None:
    placed = at(Prompt, 1, net=1), at(Prompt, 2, net=1), at(WithoutFilters, 3)
    with stage(tmp_path, Mode.COMPACT, *placed, max_peers=2) as world:
        world.nodes[2].is_up = False
        world.boot()
        world.wait_synced(within=60)
        world.nodes[2].is_up = True
        there = {id(each.node) for each in world.running.connections.values()}
        for _ in range(60):
            world.pass_time(30)
            ready = {id(each.node) for each in world.running.connections.values() if each.is_ready}
            assert there <= ready | {id(world.nodes[2])}


def test_a_thousand_named_addresses_fill_the_slots_quickly() -> None:
    pool = Pool([f"10.{net // 250}.{net % 250}.1:1" for net in range(1_000)], 8)
    pool.pass_time(2)
    slots = named_slots(pool)
    assert len(slots.free) == 992
    assert slots.taking(slots.free) == []


def test_a_peer_dropped_for_its_slot_gets_no_warning() -> None:
    pool = Pool([*LIARS[:2], "10.1.0.1:1"], 2)
    pool.dead = {"10.1.0.1:1"}
    pool.pass_time(10)
    assert pool.there == set(LIARS[:2])
    pool.dead.clear()
    pool.out.take()
    pool.pass_time(600)
    assert "10.1.0.1:1" in pool.there
    events = [effect.event for effect in pool.out.take() if isinstance(effect, Emit)]
    assert {event.address for event in events if isinstance(event, PeerWarning)} <= {"10.1.0.1:1"}


def test_many_addresses_of_liars_keep_no_honest_peer_out(tmp_path: Path) -> None:
    liars = at(OmitsScripts, 1, 18444, 18445, 18446), at(OmitsScripts, 2, 18444, 18445, 18446)
    with stage(tmp_path, Mode.COMPACT, *liars, Prompt, max_peers=4) as world:
        world.boot()
        world.wait_synced(within=60)
        world.pass_time(600)
        assert world.has_found_all()


def test_a_banned_address_is_no_substitute() -> None:
    pool = Pool(["10.1.0.1:1", "10.2.0.1:1", "10.3.0.1:1"], 2)
    pool.pass_time(1)
    peers, now = {peer.address: peer for peer in pool.ready()}, Instant(pool.now, NOW + pool.now)
    assert all(pool.has_substitute(peer, now) for peer in peers.values())
    first, last = peers["10.1.0.1:1"], peers["10.2.0.1:1"]
    pool.drop(first, LieError("a lie", cause=Lie.MALFORMED), now)
    pool.pass_time(3)
    assert pool.there == {"10.2.0.1:1", "10.3.0.1:1"}
    assert not pool.has_substitute(last, now)
    assert pool.has_substitute(last, Instant(pool.now, NOW + 2 * 86_400))
