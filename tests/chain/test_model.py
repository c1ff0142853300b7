"""The best chain against a naive model: any tree of headers, sent in any messages, which may overlap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, strategies as st

from spvfilter.chain import HeaderChain, Tip, Update
from spvfilter.errors import LowWorkError, UnconnectedHeadersError
from support.blocks.build import sha256d
from support.blocks.headerchains import EASY_TESTNET3, NOW, fork_height, headers_after, mine, obey, split

HARD = 0x201FFFFF  # 8 expected hashes; the network's easiest target needs 2
ROOT = mine(bytes(32), 1_600_000_000, HARD)
NETWORK = replace(EASY_TESTNET3, genesis=ROOT, genesis_hash=sha256d(ROOT))


@dataclass(frozen=True)
class Node:
    """A header of the tree, with the headers below it."""

    raw: bytes
    tip: Tip
    path: tuple[bytes, ...]  # headers from height 1 up to and including this one

    @property
    def hash(self) -> bytes:
        return self.tip.hash


@dataclass
class Model:
    """The naive model: every header is stored together with all headers below it."""

    minimum: int
    best: Node
    stored: dict[bytes, Node] = field(default_factory=dict)

    def required(self) -> int:
        each = {HARD: 8}.get(self.best.tip.bits, 2)
        return max(self.minimum, self.best.tip.work - 144 * each)


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    """The genesis node and up to 25 descendants, some at the usual difficulty and some late."""
    nodes = [Node(ROOT, HeaderChain(NETWORK).tip(), ())]
    for _ in range(draw(st.integers(1, 25))):
        below = nodes[draw(st.integers(max(0, len(nodes) - 6), len(nodes) - 1) | st.integers(0, len(nodes) - 1))]
        tip = below.tip.copy()
        # different times give siblings different hashes
        raw = obey(tip, [tip.times[-1] + draw(st.sampled_from((600, 1_300))) + len(nodes)])
        if tip.hash not in {node.hash for node in nodes}:
            nodes.append(Node(raw, tip, (*below.path, raw)))
    return nodes


@given(trees(), st.data())
def test_any_messages_give_the_chain_that_the_model_has(nodes: list[Node], data: st.DataObject) -> None:
    by_hash = {node.hash: node for node in nodes}
    minimum = data.draw(st.sampled_from((0, 0, 40, 100)))
    chain = HeaderChain(replace(NETWORK, min_chain_work=minimum))
    model = Model(minimum, nodes[0], {nodes[0].hash: nodes[0]})
    shadow: list[bytes] = []  # the best chain according to the updates
    for _ in range(data.draw(st.integers(1, 25))):
        end = nodes[data.draw(st.integers(0, len(nodes) - 1))]
        count = data.draw(st.integers(0, len(end.path)))
        message = end.path[len(end.path) - count :]
        fresh = [raw for raw in message if sha256d(raw) not in model.stored]
        if message and message[0][4:36] not in model.stored:
            with pytest.raises(UnconnectedHeadersError):
                chain.accept(b"".join(message), NOW)
        elif fresh and end.tip.work < model.required():
            with pytest.raises(LowWorkError):
                chain.accept(b"".join(message), NOW)
        else:
            update = chain.accept(b"".join(message), NOW)
            assert update.stored == len(fresh)
            model.stored |= {sha256d(raw): by_hash[sha256d(raw)] for raw in fresh}
            if fresh and end.tip.work > model.best.tip.work:
                model.best = end
            follow(update, shadow)
        check(chain, model, nodes, shadow)


def follow(update: Update, shadow: list[bytes]) -> None:
    for placed in update.disconnected:
        assert (placed.height, placed.raw, placed.hash) == (len(shadow), shadow[-1], sha256d(shadow[-1]))
        shadow.pop()
    assert update.fork_height == len(shadow)
    for placed in update.connected:
        shadow.append(placed.raw)
        assert (placed.height, placed.hash) == (len(shadow), sha256d(placed.raw))


def check(chain: HeaderChain, model: Model, nodes: list[Node], shadow: list[bytes]) -> None:
    best = model.best
    assert (chain.tip_hash, chain.height, chain.work) == (best.hash, len(best.path), best.tip.work)
    assert tuple(split(chain.headers(1, 100))) == best.path == tuple(shadow)
    assert chain.required_work == model.required()
    on_best = {sha256d(raw): height for height, raw in enumerate(best.path, 1)} | {NETWORK.genesis_hash: 0}
    for node in nodes:
        assert (node.hash in chain) == (node.hash in model.stored)
        assert chain.height_of(node.hash) == on_best.get(node.hash)
    assert chain.tip() == replace(best.tip, network=chain.network)


@given(trees(), st.data())
def test_a_peer_on_any_chain_reaches_the_clients_chain(nodes: list[Node], data: st.DataObject) -> None:
    ours, theirs = (nodes[data.draw(st.integers(0, len(nodes) - 1))] for _ in range(2))
    mine_, other = (
        HeaderChain.load(NETWORK, [b"".join(node.path)] if node.path else [], NOW) for node in (ours, theirs)
    )
    common = 0
    while common < min(len(ours.path), len(theirs.path)) and ours.path[common] == theirs.path[common]:
        common += 1
    found = fork_height(mine_, other.locator())
    assert found <= common
    assert (
        len(theirs.path) - found <= 2 * (len(theirs.path) - common) + 12
    )  # the locator goes back at most twice as far as needed
    answer = headers_after(mine_, other.locator())
    assert tuple(split(answer)) == ours.path[found:]
    update = other.accept(answer, NOW)
    if ours.tip.work > theirs.tip.work:
        assert other.tip_hash == mine_.tip_hash
        assert update.fork_height == common
    else:
        assert other.tip_hash == theirs.hash
