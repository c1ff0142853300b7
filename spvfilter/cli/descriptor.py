"""`spvfilter descriptor`: the checksum, type and first addresses of an output descriptor or extended public key."""

from __future__ import annotations

import argparse
import sys

from spvfilter.address import script_to_address
from spvfilter.cli.arguments import add_format, add_network, add_strict, format_of, standard_input, whole
from spvfilter.cli.term.page import Align, Page
from spvfilter.errors import ParameterError
from spvfilter.network import Network
from spvfilter.watch.descriptor.descriptor import Descriptor, check_wildcard, is_silent_text, parse_descriptor
from spvfilter.watch.descriptor.silent import SilentDescriptor, parse_silent
from spvfilter.watch.keychain import MAX_INDEXES
from spvfilter.watch.textfile import split_line

_LONGEST = 200_000  # longest line on standard input, in bytes (our choice): the longest descriptor fits
_MOST = 100_000  # largest --count (our choice)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter descriptor TEXT [OPTION ...]"
    parser.description = (
        "Show the checksum, type and first addresses of an output descriptor, such as wpkh(…), tr(…) or wsh(…). TEXT"
        " may also be an extended public key whose prefix names a script type: ypub, zpub, upub or vpub. Quote TEXT,"
        " since shells interpret brackets. Private keys are refused and never repeated. An sp() descriptor contains a"
        " private scan key, so it is read only from standard input: write - for TEXT."
    )
    parser.add_argument(
        "text",
        metavar="TEXT",
        help="the descriptor or key, or - for the first line of standard input, such as a line of a watch list"
        " with its label; the checksum may be omitted",
    )
    add_network(parser)
    parser.add_argument(
        "--count",
        metavar="N",
        type=whole(1, _MOST),
        default=5,
        help="number of addresses to show for each keychain; default %(default)s",
    )
    parser.add_argument(
        "--from-index",
        metavar="I",
        type=whole(0, MAX_INDEXES - 1),
        default=0,
        help="index of the first address to show; default %(default)s",
    )
    add_format(parser)
    add_strict(parser)


def run(args: argparse.Namespace) -> int:
    text = args.text
    if text == "-":
        text, _ = split_line(standard_input().readline(_LONGEST).decode("utf-8", "replace").strip())
    if is_silent_text(text):
        return _show_silent(parse_silent(text, args.network), args)
    found = parse_descriptor(text, args.network)
    check_wildcard(found, require_ranged=args.strict)
    ranges = [range(args.from_index, min(each.size, args.from_index + args.count)) for each in found]
    if not any(ranges):
        raise ParameterError(f"this descriptor has only index 0, so --from-index {args.from_index} shows nothing")
    page = Page(sys.stdout)
    if format_of(args.format, page) == "jsonl":
        for each, indexes in zip(found, ranges, strict=True):
            page.record(_facts(each, indexes, args.network))
        return 0
    for number, (each, indexes) in enumerate(zip(found, ranges, strict=True)):
        if number:
            page.line("")
        _show(page, each, indexes, args.network)
    return 0


def _show_silent(each: SilentDescriptor, args: argparse.Namespace) -> int:
    """Show the public keys and the address of sp(), but never its scan key."""
    page, (text, _, checksum) = Page(sys.stdout), each.text.partition("#")
    address = str(each.address)
    if format_of(args.format, page) == "jsonl":
        facts = {"descriptor": each.text, "checksum": checksum, "type": "sp", "network": args.network.name}
        page.record({**facts, "address": address})
        return 0
    page.facts(
        [
            ("descriptor", text),
            ("checksum", checksum),
            ("type", "sp"),
            ("network", args.network.name),
            ("address", address),
        ]
    )
    return 0


def _outputs(each: Descriptor, indexes: range, network: Network) -> list[tuple[int, str | None, str]]:
    """Return the index, address and script (in hex) of each of a descriptor's scripts at the given indexes."""
    return [
        (index, script_to_address(script, network), script.hex()) for index in indexes for script in each.scripts(index)
    ]


def _facts(each: Descriptor, indexes: range, network: Network) -> dict[str, object]:
    outputs = _outputs(each, indexes, network)
    return {
        "descriptor": each.text,
        "checksum": each.text.partition("#")[2],
        "type": each.kind,
        "network": network.name,
        "ranged": each.size > 1,
        "outputs": [{"index": index, "address": address, "script": script} for index, address, script in outputs],
    }


def _show(page: Page, each: Descriptor, indexes: range, network: Network) -> None:
    text, _, checksum = each.text.partition("#")
    page.facts([("descriptor", text), ("checksum", checksum), ("type", each.kind), ("network", network.name)])
    columns: dict[str, Align] = {"index": "right", "address or script": "left"}
    rows = [[str(index), address or script] for index, address, script in _outputs(each, indexes, network)]
    page.table(columns, rows, shrink="address or script")
