"""`scan` of a node: rows, refused options, the summary, and rows of disconnected blocks."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from spvfilter.errors import remedy
from spvfilter.primitives import TxOut
from support.blocks.nodechains import ADDRESS, MINE, chain_of, paid_chain, paid_regtest, told
from support.commands.processes import WITH_SIGINT, command, environment
from support.peers.corenode import PASSWORD, USER, CoreNode

WATCHED = ("--address", ADDRESS, "--network", "regtest")


@pytest.fixture
def core() -> Iterator[CoreNode]:
    with paid_chain().node().in_thread() as node:
        yield node


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["jsonl", "csv", "table"])
@pytest.mark.parametrize("way", ["rest", "cookie", "user"])
def test_the_rows_are_those_of_the_same_blocks_in_files(
    core: CoreNode, run: Callable[..., Any], tmp_path: Path, form: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    core.rest = way == "rest"
    options: tuple[object, ...] = ()
    if way == "cookie":
        (tmp_path / ".cookie").write_text(core.secret)
        options = ("--cookie", tmp_path / ".cookie")
    elif way == "user":
        monkeypatch.setenv("SPVFILTER_RPC_PASSWORD", PASSWORD)
        options = ("--user", USER)
    (tmp_path / "blocks").mkdir()
    files = run("scan", paid_chain().files(tmp_path / "blocks", undo=way == "rest"), *WATCHED, "--format", form)
    ran = run("scan", core.url, *options, *WATCHED, "--format", form)
    assert (ran.code, ran.out) == (0, files.out)
    assert len(ran.out.splitlines()) >= 12
    assert "113 blocks" in ran.err or "114 blocks" in ran.err
    assert "up to height 113: 12 matches" in ran.err


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "span",
    [
        ("--from-height", 104),
        ("--to-height", 105),
        ("--from-height", 105, "--to-height", 106),
        ("--from-date", "2023-11-15"),
    ],
)
def test_a_range_has_the_rows_of_files(
    core: CoreNode, run: Callable[..., Any], tmp_path: Path, span: tuple[object, ...]
) -> None:
    files = run("scan", paid_chain().files(tmp_path), *WATCHED, "--format", "jsonl", *span)
    ran = run("scan", core.url, *WATCHED, "--format", "jsonl", *span)
    assert (ran.code, ran.out) == (files.code, files.out)


@pytest.mark.slow
def test_output_goes_to_a_file_and_quiet_says_nothing(core: CoreNode, run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("scan", core.url, *WATCHED, "--format", "jsonl", "--output", tmp_path / "out.jsonl", "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 12


def test_the_totals_are_those_of_the_same_files(core: CoreNode, run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "blocks").mkdir()
    for path, name in ((paid_chain().files(tmp_path / "blocks"), "files.csv"), (core.url, "node.csv")):
        ran = run("scan", path, *WATCHED, "--format", "table", "--totals", tmp_path / name)
        assert ran.code == 0
        (total,) = csv.DictReader((tmp_path / name).read_text().splitlines())
        sums = [f"{int(total[each]) / 100_000_000:.8f}" for each in ("received", "spent")]
        assert ran.out.partition("Totals, BTC\n")[2].split()[-4:] == [ADDRESS, *sums, "12"]
    assert (tmp_path / "node.csv").read_bytes() == (tmp_path / "files.csv").read_bytes()


def test_a_failed_scan_leaves_the_totals_of_an_earlier_one(
    core: CoreNode, run: Callable[..., Any], tmp_path: Path
) -> None:
    core.known[core.hashes[106]] = core.blocks[105]
    (tmp_path / "totals.csv").write_text("earlier")
    assert run("scan", core.url, *WATCHED, "--totals", tmp_path / "totals.csv").code == 2
    assert (tmp_path / "totals.csv").read_text() == "earlier"


def test_totals_of_a_node_overwrite_no_watch_list(core: CoreNode, run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "list").write_text(ADDRESS)
    options = ("--watch", tmp_path / "list", "--network", "regtest", "--totals", tmp_path / "list")
    ran = run("scan", core.url, *options)
    assert (ran.code, "this would overwrite an input" in ran.err) == (2, True)


@pytest.mark.slow
def test_failed_scan_says_how_far_it_came(core: CoreNode, run: Callable[..., Any]) -> None:
    core.known[core.hashes[106]] = core.blocks[105]
    ran = run("scan", core.url, *WATCHED, "--format", "jsonl")
    assert ran.code == 2
    assert len(ran.out.splitlines()) == 4
    assert "106 blocks" in ran.err
    assert "up to height 105: 4 matches" in ran.err
    assert f"the answer is not block {core.hashes[106][::-1].hex()}" in ran.err


@pytest.mark.few(1)
@pytest.mark.parametrize("is_rest", [True, False])
def test_blocks_that_a_node_lacks_are_gaps(
    core: CoreNode, run: Callable[..., Any], tmp_path: Path, is_rest: bool
) -> None:
    core.rest = is_rest
    core.lacking = {20, 21, 50, 106}
    options = (*WATCHED, "--format", "jsonl", "--user", f"{USER}:{PASSWORD}", "--report", tmp_path / "report.json")
    ran = run("scan", core.url, *options, "--quiet")
    missing = ["heights 20 to 21", "height 50", "height 106"]
    said = "".join(f"spvfilter: missing: {each}\n" for each in missing)
    hint = "spvfilter: because of these gaps the exit code is 1; --allow-gaps accepts them\n"
    assert (ran.code, ran.err) == (1, said + hint)
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["missing"] == [[20, 21], [50, 50], [106, 106]]
    assert found["found"] == [[0, 19], [22, 49], [51, 105], [107, 113]]
    assert {json.loads(row)["height"] for row in ran.out.splitlines()} <= {*range(106), *range(107, 114)}
    again = run("scan", core.url, *options, "--allow-gaps", "--quiet")
    assert (again.code, again.out, again.err) == (0, ran.out, said)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("span", "missing", "code"),
    [
        ((), None, 0),
        (("--from-height", 0), "heights 1 to 49", 1),
        (("--from-date", "1970-01-01"), "heights 0 to 49", 1),
        (("--from-height", 10), "heights 10 to 49", 1),
        (("--from-height", 50), None, 0),
        (("--from-height", 50, "--to-height", 120), "heights 114 to 120", 1),
    ],
)
def test_pruned_blocks_of_the_range_are_a_gap(
    core: CoreNode, run: Callable[..., Any], span: tuple[object, ...], missing: str | None, code: int
) -> None:
    core.pruned_below = 50
    ran = run("scan", core.url, *WATCHED, "--format", "jsonl", *span)
    assert (ran.code, len(ran.out.splitlines())) == (code, 12)
    assert ("missing: " in ran.err) is (missing is not None)
    assert missing is None or f"missing: {missing}\n" in ran.err
    assert ("the blocks begin at height 50: earlier ones are not in this scan\n" in ran.err) is (
        "--from-height" not in span
    )
    assert run("scan", core.url, *WATCHED, "--allow-gaps", *span).code == 0


def test_range_that_is_pruned_as_a_whole_is_an_error(core: CoreNode, run: Callable[..., Any]) -> None:
    core.pruned_below = 50
    ran = run("scan", core.url, *WATCHED, "--to-height", 49, "--allow-gaps")
    assert (ran.code, ran.out) == (2, "")
    assert "has pruned the blocks below height 50" in ran.err


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("headers", "is_initial", "span", "code"),
    [
        (963_000, True, (), 1),
        (963_000, True, ("--to-height", 113), 0),
        (113, True, (), 0),
        (124, False, (), 1),
        (123, False, (), 0),  # a node that is busy with new blocks
        (123, True, (), 1),
        (963_000, False, ("--to-height", 113), 0),
    ],
)
def test_headers_without_blocks_are_a_gap(
    core: CoreNode, run: Callable[..., Any], headers: int, is_initial: bool, span: tuple[object, ...], code: int
) -> None:
    core.best_header, core.is_initial_download = headers, is_initial
    ran = run("scan", core.url, *WATCHED, "--format", "jsonl", *span)
    assert ran.code == code
    assert len(ran.out.splitlines()) == 12
    assert (f"missing: heights 114 to {headers:,}\n" in ran.err) == bool(code)
    told = f"in initial block download: it has blocks up to height 113, and headers up to {headers:,}\n"
    assert (told in ran.err) == is_initial


def test_password_of_the_command_line_is_never_shown(core: CoreNode, run: Callable[..., Any]) -> None:
    core.rest = False
    assert run("scan", core.url, "--user", f"{USER}:{PASSWORD}", *WATCHED, "--quiet").code == 0
    ran = run("scan", core.url, "--user", f"{USER}:geheim-geheim", *WATCHED)
    assert ran.code == 2
    assert "wrong user, password or cookie (401)" in ran.err
    assert "geheim" not in ran.err


def test_contradicting_options_are_refused(refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPVFILTER_RPC_PASSWORD", raising=False)
    watched = " ".join(WATCHED)
    for ran in refused(f"""
        scan http://alice:geheim@127.0.0.1:8332 {watched}
        scan http://127.0.0.1:8332/wallet/geheim {watched}
        scan http://127.0.0.1:1 http://127.0.0.1:2 {watched}
        scan http://127.0.0.1:1 blocks {watched}
        scan http://127.0.0.1:1 --out found {watched}
        scan http://127.0.0.1:1 --zmq tcp://127.0.0.1:2 {watched}
        scan http://127.0.0.1:1 --follow --to-height 5 {watched}
        scan http://127.0.0.1:1 --cookie x --user y {watched}
        scan http://127.0.0.1:1 --user alice {watched}
        scan blocks --follow {watched}
        scan http://127.0.0.1:1 --every 5 {watched}
        scan blocks --cookie x {watched}
    """):
        assert "geheim" not in ran.err


def test_a_cookie_that_is_not_there_is_named(core: CoreNode, run: Callable[..., Any], tmp_path: Path) -> None:
    ran = run("scan", "http://127.0.0.1:1", "--cookie", tmp_path / "gone", *WATCHED)
    assert (ran.code, ran.out, "no connection" in ran.err) == (2, "", True)
    core.rest = False
    ran = run("scan", core.url, "--cookie", tmp_path / "gone", *WATCHED)
    assert ran.code == 2
    assert "gone: No such file or directory: is the node running" in ran.err


def test_the_extra_is_named(core: CoreNode, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    ran = run("scan", core.url, *WATCHED)
    assert (ran.code, remedy("rpc") in ran.err) == (2, True)
    assert len(ran.err.splitlines()) == 1


@pytest.mark.slow
def test_following_prints_new_and_disconnected_blocks(tmp_path: Path) -> None:
    """In a process of its own, woken by ZMQ, until it is interrupted."""
    regtest = paid_regtest()
    core = CoreNode(chain_of(regtest))
    address = f"ipc://{tmp_path}/zmq"
    options = ["--follow", "--zmq", address, "--from-height", "100", "--format", "jsonl"]
    options += ["--totals", str(tmp_path / "totals.csv")]
    with core.in_thread(), zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        publisher.bind(address)
        words = command("scan", core.url, *WATCHED, *options, code=WITH_SIGINT)
        following = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        try:
            assert following.stdout is not None
            lines = [json.loads(following.stdout.readline()) for _ in range(12)]
            assert {line["kind"] for line in lines} == {"output", "input"}
            for _ in range(3):
                assert publisher.recv().startswith(b"\x01")  # it has subscribed
            stale = core.hashes[-1]
            regtest.reorg(1)
            regtest.pay(TxOut(70_000, MINE))
            regtest.mine()
            told(core, chain_of(regtest))
            publisher.send_multipart([b"hashblock", bytes(32), bytes(4)])
            gone = json.loads(following.stdout.readline())
            assert gone == dict.fromkeys(lines[0]) | {
                "kind": "disconnected",
                "height": 113,
                "block_hash": stale[::-1].hex(),
            }
            more = [json.loads(following.stdout.readline()) for _ in range(3)]
            assert sorted(line["value"] for line in more) == [9_000, 50_005, 70_000]
            assert {line["height"] for line in more} == {115}
        finally:
            following.send_signal(signal.SIGINT)
            _, err = following.communicate(timeout=60)
    assert following.returncode == 130
    (total,) = csv.DictReader((tmp_path / "totals.csv").read_text().splitlines())
    kept = [*(line for line in lines if line["block_hash"] != stale[::-1].hex()), *more]
    received = sum(line["value"] for line in kept if line["kind"] == "output")
    assert (int(total["received"]), int(total["matches"])) == (received, len(kept))
    assert "1 block left the best chain in reorganizations" in err
    # whether it was interrupted before it was told that 115 is whole
    assert re.search("up to height 11[45]: 15 matches", err)
