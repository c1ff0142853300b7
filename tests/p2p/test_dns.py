"""DNS seeds against a scripted resolver: requested names, time limits, failures."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from typing import Any

import pytest

from spvfilter.errors import ParameterError
from spvfilter.light.client import LightClient
from spvfilter.p2p import dns
from spvfilter.p2p.dns import MAX_HOSTS, MAX_LOOKUPS, SeedHosts, ask_seeds, resolved
from spvfilter.watch.watchlist import WatchList

Script = dict[str, list[str] | Exception | float]  # hosts, an error, or seconds until the answer 9.9.9.9


class Resolver:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[str] = []

    async def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        answer = self.script.get(name, socket.gaierror(socket.EAI_NONAME, "not known"))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, float):
            await asyncio.sleep(answer)
            return ["9.9.9.9"]
        return answer


@pytest.mark.parametrize(("services", "prefix"), [(0x49, "x49"), (0x0D, "xd")])
async def test_a_seed_is_asked_by_services_and_then_plainly(services: int, prefix: str) -> None:
    resolver = Resolver(
        {f"{prefix}.a": ["1.1.1.1", "2a00::1"], "a": ["2.2.2.2"], f"{prefix}.b": [], "b": ["3.3.3.3"], "c": ["4.4.4.4"]}
    )
    assert await ask_seeds(["a", "b", "c"], services, resolver) == [
        SeedHosts("a", services, ("1.1.1.1", "2a00::1"), None),
        SeedHosts("b", 0, ("3.3.3.3",), None),
        SeedHosts("c", 0, ("4.4.4.4",), None),
    ]
    assert sorted(resolver.asked) == sorted([f"{prefix}.a", f"{prefix}.b", "b", f"{prefix}.c", "c"])


async def test_a_seed_that_hangs_does_not_delay_the_others() -> None:
    resolver = Resolver({"x49.slow": 3_600.0, "x49.late": 0.01, "x49.a": ["1.1.1.1"]})
    begun = time.monotonic()
    slow, late, a, gone = await ask_seeds(["slow", "late", "a", "gone"], 0x49, resolver, timeout_s=0.3)
    assert time.monotonic() - begun < 30
    assert isinstance(slow.error, TimeoutError)
    assert "no answer within 0.3 s" in str(slow.error)
    assert (late.hosts, a.hosts) == (("9.9.9.9",), ("1.1.1.1",))
    assert isinstance(gone.error, socket.gaierror)


async def test_a_seed_without_addresses_is_an_error() -> None:
    (answer,) = await ask_seeds(["a"], 0x49, Resolver({"x49.a": [], "a": []}))
    assert answer.hosts == ()
    assert str(answer.error) == "returned no address"


async def test_only_the_first_hosts_of_a_long_answer_are_used() -> None:
    (answer,) = await ask_seeds(["a"], 0x49, Resolver({"x49.a": ["1.1.1.1"] * 5_000}))
    assert len(answer.hosts) == MAX_HOSTS


async def test_no_seed_gives_no_answer() -> None:
    assert await ask_seeds([], 0x49) == []


async def test_many_names_need_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[int] = set()
    proceed = threading.Event()

    def getaddrinfo(name: str, *args: Any, **named: Any) -> Any:
        threads.add(threading.get_ident())
        proceed.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    names = [f"name{number}" for number in range(60)]
    lookups = [asyncio.ensure_future(resolved(name)) for name in names]
    while len(threads) < MAX_LOOKUPS:  # noqa: ASYNC110
        await asyncio.sleep(0)
    for lookup in lookups[40:]:
        lookup.cancel()
    proceed.set()
    found = await asyncio.gather(*lookups, return_exceptions=True)
    assert found[:40] == [[name] for name in names[:40]]
    assert all(isinstance(each, asyncio.CancelledError) for each in found[40:])
    assert len(threads) == MAX_LOOKUPS


async def test_lookup_without_any_thread_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(dns, "LOOKUPS", dns.Lookups())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            await resolved("127.0.0.1")
    assert "127.0.0.1" in await resolved("127.0.0.1")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("is_locked", [False, True], ids=["all threads are busy", "another thread begins a call"])
def test_a_forked_child_has_its_own_lookups(is_locked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups, start = dns.Lookups(), threading.Thread.start
    begun, may_go, done = threading.Semaphore(0), threading.Event(), threading.Event()

    def wait() -> None:
        begun.release()
        may_go.wait(60)

    def held(thread: threading.Thread) -> None:
        if thread.name == "spvfilter-dns":
            wait()
        start(thread)

    if is_locked:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", held)
            threading.Thread(target=lookups.call, args=(wait,), daemon=True).start()
            assert begun.acquire(timeout=60)
    else:
        for _ in range(MAX_LOOKUPS + 1):  # one of them waits
            lookups.call(wait)
        assert all(begun.acquire(timeout=60) for _ in range(MAX_LOOKUPS))
    try:
        lookups.forget()  # as in the child
        threading.Thread(target=lookups.call, args=(done.set,), daemon=True).start()
        assert done.wait(10)
    finally:
        may_go.set()


async def test_the_system_resolver_runs_in_its_own_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that hangs must not block threads that the search needs."""
    threads: set[str] = set()

    def getaddrinfo(name: Any, port: Any, **named: Any) -> Any:
        threads.add(threading.current_thread().name)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("1.1.1.1", 0)),
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2a00::1", 0, 0, 0)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    answers = await ask_seeds(["a", "b"], 0x49)
    assert [answer.hosts for answer in answers] == [("1.1.1.1", "2a00::1")] * 2
    assert threads
    assert all(name.startswith("spvfilter-dns") for name in threads)


@pytest.mark.parametrize("name", ["a.onion", "A.ONION", "b.b32.i2p", "b.I2P", "b.i2p."])
async def test_hidden_services_never_reach_the_resolver(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(socket, "getaddrinfo", lambda *place, **_: asked.append(place))
    with pytest.raises(OSError, match="can be reached only through"):
        await resolved(name)
    with pytest.raises(ParameterError, match="can be reached only through"):
        LightClient(WatchList(), peers=[f"{name.rstrip('.')}:8333"])
    assert asked == []
