"""HeaderChain: the validated chain of block headers with the most work, and short forks off it."""

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
from spvfilter.primitives import Header, hash_from_hex, hash_to_hex
from spvfilter.protocol import HEADER_SIZE

# Blocks. A fork is stored if its work is at most this many blocks behind that of the best chain.
# Source: Core GetAntiDoSWorkThreshold.
NEAR_TIP = 144


@public
class ChainHeader(NamedTuple):
    """A header of the best chain, with its height and hash."""

    height: int
    """Height of the header in the chain, from 0."""
    hash: bytes
    """Block hash of the header, 32 bytes in wire order."""
    raw: bytes
    """Serialized header, 80 bytes."""

    @property
    def hash_hex(self) -> str:
        """The field `hash` in hex, as block explorers show it."""
        return hash_to_hex(self.hash)


@public
@dataclass(frozen=True, slots=True)
class Start:
    """Trusted headers that a chain starts with, instead of the genesis block.

    They must suffice to validate every later header: there must be at least 11 of them, including the first header of
    the last one's difficulty period.
    """

    height: int
    """Height of the first trusted header."""
    headers: bytes
    """Consecutive trusted headers, 80 bytes each, lowest first."""
    work: int
    """Expected number of hashes needed to mine the chain up to and including the last trusted header."""


@public
@dataclass(frozen=True, slots=True)
class Update:
    """A change to the best chain: which headers were disconnected and which were connected.

    Without a reorganization, no headers are disconnected: `old_headers` and `old_hashes` are empty.
    """

    fork_height: int
    """Height of the last header that is in the best chain both before and after the change."""
    stored: int = 0
    """Number of new headers that were stored, including headers of forks."""
    old_headers: bytes = b""
    """Disconnected headers, 80 bytes each, lowest first."""
    old_hashes: bytes = b""
    """Block hashes of the disconnected headers, 32 bytes each, lowest first."""
    new_headers: bytes = b""
    """Connected headers, 80 bytes each, lowest first."""
    new_hashes: bytes = b""
    """Block hashes of the connected headers, 32 bytes each, lowest first."""

    @property
    def disconnected(self) -> Iterator[ChainHeader]:
        """Return the disconnected headers in the order in which to undo them, from the old tip down."""
        return reversed(list(_placed(self.fork_height, self.old_headers, self.old_hashes)))

    @property
    def connected(self) -> Iterator[ChainHeader]:
        """Return the connected headers, from the lowest up to the new tip."""
        return _placed(self.fork_height, self.new_headers, self.new_hashes)


def _placed(below: int, headers: bytes, hashes: bytes) -> Iterator[ChainHeader]:
    """Return headers together with their heights, which begin at `below` + 1."""
    pieces = (headers[at : at + HEADER_SIZE] for at in range(0, len(headers), HEADER_SIZE))
    names = (hashes[at : at + 32] for at in range(0, len(hashes), 32))
    return (
        ChainHeader(height, block_hash, raw)
        for height, block_hash, raw in zip(count_from(below + 1), names, pieces, strict=False)
    )


@public
class Candidate(NamedTuple):
    """Headers that the chain has validated but not stored."""

    fork: Fork | None
    """The stored fork whose header the candidate follows, or None if it follows a header of the best chain."""
    height: int
    """Height of the stored header that the candidate follows."""
    headers: bytes
    """Serialized headers of the candidate, 80 bytes each, lowest first."""
    hashes: bytes
    """Block hashes of the candidate's headers, 32 bytes each."""
    tip: Tip
    """State of the chain after the candidate's last header."""


@public
class HeaderChain:
    """All headers of the chain with the most work, from the genesis block or a trusted start to the tip.

    If two chains have equal work, the best chain is the one seen first. Up to 64 forks with less work are stored as
    well. A method that raises an error changes nothing. On signet the block signatures (BIP-325) cannot be checked: see
    Network.

    Args:
        network: The network whose rules the headers must follow.
        start: Trusted headers to start with; by default the genesis block.
    """

    @property
    def tip_hash_hex(self) -> str:
        """The field `tip_hash` in hex, as block explorers show it."""
        return hash_to_hex(self.tip_hash)

    def __init__(self, network: Network, start: Start | None = None) -> None:
        """Create a chain that consists only of its start.

        Raises FormatError, HeaderError or ParameterError if `start` is malformed, violates a rule or lacks headers.
        """
        self.network = network
        """The network whose rules the headers follow."""
        self.start: Start = start or Start(0, network.genesis, total_work(network.genesis))
        """The headers that the chain starts with: the genesis block, or trusted headers."""
        hashes = header_hashes(self.start.headers)
        check_proofs(self.start.headers, hashes, network)
        last = self.start.height + len(hashes) // 32 - 1
        if not hashes or self.start.height > max(0, min(last - last % PERIOD, last - MEDIAN_SPAN + 1)):
            raise ParameterError(f"headers {self.start.height} to {last} are not enough to validate the next one")
        self._active = PackedHeaders(self.start.height, self.start.headers, hashes[-32:], self.start.work)
        self._forks = Forks()
        # State after the header that was validated last. The next headers usually extend it.
        self._last_tip: Tip | None = None

    @classmethod
    def load(
        cls, network: Network, pieces: Iterable[bytes], now: int | None = None, *, start: Start | None = None
    ) -> HeaderChain:
        """Restore a chain from saved headers.

        The work of the headers is not compared with the network's minimum.

        Args:
            network: The network of the headers.
            pieces: Byte strings of whole headers, 80 bytes each, in chain order. They follow the headers of the start.
            now: The current Unix time, if the headers are to be validated as if a peer had sent them. If None, they
                only need to follow each other.
            start: Trusted headers to start with; by default the genesis block.

        Raises:
            FormatError: A piece is not a multiple of 80 bytes.
            HeaderError: A header does not follow the header before it, or violates a rule.
            ParameterError: The start is invalid.
        """
        chain = cls(network, start)
        tip = chain.tip()
        for piece in filter(None, pieces):
            hashes = header_hashes(piece)
            if piece[4:36] != chain.tip_hash:
                raise UnconnectedHeadersError(f"header {chain.height + 1} does not follow the previous one")
            check_links(piece, hashes)
            if now is not None:
                tip.advance(piece, hashes, now)
            chain._active.append(piece, hashes[-32:])
        return chain

    @classmethod
    def restore(cls, network: Network, pieces: Iterable[bytes]) -> HeaderChain:
        """Restore a chain from headers that were validated before, such as those in a database.

        It is faster than `load`: only the last header of each piece is hashed. Within a piece it does not notice if the
        headers do not follow each other.

        Args:
            network: The network of the headers.
            pieces: Byte strings of whole headers, 80 bytes each, in chain order. They follow the genesis block.

        Raises:
            FormatError: A piece is not a multiple of 80 bytes.
            UnconnectedHeadersError: A piece does not follow the piece before it.
        """
        chain = cls(network)

        def linked() -> Iterator[tuple[bytes, bytes]]:
            for piece in filter(None, pieces):
                last = header_hashes(piece[-HEADER_SIZE:])
                if piece[4:36] != chain.tip_hash:
                    raise UnconnectedHeadersError(f"header {chain.height + 1} does not follow the previous one")
                yield piece, last

        chain._active.extend(linked())
        return chain

    # Reading the chain

    @property
    def height(self) -> int:
        """Height of the best chain's last header."""
        return self._active.height

    @property
    def tip_hash(self) -> bytes:
        """Block hash of the best chain's last header, 32 bytes in wire order."""
        return self._active.tip_hash

    @property
    def work(self) -> int:
        """Expected number of hashes needed to mine the best chain, up to and including its last header."""
        return self._active.work

    @property
    def required_work(self) -> int:
        """The work, in expected hashes, that a chain must have for its headers to be stored.

        It is the larger of two numbers: the network's minimum, and the work of the best chain less 144 blocks (Core
        GetAntiDoSWorkThreshold).
        """
        near = self.work - NEAR_TIP * work(int.from_bytes(self._active.headers(self.height, 1)[72:76], "little"))
        return max(self.network.min_chain_work, near)

    def __contains__(self, block_hash: bytes) -> bool:
        """Return True if a header with this hash is stored, in the best chain or in a fork."""
        return self._find(block_hash) is not None

    def height_of(self, block_hash: bytes | str) -> int | None:
        """Return the height of the header with this hash in the best chain, or None if it is not there.

        `block_hash` is 32 bytes in wire order or 64 hex digits. Raises ParameterError for any other text.
        """
        return self._active.height_of(hash_from_hex(block_hash) if isinstance(block_hash, str) else block_hash)

    def hash_at(self, height: int) -> bytes:
        """Return the block hash at a height of the best chain. Raises ParameterError if there is no header."""
        return self._active.hash_at(self._checked(height))

    def hashes(self, first: int, last: int) -> list[bytes]:
        """Return the block hashes of the best chain from height `first` to height `last`, both inclusive.

        The list is empty if `last` is below `first`. Raises ParameterError if the chain has no header at one of these
        heights.
        """
        return self._active.hashes(self._checked(first), self._checked(last)) if first <= last else []

    def header_at(self, height: int) -> Header:
        """Return the header at a height of the best chain. Raises ParameterError if the chain has no header there."""
        return Header.parse(self._active.headers(self._checked(height), 1))

    def time_at(self, height: int) -> int:
        """Return the time of the header at a height of the best chain (Unix time).

        Raises ParameterError if the chain has no header there.
        """
        return self._active.time_at(self._checked(height))

    def headers(self, height: int, count: int) -> bytes:
        """Return up to `count` headers of the best chain, 80 bytes each, starting at a height.

        The result is shorter at the tip, and empty if `height` is one above the tip. Raises ParameterError if there is
        no header at any other height, or if `count` is negative.
        """
        if count < 0:
            raise ParameterError(f"count must be 0 or more, not {count}")
        return self._active.headers(height if height == self.height + 1 else self._checked(height), count)

    def work_at(self, height: int) -> int:
        """Return the expected number of hashes needed to mine the best chain up to and including a height.

        Raises ParameterError if the chain has no header there.
        """
        return self._active.work_at(self._checked(height))

    def common_height(self, block_hash: bytes | str) -> int | None:
        """Return the height of the last header that the best chain shares with the chain that ends in a block.

        The result is None if the block's header is not stored. `block_hash` is 32 bytes in wire order or 64 hex digits.
        Raises ParameterError for any other text.
        """
        place = self._find(hash_from_hex(block_hash) if isinstance(block_hash, str) else block_hash)
        return None if place is None else place[1] if place[0] is None else place[0].height

    def work_of(self, block_hash: bytes | str) -> int | None:
        """Return the expected number of hashes needed to mine the chain up to a block of the best chain or a fork.

        The result is None if the block's header is not stored. `block_hash` is 32 bytes in wire order or 64 hex digits.
        Raises ParameterError for any other text.
        """
        place = self._find(hash_from_hex(block_hash) if isinstance(block_hash, str) else block_hash)
        return None if place is None else self._work(*place)

    def median_time_at(self, height: int) -> int:
        """Return the median time of the 11 headers up to a height of the best chain (Unix time).

        Core calls it GetMedianTimePast. Raises ParameterError if the chain has no header at that height.
        """
        return median(self._times(None, self._checked(height)))

    def _checked(self, height: int) -> int:
        if not self._active.first <= height <= self.height:
            covered = f"{self._active.first} to {self.height}"
            raise ParameterError(f"no header at height {height}: the chain covers heights {covered}")
        return height

    def locator(self) -> list[bytes]:
        """Return the block locator for a getheaders message: a list of block hashes (Core LocatorEntries).

        It lists the last twelve hashes, then exponentially spaced ones, then the first hash of the chain.
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
        """Validate and store headers that follow a stored header. Headers that are already stored are skipped.

        Args:
            headers: Consecutive headers, 80 bytes each.
            now: The current Unix time.

        Returns:
            The change to the best chain.

        Raises:
            FormatError: The bytes are not a multiple of 80.
            HeaderError: A header violates a rule. The class of the error says how to treat the sender.
        """
        candidate = self.examine(headers, now)
        if reason := self.shortfall(candidate):
            raise LowWorkError(reason)
        return self.store(candidate.headers, candidate.hashes)

    def examine(self, headers: bytes, now: int) -> Candidate:
        """Validate headers as `accept` does, except for their work, and return them without storing them.

        Raises FormatError if the bytes are not a multiple of 80, and HeaderError if a header violates a rule.
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
        root = height if fork is None else fork.height
        if headers and root < passed:
            raise CheckpointError(
                f"a fork leaves the best chain at height {root}, below the checkpoint {passed}", index=index
            )
        tip = self.tip(fork, height)
        tip.advance(headers, hashes, now, index=index)
        self._last_tip = tip.copy()
        return Candidate(fork, height, headers, hashes, tip)

    def shortfall(self, candidate: Candidate) -> str:
        """Return why the candidate has too little work for `accept`, or "" if `accept` would store it."""
        tip, wanted = candidate.tip, self.required_work
        if candidate.headers and tip.work < wanted:
            return f"a chain up to height {tip.height} has work {tip.work:#x}, below {wanted:#x}"
        length = tip.height - (candidate.height if candidate.fork is None else candidate.fork.height)
        if length > MAX_FORK_HEADERS and tip.work <= self.work:
            return f"a fork of {length} headers up to height {tip.height} does not have more work than the best chain"
        return ""

    def store(self, headers: bytes, hashes: bytes) -> Update:
        """Store validated headers and their hashes, even if their work is low. Return the change to the best chain.

        Raises UnconnectedHeadersError if their parent is not stored.
        """
        if not headers:
            return Update(self.height)
        place = self._find(headers[4:36])
        if place is None:
            raise UnconnectedHeadersError(f"the parent of these headers, {hash_to_hex(headers[4:36])}, is unknown")
        fork, height = place
        stored, total = len(hashes) // 32, self._work(*place) + total_work(headers)
        if fork is not None:  # the branch is stored whole, from the best chain up to its new tip
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
        """Connect a branch that starts after a header of the best chain, and disconnect the headers above it."""
        old_headers, old_hashes = b"", b""
        if height < self.height:
            old_work = self.work
            old_headers, old_hashes = self._active.cut(height)
            self._forks.reorganise(Fork(height, old_headers, old_hashes, old_work), Fork(height, headers, hashes, 0))
        self._active.append(headers, hashes[-32:])
        return Update(height, stored, old_headers, old_hashes, headers, hashes)

    # Context for the rules

    def tip(self, fork: Fork | None = None, height: int | None = None) -> Tip:
        """Return the state for validating the header that follows a given height of the best chain or of a fork.

        By default, it is the state after the best chain's last header.
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
