"""`match`: transactions from every source, a watch list or a filter, and one message for each input error."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.match import sources
from spvfilter.cli.term.logs import UnrepeatedMessages, handled_by
from spvfilter.errors import remedy
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.network import REGTEST
from spvfilter.node import Node, Regtest
from spvfilter.primitives import TxOut as PaidOut
from spvfilter.wire.codec import encode_message
from support.blocks.build import GENESIS, TxIn, TxOut, block_of, tx, txid
from support.blocks.nodechains import ADDRESS, MINE
from support.commands.csvrows import csv_names
from support.commands.processes import WITH_SIGINT, command, environment, on_terminal, process
from support.peers.corenode import PASSWORD, USER, CoreNode
from support.peers.publisher import Publisher

WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"  # of the private key 1
PATIENCE_S = 60.0
WATCHED = ("--address", ADDRESS, "--network", "regtest")
PAYMENTS = [tx([TxIn(bytes([number]) * 32, 0)], [TxOut(number, MINE)]) for number in (1, 2, 3)]
OTHER = tx([TxIn(bytes([9]) * 32, 0)], [TxOut(5, b"\x51")])
SPEND = tx([TxIn(txid(PAYMENTS[0]), 0)], [TxOut(1, b"\x51")])


def shown(raw: bytes) -> str:
    return txid(raw)[::-1].hex()


def found(out: str) -> list[tuple[str, str, int]]:
    """Kind, txid and value of each JSON line."""
    return [(row["kind"], row["txid"], row["value"]) for row in map(json.loads, out.splitlines())]


def payment(number: int) -> tuple[str, str, int]:
    return "output", shown(PAYMENTS[number]), number + 1


def lines_of(*raws: bytes) -> str:
    return "".join(f"{raw.hex()}\n" for raw in raws)


# Arguments, files and standard input


def test_transaction_in_an_argument_is_matched(run: Any) -> None:
    ran = run("match", PAYMENTS[0].hex(), *WATCHED)
    assert (ran.code, found(ran.out)) == (0, [payment(0)])
    assert ran.err.startswith("spvfilter: 1 transaction, 0.1 kB in ")
    assert ran.err.endswith(": 1 match\n")
    row = json.loads(ran.out)
    assert (row["address"], row["block_hash"], row["height"], row["outpoint_index"]) == (ADDRESS, None, None, 0)
    assert run("match", f"0x{PAYMENTS[0].hex()}", *WATCHED).out == ran.out


def test_nothing_found_is_exit_code_0(run: Any) -> None:
    ran = run("match", OTHER.hex(), *WATCHED)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.endswith(": nothing found\n")
    assert run("match", OTHER.hex(), *WATCHED, "--quiet") == (0, "", "")


def test_spend_before_its_parent_is_found(run: Any, tmp_path: Path, watch_file: Path) -> None:
    (tmp_path / "txs.hex").write_text(lines_of(SPEND, OTHER, *PAYMENTS))
    watch_file.write_text(f"{ADDRESS},shop\n")
    ran = run("match", tmp_path / "txs.hex", "--watch", watch_file, "--network", "regtest")
    assert ran.code == 0
    assert found(ran.out) == [payment(0), ("input", shown(SPEND), 1), payment(1), payment(2)]
    assert {json.loads(line)["label"] for line in ran.out.splitlines()} == {"shop"}


@pytest.mark.parametrize("form", ["hex", "json", "bytes"])
def test_file_of_every_form_is_read(run: Any, tmp_path: Path, form: str) -> None:
    path = tmp_path / "tx"
    forms = {
        "hex": PAYMENTS[0].hex().encode(),
        "json": json.dumps({"rawtx": PAYMENTS[0].hex()}).encode(),
        "bytes": PAYMENTS[0],
    }
    path.write_bytes(forms[form])
    ran = run("match", path, *WATCHED)
    assert (ran.code, found(ran.out)) == (0, [payment(0)])


def test_bad_line_is_named_and_skipped(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "txs"
    path.write_text(f"{lines_of(PAYMENTS[0])}{WIF}\n{PAYMENTS[1].hex()[:-2]}\n{lines_of(PAYMENTS[2])}")
    ran = run("match", path, *WATCHED)
    assert (ran.code, found(ran.out)) == (1, [payment(0), payment(2)])
    first, second, summary = ran.err.splitlines()
    assert first == f"spvfilter: {path}: line 2: character 1 is not a hex digit"
    assert second.startswith(f"spvfilter: {path}: line 3: not a transaction: ")
    assert summary.startswith("spvfilter: 2 transactions, ")


def test_transaction_of_two_sources_is_printed_once(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "txs"
    path.write_text(lines_of(*PAYMENTS, PAYMENTS[0]))
    ran = run("match", path, PAYMENTS[1].hex(), *WATCHED)
    assert ran.code == 0
    assert sorted(found(ran.out)) == sorted(map(payment, range(3)))
    assert "5 transactions" in ran.err


def test_standard_input_is_read_to_its_end() -> None:
    ran = process("match", "-", *WATCHED, stdin=lines_of(OTHER, *PAYMENTS).encode())
    assert (ran.returncode, found(ran.stdout.decode())) == (0, list(map(payment, range(3))))
    ran = process("match", "-", *WATCHED, shell="<&-")
    assert (ran.returncode, ran.stderr.decode().splitlines()[-1]) == (2, "spvfilter: standard input is closed")


def test_table_on_a_terminal_fits() -> None:
    code, screen = on_terminal("match", PAYMENTS[0].hex(), *WATCHED)
    assert code == 0
    head, row, summary = [line for line in screen.splitlines() if line]
    assert "txid:n" in head
    assert "received" in row
    assert "+0.00000001" in row
    assert summary.endswith("1 match")
    assert max(len(re.sub(r"\x1b\[\d*m", "", each)) for each in screen.splitlines()) <= 80


def test_csv_has_the_columns_of_json(run: Any) -> None:
    ran = run("match", PAYMENTS[0].hex(), *WATCHED, "--format", "csv", "--quiet")
    row = json.loads(run("match", PAYMENTS[0].hex(), *WATCHED).out)
    head, line = ran.out.splitlines()
    assert head.split(",") == csv_names(row)
    assert line.split(",")[0] == "output"
    assert (line.split(",")[-1], row["first_seen"]) == ("", None)


def test_the_first_arrival_of_a_transaction_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_ARRIVALS", 2)
    clock = iter([10.9, 11.0, 12.0, 13.0])
    arrivals = sources.Arrivals(lambda: next(clock))
    for raw in (SPEND, OTHER, SPEND):
        arrivals.note(bytes(bytearray(raw)))
    assert [arrivals.time_of(raw) for raw in (SPEND, OTHER, PAYMENTS[0])] == [10, 11, None]
    arrivals.note(PAYMENTS[0])
    assert [arrivals.time_of(raw) for raw in (SPEND, OTHER, PAYMENTS[0])] == [None, 11, 13]


@pytest.mark.slow
async def test_rows_of_a_node_say_when_they_were_first_seen(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/zmq"
    begun = int(time.time())
    with Publisher(address, topics=1) as publisher:
        async with matching(address) as child:
            assert child.stdout is not None
            await publisher.subscribed()
            for raw in (SPEND, PAYMENTS[0]):
                await publisher.send("rawtx", raw)
            rows = [json.loads(await child.stdout.readline()) for _ in range(2)]
            await interrupted(child)
    assert [row["kind"] for row in rows] == ["output", "input"]
    assert all(begun <= row["first_seen"] <= time.time() for row in rows)


# A filter


def loaded() -> Bip37Filter:
    made = Bip37Filter(10, 0.000001, 5)
    made.insert(MINE[2:])
    return made


@pytest.mark.parametrize("form", ["argument", "hex", "message", "jsonl", "raw", "stdin"])
def test_filter_of_every_form_finds_what_a_node_sends(
    run: Any, tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload, path = bytes(loaded()), tmp_path / "filter"
    forms = {
        "hex": f"{payload.hex()}\n".encode(),
        "message": encode_message(REGTEST.magic, "filterload", payload).hex().encode(),
        "jsonl": json.dumps({"payload": payload.hex(), "size": 5}).encode(),
        "raw": payload,
        "stdin": b"",
    }
    path.write_bytes(forms.get(form, b""))
    what = {"argument": payload.hex(), "stdin": "-"}.get(form, path)
    if form == "stdin":
        ran = process("match", OTHER.hex(), SPEND.hex(), "--filter", "-", stdin=payload.hex().encode())
        assert (ran.returncode, ran.stdout) == (0, b"")
        return
    (tmp_path / "txs").write_text(lines_of(SPEND, OTHER, PAYMENTS[0], SPEND, PAYMENTS[0]))
    ran = run("match", tmp_path / "txs", "--filter", what)
    assert ran.code == 0
    assert list(map(json.loads, ran.out.splitlines())) == [
        {"txid": shown(raw), "size": len(raw), "raw": raw.hex()} for raw in (PAYMENTS[0], SPEND)
    ]
    assert ran.err.endswith("2 transactions to send\n")


def test_filter_in_a_table_and_in_csv(run: Any) -> None:
    argv = ("match", PAYMENTS[0].hex(), "--filter", bytes(loaded()).hex(), "--quiet")
    head, row = run(*argv, "--format", "table").out.splitlines()
    assert (head.split(), row.split()) == (["txid", "bytes"], [shown(PAYMENTS[0]), str(len(PAYMENTS[0]))])
    ran = run(*argv, "--format", "csv")
    assert ran.out == f"txid,size,raw\n{shown(PAYMENTS[0])},{len(PAYMENTS[0])},{PAYMENTS[0].hex()}\n"


# A node's mempool


@pytest.fixture
def core() -> Iterator[CoreNode]:
    regtest = Regtest()
    core = CoreNode([block.raw for block in regtest.chain.active])
    core.mempool = {txid(raw): raw for raw in (SPEND, *PAYMENTS, OTHER)}
    with core.in_thread() as node:
        yield node


@pytest.mark.few(2)
@pytest.mark.parametrize("way", ["rest", "cookie", "user"])
def test_mempool_of_a_node_is_matched(
    run: Any, core: CoreNode, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.rest = way == "rest"
    options: tuple[object, ...] = ()
    if way == "cookie":
        (tmp_path / ".cookie").write_text(core.secret)
        options = ("--cookie", tmp_path / ".cookie")
    elif way == "user":
        monkeypatch.setenv("SPVFILTER_RPC_PASSWORD", PASSWORD)
        options = ("--user", USER)
    ran = run("match", core.url, *options, *WATCHED)
    assert ran.code == 0
    assert sorted(found(ran.out)) == sorted([("input", shown(SPEND), 1), *map(payment, range(3))])


def test_node_without_credentials_is_an_error(run: Any, core: CoreNode) -> None:
    core.rest = False
    ran = run("match", core.url, *WATCHED, "--quiet")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert core.url in ran.err
    ran = run("match", "http://127.0.0.1:1", PAYMENTS[0].hex(), *WATCHED)
    assert ran.code == 2
    assert "no connection" in ran.err


def test_node_of_another_network_is_an_error(run: Any, core: CoreNode) -> None:
    ran = run("match", core.url, "--address", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", "--quiet")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "a node of regtest" in ran.err or "not that of mainnet" in ran.err


# Endless sources, in a process of its own


@asynccontextmanager
async def matching(*argv: object, code: str = WITH_SIGINT) -> AsyncIterator[asyncio.subprocess.Process]:
    child = await asyncio.create_subprocess_exec(
        *command("match", *argv, *WATCHED, code=code),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.PIPE,
        env=environment(),
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def line(child: asyncio.subprocess.Process) -> tuple[str, str, int]:
    assert child.stdout is not None
    (each,) = found((await child.stdout.readline()).decode())
    return each


async def interrupted(child: asyncio.subprocess.Process, number: int = signal.SIGINT) -> list[str]:
    """The lines of standard error after a signal."""
    child.send_signal(number)
    _, errors = await child.communicate()
    assert child.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[signal.Signals(number)]
    return errors.decode().splitlines()


@pytest.mark.slow
async def test_match_on_a_pipe_is_printed_at_once() -> None:
    async with matching("-") as child:
        assert child.stdin is not None
        for number in range(3):
            child.stdin.write(lines_of(OTHER, PAYMENTS[number]).encode())
            assert await line(child) == payment(number)
        (summary, last) = await interrupted(child)
        assert "6 transactions" in summary
        assert last == "spvfilter: interrupted"


@pytest.mark.slow
async def test_published_transactions_are_matched_and_gaps_are_reported(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/zmq"
    with Publisher(address, topics=1) as publisher:
        async with matching(address) as child:
            await publisher.subscribed()
            await publisher.send("rawtx", OTHER)
            await publisher.send("rawtx", PAYMENTS[0])
            assert await line(child) == payment(0)
            await publisher.send("rawtx", PAYMENTS[0])  # a block contains it
            publisher.lose("rawtx", 2)
            await publisher.send("rawtx", b"junk")
            await publisher.send("rawtx", PAYMENTS[1])
            assert await line(child) == payment(1)
            publisher.counters["rawtx"] = 0
            await publisher.send("rawtx", SPEND)
            assert await line(child) == ("input", shown(SPEND), 1)
            _, gap, junk, restart, summary, last = await interrupted(child, signal.SIGTERM)
    assert gap == f"spvfilter: {address}: missed 2 published transactions"
    assert junk.startswith(f"spvfilter: {address}: not a transaction: ")
    assert restart == f"spvfilter: {address}: the node was restarted, so published transactions may be missing"
    assert "5 transactions" in summary
    assert last == "spvfilter: terminated"


async def test_silent_publisher_is_reported(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/zmq"
    code = f"import spvfilter.cli.match.sources as s; s._SILENCE_S = 0.2; {WITH_SIGINT}"
    async with matching(address, code=code) as child:
        assert child.stderr is not None
        waiting, told = [(await child.stderr.readline()).decode() for _ in range(2)]
        assert waiting == f"spvfilter: waiting for transactions from {address}; press Ctrl-C to stop\n"
        assert told.startswith(
            f"spvfilter: {address}: no transaction yet. The node must be running with -zmqpubrawtx={address}"
        )


@pytest.mark.slow
async def test_stream_goes_on_after_the_mempool(core: CoreNode, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/zmq"
    core.mempool = {txid(PAYMENTS[0]): PAYMENTS[0]}
    with Publisher(address, topics=1) as publisher:
        async with matching(core.url, address) as child:
            await publisher.subscribed()
            assert await line(child) == payment(0)
            await publisher.send("rawtx", PAYMENTS[0])
            await publisher.send("rawtx", SPEND)
            assert await line(child) == ("input", shown(SPEND), 1)
            await interrupted(child)


@pytest.mark.slow
async def test_mempool_is_followed_without_zmq(core: CoreNode) -> None:
    core.mempool = {txid(PAYMENTS[0]): PAYMENTS[0]}
    code = f"import spvfilter.cli.match.sources as s; s._POLL_S = 0.05; {WITH_SIGINT}"
    async with matching(core.url, "--follow", code=code) as child:
        assert await line(child) == payment(0)
        core.mempool[txid(PAYMENTS[1])] = PAYMENTS[1]
        assert await line(child) == payment(1)
        waiting, summary, _ = await interrupted(child)
        assert waiting == f"spvfilter: waiting for transactions from {core.url}; press Ctrl-C to stop"
        assert "2 transactions" in summary


@pytest.mark.slow
async def test_relayed_transactions_are_matched() -> None:
    regtest = Regtest()
    regtest.mine(120)
    async with Node(regtest) as node, matching(f"p2p://{node.host}:{node.port}", "p2p://127.0.0.1:1") as child:
        while not any(each.session.ready and each.relay for each in node.responders):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for value in (50_000, 60_000):
            id_ = await asyncio.to_thread(regtest.pay, PaidOut(value, MINE))
            assert await line(child) == ("output", id_[::-1].hex(), value)
        errors = await interrupted(child)
    assert f"spvfilter: {node.host}:{node.port}: connected" in errors
    refused = [each for each in errors if each.startswith("spvfilter: 127.0.0.1:1: ")]
    assert len(refused) == 1  # later attempts are not told
    assert refused[0] == "spvfilter: 127.0.0.1:1: connection refused; reconnecting in 1 s"


# Errors


def test_each_wrong_argument_has_its_message(refused: Any) -> None:
    Path("empty").write_bytes(b"\n")
    Path("large").write_bytes(b"0" * 200_001)
    Path("blk").write_bytes(REGTEST.magic + bytes(100))
    a_tx, watched = PAYMENTS[0].hex(), " ".join(WATCHED)
    for ran in refused(f"""
        match
        match --address {ADDRESS} x
        match {a_tx}
        match zz {watched}
        match {WIF} {watched}
        match 123 {watched}
        match 00 {watched}
        match {block_of(GENESIS, 5, [OTHER]).hex()} {watched}
        match {shown(PAYMENTS[0])} {watched}
        match - - {watched}
        match - --watch -
        match - --filter -
        match ftp://x {watched}
        match tcp://x {watched}
        match http://alice:geheim@127.0.0.1 {watched}
        match http://127.0.0.1/geheim {watched}
        match p2p://{WIF} {watched}
        match p2p://127.0.0.1:0 {watched}
        match {a_tx} --follow {watched}
        match {a_tx} --cookie x {watched}
        match {a_tx} --user x {watched}
        match {a_tx} --proxy socks5://127.0.0.1:1 {watched}
        match {a_tx} --filter 00 --address {ADDRESS}
        match {a_tx} --filter zz
        match {a_tx} --filter {WIF}
        match {a_tx} --filter 00
        match {a_tx} --filter empty
        match {a_tx} --filter large
        match http://127.0.0.1:1 --cookie x --user y {watched}
        match http://a:1 http://b:1 --cookie x {watched}
        match {a_tx} --watch empty
        match blk {watched} --quiet
        match {a_tx} --address {WIF}
    """):
        assert not any(secret in ran.err for secret in (WIF[:10], "geheim"))


@pytest.mark.parametrize(
    ("module", "source", "extra"), [("zmq", "tcp://127.0.0.1:1", "zmq"), ("httpx", "http://127.0.0.1:1", "rpc")]
)
def test_the_missing_extra_is_named(
    run: Any, module: str, source: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    ran = run("match", source, *WATCHED, "--quiet")
    assert (ran.code, ran.out) == (2, "")
    assert remedy(extra) in ran.err


def test_scan_says_that_match_takes_transactions(run: Any, tmp_path: Path) -> None:
    said = "a transaction, not a block: `spvfilter match` and Matcher.match_txs take transactions"
    for number, data in enumerate((lines_of(*PAYMENTS).encode(), PAYMENTS[0])):
        path = tmp_path / f"txs{number}"
        path.write_bytes(data)
        ran = run("scan", path, *WATCHED)
        assert (ran.code, ran.err.splitlines()[0]) == (2, f"spvfilter: {path}: {said}")
        done = process("scan", "-", *WATCHED, stdin=data)
        assert (done.returncode, said in done.stderr.decode()) == (2, True)


async def test_error_of_one_source_ends_all() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.001)
            yield b"0"

    async def failing() -> AsyncIterator[bytes]:
        yield b"1"
        raise OSError("the disk")

    seen = set()
    with pytest.raises(OSError, match="the disk"):
        async for raw in sources.merged([endless(), failing()]):  # type: ignore[list-item]
            seen.add(raw)
    assert seen >= {b"1"}
    assert len(asyncio.all_tasks()) == 1


def test_messages_of_a_peer_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    with handled_by("spvfilter.p2p.relayed", UnrepeatedMessages()):
        log = logging.getLogger("spvfilter.p2p.relayed")
        for pause in (1, 2, 4):
            log.info("%s: %s; reconnecting in %g s", "a:1", "refused", pause)
        log.info("%s: connected", "a:1")
        log.info("%s: %s; reconnecting in %g s", "a:1", "refused", 1)
    assert capsys.readouterr().err.splitlines() == [
        "spvfilter: a:1: refused; reconnecting in 1 s",
        "spvfilter: a:1: connected",
        "spvfilter: a:1: refused; reconnecting in 1 s",
    ]
