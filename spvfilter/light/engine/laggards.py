"""Peers that stay behind the best chain, or may hide that it goes on: where another address can have their place, it is
tried.
"""

from __future__ import annotations

from math import inf

from spvfilter.light.engine.addresses import EXTRA_S
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.headers import Headers
from spvfilter.light.engine.peers import Peer

CATCH_UP_S = 20 * 60.0  # for a peer that is behind while another is not, Core CHAIN_SYNC_TIMEOUT


class Laggards:
    """Since when peers have been behind.

    They are no liars: they are asked once more, then dropped with a pause, one at a time.

    While nobody that is ready has the best chain, nothing can be told as Synced, so each has `answer_s` of Patience;
    else `CATCH_UP_S`.

    Peers that get no new blocks, or tell of none, are not behind what is known. So while no block comes for long, named
    addresses that are not connected are heard in turn; who of all then has the most stays.
    """

    def __init__(self, context: Context, headers: Headers) -> None:
        self._context = context
        self._headers = headers
        self._since: dict[Peer, float] = {}
        self._asked: dict[Peer, float] = {}  # once more, and when
        self._last = -inf  # when one was let go
        self._tip = b""
        self._another_at = 0.0  # when another is tried, unless a block comes before

    def let_go(self) -> None:
        """Look who has been behind for too long; who has, and has been asked for headers once more, is dropped for
        another.
        """
        context, now = self._context, self._context.now.monotonic
        ready, patience = context.pool.ready(), context.options.patience
        behind = [peer for peer in ready if self._headers.is_behind(peer)]
        self._since = {peer: self._since.get(peer, now) for peer in behind}
        self._asked = {peer: self._asked[peer] for peer in behind if peer in self._asked}
        allowed = patience.answer_s if len(behind) == len(ready) else CATCH_UP_S
        for peer, since in sorted(self._since.items(), key=lambda each: each[1]):
            if now - max(since, self._last) < allowed:
                continue
            if peer not in self._asked:  # it may have the best chain, and what it told of that may have been lost
                self._asked[peer] = now
                self._headers.ask(peer)
            elif now - self._asked[peer] < patience.stall_s or self._headers.is_asked(peer):
                continue
            elif context.pool.has_substitute(peer, context.now):
                self._last = now
                context.pool.drop(peer, self._headers.lack(peer), context.now)
                return

    def try_another(self) -> None:
        """While no block comes for long, connect another named address."""
        context, now = self._context, self._context.now.monotonic
        if context.chain.tip_hash != self._tip:
            self._tip, self._another_at = context.chain.tip_hash, now + context.options.patience.stale_tip_s
        elif now >= self._another_at and context.pool.try_another(context.now):
            self._another_at = now + EXTRA_S
