"""A scan of a node's blocks: the same matches as in files, bounded fetching ahead, and failures during the scan."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

import pytest
from bitcoin.core import CBlock

from spvfilter.errors import NodeAnswerError, NodePrunedError, NodeUnreachableError, ParameterError, SourceError
from spvfilter.network import MAINNET, REGTEST
from spvfilter.protocol import MAX_BLOCK_SIZE
from spvfilter.rpc import FullNode, Listing, Password
from spvfilter.scan import BlockFiles, BlockRef, BlockSpan, Matcher, NodeBlocks, block_coins
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList
from support.blocks.build import block_hash
from support.blocks.chains import found_by
from support.blocks.nodechains import SPANS, paid_chain, watched
from support.blocks.undo import Spent
from support.client.pauses import Pauses
from support.peers.corenode import BINARY, PASSWORD, USER, CoreNode, Request, chain_of, response, spent_answer
from support.vectors import effort, vector_path

pytestmark = [pytest.mark.usefixtures("many_threads", "nothing_is_left")]
WAYS = pytest.mark.parametrize("way", ["rest", "rpc"])


@pytest.fixture
async def core() -> AsyncIterator[CoreNode]:
    async with paid_chain().node().serving() as node:
        yield node


def opened(core: CoreNode, pauses: Pauses | None = None, way: str = "rest") -> AbstractAsyncContextManager[FullNode]:
    core.rest = way == "rest"
    credentials = Password(USER, PASSWORD) if way == "rpc" else None
    return FullNode.open(core.url, REGTEST, credentials=credentials, patience=(pauses or Pauses()).patience())


async def of_files(watch: WatchList, folder: Path, **options: object) -> tuple[list[Match], Matcher]:
    matcher = Matcher(watch)
    return await found_by(matcher, BlockFiles(folder, **options)), matcher  # type: ignore[arg-type]


@pytest.mark.few(1)
@WAYS
@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("ahead", [1, 16])
async def test_matches_equal_those_of_the_same_blocks_in_files(
    core: CoreNode, tmp_path: Path, way: str, jobs: int, ahead: int
) -> None:
    expected, files = await of_files(watched(), paid_chain().files(tmp_path, undo=way == "rest"))
    matcher = Matcher(watched(), jobs=jobs)
    async with opened(core, way=way) as node:
        assert await found_by(matcher, NodeBlocks(node, ahead=ahead)) == expected
    assert len(expected) == 12
    assert all((match.fee is None) == (way == "rpc") for match in expected)
    report = matcher.report
    assert (report.done, report.blocks, report.bytes_scanned) == (True, len(core.blocks), sum(map(len, core.blocks)))
    assert (report.by_undo, report.unseen) == (files.report.by_undo, 0)


@pytest.mark.few(1)
@pytest.mark.parametrize("span", SPANS)
@WAYS
async def test_a_range_equals_that_of_files(core: CoreNode, tmp_path: Path, span: BlockSpan, way: str) -> None:
    expected, files = await of_files(watched(), paid_chain().files(tmp_path, undo=way == "rest"), span=span)
    matcher = Matcher(watched())
    async with opened(core, way=way) as node:
        assert await found_by(matcher, NodeBlocks(node, span=span)) == expected
    assert (matcher.report.blocks, matcher.report.unseen) == (files.report.blocks, files.report.unseen)


@pytest.mark.slow
@pytest.mark.vectors
async def test_a_real_nodes_chain_matches_its_files() -> None:
    """The test uses 208 blocks of a real node, with a reorganization. Its undo file has the coins that they spend."""
    source = BlockFiles(vector_path("12_undo/blk00000.dat").parent)
    refs = [ref for ref in source.index(REGTEST) if isinstance(ref, BlockRef)]
    raws = {ref.hash: source.read(ref) for ref in refs}
    reference = Matcher(all_scripts(raws.values()))
    expected = await found_by(reference, source)
    followed = {raw[4:36] for raw in raws.values()} | set(reference.report.stale)
    (tip,) = raws.keys() - followed
    core = CoreNode(chain_of(list(raws.values()), tip), {})
    for ref in refs:
        if (place := source.find_undo(ref)) is not None:
            coins = block_coins(raws[ref.hash], place.read())
            core.spends_of(ref.hash, [[Spent(coin.value, coin.script) for coin in of_tx] for of_tx in coins])
    matcher = Matcher(all_scripts(raws.values()))
    async with core.serving(), opened(core) as node:
        assert await found_by(matcher, NodeBlocks(node, undo="require")) == expected
    assert len(expected) > 500
    assert matcher.report.by_undo == reference.report.by_undo > 50


def all_scripts(raws: Iterable[bytes]) -> WatchList:
    """A watch list of all scripts that these blocks pay."""
    watch = WatchList(REGTEST)
    scripts = {bytes(out.scriptPubKey) for raw in raws for each in CBlock.deserialize(raw).vtx for out in each.vout}
    for script in sorted(scripts):
        if script[:1] != b"\x6a":
            watch.add_script(script)
    return watch


# Spent coins from the node


@pytest.mark.slow
async def test_an_older_node_is_asked_once_for_spent_outputs(core: CoreNode) -> None:
    core.spent = None
    matcher = Matcher(watched())
    async with opened(core) as node:
        found = await found_by(matcher, NodeBlocks(node, ahead=1))
        assert (len(found), matcher.report.by_undo) == (12, 0)
        assert sum("spenttxouts" in request.path for request in core.requests) == 1
        with pytest.raises(
            SourceError,
            match=r"does not return the outputs that block [0-9a-f]{64} spends: use Bitcoin Core 30 or later with",
        ):
            await found_by(Matcher(watched()), NodeBlocks(node, undo="require"))


async def test_undo_mode_off_requests_no_spent_outputs(core: CoreNode) -> None:
    async with opened(core) as node:
        assert len(await found_by(Matcher(watched()), NodeBlocks(node, undo="off"))) == 12
    assert not any("spenttxouts" in request.path for request in core.requests)


async def test_false_spent_outputs_are_reported_and_replaced_by_outpoints(core: CoreNode) -> None:
    assert core.spent is not None
    spending = [digest for digest, told in core.spent.items() if told[0] > 1]
    core.spent[spending[1]] = core.spent[spending[2]] + b""
    core.spent[spending[3]] = spent_answer([])
    matcher = Matcher(watched())
    async with opened(core) as node:
        found = await found_by(matcher, NodeBlocks(node))
    assert len(found) == 12
    assert len(matcher.report.undo_problems) >= 1
    assert spending[3] in matcher.report.without_undo


async def test_malformed_spent_outputs_end_the_scan(core: CoreNode) -> None:
    assert core.spent is not None
    core.spent[core.hashes[105]] += b"\0"
    matcher = Matcher(watched())
    async with opened(core) as node:
        with pytest.raises(NodeAnswerError, match=f"that block {core.hashes[105][::-1].hex()} spends is malformed"):
            await found_by(matcher, NodeBlocks(node))
    assert matcher.report.blocks == 105


# Prefetching


async def test_prefetching_is_bounded(core: CoreNode) -> None:
    async with opened(core) as node:
        scan = Matcher(watched()).scan(NodeBlocks(node, ahead=3, undo="off", span=BlockSpan(102)))
        async with aclosing(scan) as matches:
            await anext(matches)
            for _ in range(500):
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)  # time to fetch all blocks that may be fetched
            fetched = sum("/rest/block/" in request.path for request in core.requests)
        assert fetched <= 11  # 3 ahead, up to 3 in a waiting batch, and 2 batches that threads may have begun
    assert len(core.blocks) - 102 > 11


@pytest.mark.parametrize("seed", range(effort(4, 8, 300)))
async def test_leaving_at_any_moment_leaves_nothing_behind(seed: int) -> None:
    rng = random.Random(seed)
    async with paid_chain().node().serving() as core, opened(core) as node:

        async def some() -> None:
            async with aclosing(Matcher(watched(), jobs=2).scan(NodeBlocks(node, ahead=4))) as matches:
                async for _ in matches:
                    pass

        task = asyncio.create_task(some())
        for _ in range(rng.randrange(400)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_grown_keychain_fetches_blocks_again(core: CoreNode, tmp_path: Path) -> None:
    """A distant index is used first, so earlier blocks must be searched again."""

    def keychain() -> WatchList:
        watch = WatchList(REGTEST)
        order = sorted({script_of(core, height) for height in range(1, 6)})
        scripts = {index: b"\x00\x14" + index.to_bytes(20, "big") for index in range(400)}
        scripts[0] = order[0]
        watch.add_keychain(
            "all", lambda index: scripts.get(index, b"\x00\x14" + index.to_bytes(20, "big")), lookahead=20
        )
        return watch

    expected, _ = await of_files(keychain(), paid_chain().files(tmp_path))
    async with opened(core) as node:
        assert await found_by(Matcher(keychain()), NodeBlocks(node)) == expected
    assert expected


def script_of(core: CoreNode, height: int) -> bytes:
    return bytes(CBlock.deserialize(core.blocks[height]).vtx[0].vout[0].scriptPubKey)


# Failures during a scan


@pytest.mark.few(1)
@WAYS
@pytest.mark.parametrize("seed", range(effort(1, 2, 100)))
async def test_failed_requests_change_no_match(way: str, seed: int) -> None:
    rng = random.Random(seed)
    pauses = Pauses()

    def fault(request: Request) -> bytes | None:
        if rng.random() > 0.4:
            return None
        whole = served.answer(request)
        return rng.choice([b"", whole[: rng.randrange(len(whole))], response(503, b"Work queue depth exceeded")])

    served = paid_chain().node()
    async with served.serving(), opened(served, pauses, way) as node:
        span = BlockSpan(95)
        expected = await found_by(Matcher(watched()), NodeBlocks(node, span=span))
        served.faults.append(fault)
        assert await found_by(Matcher(watched(), jobs=2), NodeBlocks(node, span=span)) == expected
    assert pauses.told


@pytest.mark.few(1)
@WAYS
async def test_a_node_that_stays_down_ends_the_scan(core: CoreNode, way: str) -> None:
    pauses = Pauses()
    matcher = Matcher(watched())
    found: list[Match] = []
    word = core.hashes[107][::-1].hex()
    async with opened(core, pauses, way) as node:
        core.faults.append(
            lambda request: (
                b"" if request.about(f"block/{word}") or request.about(f'"getblock","params":["{word}"') else None
            )
        )
        with pytest.raises(NodeUnreachableError):
            async for match in matcher.scan(NodeBlocks(node)):
                found.append(match)  # noqa: PERF401  keep the matches before the error
    assert matcher.report.blocks == 107  # up to height 106
    assert {match.height for match in found} == {102, 104, 105, 106}
    assert pauses.now > 500


async def test_a_block_pruned_during_a_scan_is_named(core: CoreNode) -> None:
    matcher = Matcher(watched())

    def prune(request: Request) -> None:
        if core.hashes[60][::-1].hex() in request.path:
            core.pruned_below = 105

    core.faults.append(prune)
    async with opened(core) as node:
        with pytest.raises(NodePrunedError, match="pruned data"):
            await found_by(matcher, NodeBlocks(node, ahead=1))
    assert matcher.report.blocks == 60


async def test_listed_blocks_are_scanned_even_if_they_become_stale(core: CoreNode) -> None:
    """The node still has the stale block. The scan covers the chain as it was listed."""
    expected = await found_by(Matcher(watched()), list(core.blocks))

    def reorganise(request: Request) -> None:
        if core.hashes[60][::-1].hex() in request.path and len(core.blocks) > 100:
            core.arrange(core.blocks[:100])

    core.faults.append(reorganise)
    async with opened(core) as node:
        found = await found_by(Matcher(watched()), NodeBlocks(node, undo="off"))
    assert [match.txid for match in found] == [match.txid for match in expected]


async def test_a_block_at_a_false_height_is_refused(core: CoreNode) -> None:
    """The node leaves out its first blocks and claims that its chain begins at height 0. The test makes its listing."""
    async with opened(core) as node:
        listing = Listing(50, core.hashes[50], b"".join(core.hashes[51:60]))
        with pytest.raises(NodeAnswerError, match=r"for height 50, but the block says 51"):
            await found_by(Matcher(watched()), NodeBlocks(node, listing=listing))


async def test_oversized_answers_are_refused(core: CoreNode) -> None:
    async with opened(core) as node:
        core.faults.append(
            lambda request: response(200, bytes(MAX_BLOCK_SIZE + 1), BINARY) if "/rest/block/" in request.path else None
        )
        with pytest.raises(NodeAnswerError, match="exceeds 4,000,000 bytes"):
            await found_by(Matcher(watched()), NodeBlocks(node, ahead=2))


async def test_invalid_options_are_refused(core: CoreNode) -> None:
    async with opened(core) as node:
        listing = await node.listing()
        for wrong in ({"undo": "maybe"}, {"ahead": 0}, {"listing": listing, "span": BlockSpan(1)}):
            with pytest.raises(ParameterError):
                NodeBlocks(node, **wrong)
        with pytest.raises(ParameterError, match="in_order is for streams"):
            await found_by(Matcher(watched()), NodeBlocks(node), in_order=True)
        foreign = WatchList(MAINNET)
        foreign.add_script(b"\x51")
        with pytest.raises(ParameterError, match="the watch list is for mainnet, but the node is on regtest"):
            await found_by(Matcher(foreign), NodeBlocks(node))
    assert block_hash(core.blocks[0]) == REGTEST.genesis_hash
