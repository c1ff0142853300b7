"""The simulated world itself: time, pipes, the oracle, chains."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from simulation import oracle
from simulation.behaviours import FAULTY, LIARS, SCHEMES, Behaviour
from simulation.behaviours.compact import HidesBehindDoubt
from simulation.pipe import Pipe, Quality
from simulation.timeline import Timeline
from simulation.truth import LONG, TEMPLATES, begin, template
from simulation.weight import weigh
from spvfilter.light.events import Mode, Synced
from spvfilter.network import REGTEST
from spvfilter.primitives import OutPoint
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import LOCKS, build_tx
from support.client.stage import Prompt, stage


def test_events_of_one_moment_keep_the_order_of_requests() -> None:
    timeline, happened = Timeline(), []
    for number in range(3):
        # each callback appends its own number
        timeline.at(5.0, lambda number=number: happened.append((timeline.now, number)))  # type: ignore[misc]
    timeline.at(2.0, lambda: happened.append((timeline.now, 9)))
    timeline.at(3.0, lambda: happened.append((timeline.now, 8))).cancel()
    timeline.run(10.0)
    assert happened == [(2.0, 9), (5.0, 0), (5.0, 1), (5.0, 2)]
    assert timeline.now == 10.0


def test_bytes_arrive_in_order_and_then_the_end() -> None:
    timeline, arrived = Timeline(), list[bytes | None]()
    pipe = Pipe(timeline, random.Random(1), Quality(delay=0.1, jitter=2.0, breaks=0.5), arrived.append)
    sent = [bytes([number]) * (number + 1) for number in range(50)]
    for data in sent:
        pipe.send(data)
    pipe.close()
    timeline.run(1_000.0)
    assert arrived[-1] is None
    assert b"".join(each for each in arrived if each is not None) == b"".join(sent)
    assert pipe.waiting == 0


def test_a_cut_pipe_delivers_no_more_bytes() -> None:
    timeline, arrived = Timeline(), list[bytes | None]()
    pipe = Pipe(timeline, random.Random(1), Quality(), arrived.append)
    pipe.send(b"lost on the way")
    pipe.cut()
    pipe.send(b"never sent")
    pipe.close()
    timeline.run(1_000.0)
    assert not arrived


@pytest.mark.few(2)
@pytest.mark.parametrize("number", [*range(TEMPLATES), LONG])
def test_the_oracle_and_the_watch_list_find_the_same(number: int) -> None:
    chain = template(number).regtest.chain.active
    watch = WatchList(REGTEST)
    for lock in LOCKS:
        watch.add_script(lock.script_pubkey)
    found = {
        oracle.Place(str(match.kind), match.txid, match.index, block.height, block.hash)
        for block in chain
        for match in watch.match_block(block.raw, height=block.height)
    }
    assert found == oracle.scan([block.raw for block in chain], {lock.script_pubkey for lock in LOCKS})
    assert len(found) > 20
    assert len(chain) > 200


def test_a_life_leaves_its_template_unchanged() -> None:
    before = [
        (each.regtest.height, len(each.regtest.chain.blocks), len(each.regtest.chain.coins))
        for each in map(template, range(TEMPLATES))
    ]
    for seed in range(5):
        truth = begin(random.Random(seed), lambda: 0.0)
        truth.receive()
        truth.mine(3)
        truth.reorganise(40)
        assert truth.scan() >= set()
    after = [
        (each.regtest.height, len(each.regtest.chain.blocks), len(each.regtest.chain.coins))
        for each in map(template, range(TEMPLATES))
    ]
    assert after == before


def test_a_refused_replacement_leaves_the_mempool_unchanged() -> None:
    truth = begin(random.Random(3), lambda: 0.0)
    lock = truth.locks[0]
    coin = OutPoint(truth.regtest.pay(lock.pays(1_500)), 0)  # less than the fee of the replacement
    truth.mine()
    waits = truth.regtest.submit_tx(build_tx([lock.spends(coin, 1_500)], [lock.pays(1_000)]))
    truth.replace()
    assert [tx.txid for tx in truth.regtest.mempool] == [waits]


@pytest.mark.parametrize(
    ("nodes", "heights"), [((Prompt, HidesBehindDoubt), {5, 6, 7}), ((Prompt, HidesBehindDoubt, Prompt), set[int]())]
)
def test_disputes_excuse_missing_matches_if_half_the_networks_lie(
    tmp_path: Path, nodes: tuple[type[Behaviour], ...], heights: set[int]
) -> None:
    with stage(tmp_path, Mode.COMPACT, *nodes) as world:
        assert world.doubted(Synced(9, bytes(32), (), -1, ((5, 7),))) == heights
        assert world.doubted(None) == set()


def test_weight_counts_each_object_once() -> None:
    held = [bytes(1_000)] * 3
    assert weigh([held, held]) == (3, 1_000)


def test_the_library_has_every_behaviour() -> None:
    assert len(FAULTY) >= 15
    assert len(LIARS) >= 30
    assert len(SCHEMES) >= 10
    assert not set(SCHEMES) & {*FAULTY, *LIARS}
    assert all(kind.is_honest for kind in FAULTY)
    assert not any(kind.is_honest or kind.is_full for kind in LIARS)
