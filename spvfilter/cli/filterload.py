"""`spvfilter filterload`: make the BIP-37 filter of a watch list and print its payload."""

from __future__ import annotations

import argparse
import json
import sys

from spvfilter.cli.arguments import add_network, add_watch_file, hex_bytes, probability, watch_list, whole
from spvfilter.errors import ParameterError
from spvfilter.filters.bip37 import Bip37Filter, UpdateFlags
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.primitives import OutPoint
from spvfilter.wire.codec import encode_message

_FLAGS = {"all": UpdateFlags.ALL, "none": UpdateFlags.NONE, "p2pubkey-only": UpdateFlags.P2PUBKEY_ONLY}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter filterload [ADDRESS ...] [--watch FILE] [OPTION ...]"
    parser.description = "Make a BIP-37 filter that finds everything watched and print its filterload payload."
    parser.add_argument("addresses", metavar="ADDRESS", nargs="*", help="an address or a descriptor to watch")
    add_watch_file(parser)
    add_network(parser)
    parser.add_argument(
        "--data",
        metavar="HEX",
        type=hex_bytes,
        action="append",
        default=[],
        help="find any push of these bytes; repeatable",
    )
    parser.add_argument(
        "--outpoint",
        metavar="TXID:N",
        type=_outpoint,
        action="append",
        default=[],
        help="find the spend of this output; repeatable",
    )
    parser.add_argument(
        "--elements",
        metavar="N",
        type=whole(1, 0xFFFFFFFF),
        help=(
            "number of elements to size the filter for; default: a power of two, at least 256 and at least twice what"
            " is watched"
        ),
    )
    parser.add_argument(
        "--fp-rate",
        metavar="P",
        type=probability,
        default=DEFAULT_FP_RATE,
        help="false-positive rate; default %(default)s",
    )
    parser.add_argument(
        "--tweak",
        metavar="N",
        type=whole(0, 0xFFFFFFFF),
        help=(
            "default: random; give the old one to make the same filter again, as filters with different tweaks tell a"
            " peer more"
        ),
    )
    parser.add_argument(
        "--flags",
        choices=tuple(_FLAGS),
        default="all",
        help="outpoints that a peer adds when an output matches; default %(default)s",
    )
    parser.add_argument(
        "--format",
        choices=("hex", "raw", "message", "json"),
        default="hex",
        help=(
            "hex: the payload on one line (default); raw: its bytes; message: the whole P2P message with the network's"
            " magic, in hex on one line; json: the payload and the filter's parameters"
        ),
    )


def run(args: argparse.Namespace) -> int:
    if args.format == "raw" and sys.stdout.isatty():
        raise ParameterError("raw bytes would garble the terminal: redirect them with > FILE, or use --format hex")
    watch = watch_list(args.network, args.watch, args.addresses)
    for element in args.data:
        watch.add_data(element)
    for outpoint in args.outpoint:
        watch.add_outpoint(outpoint)
    if not len(watch) and args.watch is None:
        raise ParameterError("nothing to watch for: give an ADDRESS, --watch FILE, --data or --outpoint")
    made = Bip37Filter.for_watchlist(watch, args.fp_rate, args.tweak, _FLAGS[args.flags], elements=args.elements)
    payload = bytes(made)
    match args.format:
        case "raw":
            sys.stdout.buffer.write(payload)
        case "message":
            print(encode_message(args.network.magic, "filterload", payload).hex())
        case "json":
            print(json.dumps(_facts(made, args.flags)))
        case _:
            print(payload.hex())
    return 0


def _facts(made: Bip37Filter, flags: str) -> dict[str, object]:
    return {
        "payload": bytes(made).hex(),
        "size": made.size,  # bytes
        "hash_funcs": made.hash_funcs,
        "tweak": made.tweak,
        "flags": flags,
        "elements": made.capacity,
        "nominal_fp_rate": made.nominal_fp_rate,
        "real_fp_rate": made.current_fp_rate,
    }


def _outpoint(text: str) -> OutPoint:
    try:
        return OutPoint.from_text(text)
    except ParameterError:  # its message repeats the text, which may be a key
        raise argparse.ArgumentTypeError(
            "expected TXID:N, a txid of 64 hex digits and the number of an output"
        ) from None
