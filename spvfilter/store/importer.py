"""Import compact filters from elsewhere into the wallet's database, checking each against known filter headers.

An import cannot make a search go wrong, because a search uses only filters that match the headers that peers agree on
(see filters.py). The checks here report a wrong file immediately.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spvfilter._public import public
from spvfilter.chain import HeaderChain
from spvfilter.errors import BlockFilterError, FalseFilterError, FormatError, SourceError
from spvfilter.filters.bip158 import BasicFilter, filter_hash, filter_header
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER
from spvfilter.store.batch import Batch
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.store import Store

BATCH, BATCH_SIZE = 1_000, 16_000_000  # filters and bytes per transaction
NAMED = 20  # limit on stale blocks whose hashes are listed


@public
@dataclass(slots=True)
class ImportCounts:
    """Number of filters imported so far, by outcome."""

    kept: int = 0
    """Filters that were written to the database."""
    present: int = 0
    """Filters that were already in the database."""
    waiting: int = 0
    """How many of `kept` and `present` cannot be used in a search yet because their filter headers are unknown."""
    stale: int = 0
    """Filters that were ignored because their blocks are not in the best chain."""
    stale_blocks: list[bytes] = field(default_factory=list)
    """Block hashes of the first 20 ignored filters."""


@public
class FilterImport:
    """Imports compact filters into a wallet's database, in any order. Duplicates are allowed.

    A filter of a block whose filter header is known must match that header. Filters of later blocks are stored
    unchecked, and are used only once their filter headers are known. Filters are committed in batches of a thousand.
    """

    def __init__(self, store: Store) -> None:
        """Prepare an import into a database. Raises StoreError."""
        if store.tip < 0:
            store.commit(Batch(headers=store.network.genesis))
        self.counts: ImportCounts = ImportCounts()
        """Outcomes so far."""
        self._store = store
        self._chain = HeaderChain.restore(store.network, store.headers(1))
        self._batch: dict[bytes, bytes] = {}  # keyed by hash
        self._size = 0
        self._last = (
            bytes(32),
            GENESIS_PREVIOUS_FILTER_HEADER,
        )  # block and filter header of the last filter that passed

    def add(
        self,
        block: bytes,
        data: bytes,
        *,
        previous: bytes | None = None,
        height: int | None = None,
        header: bytes | None = None,
    ) -> None:
        """Import the filter of a block. If it is refused, filters imported earlier stay.

        Args:
            block: Block hash, 32 bytes in wire order.
            data: The filter.
            previous: Hash of the previous block; checked if given.
            height: Height of the block; checked if given.
            header: Filter header of the block; checked if given.

        Raises:
            FalseFilterError: The filter does not match the known filter header.
            BlockFilterError: The filter is malformed.
            SourceError: The filter belongs to another network, or its filter header does not follow from the previous
                one.
            StoreError: The database cannot be written.
        """
        known = self._chain.height_of(block)
        below = None if previous is None else -1 if previous == bytes(32) else self._chain.height_of(previous)
        at = known if known is not None else height if below is None else below + 1
        # nothing replaces a genesis block
        if known is None and (at == 0 or (at == 1 and below is None and previous is not None)):
            raise SourceError(f"block {at} is {hash_to_hex(block)}: these filters are not for {self._store.network}")
        this_hash = filter_hash(data)
        if (
            known is not None
            and known <= self._store.compact_filters.height
            and this_hash != self._store.compact_filters.hash_at(known)
        ):
            raise FalseFilterError(known, block)
        self._check(block, data, this_hash, previous, below, header)
        if known is None and at is not None and at <= self._chain.height:
            self.counts.stale += 1
            if len(self.counts.stale_blocks) < NAMED:
                self.counts.stale_blocks.append(block)
            return
        self.counts.waiting += known is None or known > self._store.compact_filters.height
        if this_hash in self._batch or self._store.compact_filters.is_kept(this_hash, data):
            self.counts.present += 1
            return
        self._batch[this_hash] = data
        self._size += len(data)
        if len(self._batch) == BATCH or self._size >= BATCH_SIZE:
            self.flush()

    def _check(
        self,
        block: bytes,
        data: bytes,
        this_hash: bytes,
        previous: bytes | None,
        below: int | None,
        header: bytes | None,
    ) -> None:
        try:
            BasicFilter.parse(data, block)
        except FormatError as error:
            raise BlockFilterError(error.message, offset=error.offset, field=error.field, block_hash=block) from None
        before = None
        if previous == self._last[0]:
            before = self._last[1]
        elif below is not None and below <= self._store.compact_filters.height:
            before = self._store.compact_filters.header_at(below)
        follows = header if before is None else filter_header(this_hash, before)
        if header not in (None, follows):
            raise SourceError(f"the filter header of block {hash_to_hex(block)} does not follow from the previous one")
        if follows is not None:
            self._last = block, follows

    def flush(self) -> None:
        """Commit the remaining filters, either all or none. Raises StoreError."""
        if self._batch:
            self._store.commit(Batch(compact_filters=CompactFilterBatch(kept=list(self._batch.items()))))
            self.counts.kept += len(self._batch)
            self._batch.clear()
            self._size = 0
