"""Following a node's chain: new blocks, reorganizations of every depth, lost notices, and a node that disconnects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spvfilter.errors import NodeChainError, NodePrunedError, ParameterError
from spvfilter.network import REGTEST
from spvfilter.node import Regtest
from spvfilter.primitives import TxOut
from spvfilter.rpc import FullNode, TipNotices
from spvfilter.scan import BlockSpan, Connected, Disconnected, Matcher, NodeBlocks, follow
from spvfilter.watch.match import Match
from support.blocks.build import block_hash
from support.blocks.chains import found_by
from support.blocks.nodechains import MINE, chain_of, paid_regtest, told, watched
from support.client.pauses import Pauses
from support.peers.corenode import CoreNode
from support.peers.publisher import Publisher
from support.vectors import effort

pytestmark = pytest.mark.usefixtures("nothing_is_left")
PATIENCE_S = 30.0
Event = Match | Connected | Disconnected


class Ledger:
    """The state of a program that follows a chain: the blocks of the best chain, and the matches in them."""

    def __init__(self) -> None:
        self.chain: dict[int, bytes] = {}
        self.matches: dict[bytes, list[Match]] = {}
        self.disconnected = 0

    def take(self, event: Event) -> None:
        match event:
            case Connected(height, digest):
                assert height not in self.chain
                assert not self.chain or height == max(self.chain) + 1
                self.chain[height] = digest
                self.matches.setdefault(digest, [])
            case Disconnected(height, digest):
                assert height == max(self.chain)
                assert self.chain.pop(height) == digest
                del self.matches[digest]
                self.disconnected += 1
            case Match():
                assert event.block_hash is not None
                assert event.block_hash not in self.chain.values()  # matches are yielded before their block
                self.matches.setdefault(event.block_hash, []).append(event)

    @property
    def found(self) -> list[Match]:
        return [match for height in sorted(self.chain) for match in self.matches[self.chain[height]]]


def opened(core: CoreNode, pauses: Pauses) -> AbstractAsyncContextManager[FullNode]:
    return FullNode.open(core.url, REGTEST, patience=pauses.patience(None))


async def followed(events: AsyncGenerator[Event], tip: Callable[[], bytes], ledger: Ledger) -> None:
    """Read events until the tip is reached."""
    async with asyncio.timeout(PATIENCE_S):
        while not ledger.chain or ledger.chain[max(ledger.chain)] != tip():
            ledger.take(await anext(events))


@asynccontextmanager
async def following(
    core: CoreNode, pauses: Pauses, matcher: Matcher | None = None, **options: Any
) -> AsyncGenerator[AsyncGenerator[Event]]:
    """The events of a node's chain."""
    matcher = matcher or Matcher(watched())
    async with (
        core.serving(),
        opened(core, pauses) as node,
        aclosing(follow(matcher, NodeBlocks(node, **options))) as events,
    ):
        yield events


async def as_in_files(core: CoreNode) -> list[Match]:
    return [match for match in await found_by(Matcher(watched()), list(core.blocks)) if match.height is not None]


def identities(matches: list[Match]) -> list[tuple[object, ...]]:
    return [(match.kind, match.txid, match.index, match.height, match.block_hash, match.value) for match in matches]


@pytest.mark.slow
async def test_new_blocks_are_reported_after_their_matches() -> None:
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    ledger = Ledger()

    def grow() -> None:
        regtest.pay(TxOut(70_000, MINE))
        regtest.mine(2)
        told(core, chain_of(regtest))

    pauses = Pauses(lambda: None, grow, lambda: None, grow)
    async with following(core, pauses) as events:
        while len(core.blocks) < 118 or ledger.chain.get(117) is None:
            ledger.take(await anext(events))
    assert [ledger.chain[height] for height in sorted(ledger.chain)] == core.hashes
    assert identities(ledger.found) == identities(await as_in_files(core))
    assert ledger.disconnected == 0
    assert set(pauses.slept) == {10.0}


@pytest.mark.few(1)
@pytest.mark.parametrize("depth", [1, 2, 3, 7, 14])
async def test_a_reorganization_replaces_blocks(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.scan.following.MOST_KEPT", 14)  # the deepest reorganization that is followed
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    before = chain_of(regtest)

    def reorganise() -> None:
        regtest.reorg(depth)
        regtest.mine()
        told(core, chain_of(regtest))

    pauses, ledger = Pauses(reorganise), Ledger()
    async with following(core, pauses) as events:
        await followed(events, lambda: block_hash(before[-1]), ledger)
        assert identities(ledger.found) == identities(await as_in_files(core))
        while core.hashes[-1] == block_hash(before[-1]) or ledger.chain[max(ledger.chain)] != core.hashes[-1]:
            ledger.take(await anext(events))
    assert ledger.disconnected == depth
    assert core.hashes[-1] != block_hash(before[-1])
    assert identities(ledger.found) == identities(await as_in_files(core))


async def test_blocks_are_disconnected_when_the_chain_becomes_shorter() -> None:
    """An operator of Bitcoin Core calls invalidateblock, and later reconsiderblock."""
    blocks = chain_of(paid_regtest())
    core, ledger = CoreNode(blocks), Ledger()

    def shorten() -> None:
        told(core, blocks[:-3])

    def restore() -> None:
        told(core, blocks)

    async with following(core, Pauses(shorten, restore)) as events:
        for disconnected, end in ((0, blocks[-1]), (3, blocks[-4]), (3, blocks[-1])):
            await followed(events, lambda end=end: block_hash(end), ledger)  # type: ignore[misc]
            assert (ledger.disconnected, ledger.chain[max(ledger.chain)]) == (disconnected, block_hash(end))
            assert identities(ledger.found) == identities(await as_in_files(core))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(effort(1, 2, 100)))
async def test_random_reorganizations_end_with_the_matches_of_files(seed: int) -> None:
    rng = random.Random(seed)
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    left = 15

    def change() -> None:
        nonlocal left
        left -= 1
        for _ in range(rng.randrange(3)):
            regtest.pay(TxOut(rng.randrange(1_000, 10_000), MINE))
        if rng.random() < 0.5:
            regtest.reorg(rng.randint(1, 8), blocks=None)
        regtest.mine(rng.randint(1, 3))
        # as the RPC invalidateblock does
        told(core, chain_of(regtest) if left <= 0 or rng.random() < 0.8 else chain_of(regtest)[: -rng.randint(1, 3)])

    pauses, ledger = Pauses(), Ledger()
    pauses.events = [change] * 15
    core.faults.append(lambda request: b"" if rng.random() < 0.05 else None)
    async with following(core, pauses, Matcher(watched(), jobs=2)) as events:
        async with asyncio.timeout(PATIENCE_S):
            while left > 0 or not ledger.chain or ledger.chain[max(ledger.chain)] != core.hashes[-1]:
                ledger.take(await anext(events))
    assert identities(ledger.found) == identities(await as_in_files(core))
    assert [ledger.chain[height] for height in sorted(ledger.chain)] == core.hashes


async def test_a_reorganization_during_a_scan_reports_nothing_twice() -> None:
    """The chain changes after the new blocks are listed and before they are fetched.

    The node has dropped the stale blocks.
    """
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    ledger, stale = Ledger(), []

    def grow() -> None:
        regtest.pay(TxOut(70_000, MINE))
        regtest.mine(6)
        stale.extend(chain_of(regtest)[-6:])
        told(core, chain_of(regtest))

    def vanish(request: object) -> None:
        if stale and f"/rest/block/{block_hash(stale[3])[::-1].hex()}" in request.path:  # type: ignore[attr-defined]
            regtest.reorg(3)
            told(core, chain_of(regtest))
            for raw in stale[3:]:
                core.known.pop(block_hash(raw), None)
            stale.clear()

    pauses = Pauses(grow)
    core.faults.append(vanish)
    async with following(core, pauses, ahead=1) as events:
        await followed(events, lambda: core.hashes[-1], ledger)  # the chain before the reorganization
        while len(core.blocks) < 121 or ledger.chain[max(ledger.chain)] != core.hashes[-1]:
            ledger.take(await anext(events))
    assert identities(ledger.found) == identities(await as_in_files(core))
    assert any("is no longer in its chain" in sentence for sentence in pauses.told)


async def test_a_pruned_block_of_the_best_chain_ends_following() -> None:
    core = CoreNode(chain_of(paid_regtest()))
    async with following(core, Pauses()) as events:
        del core.known[core.hashes[105]]
        with pytest.raises(NodePrunedError):
            async for _ in events:
                pass


@pytest.mark.slow
async def test_a_reorganization_deeper_than_the_memory_ends_following(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.scan.following.MOST_KEPT", 10)
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))

    def reorganise() -> None:
        regtest.reorg(40)
        told(core, chain_of(regtest))

    async with following(core, Pauses(reorganise)) as events:
        with pytest.raises(NodeChainError, match="its chain changed below height"):
            async for _ in events:
                pass


async def test_a_reorganization_below_the_start_repeats_the_scan() -> None:
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))

    def reorganise() -> None:
        regtest.reorg(30)
        told(core, chain_of(regtest))

    ledger = Ledger()
    async with following(core, Pauses(reorganise), span=BlockSpan(100)) as events:
        await followed(events, lambda: core.hashes[-1], ledger)
        while ledger.disconnected < 14 or ledger.chain.get(len(core.blocks) - 1) is None:
            ledger.take(await anext(events))
    assert [ledger.chain[height] for height in sorted(ledger.chain)] == core.hashes[100:]
    assert ledger.disconnected == 14


@pytest.mark.slow
async def test_endless_reorganizations_use_bounded_memory_and_pauses() -> None:
    regtest = Regtest(clock=iter_clock())
    regtest.mine(5)
    one = chain_of(regtest)
    regtest.reorg(2)
    other = chain_of(regtest)
    core = CoreNode(one)
    sides = [one, other]

    def flip() -> None:
        sides.reverse()
        core.arrange(sides[0])

    pauses, ledger = Pauses(), Ledger()
    pauses.events = [flip] * 30
    async with following(core, pauses) as events:
        async for event in events:
            ledger.take(event)
            if not pauses.events:
                break
    assert 50 < ledger.disconnected < 100
    assert len(pauses.slept) >= 30


def iter_clock() -> Callable[[], float]:
    times = iter(range(1_700_000_000, 1_800_000_000, 60))
    return lambda: float(next(times))


@pytest.mark.slow
async def test_a_poll_makes_up_for_lost_notices(tmp_path: Path) -> None:
    """A real publisher. Some blocks have a notice, some only a gap in the numbers, and some a false notice.

    A published block is not fetched.
    """
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    ledger, address = Ledger(), f"ipc://{tmp_path}/zmq"

    def mine() -> bytes:
        regtest.pay(TxOut(70_000, MINE))
        regtest.mine()
        told(core, chain_of(regtest))
        return core.blocks[-1]

    with Publisher(address) as publisher:
        async with core.serving(), opened(core, Pauses()) as node, TipNotices.subscribed([address]) as notices:
            await publisher.subscribed()
            async with aclosing(follow(Matcher(watched()), NodeBlocks(node), notices=notices, poll_s=3_600)) as events:
                await followed(events, lambda: core.hashes[-1], ledger)
                raw = mine()
                await publisher.send("rawblock", raw)
                await publisher.send("sequence", block_hash(raw)[::-1] + b"C")
                await followed(events, lambda: core.hashes[-1], ledger)
                assert not any(
                    f"/rest/block/{block_hash(raw)[::-1].hex()}" in request.path for request in core.requests
                )
                for _ in range(3):  # the notices of these blocks are lost
                    raw = mine()
                    publisher.lose("rawblock", 1)
                    publisher.lose("sequence", 1)
                await publisher.send("sequence", bytes(32) + b"A" + bytes(8))
                await followed(events, lambda: core.hashes[-1], ledger)
                assert notices.lost == 3
                regtest.reorg(2)
                told(core, chain_of(regtest))
                damaged = core.blocks[-1][:-1] + b"\x01"
                await publisher.send("rawblock", damaged)  # a damaged block with the header of the tip
                await publisher.send("rawblock", damaged)
                await publisher.send("sequence", b"\xff" * 32 + b"D")
                await followed(events, lambda: core.hashes[-1], ledger)
    assert ledger.disconnected == 2
    assert identities(ledger.found) == identities(await as_in_files(core))


async def test_invalid_options_are_refused() -> None:
    core = CoreNode(chain_of(paid_regtest(0)))
    async with core.serving(), opened(core, Pauses()) as node:
        for blocks, poll_s in ((NodeBlocks(node, span=BlockSpan(0, 5)), 1.0), (NodeBlocks(node), 0.0)):
            with pytest.raises(ParameterError):
                await anext(follow(Matcher(watched()), blocks, poll_s=poll_s))
