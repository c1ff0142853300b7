"""BloomFilter, the generic core under BIP-37 and a product of its own. Nothing of Bitcoin is in here."""

from __future__ import annotations

import math
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Self

from spvfilter._public import public
from spvfilter.bloom import sizing
from spvfilter.bloom.base import GenericFilter, allocate
from spvfilter.bloom.fileformat import KIND_BITS
from spvfilter.bloom.hashing import HashFamily
from spvfilter.errors import ParameterError
from spvfilter.kernel import BACKEND, BitCore, Encoding

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PARTS_PER_JOB = 4
_MAX_PART = 1 << 22  # keys in a piece at most: some are in memory at once


@public
class BloomBits(BitCore):
    """What can be said of any Bloom filter's bits, and done with two of one shape."""

    __slots__ = ()

    if TYPE_CHECKING:

        def copy(self) -> Self: ...

    def __or__(self, other: BloomBits) -> Self:
        """A filter of what either contains."""
        if not isinstance(other, BloomBits):
            return NotImplemented
        self.same_shape(other)
        both = self.copy()
        both |= other
        return both

    def __and__(self, other: BloomBits) -> Self:
        """A filter that contains whatever both do, at a rate between theirs and that of a filter made of the common keys alone."""
        if not isinstance(other, BloomBits):
            return NotImplemented
        self.same_shape(other)
        common = self.copy()
        common &= other
        return common

    def __bool__(self) -> bool:
        """Whether anything was added."""
        return self.set_bits() > 0

    def __len__(self) -> int:
        """`approx_len` as a whole number. Raises OverflowError when every bit is set."""
        return round(self.approx_len)

    @property
    def approx_len(self) -> float:
        """How many different keys were probably added: -(m/k) ln(1 - X/m); infinite when every bit is set."""
        if not self.bits or not self.hash_funcs:
            return math.inf
        return sizing.estimate_items(self.bits, self.hash_funcs, self.set_bits())

    def union_len(self, other: BloomBits) -> float:
        """How many different keys the two probably hold together. Raises MismatchError."""
        return sizing.estimate_union(*self._counts(other))

    def intersection_len(self, other: BloomBits) -> float:
        """How many keys the two probably have in common; not less than 0. Raises MismatchError; ParameterError where the union is full."""
        return sizing.estimate_intersection(*self._counts(other))

    def _counts(self, other: BloomBits) -> tuple[int, int, int, int, int]:
        return self.bits, self.hash_funcs, self.set_bits(), other.set_bits(), self.union_set_bits(other)

    @property
    def fill(self) -> float:
        """Share of the bits that are set, 0 to 1. An empty bit field counts as full: it contains everything."""
        return self.set_bits() / self.bits if self.bits else 1.0

    @property
    def current_fp_rate(self) -> float:
        """Probability that a key never added is contained, as the filter stands: (X/m)^k, or of planes the product of their fills."""
        if self.partitioned:
            return math.prod(count * self.hash_funcs / self.bits for count in self.plane_set_bits())
        return self.fill**self.hash_funcs


@public
class BloomFilter(GenericFilter, BloomBits):
    """A set that may say yes to what was never added, at a known rate, and never says no to what was.

    `BloomFilter(capacity, fp_rate)` takes the smallest m for n keys at rate p, `BloomFilter(capacity, fp_rate, hash_funcs)` the m for
    that k, both rounded up to 4 bytes; `BloomFilter(bits=m, hash_funcs=k)` is taken as it stands. Options: `hashing`, the family (default
    FastHash); `encode`, what keys are: None for bytes-like, "utf-8" for str, "int64" or "uint64" for int, or a function to bytes, so that
    1 and "1" never alias; `partitioned`, a plane of bits for each function; `buffer`, any writable buffer of ⌈m/8⌉ bytes to hold the bits
    (bytearray, mmap, shared memory), used with what is in it.

    `add`, `in`, `update`, `contains_many`, `|=`, `&=`, `<=` and `clear` are the kernel's (see spvfilter.kernel.BitCore). Where that is
    compiled, any number of threads may add to a filter at once, and processes to filters over one shared memory or map, and batches, best
    given as buffers or lists, let other threads run.

    Raises ParameterError for sizes and rates outside their domain, TooLargeError (a ParameterError and a MemoryError) for more than the
    machine has, MismatchError (a ParameterError) for operands that put keys elsewhere.
    """

    KIND = KIND_BITS

    @classmethod
    def build(
        cls,
        keys: Iterable[object] | Buffer,
        capacity: int,
        fp_rate: float,
        hash_funcs: int | None = None,
        *,
        jobs: int = 1,
        hashing: HashFamily | None = None,
        encode: str | Callable[[object], bytes] | None = None,
        partitioned: bool = False,
    ) -> Self:
        """A filter of `keys`, a batch as `update` takes it, built by `jobs` workers in parallel and merged.

        Workers are threads where the kernel is compiled, else processes; then keys, and functions of the user's own, must pickle. Raises
        ParameterError for such functions that do not, and as BloomFilter; TypeError as `update`.
        """
        if not isinstance(jobs, int) or jobs < 1:
            raise ParameterError(f"jobs must be at least 1: {jobs!r}")
        made = cls(capacity, fp_rate, hash_funcs, hashing=hashing, encode=encode, partitioned=partitioned)
        if jobs == 1 or isinstance(keys, (bytes, bytearray, str)):  # which update refuses
            made.update(keys)
            return made
        over = partial(cls._made, made.header(), made.hashing, made._encode_with, private=True)  # a filter of this shape over other bits
        if in_processes := BACKEND == "pure":
            _refuse_unpicklable(over)
        pool: Executor = ProcessPoolExecutor(jobs) if in_processes else ThreadPoolExecutor(jobs)
        part_size = min(max(1 << 14, capacity // (_PARTS_PER_JOB * jobs)), _MAX_PART)
        size = made.header().body_size
        waiting: deque[Future[Buffer]] = deque()
        with pool:
            for part in _parts(made, keys, part_size):
                if in_processes:
                    waiting.append(pool.submit(_build_apart, over, size, _packed(part, made.encoding)))
                else:
                    waiting.append(pool.submit(_build_part, over, size, part))
                if len(waiting) > jobs:
                    made |= over(waiting.popleft().result())
            for future in waiting:
                made |= over(future.result())
        return made


def _refuse_unpicklable(over: Callable[[Buffer], BloomFilter]) -> None:
    try:
        pickle.dumps(over)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        message = f"functions that go to other processes must be importable, not lambdas or local ones; or jobs=1: {error}"
        raise ParameterError(message) from None


def _parts(made: BloomFilter, keys: Iterable[object] | Buffer, size: int) -> Iterator[list[object] | memoryview]:
    """The batch in pieces of at most `size` keys."""
    try:
        view = memoryview(keys)  # type: ignore[arg-type]  # whether it has a buffer is the question
    except TypeError:
        iterator = iter(keys)  # type: ignore[arg-type]  # it has none, so it is an iterable
        while part := list(islice(iterator, size)):
            yield part
        return
    if not view.nbytes:
        made.update(view)
        return
    made.update(view[:0])  # refuses what is no batch
    for at in range(0, len(view), size):
        yield view[at : at + size]


class _Packed(NamedTuple):
    """A piece of a buffer of keys: memoryviews do not pickle."""

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


def _build_part(over: Callable[[Buffer], BloomFilter], size: int, keys: Iterable[object] | Buffer) -> Buffer:
    """In a worker: the bits of a filter of some of the keys."""
    bits = allocate(size)
    over(bits).update(keys)
    return bits


def _build_apart(over: Callable[[Buffer], BloomFilter], size: int, keys: list[object] | _Packed) -> bytes:
    """The same in another process."""
    return bytes(_build_part(over, size, keys.keys() if isinstance(keys, _Packed) else keys))
