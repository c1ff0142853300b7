"""Connections through a SOCKS5 proxy on loopback: requests, name resolution and failures. Also DNS seeds."""

from __future__ import annotations

import asyncio
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from light.socksserver import IPV4, NAME, SocksProxy
from spvfilter.errors import ParameterError, UselessPeerError
from spvfilter.light.client import LightClient
from spvfilter.network import MAINNET, REGTEST
from spvfilter.node.responder import Responder
from spvfilter.node.server import Node
from spvfilter.p2p.address import Address
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.connection import Connection
from spvfilter.p2p.proxy import Proxy
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.events import Settings
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.addresses import NetId, PeerAddress
from support.client.engineparts import engine_of
from support.client.lightworld import FAST, START, Run, World, running, where

ONION = "explorerzydxu5ecjrkwceayqybizmpjjznk5izmitf2modhcusuqlid.onion"


@pytest.fixture(autouse=True)
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the names that this process looks up."""
    names: list[str] = []
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **named: Any) -> Any:
        names.append(host)
        return resolve(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return names


def grown(seed: int) -> World:
    world = World(seed)
    world.grow(15, share=0.8)
    return world


@pytest.mark.few(2)
@pytest.mark.parametrize("mode", ["bip37", "compact"])
@pytest.mark.parametrize("user", [None, ("alice", "p@ss:w/rd")])
async def test_a_client_syncs_through_a_proxy_that_alone_resolves_names(
    user: tuple[str, str] | None, mode: str, looked_up: list[str]
) -> None:
    world = grown(80)
    async with Node(world.regtest) as node:
        quoted = ("alice", "p%40ss%3Aw%2Frd") if user else None
        with SocksProxy({ONION: (node.host, node.port)}, user).running() as proxy:
            url = replace(proxy, user=quoted).url
            looked_up.clear()
            async with running(world, f"{ONION}:8333", proxy=url, mode=mode) as run:
                await run.synced(world)
                assert run.books.confirmed() == world.scan()
                assert not run.books.warnings
            assert proxy.asked == [(NAME, ONION, 8333)]
            assert not any("onion" in str(name) for name in looked_up)


@pytest.mark.parametrize("host", [ONION, ONION.upper()])
def test_an_onion_address_without_a_proxy_causes_no_lookup(host: str, looked_up: list[str]) -> None:
    """Otherwise a user who forgets the proxy tells resolvers again and again which node is used."""
    with pytest.raises(ParameterError, match="Tor"):
        LightClient(grown(80).watch(), peers=["127.0.0.1:1", f"{host}:8333"])
    assert not looked_up


async def test_the_proxy_receives_ip_addresses_as_addresses() -> None:
    world = grown(81)
    with SocksProxy().running() as proxy:
        async with Node(world.regtest) as node, running(world, node, proxy=proxy.url) as run:
            await run.synced(world)
            assert proxy.asked == [(IPV4, "127.0.0.1", node.port)]


FAILURES: dict[str, tuple[SocksProxy, str]] = {
    "refused": (SocksProxy(reply=b"\x05\x05\x00\x01" + bytes(6)), "Connection refused by destination host"),
    "not allowed": (SocksProxy(reply=b"\x05\x02\x00\x01" + bytes(6)), "Connection not allowed by ruleset"),
    "Tor's own code": (
        SocksProxy(reply=b"\x05\xf4\x00\x01" + bytes(6)),
        "requires client authorization",
    ),
    "name unknown": (SocksProxy(), "Host unreachable"),
    "wants a login": (SocksProxy(user=("a", "b")), "No acceptable authentication methods"),
    "closes": (SocksProxy(reply=b""), "Connection closed unexpectedly"),
    "closes at once": (SocksProxy(greeting=b""), "the proxy cannot connect: "),
    "half a reply": (SocksProxy(reply=b"\x05\x00\x00\x01\x7f"), "Connection closed unexpectedly"),
    "another protocol": (
        SocksProxy(greeting=b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        "this is not a SOCKS5 proxy: it answered like HTTP",
    ),
    "no text": (SocksProxy(reply=b"\x05\x00\x00\x03\x02\xff\xff\x00\x00"), "the proxy cannot connect: "),
    "hangs": (SocksProxy(silent=True), "no connection through the proxy within 0.2 s"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FAILURES)
async def test_a_proxy_failure_causes_a_warning_and_a_new_attempt(name: str) -> None:
    template, said = FAILURES[name]
    world = grown(82)
    with replace(template, asked=[]).running() as proxy:
        url = f"socks5://127.0.0.1:{proxy.port}"
        async with (
            Node(world.regtest) as node,
            running(world, f"{ONION}:1", proxy=url, limits=replace(FAST, proxy_s=0.2)) as run,
        ):
            await run.until(lambda books: len(books.warnings) >= 2)
            for warning in run.books.warnings:
                assert said in str(warning.error)
                assert isinstance(warning.error, OSError)
                assert (warning.address, warning.banned) == (f"{ONION}:1", False)
            proxy.names, proxy.user, proxy.reply, proxy.greeting, proxy.silent = (
                {ONION: (node.host, node.port)},
                None,
                None,
                None,
                False,
            )
            await run.synced(world)
            assert run.books.confirmed() == world.scan()


async def test_the_warning_of_a_wrong_password_does_not_quote_it() -> None:
    world = grown(83)
    with SocksProxy(user=("alice", "right")).running() as proxy:
        async with running(world, f"{ONION}:1", proxy=f"socks5://alice:wrong@127.0.0.1:{proxy.port}") as run:
            await run.until(lambda books: books.warnings)
            assert "Username and password authentication failure" in str(run.books.warnings[0].error)
            assert "wrong" not in repr(run.books.warnings[0])
            assert "wrong" not in repr(vars(run.client))
        assert proxy.failed_logins >= 1
        assert not proxy.asked


async def test_an_absent_proxy_is_distinguished_from_an_absent_peer() -> None:
    world = grown(84)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with running(world, f"{ONION}:1", proxy=f"socks5://127.0.0.1:{port}") as run:
        await run.until(lambda books: books.warnings)
        assert f"no connection to the proxy 127.0.0.1:{port}" in str(run.books.warnings[0].error)


async def test_an_unreachable_peer_behind_a_proxy_delays_no_other_peer() -> None:
    world = grown(85)
    async with Node(world.regtest) as node:
        with SocksProxy({ONION: (node.host, node.port)}).running() as proxy:
            async with running(world, "nobody.onion:1", f"{ONION}:1", proxy=proxy.url) as run:
                await run.synced(world)
                await run.until(lambda books: books.warnings)
                assert run.books.confirmed() == world.scan()
                assert {warning.address for warning in run.books.warnings} == {"nobody.onion:1"}


@pytest.mark.slow
async def test_a_connection_cancelled_at_any_step_leaves_nothing_open() -> None:
    opened = 0
    with SocksProxy(user=("a", "b")).running() as server:
        async with Node() as node:
            for steps in range(24):
                before = asyncio.all_tasks()
                task = asyncio.create_task(
                    Connection.open(Address(node.host, node.port), Settings(REGTEST), proxy=Proxy.parse(server.url))
                )
                for _ in range(steps * steps * 10):
                    await asyncio.sleep(0)
                task.cancel()
                (result,) = await asyncio.gather(task, return_exceptions=True)
                if isinstance(result, Connection):
                    opened += 1
                    result.close()
                if left := asyncio.all_tasks() - before:  # the tasks of the proxy take a moment
                    _, left = await asyncio.wait(left, timeout=5)
                assert not left
    assert opened > 0


MALFORMED = [
    "",
    " ",
    "socks5",
    "socks5://",
    "127.0.0.1:9050",
    "socks5:127.0.0.1:9050",
    "//127.0.0.1:9050",
    "http://127.0.0.1:9050",
    "socks4://127.0.0.1:9050",
    "socks5://127.0.0.1",
    "socks5://127.0.0.1:",
    "socks5://127.0.0.1:0",
    "socks5://127.0.0.1:65536",
    "socks5://127.0.0.1:-1",
    "socks5://127.0.0.1:x",
    "socks5://:9050",
    "socks5://[::1",
    "socks5://[::1]",
    "socks5://h o:1",
    "socks5://h\t:1",
    "socks5://h:1/path",
    "socks5://h:1?a",
    "socks5://h:1#a",
    "socks5://user@h:1",
    "socks5://user:@h:1",
    "socks5://:p@h:1",
    f"socks5://user:{'p' * 256}@h:1",
    "socks5://us\xe9r:pass@h:1",
    "\0",
    "socks5://user:secret@h",
    "socks5://@h:1",
]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_malformed_proxy_is_refused_without_a_quote_of_secrets(url: str) -> None:
    with pytest.raises(ParameterError, match="proxy") as told:
        LightClient(World(mature=0).watch(), peers=["127.0.0.1:1"], proxy=url)
    assert "secret" not in str(told.value)


def test_a_proxy_url_is_parsed() -> None:
    assert Proxy.parse("socks5://[::1]:9050/") == Proxy("::1", 9050)
    assert Proxy.parse("socks5://u%3A:p%40@tor.local:1") == Proxy("tor.local", 1, "u:", "p@")


def test_without_python_socks_a_proxy_is_refused_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    with pytest.raises(ParameterError, match=r"extra `socks`"):
        LightClient(World(mature=0).watch(), peers=["127.0.0.1:1"], proxy="socks5://127.0.0.1:9050")


@pytest.mark.parametrize("host", ["a" * 64, "a." * 130 + "b", "\xe4" * 60])
def test_a_host_name_that_no_resolver_takes_is_refused(host: str) -> None:
    with pytest.raises(ParameterError, match="a host must be a name or an IP address"):
        LightClient(World(mature=0).watch(), peers=[host])


# DNS seeds

CLOCK = Clock(wall=lambda: START)
SEEDS = ("seed.one.example", "seed.two.example", "seed.three.example")


def discovering(world: World, port: int, seeds: tuple[str, ...] = SEEDS) -> WatchList:
    watch = WatchList(replace(REGTEST, dns_seeds=seeds, default_port=port))
    for lock in world.locks:
        watch.add_script(lock.script_pubkey)
    return watch


def answering(monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[str]]) -> list[str]:
    """Install a resolver that knows these names and all addresses. Return the list of names that it is asked for."""
    asked: list[str] = []
    resolve = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **named: Any) -> Any:
        if host in answers:
            asked.append(host)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in answers[host]]
        if str(host).endswith(".example"):
            asked.append(host)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(host, *args, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


async def test_failed_seeds_cause_warnings_and_working_seeds_are_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = grown(86)
    async with Node(world.regtest) as node:
        asked = answering(monkeypatch, {"seed.two.example": ["127.0.0.1", "127.0.0.1"]})
        async with LightClient(discovering(world, node.port), discover=True, limits=FAST, clock=CLOCK) as client:
            run = Run(client)
            await run.synced(world)
            assert {place[:4] for place in run.books.confirmed()} == {place[:4] for place in world.scan()}
            assert sorted(asked) == sorted([*SEEDS, *(f"x49.{seed}" for seed in SEEDS)])
            assert len(node.responders) == 1  # two seed names return the same address
            told = {warning.address: str(warning.error) for warning in run.books.warnings}
            assert told.keys() == {"seed.one.example", "seed.three.example"}
            assert "not known" in told["seed.one.example"]


async def test_if_no_seed_answers_the_client_raises_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    before = asyncio.all_tasks()
    asked = answering(monkeypatch, {"seed.one.example": []})
    with pytest.raises(UselessPeerError, match="no DNS seed returned an address"):
        async with LightClient(discovering(World(mature=0), 1), discover=True) as client:
            run = Run(client)
            with pytest.raises(UselessPeerError, match="no DNS seed returned an address"):
                await run.until(lambda books: False)
            assert {warning.address for warning in run.books.warnings} == set(SEEDS)
    assert sorted(asked) == sorted([*SEEDS, *(f"x49.{seed}" for seed in SEEDS)])
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before


def test_seeds_are_never_asked_through_a_proxy(looked_up: list[str]) -> None:
    with pytest.raises(ParameterError, match="DNS seeds are not used with a proxy"):
        LightClient(WatchList(MAINNET), discover=True, proxy="socks5://127.0.0.1:9050")
    assert not looked_up


async def test_discovery_through_a_proxy_needs_a_peer_or_an_address(looked_up: list[str], tmp_path: Path) -> None:
    watch = discovering(World(mature=0), 1)
    with pytest.raises(ParameterError, match="the database contains no peer addresses: name at least one peer"):
        async with LightClient(watch, discover=True, proxy="socks5://127.0.0.1:9050", store=tmp_path / "w.db"):
            raise AssertionError("entered")
    assert not looked_up


class Tells(Responder):
    """Answers getaddr."""

    addresses: tuple[PeerAddress, ...] = ()

    def on_message(self, message: object) -> None:
        if isinstance(message, wire.GetAddr):
            self.send(wire.AddrV2(self.addresses))
        else:
            super().on_message(message)  # type: ignore[arg-type]  # any message


def onion(number: int) -> PeerAddress:
    return PeerAddress(START - 60, 0x4D, NetId.TORV3, bytes((number * 16,)) + bytes(31), 8333)


async def connected(client: LightClient, addresses: set[str]) -> None:
    """Wait until these addresses are connected."""
    async with asyncio.timeout(20):
        # no event reports it
        while not addresses <= {peer.address for peer in engine_of(client).pool.ready()}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_gossiped_onion_addresses_are_connected_through_the_proxy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, looked_up: list[str]
) -> None:
    world = grown(88)
    onions = [onion(number) for number in range(2)]
    monkeypatch.setattr(Tells, "addresses", tuple(onions))
    async with Node(world.regtest, responder=Tells) as first, Node(world.regtest) as second:
        names = {ONION: (first.host, first.port)} | {str(each.host): (second.host, second.port) for each in onions}
        with SocksProxy(names).running() as proxy:
            watch, path = discovering(world, 1), tmp_path / "w.db"
            looked_up.clear()
            for peers in ([f"{ONION}:1"], []):  # the second run knows the addresses from the first
                async with LightClient(
                    watch, peers=peers, discover=True, proxy=proxy.url, limits=FAST, clock=CLOCK, store=path
                ) as client:
                    await connected(client, {f"{each.host}:8333" for each in onions})
            assert {name for kind, name, _ in proxy.asked if kind == NAME} == {ONION, *(each.host for each in onions)}
            assert not any("onion" in str(name) or "example" in str(name) for name in looked_up)


async def test_gossiped_addresses_are_connected_only_with_discovery(monkeypatch: pytest.MonkeyPatch) -> None:
    world = grown(89)
    async with Node(world.regtest) as foreign, Node(world.regtest, "127.1.0.1", responder=Tells) as node:
        told = PeerAddress(START - 60, 0x4D, NetId.IPV4, bytes((127, 0, 0, 1)), foreign.port)
        monkeypatch.setattr(Tells, "addresses", (told,))
        asked = answering(monkeypatch, {})
        for discover in (False, True):
            watch = discovering(world, 1, () if discover else SEEDS)
            async with LightClient(watch, peers=[where(node)], discover=discover, limits=FAST, clock=CLOCK) as client:
                await Run(client).synced(world)
                if discover:
                    await connected(client, {where(foreign)})
                assert bool(foreign.responders) == discover
                assert not asked  # without discovery, seeds are not asked


def test_discovery_on_a_network_without_seeds_is_refused() -> None:
    with pytest.raises(ParameterError, match="regtest has no DNS seeds"):
        LightClient(WatchList(REGTEST), discover=True)


async def test_a_private_transaction_uses_a_proxy_connection_of_its_own() -> None:
    world = grown(86)
    world.receive()
    world.regtest.mine()
    async with Node(world.regtest) as node:
        with SocksProxy({ONION: (node.host, node.port)}).running() as proxy:
            async with running(world, f"{ONION}:8333", proxy=proxy.url, mode="compact") as run:
                await run.synced(world)
                known = await run.client.broadcast(world.spending(), private=True)
                assert known.sent == (f"{ONION}:8333",)
                assert known.txid in world.regtest.mempool
            assert proxy.asked == [(NAME, ONION, 8333)] * 2


def test_a_private_connection_uses_another_proxy_user() -> None:
    made = Proxy.parse("socks5://127.0.0.1:9050").isolated("a1")
    assert (made.username, made.password) == ("a1", "a1")
    known = Proxy.parse("socks5://alice:secret@127.0.0.1:9050")
    assert known.isolated("a1") == known
