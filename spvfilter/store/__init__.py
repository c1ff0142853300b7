"""A wallet's database: one SQLite file, and the import of compact filters into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.store.addresses import KnownAddress as KnownAddress
    from spvfilter.store.filters import CompactFilterBatch as CompactFilterBatch, CompactFilterRows as CompactFilterRows
    from spvfilter.store.importer import FilterImport as FilterImport, ImportCounts as ImportCounts
    from spvfilter.store.store import (
        MEMORY as MEMORY,
        Batch as Batch,
        Bip37Parameters as Bip37Parameters,
        KeptTx as KeptTx,
        Pending as Pending,
        Store as Store,
        StoredMatch as StoredMatch,
    )
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        addresses="KnownAddress",
        filters="CompactFilterBatch CompactFilterRows",
        importer="FilterImport ImportCounts",
        store="Batch Bip37Parameters KeptTx MEMORY Pending Store StoredMatch",
    )
