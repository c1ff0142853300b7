"""Write and read a wallet's database, one SQLite file, and import compact filters into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.store.addresses import KnownAddress as KnownAddress
    from spvfilter.store.batch import (
        AccountChange as AccountChange,
        Batch as Batch,
        Bip37Parameters as Bip37Parameters,
        NewEntry as NewEntry,
    )
    from spvfilter.store.events import EventLog as EventLog, StoredEvent as StoredEvent
    from spvfilter.store.filters import CompactFilterBatch as CompactFilterBatch, CompactFilterRows as CompactFilterRows
    from spvfilter.store.importer import FilterImport as FilterImport, ImportCounts as ImportCounts
    from spvfilter.store.keychains import (
        KeychainChange as KeychainChange,
        NewKeychain as NewKeychain,
        SilentKeys as SilentKeys,
    )
    from spvfilter.store.labels import ImportedLabels as ImportedLabels
    from spvfilter.store.ledger import (
        StoredMatch as StoredMatch,
        StoredTx as StoredTx,
        TxStatus as TxStatus,
    )
    from spvfilter.store.place import MEMORY as MEMORY
    from spvfilter.store.scriptviews import (
        OutputEffect as OutputEffect,
        TxEffects as TxEffects,
        TxProof as TxProof,
    )
    from spvfilter.store.searched import BlockRange as BlockRange, EntryGroup as EntryGroup, Searched as Searched
    from spvfilter.store.store import Store as Store
    from spvfilter.store.txcheck import (
        CheckCause as CheckCause,
        CheckFinding as CheckFinding,
        CheckWeight as CheckWeight,
    )
    from spvfilter.store.views import (
        Balance as Balance,
        Coin as Coin,
        HistoryEntry as HistoryEntry,
        SearchedEntries as SearchedEntries,
        Snapshot as Snapshot,
        Views as Views,
    )
    from spvfilter.store.windowviews import KeychainStatus as KeychainStatus
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        addresses="KnownAddress",
        batch="AccountChange Batch Bip37Parameters NewEntry",
        events="EventLog StoredEvent",
        filters="CompactFilterBatch CompactFilterRows",
        importer="FilterImport ImportCounts",
        keychains="KeychainChange NewKeychain SilentKeys",
        labels="ImportedLabels",
        ledger="StoredMatch StoredTx TxStatus",
        place="MEMORY",
        scriptviews="OutputEffect TxEffects TxProof",
        searched="BlockRange EntryGroup Searched",
        store="Store",
        txcheck="CheckCause CheckFinding CheckWeight",
        views="Balance Coin HistoryEntry SearchedEntries Snapshot Views",
        windowviews="KeychainStatus",
    )
