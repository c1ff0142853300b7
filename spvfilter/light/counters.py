"""Counters: a light client's counters, derived from the inputs and effects of its engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from spvfilter.light.engine.effects import (
    Answer,
    AskSeeds,
    AskSpent,
    AskTweaks,
    Commit,
    Connect,
    Done,
    Drop,
    Effect,
    Emit,
    End,
    Fence,
    Read,
    Send,
    Wake,
    Work,
)
from spvfilter.light.engine.inputs import (
    Abandon,
    Asked,
    BroadcastAsked,
    Committed,
    FencePassed,
    Heard,
    HeardTogether,
    Input,
    Lost,
    Malformed,
    PeerConnected,
    Seeded,
    Tick,
    Worked,
)
from spvfilter.light.events import PeerWarning
from spvfilter.wire.events import Received
from spvfilter.wire.messages import table as wire


class Counters:
    """Counts what happens in one run. `Metrics` explains each counter."""

    def __init__(self) -> None:
        self.connections: int = 0
        self.bans: int = 0
        self.messages_received: int = 0
        self.messages_sent: int = 0
        self.headers_received: int = 0
        self.blocks_received: int = 0
        self.filters_received: int = 0
        self.transactions_received: int = 0
        self.reorganizations: int = 0
        self.commits: int = 0

    def step(self, event: Input, effects: Iterable[Effect]) -> None:
        """Count an input, and the effects that the engine returned for it."""
        match event:
            case Heard(_, message):
                self._heard(message)
            case HeardTogether(_, heard):
                for each in heard:
                    if isinstance(each, Received):
                        self._heard(each.message)
                    else:
                        self.messages_received += len(each.filters)
                        self.filters_received += len(each.filters)
            case PeerConnected():
                self.connections += 1
            case Committed():
                self.commits += 1
            case Tick() | Lost() | FencePassed() | Malformed() | Worked() | Seeded():
                pass
            case Asked() | BroadcastAsked() | Abandon():
                pass
            case _:
                assert_never(event)
        for effect in effects:
            match effect:
                case Send():
                    self.messages_sent += 1
                case Commit(_, batch) if batch.fork is not None:
                    self.reorganizations += 1
                case Emit(PeerWarning(banned=True)):
                    self.bans += 1
                case Commit() | Emit() | Wake() | Connect() | AskSeeds() | Fence() | Drop():
                    pass
                case Work() | Read() | AskSpent() | AskTweaks() | Answer() | Done() | End():
                    pass
                case _:
                    assert_never(effect)

    def _heard(self, message: wire.Message) -> None:
        self.messages_received += 1
        match message:
            case wire.Headers(headers):
                self.headers_received += len(headers)
            case wire.Block() | wire.MerkleBlock():
                self.blocks_received += 1
            case wire.CFilter():
                self.filters_received += 1
            case wire.Tx():
                self.transactions_received += 1
            case _:
                pass
