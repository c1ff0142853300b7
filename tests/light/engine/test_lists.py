"""Lists of peers: they are current, no matter what has happened to the peers since the last call."""

from __future__ import annotations

import random

import pytest

from spvfilter.chain import HeaderChain
from spvfilter.light.engine.inputs import Instant, PeerConnected
from spvfilter.light.engine.options import PeerTimeouts
from spvfilter.light.engine.outbox import Outbox
from spvfilter.light.engine.peers import BLOOM, COMPACT_FILTERS, PeerPool, PeerState
from spvfilter.network import REGTEST
from spvfilter.wallet.books import Books
from spvfilter.wallet.journal import Journal
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList

ADDRESSES = [f"10.{number}.0.1:1" for number in range(6)]


@pytest.mark.parametrize("seed", range(5))
def test_peer_lists_and_next_connection_follow_every_change(seed: int) -> None:
    rng, now = random.Random(seed), Instant(0.0, 1_700_000_000.0)
    pool = PeerPool(
        ADDRESSES,
        {},
        4,
        PeerTimeouts(),
        Outbox(Books(WatchList(REGTEST), SavedBooks()), HeaderChain(REGTEST), Journal()),
    )
    for _ in range(400):
        now = Instant(now.monotonic + rng.choice([0.0, 0.5, 60.0]), now.wall)
        pool.advance(now)
        peers = list(pool)
        for peer in rng.sample(peers, min(2, len(peers))):
            match rng.randrange(6):
                case 0:
                    pool.lost(peer.number, ConnectionResetError("gone"), now)
                case 1:
                    pool.drop(peer, ConnectionAbortedError("dropped"), now)
                case 2 | 3 if peer.state is PeerState.CONNECTING:
                    host = rng.choice([peer.address.split(":")[0], "10.0.0.1"])  # one node by several names
                    services = rng.choice([0, BLOOM, COMPACT_FILTERS, BLOOM | COMPACT_FILTERS])
                    pool.welcome(PeerConnected(peer.number, host, services, 0, True, True, "/", int(now.wall)), now)
                case 4 if peer.state is not PeerState.CONNECTING:
                    pool.move(peer, rng.choice([PeerState.READY, PeerState.SUSPECT]))
                    pool.ask(peer, "question", now)
                case _:
                    pool.check_timeouts(now)
        there = list(pool)
        assert list(pool.connected()) == [peer for peer in there if peer.state is not PeerState.CONNECTING]
        for service in (0, BLOOM, COMPACT_FILTERS):
            able = [peer for peer in there if peer.is_ready and (not service or peer.serves(service))]
            assert list(pool.ready(service)) == sorted(able, key=lambda peer: peer.state is PeerState.SUSPECT)
        before = len(there)
        due = pool.next_try(now)
        pool.advance(now)
        assert (len(list(pool)) > before) == (due is not None and due <= now.monotonic)
