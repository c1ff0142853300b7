"""Echoes: announcements of own transactions by peers that have them from other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from spvfilter.errors import UselessPeerError
from spvfilter.light.events import Broadcast, BroadcastStep, Mode
from spvfilter.node.responder import Responder
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import InvItem
from support.client.sending import MODES, answer, send, spend, steps, synced
from support.client.stage import Prompt, stage


@MODES
def test_an_announcement_that_crosses_ours_is_an_echo(mode: Mode, tmp_path: Path) -> None:
    """The peer serves the transaction without having requested it, so another node sent it."""
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.truth.regtest.submit_tx(raw)
        for end in world.nodes[0].ends:
            end.announce_tx(Transaction.parse(raw))  # at once, instead of within seconds
        world.pass_time(5)
        known = answer(world, txid)
        assert isinstance(known, Broadcast)
        assert (known.sent, known.echoed) == ((), ("10.1.0.1:18444",))


class _ParrotResponder(Responder):
    def on_inv(self, items: Sequence[InvItem]) -> None:
        for _ in range(3):
            self.send_inv(items)


class Parrot(Prompt):
    """Repeats announcements and accepts nothing."""

    is_honest = False
    responder = _ParrotResponder


@pytest.mark.few(1)
@MODES
def test_a_repeated_announcement_is_no_echo(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Parrot) as world:
        synced(world)
        txid = send(world)
        world.pass_time(300)
        assert steps(world, txid) == []
        assert isinstance(answer(world, txid), UselessPeerError)
    (tmp_path / "other").mkdir()
    with stage(tmp_path / "other", mode, Parrot, Prompt) as world:
        synced(world)
        txid = send(world)
        world.pass_time(60)
        assert txid in world.truth.regtest.mempool
        # it precedes all steps of the parrot
        assert steps(world, txid)[0] == ("10.2.0.2:18444", BroadcastStep.SENT)


@MODES
def test_a_transaction_from_another_node_is_an_echo(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        world.nodes[0].behaviour.responder = _ParrotResponder  # type: ignore[misc]  # only of this node
        world.nodes[0].hang_up()
        world.pass_time(60)
        raw = spend(world)
        txid = send(world, raw=raw)
        world.pass_time(5)
        assert steps(world, txid) == []
        world.truth.regtest.submit_tx(raw)
        world.pass_time(5)
        assert steps(world, txid) == [("10.1.0.1:18444", BroadcastStep.ECHOED)]
