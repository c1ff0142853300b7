"""Slow peers: a peer delays only its own answers, and for no longer than a stall."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import pytest

from simulation.behaviours.bloom import Liar
from simulation.behaviours.compact import FalseFilters
from simulation.behaviours.schemes import Lags, Misleads
from simulation.node import Node
from simulation.pipe import Quality
from simulation.truth import copy_chain
from simulation.world import World
from spvfilter.filters.bip37 import MatchedTx
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.peers import PeerState
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.filterindex import FilterRequest
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.filters import CFilter, GetCFHeaders, GetCFilters
from spvfilter.wire.messages.table import InvType, Message
from spvfilter.wire.session import Session
from support.client.stage import Prompt, Stage, answering, stage


class _Withholding(Responder):
    """Answers all messages except requests for blocks and filters."""

    def on_message(self, message: Message) -> None:
        if isinstance(message, GetCFilters):
            return
        if isinstance(message, wire.GetData):
            message = wire.GetData(tuple(item for item in message.items if item.kind == InvType.WTX))
        super().on_message(message)


class Chatters(Liar):
    """Sends no requested block or filter, and looks busy by repeating its headers."""

    responder = _Withholding

    def begin(self, node: Node) -> None:
        self.world.timeline.after(1.0, lambda: self._chatter(node))

    def _chatter(self, node: Node) -> None:
        for end in list(node.ends):
            if end.is_open and end.session.ready is not None:
                end.session.send(wire.Headers((node.view.chain.tip.raw[:80],)))
                end.work()
        self.world.timeline.after(1.0, lambda: self._chatter(node))


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
def test_a_peer_that_repeats_headers_delays_no_withheld_answer(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Chatters, Chatters, Prompt, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        assert world.has_found_all()
        for _ in range(3):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=30)
        assert world.has_found_all()
        assert not world.banned & {"10.3.0.3:18444", "10.4.0.4:18444"}


class _Dripping(Responder):
    """Holds back its compact filters."""

    def __init__(self, regtest: Regtest, session: Session) -> None:
        super().__init__(regtest, session)
        self.held: deque[Message] = deque()

    def send(self, message: Message) -> None:
        if isinstance(message, CFilter):
            self.held.append(message)
        else:
            super().send(message)


class Drips(Liar):
    """Sends single compact filters, each just before the client would see a stall."""

    responder = _Dripping
    step_s = 1.5

    def begin(self, node: Node) -> None:
        self.world.timeline.after(self.step_s, lambda: self._drip(node))

    def _drip(self, node: Node) -> None:
        for end in list(node.ends):
            if end.is_open and isinstance(end.responder, _Dripping) and end.responder.held:
                end.session.send(end.responder.held.popleft())
                end.work()
        self.world.timeline.after(self.step_s, lambda: self._drip(node))


@pytest.mark.few(1)
@pytest.mark.parametrize("drips", [1, 2])
def test_a_peer_that_sends_single_filters_delays_no_search(drips: int, tmp_path: Path) -> None:
    """Each filter counts as progress, so the peer never stalls. Its answer would take minutes and delay everything
    after it.
    """
    with stage(tmp_path, Mode.COMPACT, *[Drips] * drips, Prompt, Prompt, timeouts=PeerTimeouts(filters=20)) as world:
        world.truth.mine(800)
        world.boot()
        world.wait_synced(within=15)
        assert world.has_found_all()
        assert not world.banned


class Crawls(Liar):
    """Sends single messages from its first filtered block on, each just before the client would see a stall."""

    step_s = 1.5

    def begin(self, node: Node) -> None:
        self._node = node
        self._held: deque[bytes] = deque()
        self.world.timeline.after(self.step_s, self._crawl)

    def quality(self) -> Quality:
        return Prompt.quality(Prompt(self.rng, self.world))

    def on_the_wire(self, data: bytes) -> bytes:
        if not self._held and b"merkleblock" not in data:
            return data
        self._held.extend(REGTEST.magic + each for each in data.split(REGTEST.magic)[1:])
        return b""

    def _crawl(self) -> None:
        if self._held and self._node.ends:
            self._node.ends[-1].pipe.send(self._held.popleft())
        self.world.timeline.after(self.step_s, self._crawl)


class _OmittingTip(Responder):
    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        super().send_merkleblock(block, [] if block.hash == self.regtest.chain.tip.hash else matched)


class OmitsTip(Liar):
    """Finds nothing in the latest block."""

    omits = True
    responder = _OmittingTip

    def quality(self) -> Quality:
        return Prompt.quality(Prompt(self.rng, self.world))


class Walks(Crawls):
    """Answers each question just within half a minute."""

    step_s = 0.2


@pytest.mark.few(1)
@pytest.mark.parametrize("crawling", [1, 3])
def test_peers_that_send_single_blocks_delay_synced_briefly(crawling: int, tmp_path: Path) -> None:
    """Before Synced, the client compares the answers of all prompt peers. A peer that needs minutes for one answer is
    not prompt.
    """
    with stage(tmp_path, Mode.BIP37, *[Crawls] * crawling, Prompt, Prompt, Prompt) as world:
        world.truth.mine(800)
        for node in world.nodes[crawling:]:
            node.is_up = False
        world.boot()
        world.pass_time(1)
        for node in world.nodes[crawling:]:
            node.is_up = True
        world.wait_synced(within=40)
        assert world.has_found_all()
        assert not world.banned
        world.pass_time(400)
        pool = world.engine.pool
        # after its answer, the peer is ready again
        assert all(peer.state is PeerState.READY for peer in pool if not peer.questions)


@pytest.mark.long
@pytest.mark.parametrize("others", [2, 3])
def test_a_peer_delays_synced_once_despite_many_slow_answers(others: int, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, Walks, *[Prompt] * others) as world:
        world.truth.mine(3_000)
        world.boot()
        world.wait_synced(within=40)
        assert world.has_found_all()
        world.pass_time(900)
        assert not world.engine.coverage.unwitnessed  # it is still compared


@pytest.mark.slow
def test_the_second_peer_asked_for_the_same_blocks_is_awaited(tmp_path: Path) -> None:
    """Otherwise the client believes the first answer alone, although it may omit a payment."""
    with stage(tmp_path, Mode.BIP37, OmitsTip, Walks) as world:
        world.truth.mine(900)
        world.truth.receive()
        world.truth.mine(1)
        world.boot()
        world.wait_synced(within=600)
        assert world.has_found_all()
        assert world.banned == set(world.nodes[0].addresses)


def test_a_peer_without_the_block_keeps_no_false_filter_header(tmp_path: Path) -> None:
    """No block decides. No connected peer has the filter of our header, and the third peer cannot judge it."""
    with stage(tmp_path, Mode.COMPACT, Misleads, Lags, Prompt) as world:
        liar, _, honest = world.nodes
        liar.is_up = False
        world.boot()
        world.wait_synced(within=60)
        honest.is_up = False
        honest.hang_up()
        liar.is_up = True
        world.pass_time(400)
        world.truth.receive()
        world.truth.mine()
        world.pass_time(60)
        assert world.banned == set(liar.addresses)
        honest.is_up = True
        world.wait_synced(within=400)
        assert world.has_found_all()
        assert world.banned == set(liar.addresses)


class OneTooMany(FalseFilters):
    """Adds an element to the filter where no block can refute it."""

    def quality(self) -> Quality:
        return Prompt.quality(Prompt(self.rng, self.world))

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        paid = {out.script_pubkey for tx in self.world.truth.regtest.chain.txs(block) for out in tx.outputs}
        has_room = any(script[:1] == b"\x51" for script in spent & paid)
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if has_room else elements


class StaysBehind(OneTooMany):
    """Receives no new blocks and stays connected."""

    def view(self) -> Regtest:
        return copy_chain(self.world.truth.regtest, self.world.true_wall)


def test_a_lagging_sole_supporter_keeps_no_filter_header(tmp_path: Path) -> None:
    """It has no block for further filter headers, and a contradicting peer may not extend them."""
    with stage(tmp_path, Mode.COMPACT, StaysBehind, Prompt) as world:
        honest = world.nodes[1]
        honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        honest.is_up = True
        world.pass_time(400)
        assert world.engine.coverage.disputed
        for within in (60, 10):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within)
            assert world.has_found_all()
            assert world.synced[-1].peers == tuple(honest.addresses)
            assert not world.synced[-1].disputed
        assert not world.banned


def sync_after_the_honest_peer_came(world: Stage, within: float) -> None:
    """The first node is alone until it has stated filter headers. Then the second node connects."""
    world.truth.mine(500)
    honest = world.nodes[1]
    honest.is_up = False
    world.boot()
    world.pass_time(5)
    honest.is_up = True
    world.wait_synced(within)
    assert world.has_found_all()
    assert world.synced[-1].peers == tuple(honest.addresses)
    assert not world.banned


class DripsForHours(OneTooMany, Drips):
    """Sends a compact filter every 100 seconds, each just before the client would drop the peer."""

    step_s = 100.0


@pytest.mark.slow
def test_a_dripping_sole_supporter_keeps_no_filter_header(
    tmp_path: Path,
) -> None:
    """The client asks only this peer for filters above the header, and lacks its filter for a verdict."""
    with stage(tmp_path, Mode.COMPACT, DripsForHours, Prompt) as world:
        sync_after_the_honest_peer_came(world, within=200)
        assert world.synced[-1].disputed[0][1] == world.truth.height  # until the filters of the other peer arrive


class _Holding(_Dripping):
    """Holds back answers of several filters until the client asks for filter headers again."""

    is_holding = False

    def on_message(self, message: Message) -> None:
        if isinstance(message, GetCFilters):
            self.is_holding = message.start_height < self.regtest.chain.blocks[message.stop_hash].height
        super().on_message(message)
        while isinstance(message, GetCFHeaders) and self.held:
            Responder.send(self, self.held.popleft())

    def send(self, message: Message) -> None:
        if self.is_holding:
            super().send(message)
        else:
            Responder.send(self, message)


class Holds(OneTooMany):
    """Sends its compact filters when they are of no use any longer."""

    responder = _Holding


class SlowFilters(Drips):
    """Honest, but sends only one compact filter per second."""

    step_s = 1.0


@pytest.mark.slow
def test_two_slow_disputing_peers_do_not_undo_each_other_forever(tmp_path: Path) -> None:
    """The honest peer needs minutes for its filters. Its time doubles at each switch to the other peer."""
    with stage(tmp_path, Mode.COMPACT, Holds, SlowFilters) as world:
        sync_after_the_honest_peer_came(world, within=3_600)


class _VanishingResponder(Responder):
    """Disconnects after the filter of a new block."""

    is_new: Callable[[bytes], bool]

    def send(self, message: Message) -> None:
        super().send(message)
        if isinstance(message, CFilter) and self.is_new(message.block_hash):
            self.end("it vanishes")


class Vanishes(OneTooMany):
    """States the filter headers of a new block, sends its filter and disconnects."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self._old = set(world.truth.regtest.chain.blocks)

    def respond(self, view: Regtest, session: Session) -> Responder:
        made = _VanishingResponder(view, session)
        made.filters, made.is_new = self._index, lambda block_hash: block_hash not in self._old
        return made


def test_a_lagging_peer_keeps_no_filter_header_without_its_author(
    tmp_path: Path,
) -> None:
    """All blocks are searched, and no connected peer supports the filter header of the tip. Only the next block ended
    that.
    """
    with stage(tmp_path, Mode.COMPACT, Vanishes, StaysBehind, Prompt) as world:
        liar, _, honest = world.nodes
        honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        honest.is_up = True
        world.pass_time(400)
        world.truth.receive()
        world.truth.mine()
        while liar.ends:
            world.pass_time(0.1)
        liar.is_up = False
        world.wait_synced(within=60)
        assert world.has_found_all()
        assert world.synced[-1].peers == tuple(honest.addresses)
        assert not world.banned


class _Dawdling(Responder):
    """Answers requests for compact filters just before the client would drop it."""

    later: Callable[[Callable[[], None]], None]

    def on_filters_wanted(self, asked: FilterRequest) -> None:
        self.later(partial(super().on_filters_wanted, asked))


class Dawdles(OneTooMany):
    """Answers requests for compact filters slowly, and adds an element of its own to them."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        changed = super().change(block, elements)
        return elements | {b"\x00\x14" + sha256(each).digest()[:20] for each in changed - elements}

    def respond(self, view: Regtest, session: Session) -> Responder:
        made = _Dawdling(view, session)
        made.filters, made.later = self._index, self._later
        return made

    def _later(self, call: Callable[[], None]) -> None:
        self.world.timeline.after(0.9 * self.world.options.timeouts.reply_s, lambda: self._now(call))

    def _now(self, call: Callable[[], None]) -> None:
        call()
        for node in self.world.nodes:
            for end in list(node.ends) if node.behaviour is self else ():
                end.work()


def test_a_dawdling_peer_keeps_no_filter_headers_without_supporters(
    tmp_path: Path,
) -> None:
    """The client waited as long as any question to the peer was open, one after the other."""
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Dawdles, Prompt) as world:
        liar, dawdler, honest = world.nodes
        dawdler.is_up = honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        dawdler.is_up = honest.is_up = True
        world.pass_time(400)
        liar.is_up = False
        liar.hang_up()
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=100)
        assert world.has_found_all()
        assert world.synced[-1].peers == tuple(honest.addresses)
        assert not world.banned


class Mute(Responder):
    """Sends nothing after the first request for headers."""

    is_mute = False

    def on_getheaders(self, asked: wire.GetHeaders) -> None:
        self.is_mute = True

    def step(self) -> bool:
        return not self.is_mute and super().step()


@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.AUTO])
def test_silent_peers_do_not_stop_the_search(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Prompt, *[answering(Mute)] * 3) as world:
        world.boot()
        for _ in range(3):
            world.truth.receive()
            world.truth.mine()
            world.pass_time(20)
            assert world.has_found_all()
        assert not world.banned
