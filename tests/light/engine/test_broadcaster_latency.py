"""How long a broadcast takes where nodes behave as Core does to inbound peers, and that no verdict is wrong.

A node requests a transaction two seconds after its announcement. It serves an accepted one from its next round of
announcements on; all its inbound peers share the timer of these rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles

import pytest

from light.engine.test_broadcaster_rejections import CoreRounds
from simulation.behaviours.relay import _GivenResponder
from simulation.node import NodeEnd
from simulation.truth import Coin
from spvfilter.errors import TxRefusedError
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint
from spvfilter.wire.messages.table import InvItem
from spvfilter.wire.session import Session
from support.client.sending import answer, send, synced
from support.client.stage import Kind, Stage, stage
from support.vectors import effort

_REQUEST_S = 2.0  # Core txrequest: the delay for inbound peers (net_processing.cpp, NONPREF_PEER_TX_DELAY)


class Inbound(CoreRounds):
    """As Core with its default options, to a client that has connected to it."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _InboundResponder(view, session, self)

    def later(self, responder: Responder, items: Sequence[InvItem]) -> None:
        """Request announced transactions."""
        ends: list[NodeEnd] = [end for node in self.world.nodes for end in node.ends if end.responder is responder]
        for end in ends:
            Responder.on_inv(responder, items)
            end.work()


class _InboundResponder(_GivenResponder):
    def on_inv(self, items: Sequence[InvItem]) -> None:
        assert isinstance(self._behaviour, Inbound)
        self._behaviour.world.timeline.after(_REQUEST_S, partial(self._behaviour.later, self, items))


class QuietInbound(Inbound):
    """The mempool of the node gets no other transactions."""

    is_busy = False


class Refuses(Inbound):
    accepts = False


class RefusesQuietly(Refuses):
    is_busy = False


def provide_coins(world: Stage, number: int) -> None:
    """Give the wallet confirmed coins, which every node knows."""
    regtest, lock = world.truth.regtest, world.truth.locks[0]
    txid = regtest.pay(*[lock.pays(20_000)] * number)
    world.truth.coins[:] = [Coin(OutPoint(txid, index), 20_000, lock) for index in range(number)]
    world.truth.mine()
    for node in world.nodes:
        node.view.submit_block(regtest.chain.tip.raw)
    world.wait_synced(within=60)


def durations(folder: Path, kinds: Sequence[Kind], number: int) -> tuple[list[float], int]:
    """Broadcast transactions one after another. Returns the seconds until each answer, and the number of refusals."""
    with stage(folder, Mode.COMPACT, *kinds) as world:
        synced(world)
        provide_coins(world, number)
        took, refused = list[float](), 0
        for _ in range(number):
            world.pass_time(world.rng.uniform(1, 9))
            txid, begun = send(world), world.timeline.now
            while answer(world, txid) is None:
                world.pass_time(0.05)
            took.append(world.timeline.now - begun)
            assert isinstance(answer(world, txid), Broadcast | TxRefusedError)
            refused += isinstance(answer(world, txid), TxRefusedError)
        return took, refused


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", [Inbound, QuietInbound])
def test_one_default_node_answers_in_about_six_seconds(kind: Kind, tmp_path: Path) -> None:
    took, refused = durations(tmp_path, [kind], effort(15, 40, 1_000))
    assert not refused
    assert median(took) < 7.5
    assert quantiles(took, n=10)[-1] < 18


@pytest.mark.slow
def test_three_default_nodes_answer_sooner(tmp_path: Path) -> None:
    took, refused = durations(tmp_path, [QuietInbound] * 3, effort(15, 40, 1_000))
    assert not refused
    assert median(took) < 6
    assert quantiles(took, n=10)[-1] < 12


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "most"), [(Refuses, 22.0), (RefusesQuietly, 45.0)])
def test_a_refusal_takes_a_round_or_40_seconds(kind: Kind, most: float, tmp_path: Path) -> None:
    number = effort(5, 10, 200)
    took, refused = durations(tmp_path, [kind], number)
    assert refused == number
    assert quantiles(took, n=10)[-1] < most
