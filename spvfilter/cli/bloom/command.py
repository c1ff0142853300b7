"""`spvfilter bloom`: generic filters in files or in Redis, for lines of anything. Nothing of Bitcoin is in here."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, isfinite, sqrt
from pathlib import Path

from spvfilter.bloom.fileformat import MAX_HASH_FUNCS
from spvfilter.bloom.hashing import FastHash, HashFamily, SipHash
from spvfilter.cli.arguments import hex_bytes, probability, whole
from spvfilter.cli.bloom.keys import Keys
from spvfilter.cli.bloom.storage import FileStorage, FilterStorage, RedisStorage, is_filter
from spvfilter.cli.term.page import Page, complain
from spvfilter.cli.term.progress import ProgressDisplay, megabytes, progress
from spvfilter.errors import ParameterError

SEEN_CAPACITY, SEEN_FP_RATE = 10_000_000, 1e-6  # of dedupe's filter in memory, 36 MB: it must not take a new line for an old one
_SHAPE = ("capacity", "fp_rate", "hash_funcs", "key")
_OPTIONS = {  # which an action takes, besides --redis
    "create": (*_SHAPE, "null", "force"),
    "add": ("null",),
    "check": ("null", "invert", "allow"),
    "dedupe": (*_SHAPE, "null"),
    "info": (),
    "merge": ("output", "force"),
}
_USAGE = """spvfilter bloom create FILTER [INPUT ...] --capacity N --fp-rate P [OPTION ...]
       spvfilter bloom add FILTER [INPUT ...]
       spvfilter bloom check FILTER [INPUT ...] [--invert] [--allow FILE]
       spvfilter bloom dedupe [FILTER] [INPUT ...] [--capacity N] [--fp-rate P]
       spvfilter bloom info FILTER ...
       spvfilter bloom merge FILTER ... --output FILTER"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = _USAGE
    parser.description = (
        "Bloom filters of lines: create makes one, of the INPUTs' lines if any are named; add adds lines; check prints the lines that are "
        "probably in it; dedupe prints each line the first time only, and remembers them in FILTER if that is one; info says what a filter "
        "holds; merge unites filters. INPUT is a file or - for standard input, which is also the default. A filter never misses a line "
        "that was added. A file is replaced whole when all is done: for several writers at once there is --redis."
    )
    parser.add_argument("action", metavar="ACTION", type=_action, help=", ".join(_OPTIONS))
    parser.add_argument("names", metavar="FILTER | INPUT", nargs="*", help="files of filters (with --redis: keys), then of lines")
    parser.add_argument("--capacity", metavar="N", type=whole(1, 1 << 48), help="lines it is to hold")
    parser.add_argument("--fp-rate", metavar="P", type=probability, help="share of other lines taken for one of them, when it holds N")
    parser.add_argument("--hash-funcs", metavar="K", type=whole(1, MAX_HASH_FUNCS), help="default: the best for P")
    parser.add_argument("--key", metavar="HEX|random", type=_key, help="a secret of 16 bytes, where someone may choose lines with intent")
    parser.add_argument("-0", "--null", action="store_true", default=None, help="NUL ends a line, not a newline")
    parser.add_argument("--invert", action="store_true", default=None, help="check: print the lines that are surely not in it")
    parser.add_argument("--allow", metavar="FILE", help="check: lines, or a filter of lines, that never count as being in it")
    parser.add_argument("--output", metavar="FILTER", help="merge: where to")
    parser.add_argument("--force", action="store_true", default=None, help="create, merge: replace what is there")
    parser.add_argument("--redis", metavar="URL", help="the filter is in Redis, FILTER its key: redis://host:port/0 or unix:///path")


def run(args: argparse.Namespace) -> int:
    for name in dict.fromkeys(option for options in _OPTIONS.values() for option in options):
        if getattr(args, name) is not None and name not in _OPTIONS[args.action]:
            raise ParameterError(f"bloom {args.action} does not take --{name.replace('_', '-')}")
    if not args.names and (args.action != "dedupe" or args.redis is not None):
        raise ParameterError(f"bloom {args.action} needs the name of a filter (see 'spvfilter bloom --help')")
    actions = {"create": _create, "add": _add, "check": _check, "dedupe": _dedupe, "info": _info, "merge": _merge}
    with _store(args.redis) as store:
        actions[args.action](store, args)
    return 0


@contextmanager
def _store(url: str | None) -> Iterator[FilterStorage]:
    if url is None:
        yield FileStorage()
        return
    with RedisStorage(url) as store:
        yield store


def _make(store: FilterStorage, name: str | None, args: argparse.Namespace, capacity: int, fp_rate: float) -> None:
    hashing: HashFamily = FastHash() if args.key is None else SipHash(args.key)
    store.create(name, (capacity, fp_rate, args.hash_funcs), hashing, replace=bool(args.force))


def _create(store: FilterStorage, args: argparse.Namespace) -> None:
    name, *inputs = args.names
    if args.capacity is None or args.fp_rate is None:
        raise ParameterError("bloom create needs --capacity and --fp-rate")
    keys = Keys(inputs, bool(args.null)) if inputs else None
    _make(store, name, args, args.capacity, args.fp_rate)
    if keys is not None:
        _fill(store, keys)
    store.finish()


def _add(store: FilterStorage, args: argparse.Namespace) -> None:
    name, *inputs = args.names
    keys = Keys(inputs, bool(args.null))
    store.open(name, change=True)
    _fill(store, keys)
    store.finish()


def _fill(store: FilterStorage, keys: Keys) -> None:
    added = new = 0
    with _progress(keys) as shown:
        for batch in keys.batches():
            added += len(batch)
            new += store.update(batch)
            shown.update(keys.done, keys.total)
    complain(f"{added} lines, {new} of them new")
    _warn_past_capacity(store)


def _check(store: FilterStorage, args: argparse.Namespace) -> None:
    name, *inputs = args.names
    keys = Keys(inputs, bool(args.null))
    store.open(name)
    allowed = _allowed(args.allow, bool(args.null))
    seen = printed = 0
    with _progress(keys, prints=True) as shown:
        for batch in keys.batches():
            masks = zip(batch, store.contains_many(batch), allowed(batch), strict=True)
            found = [key for key, there, let in masks if bool(there and not let) != bool(args.invert)]
            seen += len(batch)
            printed += len(found)
            _write(found, bool(args.null))
            shown.update(keys.done, keys.total)
    complain(f"{seen} lines, {printed} of them printed")


def _allowed(path: str | None, nul: bool) -> Callable[[list[bytes]], bytes]:
    """For each line of a batch one byte: whether it is allowed."""
    if path is not None and is_filter(Path(path)):
        store = FileStorage()
        store.open(path)
        return store.contains_many
    lines = {key for batch in Keys([path], nul).batches() for key in batch} if path is not None else set()
    return lambda batch: bytes(key in lines for key in batch)


def _dedupe(store: FilterStorage, args: argparse.Namespace) -> None:
    kept = bool(args.names) and (args.redis is not None or is_filter(Path(args.names[0])))
    if kept and any(getattr(args, name) is not None for name in _SHAPE):
        raise ParameterError("a filter that is there has its own --capacity, --fp-rate, --hash-funcs and --key")
    keys = Keys(args.names[1:] if kept else args.names, bool(args.null))
    if kept:
        store.open(args.names[0], change=True)
    else:
        _make(store, None, args, args.capacity or SEEN_CAPACITY, args.fp_rate or SEEN_FP_RATE)
    facts = store.facts()
    if facts.counting:
        raise ParameterError(f"{store.name} counts what is added, and would count what is seen again")
    room = inf if facts.capacity is None else facts.capacity - facts.estimate
    try:
        with _progress(keys, prints=True) as shown:
            for batch in keys.batches():
                with _uninterrupted():  # what is remembered is printed, and what is printed remembered
                    new = store.add_many(batch)
                    _write([key for key, first in zip(batch, new, strict=True) if first], bool(args.null))
                shown.update(keys.done, keys.total)
                if room >= 0 > (room := room - new.count(1)):
                    shown.clear()
                    complain(f"warning: {store.name} is at its capacity: ever more new lines will be taken for old ones")
    finally:
        store.finish()
    _warn_past_capacity(store)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A first interrupt waits for the end of this, a second one does not."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:  # ignored, or someone else's
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
def _progress(keys: Keys, *, prints: bool = False) -> Iterator[ProgressDisplay]:
    """Progress where nothing else is on the terminal: neither lines that are typed nor lines that are printed."""
    typed = "-" in keys.paths and sys.stdin is not None and sys.stdin.isatty()
    if typed or (prints and sys.stdout.isatty()):
        yield ProgressDisplay()
        return
    with progress(None) as shown:
        yield shown


def _warn_past_capacity(store: FilterStorage) -> None:
    said = store.facts()
    if said.capacity is not None and said.estimate > said.capacity + 3 * sqrt(said.capacity):
        held = f"holds about {said.estimate:,.0f}" if isfinite(said.estimate) else "is full"
        complain(f"warning: {store.name} was made for {said.capacity:,} lines and {held}: {said.rate:.3g} of all others seem to be in it")


def _info(store: FilterStorage, args: argparse.Namespace) -> None:
    page = Page(sys.stdout)
    for name in args.names:
        store.open(name)
        said = store.facts()
        page.title(store.name)
        page.facts(
            [
                ("kind", said.kind),
                ("hash family", said.family),
                ("bits", f"{said.bits:,} ({megabytes(said.size)})"),
                ("hash functions", str(said.hash_funcs)),
                ("capacity", "unknown" if said.capacity is None else f"{said.capacity:,}"),
                ("rate at capacity", "unknown" if said.nominal is None else f"{said.nominal:g}"),
                ("fill", f"{said.fill:.2%}"),
                ("estimated lines", f"{said.estimate:,.0f}" if isfinite(said.estimate) else "unknown: it is full"),
                ("real rate", f"{said.rate:.3g}"),
            ]
        )
        _warn_past_capacity(store)


def _merge(store: FilterStorage, args: argparse.Namespace) -> None:
    if args.output is None:
        raise ParameterError("bloom merge needs --output FILTER")
    store.merge(args.names, args.output, replace=bool(args.force))
    _warn_past_capacity(store)


def _action(text: str) -> str:
    if text not in _OPTIONS:  # not shown: it may be a secret
        raise argparse.ArgumentTypeError(f"one of {', '.join(_OPTIONS)} expected")
    return text


def _key(text: str) -> bytes:
    if text == "random":
        return SipHash().key
    key = hex_bytes(text)
    if len(key) != 16:
        raise argparse.ArgumentTypeError(f"a key has 16 bytes, 32 hex digits, not {len(key)}")
    return key
