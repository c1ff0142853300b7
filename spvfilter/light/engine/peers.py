"""PeerPool: connected peers and the outstanding requests to them, and addresses to connect to, with pauses and bans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf

from spvfilter.errors import SessionError, UselessPeerError
from spvfilter.light.engine.addresses import Discovery, DismissedError, IdleError, Neighbour, Purpose
from spvfilter.light.engine.addressstates import AddressState, limit_bans
from spvfilter.light.engine.demands import PROMPT_S, Demand
from spvfilter.light.engine.inputs import Instant, PeerConnected, SeedAnswer
from spvfilter.light.engine.netgroups import NAMES, dialling_group, host_of, netgroup, port_of
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.outboundslots import OutboundSlot, OutboundSlots
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.light.lies import is_lie
from spvfilter.protocol import MAX_MONEY
from spvfilter.store.addresses import KnownAddress
from spvfilter.wire.events import Cause, Service
from spvfilter.wire.messages.addresses import PeerAddress
from spvfilter.wire.messages.table import GetAddr, Message
from spvfilter.wire.transport import V2Policy

_NETWORK, _NETWORK_LIMITED = Service.NETWORK.value, Service.NETWORK_LIMITED.value
COMPACT_FILTERS, BLOOM = (
    Service.COMPACT_FILTERS.value,
    Service.BLOOM.value,
)  # plain integers, since they are compared often
_MAX_GROUPS = 1_000  # Groups of discovered addresses with failures that are kept in memory (our choice).
LIMITED_DEPTH = 288  # Blocks that a pruned node serves (BIP-159).

QUIET_S = 90.0
"""Seconds without a message after which a peer is pinged (our choice).

Sessions ping 120 seconds after their last ping, so they rarely add pings of their own.
"""


_NEVER = Instant(0.0, 0.0)
MAX_SLOT_RETRY_S = 20.0
"""Longest pause before bip37 mode retries a named peer that closed the connection (our choice)."""
_CLOSED = (Cause.LOST, Cause.LOST_AFTER_VERSION)


class PeerState(Enum):
    """State of a connection to a peer."""

    CONNECTING = "connecting"
    GREETING = "greeting"
    """The peer is connected, but its headers are not known yet."""
    READY = "ready"
    SUSPECT = "suspect"
    """The peer is ready, but has taken too long to answer, so others are asked first."""


@dataclass(eq=False, slots=True)
class Peer:
    """A peer, from the Connect effect to the end of its connection."""

    number: int
    address: str
    since: float
    """When the connection was started or made."""
    state: PeerState = PeerState.CONNECTING
    profile: PeerConnected | None = None
    group: str = ""
    """Network group. Peers in one group may have the same operator."""
    questions: dict[Hashable, float] = field(default_factory=dict)
    """Outstanding requests, oldest first, and when the answer to each last made progress (monotonic seconds)."""
    turn: float = 0.0
    """When the oldest outstanding request became the oldest (monotonic seconds)."""
    services: int = 0
    """Bits of wire.Service."""
    purpose: Purpose = Purpose.NAMED
    fee_filter: int | None = None
    """Rate in satoshi per kvB below which the peer refuses transactions; None if it has not sent a feefilter."""
    heard: Instant = _NEVER
    """Time of the peer's last message, once it is connected."""
    is_pinged: bool = False
    """True if it was pinged because it has been quiet since its last message."""
    relays: bool = False
    """True if the peer was asked to announce transactions."""
    demands: dict[Demand, float] = field(default_factory=dict)
    """Demands that the peer has not answered, oldest first, with the time of each (monotonic seconds)."""

    def __repr__(self) -> str:
        return f"<Peer {self.number} {self.address} {self.state.value}>"

    @property
    def is_ready(self) -> bool:
        """True if the headers of the peer are known."""
        return self.state in (PeerState.READY, PeerState.SUSPECT)

    def serves(self, service: int) -> bool:
        """True if the peer offers a service."""
        return self.services & service != 0

    def has_block(self, depth: int) -> bool:
        """True if the peer keeps blocks at this depth below its tip (BIP-159)."""
        return depth < LIMITED_DEPTH or self.serves(_NETWORK) or not self.serves(_NETWORK_LIMITED)

    def clock_ahead(self, now: Instant) -> float:
        """Return the peer's clock minus our monotonic clock in seconds, a constant taken from its version message."""
        stated = self.profile.time if self.profile is not None else now.wall
        return stated - self.since

    def limit_fee(self, rate: int) -> None:
        """Set the rate below which the peer refuses transactions (BIP-133). Ignore an impossible rate, as Core does."""
        if 0 <= rate <= MAX_MONEY:
            self.fee_filter = rate

    def silent_for(self, now: float) -> float:
        """Return the seconds since the outstanding requests last made progress; 0 if there are none."""
        return now - next(iter(self.questions.values()), now)  # the oldest has waited longest

    def quiet_for(self, now: Instant) -> float:
        """Return the seconds since the peer's last message, by whichever clock shows more.

        The monotonic clock may stand still while the machine sleeps. The wall clock may be changed.
        """
        return max(now.monotonic - self.heard.monotonic, now.wall - self.heard.wall)

    def is_late(self, now: float, timeouts: PeerTimeouts) -> bool:
        """True if the peer has taken too long to answer, because it is silent or sends the answer in small pieces."""
        return self.silent_for(now) >= timeouts.stall_s or (
            bool(self.questions) and now - self.turn >= timeouts.answer_s
        )

    def made_headway(self, key: Hashable, now: float) -> None:
        """Record that part of an answer has arrived, which restarts the waiting time of this request and of later ones.

        An answer to a later request does not excuse an earlier one. Otherwise, a peer that withholds a block could look
        busy forever.
        """
        if self.questions.get(key) == now:
            # Later requests have this time already: usually, another part arrived together with this one.
            return
        is_behind = False
        for each in self.questions:
            is_behind = is_behind or each == key
            if is_behind:
                self.questions[each] = now


class PeerPool:
    """Connected peers, and the addresses to connect to: the user's, and the choices of `discovery`, if any."""

    def __init__(
        self,
        addresses: Iterable[str],
        bans: dict[str, float],
        most: int,
        timeouts: PeerTimeouts,
        out: Outbox,
        discovery: Discovery | None = None,
        disputing: Callable[[], Sequence[str]] = list,
        v2: V2Policy = V2Policy.OFF,
        mode: Mode = Mode.AUTO,
        *,
        mempool: bool = True,
    ) -> None:
        """`disputing` returns the addresses of peers that contradict our filter headers, the most important first."""
        self._v2 = v2
        self._mode = mode
        self._wants_relay = mempool and mode is not Mode.BIP37  # Loading a BIP-37 filter asks for announcements later.
        self._peers: dict[int, Peer] = {}
        # and of others while connected
        self._states = {address: AddressState(banned_until=bans.get(address, 0.0)) for address in addresses}
        self._named_addresses = tuple(self._states)
        self._groups: dict[str, AddressState] = {}  # states of discovered addresses, by dialling group
        self.discovery = discovery
        self._bans = (
            discovery.bans if discovery is not None else bans
        )  # including bans of addresses that the user did not name
        self._slots = OutboundSlots(most, disputing)
        self._timeouts = timeouts
        self._out = out
        self._numbers = 0
        self._lists: dict[
            int | None, tuple[Peer, ...]
        ] = {}  # ready peers by service; the None key contains the connected peers
        self._on_gone: list[Callable[[Peer], object]] = []
        self._on_lie: list[Callable[[Peer], object]] = []
        self.bans_changed: bool = False
        self.last_heard: Instant | None = None
        """Time of the last message of any peer in this run."""

    # Connected peers

    def __iter__(self) -> Iterator[Peer]:
        """All peers, connected or connecting, oldest first."""
        return iter(list(self._peers.values()))

    def get(self, number: int) -> Peer | None:
        """Return the peer with this number, or None if it is gone."""
        return self._peers.get(number)

    def has(self, peer: Peer) -> bool:
        """True if a peer is still connected or connecting."""
        return self._peers.get(peer.number) is peer

    def ready(self, service: int = 0) -> tuple[Peer, ...]:
        """Return the ready peers that offer a service, suspect peers last."""
        found = self._lists.get(service)
        if found is None:
            able = [peer for peer in self._peers.values() if peer.is_ready and (not service or peer.services & service)]
            able.sort(key=lambda peer: peer.state is PeerState.SUSPECT)
            found = self._lists[service] = tuple(able)
        return found

    def connected(self) -> tuple[Peer, ...]:
        """Return the connected peers. The tuple is the same object until a peer comes, goes, or changes its state."""
        found = self._lists.get(None)
        if found is None:
            found = self._lists[None] = tuple(
                peer for peer in self._peers.values() if peer.state is not PeerState.CONNECTING
            )
        return found

    def move(self, peer: Peer, state: PeerState) -> None:
        """Change the state of a peer. No other code changes it."""
        if peer.state is PeerState.GREETING and state is PeerState.READY:
            self.grant(peer, Demand.RELAY)
        peer.state = state
        self._lists.clear()

    def _peers_changed(self) -> None:
        """Forget what depends on the set of peers, which has changed."""
        self._lists.clear()
        self._slots.mark_stale()

    @property
    def bans(self) -> dict[str, float]:
        """Ends of bans (Unix time), keyed by address."""
        return self._bans | {
            address: state.banned_until for address, state in self._states.items() if state.banned_until
        }

    def may_offer_filters(self, now: Instant) -> bool:
        """True if an unconnected address may serve compact filters: it did when last connected, or is untried."""
        there = {peer.address for peer in self._peers.values() if peer.state is not PeerState.CONNECTING}
        others = {peer.address for peer in self._peers.values() if peer.purpose is not Purpose.NAMED}
        for address, state in self._states.items():
            if (
                address not in there
                and address not in others
                and state.twin not in there
                and state.may_offer(COMPACT_FILTERS, now.wall)
            ):
                return True
        discovery = self.discovery
        return discovery is not None and discovery.may_offer_filters(others - there, self._neighbours(discovery), now)

    def named_groups(self) -> set[str]:
        """Return the network groups of the addresses that the user named. An unresolved host name counts as one."""
        hosts = (self._states[address].host or host_of(address) for address in self._named_addresses)
        return {host.lower() if (group := netgroup(host)) == NAMES else group for host in hosts}

    def on_gone(self, call: Callable[[Peer], object]) -> None:
        """Register a function to call with each peer that is gone."""
        self._on_gone.append(call)

    def on_lie(self, call: Callable[[Peer], object]) -> None:
        """Register a function to call with each peer that is banned."""
        self._on_lie.append(call)

    # Connections

    def advance(self, now: Instant) -> None:
        """Start connections that are due, and end connections that are no longer needed."""
        for peer in self.connected():
            if not peer.questions and self._relay_at(peer) <= now.monotonic:
                self.drop(peer, DismissedError("reconnecting to ask for transactions"), now)
        while self._named().free and self._begin_named(now):
            pass
        discovery = self.discovery
        if discovery is None:
            return
        there = self._neighbours(discovery)
        for address, purpose in discovery.choose(now, there, self._named_addresses, self._slots.disputing()):
            self._states[address] = self._groups.setdefault(dialling_group(host_of(address)), AddressState())
            while len(self._groups) > _MAX_GROUPS:
                del self._groups[next(iter(self._groups))]
            self._begin(address, purpose, now)
        dismissed, kept = discovery.review(now, there)
        for number in kept:
            self._peers[number].purpose = Purpose.DISCOVERED
        for number in dismissed:
            self.drop(self._peers[number], DismissedError("enough other peers are connected"), now)
        services = discovery.seeds_due(now, there)
        if services is not None:
            self._out.ask_seeds(services)

    def _begin_named(self, now: Instant) -> bool:
        """Connect to a named address if a slot is free, or if the address is worth more than a connected one.

        In the second case, `settle` drops another connection later. Returns True if it has started to connect.
        """
        slots = self._named()
        chosen = (
            slots.choose(due)
            if (due := [each for each in slots.free if self._due(each, now) <= now.monotonic])
            else None
        )
        if chosen is not None:
            self._begin(chosen.address, Purpose.NAMED, now)
        return chosen is not None

    def _due(self, slot: OutboundSlot, now: Instant) -> float:
        """Return when to connect to a named address (monotonic seconds)."""
        return self._states[slot.address].due(now, is_full=self._slots.is_full)

    def try_another(self, now: Instant) -> bool:
        """Connect to one more named address than the limit allows: the one tried least recently.

        Returns True if there is such an address. `settle` drops a connection later.
        """
        return self._begin_instead(now, lambda state: True)

    def make_room(self, service: int, now: Instant) -> None:
        """If all slots are in use, drop a named peer that lacks a service which another address may offer."""
        named = [peer for peer in self._peers.values() if peer.purpose is Purpose.NAMED]
        lacking = [peer for peer in named if not peer.serves(service)]
        if (
            lacking
            and all(peer.is_ready for peer in named)
            and self._begin_instead(now, lambda state: state.may_offer(service, now.wall))
        ):
            self.drop(
                lacking[-1], IdleError("making room for a node that may offer a service that this one lacks"), now
            )

    def _begin_instead(self, now: Instant, is_wanted: Callable[[AddressState], bool]) -> bool:
        """Start connecting to a named address although all slots are in use.

        Returns False if there is no such address, or if the limit has already been exceeded.
        """
        slots = self._named()
        due = [
            each
            for each in slots.free
            if self._due(each, now) <= now.monotonic and is_wanted(self._states[each.address])
        ]
        if not due or not slots.is_full:
            return False
        self._begin(min(due, key=lambda each: each.since).address, Purpose.NAMED, now)
        return True

    def settle(self, service: int, now: Instant, is_behind: Callable[[Peer], bool] = lambda peer: False) -> None:
        """Drop a named peer if there are more of them than the limit allows, and the newest is ready.

        Peers that lack a service, or that are behind the best chain, are dropped first.
        """
        if len(self._peers) <= self._slots.most:
            return
        named = [peer for peer in self._peers.values() if peer.purpose is Purpose.NAMED]
        if len(named) > self._slots.most and named[-1].is_ready:
            useful = {peer.address for peer in self.ready(service) if not is_behind(peer)}
            address = self._named().excess(useful).address
            kind = DismissedError if address in useful else IdleError
            self.drop(
                next(peer for peer in named if peer.address == address), kind("enough other peers are connected"), now
            )

    def _named(self) -> OutboundSlots:
        """Named addresses, with and without a connection. `since` of a free slot is when its address may be tried."""
        if self._slots.is_stale:
            used = {peer.address for peer in self._peers.values()}
            free = [
                (address, state)
                for address, state in self._states.items()
                if address not in used and state.twin not in used
            ]
            self._slots.set(
                [
                    self._slot(peer.address, peer.since)
                    for peer in self._peers.values()
                    if peer.purpose is Purpose.NAMED
                ],
                [self._slot(address, state.next_try) for address, state in free],
            )
        return self._slots

    def _slot(self, address: str, since: float) -> OutboundSlot:
        host = self._states[address].host or host_of(address)
        return OutboundSlot(address, host, host.lower() if (group := netgroup(host)) == NAMES else group, since)

    def _begin(self, address: str, purpose: Purpose, now: Instant) -> None:
        number = self.take_number()
        peer = self._peers[number] = Peer(number, address, now.monotonic, purpose=purpose)
        self._peers_changed()
        if self._wants_relay and not self.refuses(peer, Demand.RELAY, now):
            self.demand(peer, Demand.RELAY, now)
        self._out.connect(number, address, v2=self.v2_policy(address), relay=peer.relays)

    def v2_policy(self, address: str) -> V2Policy:
        """Return whether to encrypt a connection. An address that the user did not name must offer encryption."""
        if self._v2 is not V2Policy.PREFER or address in self._named_addresses:
            return self._v2
        is_offered = self.discovery is not None and self.discovery.offers_v2(address)
        return V2Policy.PREFER if is_offered else V2Policy.OFF

    def take_number(self) -> int:
        """Return a number that no connection has had before."""
        self._numbers += 1
        return self._numbers

    def stranger(self, tried: Collection[str], now: Instant, *, is_proxied: bool) -> str | None:
        """Return an address for a private connection, or None.

        It is not in `tried`, and its host is not connected. Through a proxy, a connected host is a last resort, because
        the new connection comes from another address.
        """
        hosts = {host_of(peer.address) for peer in self._peers.values()} | {
            peer.profile.host for peer in self.connected() if peer.profile
        }
        named = [
            each for each in self._named_addresses if each not in tried and self._states[each].banned_until <= now.wall
        ]
        found = next((each for each in named if host_of(each) not in hosts), None)
        if found is None and self.discovery is not None:
            found = self.discovery.stranger(now, self._neighbours(self.discovery), (*tried, *self._named_addresses))
        return next(iter(named), None) if found is None and is_proxied else found

    def has_substitute(self, peer: Peer, now: Instant) -> bool:
        """True if the client can connect to an address that is not banned, but only once this peer is gone."""
        if len(self._peers) < self._slots.most:
            return False
        if peer.purpose is Purpose.NAMED:
            return any(self._states[each.address].banned_until <= now.wall for each in self._named().free)
        assert self.discovery is not None
        others = [each for each in self._neighbours(self.discovery) if each.number != peer.number]
        return self.discovery.stranger(now, others, (peer.address, *self._named_addresses)) is not None

    def has_host(self, host: str) -> bool:
        """True if a host is connected."""
        return any(peer.profile is not None and peer.profile.host == host for peer in self._peers.values())

    def _neighbours(self, discovery: Discovery) -> list[Neighbour]:
        def neighbour(peer: Peer) -> Neighbour:
            host = peer.profile.host if peer.profile is not None else host_of(peer.address)
            is_useful = peer.is_ready and discovery.serves(peer.services)
            is_usual = peer.purpose is Purpose.DISCOVERED or (
                peer.purpose is Purpose.NAMED and (is_useful or not peer.is_ready)
            )
            is_connected = peer.profile is not None
            return Neighbour(
                peer.number, peer.address, host, peer.purpose, peer.since, is_connected, is_useful, is_usual
            )

        return list(map(neighbour, self._peers.values()))

    def next_try(self, now: Instant) -> float | None:
        """Return when the next connection is due (monotonic seconds), or None if none is."""
        slots = self._named()
        due = [self._due(each, now) for each in slots.taking(slots.free)]
        if self.discovery is not None:
            due.append(self.discovery.next_at(now, self._neighbours(self.discovery)))
        due += [at for peer in self.connected() if now.monotonic < (at := self._relay_at(peer)) < inf]
        return min(due, default=None)

    def exhausted(self, now: Instant) -> bool:
        """True if there is no peer and every address is banned."""
        return (
            self.discovery is None
            and not self._peers
            and all(state.banned_until > now.wall for state in self._states.values())
        )

    def welcome(self, profile: PeerConnected, now: Instant) -> Peer | None:
        """Record a new connection. Return the peer, or None if the connection is no longer needed."""
        peer = self._peers.get(profile.peer)
        if peer is not None:
            peer.profile, peer.group, peer.services = profile, netgroup(profile.host), int(profile.services)
            self.move(peer, PeerState.GREETING)
            took_s, peer.since = now.monotonic - peer.since, now.monotonic
            state = self._states[peer.address]
            state.was_tried, state.services, state.twin, state.host = True, profile.services, None, profile.host
            self._peers_changed()
            self.spoke(peer, now)
            reason = self._reason_to_leave(peer, profile, took_s, now)
            if reason is not None:
                self.drop(peer, reason, now)
                return None
            if self.discovery is not None:
                self._out.send(peer.number, GetAddr())
        return peer

    def _reason_to_leave(self, peer: Peer, profile: PeerConnected, took_s: float, now: Instant) -> Exception | None:
        """Return why a new connection is not needed, or None. A node with several names gets only one connection."""
        for other in self.connected():
            assert other.profile is not None
            if other is peer or other.profile.host != profile.host:
                continue
            if peer.purpose is not Purpose.NAMED:
                return DismissedError(f"the host of {other.address}")
            if other.purpose is not Purpose.NAMED:
                self.drop(other, DismissedError(f"the host of {peer.address}"), now)
            elif port_of(other.address) == port_of(peer.address):
                self._states[peer.address].twin = other.address
                return UselessPeerError(f"the same node as {other.address}")
        if self.discovery is None:
            return None
        return self.discovery.welcome(peer.purpose, peer.address, profile, took_s, now)

    def lost(self, number: int, error: Exception, now: Instant) -> None:
        """Record that a connection has ended, or could not be made."""
        peer = self._peers.get(number)
        if peer is not None:
            self._remove(peer, error, now)

    def drop(self, peer: Peer, error: Exception, now: Instant) -> None:
        """End a connection. After a proven lie, the peer's address is banned for a day; otherwise, it is paused."""
        if self.has(peer):
            self._out.drop(peer.number, error)
            self._remove(peer, error, now)

    def _remove(self, peer: Peer, error: Exception, now: Instant) -> None:
        del self._peers[peer.number]
        self._lists.clear()
        self._out.gone(peer.number)
        state = self._states[peer.address]
        demand = _unanswered_demand(peer, error, now)
        is_failure = not isinstance(error, DismissedError) and (
            peer.purpose is Purpose.NAMED or peer.profile is not None
        )
        if demand is not None and self._can_avoid(demand):  # but it is a failure if the demand was made nevertheless
            is_failure = state.refusals.is_refused(demand, now.monotonic)
        told = error
        if demand is not None and state.refusals.close(demand, now.monotonic):
            told = self._refusal(demand)
        is_idle = isinstance(error, IdleError)
        state.left(now.monotonic, self._slot_timeouts(peer, error), is_failure=is_failure, is_idle=is_idle)
        lied = is_lie(error)
        until = now.wall + self._timeouts.ban_s if lied else 0.0
        if lied and peer.purpose is Purpose.NAMED:
            state.banned_until = until
            if self.discovery is not None and peer.profile is not None:  # also by another name
                self.discovery.ban(f"{peer.profile.host}:0", until)
        self.bans_changed = self.bans_changed or lied
        for call in (*self._on_gone, *(self._on_lie if lied else ())):
            call(peer)
        if self.discovery is not None:
            self.discovery.ended(peer.number, peer.purpose, peer.address, error, until, now.monotonic - peer.since, now)
        if peer.address not in self._named_addresses:
            del self._states[peer.address]
        self._peers_changed()
        if self._is_told(peer, error):
            self._out.emit(PeerWarning(peer.address, told, lied))

    def _slot_timeouts(self, peer: Peer, error: Exception) -> PeerTimeouts:
        """Return the pauses before a peer is tried again. They are short if it closed the connection and is needed.

        bip37 mode needs its named peers, and one of their slots may soon be free.
        """
        is_closed = isinstance(error, SessionError) and error.cause in _CLOSED
        if self._mode is not Mode.BIP37 or peer.purpose is not Purpose.NAMED or not is_closed:
            return self._timeouts
        return replace(self._timeouts, max_retry_s=min(self._timeouts.max_retry_s, MAX_SLOT_RETRY_S))

    def _is_told(self, peer: Peer, error: Exception) -> bool:
        """True if the end of a connection is to be reported.

        The end of a discovered connection is reported if it was in use, or if no other peer is connected.
        """
        if peer.purpose is Purpose.NAMED:
            return not isinstance(error, DismissedError)
        is_of_use = peer.profile is not None or not self.connected()
        return is_of_use and peer.purpose is not Purpose.FEELER and not isinstance(error, DismissedError)

    # Demands

    def demand(self, peer: Peer, demand: Demand, now: Instant) -> None:
        """Record that a demand was sent to the peer, which may close the connection instead of answering."""
        peer.demands.setdefault(demand, now.monotonic)
        peer.relays = peer.relays or demand is Demand.RELAY

    def grant(self, peer: Peer, demand: Demand) -> None:
        """Record that the peer has answered a demand, if it got one."""
        if demand in peer.demands:
            del peer.demands[demand]
            self._states[peer.address].refusals.grant(demand)

    def refuses(self, peer: Peer, demand: Demand, now: Instant) -> bool:
        """True if the client should not make this demand of the peer, because the node would close the connection."""
        return self._can_avoid(demand) and self._states[peer.address].refusals.is_refused(demand, now.monotonic)

    def _can_avoid(self, demand: Demand) -> bool:
        """True if the client can do without this demand. BIP-37 mode needs filters and filtered blocks."""
        return self._mode is not Mode.BIP37 or demand is Demand.MEMPOOL

    def _relay_at(self, peer: Peer) -> float:
        """Return when to ask a peer for transactions if it was not asked before; infinity if that is unnecessary."""
        if not self._wants_relay or peer.relays or peer.state is not PeerState.READY or peer.purpose is Purpose.FEELER:
            return inf
        return self._states[peer.address].refusals.until.get(Demand.RELAY, inf)

    def _refusal(self, demand: Demand) -> UselessPeerError:
        """Return the error that names a refused demand and its consequence."""
        match demand:
            case Demand.RELAY if self._mode is not Mode.BIP37:
                advice = (
                    "for 10 minutes, the client does not ask it for any, so you learn of its payments only from blocks"
                )
            case Demand.BLOCKS if self._mode is not Mode.BIP37:
                advice = "for 10 minutes, the client asks it only for other blocks"
            case Demand.MEMPOOL:
                advice = "for at least a minute, the client asks it only for new transactions"
            case _:
                advice = "name other peers, or use compact mode"
        return UselessPeerError(f"{demand.value}; {advice}")

    def is_reliable(self, peer: Peer) -> bool:
        """True unless connections to the peer's address have repeatedly ended without being useful."""
        return self._states[peer.address].is_reliable

    def served_filters(self, peer: Peer) -> None:
        """Record that the peer has sent compact filters."""
        self.did_well(peer)
        if self.discovery is not None:
            self.discovery.served_filters()

    def did_well(self, peer: Peer) -> None:
        """Record that the peer was useful: if its connection ends, its address is soon tried again."""
        state = self._states[peer.address]
        state.failures = state.chances = 0
        if self.discovery is not None:
            self.discovery.book.did_well(peer.address)

    # Addresses

    def want(self, services: int) -> None:
        """Prefer addresses of peers that offer these services, which the search needs."""
        if self.discovery is not None:
            self.discovery.want(services)

    def told(self, peer: Peer, addresses: Sequence[PeerAddress], now: Instant) -> None:
        """Handle addresses that a peer has announced."""
        if self.discovery is not None and peer.profile is not None:
            self.discovery.heard(peer.number, peer.profile.host, addresses, now)

    def take_changes(self, now: Instant) -> tuple[dict[str, KnownAddress | None], list[str] | None]:
        """Return and clear the changes to the address book for the database, and the anchors if they have changed."""
        return self.discovery.take_changes(now) if self.discovery is not None else ({}, None)

    def seeded(self, answers: Sequence[SeedAnswer], now: Instant) -> None:
        """Handle the DNS seeds' answers. Warn about failed seeds, and end the client if there is no address at all."""
        if self.discovery is None:
            return
        self.discovery.seeded(answers, now)
        for answer in answers:
            if answer.error is not None:
                self._out.emit(PeerWarning(answer.seed, answer.error, False))
        if not self._peers and not self._states and not len(self.discovery.book):
            self._out.end(
                UselessPeerError("no DNS seed returned an address: check the Internet connection, or name a node")
            )

    # Requests

    def ask(self, peer: Peer, key: Hashable, now: Instant, *messages: Message) -> None:
        """Send messages that the peer must answer. The request is outstanding until `answered` gets the same key."""
        if not peer.questions:
            peer.turn = now.monotonic
        peer.questions.setdefault(key, now.monotonic)
        for message in messages:
            self._out.send(peer.number, message)

    def answered(self, peer: Peer, key: Hashable, now: Instant) -> None:
        """Record that the peer has answered a request in full."""
        if next(iter(peer.questions), None) == key:
            peer.turn = now.monotonic
        self.heard(peer, key, now)
        peer.questions.pop(key, None)

    def heard(self, peer: Peer, key: Hashable, now: Instant) -> None:
        """Record that part of an answer has arrived."""
        if key not in peer.questions:
            return
        peer.made_headway(key, now.monotonic)
        if peer.state is PeerState.SUSPECT and not peer.is_late(now.monotonic, self._timeouts):
            self.move(peer, PeerState.READY)

    def spoke(self, peer: Peer, now: Instant) -> None:
        """Record that a peer has sent a valid message of any kind."""
        peer.heard, peer.is_pinged, self.last_heard = now, False, now

    def next_ping(self) -> float:
        """Return when the next ping to a quiet peer is due (monotonic seconds); infinity if none is."""
        return min((self._ping_at(peer) for peer in self.connected()), default=inf)

    def _ping_at(self, peer: Peer) -> float:
        pause_s = min(QUIET_S, self._timeouts.silence_s / 2)
        return inf if peer.is_pinged else peer.heard.monotonic + pause_s

    def ping_quiet(self, now: Instant) -> None:
        """Ping peers that have been quiet for a while. Their pongs count as messages.

        A machine that was asleep may have missed blocks, so quiet time by the wall clock counts as well.
        """
        for peer in self.connected():
            has_slept = peer.quiet_for(now) >= self._timeouts.silence_s
            if not peer.is_pinged and (has_slept or now.monotonic >= self._ping_at(peer)):
                peer.is_pinged = True
                self._out.fence(peer.number, lambda: None)

    def check_timeouts(self, now: Instant) -> None:
        """Drop peers that do not answer, mark late ones as suspect, and record which connections have lasted."""
        limit_bans(self._states.values(), self._bans, now.wall + self._timeouts.ban_s)
        for peer in self:
            silent = peer.silent_for(now.monotonic)
            state = self._states[peer.address]
            if peer.state is PeerState.READY and not silent:
                state.lasts(now.monotonic - peer.since)
            if silent >= self._timeouts.reply_s:
                self.drop(peer, UselessPeerError(f"no answer for {silent:.1f} s"), now)
            elif peer.is_late(now.monotonic, self._timeouts) and peer.state is PeerState.READY:
                self.move(peer, PeerState.SUSPECT)
                state.is_late()


def _unanswered_demand(peer: Peer, error: Exception, now: Instant) -> Demand | None:
    """Return the demand that made a peer close the connection, or None if the connection ended for another reason."""
    if not isinstance(error, SessionError) or error.cause not in _CLOSED:
        return None
    demand, at = next(iter(peer.demands.items()), (None, 0.0))
    if error.cause is Cause.LOST_AFTER_VERSION:
        return demand
    is_prompt = peer.profile is not None and now.monotonic - max(at, peer.since) <= PROMPT_S
    return demand if is_prompt else None
