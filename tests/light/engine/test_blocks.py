"""Requests for whole blocks: their peers and their repetition."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from simulation.behaviours.blocks import Strips
from simulation.world import World
from spvfilter.chain import HeaderChain
from spvfilter.errors import LieError, UselessPeerError
from spvfilter.light.engine.blockfetches import BlockFetches
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.context import Context, is_next
from spvfilter.light.engine.effects import Done, Send, Work
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.inputs import Instant, PeerConnected
from spvfilter.light.engine.netgroups import host_of
from spvfilter.light.engine.options import Options, PeerTimeouts
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.peers import PeerPool, PeerState
from spvfilter.light.engine.requests import FetchBlock
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wallet.books import Books
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.saved import SavedBooks
from spvfilter.wallet.scanned import ScannedBlock
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages.table import GetData, InvItem, NotFound
from spvfilter.wire.session import Session
from support.client.stage import Prompt, stage

NOW = Instant(0.0, 1_700_000_000.0)


class Staged:
    """Block requests over a chain of three blocks, with ready peers that know the whole chain."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str, small_block: int = 100_000) -> None:
        timeouts = PeerTimeouts(small_block=small_block)
        regtest = Regtest()
        regtest.mine(3)
        chain = HeaderChain(REGTEST)
        self.blocks = regtest.chain.active
        chain.accept(b"".join(block.raw[:80] for block in self.blocks[1:]), 4_000_000_000)
        books = Books(WatchList(REGTEST), SavedBooks())
        self.out = out = Outbox(books, chain, Journal())
        self.pool = pool = PeerPool(addresses, {}, 8, timeouts, out)
        self.context = context = Context(
            Options(timeouts=timeouts), chain, FilterRows(), books, pool, out, random.Random(1), NOW, NOW.wall
        )
        pool.advance(NOW)
        for peer in pool:
            pool.welcome(
                PeerConnected(peer.number, host_of(peer.address), 0x4D, 3, True, True, "/test/", int(NOW.wall)), NOW
            )
            pool.move(peer, PeerState.READY)
        headers = PeerHeaders(context, lambda update: None)
        monkeypatch.setattr(headers, "knows", lambda peer: 3)
        self.requests = BlockRequests(context, headers)
        self.fetches = BlockFetches(context, self.requests)


def test_an_owed_block_is_not_requested_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second answer would be unsolicited: the client banned honest peers for it."""
    world = Staged(monkeypatch, "10.1.0.1:1")
    requests, out, block, (peer,) = world.requests, world.out, world.blocks[2], world.pool
    came: list[bytes] = []
    for _ in range(2):
        requests.want(2, block.hash, came.append)
        requests.advance()
        requests.disconnect_to(1)
    requests.want(2, block.hash, came.append)
    requests.advance()
    asked = [effect for effect in out.take() if isinstance(effect, Send) and isinstance(effect.message, GetData)]
    assert len(asked) == 1
    requests.take(peer, block.raw)
    with pytest.raises(LieError):
        requests.take(peer, block.raw)


def test_a_program_gets_its_block_though_a_search_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new search cancelled all requests, and the program waited for ever."""
    world = Staged(monkeypatch, "10.1.0.1:1")
    requests, out, block, (peer,) = world.requests, world.out, world.blocks[2], world.pool
    world.fetches.fetch(7, FetchBlock(block.hash))
    requests.advance()
    for _ in range(2):
        requests.disconnect_to(1)
        world.fetches.advance()
        requests.advance()
    requests.take(peer, block.raw)
    world.fetches.advance()
    assert [effect for effect in out.take() if isinstance(effect, Done)] == [Done(7, block.raw)]
    assert not len(requests)


@pytest.mark.parametrize(("small_block", "works"), [(0, 3), (1_000_000, 0)])
def test_blocks_are_requested_together_and_small_ones_checked_at_once(
    small_block: int, works: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Staged(monkeypatch, "10.1.0.1:1", small_block=small_block)
    requests, out, (peer,) = world.requests, world.out, world.pool
    came: list[bytes] = []
    blocks = world.blocks[1:]
    for height, block in enumerate(blocks, 1):
        requests.want(height, block.hash, came.append)
    requests.advance()
    asked = [
        effect.message for effect in out.take() if isinstance(effect, Send) and isinstance(effect.message, GetData)
    ]
    assert [[item.hash for item in message.items] for message in asked] == [[block.hash for block in blocks]]
    assert len(peer.questions) == 3
    for block in blocks:
        requests.take(peer, block.raw)
    assert not peer.questions
    due = [effect for effect in out.take() if isinstance(effect, Work)]
    assert len(due) == works
    assert came == ([] if works else [block.raw for block in blocks])
    for work in due:
        out.done(work.token, work.function())
    assert came == [block.raw for block in blocks]


def test_a_block_is_requested_again_after_a_false_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client dropped the second copy while it checked the first one, and then requested the block from no peer."""
    world = Staged(monkeypatch, "10.1.0.1:1", "10.2.0.2:1", small_block=0)
    requests, out, pool, block = world.requests, world.out, world.pool, world.blocks[2]
    came: list[bytes] = []
    requests.want(2, block.hash, came.append)
    requests.advance()
    (liar,) = (peer for peer in pool if peer.questions)
    (honest,) = (peer for peer in pool if not peer.questions)
    pool.move(liar, PeerState.SUSPECT)
    requests.advance()
    assert honest.questions
    requests.take(liar, block.raw[:80] + world.blocks[3].raw[80:])
    (check,) = (effect for effect in out.take() if isinstance(effect, Work))
    requests.take(honest, block.raw)
    out.done(check.token, check.function())
    assert not pool.has(liar)
    requests.advance()
    assert honest.questions
    requests.take(honest, block.raw)
    (check,) = (effect for effect in out.take() if isinstance(effect, Work))
    out.done(check.token, check.function())
    assert came == [block.raw]
    assert pool.has(honest)


@pytest.mark.parametrize("fails", [False, True])
def test_a_block_is_requested_from_another_peer_without_waiting(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One peer says that it lacks the block, or is dropped. The engine must not wait for its next tick."""
    world = Staged(monkeypatch, "10.1.0.1:1", "10.2.0.2:1")
    requests, context, block = world.requests, world.context, world.blocks[2]
    requests.want(2, block.hash, lambda raw: None)
    requests.advance()
    (asked,) = (peer for peer in world.pool if peer.questions)
    (other,) = (peer for peer in world.pool if not peer.questions)
    context.is_due = False
    if fails:
        context.failed(asked, UselessPeerError("it is late"))
    else:
        requests.not_found(asked, block.hash)
    assert context.is_due
    requests.advance()
    assert other.questions
    assert world.pool.has(asked) != fails


def test_only_the_next_block_of_the_best_chain_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain or the cursor may change while a thread scans a block."""
    world = Staged(monkeypatch)
    world.context.books.searches.skip_to(1)
    cases = [(height, block.hash) for height in range(1, 4) for block in world.blocks]
    nexts = [each for each in cases if is_next(world.context, ScannedBlock(*each))]
    assert nexts == [(2, world.blocks[2].hash)]


def test_a_block_without_its_witnesses_bans_no_peer(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Strips, Strips, Prompt) as world:
        world.boot()
        world.wait_synced(within=120)
        for _ in range(3):
            world.truth.receive()
            world.truth.spend()
            world.truth.mine()
            world.wait_synced(within=60)
        assert any("without the witnesses" in str(each.error) for each in world.warnings)
        assert not world.banned
        assert world.has_found_all()


class _Denying(Responder):
    def __init__(self, regtest: Regtest, session: Session, denied: set[bytes]) -> None:
        super().__init__(regtest, session)
        self._denied = denied

    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        if block.hash in self._denied:
            super().on_block_wanted(block, kind)
        else:
            self._denied.add(block.hash)
            self.send(NotFound((InvItem(kind, block.hash),)))


class Denies(Prompt):
    """Denies once that it has a block."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._denied = {block.hash for block in world.truth.regtest.chain.active[:-100]}

    def respond(self, view: Regtest, session: Session) -> Responder:
        return _Denying(view, session, self._denied)


@pytest.mark.parametrize("number", [1, 2])
def test_a_block_that_all_peers_denied_is_requested_again(number: int, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, *[Denies] * number) as world:
        world.boot()
        world.wait_synced(within=1_800)
        assert world.has_found_all()
        assert {"does not have block" in str(each.error) for each in world.warnings} == {True}
        assert not world.banned
