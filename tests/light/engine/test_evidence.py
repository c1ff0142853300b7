"""Evidence: an unconfirmed transaction of others counts once two network groups announced it, in either mode."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from simulation.behaviours.bloom import Liar
from spvfilter.light.engine.inputs import Abandon
from spvfilter.light.events import Mode
from spvfilter.node.responder import Responder
from spvfilter.store.ledger import TxStatus
from spvfilter.store.views import Views
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import MatchFound, MatchWithdrawn, TxReplaced
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message
from support.blocks.locks import STRANGER, build_tx
from support.client.sending import send
from support.client.stage import Prompt, Stage, at, stage

pytestmark = pytest.mark.usefixtures("nothing_invented")
MODES = pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])


@pytest.fixture(autouse=True)
def without_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client of these tests verifies signatures: only network groups decide."""
    monkeypatch.setattr("simulation.engine.find_curve", lambda: None)


class _Inventor(Responder):
    """Serves and announces transactions that nobody else has."""

    made: tuple[Transaction, ...] = ()

    def on_message(self, message: Message) -> None:
        if isinstance(message, wire.Mempool):
            super().on_message(message)
            self.tell_all()
        elif isinstance(message, wire.GetData):
            by_hash = {tx_hash: tx for tx in self.made for tx_hash in (tx.txid, tx.wtxid)}
            for item in message.items:
                if item.hash in by_hash:
                    self.send(wire.Tx(by_hash[item.hash].raw))
            rest = tuple(item for item in message.items if item.hash not in by_hash)
            if rest:
                super().on_message(wire.GetData(rest))
        else:
            super().on_message(message)

    def tell_all(self) -> None:
        if self.made:
            self.send(wire.Inv(tuple(InvItem(InvType.WTX, tx.wtxid) for tx in self.made)))


@pytest.fixture
def nothing_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Inventor, "made", ())


class Invents(Liar):
    responder = _Inventor


def invent(world: Stage, transactions: Iterable[Transaction], *numbers: int) -> None:
    """Let the nodes with these numbers announce transactions."""
    _Inventor.made = tuple(transactions)
    for number in numbers or (0,):
        for end in world.nodes[number].ends:
            if isinstance(end.responder, _Inventor):
                end.responder.tell_all()
                end.work()
    world.pass_time(5)


def forged(world: Stage) -> list[Transaction]:
    """An unsigned spend of each coin of the wallet."""
    inputs = [TxIn(coin.outpoint, witness=(b"",)) for coin in world.truth.coins]
    return [Transaction.parse(build_tx([each], [STRANGER.pays(1_000)])) for each in inputs]


def funded(world: Stage, payments: int = 3) -> None:
    for _ in range(payments):
        world.truth.receive()
    world.truth.mine()
    world.boot()
    world.wait_synced(within=60)


def views(world: Stage) -> Views:
    world.pass_time(1)
    return world.running.disk.store.views


def answers(world: Stage) -> dict[str, object]:
    """Everything that an edge shows about money."""
    found = views(world)
    balance = found.balance()
    return {
        "balance": (balance.total, balance.confirmed, balance.pending_in, balance.pending_out, balance.spendable),
        "unspent": sorted(bytes(coin.outpoint) for coin in found.unspent()),
        "spent": [coin.spent_by for coin in found.coins() if coin.spent_by is not None],
        "history": [(entry.txid, entry.status) for entry in found.history()],
    }


def about(world: Stage, transactions: Iterable[Transaction]) -> list[object]:
    """The events that name one of these transactions."""
    txids = {tx.txid for tx in transactions}
    matches = [
        each for each in world.told if isinstance(each, (MatchFound, MatchWithdrawn)) and each.match.txid in txids
    ]
    return [*matches, *(each for each in world.told if isinstance(each, TxReplaced) and each.txid in txids)]


@pytest.mark.few(1)
@MODES
@pytest.mark.parametrize("then", ["restart", "block", "reorganization", "ten minutes", "own broadcast"])
def test_forged_spends_of_confirmed_coins_change_no_answer(mode: Mode, then: str, tmp_path: Path) -> None:
    """Every coin stays in the balance and can be selected, although one of three peers announces a spend of it."""
    with stage(tmp_path, mode, Invents, Prompt, Prompt) as world:
        funded(world)
        before, made = answers(world), forged(world)
        invent(world, made)
        assert world.running.status.waiting == len(made)
        assert {entry.txid for entry in views(world).history(waiting=True)} == {tx.txid for tx in made}
        assert {entry.status for entry in views(world).history(waiting=True)} == {TxStatus.WAITING}
        assert answers(world) == before
        match then:
            case "restart":
                world.kill()
                world.nodes[0].is_up = False
                world.boot()
                world.wait_synced(within=60)
                world.pass_time(700)
            case "block":
                world.truth.mine()
                world.wait_synced(within=60)
            case "reorganization":
                world.truth.regtest.reorg(1, transactions=[[], []], blocks=2)
                world.wait_synced(within=60)
                world.truth.mine()
                world.wait_synced(within=60)
            case "ten minutes":
                world.pass_time(700)
            case _:
                coin = world.truth.coins[0]
                sent = send(world, raw=build_tx([coin.spend()], [coin.lock.pays(coin.value - 900)]))
                world.pass_time(30)
                assert views(world).transaction(sent) is not None
                world.running.report(Abandon(sent))
                world.pass_time(5)
        now = answers(world)
        if then != "own broadcast":
            assert [txid for txid, _ in now["history"]] == [txid for txid, _ in before["history"]]  # type: ignore[attr-defined]
        assert {key: value for key, value in now.items() if key != "history"} == {
            key: value for key, value in before.items() if key != "history"
        }
        assert about(world, made) == []


@MODES
def test_spend_announced_by_two_groups_leaves_the_coin_selectable(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Invents, Invents, Prompt) as world:
        funded(world, 1)
        before, made = answers(world), forged(world)[:1]
        invent(world, made, 0, 1)
        (spend,) = made
        found = views(world)
        assert found.balance().pending_out == world.truth.coins[0].value
        assert sorted(bytes(each.outpoint) for each in found.unspent()) == before["unspent"]
        assert found.history()[0].txid == spend.txid
        world.kill()
        for number in (0, 1):
            world.nodes[number].is_up = False
        world.boot()
        world.wait_synced(within=60)
        assert views(world).history()[0].status is TxStatus.PENDING


@MODES
def test_two_peers_of_one_group_are_one_group(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, at(Invents, 1, net=9), at(Invents, 2, net=9), Prompt) as world:
        funded(world, 1)
        before = answers(world)
        invent(world, forged(world), 0, 1)
        assert answers(world) == before


@MODES
def test_named_peers_of_one_group_need_no_second(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, at(Prompt, 1, net=9), at(Prompt, 2, net=9)) as world:
        funded(world, 1)
        world.truth.receive()
        world.pass_time(20)
        assert views(world).balance().pending_in > 0


@MODES
def test_one_group_is_enough_after_ten_minutes_without_another(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt) as world:
        funded(world, 1)
        world.nodes[1].is_up = False
        world.nodes[1].go_down()
        world.pass_time(60)
        world.truth.receive()
        world.pass_time(60)
        assert views(world).balance().pending_in == 0
        world.pass_time(600)
        assert views(world).balance().pending_in > 0


@pytest.mark.few(1)
@MODES
def test_group_that_stays_vouches_for_no_other_peer(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Invents, Prompt) as world:
        funded(world, 1)
        before = answers(world)
        invent(world, forged(world))
        world.nodes[0].is_up = False
        world.nodes[0].go_down()
        world.pass_time(1_300)
        assert answers(world) == before


@MODES
def test_honest_payment_counts_within_seconds(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, Prompt, Invents) as world:
        funded(world, 1)
        world.truth.receive()
        world.pass_time(20)
        (entry,) = [each for each in views(world).history() if each.status is TxStatus.PENDING]
        assert entry.txid == world.truth.coins[-1].outpoint.txid
        assert world.running.status.waiting == 0


@MODES
def test_questions_about_forged_transactions(mode: Mode, tmp_path: Path) -> None:
    """Compact mode asks a peer of a second group for each. BIP-37 mode asks no peer that did not announce it."""
    with stage(tmp_path, mode, Invents, Prompt) as world:
        funded(world, 3)
        made = forged(world)
        sent: list[bytes] = []
        honest = world.nodes[1]
        (end,) = honest.ends
        take = end.responder.on_message

        def on_message(message: Message) -> None:
            if isinstance(message, wire.GetData):
                sent.extend(item.hash for item in message.items)
            take(message)

        end.responder.on_message = on_message  # type: ignore[method-assign]
        invent(world, made)
        assert not {tx.txid for tx in made} & set(sent)
        world.pass_time(60)
        expected = sorted(tx.txid for tx in made) if mode is Mode.COMPACT else []
        assert sorted(each for each in sent if each in {tx.txid for tx in made}) == expected
