"""Peers that lie about compact filters: the client names each lie and finds the truth, in any order of peers."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from simulation.behaviours.bloom import Liar
from simulation.behaviours.compact import FalseFilters, FalseIndex, Tampering
from simulation.world import World
from spvfilter.hashes import sha256d
from spvfilter.light.events import Mode
from spvfilter.light.lies import Lie
from spvfilter.node.blocktree import TreeBlock
from spvfilter.node.responder import Responder
from spvfilter.wire.messages.filters import CFHeaders, CFilter
from spvfilter.wire.messages.table import Message
from support.client.stage import Prompt, stage


def last_paid(world: World) -> int:
    """The height of the last block of the template that concerns the wallet."""
    return max(place.height for place in world.truth.scan())


class Omits(FalseFilters):
    """Serves filters that fit its headers, but one of them lacks the scripts of the wallet."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        self.lied_about = last_paid(world)

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - self.world.truth.scripts() if block.height == self.lied_about else elements


class Empties(Omits):
    """Serves only empty filters, with headers that commit to them."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return set()


class Truncates(Omits):
    """Serves malformed filters, with headers that commit to them."""

    def __init__(self, rng: random.Random, world: World) -> None:
        super().__init__(rng, world)
        lied_about = self.lied_about

        class Malformed(FalseIndex):
            def build(self, block: TreeBlock) -> bytes:
                return super().build(block) if block.height < lied_about else b"\x05\x01"

        self._index = Malformed(world.truth.regtest.chain, self.change)

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements


class SendsWrongFilters(Tampering):
    def tamper(self, message: Message) -> Message:
        return replace(message, data=b"\0") if isinstance(message, CFilter) else message


class TellsWrongHeaders(Tampering):
    """States filter hashes of no filter, but serves true filters."""

    def tamper(self, message: Message) -> Message:
        if not isinstance(message, CFHeaders):
            return message
        return replace(message, filter_hashes=(*message.filter_hashes[:-1], sha256d(message.filter_hashes[-1])))


class LengthensHeaders(Tampering):
    def tamper(self, message: Message) -> Message:
        if not isinstance(message, CFHeaders):
            return message
        return replace(message, filter_hashes=message.filter_hashes + message.filter_hashes[-1:])


class _UnaskedResponder(Responder):
    def send(self, message: Message) -> None:
        super().send(message)
        if isinstance(message, CFHeaders):
            super().send(CFilter(0, b"\x01" * 32, b"\0"))


class SendsUnasked(Liar):
    responder = _UnaskedResponder


LIARS: dict[type[Liar], set[Lie]] = {
    Omits: {Lie.FALSE_FILTER_HEADER},
    Empties: {Lie.FALSE_FILTER_HEADER},
    Truncates: {Lie.FALSE_FILTER_HEADER},
    TellsWrongHeaders: {Lie.FALSE_FILTER, Lie.CONTRADICTION},
    LengthensHeaders: {Lie.UNASKED_FILTER},
    SendsUnasked: {Lie.UNASKED_FILTER},
    SendsWrongFilters: {Lie.FALSE_FILTER},
}


class HidesAll(Omits):
    """Leaves the scripts of the wallet out of all filters."""

    def change(self, block: TreeBlock, elements: set[bytes]) -> set[bytes]:
        return elements - self.world.truth.scripts()


@pytest.mark.parametrize("restarts", [False, True])
def test_an_honest_peer_ends_the_agreement_of_liars(restarts: bool, tmp_path: Path) -> None:
    """Two liars commit to one false filter chain that hides a spend. It is believed until an honest peer comes."""
    with stage(tmp_path, Mode.COMPACT, HidesAll, HidesAll, Prompt) as world:
        *liars, honest = world.nodes
        world.truth.spend()
        world.truth.mine()
        honest.is_up = False
        world.boot()
        world.wait_synced(within=60)
        assert not world.running.stored()
        assert not world.banned
        honest.is_up = True
        if restarts:
            world.kill()
            for liar in liars:
                liar.is_up = False
            world.boot()
        world.pass_time(400)
        assert world.has_found_all()
        assert any(place.kind == "input" and place.height == world.truth.height for place in world.running.stored())
        causes = {event.address: getattr(event.error, "cause", None) for event in world.warnings if event.banned}
        addresses = () if restarts else [liar.addresses[0] for liar in liars]
        assert causes == dict.fromkeys(addresses, Lie.FALSE_FILTER_HEADER)


@pytest.mark.parametrize(
    ("late", "is_high"),
    [("none", False), ("liars", False), ("honest", False), pytest.param("none", True, marks=pytest.mark.slow)],
)
def test_one_honest_peer_wins_and_each_lie_is_named(late: str, is_high: bool, tmp_path: Path) -> None:
    """The honest peer comes together with the liars, before them, or in the next run. A long chain has a checkpoint."""
    with stage(tmp_path, Mode.COMPACT, *LIARS, Prompt, is_high=is_high) as world:
        *liars, honest = world.nodes
        for node in {"none": [], "liars": liars, "honest": [honest]}[late]:
            node.is_up = False
        world.boot()
        world.pass_time(20)
        if late == "honest":
            assert not world.has_found_all()
            world.kill()
        for node in world.nodes:
            node.is_up = True
        world.pass_time(10 if late == "none" else 100)
        world.truth.receive()
        world.truth.mine()
        world.pass_time(10)
        world.wait_synced(within=60)
        assert world.has_found_all()
        told = {event.address: event.error for event in world.warnings if event.banned}
        for node, (liar, causes) in zip(liars, LIARS.items(), strict=True):
            if late == "none" or liar is not SendsWrongFilters:  # nobody else may have been asked for filters
                assert getattr(told.pop(node.addresses[0]), "cause", None) in causes, liar
        assert told.keys() <= {node.addresses[0] for node in liars}
