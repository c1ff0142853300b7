"""Encryption of connections (BIP-324), and the warning that others can read a BIP-37 filter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.connection import Connection
from simulation.world import Placed
from spvfilter.errors import PrivacyError
from spvfilter.light.engine.addresses import BLOOM_NEEDS, COMPACT_NEEDS
from spvfilter.light.engine.effects import AskSeeds, Connect
from spvfilter.light.engine.inputs import PeerConnected, Seeded
from spvfilter.light.engine.netgroups import is_sheltered
from spvfilter.light.events import Mode, PeerWarning
from spvfilter.wire.events import Ready, Service
from spvfilter.wire.transport import Transport, V2Policy
from support.client.discovery import NAMED, Run, told
from support.client.stage import Prompt, at, stage

V2 = Service.P2P_V2.value


def policies(run: Run) -> dict[str, V2Policy]:
    """Return the policy of each connection that the engine begins, by address."""
    effects = [*run.effects, *run.do(Seeded(()), 3.0)]
    return {each.address: each.v2 for each in effects if isinstance(each, Connect)}


@pytest.mark.parametrize("policy", V2Policy)
def test_named_peers_and_peers_that_offer_encryption_are_encrypted(policy: V2Policy) -> None:
    run = Run(v2=policy)
    services = COMPACT_NEEDS | (V2 if policy is V2Policy.REQUIRE else 0)
    run.tell(*(told(f"{n}.1.1.1", services=services | (V2 if n % 2 else 0)) for n in range(20, 60)))
    found = policies(run)
    assert found.pop(NAMED) is policy
    assert len(found) == 7
    for address, each in found.items():
        is_offered = int(address.split(".")[0]) % 2 == 1
        assert each is (V2Policy.OFF if policy is V2Policy.PREFER and not is_offered else policy)


@pytest.mark.parametrize("mode", [Mode.COMPACT, Mode.BIP37])
def test_a_required_encryption_is_a_needed_service(mode: Mode) -> None:
    needs = V2 | (BLOOM_NEEDS if mode is Mode.BIP37 else COMPACT_NEEDS)
    run = Run(mode, v2=V2Policy.REQUIRE)
    asked = [each.services for each in run.effects if isinstance(each, AskSeeds)]
    assert set(asked) == {needs}
    run.tell(*(told(f"{n}.1.1.1", services=needs if n % 10 == 0 else needs & ~V2) for n in range(20, 140)))
    found = policies(run)
    found.pop(NAMED)
    assert len(found) == 7
    assert all(int(address.split(".")[0]) % 10 == 0 for address in found)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("a" * 56 + ".onion", True),
        ("A" * 56 + ".ONION", True),
        ("10.1.0.1", False),
        ("192.168.1.2", False),
        ("2001:db8::1", False),
        ("localhost", False),
        ("node.example", False),
    ],
)
def test_only_this_machine_and_onion_services_are_sheltered(host: str, expected: bool) -> None:
    assert is_sheltered(host) == expected


def encrypted(connected: Callable[[Connection, Ready], PeerConnected]) -> Callable[[Connection, Ready], PeerConnected]:
    return lambda connection, ready: connected(connection, ready)._replace(transport=Transport.V2)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("mode", "host", "transport", "expected"),
    [
        (Mode.BIP37, "10.1.0.1", Transport.V1, 1),
        (Mode.BIP37, "10.1.0.1", Transport.V2, 0),
        (Mode.BIP37, "127.0.0.1", Transport.V1, 0),
        (Mode.COMPACT, "10.1.0.1", Transport.V1, 0),
    ],
)
def test_a_filter_that_others_can_read_gives_one_warning(
    mode: Mode, host: str, transport: Transport, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if transport is Transport.V2:
        monkeypatch.setattr(Connection, "connected", encrypted(Connection.connected))
    others = [at(Prompt, 2), at(Prompt, 3)] if host == "10.1.0.1" else []
    with stage(tmp_path, mode, Placed(Prompt, host, [f"{host}:18444"]), *others) as world:
        world.boot()
        world.wait_synced(within=120)
        world.pass_time(60)
        told_ = [event for event in world.told if isinstance(event, PeerWarning)]
        warnings = [each for each in told_ if isinstance(each.error, PrivacyError)]
        assert len(warnings) == expected
        assert not any(each.banned for each in warnings)
        assert all("unencrypted" in each.cause and "compact mode" in each.cause for each in warnings)
