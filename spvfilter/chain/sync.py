"""HeaderSync: synchronising headers with one peer, in two passes while its chain has too little work.

At the difficulty of 2009 anyone can make a million headers. A chain with too little work to be stored is therefore
downloaded twice (Core headerssync.h). The first pass validates every header and keeps only one byte of a salted hash
for every 600th, until the work suffices. The second pass compares these bytes, and stores a header once enough of the
commitments above it match. A branch off the best chain is stored only when it has more work than the best chain.
"""

from __future__ import annotations

from enum import StrEnum

from spvfilter._dataclass import dataclass, field
from spvfilter._public import public
from spvfilter.chain.headerchain import HeaderChain, Update
from spvfilter.chain.rules import Tip, check_links, check_proofs
from spvfilter.errors import CommitmentError, LowWorkError, ParameterError
from spvfilter.hashes import sha256d
from spvfilter.kernel import header_hashes
from spvfilter.protocol import HEADER_SIZE, MAX_HEADERS

COMMITMENT_PERIOD = 600  # headers per commitment, about as in Core
LOOKAHEAD = 6_000  # headers read above one before it is stored: ten commitments, which match by chance once in 2^80
MIN_SALT_SIZE = 16  # bytes


@public
class SyncPhase(StrEnum):
    """How the peer's next headers are treated."""

    DIRECT = "direct"
    """Stored at once."""
    PRESYNC = "presync"
    """The first pass."""
    REDOWNLOAD = "redownload"
    """The second pass."""


@dataclass(slots=True)
class _Passes:
    """The two passes over one chain.

    The median time rule bounds its commitments: at most six headers per second since `root`.
    """

    root: Tip
    """Where both passes start."""
    tip: Tip
    """The last header that the current pass has read."""
    locator: list[bytes]
    """Of the root."""
    end: int = 0
    """The height at which the first pass ended; 0 during it."""
    commitments: bytearray = field(default_factory=bytearray)
    compared: int = 0
    """Number of commitments that the second pass has compared."""
    headers: bytearray = field(default_factory=bytearray)
    """Read by the second pass, not yet stored."""
    hashes: bytearray = field(default_factory=bytearray)


@public
class HeaderSync:
    """The synchronisation of headers with one peer: while `wants_more`, send getheaders with `locator` and pass the
    answer to `receive`.

    If `wants_more` is False and `phase` is not DIRECT, the answer to the last getheaders is still outstanding. An error
    changes nothing, except that LowWorkError and CommitmentError end the passes.
    """

    def __init__(self, chain: HeaderChain, salt: bytes) -> None:
        """`salt` is at least 16 bytes from `secrets`, different for every peer.

        Raises ParameterError for a shorter one.
        """
        if len(salt) < MIN_SALT_SIZE:
            raise ParameterError(f"a salt has at least {MIN_SALT_SIZE} bytes, not {len(salt)}")
        self.chain = chain
        self.wants_more = True  # whether the peer seems to have more headers
        self._salt = salt
        self._offset = int.from_bytes(sha256d(salt)[:4], "little") % COMMITMENT_PERIOD
        self._last = chain.tip_hash  # the last header from this peer that is stored
        self._passes: _Passes | None = None

    @property
    def phase(self) -> SyncPhase:
        """What is done with the next headers."""
        if self._passes is None:
            return SyncPhase.DIRECT
        return SyncPhase.REDOWNLOAD if self._passes.end else SyncPhase.PRESYNC

    @property
    def height(self) -> int:
        """The height that the current phase has reached."""
        return self._passes.tip.height if self._passes else self.chain.height

    def locator(self) -> list[bytes]:
        """The block locator for the next getheaders. It starts with the peer's last header if the peer has more."""
        if self._passes:
            return [self._passes.tip.hash, *self._passes.locator]
        hashes = self.chain.locator()
        return [self._last, *hashes] if self.wants_more and self._last not in hashes else hashes

    def receive(self, headers: bytes, now: int) -> Update:
        """Take the headers of one message, 80 bytes each; `now` is our clock, seconds since 1970.

        During the passes, a message that cannot be the answer, such as the announcement of a new block, is ignored.
        Raises FormatError, HeaderError.
        """
        full = len(headers) >= MAX_HEADERS * HEADER_SIZE
        passes = self._passes
        if passes:
            hashes = header_hashes(headers)
            check_links(headers, hashes)
            follows = headers[4:36] in (passes.tip.hash, b"")
            if headers and (hashes[-32:] in self.chain if follows else headers[4:36] in passes.locator):
                passes = self._passes = None  # another peer was faster, or this one has switched to another chain
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
        """Continue the current pass with validated headers, which follow `passes.tip`; `tip` is the last one."""
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
        expected = passes.commitments[passes.compared : passes.compared + len(commitments)]
        passes.compared += len(commitments)
        height = passes.tip.height
        ended = not enough and (height >= passes.end or not full)
        if commitments[: len(expected)] != expected or ended:
            self._passes = None
            if ended and height >= passes.end:  # our chain has grown meanwhile
                raise LowWorkError(f"the peer's chain up to height {height} no longer has enough work")
            raise CommitmentError(
                f"the peer sent other headers, or fewer, up to height {height} in the second pass than in the first"
            )
        passes.headers += headers
        passes.hashes += hashes
        at = passes.hashes.rfind(self.chain.tip_hash)
        if at >= 0 and not at % 32:  # another peer has sent these meanwhile
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
