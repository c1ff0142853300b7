"""HeaderSync: header synchronization with one peer, in two passes while its chain has too little work.

At the difficulty of 2009 anyone can make a million headers. A chain with too little work to be stored is therefore
downloaded twice (Core headerssync.h):

- The first pass validates every header. It keeps a commitment to every 600th header, one byte of a salted hash, until
  the work suffices.
- The second pass compares these commitments. It stores a header once enough of the commitments above it match.

A branch off the best chain is stored only when it has more work than the best chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from spvfilter._public import public
from spvfilter.chain.headerchain import HeaderChain, Update
from spvfilter.chain.rules import Tip, check_links, check_proofs
from spvfilter.errors import CommitmentError, LowWorkError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import header_hashes
from spvfilter.protocol import HEADER_SIZE, MAX_HEADERS

COMMITMENT_PERIOD = 600  # headers per commitment, about as in Core
# Headers that are read above a header before it is stored: ten commitments. They match by chance once in 2^80.
LOOKAHEAD = 6_000
MIN_SALT_SIZE = 16  # bytes (our choice)


@public
class SyncPhase(StrEnum):
    """The step of header synchronization with a peer, which determines what happens to the next headers."""

    DIRECT = "direct"
    """Validated headers are stored in the chain immediately."""
    PRESYNC = "presync"
    """First pass: headers are validated and commitments to them are kept."""
    REDOWNLOAD = "redownload"
    """Second pass: headers are compared with the commitments and stored."""


@dataclass(slots=True)
class _Passes:
    """The state of the two passes over one chain.

    The median time rule bounds the number of commitments: at most six headers per second since `root`.
    """

    root: Tip
    """State of the chain before the first header of both passes."""
    tip: Tip
    """State of the chain after the last header that the current pass has processed."""
    locator: list[bytes]
    """Block locator whose first hash is the hash of `root`."""
    end: int = 0
    """Height at which the first pass ended; 0 during the first pass."""
    commitments: bytearray = field(default_factory=bytearray)
    """Commitments of the first pass: one byte for every 600th header."""
    compared: int = 0
    """Number of commitments that the second pass has compared."""
    headers: bytearray = field(default_factory=bytearray)
    """Headers that the second pass has received but not stored, 80 bytes each."""
    hashes: bytearray = field(default_factory=bytearray)
    """Block hashes of the headers that the second pass has received but not stored, 32 bytes each."""


@public
class HeaderSync:
    """Header synchronization with one peer.

    While `wants_more` is True, send getheaders with `locator` and pass the answer to `receive`. If `wants_more` is
    False and `phase` is not DIRECT, the answer to the last getheaders has not arrived yet. A call that raises an error
    changes nothing, but LowWorkError and CommitmentError end the two passes.

    Args:
        chain: The chain to which headers are added.
        salt: At least 16 bytes from `secrets`, different for every peer.
    """

    def __init__(self, chain: HeaderChain, salt: bytes) -> None:
        """Create the synchronization with one peer. Raises ParameterError if the salt is shorter than 16 bytes."""
        if len(salt) < MIN_SALT_SIZE:
            raise ParameterError(f"a salt must be at least {MIN_SALT_SIZE} bytes long, not {len(salt)}")
        self.chain = chain
        """The chain to which headers are added."""
        self.wants_more: bool = True
        """True if the peer seems to have more headers: the caller sends getheaders."""
        self._salt = salt
        self._offset = int.from_bytes(sha256d(salt)[:4], "little") % COMMITMENT_PERIOD
        self._last = chain.tip_hash  # hash of the last stored header that this peer has sent
        self._passes: _Passes | None = None

    @property
    def phase(self) -> SyncPhase:
        """The step that the next headers belong to: direct, first pass or second pass."""
        if self._passes is None:
            return SyncPhase.DIRECT
        return SyncPhase.REDOWNLOAD if self._passes.end else SyncPhase.PRESYNC

    @property
    def height(self) -> int:
        """The height that the current phase has reached."""
        return self._passes.tip.height if self._passes else self.chain.height

    def locator(self) -> list[bytes]:
        """Block locator for the next getheaders. It starts with the peer's last header if the peer has more headers."""
        if self._passes:
            return [self._passes.tip.hash, *self._passes.locator]
        hashes = self.chain.locator()
        return [self._last, *hashes] if self.wants_more and self._last not in hashes else hashes

    def receive(self, headers: bytes, now: int) -> Update:
        """Process the headers of one message from the peer.

        During the two passes, a message that cannot be the answer to getheaders is ignored, such as an announced block.

        Args:
            headers: Headers, 80 bytes each.
            now: The current Unix time.

        Returns:
            The change to the best chain.

        Raises:
            FormatError: The bytes are not a multiple of 80.
            HeaderError: A header was refused. LowWorkError and CommitmentError end the two passes.
        """
        full = len(headers) >= MAX_HEADERS * HEADER_SIZE
        passes = self._passes
        if passes:
            hashes = header_hashes(headers)
            check_links(headers, hashes)
            follows = headers[4:36] in (passes.tip.hash, b"")
            if headers and (hashes[-32:] in self.chain if follows else headers[4:36] in passes.locator):
                passes = self._passes = None  # another peer was faster, or this peer has switched to another chain
            elif not follows:
                check_proofs(headers, hashes, self.chain.network)
                self.wants_more = False
                return Update(self.chain.height)
            else:
                tip = passes.tip.copy()
                tip.advance(headers, hashes, now)
                return self._read(passes, headers, hashes, tip, full)
        candidate = self.chain.examine(headers, now)
        if self.chain.shortfall(candidate):
            root = self.chain.tip(candidate.fork, candidate.height)
            passes = self._passes = _Passes(root, root, [root.hash, *self.chain.locator()])
            return self._read(passes, candidate.headers, candidate.hashes, candidate.tip, full)
        self._last = candidate.tip.hash
        self.wants_more = full
        return self.chain.store(candidate.headers, candidate.hashes)

    def _read(self, passes: _Passes, headers: bytes, hashes: bytes, tip: Tip, full: bool) -> Update:
        """Continue the current pass with validated headers. They follow `passes.tip` and end in `tip`."""
        first = passes.tip.height + 1
        commitments = bytes(
            sha256d(self._salt + hashes[32 * at : 32 * at + 32])[0]
            for at in range((self._offset - first) % COMMITMENT_PERIOD, len(hashes) // 32, COMMITMENT_PERIOD)
        )
        passes.tip = tip
        self.wants_more = True
        wanted = max(self.chain.network.min_chain_work, self.chain.work + 1)
        enough = tip.work >= wanted
        if passes.end:
            return self._read_again(passes, headers, hashes, commitments, enough, full)
        passes.commitments += commitments
        if enough:
            passes.end, passes.tip = tip.height, passes.root
        elif not full:
            self._passes = None
            raise LowWorkError(
                f"the peer's chain ends at height {tip.height} with work {tip.work:#x}, below the required {wanted:#x}"
            )
        return Update(self.chain.height)

    def _read_again(
        self, passes: _Passes, headers: bytes, hashes: bytes, commitments: bytes, enough: bool, full: bool
    ) -> Update:
        """Continue the second pass: compare the commitments, and store headers that enough commitments confirm."""
        expected = passes.commitments[passes.compared : passes.compared + len(commitments)]
        passes.compared += len(commitments)
        height = passes.tip.height
        ended = not enough and (height >= passes.end or not full)
        if commitments[: len(expected)] != expected or ended:
            self._passes = None
            if ended and height >= passes.end:  # the best chain has grown since the first pass
                raise LowWorkError(f"the peer's chain up to height {height} no longer has enough work")
            raise CommitmentError(
                f"the peer sent different or fewer headers up to height {height} in the second pass than in the first"
            )
        passes.headers += headers
        passes.hashes += hashes
        at = passes.hashes.rfind(self.chain.tip_hash)
        if at >= 0 and not at % 32:  # another peer has sent these headers in the meantime
            del passes.headers[: HEADER_SIZE * (at // 32 + 1)], passes.hashes[: at + 32]
        ready = len(passes.hashes) // 32
        if not enough:
            ready = max(0, ready - LOOKAHEAD) if passes.headers[4:36] == self.chain.tip_hash else 0
        else:
            self._passes, self._last, self.wants_more = None, passes.tip.hash, full
        if not ready:
            return Update(self.chain.height)
        update = self.chain.store(bytes(passes.headers[: HEADER_SIZE * ready]), bytes(passes.hashes[: 32 * ready]))
        del passes.headers[: HEADER_SIZE * ready], passes.hashes[: 32 * ready]
        return update
