"""When a peer that lacks an own transaction has rejected it: after its round, beside another peer, or after 40 s."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from simulation.behaviours.relay import Taker
from simulation.node import Node
from spvfilter.errors import TxRefusedError
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.primitives import OutPoint
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Settings
from spvfilter.wire.messages.table import InvItem, InvType
from support.blocks.locks import LOCKS, build_tx
from support.client.sending import MODES, Hoards, answer, send, spend, synced
from support.client.stage import Stage, at, stage


class CoreRounds(Hoards):
    """As Core: serves an accepted transaction after its next round of announcements. Rounds come at random."""

    agent = b"/Satoshi:29.0.0/"
    accepts = True
    is_busy = True  # True if each round announces other transactions

    def __init__(self, rng: object, world: object) -> None:
        super().__init__(rng, world)  # type: ignore[arg-type]  # as the base's
        self.accepted: list[tuple[Responder, bytes]] = []
        self.round_at: list[float] = []

    def settings(self, view: Regtest) -> Settings:
        base = super().settings(view)
        return Settings(
            base.network,
            base.services,
            self.agent,
            base.start_height,
            base.relay,
            ping_interval_s=base.ping_interval_s,
        )

    def begin(self, node: Node) -> None:
        self.world.timeline.after(self.rng.expovariate(1 / 5), partial(self._round, node))

    def _round(self, node: Node) -> None:
        self.round_at.append(self.world.timeline.now)
        for responder, raw in self.accepted:
            super().given(responder, raw)
        self.accepted.clear()
        for end in node.ends if self.is_busy else ():
            if end.is_open and end.session.ready is not None:
                end.responder.send_inv([InvItem(InvType.WTX, self.rng.randbytes(32))])
                end.work()
        self.begin(node)

    def given(self, responder: Responder, raw: bytes) -> None:
        if self.accepts:
            self.accepted.append((responder, raw))


class Refuses(CoreRounds):
    accepts = False


class RefusesQuietly(Refuses):
    is_busy = False


class AcceptsQuietly(CoreRounds):
    is_busy = False


class OldCore(Refuses):
    agent = b"/Satoshi:25.1.0/"


class OtherProgram(Refuses):
    agent = b"/other:29.0/"


def refused_after(world: Stage, txid: bytes, within: float) -> float:
    """Return the seconds until the call fails because all peers rejected the transaction."""
    begun = world.timeline.now
    while answer(world, txid) is None and world.timeline.now - begun < within:
        world.pass_time(0.25)
    assert isinstance(answer(world, txid), TxRefusedError)
    return world.timeline.now - begun


@pytest.mark.few(1)
@MODES
def test_two_peers_whose_rounds_passed_reject_within_seconds(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Refuses, Refuses) as world:
        synced(world)
        took = [refused_after(world, send(world), within=60) for _ in range(5)]
        assert min(took) > 0.25
        assert sorted(took)[2] < 15  # the median; without rounds it is 20 s or more
        assert max(took) <= 41


@pytest.mark.few(1)
@pytest.mark.parametrize("kinds", [(CoreRounds,), (CoreRounds, Refuses), (AcceptsQuietly, AcceptsQuietly)])
def test_accepting_peer_never_counts_as_rejecting(kinds: tuple[type[Taker], ...], tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, *kinds) as world:
        synced(world)
        for _ in range(20):  # once, a round came between the announcement and the request
            txid, begun = send(world), world.timeline.now
            while answer(world, txid) is None and world.timeline.now - begun < 60:
                world.pass_time(0.25)
            assert isinstance(answer(world, txid), Broadcast)


@pytest.mark.few(1)
@MODES
def test_answer_comes_soon_after_the_round(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, CoreRounds) as world:
        synced(world)
        behaviour = world.nodes[0].behaviour
        assert isinstance(behaviour, CoreRounds)
        txid, rounds = send(world), len(behaviour.round_at)
        while not behaviour.kept:
            world.pass_time(0.1)
        served = world.timeline.now
        while answer(world, txid) is None:
            world.pass_time(0.1)
        assert world.timeline.now - served <= 3
        assert len(behaviour.round_at) > rounds


@pytest.mark.few(1)
@MODES
def test_two_quiet_peers_of_different_groups_reject_after_20_s(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, RefusesQuietly, RefusesQuietly) as world:
        synced(world)
        assert 20 <= refused_after(world, send(world), within=60) < 40


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("number", [1, 2])
def test_quiet_peers_of_one_group_reject_after_40_s(mode: Mode, number: int, tmp_path: Path) -> None:
    nodes = [at(RefusesQuietly, each, net=7) for each in range(1, number + 1)]
    with stage(tmp_path, mode, *nodes) as world:
        synced(world)
        assert refused_after(world, send(world), within=60) >= 40


def test_rounds_of_another_program_prove_nothing(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, OtherProgram) as world:
        synced(world)
        assert refused_after(world, send(world), within=60) >= 40


@pytest.mark.slow
def test_old_core_is_not_taken_for_a_peer_that_rejects(tmp_path: Path) -> None:
    """It answers notfound for two minutes, also for a transaction that it accepted."""
    with stage(tmp_path, Mode.COMPACT, OldCore) as world:
        synced(world)
        txid = send(world)
        world.pass_time(119)
        assert answer(world, txid) is None
        world.pass_time(5)
        assert isinstance(answer(world, txid), Broadcast)


def test_a_child_of_an_unconfirmed_transaction_gets_40_s(tmp_path: Path) -> None:
    """A peer may accept it later, with its parent."""
    with stage(tmp_path, Mode.COMPACT, CoreRounds, CoreRounds) as world:
        synced(world)
        raw = spend(world)
        parent = send(world, raw=raw)
        world.pass_time(41)
        assert isinstance(answer(world, parent), Broadcast)
        for node in world.nodes:
            node.behaviour.accepts = False  # type: ignore[attr-defined]  # of CoreRounds
        value = Transaction.parse(raw).outputs[0].value
        child = send(world, raw=build_tx([LOCKS[0].spends(OutPoint(parent, 0), value)], [LOCKS[0].pays(value - 500)]))
        assert refused_after(world, child, within=80) >= 40
