"""BloomFilter: a general-purpose Bloom filter with batches, set operations, parallel building and a file format."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from threading import Event, Lock
from typing import TYPE_CHECKING, NamedTuple, Self

from spvfilter._public import deferred, public
from spvfilter.bloom import bag, sizing
from spvfilter.bloom.base import SLOTS, GenericFilter, OnFull, allocate
from spvfilter.bloom.fileformat import KIND_BITS
from spvfilter.bloom.hashing import HashFamily
from spvfilter.errors import ParameterError
from spvfilter.kernel import BACKEND, BitCore, Encoding, columns

if TYPE_CHECKING:
    import pickle
    from concurrent import futures

    from typing_extensions import Buffer

    from spvfilter.kernel.columns import Keys
else:
    futures = deferred("concurrent.futures")
    pickle = deferred("pickle")

_PARTS_PER_JOB = 4
_MAX_PART = 1 << 22  # keys per piece; several pieces are in memory at once


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
        """A filter that contains the common keys. Its rate lies between those of the two and that of a filter of the common keys alone."""
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
        """Keep what the others contain, too, as `&=`. Raises as `union_update` does: MismatchError, TypeError, ReadOnlyError."""
        self._match(others)
        for other in others:
            self &= other

    def issubset(self, other: BloomBits) -> bool:
        """Whether the other contains every key that this contains, as `<=`. Raises MismatchError, TypeError for other objects."""
        self._match((other,))
        return self <= other

    def issuperset(self, other: BloomBits) -> bool:
        """Whether this contains every key that the other contains, as `>=`. Raises MismatchError, TypeError for other objects."""
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
        """The estimated number of common keys, at least 0. Raises MismatchError, and ParameterError if every bit of the union is set."""
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

    `BloomFilter(capacity, fp_rate)` takes the smallest m for n keys at rate p, `BloomFilter(capacity, fp_rate, hash_funcs)` the smallest m
    for that k, both rounded up to 4 bytes; `BloomFilter(bits=m, hash_funcs=k)` takes exactly these. Options: `hashing`, the hash family
    (default FastHash); `encode`, the type of keys: None for bytes-like, "utf-8" for str, "int64" or "uint64" for int, or a function that
    returns bytes, so that 1 and "1" never alias; `partitioned`, one plane of bits per function; `buffer`, a writable buffer of ⌈m/8⌉ bytes
    for the bits (bytearray, mmap, shared memory), whose contents are kept; `on_full`, what happens to a new key once the filter was given
    `capacity` of them (`make_room` says how they are counted): "raise" refuses it with CapacityError, "warn" takes it and warns once with
    CapacityWarning. A filter made by bits is never full.

    spvfilter.kernel.BitCore documents `add`, `in`, `update`, `contains_many`, `|=`, `&=`, `<=` and `clear`. With the compiled kernel, any
    number of threads may add to a filter concurrently, and so may processes to filters over the same shared memory or mapped file; batches
    release the GIL, best if given as buffers or lists.

    Raises ParameterError for sizes and rates outside their domain, CapacityError for a new key in a full filter, TooLargeError (a
    ParameterError and a MemoryError) for more memory than the machine has, MismatchError (a ParameterError) for operands of another shape.
    """

    __slots__ = SLOTS

    KIND = KIND_BITS

    @classmethod
    def build(
        cls,
        keys: Keys,
        capacity: int,
        fp_rate: float,
        hash_funcs: int | None = None,
        *,
        jobs: int = 1,
        hashing: HashFamily | None = None,
        encode: str | Callable[[object], bytes] | None = None,
        partitioned: bool = False,
        on_full: OnFull = "raise",
    ) -> Self:
        """A filter of `keys`, a batch as for `update`, built by `jobs` workers in parallel and merged; a column by one.

        With the compiled kernel the workers are threads, otherwise processes; keys and custom functions must then pickle. A Dask bag,
        as `dask.bag.read_text` makes of many files, is built where its partitions are, and only bits are merged. Raises ParameterError
        for functions that do not pickle, and as BloomFilter does; CapacityError and TypeError as `update` does.
        """
        if not isinstance(jobs, int) or jobs < 1:
            raise ParameterError(f"jobs must be at least 1: {jobs!r}")
        made = cls(capacity, fp_rate, hash_funcs, hashing=hashing, encode=encode, partitioned=partitioned, on_full=on_full)
        of_bag = bag.is_bag(keys)
        if not of_bag and (jobs == 1 or isinstance(keys, (bytes, bytearray, str)) or _is_column(keys)):  # update refuses the former
            made.update(keys)
            return made
        part = made.header()._replace(capacity=0, fp_rate=0.0)  # which is never full
        over = partial(cls._made, part, made.hashing, made._encode_with, private=True)  # makes such a filter over other bits
        size = min(max(1 << 14, capacity // (_PARTS_PER_JOB * jobs)), _MAX_PART)
        if of_bag:
            _refuse_unpicklable(over)
            made |= over(bag.bits_of_bag(keys, over, made.header().body_size))
        elif BACKEND == "pure":
            _refuse_unpicklable(over)
            _build_in_processes(made, over, _parts(made, keys, size), jobs)
        else:
            _build_in_threads(made, over, _parts(made, keys, size), jobs)
        made.make_room()  # the parts were not counted together
        return made


def _build_in_threads(
    made: BloomFilter, over: Callable[[Buffer], BloomFilter], parts: Iterator[list[object] | memoryview], jobs: int
) -> None:
    """Each thread adds to bits of its own, the calling one to those of `made`; the others' are merged at the end."""
    size, taking, failed = made.header().body_size, Lock(), Event()

    def add_to(mine: BloomFilter) -> BloomFilter:
        try:
            while not failed.is_set():
                with taking:
                    part = next(parts, None)
                if part is None:
                    break
                mine.update(part)
        except BaseException:
            failed.set()
            raise
        return mine

    with futures.ThreadPoolExecutor(jobs - 1) as pool:
        others = [pool.submit(lambda: add_to(over(allocate(size)))) for _ in range(jobs - 1)]
        add_to(made)
        for other in others:
            made |= other.result()


def _build_in_processes(
    made: BloomFilter, over: Callable[[Buffer], BloomFilter], parts: Iterator[list[object] | memoryview], jobs: int
) -> None:
    size = made.header().body_size
    waiting: deque[futures.Future[bytes]] = deque()
    with futures.ProcessPoolExecutor(jobs) as pool:
        for part in parts:
            waiting.append(pool.submit(_build_apart, over, size, _packed(part, made.encoding)))
            if len(waiting) > jobs:
                made |= over(waiting.popleft().result())
        for future in waiting:
            made |= over(future.result())


def _refuse_unpicklable(over: Callable[[Buffer], BloomFilter]) -> None:
    try:
        pickle.dumps(over)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        message = f"functions for worker processes must be importable, not lambdas or local functions; else use jobs=1: {error}"
        raise ParameterError(message) from None


def _parts(made: BloomFilter, keys: Keys, size: int) -> Iterator[list[object] | memoryview]:
    """The batch in pieces of at most `size` keys."""
    try:
        view = memoryview(keys)  # type: ignore[arg-type]  # raises TypeError for an iterable
    except TypeError:
        iterator = iter(keys)  # type: ignore[arg-type]  # an iterable, since it is not a buffer
        while part := list(islice(iterator, size)):
            yield part
        return
    if not view.nbytes:
        made.update(view)
        return
    made.update(view[:0])  # raises TypeError for an unsuitable buffer
    for at in range(0, len(view), size):
        yield view[at : at + size]


def _is_column(keys: object) -> bool:
    """Whether a batch is a column, unless it is a buffer that can be divided into others."""
    if isinstance(keys, (list, tuple)):
        return False
    batch = columns.batch_of(keys, True)
    if batch is None:
        return False
    try:
        view = memoryview(keys)  # type: ignore[arg-type]  # raises TypeError for what is no buffer, ValueError for types without one
    except (TypeError, ValueError):
        return True
    return not view.c_contiguous or view.format not in "BbhHiIlLqQ" or hasattr(keys, "mask")


class _Packed(NamedTuple):
    """A picklable piece of a buffer of keys; memoryviews do not pickle."""

    raw: bytes
    rows: int
    encoding: Encoding

    def keys(self) -> memoryview:
        match self.encoding:
            case Encoding.INT64:
                return memoryview(self.raw).cast("q")
            case Encoding.UINT64:
                return memoryview(self.raw).cast("Q")
            case _:
                return memoryview(self.raw).cast("B", [self.rows, len(self.raw) // self.rows])


def _packed(part: list[object] | memoryview, encoding: Encoding) -> list[object] | _Packed:
    return _Packed(bytes(part), len(part), encoding) if isinstance(part, memoryview) else part


def _build_apart(over: Callable[[Buffer], BloomFilter], size: int, keys: list[object] | _Packed) -> bytes:
    """In a worker process: the bits of a filter with some of the keys."""
    bits = allocate(size)
    over(bits).update(keys.keys() if isinstance(keys, _Packed) else keys)
    return bytes(bits)
