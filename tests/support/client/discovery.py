"""An engine that discovers peers, step by step, with one named peer that is ready."""

from __future__ import annotations

from spvfilter.light.engine.addressbook import AddressBook
from spvfilter.light.engine.effects import Connect, Effect
from spvfilter.light.engine.inputs import Heard, Instant, PeerConnected, Seeded
from spvfilter.light.engine.options import Options, Reach
from spvfilter.light.events import Mode
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId, PeerAddress
from spvfilter.wire.transport import V2Policy
from support.client.swarm import START, WITH_FILTERS, Client, Swarm

NAMED = "198.51.100.1:8333"
DAY = 86_400


def book_of(made: Client) -> AddressBook:
    return made.engine.pool.discovery.book  # type: ignore[union-attr]


def told(
    text: str, *, port: int = 8333, services: int = WITH_FILTERS, time: int = START - 60, net: int = NetId.IPV4
) -> PeerAddress:
    return PeerAddress(time, services, net, bytes(map(int, text.split("."))), port)


class Run:
    """An engine with one named peer that is ready, step by step."""

    def __init__(
        self,
        mode: Mode = Mode.COMPACT,
        reach: Reach = Reach.DIRECT,
        *,
        seeds: bool = False,
        v2: V2Policy = V2Policy.OFF,
    ) -> None:
        self.client = Client(Swarm(1), named=[NAMED], mode=mode)
        self.client.options = Options(mode=mode, reach=reach, v2=v2)
        self.engine = self.client.make()
        self.now = Instant(0.0, float(START))
        self.effects = self.engine.start(self.now)
        if not seeds:
            self.effects += self.engine.step(Seeded(()), self.now)
        (number,) = [each.peer for each in self.effects if isinstance(each, Connect)]
        self.peer = number
        self.effects += self.do(PeerConnected(number, "198.51.100.1", 0x84D, 0, True, True, "/x/", START))
        self.effects += self.do(Heard(number, wire.Headers(())))

    def do(self, event: object, after: float = 0.0) -> list[Effect]:
        self.now = Instant(self.now.monotonic + after, self.now.wall + after)
        return self.engine.step(event, self.now)  # type: ignore[arg-type]  # an input

    def tell(self, *told_: PeerAddress, after: float = 0.0) -> list[Effect]:
        return self.do(Heard(self.peer, wire.AddrV2(told_)), after)

    @property
    def known(self) -> set[str]:
        discovery = self.engine.pool.discovery
        return set(discovery.book.entries) if discovery is not None else set()
