"""Handles peers that stay behind the best chain, or that may be hiding new blocks.

The engine replaces such a peer if another address can have its slot.
"""

from __future__ import annotations

from math import inf

from spvfilter.light.engine.addresses import EXTRA_S
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.headers import PeerHeaders
from spvfilter.light.engine.peers import Peer

CATCH_UP_S = 20 * 60.0  # Time for a peer that is behind while another is not (Core CHAIN_SYNC_TIMEOUT).


class StalePeers:
    """Records when each peer fell behind the best chain, and replaces peers that stay behind.

    A peer that is behind is not a liar. The engine asks it for headers once more, then drops it and pauses its address;
    only one peer is dropped at a time. A peer has `CATCH_UP_S` to catch up, or PeerTimeouts' `answer_s` if no ready
    peer has the best chain, because the client then cannot be synced.

    A peer that does not announce new blocks is not behind the known chain. If no block arrives for a long time, the
    engine also connects in turn to the addresses that the user named, and keeps the peers with the most work.
    """

    def __init__(self, context: Context, headers: PeerHeaders) -> None:
        self._context = context
        self._headers = headers
        self._since: dict[Peer, float] = {}
        self._asked: dict[Peer, float] = {}  # time of the second request
        self._last = -inf  # time of the last drop
        self._tip = b""
        self._another_at = 0.0  # time to try another address, unless a block arrives first

    def drop_one(self) -> None:
        """Drop a peer that has been behind for too long and was asked for headers again, if there is a substitute."""
        context, now = self._context, self._context.now.monotonic
        ready, timeouts = context.pool.ready(), context.options.timeouts
        behind = [peer for peer in ready if self._headers.is_behind(peer)]
        self._since = {peer: self._since.get(peer, now) for peer in behind}
        self._asked = {peer: self._asked[peer] for peer in behind if peer in self._asked}
        allowed = timeouts.answer_s if len(behind) == len(ready) else CATCH_UP_S
        for peer, since in sorted(self._since.items(), key=lambda each: each[1]):
            if now - max(since, self._last) < allowed:
                continue
            if peer not in self._asked:  # It may have the best chain, because its announcement may have been lost.
                self._asked[peer] = now
                self._headers.ask(peer)
            elif now - self._asked[peer] < timeouts.stall_s or self._headers.is_asked(peer):
                continue
            elif context.pool.has_substitute(peer, context.now):
                self._last = now
                context.pool.drop(peer, self._headers.lack(peer), context.now)
                return

    def try_another(self) -> None:
        """Connect to another named address if no block arrives for a long time."""
        context, now = self._context, self._context.now.monotonic
        if context.chain.tip_hash != self._tip:
            self._tip, self._another_at = context.chain.tip_hash, now + context.options.timeouts.stale_tip_s
        elif now >= self._another_at and context.pool.try_another(context.now):
            self._another_at = now + EXTRA_S
