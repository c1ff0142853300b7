"""`spvfilter scan`: print the matches of a wallet in files or a stream of blocks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import FORMATS, add_network, add_watch_file, day, watch_list, whole
from spvfilter.cli.scan.nodeoptions import check_without_node, configure as configure_node, is_node_url
from spvfilter.cli.term.page import Page
from spvfilter.errors import ParameterError, SourceError
from spvfilter.scan.undomode import UndoMode

if TYPE_CHECKING:
    import pathlib

    from spvfilter.cli.scan import directory, files, node
    from spvfilter.cli.term import picture
    from spvfilter.scan import matcher as matchers, remote, sources
    from spvfilter.watch.watchlist import WatchList
else:  # to show --help, they are not needed
    pathlib = deferred("pathlib")
    directory = deferred("spvfilter.cli.scan.directory")
    files = deferred("spvfilter.cli.scan.files")
    node = deferred("spvfilter.cli.scan.node")
    picture = deferred("spvfilter.cli.term.picture")
    matchers = deferred("spvfilter.scan.matcher")
    remote = deferred("spvfilter.scan.remote")
    sources = deferred("spvfilter.scan.sources")

_STDIN = "-"
_PARQUET = "parquet"  # of scan.outputs.OutputFormat
_MOST_HEIGHT = 0x7FFFFFFF
_BLOCK_SUFFIXES = (".dat", ".raw", ".blk", ".hex")  # of files in a directory of blocks


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter scan PATH ... (--watch FILE | --address A ...) [OPTION ...]"
    parser.description = (
        "Find every output that pays a watched entry and every input that spends one. The order of files, and of blocks"
        " in them, does not matter. An address finds only its own script: payments to a bare public key, as in the"
        " first years, are found by a line pubkey:HEX in the watch list."
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help=(
            "a file of one block (raw or hex), a blk*.dat file of Bitcoin Core, a directory of either, also by URL as"
            " s3://… (extra remote), or http://HOST:PORT of a node; - alone: blocks on standard input, one per line in"
            " hex, or a blk*.dat, also compressed by gzip or zstd"
        ),
    )
    add_watch_file(parser)
    parser.add_argument(
        "--address", metavar="A", nargs="+", action="extend", default=[], help="addresses or descriptors; repeatable"
    )
    add_network(parser)
    parser.add_argument(
        "--jobs",
        metavar="J",
        type=whole(1, 256),
        default=1,
        help="threads that scan, with the compiled kernel; default %(default)s",
    )
    parser.add_argument(
        "--undo",
        choices=list(UndoMode),
        default=UndoMode.AUTO,
        help=(
            "use the rev*.dat beside blk*.dat, which tell what each block spends: auto (default) where there are any,"
            " require or off. With them spends of coins from before the blocks are found, too"
        ),
    )
    parser.add_argument(
        "--check", action="store_true", help="verify each block's merkle root and witness commitment before using it"
    )
    parser.add_argument(
        "--from-height",
        metavar="H",
        type=whole(0, _MOST_HEIGHT),
        help="of the best branch, scan blocks from height H on",
    )
    parser.add_argument("--to-height", metavar="H", type=whole(0, _MOST_HEIGHT), help="and up to height H")
    parser.add_argument(
        "--from-date", metavar="YYYY-MM-DD", type=day, help="scan from the first block of that day (UTC) on"
    )
    parser.add_argument(
        "--format",
        choices=[*FORMATS, _PARQUET],
        help=(
            "table (default), jsonl (one JSON object per line, values in satoshi) or csv (the same columns); "
            "totals go with the table, else to a terminal on standard error. With --out csv (default), jsonl or parquet"
        ),
    )
    parser.add_argument(
        "--output", metavar="FILE", help="write there instead of to standard output; an existing FILE is overwritten"
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        help=(
            "scan in parts into a directory, in constant memory: the matches in chain order, totals.csv, and a file for"
            " each part. Stopped anywhere, the same command goes on"
        ),
    )
    parser.add_argument(
        "--processes", metavar="N", type=whole(1, 256), help="with --out: processes that scan, in place of threads"
    )
    parser.add_argument(
        "--dask",
        metavar="tcp://HOST:PORT",
        help=(
            "with --out: scan on the workers of the Dask cluster whose scheduler is there; each has to see the files by"
            " the same paths"
        ),
    )
    parser.add_argument(
        "--on-workers",
        metavar="PATH",
        action="append",
        default=[],
        help=(
            "with --dask, in place of PATHs: each worker scans the files that it has itself at PATH; repeatable."
            " Heights that no worker has are named, and what two have is scanned once"
        ),
    )
    parser.add_argument(
        "--publish", metavar="URL", help="with --out: put matches and totals below s3://… or another URL, too"
    )
    parser.add_argument(
        "--plot", metavar="FILE.png", help="draw the balance over time, of blocks in files (extra plot: matplotlib)"
    )
    parser.add_argument("--quiet", action="store_true", help="no totals and no summary, only errors")
    configure_node(parser)


def run(args: argparse.Namespace) -> int:  # noqa: C901
    if args.on_workers:
        if args.paths or args.dask is None or args.out is None:
            raise ParameterError(
                "--on-workers PATH takes the place of other PATHs, and needs --dask tcp://HOST:PORT and --out DIR"
            )
    elif not args.paths:
        cause = ": --address takes everything up to the next option: put PATH before it" if args.address else ""
        raise ParameterError(f"no PATH of blocks given{cause} (see 'spvfilter scan --help')")
    if _STDIN in args.paths and len(args.paths) > 1:
        raise ParameterError("'-' is standard input and cannot be combined with another PATH")
    is_node = is_node_url(args.paths)
    if not is_node:
        check_without_node(args)
    for option, name in (("--out", args.out), ("--output", args.output), ("--plot", args.plot)):
        if remote.is_url(name):
            raise ParameterError(
                f"{option} is of this machine, not {name}: --out DIR --publish URL puts what is found elsewhere"
            )
    watch = watch_list(args.network, args.watch, args.address, args.paths)
    if not len(watch) and args.watch is None:
        raise ParameterError("nothing to watch for: give --watch FILE or --address ADDRESS")
    span = sources.BlockSpan(args.from_height, args.to_height, args.from_date)
    if span.is_limited and args.paths == [_STDIN]:
        raise ParameterError("a range of blocks can be taken of files, not of standard input")
    if is_node and args.out is not None:
        raise ParameterError("--out is for blocks in files: --output FILE keeps what is found in a node's blocks")
    if args.plot is not None:
        if args.paths == [_STDIN]:
            raise ParameterError("--plot is for blocks in files, not on standard input")
        if is_node:
            raise ParameterError("--plot is for blocks in files, not for those of a node")
        picture.check_picture(args.plot)
    if args.out is not None:
        return _run_in_parts(args, watch, span)
    if args.processes is not None or args.dask is not None or args.publish is not None or args.format == _PARQUET:
        raise ParameterError("--processes, --dask, --publish and --format parquet need --out DIR")
    matcher = matchers.Matcher(watch, jobs=args.jobs, check=args.check)
    if is_node:
        with _page(args.output) as page:
            return node.run(args, matcher, span, page)
    if args.output is not None:
        _refuse_to_overwrite_input(pathlib.Path(args.output), args.paths, args.watch)
        if args.paths != [_STDIN] and not any(
            remote.is_url(name) or pathlib.Path(name).exists() for name in args.paths
        ):
            raise SourceError(f"nothing to scan: {', '.join(args.paths)}: no such file or directory")
    with _page(args.output) as page:
        return files.run(args, matcher, span, page)


def _run_in_parts(args: argparse.Namespace, watch: WatchList, span: sources.BlockSpan) -> int:
    if args.output is not None:
        raise ParameterError("--out DIR has the output in it: --output FILE is for a scan without it")
    if args.paths == [_STDIN]:
        raise ParameterError("--out is for blocks in files, not on standard input")
    return directory.run(args, watch, span)


def _refuse_to_overwrite_input(output: pathlib.Path, paths: list[str], watch: str | None) -> None:
    if not output.exists():
        return
    for source in [pathlib.Path(name) for name in (*paths, watch) if name not in (None, _STDIN)]:
        inside = source.is_dir() and output.resolve().parent == source.resolve() and output.suffix in _BLOCK_SUFFIXES
        if inside or (source.exists() and output.samefile(source)):
            raise ParameterError(f"{output}: this would overwrite an input")


@contextmanager
def _page(output: str | None) -> Iterator[Page]:
    if output is None:
        yield Page(sys.stdout)
        return
    with pathlib.Path(output).open("w", encoding="utf-8", newline="") as file:
        yield Page(file)
