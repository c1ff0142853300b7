"""The address book: positions of addresses, evictions and draws."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from spvfilter.chain import HeaderChain
from spvfilter.light.engine.addressbook import (
    BUCKET_SIZE,
    MAX_ADDRESSES,
    NEW_BUCKETS_PER_SOURCE,
    TRIED_BUCKETS_PER_GROUP,
    AddressBook,
    is_hopeless,
)
from spvfilter.light.engine.addresses import Discovery, Neighbour, Purpose
from spvfilter.light.engine.inputs import Instant
from spvfilter.light.engine.netgroups import host_of
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.store.addresses import KnownAddress

NOW = 1_700_000_000.0
DAY = 86_400
SECRET = bytes(range(32))


def host(rng: random.Random, group: str | None = None) -> str:
    return f"{group or f'{rng.randrange(1, 200)}.{rng.randrange(256)}'}.{rng.randrange(256)}.{rng.randrange(256)}:8333"


def filled(
    number: int, sources: Iterable[str] = ("9.9.0.0/16",), *, group: str | None = None, seed: int = 1
) -> AddressBook:
    book, rng = AddressBook(SECRET), random.Random(seed)
    for source in sources:
        for _ in range(number):
            book.add(host(rng, group), 0x49, NOW, source, NOW)
    return book


def draw(book: AddressBook, rng: random.Random, now: float = NOW) -> str | None:
    return next(book.draws(rng, now, [lambda known: True], lambda address: True), None)


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(5))
def test_hope_for_compact_filters_is_known_from_few_addresses(seed: int) -> None:
    """The search for a hopeful address looked at all 12,000 addresses in each round of a client in mode auto, which
    took 5 ms.
    """
    rng, book = random.Random(seed), filled(300, sources=[f"{n}.1.0.0/16" for n in range(1, 9)], seed=seed)
    for at in range(3_000):
        address, now = rng.choice(list(book.entries)), NOW + at
        match rng.randrange(7):
            case 0 | 1 | 2:
                book.attempted(address, now)
            case 3:
                book.connected(address, rng.choice([0x9, 0x49]), 100, now)
            case 4:
                rng.choice([book.faulted, book.did_well, book.forget])(address)
            case _:
                book.add(host(rng), rng.choice([0x9, 0x49]), now, "9.9.0.0/16", now)
        if at % 500 == 0:
            book = AddressBook(SECRET, list(book.entries.values()))
    looked_at = list[str]()
    assert not book.has_hope(looked_at.append)  # type: ignore[arg-type]  # None is no hope
    entries = book.entries.values()
    assert set(looked_at) == {
        each.address
        for each in entries
        if each.services & 0x40 and each.attempted <= each.succeeded and not each.faults
    }
    assert 0 < len(looked_at) < len(entries)


# Bounds


def test_one_source_fills_few_buckets_of_the_new_table() -> None:
    book = filled(20_000)
    assert len({bucket for bucket, _ in book.new.slots()}) <= NEW_BUCKETS_PER_SOURCE
    assert len(book) <= NEW_BUCKETS_PER_SOURCE * BUCKET_SIZE


def test_one_group_fills_few_buckets_of_the_tried_table() -> None:
    book = filled(2_000, group="7.7", sources=[f"{n}.1.0.0/16" for n in range(1, 9)])
    for address in list(book.entries):
        book.connected(address, 0x49, 100, NOW)
    assert len(book.tried)
    assert len({bucket for bucket, _ in book.tried.slots()}) <= TRIED_BUCKETS_PER_GROUP


@pytest.mark.long
def test_the_book_is_bounded_for_any_number_of_sources() -> None:
    book = filled(400, sources=[f"{a}.{b}.0.0/16" for a in range(1, 20) for b in range(10)])
    for address in random.Random(2).sample(list(book.entries), 6_000):
        book.connected(address, 0x49, 100, NOW)
    assert 10_000 < len(book) <= MAX_ADDRESSES == 20_480
    assert len(book.new) + len(book.tried) == len(book)
    assert len(book.rivals) <= 10


# Eviction


def test_new_addresses_do_not_evict_known_ones() -> None:
    book = filled(300)
    before = set(book.entries)
    rng = random.Random(5)
    for _ in range(20_000):
        book.add(host(rng), 0x49, NOW, "9.9.0.0/16", NOW)
    assert before <= book.entries.keys()


@pytest.mark.parametrize(
    "hopeless", [{"seen": int(NOW - 31 * DAY)}, {"failures": 3}, {"failures": 10, "succeeded": int(NOW - 8 * DAY)}]
)
def test_a_hopeless_address_is_evicted(hopeless: dict[str, int]) -> None:
    rng = random.Random(3)
    # by name
    old = KnownAddress(host(rng), 0x49, int(NOW), "9.9.0.0/16", False)._replace(**hopeless)  # type: ignore[arg-type]
    for lacks, is_displaced in ((old, True), (old._replace(seen=int(NOW), failures=0), False)):
        book = AddressBook(SECRET, [lacks])
        while len(book.new) < 900:
            book.add(host(rng), 0x49, NOW, "9.9.0.0/16", NOW)
        assert (old.address not in book.entries) == is_displaced


def test_an_address_is_not_evicted_while_it_may_be_connecting() -> None:
    failing = KnownAddress("1.2.3.4:8333", 0x49, int(NOW), "9.9.0.0/16", False, attempted=int(NOW), failures=3)
    assert [is_hopeless(failing, NOW + after) for after in (0, 59, 60)] == [False, False, True]


def test_an_address_last_seen_a_month_ago_is_refused() -> None:
    book = AddressBook(SECRET)
    assert not book.add("1.2.3.4:8333", 0x49, NOW - 31 * DAY, "9.9.0.0/16", NOW)
    assert book.add("1.2.3.4:8333", 0x49, NOW - 29 * DAY, "9.9.0.0/16", NOW)


def test_a_time_in_the_future_counts_as_now() -> None:
    book = AddressBook(SECRET)
    book.add("1.2.3.4:8333", 0x49, NOW + DAY, "9.9.0.0/16", NOW, 7_200)
    known = book.get("1.2.3.4:8333")
    assert known is not None
    assert known.seen == NOW + 600 - 7_200


def contested() -> tuple[AddressBook, str, str]:
    """Return a book with a tried address, the holder, and a later address that competes for its position."""
    book = filled(3_000, sources=[f"{n}.1.0.0/16" for n in range(1, 9)])
    for rival in list(book.entries):
        book.connected(rival, 0x49, 100, NOW)
        if book.rivals:
            holder = book.to_test()
            assert holder is not None
            return book, holder, rival
    raise AssertionError("no two want one place")


@pytest.mark.slow
def test_a_tried_address_that_answers_its_test_keeps_its_place() -> None:
    book, holder, rival = contested()
    later = NOW + DAY
    book.rivals[rival] = later
    book.attempted(holder, later)
    book.connected(holder, 0x49, 100, later + 1)
    book.judge_rivals(later + 120)
    assert book.entries[holder].tried
    assert not book.entries[rival].tried
    assert book.to_test() is None


def test_a_tried_address_that_fails_its_test_loses_its_place() -> None:
    book, holder, rival = contested()
    later = NOW + DAY
    book.rivals[rival] = later
    book.judge_rivals(later)  # nothing is known yet
    assert book.entries[holder].tried
    book.attempted(holder, later)
    book.judge_rivals(later + 30)  # it may be connecting
    assert book.entries[holder].tried
    book.judge_rivals(later + 120)
    assert book.entries[rival].tried
    assert holder not in book.tried.slots().values()


def test_a_removed_address_competes_for_no_place() -> None:
    """Ten of them would have ended all tests."""
    book = filled(2)
    gone, rival = book.entries
    book.rivals = {gone: NOW, rival: NOW}
    book.forget(gone)
    assert [*book.rivals] == [rival]
    assert book.to_test() is None


def test_a_tried_address_without_a_test_loses_its_place() -> None:
    book, holder, rival = contested()
    later = NOW + DAY
    book.rivals[rival] = later
    book.judge_rivals(later + 2_000)
    assert book.entries[holder].tried
    book.judge_rivals(later + 2_500)
    assert book.entries[rival].tried


@pytest.mark.slow
def test_a_connected_tried_address_keeps_its_place_without_a_test() -> None:
    """A connected address is not dialled for a test, and was therefore taken for an absent one."""
    book, holder, rival = contested()
    later = NOW + DAY  # longer ago than a success counts
    book.rivals[rival] = later
    discovery = Discovery(Options(reach=Reach.DIRECT), HeaderChain(REGTEST), book, (), {}, random.Random(1))
    there = [
        Neighbour(1, holder, host_of(holder), Purpose.DISCOVERED, 0.0, is_connected=True, is_useful=True, is_usual=True)
    ]
    for second in range(0, 2 * 3_600, 10):
        discovery.choose(Instant(DAY + second, later + second), there)
    assert book.entries[holder].tried
    assert not book.entries[rival].tried


# Changes of an address


def test_gossip_does_not_change_the_services_of_a_handshake() -> None:
    book = AddressBook(SECRET)
    book.add("1.2.3.4:8333", 0x9, NOW, "9.9.0.0/16", NOW)
    book.add("1.2.3.4:8333", 0x40, NOW, "8.8.0.0/16", NOW)
    assert book.entries["1.2.3.4:8333"].services == 0x9  # another source does not change them
    book.add("1.2.3.4:8333", 0x49, NOW, "9.9.0.0/16", NOW)
    assert book.entries["1.2.3.4:8333"].services == 0x49
    book.connected("1.2.3.4:8333", 0x9, 100, NOW)
    book.add("1.2.3.4:8333", 0x49, NOW + 2 * DAY, "8.8.0.0/16", NOW + 2 * DAY)
    assert book.entries["1.2.3.4:8333"].services == 0x9
    assert book.entries["1.2.3.4:8333"].seen == NOW + 2 * DAY


def test_failures_while_no_peer_succeeds_count_once() -> None:
    book = filled(5)
    first, second = list(book.entries)[:2]
    for number in range(1, 10):
        book.attempted(first, NOW + number)
    assert book.entries[first].failures == 1
    book.connected(second, 0x49, 100, NOW + 20)
    for number in range(21, 30):
        book.attempted(first, NOW + number)
    assert book.entries[first].failures == 2
    book.connected(first, 0x49, 100, NOW + 40)
    assert book.entries[first].failures == 0


def test_speed_is_smoothed_and_faults_are_forgiven_by_use() -> None:
    book = filled(1)
    (address,) = book.entries
    book.connected(address, 0x49, 1_000, NOW)
    book.connected(address, 0x49, 5_000, NOW)
    assert book.entries[address].speed_ms == 2_000
    for _ in range(20):
        book.faulted(address)
    assert book.entries[address].faults == 8
    book.did_well(address)
    assert book.entries[address].faults == 7


def test_a_stored_book_is_restored_and_its_buckets_are_secret() -> None:
    book = filled(500, sources=["1.1.0.0/16", "2.2.0.0/16"])
    for address in list(book.entries)[::5]:
        book.connected(address, 0x49, 100, NOW)
    stored = [known for known in book.take_changes().values() if known is not None]
    assert not book.take_changes()
    random.Random(1).shuffle(stored)
    again = AddressBook(SECRET, stored)
    assert (again.new.slots(), again.tried.slots(), again.entries) == (
        book.new.slots(),
        book.tried.slots(),
        book.entries,
    )
    other = AddressBook(bytes(32), stored)
    assert {bucket for bucket, _ in other.new.slots()} != {bucket for bucket, _ in book.new.slots()}


def test_changes_include_removed_addresses() -> None:
    book = filled(3)
    address = next(iter(book.entries))
    book.take_changes()
    book.forget(address)
    book.forget("unknown:1")
    assert book.take_changes() == {address: None}


# Hope for compact filters


def test_auto_waits_for_an_address_that_may_serve_compact_filters() -> None:
    """The client dials an address with too few services, with unknown or enough services, or outside the book."""
    for services, is_hope in ((0x0D, False), (0, True), (0x49, True), (None, True)):
        book, address = AddressBook(SECRET), "1.2.3.4:8333"
        if services is not None:
            book.add(address, services, NOW, "9.9.0.0/16", NOW)
            book.attempted(address, NOW)
        options = Options(mode=Mode.AUTO, reach=Reach.DIRECT)
        discovery = Discovery(options, HeaderChain(REGTEST), book, (), {}, random.Random(1))
        assert discovery.may_offer_filters([address], (), Instant(0.0, NOW)) == is_hope
        assert not discovery.may_offer_filters((), (), Instant(0.0, NOW))


# Draws


def test_draws_begin_with_the_first_kind_without_repetition() -> None:
    book, rng = filled(200), random.Random(1)
    preferred = set(rng.sample(list(book.entries), 20))
    drawn = list(
        book.draws(
            rng, NOW, [lambda known: known.address in preferred, lambda known: known.address not in preferred], bool
        )
    )
    assert set(drawn[:20]) == preferred
    assert sorted(drawn) == sorted(book.entries)


def test_an_address_is_checked_when_it_is_drawn() -> None:
    book, taken = filled(200), set[str]()
    for address in book.draws(
        random.Random(1), NOW, [lambda known: True], lambda each: each.split(".")[0] not in taken
    ):
        assert address.split(".")[0] not in taken
        taken.add(address.split(".")[0])
    assert len(taken) > 50


def test_a_large_group_is_not_drawn_in_proportion() -> None:
    """Nine of ten addresses are of one group. Its share of the draws depends on its buckets."""
    rng, book = random.Random(4), AddressBook(SECRET)
    sources = [f"{n}.3.0.0/16" for n in range(1, 9)]
    for source in sources:
        for _ in range(180):
            book.add(host(rng, "66.6"), 0x49, NOW, source, NOW)
        for _ in range(20):
            book.add(host(rng), 0x49, NOW, source, NOW)
    theirs = sum(address.startswith("66.6.") for address in book.entries) / len(book)
    drawn = sum((draw(book, rng) or "").startswith("66.6.") for _ in range(1_000)) / 1_000
    assert theirs > 0.75
    assert drawn < 0.15


@pytest.mark.parametrize("worse", [{"failures": 3, "succeeded": int(NOW)}, {"faults": 3}, {"speed_ms": 9_000}])
def test_addresses_that_did_badly_are_drawn_less_often(worse: dict[str, int]) -> None:
    entries = filled(400).entries
    bad = set(random.Random(1).sample(list(entries), 200))
    entries |= {address: entries[address]._replace(**worse) for address in bad}  # type: ignore[arg-type]  # by name
    book = AddressBook(SECRET, entries.values())
    rng = random.Random(2)
    counts = Counter(draw(book, rng) in bad for _ in range(1_000))
    assert counts[True] < 0.8 * counts[False]
    assert counts[True] > 20


def test_a_failed_address_rests_unless_the_clock_went_back() -> None:
    book = filled(1)
    (address,) = book.entries
    book.attempted(address, NOW)
    rng = random.Random(1)
    assert draw(book, rng, NOW + 599) is None
    assert draw(book, rng, NOW + 601) == address
    assert draw(book, rng, NOW - DAY) == address
    book.connected(address, 0x49, 100, NOW + 700)
    assert draw(book, rng, NOW + 701) == address  # it did not fail


def test_a_failed_address_rests_despite_a_future_success() -> None:
    """The client dialled it again and again without a pause, until the clock reached the old time."""
    book = filled(1)
    (address,) = book.entries
    book.connected(address, 0x49, 100, NOW + 30 * DAY)
    book.attempted(address, NOW)
    rng = random.Random(1)
    assert draw(book, rng, NOW + 599) is None
    assert draw(book, rng, NOW + 601) == address


def test_an_address_from_the_future_becomes_useful_once_announced_again() -> None:
    book = AddressBook(SECRET)
    book.add("5.6.7.8:8333", 0x49, NOW + 20 * DAY, "9.9.0.0/16", NOW + 20 * DAY)
    (known,) = book.entries.values()
    assert is_hopeless(known, NOW)
    book.add(known.address, 0x49, NOW - DAY, "9.9.0.0/16", NOW)
    (known,) = book.entries.values()
    assert known.seen == NOW - DAY
    assert not is_hopeless(known, NOW)


def test_a_clock_jump_does_not_empty_the_book() -> None:
    book = filled(300)
    rng = random.Random(1)
    for jump in (15 * DAY, 400 * DAY, -400 * DAY):
        assert draw(book, rng, NOW + jump) is not None
    assert len(book) > 250
