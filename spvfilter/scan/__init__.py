"""Raw blocks to matches: sources, their order, and the scan itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spvfilter._public import lazy

if TYPE_CHECKING:
    from spvfilter.scan.matcher import Matcher as Matcher
    from spvfilter.scan.order import AnyBlock as AnyBlock, RawBlocks as RawBlocks, ScanReport as ScanReport
    from spvfilter.scan.sources import (
        BlockFiles as BlockFiles,
        BlockList as BlockList,
        BlockRef as BlockRef,
        BlockSource as BlockSource,
        Problem as Problem,
        RawBlock as RawBlock,
        Readable as Readable,
        hex_blocks as hex_blocks,
    )
    from spvfilter.scan.undo import UndoMode as UndoMode, UndoPlace as UndoPlace, block_coins as block_coins
else:
    __all__, __getattr__, __dir__ = lazy(
        __name__,
        order="AnyBlock RawBlocks ScanReport",
        matcher="Matcher",
        sources="BlockFiles BlockList BlockRef BlockSource Problem RawBlock Readable hex_blocks",
        undo="UndoMode UndoPlace block_coins",
    )
