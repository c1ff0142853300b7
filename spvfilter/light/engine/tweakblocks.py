"""Find silent payments with a server's tweaks: get each block's tweaks, and search its filter for their scripts.

A block whose filter matches is fetched whole and searched. The server does not learn any key, but it can hide a
payment, because nothing proves that it returned all tweaks of a block. Its block hash must be in our best chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any  # answers of the user's source

from spvfilter.errors import BlockFilterError, SourceError
from spvfilter.filters.batch import match_filters
from spvfilter.kernel import GcsQuery
from spvfilter.light.engine.silentblocks import Scanners, SilentBlock, SilentBlocks
from spvfilter.light.engine.tasks import Wait
from spvfilter.network import Network
from spvfilter.primitives import hash_to_hex
from spvfilter.protocol import HASH_SIZE
from spvfilter.silent.tweaks import MAX_TWEAKS
from spvfilter.watch.silentsearch import Payment

_FIRST_HEIGHTS = {"mainnet": 709_632}
"""First block whose tweaks are requested: the activation of taproot (Core kernel/chainparams.cpp).

On other networks, it is block 1, since a genesis block spends nothing."""
_AHEAD = 32  # Number of blocks above the cursor whose tweaks are requested (our choice).
_TWEAK_SIZE = 33


class TweakBlocks(SilentBlocks):
    """The blocks whose tweaks are requested, keyed by hash."""

    @property
    def ahead(self) -> int:
        """Number of blocks above the cursor whose filters are searched."""
        return _AHEAD if self.is_needed else 0

    @property
    def reads_all(self) -> bool:
        """False: only blocks whose filters match are read."""
        return False

    @property
    def source(self) -> str | None:
        """The name of the source."""
        return self._context.options.tweak_source

    def judge(self, height: int, block_hash: bytes, filter: bytes) -> None:
        """Start searching the filter of a block of the best chain."""
        if block_hash not in self._blocks:
            self._begun(height, block_hash).filter = filter

    def judged_to(self, first: int, end: int) -> int:
        """Return the first height whose filter has not been searched for all current labels, or `end`."""
        if not self.is_needed:
            return end
        labels = self._labels()
        judged = {block.height for block in self._blocks.values() if labels in (block.judged, block.searched)}
        height = next((each for each in range(first, end) if each not in judged), end)
        if height < end:
            self._more.announce()
        return height

    def paying(self, first: int, hashes: Sequence[bytes]) -> list[int]:
        """Return, in ascending order, the heights of these blocks whose filters match a payment.

        `hashes` are the hashes of successive blocks, and the first of them has height `first`.
        """
        last = first + len(hashes) - 1
        return sorted(
            block.height
            for block in self._blocks.values()
            if block.is_paying and first <= block.height <= last and hashes[block.height - first] == block.hash
        )

    def forget_to(self, height: int) -> None:
        """Forget the blocks up to a height, which have been recorded."""
        for block in [block for block in self._blocks.values() if block.height <= height]:
            self.forget(block.hash)

    def _asked(self, block: SilentBlock) -> Wait[Any]:
        if block.height >= _FIRST_HEIGHTS.get(self._context.chain.network.name, 1):
            return self._context.out.tweaks_at(block.height)
        known = Wait[Any]("the tweaks of a block")
        known.set((block.hash, ()))
        return known

    def _check(self, block: SilentBlock, answer: object) -> None:
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise SourceError(f"it returned {type(answer).__name__} instead of a block hash and tweaks")
        stated, tweaks = answer
        if not isinstance(stated, bytes) or len(stated) != HASH_SIZE:
            raise SourceError("it did not return a 32-byte block hash")
        if stated != block.hash:
            raise SourceError(
                f"it returned block {hash_to_hex(stated)}, which is not in the best chain: it is behind, or on a branch"
            )
        if not isinstance(tweaks, list | tuple):
            raise SourceError(f"it returned {type(tweaks).__name__} instead of tweaks")
        if len(tweaks) > MAX_TWEAKS:
            raise SourceError(f"it returned {len(tweaks):,} tweaks, but a block can have at most {MAX_TWEAKS:,}")
        if not all(isinstance(each, bytes) and len(each) == _TWEAK_SIZE for each in tweaks):
            raise SourceError(f"it returned a tweak that is not {_TWEAK_SIZE} bytes long")

    @staticmethod
    def search(raw: bytes, answer: Any, scanners: Scanners, network: Network, height: int) -> Sequence[Payment]:
        """Search a block, in a thread. Raises FormatError if a tweak is not a point on the curve."""
        return scanners.made().payments_by_tweaks(raw, answer[1])

    @staticmethod
    def matches(block_hash: bytes, filter: bytes, answer: Any, scanners: Scanners) -> bool:
        """Return True if the filter of a block may match a payment. This runs in a thread."""
        scripts = scanners.made().first_scripts(answer[1])
        if not scripts:
            return False
        try:
            return next(match_filters([(block_hash, filter)], GcsQuery(scripts)), None) is not None
        except BlockFilterError:
            return True  # the search by scripts refutes the filter

    def _about(self, block: SilentBlock) -> str:
        return f"tweaks of block {block.height}"
