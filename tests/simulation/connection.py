"""The client's end of a simulated connection: a wire.Session over pipes. Its results become inputs of the engine."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from simulation.node import Node
from simulation.pipe import Pipe
from simulation.timeline import Timeline, Timer
from spvfilter.light.engine.inputs import Input, Lost, PeerConnected, inputs_of
from spvfilter.network import REGTEST
from spvfilter.wire.events import Ready, Received, ReceivedFilters, Role, SessionEnded, Settings
from spvfilter.wire.messages.table import LIMITS, Message, command_of
from spvfilter.wire.session import Session
from spvfilter.wire.transport import V2Policy
from spvfilter.wire.v2 import V2Stream


class Connection:
    """A connection, from the moment the line exists until it ends. `report` takes the events; it may end the
    connection.
    """

    def __init__(
        self,
        number: int,
        node: Node,
        settings: Settings,
        timeline: Timeline,
        rng: random.Random,
        wall: float,
        keep: Callable[[str, bytes], None],
        report: Callable[[Input], None],
        v2: V2Policy = V2Policy.OFF,
    ) -> None:
        self.number = number
        self.node = node
        self.is_open = True
        self.is_dead = False  # half-open
        self.since = timeline.now
        self.heard_at = timeline.now  # when bytes last arrived
        self.sent: Counter[str] = Counter()
        self._timeline = timeline
        self._keep = keep  # takes the bytes sent
        self._report = report
        self._tokens: dict[int, int] = {}  # tokens of fences, by nonce
        self._timer: Timer | None = None
        self.session = Session(
            settings,
            Role.OUTBOUND,
            draw_nonce=partial(rng.getrandbits, 64),
            now=timeline.now,
            timestamp=max(0, int(wall)),
            stream=None if v2 is V2Policy.OFF else V2Stream(REGTEST.magic, Role.OUTBOUND, rng.randbytes, LIMITS),
        )
        quality = node.behaviour.quality()
        self.end = node.accept(Pipe(timeline, rng, quality, self.arrived))
        self.pipe = Pipe(timeline, rng, quality, self.end.arrived)
        self.flush()
        self._set_timer()

    @property
    def is_ready(self) -> bool:
        """Return True if messages can be sent."""
        return self.is_open and self.session.ready is not None

    def send(self, message: Message) -> None:
        """Send a message after the handshake."""
        if self.is_open:
            self.sent[command_of(message)] += 1
            self.session.send(message)
            self.flush()

    def fence(self, token: int) -> None:
        """Send a ping. The pong is reported with this token."""
        if self.is_open:
            self._tokens[self.session.fence(self._timeline.now)] = token
            self.flush()

    def cut(self) -> None:
        """Make the connection half-open: nothing arrives on either side."""
        self.is_dead = True
        self.pipe.cut()
        self.end.pipe.cut()

    def abort(self) -> None:
        """End the connection at once and report nothing more."""
        if self.is_open:
            self.is_open = False
            self.pipe.close()
            if self._timer is not None:
                self._timer.cancel()

    def arrived(self, data: bytes | None) -> None:
        if not self.is_open:
            return
        if data is None:
            self.session.receive_eof()
        else:
            self.heard_at = self._timeline.now
            self.session.receive_data(data)
        self._take()

    def _take(self) -> None:
        while self.is_open and (event := self.session.next_event()) is not None:
            self.flush()
            match event:
                case Ready():
                    self._report(self.connected(event))
                case SessionEnded(error):
                    self.abort()
                    self._report(Lost(self.number, error or ConnectionAbortedError("closed")))
                case _ if self.session.ready is not None:
                    events = (
                        [event, *self.session.more_events()]
                        if isinstance(event, Received | ReceivedFilters)
                        else [event]
                    )
                    for each in inputs_of(self.number, events, self._tokens.pop):
                        if self.is_open:
                            self._report(each)
                case _:
                    pass
        if self.is_open:
            self.flush()
            self._set_timer()

    def connected(self, ready: Ready) -> PeerConnected:
        version = ready.version
        return PeerConnected(
            self.number,
            self.node.host,
            version.services,
            version.start_height,
            version.relay,
            ready.wtxid_relay,
            version.agent,
            version.timestamp,
            self.session.transport,
        )

    def flush(self) -> None:
        if data := self.session.data_to_send():
            self._keep(self.node.host, data)
            self.pipe.send(data)

    def _set_timer(self) -> None:
        if self._timer is None and self.session.deadline is not None:
            self._timer = self._timeline.at(self.session.deadline, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self.is_open:
            self.session.tick(self._timeline.now)
            self._take()
