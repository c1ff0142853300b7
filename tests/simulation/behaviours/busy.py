"""Behaviours of busy nodes, which close the connection at requests as Bitcoin Core does."""

from __future__ import annotations

from typing import ClassVar

from simulation.behaviours.base import Behaviour
from simulation.pipe import Quality
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvType, Message
from spvfilter.wire.session import Session

_WEEK_S = 7 * 86_400


class Busy(Behaviour):
    """A busy node over a good line."""

    is_full = False

    def quality(self) -> Quality:
        return Quality(0.02, 0.0, 1e7, 0)


class _SlotsResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, behaviour: SlotsFull) -> None:
        super().__init__(regtest, session)
        self._behaviour = behaviour
        self._has_slot = False

    def step(self) -> bool:
        remote = self.session.remote
        if remote is not None and remote.relay:
            self._take_slot()
        return super().step()

    def on_bloom(self, message: Message) -> None:
        self._take_slot()
        if self.over is None:
            super().on_bloom(message)

    def _take_slot(self) -> None:
        if not self._has_slot and self._behaviour.are_slots_full:
            self.end("no slot for transactions")
        self._has_slot = True


class SlotsFull(Busy):
    """Closes the connection of a new peer that requests transactions: all its transaction slots are taken."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # as the base's
        self.are_slots_full = True

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _SlotsResponder(view, session, self)

    def calm(self) -> None:
        super().calm()
        self.are_slots_full = False


class _UploadResponder(Responder):
    def on_message(self, message: Message) -> None:
        match message:
            case wire.GetData(items) if any(map(self._is_limited, items)):
                self.end("historical block serving limit reached")
            case wire.Mempool() if self.is_used_up:
                self.end("mempool request with bandwidth limit reached")
            case _:
                super().on_message(message)

    is_used_up: ClassVar[bool] = False

    def _is_limited(self, item: wire.InvItem) -> bool:
        chain = self.regtest.chain
        block = chain.blocks.get(item.hash)
        if item.kind == InvType.FILTERED_BLOCK:
            return True
        return block is not None and _time(chain.tip.raw) - _time(block.raw) > _WEEK_S


class _NoUploadResponder(_UploadResponder):
    is_used_up = True


class UploadNearlyUsed(Busy):
    """Closes the connection at requests for filtered blocks and for blocks older than a week."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _UploadResponder(view, session)


class UploadUsed(Busy):
    """Closes the connection also when a peer requests its mempool."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _NoUploadResponder(view, session)


def _time(raw: bytes) -> int:
    """The time in the header of a block."""
    return int.from_bytes(raw[68:72], "little")


BUSY: list[type[Behaviour]] = [SlotsFull, UploadNearlyUsed, UploadUsed]
