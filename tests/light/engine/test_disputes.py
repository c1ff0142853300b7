"""Disputes over filter headers that no block decides: the client drops the side with fewer supporters."""

from __future__ import annotations

from collections.abc import Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from simulation.behaviours.compact import FalseFilters, FalseIndex, _TamperingResponder
from simulation.behaviours.faulty import Pruned
from spvfilter.hashes import hash160
from spvfilter.light.engine import filterheaders
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.verdicts import Case, Found, Verdicts
from spvfilter.light.events import Mode
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import SIGNATURE, Lock, p2sh, push
from spvfilter.primitives import OutPoint
from spvfilter.transaction import TxIn
from spvfilter.wire.messages.table import CFHeaders, Message
from spvfilter.wire.session import Session
from support.blocks.locks import STRANGER, build_tx
from support.client.engineparts import (
    block_requests_of,
    context_of,
    filter_headers_of,
    is_judging,
    take_back_filter_headers,
    undecided_blocks,
)
from support.client.stage import Prompt, Stage, stage


class OneTooMany(FalseFilters):
    """Adds an element to the filter where no block can refute it."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        paid = {out.script_pubkey for tx in self.world.truth.regtest.chain.txs(block) for out in tx.outputs}
        has_room = any(script[:1] == b"\x51" for script in spent & paid)
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if has_room else elements


@pytest.fixture(autouse=True)
def _few_undecided_blocks_end_a_dispute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filterheaders, "MAX_UNDECIDED", 3)


def there(world: Stage) -> set[int]:
    """Return the numbers of the connected nodes."""
    return {world.nodes.index(each.node) for each in world.running.connections.values() if each.is_ready}


def trusted(world: Stage) -> set[int]:
    """Return the numbers of the nodes that support our filter header of the tip."""
    engine = world.engine
    addresses = {peer.address for peer in filter_headers_of(engine).supporters(world.truth.height)}
    return {number for number, node in enumerate(world.nodes) if addresses & set(node.addresses)}


def warned_of(world: Stage) -> set[str]:
    return {warning.address for warning in world.warnings if "no block shows" in str(warning.error)}


def cases(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """Collect the cases that are opened from now on."""
    found, judge = list[Case](), Verdicts.judge

    def noted(verdicts: Verdicts, case: Case) -> Coroutine[Any, Any, Found | None]:
        found.append(case)
        return judge(verdicts, case)

    monkeypatch.setattr(Verdicts, "judge", noted)
    return found


def ends_a_dispute(world: Stage, number: int) -> None:
    """A node connects, contradicts our filter headers, and disconnects."""
    world.nodes[number].is_up = True
    world.pass_time(700)
    assert warned_of(world) & set(world.nodes[number].addresses)
    world.nodes[number].go_down()
    world.pass_time(60)


def test_both_peers_stay_if_no_third_peer_is_known(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt) as world:
        world.boot_without(1)
        assert warned_of(world) == set(world.nodes[1].addresses)
        told = len(world.warnings)
        for _ in range(5):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=30)
            world.pass_time(100)
            assert there(world) == {0, 1}
        assert len(world.warnings) == told
        assert world.synced[-1].disputed
        assert world.has_found_all()
        world.nodes[0].go_down()
        world.truth.mine()
        world.wait_synced(within=120)
        assert trusted(world) == {1}


class HidesLater(OneTooMany):
    """Omits our scripts from every block above the height `above`."""

    above = 1 << 30

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - self.world.truth.scripts() if block.height > self.above else super().change(block, elements)


# 33 bytes that look like a public key, and are a valid redeem script
REDEEM = bytes.fromhex("02aabb7575") + b"\x61" * 27 + b"\x51"
LOOKALIKE = p2sh(Lock(REDEEM))


class MistakesScript(HidesLater):
    """States another script for an input whose redeem script looks like a public key."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        if LOOKALIKE.script_pubkey not in spent:
            return elements - self.world.truth.scripts() if block.height > self.above else elements
        return elements - {LOOKALIKE.script_pubkey} | {b"\x76\xa9\x14" + hash160(REDEEM) + b"\x88\xac"}


@pytest.mark.parametrize("late", [0, 1])
def test_an_ambiguous_script_of_an_input_bans_no_honest_peer(late: int, tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, MistakesScript, Prompt) as world:
        regtest, above = world.truth.regtest, world.truth.height + 2
        world.nodes[0].behaviour.above = above  # type: ignore[attr-defined]  # of this class
        coin = OutPoint(regtest.pay(LOOKALIKE.pays(1_000_000)), 0)
        world.truth.mine()
        raw = build_tx([TxIn(coin, push(SIGNATURE) + push(REDEEM))], [STRANGER.pays(999_000)])
        regtest.submit_tx(raw)
        world.truth.mine()
        assert world.truth.height == above
        world.truth.receive()
        world.truth.mine()
        world.boot_without(late)
        assert world.has_found_all()
        assert world.banned == set(world.nodes[0].addresses)


@pytest.mark.few(1)
@pytest.mark.parametrize("late", [0, 1])
def test_blocks_after_an_undecided_dispute_are_compared_again(late: int, tmp_path: Path) -> None:
    """The dispute of a liar ends undecided. Its filters alone would hide payments in later blocks."""
    with stage(tmp_path, Mode.COMPACT, HidesLater, Prompt) as world:
        world.nodes[late].is_up = False  # our filter headers come from the other node
        world.boot()
        world.wait_synced(within=60)
        world.nodes[late].is_up = True
        world.pass_time(400)
        assert warned_of(world) == set(world.nodes[late].addresses)
        doubted = world.synced[-1].disputed
        for _ in range(5):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=30)
            assert world.has_found_all()
        assert there(world) == {0, 1}
        assert doubted == world.synced[-1].disputed  # all later blocks were compared
        liar = world.nodes[0].behaviour
        assert isinstance(liar, HidesLater)
        liar.above = world.truth.height
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=30)
        world.pass_time(30)
        assert world.has_found_all()
        assert world.banned == set(world.nodes[0].addresses)


@pytest.mark.few(1)
@pytest.mark.parametrize("late", [0, 1])
def test_the_block_that_would_end_a_dispute_is_judged(
    late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a liar that knows the limit of undecided blocks could hide one payment in the next block."""
    monkeypatch.setattr(filterheaders, "MAX_UNDECIDED", 100)
    with stage(tmp_path, Mode.COMPACT, HidesLater, Prompt) as world:
        world.boot_without(late)
        engine, liar = world.engine, world.nodes[0].behaviour
        assert isinstance(liar, HidesLater)
        (undecided,) = undecided_blocks(engine).values()
        monkeypatch.setattr(filterheaders, "MAX_UNDECIDED", len(undecided))
        liar.above = world.truth.height
        world.truth.receive()
        world.truth.mine()
        world.pass_time(100)
        assert world.has_found_all()
        assert world.banned == set(world.nodes[0].addresses)


def test_an_outweighed_peer_can_still_prove_later_filters_false(tmp_path: Path) -> None:
    """The client dropped the honest peer at each return, before it judged new blocks. Two liars could hide payments
    there.
    """
    with stage(tmp_path, Mode.COMPACT, HidesLater, HidesLater, Prompt) as world:
        *liars, honest = world.nodes
        honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        honest.is_up = True
        world.pass_time(700)
        assert warned_of(world) == set(honest.addresses)
        for liar in liars:
            assert isinstance(liar.behaviour, HidesLater)
            liar.behaviour.above = world.truth.height
        world.truth.receive()
        world.truth.mine()
        world.pass_time(700)
        assert world.has_found_all()
        assert world.banned
        assert world.banned <= {address for liar in liars for address in liar.addresses}


def test_an_ended_dispute_ends_once_if_filter_headers_are_refetched(tmp_path: Path) -> None:
    """The dispute ended again each second, and the client did not report Synced."""
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt) as world:
        world.boot_without(0)
        assert warned_of(world) == set(world.nodes[0].addresses)
        engine = world.engine
        number, (first, _) = len(world.warnings), world.synced[-1].disputed[0]
        take_back_filter_headers(engine, first)  # as if all supporters of our filter headers were gone
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=60)
        world.pass_time(60)
        assert len(world.warnings) <= number + 2
        assert world.has_found_all()


class Roams(OneTooMany):
    """Disputes another block below the tip, and all later blocks, at each connection."""

    chosen = 0

    def respond(self, view: Regtest, session: Session) -> Responder:
        chain, only = (
            self.world.truth.regtest.chain,
            [each for each in self.world.truth.regtest.chain.active if self._is_choice(each)],
        )
        self.chosen += 1
        block = only[-self.chosen]
        made = super().respond(view, session)
        made.filters = FalseIndex(
            chain, lambda each, elements: self.change(each, elements) if each.height >= block.height else elements
        )
        return made

    def _is_choice(self, block: TreeBlock) -> bool:
        return block.spent is not None and bool(self.change(block, set()))


@pytest.mark.slow
def test_a_roaming_disputer_causes_a_bounded_number_of_searches(
    tmp_path: Path,
) -> None:
    """Each return of the peer caused one more whole block, and a new search of all blocks above it."""
    with stage(tmp_path, Mode.COMPACT, Roams, Prompt, Prompt) as world:
        for _ in range(40):
            world.truth.others(6)
            world.truth.mine()
        world.nodes[0].is_up = False
        world.boot()
        world.wait_synced(within=60)
        engine = world.engine
        for _ in range(12):
            world.nodes[0].is_up = True
            world.pass_time(300)
            world.nodes[0].go_down()
        assert isinstance(world.nodes[0].behaviour, Roams)
        assert world.nodes[0].behaviour.chosen >= 10
        assert len(engine.coverage.disputed) <= 4
        assert sum(map(len, undecided_blocks(engine).values())) <= 4
        assert not world.banned


class TakesBack(OneTooMany):
    """Contradicts itself: in an answer for two blocks it states our filter header before them."""

    def respond(self, view: Regtest, session: Session) -> Responder:
        made = _TamperingResponder(view, session, self._agree)
        made.filters = self._index
        return made

    def _agree(self, message: Message) -> Message:
        if not isinstance(message, CFHeaders) or len(message.filter_hashes) != 2:
            return message
        assert self.world.process is not None
        engine = self.world.process.engine
        assert isinstance(engine, ClientEngine)
        previous = context_of(engine).rows.header_at(self.world.truth.height - 2)
        return CFHeaders(message.filter_type, message.stop_hash, previous, message.filter_hashes)


def test_an_outweighed_peer_that_contradicts_itself_is_judged_once(tmp_path: Path) -> None:
    """The client fetched a whole block and warned after each answer of the peer, and never dropped it."""
    with stage(tmp_path, Mode.COMPACT, TakesBack, Prompt, Prompt) as world:
        world.boot_without(0)
        assert warned_of(world) == set(world.nodes[0].addresses)
        world.nodes[0].go_down()
        world.pass_time(60)
        world.truth.mine()
        world.truth.mine()
        world.wait_synced(within=60)
        number = len(world.warnings)
        world.nodes[0].is_up = True
        world.pass_time(400)
        world.truth.mine()
        world.wait_synced(within=30)
        assert len(world.warnings) <= number + 2
        assert world.banned == set(world.nodes[0].addresses)


@pytest.mark.slow
def test_only_the_last_blocks_of_a_late_disputer_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client fetched and searched every block since the dispute: a thousand after an absence of a week."""
    monkeypatch.setattr(filterheaders, "MAX_RESUMED", 10)
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt, Prompt) as world:
        world.boot_without(0)
        assert warned_of(world) == set(world.nodes[0].addresses)
        world.nodes[0].go_down()
        ended = world.truth.height
        for _ in range(60):
            world.truth.others(6)
            world.truth.mine()
        world.wait_synced(within=60)
        world.nodes[0].is_up = True
        world.pass_time(400)
        engine = world.engine
        searched = {height for height in engine.coverage.disputed if height > ended}
        assert searched
        assert min(searched) > world.truth.height - 10
        assert world.synced[-1].disputed[-1][1] >= world.truth.height - 10
        assert world.has_found_all()
        assert not world.banned


@pytest.mark.few(1)
@pytest.mark.parametrize("late", [0, 1])
def test_a_reorganization_causes_no_second_verdict_on_active_blocks(
    late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reorganization of one block, the client fetched all blocks since the end of the dispute again."""
    judged = cases(monkeypatch)
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt) as world:
        world.boot_without(late)
        ended = world.truth.height
        for _ in range(20):
            world.truth.others(6)
            world.truth.mine()
            world.wait_synced(within=30)
        world.pass_time(10)
        assert sum(case.height > ended for case in judged) > 3
        judged.clear()
        world.truth.regtest.reorg(1)
        world.wait_synced(within=30)
        world.pass_time(10)
        assert not [case.height for case in judged if ended < case.height < world.truth.height - 1]


@pytest.mark.few(1)
@pytest.mark.parametrize("late", [0, 1])
def test_a_reorganization_causes_no_doubt_about_judged_blocks(late: int, tmp_path: Path) -> None:
    """The dispute was reported as ended once more, and all blocks up to the tip stayed in doubt."""
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt) as world:
        world.boot_without(late)
        doubted, number = world.synced[-1].disputed, len(world.warnings)
        for _ in range(10):
            world.truth.others(6)
            world.truth.mine()
            world.wait_synced(within=30)
        world.truth.regtest.reorg(1)
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=30)
        assert world.synced[-1].disputed == doubted
        assert len(world.warnings) == number
        assert there(world) == {0, 1}
        assert world.has_found_all()


class OneTooManyElsewhere(OneTooMany):
    """Adds another element to the filter than `OneTooMany`."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        changed = super().change(block, elements)
        return elements | {each[::-1] for each in changed - elements}


@pytest.mark.slow
def test_two_disputing_peers_do_not_alternate_in_one_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client dropped the latest of the two, and fetched the same blocks whole every few seconds."""
    judged = cases(monkeypatch)
    monkeypatch.setattr(filterheaders, "MAX_UNDECIDED", 20)
    with stage(
        tmp_path, Mode.COMPACT, Prompt, OneTooMany, OneTooManyElsewhere, Prompt, Prompt, Prompt, max_peers=4
    ) as world:
        world.boot()
        world.wait_synced(within=60)
        world.pass_time(60)
        for node in world.nodes[1:3]:
            node.go_down()
            node.is_up = True
            world.pass_time(60)
        assert {case.peer.address for case in judged} == {*world.nodes[1].addresses, *world.nodes[2].addresses}
        judged.clear()
        world.pass_time(100)
        assert not judged


def test_two_peers_together_outweigh_the_peer_that_outweighed_each(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt, Prompt) as world:
        world.nodes[1].is_up = world.nodes[2].is_up = False
        world.boot()
        world.wait_synced(within=60)
        ends_a_dispute(world, 1)
        ends_a_dispute(world, 2)
        assert trusted(world) == {0}
        world.nodes[1].is_up = world.nodes[2].is_up = True
        world.pass_time(1_000)
        assert trusted(world) == {1, 2}
        assert warned_of(world) & set(world.nodes[0].addresses)
        assert not world.banned


def test_a_third_peer_breaks_the_tie_of_two_equal_sides(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt, Prompt, max_peers=2) as world:
        world.nodes[1].is_up = world.nodes[2].is_up = False
        world.boot()
        world.wait_synced(within=60)
        world.nodes[1].is_up = world.nodes[2].is_up = True
        begun = world.timeline.now
        while trusted(world) != {1, 2}:
            assert world.timeline.now - begun < 7_200
            world.pass_time(1)
        assert not world.banned


class PrunedLiar(FalseFilters):
    """Adds an element to the filter of a block that no pruned node keeps."""

    services = Pruned.services
    responder = Pruned.responder

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if block.height == 5 else elements


@pytest.mark.few(1)
@pytest.mark.parametrize("late", [0, 1])
def test_a_disputed_block_that_no_peer_keeps_delays_nothing(late: int, tmp_path: Path) -> None:
    """The client recorded nothing until a peer with the block connected. It also searched blocks below the start of the
    wallet after it took headers back.
    """
    with stage(tmp_path, Mode.COMPACT, Pruned, PrunedLiar, from_height=150) as world:
        first, second = world.nodes[1 - late], world.nodes[late]
        world.truth.mine(200)
        second.is_up = False
        world.boot()
        world.pass_time(0.7)
        second.is_up = True
        world.wait_synced(within=60)
        world.pass_time(200)
        for there, gone in ((first, second), (second, first)):
            there.is_up = True
            gone.go_down()
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=400)
            assert world.synced[-1].peers == tuple(there.addresses)
            assert world.synced[-1].disputed[0][0] == 5
            assert world.synced[-1].skipped == ((0, 149),)
        assert not world.banned


def test_a_gone_disputer_leaves_no_request_for_an_unavailable_block(tmp_path: Path) -> None:
    """Each connection left one more request, together with the peer's filter."""
    with stage(tmp_path, Mode.COMPACT, Pruned, PrunedLiar, from_height=150) as world:
        world.truth.mine(200)
        world.boot_without(1)
        engine = world.engine
        for _ in range(3):
            world.nodes[1].is_up = True
            world.pass_time(60)
            world.nodes[1].go_down()
            world.pass_time(1)
            assert not len(block_requests_of(engine))


class PrunedLiarOften(PrunedLiar):
    """Adds an element to the filters of many blocks that no pruned node keeps."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if 5 <= block.height < 15 else elements


@pytest.mark.slow
def test_an_ended_dispute_leaves_no_request_of_a_closed_case(tmp_path: Path) -> None:
    """Two peers dispute the same blocks. The end of one dispute closed the other peer's case just before its turn."""
    with stage(tmp_path, Mode.COMPACT, Pruned, PrunedLiarOften, PrunedLiarOften, from_height=150) as world:
        world.truth.mine(200)
        liars = world.nodes[1:]
        for liar in liars:
            liar.is_up = False
        world.boot()
        world.wait_synced(within=60)
        for liar in liars:
            liar.is_up = True
        world.pass_time(400)
        assert warned_of(world)
        engine = world.engine
        assert not is_judging(engine)
        assert not len(block_requests_of(engine))


class _NoBlocksResponder(Responder):
    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        pass


class NoBlocks(Prompt):
    """Offers all blocks and sends none."""

    responder = _NoBlocksResponder


def test_a_disputed_block_that_its_only_keeper_withholds_delays_nothing(tmp_path: Path) -> None:
    """The client waited until it dropped the peer, and again after the peer's return. Synced came after 15 minutes."""
    with stage(tmp_path, Mode.COMPACT, Pruned, PrunedLiar, NoBlocks, from_height=150) as world:
        world.truth.mine(200)
        world.boot()
        world.wait_synced(within=30)
        assert world.synced[-1].disputed[0][0] == 5
        world.pass_time(400)
        for _ in range(3):
            world.truth.mine()
            world.wait_synced(within=30)
        assert world.synced[-1].disputed[0][0] == 5
        assert not world.banned


def test_an_unsent_block_keeps_no_filter_headers_without_supporters(tmp_path: Path) -> None:
    """The client did not listen to the contradicting peer until the block arrived."""
    with stage(tmp_path, Mode.COMPACT, PrunedLiar, Pruned, NoBlocks, from_height=150) as world:
        world.truth.mine(200)
        world.nodes[1].is_up = world.nodes[2].is_up = False
        world.boot()
        world.wait_synced(within=30)
        world.nodes[0].go_down()
        world.nodes[1].is_up = world.nodes[2].is_up = True
        world.truth.mine()
        world.wait_synced(within=500)
        assert world.synced[-1].disputed[0][0] == 5
        assert not world.banned
