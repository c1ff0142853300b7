"""`spvfilter inspect`: identify bytes (filter, transaction, block, headers, P2P message) and print their parts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from spvfilter.cli.arguments import add_format, add_network, format_of, read_hex_or_bytes
from spvfilter.cli.inspect import payloads
from spvfilter.cli.inspect.message import magic_of, message
from spvfilter.cli.inspect.payloads import Finding
from spvfilter.cli.term.page import Page, complain
from spvfilter.errors import FormatError, ParameterError, counted
from spvfilter.network import Network
from spvfilter.protocol import ENVELOPE_SIZE, MAX_BLOCK_SIZE

_MAX_SIZE = MAX_BLOCK_SIZE + ENVELOPE_SIZE
"""Largest input in bytes: a message that contains a block."""
_MOST_REFUSALS = 3
"""Largest number of parser errors that are shown."""
# the parser of each kind, the likeliest first, and the fact that proves the kind, if there is one
PARSERS: dict[str, tuple[Callable[[bytes, Network], Finding], str]] = {
    "block": (payloads.block, "merkle root ok"),
    "merkleblock": (payloads.merkleblock, "proof ok"),
    "headers": (payloads.headers, "work ok"),
    "filterload": (payloads.filterload, ""),
    "transaction": (payloads.transaction, ""),
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Identify bytes and show what they contain: a filterload, merkleblock or headers payload, a transaction, a"
        " block, or a whole P2P message with its envelope."
    )
    parser.add_argument(
        "what",
        metavar="HEX|FILE|-",
        nargs="?",
        default="-",
        help="hex digits, or a file of bytes or of hex digits; default: standard input (-)",
    )
    add_network(parser)
    add_format(parser)


def run(args: argparse.Namespace) -> int:
    raw = read_hex_or_bytes(args.what, _MAX_SIZE, "a message with a block")
    found = _identify(raw, args.network)
    page = Page(sys.stdout)
    if format_of(args.format, page) == "jsonl":
        page.line(json.dumps(_record(found[0])))
    else:
        _show(found[0], page)
    if others := [other.kind for other in found[1:]]:
        complain(f"warning: these bytes are also a well-formed {' and a well-formed '.join(others)}")
    return 0


def _identify(raw: bytes, network: Network) -> list[Finding]:
    """Return a finding for each kind that these bytes can be parsed as, the likeliest first.

    If there is none, raises ParameterError with the parsers' errors.
    """
    if magic_of(raw) and raw[4:5].isalpha():
        try:
            return [message(raw)]
        except FormatError as error:
            raise ParameterError(f"not a P2P message ({counted(len(raw), 'byte')}): {error}") from None
    found: list[Finding] = []
    refusals: list[tuple[int, str]] = []
    for kind, (parse, settled_by) in PARSERS.items():
        try:
            finding = parse(raw, network)
        except FormatError as error:
            refusals.append((error.offset, f"as a {kind}: {error}"))
            continue
        if finding.fact(settled_by):
            return [finding]
        found.append(finding)
    if found:
        return sorted(found, key=lambda finding: finding.fact(PARSERS[finding.kind][1]) is False)
    refusals.sort(key=lambda refusal: -refusal[0])  # the parser that read the most bytes is most likely the right one
    said = "; ".join(text for _, text in refusals[:_MOST_REFUSALS])
    raise ParameterError(
        "not a filterload, transaction, block, merkleblock, headers or message"
        f" ({counted(len(raw), 'byte')}){_hint(raw)}; {said}"
    )


def _hint(raw: bytes) -> str:
    owner = magic_of(raw)
    return f" (a blk*.dat file of {owner}? 'spvfilter scan' reads those)" if owner else ""


def _record(finding: Finding) -> dict[str, object]:
    record: dict[str, object] = {"kind": finding.kind}
    record.update((fact.name.replace(" ", "_"), fact.value) for fact in finding.facts)
    record.update((table.name, table.records) for table in finding.tables)
    if finding.payload is not None:
        record["payload"] = _record(finding.payload)
    return record


def _show(finding: Finding, page: Page) -> None:
    page.line(finding.title, "bold")
    if finding.facts:
        page.facts([(fact.name, str(fact.value) if fact.shown is None else fact.shown) for fact in finding.facts])
    for table in finding.tables:
        page.title(table.title)
        if table.rows:
            page.table(table.columns, table.rows)
    if finding.payload is not None and (finding.payload.facts or finding.payload.tables):
        page.line()
        _show(finding.payload, page)
