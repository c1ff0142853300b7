"""`watch` without a network: its arguments, what it sums up, what it says of its progress, what it says of peers."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest
from nodeprocess import ADDRESS, OTHER

from spvfilter.aio.events import PeerWarning
from spvfilter.cli import watch
from spvfilter.cli.balances import Balances
from spvfilter.cli.status import Status
from spvfilter.errors import UselessPeerError
from spvfilter.primitives import OutPoint
from spvfilter.watch import Match, MatchKind

WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"  # of the private key 1
SEED = "abandon " * 11 + "about"
HERE = ["--connect", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (HERE, "nothing to watch for: give addresses, --watch FILE or a --db of an earlier run"),
        ([ADDRESS], "no node to ask: give --connect HOST:PORT, or --discover"),
        ([ADDRESS, "--connect", ""], "argument --connect: HOST or HOST:PORT expected, these 0 characters are not"),
        ([ADDRESS, "--connect", "host:99999"], "argument --connect: HOST or HOST:PORT expected, these 10 characters are not"),
        ([ADDRESS, "--connect", OTHER], "argument --connect: HOST or HOST:PORT expected, these 64 characters are not"),
        ([ADDRESS, *HERE, "--proxy", "http://127.0.0.1:1"], "argument --proxy: socks5://HOST:PORT expected"),
        ([ADDRESS, *HERE, "--proxy", "socks5://[::1"], "argument --proxy: socks5://HOST:PORT expected"),
        ([ADDRESS, "--discover", "--proxy", "socks5://127.0.0.1:1"], "DNS seeds are not asked through a proxy"),
        ([ADDRESS, *HERE, "--rebuild"], "--rebuild goes with --db FILE"),
        ([ADDRESS, *HERE, "--keep-filters"], "--keep-filters goes with --db FILE"),
        ([ADDRESS, *HERE, "--mode", "fast"], "argument --mode: "),
        ([ADDRESS, *HERE, "--birthday", "yesterday"], "argument --birthday: a day YYYY-MM-DD expected, not 'yesterday'"),
        ([ADDRESS, *HERE, "--birthday", "2020-01-01", "--from-height", "5"], "argument --from-height: not allowed with argument"),
        ([ADDRESS, *HERE, "--timeout", "0"], "argument --timeout: seconds up to 86400 expected, not '0'"),
        ([ADDRESS, *HERE, "--fp-rate", "1"], "argument --fp-rate: a number between 0 and 1 expected"),
        ([ADDRESS, *HERE, "--network", "signet"], "an address of regtest, not of signet"),
        ([ADDRESS, *HERE, "--db", "/no/such/folder/wallet.db", "--network", "regtest"], "/no/such/folder/wallet.db: "),
    ],
)
def test_arguments_that_cannot_be_met_are_one_line_and_exit_code_2(run: Any, argv: list[str], said: str) -> None:
    network = [] if "--network" in argv else ["--network", "regtest"]
    ran = run("watch", *argv, *network)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"spvfilter: {said}")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        [WIF, *HERE], [SEED, *HERE], [ADDRESS, "--connect", WIF], [ADDRESS, "--connect", f"{WIF}:8333"], [ADDRESS, "--connect", SEED],
        [ADDRESS, *HERE, "--proxy", f"socks4://user:{WIF}@127.0.0.1:1"],
    ],
)  # fmt: skip
def test_what_may_be_a_secret_is_never_repeated_nor_looked_up(run: Any, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", None)
    ran = run("watch", "--network", "regtest", *argv)
    assert ran.code == 2
    assert not any(secret in ran.out + ran.err for secret in (WIF, WIF[:12], "abandon", "about"))


def test_help_fits_80_columns(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run("watch", "--help")
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80


# Balances


def a_match(value: int | None = 70_000, height: int | None = 5, index: int = 0, address: str = ADDRESS, **more: Any) -> Match:
    made = Match(
        kind=MatchKind.OUTPUT, txid=bytes(32), index=index, outpoint=OutPoint(bytes(32), index), value=value, script_pubkey=b"\x51",
        address=address, label=None, block_hash=None if height is None else bytes(32), height=height,
    )  # fmt: skip
    return replace(made, **more)


def cells(balances: Balances) -> list[list[str]]:
    return balances.table()[1]


def test_a_match_counts_once_from_the_mempool_into_a_block_and_out_of_it() -> None:
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


def test_spends_are_taken_off_and_those_of_unknown_value_are_said() -> None:
    balances = Balances()
    balances.put(a_match())
    balances.put(a_match(value=30_000, kind=MatchKind.INPUT))
    balances.put(a_match(value=20_000, kind=MatchKind.INPUT, index=1, height=None))
    balances.put(a_match(value=None, kind=MatchKind.INPUT, index=2))
    assert cells(balances) == [[ADDRESS, "0.00040000 - 1 unknown", "-0.00020000", "4"]]


def test_what_a_terminal_has_no_room_for_is_in_the_sum_of_all() -> None:
    balances = Balances()
    for number in range(10):
        balances.put(a_match(value=number, index=number, address=f"address {number}"))
    names, rows = balances.table(4)
    assert list(names) == ["address", "in blocks", "matches"]
    assert [row[0] for row in rows] == ["address 7", "address 8", "address 9", "all 10"]
    assert rows[-1][1:] == ["0.00000045", "10"]


# Progress


def test_progress_is_never_rounded_up_and_says_what_is_left_once_it_can_tell() -> None:
    now = 0.0
    status = Status(lambda: now)
    status.progress("blocks", 0, 100_000)
    assert status.line == "blocks: 0 of 100,000 (0 %)"
    now = 10.0
    status.progress("blocks", 25_000, 100_000)
    assert status.line == "blocks: 25,000 of 100,000 (25 %, 0:30 left)"
    status.progress("blocks", 99_999, 100_000)
    assert status.line == "blocks: 99,999 of 100,000 (99 %, 0:00 left)"
    status.progress("blocks", 100_000, 100_000)
    assert status.line == "blocks: 100,000 of 100,000"
    status.peer("127.0.0.1:1", "/a\x1b[2J/")
    status.synced(100_000)
    assert status.line == "up to date, height 100,000 · 127.0.0.1:1 /a\\x1b[2J/"


def test_each_phase_is_timed_on_its_own() -> None:
    now = 0.0
    status = Status(lambda: now)
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
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] Connect …"), "connection refused"),
        (OSError("Multiple exceptions: [Errno 111] Connect …, [Errno 113] …"), "Multiple exceptions: [Errno 111] Connect …, [Errno 113]"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (TimeoutError(), "no answer in time"),
        (UselessPeerError("p:1: no block for 2 s"), "no block for 2 s"),
        (ConnectionAbortedError(), "ConnectionAbortedError"),
    ],
)  # fmt: skip
def test_a_failure_is_told_in_words(error: Exception, said: str) -> None:
    assert watch._cause(PeerWarning("p:1", error, banned=False)).startswith(said)
