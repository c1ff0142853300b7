"""The handshake of a session, from both sides: order, negotiated features, violations."""

from __future__ import annotations

import dataclasses

import pytest

from spvfilter.errors import MessageError, ParameterError, SessionError
from spvfilter.network import REGTEST
from spvfilter.wire.events import (
    Cause,
    Misbehaved,
    Ready,
    Received,
    Role,
    Service,
    SessionEnded,
    SessionEvent,
    Settings,
)
from spvfilter.wire.messages.table import (
    GetAddr,
    Message,
    Ping,
    SendAddrV2,
    SendCmpct,
    SendHeaders,
    Unknown,
    Verack,
    Version,
    WtxidRelay,
)
from spvfilter.wire.session import Session
from support.peers.sessions import THEIR_NONCE, THEIRS, encoded, ended, fresh, ready, sent
from support.samples import SAMPLES

ROLES = pytest.mark.parametrize("role", list(Role))


def disturbed(peer: Session, cause: Cause, command: str) -> None:
    """Assert that the only event is a message out of turn, and that the session continues."""
    (event,) = peer.events()
    assert isinstance(event, Misbehaved)
    assert isinstance(event.error, SessionError)
    assert event.error.cause == cause
    assert str(event.error) == f"{command}: {cause}"
    assert peer.wants_data


def test_only_the_connecting_side_speaks_first() -> None:
    settings = Settings(REGTEST, services=5, user_agent=b"/me/", start_height=7, relay=True)
    assert sent(fresh(Role.OUTBOUND, settings)) == [Version(70016, 5, 1_234, 1, b"/me/", 7, True)]
    assert sent(fresh(Role.INBOUND, settings)) == []


def test_a_light_client_requests_no_relay_and_states_its_name() -> None:
    (ours,) = sent(fresh())
    assert isinstance(ours, Version)
    assert (ours.services, ours.relay, ours.agent.startswith("/spvfilter:")) == (0, False, True)


@ROLES
def test_features_are_negotiated_between_version_and_verack(role: Role) -> None:
    peer = fresh(role)
    peer.receive_data(encoded(THEIRS))
    assert list(peer.events()) == []
    version, *rest = sent(peer)
    assert isinstance(version, Version)
    assert rest == [WtxidRelay(), SendAddrV2(), Verack()]
    assert (peer.remote, peer.ready) == (THEIRS, None)
    peer.receive_data(encoded(WtxidRelay(), SendAddrV2(), Verack()))
    assert list(peer.events()) == [Ready(THEIRS, 70016, wtxid_relay=True, addrv2=True)]
    assert peer.ready == Ready(THEIRS, 70016, wtxid_relay=True, addrv2=True)
    assert sent(peer) == []


def test_two_sessions_complete_their_handshake() -> None:
    client = fresh(Role.OUTBOUND)
    server = fresh(Role.INBOUND, Settings(REGTEST, services=Service.NETWORK | Service.BLOOM), first_nonce=100)
    events: list[SessionEvent] = []
    for _ in range(2):
        server.receive_data(client.data_to_send())
        events += server.events()
        client.receive_data(server.data_to_send())
        events += client.events()
    assert [type(event) for event in events] == [Ready, Ready]
    assert client.remote is not None
    assert client.remote.services == Service.NETWORK | Service.BLOOM


@ROLES
def test_an_older_peer_gets_no_newer_messages(role: Role) -> None:
    old = dataclasses.replace(THEIRS, version=70015)
    peer = fresh(role)
    peer.receive_data(encoded(old, WtxidRelay(), Verack()))
    assert list(peer.events()) == [Ready(old, 70015, wtxid_relay=False, addrv2=False)]
    assert [type(message) for message in sent(peer)] == [Version, Verack]


def test_disabled_features_are_not_offered() -> None:
    peer = fresh(settings=Settings(REGTEST, wtxid_relay=False, addrv2=False, version=70020))
    peer.receive_data(encoded(dataclasses.replace(THEIRS, version=80000), WtxidRelay(), SendAddrV2(), Verack()))
    (event,) = peer.events()
    assert isinstance(event, Ready)
    assert (event.common_version, event.wtxid_relay, event.addrv2) == (70020, False, True)
    assert [type(message) for message in sent(peer)] == [Version, Verack]


@pytest.mark.parametrize("command", [command for command in SAMPLES if command != "version"])
def test_a_message_before_version_is_dropped(command: str) -> None:
    peer = fresh()
    peer.receive_data(encoded(SAMPLES[command]))
    disturbed(peer, Cause.BEFORE_VERSION, command)
    peer.receive_data(encoded(THEIRS, Verack()))
    assert list(peer.events()) == [Ready(THEIRS, 70016, wtxid_relay=False, addrv2=False)]


BETWEEN = ("version", "verack", "wtxidrelay", "sendaddrv2", "sendheaders", "sendcmpct")


@pytest.mark.parametrize("command", [command for command in SAMPLES if command not in BETWEEN])
def test_a_message_before_verack_is_dropped(command: str) -> None:
    peer = fresh()
    peer.receive_data(encoded(THEIRS, SAMPLES[command]))
    disturbed(peer, Cause.BEFORE_VERACK, command)
    # the session does not even answer a ping
    assert [type(message) for message in sent(peer)] == [Version, WtxidRelay, SendAddrV2, Verack]


def test_preferences_may_come_before_verack() -> None:
    peer = fresh()
    peer.receive_data(encoded(THEIRS, SendHeaders(), SendCmpct(False, 2), Verack()))
    first, second, third = peer.events()
    assert (first, second) == (Received(SendHeaders()), Received(SendCmpct(False, 2)))
    assert isinstance(third, Ready)


def test_commands_of_later_versions_are_ignored_in_the_handshake() -> None:
    peer = fresh()
    peer.receive_data(encoded(THEIRS, Unknown("sendtxrcncl", bytes(12)), Verack()))
    (event,) = peer.events()
    assert isinstance(event, Ready)


def test_a_second_version_or_verack_is_ignored() -> None:
    peer = fresh()
    peer.receive_data(encoded(THEIRS, dataclasses.replace(THEIRS, version=1)))
    assert list(peer.events()) == []
    peer.receive_data(encoded(Verack()))
    assert len(list(peer.events())) == 1
    peer.receive_data(encoded(Verack(), dataclasses.replace(THEIRS, version=1), Verack()))
    assert list(peer.events()) == []
    assert peer.remote == THEIRS
    assert peer.wants_data


@pytest.mark.parametrize("late", [WtxidRelay(), SendAddrV2()])
def test_negotiation_after_verack_ends_the_session(late: Message) -> None:
    peer = ready()
    peer.receive_data(encoded(late, GetAddr()))
    assert ended(peer, Cause.LATE_NEGOTIATION).endswith(" after verack")


@ROLES
def test_the_sessions_own_nonce_ends_it(role: Role) -> None:
    peer = fresh(role)
    peer.receive_data(encoded(dataclasses.replace(THEIRS, nonce=peer.nonce)))
    assert ended(peer, Cause.SELF_CONNECTION) == "nonce 1 is our own: the connection leads back to this process"


def test_a_nonce_of_another_own_connection_ends_the_session() -> None:
    peer = fresh(Role.INBOUND, own_nonces={7, THEIR_NONCE})
    peer.receive_data(encoded(THEIRS))
    ended(peer, Cause.SELF_CONNECTION)
    assert sent(peer) == []


def test_an_obsolete_peer_is_disconnected() -> None:
    peer = fresh()
    peer.receive_data(encoded(dataclasses.replace(THEIRS, version=70000)))
    assert ended(peer, Cause.OBSOLETE_VERSION) == "the peer has version 70000; at least 70001 is required"
    peer = fresh()
    peer.receive_data(encoded(dataclasses.replace(THEIRS, version=70001), Verack()))
    assert list(peer.events()) == [
        Ready(dataclasses.replace(THEIRS, version=70001), 70001, wtxid_relay=False, addrv2=False)
    ]


def test_service_bits_are_those_of_the_protocol() -> None:
    bits = {"NETWORK": 1, "BLOOM": 4, "WITNESS": 8, "COMPACT_FILTERS": 64, "NETWORK_LIMITED": 1024, "P2P_V2": 2048}
    assert {service.name: service.value for service in Service} == bits


def test_a_peer_without_the_required_services_is_disconnected() -> None:
    settings = Settings(REGTEST, required_services=Service.BLOOM | Service.NETWORK)
    peer = fresh(settings=settings)
    peer.receive_data(encoded(dataclasses.replace(THEIRS, services=Service.NETWORK)))
    assert "BLOOM" in ended(peer, Cause.MISSING_SERVICES)
    ready(settings=settings, theirs=dataclasses.replace(THEIRS, services=Service.NETWORK | Service.BLOOM | 1 << 60))


def test_a_malformed_version_ends_the_session() -> None:
    peer = fresh()
    peer.receive_data(encoded(Unknown("version", bytes(THEIRS)[:-10])))
    (event,) = peer.events()
    assert isinstance(event, SessionEnded)
    assert isinstance(event.error, MessageError)
    assert (event.error.command, event.error.field) == ("version", "user agent")


@pytest.mark.parametrize("command", ["verack", "wtxidrelay", "sendaddrv2", "sendheaders"])
def test_a_malformed_message_before_verack_is_dropped(command: str) -> None:
    peer = fresh()
    peer.receive_data(encoded(THEIRS, Unknown(command, b"\0"), Verack()))
    event, last = peer.events()
    assert isinstance(event, Misbehaved)
    assert isinstance(event.error, MessageError)
    assert event.error.command == command
    assert last == Ready(THEIRS, 70016, wtxid_relay=False, addrv2=False)


def test_no_message_is_sent_before_the_handshake_ends() -> None:
    peer = fresh()
    with pytest.raises(ParameterError, match="getaddr cannot be sent before the handshake is complete"):
        peer.send(GetAddr())
    with pytest.raises(ParameterError, match="ping cannot be sent before the handshake is complete"):
        peer.fence(1_000.0)
    peer.receive_data(encoded(THEIRS, Verack(), Ping(1)))
    assert len(list(peer.events())) == 1
    peer.send(GetAddr())
    assert [type(message).__name__ for message in sent(peer)][-2:] == ["Pong", "GetAddr"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"services": 1 << 64}, r"services must be from 0 to 2\^64 - 1"),
        ({"required_services": -1}, r"required services must be from 0 to 2\^64 - 1"),
        ({"user_agent": b"x" * 257}, "user agent: the length must be at most 256"),
        ({"start_height": 1 << 31}, r"start height must be from -2\^31 to 2\^31 - 1"),
        ({"version": 1 << 31}, r"version must be from -2\^31 to 2\^31 - 1"),
        ({"handshake_s": 0}, "handshake_s must be positive, not 0"),
        ({"ping_interval_s": float("nan")}, "ping_interval_s must be positive, not nan"),
        ({"ping_timeout_s": -1}, "ping_timeout_s must be positive, not -1"),
    ],
)
def test_settings_without_a_valid_version_message_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Settings(REGTEST, **settings)  # type: ignore[arg-type]
