"""Storage of a generic Bloom filter for `spvfilter bloom`: the interface of files and of Redis (remote.py), and
files.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from spvfilter.bloom.base import OnFull
from spvfilter.bloom.counting import CountingBloomFilter
from spvfilter.bloom.fileformat import HEADER_SIZE, KIND_COUNTERS, KIND_SERIES, MAGIC, FileHeader
from spvfilter.bloom.filter import BloomFilter
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

Local = BloomFilter | CountingBloomFilter | ScalableBloomFilter


class Kind(Enum):
    """The kinds of filters."""

    PLAIN = "Bloom filter"
    SCALABLE = "scalable Bloom filter"
    COUNTING = "counting Bloom filter"


class Shape(NamedTuple):
    """What a new filter is made for."""

    capacity: int
    fp_rate: float
    hash_funcs: int | None
    kind: Kind
    on_full: OnFull

    @property
    def fixed(self) -> tuple[int, float, int | None]:
        """The arguments of a BloomFilter."""
        return self.capacity, self.fp_rate, self.hash_funcs


class Asked(NamedTuple):
    """The options that a filter was made with; None where there are none."""

    kind: Kind
    capacity: int | None
    fp_rate: float | None
    hash_funcs: int | None
    key: bytes | None
    """Of SipHash."""


class Facts(NamedTuple):
    """The parameters and the state of a filter."""

    kind: str
    family: str
    bits: int
    size: int
    """Bytes."""
    hash_funcs: str
    capacity: int | None
    """None if it is unknown, or grows."""
    nominal: float | None
    fill: float
    estimate: float
    rate: float
    slices: int = 0
    """Of a scalable filter."""


class FilterStorage(ABC):
    """Storage of one filter of lines at a time, which is created or opened, used and finished."""

    name = "the filter in memory"

    @abstractmethod
    def create(self, name: str | None, shape: Shape, hashing: HashFamily, *, replace: bool) -> None:
        """Make a new filter. Without a name it is not kept."""

    @abstractmethod
    def open(self, name: str, *, change: bool = False, on_full: OnFull = "raise") -> None:
        """Open a filter; with `on_full`, what happens to a new line when it is full."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether there is something of that name, be it a filter or not."""

    def absent(self, name: str) -> str:
        """Says that there is nothing of that name."""
        return f"{name}: No such file or directory"

    @abstractmethod
    def asked(self) -> Asked: ...

    @abstractmethod
    def add_many(self, lines: list[bytes]) -> bytes:
        """Add the lines and return one byte for each: whether it was new.

        Fewer, if the filter has no room for the next one.
        """

    @abstractmethod
    def update(self, lines: list[bytes]) -> int:
        """Add the lines and return how many were new. Raises CapacityError."""

    @abstractmethod
    def remove_many(self, lines: list[bytes]) -> bytes:
        """Remove the lines from a counting filter and return one byte for each: whether it was there.

        Raises ParameterError for others.
        """

    @abstractmethod
    def contains_many(self, lines: list[bytes]) -> bytes: ...

    @abstractmethod
    def facts(self) -> Facts: ...

    @abstractmethod
    def read(self, name: str) -> Local:
        """Read a whole filter into memory."""

    @abstractmethod
    def write(self, name: str, made: Local, *, replace: bool) -> None: ...

    def merge(self, names: Sequence[str], output: str, *, replace: bool) -> None:
        """Write the union of the filters after all are read: the output may be one of them."""
        merged = self.read(names[0])
        for name in names[1:]:
            part = self.read(name)
            try:
                if isinstance(part, ScalableBloomFilter) or isinstance(merged, ScalableBloomFilter):
                    raise MismatchError("a scalable filter cannot be united with others: add their lines to one filter")
                if type(part) is not type(merged):
                    raise MismatchError("one of them is a counting filter")
                merged |= part  # type: ignore[operator]  # of one kind
            except MismatchError as error:
                raise MismatchError(f"{names[0]} and {name} cannot be merged: {error}") from None
        self.write(output, merged, replace=replace)

    @abstractmethod
    def finish(self) -> None:
        """Save what was added."""

    def _encoded(self, encoding: Encoding, lines: list[bytes]) -> list[bytes] | list[str]:
        """The lines in the encoding of the filter's keys, which a Python program may have chosen."""
        match encoding:
            case Encoding.BYTES:
                return lines
            case Encoding.UTF8:
                try:
                    return [line.decode() for line in lines]
                except UnicodeDecodeError as error:
                    raise SourceError(
                        f"the keys of {self.name} are text, and this line is not UTF-8: {error.object[:40]!r}"
                    ) from None
            case _:
                raise ParameterError(f"{self.name} does not hold lines: its keys are {encoding.name.lower()}")


def is_filter(path: Path) -> bool:
    """Whether `path` is a regular file that starts like a filter. Only regular files are read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


class FileStorage(FilterStorage):
    """A filter in a file, read into memory and replaced whole."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._filter: Local | None = None

    @property
    def _opened(self) -> Local:
        assert self._filter is not None
        return self._filter

    def create(self, name: str | None, shape: Shape, hashing: HashFamily, *, replace: bool) -> None:
        if name is not None:
            self._claim(name, replace)
        match shape.kind:
            case Kind.SCALABLE:
                self._filter = ScalableBloomFilter(shape.capacity, shape.fp_rate, hashing=hashing)
            case Kind.COUNTING:
                self._filter = CountingBloomFilter(*shape.fixed, hashing=hashing, on_full=shape.on_full)
            case Kind.PLAIN:
                self._filter = BloomFilter(*shape.fixed, hashing=hashing, on_full=shape.on_full)

    def _claim(self, name: str, replace: bool) -> None:
        """Let `finish` write to this file. Only a filter is ever replaced."""
        path = Path(os.path.realpath(name))
        if path.exists() and not is_filter(path):
            raise SourceError(f"{name} exists and is not a filter")
        if path.exists() and not replace:
            raise SourceError(f"{name} exists: --force replaces it")
        if not os.access(path.parent, os.W_OK | os.X_OK):  # reported now, not after hours of reading
            raise SourceError(f"{name}: {path.parent} is not a writable directory")
        self.name, self._path = name, path

    def open(self, name: str, *, change: bool = False, on_full: OnFull = "raise") -> None:
        self._filter = self.read(name)
        if not isinstance(self._filter, ScalableBloomFilter):
            self._filter.on_full = on_full
        self.name = name
        if change:
            self._keys([])  # raises if the filter does not hold lines
            self._claim(name, replace=True)

    def exists(self, name: str) -> bool:
        return Path(name).exists()

    def asked(self) -> Asked:
        made = self._opened
        key = made.hashing.key if made.family == Family.SIPHASH else None
        if isinstance(made, ScalableBloomFilter):
            return Asked(Kind.SCALABLE, made.initial_capacity, made.nominal_fp_rate, None, key)
        kind = Kind.COUNTING if isinstance(made, CountingBloomFilter) else Kind.PLAIN
        return Asked(kind, made.capacity, made.nominal_fp_rate, made.hash_funcs, key)

    def add_many(self, lines: list[bytes]) -> bytes:
        new = bytearray()
        with suppress(CapacityError):
            for key in self._keys(lines):
                new.append(self._opened.add(key))
        return bytes(new)

    def update(self, lines: list[bytes]) -> int:
        return self._opened.update(self._keys(lines))

    def remove_many(self, lines: list[bytes]) -> bytes:
        made = self._opened
        if not isinstance(made, CountingBloomFilter):
            kind = self.asked().kind.value
            raise ParameterError(
                f"{self.name} is a {kind}, from which nothing can be removed: make a counting one (create --counting)"
            )
        return made.remove_many(self._keys(lines))

    def contains_many(self, lines: list[bytes]) -> bytes:
        return self._opened.contains_many(self._keys(lines))

    def _keys(self, lines: list[bytes]) -> list[bytes] | list[str]:
        return self._encoded(self._opened.encoding, lines)

    def facts(self) -> Facts:
        made = self._opened
        if isinstance(made, ScalableBloomFilter):
            return _scalable_facts(made)
        kind = self.asked().kind.value
        return Facts(
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
            if not start or not start.startswith(MAGIC[: len(start)]):
                advice = "`spvfilter bloom create` makes one of lines" if start else "it is empty"
                raise SourceError(f"this is no filter file: {advice}")
            header = FileHeader.parse(start)
            if header.kind == KIND_SERIES:
                return ScalableBloomFilter.open(name)
            return (CountingBloomFilter if header.kind == KIND_COUNTERS else BloomFilter).open(name)
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
            mode = self._path.stat().st_mode if self._path.exists() else None
            self._opened.save(self._path)
            if mode is not None:  # a filter that others may read stays readable
                self._path.chmod(stat.S_IMODE(mode))
        except OSError as error:  # its own message names a temporary file
            raise SourceError(f"{self.name}: cannot be written: {error.strerror}") from None


def _scalable_facts(made: ScalableBloomFilter) -> Facts:
    functions = [slice.hash_funcs for slice in made.slices]
    return Facts(
        kind=Kind.SCALABLE.value,
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
