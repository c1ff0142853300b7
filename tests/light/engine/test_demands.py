"""Busy nodes that close the connection at requests: transactions, filtered blocks, old blocks, the mempool."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from simulation import truth
from simulation.behaviours.busy import SlotsFull, UploadNearlyUsed, UploadUsed
from simulation.node import Node
from spvfilter.errors import UselessPeerError
from spvfilter.light.engine.demands import MAX_CLOSED, MEMPOOL_REFUSED_S, REFUSED_S, Demand, Refusals
from spvfilter.light.events import Mode
from spvfilter.light.status import ClientStatus
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.session import Session
from support.client.stage import Prompt, Stage, stage

BUSY_S = 120.0


def status(world: Stage) -> ClientStatus:
    return world.running.status


def named(world: Stage, demand: Demand) -> list[str]:
    """Return the addresses of peers with a warning about this demand."""
    found = [each for each in world.warnings if str(each.error).startswith(demand.value)]
    assert all(isinstance(each.error, UselessPeerError) and not each.banned for each in found)
    return [each.address for each in found]


def sees_payment(world: Stage) -> bool:
    """True if an unconfirmed payment appears within a minute."""
    world.truth.receive()
    world.pass_time(60)
    return world.truth.ours_waiting(world.is_wanted) == world.running.books.waiting()


def free_slots(world: Stage) -> None:
    """Give the client slots for transactions again."""
    behaviour = world.nodes[0].behaviour
    assert isinstance(behaviour, SlotsFull)
    behaviour.are_slots_full = False


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.COMPACT])
def test_node_without_relay_slots_still_serves_blocks(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, SlotsFull) as world:
        world.boot()
        world.wait_synced(within=BUSY_S)
        assert not world.synced[-1].sees_unconfirmed
        assert not status(world).sees_unconfirmed
        assert [peer.relays for peer in status(world).peers] == [False]
        assert len(named(world, Demand.RELAY)) == 1
        assert not sees_payment(world)
        world.truth.mine()
        world.wait_synced(within=BUSY_S)
        assert world.has_found_all()
        assert len(world.warnings) == MAX_CLOSED  # the connection stays
        (connection,) = world.running.connections.values()
        assert not connection.sent["mempool"]  # it would need a slot too


def test_client_asks_for_transactions_again_after_ten_minutes(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, SlotsFull) as world:
        world.boot()
        world.wait_synced(within=BUSY_S)
        world.pass_time(REFUSED_S + 60)
        assert len(named(world, Demand.RELAY)) == 2  # one closed connection is enough
        assert not status(world).sees_unconfirmed
        assert status(world).is_synced
        free_slots(world)
        world.pass_time(REFUSED_S + 60)
        assert status(world).sees_unconfirmed
        assert sees_payment(world)
        assert len(world.warnings) == MAX_CLOSED + 1


def test_bip37_names_full_relay_slots(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, SlotsFull) as world:
        world.boot()
        world.pass_time(BUSY_S)
        assert not world.synced
        assert named(world, Demand.RELAY)
        assert "compact mode" in str(world.warnings[-1].error)
        world.pass_time(600)  # pauses grow no longer than 20 seconds
        free_slots(world)
        world.wait_synced(within=30)
        assert world.synced[-1].sees_unconfirmed
        assert sees_payment(world)


def test_another_node_with_slots_announces_payments(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, SlotsFull, Prompt) as world:
        world.boot()
        world.wait_synced(within=BUSY_S)
        world.pass_time(30)
        assert sorted(peer.relays for peer in status(world).peers) == [False, True]
        assert status(world).sees_unconfirmed
        world.pass_time(600)  # from then on no second network group is expected
        assert sees_payment(world)


def test_synced_without_mempool_sees_no_unconfirmed_payments(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Prompt, mempool=False) as world:
        world.boot()
        world.wait_synced(within=60)
        assert not world.synced[-1].sees_unconfirmed
        assert not status(world).sees_unconfirmed


def test_bip37_names_the_upload_limit_and_uses_another_peer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, UploadNearlyUsed, Prompt) as world:
        world.boot()
        world.wait_synced(within=BUSY_S)
        world.pass_time(60)
        assert set(named(world, Demand.BLOCKS)) == {world.nodes[0].addresses[0]}
        assert world.has_found_all()


def test_auto_goes_on_with_recent_blocks_beside_an_upload_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "_LONG_SHARE", 1.0)
    with stage(
        tmp_path, Mode.AUTO, UploadNearlyUsed, from_height=truth.template(truth.LONG).regtest.height - 900
    ) as world:
        world.boot()
        world.wait_synced(within=BUSY_S)
        assert not world.warnings
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=BUSY_S)
        assert not any(connection.sent["filterload"] for connection in world.running.connections.values())


@pytest.mark.slow
def test_old_blocks_come_from_another_peer_beside_an_upload_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "_LONG_SHARE", 1.0)
    with stage(tmp_path, Mode.AUTO, UploadNearlyUsed, Prompt) as world:
        world.boot()
        world.wait_synced(within=BUSY_S)
        world.pass_time(60)
        assert world.has_found_all()
        assert 1 <= len(world.warnings) <= MAX_CLOSED
        assert len(status(world).peers) == 2  # the busy peer stays for recent blocks


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.COMPACT])
def test_old_blocks_that_no_peer_serves_are_awaited_without_reconnecting(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth, "_LONG_SHARE", 1.0)
    with stage(tmp_path, mode, UploadNearlyUsed) as world:
        world.boot()
        world.pass_time(300)
        assert not world.synced
        assert named(world, Demand.BLOCKS) == [world.nodes[0].addresses[0]]
        assert len(world.warnings) == MAX_CLOSED
        assert len(status(world).peers) == 1


@pytest.mark.parametrize("mode", [Mode.AUTO, Mode.COMPACT])
def test_node_that_closes_at_a_mempool_request_still_announces_payments(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, UploadUsed) as world:
        world.boot()
        world.wait_synced(within=BUSY_S)
        world.pass_time(30)
        assert named(world, Demand.MEMPOOL) == [world.nodes[0].addresses[0]]
        assert "may be used up" in str(world.warnings[-1].error)
        assert len(world.warnings) == MAX_CLOSED
        assert sees_payment(world)
        world.pass_time(600)
        assert len(world.warnings) <= MAX_CLOSED + 4  # it is asked again after 1, 2, 4 and 8 minutes


def test_an_answer_resets_the_count_of_closed_connections() -> None:
    refusals = Refusals()
    assert [refusals.close(Demand.RELAY, 0.0) for _ in range(MAX_CLOSED)] == [False, False, True]
    assert refusals.is_refused(Demand.RELAY, REFUSED_S - 1)
    assert not refusals.is_refused(Demand.BLOCKS, 0.0)
    assert not refusals.is_refused(Demand.RELAY, REFUSED_S)
    assert refusals.close(Demand.RELAY, REFUSED_S)  # one more closed connection is enough
    refusals.grant(Demand.RELAY)
    assert not refusals.is_refused(Demand.RELAY, REFUSED_S)
    assert not refusals.close(Demand.RELAY, REFUSED_S)


def test_a_mempool_is_asked_for_again_soon() -> None:
    refusals, now, pauses = Refusals(), 0.0, list[float]()
    for _ in range(MAX_CLOSED - 1):
        assert not refusals.close(Demand.MEMPOOL, now)
    for _ in range(6):
        assert refusals.close(Demand.MEMPOOL, now)
        pauses.append(refusals.until[Demand.MEMPOOL] - now)
        now = refusals.until[Demand.MEMPOOL]
    assert pauses == [MEMPOOL_REFUSED_S * each for each in (1, 2, 4, 8, 10, 10)]


class BreaksLater(Prompt):
    """Sends no block, and its connections break a while after the request."""

    responder: ClassVar[type[Responder]] = type("_NoBlocks", (Responder,), {"on_block_wanted": lambda *_: None})

    def begin(self, node: Node) -> None:
        self._node = node

    def respond(self, view: Regtest, session: Session) -> Responder:
        self.world.timeline.after(15.0, self._node.hang_up)
        return super().respond(view, session)


def test_a_connection_that_breaks_later_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a bad line would keep the client from old blocks."""
    monkeypatch.setattr(truth, "_LONG_SHARE", 1.0)
    with stage(tmp_path, Mode.COMPACT, BreaksLater) as world:
        world.boot()
        world.pass_time(400)
        assert len(world.warnings) > MAX_CLOSED
        assert not named(world, Demand.BLOCKS)
