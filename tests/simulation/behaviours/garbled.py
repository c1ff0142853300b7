"""Nodes that garble their messages. The envelopes are sound, but the messages are changed, repeated, delayed, out of
order, or answer another request.
"""

from __future__ import annotations

import random

from simulation.behaviours.bloom import Liar
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message, Unknown, command_of
from spvfilter.wire.session import Session

_MOST_KEPT = 50  # messages that may be repeated


class _GarblingResponder(Responder):
    """Garbles one message of `one_of` on its way to the wire."""

    def __init__(
        self, regtest: Regtest, session: Session, rng: random.Random, one_of: float, only: tuple[str, ...]
    ) -> None:
        super().__init__(regtest, session)
        self._rng = rng
        self._one_of = one_of
        self._only = only
        self._sent: list[Message] = []
        self._held: list[Message] = []

    def send(self, message: Message) -> None:
        rng = self._rng
        if self._only and command_of(message) not in self._only:
            super().send(message)
            return
        if rng.random() * self._one_of > 1:
            self._give(message)
        else:
            for each in self._accident(message):
                self._give(each)
        if self._held and rng.random() < 0.3:
            self._give(self._held.pop(0))

    def _give(self, message: Message) -> None:
        super().send(message)
        self._sent = [*self._sent[1 - _MOST_KEPT :], message]

    def _accident(self, message: Message) -> list[Message]:
        rng = self._rng
        match rng.randrange(8):
            case 0:
                return []
            case 1:
                return [message] * rng.choice([2, 2, 5])
            case 2:
                self._held.append(message)
                return []
            case 3:
                return [*rng.choices(self._sent or [message], k=rng.choice([1, 3])), message]
            case 4:
                return [message, self._made_up()]
            case 5:
                return [Unknown(command_of(message), self._changed(bytes(message)))]
            case 6:
                return [
                    Unknown(
                        rng.choice(
                            ["headers", "cfheaders", "tx", "block", "merkleblock", "cfilter", "inv", "notfound"]
                        ),
                        bytes(message),
                    )
                ]
            case _:
                return [Unknown(command_of(message), self._changed(bytes(message))), message]

    def _changed(self, payload: bytes) -> bytes:
        rng, changed = self._rng, bytearray(payload)
        match rng.randrange(5):
            case 0:
                return bytes(changed[: rng.randrange(len(changed) + 1)])
            case 1:
                return bytes(changed) + rng.randbytes(rng.choice([1, 2, 80]))
            case 2 if len(changed) > 40:
                at, to = rng.randrange(len(changed) - 32), rng.randrange(len(changed) - 32)
                changed[at : at + 32] = changed[to : to + 32]
            case _ if changed:
                for _ in range(rng.choice([1, 1, 3])):
                    changed[rng.choice([rng.randrange(len(changed)), 0, len(changed) - 1])] = rng.choice(
                        [0, 1, 0xFD, 0xFF, rng.randrange(256)]
                    )
            case _:
                pass
        return bytes(changed)

    def _made_up(self) -> Message:
        rng, chain = self._rng, self.regtest.chain
        block, other = rng.choice(chain.active), rng.choice(list(chain.blocks.values()))
        txs = list(self.regtest.mempool)
        match rng.randrange(9):
            case 0:
                return wire.Headers(
                    tuple(each.raw[:80] for each in chain.active[block.height : block.height + rng.choice([0, 1, 20])])
                )
            case 1:
                return wire.Headers((other.raw[:80],))
            case 2:
                return wire.Inv(
                    tuple(
                        InvItem(rng.choice(list(InvType)), each) for each in (block.hash, other.hash, rng.randbytes(32))
                    )
                )
            case 3:
                return wire.NotFound(
                    tuple(
                        InvItem(rng.choice(list(InvType)), each) for each in (block.hash, other.hash, rng.randbytes(32))
                    )
                )
            case 4:
                return wire.Tx(rng.choice(txs).raw if txs else chain.txs(block)[0].raw)
            case 5:
                return wire.GetData(tuple(InvItem(rng.choice(list(InvType)), tx.txid) for tx in txs[:5]))
            case 6:
                return wire.Block(other.raw)
            case 7:
                return wire.FeeFilter(rng.choice([0, -1, 1 << 62, 21 * 10**14]))
            case _:
                return wire.CFHeaders(
                    0, other.hash, rng.randbytes(32), tuple(rng.randbytes(32) for _ in range(rng.choice([0, 1, 3])))
                )


class Garbles(Liar):
    """Garbles one message of ten."""

    one_of = 10.0
    only: tuple[str, ...] = ()

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _GarblingResponder(view, session, random.Random(self.rng.random()), self.one_of, self.only)


class GarblesSeldom(Garbles):
    """Garbles one message of two hundred."""

    one_of = 200.0


class GarblesFilters(Garbles):
    """Garbles one message of five about compact filters."""

    one_of = 5.0
    only = ("cfheaders", "cfcheckpt", "cfilter")


class GarblesBlocks(Garbles):
    """Garbles one message of five with blocks and transactions."""

    one_of = 5.0
    only = ("merkleblock", "tx", "block", "headers")


GARBLERS: list[type[Liar]] = [Garbles, GarblesSeldom, GarblesFilters, GarblesBlocks]
