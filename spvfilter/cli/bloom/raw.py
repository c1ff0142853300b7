"""`spvfilter bloom dump` and `load`: exchange a filter's raw bits or counters with other programs."""

from __future__ import annotations

import argparse
import os
import stat
import sys
from contextlib import ExitStack
from pathlib import Path

from spvfilter.bloom.base import allocate
from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.fileformat import COUNTER_KINDS, KIND_BITS, body_size
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.fuse import StaticFilter
from spvfilter.bloom.hashing import FastHash, HashFamily, SipHash
from spvfilter.bloom.scalable import ScalableBloomFilter
from spvfilter.bloom.shape import shape_of
from spvfilter.cli.arguments import standard_input
from spvfilter.cli.bloom.storage import FilterStorage, is_filter
from spvfilter.cli.term.page import complain
from spvfilter.errors import FormatError, ParameterError, SourceError, counted
from spvfilter.files import replacing
from spvfilter.kernel import Encoding, Family
from spvfilter.primitives import chunks

_CHUNK = 1 << 20  # most bytes to read at a time


def write_raw(store: FilterStorage, args: argparse.Namespace) -> None:
    """Execute `spvfilter bloom dump`. Raises SourceError, ParameterError or OSError."""
    path = refuse_output(args.output, force=args.force)
    made = store.read(args.filter)
    if isinstance(made, ScalableBloomFilter):
        raise ParameterError(
            f"{args.filter} is a scalable filter, which consists of several filters: it has no raw form"
        )
    if isinstance(made, StaticFilter):
        raise ParameterError(f"{args.filter} is a static filter, which has no bits or counters: it has no raw form")
    write_bytes(path, made.body)
    complain(f"{counted(len(made.body), 'byte')}: {_said(made)}")


def refuse_output(output: str | None, *, force: bool) -> Path | None:
    """Return the path of the output file, or None for standard output, after checking that it can be written.

    Raises ParameterError if standard output is a terminal. Raises SourceError if the file exists and `force` is False,
    if it exists but is not a regular file, or if its directory is not writable.
    """
    path = None if output is None else Path(output)
    if path is None and sys.stdout.isatty():
        raise ParameterError("the terminal cannot show raw bytes: give --output, or redirect standard output")
    if path is not None and path.exists() and not (force and path.is_file()):
        raise SourceError(
            f"{output} exists{': --force replaces it' if path.is_file() else ' and is not a regular file'}"
        )
    if path is not None and not os.access(path.parent, os.W_OK | os.X_OK):
        raise SourceError(f"{output}: {path.parent} is not a writable directory")
    return path


def write_bytes(path: Path | None, body: memoryview) -> None:
    """Replace a file with these bytes, or write them to standard output. Raises OSError."""
    if path is None:
        for chunk in chunks(body):
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    else:
        with replacing(path) as file:
            for chunk in chunks(body):
                file.write(chunk)


def _said(made: BloomFilter | CountingBloomFilter) -> str:
    """Return the options that `load` needs to read the dumped bits or counters."""
    if made.encoding is not Encoding.BYTES or (made.family != Family.SIPHASH and made.hashing != FastHash()):
        keys, hashes = made.encoding.name.lower(), made.family.name.lower()
        return f"`load` cannot restore this filter: its keys are {keys}, hashed by {hashes}; a Python program can"
    options = [f"--bits {made.cells}"]
    if made.capacity and made.nominal_fp_rate:
        options = [f"--capacity {made.capacity}", f"--fp-rate {made.nominal_fp_rate!r}"]
    options.append(f"--hash-funcs {made.hash_funcs}")
    if isinstance(made, CountingBloomFilter):
        options += ["--counting", f"--counter-bits {made.counter_bits}"][: 1 + (made.counter_bits != 4)]
    options += ["--partitioned"] * made.partitioned
    return f"load them with {' '.join(options)}{' and its --key' if made.family == Family.SIPHASH else ''}"


def read_raw(store: FilterStorage, args: argparse.Namespace) -> None:
    """Execute `spvfilter bloom load`. Raises SourceError, ParameterError, TooLargeError or OSError."""
    if args.key == b"":
        raise ParameterError("--key random makes a new key: give the key that the filter was made with")
    hashing: HashFamily = FastHash() if args.key is None else SipHash(args.key)
    given = [value is not None for value in (args.capacity, args.fp_rate, args.bits)]
    if given != ([True, True, False] if args.bits is None else [False, False, args.hash_funcs is not None]):
        raise ParameterError(
            "give the options that the filter was made with: --capacity and --fp-rate, or --bits and --hash-funcs"
        )
    cells, *_ = shape_of(args.capacity, args.fp_rate, args.hash_funcs, args.bits, args.partitioned)
    size = counter_bits(args)
    raw = _read(args.raw, body_size(COUNTER_KINDS[size] if args.counting else KIND_BITS, cells))
    shape = (args.capacity, args.fp_rate, args.hash_funcs)
    try:
        made = (
            CountingBloomFilter.load(
                raw, *shape, bits=args.bits, hashing=hashing, partitioned=args.partitioned, counter_bits=size
            )
            if args.counting
            else BloomFilter.load(raw, *shape, bits=args.bits, hashing=hashing, partitioned=args.partitioned)
        )
    except FormatError as error:
        raise SourceError(f"{'standard input' if args.raw == '-' else args.raw}: {error}") from None
    store.write(args.filter, made, replace=args.force)


def counter_bits(args: argparse.Namespace) -> int:
    """Return the size of a counter in bits. Raises ParameterError if --counter-bits is given without --counting."""
    if args.counter_bits is None:
        return 4
    if not args.counting:
        raise ParameterError("--counter-bits needs --counting")
    return int(args.counter_bits)


def _read(name: str, size: int) -> memoryview:
    """Read up to `size` + 1 bytes from a file or from standard input. The caller refuses more than `size`.

    Raises SourceError if a regular file has a different size, TooLargeError if memory does not suffice, and OSError if
    the file cannot be read.
    """
    with ExitStack() as stack:
        stream = standard_input() if name == "-" else stack.enter_context(Path(name).open("rb"))
        status = os.fstat(stream.fileno())
        if name != "-" and stat.S_ISREG(status.st_mode) and status.st_size != size:
            hint = ": this is a filter file, not raw bits" if is_filter(Path(name)) else ""
            raise SourceError(f"{name}: expected {size} bytes, got {status.st_size}{hint}")
        view = memoryview(allocate(size + 1)).cast("B")
        at = 0
        # both readers have readinto
        while at <= size and (count := stream.readinto(view[at : min(at + _CHUNK, size + 1)])):  # type: ignore[attr-defined]
            at += count
        return view[:at]
