"""`watch` without a network: its arguments, balances, progress display and messages about peers."""

from __future__ import annotations

import errno
import inspect
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.arguments import Parser
from spvfilter.cli.term.balances import Balances
from spvfilter.cli.watch import command
from spvfilter.cli.watch.status import StatusDisplay
from spvfilter.errors import UselessPeerError, remedy
from spvfilter.light import BroadcastChanged, BroadcastProgress, BroadcastStep, LightClient, Mode, PeerWarning
from spvfilter.network import SIGNET
from spvfilter.p2p import connection
from spvfilter.primitives import OutPoint
from spvfilter.store import TxStatus
from spvfilter.watch.match import Match, MatchKind
from spvfilter.wire.transport import Transport
from support.peers.nodeprocess import ADDRESS, OTHER

WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"  # of the private key 1
SEED = "abandon " * 11 + "about"
HERE = ["--connect", "127.0.0.1:1"]


def test_default_mode_is_that_of_the_light_client() -> None:
    parser = Parser(prog="spvfilter watch")
    command.configure(parser)
    assert parser.get_default("mode") is inspect.signature(LightClient).parameters["mode"].default is Mode.AUTO


def test_invalid_arguments_are_one_line_and_exit_code_2(refused: Any) -> None:
    Path("wallet.txt").touch()
    start = f"watch {ADDRESS} --network regtest"
    here = f"{start} --connect 127.0.0.1:1"
    refused(f"""
        watch --network regtest --connect 127.0.0.1:1
        watch wallet.txt --network regtest --connect 127.0.0.1:1
        watch --watch /dev/null --network regtest --connect 127.0.0.1:1
        {start}
        {start} --connect ''
        {start} --connect host:99999
        {start} --connect http://user:secret@127.0.0.1:8332
        {start} --connect {OTHER}
        {start} --discover --proxy socks5://127.0.0.1:1
        {start} --discover
        {here} --mode bip73
        {here} --mode fast
        {here} --proxy=http://127.0.0.1:1
        {here} --proxy=socks5://[::1
        {here} --proxy=
        {here} --proxy=127.0.0.1:9050
        {here} --proxy=socks5://h
        {here} --proxy=socks5://h:65536
        {here} --proxy=socks5://h:1/x
        {here} --proxy=\0
        {here} --proxy socks5://user@h:1
        {here} --rebuild
        {here} --keep-filters
        {here} --birthday yesterday
        {here} --birthday 2130-01-31
        {here} --birthday 5051000000
        {here} --birthday 2020-13-01
        {here} --birthday 2020-01-01 --from-height 5
        {here} --timeout 0
        {here} --fp-rate 1
        watch {ADDRESS} --network signet --connect 127.0.0.1:1
        {here} --db /no/such/folder/wallet.db
    """)


@pytest.mark.parametrize(
    "argv",
    [
        [WIF, *HERE],
        [SEED, *HERE],
        [ADDRESS, "--connect", WIF],
        [ADDRESS, "--connect", f"{WIF}:8333"],
        [ADDRESS, "--connect", SEED],
        [ADDRESS, *HERE, "--proxy", f"socks4://user:{WIF}@127.0.0.1:1"],
        [ADDRESS, *HERE, "--proxy", f"socks5://user:{WIF}@127.0.0.1"],
    ],
)
def test_secrets_are_neither_repeated_nor_looked_up(run: Any, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    ran = run("watch", "--network", "regtest", *argv)
    assert ran.code == 2
    assert not any(secret in ran.out + ran.err for secret in (WIF, WIF[:12], "abandon", "about"))


def test_a_proxy_without_python_socks_names_what_to_install(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_socks", None)
    ran = run("watch", "--network", "regtest", ADDRESS, *HERE, "--proxy", "socks5://127.0.0.1:1")
    said = f"spvfilter: argument --proxy: a proxy needs python-socks; {remedy('socks')}"
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(said)


SIGNET_ADDRESS = "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"  # the same program


def test_discovering_asks_the_seeds_and_then_the_nodes_they_name(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def getaddrinfo(host: Any, *args: Any, **named: Any) -> Any:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 0))]

    async def refuse(*args: Any) -> Any:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(connection, "connect", refuse)
    ran = run("watch", "--network", "signet", SIGNET_ADDRESS, "--discover", "--once", "--timeout", "0.3")
    assert sorted(asked) == sorted(f"x49.{seed}" for seed in SIGNET.dns_seeds)
    assert ran.code == 2
    assert ran.err.startswith("spvfilter: 8.8.8.8:38333: connection refused")
    assert ran.err.endswith("spvfilter: gave up: no usable node for 0.3 s\n")


def test_silence_of_all_seeds_is_reported(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(*args: Any, **named: Any) -> Any:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    ran = run("watch", "--network", "signet", SIGNET_ADDRESS, "--discover", "--once")
    assert (ran.code, ran.out) == (2, "")
    advice = "check the Internet connection, or name a node"
    assert ran.err.endswith(f"spvfilter: no DNS seed returned an address: {advice}\n")
    for seed in SIGNET.dns_seeds:
        assert f"spvfilter: DNS seed {seed}: Temporary failure in name resolution\n" in ran.err


def test_help_fits_80_columns(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run("watch", "--help")
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80


def test_own_transactions_are_json_lines() -> None:
    txid, by = bytes(range(32)), bytes(32)
    said = {"txid": txid[::-1].hex(), "peer": "127.0.0.1:1"}
    assert command.sending(BroadcastProgress(txid, "127.0.0.1:1", BroadcastStep.SENT)) == {"event": "sent", **said}
    refused = BroadcastProgress(txid, "127.0.0.1:1", BroadcastStep.REFUSED, "dust (0x41)")
    assert command.sending(refused) == {"event": "refused", **said, "reason": "dust (0x41)"}
    changed = {"event": "broadcast", "txid": said["txid"], "status": "conflicted", "by": "00" * 32}
    assert command.sending(BroadcastChanged(txid, TxStatus.CONFLICTED, by)) == changed


# Balances


def a_match(
    value: int | None = 70_000, height: int | None = 5, index: int = 0, address: str = ADDRESS, **more: Any
) -> Match:
    made = Match(
        kind=MatchKind.OUTPUT,
        txid=bytes(32),
        index=index,
        outpoint=OutPoint(bytes(32), index),
        value=value,
        script_pubkey=b"\x51",
        address=address,
        label=None,
        block_hash=None if height is None else bytes(32),
        height=height,
    )
    return replace(made, **more)


def cells(balances: Balances) -> list[list[str]]:
    return balances.table()[1]


def test_match_counts_once_in_mempool_and_block() -> None:
    balances = Balances()
    assert balances.put(a_match(height=None))
    assert cells(balances) == [[ADDRESS, "0.00000000", "+0.00070000", "1"]]
    assert balances.put(a_match())
    assert not balances.put(a_match())
    assert cells(balances) == [[ADDRESS, "0.00070000", "1"]]
    assert balances.remove(a_match())
    assert not balances.remove(a_match())
    assert cells(balances) == []
    assert len(balances) == 0


def test_spends_are_subtracted_and_unknown_values_counted() -> None:
    balances = Balances()
    balances.put(a_match())
    balances.put(a_match(value=30_000, kind=MatchKind.INPUT))
    balances.put(a_match(value=20_000, kind=MatchKind.INPUT, index=1, height=None))
    balances.put(a_match(value=None, kind=MatchKind.INPUT, index=2))
    assert cells(balances) == [[ADDRESS, "0.00040000 - 1 unknown", "-0.00020000", "4"]]


def test_hidden_rows_count_in_the_sum_of_all() -> None:
    balances = Balances()
    for number in range(10):
        balances.put(a_match(value=number, index=number, address=f"address {number}"))
    names, rows = balances.table(4)
    assert list(names) == ["address", "confirmed", "matches"]
    assert [row[0] for row in rows] == ["address 7", "address 8", "address 9", "all 10"]
    assert rows[-1][1:] == ["0.00000045", "10"]


# Progress


def test_progress_is_rounded_down_with_remaining_time() -> None:
    now = 0.0
    status = StatusDisplay(lambda: now)
    status.progress("blocks", 0, 100_000)
    assert status.line == "blocks: 0 of 100,000 (0 %)"
    now = 10.0
    status.progress("blocks", 25_000, 100_000)
    assert status.line == "blocks: 25,000 of 100,000 (25 %, 0:30 left)"
    status.progress("blocks", 99_999, 100_000)
    assert status.line == "blocks: 99,999 of 100,000 (99 %, 0:00 left)"
    status.progress("blocks", 100_000, 100_000)
    assert status.line == "blocks: 100,000 of 100,000"
    status.peer("127.0.0.1:1", "/a\x1b[2J/", Transport.V1)
    status.synced(100_000, sees_unconfirmed=True)
    assert status.line == "up to date, height 100,000 · peer 127.0.0.1:1 /a\\x1b[2J/, not encrypted"


def test_status_names_encryption_and_missing_unconfirmed_payments() -> None:
    status = StatusDisplay()
    status.peer("127.0.0.1:1", "", Transport.V2)
    status.synced(7, sees_unconfirmed=False)
    told = "up to date, height 7 · payments appear when confirmed · peer 127.0.0.1:1, encrypted"
    assert status.line == told
    status.peer(None, "", None)
    assert status.line.endswith(" · no peer")


def test_each_phase_is_timed_on_its_own() -> None:
    now = 0.0
    status = StatusDisplay(lambda: now)
    status.progress("headers", 0, 100)
    now = 100.0
    status.progress("headers", 100, 100)
    status.progress("blocks", 0, 100)
    now = 105.0
    status.progress("blocks", 50, 100)
    assert status.line == "blocks: 50 of 100 (50 %, 0:05 left)"


# Peers


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('::1', 1, 0, 0)"), "connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect …"),
            "connection refused",
        ),
        (
            OSError("Multiple exceptions: [Errno 111] Connect …, [Errno 113] …"),
            "Multiple exceptions: [Errno 111] Connect …, [Errno 113]",
        ),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (TimeoutError(), "no answer in time"),
        (UselessPeerError("p:1: no block for 2 s"), "no block for 2 s"),
        (ConnectionAbortedError(), "ConnectionAbortedError"),
    ],
)
def test_a_failure_has_a_readable_cause(error: Exception, said: str) -> None:
    assert PeerWarning("p:1", error, banned=False).cause.startswith(said)
