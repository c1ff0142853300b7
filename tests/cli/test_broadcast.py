"""`broadcast`: progress lines, results and exit codes against regtest nodes."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import address_to_script
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint, TxOut as PaidOut
from spvfilter.transaction import Transaction
from support.blocks.build import TxIn, TxOut, p2wpkh, tx, txid
from support.blocks.locks import BIP173, build_tx
from support.commands.processes import process
from support.peers.nodeprocess import ADDRESS, NodeProcess, events_until, node_process, running

ELSEWHERE = p2wpkh(b"\xee" * 20)
QUICK = (
    "import sys, spvfilter.light.engine.broadcaster as a, spvfilter.cli.broadcast as b;"
    " a.REJECT_S, b._KEEP_S = 1.5, 3.0;"
    " from spvfilter.cli import main; sys.exit(main())"
)
WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"  # of the private key 1


def spend(found: dict[str, Any], value: int = 60_000) -> bytes:
    """A transaction that spends a match of `watch`."""
    of, index = found["outpoint"].split(":")
    coin = BIP173.spends(OutPoint(bytes.fromhex(of)[::-1], int(index)), 70_000)
    return build_tx([coin], [PaidOut(value, ELSEWHERE)])


def shown(raw: bytes) -> str:
    return txid(raw)[::-1].hex()


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    with node_process("--blocks", 110) as made:
        yield made


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "wallet.db"


def paid(node: NodeProcess, db: Path) -> dict[str, Any]:
    """Pay the wallet in a block, and let `watch` find the payment."""
    node.do(f"pay {ADDRESS} 70000", "mine")
    ran = process("watch", "--network", "regtest", "--connect", node.place, "--once", "--db", db, ADDRESS)
    *_, found, _ = map(json.loads, ran.stdout.splitlines())
    return dict(found)


def send(node: NodeProcess, db: Path, what: object, *argv: object, **how: Any) -> tuple[int, list[dict[str, Any]], str]:
    """Exit code, JSON lines and standard error."""
    ran = process("broadcast", what, "--db", db, "--connect", node.place, *argv, **how)
    return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()], ran.stderr.decode()


def test_accepted_transaction_reaches_mempool_and_wallet(node: NodeProcess, db: Path) -> None:
    raw = spend(paid(node, db))
    code, (sent, result), errors = send(node, db, raw.hex())
    assert (code, errors) == (0, "")
    assert sent == {"event": "sent", "txid": shown(raw), "peer": node.place}
    lists = {"sent": [node.place], "echoed": [], "refused": []}
    assert result == {"event": "result", "txid": shown(raw), "status": "accepted", **lists}
    assert node.do() == [f"mempool {shown(raw)}"]
    entry = json.loads(process("wallet", "tx", shown(raw), "--db", db).stdout)
    assert (entry["status"], entry["own"], entry["net"]) == ("pending", True, -70_000)


@pytest.mark.parametrize("mode", ["compact", "bip37"])
def test_the_next_watch_once_says_that_it_was_confirmed(node: NodeProcess, db: Path, mode: str) -> None:
    raw = spend(paid(node, db))
    send(node, db, raw.hex())
    node.do("mine")
    ran = process("watch", "--connect", node.place, "--once", "--db", db, "--mode", mode)
    *_, changed, synced = map(json.loads, ran.stdout.splitlines())
    assert changed == {"event": "broadcast", "txid": shown(raw), "status": "confirmed"}
    assert synced["event"] == "synced"


@pytest.mark.long
def test_transaction_is_read_from_file_and_standard_input(node: NodeProcess, db: Path, tmp_path: Path) -> None:
    raw = spend(paid(node, db), 50_000)
    (tmp_path / "tx.raw").write_bytes(raw)
    ran = process("broadcast", tmp_path / "tx.raw", "--db", db, "--connect", node.place, "--format", "table")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.decode().splitlines() == [
        f"sent to {node.place}",
        "",
        f"txid     {shown(raw)}",
        "status   accepted",
        f"sent to  {node.place}",
    ]
    code, events, _ = send(node, db, "-", stdin=raw.hex().encode())
    assert (code, events[-1]["status"], events[-1]["echoed"]) == (0, "accepted", [node.place])  # it has it already
    node.do("mine")
    process("watch", "--connect", node.place, "--once", "--db", db)
    code, (result,), _ = send(node, db, raw.hex())
    assert (code, result["status"]) == (0, "confirmed")
    assert result["height"] == json.loads(process("wallet", "tx", shown(raw), "--db", db).stdout)["height"]


@pytest.mark.long
def test_check_prints_findings_and_sends_nothing(node: NodeProcess, db: Path, tmp_path: Path) -> None:
    raw = spend(paid(node, db))
    code, (checked,), errors = send(node, db, raw.hex(), "--check")
    assert (code, errors, checked) == (0, "", {"event": "check", "txid": shown(raw), "findings": []})
    unsigned = tx([TxIn(*_place(raw))], [TxOut(60_000, ELSEWHERE)])
    code, (checked,), errors = send(node, db, unsigned.hex(), "--check")
    assert (code, errors) == (1, "")
    assert [(each["cause"], each["weight"]) for each in checked["findings"]] == [("unsigned", "invalid")]
    ran = process("broadcast", unsigned.hex(), "--db", db, "--connect", node.place)
    assert (ran.returncode, b"it is not signed" in ran.stderr) == (2, True)
    (tmp_path / "parent.hex").write_text(raw.hex())
    missing = tx([TxIn(txid(raw), 5)], [TxOut(500, ELSEWHERE)])
    code, (checked,), _ = send(node, db, missing.hex(), "--parent", tmp_path / "parent.hex", "--check")
    assert [each["cause"] for each in checked["findings"]] == ["missing output"]
    assert node.do() == []


def _place(raw: bytes) -> tuple[bytes, int]:
    spent = OutPoint.parse(Transaction.parse(raw).inputs[0])
    return spent.txid, spent.index


@pytest.mark.slow
def test_refused_transaction_is_exit_code_1_with_reason(node: NodeProcess, db: Path) -> None:
    paid(node, db)
    raw = tx([TxIn(b"\x01" * 32, 0)], [TxOut(60_000, ELSEWHERE)])  # spends an output that does not exist
    code, (sent, refused, result), errors = send(node, db, raw.hex(), code=QUICK)
    assert (code, sent["event"], refused["event"], result["status"]) == (1, "sent", "refused", "refused")
    assert result["refused"] == [{"peer": node.place, "reason": refused["reason"]}] != []
    assert errors == f"spvfilter: not accepted: {result['reason']}\n"
    assert node.place in result["reason"]


@pytest.mark.long
def test_transaction_sent_again_is_not_accepted_while_nodes_refuse_it(node: NodeProcess, db: Path) -> None:
    found = paid(node, db)
    assert send(node, db, spend(found).hex())[0] == 0
    # The node keeps the first, which pays a higher fee, and may have announced it by the time of the check.
    cheaper = spend(found, 65_000).hex()
    code, (_, result), errors = send(node, db, cheaper, "--force", "--timeout", 4)
    assert (code, result["status"], "the balance includes it" in errors) == (1, "unconfirmed", True)
    code, (sent, refused, result), errors = send(node, db, cheaper, "--force", code=QUICK)
    assert (code, sent["event"], refused["event"], result["status"]) == (1, "sent", "refused", "refused")
    assert errors == f"spvfilter: not accepted: {result['reason']}\n"


@pytest.mark.long
def test_transaction_that_a_node_has_lost_is_accepted_again(node: NodeProcess, db: Path) -> None:
    raw = spend(paid(node, db))
    with node_process("--blocks", 110) as other:  # it has another chain, so it refuses the transaction
        ran = process("broadcast", raw.hex(), "--db", db, "--connect", other.place, "--timeout", 0.8)
    assert ran.returncode == 1
    code, (sent, result), errors = send(node, db, raw.hex(), code=QUICK)
    assert (code, sent["event"], result["status"], errors) == (0, "sent", "accepted", "")


@pytest.mark.long
def test_transaction_in_conflict_with_a_block_is_exit_code_1(node: NodeProcess, db: Path) -> None:
    found = paid(node, db)
    assert send(node, db, spend(found).hex())[0] == 0
    node.do("mine")
    process("watch", "--connect", node.place, "--once", "--db", db)
    code, (result,), errors = send(node, db, spend(found, 40_000).hex())
    assert (code, result["status"]) == (1, "conflicted")
    assert errors == f"spvfilter: not accepted: {result['reason']}\n"
    assert shown(spend(found)) in errors


@pytest.mark.long
def test_broadcast_without_answer_ends_after_timeout(node: NodeProcess, db: Path) -> None:
    raw = spend(paid(node, db))
    ran = process("broadcast", raw.hex(), "--db", db, "--connect", "127.0.0.1:1", "--timeout", 0.5)
    (result,) = map(json.loads, ran.stdout.splitlines())
    assert (ran.returncode, result["status"], result["sent"]) == (1, "unconfirmed", [])
    assert ran.stderr.decode().splitlines() == [
        "spvfilter: 127.0.0.1:1: connection refused; it will be retried",
        "spvfilter: not accepted: no node confirmed within 0.5 s that it has the transaction; the balance"
        " includes it, and spvfilter watch --db sends it again",
    ]


@pytest.mark.long
def test_watch_once_delivers_a_stored_transaction(node: NodeProcess, db: Path) -> None:
    raw = spend(paid(node, db))
    process("broadcast", raw.hex(), "--db", db, "--connect", "127.0.0.1:1", "--timeout", 0.5)
    ran = process("watch", "--connect", node.place, "--once", "--db", db)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert f"mempool {shown(raw)}" in node.do()
    ran = process("watch", "--connect", node.place, "--once", "--db", db)  # the node has it
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.long
def test_database_in_use_names_the_process(node: NodeProcess, db: Path) -> None:
    raw = spend(paid(node, db))
    with running("watch", "--connect", node.place, "--db", db) as child:
        events_until(child, "synced")
        ran = process("broadcast", raw.hex(), "--db", db, "--connect", node.place)
    assert (ran.returncode, ran.stdout) == (2, b"")
    said = ran.stderr.decode()
    assert said.startswith(f"spvfilter: {db}: in use by process {child.pid}")
    assert said.endswith("stop it, then send the transaction\n")
    assert "wallet.db): stop it" in said or not Path("/proc/self/cmdline").exists()


def test_invalid_arguments_are_one_line_and_exit_code_2(refused: Any) -> None:
    raw = tx([TxIn(b"\x01" * 32, 0)], [TxOut(60_000, ELSEWHERE)]).hex()
    for ran in refused(f"""
        broadcast 00 --connect h:1 --db w.db
        broadcast zz --connect h:1 --db w.db
        broadcast {WIF} --connect h:1 --db w.db
        broadcast {raw} --db w.db
        broadcast {raw} --connect h:1 --private --db w.db
        broadcast {raw} --connect h:1 --db w.db
        broadcast {raw} --connect h:1 --timeout 0 --db w.db
    """):
        assert WIF not in ran.err


class _Relaying:
    """Passes each transaction of one chain's mempool to another chain's, as linked nodes do."""

    def __init__(self, other: Regtest) -> None:
        self._other = other

    def on_tip(self, change: object) -> None:
        """Blocks are not passed on."""

    def on_tx(self, tx: Transaction) -> None:
        with suppress(Exception):  # the other node has it already
            self._other.submit_tx(tx.raw)


@contextmanager
def linked_nodes() -> Iterator[tuple[Regtest, list[str]]]:
    """Two nodes with the same chain that pass transactions to each other, in a thread."""
    first, second = Regtest(), Regtest()
    first.mine(110)
    first.pay(PaidOut(70_000, address_to_script(ADDRESS, REGTEST)))
    first.mine()
    for block in first.chain.active[1:]:
        second.submit_block(block.raw)
    ready, places, loop = threading.Event(), list[str](), asyncio.new_event_loop()

    async def serve() -> None:
        async with Node(first) as one, Node(second, "127.0.0.2") as two:
            first.listeners.append(_Relaying(second))
            second.listeners.append(_Relaying(first))
            places.extend(f"{node.host}:{node.port}" for node in (one, two))
            ready.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(task := loop.create_task(serve()),))
    thread.start()
    try:
        assert ready.wait(20)
        yield first, places
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


@pytest.mark.slow
def test_private_transaction_is_accepted_when_another_node_announces_it(run: Any, db: Path) -> None:
    with linked_nodes() as (chain, places):
        both = [word for place in places for word in ("--connect", place)]
        watched = run("watch", "--network", "regtest", *both, "--once", "--mode", "compact", "--db", db, ADDRESS)
        raw = spend(json.loads(watched.out.splitlines()[0]))
        ran = run("broadcast", raw.hex(), "--db", db, *both, "--private", "--timeout", 60)
        assert (ran.code, ran.err) == (0, "")
        result = json.loads(ran.out.splitlines()[-1])
        assert (result["status"], len(result["sent"]), len(result["echoed"])) == ("accepted", 1, 1)
        assert {*result["sent"], *result["echoed"]} == set(places)
        assert chain.find_tx(txid(raw)) is not None


@pytest.mark.long
def test_private_transaction_without_announcement_is_exit_code_1(run: Any, node: NodeProcess, db: Path) -> None:
    with node_process(
        "--blocks", 110, "--host", "127.0.0.2"
    ) as alone:  # it has another chain, and is not linked to the first node
        found = paid(node, db)
        both = ("--connect", node.place, "--connect", f"127.0.0.2:{alone.port}")
        ran = run("broadcast", spend(found, 30_000).hex(), "--db", db, *both, "--private", "--timeout", 3)
    assert (ran.code, json.loads(ran.out.splitlines()[-1])["status"]) == (1, "unconfirmed")
    assert ran.err.splitlines()[-1] == (
        "spvfilter: not accepted: no node confirmed within 3 s that it has the transaction; the balance includes"
        " it, and spvfilter watch --db sends it again"
    )
