"""Storage of a Bloom filter for `spvfilter bloom`: the interface, and storage in files.

Storage in Redis is in remote.py.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from enum import Enum
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Literal, NamedTuple

from spvfilter.bloom.base import OnFull
from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.exchange.foreignhashes import Pybloomfiltermmap3Hash
from spvfilter.bloom.exchange.pybloomfiltermmap3 import MAGIC as MMAP3_MAGIC, read_pybloomfiltermmap3
from spvfilter.bloom.fileformat import COUNTER_KINDS, HEADER_SIZE, KIND_SERIES, MAGIC, STATIC_MAGIC, FileHeader
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.fuse import StaticFilter
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.scalable import ScalableBloomFilter
from spvfilter.errors import (
    CapacityError,
    MismatchError,
    ParameterError,
    SourceError,
    SpvFilterError,
)
from spvfilter.kernel import Encoding, Family

Local = BloomFilter | CountingBloomFilter | ScalableBloomFilter | StaticFilter
Growing = BloomFilter | CountingBloomFilter | ScalableBloomFilter  # Filters to which lines can be added.
FingerprintBits = Literal[8, 16, 32]
FINGERPRINTS: tuple[FingerprintBits, ...] = (8, 16, 32)  # Possible numbers of bits in a static filter's fingerprints.
MAGICS = (MAGIC, STATIC_MAGIC)  # The first bytes of filter files, all of the same length.
READABLE = (*MAGICS, MMAP3_MAGIC)  # The first bytes of all files that `read` accepts.


class FilterKind(Enum):
    """The kinds of filters."""

    PLAIN = "Bloom filter"
    SCALABLE = "scalable Bloom filter"
    COUNTING = "counting Bloom filter"
    STATIC = "static filter"


class FilterShape(NamedTuple):
    """The parameters of a new filter."""

    capacity: int
    """Number of lines to size the filter for."""
    fp_rate: float
    """False-positive rate of the filter when it contains `capacity` lines."""
    hash_funcs: int | None
    """Number of hash functions. None means the best number."""
    kind: FilterKind
    """Plain, scalable or counting; not static."""
    on_full: OnFull
    """What to do if a line is not yet in the filter, but the filter is full."""
    counter_bits: int = 4
    """Size of each counter in a counting filter, in bits."""

    @property
    def fixed(self) -> tuple[int, float, int | None]:
        """The positional arguments of BloomFilter."""
        return self.capacity, self.fp_rate, self.hash_funcs


class GivenOptions(NamedTuple):
    """The options that a filter was made with. None means that the option was not given."""

    kind: FilterKind
    """Kind of the filter."""
    capacity: int | None
    """Number of lines that the filter is sized for."""
    fp_rate: float | None
    """Requested false-positive rate."""
    hash_funcs: int | None
    """Number of hash functions."""
    key: bytes | None
    """The 16-byte key of SipHash."""


class FilterFacts(NamedTuple):
    """The parameters and the state of a filter."""

    kind: str
    """Kind of the filter, in words for people."""
    family: str
    """Name of the filter's hash family."""
    bits: int
    """Number of bits or counters."""
    size: int
    """Size of the bits or counters in bytes."""
    hash_funcs: str
    """Number of hash functions, or their range in a scalable filter. A static filter has three."""
    capacity: int | None
    """Number of lines that the filter is sized for. None if it is unknown or grows."""
    nominal: float | None
    """Requested false-positive rate of the filter. None if it is unknown."""
    fill: float | None
    """Share of set bits, from 0 to 1. None for a static filter."""
    estimate: float
    """Estimated number of lines. Infinite if every bit is set."""
    rate: float
    """Current false-positive rate of the filter, from 0 to 1."""
    slices: int = 0
    """Number of slices of a scalable filter, else 0."""


class FilterStorage(ABC):
    """Stores one filter of lines at a time.

    Call `create` or `open`, use the filter, then call `finish`.
    """

    name = "the filter in memory"

    @abstractmethod
    def create(self, name: str | None, shape: FilterShape, hashing: HashFamily, *, replace: bool) -> None:
        """Make a new filter. If `name` is None, the filter is not stored."""

    def create_static(
        self, name: str, lines: Iterable[bytes], bits: FingerprintBits, hashing: HashFamily, *, replace: bool
    ) -> None:
        """Make and store a static filter of the lines, with fingerprints of `bits` bits.

        Only files can hold static filters.

        Raises ParameterError if the storage is not a file.
        """
        raise ParameterError("a static filter must be in a file: omit --redis")

    @abstractmethod
    def open(self, name: str, *, change: bool = False, on_full: OnFull = "raise") -> None:
        """Open a filter, for changes if `change` is True.

        `on_full` says what to do if a line is not yet in the filter, but the filter is full.
        """

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return True if the name is in use, even if it does not name a filter."""

    def absent(self, name: str) -> str:
        """Return the error message for a filter that does not exist."""
        return f"{name}: No such file or directory"

    @abstractmethod
    def asked(self) -> GivenOptions: ...

    @abstractmethod
    def add_many(self, lines: list[bytes]) -> bytes:
        """Add the lines and return one byte for each: 1 if it was new, else 0.

        If the filter is full, the result ends before the first line that was refused.
        """

    @abstractmethod
    def update(self, lines: list[bytes]) -> int:
        """Add the lines and return the number of new ones. Raises CapacityError if the filter is full."""

    @abstractmethod
    def remove_many(self, lines: list[bytes]) -> bytes:
        """Remove the lines from a counting filter and return one byte for each: 1 if the filter contained it, else 0.

        Raises ParameterError if the filter is of a different kind.
        """

    @abstractmethod
    def contains_many(self, lines: list[bytes]) -> bytes: ...

    @abstractmethod
    def facts(self) -> FilterFacts: ...

    @abstractmethod
    def read(self, name: str) -> Local:
        """Read a whole filter into memory. Raises SourceError if this fails."""

    @abstractmethod
    def write(self, name: str, made: Local, *, replace: bool) -> None: ...

    def merge(self, names: Sequence[str], output: str, *, replace: bool) -> None:
        """Write the union of the filters to `output`. All filters are read first, so `output` may be one of them."""
        merged = self.read(names[0])
        _refuse_seeds(merged, names[0])
        for name in names[1:]:
            part = self.read(name)
            try:
                if isinstance(part, StaticFilter) or isinstance(merged, StaticFilter):
                    raise MismatchError("at least one is a static filter: make a new filter from the lines of both")
                if isinstance(part, ScalableBloomFilter) or isinstance(merged, ScalableBloomFilter):
                    raise MismatchError("at least one is a scalable filter: add the lines of both to one filter")
                if type(part) is not type(merged):
                    raise MismatchError("only one of the two is a counting filter")
                merged |= part  # type: ignore[operator]  # both are of the same kind
            except MismatchError as error:
                raise MismatchError(f"{names[0]} and {name} cannot be merged: {error}") from None
        self.write(output, merged, replace=replace)

    @abstractmethod
    def finish(self) -> None:
        """Save all changes of the filter."""

    def _encoded(self, encoding: Encoding, lines: list[bytes]) -> list[bytes] | list[str]:
        """Return the lines in the encoding of the filter's keys, which a Python program may have chosen."""
        match encoding:
            case Encoding.BYTES:
                return lines
            case Encoding.UTF8:
                try:
                    return [line.decode() for line in lines]
                except UnicodeDecodeError as error:
                    raise SourceError(
                        f"the keys of {self.name} are text, but this line is not UTF-8: {error.object[:40]!r}"
                    ) from None
            case _:
                raise ParameterError(f"{self.name} does not hold lines: its keys are {encoding.name.lower()}")


def is_filter(path: Path) -> bool:
    """Return True if `path` is a regular file that starts like a filter or a pybloomfiltermmap3 file."""
    return _starts(path, READABLE)


def _starts(path: Path, magics: tuple[bytes, ...]) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(HEADER_SIZE).startswith(magics)


def _refuse_seeds(made: Local, name: str) -> None:
    """Raise ParameterError for a pybloomfiltermmap3 filter, because a filter file cannot store its seeds."""
    if isinstance(made.hashing, Pybloomfiltermmap3Hash):
        raise ParameterError(
            f"{name} is a pybloomfiltermmap3 file, which `bloom check` and `bloom info` can read, but no action can"
            " change or merge: make a filter from its lines with `bloom create`"
        )


class FileStorage(FilterStorage):
    """A filter in a file. The file is read into memory, and replaced as a whole."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._filter: Local | None = None

    @property
    def _opened(self) -> Local:
        assert self._filter is not None
        return self._filter

    @property
    def _growing(self) -> Growing:
        made = self._opened
        if isinstance(made, StaticFilter):
            raise ParameterError(
                f"{self.name} is a static filter, which cannot be changed: make a new one from all lines"
            )
        return made

    def create(self, name: str | None, shape: FilterShape, hashing: HashFamily, *, replace: bool) -> None:
        if name is not None:
            self._claim(name, replace)
        match shape.kind:
            case FilterKind.SCALABLE:
                self._filter = ScalableBloomFilter(shape.capacity, shape.fp_rate, hashing=hashing)
            case FilterKind.COUNTING:
                self._filter = CountingBloomFilter(
                    *shape.fixed, hashing=hashing, on_full=shape.on_full, counter_bits=shape.counter_bits
                )
            case FilterKind.PLAIN:
                self._filter = BloomFilter(*shape.fixed, hashing=hashing, on_full=shape.on_full)

    def create_static(
        self, name: str, lines: Iterable[bytes], bits: FingerprintBits, hashing: HashFamily, *, replace: bool
    ) -> None:
        self._claim(name, replace)
        self._filter = StaticFilter(lines, bits, hashing=hashing)
        self.finish()

    def _claim(self, name: str, replace: bool) -> None:
        """Check that `finish` may write the file `name`, and store the name. Only a filter may be replaced."""
        path = Path(os.path.realpath(name))
        if path.exists() and not _starts(path, MAGICS):
            raise SourceError(f"{name} exists and is not a filter")
        if path.exists() and not replace:
            raise SourceError(f"{name} exists: --force replaces it")
        if not os.access(path.parent, os.W_OK | os.X_OK):  # report this now rather than after hours of reading
            raise SourceError(f"{name}: {path.parent} is not a writable directory")
        self.name, self._path = name, path

    def open(self, name: str, *, change: bool = False, on_full: OnFull = "raise") -> None:
        self._filter = self.read(name)
        if isinstance(self._filter, BloomFilter | CountingBloomFilter):
            self._filter.on_full = on_full
        self.name: str = name
        if change:
            _refuse_seeds(self._filter, name)
            self.update([])  # raises an error unless the filter holds lines and can be changed
            self._claim(name, replace=True)

    def exists(self, name: str) -> bool:
        return Path(name).exists()

    def asked(self) -> GivenOptions:
        made = self._opened
        key = made.hashing.key if made.family == Family.SIPHASH else None
        if isinstance(made, StaticFilter):
            return GivenOptions(FilterKind.STATIC, None, made.fp_rate, None, key)
        if isinstance(made, ScalableBloomFilter):
            return GivenOptions(FilterKind.SCALABLE, made.initial_capacity, made.nominal_fp_rate, None, key)
        kind = FilterKind.COUNTING if isinstance(made, CountingBloomFilter) else FilterKind.PLAIN
        return GivenOptions(kind, made.capacity, made.nominal_fp_rate, made.hash_funcs, key)

    def add_many(self, lines: list[bytes]) -> bytes:
        new = bytearray()
        with suppress(CapacityError):
            for key in self._keys(lines):
                new.append(self._growing.add(key))
        return bytes(new)

    def update(self, lines: list[bytes]) -> int:
        return self._growing.update(self._keys(lines))

    def remove_many(self, lines: list[bytes]) -> bytes:
        made = self._opened
        if not isinstance(made, CountingBloomFilter):
            kind = self.asked().kind.value
            raise ParameterError(
                f"{self.name} is a {kind}, which cannot remove lines: make a counting filter (create --counting)"
            )
        return made.remove_many(self._keys(lines))

    def contains_many(self, lines: list[bytes]) -> bytes:
        return self._opened.contains_many(self._keys(lines))

    def _keys(self, lines: list[bytes]) -> list[bytes] | list[str]:
        return self._encoded(self._opened.encoding, lines)

    def facts(self) -> FilterFacts:
        made = self._opened
        if isinstance(made, ScalableBloomFilter):
            return _scalable_facts(made)
        if isinstance(made, StaticFilter):
            return _static_facts(made)
        kind = self.asked().kind.value
        return FilterFacts(
            kind=f"{kind}, partitioned" if made.partitioned else kind,
            family=made.family.name.lower(),
            bits=made.cells,
            size=made.header().body_size,
            hash_funcs=str(made.hash_funcs),
            capacity=made.capacity,
            nominal=made.nominal_fp_rate,
            fill=made.fill,
            estimate=made.approx_len,
            rate=made.current_fp_rate,
        )

    def read(self, name: str) -> Local:
        try:
            with Path(name).open("rb") as file:
                start = file.read(HEADER_SIZE)
            if start.startswith(STATIC_MAGIC):
                return StaticFilter.open(name)
            if start.startswith(MMAP3_MAGIC):
                with Path(name).open("rb") as file:
                    return read_pybloomfiltermmap3(mmap(file.fileno(), 0, access=ACCESS_READ))
            if not start or not start.startswith(MAGIC[: len(start)]):
                advice = "`spvfilter bloom create` makes one from lines" if start else "it is empty"
                raise SourceError(f"this is not a filter file: {advice}")
            header = FileHeader.parse(start)
            if header.kind == KIND_SERIES:
                return ScalableBloomFilter.open(name)
            return (CountingBloomFilter if header.kind in COUNTER_KINDS.values() else BloomFilter).open(name)
        except SpvFilterError as error:
            raise SourceError(f"{name}: {error}") from None

    def write(self, name: str, made: Local, *, replace: bool) -> None:
        self._claim(name, replace)
        self._filter = made
        self.finish()

    def finish(self) -> None:
        if self._path is None:
            return
        try:
            self._opened.save(self._path)
        except OSError as error:  # the error's own message names a temporary file
            raise SourceError(f"{self.name}: cannot be written: {error.strerror}") from None


def _static_facts(made: StaticFilter) -> FilterFacts:
    size = made.header().body_size
    return FilterFacts(
        kind=f"{FilterKind.STATIC.value}, {made.fingerprint_bits}-bit fingerprints",
        family=made.family.name.lower(),
        bits=8 * size,
        size=size,
        hash_funcs="3",
        capacity=len(made) or None,
        nominal=2.0**-made.fingerprint_bits,
        fill=None,
        estimate=len(made),
        rate=made.fp_rate,
    )


def _scalable_facts(made: ScalableBloomFilter) -> FilterFacts:
    functions = [slice.hash_funcs for slice in made.slices]
    return FilterFacts(
        kind=FilterKind.SCALABLE.value,
        family=made.family.name.lower(),
        bits=made.bits,
        size=sum(slice.header().body_size for slice in made.slices),
        hash_funcs=f"{functions[0]} to {functions[-1]}" if len(functions) > 1 else str(functions[0]),
        capacity=None,
        nominal=made.nominal_fp_rate,
        fill=made.fill,
        estimate=made.approx_len,
        rate=made.current_fp_rate,
        slices=len(functions),
    )
