"""`spvfilter watchlist`: compile a watch list, so that long lists load instantly, and verify compiled lists."""

from __future__ import annotations

import argparse
from pathlib import Path

from spvfilter.cli.arguments import MAX_DERIVATIONS, Parser, add_network, watch_list
from spvfilter.cli.term.page import complain
from spvfilter.errors import ParameterError
from spvfilter.watch import compiled


def configure(parser: Parser) -> None:
    parser.description = (
        "Compile a watch list. Commands that take --watch FILE map a compiled list into memory, so that ten million"
        " addresses load instantly, and all processes share the memory."
    )
    building = parser.add_action(
        "build",
        "compile a watch list",
        "Write the entries, labels, accounts and outpoints of a watch list to a compiled file. Descriptors are"
        " refused, because payments move their windows of watched addresses. The new file replaces an existing one,"
        " even while a scan uses it.",
    )
    building.add_argument("list", metavar="LIST", help="the watch list; - is standard input")
    building.add_argument("-o", "--output", metavar="FILE", required=True, help="the compiled file, such as list.spvwl")
    add_network(building)
    building.set_defaults(act=_build)
    verifying = parser.add_action(
        "verify",
        "read a whole compiled list and report damage",
        "Read a whole compiled watch list. Do this once for a file from somebody else, because an attacker can hide"
        " entries in it without a scan noticing. The command needs as much memory as the size of the file.",
    )
    verifying.add_argument("file", metavar="FILE", help="the compiled watch list")
    verifying.set_defaults(act=_verify)


def run(args: argparse.Namespace) -> int:
    args.act(args)
    return 0


def _build(args: argparse.Namespace) -> None:
    output = Path(args.output)
    if args.list != "-" and output.exists() and output.samefile(args.list):
        raise ParameterError(
            f"{args.output}: this would overwrite the watch list itself: choose a different file with -o"
        )
    watch = watch_list(args.network, args.list, (), strict=False, max_derivations=MAX_DERIVATIONS, allows_patterns=True)
    watch.compile(output)
    complain(f"{_entries(len(watch))} compiled to {args.output}, {output.stat().st_size:,} bytes")


def _verify(args: argparse.Namespace) -> None:
    complain(f"{args.file}: {_entries(compiled.verify(Path(args.file)))}, no damage")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"
