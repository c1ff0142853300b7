"""Peers that stay behind the best chain, or hide that it goes on, hold no place that an address nobody has tried could
have.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulation.behaviours.schemes import Lags
from spvfilter.light.engine.addresses import EXTRA_S
from spvfilter.light.engine.engine import Engine
from spvfilter.light.engine.inputs import Connected, Heard, Input, Lost
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.staletip import CATCH_UP_S
from spvfilter.light.events import Mode
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import Message
from spvfilter.wire.session import Session
from support.stage import Prompt, Stage, at, stage
from support.swarm import WITH_FILTERS, Client, Swarm

MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT, Mode.AUTO])


def _ready(world: Stage) -> set[int]:
    """Numbers of the nodes that are connected."""
    assert world.process is not None
    engine = world.process.engine
    assert isinstance(engine, Engine)
    return {int(peer.address.split(".")[1]) for peer in engine.pool.ready()}


def _connected(world: Stage) -> set[int]:
    """Numbers of the nodes to which there is a connection, ready or not."""
    assert world.process is not None
    return {each.node.number + 1 for each in world.process.connections.values()}


@MODES
def test_where_nobody_has_the_tip_laggards_make_room_for_others(mode: Mode, tmp_path: Path) -> None:
    """Who has told of the tip is gone, and nodes that get no new blocks have all places: an honest address would never
    be tried.
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


@MODES
def test_who_is_behind_for_long_makes_room_even_if_another_has_the_tip(mode: Mode, tmp_path: Path) -> None:
    """Otherwise those that lag leave one honest peer alone, whose word nobody can confirm."""
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


@MODES
def test_who_is_let_go_for_being_behind_does_not_come_back_at_once_for_its_network(mode: Mode, tmp_path: Path) -> None:
    """Its network lacks while another has several, so it would be connected beyond the limit, and let go again, every
    second.
    """
    with stage(tmp_path, mode, at(Prompt, 1, net=1), at(Prompt, 2, net=1), at(Lags, 3, net=2), max_peers=2) as world:
        world.boot()
        world.wait_synced(within=60)
        world.truth.mine(2)
        world.wait_synced(within=60)
        world.pass_time(CATCH_UP_S + 100)
        (laggard,) = world.nodes[2].addresses
        assert world.process is not None
        engine = world.process.engine
        assert isinstance(engine, Engine)
        assert laggard not in {peer.address for peer in engine.pool.ready()}
        before = engine.pool.take_number()
        world.pass_time(600)
        assert engine.pool.take_number() - before < 5
        assert not world.banned


@MODES
def test_laggards_stay_where_nobody_else_could_come(mode: Mode, tmp_path: Path) -> None:
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


@MODES
@pytest.mark.parametrize("most", [1, 2])
def test_while_no_block_comes_for_long_others_are_heard(most: int, mode: Mode, tmp_path: Path) -> None:
    """Who gets no new blocks is not behind what it has told: where such have all places, nobody else would ever tell of
    more.
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


def test_who_is_heard_while_no_block_comes_and_tells_nothing_new_takes_no_place(tmp_path: Path) -> None:
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
    """Its next announcement gets lost on the way."""

    loses = False

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _Losing(view, session, self)


@MODES
def test_who_has_the_tip_and_was_not_heard_to_say_so_can_show_it(mode: Mode, tmp_path: Path) -> None:
    """It has nothing to send to who asks for what follows the tip."""
    with stage(tmp_path, mode, Prompt, Loses) as world:
        world.boot()
        world.wait_synced(within=60)
        world.nodes[1].behaviour.loses = True  # type: ignore[attr-defined]
        assert world.process is not None
        before = world.process.engine.chain.height  # type: ignore[attr-defined]
        world.truth.mine(1)
        while world.process.engine.chain.height == before:  # type: ignore[attr-defined]
            world.pass_time(0.001)
        world.nodes[0].go_down()
        world.wait_synced(within=PeerTimeouts().answer_s + 60)
        assert world.synced[-1].peers == ("10.2.0.2:18444",)


class _Client(Client):
    """Among nodes that may have no new block yet."""

    are_late = False

    def report(self, event: Input) -> None:
        super().report(replace(event, start_height=0) if self.are_late and isinstance(event, Connected) else event)

    def _answer(self, peer: int, message: Message) -> None:
        if not self.are_late or not isinstance(message, wire.GetHeaders):
            super()._answer(peer, message)
        elif peer in self._lines:
            self.report(Heard(peer, wire.Headers(())))


@pytest.mark.parametrize("others", [0, 2])
def test_a_laggard_that_was_discovered_makes_room_only_where_another_address_is_known(others: int) -> None:
    """It would rest for half an hour, with nobody in its place."""
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
        # of the others one has the place of who told of the tip, one this one's
        assert made.engine.pool.has(late) is not bool(others)
        made.are_late = False
        made.announce()
        made.pass_time(5)
        assert made.synced[-1].hash == swarm.regtest.chain.tip.hash
    finally:
        made.stop()
        made.store.close()
