"""Disputes over filter headers that no block decides: which side is let go of, and who may come in its place."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from simulation.behaviours.compact import FalseFilters, FalseIndex, _TamperingResponder
from simulation.behaviours.faulty import Pruned
from spvfilter.light.engine import filterheaders
from spvfilter.light.engine.engine import Engine
from spvfilter.light.engine.verdicts import Case, Verdicts
from spvfilter.light.events import Mode
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.messages.table import CFHeaders, Message
from spvfilter.wire.session import Session
from support.stage import Prompt, Stage, stage


class OneTooMany(FalseFilters):
    """Has one element too many where no block can show it."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        spent = {coin.script_pubkey for coin in (block.spent or {}).values()}
        paid = {out.script_pubkey for tx in self.world.truth.regtest.chain.txs(block) for out in tx.outputs}
        has_room = any(script[:1] == b"\x51" for script in spent & paid)
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if has_room else elements


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filterheaders, "MAX_UNDECIDED", 3)


def there(world: Stage) -> set[int]:
    """The numbers of the nodes that are connected."""
    assert world.process is not None
    return {world.nodes.index(each.node) for each in world.process.connections.values() if each.is_ready}


def trusted(world: Stage) -> set[int]:
    """The numbers of the nodes that stand by our filter header of the tip."""
    assert world.process is not None
    engine = world.process.engine
    assert isinstance(engine, Engine)
    addresses = {peer.address for peer in engine._filter_headers.supporters(world.truth.height)}
    return {number for number, node in enumerate(world.nodes) if addresses & set(node.addresses)}


def told_of(world: Stage) -> set[str]:
    return {warning.address for warning in world.warnings if "no block shows" in str(warning.error)}


def cases(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """The cases that are opened from now on."""
    found, open_ = list[Case](), Verdicts.open

    def noted(verdicts: Verdicts, case: Case) -> None:
        found.append(case)
        open_(verdicts, case)

    monkeypatch.setattr(Verdicts, "open", noted)
    return found


def ends_a_dispute(world: Stage, number: int) -> None:
    """A node comes, contradicts our filter headers, and goes."""
    world.nodes[number].is_up = True
    world.pass_time(700)
    assert told_of(world) & set(world.nodes[number].addresses)
    world.nodes[number].go_down()
    world.pass_time(60)


def test_of_two_that_differ_both_stay_where_nobody_else_is_known(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt) as world:
        world.boot_without(1)
        assert told_of(world) == set(world.nodes[1].addresses)
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
    """Omits our scripts from every block above the height at which it is told to."""

    above = 1 << 30

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - self.world.truth.scripts() if block.height > self.above else super().change(block, elements)


@pytest.mark.parametrize("late", [0, 1])
def test_blocks_after_a_dispute_without_end_are_compared_again(late: int, tmp_path: Path) -> None:
    """A liar that nobody outweighs has its dispute ended; its word alone would hide what later blocks pay to us."""
    with stage(tmp_path, Mode.COMPACT, HidesLater, Prompt) as world:
        world.nodes[late].is_up = False  # our filter headers come from the other
        world.boot()
        world.wait_synced(within=60)
        world.nodes[late].is_up = True
        world.pass_time(400)
        assert told_of(world) == set(world.nodes[late].addresses)
        doubted = world.synced[-1].disputed
        for _ in range(5):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=30)
            assert world.has_found_all()
        assert there(world) == {0, 1}
        assert doubted == world.synced[-1].disputed  # of later blocks each was compared
        liar = world.nodes[0].behaviour
        assert isinstance(liar, HidesLater)
        liar.above = world.truth.height
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=30)
        world.pass_time(30)
        assert world.has_found_all()
        assert world.banned == set(world.nodes[0].addresses)


@pytest.mark.parametrize("late", [0, 1])
def test_the_block_at_which_a_dispute_would_be_ended_is_judged(
    late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A liar that knew how many may be undecided could hide one payment in the next block, though that proves its
    filter false.
    """
    monkeypatch.setattr(filterheaders, "MAX_UNDECIDED", 100)
    with stage(tmp_path, Mode.COMPACT, HidesLater, Prompt) as world:
        world.boot_without(late)
        assert world.process is not None
        engine, liar = world.process.engine, world.nodes[0].behaviour
        assert isinstance(engine, Engine)
        assert isinstance(liar, HidesLater)
        (undecided,) = engine._filter_headers._undecided.values()
        monkeypatch.setattr(filterheaders, "MAX_UNDECIDED", len(undecided))
        liar.above = world.truth.height
        world.truth.receive()
        world.truth.mine()
        world.pass_time(100)
        assert world.has_found_all()
        assert world.banned == set(world.nodes[0].addresses)


def test_one_that_was_outweighed_can_still_prove_later_filters_false(tmp_path: Path) -> None:
    """It was let go of each time that it came back, before what two liars hide in new blocks was judged: that was never
    found.
    """
    with stage(tmp_path, Mode.COMPACT, HidesLater, HidesLater, Prompt) as world:
        *liars, honest = world.nodes
        honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        honest.is_up = True
        world.pass_time(700)
        assert told_of(world) == set(honest.addresses)
        for liar in liars:
            assert isinstance(liar.behaviour, HidesLater)
            liar.behaviour.above = world.truth.height
        world.truth.receive()
        world.truth.mine()
        world.pass_time(700)
        assert world.has_found_all()
        assert world.banned
        assert world.banned <= {address for liar in liars for address in liar.addresses}


def test_a_dispute_that_was_ended_is_ended_once_where_filter_headers_are_fetched_anew(tmp_path: Path) -> None:
    """It was ended again and again, once a second, and Synced was told of no block."""
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt) as world:
        world.boot_without(0)
        assert told_of(world) == set(world.nodes[0].addresses)
        assert world.process is not None
        engine = world.process.engine
        assert isinstance(engine, Engine)
        number, (first, _) = len(world.warnings), world.synced[-1].disputed[0]
        engine._filter_headers._take_back(first)  # as where all that stood by them are gone
        world.truth.receive()
        world.truth.mine()
        world.wait_synced(within=60)
        world.pass_time(60)
        assert len(world.warnings) <= number + 2
        assert world.has_found_all()


class Roams(OneTooMany):
    """Each time that it is connected it disputes another block below the tip, and later ones with that."""

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


def test_one_that_disputes_another_block_each_time_has_no_more_searched_again_than_may_be_undecided(
    tmp_path: Path,
) -> None:
    """Each time one more block was fetched whole, and all above searched again, for as long as it came back."""
    with stage(tmp_path, Mode.COMPACT, Roams, Prompt, Prompt) as world:
        for _ in range(40):
            world.truth.others(6)
            world.truth.mine()
        world.nodes[0].is_up = False
        world.boot()
        world.wait_synced(within=60)
        assert world.process is not None
        engine = world.process.engine
        assert isinstance(engine, Engine)
        for _ in range(12):
            world.nodes[0].is_up = True
            world.pass_time(300)
            world.nodes[0].go_down()
        assert isinstance(world.nodes[0].behaviour, Roams)
        assert world.nodes[0].behaviour.chosen >= 10
        assert len(engine.coverage.disputed) <= 4
        assert sum(map(len, engine._filter_headers._undecided.values())) <= 4
        assert not world.banned


class TakesBack(OneTooMany):
    """Of two blocks together it states our filter header before them, though it has just stated another one of an
    earlier block.
    """

    def respond(self, view: Regtest, session: Session) -> Responder:
        made = _TamperingResponder(view, session, self._agree)
        made.filters = self._index
        return made

    def _agree(self, message: Message) -> Message:
        if not isinstance(message, CFHeaders) or len(message.filter_hashes) != 2:
            return message
        assert self.world.process is not None
        engine = self.world.process.engine
        assert isinstance(engine, Engine)
        previous = engine._context.rows.header_at(self.world.truth.height - 2)
        return CFHeaders(message.filter_type, message.stop_hash, previous, message.filter_hashes)


def test_one_that_was_outweighed_and_contradicts_itself_is_not_judged_again_and_again(tmp_path: Path) -> None:
    """A block was fetched whole, and a warning told, as often as it could answer: it was let go of no more, and the
    same began anew.
    """
    with stage(tmp_path, Mode.COMPACT, TakesBack, Prompt, Prompt) as world:
        world.boot_without(0)
        assert told_of(world) == set(world.nodes[0].addresses)
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


def test_of_one_that_was_outweighed_and_comes_back_late_no_more_than_the_last_blocks_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block since was fetched whole and searched again, however many they are: of a liar that was away for a week
    a thousand.
    """
    monkeypatch.setattr(filterheaders, "MAX_RESUMED", 10)
    with stage(tmp_path, Mode.COMPACT, OneTooMany, Prompt, Prompt) as world:
        world.boot_without(0)
        assert told_of(world) == set(world.nodes[0].addresses)
        world.nodes[0].go_down()
        ended = world.truth.height
        for _ in range(60):
            world.truth.others(6)
            world.truth.mine()
        world.wait_synced(within=60)
        world.nodes[0].is_up = True
        world.pass_time(400)
        assert world.process is not None
        engine = world.process.engine
        assert isinstance(engine, Engine)
        searched = {height for height in engine.coverage.disputed if height > ended}
        assert searched
        assert min(searched) > world.truth.height - 10
        assert world.synced[-1].disputed[-1][1] >= world.truth.height - 10
        assert world.has_found_all()
        assert not world.banned


@pytest.mark.parametrize("late", [0, 1])
def test_a_reorganisation_has_no_block_judged_again_that_stays(
    late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a single block had all of them fetched whole again that had come since a dispute was ended."""
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


@pytest.mark.parametrize("late", [0, 1])
def test_a_reorganisation_puts_no_block_in_doubt_that_was_judged_since_a_dispute_was_ended(
    late: int, tmp_path: Path
) -> None:
    """The dispute was told as ended once more, and all blocks up to the tip were in doubt for good."""
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
    """Has another element too many."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        changed = super().change(block, elements)
        return elements | {each[::-1] for each in changed - elements}


def test_two_that_contradict_do_not_take_turns_where_one_has_a_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had come and contradicted was behind the other, for which it was let go: the same blocks were fetched whole
    each few seconds.
    """
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


def test_those_that_were_outweighed_one_by_one_outweigh_one_together(tmp_path: Path) -> None:
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
        assert told_of(world) & set(world.nodes[0].addresses)
        assert not world.banned


def test_of_equal_sides_one_makes_room_for_a_peer_that_tips_the_balance(tmp_path: Path) -> None:
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
    """Has one element too many in the filter of a block that no pruned node keeps."""

    services = Pruned.services
    responder = Pruned.responder

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if block.height == 5 else elements


@pytest.mark.parametrize("late", [0, 1])
def test_a_disputed_block_that_nobody_keeps_is_in_doubt_and_keeps_nobody_waiting(late: int, tmp_path: Path) -> None:
    """Nothing was recorded until somebody came who has it; where headers were given up, blocks below the wallet's start
    were searched.
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


def test_who_comes_and_goes_leaves_no_wish_for_a_block_that_nobody_keeps(tmp_path: Path) -> None:
    """Each time one more was kept, with the filter that it had sent."""
    with stage(tmp_path, Mode.COMPACT, Pruned, PrunedLiar, from_height=150) as world:
        world.truth.mine(200)
        world.boot_without(1)
        assert world.process is not None
        engine = world.process.engine
        assert isinstance(engine, Engine)
        for _ in range(3):
            world.nodes[1].is_up = True
            world.pass_time(60)
            world.nodes[1].go_down()
            world.pass_time(1)
            assert not len(engine._blocks)


class PrunedLiarOften(PrunedLiar):
    """Has one element too many in the filters of many blocks that no pruned node keeps."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements | {b"\x00\x14" + sha256(block.hash).digest()[:20]} if 5 <= block.height < 15 else elements


def test_a_case_that_is_closed_by_the_end_of_another_leaves_no_wish_for_its_block(tmp_path: Path) -> None:
    """Of two that dispute the same blocks the dispute of one is ended: that closed the other's case just before its
    turn.
    """
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
        assert told_of(world)
        assert world.process is not None
        engine = world.process.engine
        assert isinstance(engine, Engine)
        assert not engine._filter_headers.verdicts._cases
        assert not len(engine._blocks)


class _NoBlocksResponder(Responder):
    def on_block_wanted(self, block: TreeBlock, kind: int) -> None:
        pass


class NoBlocks(Prompt):
    """Sends no block, and offers all of them."""

    responder = _NoBlocksResponder


def test_a_disputed_block_that_only_one_keeps_who_does_not_send_it_keeps_nobody_waiting(tmp_path: Path) -> None:
    """It was waited for until that peer was dropped, and again when it came back: Synced came after a quarter of an
    hour.
    """
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


def test_a_block_that_is_offered_and_not_sent_keeps_up_no_filter_headers_of_one_that_is_gone(tmp_path: Path) -> None:
    """Who contradicts them was not heard before that block had come."""
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
