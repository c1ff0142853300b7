"""`spvfilter scan`: print the matches of a wallet in files or a stream of blocks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_format, add_labels, add_network, add_watch_file, watch_list
from spvfilter.cli.blockoptions import add_blocks, add_engine, add_follow, check_engine, check_follow, span_of
from spvfilter.cli.scan.nodeoptions import check_without_node, configure as configure_node, is_node_url
from spvfilter.cli.term.page import Page
from spvfilter.errors import ParameterError, SourceError

if TYPE_CHECKING:
    import pathlib

    from spvfilter.cli.scan import directory, files, node, streams, totals, txids
    from spvfilter.cli.term import picture
    from spvfilter.scan import matcher as matchers, remote
else:  # not needed to show --help
    pathlib = deferred("pathlib")
    directory = deferred("spvfilter.cli.scan.directory")
    files = deferred("spvfilter.cli.scan.files")
    node = deferred("spvfilter.cli.scan.node")
    streams = deferred("spvfilter.cli.scan.streams")
    totals = deferred("spvfilter.cli.scan.totals")
    txids = deferred("spvfilter.cli.scan.txids")
    picture = deferred("spvfilter.cli.term.picture")
    matchers = deferred("spvfilter.scan.matcher")
    remote = deferred("spvfilter.scan.remote")

_STDIN = "-"
_PARQUET = "parquet"  # of scan.outputs.OutputFormat
_REQUIRE = "require"  # of scan.undomode.UndoMode
_BLOCK_SUFFIXES = (".dat", ".raw", ".blk", ".hex")  # names of block files in a directory end with these


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter scan PATH ... (--watch FILE | --address A | --txid FILE) ..."
    parser.description = (
        "Print every output that pays a watched entry and every input that spends such an output. Files, and the blocks"
        " in them, may come in any order. An address finds only its own script: early payments to bare"
        " public keys are found only by a line pubkey:HEX in the watch list. A line data-prefix:HEX finds OP_RETURN"
        " outputs whose data begins with HEX, and script-type:p2ms finds outputs of a type."
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help=(
            "a file of one block (raw or hex), a blk*.dat file of Bitcoin Core, or a directory of such files. Also a"
            " URL such as s3://… (extra `remote`), or http://HOST:PORT of a node. Standard input (-) has"
            " one block per line in hex, or is a blk*.dat file; it may be compressed with gzip or zstd. A file may"
            " be compressed, too, if its name ends in .gz or .zst"
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
        help="instead of a watch list: print the blocks that have the transactions in FILE, one txid in each line",
    )
    add_network(parser)
    add_blocks(parser, "scan")
    add_format(parser, "csv", _PARQUET)
    _add_output(parser)
    configure_node(parser)
    add_follow(
        parser,
        "These options need --out DIR for files, or http://HOST:PORT as the only PATH.",
        "With --out the files in DIR are written again. For a node, a block that a reorganization removes is a row of"
        " kind disconnected",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    """Add the options for files: where results go, and how a long scan is divided."""
    parser.add_argument("--output", metavar="FILE", help="write rows to FILE, which is overwritten if it exists")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help=(
            "scan in parts into a directory, in constant memory. DIR gets the matches in chain order (--format csv,"
            " the default here, jsonl or parquet), totals.csv, and one file per part. The same command continues a scan"
            " that was stopped, and later scans the blocks that are new"
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
        help="with --format parquet: write hashes as 32 bytes in the order that explorers show, not as text in hex",
    )
    parser.add_argument(
        "--publish", metavar="URL", help="with --out: also copy matches and totals to a URL such as s3://…"
    )
    parser.add_argument(
        "--remove-parts",
        action="store_true",
        help="with --out: delete the files of parts at the end; later runs cannot add new blocks to DIR",
    )
    parser.add_argument(
        "--totals",
        metavar="FILE.csv",
        help=(
            "write the totals of all entries to FILE.csv at the end; a terminal shows the largest 50. --out writes them"
            " anyway"
        ),
    )
    parser.add_argument(
        "--plot",
        metavar="FILE.png",
        help="draw a chart of the balance over time; only for blocks in files; needs matplotlib (extra `plot`)",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="do not print totals and the summary; errors still go to standard error",
    )


def run(args: argparse.Namespace) -> int:
    is_node = _check_paths(args)
    if args.txid is not None:
        txids.check(args, is_stream=not is_node and streams.is_stream(args.paths))
    _check_outputs(args, is_node=is_node)
    check_follow(args)
    if args.follow and not is_node and args.out is None:
        raise ParameterError("--follow needs --out DIR, or the URL of a node as the only PATH")
    if args.follow and args.remove_parts:
        raise ParameterError("--follow needs the parts that --remove-parts deletes: leave one of them out")
    if args.txid is not None:
        _check_inputs(args, is_node=is_node)
        with _page(args.output) as page:
            return txids.run(args, span_of(args), page, is_node=is_node)
    watch = watch_list(
        args.network,
        args.watch,
        args.address,
        args.paths,
        strict=args.strict,
        max_derivations=args.max_derivations,
        birthday_option=None if args.from_date is not None or args.from_height is not None else "--from-date",
        allows_patterns=True,
    )
    if not len(watch) and args.watch is None:
        raise ParameterError("nothing to watch for: give --watch FILE or --address ADDRESS")
    if args.labels is not None:
        watch.search_sp_labels(args.labels)
    span = span_of(args)
    if span.is_limited and not is_node and streams.is_stream(args.paths):
        raise ParameterError(
            "a range of heights or dates is for files, not for standard input or compressed files: decompress them"
        )
    if args.out is not None:
        return directory.run(args, watch, span)
    matcher = matchers.Matcher(watch, jobs=args.jobs, check=args.check)
    _check_inputs(args, is_node=is_node)
    with _page(args.output) as page:
        if is_node:
            return node.run(args, matcher, span, page)
        return files.run(args, matcher, span, page)


def _check_paths(args: argparse.Namespace) -> bool:
    """Return True if the only PATH is the URL of a node.

    Raises ParameterError for PATHs that cannot be scanned together.
    """
    cause = ": --address takes everything up to the next option: put PATH before it" if args.address else ""
    check_engine(args, f"no PATH of blocks given{cause} (see 'spvfilter scan --help')")
    if _STDIN in args.paths and len(args.paths) > 1:
        raise ParameterError("'-' is standard input and cannot be combined with another PATH")
    if is_node_url(args.paths):
        return True
    check_without_node(args)
    return False


def _check_outputs(args: argparse.Namespace, *, is_node: bool) -> None:
    """Check that the output options fit the input and each other.

    Raises ParameterError if they do not fit. Raises SourceError or OSError if the picture or the file of totals cannot
    be written.
    """
    outputs = (("--out", args.out), ("--output", args.output), ("--plot", args.plot), ("--totals", args.totals))
    for option, name in outputs:
        if remote.is_url(name):
            raise ParameterError(
                f"{option} takes a local path, not a URL: to copy results, use --out DIR --publish URL"
            )
    names = (args.out, args.output, args.totals, args.plot, args.report)
    named = [pathlib.Path(name).resolve() for name in names if name not in (None, os.devnull)]
    if len(set(named)) < len(named):
        raise ParameterError("--output, --totals, --plot and --report need a file each: give them different names")
    is_stream = not is_node and streams.is_stream(args.paths, in_parts=args.out is not None)
    if is_stream and args.undo == _REQUIRE:
        raise ParameterError("--undo require is for blocks in files, not on standard input or in compressed files")
    if args.out is not None:
        if is_node:
            raise ParameterError("--out is for blocks in files: use --output FILE for the blocks of a node")
        if is_stream:
            raise ParameterError("--out is for blocks in files, not on standard input")
        if args.output is not None:
            raise ParameterError("--out DIR and --output FILE exclude each other: give one")
    elif args.format == _PARQUET or any(
        (args.processes, args.dask, args.publish, args.remove_parts, args.with_transactions, args.binary)
    ):
        raise ParameterError(
            "--processes, --dask, --publish, --remove-parts, --with-transactions, --binary and --format parquet need"
            " --out DIR"
        )
    if args.totals is not None:
        if args.out is not None:
            raise ParameterError("--totals is for a scan without --out: DIR/totals.csv has them")
        totals.check_totals_file(args.totals)
    if args.plot is not None:
        if is_stream:
            raise ParameterError("--plot is for blocks in files, not on standard input or in compressed files")
        if is_node:
            raise ParameterError("--plot is for blocks in files, not for those of a node")
        picture.check_picture(args.plot)


def _check_inputs(args: argparse.Namespace, *, is_node: bool) -> None:
    """Raise ParameterError if an output file is also an input, and SourceError if no PATH exists.

    Without this check, the command would empty the output files before it finds that nothing can be scanned.
    """
    paths = [] if is_node or args.paths == [_STDIN] else args.paths
    inputs = [pathlib.Path(name) for name in (*paths, args.watch, args.txid) if name not in (None, _STDIN)]
    for output in map(pathlib.Path, filter(None, (args.output, args.totals))):
        for source in inputs if output.exists() else ():
            inside = source.is_dir() and output.resolve().parent == source.resolve()
            if (inside and output.suffix in _BLOCK_SUFFIXES) or (source.exists() and output.samefile(source)):
                raise ParameterError(f"{output}: this would overwrite an input")
        if paths and not any(remote.is_url(name) or pathlib.Path(name).exists() for name in paths):
            raise SourceError(f"nothing to scan: {', '.join(paths)}: no such file or directory")


@contextmanager
def _page(output: str | None) -> Iterator[Page]:
    """Context manager: returns the page for rows, which writes to standard output or to a file."""
    if output is None:
        yield Page(sys.stdout)
        return
    with pathlib.Path(output).open("w", encoding="utf-8", newline="") as file:
        yield Page(file)
