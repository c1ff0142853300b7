"""Blocks that a program requests, in addition to the blocks of the search."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from spvfilter.errors import ParameterError
from spvfilter.light.engine.blocks import BlockRequests
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.requests import FetchBlock
from spvfilter.primitives import hash_to_hex


class BlockFetches:
    """Outstanding requests for blocks. A disconnected block stays requested until the program cancels the request."""

    def __init__(self, context: Context, blocks: BlockRequests) -> None:
        self._context = context
        self._blocks = blocks
        self._open: dict[FetchBlock, tuple[int, Callable[[bytes], None]]] = {}  # token, and the call with the block

    def fetch(self, token: int, request: FetchBlock) -> None:
        """Request a block of the best chain, and finish the request with the block."""
        if self._context.chain.height_of(request.block_hash) is None:
            name = hash_to_hex(request.block_hash)
            self._context.out.finish(token, ParameterError(f"block {name} is not in the best chain"))
            return
        self._open[request] = token, partial(self._came, request)
        self._context.changed()

    def advance(self) -> None:
        """Ask peers for the requested blocks, once more if a new search has cancelled them."""
        for request, (_, then) in self._open.items():
            height = self._context.chain.height_of(request.block_hash)
            if height is not None:
                self._blocks.want(height, request.block_hash, then)

    def cancel(self, request: FetchBlock) -> None:
        """Cancel a request, unless its block has already arrived."""
        token, then = self._open.pop(request, (0, None))
        if then is not None:
            self._blocks.forget(request.block_hash, then)
            self._context.out.finish(token, None)

    def _came(self, request: FetchBlock, raw: bytes) -> None:
        token, _ = self._open.pop(request)
        self._context.out.finish(token, raw)
