"""Filters from outside on their way into the wallet's database, each held against what it knows. Files and their format are not here.

Nothing that gets in can do harm: filters are given to a search only where the filter headers that peers agree on commit to them (see
filters.py). What is checked here is checked so that a wrong file is told at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from spvfilter._public import public
from spvfilter.chain import HeaderChain
from spvfilter.errors import BlockFilterError, FalseFilterError, FormatError, SourceError
from spvfilter.filters.bip158 import BasicFilter, filter_hash, filter_header
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.store import Batch, Store

_BATCH, _BATCH_SIZE = 1_000, 16_000_000  # filters and bytes of one transaction
_NAMED = 20  # stale blocks that are named


@public
@dataclass(slots=True)
class ImportCounts:
    """What has become of the filters given so far."""

    kept: int = 0  # written
    present: int = 0  # were kept before
    waiting: int = 0  # of both: above the filter headers that the database holds, and of no use before it holds theirs
    stale: int = 0  # not of the best chain: left out
    stale_blocks: list[bytes] = field(default_factory=list)  # the first of these


@public
class FilterImport:
    """Takes filters in any order, again and again if need be; every thousand or so are one transaction.

    Of blocks whose filter headers the database holds only the true filter gets in. Those of blocks above wait for their headers.
    """

    def __init__(self, store: Store) -> None:
        """Raises StoreError."""
        if store.tip < 0:
            store.commit(Batch(headers=store.network.genesis))
        self.counts = ImportCounts()
        self._store = store
        self._chain = HeaderChain.load(store.network, store.headers(1))
        self._batch: dict[bytes, bytes] = {}  # by hash
        self._size = 0
        self._last = (bytes(32), GENESIS_PREVIOUS_FILTER_HEADER)  # block and filter header of the filter taken last

    def add(
        self, block: bytes, data: bytes, *, previous: bytes | None = None, height: int | None = None, header: bytes | None = None
    ) -> None:
        """Take the filter of a block; what is known of the block before it, its height and its filter header helps to judge it.

        Raises FalseFilterError; BlockFilterError for a malformed filter; SourceError for one of another network, or with a filter header
        that does not follow from the one before; StoreError. What was taken before stays.
        """
        known = self._chain.height_of(block)
        below = None if previous is None else -1 if previous == bytes(32) else self._chain.height_of(previous)
        at = known if known is not None else height if below is None else below + 1
        if known is None and (at == 0 or (at == 1 and below is None and previous is not None)):  # nothing replaces a genesis block
            raise SourceError(f"block {at} is {hash_to_hex(block)}: these filters are not of {self._store.network}")
        digest = filter_hash(data)
        if known is not None and known <= self._store.compact_filters.height and digest != self._store.compact_filters.hash_at(known):
            raise FalseFilterError(known, block)
        self._check(block, data, digest, previous, below, header)
        if known is None and at is not None and at <= self._chain.height:
            self.counts.stale += 1
            if len(self.counts.stale_blocks) < _NAMED:
                self.counts.stale_blocks.append(block)
            return
        self.counts.waiting += known is None or known > self._store.compact_filters.height
        if digest in self._batch or self._store.compact_filters.is_kept(digest, data):
            self.counts.present += 1
            return
        self._batch[digest] = data
        self._size += len(data)
        if len(self._batch) == _BATCH or self._size >= _BATCH_SIZE:
            self.flush()

    def _check(self, block: bytes, data: bytes, digest: bytes, previous: bytes | None, below: int | None, header: bytes | None) -> None:
        try:
            BasicFilter.parse(data, block)
        except FormatError as error:
            raise BlockFilterError(error.message, offset=error.offset, field=error.field, block_hash=block) from None
        before = None
        if previous == self._last[0]:
            before = self._last[1]
        elif below is not None and below <= self._store.compact_filters.height:
            before = self._store.compact_filters.header_at(below)
        follows = header if before is None else filter_header(digest, before)
        if header not in (None, follows):
            raise SourceError(f"the filter header of block {hash_to_hex(block)} does not follow from the one before")
        if follows is not None:
            self._last = block, follows

    def flush(self) -> None:
        """Write what waits to be written. Raises StoreError, and then none of it is."""
        if self._batch:
            self._store.commit(Batch(compact_filters=CompactFilterBatch(kept=list(self._batch.items()))))
            self.counts.kept += len(self._batch)
            self._batch.clear()
            self._size = 0
