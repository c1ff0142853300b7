"""BloomFilter: a general-purpose Bloom filter with batches, set operations and a file format."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Self

from spvfilter._public import deferred, public
from spvfilter.bloom import bag, sizing
from spvfilter.bloom.base import SLOTS, GenericFilter, OnFull
from spvfilter.bloom.fileformat import KIND_BITS
from spvfilter.bloom.hashing import HashFamily
from spvfilter.errors import ParameterError
from spvfilter.kernel import BitCore

if TYPE_CHECKING:
    import pickle

    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Keys
else:
    pickle = deferred("pickle")


@public
class BloomBits(BitCore):
    """Estimates and set operations for the bits of any Bloom filter."""

    __slots__ = ()

    if TYPE_CHECKING:

        def copy(self) -> Self: ...

    def __or__(self, other: BloomBits) -> Self:
        """A filter that contains the keys of both."""
        if not isinstance(other, BloomBits):
            return NotImplemented
        self.same_shape(other)
        both = self.copy()
        both |= other
        return both

    def __and__(self, other: BloomBits) -> Self:
        """A filter that contains the common keys.

        Its rate lies between those of the two and that of a filter of the common keys alone.
        """
        if not isinstance(other, BloomBits):
            return NotImplemented
        self.same_shape(other)
        common = self.copy()
        common &= other
        return common

    def union(self, *others: BloomBits) -> Self:
        """A new filter that contains the keys of this and the others, as `|`.

        Raises MismatchError, TypeError for other objects, TooLargeError.
        """
        self._match(others)
        both = self.copy()
        both.union_update(*others)
        return both

    def intersection(self, *others: BloomBits) -> Self:
        """A new filter that contains the keys in this and all others, as `&`.

        Raises MismatchError, TypeError for other objects, TooLargeError.
        """
        self._match(others)
        common = self.copy()
        common.intersection_update(*others)
        return common

    def union_update(self, *others: BloomBits) -> None:
        """Add the keys of the others, as `|=`; `update` adds keys.

        Raises MismatchError, TypeError for other objects, both before anything is changed; ReadOnlyError.
        """
        self._match(others)
        for other in others:
            self |= other

    def intersection_update(self, *others: BloomBits) -> None:
        """Keep what the others contain, too, as `&=`. Raises as `union_update` does:

        MismatchError, TypeError, ReadOnlyError.
        """
        self._match(others)
        for other in others:
            self &= other

    def issubset(self, other: BloomBits) -> bool:
        """Whether the other contains every key that this contains, as `<=`.

        Raises MismatchError, TypeError for other objects.
        """
        self._match((other,))
        return self <= other

    def issuperset(self, other: BloomBits) -> bool:
        """Whether this contains every key that the other contains, as `>=`.

        Raises MismatchError, TypeError for other objects.
        """
        self._match((other,))
        return other <= self

    def _match(self, others: Iterable[BloomBits]) -> None:
        for other in others:
            if not isinstance(other, BloomBits):
                raise TypeError(f"a Bloom filter expected, not {type(other).__name__}")
            self.same_shape(other)

    def __bool__(self) -> bool:
        """Whether any key was added."""
        return self.set_bits() > 0

    def __len__(self) -> int:
        """`approx_len`, rounded. Raises OverflowError if every bit is set."""
        return round(self.approx_len)

    @property
    def approx_len(self) -> float:
        """The estimated number of distinct keys, -(m/k) ln(1 - X/m); infinite if every bit is set."""
        if not self.bits or not self.hash_funcs:
            return math.inf
        return sizing.estimate_items(self.bits, self.hash_funcs, self.set_bits())

    def union_len(self, other: BloomBits) -> float:
        """The estimated number of distinct keys in either filter. Raises MismatchError."""
        return sizing.estimate_union(*self._counts(other))

    def intersection_len(self, other: BloomBits) -> float:
        """The estimated number of common keys, at least 0.

        Raises MismatchError, and ParameterError if every bit of the union is set.
        """
        return sizing.estimate_intersection(*self._counts(other))

    def _counts(self, other: BloomBits) -> tuple[int, int, int, int, int]:
        return self.bits, self.hash_funcs, self.set_bits(), other.set_bits(), self.union_set_bits(other)

    @property
    def fill(self) -> float:
        """The share of set bits, 0 to 1. A filter without bits counts as full: it contains everything."""
        return self.set_bits() / self.bits if self.bits else 1.0

    @property
    def current_fp_rate(self) -> float:
        """The present false-positive rate: (X/m)^k, or the product of the planes' fills if partitioned."""
        if self.partitioned:
            return math.prod(count * self.hash_funcs / self.bits for count in self.plane_set_bits())
        return self.fill**self.hash_funcs


@public
class BloomFilter(GenericFilter, BloomBits):
    """A set with false positives at a known rate and without false negatives.

    `BloomFilter(capacity, fp_rate)` takes the smallest m for n keys at rate p, `BloomFilter(capacity, fp_rate,
    hash_funcs)` the smallest m for that k, both rounded up to 4 bytes; `BloomFilter(bits=m, hash_funcs=k)` takes
    exactly these. Options: `hashing`, the hash family (default FastHash); `encode`, the type of keys: None for
    bytes-like, "utf-8" for str, "int64", "uint64", "int32" or "uint32" for int, or a function that returns bytes, so
    that 1 and "1" never alias; `partitioned`, one plane of bits per function; `buffer`, a writable buffer of ⌈m/8⌉
    bytes for the bits (bytearray, mmap, shared memory), whose contents are kept; `on_full`, what happens to a new key
    once the filter was given `capacity` of them (`make_room` says how they are counted): "raise" refuses it with
    CapacityError, "warn" takes it and warns once with CapacityWarning. A filter made by bits is never full.

    spvfilter.kernel.BitCore documents `add`, `in`, `update`, `contains_many`, `|=`, `&=`, `<=` and `clear`. With the
    compiled kernel, any number of threads may add to a filter concurrently, and so may processes to filters over the
    same shared memory or mapped file; batches release the GIL, best if given as buffers or lists.

    Raises ParameterError for sizes and rates outside their domain, CapacityError for a new key in a full filter,
    TooLargeError (a ParameterError and a MemoryError) for more memory than the machine has, MismatchError (a
    ParameterError) for operands of another shape.
    """

    __slots__ = SLOTS

    KIND = KIND_BITS
    _init_core = BitCore.__init__

    @classmethod
    def build(
        cls,
        keys: Keys,
        capacity: int,
        fp_rate: float,
        hash_funcs: int | None = None,
        *,
        hashing: HashFamily | None = None,
        encode: str | Callable[[object], bytes] | None = None,
        partitioned: bool = False,
        on_full: OnFull = "raise",
    ) -> Self:
        """A filter of `keys`, a batch as for `update`, or a Dask bag, as `dask.bag.read_text` makes of many files.

        A bag is built where its partitions are, and only bits are merged; functions of the caller's own must then
        pickle. Raises ParameterError for functions that do not, and as BloomFilter does; CapacityError and TypeError as
        `update` does.
        """
        made = cls(
            capacity, fp_rate, hash_funcs, hashing=hashing, encode=encode, partitioned=partitioned, on_full=on_full
        )
        if not bag.is_bag(keys):
            made.update(keys)
            return made
        part = made.header()._replace(capacity=0, fp_rate=0.0)  # which is never full
        # makes such a filter over other bits
        over = partial(cls._made, part, made.hashing, made._encode_with, private=True)
        _refuse_unpicklable(over)
        made |= over(bag.bits_of_bag(keys, over, made.header().body_size))
        made.make_room()  # the parts were not counted together
        return made


def _refuse_unpicklable(over: Callable[[Buffer], BloomFilter]) -> None:
    try:
        pickle.dumps(over)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ParameterError(
            f"functions for a cluster must be importable, not lambdas or local functions: {error}"
        ) from None
