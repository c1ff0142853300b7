"""Ticks that the engine requests: often while there is activity, at each deadline, and rarely otherwise."""

from __future__ import annotations

import math
import random
from itertools import pairwise

from spvfilter.chain import HeaderChain
from spvfilter.light.engine.context import Context
from spvfilter.light.engine.effects import Wake
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.inputs import Instant, PeerConnected
from spvfilter.light.engine.options import Options, PeerTimeouts
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.peers import PeerPool, PeerState
from spvfilter.light.engine.timers import Timers
from spvfilter.network import REGTEST
from spvfilter.wallet.books import Books
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList

START = Instant(0.0, 1_700_000_000.0)


def context_with_a_peer() -> Context:
    books = Books(WatchList(REGTEST), SavedBooks())
    out = Outbox(books, HeaderChain(REGTEST), Journal())
    pool = PeerPool(["10.1.0.1:1"], {}, 8, PeerTimeouts(), out)
    pool.advance(START)
    peer = pool.welcome(PeerConnected(1, "10.1.0.1", 0x4D, 3, True, True, "/test/", int(START.wall)), START)
    assert peer is not None
    pool.move(peer, PeerState.READY)
    context = Context(
        Options(), HeaderChain(REGTEST), FilterRows(), books, pool, out, random.Random(1), START, START.wall
    )
    context.is_due = False
    return context


def ring(timers: Timers, context: Context, times: int) -> list[float]:
    """Return the times of the next ticks, if nothing happens between them."""
    rung = []
    for _ in range(times):
        timers.set(context, math.inf, is_done=False)
        at = max(effect.at for effect in context.out.take() if isinstance(effect, Wake))
        rung.append(at)
        context.now = Instant(at, START.wall + at)
        timers.rang()
    return rung


def test_ticks_become_rarer_until_the_next_activity() -> None:
    timers, context = Timers(), context_with_a_peer()
    rung = [0.0, *ring(timers, context, 12)]
    pauses = [after - before for before, after in pairwise(rung)]
    assert pauses[:5] == [1.0] * 5  # longer than a stall, so that each stalling peer is noticed
    assert pauses[5:8] == [2.0, 4.0, 8.0]
    assert pauses[8:] == [10.0] * 4
    timers.stirred()
    assert ring(timers, context, 1)[0] - rung[-1] == 1.0


def test_a_deadline_of_a_peer_is_never_missed() -> None:
    timers, context = Timers(), context_with_a_peer()
    ring(timers, context, 12)
    (peer,) = context.pool
    context.pool.ask(peer, "question", context.now)
    context.out.take()
    asked, timeouts = context.now.monotonic, context.options.timeouts
    ring(timers, context, 1)
    context.pool.check_timeouts(context.now)
    assert peer.state is PeerState.SUSPECT
    assert context.now.monotonic - asked < timeouts.stall_s + 0.01
    while context.pool.has(peer):
        ring(timers, context, 1)
        context.pool.check_timeouts(context.now)
    assert context.now.monotonic - asked < timeouts.reply_s + 0.01
