"""Export of a node's chain: its blocks become files in the directory for as long as an export needs them.

Files are removed once their parts are finished. Only the last 100 blocks stay, because a reorganization may disconnect
them.

The plan of the next blocks keeps the finished parts, as for a node that has pruned its files. If the chain forks in a
finished part, the manifest forgets this part and all later ones, and their blocks are fetched again.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from spvfilter._public import public
from spvfilter.errors import NodeChainError, NodeError, NodePrunedError, ParameterError, SourceError
from spvfilter.protocol import HASH_SIZE
from spvfilter.rpc.fullnode import Listing
from spvfilter.scan.chainchange import ChainChange
from spvfilter.scan.engines import Engine
from spvfilter.scan.export import TableExport, export_inputs
from spvfilter.scan.exportcolumns import ExportColumns
from spvfilter.scan.fetching import FetchedBlock, NodeBlocks, fetch_block
from spvfilter.scan.gaps import Heights, ScannedHeights, joined
from spvfilter.scan.manifest import Manifest, run_inputs
from spvfilter.scan.order import ScanReport
from spvfilter.scan.partdirectory import TEMPORARY, PartDirectory
from spvfilter.scan.partrows import EarlierRun, PartRows
from spvfilter.scan.partrun import PartRun, PartsReport
from spvfilter.scan.plan import PART_SIZE, Plan, planned
from spvfilter.scan.rows import ROW
from spvfilter.scan.sources import BlockFiles
from spvfilter.scan.spool import BlockSpool, SpooledFiles
from spvfilter.scan.threadwork import to_its_end

_FOLDER = f"{TEMPORARY}blocks"  # The spool in the directory of the export.
_REORGANIZED = 100  # Blocks below the tip that stay in the spool, each in a file of its own (our choice).
_FILE_SIZE, _FILE_BLOCKS = 16_000_000, 4_096  # Bytes and blocks of a file below them (our choice).
_ROUND_SIZE = 2_000_000_000  # Bytes of blocks and undo records that are fetched between two exports (our choice).
_ELSEWHERE = "export into another directory"
_MOST_CHANGES = 5  # Attempts to find the place in a chain that changes in the meantime (our choice).


class _Finished(NamedTuple):
    """A finished part of the export."""

    name: str
    """Name of the part's file."""
    first: int
    """Height of the first block."""
    hashes: bytes
    """Hashes of its blocks, 32 bytes each in wire order."""
    lasts: list[str]
    """Hash of the last block in each file of the part, in hex of its wire order."""

    @property
    def last(self) -> int:
        """Height of the last block."""
        return self.first + len(self.hashes) // HASH_SIZE - 1

    @classmethod
    def of(cls, part: PartRows, following: int | None) -> _Finished:
        """Return a finished part. `following` is its first height, if there is a part before it.

        Raises SourceError if its heights are unknown or have a gap.
        """
        rows = list(ROW.iter_unpack(part.rows))
        first = rows[0][5] if following is None else following
        if first < 0 or any(row[5] != height for height, row in enumerate(rows, first)):
            raise SourceError(
                "the blocks that were exported before are not one run of known heights, so that blocks of a node cannot"
                f" follow them: {_ELSEWHERE}"
            )
        last: dict[int, tuple[int, bytes]] = {}
        for file, offset, _, _, _, _, block, *_ in rows:
            last[file] = max(last.get(file, (0, block)), (offset, block))
        return cls(part.name, first, b"".join(row[6] for row in rows), [block.hex() for _, block in last.values()])


class _Known:
    """The blocks that need not be fetched: those of the finished parts, and those of the spool above them."""

    def __init__(self, parts: list[_Finished]) -> None:
        self.parts = parts
        self.first: int = parts[0].first if parts else 0
        """Height of the first block; 0 if there is none."""
        self._hashes = bytearray(b"".join(part.hashes for part in parts))

    @property
    def last(self) -> int:
        """Height of the last block; one below `first` if there is none."""
        return self.first + len(self._hashes) // HASH_SIZE - 1

    def add(self, spool: BlockSpool) -> None:
        """Add the blocks of a spool that are above the last block."""
        if not self.parts and spool:
            self.first = spool.first
        for file in spool.files:
            self._hashes += file.hashes[max(self.last + 1 - file.first, 0) * HASH_SIZE :]

    def hash_at(self, height: int) -> bytes:
        """Return the hash of the block at a height, which must be known."""
        at = (height - self.first) * HASH_SIZE
        return bytes(self._hashes[at : at + HASH_SIZE])


@public
class NodeExport:
    """An export of a full node's chain, in place of an export of its files. `run` may be called again for new blocks.

    A TableExport of the node's files writes the same tables. An export that was stopped continues where it was, and it
    follows reorganizations of any depth. Blocks are kept in a hidden folder of the directory until their tables are
    finished: about 2 GB while the export catches up, and later less than 1 GB.

    Bitcoin Core 30 serves spent outputs by REST, but without their heights, so the column spent_block_number is null.
    JSON-RPC has the heights, and takes longer. If the node has no spent outputs, values of inputs and fees are null.

    Args:
        directory: The directory for the tables; it is created if it does not exist.
        blocks: The blocks of the node to export, given as a span. With `allow_gaps`, the export begins with the
            first block that the node has.
        columns: The tables and columns; by default the default columns of all tables.
        check: True to verify each block again, with its proof of work.
        coins: True to also write the table `coins`, as a TableExport does.
        balances: True to also write the table `balances`.
        credits_p2pk: True to count the coins of a public key as those of its P2PKH address in `balances`.
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
        """The plan of the last run; it has no parts before the first run."""
        self.report: PartsReport = PartsReport()
        """The progress of the last run. Its `bytes_done` counts the blocks that were fetched."""
        self.heights: ScannedHeights = ScannedHeights()
        """The heights that the tables have and lack, after a run."""
        self._part_size, self._round_size = part_size, round_size
        inputs = export_inputs(self.columns, coins=coins, balances=balances, credits_p2pk=credits_p2pk)
        self._begun = PartRun(self.directory, self.plan, check, inputs)
        self._export = partial(
            TableExport,
            self.directory,
            columns=self.columns,
            check=check,
            coins=coins,
            balances=balances,
            credits_p2pk=credits_p2pk,
        )

    async def run(self, engine: Engine | None = None) -> dict[str, list[Path]]:
        """Fetch the blocks up to the node's tip, and write their tables, by default in one thread.

        Returns:
            The paths of the files of each table in chain order, by the name of the table.

        Raises:
            ParameterError: The directory holds another export or other files, or pyarrow is not installed.
            DirectoryInUseError: Another export uses the directory.
            NodeError: The node fails for longer than its Patience allows, or lacks a block.
            SourceError: The span has no block, or coins are requested for a chain without its first blocks.
            FormatError: A block of the node is malformed.
            OSError: A file cannot be read or written.
        """
        folder, node = self.directory / _FOLDER, self.blocks.node
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
            return files

    async def _place(self, spool: BlockSpool) -> tuple[int, Listing | None]:
        """Find the place at which the export continues, and remove what is no longer in the node's chain.

        Returns:
            The number of exported blocks that left the chain, and the listing of the blocks to fetch; None if there are
            none.
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
            if listing is None and not spool:  # a plan needs a block in a file: fetch the last one again
                listing = await self._listing(following - 1, following - 1)
                if listing is not None and listing.hashes == known.hash_at(following - 1):
                    return gone, listing
            elif listing is None or listing.previous == known.hash_at(following - 1):
                return gone, listing
        raise NodeChainError(f"{self.blocks.node.endpoint}: its chain changed {_MOST_CHANGES} times while it was read")

    def _known(self, spool: BlockSpool) -> _Known:
        """Return the known blocks. Clear the spool unless its blocks follow the finished parts. Raises SourceError."""
        plan, parts = self.plan, list[_Finished]()
        earlier = EarlierRun.of(self.directory, run_inputs(plan.network, str(plan.undo), plan.span))
        for part in () if earlier is None else earlier.parts():
            parts.append(_Finished.of(part, parts[-1].last + 1 if parts else None))
        if earlier is not None and len(parts) < len(earlier.names):
            raise SourceError(f"{self.directory}: lacks the blocks of a part in its folder parts: {_ELSEWHERE}")
        known = _Known(parts)
        if spool and parts and not _continues(known, spool):
            spool.clear()
        known.add(spool)
        return known

    async def _fork(self, known: _Known) -> int:
        """Return the height of the last known block in the node's chain; one below the first height if there is none.

        If the node's chain is only shorter, the last known block stays: the node may be reading its blocks again.
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

    def _forget(self, spool: BlockSpool, known: _Known, fork: int) -> int | None:
        """Remove files and finished parts with blocks above the fork.

        Returns:
            The height of the first block to fetch; None if no block is left.
        """
        kept = [part for part in known.parts if part.last <= fork]
        start = kept[-1].last + 1 if kept else known.first
        spool.keep_up_to(fork)
        if spool and not spool.first <= start <= spool.last + 1:
            spool.clear()
        if len(kept) < len(known.parts):  # the spool was cut first, so that it never has a gap after these parts
            manifest = Manifest.read(self.directory)
            assert manifest is not None
            manifest.finished = [part.name for part in kept]
            manifest.lasts = [block for part in kept for block in part.lasts]
            manifest.blocks = sum(len(part.hashes) for part in kept) // HASH_SIZE
            manifest.tip = kept[-1].hashes[-HASH_SIZE:].hex() if kept else ""
            manifest.write(self.directory)
        return spool.last + 1 if spool else start if kept else None

    async def _listing(self, first: int, last: int | None = None) -> Listing | None:
        """List the node's blocks from a height on; None if there are none in the span. Raises NodeError."""
        node, span = self.blocks.node, self.blocks.span
        try:
            return await node.listing(first, span.to_height if last is None else last, None, span.to_time)
        except NodePrunedError:
            raise NodePrunedError(
                f"{node.endpoint}: the node has pruned blocks from height {first:,} on, which the export in"
                f" {self.directory} needs next: ask a node that has them, or {_ELSEWHERE}"
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
            is_alone = height > listing.last - _REORGANIZED
            if is_end or is_alone or size >= _FILE_SIZE or len(waiting) >= _FILE_BLOCKS:
                await to_its_end(spool.add, begun, waiting)
                begun, size, waiting = height, 0, []
            if is_end:
                return

    async def _fetched(self, listing: Listing, height: int) -> AsyncGenerator[FetchedBlock]:
        """Yield the blocks of a listing from a height on, fetched ahead in a bounded number."""
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
            await asyncio.gather(*fetching, return_exceptions=True)  # the connections are used again
            raise
        finally:
            for task in fetching:
                task.cancel()
            await asyncio.gather(*fetching, return_exceptions=True)

    async def _write(self, spool: BlockSpool, engine: Engine | None, *, is_last: bool) -> dict[str, list[Path]]:
        """Write the tables of the blocks in the spool, and remove the files that are not needed any longer."""
        self.plan = await to_its_end(self._plan, spool.folder)
        export = self._export(plan=self.plan)
        files = await export.write(engine, is_last=is_last)
        self.report.parts_total += export.report.parts_total
        self.report.parts_done += export.report.parts_done
        self.report.summary = export.report.summary
        # The parts with the last blocks stay. The last part is not finished: its rows are written again.
        starts = [next(part.heights()) or 0 for part in self.plan.parts]
        settled = [start for start in starts if start <= spool.last - _REORGANIZED]
        await to_its_end(spool.keep_from, settled[-1] if settled else starts[0])
        return files

    def _plan(self, folder: Path) -> Plan:
        """Return the plan of the finished parts and of the blocks in the spool."""
        blocks = self.blocks
        files = SpooledFiles(BlockFiles(folder, undo=blocks.mode, span=blocks.span))
        return planned(files, blocks.node.network, self._part_size, self.directory)[0]

    async def _found(self, missing: tuple[Heights, ...]) -> ScannedHeights:
        """Return the heights that the plan has, and the missing ones. The node lacks the heights `missing`."""
        found = self.plan.report.heights
        gaps = joined((*found.gaps, *missing))
        return replace(found, gaps=tuple(gaps), begins_late=await self._begins_late(found.found[0][0]))

    async def _begins_late(self, first: int) -> bool:
        """Return True if the range begins at a time, and the node lacks a block of this time before the first one."""
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


def _continues(known: _Known, spool: BlockSpool) -> bool:
    """Return True if the blocks in a spool reach the last known block, and agree with it."""
    if not spool.first <= known.last + 1 <= spool.last + 1:
        return False
    if spool.first > known.last:
        return spool.files[0].previous == known.hash_at(known.last)
    return spool.hash_at(known.last) == known.hash_at(known.last)
