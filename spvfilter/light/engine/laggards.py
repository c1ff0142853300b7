"""Peers that stay behind the best chain: where another address can have their place, they are let go."""

from __future__ import annotations

from math import inf

from spvfilter.light.engine.context import Context
from spvfilter.light.engine.headers import Headers
from spvfilter.light.engine.peers import Peer

CATCH_UP_S = 20 * 60.0  # for a peer that is behind while another is not, Core CHAIN_SYNC_TIMEOUT


class Laggards:
    """Since when peers have been behind. They are no liars: they are asked once more, then dropped with a pause, one at a time.

    While nobody that is ready has the best chain, nothing can be told as Synced, so each has `answer_s` of Patience; else `CATCH_UP_S`.
    """

    def __init__(self, context: Context, headers: Headers) -> None:
        self._context = context
        self._headers = headers
        self._since: dict[Peer, float] = {}
        self._asked: dict[Peer, float] = {}  # once more, and when
        self._last = -inf  # when one was let go

    def let_go(self) -> None:
        """Look who has been behind for too long; who has, and has been asked for headers once more, is dropped for another."""
        context, now = self._context, self._context.now.monotonic
        ready, patience = context.pool.ready(), context.options.patience
        behind = [peer for peer in ready if self._headers.is_behind(peer)]
        self._since = {peer: self._since.get(peer, now) for peer in behind}
        self._asked = {peer: self._asked[peer] for peer in behind if peer in self._asked}
        allowed = patience.answer_s if len(behind) == len(ready) else CATCH_UP_S
        for peer, since in sorted(self._since.items(), key=lambda each: each[1]):
            if now - max(since, self._last) < allowed or not context.pool.has_substitute(peer, context.now):
                continue
            if peer not in self._asked:
                self._asked[peer] = now
                self._headers.ask(peer)
            elif now - self._asked[peer] >= patience.stall_s and not self._headers.is_asked(peer):
                self._last = now
                context.pool.drop(peer, self._headers.lack(), context.now)
                return
