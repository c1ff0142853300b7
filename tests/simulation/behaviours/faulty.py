"""Behaviours of nodes that are slow, absent, limited or broken, but do not lie."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from simulation.behaviours.base import FULL, Behaviour
from simulation.pipe import Quality
from simulation.truth import copy_chain
from spvfilter.network import MAINNET
from spvfilter.node.blocktree import TipChange, TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.events import Service, Settings
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from spvfilter.wire.session import Session
from support.client.regtests import cut

if TYPE_CHECKING:
    from simulation.node import Node
    from simulation.world import World

_KEPT_BLOCKS = 288  # of a pruned node, BIP-159


class Honest(Behaviour):
    """An honest node without faults."""

    is_prompt = True


class Late(Honest):
    """Honest, but away for the first half hour or so."""

    def begin(self, node: Node) -> None:
        node.is_up = False
        self.world.timeline.after(self.rng.uniform(10, 2_400), partial(self._come, node))

    def _come(self, node: Node) -> None:
        node.is_up = True


class Absent(Behaviour):
    """Nothing listens at its address."""

    is_full = False

    def begin(self, node: Node) -> None:
        node.is_up = False


class Slow(Behaviour):
    """Answers after seconds, over a slow line, until faults end."""

    think_s = 6.0

    def quality(self) -> Quality:
        return Quality(0.4, 0.5, self.rng.choice([3e3, 2e4]), 0.3)


class Flapping(Behaviour):
    """Its connections end again and again. Sometimes it is down for minutes."""

    def begin(self, node: Node) -> None:
        self.world.timeline.after(self.rng.expovariate(1 / 90), partial(self._flap, node))

    def _flap(self, node: Node) -> None:
        if self.is_calm:
            return
        if node.is_up and self.rng.random() < 0.4:
            node.go_down()
            self.world.timeline.after(self.rng.uniform(1, 600), partial(self._come_back, node))
        else:
            node.hang_up()
        self.world.timeline.after(self.rng.expovariate(1 / 90), partial(self._flap, node))

    def _come_back(self, node: Node) -> None:
        node.is_up = True


class _SilentResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, left: int) -> None:
        super().__init__(regtest, session)
        self._left = left

    def step(self) -> bool:
        if not self._left:
            return False
        self._left -= 1
        return super().step()


class Silent(Behaviour):
    """Goes silent at some step of each connection and sends not even pong: half-open."""

    is_full = False

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _SilentResponder(view, session, int(self.rng.expovariate(1 / 12)))


class _BreakingResponder(_SilentResponder):
    def step(self) -> bool:
        if not self._left and self.over is None:
            self.end("lost")
        return super().step() if self._left else Responder.step(self)


class Breaking(Behaviour):
    """Its connections break in the middle of answers, until faults end."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        if self.is_calm:
            return super().respond(view, session)
        return _BreakingResponder(view, session, int(self.rng.expovariate(1 / 25)))


class _MuteResponder(Responder):
    def __init__(self, regtest: Regtest, session: Session, left: int) -> None:
        super().__init__(regtest, session)
        self._left = left

    def send(self, message: Message) -> None:
        if self._left:
            self._left -= 1
            super().send(message)


class Mute(Behaviour):
    """After some message it answers pings only."""

    is_full = False

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _MuteResponder(view, session, int(self.rng.expovariate(1 / 6)))


class Follower:
    """Updates a node's chain to the true one, late."""

    def __init__(self, world: World, view: Regtest, rng: random.Random, lag_s: float) -> None:
        self._world = world
        self._view = view
        self._rng = rng
        self._lag_s = lag_s
        world.truth.regtest.listeners.append(self)

    def on_tip(self, change: TipChange) -> None:
        """Callback of the true chain."""
        self._world.timeline.after(self._rng.uniform(0, self._lag_s), self.catch_up)

    def on_tx(self, tx: object) -> None:
        """Callback of the true mempool. A node that lags relays nothing."""

    def catch_up(self) -> None:
        """Take every missing block."""
        self.catch_up_to(self._world.truth.regtest.chain.tip)

    def catch_up_to(self, block: TreeBlock | None) -> None:
        """Take a block of the true chain and its missing ancestors."""
        missing: list[TreeBlock] = []
        while block is not None and block.hash not in self._view.chain.blocks:
            missing.append(block)
            block = block.previous
        for each in reversed(missing):
            self._view.submit_block(each.raw)


class Behind(Behaviour):
    """Lacks the last blocks, and receives new ones minutes late."""

    is_full = False

    def view(self) -> Regtest:
        world = self.world
        view = copy_chain(world.truth.regtest, world.true_wall)
        cut(view, self.rng.randrange(1, 30))
        Follower(world, view, self.rng, 900.0)
        return view


class _DownloadingResponder(Responder):
    def on_getheaders(self, asked: wire.GetHeaders) -> None:
        self.send(wire.Headers(()))


class Downloading(Behaviour):
    """A node in initial download: its version states the true height, but its headers responses are empty and it has no
    blocks.
    """

    is_full = False
    responder = _DownloadingResponder

    def view(self) -> Regtest:
        return Regtest(clock=self.world.true_wall)

    def settings(self, view: Regtest) -> Settings:
        return replace(super().settings(view), start_height=self.world.truth.height)


class _PrunedResponder(Responder):
    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if self.regtest.height - block.height > _KEPT_BLOCKS + 2:
            self.end("a block below the pruned node's limit")
        else:
            super().on_block_wanted(block, kind)


class Pruned(Behaviour):
    """Has the last 288 blocks, and disconnects peers that request older ones (Core ProcessGetBlockData)."""

    is_full = False
    services = (FULL | Service.NETWORK_LIMITED) & ~Service.NETWORK
    responder = _PrunedResponder


class _BlocksOnlyResponder(Responder):
    def on_inv(self, items: Sequence[InvItem]) -> None:
        if any(item.kind in (InvType.TX, InvType.WTX) for item in items):
            self.end("transaction announced to a blocksonly node")


class BlocksOnly(Behaviour):
    """Core with -blocksonly: disconnects peers that announce a transaction."""

    is_full = False
    relay = False
    responder = _BlocksOnlyResponder


class NoFilters(Behaviour):
    """Serves no compact filters."""

    is_full = False
    services = FULL & ~Service.COMPACT_FILTERS


class NoBloom(Behaviour):
    """Serves no filtered blocks."""

    is_full = False
    services = FULL & ~Service.BLOOM


class Bare(Behaviour):
    """Serves headers and blocks only."""

    is_full = False
    services = Service.NETWORK | Service.WITNESS


class WrongNetwork(Behaviour):
    """A node of mainnet."""

    is_honest = False
    is_full = False

    def settings(self, view: Regtest) -> Settings:
        return replace(super().settings(view), network=MAINNET)


class Garbage(Behaviour):
    """A server that does not speak Bitcoin's protocol."""

    is_honest = False
    is_full = False

    def on_the_wire(self, data: bytes) -> bytes:
        return self.rng.randbytes(len(data))


class Flipping(Behaviour):
    """A broken line: some bytes arrive wrong until faults end."""

    is_full = False

    def on_the_wire(self, data: bytes) -> bytes:
        if self.is_calm or self.rng.random() > 0.02:
            return data
        at = self.rng.randrange(len(data))
        return data[:at] + bytes((data[at] ^ 1 << self.rng.randrange(8),)) + data[at + 1 :]


class SkewedClock(Behaviour):
    """Its clock is off by hours."""

    clock_skew_s = 5 * 3600.0
