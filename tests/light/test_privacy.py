"""Filters as nodes receive them: real false-positive rates, and the same bytes after every restart."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.filters.exposure import sample_rate
from spvfilter.filters.privacy import privacy_report
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.primitives import TxOut
from spvfilter.wallet.reader import WalletStore
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.messages.filters import FilterLoad
from spvfilter.wire.messages.table import Message
from spvfilter.wire.session import Session
from support.blocks import build
from support.client.regtests import mined
from support.vectors import effort

RATE = 0.005


def watching(count: int) -> WatchList:
    watch, rng = WatchList(REGTEST), random.Random(count)
    for _ in range(count):
        watch.add_script(build.p2wpkh(rng.randbytes(20)))
    return watch


class Listening(Responder):
    """A node that reports its first filter as it was loaded."""

    def __init__(self, regtest: Regtest, session: Session, given: asyncio.Future[bytes]) -> None:
        super().__init__(regtest, session)
        self._given = given

    def on_bloom(self, message: Message) -> None:
        if isinstance(message, FilterLoad) and not self._given.done():
            self._given.set_result(bytes(message))
        super().on_bloom(message)


async def received(regtest: Regtest, watch: WatchList, store: Path) -> bytes:
    """Return the first filter payload that a client sends to a node in a run that finds the tip."""
    given: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    async with (
        Node(regtest, responder=lambda regtest, session: Listening(regtest, session, given)) as node,
        LightClient(watch, peers=[f"{node.host}:{node.port}"], store=store, mode="bip37", fp_rate=RATE) as client,
        asyncio.timeout(30),
    ):
        await client.wait_synced()
        return await given


@pytest.mark.few(1)
@pytest.mark.parametrize("count", [1, 10, 100, 1_000, 10_000])
async def test_the_real_rate_of_a_filter_is_the_requested_rate(count: int, tmp_path: Path) -> None:
    regtest, watch = Regtest(), watching(count)
    regtest.mine(1)
    made = Bip37Filter.parse(await received(regtest, watch, tmp_path / "wallet.db"))
    assert all(element in made for element in watch.bloom_elements())
    sampled = sample_rate([made], 400_000, 1)  # 2,000 hits: the tenth is four to five standard deviations
    assert sampled.rate == pytest.approx(RATE, rel=0.1)


async def test_restarts_send_nodes_the_same_bytes(tmp_path: Path) -> None:
    regtest, path = Regtest(), tmp_path / "wallet.db"
    regtest.mine(1)
    assert len({await received(regtest, watching(20), path) for _ in range(effort(5, 20, 100))}) == 1


@pytest.mark.slow
async def test_the_report_of_a_database_describes_the_nodes_filter(tmp_path: Path) -> None:
    regtest, path, watch = mined(101), tmp_path / "wallet.db", watching(20)
    script = next(watch.script_pubkeys())
    regtest.pay(TxOut(50_000, script))
    regtest.mine(1)
    regtest.pay(TxOut(7_000, script))  # the payment stays unconfirmed and must not change the filter
    await received(regtest, watch, path)
    given = Bip37Filter.parse(await received(regtest, watching(20), path))
    with WalletStore.open(path) as wallet:
        elements, known = wallet.bip37_elements(), wallet.bip37_parameters()
    assert known is not None
    assert len(elements) == 21
    source = Source(elements)
    again = Bip37Filter.for_watchlist(
        source, known.fp_rate, known.tweak, elements=known.elements, decoy_key=known.decoy_key
    )
    assert bytes(again) == bytes(given)
    report = privacy_report(
        source, known.fp_rate, known.tweak, known.decoy_key, elements=known.elements, restarts=100, probes=0
    )
    assert (report.own, report.outpoints, report.is_steady) == (20, 1, True)
    assert report.real_fp_rate == given.current_fp_rate


class Source(list[bytes]):
    def bloom_elements(self) -> list[bytes]:
        return self
