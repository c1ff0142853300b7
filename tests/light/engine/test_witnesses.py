"""Rebroadcasts with another witness, as after a second signature: the txid is the same, and peers may have it
already.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.base import Behaviour
from simulation.behaviours.relay import Drops, Taker
from simulation.world import World
from spvfilter.errors import TxConflictError
from spvfilter.light.engine.effects import Commit, Send
from spvfilter.light.engine.inputs import Abandon, BroadcastAsked as Sending, Committed
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.responder import Responder
from spvfilter.store.ledger import TxStatus
from spvfilter.transaction import Transaction
from spvfilter.wire.messages.table import Inv
from support.blocks.locks import LOCKS, build_tx, sign_again
from support.client.engineparts import context_of
from support.client.sending import MODES, Hoards, Waits, answer, named, send, status, stranger, synced
from support.client.stage import Prompt, Stage, stage


def signed_twice(world: Stage) -> list[bytes]:
    """Return a transaction that spends a coin in a block, and a copy with another signature."""
    coins = world.truth.regtest.chain.coins
    coin = next(each for each in world.truth.coins if len(each.lock.witness) == 2 and bytes(each.outpoint) in coins)
    raw = build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 500)])
    return [raw, sign_again(raw, coin.lock.pays(coin.value))]


@pytest.mark.few(2)
@MODES
@pytest.mark.parametrize("kind", [Hoards, Drops])
def test_a_second_witness_is_announced(mode: Mode, kind: type[Taker], tmp_path: Path) -> None:
    """No peer keeps the first witness, or each peer keeps it and relays it to nobody."""
    with stage(tmp_path, mode, kind) as world:
        synced(world)
        raws = signed_twice(world)
        first, second = map(Transaction.parse, raws)
        assert (first.txid, first.wtxid != second.wtxid) == (second.txid, True)
        txid = send(world, raw=raws[0])
        world.pass_time(20)
        behaviour, given = world.nodes[0].behaviour, list[bytes]()
        assert isinstance(behaviour, kind)
        assert status(world, txid) is TxStatus.PENDING
        behaviour.given = lambda responder, raw: given.append(raw)  # type: ignore[method-assign]
        send(world, raw=raws[1])
        world.pass_time(10)
        assert given == [raws[1]]
        entry = world.running.disk.store.views.transaction(txid)
        assert entry is not None
        assert (entry.raw, entry.status) == (raws[1], TxStatus.PENDING)
        world.kill()
        world.pass_time(100)
        assert given[1:] == [raws[1]]


class Late(Hoards):
    """Keeps the first transaction of a txid, and serves it only after its next round of announcements, as Core does."""

    def __init__(self, rng: object, world: World) -> None:
        super().__init__(rng, world)
        self.came: set[bytes] = set()

    def given(self, responder: Responder, raw: bytes) -> None:
        if Transaction.parse(raw).txid not in self.came:
            self.came.add(Transaction.parse(raw).txid)
            self.world.timeline.after(5.0, lambda: super(Late, self).given(responder, raw))


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize(("kind", "number"), [(Prompt, 1), (Prompt, 2), (Prompt, 4), (Late, 1)])
@pytest.mark.parametrize("ran_before", [False, True])
def test_a_second_witness_of_a_known_transaction_is_not_refused(
    mode: Mode, kind: type[Behaviour], number: int, ran_before: bool, tmp_path: Path
) -> None:
    """No peer takes the second witness, because all peers have the first. The coins of the transaction were
    released.
    """
    with stage(tmp_path, mode, *[kind] * number) as world:
        synced(world)
        raws = signed_twice(world)
        txid = send(world, raw=raws[0])
        world.pass_time(2)
        if ran_before:
            world.kill()
            world.pass_time(60)
        world.running.answers.pop(txid, None)
        send(world, raw=raws[1])
        for _ in range(20):
            world.pass_time(30)
            assert status(world, txid) is TxStatus.PENDING
        assert isinstance(answer(world, txid), Broadcast)


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("restarts", [False, True])
def test_a_second_witness_of_an_abandoned_transaction_is_not_refused(
    mode: Mode, restarts: bool, tmp_path: Path
) -> None:
    """Peers still have the abandoned transaction and refuse the second witness. The coins were released."""
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        raws = signed_twice(world)
        txid = send(world, raw=raws[0])
        world.pass_time(10)
        world.running.report(Abandon(txid))
        world.pass_time(10)
        assert status(world, txid) is TxStatus.ABANDONED
        if restarts:
            world.kill()
            world.pass_time(60)
        world.running.answers.pop(txid, None)
        send(world, raw=raws[1])
        world.pass_time(300)
        assert txid in world.truth.regtest.mempool
        assert (status(world, txid), type(answer(world, txid))) == (TxStatus.PENDING, Broadcast)


@pytest.mark.parametrize("is_announced", [False, True])
def test_a_private_second_witness_is_sent(is_announced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The foreign peer received the first witness, and the second call returned that answer."""
    with stage(tmp_path, Mode.COMPACT, Waits, Waits, Waits, max_peers=2) as world:
        synced(world)
        other = stranger(world)
        raws = signed_twice(world)
        monkeypatch.setattr(Waits, "asks", not is_announced)
        send(world, is_private=True, raw=raws[0])
        if is_announced:
            world.pass_time(2)
        monkeypatch.setattr(Waits, "asks", True)
        txid = send(world, is_private=True, raw=raws[1])
        world.pass_time(10)
        known = answer(world, txid)
        assert isinstance(known, Broadcast)
        assert named(world, known.sent) == [other]
        there = world.truth.regtest.mempool.get(txid)
        assert there is not None
        assert there.raw == raws[1]


@pytest.mark.few(1)
@MODES
def test_a_second_witness_does_not_replace_a_replacement(mode: Mode, tmp_path: Path) -> None:
    """The client took the second witness for the known transaction, and announced the replacement no longer."""
    with stage(tmp_path, mode, Prompt) as world:
        synced(world)
        raws = signed_twice(world)
        coin = next(each for each in world.truth.coins if bytes(each.outpoint) == Transaction.parse(raws[0]).inputs[0])
        txid = send(world, raw=raws[0])
        world.pass_time(10)
        world.running.report(Abandon(txid))
        world.pass_time(10)
        assert status(world, txid) is TxStatus.ABANDONED
        mempool = world.truth.regtest.mempool
        mempool.remove_for([next(tx for tx in mempool if tx.txid == txid)])  # nodes accept the replacement
        instead = send(world, raw=build_tx([coin.spend()], [LOCKS[0].pays(coin.value - 9_000)]))
        world.pass_time(60)
        assert instead in mempool
        world.running.answers.pop(txid, None)
        send(world, raw=raws[1], is_forced=True)
        world.pass_time(300)
        assert isinstance(answer(world, txid), TxConflictError)
        assert status(world, instead) is TxStatus.PENDING


def test_a_second_witness_is_stored_before_a_peer_has_it(tmp_path: Path) -> None:
    """The commit of the first witness says nothing about the second one."""
    with stage(tmp_path, Mode.COMPACT, Prompt) as world:
        synced(world)
        engine = world.engine
        now = context_of(engine).now
        commits, announced = list[int](), list[int]()
        for raw in signed_twice(world):
            effects = engine.step(Sending(raw), now)
            commits.append(max(each.number for each in effects if isinstance(each, Commit)))
        for number in commits:
            effects = engine.step(Committed(number), now)
            announced.append(sum(isinstance(each, Send) and isinstance(each.message, Inv) for each in effects))
        assert announced == [0, 1]
