"""Behaviours of nodes that combine allowed actions to exploit the engine. Lives have them only on request."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

from simulation.behaviours.base import FULL, Behaviour
from simulation.behaviours.bloom import Liar
from simulation.behaviours.compact import FalseIndex, Tampering
from simulation.behaviours.faulty import Follower
from simulation.behaviours.forged import (
    FloodsForgeries,
    HasNoWitnesses,
    SpendsUnsigned,
    SpendsWronglySigned,
    StripsWitnesses,
    WithholdsAnnounced,
)
from simulation.truth import copy_chain
from spvfilter.errors import RefusedError
from spvfilter.filters.verify import witnesses
from spvfilter.hashes import sha256d
from spvfilter.node.blocktree import TipChange, TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Service, Settings
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import CFHeaders, InvItem, InvType, Message
from spvfilter.wire.session import Session
from support.client.regtests import cut

if TYPE_CHECKING:
    from simulation.node import NodeEnd
    from simulation.world import World


class ChangesFilters(Liar):
    """Serves different false filters over every connection. None contradicts itself, and no two agree.

    They have additional elements where no block can disprove them. Some, above a height, lack the wallet's scripts.
    """

    def respond(self, view: Regtest, session: Session) -> Responder:
        made = super().respond(view, session)
        salt, height = self.rng.randbytes(4), self.rng.randrange(view.height + 2)
        made.filters = FalseIndex(view.chain, partial(self._change, salt, height))
        return made

    def _change(self, salt: bytes, height: int, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        chosen = sha256(salt + block.hash).digest()
        if block.height > height and chosen[0] % 3 == 0:
            return elements - self.world.truth.scripts()
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        paid = {out.script_pubkey for tx in self.world.truth.regtest.chain.txs(block) for out in tx.outputs}
        return elements | {b"\x00\x14" + chosen[:20]} if chosen[0] % 2 and spent & paid else elements


class Misleads(Tampering):
    """States a false filter header of each new block, and then sends the true filter."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._old = set(world.truth.regtest.chain.blocks)

    def tamper(self, message: Message) -> Message | None:
        if isinstance(message, CFHeaders) and message.stop_hash not in self._old and len(message.filter_hashes) == 1:
            return CFHeaders(
                message.filter_type, message.stop_hash, message.previous, (sha256d(message.filter_hashes[0]),)
            )
        return message


class Lags(Behaviour):
    """Gets no new blocks, and stays connected."""

    is_full = False

    def view(self) -> Regtest:
        return copy_chain(self.world.truth.regtest, self.world.true_wall)


class _WithholdingResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, how: int) -> None:
        super().__init__(regtest, session)
        self._how = how

    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if block.hash[2] % 3:
            super().on_block_wanted(block, kind)
        elif self._how == 1:
            self.send(wire.NotFound((InvItem(kind, block.hash),)))
        elif self._how == 2:
            self.end("a block that is not to be had")


class WithholdsBlocks(Behaviour):
    """Serves two of three blocks. For each other block it is silent, sends notfound, or ends the connection."""

    is_full = False

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._how = rng.randrange(3)

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _WithholdingResponder(view, session, self._how)


class _WaveringResponder(Responder):
    """Handles each message with the chain that the node has at that moment."""

    def __init__(self, regtest: Regtest, session: Session, rng: random.Random, other: Regtest) -> None:
        super().__init__(regtest, session)
        self._views = regtest, other
        self._rng = rng

    def on_message(self, message: Message) -> None:
        self.regtest = self._rng.choice(self._views)
        self.filters = self.regtest.filters
        super().on_message(message)


class Wavers(Behaviour):
    """Changes between the best chain and a branch with less work, between any two responses."""

    is_full = False

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._other: Regtest | None = None

    def respond(self, view: Regtest, session: Session) -> Responder:
        if self._other is None:
            self._other = self._branch(view)
        return _WaveringResponder(view, session, self.rng, self._other)

    def has_block(self, view: Regtest, block_hash: bytes) -> bool:
        return super().has_block(view, block_hash) or (
            self._other is not None and super().has_block(self._other, block_hash)
        )

    def _branch(self, view: Regtest) -> Regtest:
        other = copy_chain(view, self.world.true_wall)
        length = self.rng.randrange(2, 12)
        cut(other, length)
        other.mine(length - 1)
        for block in other.chain.active[-(length - 1) :]:
            self.world.truth.others_blocks[block.hash] = block
        return other


class AtTheLimit(Behaviour):
    """Answers everything, even pings, just before the client's timeout."""

    is_full = False

    def pause_s(self, end: NodeEnd) -> float:
        return 0.0 if end.session.ready is None else 0.97 * self.world.options.timeouts.reply_s


class _ProcrastinatingResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, behaviour: Procrastinates) -> None:
        super().__init__(regtest, session)
        self._behaviour = behaviour

    def on_message(self, message: Message) -> None:
        self._behaviour.later(partial(self._do, message))

    def _do(self, message: Message) -> None:
        if self.over is None:
            super().on_message(message)


class Procrastinates(Liar):
    """Answers pings at once, so that pongs overtake the responses to earlier requests."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _ProcrastinatingResponder(view, session, self)

    def later(self, call: partial[None]) -> None:
        """Handle the message later, and then send the pending messages."""
        self.world.timeline.after(self.rng.uniform(0.5, 60.0), partial(self._now, call))

    def _now(self, call: partial[None]) -> None:
        call()
        for node in self.world.nodes:
            if node.behaviour is self:
                for end in list(node.ends):
                    end.work()


class ChangesServices(Behaviour):
    """Offers different services each time."""

    is_full = False
    kinds: ClassVar[tuple[int, ...]] = (
        FULL,
        FULL & ~Service.COMPACT_FILTERS,
        FULL & ~Service.BLOOM,
        FULL & ~(Service.COMPACT_FILTERS | Service.BLOOM),
    )

    def settings(self, view: Regtest) -> Settings:
        made = super().settings(view)
        return Settings(
            made.network,
            self.rng.choice(self.kinds),
            relay=made.relay,
            start_height=made.start_height,
            ping_interval_s=1e7,
        )


class _MalleatingResponder(Responder):
    """Gives transactions another witness and thus another wtxid. The txid stays the same."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self._true: dict[bytes, bytes] = {}  # true transactions, by the wtxid that it announces

    def send(self, message: Message) -> None:
        match message:
            case wire.Tx(raw):
                message = wire.Tx(malleated(raw))
            case wire.Inv(items):
                message = wire.Inv(tuple(map(self._item, items)))
            case _:
                pass
        super().send(message)

    def _item(self, item: InvItem) -> InvItem:
        tx = self.regtest.find_tx(item.hash, by_wtxid=True) if item.kind == InvType.WTX else None
        if tx is None:
            return item
        made = Transaction.parse(malleated(tx.raw)).wtxid
        self._true[made] = item.hash
        return InvItem(InvType.WTX, made)

    def on_message(self, message: Message) -> None:
        if isinstance(message, wire.GetData):
            message = wire.GetData(
                tuple(InvItem(item.kind, self._true.get(item.hash, item.hash)) for item in message.items)
            )
        super().on_message(message)


def malleated(raw: bytes) -> bytes:
    """The transaction with a changed bit in its first witness item. Unchanged if it has no witness."""
    for stack in witnesses(raw, Transaction.parse(raw).span):
        for item in filter(None, stack):
            at = raw.rindex(item)
            return raw[:at] + bytes((raw[at] ^ 1,)) + raw[at + 1 :]
    return raw


class Malleates(Liar):
    """Relays transactions with changed witnesses."""

    responder = _MalleatingResponder


class _RelayingResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, world: World) -> None:
        super().__init__(regtest, session)
        self._world = world

    def on_tx(self, raw: bytes) -> None:
        super().on_tx(raw)
        with suppress(RefusedError):
            self._world.truth.regtest.submit_tx(raw)


class Rivals(Behaviour):
    """A miner that often mines a competing block with the mempool's transactions, and announces it first, until faults
    end.
    """

    is_full = False

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _RelayingResponder(view, session, self.world)

    def view(self) -> Regtest:
        view = copy_chain(self.world.truth.regtest, self.world.true_wall)
        self._follower = Follower(self.world, view, self.rng, 30.0)
        self._view = view
        self.world.truth.regtest.listeners.append(self)
        return view

    def on_tip(self, change: TipChange) -> None:
        """Callback of the true chain."""
        if self.is_calm or not change.connected or self.rng.random() < 0.4:
            return
        parent = change.connected[-1].previous
        self._follower.catch_up_to(parent)
        if parent is not None and self._view.chain.tip.hash == parent.hash:
            to = self.rng.choice(self.world.truth.locks).script_pubkey
            self._view.mine(to=to if self.rng.random() < 0.5 else None)
            block = self._view.chain.tip
            self.world.truth.others_blocks[block.hash] = block

    def on_tx(self, tx: Transaction) -> None:
        """Callback of the true mempool."""
        with suppress(RefusedError):
            self._view.submit_tx(tx.raw)


SCHEMES: list[type[Behaviour]] = [
    ChangesFilters,
    Misleads,
    Lags,
    WithholdsBlocks,
    Wavers,
    AtTheLimit,
    Procrastinates,
    ChangesServices,
    Malleates,
    Rivals,
    SpendsUnsigned,
    SpendsWronglySigned,
    FloodsForgeries,
    StripsWitnesses,
    HasNoWitnesses,
    WithholdsAnnounced,
]
