"""HeaderChain: the validated chain of block headers with the most work, and short forks beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count as count_from
from typing import NamedTuple

from spvfilter._dataclass import dataclass
from spvfilter._public import public
from spvfilter.chain.difficulty import PERIOD, total_work, work
from spvfilter.chain.forks import MAX_FORK_HEADERS, Fork, Forks
from spvfilter.chain.packed import PackedHeaders
from spvfilter.chain.rules import MEDIAN_SPAN, Tip, check_links, check_proofs, median
from spvfilter.errors import CheckpointError, LowWorkError, ParameterError, UnconnectedHeadersError
from spvfilter.kernel import header_hashes
from spvfilter.network import Network
from spvfilter.primitives import Header, hash_to_hex
from spvfilter.protocol import HEADER_SIZE

NEAR_TIP = (
    144  # blocks; a fork is stored if its work is at most this much behind the tip's, Core GetAntiDoSWorkThreshold
)


@public
class ChainHeader(NamedTuple):
    """A header of the chain: height, block hash (32 bytes, wire order), serialised header (80 bytes)."""

    height: int
    hash: bytes
    raw: bytes


@public
@dataclass(frozen=True, slots=True)
class Start:
    """Trusted headers to start from instead of the genesis block; `height` is that of the first one.

    They must include the first header of the last one's difficulty period, and at least 11 headers, so that every later
    header can be validated.
    """

    height: int
    headers: bytes
    """80 bytes each."""
    work: int
    """Expected hashes of the chain up to and including the last header."""


@public
@dataclass(frozen=True, slots=True)
class Update:
    """A change of the best chain: the headers above `fork_height` that were disconnected, and those that were
    connected.

    Headers of 80 bytes and hashes of 32, lowest first. `stored` is the number of new headers, including those of forks.
    """

    fork_height: int
    stored: int = 0
    old_headers: bytes = b""
    old_hashes: bytes = b""
    new_headers: bytes = b""
    new_hashes: bytes = b""

    @property
    def disconnected(self) -> Iterator[ChainHeader]:
        """The disconnected headers from the old tip downwards, the order in which to undo them."""
        return reversed(list(_placed(self.fork_height, self.old_headers, self.old_hashes)))

    @property
    def connected(self) -> Iterator[ChainHeader]:
        """The connected headers, up to the new tip."""
        return _placed(self.fork_height, self.new_headers, self.new_hashes)


def _placed(below: int, headers: bytes, hashes: bytes) -> Iterator[ChainHeader]:
    pieces = (headers[at : at + HEADER_SIZE] for at in range(0, len(headers), HEADER_SIZE))
    names = (hashes[at : at + 32] for at in range(0, len(hashes), 32))
    return (
        ChainHeader(height, block_hash, raw)
        for height, block_hash, raw in zip(count_from(below + 1), names, pieces, strict=False)
    )


@public
class Candidate(NamedTuple):
    """Valid headers that are not stored, after the header at `height` of the best chain or of `fork`."""

    fork: Fork | None
    height: int
    headers: bytes
    hashes: bytes
    tip: Tip


@public
class HeaderChain:
    """All headers from the genesis block, or a trusted start, to the tip of the chain with the most work; of equals,
    the first seen.

    A method that raises changes nothing. On signet the block signatures (BIP-325) cannot be checked; see Network.
    """

    def __init__(self, network: Network, start: Start | None = None) -> None:
        """Raises FormatError, HeaderError or ParameterError for an invalid `start`."""
        self.network = network
        self.start = start or Start(0, network.genesis, total_work(network.genesis))
        hashes = header_hashes(self.start.headers)
        check_proofs(self.start.headers, hashes, network)
        last = self.start.height + len(hashes) // 32 - 1
        if not hashes or self.start.height > max(0, min(last - last % PERIOD, last - MEDIAN_SPAN + 1)):
            raise ParameterError(f"headers {self.start.height} to {last} do not suffice to validate the next one")
        self._active = PackedHeaders(self.start.height, self.start.headers, hashes[-32:], self.start.work)
        self._forks = Forks()
        self._last_tip: Tip | None = None  # the tip that was validated last, which the next headers most often extend

    @classmethod
    def load(
        cls, network: Network, pieces: Iterable[bytes], now: int | None = None, *, start: Start | None = None
    ) -> HeaderChain:
        """Restore a chain from saved headers, in pieces of whole headers, without those of the start.

        With `now`, our clock, they are validated as if they came from a peer; without it they only have to follow each
        other. Their work is not compared with the network's minimum. Raises FormatError, HeaderError.
        """
        chain = cls(network, start)
        tip = chain.tip()
        for piece in filter(None, pieces):
            hashes = header_hashes(piece)
            if piece[4:36] != chain.tip_hash:
                raise UnconnectedHeadersError(f"header {chain.height + 1} does not follow the one before it")
            check_links(piece, hashes)
            if now is not None:
                tip.advance(piece, hashes, now)
            chain._active.append(piece, hashes[-32:])
        return chain

    @classmethod
    def restore(cls, network: Network, pieces: Iterable[bytes]) -> HeaderChain:
        """Restore a chain from headers that are known to be as they were saved and to follow each other, as those of a
        database are.

        As `load`, but of each piece only the last header is hashed, so that of headers that do not follow each other
        only those between two pieces are noticed. Raises FormatError, UnconnectedHeadersError.
        """
        chain = cls(network)

        def linked() -> Iterator[tuple[bytes, bytes]]:
            for piece in filter(None, pieces):
                last = header_hashes(piece[-HEADER_SIZE:])
                if piece[4:36] != chain.tip_hash:
                    raise UnconnectedHeadersError(f"header {chain.height + 1} does not follow the one before it")
                yield piece, last

        chain._active.extend(linked())
        return chain

    # Reading the chain

    @property
    def height(self) -> int:
        """The height of the tip."""
        return self._active.height

    @property
    def tip_hash(self) -> bytes:
        """The block hash of the tip, 32 bytes in wire order."""
        return self._active.tip_hash

    @property
    def work(self) -> int:
        """The expected number of hashes of the best chain."""
        return self._active.work

    @property
    def required_work(self) -> int:
        """The work that a chain must have for its headers to be stored.

        It is the network's minimum, or the best chain's work less 144 blocks, whichever is more (Core
        GetAntiDoSWorkThreshold).
        """
        near = self.work - NEAR_TIP * work(int.from_bytes(self._active.headers(self.height, 1)[72:76], "little"))
        return max(self.network.min_chain_work, near)

    def __contains__(self, block_hash: bytes) -> bool:
        """Whether a header with this hash is stored, in the best chain or a fork."""
        return self._find(block_hash) is not None

    def height_of(self, block_hash: bytes) -> int | None:
        """The height of the header with this hash in the best chain, or None."""
        return self._active.height_of(block_hash)

    def hash_at(self, height: int) -> bytes:
        """The block hash at a height of the best chain. Raises ParameterError if there is none."""
        return self._active.hash_at(self._checked(height))

    def hashes(self, first: int, last: int) -> list[bytes]:
        """The block hashes of the best chain at a range of heights; none if `last` is below `first`.

        Raises ParameterError.
        """
        return self._active.hashes(self._checked(first), self._checked(last)) if first <= last else []

    def header_at(self, height: int) -> Header:
        """The header at a height of the best chain. Raises ParameterError if there is none."""
        return Header.parse(self._active.headers(self._checked(height), 1))

    def headers(self, height: int, count: int) -> bytes:
        """Up to `count` headers of the best chain from a height on, 80 bytes each.

        There are fewer at the tip, and none right above it. Raises ParameterError for other heights and a negative
        count.
        """
        if count < 0:
            raise ParameterError(f"count must not be negative: {count}")
        return self._active.headers(height if height == self.height + 1 else self._checked(height), count)

    def work_at(self, height: int) -> int:
        """The expected number of hashes of the best chain up to and including a height.

        Raises ParameterError if there is none.
        """
        return self._active.work_at(self._checked(height))

    def common_height(self, block_hash: bytes) -> int | None:
        """The height of the last header that the best chain shares with the chain up to a block; None if the block is
        not stored.
        """
        place = self._find(block_hash)
        return None if place is None else place[1] if place[0] is None else place[0].height

    def work_of(self, block_hash: bytes) -> int | None:
        """The expected number of hashes of the chain up to a block of the best chain or a fork; None if the block is
        not stored.
        """
        place = self._find(block_hash)
        return None if place is None else self._work(*place)

    def median_time_at(self, height: int) -> int:
        """The median of the times of the 11 headers up to a height (Core GetMedianTimePast). Raises ParameterError."""
        return median(self._times(None, self._checked(height)))

    def _checked(self, height: int) -> int:
        if not self._active.first <= height <= self.height:
            raise ParameterError(f"no header at height {height}: the chain has {self._active.first} to {self.height}")
        return height

    def locator(self) -> list[bytes]:
        """A block locator for getheaders: the last twelve hashes, then exponentially spaced ones, then the first (Core
        LocatorEntries).
        """
        hashes, height, step = [], self.height, 1
        while height > self._active.first:
            hashes.append(self._active.hash_at(height))
            height -= step
            if len(hashes) > 10:
                step *= 2
        return [*hashes, self._active.hash_at(self._active.first)]

    # Adding headers

    def accept(self, headers: bytes, now: int) -> Update:
        """Validate and store headers, 80 bytes each, that follow a known one; `now` is our clock, seconds since 1970.

        Headers that are stored already are skipped. Raises FormatError, or a HeaderError whose class says how to treat
        the sender.
        """
        candidate = self.examine(headers, now)
        if reason := self.shortfall(candidate):
            raise LowWorkError(reason)
        return self.store(candidate.headers, candidate.hashes)

    def examine(self, headers: bytes, now: int) -> Candidate:
        """Validate headers as `accept` does, except for their work, without storing them.

        Raises FormatError, HeaderError.
        """
        hashes = header_hashes(headers)
        if not headers:
            return Candidate(None, self.height, b"", b"", self.tip())
        check_links(headers, hashes)
        index, place = 0, self._find(headers[4:36])
        while index < len(hashes) // 32 and (known := self._find(hashes[32 * index : 32 * index + 32])):
            index, place = index + 1, known
        if place is None:
            check_proofs(headers, hashes, self.network)
            raise UnconnectedHeadersError(f"the parent of these headers, {hash_to_hex(headers[4:36])}, is unknown")
        headers, hashes = headers[HEADER_SIZE * index :], hashes[32 * index :]
        fork, height = place
        passed = max((at for at, _ in self.network.checkpoints if at <= self.height), default=0)
        if headers and (height if fork is None else fork.height) < passed:
            raise CheckpointError(f"a fork from height {height}, below the checkpoint {passed}", index=index)
        tip = self.tip(fork, height)
        tip.advance(headers, hashes, now, index=index)
        self._last_tip = tip.copy()
        return Candidate(fork, height, headers, hashes, tip)

    def shortfall(self, candidate: Candidate) -> str:
        """Why these valid headers have too little work to be stored; empty if `accept` would store them."""
        tip, wanted = candidate.tip, self.required_work
        if candidate.headers and tip.work < wanted:
            return f"a chain up to height {tip.height} has work {tip.work:#x}, below {wanted:#x}"
        length = tip.height - (candidate.height if candidate.fork is None else candidate.fork.height)
        if length > MAX_FORK_HEADERS and tip.work <= self.work:
            return f"a fork of {length} headers up to height {tip.height} has no more work than the best chain"
        return ""

    def store(self, headers: bytes, hashes: bytes) -> Update:
        """Store validated headers with their hashes, whatever their work. Raises UnconnectedHeadersError."""
        if not headers:
            return Update(self.height)
        place = self._find(headers[4:36])
        if place is None:
            raise UnconnectedHeadersError(f"the parent of these headers, {hash_to_hex(headers[4:36])}, is unknown")
        fork, height = place
        stored, total = len(hashes) // 32, self._work(*place) + total_work(headers)
        if fork is not None:  # take the whole branch from the best chain on
            below = height - fork.height
            headers, hashes, height = (
                fork.headers[: HEADER_SIZE * below] + headers,
                fork.hashes[: 32 * below] + hashes,
                fork.height,
            )
        if total > self.work:
            return self._connect(height, headers, hashes, stored)
        self._forks.add(Fork(height, headers, hashes, total))
        return Update(self.height, stored)

    def _connect(self, height: int, headers: bytes, hashes: bytes, stored: int) -> Update:
        """Connect a branch that starts after a header of the best chain, disconnecting the headers above it."""
        old_headers, old_hashes = b"", b""
        if height < self.height:
            old_work = self.work
            old_headers, old_hashes = self._active.cut(height)
            self._forks.reorganise(Fork(height, old_headers, old_hashes, old_work), Fork(height, headers, hashes, 0))
        self._active.append(headers, hashes[-32:])
        return Update(height, stored, old_headers, old_hashes, headers, hashes)

    # Context for the rules

    def tip(self, fork: Fork | None = None, height: int | None = None) -> Tip:
        """The state for validating the next header at a height of the best chain or of a fork; by default at the best
        chain's tip.
        """
        height = self.height if height is None else height
        if self._last_tip and self._last_tip.hash == self._hash(fork, height):
            return self._last_tip.copy()
        last = self._header(fork, height)
        period = self._header(fork, max(height - height % PERIOD, self._active.first))
        return Tip(
            network=self.network,
            height=height,
            hash=last.hash,
            work=self._work(fork, height),
            bits=last.bits,
            period_bits=period.bits,
            period_time=period.time,
            times=self._times(fork, height),
        )

    def _find(self, block_hash: bytes) -> tuple[Fork | None, int] | None:
        height = self._active.height_of(block_hash)
        return self._forks.find(block_hash) if height is None else (None, height)

    def _hash(self, fork: Fork | None, height: int) -> bytes:
        return self._active.hash_at(height) if fork is None or height <= fork.height else fork.hash_at(height)

    def _raw(self, fork: Fork | None, height: int) -> bytes:
        return self._active.headers(height, 1) if fork is None or height <= fork.height else fork.header_at(height)

    def _header(self, fork: Fork | None, height: int) -> Header:
        return Header.parse(self._raw(fork, height))

    def _times(self, fork: Fork | None, height: int) -> list[int]:
        first = max(self._active.first, height - MEDIAN_SPAN + 1)
        return [int.from_bytes(self._raw(fork, at)[68:72], "little") for at in range(first, height + 1)]

    def _work(self, fork: Fork | None, height: int) -> int:
        if fork is None:
            return self._active.work_at(height)
        return self._active.work_at(fork.height) + total_work(fork.headers[: HEADER_SIZE * (height - fork.height)])
