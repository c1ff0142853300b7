"""The address book: peer addresses in two tables of buckets, so that an attacker cannot fill it (Core addrman).

The table of new addresses contains addresses that were announced, and the table of tried addresses those to which the
client has connected. A hash keyed with the wallet's secret determines the bucket and position of an address, so
attackers cannot compute them.

- The bucket of a new address depends on its group and on its source's group. One source reaches 16 of 256 buckets.
- The bucket of a tried address depends on its group. One group reaches 4 of 64 buckets.

The book contains at most 16,384 new and 4,096 tried addresses. A bucket is drawn first, so an attacker with few groups
has little chance of being chosen, even with many addresses. Sizes are a quarter of Core's. Each address is in one
bucket, whereas Core puts a new address into up to eight.

An announced address replaces another address only if that one is hopeless. A connected address replaces a tried address
only after that one has failed a test (Core's test-before-evict).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from spvfilter.light.engine.netgroups import dialling_group, host_of
from spvfilter.store.addresses import KnownAddress
from spvfilter.wire.events import Service

NEW_BUCKETS = 256
TRIED_BUCKETS = 64
BUCKET_SIZE = 64  # Core addrman_impl.h ADDRMAN_BUCKET_SIZE
NEW_BUCKETS_PER_SOURCE = 16  # Buckets that the announcements of one group can reach.
TRIED_BUCKETS_PER_GROUP = 4  # Buckets that the addresses of one group can reach.
MAX_ADDRESSES = (NEW_BUCKETS + TRIED_BUCKETS) * BUCKET_SIZE

# The numbers up to _MAX_RIVALS are from Core addrman.cpp.
_HORIZON_S = 30 * 86_400  # An address that has not been seen for this long is hopeless.
_FUTURE_S = 600  # An address may have been seen this far in the future.
_GRACE_S = 60  # For this long after an attempt, an address is never hopeless.
_RETRIES = 3  # An address without a success is hopeless after this many attempts.
_MAX_FAILURES = 10  # If the last success is older than _LONG_AGO_S, this many failures make an address hopeless.
_LONG_AGO_S = 7 * 86_400
_PAUSE_S = 600  # Pause after a failed attempt.
_REFRESH_S = 86_400  # An announced time must be this much later than the known time to replace it.
_TESTED_S = 4 * 3_600  # A tried address with a connection in this time keeps its place.
_TEST_WINDOW_S = 40 * 60  # A tried address that is not tested loses its place after this time.
_MAX_RIVALS = 10

_SLOW_MS = 3_000  # A longer handshake counts as slow (our choice).
_MOST_DRAWN = 1_000  # Addresses of one kind that one choice examines (our choice). The next choice examines more.
_DRAWS = 50  # After this many addresses were passed over, the next one is taken regardless of its chance.

_COMPACT_FILTERS = Service.COMPACT_FILTERS.value

Slot = tuple[int, int]  # bucket and position


class _Table:
    """Addresses by bucket and position."""

    def __init__(self) -> None:
        self._buckets: dict[int, dict[int, str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def get(self, slot: Slot) -> str | None:
        bucket, position = slot
        return self._buckets.get(bucket, {}).get(position)

    def put(self, slot: Slot, address: str) -> None:
        bucket, position = slot
        self._buckets.setdefault(bucket, {})[position] = address

    def clear(self, slot: Slot) -> None:
        bucket, position = slot
        del self._buckets[bucket][position]
        if not self._buckets[bucket]:
            del self._buckets[bucket]

    def buckets(self) -> list[Collection[str]]:
        """Return the addresses of each bucket that is not empty, as views that change with the table."""
        return [bucket.values() for bucket in self._buckets.values()]

    def slots(self) -> dict[Slot, str]:
        """Return all addresses, by their slots."""
        return {
            (bucket, position): address
            for bucket, there in self._buckets.items()
            for position, address in there.items()
        }


class AddressBook:
    """Addresses by HOST:PORT. Changes are collected for the database."""

    def __init__(self, secret: bytes, saved: Iterable[KnownAddress] = ()) -> None:
        """`secret`, up to 64 bytes, never changes for a database. `saved` are the addresses in the database."""
        self._keyed = hashlib.blake2b(digest_size=8, key=secret, person=b"address book")
        self.entries: dict[str, KnownAddress] = {}
        self._hopes: dict[str, None] = {}  # addresses that may serve compact filters
        self.new: _Table = _Table()
        self.tried: _Table = _Table()
        self._changes: dict[str, KnownAddress | None] = {}
        # Connected addresses whose place in the table of tried addresses is in use, and when they began to wait.
        self.rivals: dict[str, float] = {}
        self._counted: dict[str, float] = {}  # When a failure of an address was last counted.
        self._last_good = 1.0  # When the client last connected anywhere. With 1, an address's first failure counts.
        for known in saved:
            table, slot = self._table(known), self._slot(known)
            if table.get(slot) is None:
                table.put(slot, known.address)
                self.entries[known.address] = known
                self._hope(known)

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, address: str) -> KnownAddress | None:
        """Return the entry of an address, or None."""
        return self.entries.get(address)

    def take_changes(self) -> dict[str, KnownAddress | None]:
        """Return the entries that have changed since the last call, keyed by address. A removed entry is None."""
        changes, self._changes = self._changes, {}
        return changes

    @property
    def changed(self) -> int:
        """The number of addresses that have changed."""
        return len(self._changes)

    # Positions of addresses

    def _hash(self, *parts: object) -> int:
        keyed = self._keyed.copy()
        keyed.update("\0".join(map(str, parts)).encode())
        return int.from_bytes(keyed.digest(), "little")

    def _slot(self, known: KnownAddress) -> Slot:
        group = dialling_group(host_of(known.address))
        if known.tried:
            one = self._hash("tried of", known.address) % TRIED_BUCKETS_PER_GROUP
            bucket = self._hash("tried", group, one) % TRIED_BUCKETS
        else:
            one = self._hash("new of", group, known.source) % NEW_BUCKETS_PER_SOURCE
            bucket = self._hash("new", known.source, one) % NEW_BUCKETS
        return bucket, self._hash("at", known.tried, bucket, known.address) % BUCKET_SIZE

    def _table(self, known: KnownAddress) -> _Table:
        return self.tried if known.tried else self.new

    def _set(self, known: KnownAddress) -> None:
        self.entries[known.address] = self._changes[known.address] = known
        self._hope(known)

    def _hope(self, known: KnownAddress) -> None:
        if known.services & _COMPACT_FILTERS and known.attempted <= known.succeeded and not known.faults:
            self._hopes[known.address] = None
        else:
            self._hopes.pop(known.address, None)

    def _remove(self, address: str) -> None:
        known = self.entries.pop(address)
        self._hopes.pop(address, None)
        self._table(known).clear(self._slot(known))
        self._changes[address] = None
        self.rivals.pop(address, None)
        self._counted.pop(address, None)

    def _place_new(self, known: KnownAddress, now: float) -> bool:
        """Put an address into the table of new addresses, unless an address that is not hopeless takes up its place."""
        slot = self._slot(known)
        other = self.new.get(slot)
        if other is not None:
            if not is_hopeless(self.entries[other], now):
                return False
            self._remove(other)
        self.new.put(slot, known.address)
        self._set(known)
        return True

    # Announcements and connections

    def add(self, address: str, services: int, seen: float, source: str, now: float, penalty_s: float = 0.0) -> bool:
        """Add an announced address, last seen `penalty_s` before `seen`. Return True if it is new and was added.

        An announcement does not override facts from a handshake.
        """
        seen = min(seen, now + _FUTURE_S) - penalty_s
        known = self.entries.get(address)
        if known is None:
            known = KnownAddress(address, services, max(0, int(seen)), source, False)
            return not is_hopeless(known, now) and self._place_new(known, now)
        if (
            seen > known.seen + _REFRESH_S or known.seen > now + _FUTURE_S
        ):  # the time was written while our clock was ahead
            known = known._replace(seen=int(seen))
        if not known.tried and (
            source == known.source or not known.services
        ):  # no source changes the services that another source stated
            known = known._replace(services=services)
        if known != self.entries[address]:
            self._set(known)
        return False

    def attempted(self, address: str, now: float) -> None:
        """Record an attempt to connect. It counts as a failure until it succeeds.

        An address is charged with at most one failure until the next successful connection to any address, because this
        machine may be offline.
        """
        known = self.entries.get(address)
        if known is None:
            return
        failures = known.failures
        if self._counted.get(address, 0.0) < self._last_good:
            self._counted[address] = now
            failures += 1
        succeeded = min(known.succeeded, int(now) - 1)  # the time may have been written while our clock was ahead
        self._set(known._replace(attempted=int(now), succeeded=max(0, succeeded), failures=min(failures, 1_000)))

    def connected(self, address: str, services: int, speed_ms: int, now: float) -> None:
        """Record a completed handshake, and move the address to the table of tried addresses if its place is free."""
        known = self.entries.get(address)
        if known is None:
            return
        self._last_good = max(self._last_good, now)
        speed = (3 * known.speed_ms + speed_ms) // 4 if known.speed_ms else speed_ms
        known = known._replace(
            services=services,
            seen=int(now),
            succeeded=int(now),
            attempted=int(now),
            failures=0,
            speed_ms=max(1, min(speed, 1 << 31)),
        )
        self._set(known)
        if not known.tried:
            moved = known._replace(tried=True)
            if self.tried.get(self._slot(moved)) is not None:
                if len(self.rivals) < _MAX_RIVALS:
                    self.rivals.setdefault(address, now)
            else:
                self._move(known, moved)

    def _move(self, known: KnownAddress, moved: KnownAddress) -> None:
        self.new.clear(self._slot(known))
        self.rivals.pop(known.address, None)
        self.tried.put(self._slot(moved), known.address)
        self._set(moved)

    def faulted(self, address: str) -> None:
        """Record that a connection ended and the peer was at fault."""
        known = self.entries.get(address)
        if known is not None:
            self._set(known._replace(faults=min(known.faults + 1, 8)))

    def did_well(self, address: str) -> None:
        """Record that the peer was useful."""
        known = self.entries.get(address)
        if known is not None and known.faults:
            self._set(known._replace(faults=known.faults - 1))

    def forget(self, address: str) -> None:
        """Remove an address that turned out not to belong to a peer."""
        if address in self.entries:
            self._remove(address)

    # Test before evict

    def to_test(self) -> str | None:
        """Return a tried address to test by connecting to it, or None. Another address is waiting for its place."""
        for address in self.rivals:
            return self.tried.get(self._slot(self.entries[address]._replace(tried=True)))
        return None

    def judge_rivals(self, now: float, there: Collection[str] = ()) -> None:
        """Replace tried addresses that failed their test or were not tested in time.

        A connected address (`there`) keeps its place without a test.
        """
        for address, since in list(self.rivals.items()):
            known = self.entries.get(address)
            if known is None:
                continue  # A replaced address has taken its place in the table of new addresses.
            moved = known._replace(tried=True)
            holder = self.entries.get(self.tried.get(self._slot(moved)) or "")
            if holder is None:
                self._move(known, moved)
            elif holder.address in there or now - holder.succeeded < _TESTED_S:
                del self.rivals[address]
            elif _GRACE_S < now - holder.attempted < _TESTED_S or now - since > _TEST_WINDOW_S:
                self._remove(holder.address)
                self._move(known, moved)
                self._place_new(holder._replace(tried=False), now)

    # Choice

    def draws(
        self,
        random: random.Random,
        now: float,
        kinds: Sequence[Callable[[KnownAddress], bool]],
        is_free: Callable[[str], bool],
        *,
        only_new: bool = False,
    ) -> Iterator[str]:
        """Yield addresses to connect to, each at most once, in random order within each kind.

        Each draw chooses a table, then a bucket, then an address in it. An address that failed, was slow, or was at
        fault is passed over more often.

        Args:
            random: Source of randomness.
            now: Unix time.
            kinds: Conditions on addresses. Addresses that meet the first condition come before all others.
            is_free: Function that returns True if an address may be drawn at that time.
            only_new: True to draw only from the table of new addresses.
        """
        tables = (self.new,) if only_new else (self.new, self.tried)
        for kind in kinds:

            def wanted(bucket: Iterable[str], is_wanted: Callable[[KnownAddress], bool] = kind) -> list[KnownAddress]:
                return [
                    known
                    for known in map(self.entries.__getitem__, bucket)
                    if is_wanted(known) and (known.attempted <= known.succeeded or not _is_paused(known, now))
                ]

            yield from _drawn(random, [_Left(table.buckets(), wanted) for table in tables], is_free)

    def has_hope(self, wanted: Callable[[str], bool]) -> bool:
        """True if any address that may serve compact filters meets this condition."""
        return any(map(wanted, self._hopes))


class _Left:
    """The addresses of a table that have not been drawn yet.

    Each bucket is read only when it is first drawn, because a full book contains 20,480 addresses.
    """

    def __init__(self, buckets: list[Collection[str]], wanted: Callable[[Collection[str]], list[KnownAddress]]) -> None:
        self._buckets: list[Collection[str] | list[KnownAddress]] = [*buckets]
        self._wanted = wanted

    def draw(self, random: random.Random) -> list[KnownAddress] | None:
        """Return the wanted addresses in a random bucket that contains any, or None if no bucket does."""
        while self._buckets:
            number = random.randrange(len(self._buckets))
            bucket = self._buckets[number]
            if not isinstance(bucket, list):
                bucket = self._buckets[number] = self._wanted(bucket)
            if bucket:
                return bucket
            self._buckets[number] = self._buckets[-1]
            self._buckets.pop()
        return None


def _drawn(random: random.Random, tables: list[_Left], is_free: Callable[[str], bool]) -> Iterator[str]:
    """Draw until all buckets of all tables are empty, or until `_MOST_DRAWN` addresses have been examined."""
    refused = looked_at = 0
    while tables and looked_at < _MOST_DRAWN:
        table = random.choice(tables)
        bucket = table.draw(random)
        if bucket is None:
            tables.remove(table)
            continue
        looked_at += 1
        known = random.choice(bucket)
        if is_free(known.address):
            if refused < _DRAWS and random.random() >= chance(known):
                refused += 1
                continue
            refused = 0
            yield known.address
        bucket.remove(known)


def is_hopeless(known: KnownAddress, now: float) -> bool:
    """Return True if an address is not worth its place (Core AddrInfo::IsTerrible)."""
    if now - known.attempted < _GRACE_S:
        return False
    if known.seen > now + _FUTURE_S or now - known.seen > _HORIZON_S:
        return True
    if not known.succeeded:
        return known.failures >= _RETRIES
    return now - known.succeeded > _LONG_AGO_S and known.failures >= _MAX_FAILURES


def chance(known: KnownAddress) -> float:
    """Return the relative chance that an address is chosen.

    This follows Core AddrInfo::GetChance, but also takes faults and speed into account.
    """
    value = 0.66 ** min(known.failures, 8) * 0.5 ** min(known.faults, 4)
    return float(value * 0.5 if known.speed_ms > _SLOW_MS else value)


def _is_paused(known: KnownAddress, now: float) -> bool:
    """True if the last attempt failed and was recent. Setting the clock back does not make the pause longer."""
    return known.attempted > known.succeeded and 0 <= now - known.attempted < _PAUSE_S
