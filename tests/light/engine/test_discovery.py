"""Discovery: which addresses the engine connects beside those that are named, and what it takes of others' words."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spvfilter.errors import FormatError, LieError, SessionError
from spvfilter.light.engine import addresses
from spvfilter.light.engine.addressbook import AddressBook
from spvfilter.light.engine.addresses import BLOOM_NEEDS, COMPACT_NEEDS, Discovery, Neighbour, Purpose
from spvfilter.light.engine.effects import AskSeeds, Commit, Connect, Effect, Send
from spvfilter.light.engine.inputs import Connected, Heard, Instant, Lost, Malformed, SeedAnswer, Seeded
from spvfilter.light.engine.netgroups import dialling_group, host_of, netgroup
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.network import MAINNET
from spvfilter.wire.events import Cause, Service
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId, PeerAddress
from support.swarm import NETWORK, SEEDS, START, WITH_FILTERS, Client, Swarm, client

NAMED = "198.51.100.1:8333"
DAY = 86_400


def book_of(made: Client) -> AddressBook:
    return made.engine.pool._discovery.book  # type: ignore[union-attr]


def told(text: str, *, port: int = 8333, services: int = WITH_FILTERS, time: int = START - 60, net: int = NetId.IPV4) -> PeerAddress:
    return PeerAddress(time, services, net, bytes(map(int, text.split("."))), port)


class Run:
    """An engine with one named peer that is ready, step by step."""

    def __init__(self, mode: Mode = Mode.COMPACT, reach: Reach = Reach.DIRECT, *, seeds: bool = False) -> None:
        self.client = Client(Swarm(1), named=[NAMED], mode=mode)
        self.client.options = Options(mode=mode, reach=reach)
        self.engine = self.client._make()
        self.now = Instant(0.0, float(START))
        self.effects = self.engine.start(self.now)
        if not seeds:
            self.effects += self.engine.step(Seeded(()), self.now)
        (number,) = [each.peer for each in self.effects if isinstance(each, Connect)]
        self.peer = number
        self.effects += self.do(Connected(number, "198.51.100.1", 0x4D, 0, True, True, "/x/", START))
        self.effects += self.do(Heard(number, wire.Headers(())))

    def do(self, event: object, after: float = 0.0) -> list[Effect]:
        self.now = Instant(self.now.monotonic + after, self.now.wall + after)
        return self.engine.step(event, self.now)  # type: ignore[arg-type]  # an input

    def tell(self, *told_: PeerAddress, after: float = 0.0) -> list[Effect]:
        return self.do(Heard(self.peer, wire.AddrV2(told_)), after)

    @property
    def known(self) -> set[str]:
        discovery = self.engine.pool._discovery
        return set(discovery.book._entries) if discovery is not None else set()


# Whom to connect


@pytest.mark.parametrize("seed", range(3))
def test_of_each_group_one_address_is_connected_and_of_each_host(seed: int) -> None:
    with client(seed) as made:
        made.start()
        for _ in range(200):
            made.pass_time(30)
            made.swarm.stir()
            kinds = [(dialling_group(host_of(peer.address)), peer.purpose) for peer in made.engine.pool]
            assert max(Counter(group for group, purpose in kinds if purpose is not Purpose.FEELER).values(), default=0) <= 1
            assert max(Counter(host_of(peer.address) for peer in made.engine.pool).values()) == 1
            assert sum(purpose is Purpose.DISCOVERED for _, purpose in kinds) <= 8
        assert sum(peer.purpose is Purpose.DISCOVERED for peer in made.ready) == 8


def test_named_peers_go_first_and_may_be_of_one_group_which_no_other_is_connected_of() -> None:
    swarm = Swarm(3)
    group = next(node.host.rsplit(".", 2)[0] for node in swarm.nodes if node.is_hostile)
    named = [node.address for node in swarm.nodes if node.host.startswith(f"{group}.")][:3]
    made = Client(swarm, named=named)
    made.start()
    made.pass_time(600)
    assert set(named) <= {peer.address for peer in made.ready}
    assert [peer.address for peer in made.engine.pool if peer.address.startswith(f"{group}.")] == named
    assert len(made.ready) == 8


def test_a_named_peer_that_comes_late_gets_a_place() -> None:
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


def test_one_host_is_not_connected_twice_whatever_its_ports_and_names() -> None:
    run = Run()
    run.tell(told("198.51.100.1", port=8334), told("203.0.113.5"), told("203.0.113.5", port=8334))
    effects = run.do(Seeded(()), 3.0)
    dialled = [each.address for each in effects if isinstance(each, Connect)]
    assert len(dialled) == 1
    assert dialled[0].startswith("203.0.113.5:")


def test_a_name_that_leads_to_a_host_that_was_discovered_takes_its_place() -> None:
    run = Run()
    run.client.named = ["node.example:8333"]
    run.engine = run.client._make()
    (named,) = [each.peer for each in run.engine.start(run.now) if isinstance(each, Connect)]
    book = run.engine.pool._discovery.book  # type: ignore[union-attr]
    book.add("203.0.113.5:8333", 0x49, START, "1.1.0.0/16", START)
    (other,) = [each.peer for each in run.do(Seeded(())) if isinstance(each, Connect)]
    run.do(Connected(other, "203.0.113.5", 0x49, 0, True, True, "/x/", START))
    effects = run.do(Connected(named, "203.0.113.5", 0x49, 0, True, True, "/x/", START))
    assert [peer.number for peer in run.engine.pool] == [named]
    assert not [each for each in effects if isinstance(getattr(each, "event", None), PeerWarning)]


@pytest.mark.parametrize("mode", Mode)
def test_addresses_that_state_what_the_mode_needs_are_tried_first_and_not_believed(mode: Mode) -> None:
    assert (COMPACT_NEEDS, BLOOM_NEEDS) == (0x49, 0x0D)
    needs, other = (BLOOM_NEEDS, COMPACT_NEEDS) if mode is Mode.BIP37 else (COMPACT_NEEDS, BLOOM_NEEDS)
    run = Run(mode)
    run.tell(*(told(f"{n}.1.1.1", services=needs if n % 10 == 0 else other) for n in range(20, 140)))
    dialled = {each.peer: each.address for each in run.do(Seeded(()), 3.0) if isinstance(each, Connect)}
    assert len(dialled) == 7
    assert all(int(address.split(".")[0]) % 10 == 0 for address in dialled.values())
    liar, address = next(iter(dialled.items()))
    effects = run.do(Connected(liar, host_of(address), other, 0, True, True, "/x/", START))
    assert liar not in {peer.number for peer in run.engine.pool}
    assert not [each for each in effects if isinstance(getattr(each, "event", None), PeerWarning)]
    known = run.engine.pool._discovery.book.get(address)  # type: ignore[union-attr]
    assert known is not None
    assert known.services == other
    for _ in range(50):
        assert address not in [each.address for each in run.do(Seeded(()), 30.0) if isinstance(each, Connect)]


def test_auto_gives_no_filter_to_a_discovered_peer_while_others_may_have_compact_filters() -> None:
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


def test_auto_uses_bip37_where_no_address_of_many_serves_compact_filters() -> None:
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
    run.do(Connected(number, "203.0.113.5", 0x49, 0, True, True, "/x/", START))
    peer = run.engine.pool.get(number)
    assert peer is not None
    run.engine.pool.drop(peer, LieError("proven", cause=Lie.FALSE_BLOCK), run.now)
    (banned,) = run.engine.pool.bans
    for _ in range(100):
        assert not [each for each in run.do(Seeded(()), 60.0) if isinstance(each, Connect)]
    assert banned not in run.known
    run.tell(*(told("203.0.113.5", port=port, time=START + DAY) for port in (8333, 8334)), after=DAY)
    assert [each for each in run.do(Seeded(()), 60.0) if isinstance(each, Connect)]


def test_bans_of_addresses_that_are_not_named_are_bounded() -> None:
    run = Run()
    discovery = run.engine.pool._discovery
    assert discovery is not None
    for number in range(5_000):
        address, own = f"10.0.{number >> 8}.{number & 255}:1", SessionError("own", cause=Cause.SELF_CONNECTION)
        discovery.ended(number, Purpose.DISCOVERED, address, OSError(), 1e10, 0.0, run.now)
        discovery.ended(number, Purpose.DISCOVERED, address, own, 0.0, 0.0, run.now)
    assert len(discovery.bans) <= 1_000
    assert len(discovery._resting) <= 1_000


# Restarts


def test_the_two_that_were_connected_longest_come_first_after_a_restart() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        oldest = sorted((peer for peer in made.ready), key=lambda peer: peer.since)[:2]
        made.dials.clear()
        made.start()
        assert len(oldest) == 2
        assert {address for _, address in made.dials[:2]} == {peer.address for peer in oldest}


def test_those_connected_for_a_short_time_displace_no_anchor() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        discovery = made.engine.pool._discovery
        assert discovery is not None
        anchors = list(discovery._anchors)
        for _ in range(5):
            made.start()
            made.pass_time(300)
        again = made.engine.pool._discovery
        assert again is not None
        assert again._anchors == anchors


def test_an_offline_start_forgets_neither_anchors_nor_addresses() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        before = list(made.engine.pool._discovery._anchors)  # type: ignore[union-attr]
        up = {node: node.is_up for node in made.swarm.nodes}
        for node in made.swarm.nodes:
            node.is_up = False
        made.start()
        made.dials.clear()
        made.pass_time(4 * 3_600)
        assert len(made.dials) < 500
        assert max(known.failures for known in book_of(made)._entries.values()) <= 2
        for node, was_up in up.items():
            node.is_up = was_up
        made.start()
        made.pass_time(30)
        assert made.engine.pool._discovery._anchors == before  # type: ignore[union-attr]
        assert len(made.ready) >= 6


@pytest.mark.parametrize("lost", [ConnectionResetError("gone"), SessionError("the stream ended", cause=Cause.LOST)])
def test_when_all_lines_break_the_same_peers_come_back(lost: Exception) -> None:
    with client(2) as made:
        made.start()
        made.pass_time(1_300)
        before = {peer.address for peer in made.ready}
        for peer in made.ready:
            made._lines.pop(peer.number)
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
        assert not any(known.faults for known in book_of(made)._entries.values())


def test_a_peer_that_leaves_soon_after_it_came_is_not_tried_again_and_again() -> None:
    with client(2) as made:
        made.start()
        made.pass_time(20)
        address = made.ready[0].address
        node = made.swarm.directory[address]
        for other in made.swarm.nodes:
            other.is_up = other is node
        for peer in made.ready:
            made._end(peer.number)
        made.dials.clear()
        made.pass_time(900)
        assert [each for _, each in made.dials].count(address) <= 1


def test_a_client_that_was_killed_soon_after_its_start_knows_addresses() -> None:
    with client(4) as made:
        made.start()
        made.pass_time(20)
        made.start()
        made.swarm.asked.clear()
        assert len(book_of(made)) > 500
        assert made.wait_useful() < 10
        assert not made.swarm.asked


# Feelers, and a stale tip


def test_now_and_then_a_new_address_is_tried_and_left_again() -> None:
    with client(6) as made:
        made.start()
        made.pass_time(60)
        before, tried = len(made.dials), len(book_of(made)._tried)
        there = {peer.number for peer in made.ready}
        made.told.clear()
        felt = 0
        for _ in range(6 * 3_600 // 10):
            made.pass_time(10)
            felt += any(peer.purpose is Purpose.FEELER for peer in made.engine.pool)
            assert len(made.engine.pool.connected()) <= 9
        assert felt > 3
        assert len(book_of(made)._tried) > tried + 5
        assert there & {peer.number for peer in made.ready}
        assert 20 < len(made.dials) - before < 200
        assert not [event for event in made.told if isinstance(event, PeerWarning) and not isinstance(event.error, ConnectionResetError)
                    and "days old" not in str(event.error)]  # fmt: skip


def test_while_no_block_comes_one_more_is_connected_which_finds_what_the_others_withhold() -> None:
    swarm = Swarm(7)
    swarm.timeline.run(1.0)
    made = Client(swarm)
    made.withholds = True
    hostile = swarm.hostile
    serving = [node for node in swarm.nodes if not node.is_hostile and node.services == WITH_FILTERS and node.is_up]
    for number, node in enumerate(hostile[:8]):  # every connection leads to one party, with many groups
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


def test_the_one_more_is_left_again_if_it_brings_nothing_and_another_comes() -> None:
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


# What others tell


def test_peers_are_asked_for_addresses_once_and_told_none() -> None:
    run = Run()
    asked = [each for each in run.effects if isinstance(each, Send) and isinstance(each.message, wire.GetAddr)]
    assert [each.peer for each in asked] == [run.peer]
    run.tell(told("203.0.113.5"))
    effects = run.do(Heard(run.peer, wire.GetAddr()))
    for _ in range(100):
        effects += run.do(Seeded(()), 60.0)
    assert not [each for each in effects if isinstance(each, Send) and isinstance(each.message, (wire.Addr, wire.AddrV2, wire.GetAddr))]


def test_with_named_peers_only_nobody_is_asked_and_nothing_taken() -> None:
    run = Run(reach=Reach.NAMED)
    effects = run.effects + run.tell(told("203.0.113.5"))
    for _ in range(100):
        effects += run.do(Seeded((SeedAnswer(SEEDS[0], 0x49, ("203.0.113.6",)),)), 60.0)
    assert [each.address for each in effects if isinstance(each, Connect)] == [NAMED]
    assert not [each for each in effects if isinstance(each, AskSeeds)]
    assert not [each for each in effects if isinstance(each, Send) and isinstance(each.message, wire.GetAddr)]
    assert not [each for each in effects if isinstance(each, Commit) and each.batch.addresses]


ONION = PeerAddress(START, 0x49, NetId.TORV3, bytes(32), 8333)
PUBLIC6 = bytes.fromhex("2a00145040010800000000000000200e")


@pytest.mark.parametrize(
    "refused",
    [
        told("8.8.8.8", port=0),
        told("8.8.8.8", services=0x40),
        *map(told, ["127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "255.255.255.255"]),
        told("198.51.100.7"), told("100.64.0.1"),
        PeerAddress(START, 0x49, NetId.IPV6, bytes(15) + b"\x01", 8333),
        PeerAddress(START, 0x49, NetId.IPV6, bytes.fromhex("fe80") + bytes(14), 8333),
        PeerAddress(START, 0x49, NetId.IPV6, bytes.fromhex("2002") + bytes(14), 8333),
        PeerAddress(START, 0x49, NetId.IPV6, bytes(10) + b"\xff\xff\x08\x08\x08\x08", 8333),
        PeerAddress(START, 0x49, NetId.TORV2, bytes(10), 8333),
        PeerAddress(START, 0x49, NetId.I2P, bytes(32), 8333),
        PeerAddress(START, 0x49, NetId.CJDNS, b"\xfc" + bytes(15), 8333),
        PeerAddress(START, 0x49, 99, bytes(7), 8333),
        ONION,
    ],
)  # fmt: skip
def test_addresses_that_lead_nowhere_are_refused(refused: PeerAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "REGTEST", MAINNET)  # so that the network is not taken for one of private addresses
    run = Run()
    run.tell(refused)
    assert not run.known
    run.tell(told("8.8.8.8"), PeerAddress(START, 0x49, NetId.IPV6, PUBLIC6, 8333))
    assert run.known == {"8.8.8.8:8333", "[2a00:1450:4001:800::200e]:8333"}


def test_onion_addresses_are_taken_where_there_is_a_proxy() -> None:
    run = Run(reach=Reach.PROXIED)
    run.tell(ONION)
    assert run.known == {f"{ONION.host}:8333"}


def test_of_onion_addresses_one_is_connected_of_each_of_sixteen_groups_and_all_count_as_one() -> None:
    hosts = [PeerAddress(0, 0, NetId.TORV3, random.Random(n).randbytes(32), 1).host or "" for n in range(500)]
    assert len({dialling_group(host) for host in hosts}) == 16
    assert {netgroup(host) for host in hosts} == {"onion"}


def test_an_address_that_led_to_ourselves_is_never_taken_again() -> None:
    run = Run()
    run.tell(told("203.0.113.5"))
    (number,) = [each.peer for each in run.do(Seeded(()), 3.0) if isinstance(each, Connect)]
    run.do(Lost(number, SessionError("nonce is our own", cause=Cause.SELF_CONNECTION)))
    run.tell(told("203.0.113.5"))
    assert not run.known


def test_stated_times_that_mean_nothing_are_replaced() -> None:
    run = Run()
    run.tell(told("203.0.113.5", time=0), told("203.0.113.6", time=START + DAY), told("203.0.113.7", time=START - 300))
    book = run.engine.pool._discovery.book  # type: ignore[union-attr]
    seen = {address: START - known.seen for address, known in book._entries.items()}
    assert seen == {"203.0.113.5:8333": 5 * DAY + 7_200, "203.0.113.6:8333": 5 * DAY + 7_200, "203.0.113.7:8333": 7_500}


def many(start: int, count: int = 1_000) -> list[PeerAddress]:
    return [told(f"{20 + n // 65_536}.{n // 256 % 256}.{n % 256}.1", services=0x9) for n in range(start, start + count)]


def test_a_peer_that_tells_more_than_it_was_asked_for_is_heard_at_a_slow_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    learned: list[PeerAddress] = []
    discovery = run.engine.pool._discovery
    assert discovery is not None
    monkeypatch.setattr(discovery, "_learn", lambda told_, source, now: learned.append(told_))
    run.tell(*many(0))
    assert len(learned) == 1_000
    run.tell(*many(1_000))
    assert len(learned) == 1_001
    run.tell(*many(2_000), after=100)
    assert len(learned) == 1_011
    run.tell(*many(3_000), after=30 * DAY)
    assert len(learned) == 2_011


def test_which_addresses_of_a_long_message_are_taken_the_peer_cannot_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    learned: list[PeerAddress] = []
    discovery = run.engine.pool._discovery
    assert discovery is not None
    discovery._tokens[run.peer].left = 100.0
    monkeypatch.setattr(discovery, "_learn", lambda told_, source, now: learned.append(told_))
    message = many(0)
    run.tell(*message)
    assert len(learned) == 100
    assert learned != message[:100]


def test_what_one_peer_tells_counts_as_one_source_whatever_it_says() -> None:
    run = Run()
    run.tell(*many(0))
    book = run.engine.pool._discovery.book  # type: ignore[union-attr]
    assert {known.source for known in book._entries.values()} == {netgroup("198.51.100.1")}
    assert len({bucket for bucket, _ in book._new}) <= 16


def test_a_malformed_message_of_addresses_costs_the_connection() -> None:
    with pytest.raises(FormatError):
        wire.AddrV2.parse(b"\x01" + bytes(4) + b"\x09\x01\x05" + bytes(5) + b"\x20\x8d")  # an IPv4 address of five bytes
    run = Run()
    run.do(Malformed(run.peer, FormatError("wrong", offset=0, field="address")))
    assert run.peer not in {peer.number for peer in run.engine.pool}


# DNS seeds


def test_seeds_are_asked_at_once_where_no_address_is_known_and_the_answers_of_all_are_used() -> None:
    with client(9) as made:
        made.start()
        made.pass_time(0.0)
        assert not made.dials
        made.pass_time(2.0)
        assert made.swarm.asked == [COMPACT_NEEDS]
        sources = {book_of(made)._entries[address].source for _, address in made.dials}
        assert len(sources) >= 2
        assert len({dialling_group(host_of(address)) for _, address in made.dials}) == len(made.dials) == 8


def test_seeds_are_not_asked_where_the_book_suffices() -> None:
    with client(9) as made:
        made.start()
        made.pass_time(120)
        made.swarm.asked.clear()
        for _ in range(5):
            made.start()
            made.pass_time(1_800)
        assert not made.swarm.asked


def test_seeds_are_asked_after_a_while_without_enough_peers_and_then_ever_more_rarely() -> None:
    with client(9) as made:
        for node in made.swarm.nodes:
            node.is_up = False
        made.start()
        made.pass_time(3.0)
        assert len(made.swarm.asked) == 1
        made.pass_time(599)
        assert len(made.swarm.asked) == 2
        made.pass_time(12 * 3_600)
        assert 5 <= len(made.swarm.asked) <= 8
        made.start()
        made.pass_time(10)
        before = len(made.swarm.asked)
        made.pass_time(5)
        assert len(made.swarm.asked) == before + 1


def test_seeds_are_asked_for_what_the_mode_needs() -> None:
    for mode, needs in ((Mode.COMPACT, 0x49), (Mode.AUTO, 0x49), (Mode.BIP37, 0x0D)):
        run = Run(mode, seeds=True)
        assert [each.services for each in run.effects if isinstance(each, AskSeeds)] == [needs]


def test_no_seed_is_asked_where_there_is_a_proxy() -> None:
    run = Run(reach=Reach.PROXIED, seeds=True)
    effects = run.effects
    for _ in range(100):
        effects += run.do(Seeded(()), 600.0)
    assert not [each for each in effects if isinstance(each, AskSeeds)]


def test_of_one_seed_few_addresses_are_taken_and_others_tell_of_themselves() -> None:
    run = Run()
    answers = tuple(
        SeedAnswer(seed, 0x49, tuple(f"{30 + n}.{number}.{n % 7}.1" for n in range(200))) for number, seed in enumerate(SEEDS[:3])
    )
    failed = SeedAnswer(SEEDS[3], 0, (), OSError("gone"))
    effects = run.do(Seeded((*answers, failed)))
    book = run.engine.pool._discovery.book  # type: ignore[union-attr]
    counts = Counter(known.source for known in book._entries.values())
    assert counts.keys() == set(SEEDS[:3])
    assert max(counts.values()) <= addresses.MAX_OF_SEED
    assert [each.event.address for each in effects if isinstance(getattr(each, "event", None), PeerWarning)] == [SEEDS[3]]  # type: ignore[union-attr]


def test_the_choice_looks_at_no_peer_more_than_once_a_moment() -> None:
    """`next_at` is never now: otherwise the engine would ask for ticks without end."""
    discovery = Discovery(Options(reach=Reach.DIRECT), Client(Swarm(1)).engine.chain, AddressBook(bytes(32)), (), {}, random.Random(1))
    there: list[Neighbour] = []
    for second in range(1_000):
        now = Instant(float(second), float(START))
        discovery.choose(now, there)
        assert discovery.next_at(now, there) > now.monotonic
    assert NETWORK.dns_seeds == SEEDS
