"""The log of a client: lines about peers and the search, and secrets that no line may contain."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spvfilter.address import script_to_address
from spvfilter.errors import ParameterError, PeerError, StoreFullError
from spvfilter.light.engine.addresses import Purpose
from spvfilter.light.engine.effects import Connect, Drop, Effect, Emit
from spvfilter.light.engine.inputs import Input, Instant, Lost, PeerConnected
from spvfilter.light.events import Mode, PeerWarning, Synced
from spvfilter.light.runlog import RunLog
from spvfilter.network import REGTEST
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from support.client.lightworld import LOCKS, World, key, running, where
from support.client.swarm import Client, Swarm

LOGGER = "spvfilter.light.runlog"


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="spvfilter")


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    """Return the lines of the client's log at one level, without the name of its database."""
    found = [each for each in caplog.records if each.name == LOGGER and each.levelno == level]
    return [each.getMessage().partition(": ")[2] for each in found]


def having(text: str, said: list[str]) -> list[str]:
    return [line for line in said if text in line]


class Logged(Client):
    """A client in the virtual network that logs."""

    def start(self) -> None:
        self.stop()
        self.engine = self.make()
        self.log = RunLog("virtual", self.engine, self.now())
        effects = self.engine.start(self.now())
        self.log.start(effects, self.now())
        self._carry_out(effects)

    def report(self, event: Input) -> None:
        effects = self.engine.step(event, self.now())
        self.log.step(event, effects, self.now())
        self.log.reported([each.event for each in effects if isinstance(each, Emit)], self.now())
        self._carry_out(effects)


@pytest.fixture
def virtual() -> Iterator[Logged]:
    made = Logged(Swarm(1))
    made.swarm.regtest.mine(10)
    made.start()
    yield made
    made.stop()
    made.store.close()


# Peers


async def test_an_outage_and_its_end_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    async with Node(world.regtest) as node:
        place, port = where(node), node.port
        client = running(world, place)
        run = await client.__aenter__()
        await run.synced(world)
    await run.until(lambda books: len(books.warnings) >= 8)
    said = lines(caplog)
    assert having("disconnected: ", said) == [f"{place}: disconnected: the peer closed the connection"]
    assert having("no peer", said) == [f"no peer is connected: {place}: the peer closed the connection"]
    assert len(having("no connection: connection refused", lines(caplog, logging.DEBUG))) >= 7
    async with Node(world.regtest, port=port):
        world.regtest.mine()
        await run.synced(world)
        await client.__aexit__(None, None, None)
    said = lines(caplog)
    assert len(having("no peer is connected", said)) == 1
    (again,) = having("s without a peer", said)
    assert again.startswith(f"{place}: connected: /spvfilter:")
    assert having("synced: block 102", said) == [f"synced: block 102, confirmed by {place}"]
    assert said[-1] == "left: tip: block 102, searched to block 102"


async def test_an_unreachable_peer_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(mature=1)
    async with running(world, "127.0.0.1:1", "127.0.0.1:2") as run:
        await run.until(lambda books: len(books.warnings) >= 10)
    said = lines(caplog)
    assert said[0] == "started: regtest, mode bip37, entries: 9, tip: block 0, no block searched"
    assert len(said) == 3
    assert said[1].startswith("no peer is connected: 127.0.0.1:")
    assert said[1].endswith(": connection refused")
    assert said[2] == "left: tip: block 0, no block searched"


@pytest.mark.long
def test_an_hour_without_network_takes_one_line(virtual: Logged, caplog: pytest.LogCaptureFixture) -> None:
    virtual.wait_useful()
    virtual.pass_time(600)
    assert virtual.engine.status.is_synced(virtual.now())
    caplog.clear()
    up = [node for node in virtual.swarm.nodes if node.is_up]
    for node in up:
        node.is_up = False
    for peer in list(virtual.lines):
        virtual.end(peer)
    virtual.pass_time(3_600)
    said = lines(caplog)
    assert len(having("no peer is connected", said)) == 1
    usual = "disconnected: gone", "blocks now come from this peer", "no peer is connected"
    assert not [line for line in said if not any(each in line for each in usual)]
    assert len(lines(caplog, logging.DEBUG)) > 20  # the client tried further
    caplog.clear()
    for node in up:
        node.is_up = True
    virtual.wait_useful()
    assert len(having("s without a peer", lines(caplog))) == 1


@pytest.mark.slow
def test_silence_of_all_peers_is_logged_once(virtual: Logged, caplog: pytest.LogCaptureFixture) -> None:
    virtual.wait_useful()
    virtual.pass_time(1_810)  # the tip is old, so the client has requested new blocks
    height = virtual.engine.chain.height
    virtual.connect = lambda peer, address: None  # type: ignore[method-assign]
    virtual.lines.clear()  # connections stay, but nothing arrives
    virtual.pass_time(3 * 3_600)
    assert having("no longer synced", lines(caplog)) == [f"no longer synced: no connected peer confirms block {height}"]


@pytest.mark.slow
def test_feelers_and_their_failures_are_not_logged(virtual: Logged, caplog: pytest.LogCaptureFixture) -> None:
    virtual.pass_time(7_200)
    assert len(virtual.dials) > 20
    said = lines(caplog)
    assert not having("no peer", said)
    assert not having("no connection", said)
    told = len(having(": connected: ", said)) - len(having(": disconnected: ", said))
    assert told == len([peer for peer in virtual.engine.pool.connected() if peer.purpose is not Purpose.FEELER])


@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
async def test_a_reorganization_is_logged(mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    async with Node(world.regtest) as node, running(world, node, mode=mode) as run:
        await run.synced(world)
        world.regtest.reorg(2)
        await run.synced(world)
    said = lines(caplog)
    assert having("reorganization", said) == [
        "reorganization: blocks 100 to 101 were disconnected, and the best chain now ends at block 102"
    ]
    ways = {Mode.COMPACT: "compact filters", Mode.BIP37: "BIP-37"}
    assert having("searching", said) == [f"searching blocks by {ways[mode]}"]


# Text


def log_of(name: str, caplog: pytest.LogCaptureFixture) -> tuple[RunLog, Client]:
    client = Client(Swarm(2))
    caplog.clear()
    return RunLog(name, client.engine, Instant(0.0, 0.0)), client


def test_a_ban_and_a_warning_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    log, client = log_of("wallet.db", caplog)
    lie, other = PeerError("a lie"), PeerError("the clock is wrong")
    effects: list[Effect] = [
        Connect(1, "1.2.3.4:8333"),
        Drop(1, lie),
        Emit(PeerWarning("1.2.3.4:8333", lie, True)),
        Emit(PeerWarning("5.6.7.8:8333", other, False)),
        Emit(PeerWarning("5.6.7.8:8333", other, False)),
    ]
    log.step(Lost(9, PeerError("unknown")), effects, Instant(0.0, 0.0))
    assert lines(caplog) == [
        "1.2.3.4:8333: banned for 24 hours",
        "5.6.7.8:8333: the clock is wrong",
        "no peer is connected: 1.2.3.4:8333: a lie",
    ]
    client.store.close()


@pytest.mark.slow
@given(text=st.text(max_size=50))
def test_text_of_peers_is_escaped(text: str) -> None:
    client = Client(Swarm(2))
    records: list[logging.LogRecord] = []

    class Records(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    handler = Records()
    logging.getLogger(LOGGER).addHandler(handler)
    try:
        log, now = RunLog("wallet.db", client.engine, Instant(0.0, 0.0)), Instant(0.0, 0.0)
        log.step(PeerConnected(7, "1.2.3.4", 0, 0, True, True, text, 0), [Connect(1, "1.2.3.4:8333")], now)
        log.step(Lost(1, PeerError(text)), [Emit(PeerWarning("1.2.3.4:8333", PeerError(text), False))], now)
        log.end(PeerError(text))
    finally:
        logging.getLogger(LOGGER).removeHandler(handler)
        client.store.close()
    assert len(records) >= 4
    assert all(32 <= ord(char) < 127 for record in records for char in record.getMessage())


def test_a_user_agent_is_escaped(virtual: Logged, caplog: pytest.LogCaptureFixture) -> None:
    virtual.wait_useful()
    virtual.agent = "/a/\n\x1b[31mINFO fake"
    virtual.end(virtual.ready[0].number)
    virtual.pass_time(600)
    assert r"connected: /a/\x0a\x1b[31mINFO fake, block 10" in having("fake", lines(caplog))[0]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StoreFullError("wallet.db: the disk is full"), "StoreFullError: wallet.db: the disk is full"),
        (ParameterError("bc1qsecret cannot be found"), "ParameterError"),
    ],
)
def test_an_end_by_an_error_names_it(error: Exception, said: str, caplog: pytest.LogCaptureFixture) -> None:
    log, client = log_of("wallet.db", caplog)
    log.end(error)
    assert lines(caplog) == [f"ended with an error: {said}"]
    client.store.close()


def spellings(secret: bytes) -> set[str]:
    """Return all spellings of these bytes that a log could have: hex in either order, and parts of a repr."""
    return {secret.hex(), secret[::-1].hex(), repr(secret)[2:-1], repr(secret[::-1])[2:-1]}


def secrets_of(world: World, *others: bytes) -> set[str]:
    """Return the wallet's scripts, the hashes and keys in them, addresses, and the txids of the last blocks."""
    found: set[str] = set()
    for script in (*(lock.script_pubkey for lock in world.locks), *others):
        parts = [script, script[2:], script[3:23]] if len(script) > 22 else [script]
        found = found.union(*map(spellings, parts), [script_to_address(script, REGTEST) or script.hex()])
    return found.union(*(spellings(txid) for block in world.regtest.chain.active[-20:] for txid in block.txids))


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
async def test_no_line_of_a_whole_run_shows_the_wallet(
    mode: Mode, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world, added = World(7), p2wpkh(key(50))
    world.grow(10, share=0.8)
    added_address = script_to_address(added.script_pubkey, REGTEST)
    assert added_address is not None
    async with Node(world.regtest) as node, running(world, node, mode=mode, store=tmp_path / "wallet.db") as run:
        await run.synced(world)
        await run.client.add_address(added_address)
        world.regtest.pay(added.pays(5_000))
        world.receive()
        world.grow(2, share=1.0)
        world.regtest.reorg(1)
        await run.synced(world)
        world.coins.clear()
        world.receive(LOCKS[1])
        world.regtest.mine()
        await run.synced(world)
        await run.client.broadcast(world.spending())
        await run.client.rescan()
        await run.client.remove(added_address)
        world.regtest.mine()
        await run.synced(world)
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert len(lines(caplog, logging.DEBUG)) > 20
    assert len(caplog.records) > len(lines(caplog, logging.DEBUG)) + len(lines(caplog))  # other loggers as well
    for secret in secrets_of(world, added.script_pubkey):
        assert secret not in said


def test_a_synced_event_names_disputes(caplog: pytest.LogCaptureFixture) -> None:
    log, client = log_of("wallet.db", caplog)
    log.reported([Synced(5, bytes(32), ("1.2.3.4:8333", "5.6.7.8:8333"), 5, ((1, 2), (4, 4)))], Instant(0.0, 0.0))
    assert lines(caplog) == ["synced: block 5, confirmed by 1.2.3.4:8333, 5.6.7.8:8333, disputed ranges: 2"]
    client.store.close()


@pytest.mark.slow
def test_the_waits_of_tasks_are_logged_once_a_minute(virtual: Logged, caplog: pytest.LogCaptureFixture) -> None:
    virtual.wait_useful()
    caplog.clear()
    virtual.pass_time(150)
    said = having("change the watch list: waits for a request of the program", lines(caplog, logging.DEBUG))
    assert 2 <= len(said) <= 3
    assert any(line.startswith("change the watch list: ") for line in virtual.engine.waits())
