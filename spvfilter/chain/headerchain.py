"""The best chain of headers by work, with short forks beside it. Only what follows the rules gets in; nobody is asked for more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count as count_from
from typing import NamedTuple

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

NEAR_TIP = 144  # blocks' work that a fork may lie behind the tip and still be stored, Core GetAntiDoSWorkThreshold


@public
class ChainHeader(NamedTuple):
    """A header at its place: height, hash (32 bytes, wire order), 80 bytes."""

    height: int
    hash: bytes
    raw: bytes


@public
@dataclass(frozen=True, slots=True)
class Start:
    """Headers that are trusted as they stand, in place of the genesis block: `height` of the first, `work` up to the last.

    They reach down to the start of the last one's period and are 11 at least, so that every header upon them can be judged.
    """

    height: int
    headers: bytes  # 80 bytes each
    work: int  # expected hashes of the chain up to the last, that included


@public
@dataclass(frozen=True, slots=True)
class Update:
    """How the best chain changed: headers above `fork_height` that were disconnected, and those connected in their place.

    Headers of 80 bytes and hashes of 32, lowest first. `stored` counts what was new, forks included.
    """

    fork_height: int
    stored: int = 0
    old_headers: bytes = b""
    old_hashes: bytes = b""
    new_headers: bytes = b""
    new_hashes: bytes = b""

    @property
    def disconnected(self) -> Iterator[ChainHeader]:
        """From the old tip down: the order in which to undo them."""
        return reversed(list(_placed(self.fork_height, self.old_headers, self.old_hashes)))

    @property
    def connected(self) -> Iterator[ChainHeader]:
        """Up to the new tip."""
        return _placed(self.fork_height, self.new_headers, self.new_hashes)


def _placed(below: int, headers: bytes, hashes: bytes) -> Iterator[ChainHeader]:
    pieces = (headers[at : at + HEADER_SIZE] for at in range(0, len(headers), HEADER_SIZE))
    names = (hashes[at : at + 32] for at in range(0, len(hashes), 32))
    return (ChainHeader(height, block_hash, raw) for height, block_hash, raw in zip(count_from(below + 1), names, pieces, strict=False))


class Candidate(NamedTuple):
    """Headers that follow the rules, upon the header at `height` of the best chain or of `fork`; not stored."""

    fork: Fork | None
    height: int
    headers: bytes
    hashes: bytes
    tip: Tip


@public
class HeaderChain:
    """Every header from the genesis block, or a trusted start, to the tip of the chain with the most work, the first seen of equals.

    What raises changes nothing. On signet the block signatures of BIP-325 cannot be checked, see Network.
    """

    def __init__(self, network: Network, start: Start | None = None) -> None:
        """Raises FormatError, HeaderError and ParameterError for a start that cannot be one."""
        self.network = network
        self.start = start or Start(0, network.genesis, total_work(network.genesis))
        hashes = header_hashes(self.start.headers)
        check_proofs(self.start.headers, hashes, network)
        last = self.start.height + len(hashes) // 32 - 1
        if not hashes or self.start.height > max(0, min(last - last % PERIOD, last - MEDIAN_SPAN + 1)):
            raise ParameterError(f"headers {self.start.height} to {last} do not suffice to judge the next one")
        self._active = PackedHeaders(self.start.height, self.start.headers, hashes, self.start.work)
        self._forks = Forks()
        self._judged: Tip | None = None  # what was judged last: most often what is built upon next

    @classmethod
    def load(cls, network: Network, pieces: Iterable[bytes], now: int | None = None, *, start: Start | None = None) -> HeaderChain:
        """From headers that `headers` gave, in pieces of whole ones, those of the start not among them.

        With `now`, our clock, they are judged as if they came from a peer; without it they must follow each other, no more. Their
        work is not compared with the network's minimum. Raises FormatError, HeaderError.
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
            chain._active.append(piece, hashes)
        return chain

    # What is there

    @property
    def height(self) -> int:
        """Of the tip."""
        return self._active.height

    @property
    def tip_hash(self) -> bytes:
        return self._active.tip_hash

    @property
    def work(self) -> int:
        """Expected hashes of the best chain."""
        return self._active.work

    @property
    def required_work(self) -> int:
        """What the chain below new headers and these must have together to be stored: the network's minimum, and 144 blocks less
        than the best chain."""
        near = self.work - NEAR_TIP * work(int.from_bytes(self._active.headers(self.height, 1)[72:76], "little"))
        return max(self.network.min_chain_work, near)

    def __contains__(self, block_hash: bytes) -> bool:
        """Whether a header with this hash is stored, in the best chain or a fork."""
        return self._find(block_hash) is not None

    def height_of(self, block_hash: bytes) -> int | None:
        """The height of the header with this hash in the best chain, else None."""
        return self._active.height_of(block_hash)

    def hash_at(self, height: int) -> bytes:
        """The hash of the best chain's header at a height. Raises ParameterError where there is none."""
        return self._active.hash_at(self._checked(height))

    def header_at(self, height: int) -> Header:
        """The best chain's header at a height. Raises ParameterError where there is none."""
        return Header.parse(self._active.headers(self._checked(height), 1))

    def headers(self, height: int, count: int) -> bytes:
        """The best chain's headers from a height on, 80 bytes each, fewer than asked at the tip, none above it. Raises ParameterError."""
        if count < 0:
            raise ParameterError(f"a negative count: {count}")
        return self._active.headers(height if height == self.height + 1 else self._checked(height), count)

    def work_at(self, height: int) -> int:
        """Expected hashes of the best chain up to a height, that included. Raises ParameterError where there is none."""
        return self._active.work_at(self._checked(height))

    def joint_height(self, block_hash: bytes) -> int | None:
        """Height of the last block that the best chain and the chain up to a block have in common; None for one that is not stored."""
        place = self._find(block_hash)
        return None if place is None else place[1] if place[0] is None else place[0].height

    def work_of(self, block_hash: bytes) -> int | None:
        """Expected hashes of the chain up to a block, of the best chain or beside it; None for one that is not stored."""
        place = self._find(block_hash)
        return None if place is None else self._work(*place)

    def median_time_at(self, height: int) -> int:
        """The median of the times of the 11 headers up to a height (Core GetMedianTimePast). Raises ParameterError."""
        return median(self._times(None, self._checked(height)))

    def _checked(self, height: int) -> int:
        if not self._active.first <= height <= self.height:
            raise ParameterError(f"no header at height {height}: there are {self._active.first} to {self.height}")
        return height

    # What peers are told

    def locator(self) -> list[bytes]:
        """Hashes by which a peer finds where our chains part: the last twelve, ever fewer below, the first (Core LocatorEntries)."""
        hashes, height, step = [], self.height, 1
        while height > self._active.first:
            hashes.append(self._active.hash_at(height))
            height -= step
            if len(hashes) > 10:
                step *= 2
        return [*hashes, self._active.hash_at(self._active.first)]

    # What peers tell

    def accept(self, headers: bytes, now: int) -> Update:
        """Take headers, 80 bytes each, that follow each other and upon one that is known; `now` is our clock, seconds since 1970.

        Headers that are known already are passed over. Raises FormatError, or the HeaderError that says what the sender deserves.
        """
        candidate = self.examine(headers, now)
        if reason := self.shortfall(candidate):
            raise LowWorkError(reason)
        return self.store(candidate.headers, candidate.hashes)

    def examine(self, headers: bytes, now: int) -> Candidate:
        """Judge headers as `accept` does, their work apart, and store nothing."""
        hashes = header_hashes(headers)
        if not headers:
            return Candidate(None, self.height, b"", b"", self.tip())
        check_links(headers, hashes)
        index, place = 0, self._find(headers[4:36])
        while index < len(hashes) // 32 and (known := self._find(hashes[32 * index : 32 * index + 32])):
            index, place = index + 1, known
        if place is None:
            check_proofs(headers, hashes, self.network)
            raise UnconnectedHeadersError(f"headers upon {hash_to_hex(headers[4:36])}, which is not known")
        headers, hashes = headers[HEADER_SIZE * index :], hashes[32 * index :]
        fork, height = place
        passed = max((at for at, _ in self.network.checkpoints if at <= self.height), default=0)
        if headers and (height if fork is None else fork.height) < passed:
            raise CheckpointError(f"a fork from height {height}, below the checkpoint {passed}", index=index)
        tip = self.tip(fork, height)
        tip.advance(headers, hashes, now, index=index)
        self._judged = tip.copy()
        return Candidate(fork, height, headers, hashes, tip)

    def shortfall(self, candidate: Candidate) -> str:
        """Why `accept` would not store these headers, which are valid, for want of work; empty where it would."""
        tip, wanted = candidate.tip, self.required_work
        if candidate.headers and tip.work < wanted:
            return f"a chain up to height {tip.height} has work {tip.work:#x}, below {wanted:#x}"
        length = tip.height - (candidate.height if candidate.fork is None else candidate.fork.height)
        if length > MAX_FORK_HEADERS and tip.work <= self.work:
            return f"a fork of {length} headers up to height {tip.height} has no more work than the best chain"
        return ""

    def store(self, headers: bytes, hashes: bytes) -> Update:
        """Store headers that were judged, whatever their work, with their hashes. Raises UnconnectedHeadersError."""
        if not headers:
            return Update(self.height)
        place = self._find(headers[4:36])
        if place is None:
            raise UnconnectedHeadersError(f"headers upon {hash_to_hex(headers[4:36])}, which is not known")
        fork, height = place
        stored, total = len(hashes) // 32, self._work(*place) + total_work(headers)
        if fork is not None:  # the whole branch, from the best chain on
            below = height - fork.height
            headers, hashes, height = fork.headers[: HEADER_SIZE * below] + headers, fork.hashes[: 32 * below] + hashes, fork.height
        if total > self.work:
            return self._connect(height, headers, hashes, stored)
        self._forks.add(Fork(height, headers, hashes, total))
        return Update(self.height, stored)

    def _connect(self, height: int, headers: bytes, hashes: bytes, stored: int) -> Update:
        """Make a branch upon a header of the best chain the best chain."""
        old_headers, old_hashes = b"", b""
        if height < self.height:
            old_work = self.work
            old_headers, old_hashes = self._active.cut(height)
            self._forks.turn(Fork(height, old_headers, old_hashes, old_work), Fork(height, headers, hashes, 0))
        self._active.append(headers, hashes)
        return Update(height, stored, old_headers, old_hashes, headers, hashes)

    # Where the rules look

    def tip(self, fork: Fork | None = None, height: int | None = None) -> Tip:
        """What the rules need to know at a height of the best chain or of a fork; at the best chain's tip unless said."""
        height = self.height if height is None else height
        if self._judged and self._judged.hash == self._hash(fork, height):
            return self._judged.copy()
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
