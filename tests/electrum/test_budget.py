"""The budget of all sessions: fair turns of hosts, room for large messages, subscriptions in total."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.electrum.budget import ElectrumBudget, FairShare, size_of
from spvfilter.electrum.limits import ElectrumLimits
from support.held import most_held

HOSTS = st.sampled_from("abc")


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.lists(st.tuples(HOSTS, st.integers(0, 3), st.booleans()), max_size=30),
)
def test_permits_are_never_exceeded_and_nobody_waits_forever(
    permits: int, host_permits: int, users: list[tuple[str, int, bool]]
) -> None:
    """Each user holds a permit for some turns of the loop. Some are cancelled while they wait or hold it."""

    async def life() -> None:
        share = FairShare(permits, host_permits)
        held: list[str] = []

        async def use(host: str, turns: int) -> None:
            await share.acquire(host)
            held.append(host)
            try:
                assert len(held) <= permits
                assert held.count(host) <= host_permits
                for _ in range(turns):
                    await asyncio.sleep(0)
            finally:
                held.remove(host)
                share.release(host)

        tasks = [asyncio.create_task(use(host, turns)) for host, turns, _ in users]
        for task, (_, turns, is_cancelled) in zip(tasks, users, strict=True):
            if is_cancelled:
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
        async with asyncio.timeout(20):
            found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(each is None or isinstance(each, asyncio.CancelledError) for each in found)
        assert not held
        assert most_held(share) == 0
        async with asyncio.timeout(20):
            await share.acquire("d")

    asyncio.run(life())


async def test_hosts_take_turns() -> None:
    share, order = FairShare(1, 1), list[str]()
    await share.acquire("a")

    async def use(host: str) -> None:
        await share.acquire(host)
        order.append(host)
        share.release(host)

    tasks = [asyncio.create_task(use(host)) for host in "aaaaab"]
    await asyncio.sleep(0)
    share.release("a")
    await asyncio.gather(*tasks)
    assert order.index("b") <= 1


@pytest.mark.parametrize(("memory", "rooms"), [(1, 2), (92_999_999, 2), (124_000_000, 4)])
async def test_one_host_has_half_of_the_rooms(memory: int, rooms: int) -> None:
    budget = ElectrumBudget(ElectrumLimits(memory=memory))

    async def has_room(host: str) -> bool:
        try:
            async with asyncio.timeout(0):
                await budget.rooms.acquire(host)
        except TimeoutError:
            return False
        return True

    for host in "ab":
        assert [await has_room(host) for _ in range(rooms // 2 + 1)] == [True] * (rooms // 2) + [False]
    assert not await has_room("c")


def test_subscriptions_are_bounded_in_total_and_for_each_host() -> None:
    budget = ElectrumBudget(ElectrumLimits(all_subscriptions=6))
    assert [budget.subscribe("a") for _ in range(4)] == [True, True, True, False]
    assert [budget.subscribe("b") for _ in range(4)] == [True, True, True, False]
    assert not budget.subscribe("c")
    budget.unsubscribe("a", 2)
    assert [budget.subscribe("c") for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize(
    "answer",
    ["00" * 50_000, ["ab" * 80] * 2_016, [{"tx_hash": "cd" * 32, "height": 800_000, "fee": 200}] * 500, {"a": 1}, None],
)
def test_size_is_about_that_of_the_json(answer: Any) -> None:
    assert len(json.dumps(answer)) * 0.8 <= size_of(answer) <= len(json.dumps(answer)) * 1.4 + 20
