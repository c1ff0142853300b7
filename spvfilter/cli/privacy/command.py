"""`spvfilter privacy`: show how much a peer learns from the BIP-37 filter of a watch list or a database."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spvfilter._public import deferred
from spvfilter.cli.arguments import (
    Parser,
    add_format,
    add_network,
    add_watch_file,
    format_of,
    network_of,
    probability,
    watch_list,
    whole,
)
from spvfilter.cli.term.page import Page, complain
from spvfilter.errors import ParameterError
from spvfilter.filters.exposure import CHAIN_ADDRESSES, MAX_PROBES, SampledRate
from spvfilter.filters.fprate import DEFAULT_FP_RATE
from spvfilter.filters.privacy import MAX_ADDED, MAX_RESTARTS, PrivacyCase, PrivacyReport, privacy_report
from spvfilter.store.batch import Bip37Parameters
from spvfilter.wallet.reader import WalletStore

if TYPE_CHECKING:
    import json
    import random
else:
    json = deferred("json")
    random = deferred("random")


def configure(parser: Parser) -> None:
    parser.usage = "spvfilter privacy {[ADDRESS ...] [--watch FILE] | --db FILE} [OPTION ...]"
    parser.description = (
        "Show how much a peer learns from a wallet's BIP-37 filter: the number of other people's addresses that match,"
        " and the probability that a matching address is the wallet's. The cases are: now, after restarts, after"
        " additions, without decoys, and with bitcoinj's filter. Rates are computed from the bits and measured with"
        " random addresses. This works offline."
    )
    parser.add_argument("addresses", metavar="ADDRESS", nargs="*", help="an address or a descriptor to watch")
    add_watch_file(parser)
    parser.add_argument(
        "--db", metavar="FILE", help="a wallet's database: report on the filter that its client sends to peers"
    )
    add_network(parser, has_database=True)
    parser.add_argument(
        "--fp-rate",
        metavar="P",
        type=probability,
        help=f"false-positive rate; default: the database's, or {DEFAULT_FP_RATE}",
    )
    parser.add_argument(
        "--universe",
        metavar="U",
        type=whole(1, 1 << 48),
        default=CHAIN_ADDRESSES,
        help="number of addresses on the chain; default %(default)s",
    )
    parser.add_argument(
        "--restarts",
        metavar="K",
        type=whole(1, MAX_RESTARTS),
        default=10,
        help="number of client restarts; default %(default)s",
    )
    parser.add_argument(
        "--added",
        metavar="N",
        type=whole(1, MAX_ADDED),
        default=10,
        help="number of addresses added to the wallet later; default %(default)s",
    )
    parser.add_argument(
        "--probes",
        metavar="N",
        type=whole(0, MAX_PROBES),
        default=1_000_000,
        help="number of random addresses to test for each case, or 0 for none; default %(default)s",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        type=whole(0, (1 << 64) - 1),
        default=0,
        help="seed for the sample and, without a database, for the filter's tweak and decoys; default %(default)s",
    )
    add_format(parser)
    parser.add_argument(
        "--plot", metavar="FILE.png", help="draw a chart of the decoys of each case; needs matplotlib (`plot` extra)"
    )


def run(args: argparse.Namespace) -> int:
    if args.db is not None and (args.addresses or args.watch is not None):
        raise ParameterError("give a database or a watch list: --db cannot be combined with ADDRESS and --watch")
    if args.db is None and not args.addresses and args.watch is None:
        raise ParameterError("nothing to report on: give an ADDRESS, --watch FILE or --db FILE")
    if args.plot is not None:
        from spvfilter.cli.term.picture import check_picture

        check_picture(args.plot)
    made = _report(args)
    if args.plot is not None:
        from spvfilter.cli.privacy.plot import draw

        draw(made, args.universe, args.plot)
    page = Page(sys.stdout)
    if format_of(args.format, page) == "jsonl":
        page.record(_fields(made, args.universe))
    else:
        _tables(page, made, args.universe)
    return 0


class _Elements:
    """The BIP-37 elements in a wallet's database, in the form that `privacy_report` takes."""

    def __init__(self, elements: Sequence[bytes]) -> None:
        self._elements = elements

    def bloom_elements(self) -> Sequence[bytes]:
        return self._elements


def _report(args: argparse.Namespace) -> PrivacyReport:
    counts = {
        "universe": args.universe,
        "restarts": args.restarts,
        "added": args.added,
        "probes": args.probes,
        "seed": args.seed,
    }
    drawn = random.Random(args.seed)  # the filter is never sent, so its secret need not be random
    tweak, key = drawn.getrandbits(32), drawn.randbytes(32)
    if args.db is None:
        watch = watch_list(
            network_of(args), args.watch, args.addresses, strict=args.strict, max_derivations=args.max_derivations
        )
        return privacy_report(watch, args.fp_rate or DEFAULT_FP_RATE, tweak, key, **counts)
    network_of(args)  # raises an error if --network contradicts the database
    with WalletStore.open(args.db) as wallet, wallet.moment():
        source, known = _Elements(wallet.bip37_elements()), wallet.bip37_parameters()
    if known is None:
        complain("no peer of this wallet has been given a BIP-37 filter yet: the report uses a random tweak and secret")
        known = Bip37Parameters(tweak, 0, DEFAULT_FP_RATE, key)
    elements = known.elements if args.fp_rate in (None, known.fp_rate) and known.elements else None
    return privacy_report(
        source, args.fp_rate or known.fp_rate, known.tweak, known.decoy_key, elements=elements, **counts
    )


def _fields(made: PrivacyReport, universe: int) -> dict[str, object]:
    return {
        "size": made.size,
        "hash_funcs": made.hash_funcs,
        "capacity": made.capacity,
        "nominal_fp_rate": made.nominal_fp_rate,
        "real_fp_rate": made.real_fp_rate,
        "own": made.own,
        "outpoints": made.outpoints,
        "estimated_elements": made.estimated_elements,
        "universe": universe,
        "restarts": made.restarts,
        "added": made.added,
        "same_bytes_after_restarts": made.is_steady,
        "cases": [_case_fields(case) for case in made.cases],
    }


def _case_fields(case: PrivacyCase) -> dict[str, object]:
    exposure, sampled = case.exposure, case.sampled
    return {
        "case": case.name,
        "own": exposure.own,
        "fp_rate": exposure.fp_rate,
        "decoys": exposure.decoys,
        "posterior": exposure.posterior,
        "sampled": (
            None
            if sampled is None
            else {
                "hits": sampled.hits,
                "probes": sampled.probes,
                "fp_rate": sampled.rate,
                "interval_95": list(sampled.interval),
            }
        ),
    }


def _tables(page: Page, made: PrivacyReport, universe: int) -> None:
    page.title(f"Privacy of the wallet's filter among {universe:,} addresses")
    page.facts(
        [
            ("filter", f"{made.size:,} bytes, {made.hash_funcs} functions, made for {made.capacity:,} elements"),
            ("wallet", f"addresses, keys and data: {made.own:,}; outpoints: {made.outpoints:,}"),
            ("peer's estimate", f"{made.estimated_elements:,.0f} elements"),
            ("rate", f"{made.real_fp_rate:.3g}, requested: {made.nominal_fp_rate:g}"),
            (
                "restarts",
                "give the same bytes" if made.is_steady else "give different bytes, so peers can intersect them",
            ),
        ]
    )
    page.title("A peer that has")
    page.table(
        {"": "left", "rate": "right", "measured": "right", "decoys": "right", "probability": "right"},
        [
            (
                case.said,
                f"{case.exposure.fp_rate:.3g}",
                measured(case.sampled),
                _count(case.exposure.decoys),
                _share(case.exposure.posterior),
            )
            for case in made.cases
        ],
    )
    page.line("With several filters, an address matches if it matches all of them. Decoys are")
    page.line("other people's addresses that match. The last column is the probability that a")
    page.line("matching address is the wallet's. The rate is the probability that a random")
    page.line("address matches, computed from the bits. Measured is its 95 % confidence")
    page.line("interval in a sample.")
    page.line("A filteradd message reveals its element as the wallet's, whatever the filter is.")


def measured(sampled: SampledRate | None) -> str:
    """Format the 95 % confidence interval of a measured rate."""
    if sampled is None:
        return ""
    low, high = sampled.interval
    return f"{low:.2g}–{high:.2g}" if sampled.hits else f"under {high:.2g}"


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


def _share(probability: float) -> str:
    return f"1 in {1 / probability:,.0f}" if probability < 0.1 else f"{probability:.1%}"
