"""Discovery: addresses that the engine connects beside the named ones, and its limits on gossip."""

from __future__ import annotations

from collections import Counter

import pytest

from spvfilter.errors import LieError, SessionError
from spvfilter.light.engine.addresses import BLOOM_NEEDS, COMPACT_NEEDS, Purpose
from spvfilter.light.engine.effects import Connect, Emit
from spvfilter.light.engine.inputs import Lost, PeerConnected, SeedAnswer, Seeded, Tick
from spvfilter.light.engine.netgroups import dialling_group, host_of
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.wire.events import Cause, Service
from spvfilter.wire.messages import table as wire
from support.client.discovery import DAY, Run, book_of, told
from support.client.swarm import START, WITH_FILTERS, Client, Swarm, client
from support.held import most_held

# Choice of addresses


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_one_address_per_group_and_host_is_connected(seed: int) -> None:
    with client(seed) as made:
        made.start()
        for _ in range(200):
            made.pass_time(30)
            made.swarm.stir()
            kinds = [(dialling_group(host_of(peer.address)), peer.purpose) for peer in made.engine.pool]
            assert (
                max(Counter(group for group, purpose in kinds if purpose is not Purpose.FEELER).values(), default=0)
                <= 1
            )
            assert max(Counter(host_of(peer.address) for peer in made.engine.pool).values()) == 1
            assert sum(purpose is Purpose.DISCOVERED for _, purpose in kinds) <= 8
        assert sum(peer.purpose is Purpose.DISCOVERED for peer in made.ready) == 8


@pytest.mark.slow
def test_named_peers_come_first_and_may_share_a_group() -> None:
    swarm = Swarm(3)
    group = next(node.host.rsplit(".", 2)[0] for node in swarm.nodes if node.is_hostile)
    named = [node.address for node in swarm.nodes if node.host.startswith(f"{group}.")][:3]
    made = Client(swarm, named=named)
    made.start()
    made.pass_time(600)
    assert set(named) <= {peer.address for peer in made.ready}
    assert [peer.address for peer in made.engine.pool if peer.address.startswith(f"{group}.")] == named
    assert len(made.ready) == 8


@pytest.mark.parametrize("is_online", [False, True])
def test_failed_attempts_are_reported_only_if_no_peer_is_connected(is_online: bool) -> None:
    run = Run()
    if not is_online:
        run.do(Lost(run.peer, ConnectionResetError("gone")))
    address = "1.2.3.4:8333"
    discovery = run.engine.pool.discovery
    assert discovery is not None
    discovery.book.add(address, WITH_FILTERS, START, "1.1.0.0/16", START)
    connects = [each for _ in range(6) for each in run.do(Tick(), 10.0) if isinstance(each, Connect)]
    (number,) = {each.peer for each in connects if each.address == address}
    effects = run.do(Lost(number, ConnectionRefusedError("refused")))
    warned = [each.event.address for each in effects if isinstance(each, Emit) and isinstance(each.event, PeerWarning)]
    assert warned == ([] if is_online else [address])


@pytest.mark.slow
def test_a_late_named_peer_gets_a_slot() -> None:
    swarm = Swarm(3)
    node = next(node for node in swarm.nodes if not node.is_hostile and node.services == WITH_FILTERS)
    node.is_up = False
    made = Client(swarm, named=[node.address])
    made.start()
    made.pass_time(600)
    assert len(made.ready) == 8
    node.is_up = True
    made.pass_time(600)
    assert node.address in {peer.address for peer in made.ready}
    assert len([peer for peer in made.engine.pool if peer.purpose is not Purpose.FEELER]) == 8


def test_one_host_is_connected_once_despite_several_ports() -> None:
    run = Run()
    run.tell(told("198.51.100.1", port=8334), told("203.0.113.5"), told("203.0.113.5", port=8334))
    effects = run.do(Seeded(()), 3.0)
    dialled = [each.address for each in effects if isinstance(each, Connect)]
    assert len(dialled) == 1
    assert dialled[0].startswith("203.0.113.5:")


def test_a_named_peer_replaces_the_discovered_peer_of_its_host() -> None:
    run = Run()
    run.client.named = ["node.example:8333"]
    run.engine = run.client.make()
    (named,) = [each.peer for each in run.engine.start(run.now) if isinstance(each, Connect)]
    book = run.engine.pool.discovery.book  # type: ignore[union-attr]
    book.add("203.0.113.5:8333", 0x49, START, "1.1.0.0/16", START)
    (other,) = [each.peer for each in run.do(Seeded(())) if isinstance(each, Connect)]
    run.do(PeerConnected(other, "203.0.113.5", 0x49, 0, True, True, "/x/", START))
    effects = run.do(PeerConnected(named, "203.0.113.5", 0x49, 0, True, True, "/x/", START))
    assert [peer.number for peer in run.engine.pool] == [named]
    assert not [each for each in effects if isinstance(getattr(each, "event", None), PeerWarning)]


@pytest.mark.parametrize("mode", Mode)
def test_addresses_with_the_needed_services_are_tried_first_and_checked(mode: Mode) -> None:
    assert (COMPACT_NEEDS, BLOOM_NEEDS) == (0x49, 0x0D)
    needs, other = (BLOOM_NEEDS, COMPACT_NEEDS) if mode is Mode.BIP37 else (COMPACT_NEEDS, BLOOM_NEEDS)
    run = Run(mode)
    run.tell(*(told(f"{n}.1.1.1", services=needs if n % 10 == 0 else other) for n in range(20, 140)))
    dialled = {each.peer: each.address for each in run.do(Seeded(()), 3.0) if isinstance(each, Connect)}
    assert len(dialled) == 7
    assert all(int(address.split(".")[0]) % 10 == 0 for address in dialled.values())
    liar, address = next(iter(dialled.items()))
    effects = run.do(PeerConnected(liar, host_of(address), other, 0, True, True, "/x/", START))
    assert liar not in {peer.number for peer in run.engine.pool}
    assert not [each for each in effects if isinstance(getattr(each, "event", None), PeerWarning)]
    known = run.engine.pool.discovery.book.get(address)  # type: ignore[union-attr]
    assert known is not None
    assert known.services == other
    for _ in range(50):
        assert address not in [each.address for each in run.do(Seeded(()), 30.0) if isinstance(each, Connect)]


def test_dead_addresses_with_good_services_do_not_take_all_turns() -> None:
    """A dishonest seed names dead addresses. The live node was down at its first try, and gossip states no services for
    it.
    """
    with client(2) as made:
        there = next(node for node in made.swarm.nodes if not node.is_hostile and node.services == WITH_FILTERS)
        there.is_up = False
        dead = tuple(f"{number}.77.1.1" for number in range(20, 60))

        def resolve(services: int) -> tuple[SeedAnswer, ...]:
            return SeedAnswer("liar.example", services, dead), SeedAnswer("seed.example", 0, (there.host,))

        made.swarm.resolve = resolve  # type: ignore[method-assign]
        made.start()
        made.pass_time(900)
        assert there.address in {address for _, address in made.dials}
        there.is_up = True
        assert made.wait_useful(within=3_600) > 0


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_a_live_address_is_found_among_a_thousand_dead_ones(seed: int) -> None:
    with client(seed) as made:
        there = next(node for node in made.swarm.nodes if not node.is_hostile and node.services == WITH_FILTERS)
        there.is_up = False  # at its first try
        made.swarm.resolve = lambda services: (SeedAnswer("seed.example", services, (there.host,)),)  # type: ignore[method-assign]
        made.start()
        made.pass_time(20)
        for number in range(1_000):
            book_of(made).add(f"{20 + number // 200}.{number % 200}.1.1:8333", WITH_FILTERS, START, "9.9.0.0/16", START)
        made.pass_time(100)
        there.is_up = True
        assert made.wait_useful(within=900) > 0


def test_auto_sends_no_filter_while_compact_filters_may_be_found() -> None:
    swarm = Swarm(5)
    for number, node in enumerate(swarm.nodes):
        node.services |= Service.BLOOM.value
        node.latency_s = 0.01 if number % 2 else 1.5
        if number % 2:
            node.services &= ~Service.COMPACT_FILTERS.value
    made = Client(swarm, mode=Mode.AUTO)
    made.start()
    made.pass_time(300)
    assert made.synced
    assert not any(isinstance(message, wire.FilterLoad) for _, message in made.sent)
    assert all(node.services & Service.COMPACT_FILTERS for node in made.connected())


@pytest.mark.slow
def test_auto_uses_bip37_if_no_address_serves_compact_filters() -> None:
    swarm = Swarm(5)
    for node in swarm.nodes:
        node.services = BLOOM_NEEDS
    made = Client(swarm, mode=Mode.AUTO)
    made.start()
    while not any(isinstance(message, wire.FilterLoad) for _, message in made.sent):
        made.pass_time(10)
        assert swarm.timeline.now < 600


def test_a_proven_lie_bans_the_host_for_all_its_ports() -> None:
    run = Run()
    run.tell(*(told("203.0.113.5", port=port) for port in (8333, 8334)))
    (number,) = [each.peer for each in run.do(Seeded(()), 3.0) if isinstance(each, Connect)]
    run.do(PeerConnected(number, "203.0.113.5", 0x49, 0, True, True, "/x/", START))
    peer = run.engine.pool.get(number)
    assert peer is not None
    run.engine.pool.drop(peer, LieError("proven", cause=Lie.FALSE_BLOCK), run.now)
    (banned,) = run.engine.pool.bans
    for _ in range(100):
        assert not [each for each in run.do(Seeded(()), 60.0) if isinstance(each, Connect)]
    assert banned not in run.known
    run.tell(*(told("203.0.113.5", port=port, time=START + DAY) for port in (8333, 8334)), after=DAY)
    assert [each for each in run.do(Seeded(()), 60.0) if isinstance(each, Connect)]


def test_bans_of_discovered_addresses_are_bounded() -> None:
    run = Run()
    discovery = run.engine.pool.discovery
    assert discovery is not None
    for number in range(5_000):
        address, own = f"10.0.{number >> 8}.{number & 255}:1", SessionError("own", cause=Cause.SELF_CONNECTION)
        discovery.ended(number, Purpose.DISCOVERED, address, OSError(), 1e10, 0.0, run.now)
        discovery.ended(number, Purpose.DISCOVERED, address, own, 0.0, 0.0, run.now)
    assert len(discovery.bans) <= most_held(discovery) <= 1_000


# Restarts


@pytest.mark.slow
def test_the_two_longest_connected_peers_come_first_after_a_restart() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        oldest = sorted((peer for peer in made.ready), key=lambda peer: peer.since)[:2]
        made.dials.clear()
        made.start()
        assert len(oldest) == 2
        assert {address for _, address in made.dials[:2]} == {peer.address for peer in oldest}


@pytest.mark.long
def test_short_connections_replace_no_anchor() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        discovery = made.engine.pool.discovery
        assert discovery is not None
        anchors = list(discovery.anchors)
        for _ in range(5):
            made.start()
            made.pass_time(300)
        again = made.engine.pool.discovery
        assert again is not None
        assert again.anchors == anchors


@pytest.mark.long
def test_an_offline_start_forgets_neither_anchors_nor_addresses() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        before = list(made.engine.pool.discovery.anchors)  # type: ignore[union-attr]
        up = {node: node.is_up for node in made.swarm.nodes}
        for node in made.swarm.nodes:
            node.is_up = False
        made.start()
        made.dials.clear()
        made.pass_time(4 * 3_600)
        assert len(made.dials) < 4 * 3_600 / 2 + 50
        assert max(known.failures for known in book_of(made).entries.values()) <= 2
        for node, was_up in up.items():
            node.is_up = was_up
        made.start()
        made.pass_time(30)
        assert made.engine.pool.discovery.anchors == before  # type: ignore[union-attr]
        assert len(made.ready) >= 6


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [ConnectionResetError("gone"), SessionError("the stream ended", cause=Cause.LOST)])
def test_the_same_peers_return_when_all_connections_break(lost: Exception) -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        before = {peer.address for peer in made.ready}
        for peer in made.ready:
            made.lines.pop(peer.number)
        up = {node: node.is_up for node in made.swarm.nodes}
        for node in made.swarm.nodes:
            node.is_up = False
        for peer in made.ready:
            made.report(Lost(peer.number, lost))
        made.pass_time(4)
        for node, was_up in up.items():
            node.is_up = was_up
        made.pass_time(15)
        there = {peer.address for peer in made.ready}
        assert len(there & before) >= 2
        assert not any(known.faults for known in book_of(made).entries.values())


@pytest.mark.slow
def test_a_peer_that_leaves_early_is_not_dialled_repeatedly() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(20)
        address = made.ready[0].address
        node = made.swarm.directory[address]
        for other in made.swarm.nodes:
            other.is_up = other is node
        for peer in made.ready:
            made.end(peer.number)
        made.dials.clear()
        made.pass_time(900)
        assert [each for _, each in made.dials].count(address) <= 1


def test_a_client_killed_soon_after_its_start_knows_addresses() -> None:
    with client(4) as made:
        made.start()
        made.pass_time(20)
        made.start()
        made.swarm.asked.clear()
        assert len(book_of(made)) > 500
        assert made.wait_useful() < 10
        assert not made.swarm.asked


# Feelers and a stale tip


@pytest.mark.long
def test_new_addresses_are_tested_and_disconnected_now_and_then() -> None:
    with client(6) as made:
        made.start()
        made.pass_time(60)
        before, tried = len(made.dials), len(book_of(made).tried)
        there = {peer.number for peer in made.ready}
        made.told.clear()
        felt = 0
        for _ in range(6 * 3_600 // 10):
            made.pass_time(10)
            felt += any(peer.purpose is Purpose.FEELER for peer in made.engine.pool)
            assert len(made.engine.pool.connected()) <= 9
        assert felt > 3
        assert len(book_of(made).tried) > tried + 5
        assert there & {peer.number for peer in made.ready}
        assert 20 < len(made.dials) - before < 200
        assert not [
            event
            for event in made.told
            if isinstance(event, PeerWarning)
            and not isinstance(event.error, ConnectionResetError)
            and "days old" not in str(event.error)
        ]


@pytest.mark.slow
def test_an_extra_peer_finds_withheld_blocks_above_a_stale_tip() -> None:
    swarm = Swarm(7)
    swarm.timeline.run(1.0)
    made = Client(swarm)
    made.withholds = True
    hostile = swarm.hostile
    serving = [node for node in swarm.nodes if not node.is_hostile and node.services == WITH_FILTERS and node.is_up]
    for number, node in enumerate(hostile[:8]):  # every connection leads to one attacker with many groups
        node.host = f"{210 + number}.1.1.1"
        swarm.directory[node.address] = node
    made.named = [node.address for node in hostile[:8]]
    made.start()
    book = book_of(made)
    for number, node in enumerate(serving):
        book.add(node.address, node.services, START, f"1.{number % 16}.0.0/16", START)
    made.pass_time(300)
    assert made.share() == 1.0
    swarm.regtest.mine(2)
    made.pass_time(1_000)
    assert made.engine.chain.height == 0
    assert not any(peer.purpose is Purpose.EXTRA for peer in made.engine.pool)
    while made.engine.chain.height < 2:
        made.pass_time(30)
        assert swarm.timeline.now < 3 * 3_600


@pytest.mark.slow
def test_a_useless_extra_peer_is_replaced() -> None:
    with client(8) as made:
        made.start()
        made.pass_time(1_700)
        extra: set[str] = set()
        for _ in range(4_000 // 5):
            made.pass_time(5)
            now = [peer.address for peer in made.engine.pool if peer.purpose is Purpose.EXTRA]
            assert len(now) <= 1
            extra.update(now)
            assert len(made.engine.pool.connected()) <= 10
        assert len(extra) >= 3
