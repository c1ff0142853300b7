"""Descriptors sp() of silent payments on the command line: their scan keys are read from files only."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spvfilter import WalletStore, WatchList
from spvfilter.kernel import spent_outpoints
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from support.blocks import build, undo
from support.blocks.silentpayments import SilentChain, Wallet, chained_payment, payment
from support.client.compactworld import LIMITS
from support.client.lightworld import running
from support.client.silentworld import WALLET as REGTEST_WALLET, SilentWorld, Source, TweakServer, watching
from support.peers.corenode import PASSWORD, USER
from support.peers.tweakserver import HttpTweakServer

pytest.importorskip("btclib_secp256k1")

WALLET = Wallet()


@pytest.fixture
def standard_input(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that makes a text the standard input. It replaces the empty one of `run`."""
    with contextlib.ExitStack() as files:

        def give(text: str) -> None:
            path = tmp_path / "input.txt"
            path.write_text(text, encoding="utf-8")
            monkeypatch.setattr("sys.stdin", files.enter_context(path.open(encoding="utf-8")))

        yield give


@pytest.mark.parametrize("form", ["table", "jsonl"])
@pytest.mark.parametrize("more", ["", ",savings\nsp-labels:1000"])
def test_the_public_form_is_shown(run: Any, standard_input: Any, form: str, more: str) -> None:
    standard_input(f"{WALLET.descriptor}{more}\n")
    ran = run("descriptor", "-", "--format", form)
    assert (ran.code, ran.err) == (0, "")
    assert str(WALLET.address()) in ran.out
    assert f"[deadbeef/352h/0h/0h/1h/0]{WALLET.scan_pubkey.hex()}" in ran.out
    assert WALLET.scan_text not in ran.out
    if form == "jsonl":
        assert json.loads(ran.out)["type"] == "sp"


@pytest.mark.parametrize(
    "command",
    [
        ("descriptor",),
        ("scan", os.devnull),
        ("watch",),
        ("match", os.devnull),
        ("privacy",),
        ("bloom", "create", "filter.bloom"),
    ],
)
@pytest.mark.parametrize("text", [WALLET.descriptor, WALLET.scan_text, f" sp(xprv1,{WALLET.spend_pubkey.hex()})"])
def test_an_argument_with_a_scan_key_is_refused(run: Any, command: tuple[str, ...], text: str) -> None:
    ran = run(*command, text)
    assert ran.code == 2
    assert ran.out == ""
    assert "an argument contains a silent payment key" in ran.err
    assert WALLET.scan_text not in ran.err


def test_a_private_spend_key_is_refused(run: Any, standard_input: Any) -> None:
    standard_input(f"sp({WALLET.scan_text.replace('spscan', 'spspend')})\n")
    ran = run("descriptor", "-")
    assert ran.code != 0
    assert "private spend key, which was not kept" in ran.err


def rows_of(out: str) -> list[tuple[str, str, int]]:
    return sorted((row["kind"], row["txid"], row["index"]) for row in map(json.loads, out.splitlines()))


@pytest.fixture
def watch_file(tmp_path: Path) -> Path:
    path = tmp_path / "wallet.txt"
    wallet = Wallet(network=REGTEST)
    path.write_text(f"{wallet.descriptor},savings\nsp-label:1,Alice\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_scan_of_files_finds_silent_payments(run: Any, tmp_path: Path, watch_file: Path, jobs: int) -> None:
    chain = SilentChain(Wallet(network=REGTEST))
    folder = chain.write(tmp_path / "blocks")
    options = ("--watch", watch_file, "--network", "regtest", "--format", "jsonl", "--jobs", jobs)
    ran = run("scan", folder, *options)
    assert ran.code == 0
    assert rows_of(ran.out) == sorted((str(kind), txid[::-1].hex(), n) for kind, txid, n, _ in chain.expected)
    assert "5 transactions searched for silent payments" in ran.err
    assert "warning" not in ran.err
    found = chain.write(tmp_path / "bare", has_undo=False)
    bare = run("scan", found, *options)
    assert bare.out == ""
    assert "warning: 5 of them may hide a silent payment" in bare.err
    for text in (ran.out, ran.err):
        assert Wallet(network=REGTEST).scan_text not in text


def test_labels_of_recovery_are_searched(run: Any, tmp_path: Path, watch_file: Path) -> None:
    folder = SilentChain(Wallet(network=REGTEST)).write(tmp_path / "blocks")
    options = ("--watch", watch_file, "--network", "regtest", "--format", "jsonl", "--quiet")
    found = {labels: len(run("scan", folder, *options, "--labels", labels).out.splitlines()) for labels in (0, 7, 8)}
    assert found == {0: 7, 7: 7, 8: 8}
    assert "not 100001" in run("scan", folder, *options, "--labels", 100_001).err


def test_a_scan_of_a_node_finds_silent_payments(run: Any, watch_file: Path) -> None:
    chain = SilentChain(Wallet(network=REGTEST))
    with chain.node().in_thread() as node:
        ran = run("scan", node.url, "--watch", watch_file, "--network", "regtest", "--format", "jsonl")
    assert ran.code == 0
    assert rows_of(ran.out) == sorted((str(kind), txid[::-1].hex(), n) for kind, txid, n, _ in chain.expected)
    assert "5 transactions searched for silent payments" in ran.err


def test_a_scan_into_a_directory_finds_silent_payments(run: Any, tmp_path: Path, watch_file: Path) -> None:
    chain = SilentChain(Wallet(network=REGTEST))
    folder, out = chain.write(tmp_path / "blocks"), tmp_path / "out"
    options = ("--watch", watch_file, "--network", "regtest", "--format", "jsonl", "--out", out)
    ran = run("scan", folder, *options)
    assert ran.code == 0
    rows = rows_of((out / "matches.jsonl").read_text(encoding="utf-8"))
    assert rows == sorted((str(kind), txid[::-1].hex(), n) for kind, txid, n, _ in chain.expected)
    assert "5 transactions searched for silent payments" in ran.err
    assert run("scan", folder, *options, "--labels", 8).code != 0


@pytest.mark.few(1)
@pytest.mark.parametrize("way", ["rest", "rpc"])
def test_a_node_without_spenttxouts_gives_details(
    run: Any, watch_file: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    chain = SilentChain(Wallet(network=REGTEST))
    monkeypatch.setenv("SPVFILTER_RPC_PASSWORD", PASSWORD)
    with chain.node().in_thread() as node:
        node.spent, node.rest = None, way == "rest"
        node.details = dict(zip(node.hashes, chain.spent, strict=True))
        options = ("--watch", watch_file, "--network", "regtest", "--format", "jsonl")
        ran = run("scan", node.url, *options, *(() if way == "rest" else ("--user", USER)))
    assert rows_of(ran.out) == sorted((str(kind), txid[::-1].hex(), n) for kind, txid, n, _ in chain.expected)
    assert ran.code == 0
    assert "warning" not in ran.err


def test_a_node_without_spent_outputs_is_scanned(run: Any, watch_file: Path) -> None:
    chain = SilentChain(Wallet(network=REGTEST))
    with chain.node().in_thread() as node:
        node.spent = None
        unknown = [[[None] * len(coins) for coins in spent] for spent in chain.spent]
        node.details = dict(zip(node.hashes, unknown, strict=True))
        ran = run("scan", node.url, "--watch", watch_file, "--network", "regtest", "--format", "jsonl")
    assert (ran.code, ran.out) == (0, "")
    assert "warning: 5 of them may hide a silent payment" in ran.err


@pytest.mark.parametrize("way", ["rest", "rpc"])
def test_payments_in_a_mempool_are_found(run: Any, watch_file: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    wallet = Wallet(network=REGTEST)
    paid, spent = payment([wallet.address(1)], kind="p2tr", inputs=17)
    parent = build.tx([build.TxIn(b"\7" * 32, 0)], [build.TxOut(each.value, each.script_pubkey) for each in spent[:1]])
    unknown, _ = payment([wallet.address()], kind="p2tr", salt=9)
    monkeypatch.setenv("SPVFILTER_RPC_PASSWORD", PASSWORD)
    with SilentChain(wallet).node().in_thread() as node:
        node.rest = way == "rest"
        coins = zip(spent_outpoints(paid), spent, strict=True)
        node.coins = {point: undo.Spent(each.value, each.script_pubkey) for point, each in coins}
        node.mempool = {build.txid(raw): raw for raw in (paid, unknown, parent)}
        options = ("--watch", watch_file, "--network", "regtest", "--format", "jsonl")
        ran = run("match", node.url, *options, *(() if way == "rest" else ("--user", USER)))
    (row,) = map(json.loads, ran.out.splitlines())
    assert (row["txid"], row["index"], row["label"]) == (build.txid(paid)[::-1].hex(), 0, "Alice")
    assert "warning: 1 of them may hide a silent payment" in ran.err


def test_a_parent_in_the_mempool_shows_its_outputs(run: Any, watch_file: Path) -> None:
    wallet = Wallet(network=REGTEST)
    parent, child = chained_payment(wallet.address(1))
    with SilentChain(wallet).node().in_thread() as node:
        node.mempool = {build.txid(raw): raw for raw in (child, parent)}
        ran = run("match", node.url, "--watch", watch_file, "--network", "regtest", "--format", "jsonl")
    (row,) = map(json.loads, ran.out.splitlines())
    assert (row["txid"], row["label"]) == (build.txid(child)[::-1].hex(), "Alice")
    assert "warning" not in ran.err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("watch", "--connect", "127.0.0.1:1"), "name your node with --node"),
        (("electrum", "--connect", "127.0.0.1:1", "--db", "wallet.db"), "name your node with --node"),
        (("privacy",), "filters cannot find payments to silent payment addresses"),
        (("filterload",), "filters cannot find payments to silent payment addresses"),
    ],
)
def test_commands_that_cannot_find_silent_payments_say_so(
    run: Any, watch_file: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(watch_file.parent)
    ran = run(*command, "--watch", watch_file, "--network", "regtest")
    assert ran.code == 2
    assert message in ran.err
    assert ran.out == ""
    assert not (watch_file.parent / "wallet.db").exists()


def test_a_wrong_network_is_named_without_the_key(run: Any, tmp_path: Path, watch_file: Path) -> None:
    folder = SilentChain(Wallet(network=REGTEST)).write(tmp_path / "blocks")
    ran = run("scan", folder, "--watch", watch_file, "--network", "mainnet")
    assert ran.code == 2
    assert "not for mainnet" in ran.err
    assert Wallet(network=REGTEST).scan_text not in ran.err


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["table", "jsonl", "csv"])
def test_coins_tell_the_label(run: Any, tmp_path: Path, form: str) -> None:
    path, world = tmp_path / "wallet.db", SilentWorld()
    (watch := watching()).add_sp_label(1, "Alice")
    world.send(REGTEST_WALLET.address(), REGTEST_WALLET.address(1), REGTEST_WALLET.address(0))
    world.regtest.mine()
    asyncio.run(follow(world, watch, path))
    shown = run("wallet", "coins", "--db", path, "--format", form).out
    if form == "jsonl":
        rows = {row["value"]: row for row in map(json.loads, shown.splitlines())}
        assert {value: row["sp_label"] for value, row in rows.items()} == {50_000: None, 50_001: 1, 50_002: 0}
        assert list(rows[50_000])[-1] == "sp_label"
    elif form == "csv":
        found = {row["value"]: row["sp_label"] for row in csv.DictReader(io.StringIO(shown))}
        assert found == {"50000": "", "50001": "1", "50002": "0"}
    else:
        head, *rows = shown.splitlines()
        assert head.endswith("sp label")
        assert sorted(row.split()[-1] for row in rows) == ["0", "1", "savings"]
    with WalletStore.open(path) as wallet:
        secrets = [
            REGTEST_WALLET.scan_text,
            *(coin.sp_tweak.hex() for coin in wallet.coins() if coin.sp_tweak is not None),
        ]
    assert len(secrets) == 4
    assert not [secret for secret in secrets if secret in shown]


async def follow(world: SilentWorld, watch: WatchList, path: Path) -> None:
    """Follow a world with a client until its tip."""
    async with (
        Node(world.regtest) as node,
        running(
            world, node, limits=LIMITS, store=path, mode="compact", watch=watch, spent_source=Source(world)
        ) as made,
    ):
        await made.synced(world)


async def watched(world: SilentWorld, folder: Path, *options: str) -> tuple[HttpTweakServer, bytes, bytes]:
    """Run `watch` with a tweak server in another process; returns the server and the output."""
    server, watch = HttpTweakServer(TweakServer(world).answer, world.regtest.height), folder / "watch.txt"
    watch.write_text(f"{REGTEST_WALLET.descriptor},savings\nsp-label:1,Alice\n", encoding="utf-8")
    async with server.serving(), Node(world.regtest) as node:
        ran = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "spvfilter", "watch", "--watch", watch, "--connect", f"127.0.0.1:{node.port}"),
            *("--tweaks", server.url, "--network", "regtest", "--format", "jsonl", "--once", *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await ran.communicate()
    return server, out, err


@pytest.mark.slow
def test_a_wallet_is_watched_by_a_tweak_server(tmp_path: Path) -> None:
    world = SilentWorld()
    world.send(REGTEST_WALLET.address(1))
    world.regtest.mine()
    server, out, err = asyncio.run(watched(world, tmp_path))
    lines = [json.loads(line) for line in out.splitlines()]
    assert [(line["value"], line["sp_label"], line["label"]) for line in lines if line["event"] == "found"] == [
        (50_000, 1, "Alice")
    ]
    (synced,) = (line for line in lines if line["event"] == "synced")
    assert synced["silent_source"] == server.url
    assert f"warning: {server.url} could hide silent payments" in err.decode()
    assert server.asked.count("/info") == 1
    assert REGTEST_WALLET.scan_text.encode() not in out + err


@pytest.mark.parametrize(("host", "is_refused"), [("oracle.example", True), ("10.0.0.1", True), ("127.0.0.1", False)])
def test_a_proxy_never_hides_a_tweak_server(run: Any, watch_file: Path, host: str, is_refused: bool) -> None:
    options = ("--tweaks", f"http://{host}:1", "--proxy", "socks5://127.0.0.1:1", "--once", "--timeout", "0.1")
    ran = run("watch", "--watch", watch_file, "--network", "regtest", "--connect", "127.0.0.1:1", *options)
    assert ("--proxy does not apply to --tweaks" in ran.err) is is_refused
    assert ("gave up: no usable node" in ran.err) is not is_refused


def test_a_node_and_a_tweak_server_exclude_each_other(run: Any, watch_file: Path) -> None:
    urls = ("--node", "http://127.0.0.1:1", "--tweaks", "http://127.0.0.1:2")
    ran = run("watch", "--watch", watch_file, "--network", "regtest", "--connect", "127.0.0.1:1", *urls)
    assert ran.code == 2
    assert "give either --node or --tweaks" in ran.err
