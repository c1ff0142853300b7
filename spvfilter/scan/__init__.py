"""Scan raw blocks for matches: block sources, chain order, plans, parts, and the engines that scan them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.scan.batches import MatchBatch as MatchBatch
    from spvfilter.scan.chainchange import ChainChange as ChainChange
    from spvfilter.scan.cluster import DaskWorkers as DaskWorkers, scan_cluster as scan_cluster
    from spvfilter.scan.directory import PartScan as PartScan
    from spvfilter.scan.engines import Engine as Engine, Processes as Processes, Threads as Threads
    from spvfilter.scan.export import TableExport as TableExport
    from spvfilter.scan.exportcolumns import ExportColumns as ExportColumns
    from spvfilter.scan.fetching import NodeBlocks as NodeBlocks
    from spvfilter.scan.filterparts import (
        BuiltFilter as BuiltFilter,
        FilterPart as FilterPart,
        cluster_filters as cluster_filters,
        part_filters as part_filters,
    )
    from spvfilter.scan.following import Connected as Connected, Disconnected as Disconnected, follow as follow
    from spvfilter.scan.gaps import ScannedHeights as ScannedHeights
    from spvfilter.scan.matchedtxs import TransactionRow as TransactionRow
    from spvfilter.scan.matcher import Matcher as Matcher
    from spvfilter.scan.nodeexport import NodeExport as NodeExport
    from spvfilter.scan.order import AnyBlock as AnyBlock, RawBlocks as RawBlocks, ScanReport as ScanReport
    from spvfilter.scan.outputs import OutputFormat as OutputFormat, publish as publish, scan_parts as scan_parts
    from spvfilter.scan.partfile import BlockHits as BlockHits, PartFile as PartFile, PartSummary as PartSummary
    from spvfilter.scan.partrun import PartsReport as PartsReport
    from spvfilter.scan.parts import PartTask as PartTask
    from spvfilter.scan.plan import Part as Part, Plan as Plan, PlannedBlock as PlannedBlock, PlannedFile as PlannedFile
    from spvfilter.scan.relevance import RelevantTx as RelevantTx, relevant_txs as relevant_txs
    from spvfilter.scan.remote import RemoteFile as RemoteFile
    from spvfilter.scan.sources import (
        BlockFiles as BlockFiles,
        BlockList as BlockList,
        BlockRef as BlockRef,
        BlockSource as BlockSource,
        BlockSpan as BlockSpan,
        Problem as Problem,
        RawBlock as RawBlock,
        Readable as Readable,
    )
    from spvfilter.scan.streams import hex_blocks as hex_blocks, stream_blocks as stream_blocks
    from spvfilter.scan.tables import to_arrow as to_arrow, to_pandas as to_pandas
    from spvfilter.scan.transactions import RawTransactions as RawTransactions, TxMatches as TxMatches
    from spvfilter.scan.txlines import read_txs as read_txs, stream_txs as stream_txs
    from spvfilter.scan.undo import UndoPlace as UndoPlace, block_coins as block_coins
    from spvfilter.scan.undomode import UndoMode as UndoMode
    from spvfilter.scan.workerplan import WorkerPlan as WorkerPlan, plan_on_workers as plan_on_workers
    from spvfilter.scan.workertask import SeenFile as SeenFile
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        batches="MatchBatch",
        chainchange="ChainChange",
        gaps="ScannedHeights",
        nodeexport="NodeExport",
        order="AnyBlock RawBlocks ScanReport",
        cluster="DaskWorkers scan_cluster",
        directory="PartScan",
        engines="Engine Processes Threads",
        export="TableExport",
        exportcolumns="ExportColumns",
        fetching="NodeBlocks",
        filterparts="BuiltFilter FilterPart cluster_filters part_filters",
        following="Connected Disconnected follow",
        matchedtxs="TransactionRow",
        matcher="Matcher",
        workertask="SeenFile",
        outputs="OutputFormat publish scan_parts",
        partfile="BlockHits PartFile PartSummary",
        partrun="PartsReport",
        parts="PartTask",
        plan="Part Plan PlannedBlock PlannedFile",
        relevance="RelevantTx relevant_txs",
        remote="RemoteFile",
        sources="BlockFiles BlockList BlockRef BlockSource BlockSpan Problem RawBlock Readable",
        streams="hex_blocks stream_blocks",
        tables="to_arrow to_pandas",
        transactions="RawTransactions TxMatches",
        txlines="read_txs stream_txs",
        undo="UndoPlace block_coins",
        undomode="UndoMode",
        workerplan="WorkerPlan plan_on_workers",
    )
