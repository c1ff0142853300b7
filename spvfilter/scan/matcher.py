"""Matcher: find the exact matches of a watch list in blocks and transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TypeVar

from spvfilter._public import public
from spvfilter.errors import IncompleteScanError, ParameterError
from spvfilter.kernel import Hit, spent_outpoints, unpack_hits
from spvfilter.network import Network
from spvfilter.primitives import Serializable, TxOut, to_bytes
from spvfilter.scan import batches, growth as growths, scan as scans, silentstream, threadwork
from spvfilter.scan.fetching import NodeBlocks, NodeFeed
from spvfilter.scan.order import Feed, OrderedFeed, PlannedFeed, RawBlocks, ScanReport, StreamFeed
from spvfilter.scan.partfile import BlockHits
from spvfilter.scan.sources import BlockList, BlockSource
from spvfilter.scan.transactions import AT_ONCE, REMEMBERED, Found, RawTransactions, TxMatches, TxStream, unseen
from spvfilter.transaction import NULL_OUTPOINT, refuse_psbt
from spvfilter.watch import compiled
from spvfilter.watch.match import Match
from spvfilter.watch.watchlist import WatchList

T = TypeVar("T")
_HITS_AT_ONCE = 100
"""Most hits that the event loop's own thread turns into matches at a time (our choice: about 0.5 ms)."""


@public
class Matcher:
    """Finds the outputs and inputs of blocks and transactions that match a watch list.

    The watch list learns the outpoints of the outputs found, so that their spends are found too. A matcher runs one
    scan at a time.

    Args:
        watch: The watch list whose matches are found.
        jobs: Number of threads that scan blocks in parallel, at least 1. The pure kernel always uses one thread,
            because only the compiled kernel releases the GIL. `match_txs` does not use these threads: they would only
            add latency.
        check: True to verify proof of work, merkle root and witness commitment of each block first. The verification
            takes longer than the scan itself.

    Raises:
        ParameterError: `jobs` is below 1, or the watch list is empty.
    """

    def __init__(self, watch: WatchList, *, jobs: int = 1, check: bool = False) -> None:
        if not isinstance(watch, WatchList):
            raise TypeError(
                f"watch: expected a WatchList, such as WatchList.from_addresses(addresses), not {type(watch).__name__}"
            )
        if not isinstance(jobs, int):
            raise TypeError(f"jobs: expected a whole number, not {type(jobs).__name__}")
        if jobs < 1:
            raise ParameterError(f"jobs must be at least 1, not {jobs}")
        if watch.is_empty:
            raise ParameterError("nothing to watch for: the watch list is empty")
        self.watch = watch
        """The watch list whose matches the matcher finds."""
        self.jobs = jobs
        """Number of threads that scan blocks in parallel."""
        self.check = check
        """True if proof of work, merkle root and witness commitment of each block are verified first."""
        self.report: ScanReport = ScanReport()
        """The report of the current or most recent scan."""
        self._image = watch.table.image()  # of a compiled list; the table forgets it when it learns outpoints
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop that the lock belongs to
        self._learning = asyncio.Lock()  # held while the watch list changes

    async def match_tx(self, raw: bytes | Serializable, *, spent: Sequence[TxOut] | None = None) -> list[Match]:
        """Return the matches of one transaction. The watch list learns the outpoints of matching outputs.

        A transaction of up to 64 kB is matched immediately. A thread matches a larger transaction, derives new scripts
        of a used keychain, and searches for silent payments. `spent` contains the outputs that the inputs spend, as in
        `WatchList.match_tx`.

        Raises FormatError if the transaction is malformed or the number of spent outputs is wrong, and KeychainError if
        scripts cannot be derived. Raises WatchListInUseError if a client is using the list and a keychain window must
        move.
        """
        tx = to_bytes(raw)
        refuse_psbt(tx)
        if spent is not None or self.watch.windows.silent:
            async with self._lock():
                return await threadwork.to_its_end(self.watch.match_tx, tx, spent=spent)
        scan = self.watch.table.scan_tx
        hits = scan(tx) if len(tx) <= AT_ONCE else await asyncio.to_thread(scan, tx)
        return await self._accept(tx, hits) if hits else []

    async def match_block(
        self,
        raw: bytes | Serializable,
        *,
        height: int | None = None,
        spent: bytes | Sequence[Sequence[TxOut]] | None = None,
    ) -> list[Match]:
        """Return the matches of one block. The watch list learns the outpoints of matching outputs.

        Threads are used as in `match_tx`. `spent` is the undo record of the block, or the spent outputs of each
        transaction after the coinbase, as in `WatchList.match_block`. Raises FormatError if the block is malformed or
        the spent outputs do not match it, and KeychainError and WatchListInUseError in the same cases as `match_tx`.
        """
        block = to_bytes(raw)
        async with self._lock():
            if len(block) <= AT_ONCE and not self.watch.keychains:
                return self.watch.match_block(block, height=height, spent=spent)
            return await threadwork.to_its_end(self.watch.match_block, block, height=height, spent=spent)

    async def match_txs(
        self,
        source: RawTransactions,
        *,
        strict: bool = False,
        remember: int = REMEMBERED,
        spent: Callable[[bytes], Awaitable[Sequence[TxOut] | None]] | None = None,
    ) -> AsyncGenerator[TxMatches]:
        """Yield the transactions of a source that match the watch list, in the order in which they arrive.

        The watch list learns matching outputs, so that a later spend is found. The latest transactions are remembered:
        a spend that arrives before its parent is yielded when the parent arrives. Conflicts are not resolved: two
        conflicting transactions are both yielded. A `LightClient` resolves conflicts. A transaction that arrives twice
        is matched twice.

        The next transaction is taken from the source when the caller asks for the next result. With the compiled
        kernel, the event loop runs at least once per millisecond of work.

        Args:
            source: An iterable or asynchronous iterable of raw transactions, or of objects that serialize to them. An
                iterable that waits, such as a pipe, stops the event loop.
            strict: True to raise an error for a malformed transaction. By default, such a transaction yields a result
                with an `error`.
            remember: Bytes of memory for transactions that may spend an output that has not arrived yet.
            spent: Asynchronous function that takes a transaction, and returns the outputs that it spends or None, such
                as `FullNode.outputs_spent_by`. It is called for transactions that may be silent payments.
                Without it, `ScanReport.unjudged` counts those in which a payment may have been missed.

        Raises:
            FormatError: A transaction is malformed, and `strict` is True.
            KeychainError: The scripts of a keychain cannot be derived.
            ParameterError: `remember` is negative.
            WatchListInUseError: A running client is using the watch list, and a keychain window must move.
        """
        if remember < 0:
            raise ParameterError(f"remember must be 0 bytes or more, not {remember}")
        silent: silentstream.SilentStream | None = None
        if self.watch.windows.silent:
            await asyncio.to_thread(self.watch.silent_search)  # makes the tables of labels, or names the missing extra
            self.report = ScanReport()
            silent = silentstream.SilentStream(self.watch, spent, self.report)
        stream = TxStream(self.watch, self._accept, remember, silent)
        async with aclosing(stream.matches(source)) as found:
            async for each in found:
                if strict and each.error is not None:
                    raise each.error
                yield each

    def _lock(self) -> asyncio.Lock:
        """Return the lock for the running event loop.

        A program may use a matcher in several loops, one after another.
        """
        if self._loop is not (loop := asyncio.get_running_loop()):
            self._loop, self._learning = loop, asyncio.Lock()
        return self._learning

    async def _accept(self, tx: bytes, hits: list[Hit], found: Found = frozenset()) -> list[Match]:
        """Learn the hits of a transaction and return their matches.

        A thread derives scripts, and processes large numbers of hits.

        The transaction is scanned again if the watch list has changed. The hits in `found` are then ignored.
        """
        watch, lock = self.watch, self._lock()
        must_wait = lock.locked()
        async with lock:
            if must_wait:  # the other call may have learned outputs
                scan = watch.table.scan_tx
                hits = unseen(scan(tx) if len(tx) <= AT_ONCE else await asyncio.to_thread(scan, tx), found)
            if len(hits) > _HITS_AT_ONCE or len(tx) > AT_ONCE or watch.windows.note(hits):
                return await threadwork.to_its_end(self._learn, tx, hits, found)
            return watch.accept(hits, is_coinbase=spent_outpoints(tx) == [NULL_OUTPOINT])

    def _learn(self, tx: bytes, hits: list[Hit], found: Found) -> list[Match]:
        watch = self.watch
        while watch.advance(hits):
            hits = unseen(watch.table.scan_tx(tx), found)
        return watch.accept(hits, is_coinbase=spent_outpoints(tx) == [NULL_OUTPOINT])

    async def scan(
        self, blocks: BlockSource | NodeBlocks | RawBlocks, *, in_order: bool = False
    ) -> AsyncGenerator[Match]:
        """Yield the matches in blocks.

        Memory: jobs × 8 MB, about 900 bytes for each block's header, and about 40 bytes for each match. With keychains
        or without undo records, a match takes 150 bytes. A PartScan does not keep matches in memory.

        - Files and sequences are put in chain order first. Only the branch with the most work counts.
        - Blocks of an iterable are matched as they arrive and spooled to disk. At its end they are searched again for
          spends that arrived before their outputs. If a second branch has more work, it is matched at the end:
          `ScanReport.stale` then lists the blocks of the first branch, whose matches have already been yielded.
        - Stale blocks yield no matches, but their outputs are learned.
        - If a use moves the window of a keychain beyond twice its lookahead, all blocks are searched again for the new
          scripts. Threads call `script_at` of keychains one at a time.
        - The height of a match is given (RawBlock), counted from the genesis block, or read from the block (BIP-34). It
          is None if it is unknown when the block is scanned.

        Args:
            blocks: Files (BlockFiles), a node (NodeBlocks), a sequence, or an iterable of raw blocks, asynchronous or
                not. Silent payments can be found only with undo files or a node that returns the spent outputs.
                Otherwise, `ScanReport.unjudged` counts the transactions in which a payment may have been missed.
            in_order: True for an endless stream in chain order. Nothing is spooled or searched again.
                `ScanReport.late_scripts` counts the scripts that earlier blocks were not searched for.

        Raises:
            ParameterError: `in_order` is True for files or a node, or the node is on a different network.
            KeychainError: The scripts of a keychain cannot be derived.
            FormatError: A block of a sequence or iterable is malformed.
            OrderError: `in_order` is True, and a block does not follow the previous one.
            IncompleteScanError: Parts of files could not be read. It is raised at the end of the scan.
            SourceError: A node fails (NodeError), required undo records are missing, or the file of a compiled watch
                list was changed in place.
        """
        async with aclosing(self._run(blocks, in_order, self._matches)) as found:
            async for matches in found:
                for match in matches:
                    self.report.matches += 1
                    yield match
        self._finish()

    async def scan_batches(
        self, blocks: BlockSource | NodeBlocks | RawBlocks, *, in_order: bool = False
    ) -> AsyncGenerator[batches.MatchBatch]:
        """Scan as `scan` does, but yield all matches of a block as one packed MatchBatch.

        If a second search finds more matches in a block, they are yielded in another batch.

        Args:
            blocks: Files (BlockFiles), a node (NodeBlocks), a sequence, or an iterable of raw blocks, asynchronous or
                not.
            in_order: True for an endless stream in chain order, as in `scan`.

        Raises:
            ParameterError: `in_order` is True for files or a node, or the node is on a different network.
            KeychainError: The scripts of a keychain cannot be derived.
            FormatError: A block of a sequence or iterable is malformed.
            OrderError: `in_order` is True, and a block does not follow the previous one.
            IncompleteScanError: Parts of files could not be read. It is raised at the end of the scan.
            SourceError: A node fails (NodeError), required undo records are missing, or the file of a compiled watch
                list was changed in place.
        """
        labels = batches.Labels()
        async with aclosing(
            self._run(blocks, in_order, lambda block: batches.MatchBatch(block, self.watch, labels))
        ) as found:
            async for batch in found:
                self.report.matches += len(batch)
                yield batch
        self._finish()

    async def _run(
        self, blocks: BlockSource | NodeBlocks | RawBlocks, in_order: bool, tell: Callable[[BlockHits], T]
    ) -> AsyncGenerator[T]:
        """Scan blocks, and yield the item that `tell` makes from each block's hits."""
        self.report = ScanReport()
        growth = (
            await asyncio.to_thread(growths.WatchGrowth, self.watch)
            if self.watch.keychains
            else growths.WatchGrowth(self.watch)
        )
        if isinstance(blocks, NodeBlocks) and not in_order:
            needs_spent = bool(self.watch.windows.silent)
            feed: Feed = await NodeFeed.of(blocks, self.watch.network, self.report, needs_spent=needs_spent)
        else:
            feed = _feed(blocks, in_order, self.watch.network, self.report)
        silent = await asyncio.to_thread(self.watch.silent_search) if self.watch.keychains else None
        scan = scans.Scan(
            self.watch,
            growth,
            feed,
            self.report,
            tell,
            jobs=self.jobs,
            check=self.check,
            image=self._image,
            silent=silent,
        )
        async with aclosing(scan), aclosing(scan.found()) as found:
            async for each in found:
                yield each

    def _matches(self, block: BlockHits) -> list[Match]:
        return self.watch.matches(
            unpack_hits(block.packed), block_hash=block.hash, height=block.height, time=block.time
        )

    def _finish(self) -> None:
        """Complete the report of the scan.

        Raises IncompleteScanError if a part of a source could not be read. Raises SourceError if the file of a compiled
        watch list was changed in place.
        """
        if self._image is not None:
            compiled.check_image(self._image)
        self.report.done = True
        if self.report.problems:
            raise IncompleteScanError(tuple(str(problem) for problem in self.report.problems))


def _feed(blocks: BlockSource | NodeBlocks | RawBlocks, in_order: bool, network: Network, report: ScanReport) -> Feed:
    """Return the feed that puts blocks in order.

    Raises ParameterError if `in_order` is True for files or a node, and TypeError if `blocks` has the wrong type.
    """
    if isinstance(blocks, (str, bytes, bytearray, memoryview)):
        raise TypeError("expected an iterable of raw blocks, not one block")
    if isinstance(blocks, (BlockSource, NodeBlocks)) and in_order:
        raise ParameterError("in_order is for streams: files and a node's blocks are put in chain order anyway")
    if isinstance(blocks, BlockSource):
        return PlannedFeed(blocks, network, report, strict=False)
    if isinstance(blocks, Sequence) and not in_order:
        return PlannedFeed(BlockList(blocks), network, report, strict=True)
    if isinstance(blocks, (AsyncIterable, Iterable)):
        return OrderedFeed(blocks, network, report) if in_order else StreamFeed(blocks, network, report)
    raise TypeError(f"expected an iterable of raw blocks, not {type(blocks).__name__}")
