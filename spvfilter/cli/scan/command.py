"""`spvfilter scan`: print the matches of a wallet in files or a stream of blocks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_format, add_labels, add_network, add_watch_file, options_of, watch_list
from spvfilter.cli.blockoptions import add_blocks, add_engine, add_follow
from spvfilter.cli.scan.nodeoptions import configure as configure_node
from spvfilter.cli.term.page import Page
from spvfilter.errors import ParameterError

if TYPE_CHECKING:
    import pathlib

    from spvfilter.cli.scan import directory, files, node, options, totals, txids
    from spvfilter.cli.term import picture
    from spvfilter.scan import matcher as matchers
    from spvfilter.watch.watchlist import WatchList
else:  # not needed to show --help
    pathlib = deferred("pathlib")
    directory = deferred("spvfilter.cli.scan.directory")
    files = deferred("spvfilter.cli.scan.files")
    node = deferred("spvfilter.cli.scan.node")
    options = deferred("spvfilter.cli.scan.options")
    totals = deferred("spvfilter.cli.scan.totals")
    txids = deferred("spvfilter.cli.scan.txids")
    picture = deferred("spvfilter.cli.term.picture")
    matchers = deferred("spvfilter.scan.matcher")

_PARQUET = "parquet"  # of scan.outputs.OutputFormat


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter scan PATH ... (--watch FILE | --address A | --txid FILE) ..."
    parser.description = (
        "Print every output that pays a watched entry and every input that spends such an output. Files, and the blocks"
        " in them, may be in any order. An address finds only its own script: early payments to bare"
        " public keys are found only by a pubkey:HEX line in the watch list. A data-prefix:HEX line finds OP_RETURN"
        " outputs whose data begins with HEX, and script-type:p2ms finds outputs of a type."
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help=(
            "a file of one block (raw or hex), a blk*.dat file of Bitcoin Core, or a directory of such files. Also a"
            " URL such as s3://… (`remote` extra), or http://HOST:PORT of a node. Standard input (-) contains"
            " one block per line in hex, or a blk*.dat file; it may be compressed with gzip or zstd. A file"
            " whose name ends in .gz or .zst may also be compressed"
        ),
    )
    add_watch_file(parser)
    add_labels(parser)
    parser.add_argument(
        "--address",
        metavar="A",
        nargs="+",
        action="extend",
        default=[],
        help="addresses or descriptors to watch; repeatable",
    )
    parser.add_argument(
        "--txid",
        metavar="FILE",
        help="instead of a watch list: print the blocks that contain the transactions in FILE, one txid per line",
    )
    add_network(parser)
    add_blocks(parser, "scan")
    add_format(parser, "csv", _PARQUET)
    _add_output(parser)
    configure_node(parser)
    add_follow(
        parser,
        "These options need --out DIR for files, or http://HOST:PORT as the only PATH.",
        "With --out, the files in DIR are rewritten. With a node, a block that a reorganization removes is reported in"
        " a row whose kind is disconnected",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for files: where results go, and how a long scan is divided into parts."""
    parser.add_argument("--output", metavar="FILE", help="write rows to FILE, which is overwritten if it exists")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help=(
            "scan in parts into a directory, in constant memory. DIR gets the matches in chain order (--format csv,"
            " the default here, jsonl or parquet), totals.csv, and one file per part. If you run the same command"
            " again, it resumes a scan that was stopped, and scans only new blocks"
        ),
    )
    add_engine(parser, "the files", "with --out: ")
    parser.add_argument(
        "--with-transactions",
        action="store_true",
        help=(
            "with --out: also write every input and output of each matched transaction, with values, addresses, fee and"
            " sizes, into DIR/transactions.csv, .jsonl or .parquet"
        ),
    )
    parser.add_argument(
        "--binary",
        action="store_true",
        help="with --format parquet: write hashes as 32 raw bytes, in the byte order of block explorers, instead of as"
        " hex",
    )
    parser.add_argument(
        "--publish", metavar="URL", help="with --out: also copy matches and totals to a URL such as s3://…"
    )
    parser.add_argument(
        "--remove-parts",
        action="store_true",
        help="with --out: delete the part files at the end; later runs cannot add new blocks to DIR",
    )
    parser.add_argument(
        "--totals",
        metavar="FILE.csv",
        help=(
            "at the end, write the totals of all entries to FILE.csv, not only the 50 largest, which a terminal shows."
            " --out always writes them"
        ),
    )
    parser.add_argument(
        "--plot",
        metavar="FILE.png",
        help="draw a chart of the balance over time; only for blocks in files; needs matplotlib (`plot` extra)",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="do not print the totals and the summary; errors still go to standard error",
    )


def run(args: argparse.Namespace) -> int:
    given = options_of(options.ScanOptions, args)
    if given.totals is not None:
        totals.check_totals_file(given.totals)
    if given.plot is not None:
        picture.check_picture(given.plot)
    if given.txid is not None:
        given.check_inputs()
        with _page(given.output) as page:
            return txids.run(given, page)
    watch = _watch_list(given)
    if given.out is not None:
        return directory.run(given, given.out, watch)
    matcher = matchers.Matcher(watch, jobs=given.jobs, check=given.check)
    given.check_inputs()
    with _page(given.output) as page:
        return node.run(given, matcher, page) if given.is_node else files.run(given, matcher, page)


def _watch_list(given: options.ScanOptions) -> WatchList:
    """Return the watch list that the options describe. Raises ParameterError, WatchFileError or OSError."""
    watch = watch_list(
        given.network,
        given.watch,
        given.address,
        given.paths,
        strict=given.strict,
        max_derivations=given.max_derivations,
        birthday_option=None if given.from_date is not None or given.from_height is not None else "--from-date",
        allows_patterns=True,
    )
    if not len(watch) and given.watch is None:
        raise ParameterError("nothing to watch for: give --watch FILE or --address ADDRESS")
    if given.labels is not None:
        watch.search_sp_labels(given.labels)
    return watch


@contextmanager
def _page(output: str | None) -> Iterator[Page]:
    """Context manager: returns a page for the rows, which writes to standard output or to a file."""
    if output is None:
        yield Page(sys.stdout)
        return
    with pathlib.Path(output).open("w", encoding="utf-8", newline="") as file:
        yield Page(file)
