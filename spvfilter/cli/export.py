"""`spvfilter export`: write blocks, transactions, inputs and outputs as Parquet tables."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_network, options_of
from spvfilter.cli.blockoptions import add_blocks, add_engine, add_follow
from spvfilter.cli.scan.nodeoptions import configure as configure_node

if TYPE_CHECKING:
    import asyncio

    from spvfilter.cli.parts import exports, nodeexports
else:  # not needed to show --help
    asyncio = deferred("asyncio")
    exports = deferred("spvfilter.cli.parts.exports")
    nodeexports = deferred("spvfilter.cli.parts.nodeexports")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter export PATH ... --out DIR [OPTION ...]"
    parser.description = (
        "Write blocks, transactions, inputs and outputs as Parquet: a folder for each table and range of heights."
        " DuckDB, polars and pyarrow read a table as one data set. If you run the same command later, it writes only"
        " what is new. Needs pyarrow (`parquet` extra)."
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help=(
            "a blk*.dat file of Bitcoin Core, a file of one block, or a directory or URL (s3://…) of such files; or"
            " http://HOST:PORT of a node"
        ),
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="the directory for the tables")
    parser.add_argument(
        "--columns",
        metavar="TABLE[:NAME,...]",
        nargs="+",
        action="extend",
        default=[],
        help=(
            "write only these tables: blocks, transactions, inputs, outputs. After a colon: the names of columns, or"
            " all. A + before the names adds them to the default columns, as in outputs:+address; repeatable"
        ),
    )
    parser.add_argument("--hex", action="store_true", help="write hashes as hex instead of as 32 raw bytes")
    parser.add_argument(
        "--coins",
        action="store_true",
        help="also write the unspent outputs after the last block; needs all blocks since the genesis block",
    )
    parser.add_argument(
        "--balances",
        action="store_true",
        help="also write the balance of each script, with its address; needs the same blocks as --coins",
    )
    parser.add_argument(
        "--credit-p2pk",
        action="store_true",
        help="with --balances: count the coins of a public key toward its P2PKH address",
    )
    add_network(parser)
    add_blocks(parser, "export")
    add_engine(parser, "the files and DIR")
    parser.add_argument(
        "--quiet", action="store_true", help="do not print the summary; errors still go to standard error"
    )
    configure_node(parser)
    add_follow(
        parser,
        "The tables can grow with the chain.",
        "The tables change once all new files are complete",
    )


def run(args: argparse.Namespace) -> int:
    options = options_of(exports.ExportOptions, args)
    return asyncio.run((nodeexports.NodeExports if options.is_node else exports.Exports)(options).run())
