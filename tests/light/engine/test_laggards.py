"""Peers that are behind the best chain, or hide new blocks: they lose their slots to untried addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.schemes import Lags
from spvfilter.light.engine.addresses import EXTRA_S
from spvfilter.light.engine.inputs import Heard, Input, Lost, PeerConnected
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.staletip import CATCH_UP_S
from spvfilter.light.events import Mode
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import Message
from spvfilter.wire.session import Session
from support.client.stage import Prompt, Stage, at, stage
from support.client.swarm import WITH_FILTERS, Client, Swarm

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT, Mode.AUTO])


def _ready(world: Stage) -> set[int]:
    """Return the numbers of the ready nodes."""
    engine = world.engine
    return {int(peer.address.split(".")[1]) for peer in engine.pool.ready()}


def _connected(world: Stage) -> set[int]:
    """Return the numbers of the connected nodes, ready or not."""
    return {each.node.number + 1 for each in world.running.connections.values()}


@pytest.mark.few(1)
@MODES
def test_laggards_lose_their_slots_if_no_peer_has_the_tip(mode: Mode, tmp_path: Path) -> None:
    """The peer that announced the tip is gone. Nodes without new blocks have all slots, so an honest address would
    never be tried.
    """
    with stage(tmp_path, mode, Prompt, Prompt, Lags, Lags, Lags, max_peers=3) as world:
        world.boot()
        world.wait_synced(within=60)
        assert _ready(world) == {2, 3, 4}
        world.truth.mine(2)
        world.pass_time(10)
        world.nodes[1].go_down()
        world.truth.mine(1)
        world.pass_time(PeerTimeouts().answer_s)
        assert _ready(world) == {3, 4, 5}
        world.wait_synced(within=120)
        assert 1 in _ready(world)
        assert world.has_found_all()
        assert not world.banned


@pytest.mark.few(1)
@MODES
def test_a_lasting_laggard_is_dropped_though_another_has_the_tip(mode: Mode, tmp_path: Path) -> None:
    """Otherwise one honest peer is left among laggards, and no other peer can confirm its statements."""
    with stage(tmp_path, mode, Lags, Lags, Prompt, Prompt, max_peers=3) as world:
        world.boot()
        world.wait_synced(within=60)
        world.truth.mine(2)
        world.wait_synced(within=60)
        world.pass_time(CATCH_UP_S - 100)
        assert _ready(world) == {1, 2, 3}
        world.pass_time(300)
        assert {3, 4} <= _ready(world)
        assert not world.banned


@pytest.mark.few(1)
@MODES
def test_a_dropped_laggard_does_not_return_for_its_network(mode: Mode, tmp_path: Path) -> None:
    """Its network has no slot while another network has several. The client would connect and drop the peer every
    second.
    """
    with stage(tmp_path, mode, at(Prompt, 1, net=1), at(Prompt, 2, net=1), at(Lags, 3, net=2), max_peers=2) as world:
        world.boot()
        world.wait_synced(within=60)
        world.truth.mine(2)
        world.wait_synced(within=60)
        world.pass_time(CATCH_UP_S + 100)
        (laggard,) = world.nodes[2].addresses
        engine = world.engine
        assert laggard not in {peer.address for peer in engine.pool.ready()}
        before = engine.pool.take_number()
        world.pass_time(600)
        assert engine.pool.take_number() - before < 5
        assert not world.banned


@pytest.mark.few(1)
@MODES
def test_laggards_stay_if_no_other_address_is_known(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Lags, Lags, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        world.truth.mine(2)
        world.wait_synced(within=60)
        world.nodes[2].go_down()
        world.pass_time(2 * CATCH_UP_S)
        assert _ready(world) == {1, 2}
        assert not [
            each
            for each in world.warnings
            if each.address.startswith(("10.1", "10.2")) and "does not know" not in str(each.error)
        ]


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("most", [1, 2])
def test_other_peers_are_heard_while_the_tip_is_stale(most: int, mode: Mode, tmp_path: Path) -> None:
    """A node without new blocks is not behind its own announcements. If such nodes have all slots, no other peer is
    heard.
    """
    with stage(tmp_path, mode, *[Lags] * most, Prompt, Prompt, max_peers=most) as world:
        for node in world.nodes[most:]:
            node.is_up = False
        world.boot()
        world.wait_synced(within=60)
        for node in world.nodes[most:]:
            node.is_up = True
        world.truth.mine(2)
        world.wait_synced(within=PeerTimeouts().stale_tip_s + 2 * EXTRA_S)
        assert _ready(world) & {most + 1, most + 2}
        assert world.has_found_all()
        assert not world.banned


def test_an_extra_peer_without_news_takes_no_slot(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, Prompt, Prompt, max_peers=2) as world:
        world.boot()
        world.wait_synced(within=60)
        before, (other,) = _ready(world), {1, 2, 3} - _ready(world)
        heard = 0
        for seconds in ([0.25] * 7_000 + [0.02] * 5_000) * 2:  # the other peer is connected after 1,800 s
            world.pass_time(seconds)
            assert before <= _ready(world)
            heard += other in _connected(world)
            assert len(_connected(world)) <= 3
        assert heard
        assert _connected(world) == before
        assert len(world.synced) == 1


class _Losing(Responder):
    def __init__(self, regtest: Regtest, session: Session, behaviour: Loses) -> None:
        super().__init__(regtest, session)
        self._behaviour = behaviour

    def send(self, message: Message) -> None:
        if self._behaviour.loses and isinstance(message, wire.Headers | wire.Inv):
            self._behaviour.loses = False
        else:
            super().send(message)


class Loses(Prompt):
    """Loses its next announcement."""

    loses = False

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _Losing(view, session, self)


@MODES
def test_a_peer_whose_announcement_was_lost_can_prove_the_tip(mode: Mode, tmp_path: Path) -> None:
    """Its answer to a request for headers above the tip is empty."""
    with stage(tmp_path, mode, Prompt, Loses) as world:
        world.boot()
        world.wait_synced(within=60)
        world.nodes[1].behaviour.loses = True  # type: ignore[attr-defined]
        before = world.engine.chain.height
        world.truth.mine(1)
        while world.engine.chain.height == before:
            world.pass_time(0.001)
        world.nodes[0].go_down()
        world.wait_synced(within=PeerTimeouts().answer_s + 60)
        assert world.synced[-1].peers == ("10.2.0.2:18444",)


class _Client(Client):
    """A client of nodes that may lack the latest block."""

    are_late = False

    def report(self, event: Input) -> None:
        super().report(event._replace(start_height=0) if self.are_late and isinstance(event, PeerConnected) else event)

    def _answer(self, peer: int, message: Message) -> None:
        if not self.are_late or not isinstance(message, wire.GetHeaders):
            super()._answer(peer, message)
        elif peer in self.lines:
            self.report(Heard(peer, wire.Headers(())))


@pytest.mark.parametrize("others", [0, 2])
def test_a_discovered_laggard_is_dropped_only_for_another_address(others: int) -> None:
    """Otherwise it would rest for half an hour, and its slot would stay empty."""
    swarm = Swarm(1)
    swarm.nodes = [node for node in swarm.nodes if not node.is_hostile][: 2 + others]
    for node in swarm.nodes:
        node.is_up, node.services = True, WITH_FILTERS
    made = _Client(swarm, max_peers=2)
    try:
        made.start()
        made.pass_time(60)
        assert len(made.synced) == 1
        teller, late = made.ready
        made.are_late = True
        swarm.regtest.mine(1)
        made.report(Heard(teller.number, wire.Headers((swarm.regtest.chain.tip.raw[:80],))))
        made.report(Lost(teller.number, ConnectionResetError("gone")))
        swarm.directory[teller.address].is_up = False
        made.pass_time(120)
        # one of the other nodes replaces the announcer, and one replaces this laggard
        assert made.engine.pool.has(late) is not bool(others)
        made.are_late = False
        made.announce()
        made.pass_time(5)
        assert made.synced[-1].hash == swarm.regtest.chain.tip.hash
    finally:
        made.stop()
        made.store.close()
