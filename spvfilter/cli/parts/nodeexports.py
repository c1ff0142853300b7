"""The rounds of `spvfilter export` with a node's URL: one for each change to its chain."""

from __future__ import annotations

from contextlib import AsyncExitStack

from spvfilter.cli.credentials import credentials_of
from spvfilter.cli.parts.exports import ExportOptions, Exports
from spvfilter.cli.parts.rounds import Planned, engine_of
from spvfilter.cli.scan.node import opened
from spvfilter.rpc.notices import TipNotices
from spvfilter.scan.daskcalls import connected
from spvfilter.scan.engines import Engine
from spvfilter.scan.fetching import NodeBlocks
from spvfilter.scan.nodeexport import NodeExport

_BY_RPC = "spent_block_number"  # the column of inputs that REST does not report


class NodeExports(Exports):
    """The exports of a node's chain into one directory.

    Args:
        options: The options of the command.
    """

    def __init__(self, options: ExportOptions) -> None:
        super().__init__(options)
        self._credentials = credentials_of(options.cookie, options.user)

    async def run(self) -> int:
        """Export the chain once, or follow it, and return the exit code. Raises NodeError, SourceError or OSError."""
        options = self.options
        async with AsyncExitStack() as stack:
            client = None if options.dask is None else await stack.enter_async_context(connected(options.dask))
            node = await stack.enter_async_context(opened(options, self._credentials))
            notices = await stack.enter_async_context(TipNotices.subscribed(options.zmq)) if options.zmq else None
            offered = None if notices is None else notices.block
            blocks = NodeBlocks(node, undo=options.undo, span=options.span, allow_gaps=True, offered=offered)
            export = NodeExport(
                options.out,
                blocks,
                self._columns,
                check=options.check,
                coins=options.coins,
                balances=options.balances,
                credits_p2pk=options.credit_p2pk,
            )
            engine = engine_of(options, client)
            stack.push_async_callback(engine.aclose)
            code = await self._once(export, engine)
            while options.follow:
                await (node.patience.pause(options.poll_s) if notices is None else notices.wait(options.poll_s))
                if (await node.info()).best != export.plan.tip:
                    code = await self._once(export, engine)
            return code

    async def _once(self, export: NodeExport, engine: Engine) -> int:
        """Export the blocks up to the node's tip, print the result, and return the exit code."""
        await self.shown(export.run(engine), export.report)
        if self.is_first and export.blocks.node.tells_spent and export.report.summary.by_undo:
            nulls = [name for table, names in self._columns.tables for name in names if name == _BY_RPC]
            if nulls and not self.options.quiet:
                self.tell(
                    f"inputs.{_BY_RPC} is null: the node's REST interface does not report it. Without -rest=1, the"
                    " same command uses JSON-RPC, which reports it but takes longer"
                )
        return self.finish(Planned(export.plan, engine, 0, export.heights), export.report)
