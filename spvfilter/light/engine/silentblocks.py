"""Find silent payments in whole blocks: get the outputs that each block spends, and search the block in a thread.

The outputs come from a source that the user named, such as the user's own node. The search waits for them: a block
counts as searched only once its transactions have been checked with all outputs that they spend. If the source fails,
the client keeps asking it, and its status names the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple  # answers of the user's source

from spvfilter.errors import FormatError, SourceError, counted
from spvfilter.kernel import block_txids, spent_coins, walk_block
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.feerates import subsidy
from spvfilter.light.engine.tasks import Change, Task, Wait
from spvfilter.light.events import PeerWarning
from spvfilter.network import Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.silent.scanner import SilentScanner
from spvfilter.watch.silentsearch import Payment, SilentSearch, scripts_of_record

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
"""First and longest pause before the source is asked again after a failure, in seconds; it doubles (our choice)."""
_Labels = tuple[tuple[str, tuple[int, ...]], ...]
"""The sp() keychains, and a value that changes with their labels."""


class Scanners(NamedTuple):
    """The sp() keychains for a search in a thread."""

    names: tuple[str, ...]
    """Their names."""
    makers: tuple[Callable[[], SilentScanner], ...]
    """Functions that return their scanners."""

    def made(self) -> SilentSearch:
        """Return a search for payments to these keychains."""
        return SilentSearch(self.names, tuple(make() for make in self.makers))


@dataclass(slots=True, eq=False)
class SilentBlock:
    """A block that is being searched."""

    height: int
    hash: bytes
    raw: bytes | None = None
    """The whole block; None if it has not arrived or is not needed."""
    filter: bytes | None = None
    """Its compact filter, which is searched in place of the block."""
    judged: _Labels | None = None
    """The labels for which its filter was searched; None if it has not been searched yet."""
    is_paying: bool = False
    """True if its filter matches a script that could be a payment, so that the whole block is needed."""
    task: Task[None] | None = None
    """The task that gets the outputs that the block spends, and searches the block."""
    searched: _Labels | None = None
    """The labels for which the block was searched; None if it has not been searched yet."""
    payments: Sequence[Payment] = ()
    """The payments that were found."""
    problem: str | None = None
    """Why the source has not returned the outputs; None if it has returned them or has not been asked yet."""


class SilentBlocks:
    """The blocks that are being searched for silent payments, keyed by hash."""

    def __init__(self, context: Context, watched: Callable[[Sequence[bytes]], None]) -> None:
        """`watched` is called with the scripts of payments when they have been added to the watch list."""
        self._context = context
        self._watched = watched
        self._blocks: dict[bytes, SilentBlock] = {}
        self._more = Change("more labels of silent payments")

    @property
    def is_needed(self) -> bool:
        """True if the watch list contains an sp() keychain."""
        return bool(self._context.books.watch.windows.silent)

    @property
    def ahead(self) -> int:
        """Number of blocks above the cursor whose filters are searched."""
        return 0

    @property
    def reads_all(self) -> bool:
        """True if all blocks are read, regardless of their filters."""
        return self.is_needed

    @property
    def source(self) -> str | None:
        """The name of the source."""
        return self._context.options.spent_source

    @property
    def problem(self) -> str | None:
        """Why the source does not supply what is needed for a block; None if it does."""
        return next((block.problem for block in self._blocks.values() if block.problem is not None), None)

    def want(self, height: int, block_hash: bytes, raw: bytes) -> None:
        """Start searching a block of the best chain, which has arrived whole."""
        if (block := self._begun(height, block_hash)).raw is None:
            block.raw = raw
            self._more.announce()

    def judge(self, height: int, block_hash: bytes, filter: bytes) -> None:
        """Search the filter of a block of the best chain, if that is useful."""

    def judged_to(self, first: int, end: int) -> int:
        """Return the first height whose filter has not been searched for all current labels, or `end`."""
        return end

    def paying(self, first: int, hashes: Sequence[bytes]) -> list[int]:
        """Return, in ascending order, the heights of these blocks whose filters match a payment.

        `hashes` are the hashes of successive blocks, and the first of them has height `first`.
        """
        return []

    def forget_to(self, height: int) -> None:
        """Forget the blocks up to a height, which have been recorded."""

    def _begun(self, height: int, block_hash: bytes) -> SilentBlock:
        """Return the search of a block. If there is none yet, start one."""
        if (block := self._blocks.get(block_hash)) is None:
            self._blocks[block_hash] = block = SilentBlock(height, block_hash)
            block.task = self._context.tasks.begin(partial(self._search, block), "find silent payments in a block")
        return block

    def forget(self, block_hash: bytes) -> None:
        """Forget a block that has been recorded or is no longer wanted."""
        block = self._blocks.pop(block_hash, None)
        if block is not None and block.task is not None:
            block.task.cancel()

    def forget_above(self, height: int) -> None:
        """Forget the blocks above a height."""
        for block in [block for block in self._blocks.values() if block.height > height]:
            self.forget(block.hash)

    def settle(self, height: int, block_hash: bytes, raw: bytes) -> bool:
        """Watch the payments found in a block. Return False if it has not been searched for all current labels yet."""
        self.want(height, block_hash, raw)
        block = self._blocks[block_hash]
        if block.searched != self._labels():
            self._more.announce()
            return False
        if scripts := self._context.books.add_payments(block.payments):
            self._context.books.entries_added()
            self._watched(scripts)
        return True

    def _labels(self) -> _Labels:
        return tuple((each.name, each.size_of_labels) for each in self._context.books.watch.windows.silent)

    async def _search(self, block: SilentBlock) -> None:
        """Ask the source about a block, and search the block for all labels, now and whenever labels are added."""
        context, pause = self._context, _FIRST_PAUSE_S
        while True:
            try:
                answer = await self._asked(block)
            except Exception as error:  # the source may raise any error
                self._failed(block, error)
            else:
                try:
                    await self._search_with(block, answer)
                except (FormatError, SourceError) as error:
                    self._failed(block, error)
            await context.tasks.at(context.tasks.now + pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _asked(self, block: SilentBlock) -> Wait[Any]:
        """Ask the source about a block."""
        assert block.raw is not None
        return self._context.out.spent_by(block.hash, block.raw[4 : 4 + HASH_SIZE])

    def _check(self, block: SilentBlock, answer: object) -> None:
        """Raise SourceError if the source's answer is of no use."""
        if answer is None:
            raise SourceError(
                "the source cannot list the outputs that a block spends: update it, or choose another one"
            )
        if not isinstance(answer, bytes):
            raise SourceError(f"it returned {type(answer).__name__} instead of bytes")

    async def _search_with(self, block: SilentBlock, answer: Any) -> None:
        """Search a block with the source's answer, and again for added labels. Raises FormatError and SourceError."""
        context = self._context
        self._check(block, answer)
        while True:
            labels, silent, raw = self._labels(), context.books.watch.windows.silent, block.raw
            makers = tuple(each.scanner_for_thread() for each in silent)
            scanners = Scanners(tuple(each.name for each in silent), makers)
            if raw is not None:
                function = partial(self.search, raw, answer, scanners, context.chain.network, block.height)
                block.payments = await context.out.worked(function, "silent payments in a block")
                block.searched = labels
            else:
                assert block.filter is not None
                matches = partial(self.matches, block.hash, block.filter, answer, scanners)
                is_paying = await context.out.worked(matches, "silent payments in a filter")
                block.judged, block.is_paying = labels, block.is_paying or is_paying
            block.problem = None
            context.changed()
            await self._more.until(lambda block=block, done=(labels, raw): (self._labels(), block.raw) != done)  # type: ignore[misc]

    @staticmethod
    def search(raw: bytes, answer: Any, scanners: Scanners, network: Network, height: int) -> Sequence[Payment]:
        """Search a block, in a thread. Raises FormatError if `answer` cannot be the outputs that the block spends."""
        scripts = scripts_of_record(raw, answer)
        check_spent(raw, answer, subsidy(network, height))
        search = scanners.made()
        return search.payments(search.block(raw, scripts))

    @staticmethod
    def matches(block_hash: bytes, filter: bytes, answer: Any, scanners: Scanners) -> bool:
        """Return True if the filter of a block may match a payment. This runs in a thread."""
        raise NotImplementedError

    def _about(self, block: SilentBlock) -> str:
        """Name what the source supplies for a block."""
        return f"outputs that block {block.height} spends"

    def _failed(self, block: SilentBlock, error: Exception) -> None:
        """Record that the source gave no usable answer, and warn once of each problem."""
        name = str(self.source)
        said = str(error) or type(error).__name__
        said = f"{self._about(block)}: {said.removeprefix(f'{name}: ')}"
        if self.problem is None:
            self._context.out.emit(PeerWarning(name, SourceError(said), False))
        block.problem = f"{name}: {said}"
        self._context.changed()


def check_spent(raw: bytes, record: bytes, subsidy: int) -> None:
    """Check the outputs that a block spends, as far as the block reveals them.

    No transaction may pay more than it spends, and the coinbase may take only the subsidy and the fees. Outputs from
    the same block must match the block. Raises FormatError.
    """
    coins, spans = spent_coins(record[:-HASH_SIZE]), list(walk_block(raw))
    if len(coins) != len(spans) - 1:
        raise _fault(f"expected outputs for {counted(len(spans) - 1, 'transaction')}, not {len(coins)}")
    outputs = [
        [(int.from_bytes(raw[at : at + 8], "little"), raw[at_script:end]) for at, at_script, end in span.outputs]
        for span in spans
    ]
    txids, fees = block_txids(raw), 0
    made = {txids[at * HASH_SIZE : (at + 1) * HASH_SIZE]: each for at, each in enumerate(outputs)}
    for number, (span, spent, paid) in enumerate(zip(spans[1:], coins, outputs[1:], strict=True), 1):
        if len(spent) != len(span.inputs):
            raise _fault(
                f"expected {counted(len(span.inputs), 'spent output')} for transaction {number}, not {len(spent)}"
            )
        for (at, _, _), coin in zip(span.inputs, spent, strict=True):
            own, index = made.get(raw[at : at + HASH_SIZE]), int.from_bytes(raw[at + HASH_SIZE : at + 36], "little")
            if own is not None and (index >= len(own) or own[index] != (coin.value, coin.script)):
                raise _fault(f"an output that transaction {number} spends differs from the one in the block")
        fee = sum(coin.value for coin in spent) - sum(value for value, _ in paid)
        if fee < 0:
            raise _fault(f"transaction {number} pays more than it spends")
        fees += fee
    if sum(value for value, _ in outputs[0]) > subsidy + fees:
        raise _fault("the coinbase pays more than the subsidy and the fees")


def _fault(what: str) -> FormatError:
    return FormatError(what, offset=0, field="spent outputs")
