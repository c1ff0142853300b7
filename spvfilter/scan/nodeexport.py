"""Export of a node's chain: its blocks are stored as files in the directory for as long as the export needs them.

Files are removed once their parts are finished. Only the last 100 blocks are kept, because a reorganization may
disconnect them.

The plan of the next blocks reuses the finished parts, so that a new block costs the same on a chain of any length. If
the chain forks in a finished part, the manifest forgets this part and all later ones, and their blocks are fetched
again.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from spvfilter._public import public
from spvfilter.errors import NodeChainError, NodeError, NodePrunedError, ParameterError, SourceError
from spvfilter.rpc.fullnode import Listing
from spvfilter.scan.chainchange import ChainChange
from spvfilter.scan.engines import Engine
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.exportrun import ExportInputs, ExportRun, WrittenPart
from spvfilter.scan.fetching import FetchedBlock, NodeBlocks, fetch_block
from spvfilter.scan.finishedparts import FinishedPart, KnownBlocks, continued_plan
from spvfilter.scan.gaps import Heights, ScannedHeights, joined
from spvfilter.scan.manifest import Manifest, run_inputs
from spvfilter.scan.order import ScanReport
from spvfilter.scan.partdirectory import TEMPORARY, PartDirectory
from spvfilter.scan.partrows import EarlierRun, PartRows
from spvfilter.scan.partrun import PartRun, PartsReport
from spvfilter.scan.plan import PART_SIZE, Plan
from spvfilter.scan.spool import BlockSpool
from spvfilter.scan.threadwork import to_its_end

_FOLDER = f"{TEMPORARY}blocks"  # Name of the spool's folder in the directory of the export.
REORGANIZED = 100  # Number of blocks below the tip that stay in the spool, each in its own file (our choice).
FILE_SIZE, _FILE_BLOCKS = 16_000_000, 4_096  # Bytes and blocks per file below those (our choice).
_ROUND_SIZE = 2_000_000_000  # Bytes of blocks and undo records to fetch between two exports (our choice).
_ELSEWHERE = "export into another directory"
_MOST_CHANGES = 5  # Attempts to find the place in a chain that keeps changing (our choice).


@public
class NodeExport:
    """An export of a full node's chain, instead of its files. Call `run` again to export new blocks.

    A TableExport of the node's files writes the same tables. A stopped export resumes where it left off, and it follows
    reorganizations of any depth. Blocks are kept in a hidden folder of the directory until their tables are finished:
    about 2 GB while the export catches up, and later less than 1 GB.

    Bitcoin Core 30 serves spent outputs over REST, but without their heights, so the spent_block_number column is null.
    JSON-RPC includes the heights, but takes longer. If the node does not have the spent outputs, input values and fees
    are null.

    Args:
        directory: The directory for the tables; it is created if it does not exist.
        blocks: The node's blocks to export, given as a span. With `allow_gaps`, the export begins with the first block
            that the node has.
        columns: The tables and columns; by default the default columns of all tables.
        check: True to verify each block again, including its proof of work.
        coins: True to also write the `coins` table, as a TableExport does.
        balances: True to also write the `balances` table.
        credits_p2pk: True to count the coins of a public key toward its P2PKH address in `balances`.
        part_size: Approximate size of a part in bytes, as for a Plan.
        round_size: Bytes of blocks that are fetched before their tables are written, at least 1.

    Raises:
        ParameterError: `blocks` is a listing, `credits_p2pk` is True without `balances`, or `round_size` is below 1.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        blocks: NodeBlocks,
        columns: ExportColumns | None = None,
        *,
        check: bool = False,
        coins: bool = False,
        balances: bool = False,
        credits_p2pk: bool = False,
        part_size: int = PART_SIZE,
        round_size: int = _ROUND_SIZE,
    ) -> None:
        if blocks.known is not None:
            raise ParameterError("an export of a node needs blocks with a span, not with a listing")
        if round_size < 1:
            raise ParameterError(f"round_size must be at least 1 byte, not {round_size}")
        self.directory: Path = Path(directory).absolute()
        """The directory to which the export writes the tables."""
        self.blocks = blocks
        """The blocks of the node."""
        self.columns: ExportColumns = columns or ExportColumns.of()
        """The tables and columns that the export writes."""
        self.plan: Plan = Plan(blocks.node.network, blocks.mode, str(blocks.span), (), (), ScanReport())
        """The plan of the last run. Before the first run, it has no parts."""
        self.report: PartsReport = PartsReport()
        """The progress of the last run. Its `bytes_done` counts the blocks that were fetched."""
        self.heights: ScannedHeights = ScannedHeights()
        """The heights that the tables cover and lack, after a run."""
        self._part_size, self._round_size = part_size, round_size
        self._inputs = ExportInputs(
            self.columns, check=check, coins=coins, balances=balances, credits_p2pk=credits_p2pk
        )
        self._begun = PartRun(self.directory, self.plan, check, self._inputs.named())
        # The finished parts in the manifest as this process last saw it. The second list also contains them if this
        # process wrote or checked all of their files.
        self._finished: list[FinishedPart] = []
        self._written: list[WrittenPart] = []
        # time of the directory's last change when the last run ended: each run locks and changes the directory
        self._left = 0

    async def run(self, engine: Engine | None = None) -> dict[str, list[Path]]:
        """Fetch the blocks up to the node's tip, and write their tables, by default in one thread.

        Returns:
            For each table name, the paths of its files in chain order.

        Raises:
            ParameterError: The directory holds a different export or other files, or pyarrow is not installed.
            DirectoryInUseError: Another export is using the directory.
            NodeError: The node fails for longer than its Patience allows, or lacks a block.
            SourceError: The span contains no blocks, or coins are requested for a chain without its first blocks.
            FormatError: A block from the node is malformed.
            OSError: A file cannot be read or written.
        """
        folder, node = self.directory / _FOLDER, self.blocks.node
        if await to_its_end(self._changed_at) != self._left:  # another process may have left files behind
            self._written = []
        is_new = await to_its_end(Manifest.read, self.directory) is None
        await self._begun.begin()
        with PartDirectory(folder).locked():
            spool = await to_its_end(BlockSpool, folder, node.network)
            if is_new:
                await to_its_end(spool.clear)
            before = await to_its_end(Manifest.read, self.directory)
            self.report = PartsReport()
            gone, listing = await self._place(spool)
            missing = () if listing is None else listing.missing
            while True:
                try:
                    files = await self._rounds(spool, listing, engine)
                    break
                except NodePrunedError:
                    if listing is None or await node.hash_at(listing.last) == listing.hash_at(listing.last):
                        raise
                    more, listing = await self._place(spool)  # the chain has changed
                    gone += more
            self.heights = await self._found(missing)
            if before is not None and before.tip:
                after = await to_its_end(Manifest.read, self.directory)
                self.report.parts_kept = len({*before.finished} & {*(after or before).finished})
                new = self.plan.blocks - before.blocks + gone
                self.report.change = ChainChange(max(new, 0), gone - min(new, 0))
            self._left = await to_its_end(self._changed_at)
            return files

    def _changed_at(self) -> int:
        """Return when the directory was last changed, in nanoseconds of Unix time, or 0 if it does not exist."""
        return self.directory.stat().st_mtime_ns if self.directory.exists() else 0

    async def _place(self, spool: BlockSpool) -> tuple[int, Listing | None]:
        """Find the height at which the export continues, and remove blocks and parts that have left the node's chain.

        Returns:
            The number of exported blocks that left the chain, and the listing of the blocks to fetch, or None if there
            are none.
        """
        gone = 0
        for _ in range(_MOST_CHANGES):
            known = await to_its_end(self._known, spool)
            fork = await self._fork(known)
            exported = known.parts[-1].last if known.parts else fork
            gone += max(exported - fork, 0)
            following = await to_its_end(self._forget, spool, known, fork)
            if following is None:
                return gone, await self.blocks.listing()
            listing = await self._listing(following)
            if listing is None or listing.previous == known.hash_at(following - 1):
                return gone, listing
        raise NodeChainError(f"{self.blocks.node.endpoint}: its chain changed {_MOST_CHANGES} times during the export")

    def _known(self, spool: BlockSpool) -> KnownBlocks:
        """Return the known blocks. Clear the spool unless its blocks follow the finished parts. Raises SourceError."""
        plan = self.plan
        earlier = EarlierRun.of(self.directory, run_inputs(plan.network, str(plan.undo), plan.span))
        names = [] if earlier is None else earlier.names
        if names != [part.name for part in self._finished]:  # the first run, or another process has written files
            self._finished, self._written = [], []
            for part in () if earlier is None else earlier.parts():
                self._finish(part)
            if len(names) > len(self._finished):
                lacks = "the blocks of a finished part are missing from its folder `parts`"
                raise SourceError(f"{self.directory}: {lacks}: {_ELSEWHERE}")
        if spool and self._finished and not _continues(self._finished[-1], spool):
            spool.clear()
        return KnownBlocks(self._finished, spool)

    def _finish(self, rows: PartRows) -> None:
        """Add the next finished part. Raises SourceError if its heights are unknown or do not follow."""
        parts = self._finished
        following = parts[-1].last + 1 if parts else None
        parts.append(FinishedPart.of(rows, len(parts), self.plan.network.name, following))

    async def _fork(self, known: KnownBlocks) -> int:
        """Return the height of the last known block in the node's chain, or one below the first if there is none.

        If the node's chain is merely shorter, the last known block stays: the node may be reindexing.
        """
        node = self.blocks.node
        low, high = known.first - 1, min(known.last, (await node.info()).height)
        if low >= high or await node.hash_at(high) == known.hash_at(high):
            return known.last
        while high - low > 1:  # the chains agree at `low`, or `low` is below the first height, and differ at `high`
            middle = (low + high) // 2
            if await node.hash_at(middle) == known.hash_at(middle):
                low = middle
            else:
                high = middle
        return low

    def _forget(self, spool: BlockSpool, known: KnownBlocks, fork: int) -> int | None:
        """Remove the files and finished parts that contain blocks above the fork.

        Returns:
            The height of the first block to fetch, or None if no block is left.
        """
        kept = [part for part in known.parts if part.last <= fork]
        start = kept[-1].last + 1 if kept else known.first
        spool.keep_up_to(fork)
        if spool and not spool.first <= start <= spool.last + 1:
            spool.clear()
        if len(kept) < len(known.parts):  # the spool is cut first, so that there is never a gap after these parts
            manifest = Manifest.read(self.directory)
            assert manifest is not None
            manifest.finished = [part.name for part in kept]
            manifest.lasts = [block for part in kept for block in part.lasts]
            manifest.blocks = sum(len(part.part) for part in kept)
            manifest.tip = kept[-1].hash_at(kept[-1].last).hex() if kept else ""
            manifest.write(self.directory)
            self._finished = kept
        return spool.last + 1 if spool else start if kept else None

    async def _listing(self, first: int) -> Listing | None:
        """List the node's blocks starting at a height, or return None if the span contains none. Raises NodeError."""
        node, span = self.blocks.node, self.blocks.span
        try:
            return await node.listing(first, span.to_height, None, span.to_time)
        except NodePrunedError:
            raise NodePrunedError(
                f"{node.endpoint}: the node has pruned the blocks at height {first:,} and above, which the export in"
                f" {self.directory} needs next: use a node that has them, or {_ELSEWHERE}"
            ) from None
        except NodeError:
            raise
        except SourceError:
            return None

    async def _rounds(self, spool: BlockSpool, listing: Listing | None, engine: Engine | None) -> dict[str, list[Path]]:
        """Fetch the blocks of a listing, and write their tables, in rounds of a bounded size. Returns the tables."""
        if listing is None:
            return await self._write(spool, engine, is_last=True)
        async with aclosing(self._fetched(listing, spool.last + 1 if spool else listing.first)) as blocks:
            while True:
                await self._fill(spool, listing, blocks)
                files = await self._write(spool, engine, is_last=spool.last == listing.last)
                if spool.last == listing.last:
                    return files

    async def _fill(self, spool: BlockSpool, listing: Listing, blocks: AsyncGenerator[FetchedBlock]) -> None:
        """Write the blocks of a round into the spool."""
        height = begun = spool.last + 1 if spool else listing.first
        total = size = 0
        waiting: list[FetchedBlock] = []
        async for block in blocks:
            waiting.append(block)
            more = len(block.raw) + len(block.record or b"")
            size, total, height = size + more, total + more, height + 1
            self.report.bytes_done += len(block.raw)
            is_end = height > listing.last or total >= self._round_size
            is_alone = height > listing.last - REORGANIZED
            if is_end or is_alone or size >= FILE_SIZE or len(waiting) >= _FILE_BLOCKS:
                await to_its_end(spool.add, begun, waiting)
                begun, size, waiting = height, 0, []
            if is_end:
                return

    async def _fetched(self, listing: Listing, height: int) -> AsyncGenerator[FetchedBlock]:
        """Yield the blocks of a listing starting at a height. A bounded number of blocks is fetched ahead."""
        fetching: deque[asyncio.Task[FetchedBlock]] = deque()
        network = self.blocks.node.network
        try:
            while height <= listing.last or fetching:
                while height <= listing.last and len(fetching) < self.blocks.ahead:
                    call = fetch_block(self.blocks, listing, height, network, by_details=True)
                    fetching.append(asyncio.create_task(call))
                    height += 1
                yield await fetching.popleft()
        except NodePrunedError:
            await asyncio.gather(*fetching, return_exceptions=True)  # the connections are reused
            raise
        finally:
            for task in fetching:
                task.cancel()
            await asyncio.gather(*fetching, return_exceptions=True)

    async def _write(self, spool: BlockSpool, engine: Engine | None, *, is_last: bool) -> dict[str, list[Path]]:
        """Write the tables of the blocks in the spool, and remove the files that are no longer needed."""
        blocks, finished = self.blocks, self._finished
        settled = sum(not spool or part.first < spool.first for part in finished)  # the spool contains the others
        plan = self.plan = await to_its_end(
            continued_plan,
            finished[:settled],
            spool.folder,
            blocks.node.network,
            self._part_size,
            span=blocks.span,
            mode=blocks.mode,
        )
        export = ExportRun(self.directory, plan, self._inputs)
        written, self._written = self._written, []
        files = await export.write(engine, is_last=is_last, written=written, settled=settled if written else 0)
        self.report.parts_total += export.report.parts_total
        self.report.parts_done += export.report.parts_done
        self.report.summary = export.report.summary
        self._written = export.written
        del finished[settled:]
        for part, each in zip(plan.parts[settled:], export.written[settled:], strict=True):
            self._finish(PartRows(each.task.path.name, part.rows, part.previous))
        # The parts with the last blocks stay. The last part is not finished: its rows are written again.
        if starts := [part.first for part in finished[settled:] if part.first <= spool.last - REORGANIZED]:
            await to_its_end(spool.keep_from, starts[-1])
        return files

    async def _found(self, missing: tuple[Heights, ...]) -> ScannedHeights:
        """Return the heights that the plan covers, and the missing ones. `missing`: ranges that the node lacks."""
        found = self.plan.report.heights
        gaps = joined((*found.gaps, *missing))
        return replace(found, gaps=tuple(gaps), begins_late=await self._begins_late(found.found[0][0]))

    async def _begins_late(self, first: int) -> bool:
        """Return True if the range begins at a time, and the node lacks a block of the range below the first one."""
        span = self.blocks.span
        if span.from_time is None or first in (0, span.from_height):
            return False
        try:
            await self.blocks.node.listing(first - 1, first - 1, span.from_time)
        except NodePrunedError:
            return True
        except NodeError:
            raise
        except SourceError:
            return False
        return True


def _continues(part: FinishedPart, spool: BlockSpool) -> bool:
    """Return True if the blocks in a spool join the last finished part: they include its last block, or follow it."""
    if not spool.first <= part.last + 1 <= spool.last + 1:
        return False
    if spool.first > part.last:
        return spool.files[0].previous == part.hash_at(part.last)
    return spool.hash_at(part.last) == part.hash_at(part.last)
