"""ScalableBloomFilter: a Bloom filter that grows with its keys and keeps its false-positive rate."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn, Self

from spvfilter._public import public
from spvfilter.bloom import rates, seriesformat
from spvfilter.bloom.attributes import pickled, with_attributes_of
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
    """A Bloom filter for an unknown number of keys: it grows, and its false-positive rate stays below `fp_rate`.

    The filter is a series of Bloom filters, the slices. A new key is added to the last slice. When that slice is full,
    the next one is made, for `growth` times as many keys and at a lower rate. Source: Almeida, Baquero, Preguiça and
    Hutchison, "Scalable Bloom Filters" (2007); see `Growth` for the formulas.

    At 10 and 100 times the initial capacity, a filter with a rate of 1 % has 2.3 and 2.5 times the bits of a
    BloomFilter. Slices use a quarter fewer hash functions than the optimum, which saves a quarter of the time and costs
    3 % more bits.

    The methods `add`, `in`, `update` and `contains_many` are documented at spvfilter.kernel.SeriesCore. Threads may
    call them at the same time.

    Args:
        initial_capacity: Number of keys that the first slice is made for.
        fp_rate: Upper bound of the false-positive rate, between 0 and 1.
        growth: Ratio of the capacities of two successive slices, from 2 to 1024.
        tightening: Ratio of the rates of two successive slices, between 0 and 1.
        hashing: The hash family, as for BloomFilter.
        encode: Type of the keys, as for BloomFilter.

    Raises:
        ParameterError: An argument is outside its domain.
        TooLargeError: A slice does not fit into memory.
        CapacityError: The filter has 64 full slices.
        MismatchError: The operation (`|`, `&` or `<=`) needs filters of equal shape, but the slices of two series
            differ.
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
        self.initial_capacity: int = plan.capacity
        self.nominal_fp_rate: float = plan.fp_rate
        self.growth: int = plan.growth
        self.tightening: float = plan.tightening
        self.hashing: HashFamily = slices[0].hashing
        self._encode_with = slices[0]._encode_with

    @property
    def plan(self) -> Growth:
        """The parameters that determine the sizes of the slices."""
        return Growth(self.initial_capacity, self.nominal_fp_rate, self.growth, self.tightening)

    @property
    def _given_encoding(self) -> Encode:
        """The `encode` argument that a filter with the same keys needs."""
        return self._encode_with or ENCODES[self.slices[0].encoding]

    def _make_room(self) -> None:
        """Make the next slice if the last one is full.

        The kernel calls this before it adds a new key if `room` is 0 or unknown.

        A slice is full when the estimate from its set bits reaches its capacity. Its rate is therefore kept for any
        keys, even if they set more bits than average.

        Raises TooLargeError if the next slice does not fit into memory, and CapacityError if there are 64 slices
        already.
        """
        with counting_lock():
            self._grow()

    def _grow(self) -> None:
        slices = self.slices
        last = slices[-1]
        assert last.capacity is not None
        assert last.room is not None
        if last.room > 0:  # another thread has made the slice already
            return
        left = last.capacity - last.approx_len
        if left >= 1:
            last.room = int(left)
            return
        made = self.plan.slice(len(slices), self.hashing, self._given_encoding)
        self.append(made, len(slices))

    @property
    def encoding(self) -> Encoding:
        """Encoding of the keys."""
        return self.slices[0].encoding

    @property
    def family(self) -> Family:
        """Number of the hash family."""
        return self.slices[0].family

    @property
    def capacity(self) -> int:
        """Number of keys that the existing slices were made for."""
        return sum(slice.capacity or 0 for slice in self.slices)

    @property
    def bits(self) -> int:
        """Number of bits in all slices."""
        return sum(slice.bits for slice in self.slices)

    @property
    def fill(self) -> float:
        """Share of set bits in all slices, from 0 to 1."""
        return sum(slice.set_bits() for slice in self.slices) / self.bits

    @property
    def approx_len(self) -> float:
        """Estimated number of distinct keys: the sum of the estimates of the slices.

        It is infinite if every bit of a slice is set.
        """
        return sum(slice.approx_len for slice in self.slices)

    def __len__(self) -> int:
        """Return the estimated number of distinct keys, rounded.

        Raises OverflowError if every bit of a slice is set.
        """
        return round(self.approx_len)

    def __bool__(self) -> bool:
        """Return True if any key was added."""
        return any(self.slices)

    @property
    def current_fp_rate(self) -> float:
        """Current false-positive rate: the probability that a slice contains a key that was never added."""
        return abs(math.expm1(sum(math.log1p(-min(slice.current_fp_rate, 1 - 2**-53)) for slice in self.slices)))

    def clear(self) -> None:
        """Remove all keys. The slices remain, and new keys are added to the last one.

        Raises ReadOnlyError if the memory is read-only.
        """
        for slice in self.slices:
            slice.clear()

    def __bytes__(self) -> bytes:
        """Return the contents of the filter's file (spvfilter.bloom.seriesformat)."""
        return seriesformat.packed(self.plan, self.slices)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the filter to a file, as BloomFilter.save does. Raises OSError if it cannot be written."""
        seriesformat.save(Path(path), self.plan, self.slices)

    @classmethod
    def from_bytes(cls, raw: Buffer, *, hashing: HashFamily | None = None, encode: Encode = None) -> Self:
        """Make a filter from the contents of its file.

        Args:
            raw: The contents of the file.
            hashing: The hash family. Needed only for a custom family, which a file cannot contain.
            encode: The encoding of keys. Needed only for a custom function, which a file cannot contain.

        Raises:
            FormatError: The data is truncated, too long, damaged or not a scalable filter, or has an unknown version or
                family.
            ParameterError: `hashing` or `encode` differs from the file's.
            TooLargeError: The filter does not fit into memory.
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
        """Open the filter in a file.

        Args:
            path: Path of the file.
            mmap: True leaves the bits in the file. All filters that map it share them, and no key can be added: a
                filter that grows does not fit into its old file.
            verify: True reads the whole file once to check the CRCs. False checks only the headers.
            hashing: The hash family. Needed only for a custom family.
            encode: The encoding of keys. Needed only for a custom function.

        Raises:
            FormatError: The file is truncated, too long, damaged or not a scalable filter, or has an unknown version or
                family.
            ParameterError: `hashing` or `encode` differs from the file's.
            TooLargeError: The filter does not fit into memory.
            OSError: The file cannot be read.
        """
        if mmap:
            with Path(path).open("rb") as file:
                return cls._over(seriesformat.mapped(file), verify, hashing, encode)
        return cls._over(seriesformat.read(Path(path)), verify, hashing, encode, private=True)

    @classmethod
    def _over(
        cls, whole: memoryview, verify: bool, hashing: HashFamily | None, encode: Encode, *, private: bool = False
    ) -> Self:
        """Return a filter over the contents of a file, after checking them."""
        header, plan, bodies = seriesformat.parse(whole, verify)
        family, function = given_or_stored(header, hashing, encode)
        return cls._made(plan, [BloomFilter._made(of, family, function, body, private=private) for of, body in bodies])

    @classmethod
    def _made(cls, plan: Growth, slices: list[BloomFilter]) -> Self:
        made = cls.__new__(cls)
        made._set_up(plan, slices)
        return made

    def copy(self) -> Self:
        """Return an independent filter in memory with the same keys.

        Raises TooLargeError if the copy does not fit into memory.
        """
        return with_attributes_of(self._made(self.plan, [slice.copy() for slice in self.slices]), self)

    def __eq__(self, other: object) -> bool:
        """Return True if both filters have the same parameters and the same slices with the same contents."""
        if not isinstance(other, ScalableBloomFilter):
            return NotImplemented
        return self.plan == other.plan and self.slices == other.slices

    def __or__(self, other: GenericFilter | ScalableBloomFilter) -> NoReturn:
        """Raise MismatchError: a scalable filter cannot be combined with another filter.

        Two scalable filters can be compared only with `==`.
        """
        if not isinstance(other, (GenericFilter, ScalableBloomFilter)):
            return NotImplemented
        raise MismatchError("a scalable filter has no operations with other filters: their slices do not correspond")

    __ror__: Final = __or__
    __and__: Final = __or__
    __rand__: Final = __or__
    __ior__: Final = __or__
    __iand__: Final = __or__
    __le__: Final = __or__
    __ge__: Final = __or__
    __lt__: Final = __or__
    __gt__: Final = __or__

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # a filter can change, so it has no hash

    def __reduce__(self) -> tuple[object, ...]:
        own = self.hashing if self.family == Family.CUSTOM else None
        return pickled(partial(type(self).from_bytes, hashing=own, encode=self._encode_with), (bytes(self),), self)

    def __repr__(self) -> str:
        """Return a string that shows parameters, fill and rate. Values estimated from a sample are marked with ≈."""
        shape = (
            f"{self.initial_capacity} keys first, at {self.nominal_fp_rate:g}, growth {self.growth}, tightening"
            f" {self.tightening:g}"
        )
        seen = [(glance(slice.body, slice.bits, 1), slice) for slice in self.slices]
        fill = sum(part.fill * slice.bits for part, slice in seen) / self.bits
        rate = 1 - math.prod(
            1 - rates.of_fill(of.family, of.bits, of.hash_funcs, part.fill, False) for part, of in seen
        )
        state = Glance(fill, all(part.is_exact for part, _ in seen)).told(rate)
        return f"<{type(self).__name__} {shape}, {len(seen)} slices, m={self.bits}, {self.hashing!r}, {state}>"
