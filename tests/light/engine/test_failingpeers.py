"""Peers that stall, fall silent, break off, or lack what the search needs: others serve the client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from simulation.behaviours.faulty import NoBloom
from simulation.world import Placed
from spvfilter.errors import UselessPeerError
from spvfilter.filters.bip37 import MatchedTx
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.events import Mode, PeerChanged
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.wire.events import Settings
from support.client.regtests import cut
from support.client.stage import Prompt, answering, at, stage


class Stalls(Responder):
    """Answers no requests for blocks above height 40, but stays connected."""

    def step(self) -> bool:
        if self._requests and self.regtest.chain.blocks[self._requests[0].hash].height > 40:
            return False
        return super().step()


class IsSilent(Responder):
    """Sends nothing after the handshake."""

    def on_message(self, message: object) -> None:
        pass


class Dies(Responder):
    """Disconnects in the middle of a block: the payment has arrived, its spend has not."""

    def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
        if block.height > 105 and matched:
            self.end("gone")
        else:
            super().send_merkleblock(block, matched)


def test_failing_peers_are_replaced_and_not_banned(tmp_path: Path) -> None:
    failing = [answering(each) for each in (Stalls, IsSilent, Dies)]
    with stage(tmp_path, Mode.BIP37, *failing, Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        assert world.has_found_all()
        for _ in range(2):
            world.truth.receive()
            world.truth.mine()
            world.wait_synced(within=60)
            assert world.has_found_all()
            world.pass_time(70)
        assert not world.banned
        assert {event.address for event in world.warnings} == {node.addresses[0] for node in world.nodes[:3]}


def test_a_lone_stalling_peer_is_disconnected_with_a_warning(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, answering(Stalls)) as world:
        world.boot()
        world.pass_time(200)
        assert isinstance(world.warnings[0].error, UselessPeerError)
        assert "no answer for" in str(world.warnings[0].error)


def test_a_peer_without_filters_is_replaced_by_one_with_filters(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.BIP37, NoBloom, Prompt, max_peers=1) as world:
        world.nodes[1].is_up = False
        world.boot()
        world.pass_time(5)
        world.nodes[1].is_up = True
        world.wait_synced(within=120)
        assert any("NODE_BLOOM" in str(event.error) for event in world.warnings)


class Owns(Prompt):
    """Sends control characters that would change a terminal or add lines to a log."""

    def settings(self, view: Regtest) -> Settings:
        return replace(super().settings(view), user_agent=b"/\x1b]0;owned\x07\r\nfake: line\xff/")


def test_control_characters_in_a_user_agent_are_escaped(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Owns) as world:
        world.boot()
        world.wait_synced(within=60)
        told = {event.user_agent for event in world.told if isinstance(event, PeerChanged) and event.address}
        (peer,) = world.running.status.peers
        assert told == {peer.user_agent} == {"/\\x1b]0;owned\\x07\\x0d\\x0afake: line\\xff/"}


@pytest.mark.parametrize("honest", [0, 1])
def test_a_request_without_its_last_block_is_not_awaited(honest: int, tmp_path: Path) -> None:
    forgotten: list[int] = []

    class Forgets(Responder):
        def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
            if block.height == self.regtest.height and not forgotten:
                forgotten.append(block.height)
            else:
                super().send_merkleblock(block, matched)

    patient = PeerTimeouts(stall_s=3_600, reply_s=3_600)
    kinds = [answering(Forgets), *[Prompt] * honest]
    with stage(tmp_path, Mode.BIP37, *kinds, timeouts=patient) as world:
        world.boot()
        world.wait_synced(within=60)
        assert forgotten
        assert world.has_found_all()


def test_a_witness_that_joins_a_running_search_is_not_accused(tmp_path: Path) -> None:
    """Coins of open requests may be spent in later blocks. A witness that was not asked for the earlier blocks cannot
    know them.
    """
    nodes: list[Placed] = [at(Prompt, 1), at(Prompt, 2)]
    with stage(tmp_path, Mode.BIP37, *nodes, timeouts=PeerTimeouts(flight=40)) as world:
        for number in range(30):
            world.truth.receive()
            if number % 3 == 0:
                world.truth.mine()
        world.truth.mine(120)
        for _ in range(30):
            world.truth.spend()
            world.truth.mine(4)
        world.boot()
        world.wait_synced(within=60)
        world.truth.regtest.reorg(7)
        world.wait_synced(within=60)
        world.pass_time(60)
        assert world.has_found_all()
        assert not world.warnings
        spans = world.engine.coverage.unwitnessed
        assert spans
        assert all(len(span.witnesses.groups) == 2 for span in spans)  # every block was compared


def test_blocks_after_a_reorganization_are_still_compared(tmp_path: Path) -> None:
    done: list[bool] = []

    class Omits(Responder):
        def send_merkleblock(self, block: TreeBlock, matched: Sequence[MatchedTx]) -> None:
            height = self.regtest.height
            if block.height == height and not done:
                done.append(True)
                self.regtest.reorg(3, blocks=4)
            super().send_merkleblock(block, () if height - 60 <= block.height <= height - 5 else matched)

    with stage(tmp_path, Mode.BIP37, answering(Omits), Prompt) as world:
        world.boot()
        world.wait_synced(within=60)
        assert done
        world.truth.mine()
        world.wait_synced(within=60)
        world.pass_time(60)
        assert world.has_found_all()
        assert world.banned == {world.nodes[0].addresses[0]}


class SilentWithoutNews(Responder):
    """Does not answer getheaders if it has no new headers, like bcoin, and like Core far behind the tip."""

    def send_headers(self, blocks: Sequence[TreeBlock]) -> None:
        if blocks:
            super().send_headers(blocks)


@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_a_peer_without_new_headers_may_stay_silent(mode: Mode, tmp_path: Path) -> None:
    kind = answering(SilentWithoutNews, is_honest=True)
    with stage(tmp_path, mode, kind, timeouts=PeerTimeouts(reply_s=3_600)) as world:
        for change in (
            lambda: None,
            lambda: None,
            lambda: world.truth.mine(),
            lambda: world.truth.regtest.reorg(2),
            lambda: None,
        ):
            change()
            told = len(world.synced)
            world.boot()
            world.pass_time(30)
            assert len(world.synced) > told
            assert world.synced[-1].hash == world.truth.tip
            assert world.has_found_all()
            world.kill()


@pytest.mark.slow
def test_a_chain_with_a_full_last_headers_message_is_synced(tmp_path: Path) -> None:
    """The silent peer sends 2,000 headers, and has no more."""
    with stage(tmp_path, Mode.COMPACT, answering(SilentWithoutNews, is_honest=True), is_high=True) as world:
        cut(world.truth.regtest, world.truth.height - 2_000)
        world.boot()
        world.wait_synced(within=60)
