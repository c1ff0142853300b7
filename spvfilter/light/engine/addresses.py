"""Discovery: chooses addresses to connect to in addition to the user's, and searches for new ones.

It follows Core, adapted to the needs of a wallet:

- Addresses are drawn from the address book. Addresses with the needed services come first.
- The client connects to at most one address in each dialling group, and never to two addresses of the same host.
- Two addresses from the previous run (anchors) come first, so that an attacker does not get all connections after a
  restart.
- Now and then, a feeler connects to a new address, then disconnects.
- If no block arrives for a long time, the client connects to one more peer.
- The client asks each peer for addresses once, and sends none.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from spvfilter.chain import HeaderChain
from spvfilter.errors import SessionError
from spvfilter.light.engine.addressbook import AddressBook
from spvfilter.light.engine.connectrate import DIAL_S, ConnectRate
from spvfilter.light.engine.dnsseeds import Seeds
from spvfilter.light.engine.inputs import Instant, PeerConnected, SeedAnswer
from spvfilter.light.engine.netgroups import dialling_group, host_of, is_public, is_service_port, netgroup
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.engine.outboundslots import wanted_of
from spvfilter.light.engine.saved import Saved
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.store.addresses import KnownAddress
from spvfilter.wire.events import Cause, Service
from spvfilter.wire.messages.addresses import NetId, PeerAddress
from spvfilter.wire.transport import V2Policy

_NETWORK, _COMPACT_FILTERS, _V2 = Service.NETWORK.value, Service.COMPACT_FILTERS.value, Service.P2P_V2.value
COMPACT_NEEDS = (Service.NETWORK | Service.WITNESS | Service.COMPACT_FILTERS).value  # 0x49
BLOOM_NEEDS = (Service.NETWORK | Service.WITNESS | Service.BLOOM).value  # 0xd
MAX_ANCHORS = 2  # Core net.cpp MAX_BLOCK_RELAY_ONLY_ANCHORS.
MAX_OF_SEED = 32  # Largest number of addresses accepted from one seed (Core net.cpp).
FEELER_S = 600.0  # Average interval between feelers (Core: 120).
EXTRA_S = 600.0  # Interval of extra connections while the tip is stale (Core net_processing.cpp STALE_CHECK_INTERVAL).
_EXTRA_RETRY_S = 15.0  # Pause after an extra connection that failed or lacked the needed services (our choice).
EXTRA_CHANCE_S = 120.0  # An extra connection must bring a new block within this time (our choice).
ANCHOR_S = 600.0  # A peer must have been connected for this long to be an anchor (our choice).
# After this many attempts to find compact filters, "auto" mode stops waiting: a quarter of an hour (our choice).
MAX_HOPES = 512
_ANSWERED = 8  # An answered attempt counts as this many attempts, as does a repeated attempt.

_TOKENS_AT_ONCE = 1_000.0  # Addresses accepted in a burst (Core net_processing.cpp MAX_ADDR_PROCESSING_TOKEN_BUCKET).
_TOKENS_PER_S = 0.1  # Core MAX_ADDR_RATE_PER_SECOND.
_PENALTY_S = 7_200  # Added to the age of addresses from peers (Core net_processing.cpp).
_OLDEST_TIME = 100_000_000  # A stated time before this is meaningless (Core net_processing.cpp).
_GUESSED_AGE_S = 5 * 86_400  # Assumed age of an address if its stated time is meaningless (Core net_processing.cpp).
_SEED_AGES_S = (3 * 86_400, 7 * 86_400)  # Assumed ages of a seed's addresses (Core net.cpp).
_LOOK_S = 2.0  # Pause after a search that found no address (our choice).
_REST_S = 1_800.0  # Pause for an address after a useless connection (our choice).
_STEADY_S = 60.0  # If a connection is lost after this time, the line is at fault, not the peer (our choice).
_LINE_REST_S = 10.0  # Pause for an address after its line failed (our choice).
_ANCHOR_REST_S = 600.0  # Pause for an anchor to which the client cannot connect (our choice).
_MAX_KEPT = 1_000  # Limit on remembered bans, and on paused addresses. The oldest are forgotten.
_WRITE_S = 60.0  # Interval between writes of the book, unless much has changed.
_WRITE_AT = 200  # The book is written immediately after this many changed addresses.


class Purpose(Enum):
    """Why the client connects to a peer."""

    NAMED = "named"
    """The user gave the address."""
    DISCOVERED = "discovered"
    EXTRA = "extra"
    """The client needs one more peer than usual, because the tip is stale."""
    FEELER = "feeler"
    """The connection only tests whether a node is at the address."""


class DismissedError(Exception):
    """A connection was ended through no fault of the peer. The client does not report it."""


class IdleError(DismissedError):
    """The connection to a useless peer was ended. For a while, this peer gets no extra connection."""


class Neighbour(NamedTuple):
    """The facts about a peer that discovery needs."""

    number: int
    address: str
    host: str
    """Host of the address, if known."""
    purpose: Purpose
    since: float
    """When the connection was started or made (monotonic seconds)."""
    is_connected: bool
    is_useful: bool
    """True if the peer is ready and offers the needed services."""
    is_usual: bool
    """True if the peer counts toward the usual number. A ready named peer that lacks the needed services does not."""


@dataclass(slots=True)
class _Tokens:
    """How many more addresses the engine accepts from a peer."""

    left: float
    at: float


class Discovery:
    """Chooses addresses. The pool of peers opens and closes connections, and reports them by number."""

    def __init__(
        self,
        options: Options,
        chain: HeaderChain,
        book: AddressBook,
        anchors: Sequence[str],
        bans: dict[str, float],
        random: random.Random,
    ) -> None:
        """`options.reach` must not be Reach.NAMED. `bans` contains the ends of bans (Unix time), keyed by address."""
        self.book = book
        self.bans = bans
        self._options = options
        self._always = _V2 if options.v2 is V2Policy.REQUIRE else 0  # services that every search needs
        self._needs = 0
        self.want(0 if options.mode is Mode.BIP37 else _COMPACT_FILTERS)
        self._chain = chain
        self._random = random
        self.anchors: list[str] = list(anchors)[:MAX_ANCHORS]
        self._written = list(self.anchors)
        self._connect_rate = ConnectRate()
        self._seeds = Seeds()
        self._tokens: dict[int, _Tokens] = {}
        self._resting: dict[
            str, float
        ] = {}  # End of an address's pause by the monotonic clock; infinite for our own addresses.
        self._hopes = 0  # Consecutive attempts that brought no compact filters.
        self._tip = (b"", 0.0)  # The tip, and the time when it became the tip.
        self._due = {"feeler": 0.0, "extra": 0.0, "look": 0.0, "write": 0.0}  # Times of the monotonic clock.

    # Needed services

    def want(self, services: int) -> None:
        """Record that the search needs peers with these services."""
        self._needs = self._always | (COMPACT_NEEDS if services & _COMPACT_FILTERS else BLOOM_NEEDS)

    def offers_v2(self, address: str) -> bool:
        """True if an address in the book is known to accept encrypted connections."""
        known = self.book.get(address)
        return known is not None and known.services & _V2 != 0

    @property
    def _is_hopeless(self) -> bool:
        """True if "auto" mode stops waiting for compact filters, after too many failed attempts."""
        is_waiting = self._options.mode is Mode.AUTO and self._needs & _COMPACT_FILTERS != 0
        return is_waiting and self._hopes >= MAX_HOPES

    def serves(self, services: int) -> bool:
        """True if these services are sufficient."""
        least = self._always | BLOOM_NEEDS
        return services & self._needs == self._needs or (self._is_hopeless and services & least == least)

    def may_offer_filters(self, dialled: Iterable[str], there: Iterable[Neighbour], now: Instant) -> bool:
        """True if "auto" mode should wait for a peer with compact filters.

        This is the case while such a peer is connecting, or an address claims the service and has not failed recently.
        """
        banned, groups = self._banned_hosts(now), {dialling_group(each.host) for each in there}

        def is_hope(address: str) -> bool:
            host = host_of(address)
            if host in banned or dialling_group(host) in groups or not self._is_dialled(address):
                return False
            return not self._rests(address, now)

        if self._hopes >= MAX_HOPES:
            return False
        if self._seeds.is_asking:
            return True
        known = (self.book.get(address) for address in dialled)
        if any(each is None or not each.services or each.services & _COMPACT_FILTERS for each in known):
            return True
        return self.book.has_hope(is_hope)

    # Choice of addresses

    def choose(
        self, now: Instant, there: Sequence[Neighbour], named: Iterable[str] = (), disputing: Sequence[str] = ()
    ) -> list[tuple[str, Purpose]]:
        """Return the connections to open, none of them to a host that the user named.

        Peers at the addresses `disputing` have contradicted our filter headers. The first of them are chosen before all
        other addresses, and are then left alone for a while.
        """
        found: list[tuple[str, Purpose]] = []
        hosts = {*(each.host for each in there), *map(host_of, named)}
        groups = {dialling_group(each.host) for each in there if each.purpose is not Purpose.FEELER}
        is_free = self._free(hosts, groups, now)
        wanted = wanted_of(disputing, {each.address for each in there}, self._options.max_peers)

        def begin(address: str | None, purpose: Purpose) -> bool:
            if address is None:
                return False
            host = host_of(address)
            hosts.add(host)
            groups.add(dialling_group(host))
            if purpose is Purpose.DISCOVERED and self._tokens and self._has_failed(address):
                # If the book has few addresses, each is tried again only after its pause.
                self._hopes += _ANSWERED - 1
            self._begin(address, now)
            if address in wanted:
                self._rest(address, now.monotonic + _ANCHOR_REST_S)
            found.append((address, purpose))
            return True

        drawn = itertools.chain(
            filter(is_free, wanted),
            filter(is_free, self.anchors),
            self.book.draws(self._random, now.wall, self._kinds(), is_free),
        )
        usual = sum(each.is_usual for each in there)
        while usual + len(found) < self._options.max_peers and self._may_dial(now):
            if not begin(next(drawn, None), Purpose.DISCOVERED):
                self._due["look"] = now.monotonic + _LOOK_S
                break
        if self._is_extra_due(now, there) and self._may_dial(now):
            self._due["extra"] = now.monotonic + EXTRA_S
            begin(next(drawn, None), Purpose.EXTRA)
        if self._is_feeler_due(now, there):
            self._due["feeler"] = now.monotonic + self._random.expovariate(1 / FEELER_S)
            self.book.judge_rivals(now.wall, {each.address for each in there if each.is_connected})
            groups.clear()
            begin(self._felt(now, is_free), Purpose.FEELER)
        return found

    def _free(self, hosts: Collection[str], groups: Collection[str], now: Instant) -> Callable[[str], bool]:
        banned = self._banned_hosts(now)

        def is_free(address: str) -> bool:
            host = host_of(address)
            if host in hosts or host in banned or self._rests(address, now) or not self._is_dialled(address):
                return False
            return dialling_group(host) not in groups

        return is_free

    def stranger(self, now: Instant, there: Sequence[Neighbour], tried: Collection[str]) -> str | None:
        """Return an address that is not in `tried` and whose host and group have no connection, or None."""
        hosts = {*(each.host for each in there), *map(host_of, tried)}
        is_free = self._free(hosts, {dialling_group(each.host) for each in there}, now)
        return next(self.book.draws(self._random, now.wall, self._kinds(), is_free), None)

    def _begin(self, address: str, now: Instant) -> None:
        self._connect_rate.began(now.monotonic)
        self.book.attempted(address, now.wall)

    def _has_failed(self, address: str) -> bool:
        """True if the last attempt to connect to the address failed."""
        known = self.book.get(address)
        return known is not None and known.attempted > known.succeeded

    def _may_dial(self, now: Instant) -> bool:
        return now.monotonic >= self._connect_rate.next_at and now.monotonic >= self._due["look"]

    def _kinds(self) -> list[Callable[[KnownAddress], bool]]:
        """Return the kinds of addresses in order of preference.

        Addresses that announce the needed services come first, then addresses with unknown services, then addresses
        to which the client has never connected. If one attempt after another fails, the order is random. Otherwise, a
        few unreachable addresses, each tried again after its pause, would take every turn.
        """
        needs = self._needs
        kinds: list[Callable[[KnownAddress], bool]] = [
            (lambda known: known.services & needs == needs)
            if not self._is_hopeless
            else (lambda known: self.serves(known.services)),
            lambda known: not known.services,
            lambda known: not known.tried,
        ]
        if self._connect_rate.is_slow:
            self._random.shuffle(kinds)
        return kinds

    def _felt(self, now: Instant, is_free: Callable[[str], bool]) -> str | None:
        """Return the address for a feeler: a tried address that is to be tested, or else a new address, or None."""
        tested = self.book.to_test()
        if tested is not None and is_free(tested):
            return tested
        return next(self.book.draws(self._random, now.wall, [lambda known: True], is_free, only_new=True), None)

    def _is_feeler_due(self, now: Instant, there: Iterable[Neighbour]) -> bool:
        if not self._due["feeler"]:
            self._due["feeler"] = now.monotonic + self._random.expovariate(1 / FEELER_S)
        is_settled = any(each.is_useful for each in there) and not any(each.purpose is Purpose.FEELER for each in there)
        return is_settled and now.monotonic >= self._due["feeler"]

    def _is_extra_due(self, now: Instant, there: Iterable[Neighbour]) -> bool:
        """True if no block has arrived for a long time, although useful peers are connected."""
        if self._chain.tip_hash != self._tip[0]:
            self._tip = self._chain.tip_hash, now.monotonic
        if now.monotonic - self._tip[1] < self._options.timeouts.stale_tip_s or now.monotonic < self._due["extra"]:
            return False
        return any(each.is_useful for each in there) and not any(each.purpose is Purpose.EXTRA for each in there)

    def next_at(self, now: Instant, there: Sequence[Neighbour]) -> float:
        """Return when to call `choose` next (monotonic seconds), always in the future."""
        usual = sum(each.is_usual for each in there)
        at = now.monotonic + FEELER_S
        if any(each.is_useful for each in there):
            at = min(at, self._due["feeler"])
            if not any(each.purpose is Purpose.EXTRA for each in there):
                at = min(at, max(self._tip[1] + self._options.timeouts.stale_tip_s, self._due["extra"]))
        if usual < self._options.max_peers:
            at = min(at, max(self._connect_rate.next_at, self._due["look"]))
        return max(at, now.monotonic + DIAL_S)

    # Connected peers

    def review(self, now: Instant, there: Sequence[Neighbour]) -> tuple[list[int], list[int]]:
        """Return the numbers of peers to dismiss, and the numbers of extra peers to keep."""
        self._note_anchors(now, there)
        dismissed: list[int] = []
        kept: list[int] = []
        for each in there:
            if each.purpose is Purpose.EXTRA and each.is_connected:
                if self._tip[1] > each.since:  # a block has arrived since, from this peer or because of it
                    kept.append(each.number)
                elif now.monotonic - each.since > EXTRA_CHANCE_S:
                    dismissed.append(each.number)
        usual = [
            each
            for each in there
            if each.purpose is Purpose.DISCOVERED or (each.purpose is Purpose.NAMED and each.is_useful)
        ]
        for _ in range(len(usual) + len(kept) - self._options.max_peers):
            spare = [each for each in usual if each.purpose is Purpose.DISCOVERED and each.number not in dismissed]
            others = [each for each in spare if each.address not in self.anchors]
            if not spare:
                break
            dismissed.append(self._random.choice(others or spare).number)
        return dismissed, kept

    def _note_anchors(self, now: Instant, there: Iterable[Neighbour]) -> None:
        """Choose the two peers that have been useful the longest as anchors. Earlier anchors stay until replaced."""
        steady = [
            each.address
            for each in sorted(there, key=lambda each: each.since)
            if each.purpose is Purpose.DISCOVERED and each.is_useful and now.monotonic - each.since >= ANCHOR_S
        ]
        held = [address for address in self.anchors if address in steady]
        anchors = [*held, *(address for address in steady if address not in held)]
        anchors += [address for address in self.anchors if address not in anchors]
        self.anchors = anchors[:MAX_ANCHORS]

    def welcome(
        self, purpose: Purpose, address: str, profile: PeerConnected, took_s: float, now: Instant
    ) -> DismissedError | None:
        """Record a new connection. Return the reason to end it right away, or None."""
        self._connect_rate.succeeded()
        self.book.connected(address, profile.services, round(took_s * 1000), now.wall)
        if purpose is Purpose.FEELER:
            return DismissedError("the feeler has reached a node")
        if purpose is not Purpose.NAMED and not self.serves(profile.services):
            self._hopes += _ANSWERED
            self._rest(host_of(address), now.monotonic + _REST_S)
            self._no_anchor(address)
            return DismissedError(f"services 0x{profile.services:x}")
        self._tokens[profile.peer] = _Tokens(1.0 + _TOKENS_AT_ONCE, now.monotonic)  # for the answer to getaddr
        return None

    def ended(
        self, number: int, purpose: Purpose, address: str, error: Exception, until: float, lasted_s: float, now: Instant
    ) -> None:
        """Record that a connection has ended, or could not be made.

        `until` is the end of the ban of its address (Unix time), or 0 if it is not banned.
        """
        was_connected = self._tokens.pop(number, None) is not None
        if purpose is Purpose.NAMED:
            return
        if purpose is Purpose.EXTRA and not was_connected:
            self._due["extra"] = now.monotonic + _EXTRA_RETRY_S
        if isinstance(error, DismissedError):
            if purpose is Purpose.EXTRA:
                self._rest(address, now.monotonic + _REST_S)
            return
        if purpose is Purpose.DISCOVERED and (was_connected or self._tokens):  # else we may be offline
            self._hopes += _ANSWERED if was_connected else 1
        if isinstance(error, SessionError) and error.cause is Cause.SELF_CONNECTION:
            self.book.forget(address)
            self._rest(address, float("inf"))
        elif until:
            self.ban(address, until)
            self.book.forget(address)
        elif was_connected and lasted_s >= _STEADY_S and _is_line(error):
            self._rest(address, now.monotonic + _LINE_REST_S)
        elif was_connected:
            self.book.faulted(address)
            self._rest(host_of(address), now.monotonic + _REST_S)
        elif address in self.anchors:
            self._rest(address, now.monotonic + _ANCHOR_REST_S)
        if until:
            self._no_anchor(address)

    def ban(self, address: str, until: float) -> None:
        """Do not connect to the host of this address until `until` (Unix time)."""
        self.bans[address] = until
        _shorten(self.bans)

    def _banned_hosts(self, now: Instant) -> set[str]:
        return {host_of(address) for address, until in self.bans.items() if until > now.wall}

    def served_filters(self) -> None:
        """Record that a peer has sent compact filters, so such peers exist."""
        self._hopes = 0

    def _no_anchor(self, address: str) -> None:
        if address in self.anchors:
            self.anchors.remove(address)

    def _rest(self, place: str, until: float) -> None:
        """Do not connect to an address, or to a host, until `until` (monotonic seconds)."""
        self._resting[place] = until
        _shorten(self._resting)

    def _rests(self, address: str, now: Instant) -> bool:
        return max(self._resting.get(address, 0.0), self._resting.get(host_of(address), 0.0)) > now.monotonic

    # Addresses from peers and seeds

    def heard(self, number: int, host: str, addresses: Sequence[PeerAddress], now: Instant) -> None:
        """Accept addresses from a peer, one for each of its tokens, in random order."""
        tokens = self._tokens.get(number)
        if tokens is None:
            return
        tokens.left = max(tokens.left, min(tokens.left + (now.monotonic - tokens.at) * _TOKENS_PER_S, _TOKENS_AT_ONCE))
        tokens.at = now.monotonic
        source = netgroup(host)
        for told in self._random.sample(addresses, len(addresses)):
            if tokens.left < 1.0:
                break
            tokens.left -= 1.0
            self._learn(told, source, now)

    def _learn(self, told: PeerAddress, source: str, now: Instant) -> None:
        host = told.host
        if host is None or is_service_port(told.port) or not told.services & _NETWORK:
            return
        address = f"[{host}]:{told.port}" if ":" in host else f"{host}:{told.port}"
        if self._rests(address, now) or (self.book.get(address) is None and not self._is_reachable(host, told.net)):
            return
        seen = told.time
        if not _OLDEST_TIME < seen <= now.wall + 600:
            seen = max(0, int(now.wall) - _GUESSED_AGE_S)
        self.book.add(address, told.services, seen, source, now.wall, _PENALTY_S)

    def _is_dialled(self, address: str) -> bool:
        """True if the client may connect to an address. A hidden service from an earlier run still needs a proxy."""
        return self._options.reach is Reach.PROXIED or not host_of(address).endswith((".onion", ".i2p"))

    def _is_reachable(self, host: str, net: int) -> bool:
        if net == NetId.TORV3:
            return self._options.reach is Reach.PROXIED
        if is_public(host, net):
            return True
        # regtest has no public network
        return net in (NetId.IPV4, NetId.IPV6) and self._chain.network.genesis_hash == REGTEST.genesis_hash

    # DNS seeds

    def seeds_due(self, now: Instant, there: Iterable[Neighbour]) -> int | None:
        """Return the services to ask DNS seeds for now, or None. Seeds are never asked through a proxy."""
        if self._options.reach is not Reach.DIRECT or not self._chain.network.dns_seeds:
            return None
        useful = sum(each.is_useful for each in there)
        return self._needs if self._seeds.due(now.monotonic, len(self.book), useful, self._options.max_peers) else None

    def seeded(self, answers: Iterable[SeedAnswer], now: Instant) -> None:
        """Handle the answers of the seeds."""
        self._seeds.is_asking = False
        self._due["look"] = 0.0
        port = self._chain.network.default_port
        for answer in answers:
            hosts = list(dict.fromkeys(answer.hosts))
            for host in self._random.sample(hosts, min(len(hosts), MAX_OF_SEED)):
                net = NetId.IPV6 if ":" in host else NetId.IPV4
                if self._is_reachable(host, net):
                    age = self._random.uniform(*_SEED_AGES_S)
                    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
                    self.book.add(address, answer.services, max(0.0, now.wall - age), answer.seed, now.wall)

    # The database

    def take_changes(self, now: Instant) -> tuple[dict[str, KnownAddress | None], list[str] | None]:
        """Return and clear the changes to the address book for the database, and the anchors if they have changed.

        Changes to the book are returned once a minute, or immediately if there are many.
        """
        anchors = None
        if self.anchors != self._written:
            anchors = self._written = list(self.anchors)
        if not self.book.changed or (now.monotonic < self._due["write"] and self.book.changed < _WRITE_AT):
            return {}, anchors
        self._due["write"] = now.monotonic + _WRITE_S
        return self.book.take_changes(), anchors


def discovering(options: Options, chain: HeaderChain, saved: Saved, random: random.Random) -> Discovery | None:
    """Return the discovery of addresses, or None if only named addresses are used."""
    if options.reach is Reach.NAMED:
        return None
    return Discovery(
        options, chain, AddressBook(saved.secret, saved.addresses), saved.anchors, dict(saved.bans), random
    )


def _is_line(error: Exception) -> bool:
    """True if a connection ended without an explanation, so the network rather than the peer may be at fault."""
    return isinstance(error, OSError) or (
        isinstance(error, SessionError) and error.cause in (Cause.LOST, Cause.PING_TIMEOUT)
    )


def _shorten(kept: dict[str, float]) -> None:
    while len(kept) > _MAX_KEPT:
        del kept[next(iter(kept))]
