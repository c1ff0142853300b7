"""The programs in examples/ run unchanged: against a node, over block files, with Redis and DuckDB, under pytest."""

from __future__ import annotations

import dataclasses
import functools
import http.server
import json
import random
import re
import runpy
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spvfilter import LightClient, Node, WatchList
from spvfilter.address import address_to_script, script_to_address
from spvfilter.light import Metrics, status
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.primitives import TxOut, hash_to_hex
from spvfilter.testing import RegtestNode, eventually
from support.blocks import build
from support.peers.redisserver import running_redis

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
ACCOUNT = (
    "tpubDC2Qwo2TFsaNC4ju8nrUJ9mqVT3eSgdmy1yPqhgkjwmke3PRXutNGRYAUo6RCHTcVQaDR3ohNU9we59brGHuEKPvH1ags2nevW5opEE9Z5Q"
)
PATIENCE_S = 60.0


def address_of(number: int) -> str:
    return script_to_address(build.p2wpkh(random.Random(number).randbytes(20)), REGTEST) or ""


@pytest.fixture
def node() -> Iterator[RegtestNode]:
    made = RegtestNode()
    yield made
    made.close()


def command(program: str, *arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / program), *map(str, arguments)]


def run(folder: Path, program: str, *arguments: object) -> tuple[list[str], str]:
    """Run a program and return its lines on standard output, and its standard error."""
    done = subprocess.run(command(program, *arguments), capture_output=True, text=True, cwd=folder, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@contextmanager
def running(folder: Path, program: str, *arguments: object) -> Iterator[Iterator[str]]:
    """Start a program and yield its lines as they come. A line that comes too late ends the program and the test."""
    with (folder / "errors").open("w+") as errors:
        process = subprocess.Popen(
            command(program, *arguments), stdout=subprocess.PIPE, stderr=errors, text=True, cwd=folder
        )
        timer = threading.Timer(PATIENCE_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout:
                yield (line.rstrip("\n") for line in process.stdout)
            assert process.wait() == 0, (folder / "errors").read_text()
        finally:
            timer.cancel()
            process.kill()
            process.wait()


def write_blocks(regtest: Regtest, folder: Path) -> Path:
    """Write the best chain as a block file of Bitcoin Core, and return the folder."""
    folder.mkdir()
    raws = [block.raw for block in regtest.chain.active]
    (folder / "blk00000.dat").write_bytes(
        b"".join(REGTEST.magic + len(raw).to_bytes(4, "little") + raw for raw in raws)
    )
    return folder


def pay(regtest: Regtest, *payments: tuple[str, int]) -> bytes:
    return regtest.pay(*(TxOut(value, address_to_script(address, REGTEST)) for address, value in payments))


def test_seven_programs_are_short() -> None:
    programs = "crawler.py deposits.py merchant.py monitoring.py reuse.py test_app.py watch_only.py"
    assert programs.split() == PROGRAMS
    for name in PROGRAMS:
        longest = 422 if name == "merchant.py" else 100
        assert 30 <= len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= longest


@pytest.mark.slow
@pytest.mark.columns
def test_the_notebook_prints_the_outputs_that_it_shows(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "export.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) == 4
    between = "-- next cell --"
    script = tmp_path / "notebook.py"
    script.write_text(f"\nprint({between!r})\n".join("".join(cell["source"]) for cell in cells), encoding="utf-8")
    words = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    shown = ["".join(output["text"]) for cell in cells for output in cell["outputs"]]
    assert done.stdout.split(f"{between}\n") == shown


@pytest.mark.long
@pytest.mark.descriptors
def test_merchant_gives_an_address_and_tells_the_payment(
    tmp_path: Path, node: RegtestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of each situation are in test_merchant.py."""
    monkeypatch.setenv("MERCHANT_SECRET", "key of the webhooks")
    with receiving() as (url, bodies):
        words = command("merchant.py", "serve", "--account", f"cafe=wpkh({ACCOUNT}/0/*)", "--peer", node.address)
        words += ["--webhook", url, "--network", "regtest", "--confirmations", "1"]
        with (tmp_path / "errors").open("w") as errors:
            process = subprocess.Popen(words, cwd=tmp_path, stderr=errors)
        try:
            invoice = ("merchant.py", "invoice", "order-17", "cafe")
            (line,), _ = run(tmp_path, *invoice, 25_000)
            found = re.fullmatch(r"bitcoin:(bcrt1\w+)\?amount=0\.00025000", line)
            assert found, line
            assert run(tmp_path, *invoice, 25_000)[0] == [line]  # the caller may repeat the command
            again = subprocess.run(command(*invoice, "9"), capture_output=True, text=True, cwd=tmp_path)
            assert (again.returncode, again.stderr.split(":")[0]) == (
                1,
                "invoice order-17 exists with a different account or amount",
            )
            node.pay(found[1], 25_000)
            node.mine()
            eventually(lambda: bodies and bodies[-1]["state"] == "paid", seconds=PATIENCE_S)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.wait()
    names = ("id", "account", "amount", "received", "settled")
    assert {tuple(body[name] for name in names[:3]) for body in bodies} == {("order-17", "cafe", 25_000)}
    assert [bodies[-1][name] for name in names] == ["order-17", "cafe", 25_000, 25_000, 25_000]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("invoice", "a", "cafe", "0"), "CHECK constraint failed: amount"),
        (("invoice", "", "cafe", "1"), "CHECK constraint failed: length"),
        (("serve", "--account", "a=b", "--peer", "::1", "--webhook", "shop.example/"), "--webhook"),
        (("invoice", "a", "cafe", "1", "--folder", "missing"), "unable to open database file"),
        (("serve", "--account", "a=b", "--peer", "::1", "--webhook", "http://shop.example/"), "set MERCHANT_SECRET"),
        (("serve", "--account", "b", "--peer", "::1", "--webhook", "http://shop.example/"), "expected NAME=DESCRIPTOR"),
        (("serve", "--network", "regtst"), "invalid choice: 'regtst' (choose from "),
    ],
)
def test_merchant_refuses_wrong_arguments(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = subprocess.run(command("merchant.py", *arguments), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def receiving() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Receive webhooks, and yield the URL and the bodies."""
    bodies: list[dict[str, object]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/paid", bodies
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.slow
@pytest.mark.descriptors
def test_watch_only_wallet_shows_balance_coins_and_history(tmp_path: Path, node: RegtestNode) -> None:
    arguments = (f"wpkh({ACCOUNT}/<0;1>/*)", "--network", "regtest", "--peer", node.address)
    lines, _ = run(tmp_path, "watch_only.py", *arguments)
    assert lines[-3].startswith("block 101: +0.00000000 BTC")
    address = lines[-1].removeprefix("next address: ")
    txid = node.pay(address, 70_000)
    node.mine(2)
    lines, _ = run(tmp_path, "watch_only.py", *arguments)
    shown = lines[-5:]
    assert shown[0] == "block 103: +0.00070000 BTC, +0.00070000 BTC of it to spend now"
    assert shown[1].endswith(f"{hash_to_hex(txid)}:0  {address}  (index 0, 1 peer)")
    assert shown[2] == "latest transactions, at most 20:"
    assert shown[3] == f"  +0.00070000 BTC  {hash_to_hex(txid)}  confirmed, 2 confirmations"
    assert shown[4].startswith("next address: bcrt1")
    assert not shown[4].endswith(address)


@pytest.mark.descriptors
async def test_watch_only_wallet_keeps_unconfirmed_payments_apart(capsys: pytest.CaptureFixture[str]) -> None:
    show = runpy.run_path(str(EXAMPLES / "watch_only.py"))["show"]
    async with Node() as node:
        node.regtest.mine(101)
        watch = WatchList.from_addresses([address_of(1)], REGTEST)
        watch.add_descriptor(f"wpkh({ACCOUNT}/0/*)")
        async with LightClient(watch, peers=[f"{node.host}:{node.port}"]) as client:
            pay(node.regtest, (address_of(1), 70_000))
            node.regtest.mine()
            await client.wait_synced()
            events = client.events(since=await client.sequence())
            pay(node.regtest, (address_of(1), 5_000))
            while (await client.balance()).pending_in != 5_000:
                await anext(events)
            await show(client)
    lines = capsys.readouterr().out.splitlines()
    assert "block 102: +0.00070000 BTC, +0.00070000 BTC of it to spend now" in lines
    assert "unconfirmed, not money yet: +0.00005000 BTC" in lines
    assert any(line.endswith("(index None, unconfirmed)") for line in lines)


@pytest.mark.slow
def test_monitoring_serves_every_metric(tmp_path: Path, node: RegtestNode) -> None:
    pytest.importorskip("prometheus_client", reason="the package prometheus-client is not installed")
    node.mine(5)
    arguments = (address_of(1), "--network", "regtest", "--peer", node.address, "--port", 0)
    process = subprocess.Popen(
        command("monitoring.py", *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    timer = threading.Timer(PATIENCE_S, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        lines = iter(process.stdout)
        url = next(lines).strip()
        assert "Synced" in (line.strip() for line in lines)
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            page = answer.read().decode()
        process.send_signal(signal.SIGINT)
        said, errors = process.communicate()
    finally:
        timer.cancel()
        process.kill()
    assert (process.returncode, said, errors) == (0, "stopped\n", "")
    samples = dict(line.split() for line in page.splitlines() if not line.startswith("#"))
    names = {name.removeprefix("spvfilter_").removesuffix("_total") for name in samples}
    assert names == {field.name for field in dataclasses.fields(Metrics)}
    counters = {name.removeprefix("spvfilter_").removesuffix("_total") for name in samples if name.endswith("_total")}
    hints = Path(status.__file__).read_text(encoding="utf-8")
    described = re.findall(r"^    (\w+): .*\n    \"\"\"(Counter|Gauge): ", hints, re.MULTILINE)
    assert counters == {name for name, kind in described if kind == "Counter"}
    assert float(samples["spvfilter_is_synced"]) == 1
    assert float(samples["spvfilter_tip_height"]) >= 5
    assert float(samples["spvfilter_headers_received_total"]) >= 5


def test_deposits_up_to_a_height_are_listed_once(tmp_path: Path) -> None:
    regtest = Regtest()
    regtest.mine(101)
    anna, bert = address_of(1), address_of(2)
    first = pay(regtest, (anna, 5_000), (bert, 600))
    regtest.mine()
    second = pay(regtest, (anna, 70), (address_of(3), 8))
    regtest.mine()
    pay(regtest, (anna, 9_000))
    regtest.mine()
    (tmp_path / "customers.csv").write_text(f"{anna},Anna\n{bert},Bert\n\n")
    lines, said = run(
        tmp_path,
        "deposits.py",
        write_blocks(regtest, tmp_path / "blocks"),
        "customers.csv",
        "--until",
        103,
        "--network",
        "regtest",
    )
    assert sorted(lines[1:]) == sorted(
        [
            f"{hash_to_hex(first)}:0,Anna,5000,102",
            f"{hash_to_hex(first)}:1,Bert,600,102",
            f"{hash_to_hex(second)}:0,Anna,70,103",
        ]
    )
    assert said == "Anna: 5070 satoshi\nBert: 600 satoshi\n"


def test_deposits_are_not_credited_to_one_of_two_customers(tmp_path: Path) -> None:
    anna = address_of(1)
    for lines in (f"{anna},Anna\n{anna.upper()},Bert\n", f"{anna},\n", f"{anna}, \n"):
        (tmp_path / "customers.csv").write_text(lines)
        words = command("deposits.py", "blocks", "customers.csv", "--until", 3, "--network", "regtest")
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
        assert (done.returncode, done.stdout) == (2, "")
        assert "must have one line, with one customer" in done.stderr


def test_deposits_of_a_damaged_file_are_incomplete(tmp_path: Path) -> None:
    regtest = Regtest()
    regtest.mine(3)
    path = write_blocks(regtest, tmp_path / "blocks") / "blk00000.dat"
    path.write_bytes(path.read_bytes()[:-9])
    (tmp_path / "customers.csv").write_text(f"{address_of(1)},Anna\n")
    words = command("deposits.py", "blocks", "customers.csv", "--until", 3, "--network", "regtest")
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert done.stderr.startswith("incomplete, do not close the books: ")


@pytest.mark.slow
@pytest.mark.columns
def test_addresses_paid_in_several_transactions_are_reused(tmp_path: Path) -> None:
    regtest = Regtest()
    regtest.mine(101)
    often, once, never = address_of(1), address_of(2), address_of(3)
    for value in (500, 600, 500):
        pay(regtest, (often, value))
        regtest.mine()
    pay(regtest, (once, 1_000), (once, 2_000))
    regtest.mine()
    (tmp_path / "list.txt").write_text(f"{often}\n{once}\n{never}\n")
    arguments = (write_blocks(regtest, tmp_path / "blocks"), "list.txt", "found", "--network", "regtest", "--jobs", 1)
    for _ in range(2):  # the second run finds the result of the first scan
        lines, _ = run(tmp_path, "reuse.py", *arguments)
        assert lines == [
            "1 of 2 addresses were paid more than once",
            f"{often}: 3 payments of 2 different amounts, 1600 satoshi in 0 days",
        ]


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing: a missing page is part of the test."""


@contextmanager
def site(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, and yield the URL."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.slow
@pytest.mark.redis
def test_crawler_fetches_each_page_once(tmp_path: Path) -> None:
    pages = tmp_path / "site"
    pages.mkdir()
    names = [f"page{number}.html" for number in range(10)]
    for number, name in enumerate(names):
        links = [names[(number * 3 + step) % 10] for step in (1, 2)] + [
            "https://elsewhere.example/",
            "missing.html#top",
        ]
        (pages / name).write_text("".join(f'<a href="{link}">x</a>' for link in links))
    with site(pages) as url, running_redis(tmp_path, tcp=True) as server:
        lines, _ = run(tmp_path, "crawler.py", f"{url}{names[0]}", "--redis", server.url)
        assert sorted(lines[:-1]) == sorted(
            [*(url + name for name in names), f"{url}missing.html: HTTP Error 404: File not found"]
        )
        assert lines[-1] == "10 pages"
        again, _ = run(tmp_path, "crawler.py", f"{url}{names[0]}", "--redis", server.url)
        assert again == ["0 pages"]


@pytest.mark.slow
def test_app_tests_pass_without_this_repository_s_plugins() -> None:
    """The command of the documentation, in the checkout, as if pytest-asyncio were not installed."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider", "examples/test_app.py"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=EXAMPLES.parent, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_each_program_says_how_to_start_it() -> None:
    for name in PROGRAMS:
        start = (EXAMPLES / name).read_text(encoding="utf-8").split('"""')[1].splitlines()[2]
        assert start.split()[:2] in (["python", name], ["pytest", name])
