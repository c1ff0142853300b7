"""`spvfilter bloom size`: the size and the expected rates of a filter before it is made."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, NamedTuple

from spvfilter._public import deferred
from spvfilter.bloom import sizing
from spvfilter.bloom.fileformat import MAX_CELLS, MAX_HASH_FUNCS
from spvfilter.bloom.growth import Grown, Growth
from spvfilter.bloom.size import Expected, Size
from spvfilter.cli.arguments import Parser, add_format, format_of, probability, whole
from spvfilter.cli.bloom.storage import FINGERPRINTS
from spvfilter.cli.term.page import Page
from spvfilter.errors import ParameterError

if TYPE_CHECKING:
    import json
else:
    json = deferred("json")

_LOADS = ((1, 2, "half"), (1, 1, "full"), (2, 1, "double"))
"""Rows of the table of loads: a fraction of the capacity (numerator, denominator), and the name of the row."""
_GROWN = (*_LOADS, (10, 1, "×10"), (100, 1, "×100"))


def configure(parser: Parser) -> None:
    parser.add_argument("--capacity", metavar="N", type=whole(1, 1 << 48), help="number of lines")
    parser.add_argument("--fp-rate", metavar="P", type=probability, help="false-positive rate with N lines")
    parser.add_argument("--bits", metavar="M", type=whole(1, MAX_CELLS), help="number of bits")
    parser.add_argument(
        "--hash-funcs",
        metavar="K",
        type=whole(1, MAX_HASH_FUNCS),
        help="number of hash functions; default: the best one",
    )
    add_format(parser)
    parser.add_argument(
        "--plot",
        metavar="FILE.png",
        help="draw charts of rate against load, and of size against hash functions; needs matplotlib (`plot` extra)",
    )


def show(args: argparse.Namespace) -> None:
    asked = {"--capacity": args.capacity, "--fp-rate": args.fp_rate, "--bits": args.bits}
    given = [option for option, value in asked.items() if value is not None]
    if len(given) != 2:
        raise ParameterError(f"give two of --capacity, --fp-rate and --bits, not {' and '.join(given) or 'none'}")
    sizes = Sizes.of(Size.of(args.capacity, args.fp_rate, args.hash_funcs, bits=args.bits))
    if args.plot is not None:
        from spvfilter.cli.bloom.plot import draw

        draw(sizes.chosen, sizes.rate, args.plot)
    page = Page(sys.stdout)
    if format_of(args.format, page) == "jsonl":
        page.record(_fields(sizes))
    else:
        _tables(page, sizes)


class Static(NamedTuple):
    """The size of the smallest static filter that contains the same keys at the same rate or a lower one."""

    fingerprint_bits: int
    """Number of bits in a fingerprint."""
    bits_per_key: float
    """Number of bits per key."""
    byte_size: int
    """Size of the table in bytes."""

    @classmethod
    def of(cls, keys: int, rate: float) -> Static | None:
        """Return the smallest static filter for the keys, or None if the rate is too low or there are too many keys."""
        bits = next((bits for bits in FINGERPRINTS if 2.0**-bits <= rate), None)
        if bits is None:
            return None
        try:
            per_key = sizing.fuse_bits_per_item(keys, bits)
        except ParameterError:
            return None
        return cls(bits, per_key, round(per_key * keys / 8))


class Sizes(NamedTuple):
    """The size of a filter, and the sizes of other filters for the same number of keys and the same rate."""

    chosen: Size
    """Size of the filter that the user asks about."""
    rate: float
    """The requested false-positive rate or, if none was requested, the rate of a full filter."""
    best: Size | None
    """Size of a filter with the best number of hash functions. None if it cannot be computed."""
    taylor: Size | None
    """Size of a filter according to the Taylor series of `bits_for_taylor`. None if it cannot be computed."""
    growth: Growth | None
    """The growth of a scalable filter. None if it cannot be computed."""

    @classmethod
    def of(cls, chosen: Size) -> Sizes:
        rate = chosen.fp_rate or sizing.fp_rate(chosen.bits, chosen.hash_funcs, chosen.capacity)
        if not 0 < rate < 1:
            return cls(chosen, rate, None, None, None)
        try:
            by_taylor = sizing.bits_for_taylor(chosen.capacity, rate, chosen.hash_funcs)
            best, taylor = Size.of(chosen.capacity, rate), Size(chosen.capacity, rate, by_taylor, chosen.hash_funcs)
            growth = Growth(chosen.capacity, rate)
            growth.expected(_GROWN[-1][0] * chosen.capacity)
        except ParameterError:  # the numbers are too large for a filter
            return cls(chosen, rate, None, None, None)
        return cls(chosen, rate, best, taylor, growth)

    def loads(self) -> list[tuple[str, Expected]]:
        return [(name, self.chosen.expected(-(-self.chosen.capacity * of // by))) for of, by, name in _LOADS]

    def grown(self) -> list[tuple[str, Grown]]:
        if self.growth is None:
            return []
        return [(name, self.growth.expected(-(-self.chosen.capacity * of // by))) for of, by, name in _GROWN]

    def rows(self) -> list[tuple[str, Size]]:
        """Return the sizes to compare, each with its name."""
        rows = [("this one", self.chosen)]
        rows += [("by Taylor series", self.taylor)] if self.taylor is not None else []
        return rows + ([("fewest bits", self.best)] if self.best is not None else [])

    @property
    def static(self) -> Static | None:
        """Size of a static filter."""
        return Static.of(self.chosen.capacity, self.rate)

    @property
    def while_filling(self) -> float:
        return sizing.fp_rate_while_filling(self.chosen.bits, self.chosen.hash_funcs, self.chosen.capacity)


def _fields(sizes: Sizes) -> dict[str, object]:
    chosen = sizes.chosen
    return {
        "capacity": chosen.capacity,
        "fp_rate": chosen.fp_rate,
        **_size_fields(chosen),
        "optimal_bits_per_key": sizing.optimal_bits_per_item(sizes.rate) if 0 < sizes.rate < 1 else None,
        "taylor": None if sizes.taylor is None else _size_fields(sizes.taylor),
        "best": None if sizes.best is None else _size_fields(sizes.best),
        "loads": [_expected_fields(expected) for _, expected in sizes.loads()],
        "fp_rate_while_filling": sizes.while_filling,
        "static": None
        if (static := sizes.static) is None
        else {"fingerprint_bits": static[0], "bits_per_key": static[1], "bytes": static[2]},
        "counting": {
            "bytes": chosen.counting_byte_size,
            "bits_per_key": 4 * chosen.bits_per_key,
            "loads": [
                {"keys": of.items, "counter_overflow": of.counter_overflow, "stuck_counters": of.stuck_counters}
                for _, of in sizes.loads()
            ],
        },
        "scalable": [
            {
                "keys": of.items,
                "slices": of.slices,
                "bits": of.bits,
                "bytes": -(-of.bits // 8),
                "bits_per_key": of.bits / of.items,
            }
            | {"most_hash_funcs": of.most_hash_funcs, "fp_rate": of.fp_rate}
            for _, of in sizes.grown()
        ],
    }


def _size_fields(size: Size) -> dict[str, object]:
    rates = size.expected(size.capacity)
    return {
        "bits": size.bits,
        "bytes": size.byte_size,
        "bits_per_key": size.bits_per_key,
        "hash_funcs": size.hash_funcs,
        "fp_rate_at_capacity": rates.fp_rate,
        "fp_rate_exact_at_capacity": rates.fp_rate_exact,
    }


def _expected_fields(expected: Expected) -> dict[str, object]:
    return {
        "keys": expected.items,
        "fill": expected.fill,
        "fp_rate": expected.fp_rate,
        "fp_rate_exact": expected.fp_rate_exact,
    }


def _tables(page: Page, sizes: Sizes) -> None:
    chosen = sizes.chosen
    asked = "" if chosen.fp_rate is None else f" at a rate of {chosen.fp_rate:g}"
    page.title(f"Bloom filter for {chosen.capacity:,} keys{asked}")
    page.table(
        {
            "size": "left",
            "functions": "right",
            "bits": "right",
            "bits/key": "right",
            "memory": "right",
            "rate when full": "right",
        },
        [
            (
                name,
                str(of.hash_funcs),
                f"{of.bits:,}",
                f"{of.bits_per_key:.3f}",
                _memory(of.byte_size),
                _rate(of.expected(of.capacity)),
            )
            for name, of in sizes.rows()
        ],
    )
    page.title("Rates by load")
    page.table(
        {"load": "left", "keys": "right", "bits set": "right", "rate": "right", "exact rate": "right"},
        [
            (
                name,
                f"{of.items:,}",
                f"{of.fill:.2%}",
                f"{of.fp_rate:.5g}",
                "" if of.fp_rate_exact is None else f"{of.fp_rate_exact:.5g}",
            )
            for name, of in sizes.loads()
        ],
    )
    page.line(f"While it fills up, a share of {sizes.while_filling:.3g} of new keys is reported as already added.")
    if (static := sizes.static) is not None:
        page.title(f"As a static filter: {_memory(static.byte_size)}, {static.bits_per_key:.3f} bits per key")
        smaller = "smaller" if static.byte_size < chosen.byte_size else "larger"
        page.line(f"It is {smaller} than this filter. Its rate is {2.0**-static.fingerprint_bits:.3g}.")
    page.title(
        f"As a counting filter: {_memory(chosen.counting_byte_size)}, {4 * chosen.bits_per_key:.3f} bits per key, the"
        " same rates"
    )
    page.table(
        {"load": "left", "keys": "right", "share stuck at 15": "right", "stuck counters": "right"},
        [
            (name, f"{of.items:,}", f"{of.counter_overflow:.3g}", f"{of.stuck_counters:.3g}")
            for name, of in sizes.loads()
        ],
    )
    page.line("A counter that reaches 15 stays there, even if its keys are removed.")
    if grown := sizes.grown():
        page.title(f"As a scalable filter that begins with {chosen.capacity:,} keys")
        page.table(
            {
                "load": "left",
                "keys": "right",
                "slices": "right",
                "memory": "right",
                "bits/key": "right",
                "rate": "right",
            },
            [
                (
                    name,
                    f"{of.items:,}",
                    str(of.slices),
                    _memory(-(-of.bits // 8)),
                    f"{of.bits / of.items:.3f}",
                    f"{of.fp_rate:.5g}",
                )
                for name, of in grown
            ],
        )


def _memory(size: float) -> str:
    """Format a number of bytes in powers of 1,000."""
    units = iter(("bytes", "kB", "MB", "GB", "TB", "PB"))
    unit = next(units)
    while size >= 1_000 and unit != "PB":
        size, unit = size / 1_000, next(units)
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


def _rate(expected: Expected) -> str:
    return f"{expected.fp_rate if expected.fp_rate_exact is None else expected.fp_rate_exact:.5g}"
