"""Limits on gossip: addresses that peers and DNS seeds send."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from spvfilter.errors import FormatError, SessionError
from spvfilter.light.engine import addresses
from spvfilter.light.engine.addressbook import AddressBook
from spvfilter.light.engine.addresses import COMPACT_NEEDS, Discovery, Neighbour
from spvfilter.light.engine.effects import AskSeeds, Commit, Connect, Send
from spvfilter.light.engine.inputs import Heard, Instant, Lost, Malformed, SeedAnswer, Seeded
from spvfilter.light.engine.netgroups import dialling_group, host_of, netgroup
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.network import MAINNET
from spvfilter.wire.events import Cause
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId, PeerAddress
from support.client.discovery import DAY, NAMED, Run, book_of, told
from support.client.engineparts import note_learned
from support.client.swarm import NETWORK, SEEDS, START, Client, Swarm, client

# Addresses from peers


def test_peers_are_asked_for_addresses_once_and_receive_none() -> None:
    run = Run()
    asked = [each for each in run.effects if isinstance(each, Send) and isinstance(each.message, wire.GetAddr)]
    assert [each.peer for each in asked] == [run.peer]
    run.tell(told("203.0.113.5"))
    effects = run.do(Heard(run.peer, wire.GetAddr()))
    for _ in range(100):
        effects += run.do(Seeded(()), 60.0)
    assert not [
        each
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, (wire.Addr, wire.AddrV2, wire.GetAddr))
    ]


def test_with_named_peers_only_no_address_is_requested_or_taken() -> None:
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


@pytest.mark.few(10)
@pytest.mark.parametrize(
    "refused",
    [
        told("8.8.8.8", port=0),
        told("8.8.8.8", services=0x40),
        *map(told, ["127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.1.1", "224.0.0.1", "0.0.0.0", "255.255.255.255"]),
        told("198.51.100.7"),
        told("100.64.0.1"),
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
)
def test_unreachable_addresses_are_refused(refused: PeerAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "REGTEST", MAINNET)  # so that private addresses are refused
    run = Run()
    run.tell(refused)
    assert not run.known
    run.tell(told("8.8.8.8"), PeerAddress(START, 0x49, NetId.IPV6, PUBLIC6, 8333))
    assert run.known == {"8.8.8.8:8333", "[2a00:1450:4001:800::200e]:8333"}


def test_onion_addresses_are_taken_if_there_is_a_proxy() -> None:
    run = Run(reach=Reach.PROXIED)
    run.tell(ONION)
    assert run.known == {f"{ONION.host}:8333"}


def test_onion_addresses_form_sixteen_dialling_groups_and_one_network_group() -> None:
    hosts = [PeerAddress(0, 0, NetId.TORV3, random.Random(n).randbytes(32), 1).host or "" for n in range(500)]
    assert len({dialling_group(host) for host in hosts}) == 16
    assert {netgroup(host) for host in hosts} == {"onion"}


def test_an_address_of_the_client_itself_is_refused_afterwards() -> None:
    run = Run()
    run.tell(told("203.0.113.5"))
    (number,) = [each.peer for each in run.do(Seeded(()), 3.0) if isinstance(each, Connect)]
    run.do(Lost(number, SessionError("nonce is our own", cause=Cause.SELF_CONNECTION)))
    run.tell(told("203.0.113.5"))
    assert not run.known


def test_impossible_times_of_addresses_are_replaced() -> None:
    run = Run()
    run.tell(told("203.0.113.5", time=0), told("203.0.113.6", time=START + DAY), told("203.0.113.7", time=START - 300))
    book = run.engine.pool.discovery.book  # type: ignore[union-attr]
    seen = {address: START - known.seen for address, known in book.entries.items()}
    assert seen == {"203.0.113.5:8333": 5 * DAY + 7_200, "203.0.113.6:8333": 5 * DAY + 7_200, "203.0.113.7:8333": 7_500}


def many(start: int, count: int = 1_000) -> list[PeerAddress]:
    return [told(f"{20 + n // 65_536}.{n // 256 % 256}.{n % 256}.1", services=0x9) for n in range(start, start + count)]


def test_unrequested_addresses_of_a_peer_are_taken_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    learned = note_learned(monkeypatch, run.engine)
    run.tell(*many(0))
    assert len(learned) == 1_000
    run.tell(*many(1_000))
    assert len(learned) == 1_001
    run.tell(*many(2_000), after=100)
    assert len(learned) == 1_011
    run.tell(*many(3_000), after=30 * DAY)
    assert len(learned) == 2_011


def test_a_peer_cannot_choose_the_accepted_part_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    run.tell(*many(0))
    learned = note_learned(monkeypatch, run.engine)
    message = many(1_000)
    run.tell(*message, after=990)
    assert len(learned) == 100
    assert learned != message[:100]


def test_all_addresses_of_one_peer_have_one_source() -> None:
    run = Run()
    run.tell(*many(0))
    book = run.engine.pool.discovery.book  # type: ignore[union-attr]
    assert {known.source for known in book.entries.values()} == {netgroup("198.51.100.1")}
    assert len({bucket for bucket, _ in book.new.slots()}) <= 16


def test_a_malformed_addr_message_disconnects_the_peer() -> None:
    with pytest.raises(FormatError):
        # an IPv4 address of five bytes
        wire.AddrV2.parse(b"\x01" + bytes(4) + b"\x09\x01\x05" + bytes(5) + b"\x20\x8d")
    run = Run()
    run.do(Malformed(run.peer, FormatError("wrong", offset=0, field="address")))
    assert run.peer not in {peer.number for peer in run.engine.pool}


# DNS seeds


def test_seeds_are_asked_at_once_if_no_address_is_known() -> None:
    with client(9) as made:
        made.start()
        made.pass_time(0.0)
        assert not made.dials
        made.pass_time(2.0)
        assert made.swarm.asked == [COMPACT_NEEDS]
        sources = {book_of(made).entries[address].source for _, address in made.dials}
        assert len(sources) >= 2
        assert len({dialling_group(host_of(address)) for _, address in made.dials}) == len(made.dials) == 8


@pytest.mark.long
def test_seeds_are_not_asked_if_the_address_book_suffices() -> None:
    with client(9) as made:
        made.start()
        made.pass_time(120)
        made.swarm.asked.clear()
        for _ in range(5):
            made.start()
            made.pass_time(1_800)
        assert not made.swarm.asked


@pytest.mark.long
def test_seeds_are_asked_less_and_less_often_without_enough_peers() -> None:
    with client(9) as made:
        for node in made.swarm.nodes:
            node.is_up = False
        made.start()
        made.pass_time(3.0)
        assert len(made.swarm.asked) == 1
        made.pass_time(599)
        assert len(made.swarm.asked) == 2
        made.pass_time(3 * 3_600)  # the seeds are asked again after 30, 70 and 150 minutes
        assert 4 <= len(made.swarm.asked) <= 6
        made.start()
        made.pass_time(10)
        before = len(made.swarm.asked)
        made.pass_time(5)
        assert len(made.swarm.asked) == before + 1


def test_seeds_are_asked_for_the_services_of_the_mode() -> None:
    for mode, needs in ((Mode.COMPACT, 0x49), (Mode.AUTO, 0x49), (Mode.BIP37, 0x0D)):
        run = Run(mode, seeds=True)
        assert [each.services for each in run.effects if isinstance(each, AskSeeds)] == [needs]


def test_seeds_are_not_asked_if_there_is_a_proxy() -> None:
    run = Run(reach=Reach.PROXIED, seeds=True)
    effects = run.effects
    for _ in range(100):
        effects += run.do(Seeded(()), 600.0)
    assert not [each for each in effects if isinstance(each, AskSeeds)]


def test_a_limited_number_of_addresses_per_seed_is_taken() -> None:
    run = Run()
    answers = tuple(
        SeedAnswer(seed, 0x49, tuple(f"{30 + n}.{number}.{n % 7}.1" for n in range(200)))
        for number, seed in enumerate(SEEDS[:3])
    )
    failed = SeedAnswer(SEEDS[3], 0, (), OSError("gone"))
    effects = run.do(Seeded((*answers, failed)))
    book = run.engine.pool.discovery.book  # type: ignore[union-attr]
    counts = Counter(known.source for known in book.entries.values())
    assert counts.keys() == set(SEEDS[:3])
    assert max(counts.values()) <= addresses.MAX_OF_SEED
    assert [each.event.address for each in effects if isinstance(getattr(each, "event", None), PeerWarning)] == [  # type: ignore[union-attr]
        SEEDS[3]
    ]


def test_the_next_choice_of_addresses_is_never_due_at_once() -> None:
    """Otherwise the engine would ask for ticks without end."""
    discovery = Discovery(
        Options(reach=Reach.DIRECT), Client(Swarm(1)).engine.chain, AddressBook(bytes(32)), (), {}, random.Random(1)
    )
    there: list[Neighbour] = []
    for second in range(1_000):
        now = Instant(float(second), float(START))
        discovery.choose(now, there)
        assert discovery.next_at(now, there) > now.monotonic
    assert NETWORK.dns_seeds == SEEDS
