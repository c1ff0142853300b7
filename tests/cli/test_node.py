"""`node`: its output, its options and commands, and how it ends. Its protocol is tested in tests/node."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.commands.processes import command, environment, process
from support.peers.nodeclient import MAGIC, message, version_payload

ADDRESS = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"
MAINNET_ADDRESS = "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4"
ADVICE = "; choose its network, or give another address"
DEFAULT_SIGNALS = (  # a test run in the background has SIGINT ignored, and its children inherit that
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from spvfilter.cli import main;"
    " sys.exit(main())"
)


@contextmanager
def node(*argv: object) -> Iterator[subprocess.Popen[bytes]]:
    """A running node whose standard input stays open."""
    words = command("node", "--port", "0", *argv, code=DEFAULT_SIGNALS)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def line(child: subprocess.Popen[bytes]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().decode().rstrip("\n")


def order(child: subprocess.Popen[bytes], text: str) -> None:
    assert child.stdin is not None
    child.stdin.write(text.encode() + b"\n")
    child.stdin.flush()


def port_of(greeting: str) -> int:
    words = greeting.replace(",", "").split()
    return int(words[words.index("port") + 1])


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_node_prints_its_address_and_ends_by_signal(number: signal.Signals) -> None:
    with node("--blocks", 3) as child:
        said = line(child)
        assert said.startswith("regtest node on 127.0.0.1 port ")
        assert said.endswith(", height 3; scripts and signatures are not checked")
        with socket.create_connection(("127.0.0.1", port_of(said)), timeout=20) as peer:
            peer.sendall(message("version", version_payload()))
            assert peer.recv(4) == MAGIC
            child.send_signal(number)
            assert child.wait(timeout=20) == 0
        assert line(child) == "stopped"
        assert child.stderr is not None
        assert child.stderr.read() == b""


def test_commands_are_taken_on_standard_input() -> None:
    ran = process(
        "node",
        "--port",
        0,
        "--blocks",
        101,
        stdin=f"mine 2\n\npay {ADDRESS} 5000\nstatus\nmine\nreorg 1\nstatus\nquit\n".encode(),
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    said = ran.stdout.decode().splitlines()[1:]
    assert [words.split()[0] for words in said] == [
        "block",
        "block",
        "mempool",
        "height",
        "block",
        "reorganization:",
        "block",
        "block",
        "height",
        "stopped",
    ]
    assert said[0].startswith("block 102 ")
    assert said[3] == "height 103, transactions in the mempool: 1, connections: 0"
    assert said[4].endswith(", 2 tx")
    assert said[5] == "reorganization: blocks disconnected: 1, connected: 2"
    assert said[8] == "height 105, transactions in the mempool: 1, connections: 0"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mine 0", "expected a whole number from 1 to 100000, not 0"),
        ("mine many", "expected a whole number from 1 to 100000"),
        ("reorg 2", "depth must be from 1 to 1, the height of the tip, not 2"),
        (
            f"pay {ADDRESS} 5",
            "1005 satoshi are needed, but only 0 can be spent: mine more blocks (coinbases mature after 100)",
        ),
        (f"pay {MAINNET_ADDRESS} 5", f"this address is for mainnet, not for regtest: '{MAINNET_ADDRESS}'{ADVICE}"),
        ("dance", "unknown command or wrong arguments (try 'help')"),
        ("mine 1 2", "unknown command or wrong arguments (try 'help')"),
        ("\x1b[31m", "unknown command or wrong arguments (try 'help')"),
    ],
)
def test_failed_command_is_one_line_and_node_continues(text: str, said: str) -> None:
    ran = process("node", "--port", 0, "--blocks", 1, stdin=f"{text}\nstatus\nquit\n".encode())
    assert ran.returncode == 0
    assert ran.stderr.decode() == f"spvfilter: {said}\n"
    assert ran.stdout.decode().splitlines()[1:] == [
        "height 1, transactions in the mempool: 0, connections: 0",
        "stopped",
    ]


def test_help_lists_the_commands() -> None:
    ran = process("node", "--port", 0, "--blocks", 0, stdin=b"help\nquit\n")
    assert [text.split()[0] for text in ran.stdout.decode().splitlines()[1:]] == [
        "commands:",
        "mine",
        "pay",
        "reorg",
        "status",
        "quit",
        "stopped",
    ]


def test_the_end_of_standard_input_does_not_end_it() -> None:
    with node("--blocks", 1) as child:
        line(child)
        assert child.stdin is not None
        order(child, "status")
        child.stdin.close()
        assert line(child).startswith("height 1, ")
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=20) == 0


def test_addresses_are_paid_at_start_and_in_each_block() -> None:
    with node("--pay", ADDRESS, "--pay", ADDRESS, "--amount", 70_000, "--interval", 0.05) as child:
        assert ", height 111; " in line(child)
        assert [line(child) for _ in range(2)] == [f"paid 0.00070000 BTC to {ADDRESS} in block 111"] * 2
        told = [line(child) for _ in range(4)]
        assert [text.split()[:2] for text in told[1::2]] == [["block", "112"], ["block", "113"]]
        assert [text.split()[0] for text in told[::2]] == ["mempool"] * 2
        assert all(text.endswith(", 2 tx") for text in told[1::2])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--pay", MAINNET_ADDRESS], f"this address is for mainnet, not for regtest: '{MAINNET_ADDRESS}'{ADVICE}"),
        (["--pay", ADDRESS, "--blocks", 99], "101000 satoshi are needed, but only 0 can be spent"),
        (["--interval", 0], "argument --interval: expected a number of seconds from 0.01 to 86400, not 0"),
        (["--port", 65536], "argument --port: expected a whole number from 0 to 65535"),
        (["--host", "192.0.2.1", "--blocks", 0], "cannot listen on 192.0.2.1 port 0: "),
        (["--host", "no.such.host.invalid", "--blocks", 0], "cannot listen on no.such.host.invalid port 0: "),
    ],
)
def test_invalid_options_are_one_line_and_exit_code_2(argv: list[object], said: str) -> None:
    ran = process("node", "--port", 0, *argv)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.decode().startswith(f"spvfilter: {said}")
    assert ran.stderr.count(b"\n") == 1


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = process("node", "--blocks", 0, "--port", port)
    assert ran.returncode == 2
    said = f"cannot listen on 127.0.0.1 port {port}: address already in use: choose another with --port"
    assert ran.stderr.decode() == f"spvfilter: {said}\n"


@pytest.mark.slow
def test_a_pipe_that_breaks_ends_it_quietly() -> None:
    with node("--blocks", 0) as child:
        line(child)
        assert child.stdout is not None
        child.stdout.close()
        order(child, "mine")
        assert child.wait(timeout=20) == 141
        assert child.stderr is not None
        assert child.stderr.read() == b""


def test_help_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from spvfilter.cli import main

    monkeypatch.setenv("COLUMNS", "80")
    assert main(["node", "--help"]) == 0
    said = capsys.readouterr().out
    assert "serves compact and BIP-37 filters" in said
    assert "Ctrl-C or SIGTERM ends it" in said
    assert max(map(len, said.splitlines())) <= 80
