"""BloomFilter: a general-purpose Bloom filter with batches, set operations and a file format."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Self

from spvfilter._public import public
from spvfilter.bloom import bag, rates, sizing
from spvfilter.bloom.base import SLOTS, GenericFilter, OnFull
from spvfilter.bloom.fileformat import KIND_BITS
from spvfilter.bloom.hashing import HashFamily
from spvfilter.errors import ParameterError
from spvfilter.kernel import BitCore
from spvfilter.kernel.columns import Keys

if TYPE_CHECKING:
    from typing_extensions import Buffer


@public
class BloomBits(BitCore):
    """Base class that provides the estimates and set operations of all Bloom filters."""

    __slots__ = ()

    if TYPE_CHECKING:

        def copy(self) -> Self: ...

    def __or__(self, other: BloomBits) -> Self:
        """Return a filter that contains the keys of both filters."""
        if not isinstance(other, BloomBits):
            return NotImplemented
        self._same_shape(other)
        both = self.copy()
        both |= other
        return both

    def __and__(self, other: BloomBits) -> Self:
        """Return a filter that contains the keys that both filters contain.

        Its false-positive rate is lower than the rates of both operands. It is higher than the rate of a new filter to
        which only the common keys were added.
        """
        if not isinstance(other, BloomBits):
            return NotImplemented
        self._same_shape(other)
        common = self.copy()
        common &= other
        return common

    def union(self, *others: BloomBits) -> Self:
        """Return a new filter that contains the keys of this filter and the others, as `|` does.

        Raises MismatchError if a filter has a different shape, TypeError if an object is not such a filter, and
        TooLargeError if the result does not fit into memory.
        """
        self._match(others)
        both = self.copy()
        both.union_update(*others)
        return both

    def intersection(self, *others: BloomBits) -> Self:
        """Return a new filter that contains the keys that this filter and all the others contain, as `&` does.

        Raises MismatchError if a filter has a different shape, TypeError if an object is not such a filter, and
        TooLargeError if the result does not fit into memory.
        """
        self._match(others)
        common = self.copy()
        common.intersection_update(*others)
        return common

    def union_update(self, *others: BloomBits) -> None:
        """Add the keys of other filters, as `|=` does. To add single keys, use `update`.

        Raises MismatchError if a filter has a different shape, TypeError if an object is not such a filter, and
        ReadOnlyError if the memory is read-only. In the first two cases nothing has changed.
        """
        self._match(others)
        for other in others:
            self |= other

    def intersection_update(self, *others: BloomBits) -> None:
        """Keep only the keys that all other filters contain too, as `&=` does.

        Raises MismatchError if a filter has a different shape, TypeError if an object is not such a filter, and
        ReadOnlyError if the memory is read-only. In the first two cases nothing has changed.
        """
        self._match(others)
        for other in others:
            self &= other

    def issubset(self, other: BloomBits) -> bool:
        """Return True if the other filter contains every key that this filter contains, as `<=` does.

        Raises MismatchError if the filter has a different shape, and TypeError if it is not a Bloom filter.
        """
        self._match((other,))
        return self <= other

    def issuperset(self, other: BloomBits) -> bool:
        """Return True if this filter contains every key that the other filter contains, as `>=` does.

        Raises MismatchError if the filter has a different shape, and TypeError if it is not a Bloom filter.
        """
        self._match((other,))
        return other <= self

    def isdisjoint(self, other: BloomBits) -> bool:
        """Return True if it is certain that no key was added to both filters: they share no set bit.

        False means that both may contain the same key, which is the result for almost all filters with a few keys.
        Raises MismatchError if the filter has a different shape, and TypeError if it is not a Bloom filter.
        """
        self._match((other,))
        return self.set_bits() + other.set_bits() == self.union_set_bits(other)

    def __lt__(self, other: BloomBits) -> bool:
        """Return True if the other filter has all bits of this filter and more."""
        if not isinstance(other, BloomBits):
            return NotImplemented
        self._same_shape(other)
        return self <= other and self.set_bits() != other.set_bits()

    def _match(self, others: Iterable[BloomBits]) -> None:
        for other in others:
            if not isinstance(other, BloomBits):
                raise TypeError(f"expected a Bloom filter, not {type(other).__name__}")
            self._same_shape(other)

    def __bool__(self) -> bool:
        """Return True if any key was added."""
        return self.set_bits() > 0

    def __len__(self) -> int:
        """Return the estimated number of distinct keys, rounded. Raises OverflowError if every bit is set."""
        return round(self.approx_len)

    @property
    def approx_len(self) -> float:
        """Estimated number of distinct keys, -(m/k) ln(1 - X/m), for k hash functions and m bits of which X are set.

        It is infinite if every bit is set.
        """
        if not self.bits or not self.hash_funcs:
            return math.inf
        if not self.partitioned and (found := rates.uneven(self.family, self.bits)) is not None:
            return rates.estimated(self, found)
        return sizing.estimate_items(self.bits, self.hash_funcs, self.set_bits())

    def union_len(self, other: BloomBits) -> float:
        """Return the estimated number of distinct keys that at least one of the two filters contains.

        Raises MismatchError if the filter has a different shape, and TypeError if it is not a Bloom filter.
        """
        return sizing.estimate_union(*self._counts(other))

    def intersection_len(self, other: BloomBits) -> float:
        """Return the estimated number of keys that both filters contain, at least 0.

        Raises MismatchError if the filter has a different shape, TypeError if it is not a Bloom filter, and
        ParameterError if every bit of the union is set.
        """
        return sizing.estimate_intersection(*self._counts(other))

    def _counts(self, other: BloomBits) -> tuple[int, int, int, int, int]:
        self._match((other,))
        return self.bits, self.hash_funcs, self.set_bits(), other.set_bits(), self.union_set_bits(other)

    @property
    def fill(self) -> float:
        """Share of the bits that are set, from 0 to 1. It is 1 for a filter without bits, which contains every key."""
        return self.set_bits() / self.bits if self.bits else 1.0

    @property
    def current_fp_rate(self) -> float:
        """Current false-positive rate, (X/m)^k, for k hash functions and m bits of which X are set.

        A partitioned filter has one plane of bits for each hash function. Its rate is the product of the shares of set
        bits in its planes. For Bip37Hash and SparkHash(1) with many bits, each bit is weighted by its probability. For
        SparkHash and RedisBloomHash the rate includes an approximation of the effect of double hashing.
        """
        return rates.current(self)


@public
class BloomFilter(GenericFilter, BloomBits):
    """A set with false positives at a known rate and without false negatives.

    `BloomFilter(capacity, fp_rate)` is the smallest filter for `capacity` keys at the rate `fp_rate`.
    `BloomFilter(bits=m, hash_funcs=k)` has exactly m bits and k hash functions, and is never full. The methods `add`,
    `in`, `update`, `contains_many`, `|=`, `&=`, `<=` and `clear` are documented at spvfilter.kernel.BitCore.

    With the compiled kernel, any number of threads may add keys to one filter at the same time. Processes may do this
    with filters over one shared memory or mapped file. Methods for batches of keys release the GIL. Batches are fastest
    as buffers or lists.

    Args:
        capacity: Number of keys that the filter is made for.
        fp_rate: Highest false-positive rate at `capacity` keys, between 0 and 1.
        hash_funcs: Number of hash functions k; by default the best number for `fp_rate`.
        bits: Number of bits, in place of `capacity` and `fp_rate`. By default the number is a multiple of 32.
        hashing: The hash family; FastHash by default. Use SipHash if an attacker can choose the keys.
        encode: Type of the keys: None for bytes-like, "utf-8" for str, "int64", "uint64", "int32" or "uint32" for int,
            or a function that returns bytes. A filter takes only one type, so that 1 and "1" are never confused.
        partitioned: True gives each hash function its own plane of bits.
        buffer: Writable memory of ⌈m/8⌉ bytes for the bits (bytearray, mmap, shared memory). Its contents are kept.
        on_full: How a full filter reacts to a new key: "raise" raises CapacityError, "warn" adds the
            key and warns once with CapacityWarning.

    A new filter is full after `capacity` new keys. Other filters, such as those from a file, are full if the estimated
    number of their keys exceeds `capacity` by four standard deviations.

    Raises:
        ParameterError: A size or a rate is outside its domain.
        CapacityError: A new key is added to a full filter.
        TooLargeError: The filter does not fit into memory. It is a ParameterError and a MemoryError.
        MismatchError: The filters of an operation differ in shape. It is a ParameterError.
    """

    __slots__ = SLOTS

    _KINDS = (KIND_BITS,)
    _kind: int = KIND_BITS
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
        """Make a filter of `keys`: a batch as for `update`, or a Dask bag such as `dask.bag.read_text` returns.

        The partitions of a bag are processed where they are, and only bits are merged. The other arguments are those of
        BloomFilter. For a bag, custom functions must be importable, so that they can be pickled.

        Raises:
            ParameterError: A custom function cannot be pickled, or a size or rate is outside its domain.
            CapacityError: There are more than `capacity` keys.
            TypeError: A key has the wrong type.
        """
        made = cls(
            capacity, fp_rate, hash_funcs, hashing=hashing, encode=encode, partitioned=partitioned, on_full=on_full
        )
        if not bag.is_bag(keys):
            made.update(keys)
            return made
        # Each partition has a filter of the same shape that is never full: only the whole has a capacity.
        part = made.header()._replace(capacity=0, fp_rate=0.0)
        over = partial(cls._made, part, made.hashing, made._encode_with, private=True)
        _refuse_unpicklable(over)
        made |= over(bag.bits_of_bag(keys, over, made.header().body_size))
        made._make_room()  # the total number of keys in all partitions is not known
        return made


def refuse_other_kinds(filter: object, kind: type = BloomFilter) -> None:
    """Raise TypeError unless `filter` is a filter of the class `kind`."""
    if isinstance(filter, kind):
        return
    hint = ": to_bloom() makes one of a CountingBloomFilter" if hasattr(filter, "to_bloom") else ""
    raise TypeError(f"expected a {kind.__name__}, not {type(filter).__name__}{hint}")


def _refuse_unpicklable(over: Callable[[Buffer], BloomFilter]) -> None:
    try:
        pickle.dumps(over)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ParameterError(
            f"functions for a Dask bag must be importable, not lambdas or local functions: {error}"
        ) from None
