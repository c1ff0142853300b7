"""Encrypted connections (BIP-324) in virtual time: search, fallback, damaged streams, and the same bytes again."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.behaviours.faulty import Honest
from simulation.connection import Connection
from simulation.node import NodeEnd
from simulation.pipe import Quality
from spvfilter.errors import EnvelopeError, SessionError
from spvfilter.light.events import Mode
from spvfilter.network import REGTEST
from spvfilter.wire.events import Cause, Service
from spvfilter.wire.transport import Transport, V2Policy
from support.client.stage import Prompt, Stage, stage
from support.peers.sessionparts import unsent

pytestmark = pytest.mark.v2
MODES = [Mode.COMPACT, Mode.BIP37]


class Encrypted(Prompt):
    """Accepts encrypted and unencrypted connections."""

    services = Honest.services | Service.P2P_V2

    def quality(self) -> Quality:
        return Quality(0.02, 0.0, 1e7, 0.2)


class Damaging(Encrypted):
    """Accepts encrypted connections. A bit of each later message is flipped on the way."""


def transports(world: Stage) -> set[tuple[str, Transport]]:
    """The class of each connected node, and the transport of its connection."""
    assert world.process is not None
    connections = world.process.connections.values()
    return {(type(each.node.behaviour).__name__, each.session.transport) for each in connections if each.is_ready}


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", MODES)
def test_wallet_is_found_over_encrypted_connections(mode: Mode, tmp_path: Path) -> None:
    digests = []
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
        with stage(tmp_path / folder, mode, Encrypted, Encrypted, v2=V2Policy.REQUIRE) as world:
            world.boot()
            world.wait_synced(within=120)
            world.pass_time(300)
            assert world.has_found_all() and not world.warnings
            assert transports(world) == {("Encrypted", Transport.V2)}
            digests.append({host: wire.hexdigest() for host, wire in world.record.wire.items()})
    assert digests[0] == digests[1]


@pytest.mark.parametrize("mode", MODES)
def test_older_nodes_are_connected_without_encryption(mode: Mode, tmp_path: Path) -> None:
    with stage(tmp_path, mode, Encrypted, Prompt, v2=V2Policy.PREFER) as world:
        world.boot()
        world.wait_synced(within=120)
        world.pass_time(30)
        assert world.has_found_all() and not world.warnings
        assert transports(world) == {("Encrypted", Transport.V2), ("Prompt", Transport.V1)}


def test_older_nodes_are_skipped_if_encryption_is_required(tmp_path: Path) -> None:
    with stage(tmp_path, Mode.COMPACT, Encrypted, Prompt, v2=V2Policy.REQUIRE) as world:
        world.boot()
        world.wait_synced(within=120)
        world.pass_time(300)
        assert transports(world) == {("Encrypted", Transport.V2)}
        assert world.warnings and not world.banned
        errors = [warning.error for warning in world.warnings]
        assert {error.cause for error in errors if isinstance(error, SessionError)} == {Cause.NO_V2}


def test_silent_node_is_not_connected_without_encryption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeEnd, "arrived", lambda end, data: None)
    with stage(tmp_path, Mode.COMPACT, Encrypted, v2=V2Policy.PREFER) as world:
        sent: list[bytes] = []
        flush = Connection.flush

        def noted(connection: Connection) -> None:
            sent.append(unsent(connection.session)[:4])
            flush(connection)

        monkeypatch.setattr(Connection, "flush", noted)
        world.boot()
        world.pass_time(600)
        errors = [warning.error for warning in world.warnings]
        assert {error.cause for error in errors if isinstance(error, SessionError)} == {Cause.HANDSHAKE_TIMEOUT}
        assert REGTEST.magic not in sent


def test_a_flipped_bit_costs_the_connection_and_bans_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived = Connection.arrived

    def damaged(connection: Connection, data: bytes | None) -> None:
        is_ready = connection.session.ready is not None
        if data and is_ready and isinstance(connection.node.behaviour, Damaging):
            data = data[:-1] + bytes([data[-1] ^ 1])
        arrived(connection, data)

    monkeypatch.setattr(Connection, "arrived", damaged)
    with stage(tmp_path, Mode.COMPACT, Damaging, Encrypted, v2=V2Policy.PREFER) as world:
        world.boot()
        world.wait_synced(within=120)
        world.pass_time(60)
        assert world.has_found_all()
        assert world.warnings and not world.banned
        assert any(isinstance(warning.error, EnvelopeError) for warning in world.warnings)
        assert ("Encrypted", Transport.V2) in transports(world)
