"""`spvfilter bloom`: generic Bloom filters of lines, in files or in Redis."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite, sqrt
from pathlib import Path

from spvfilter.bloom.base import OnFull
from spvfilter.bloom.fileformat import COUNTER_KINDS, MAX_CELLS, MAX_HASH_FUNCS
from spvfilter.bloom.hashing import FastHash, HashFamily, SipHash
from spvfilter.cli.arguments import Parser, add_format, format_of, hex_bytes, probability, whole
from spvfilter.cli.bloom.exchange import configure_export, configure_import, read_foreign, write_foreign
from spvfilter.cli.bloom.keys import KeyLines
from spvfilter.cli.bloom.raw import counter_bits, read_raw, write_raw
from spvfilter.cli.bloom.remote import RedisStorage
from spvfilter.cli.bloom.size import configure as configure_size, show
from spvfilter.cli.bloom.storage import (
    FINGERPRINTS,
    FileStorage,
    FilterFacts,
    FilterKind,
    FilterShape,
    FilterStorage,
    is_filter,
)
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.progress import ProgressDisplay, megabytes, progress
from spvfilter.errors import CapacityError, ParameterError, SourceError, counted

# defaults of dedupe's filter, which begins with 4 MB; the rate is low because a false positive drops a new line
SEEN_CAPACITY, SEEN_FP_RATE = (1_000_000, 1e-6)
Action = Callable[[FilterStorage, argparse.Namespace], int | None]


def configure(parser: Parser) -> None:
    parser.description = (
        "Bloom filters of lines. A filter never misses a line that was added, but it also reports a few lines that"
        " were not. INPUT is a file, or - for standard input, which is also the default. A filter file is replaced as"
        " a whole at the end, so use --redis if several writers work at the same time."
    )
    create = parser.add_action(
        "create",
        "make a filter",
        "Make a filter and add the lines of every INPUT. To add none, give /dev/null. A filter needs --capacity and"
        " --fp-rate, but a --static one needs neither. Its rate is 2^-8, 2^-16 or 2^-32: the highest that does not"
        " exceed --fp-rate, by default 2^-8 (0.39 %).",
    )
    create.add_argument("filter", metavar="FILTER", help="the file to make")
    _add_inputs(create, "lines to add")
    _add_shape(create, required=False)
    _add_kind(create).add_argument(
        "--static",
        action="store_true",
        help="make a filter of lines that do not change. With 1,000 lines or more, it is smaller than the other kinds"
        " at the same rate. Building it takes 24 bytes of memory per line",
    )
    _add_on_full(create)
    _add_force(create)

    add = parser.add_action(
        "add",
        "add lines",
        "Add the lines of the INPUTs to a filter. With --capacity and --fp-rate, it is created if it does not exist.",
    )
    add.add_argument("filter", metavar="FILTER")
    _add_inputs(add, "lines to add")
    _add_shape(add, required=False)
    _add_kind(add)
    _add_on_full(add)

    remove = parser.add_action(
        "remove",
        "remove lines from a counting filter",
        "Remove the lines of the INPUTs, once each, from a filter that create --counting made. A line that is not in"
        " the filter changes nothing, and the exit code is 1. Remove only lines that you added: removing a false"
        " positive can make the filter miss other lines.",
    )
    remove.add_argument("filter", metavar="FILTER")
    _add_inputs(remove, "lines to remove")

    check = parser.add_action(
        "check", "print the lines that are probably in a filter", "Print the lines that are probably in a filter."
    )
    check.add_argument("filter", metavar="FILTER", help="a filter, or a file of pybloomfiltermmap3")
    _add_inputs(check, "lines to look up")
    check.add_argument("--invert", action="store_true", help="print the lines that are certainly not in it")
    check.add_argument(
        "--allow", metavar="FILE", help="lines, or a filter of lines, to treat as if they were not in it"
    )

    dedupe = parser.add_action(
        "dedupe",
        "print each line once",
        "Print each line the first time it occurs. FILTER remembers the lines for later runs; --capacity creates it if"
        " it does not exist. Without FILTER, the lines are remembered in memory. A new filter grows as needed, but"
        " with --hash-funcs its size is fixed, with room for N lines.",
    )
    dedupe.add_argument(
        "names", metavar="FILTER | INPUT", nargs="*", default=[], help="a filter, if you want one, then files of lines"
    )
    _add_null(dedupe)
    _add_shape(dedupe, required=False, defaults=(f"; default: {SEEN_CAPACITY}", f"; default: {SEEN_FP_RATE:g}"))
    _add_on_full(dedupe)
    actions = (
        (create, _create),
        (add, _add),
        (remove, _remove),
        (check, _check),
        (dedupe, _dedupe),
        *_configure_whole(parser),
    )
    for action, perform in actions:
        action.add_argument(
            "--redis",
            metavar="URL",
            help="keep filters in Redis, with FILTER as the key: redis://host:port/0 or unix:///path",
        )
        action.set_defaults(perform=perform)

    size = parser.add_action(
        "size",
        "compute the size of a filter",
        "Compute the size and the expected rates of a plain, a counting, a scalable and a static filter. Give two of"
        " --capacity, --fp-rate and --bits; the third is computed.",
    )
    configure_size(size)
    size.set_defaults(perform=lambda store, args: show(args), redis=None)


def _configure_whole(parser: Parser) -> list[tuple[Parser, Action]]:
    """Add the subcommands that work on whole filters."""
    info = parser.add_action(
        "info", "describe filters", "Print the size, hash functions, fill and false-positive rate of filters."
    )
    info.add_argument("filters", metavar="FILTER", nargs="+", help="filters, or files of pybloomfiltermmap3")
    add_format(info)

    merge = parser.add_action(
        "merge",
        "merge filters",
        "Make a filter that contains the lines of several FILTERs, all made with the same options.",
    )
    merge.add_argument("filters", metavar="FILTER", nargs="+")
    merge.add_argument("--output", metavar="FILTER", required=True, help="the filter to write")
    _add_force(merge)

    dump = parser.add_action(
        "dump",
        "write a filter's raw bits or counters",
        "Write the bits or 4-bit counters of a filter without a header or checksum, for other programs. Bit b is 1 <<"
        " (b & 7) of byte b >> 3. The first of the two counters in a byte is the low half. The options that load needs"
        " are printed to standard error.",
    )
    dump.add_argument("filter", metavar="FILTER")
    dump.add_argument("--output", metavar="FILE", help="a new file; default: standard output")
    _add_force(dump, "replace an existing file")

    load = parser.add_action(
        "load",
        "make a filter from raw bits or counters",
        "Make a filter from bits or counters that dump wrote. Give the options that the filter was made with:"
        " --capacity and --fp-rate, or --bits and --hash-funcs. Wrong options that give the same size go unnoticed,"
        " but then the filter misses lines.",
    )
    load.add_argument("filter", metavar="FILTER", help="the filter to make")
    load.add_argument(
        "raw", metavar="RAW", nargs="?", default="-", help="the bits or counters; default: standard input"
    )
    _add_shape(load, required=False)
    load.add_argument(
        "--bits", metavar="M", type=whole(1, MAX_CELLS), help="number of bits or counters, instead of --capacity"
    )
    load.add_argument("--counting", action="store_true", help="RAW contains counters")
    _add_counter_bits(load)
    load.add_argument("--partitioned", action="store_true", help="give each hash function its own bits")
    _add_force(load)

    imported = parser.add_action(
        "import",
        "make a filter from another library's file",
        "Make a filter from another library's file. Each library has its own hash functions, which the filter keeps."
        " You can check, extend and merge it like any other.",
    )
    configure_import(imported)
    _add_force(imported)

    export = parser.add_action(
        "export",
        "write a filter for another library",
        "Write a filter in the format of another library. The filter must use that library's hash functions, as"
        " imported filters do.",
    )
    configure_export(export)
    _add_force(export, "replace an existing file")
    whole_filters = [(info, _info), (merge, _merge), (dump, write_raw), (load, read_raw)]
    return [*whole_filters, (imported, read_foreign), (export, write_foreign)]


def _add_inputs(parser: Parser, help: str) -> None:
    parser.add_argument("inputs", metavar="INPUT", nargs="*", default=[], help=help)
    _add_null(parser)


def _add_null(parser: Parser) -> None:
    parser.add_argument("-0", "--null", action="store_true", help="lines end with NUL instead of a newline")


def _add_shape(parser: Parser, *, required: bool, defaults: tuple[str, str] = ("", "")) -> None:
    parser.add_argument(
        "--capacity",
        metavar="N",
        type=whole(1, 1 << 48),
        required=required,
        help=f"number of lines to size the filter for{defaults[0]}",
    )
    parser.add_argument(
        "--fp-rate",
        metavar="P",
        type=probability,
        required=required,
        help=f"false-positive rate: the share of lines not added that a filter with N lines reports{defaults[1]}",
    )
    parser.add_argument(
        "--hash-funcs",
        metavar="K",
        type=whole(1, MAX_HASH_FUNCS),
        help="number of hash functions; default: the best for P",
    )
    parser.add_argument(
        "--key", metavar="HEX|random", type=_key, help="16-byte secret; needed if an attacker can choose the lines"
    )


def _add_kind(parser: Parser) -> argparse._MutuallyExclusiveGroup:
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--scalable", action="store_true", help="make a filter that grows; N is the number of lines of its first slice"
    )
    kinds.add_argument(
        "--counting",
        action="store_true",
        help="make a filter from which lines can be removed; it is four times as large",
    )
    _add_counter_bits(parser)
    return kinds


def _add_counter_bits(parser: Parser) -> None:
    parser.add_argument(
        "--counter-bits",
        type=int,
        choices=tuple(COUNTER_KINDS),
        help="with --counting: size of a counter in bits, which limits how often a line can be counted; default: 4, for"
        " up to 15 times",
    )


def _add_on_full(parser: Parser) -> None:
    parser.add_argument(
        "--on-full",
        choices=("error", "warn"),
        default="error",
        help="what to do if a line is not yet in the filter, but the filter is full; default: error",
    )


def _on_full(args: argparse.Namespace) -> OnFull:
    return "warn" if args.on_full == "warn" else "raise"


def _add_force(parser: Parser, help: str = "replace an existing filter") -> None:
    parser.add_argument("--force", action="store_true", help=help)


def run(args: argparse.Namespace) -> int:
    with _store(args.redis) as store:
        try:
            return int(args.perform(store, args) or 0)
        except CapacityError as error:
            advice = (
                "make a larger filter or a scalable one (create --scalable), or accept more false positives (--on-full"
                " warn)"
            )
            raise SourceError(
                f"{store.name} is full: it was made for {error.capacity} lines and contains {error.count},"
                f" and its false-positive rate is {error.fp_rate:.3g}: {advice}"
            ) from None


@contextmanager
def _store(url: str | None) -> Iterator[FilterStorage]:
    if url is None:
        yield FileStorage()
        return
    with RedisStorage(url) as store:
        yield store


def _make(
    store: FilterStorage, name: str | None, args: argparse.Namespace, kind: FilterKind, capacity: int, fp_rate: float
) -> None:
    if kind is FilterKind.SCALABLE and args.hash_funcs is not None:
        raise ParameterError("--scalable chooses the number of hash functions itself: omit --hash-funcs")
    size = counter_bits(args) if kind is FilterKind.COUNTING else 4
    shape = FilterShape(capacity, fp_rate, args.hash_funcs, kind, _on_full(args), size)
    store.create(name, shape, _hashing(args), replace="force" in args and args.force)


def _hashing(args: argparse.Namespace) -> HashFamily:
    return FastHash() if args.key is None else SipHash(args.key) if args.key else SipHash()


def _kind(args: argparse.Namespace) -> FilterKind:
    counter_bits(args)  # refuses --counter-bits without --counting
    return FilterKind.SCALABLE if args.scalable else FilterKind.COUNTING if args.counting else FilterKind.PLAIN


def _create(store: FilterStorage, args: argparse.Namespace) -> None:
    if args.static:
        _create_static(store, args)
        return
    missing = [f"--{name.replace('_', '-')}" for name in ("capacity", "fp_rate") if getattr(args, name) is None]
    if missing:
        raise ParameterError(
            f"the following arguments are required: {', '.join(missing)} (see 'spvfilter bloom create --help')"
        )
    keys = KeyLines(args.inputs, args.null)
    _make(store, args.filter, args, _kind(args), args.capacity, args.fp_rate)
    _fill(store, keys)


def _create_static(store: FilterStorage, args: argparse.Namespace) -> None:
    for option in ("capacity", "hash_funcs"):
        if getattr(args, option) is not None:
            raise ParameterError(f"--static counts the lines itself: omit --{option.replace('_', '-')}")
    rate = 2.0**-8 if args.fp_rate is None else args.fp_rate
    bits = next((bits for bits in FINGERPRINTS if 2.0**-bits <= rate), None)
    if bits is None:
        raise ParameterError(f"with --static, --fp-rate must be at least 2^-32 (2.3e-10), not {rate:g}")
    keys = KeyLines(args.inputs, args.null)
    added = 0
    with _progress(keys) as shown:

        def lines() -> Iterator[bytes]:
            nonlocal added
            for batch in keys.batches():
                added += len(batch)
                yield from batch
                shown.update(keys.done, keys.total)

        store.create_static(args.filter, lines(), bits, _hashing(args), replace=args.force)
    if not added:
        complain(f"no lines in {keys.named}: nothing was added")
        return
    facts = store.facts()
    complain(f"{counted(added, 'line')}, {facts.estimate:,.0f} of them distinct: {facts.size:,} bytes")


def _add(store: FilterStorage, args: argparse.Namespace) -> None:
    keys = KeyLines(args.inputs, args.null)
    chosen = _kind(args)
    if not store.exists(args.filter) and (args.capacity is None or args.fp_rate is None):
        raise SourceError(f"{store.absent(args.filter)}: give --capacity and --fp-rate to create it")
    _open_or_make(store, args.filter, args, chosen, args.fp_rate)
    if chosen is not FilterKind.PLAIN and chosen is not store.asked().kind:
        raise ParameterError(f"{store.name} is a {store.asked().kind.value}: omit --{chosen.name.lower()}")
    _fill(store, keys)


def _open_or_make(store: FilterStorage, name: str, args: argparse.Namespace, kind: FilterKind, fp_rate: float) -> None:
    """Open the existing filter to change it, or make a new filter.

    Raises ParameterError if the filter exists and was made with different options.
    """
    if not store.exists(name):
        try:
            _make(store, name, args, kind, args.capacity, fp_rate)
        except SourceError:
            if not store.exists(name):  # if it exists now, another writer to Redis created it first
                raise
        else:
            made = "scalable filter that begins with" if kind is FilterKind.SCALABLE else "filter for"
            complain(f"{name} did not exist: made a {made} {counted(args.capacity, 'line')}")
            return
    store.open(name, change=True, on_full=_on_full(args))
    asked = store.asked()
    for option, there in (("capacity", asked.capacity), ("fp_rate", asked.fp_rate), ("hash_funcs", asked.hash_funcs)):
        given = getattr(args, option)
        if given is not None and given != there:
            flag = f"--{option.replace('_', '-')}"
            made = f"without {flag}" if there is None else f"with {flag} {there}, not {given}"
            raise ParameterError(f"{name} exists and was made {made}: omit {flag}")
    if args.key is not None and (asked.key is None or args.key not in (b"", asked.key)):
        raise ParameterError(
            f"{name} exists and was made {'without' if asked.key is None else 'with another'} --key: omit --key"
        )


def _remove(store: FilterStorage, args: argparse.Namespace) -> int:
    keys = KeyLines(args.inputs, args.null)
    store.open(args.filter, change=True)
    store.remove_many([])  # raises ParameterError if it is not a counting filter
    seen = removed = 0
    with _progress(keys) as shown:
        for batch in keys.batches():
            seen += len(batch)
            removed += sum(store.remove_many(batch))
            shown.update(keys.done, keys.total)
    store.finish()
    if removed == seen:
        complain(f"{counted(seen, 'line')}, all of them removed")
        return 0
    complain(
        f"{counted(seen, 'line')}, {removed:,} of them removed: the other {seen - removed:,} were not in the filter"
    )
    return 1


def _fill(store: FilterStorage, keys: KeyLines) -> None:
    added = new = 0
    with _progress(keys) as shown:
        for batch in keys.batches():
            added += len(batch)
            new += store.update(batch)
            shown.update(keys.done, keys.total)
    store.finish()
    complain(
        f"{counted(added, 'line')}, {new:,} of them new" if added else f"no lines in {keys.named}: nothing was added"
    )
    _warn_past_capacity(store)


def _check(store: FilterStorage, args: argparse.Namespace) -> None:
    keys = KeyLines(args.inputs, args.null)
    store.open(args.filter)
    allowed = _allowed(args.allow, args.null)
    seen = printed = 0
    with _progress(keys, prints=True) as shown:
        for batch in keys.batches():
            masks = zip(batch, store.contains_many(batch), allowed(batch), strict=True)
            found = [key for key, there, let in masks if bool(there and not let) != args.invert]
            seen += len(batch)
            printed += len(found)
            _write(found, args.null)
            shown.update(keys.done, keys.total)
    complain(f"{counted(seen, 'line')}, {printed:,} of them printed")


def _allowed(path: str | None, nul: bool) -> Callable[[list[bytes]], bytes]:
    """Return a function that returns a byte for each line of a batch: 1 if the --allow file contains it, else 0."""
    if path is not None and is_filter(Path(path)):
        store = FileStorage()
        store.open(path)
        return store.contains_many
    lines = {key for batch in KeyLines([path], nul).batches() for key in batch} if path is not None else set()
    return lambda batch: bytes(key in lines for key in batch)


def _dedupe(store: FilterStorage, args: argparse.Namespace) -> None:
    if args.redis is not None and not args.names:
        raise ParameterError(
            "bloom dedupe --redis needs the key of a filter as FILTER (see 'spvfilter bloom dedupe --help')"
        )
    first: str = args.names[0] if args.names else "-"
    kept = args.redis is not None or (first != "-" and (is_filter(Path(first)) or not store.exists(first)))
    if kept and args.capacity is None and not store.exists(first):
        raise SourceError(f"{store.absent(first)}: give --capacity to create it")
    keys = KeyLines(args.names[1:] if kept else args.names, args.null)
    kind = FilterKind.PLAIN if args.hash_funcs is not None else FilterKind.SCALABLE
    if kept:
        _open_or_make(store, first, args, kind, args.fp_rate or SEEN_FP_RATE)
    else:
        _make(store, None, args, kind, args.capacity or SEEN_CAPACITY, args.fp_rate or SEEN_FP_RATE)
    if store.asked().kind is FilterKind.COUNTING:
        raise ParameterError(f"{store.name} is a counting filter, which would count repeated lines: use a plain filter")
    try:
        with _progress(keys, prints=True) as shown:
            for batch in keys.batches():
                with _uninterrupted():  # a line is both printed and added, or neither
                    new = store.add_many(batch)
                    _write([key for key, first in zip(batch, new, strict=False) if first], args.null)
                if len(new) < len(batch):
                    store.update([batch[len(new)]])  # raises the error for the refused line
                shown.update(keys.done, keys.total)
    finally:
        store.finish()
    _warn_past_capacity(store)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Context manager: a first Ctrl-C takes effect at the end of the `with` block, a second Ctrl-C immediately."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:  # ignored, or set by an embedding program
        yield
        return
    came = False

    def wait(number: int, frame: object) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if came:
        raise KeyboardInterrupt


def _write(keys: list[bytes], nul: bool) -> None:
    if keys:
        end = b"\0" if nul else b"\n"
        sys.stdout.buffer.write(end.join(keys) + end)
        sys.stdout.buffer.flush()


@contextmanager
def _progress(keys: KeyLines, *, prints: bool = False) -> Iterator[ProgressDisplay]:
    """Show progress, unless the user types lines on the terminal or the command prints some there."""
    typed = "-" in keys.paths and sys.stdin is not None and sys.stdin.isatty()
    if typed or (prints and sys.stdout.isatty()):
        yield ProgressDisplay()
        return
    with progress(None) as shown:
        yield shown


def _warn_past_capacity(store: FilterStorage) -> None:
    facts = store.facts()
    if facts.capacity is not None and facts.estimate > facts.capacity + 3 * sqrt(facts.capacity):
        held = f"holds about {facts.estimate:,.0f}" if isfinite(facts.estimate) else "is full"
        complain(
            f"warning: {store.name} was made for {counted(facts.capacity, 'line')} and {held}: its false-positive"
            f" rate is {facts.rate:.3g}; make a larger filter"
        )


def _info(store: FilterStorage, args: argparse.Namespace) -> None:
    page = Page(sys.stdout)
    as_json = format_of(args.format, page) == "jsonl"
    for name in args.filters:
        store.open(name)
        facts = store.facts()
        if as_json:
            page.record(_fields(store.name, facts))
            _warn_past_capacity(store)
            continue
        page.title(store.name)
        page.facts(
            [
                ("kind", facts.kind),
                ("hash family", facts.family),
                ("bits", f"{facts.bits:,} ({megabytes(facts.size)})"),
                ("hash functions", facts.hash_funcs),
                (
                    "capacity",
                    (
                        f"grows, {facts.slices} slice{'s' * (facts.slices > 1)}"
                        if facts.slices
                        else "unknown"
                        if facts.capacity is None
                        else f"{facts.capacity:,}"
                    ),
                ),
                ("rate at capacity", "unknown" if facts.nominal is None else f"{facts.nominal:g}"),
                *([("fill", f"{facts.fill:.2%}")] if facts.fill is not None else []),
                ("estimated lines", f"{facts.estimate:,.0f}" if isfinite(facts.estimate) else "unknown: it is full"),
                ("real rate", f"{facts.rate:.3g}"),
            ]
        )
        _warn_past_capacity(store)


def _fields(name: str, facts: FilterFacts) -> dict[str, object]:
    """Return facts about a filter as the fields of a JSON line."""
    return {
        "filter": name,
        "kind": facts.kind,
        "hash_family": facts.family,
        "bits": facts.bits,
        "bytes": facts.size,
        "hash_funcs": facts.hash_funcs,
        "capacity": facts.capacity,
        "slices": facts.slices or None,
        "fp_rate_at_capacity": facts.nominal,
        "fill": facts.fill,
        "estimated_lines": facts.estimate if isfinite(facts.estimate) else None,
        "fp_rate": facts.rate,
    }


def _merge(store: FilterStorage, args: argparse.Namespace) -> None:
    store.merge(args.filters, args.output, replace=args.force)
    _warn_past_capacity(store)


def _key(text: str) -> bytes:
    """Argument type: a SipHash key. An empty result stands for a random key."""
    if text == "random":
        return b""
    key = hex_bytes(text)
    if len(key) != 16:
        raise argparse.ArgumentTypeError(f"expected a key of 16 bytes (32 hex digits), got {len(key)}")
    return key
