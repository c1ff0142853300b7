"""Start of the first search: a peer without a chain does not decide it."""

from __future__ import annotations

import random

import pytest

from spvfilter.chain import HeaderChain
from spvfilter.light.engine.coverage import Coverage
from spvfilter.light.engine.effects import Effect, Emit, Fence, Send
from spvfilter.light.engine.engine import ClientEngine
from spvfilter.light.engine.filterrows import FilterRows
from spvfilter.light.engine.inputs import FencePassed, Heard, Instant, PeerConnected, Tick
from spvfilter.light.engine.options import Options
from spvfilter.light.engine.saved import Saved
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.network import MAINNET
from spvfilter.wallet.saved import SavedBooks
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages import table as wire
from support.blocks.build import p2wpkh

NOW = Instant(0.0, 1_700_000_000.0)


@pytest.mark.parametrize("start", [{"from_height": 800_000}, {"birthday": 1_690_000_000}])
@pytest.mark.parametrize("mode", [Mode.BIP37, Mode.COMPACT])
def test_a_peer_with_only_the_genesis_block_starts_no_search(mode: Mode, start: dict[str, int]) -> None:
    """Otherwise the search would start there for good, and cover 800,000 blocks too many."""
    watch = WatchList(MAINNET)
    watch.add_script(p2wpkh(b"\x01" * 20))
    saved = Saved(HeaderChain(MAINNET), FilterRows(), SavedBooks(), Coverage(), {}, None, bytes(32))
    # by name
    engine = ClientEngine(Options(mode, **start), watch, saved, ["10.1.0.1:1"], random.Random(1))  # type: ignore[arg-type]
    engine.start(NOW)
    effects: list[Effect] = engine.step(PeerConnected(1, "10.1.0.1", 0x4D, 0, True, True, "/test/", int(NOW.wall)), NOW)
    effects += engine.step(Heard(1, wire.Headers(())), NOW)
    for effect in list(effects):
        if isinstance(effect, Fence):
            effects += engine.step(FencePassed(1, effect.token), NOW)
    assert engine.pool.ready()
    assert (engine.books.cursor, engine.books.searched, engine.books.blocks.start) == (-1, -1, None)
    effects += engine.step(Tick(), Instant(10.0, NOW.wall + 10.0))
    warnings = [
        effect.event for effect in effects if isinstance(effect, Emit) and isinstance(effect.event, PeerWarning)
    ]
    assert ["a chain with the network's minimum work" in str(each.error) for each in warnings] == [True]
    questions = (wire.GetData, wire.GetCFHeaders, wire.GetCFilters)
    assert not any(isinstance(effect, Send) and isinstance(effect.message, questions) for effect in effects)
