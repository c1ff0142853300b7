"""Compact filters of the embedded node (Core's block filter index).

Filters are built on the first request and cached for each block. Filters of stale blocks stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator

from spvfilter._public import public
from spvfilter.errors import RefusedError
from spvfilter.filters.bip158 import BasicFilter, filter_hash, filter_header
from spvfilter.node.blocktree import BlockTree, TreeBlock
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import (
    BASIC_FILTER_TYPE,
    CHECKPOINT_INTERVAL,
    GENESIS_PREVIOUS_FILTER_HEADER,
    MAX_CFHEADERS,
    MAX_GETCFILTERS,
)
from spvfilter.wire.messages.filters import CFCheckpt, CFHeaders, CFilter, GetCFCheckpt, GetCFHeaders, GetCFilters
from spvfilter.wire.messages.table import Message

_STEP = 50  # number of filters built in one step, after which other connections get a turn

FilterRequest = GetCFilters | GetCFHeaders | GetCFCheckpt


@public
class FilterIndex:
    """Basic filters and filter headers of the blocks in a chain.

    A block that has never been in the best chain has no filter and no filter header.
    """

    def __init__(self, chain: BlockTree) -> None:
        self.chain = chain
        self._filters: dict[bytes, bytes] = {}
        self._headers: dict[bytes, bytes] = {}

    def build(self, block: TreeBlock) -> bytes:
        """Build the filter of a block. Override this to make a node that serves false filters."""
        assert block.spent is not None
        return bytes(BasicFilter.build(block.raw, [coin.script_pubkey for coin in block.spent.values()]))

    def data(self, block: TreeBlock) -> bytes:
        """Return the bytes of a block's filter, from the cache if possible."""
        if (found := self._filters.get(block.hash)) is None:
            found = self._filters[block.hash] = self.build(block)
        return found

    def header(self, block: TreeBlock | None) -> bytes:
        """Return the filter header of a block.

        If `block` is None, as for the parent of the genesis block, the result is 32 zero bytes.
        """
        for _ in self._make(block):
            pass
        return self._headers[block.hash] if block else GENESIS_PREVIOUS_FILTER_HEADER

    def _make(self, block: TreeBlock | None) -> Iterator[None]:
        """Compute the missing filter headers up to a block, yielding after every 50."""
        missing = []
        while block is not None and block.hash not in self._headers:
            missing.append(block)
            block = block.previous
        header = self._headers[block.hash] if block else GENESIS_PREVIOUS_FILTER_HEADER
        for number, each in enumerate(reversed(missing), 1):
            header = self._headers[each.hash] = filter_header(filter_hash(self.data(each)), header)
            if number % _STEP == 0:
                yield

    def respond(self, asked: FilterRequest) -> Iterator[Message | None]:
        """Yield the messages that answer a request, and None after each step of longer work.

        If the stop block has never been in the best chain, the node does not answer, like Core while its index is
        incomplete. Raises RefusedError if the request would make Core disconnect (PrepareBlockFilterRequest).
        """
        stop = self._stop(asked)
        if any(block.spent is None for block in [*self.chain.branch(stop), stop]):
            return
        for _ in self._make(stop):
            yield None
        if isinstance(asked, GetCFCheckpt):
            heights = range(CHECKPOINT_INTERVAL, stop.height + 1, CHECKPOINT_INTERVAL)
            headers = tuple(self.header(self.chain.ancestor(stop, height)) for height in heights)
            yield CFCheckpt(asked.filter_type, stop.hash, headers)
            return
        blocks = [self.chain.ancestor(stop, height) for height in range(asked.start_height, stop.height + 1)]
        if isinstance(asked, GetCFHeaders):
            hashes = tuple(filter_hash(self.data(block)) for block in blocks)
            yield CFHeaders(asked.filter_type, stop.hash, self.header(blocks[0].previous), hashes)
        else:
            yield from (CFilter(asked.filter_type, block.hash, self.data(block)) for block in blocks)

    def _stop(self, asked: FilterRequest) -> TreeBlock:
        if asked.filter_type != BASIC_FILTER_TYPE:
            raise RefusedError(
                "bad-filter-type",
                f"filter type {asked.filter_type} was requested, but only type {BASIC_FILTER_TYPE} is served",
            )
        stop = self.chain.blocks.get(asked.stop_hash)
        if stop is None or not self.chain.is_requestable(stop):
            raise RefusedError("bad-stop-hash", f"the stop block {hash_to_hex(asked.stop_hash)} is not served")
        if isinstance(asked, GetCFCheckpt):
            return stop
        most = MAX_GETCFILTERS if isinstance(asked, GetCFilters) else MAX_CFHEADERS
        if not 0 <= stop.height - asked.start_height < most:
            raise RefusedError(
                "bad-range",
                f"blocks {asked.start_height} to {stop.height} were requested: expected 1 to {most} blocks in"
                " ascending order",
            )
        return stop
