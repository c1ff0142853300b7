"""Peers and where they may be found: who is connected, who owes an answer, who is dropped, for what and for how long."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum

from spvfilter._dataclass import dataclass, field
from spvfilter.errors import InvalidHeaderError, LieError, ProofError, UselessPeerError
from spvfilter.light.engine.inputs import Connected, Instant
from spvfilter.light.engine.options import Patience
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.events import PeerWarning
from spvfilter.light.lies import Lie
from spvfilter.wire.events import Service
from spvfilter.wire.messages.table import Message

_LIES = (LieError, ProofError, InvalidHeaderError)  # no honest peer does this, and no damaged line makes it look so: checksums are right
_NETWORK, _NETWORK_LIMITED = Service.NETWORK.value, Service.NETWORK_LIMITED.value
COMPACT_FILTERS, BLOOM = Service.COMPACT_FILTERS.value, Service.BLOOM.value  # plain integers: they are compared often
_MAX_FAILURES = 1  # of an address in succession, after which nothing is put off for its sake
_STEADY_S = 45.0  # of a connection that owes nothing, after which an address that failed often gets a chance; doubles with each; ours
_MAX_CHANCES = 10
_LIMITED_DEPTH = 288  # blocks that a pruned node serves (BIP-159)


class PeerState(Enum):
    """Where a peer stands."""

    CONNECTING = "connecting"
    GREETING = "greeting"  # its headers are not known yet
    READY = "ready"
    SUSPECT = "suspect"  # ready, but it owes an answer for longer than others take: they are asked first


@dataclass(eq=False, slots=True)
class Peer:
    """A peer from Connect to its end."""

    number: int
    address: str
    since: float  # when the connection was begun or made
    state: PeerState = PeerState.CONNECTING
    profile: Connected | None = None
    group: str = ""  # peers of one group may be one party
    questions: dict[Hashable, float] = field(default_factory=dict)  # open ones in order, and since when each has made no headway
    services: int = 0  # bits of wire.Service

    def __repr__(self) -> str:
        return f"<Peer {self.number} {self.address} {self.state.value}>"

    @property
    def is_ready(self) -> bool:
        """Whether its headers are known."""
        return self.state in (PeerState.READY, PeerState.SUSPECT)

    def serves(self, service: int) -> bool:
        """Whether it offers a service."""
        return self.services & service != 0

    def has_block(self, depth: int) -> bool:
        """Whether it keeps blocks at this depth below its tip (BIP-159)."""
        return depth < _LIMITED_DEPTH or self.serves(_NETWORK) or not self.serves(_NETWORK_LIMITED)

    def clock_offset(self, now: Instant) -> float:
        """Seconds by which its clock, as it stated it when it connected, is ahead of ours."""
        stated = self.profile.time if self.profile is not None else now.wall
        return stated + now.monotonic - self.since - now.wall

    def silent_for(self, now: float) -> float:
        """For how many seconds a question has made no headway; 0 if none is open."""
        return now - next(iter(self.questions.values()), now)  # the oldest has waited longest

    def made_headway(self, key: Hashable, now: float) -> None:
        """A part of an answer came: the question, and those behind it, have waited from now on.

        What answers a later question excuses no earlier one. Otherwise a peer that withholds a block could look busy for ever.
        """
        is_behind = False
        for each in self.questions:
            is_behind = is_behind or each == key
            if is_behind:
                self.questions[each] = now


@dataclass(slots=True)
class _Place:
    """What is known of an address."""

    next_try: float = 0.0
    failures: int = 0
    chances: int = 0  # given to it since it was last of use
    banned_until: float = 0.0  # seconds since 1970
    was_tried: bool = False  # whether a connection was made, or could not be, in this run
    services: int | None = None


class PeerPool:
    """Connected peers, and addresses to connect to."""

    def __init__(self, addresses: Iterable[str], bans: dict[str, float], most: int, patience: Patience, out: Outbox) -> None:
        self._peers: dict[int, Peer] = {}
        self._places = {address: _Place(banned_until=bans.get(address, 0.0)) for address in addresses}
        self._most = most
        self._patience = patience
        self._out = out
        self._numbers = 0
        self._on_gone: list[Callable[[Peer], object]] = []
        self._on_lie: list[Callable[[Peer], object]] = []
        self.bans_changed = False

    # Who is there

    def __iter__(self) -> Iterator[Peer]:
        """All peers, connected or connecting, oldest first."""
        return iter(list(self._peers.values()))

    def get(self, number: int) -> Peer | None:
        """The peer with this number, unless it is gone."""
        return self._peers.get(number)

    def has(self, peer: Peer) -> bool:
        """Whether a peer is still there."""
        return self._peers.get(peer.number) is peer

    def ready(self, service: int = 0) -> list[Peer]:
        """Peers whose headers are known and that offer a service; those that are not suspect first."""
        prompt = [peer for peer in self._peers.values() if peer.state is PeerState.READY and (not service or peer.services & service)]
        late = [peer for peer in self._peers.values() if peer.state is PeerState.SUSPECT and (not service or peer.services & service)]
        return prompt + late

    def connected(self) -> list[Peer]:
        """Peers with a connection."""
        return [peer for peer in self._peers.values() if peer.state is not PeerState.CONNECTING]

    @property
    def bans(self) -> dict[str, float]:
        """Banned addresses, and until when (seconds since 1970)."""
        return {address: place.banned_until for address, place in self._places.items() if place.banned_until}

    def may_offer(self, service: int, now: Instant) -> bool:
        """Whether an address that is not connected may offer a service: nobody has tried it yet, or it did when it was last there."""
        there = {peer.address for peer in self._peers.values() if peer.state is not PeerState.CONNECTING}
        for address, place in self._places.items():
            if address in there or place.banned_until > now.wall:
                continue
            if not place.was_tried:
                return True
            if place.services is not None and place.services & service and place.failures <= _MAX_FAILURES:
                return True
        return False

    def on_gone(self, call: Callable[[Peer], object]) -> None:
        """Call this with each peer that is gone."""
        self._on_gone.append(call)

    def on_lie(self, call: Callable[[Peer], object]) -> None:
        """Call this with each peer that is banned."""
        self._on_lie.append(call)

    # Connections

    def advance(self, now: Instant) -> None:
        """Begin the connections that are due."""
        if len(self._peers) >= self._most:
            return
        used = {peer.address for peer in self._peers.values()}
        free = [(place.next_try, address) for address, place in self._places.items() if address not in used]
        for next_try, address in sorted(free, key=lambda item: item[0]):
            if len(self._peers) >= self._most:
                return
            if next_try <= now.monotonic and self._places[address].banned_until <= now.wall:
                self._numbers += 1
                self._peers[self._numbers] = Peer(self._numbers, address, now.monotonic)
                self._out.connect(self._numbers, address)

    def next_try(self, now: Instant) -> float | None:
        """When the next connection is due, by the monotonic clock."""
        if len(self._peers) >= self._most:
            return None
        used = {peer.address for peer in self._peers.values()}
        due = [
            max(place.next_try, now.monotonic + place.banned_until - now.wall)
            for address, place in self._places.items()
            if address not in used
        ]
        return min(due, default=None)

    def exhausted(self, now: Instant) -> bool:
        """Whether nobody is there and every address is banned."""
        return not self._peers and all(place.banned_until > now.wall for place in self._places.values())

    def welcome(self, profile: Connected, now: Instant) -> Peer | None:
        """A connection was made; the peer, unless it was given up."""
        peer = self._peers.get(profile.peer)
        if peer is not None:
            peer.state, peer.profile, peer.group = PeerState.GREETING, profile, netgroup(profile.host)
            peer.services = int(profile.services)
            peer.since = now.monotonic
            place = self._places[peer.address]
            place.was_tried, place.services = True, profile.services
        return peer

    def lost(self, number: int, error: Exception, now: Instant) -> None:
        """A connection has ended, or could not be made."""
        peer = self._peers.get(number)
        if peer is not None:
            self._remove(peer, error, now)

    def drop(self, peer: Peer, error: Exception, now: Instant) -> None:
        """End a connection for what the peer did: a proven lie bans its address for a day, anything else means a pause."""
        if self.has(peer):
            self._out.drop(peer.number)
            self._remove(peer, error, now)

    def _remove(self, peer: Peer, error: Exception, now: Instant) -> None:
        del self._peers[peer.number]
        self._out.gone(peer.number)
        place = self._places[peer.address]
        place.was_tried = True
        place.failures = min(place.failures + 1, 64)
        pause = min(self._patience.retry_s * 2.0 ** (place.failures - 1), self._patience.max_retry_s)
        place.next_try = now.monotonic + pause
        lied = is_lie(error)
        if lied:
            place.banned_until = now.wall + self._patience.ban_s
            self.bans_changed = True
        for call in (*self._on_gone, *(self._on_lie if lied else ())):
            call(peer)
        self._out.emit(PeerWarning(peer.address, error, lied))

    def is_reliable(self, peer: Peer) -> bool:
        """Whether connections to its address have not ended again and again without having been of use."""
        return self._places[peer.address].failures <= _MAX_FAILURES

    def did_well(self, peer: Peer) -> None:
        """It was of use: if its connection ends, it is tried again soon."""
        place = self._places[peer.address]
        place.failures = place.chances = 0

    # Questions

    def ask(self, peer: Peer, key: Hashable, now: Instant, *messages: Message) -> None:
        """Send messages that the peer owes an answer to, until `answered` is called with the same key."""
        peer.questions.setdefault(key, now.monotonic)
        for message in messages:
            self._out.send(peer.number, message)

    def answered(self, peer: Peer, key: Hashable, now: Instant) -> None:
        """The peer has answered a question."""
        self.heard(peer, key, now)
        peer.questions.pop(key, None)

    def heard(self, peer: Peer, key: Hashable, now: Instant) -> None:
        """A part of an answer came."""
        if key not in peer.questions:
            return
        peer.made_headway(key, now.monotonic)
        if peer.state is PeerState.SUSPECT and peer.silent_for(now.monotonic) < self._patience.stall_s:
            peer.state = PeerState.READY

    def excuse(self, now: Instant) -> None:
        """Let every peer's questions begin anew."""
        for peer in self._peers.values():
            peer.questions = dict.fromkeys(peer.questions, now.monotonic)
            if peer.state is PeerState.SUSPECT:
                peer.state = PeerState.READY

    def check_patience(self, now: Instant) -> None:
        """Drop peers that have been silent for too long, suspect those that may become so, trust again those that have become steady."""
        for peer in self:
            silent = peer.silent_for(now.monotonic)
            place = self._places[peer.address]
            is_steady = peer.state is PeerState.READY and not silent and now.monotonic - peer.since >= _STEADY_S * 2.0**place.chances
            if is_steady and place.failures > _MAX_FAILURES:
                place.failures = _MAX_FAILURES
                place.chances = min(place.chances + 1, _MAX_CHANCES)
            if silent >= self._patience.reply_s:
                self.drop(peer, UselessPeerError(f"no answer for {silent:.1f} s"), now)
            elif silent >= self._patience.stall_s and peer.state is PeerState.READY:
                peer.state = PeerState.SUSPECT
                if place.chances and place.failures == _MAX_FAILURES:
                    place.failures += 1  # that was its chance

    @property
    def owes(self) -> bool:
        """Whether any peer owes an answer."""
        return any(peer.questions for peer in self._peers.values())


_UNPROVEN = frozenset((Lie.WITHHELD_TX, Lie.BLOCK_OUT_OF_ORDER, Lie.UNASKED_TX, Lie.UNPROVED_TX, Lie.FILTERED_OUT_TX))


def is_lie(error: Exception) -> bool:
    """Whether an error proves that a peer lied.

    A message may be lost on the way: a byte flipped in its command makes it one that nobody knows. What is missing, or looks wrong for lack
    of another message, proves nothing.
    """
    return isinstance(error, _LIES) and not (isinstance(error, LieError) and error.cause in _UNPROVEN)


def netgroup(host: str) -> str:
    """The part of a host's address that one party is likely to own as a whole: /16 of IPv4, /32 of IPv6, all onion addresses together.

    A host name, as a proxy resolves it, is a group of its own (Core netgroup.cpp, without its map of autonomous systems).
    """
    if host.endswith(".onion"):
        return "onion"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    if address.version == 6:
        mapped = address.ipv4_mapped
        if mapped is None:
            return str(ipaddress.ip_network((address, 32), strict=False))
        address = mapped
    return str(ipaddress.ip_network((address, 16), strict=False))


def independent(peers: Iterable[Peer]) -> int:
    """The number of network groups among peers."""
    return len({peer.group for peer in peers})
