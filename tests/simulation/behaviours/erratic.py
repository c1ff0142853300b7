"""Nodes whose filter headers and checkpoints differ from one answer to the next."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from simulation.behaviours.base import Behaviour
from simulation.behaviours.compact import Tampering
from spvfilter.wire.messages.table import CFCheckpt, CFHeaders, Message

if TYPE_CHECKING:
    from simulation.world import World


class Erratic(Tampering):
    """Sometimes makes up a filter hash, several of them, the previous filter header, or a checkpoint."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._share = rng.choice([0.1, 0.3, 0.6])

    def tamper(self, message: Message) -> Message | None:
        rng = self.rng
        if rng.random() > self._share:
            return message
        match message:
            case CFHeaders(kind, stop, previous, hashes) if hashes:
                changed = list(hashes)
                if rng.random() < 0.25:
                    return CFHeaders(kind, stop, rng.randbytes(32), hashes)
                for at in rng.choice([[-1], [rng.randrange(len(hashes))], range(len(hashes))]):
                    changed[at] = rng.randbytes(32)
                return CFHeaders(kind, stop, previous, tuple(changed))
            case CFCheckpt(kind, stop, headers) if headers:
                at = rng.randrange(len(headers))
                return CFCheckpt(kind, stop, (*headers[:at], rng.randbytes(32), *headers[at + 1 :]))
        return message


class ErraticAtTip(Erratic):
    """Mostly makes up the filter hash of a block that only it is asked for. Its checkpoints contradict that hash."""

    def tamper(self, message: Message) -> Message | None:
        if isinstance(message, CFHeaders) and len(message.filter_hashes) == 1 and self.rng.random() < 0.7:
            return CFHeaders(message.filter_type, message.stop_hash, message.previous, (self.rng.randbytes(32),))
        return message


ERRATIC: list[type[Behaviour]] = [Erratic, ErraticAtTip]
