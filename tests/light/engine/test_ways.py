"""Search modes: the choice of a mode, and the effects of peers on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.base import Behaviour
from simulation.behaviours.bloom import Liar, OmitsAll
from simulation.behaviours.faulty import NoFilters
from simulation.pipe import Quality
from spvfilter.kernel import EntryKind
from spvfilter.light.engine.addresses import BLOOM_NEEDS
from spvfilter.light.engine.effects import Commit
from spvfilter.light.engine.engine import SearchMode
from spvfilter.light.engine.inputs import Asked, Instant
from spvfilter.light.engine.requests import AddEntries, SearchStart
from spvfilter.light.events import Broadcast, Mode
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import Lock, multisig, p2wpkh
from spvfilter.transaction import Transaction
from spvfilter.wire.events import Service
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.filters import GetCFCheckpt, GetCFHeaders, GetCFilters
from spvfilter.wire.messages.table import InvItem, InvType, Message
from support.blocks.build import TxIn, TxOut, tx
from support.blocks.locks import build_tx, key
from support.client.engineparts import search_by
from support.client.sending import answer, send
from support.client.stage import Prompt, at, stage
from support.client.swarm import client


class Late(Behaviour):
    """Honest, but each of its packets takes seconds."""

    def quality(self) -> Quality:
        return Quality(1.5, 0.0, 1e7, 0)


class _NoCompact(Responder):
    def on_message(self, message: Message) -> None:
        if not isinstance(message, (GetCFHeaders, GetCFilters, GetCFCheckpt)):
            super().on_message(message)


class Pretends(Liar):
    """Offers compact filters and answers no request for them."""

    responder = _NoCompact
    services = Service.NETWORK | Service.WITNESS | Service.COMPACT_FILTERS


def test_auto_sends_no_filter_while_peers_with_compact_filters_connect(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.AUTO, *[Late] * 4, NoFilters) as world:
        world.boot()
        world.wait_synced(within=120)
        assert not any(connection.sent["filterload"] for connection in world.running.connections.values())


def test_a_change_to_compact_filters_clears_the_filters_of_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old filter does not match later entries. A peer that keeps it announces no payment to them."""
    way = [SearchMode.BLOOM]
    search_by(monkeypatch, way)
    with stage(tmp_path, Mode.AUTO, Prompt) as world:
        world.boot()
        world.wait_synced(within=120)
        way[0] = SearchMode.COMPACT
        lock = p2wpkh(key(77))
        world.watch_lock(lock)
        world.wait_synced(within=120)
        world.pass_time(60)
        world.truth.receive(lock)
        world.pass_time(60)
        assert world.truth.ours_waiting(world.is_wanted) == world.running.books.waiting()
        (connection,) = world.running.connections.values()
        assert connection.sent["filterclear"] == 1
        assert not world.warnings


def test_compact_filters_without_the_mempool_reveal_nothing_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an own transaction, the client sent peers the outpoints of all coins that compact filters had found."""
    way = [SearchMode.BLOOM]
    search_by(monkeypatch, way)
    with stage(tmp_path, Mode.AUTO, Prompt, mempool=False) as world:
        world.boot()
        world.wait_synced(within=120)
        way[0] = SearchMode.COMPACT
        for _ in range(3):
            world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=120)
        txid = send(world)
        world.pass_time(60)
        assert isinstance(answer(world, txid), Broadcast)
        (connection,) = world.running.connections.values()
        assert (connection.sent["filterload"], connection.sent["filteradd"], connection.sent["filterclear"]) == (
            1,
            0,
            0,
        )
        way[0] = SearchMode.BLOOM
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=120)
        assert connection.sent["filterload"] == 2
        assert world.has_found_all()
        assert not world.warnings


def test_compact_filters_find_spends_of_a_bare_multisig_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry has the script. The client learned it when BIP-37 found the output."""
    way, lock = [SearchMode.BLOOM], multisig(1, [key(70), key(71)])
    search_by(monkeypatch, way)
    with stage(tmp_path, Mode.AUTO, Prompt, mempool=False) as world:
        monkeypatch.setattr(world.wishes, "answered", lambda token, value: None)
        world.boot()
        world.running.ask(1, AddEntries(((EntryKind.MULTISIG_KEY, key(70), None),), SearchStart()))
        world.truth.learn(lock)
        world.wait_synced(within=120)
        world.truth.receive(lock)
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.has_found_all()
        way[0] = SearchMode.COMPACT
        world.truth.mine()
        world.wait_synced(within=120)
        world.truth.regtest.submit_tx(build_tx([world.truth.coins[-1].spend()], [p2wpkh(key(99)).pays(5_000)]))
        world.truth.mine()
        world.wait_synced(within=120)
        assert world.has_found_all()


def test_blocks_that_were_searched_by_bip37_later_are_not_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two peers had agreed on the filter headers. For the later entry, the client asked only one peer, which has
    left.
    """
    way, lock = [SearchMode.COMPACT], p2wpkh(key(77))
    search_by(monkeypatch, way)
    with stage(tmp_path, Mode.AUTO, OmitsAll, Prompt, mempool=False) as world:
        monkeypatch.setattr(world.wishes, "answered", lambda token, value: None)
        world.truth.receive(lock)
        world.truth.mine(2)
        paid = world.truth.height - 1
        world.boot()
        world.wait_synced(within=60)
        assert world.synced[-1].proven_height == world.truth.height
        way[0] = SearchMode.BLOOM
        world.nodes[1].go_down()
        world.pass_time(60)
        world.running.ask(1, AddEntries(((EntryKind.SCRIPT, lock.script_pubkey, None),), SearchStart(0)))
        world.truth.mine()
        world.wait_synced(within=120)
        way[0] = SearchMode.COMPACT
        world.truth.mine()
        world.wait_synced(within=120)
        engine = world.engine
        assert 1 not in engine.books.positions_at(paid)
        assert world.synced[-1].proven_height < paid
        assert engine.status_at(Instant(0.0, 0.0), world.truth.height, 0, engine.books.cursor, ()).proven_height < paid
        world.truth.learn(lock)
        world.nodes[1].is_up = True  # the blocks are then searched by filters that two peers agree on
        world.pass_time(400)
        assert 1 in engine.books.positions_at(paid)
        assert world.synced[-1].proven_height == world.truth.height


def test_auto_does_not_alternate_for_false_offers_of_compact_filters(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.AUTO, Pretends, NoFilters) as world:
        world.boot()
        world.wait_synced(within=600)
        assert world.has_found_all()
        world.pass_time(1_800)
        for _ in range(25):
            world.pass_time(40)
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=30)
        assert world.has_found_all()


def test_auto_uses_compact_filters_again_when_a_peer_is_steady(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.AUTO, Prompt, NoFilters) as world:
        world.boot()
        for _ in range(4):
            world.pass_time(0.2)
            world.nodes[0].hang_up()  # before the peer was useful
            world.pass_time(20)
        world.pass_time(90)
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=30)
        (steady,) = [each for each in world.running.connections.values() if each.node is world.nodes[0]]
        assert steady.sent["getcfilters"]
        assert world.has_found_all()


def test_a_new_network_with_compact_filters_gets_a_slot(tmp_path: Path) -> None:
    """The client waited for the new network, but dropped no peer of a crowded one. It never connected it, and searched
    no further block.
    """
    others = [at(NoFilters, 2, net=1), at(NoFilters, 3, net=1), at(NoFilters, 4, net=2)]
    with stage(tmp_path, Mode.AUTO, at(Prompt, 1, net=1), *others, max_peers=2) as world:
        first, late = world.nodes[0], world.nodes[3]
        late.is_up = False
        world.boot()
        world.wait_synced(within=60)
        late.is_up = True
        first.hang_up()
        world.pass_time(10)
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=60)
        assert world.has_found_all()
        assert len(world.running.connections) == 2


class _FakingResponder(Responder):
    raw = b""

    def on_message(self, message: Message) -> None:
        if isinstance(message, wire.GetData) and any(
            item.hash == Transaction.parse(self.raw).wtxid for item in message.items
        ):
            self.send(wire.Tx(self.raw))
        else:
            super().on_message(message)


class Fakes(Liar):
    responder = _FakingResponder


def sent_to_peers(folder: Path, lock: Lock) -> list[dict[str, int]]:
    """Return the number of sent messages of each kind to each peer. A peer sends a fake payment to `lock`."""
    _FakingResponder.raw = tx([TxIn(bytes(32), 7)], [TxOut(1_000, lock.script_pubkey)])
    folder.mkdir()
    with stage(folder, Mode.BIP37, Fakes, Prompt, fp_rate=0.3, mempool_groups=1) as world:
        world.boot()
        world.wait_synced(within=60)
        (end,) = world.nodes[0].ends
        assert end.responder.filter is not None
        assert end.responder.filter.matches_tx(_FakingResponder.raw)
        end.session.send(wire.Inv((InvItem(InvType.WTX, Transaction.parse(_FakingResponder.raw).wtxid),)))
        end.work()
        world.pass_time(30)
        assert bool(world.running.books.waiting()) == (lock in world.truth.locks)
        world.truth.others()
        world.truth.mine()
        world.wait_synced(within=60)
        assert not world.banned
        return [dict(connection.sent) for connection in world.running.connections.values()]


def test_a_fake_payment_does_not_reveal_an_own_address(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Prompt, fp_rate=0.3) as world:
        ours = world.truth.locks[1]
    for number in range(40):
        try:
            theirs = sent_to_peers(tmp_path / str(number), p2wpkh(key(7_000 + number)))
            break
        except AssertionError:
            continue  # the address does not match the filter by chance
    assert sent_to_peers(tmp_path / "ours", ours) == theirs


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_an_entry_and_its_search_start_are_in_one_commit(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        made = world.engine
        entry = (EntryKind.SCRIPT, p2wpkh(key(9_000)).script_pubkey, None)
        effects = made.step(Asked(1, AddEntries((entry,), SearchStart(5))), Instant(world.timeline.now, world.wall()))
        (commit,) = [effect for effect in effects if isinstance(effect, Commit) and effect.batch.entries]
        assert commit.batch.cursor == 4
        before = effects[: effects.index(commit)]
        assert not any(isinstance(effect, Commit) and effect.batch.cursor is not None for effect in before)


class OnlyBloom(Prompt):
    """Serves BIP-37 and no compact filters."""

    services = Service.NETWORK | Service.WITNESS | Service.BLOOM


@pytest.mark.few(2)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_auto_does_not_wait_for_an_address_without_a_slot(most: int, tmp_path: Path) -> None:
    """Every address is tried once, in the slot of a peer without compact filters."""
    with stage(tmp_path, Mode.AUTO, *[OnlyBloom] * 4, max_peers=most) as world:
        world.boot()
        world.wait_synced(within=30)
        assert world.has_found_all()
        assert world.engine.search_mode is SearchMode.BLOOM
        before = {number for number, each in world.running.connections.items() if each.is_ready}
        world.pass_time(600)
        assert before == world.running.connections.keys()
        assert not world.warnings


@pytest.mark.parametrize("most", [1, 2])
def test_auto_finds_the_only_named_peer_with_compact_filters(most: int, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.AUTO, *[OnlyBloom] * 5, Prompt, max_peers=most) as world:
        world.boot()
        world.wait_synced(within=30)
        assert world.engine.search_mode is SearchMode.COMPACT
        assert not any(connection.sent["filterload"] for connection in world.running.connections.values())


def test_auto_looks_beyond_named_peers_without_compact_filters() -> None:
    """They take all slots, while a gossiped address claims compact filters."""
    with client(1, mode=Mode.AUTO, max_peers=2) as made:
        named = [node for node in made.swarm.nodes if not node.is_hostile and node.is_up][:2]
        for node in named:
            node.services = BLOOM_NEEDS
        made.named = [node.address for node in named]
        made.start()
        made.pass_time(120)
        assert made.synced
        assert made.engine.search_mode is SearchMode.COMPACT
        assert {node.address for node in named} <= {peer.address for peer in made.ready}
        assert len(made.ready) <= 4


def test_requests_from_before_a_filter_cost_no_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With compact filters, the client requests all announced transactions. It banned peers with a new filter for
    unmatched ones.
    """
    with stage(tmp_path, Mode.AUTO, *[Late] * 3) as world:
        monkeypatch.setattr(world.wishes, "answered", lambda token, value: None)
        world.boot()
        world.wait_synced(within=120)
        ways = [world.engine.search_mode]
        for number in range(20):
            world.truth.others()
            world.pass_time(0.5)
            if number == 10:
                world.running.ask(1, AddEntries(((EntryKind.OUTPOINT, bytes((7,)) * 36, None),), SearchStart()))
        world.truth.mine()
        world.pass_time(60)
        ways.append(world.engine.search_mode)
        assert ways == [SearchMode.COMPACT, SearchMode.BLOOM]
        assert not world.warnings
        assert world.has_found_all()


def test_an_announcement_during_a_wait_is_found_by_bip37(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hash was remembered only for compact filters, and no peer announces it again by itself."""
    way = [SearchMode.COMPACT]
    search_by(monkeypatch, way)
    with stage(tmp_path, Mode.AUTO, Prompt, OnlyBloom, mempool_groups=1) as world:
        monkeypatch.setattr(world, "has_prompt_peer", lambda seconds: False)  # one with compact filters
        world.boot()
        world.wait_synced(within=60)
        world.pass_time(60)
        world.nodes[0].go_down()
        way[0] = SearchMode.WAIT
        world.pass_time(10)
        world.truth.receive()
        world.pass_time(60)
        way[0] = SearchMode.BLOOM
        world.pass_time(60)
        assert world.truth.ours_waiting(world.is_wanted) == world.running.books.waiting() != set()
