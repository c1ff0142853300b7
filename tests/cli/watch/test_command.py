"""`watch` against a node in another process: its output, its database, how it ends."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spvfilter.light import SyncLightClient
from spvfilter.network import REGTEST
from spvfilter.primitives import hash_to_hex
from spvfilter.testing import RegtestNode
from spvfilter.wallet import MatchFound
from spvfilter.watch.watchlist import WatchList
from support.commands.processes import WITH_SIGINT, WITHOUT_RICH, on_terminal, process
from support.peers.nodeprocess import ADDRESS, OTHER, NodeProcess, events_until, node_process, running
from support.wallets.filledstore import filled

KEYS = [
    "event",
    "sequence",
    "kind",
    "block",
    "height",
    "txid",
    "index",
    "outpoint",
    "value",
    "address",
    "label",
    "completeness",
]
KEYS += ["time", "coinbase"]  # later columns come last


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    with node_process("--blocks", 110) as made:
        made.do(f"pay {ADDRESS} 70000", "mine")  # 111
        made.do(f"pay {OTHER} 50000", f"pay {ADDRESS} 1234", "mine")  # 112
        made.do("mine 12")  # 124
        yield made


@pytest.fixture
def regtest_node() -> Iterator[RegtestNode]:
    made = RegtestNode()
    yield made
    made.close()


def once(place: str, *argv: object, code: str = "") -> tuple[int, list[dict[str, Any]], str]:
    """A run to the tip: exit code, JSON lines, standard error."""
    ran = process("watch", "--network", "regtest", "--connect", place, "--once", *argv, code=code)
    return ran.returncode, [json.loads(line) for line in ran.stdout.decode().splitlines()], ran.stderr.decode()


def values(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((event["height"], event["value"]) for event in events if event["event"] == "found")


@pytest.mark.parametrize(("mode", "said"), [("bip37", "unproven"), ("compact", "1 peer"), ("auto", "1 peer")])
def test_once_prints_every_match_and_ends_at_the_tip(node: NodeProcess, mode: str, said: str) -> None:
    code, events, errors = once(node.place, ADDRESS, "--mode", mode)
    assert (code, errors) == (0, "")
    assert values(events) == [(111, 70_000), (112, 1_234)]
    assert all(list(event) == KEYS for event in events[:-1])
    assert {event["completeness"] for event in events[:-1]} == {said}
    assert (events[-1]["event"], events[-1]["height"]) == ("synced", 124)


def test_addresses_may_come_on_standard_input(node: NodeProcess) -> None:
    argv = ("--network", "regtest", "--connect", node.place, "--once", "--watch", "-")
    ran = process("watch", *argv, stdin=f"{ADDRESS},mine\n".encode())
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert values([json.loads(line) for line in ran.stdout.splitlines()]) == [(111, 70_000), (112, 1_234)]


def test_blocks_below_the_first_one_asked_for_are_not_searched(node: NodeProcess) -> None:
    code, events, errors = once(node.place, ADDRESS, "--from-height", 112)
    assert (code, values(events), events[-1]["skipped"]) == (0, [(112, 1_234)], [[0, 111]])
    assert errors == "spvfilter: blocks 0 to 111 were never searched: watch --rescan --from-height 0 searches them\n"
    assert values(once(node.place, ADDRESS, "--from-height", 0xFFFFFFFF)[1]) == []
    code, events, errors = once(node.place, ADDRESS, "--birthday", "2100-01-01")
    assert (code, events, errors.count("\n")) == (2, [], 1)
    assert "is in the future" in errors


@pytest.mark.long
def test_wrong_start_is_corrected_by_rescan_or_lower_start(node: NodeProcess, tmp_path: Path) -> None:
    ways: list[tuple[object, ...]] = [
        ("--rescan",),
        ("--rescan", "--from-height", 111),
        ("--from-height", 111),
        ("--birthday", "1970-01-01"),
    ]
    for number, more in enumerate(ways):
        db = tmp_path / f"{number}.db"
        _, events, errors = once(node.place, "--db", db, ADDRESS, "--from-height", 112)
        assert (values(events), errors.count("never searched")) == ([(112, 1_234)], 1)
        shown = process("wallet", "balance", "--db", db)
        assert json.loads(shown.stdout)["confirmed"] == 1_234
        assert b"blocks 0 to 111 were never searched: watch --rescan --from-height 0 searches them" in shown.stderr
        code, events, errors = once(node.place, "--db", db, *more)
        assert (code, values(events)) == (0, [(111, 70_000)])
        left = 111 if 111 in more else 0
        assert errors.count("never searched") == (1 if left else 0)
        assert process("wallet", "balance", "--db", db).stderr.count(b"blocks 0 to 110 were never searched") == (
            1 if left else 0
        )


def test_later_run_prints_only_new_events(node: NodeProcess, tmp_path: Path) -> None:
    db = tmp_path / "wallet.db"
    first = once(node.place, "--db", db, ADDRESS)[1]
    assert values(first) == [(111, 70_000), (112, 1_234)]
    assert stat.S_IMODE(db.stat().st_mode) == 0o600
    assert [event["event"] for event in once(node.place, "--db", db)[1]] == ["synced"]
    assert values(once(node.place, "--db", db, OTHER)[1]) == [(112, 50_000)]
    every = once(node.place, "--db", db, "--replay")[1]
    assert values(every) == [(111, 70_000), (112, 1_234), (112, 50_000)]
    assert every[:2] == first[:2]


@pytest.mark.parametrize("stored", [False, True])
def test_each_line_of_once_has_its_events_number(node: NodeProcess, tmp_path: Path, stored: bool) -> None:
    _, events, _ = once(node.place, ADDRESS, OTHER, *(["--db", tmp_path / "wallet.db"] if stored else []))
    *found, synced = events
    numbers = [event["sequence"] for event in found]
    assert [event["event"] for event in events] == ["found"] * 3 + ["synced"]
    assert numbers == sorted(set(numbers))  # a consumer may drop lines whose number it has seen
    assert synced["sequence"] >= numbers[-1] > 0


def test_a_table_of_a_later_run_has_every_match(node: NodeProcess, tmp_path: Path) -> None:
    argv = ("watch", "--connect", node.place, "--once", "--format", "table", "--db", tmp_path / "wallet.db")
    for more in (("--network", "regtest", ADDRESS), ()):  # the second run takes the network from the database
        ran = process(*argv, *more)
        assert (ran.returncode, ran.stdout.count(b"received")) == (0, 2)
        assert ran.stderr == b"spvfilter: synced to height 124: 2 matches\n"


def test_the_network_comes_from_the_database(node: NodeProcess, tmp_path: Path) -> None:
    db = tmp_path / "wallet.db"
    once(node.place, "--db", db, ADDRESS)
    ran = process("watch", "--connect", node.place, "--once", "--db", db, OTHER)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert values([json.loads(line) for line in ran.stdout.splitlines()]) == [(112, 50_000)]


def of_another_program(db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("CREATE TABLE theirs (value)")


# Each row is what makes the file of a database, the arguments of a run with it, and the only line that is printed
UNUSABLE: dict[str, tuple[Callable[[Path], object], list[str], str]] = {
    "missing": (
        lambda db: None,
        ["--network", "regtest"],
        "nothing to watch for: {db} does not exist yet: give addresses or --watch FILE",
    ),
    "of another program": (
        of_another_program,
        ["--network", "regtest", ADDRESS, "--rebuild"],
        "{db}: this SQLite database belongs to another program",
    ),
    "of an unknown network": (
        lambda db: db.write_bytes(b"garbage" * 1_000),
        [ADDRESS, "--rebuild"],
        "{db} does not say which network it is for: also give --network NAME",
    ),
    "of another network": (
        lambda db: filled(db).close(),
        ["--network", "signet", ADDRESS],
        "--network signet contradicts {db}, which is a regtest database: omit --network",
    ),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_unusable_database_is_refused_and_unchanged(case: str, node: NodeProcess, tmp_path: Path) -> None:
    make, argv, said = UNUSABLE[case]
    db = tmp_path / "wallet.db"
    make(db)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    ran = process("watch", "--connect", node.place, "--once", "--db", db, *argv)
    assert (ran.returncode, ran.stdout, ran.stderr.decode()) == (2, b"", f"spvfilter: {said.format(db=db)}\n")
    read = {db.with_name(f"{db.name}-{suffix}") for suffix in ("shm", "wal")}  # SQLite makes them to read a database
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path not in read} == before


@pytest.mark.long
@pytest.mark.parametrize("since", [0, 7])
def test_dropped_events_are_replaced_by_matches_without_number(node: NodeProcess, tmp_path: Path, since: int) -> None:
    db = tmp_path / "wallet.db"
    first = once(node.place, "--db", db, ADDRESS)[1]
    with closing(sqlite3.connect(db)) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    assert "events" in names
    gap = (
        "from spvfilter.errors import EventGapError; from spvfilter.light import stream; "
        "usual = stream.EventHub.earlier; calls = []\n"
        "async def earlier(self, at):\n"
        "    calls.append(at)\n"
        "    if len(calls) == 1: raise EventGapError(SINCE, at.sequence + 2)\n"
        "    return await usual(self, at)\n"
        "stream.EventHub.earlier = earlier\n"
    )
    code = gap.replace("SINCE", str(since)) + WITH_SIGINT
    _, events, errors = once(node.place, "--db", db, "--replay", code=code)
    message = "every event after number 7: all current matches follow the `dropped` line; use them instead of"
    assert (message in errors) == bool(since)
    dropped, *found, synced = events
    assert (dropped["event"], dropped["since"]) == ("dropped", since)
    assert dropped["sequence"] >= first[-1]["sequence"]
    assert [event["sequence"] for event in found] == [None, None]
    assert values(found) == values(first)
    assert synced["sequence"] >= dropped["sequence"]


@pytest.mark.slow
def test_a_withdrawal_that_the_database_has_dropped_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regtest_node: RegtestNode
) -> None:
    """Another program follows the wallet between two runs, and sees many unconfirmed payments."""
    node, db = regtest_node, tmp_path / "wallet.db"
    watch = WatchList.from_addresses([ADDRESS], REGTEST)
    with SyncLightClient(watch, peers=[node.address], store=db) as client:
        events = iter(client.events())
        paid = node.pay(ADDRESS, 5_000)
        printed = next(event.sequence for event in events if isinstance(event, MatchFound))
        client.set_bookmark("watch", printed)
        monkeypatch.setattr("spvfilter.store.events.MAX_FOREIGN", 2)
        node.double_spend(paid)
        for value in (1_001, 1_002, 1_003, 1_004):
            node.pay(ADDRESS, value)
            next(event for event in events if isinstance(event, MatchFound))
    _, lines, errors = once(node.address, "--db", db)
    assert (lines[0]["event"], lines[0]["since"]) == ("dropped", printed)
    assert f"every event after number {printed}: all current matches follow" in errors
    _, replayed, _ = once(node.address, "--db", db, "--replay")
    for printed_lines in (lines, replayed):
        names = [line["event"] for line in printed_lines]
        rest = printed_lines[names.index("dropped") :]
        assert {line.get("value") for line in rest if line["event"] == "found"} == {1_001, 1_002, 1_003, 1_004}
    assert {line["event"] for line in once(node.address, "--db", db)[1]} == {"synced"}


@pytest.mark.slow
def test_a_tip_reached_during_a_snapshot_ends_the_run(tmp_path: Path, regtest_node: RegtestNode) -> None:
    db, place = tmp_path / "wallet.db", regtest_node.address
    assert once(place, "--db", db, ADDRESS)[0] == 0
    regtest_node.pay(ADDRESS, 5_000)
    slow = (
        "import asyncio; from spvfilter.light import LightClient; usual = LightClient.matches\n"
        "async def matches(self):\n"
        "    await self.wait_synced()\n"
        "    while not (found := await usual(self)): await asyncio.sleep(0.01)\n"
        "    return found\n"
        "LightClient.matches = matches\n"
    )
    code, lines, _ = once(place, "--db", db, "--rebuild", "--timeout", 10, code=slow + WITH_SIGINT)
    assert (code, [line["event"] for line in lines]) == (0, ["dropped", "found", "synced"])
    assert lines[-1]["sequence"] == lines[0]["sequence"]
    assert [line["event"] for line in once(place, "--db", db)[1]] == ["synced"]


@pytest.mark.slow
def test_payments_are_reported_when_they_arrive_and_disappear() -> None:
    with node_process("--blocks", 110) as node:
        node.do(f"pay {ADDRESS} 70000", "mine")
        with running("watch", "--network", "regtest", "--connect", node.place, "--mode", "bip37", ADDRESS) as child:
            assert [event["event"] for event in events_until(child, "synced")] == ["found", "synced"]
            node.do(f"pay {ADDRESS} 5000")
            (found,) = events_until(child, "found")
            assert (found["value"], found["height"], found["block"]) == (5_000, None, None)
            node.do("mine")
            confirmed, synced = events_until(child, "synced")
            assert (confirmed["event"], confirmed["outpoint"], confirmed["height"]) == (
                "confirmed",
                found["outpoint"],
                112,
            )
            assert (synced["height"], synced["block"]) == (112, confirmed["block"])
            node.do("reorg 1")
            unconfirmed, disconnected, *_, synced = events_until(child, "synced")
            assert list(unconfirmed) == [key for key in KEYS if key != "completeness"]
            assert (unconfirmed["event"], unconfirmed["outpoint"]) == ("unconfirmed", found["outpoint"])
            assert (unconfirmed["block"], unconfirmed["height"], unconfirmed["time"]) == (None, None, None)
            numbers = [event["sequence"] for event in (found, confirmed, unconfirmed, disconnected)]
            assert numbers == sorted(set(numbers))
            assert numbers[0] > 0
            del disconnected["sequence"]
            assert disconnected == {"event": "disconnected", "height": 112, "block": confirmed["block"]}
            assert synced["height"] == 113
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=20) == 143


@pytest.mark.few(1)
@pytest.mark.parametrize("shown_as", ["jsonl", "table"])
def test_replaced_payment_has_a_line(shown_as: str) -> None:
    node = RegtestNode()
    argv = ("watch", "--network", "regtest", "--connect", node.address, "--mode", "compact", "--format", shown_as)
    try:
        with running(*argv, ADDRESS) as child:
            assert child.stdout is not None
            paid = node.pay(ADDRESS, 5_000)
            lines = iter(child.stdout.readline, b"")
            first = next(line for line in lines if hash_to_hex(paid).encode() in line or b"received" in line)
            by = hash_to_hex(node.double_spend(paid))
            replaced = next(line for line in lines if b"replaced" in line).decode()
            withdrawn = next(line for line in lines if b"withdrawn" in line).decode()
            assert by in withdrawn
            if shown_as == "jsonl":
                fields = json.loads(replaced)
                assert json.loads(first)["sequence"] < fields.pop("sequence") < json.loads(withdrawn)["sequence"]
                assert fields == {"event": "replaced", "txid": hash_to_hex(paid), "by": by}
            else:
                assert replaced == f"{hash_to_hex(paid)} was replaced by {by}\n"
    finally:
        node.close()


@pytest.mark.slow
def test_disconnected_payment_is_pending_again_in_a_table() -> None:
    with node_process("--blocks", 110) as node:
        node.do(f"pay {ADDRESS} 70000", "mine")
        with running(
            "watch", "--network", "regtest", "--connect", node.place, "--mode", "compact", "--format", "table", ADDRESS
        ) as child:
            assert child.stdout is not None
            lines = iter(child.stdout.readline, b"")
            assert next(line.split()[0] for line in lines if b"received" in line) == b"111"
            node.do("reorg 1")
            assert next(line for line in lines if b"again" in line) == b"unconfirmed again:\n"
            assert next(lines).split()[0] == b"mempool"
            child.send_signal(signal.SIGTERM)
            rest = b"".join(lines).decode()
    balances = rest.partition("Balances, BTC")[2]
    assert "+0.00070000" in balances


def test_one_node_under_two_names_is_one_peer(node: NodeProcess) -> None:
    events = once(node.place, "--connect", f"localhost:{node.port}", ADDRESS, "--mode", "compact")[1]
    assert values(events) == [(111, 70_000), (112, 1_234)]
    assert {event["completeness"] for event in events[:-1]} == {"1 peer"}


@pytest.mark.slow
def test_compact_filters_tell_of_blocks_as_they_come_and_go() -> None:
    with node_process("--blocks", 110) as node:
        node.do(f"pay {ADDRESS} 70000", "mine")
        with running("watch", "--network", "regtest", "--connect", node.place, "--mode", "compact", ADDRESS) as child:
            (found, synced) = events_until(child, "synced")
            assert (found["event"], found["height"], synced["height"]) == ("found", 111, 111)
            node.do("reorg 1")
            unconfirmed, disconnected, synced = events_until(child, "synced")
            assert (unconfirmed["event"], unconfirmed["height"]) == ("unconfirmed", None)
            assert unconfirmed["outpoint"] == found["outpoint"]
            assert (disconnected["height"], synced["height"]) == (111, 112)
            node.do("mine")
            confirmed, synced = events_until(child, "synced")
            assert (confirmed["event"], confirmed["height"]) == ("confirmed", 113)
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=20) == 143


@pytest.mark.long
def test_kept_filters_find_new_addresses(node: NodeProcess, tmp_path: Path) -> None:
    db = tmp_path / "wallet.db"
    assert values(once(node.place, "--db", db, "--keep-filters", ADDRESS)[1]) == [(111, 70_000), (112, 1_234)]
    assert values(once(node.place, "--db", db, "--keep-filters", OTHER)[1]) == [
        (112, 50_000),
    ]
    (tmp_path / "list.txt").write_text(f"data:{'c0ffee' * 3}\n")
    code, events, errors = once(node.place, ADDRESS, "--watch", tmp_path / "list.txt", "--mode", "compact")
    assert (code, events, errors) == (2, [], f"spvfilter: compact filters cannot find: {'c0ffee' * 3}\n")
    events = once(node.place, ADDRESS, "--watch", tmp_path / "list.txt")[1]
    assert values(events) == [(111, 70_000), (112, 1_234)]
    assert {event["completeness"] for event in events[:-1]} == {"unproven"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_ends_it_cleanly_and_the_database_is_free(
    node: NodeProcess, tmp_path: Path, number: signal.Signals, code: int, said: str
) -> None:
    argv = ("watch", "--network", "regtest", "--connect", node.place, "--db", tmp_path / "wallet.db", ADDRESS)
    with running(*argv) as child:
        events_until(child, "synced")
        second = process(*argv)
        assert (second.returncode, second.stdout, second.stderr.count(b"\n")) == (2, b"", 1)
        assert f"wallet.db: in use by process {child.pid} (".encode() in second.stderr
        assert f" {ADDRESS}): stop it, ".encode() in second.stderr  # the end of the other process's command line
        child.send_signal(number)
        assert child.wait(timeout=20) == code
        assert child.stderr is not None
        assert child.stderr.read().decode() == f"spvfilter: {said}\n"
    assert values(once(node.place, "--db", tmp_path / "wallet.db", "--replay")[1]) == [(111, 70_000), (112, 1_234)]


@pytest.mark.slow
def test_a_signal_ends_the_wait_for_a_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        place = f"127.0.0.1:{mute.getsockname()[1]}"
        with running("watch", "--network", "regtest", "--connect", place, ADDRESS) as child:
            mute.accept()[0].close()
            child.send_signal(signal.SIGTERM)
            assert child.wait(timeout=20) == 143


def test_a_damaged_database_is_refused_and_rebuilt_when_asked(node: NodeProcess, tmp_path: Path) -> None:
    db = tmp_path / "wallet.db"
    once(node.place, "--db", db, ADDRESS)
    db.write_bytes(db.read_bytes()[:-4096])
    code, events, errors = once(node.place, "--db", db, ADDRESS)
    assert (code, events, errors.count("\n")) == (2, [], 1)
    assert errors.startswith(f"spvfilter: {db}: damaged: ")
    assert errors.endswith("; restore a backup, or run spvfilter watch with --rebuild, which keeps the watch list\n")
    code, events, errors = once(node.place, "--db", db, ADDRESS, "--rebuild")
    assert (code, values(events)) == (0, [(111, 70_000), (112, 1_234)])
    assert (
        errors == f"spvfilter: {db} was rebuilt, and headers and matches are being fetched again; the old file is"
        f" {db}.damaged\n"
    )
    assert (tmp_path / "wallet.db.damaged").is_file()


def test_rebuild_is_reported_even_if_the_run_fails(node: NodeProcess, tmp_path: Path) -> None:
    db = tmp_path / "wallet.db"
    db.write_bytes(b"garbage" * 1_000)
    code, events, errors = once(node.place, "--db", db, "--rebuild")
    assert (code, events) == (2, [])
    assert errors.startswith(f"spvfilter: {db}: the rebuild lost damaged rows of addresses, accounts, descriptors")
    assert f"\nspvfilter: {db} was rebuilt" in errors
    assert "nothing to watch for" in errors


def test_filter_warning_is_printed_once_a_run(node: NodeProcess, tmp_path: Path) -> None:
    db = tmp_path / "wallet.db"
    for more in ([], ["--replay"]):  # the filter is made several times in the first run
        code, events, errors = once(node.place, ADDRESS, "--mode", "bip37", "--fp-rate", "1e-300", "--db", db, *more)
        assert (code, len(values(events)), errors.count("\n")) == (0, 2, 1)
        assert errors.startswith(
            "spvfilter: warning: 200 elements in the 36000 bytes and 50 functions that BIP-37 allows: "
        )


@pytest.mark.slow
def test_height_above_the_tip_starts_at_the_next_block() -> None:
    with node_process("--blocks", 110) as node:
        node.do(f"pay {ADDRESS} 70000", "mine")
        argv = (
            "watch",
            "--network",
            "regtest",
            "--connect",
            node.place,
            "--no-mempool",
            "--from-height",
            5_000,
            ADDRESS,
        )
        with running(*argv) as child:
            (synced,) = events_until(child, "synced")
            assert (synced["event"], synced["sees_unconfirmed"]) == ("synced", False)
            assert synced["peers"][node.place] in ("v1", "v2")
            node.do(f"pay {ADDRESS} 5000", "mine")
            assert [event["event"] for event in events_until(child, "synced")] == ["found", "synced"]


@pytest.mark.slow
def test_full_disk_is_one_line_and_loses_nothing(node: NodeProcess, tmp_path: Path) -> None:
    db = tmp_path / "wallet.db"
    for room in (30_000, 70_000):  # bytes of a file
        code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, -1)); " + WITH_SIGINT
        ended, events, errors = once(node.place, "--db", db, "--keep-filters", ADDRESS, code=code)
        assert (ended, events, errors.count("\n")) == (2, [], 1)
        assert errors.startswith(f"spvfilter: {db}: ")
    assert values(once(node.place, "--db", db, "--keep-filters", ADDRESS)[1]) == [(111, 70_000), (112, 1_234)]


def test_once_gives_up_without_a_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
    code, events, errors = once(place, ADDRESS, "--timeout", 2.5)
    assert (code, events) == (2, [])
    assert errors.splitlines() == [
        f"spvfilter: {place}: connection refused; it will be retried",
        "spvfilter: gave up: no usable node for 2.5 s",
    ]


def beside_a_node(services: str, mined: str = "pass") -> str:
    """The command in a process with a node that offers these services, as code."""
    return f"""
import asyncio, sys, threading
from dataclasses import replace
from spvfilter import REGTEST, address_to_script
from spvfilter.cli import main
from spvfilter.node.server import SETTINGS, Node
from spvfilter.wire.events import Service

async def serve(ready):
    async with Node(settings=replace(SETTINGS, services={services})) as node:
        {mined}
        sys.argv += ["--connect", f"127.0.0.1:{{node.port}}"]
        ready.set()
        await asyncio.Event().wait()

ready = threading.Event()
threading.Thread(target=lambda: asyncio.run(serve(ready)), daemon=True).start()
ready.wait()
sys.exit(main())
"""


@pytest.mark.slow
def test_a_node_without_filters_is_of_no_use() -> None:
    code = beside_a_node("Service.NETWORK")
    ran = process("watch", "--network", "regtest", "--once", "--timeout", 0.5, ADDRESS, code=code)
    first, *_, last = ran.stderr.decode().splitlines()
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert "filters" in first
    assert last == "spvfilter: gave up: no usable node for 0.5 s"


@pytest.mark.few(1)
@pytest.mark.parametrize("mode", ["bip37", "compact"])
def test_once_gives_up_without_progress(mode: str) -> None:
    """The only node is pruned, and lacks the block of a payment."""
    mined = f"node.regtest.mine(to=address_to_script('{ADDRESS}', REGTEST)), node.regtest.mine(300)"
    code = beside_a_node("SETTINGS.services & ~Service.NETWORK | Service.NETWORK_LIMITED", mined)
    ran = process("watch", "--network", "regtest", "--mode", mode, "--once", "--timeout", 1, ADDRESS, code=code)
    assert (ran.returncode, ran.stdout) == (2, b"")
    first, *_, last = ran.stderr.decode().splitlines()
    assert "keeps only recent blocks, and no other connected peer has block" in first
    assert last == "spvfilter: gave up: no progress for 1 s"


@pytest.mark.few(1)
@pytest.mark.parametrize("code", ["", WITHOUT_RICH])
def test_terminal_shows_rows_balances_and_its_cursor(node: NodeProcess, code: str) -> None:
    ended, shown = on_terminal(
        "watch", "--network", "regtest", "--connect", node.place, "--once", ADDRESS, OTHER, code=code
    )
    assert ended == 0
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == (0 if code else 1)
    after = shown.rpartition("Balances, BTC")[2]
    assert "0.00071234" in after
    assert "0.00121234" in after
    assert "height 124: 3 matches" in shown
    assert [word in shown for word in ("+0.00070000", "+0.00050000", "+0.00001234")] == [True] * 3


def test_a_terminal_gets_a_message_if_no_payment_was_found(node: NodeProcess) -> None:
    shown = on_terminal(
        "watch", "--network", "regtest", "--connect", node.place, "--once", "--from-height", 200, ADDRESS
    )[1]
    assert "height 124: nothing found" in shown


@pytest.mark.slow
def test_a_pipe_that_breaks_ends_it_quietly() -> None:
    with node_process() as node, running("watch", "--network", "regtest", "--connect", node.place, ADDRESS) as child:
        events_until(child, "synced")
        assert child.stdout is not None
        child.stdout.close()
        node.do("mine")
        assert child.wait(timeout=20) == 141
        assert child.stderr is not None
        assert child.stderr.read() == b""


@pytest.mark.long
def test_restart_continues_and_replay_prints_all_events(tmp_path: Path) -> None:
    with node_process("--blocks", 110) as node:
        argv = ("watch", "--network", "regtest", "--connect", node.place, "--db", tmp_path / "w.db", ADDRESS)
        told: list[dict[str, Any]] = []
        for end in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
            node.do(f"pay {ADDRESS} {50_000 + len(told)}", "mine")
            with running(*argv) as child:
                lines = events_until(child, "synced")
                child.send_signal(end)
                child.wait(timeout=20)
            again = [
                line
                for line in lines
                if line["event"] != "synced" and told and line["sequence"] <= told[-1]["sequence"]
            ]
            assert all(line in told for line in again)  # the kill came before their position was stored
            fresh = [line for line in lines if line not in again and line["event"] != "synced"]
            assert [line["event"] for line in fresh] in (["found"], ["found", "confirmed"])
            assert not again or end is signal.SIGTERM
            told += fresh
        numbers = [line["sequence"] for line in told]
        assert numbers == sorted(set(numbers))
        assert len({line["value"] for line in told}) == 4
        with running(*argv, "--replay") as child:
            assert [line for line in events_until(child, "synced") if line["event"] != "synced"] == told
            child.send_signal(signal.SIGTERM)
            child.wait(timeout=20)
