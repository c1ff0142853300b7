"""Compact filters of a plan's parts, built from undo files, on this machine or on the workers of a Dask cluster."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple  # Any: distributed has no types

from spvfilter._public import public
from spvfilter.errors import FormatError, SourceError
from spvfilter.filters.bip158 import BasicFilter
from spvfilter.primitives import hash_to_hex
from spvfilter.scan.daskcalls import ATTEMPTS, Calls, LostError
from spvfilter.scan.edition import EDITION, mismatch
from spvfilter.scan.parts import PartBlocks
from spvfilter.scan.plan import Part, PlannedBlock
from spvfilter.scan.sources import BlockRef, Problem
from spvfilter.scan.undo import UndoPlace, block_coins
from spvfilter.scan.undomode import UndoMode

_AT_ONCE = 64  # parts sent to the scheduler at a time, each about 1 MB of filters (our choice)
_UNREADABLE = (FormatError, SourceError, OSError)


@public
class BuiltFilter(NamedTuple):
    """The compact filter of a block, with the facts that link the block to its chain."""

    block: bytes
    """Hash of the block, 32 bytes in wire order."""
    previous: bytes
    """Hash of the previous block, 32 bytes in wire order."""
    height: int | None
    """Height of the block, or None if it is unknown."""
    items: int
    """Number of distinct elements that the filter encodes."""
    data: bytes
    """The compact filter as BIP-158 serializes it."""

    @property
    def block_hex(self) -> str:
        """The `block` field in hex, as block explorers show it."""
        return hash_to_hex(self.block)


@public
class FilterPart(NamedTuple):
    """The compact filters of the blocks of a part."""

    filters: list[BuiltFilter]
    """The compact filters in the order of the part's blocks. A block without a usable undo record has no filter."""
    problems: list[str]
    """Sentences that say why blocks have no filter."""


@public
def part_filters(part: Part) -> FilterPart:
    """Return the compact filters of a part, built from its blocks and their undo records.

    A block that cannot be read, or whose undo record cannot be used, yields a problem instead of a filter.
    """
    source, made = PartBlocks(part, UndoMode.REQUIRE), FilterPart([], [])
    for row, block in enumerate(part.blocks()):
        source.plan_undo(block)
        why: list[Problem] = []
        for ref in part.copies(row, block.ref):
            try:
                built = _filter(source, ref, block)
            except _UNREADABLE as error:
                why.append(Problem.of(f"{source.name(ref)}, block {hash_to_hex(ref.hash)}", error))
            else:
                made.filters.append(BuiltFilter(ref.hash, ref.previous, ref.height, built.n, bytes(built)))
                break
        made.problems.extend(map(str, why))
    return made


def _filter(source: PartBlocks, ref: BlockRef, block: PlannedBlock) -> BasicFilter:
    """Return the filter built from one copy of a block.

    Raises FormatError or SourceError if the block or its undo record cannot be used, and OSError if it cannot be read.
    """
    raw = source.read(ref)
    if block.is_lone:
        return BasicFilter.build(raw, [])
    first: Exception | None = None
    tried: list[UndoPlace] = []
    place = source.find_undo(ref)
    while place is not None:
        try:
            return BasicFilter.build(raw, [coin.script for coins in block_coins(raw, place.read()) for coin in coins])
        except _UNREADABLE as error:
            first = first or error
            tried.append(place)
        place = source.find_other_undo(ref, tried)
    raise SourceError(f"no usable undo record{'' if first is None else f': {first}'}")


def _on_worker(part: Part, theirs: str) -> FilterPart:
    """Build the filters of a part on a worker. Raises SourceError if the sender has a different edition."""
    if theirs != EDITION:
        raise SourceError(f"a worker {mismatch(EDITION, theirs)}")
    return part_filters(part)


@public
async def cluster_filters(client: Any, parts: Sequence[Part]) -> AsyncGenerator[FilterPart, None]:
    """Build the filters of parts on the workers of a Dask cluster. Yield them in the order of the parts.

    The workers must see the files of the parts under the same paths.

    Args:
        client: A `distributed.Client`, asynchronous or not.
        parts: The parts of a plan whose filters are built.

    Raises:
        SourceError: There is no worker, a worker has a different version of spvfilter, workers die repeatedly, or the
            scheduler is lost.
    """
    calls = Calls(client)
    await calls.check_workers()
    waiting: deque[asyncio.Future[FilterPart]] = deque()
    try:
        for part in parts:
            waiting.append(asyncio.ensure_future(_built(calls, part)))
            if len(waiting) >= _AT_ONCE:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await calls.cancel([])


async def _built(calls: Calls, part: Part) -> FilterPart:
    """Have any worker build the filters of one part, and return them.

    Raises SourceError if no worker can build them.
    """
    why: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            made = await calls.once(_on_worker, (part, EDITION))
        except LostError as error:
            why = error.cause
        else:
            if not isinstance(made, FilterPart):
                raise SourceError(f"part {part.number}: a worker sent no filters")
            return made
    raise SourceError(f"part {part.number}: the workers that made its filters died {ATTEMPTS} times: {why}")
