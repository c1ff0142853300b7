"""`spvfilter electrum`: a server in a child process, its status, its end by Ctrl-C, and arguments that are refused."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiorpcx")

from spvfilter.address import address_to_script
from spvfilter.electrum.histories import script_hash_of
from spvfilter.network import REGTEST
from support.commands.processes import process
from support.peers.electrumclient import ElectrumClient
from support.peers.nodeprocess import ADDRESS, OTHER, line, node_process, running

KNOWN, UNKNOWN = (script_hash_of(address_to_script(each, REGTEST)) for each in (ADDRESS, OTHER))


async def history(port: int) -> list[Any]:
    async with ElectrumClient(port) as client:
        await client.ask("server.version", "test", "1.4")
        assert await client.ask("blockchain.scripthash.get_history", UNKNOWN) == []
        found: list[Any] = await client.ask("blockchain.scripthash.get_history", KNOWN)
        return found


@pytest.mark.slow
@pytest.mark.posix
def test_server_shows_the_wallet_until_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "watch.txt").write_text(f"{ADDRESS}\n")
    arguments = ("--watch", tmp_path / "watch.txt", "--db", tmp_path / "w.db", "--network", "regtest", "--port", 0)
    with node_process("--pay", ADDRESS) as node, running("electrum", *arguments, "--connect", node.place) as child:
        found = re.fullmatch(r"Electrum server on 127\.0\.0\.1 port (\d+) \(TCP\)", line(child))
        assert found is not None
        assert line(child) == "up to date, height 111"
        assert [row["height"] for row in asyncio.run(history(int(found[1])))] == [111]
        shown = process("electrum", "status", "--port", found[1])
        said = shown.stdout.decode().splitlines()
        assert (shown.returncode, shown.stderr) == (0, b"")
        assert said[:3] == ["sessions: 0, subscriptions: 0", "blocks searched: 111 of 111", "unknown script hashes: 1"]
        assert said[3].startswith("Wallets asked for them")
        assert UNKNOWN not in shown.stdout.decode()
        assert child.stderr is not None
        assert child.stderr.readline().decode().startswith(f"spvfilter: unknown script hash {UNKNOWN}: ")
        elsewhere = ("--db", tmp_path / "2.db", "--port", found[1], "--connect", "127.0.0.1:1")
        second = process("electrum", *arguments, *elsewhere)  # the last of two equal options counts
        error = f"cannot listen on 127.0.0.1 port {found[1]}: address already in use: choose another with --port"
        assert (second.returncode, second.stderr.decode().splitlines()[-1]) == (2, f"spvfilter: {error}")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=30)
        assert (child.returncode, out, err) == (0, b"stopped\n", b"")


@pytest.mark.slow
@pytest.mark.posix
def test_other_address_and_mode_bip37_give_warnings(tmp_path: Path) -> None:
    (tmp_path / "watch.txt").write_text(f"{ADDRESS}\n")
    arguments = ("--watch", tmp_path / "watch.txt", "--db", tmp_path / "w.db", "--network", "regtest", "--port", 0)
    more = ("--listen", "127.0.0.2", "--mode", "bip37")
    with node_process() as node, running("electrum", *arguments, *more, "--connect", node.place) as child:
        assert line(child).startswith("Electrum server on 127.0.0.2 port ")
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=30)
        assert child.returncode == 0
        said = err.decode().splitlines()
        assert said[0] == "spvfilter: warning: --mode bip37 gives nodes a filter that matches the wallet"
        assert said[1].startswith("spvfilter: warning: every program that can connect to 127.0.0.2 sees the wallet")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--connect", "127.0.0.1:1"], "the server needs --db FILE"),
        (["--db", "w.db", "--connect", "127.0.0.1:1"], "nothing to watch for"),
        (["--db", "w.db", "--watch", "watch.txt"], "no node to connect to"),
        (["--mode", "auto"], "invalid choice"),
        (["--db", "w.db", "--connect", "127.0.0.1:1", "--tls-port", "0"], "TLS needs a certificate"),
        (["--db", "w.db", "--connect", "127.0.0.1:1", "--key", "key.pem"], "TLS needs a certificate"),
        (["--max-memory", "0"], "--max-memory"),
        (["--max-sessions", "many"], "--max-sessions"),
        (["stat"], "did you mean status?"),
        (["status", "--port", "1"], "no server answers on 127.0.0.1 port 1: start spvfilter electrum"),
    ],
)
def test_wrong_arguments_are_refused(run: Any, argv: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "watch.txt").write_text(f"{ADDRESS}\n")
    words = [str(tmp_path / word) if word in ("w.db", "watch.txt") else word for word in argv]
    ran = run("electrum", *words, "--network", "regtest")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.slow
@pytest.mark.posix
def test_status_names_a_server_that_accepts_no_session(tmp_path: Path) -> None:
    (tmp_path / "watch.txt").write_text(f"{ADDRESS}\n")
    files = ("--watch", tmp_path / "watch.txt", "--db", tmp_path / "w.db")
    arguments = (*files, "--network", "regtest", "--port", 0, "--max-sessions", 3)
    with ExitStack() as stack:
        child = stack.enter_context(running("electrum", *arguments, "--connect", "127.0.0.1:1"))
        port = line(child).split()[-2]
        for _ in range(3):
            stack.enter_context(socket.create_connection(("127.0.0.1", int(port))))
        shown = process("electrum", "status", "--port", port)
        assert shown.returncode == 2
        assert b"closed the connection: it may have reached its session limit" in shown.stderr


def test_missing_certificate_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "watch.txt").write_text(f"{ADDRESS}\n")
    files = ("--watch", str(tmp_path / "watch.txt"), "--db", str(tmp_path / "w.db"))
    more = ("--network", "regtest", "--port", "0", "--certificate", str(tmp_path / "none.pem"), "--tls-port", "0")
    ran = run("electrum", *files, *more, "--connect", "127.0.0.1:1")
    assert ran.code == 2
    assert f"the certificate {tmp_path / 'none.pem'} and its key cannot be loaded: No such file" in ran.err
