"""ScalableBloomFilter: a Bloom filter that grows with its keys and keeps its false-positive rate."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

from spvfilter._public import public
from spvfilter.bloom import seriesformat
from spvfilter.bloom.base import ENCODES, Encode, GenericFilter, counting_lock, given_or_stored
from spvfilter.bloom.filter import BloomFilter
from spvfilter.bloom.growth import Growth
from spvfilter.bloom.hashing import HashFamily
from spvfilter.bloom.sample import Glance, glance
from spvfilter.errors import MismatchError
from spvfilter.kernel import Encoding, Family, SeriesCore

if TYPE_CHECKING:
    from typing_extensions import Buffer


@public
class ScalableBloomFilter(SeriesCore):
    """A Bloom filter for a number of keys that is not known: it grows, and its false-positive rate stays below the one
    promised.

    It is a series of Bloom filters, the slices. The first is made for `initial_capacity` keys, each further one for
    `growth` times as many as the one before. Slice i has the rate fp_rate (1 - tightening) tightening^i, so that the
    rates of all slices together never exceed `fp_rate`. A key that no slice contains is added to the last slice; once
    its bits tell of as many keys as it was made for, the next one is made. Slices have about a quarter fewer hash
    functions than is optimal, which costs 3 % more bits and saves a quarter of the time. At 10 and 100 times the
    initial capacity a filter of 1 % takes 2.3 and 2.5 times the bits of one that was made for that many keys.

    `hashing` and `encode` are BloomFilter's. spvfilter.kernel.SeriesCore documents `add`, `in`, `update` and
    `contains_many`, which threads may call concurrently as those of BloomFilter. Operations that need equal shapes
    (`|`, `&`, `<=`) raise MismatchError: the slices of two series do not correspond, and a union of all slices would
    break the promise. Raises ParameterError for arguments outside their domain, TooLargeError for a slice that does not
    fit into memory.

    Source: Almeida, Baquero, Preguiça and Hutchison, "Scalable Bloom Filters" (2007).
    """

    __slots__ = (
        "__weakref__",
        "_encode_with",
        "growth",
        "hashing",
        "initial_capacity",
        "nominal_fp_rate",
        "tightening",
    )

    if TYPE_CHECKING:

        @property
        def slices(self) -> tuple[BloomFilter, ...]: ...

    def __init__(
        self,
        initial_capacity: int,
        fp_rate: float,
        growth: int = 2,
        tightening: float = 0.5,
        *,
        hashing: HashFamily | None = None,
        encode: Encode = None,
    ) -> None:
        plan = Growth(initial_capacity, fp_rate, growth, tightening).checked()
        self._set_up(plan, [plan.slice(0, hashing, encode)])

    def _set_up(self, plan: Growth, slices: list[BloomFilter]) -> None:
        super().__init__(slices)
        self.initial_capacity = plan.capacity
        self.nominal_fp_rate = plan.fp_rate
        self.growth = plan.growth
        self.tightening = plan.tightening
        self.hashing = slices[0].hashing
        self._encode_with = slices[0]._encode_with

    @property
    def plan(self) -> Growth:
        """The parameters from which the slices follow."""
        return Growth(self.initial_capacity, self.nominal_fp_rate, self.growth, self.tightening)

    @property
    def _given_encoding(self) -> Encode:
        """What `encode` has to be for a filter of the same keys."""
        return self._encode_with or ENCODES[self.slices[0].encoding]

    def make_room(self) -> None:
        """Called by the kernel before a new key is added where no room is known: makes the next slice if the last one
        is full.

        A slice is full once its bits tell of as many keys as it was made for: so its rate is not exceeded, whatever
        bits its keys chose. Raises TooLargeError, and CapacityError beyond 64 slices.
        """
        with counting_lock():
            self._grow()

    def _grow(self) -> None:
        slices = self.slices
        last = slices[-1]
        assert last.capacity is not None
        assert last.room is not None
        if last.room > 0:  # another thread was faster
            return
        left = last.capacity - last.approx_len
        if left >= 1:
            last.room = int(left)
            return
        made = self.plan.slice(len(slices), self.hashing, self._given_encoding)
        self.append(made, len(slices))

    @property
    def encoding(self) -> Encoding:
        """The keys' encoding."""
        return self.slices[0].encoding

    @property
    def family(self) -> Family:
        """The hash family's number."""
        return self.slices[0].family

    @property
    def capacity(self) -> int:
        """The number of keys for which the present slices were made."""
        return sum(slice.capacity or 0 for slice in self.slices)

    @property
    def bits(self) -> int:
        """The number of bits of all slices."""
        return sum(slice.bits for slice in self.slices)

    @property
    def fill(self) -> float:
        """The share of set bits in all slices, 0 to 1."""
        return sum(slice.set_bits() for slice in self.slices) / self.bits

    @property
    def approx_len(self) -> float:
        """The estimated number of distinct keys: the sum of the slices' estimates; infinite if every bit of a slice is
        set.
        """
        return sum(slice.approx_len for slice in self.slices)

    def __len__(self) -> int:
        """`approx_len`, rounded. Raises OverflowError if every bit of a slice is set."""
        return round(self.approx_len)

    def __bool__(self) -> bool:
        """Whether any key was added."""
        return any(self.slices)

    @property
    def current_fp_rate(self) -> float:
        """The present false-positive rate: one minus the probability that no slice contains a key that was never
        added.
        """
        return -math.expm1(sum(math.log1p(-min(slice.current_fp_rate, 1 - 2**-53)) for slice in self.slices))

    def clear(self) -> None:
        """Remove all keys. The slices that were made stay, and are filled from the last one on.

        Raises ReadOnlyError.
        """
        for slice in self.slices:
            slice.clear()

    def __bytes__(self) -> bytes:
        """The contents of the filter's file (spvfilter.bloom.seriesformat)."""
        return seriesformat.packed(self.plan, self.slices)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the filter to a file of mode 0600 that atomically replaces `path` and is flushed to disk."""
        seriesformat.save(Path(path), self.plan, self.slices)

    @classmethod
    def from_bytes(cls, raw: Buffer, *, hashing: HashFamily | None = None, encode: Encode = None) -> Self:
        """The filter in the contents of a file. Custom `hashing` and `encode` must be passed again.

        Raises FormatError if the data is truncated, too long, damaged, not a scalable filter, or of an unknown version
        or family; ParameterError if `hashing` or `encode` differs from the file's; TooLargeError.
        """
        made = cls._over(memoryview(raw).cast("B"), True, hashing, encode)
        return cls._made(made.plan, [slice.copy() for slice in made.slices])

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        mmap: bool = False,
        verify: bool = True,
        hashing: HashFamily | None = None,
        encode: Encode = None,
    ) -> Self:
        """The filter in a file.

        With `mmap` its bits stay in the file, shared with all that map it, and cannot be changed: a filter that grows
        does not fit into the file it came from. `verify` reads the whole file once to check the CRCs; without it only
        the headers are checked. Raises OSError, FormatError, ParameterError and TooLargeError as `from_bytes` does.
        """
        if mmap:
            with Path(path).open("rb") as file:
                return cls._over(seriesformat.mapped(file), verify, hashing, encode)
        return cls._over(seriesformat.read(Path(path)), verify, hashing, encode, private=True)

    @classmethod
    def _over(
        cls, whole: memoryview, verify: bool, hashing: HashFamily | None, encode: Encode, *, private: bool = False
    ) -> Self:
        """A filter over the contents of a file, which are checked."""
        header, plan, bodies = seriesformat.parse(whole, verify)
        family, function = given_or_stored(header, hashing, encode)
        return cls._made(plan, [BloomFilter._made(of, family, function, body, private=private) for of, body in bodies])

    @classmethod
    def _made(cls, plan: Growth, slices: list[BloomFilter]) -> Self:
        made = cls.__new__(cls)
        made._set_up(plan, slices)
        return made

    def copy(self) -> Self:
        """An independent filter in memory with the same keys. Raises TooLargeError."""
        return self._made(self.plan, [slice.copy() for slice in self.slices])

    def __eq__(self, other: object) -> bool:
        """Whether both have the same parameters and the same slices with the same contents."""
        if not isinstance(other, ScalableBloomFilter):
            return NotImplemented
        return self.plan == other.plan and self.slices == other.slices

    def __or__(self, other: GenericFilter | ScalableBloomFilter) -> NoReturn:
        """Raises MismatchError: it cannot be combined with other filters, nor compared but by `==`."""
        if not isinstance(other, (GenericFilter, ScalableBloomFilter)):
            return NotImplemented
        raise MismatchError("a scalable filter has no operations with other filters: their slices do not correspond")

    __ror__ = __and__ = __rand__ = __ior__ = __iand__ = __le__ = __ge__ = __or__

    __hash__ = None  # type: ignore[assignment]  # a filter changes

    def __reduce__(self) -> tuple[object, ...]:
        own = self.hashing if self.family == Family.CUSTOM else None
        return partial(type(self).from_bytes, hashing=own, encode=self._encode_with), (bytes(self),)

    def __repr__(self) -> str:
        """Its parameters, fill and rate; ≈ marks those of a sample of its bits, as large filters are not counted
        here.
        """
        shape = (
            f"{self.initial_capacity} keys first, at {self.nominal_fp_rate:g}, growth {self.growth}, tightening"
            f" {self.tightening:g}"
        )
        seen = [(glance(slice.body, slice.bits, False), slice) for slice in self.slices]
        fill = sum(part.fill * slice.bits for part, slice in seen) / self.bits
        rate = 1 - math.prod(1 - part.fill**slice.hash_funcs for part, slice in seen)
        state = Glance(fill, all(part.is_exact for part, _ in seen)).told(rate)
        return f"<{type(self).__name__} {shape}, {len(seen)} slices, m={self.bits}, {self.hashing!r}, {state}>"
