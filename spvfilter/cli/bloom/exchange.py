"""`spvfilter bloom import` and `export`: other libraries' filter files."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from spvfilter.bloom.base import allocate
from spvfilter.bloom.exchange.bitsandblooms import read_bits_and_blooms
from spvfilter.bloom.exchange.cassandra import read_cassandra
from spvfilter.bloom.exchange.guava import read_guava, write_guava
from spvfilter.bloom.exchange.parts import RBLOOM, REDIS, viewed
from spvfilter.bloom.exchange.pybloomlive import is_scalable, read_pybloom_live, read_scalable_pybloom_live
from spvfilter.bloom.exchange.redisbloom import read_redisbloom, redisbloom_bytes, redisbloom_chunks
from spvfilter.bloom.exchange.spark import read_spark, write_spark
from spvfilter.bloom.fileformat import read_into
from spvfilter.bloom.filter import BloomFilter
from spvfilter.cli.arguments import Parser, standard_input
from spvfilter.cli.bloom.raw import refuse_output, write_bytes
from spvfilter.cli.bloom.storage import FilterStorage
from spvfilter.cli.term.page import complain
from spvfilter.errors import FormatError, ParameterError, SourceError
from spvfilter.kernel import Encoding

_MOST = 1 << 30  # Most bytes to read from standard input (our choice). Files have no such limit.
_WRITERS: dict[str, Callable[[BloomFilter], bytes]] = {
    "guava": write_guava,
    "redisbloom": redisbloom_bytes,
    "spark": write_spark,
}
# Options of each format besides --from.
_OPTIONS = {
    "bits-and-blooms": ("text",),
    "cassandra": ("release", "text"),
    "guava": ("funnel", "charset"),
    "pybloom-live": ("release",),
    "redisbloom": ("text",),
    "spark": ("text",),
}
_RBLOOM = "rbloom"
# Options that a format cannot do without.
_NEEDED = {"cassandra": "release", "guava": "funnel"}


def configure_import(action: Parser) -> None:
    """Add the arguments of `import`."""
    action.add_argument("filter", metavar="FILTER", help="the filter to make")
    action.add_argument("foreign", metavar="FOREIGN", nargs="?", default="-", help="the file; default: standard input")
    action.add_argument(
        "--from", dest="make", metavar="LIBRARY", choices=[*_OPTIONS, _RBLOOM], required=True, help=", ".join(_OPTIONS)
    )
    action.add_argument(
        "--funnel", metavar="FUNNEL", help="for guava: the filter's funnel: byteArray, string, integer or long"
    )
    action.add_argument("--charset", metavar="NAME", help="for guava: charset of the string funnel; only utf-8")
    action.add_argument(
        "--release",
        metavar="N",
        type=int,
        help="for cassandra: 2 to 5; for pybloom-live: 3 or 4, if an error message asks for it",
    )
    action.add_argument("--text", action="store_true", default=None, help="the keys are text, not bytes")


def configure_export(action: Parser) -> None:
    """Add the arguments of `export`."""
    action.add_argument("filter", metavar="FILTER")
    action.add_argument(
        "--to", dest="make", metavar="LIBRARY", choices=[*_WRITERS], required=True, help=", ".join(_WRITERS)
    )
    action.add_argument("--output", metavar="FILE", help="a new file; default: standard output")


def read_foreign(store: FilterStorage, args: argparse.Namespace) -> None:
    """Execute `spvfilter bloom import`. Raises SourceError, ParameterError, TooLargeError or OSError."""
    name = "standard input" if args.foreign == "-" else args.foreign
    if args.make == _RBLOOM:
        raise ParameterError(f"{name} is {RBLOOM}")
    for option in ("funnel", "charset", "release", "text"):
        if getattr(args, option) is not None and option not in _OPTIONS[args.make]:
            raise ParameterError(f"--from {args.make} does not take --{option}: omit it")
    needed = _NEEDED.get(args.make)
    if needed is not None and getattr(args, needed) is None:
        raise ParameterError(f"a {args.make} file does not contain its {needed}: give --{needed}; see --help")
    try:
        made = _parsed(args, _read(args.foreign))
    except FormatError as error:
        raise SourceError(f"{name}: {error}") from None
    if made.encoding is Encoding.CALLABLE:
        raise ParameterError(f"a filter file cannot hold the charset {args.charset or 'UTF-16'}: use Python instead")
    store.write(args.filter, made, replace=args.force)
    complain(f"{name}: about {made.approx_len:,.0f} keys, rate {made.current_fp_rate:.3g}")


def _parsed(args: argparse.Namespace, raw: memoryview) -> BloomFilter:
    encode = "utf-8" if args.text else None
    match args.make:
        case "guava":
            return read_guava(raw, funnel=args.funnel, charset=args.charset)
        case "cassandra":
            return read_cassandra(raw, release=args.release, encode=encode)
        case "pybloom-live" if is_scalable(raw):
            return _single(read_scalable_pybloom_live(raw, version=args.release))
        case "pybloom-live":
            return read_pybloom_live(raw, version=args.release)
        case "bits-and-blooms":
            return read_bits_and_blooms(raw, encode=encode)
        case "spark":
            return read_spark(raw, encode=encode)
    return _single(read_redisbloom(redisbloom_chunks(viewed(raw, REDIS)), encode=encode))


def _single(filters: list[BloomFilter]) -> BloomFilter:
    if len(filters) != 1:
        raise FormatError(
            f"expected 1 sub-filter, got {len(filters)}: read them in Python", offset=8, field="sub-filters"
        )
    return filters[0]


def write_foreign(store: FilterStorage, args: argparse.Namespace) -> None:
    """Execute `spvfilter bloom export`. Raises SourceError, ParameterError or OSError."""
    path = refuse_output(args.output, force=args.force)
    made = store.read(args.filter)
    if not isinstance(made, BloomFilter):
        raise ParameterError(f"{args.filter} is a {type(made).__name__}: only a plain filter can be exported")
    raw = _WRITERS[args.make](made)
    write_bytes(path, memoryview(raw))
    complain(f"{len(raw)} bytes")


def _read(name: str) -> memoryview:
    """Return the bytes of a file or of standard input. Raises SourceError, TooLargeError or OSError."""
    with ExitStack() as stack:
        stream = standard_input() if name == "-" else stack.enter_context(Path(name).open("rb"))
        status = os.fstat(stream.fileno())
        if stat.S_ISREG(status.st_mode) and name != "-":
            view = memoryview(allocate(status.st_size)).cast("B")
            read_into(stream, view)
            return view
        raw = stream.read(_MOST + 1)
        if len(raw) > _MOST:
            raise SourceError(f"more than {_MOST} bytes on standard input: give a file instead")
        return memoryview(raw)
