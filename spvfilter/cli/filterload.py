"""`spvfilter filterload`: make the BIP-37 filter of a watch list and print its payload."""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred
from spvfilter.cli.arguments import add_network, add_watch_file, hex_bytes, network_of, probability, watch_list, whole
from spvfilter.cli.term.page import complain
from spvfilter.errors import FpRateWarning, ParameterError, counted
from spvfilter.filters.bip37 import (
    LOW_RATE,
    MIN_DECOY_KEY,
    NO_DECOYS,
    Bip37Filter,
    BloomSource,
    UpdateFlags,
    wallet_capacity,
)
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.network import MAINNET, Network
from spvfilter.primitives import OutPoint
from spvfilter.store.batch import Bip37Parameters
from spvfilter.wallet.reader import WalletStore
from spvfilter.wire.codec import encode_message

if TYPE_CHECKING:
    import hmac
    import pathlib
else:
    hmac = deferred("hmac")
    pathlib = deferred("pathlib")

_FLAGS = {"all": UpdateFlags.ALL, "none": UpdateFlags.NONE, "p2pubkey-only": UpdateFlags.P2PUBKEY_ONLY}
_MAX_SECRET = 4_096  # largest size of a secret file, in bytes (our choice): a larger file is probably the wrong one
_HEX_TEXT = frozenset(b"0123456789abcdefABCDEF \t\r\n")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "spvfilter filterload [ADDRESS ...] [--watch FILE] [OPTION ...]"
    parser.description = (
        "Make a BIP-37 filter that finds everything watched and print its filterload payload. A filter with few"
        " addresses matches almost nothing else, so it hides nothing. With --db or --secret-file, random elements"
        " make other people's addresses match: the decoys."
    )
    parser.add_argument("addresses", metavar="ADDRESS", nargs="*", help="an address or a descriptor to watch")
    add_watch_file(parser)
    add_network(parser, has_database=True)
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
    decoys = parser.add_mutually_exclusive_group()
    decoys.add_argument(
        "--db",
        metavar="FILE",
        help=(
            "a wallet's database, which is not changed: use the secret, tweak, rate and size of the wallet's own"
            " filter. If nothing else is watched, also use its addresses and outpoints"
        ),
    )
    decoys.add_argument(
        "--secret-file",
        metavar="FILE",
        help=(
            f"derive the decoys and the tweak from the secret in this file: {MIN_DECOY_KEY} bytes or more, raw or as"
            " hex digits. The same file and the same watch list always make the same filter"
        ),
    )
    parser.add_argument(
        "--elements",
        metavar="N",
        type=whole(1, 0xFFFFFFFF),
        help=(
            "number of elements to size the filter for; default: the database's, or a power of two that is at least"
            " 256 and at least twice the number of watched elements"
        ),
    )
    parser.add_argument(
        "--fp-rate",
        metavar="P",
        type=probability,
        help=f"false-positive rate; default: the database's, or {DEFAULT_FP_RATE}",
    )
    parser.add_argument(
        "--tweak",
        metavar="N",
        type=whole(0, 0xFFFFFFFF),
        help=(
            "default: the database's, or derived from the secret file, or random. Keep it: a peer that has filters with"
            " different tweaks learns more"
        ),
    )
    parser.add_argument(
        "--flags",
        choices=tuple(_FLAGS),
        default="all",
        help="which outpoints a peer adds when an output matches; default %(default)s",
    )
    parser.add_argument(
        "--format",
        choices=("hex", "raw", "message", "jsonl"),
        default="hex",
        help=(
            "hex (default): the payload on one line; raw: its bytes; message: the P2P message on one line, in hex;"
            " jsonl: the payload and the filter's parameters as one JSON object"
        ),
    )


def run(args: argparse.Namespace) -> int:
    if args.format == "raw" and sys.stdout.isatty():
        raise ParameterError("raw bytes would garble the terminal: redirect them with > FILE, or use --format hex")
    plan = _from_database(args) if args.db is not None else _from_options(args)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NO_DECOYS, FpRateWarning)  # it names an argument of the library
        made = Bip37Filter.for_watchlist(
            plan.source,
            plan.fp_rate,
            plan.tweak if args.tweak is None else args.tweak,
            _FLAGS[args.flags],
            elements=plan.elements if args.elements is None else args.elements,
            decoy_key=plan.decoy_key,
        )
    payload = bytes(made)
    match args.format:
        case "raw":
            sys.stdout.buffer.write(payload)
        case "message":
            print(encode_message(plan.network.magic, "filterload", payload).hex())
        case "jsonl":
            print(json.dumps(_facts(made, args.flags)))
        case _:
            print(payload.hex())
    if plan.decoy_key is None:
        _warn_of_missing_decoys(made, plan.fp_rate)
    return 0


class _Plan(NamedTuple):
    """The parameters of the filter. None means the default of Bip37Filter.for_watchlist."""

    network: Network
    source: BloomSource
    fp_rate: float
    tweak: int | None = None
    elements: int | None = None
    decoy_key: bytes | None = None


class _Elements(list[bytes]):
    """The elements in a wallet's database, as the source of a filter."""

    def bloom_elements(self) -> list[bytes]:
        return self


def _from_options(args: argparse.Namespace) -> _Plan:
    """Plan a filter according to the arguments, with decoys if there is a secret file."""
    network = args.network or MAINNET
    source = _watched(args, network)
    if source is None:
        raise ParameterError("nothing to watch for: give an ADDRESS, --watch FILE, --db FILE, --data or --outpoint")
    rate = args.fp_rate or DEFAULT_FP_RATE
    if args.secret_file is None:
        return _Plan(network, source, rate)
    secret = _secret(args.secret_file)
    tweak = hmac.digest(secret, b"spvfilter filterload tweak", "sha256")[:4]
    return _Plan(network, source, rate, int.from_bytes(tweak, "little"), decoy_key=secret)


def _from_database(args: argparse.Namespace) -> _Plan:
    """Plan the wallet's own filter, or a filter for the arguments that uses the wallet's decoys."""
    network = network_of(args)
    with WalletStore.open(args.db) as wallet, wallet.moment():
        known, elements = wallet.bip37_parameters(), _Elements(wallet.bip37_elements())
    if known is None:
        raise ParameterError(
            f"{args.db}: no peer of this wallet has been given a BIP-37 filter yet: follow the wallet once"
            " (spvfilter watch --db FILE --connect HOST:PORT --mode bip37), or give --secret-file"
        )
    source = _watched(args, network) or elements
    rate = args.fp_rate or known.fp_rate
    return _Plan(network, source, rate, known.tweak, _capacity(source, rate, known), known.decoy_key)


def _capacity(source: BloomSource, fp_rate: float, known: Bip37Parameters) -> int:
    """Return the number of elements for which LightClient sizes this filter."""
    count = len(list(source.bloom_elements()))
    if fp_rate == known.fp_rate and count <= known.elements:
        return known.elements
    return wallet_capacity(max(1, count), fp_rate)


def _watched(args: argparse.Namespace, network: Network) -> BloomSource | None:
    """Return the watch list that the arguments describe, or None if they name nothing to watch."""
    if not (args.addresses or args.watch is not None or args.data or args.outpoint):
        return None
    watch = watch_list(network, args.watch, args.addresses, strict=args.strict, max_derivations=args.max_derivations)
    for element in args.data:
        watch.add_data(element)
    for outpoint in args.outpoint:
        watch.add_outpoint(outpoint)
    return watch


def _secret(path: str) -> bytes:
    """Read the secret in a file, raw or as hex digits. Raises ParameterError or OSError."""
    with pathlib.Path(path).open("rb") as file:
        data = file.read(_MAX_SECRET + 1)
    advice = f"expected a secret of {MIN_DECOY_KEY} bytes or more, such as `openssl rand -hex 32` prints"
    if len(data) > _MAX_SECRET:
        raise ParameterError(f"{path}: the file is longer than {_MAX_SECRET:,} bytes: {advice}")
    if _HEX_TEXT.issuperset(data):
        digits = b"".join(data.split()).decode("ascii")
        if len(digits) % 2:
            raise ParameterError(f"{path}: an odd number of hex digits, {len(digits)}: {advice}")
        data = bytes.fromhex(digits)
    if len(data) < MIN_DECOY_KEY:
        raise ParameterError(f"{path}: {counted(len(data), 'byte')}: {advice}")
    return data


def _warn_of_missing_decoys(made: Bip37Filter, fp_rate: float) -> None:
    real = f"real false-positive rate is {made.current_fp_rate:.2g}"
    if made.current_fp_rate < fp_rate * LOW_RATE:
        complain(
            f"warning: the filter has no decoys and hides nothing from the peer: its {real}, not {fp_rate:g}; give --db"
            " or --secret-file"
        )
    else:
        complain(f"warning: the filter has no decoys, and its {real}")


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
