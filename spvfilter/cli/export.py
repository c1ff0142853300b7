"""`spvfilter export`: write blocks, transactions, inputs and outputs as Parquet tables."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_network
from spvfilter.cli.blockoptions import add_blocks, add_engine, add_follow, check_engine, check_follow, span_of
from spvfilter.cli.scan.nodeoptions import check_without_node, configure as configure_node, is_node_url
from spvfilter.errors import ParameterError

if TYPE_CHECKING:
    import asyncio

    from spvfilter import compression
    from spvfilter.cli.parts import exports, nodeexports
    from spvfilter.scan import exportcolumns, remote
else:  # not needed to show --help
    asyncio = deferred("asyncio")
    compression = deferred("spvfilter.compression")
    exports = deferred("spvfilter.cli.parts.exports")
    nodeexports = deferred("spvfilter.cli.parts.nodeexports")
    exportcolumns = deferred("spvfilter.scan.exportcolumns")
    remote = deferred("spvfilter.scan.remote")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter export PATH ... --out DIR [OPTION ...]"
    parser.description = (
        "Write blocks, transactions, inputs and outputs as Parquet: a folder for each table and range of heights."
        " DuckDB, polars and pyarrow read a table as one data set. The same command later writes only what is new."
        " Needs pyarrow (extra `parquet`)."
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
    parser.add_argument("--hex", action="store_true", help="write hashes as text in hex, not as 32 bytes")
    parser.add_argument(
        "--coins",
        action="store_true",
        help="also write the unspent outputs after the last block; needs all blocks from the genesis block on",
    )
    parser.add_argument(
        "--balances",
        action="store_true",
        help="also write the balance of each script, with its address; needs the same blocks as --coins",
    )
    parser.add_argument(
        "--credit-p2pk",
        action="store_true",
        help="with --balances: count the coins of a public key as those of its P2PKH address",
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
        "The tables change when all new files are complete",
    )


def run(args: argparse.Namespace) -> int:
    check_engine(args, "no PATH of blocks given (see 'spvfilter export --help')")
    check_follow(args)
    is_node = is_node_url(args.paths)
    if not is_node:
        check_without_node(args)
    for path in args.paths:
        if path == "-" or compression.is_compressed(path):
            raise ParameterError(f"{path}: export needs files that it can read again: save or decompress the blocks")
    if remote.is_url(args.out):
        raise ParameterError("--out takes a local path, not a URL: copy the tables after the export")
    if args.credit_p2pk and not args.balances:
        raise ParameterError("--credit-p2pk is for --balances: add --balances, or leave --credit-p2pk out")
    columns = exportcolumns.ExportColumns.of(_chosen(args.columns), is_hex=args.hex)
    if is_node:
        return asyncio.run(nodeexports.NodeExports(args, columns, span_of(args)).run())
    return asyncio.run(exports.Exports(args, columns, span_of(args)).run())


def _chosen(given: Iterable[str]) -> dict[str, list[str]] | None:
    """Return the names of columns by the name of their table; None for the default. Raises ParameterError."""
    chosen: dict[str, list[str]] = {}
    for text in given:
        table, colon, names = text.partition(":")
        if table in chosen:
            raise ParameterError(f"--columns names the table {table[:40]} twice: give all its columns at once")
        default = list(exportcolumns.DEFAULT_COLUMNS.get(table, ()))
        if not colon:
            chosen[table] = default or [""]
        elif names.startswith("+"):
            chosen[table] = default + [name for name in names[1:].split(",") if name not in default]
        else:
            chosen[table] = names.split(",")
    return chosen or None
