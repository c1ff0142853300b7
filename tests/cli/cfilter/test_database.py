"""`cfilter import` and `export`: filters between files and a wallet's database, and refusals of bad files."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spvfilter.cli.cfilter.jsonlines import FilterRecord
from spvfilter.filters.bip158 import BasicFilter, basic_data, filter_hash
from spvfilter.network import REGTEST
from spvfilter.node.filterindex import FilterIndex
from spvfilter.node.regtest import Regtest
from spvfilter.primitives import hash_from_hex, hash_to_hex
from spvfilter.store.batch import Batch
from spvfilter.store.filters import CompactFilterBatch
from spvfilter.store.store import Store
from support.commands.processes import process
from support.peers.nodeprocess import ADDRESS, NodeProcess, node_process, running

NETWORK = ("--network", "regtest")
COUNT = 31  # blocks, including the genesis block


def regtest() -> Regtest:
    made = Regtest(clock=lambda: 1_700_000_000)
    made.mine(COUNT - 1)
    return made


WORLD = regtest()
BLOCKS = list(WORLD.chain.active)
INDEX = FilterIndex(WORLD.chain)


@pytest.fixture
def lines() -> list[dict[str, Any]]:
    """The output of `cfilter build` for the chain."""
    records = [
        FilterRecord(each.hash, each.header.previous, each.height, INDEX.data(each), INDEX.header(each))
        for each in BLOCKS
    ]
    return [record.line(BasicFilter.parse(record.data, record.block).n) for record in records]


@pytest.fixture
def file(tmp_path: Path) -> Callable[[list[dict[str, Any]]], Path]:
    def write(lines: list[dict[str, Any]]) -> Path:
        path = tmp_path / "filters.jsonl"
        path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A database with the chain's headers and filter headers, as after a run that began at the tip."""
    path = tmp_path / "wallet.db"
    hashes = [filter_hash(INDEX.data(block)) for block in BLOCKS]
    with Store.open(path, REGTEST) as store:
        store.commit(
            Batch(
                headers=b"".join(block.raw[:80] for block in BLOCKS), compact_filters=CompactFilterBatch(hashes=hashes)
            )
        )
    return path


def kept(path: Path) -> set[int]:
    with Store.open(path, REGTEST) as store:
        return set(store.compact_filters.kept(0, COUNT))


def test_exported_filters_equal_the_imported_ones(run: Any, lines: list[dict[str, Any]], file: Any, db: Path) -> None:
    ran = run("cfilter", "import", file(lines), "--db", db, *NETWORK)
    assert (ran.code, ran.out, ran.err) == (0, "", f"spvfilter: {COUNT} filters stored\n")
    ran = run("cfilter", "import", file(lines), "--db", db, *NETWORK)
    assert (ran.code, ran.out, ran.err) == (0, "", f"spvfilter: 0 filters stored, {COUNT} were already there\n")
    ran = run("cfilter", "export", "--db", db, *NETWORK)
    assert ran.code == 0
    assert [json.loads(line) for line in ran.out.splitlines()] == lines
    assert ran.err.startswith(f"spvfilter: {COUNT} filters, ")
    assert "have none" not in ran.err


def test_order_and_duplicates_do_not_matter(run: Any, lines: list[dict[str, Any]], file: Any, db: Path) -> None:
    assert run("cfilter", "import", file([*lines[::-2], *lines[::2], *lines]), "--db", db, *NETWORK).code == 0
    assert kept(db) == set(range(COUNT))


def test_several_files_and_standard_input_can_be_imported(
    lines: list[dict[str, Any]], file: Any, tmp_path: Path
) -> None:
    path = file(lines[:9])
    rest = "".join(json.dumps(line) + "\n" for line in lines[9:])
    ran = process("cfilter", "import", path, "-", "--db", tmp_path / "new.db", *NETWORK, stdin=rest.encode())
    assert ran.returncode == 0
    assert ran.stderr.decode().startswith(
        f"spvfilter: {COUNT} filters stored\nspvfilter: {COUNT} of them need their filter headers"
    )


def test_export_reports_filters_that_wait_for_headers(
    run: Any, lines: list[dict[str, Any]], file: Any, db: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.db"
    assert run("cfilter", "import", file(lines), "--db", new, *NETWORK).code == 0
    ran = run("cfilter", "export", "--db", new, *NETWORK)
    said = f"{new}: no filter headers for {COUNT} filters; run `spvfilter watch --mode compact` first"
    assert (ran.code, ran.out, ran.err) == (2, "", f"spvfilter: {said}\n")
    with Store.open(db, REGTEST) as store:  # some headers are known
        store.commit(Batch(fork=COUNT - 4))
    assert run("cfilter", "import", file(lines), "--db", db, *NETWORK).code == 0
    ran = run("cfilter", "export", "--db", db, *NETWORK)
    assert (ran.code, ran.out.count("\n")) == (0, COUNT - 3)
    assert ran.err.endswith("; 3 more need their filter headers\n")


def test_export_reports_missing_filters(run: Any, lines: list[dict[str, Any]], file: Any, db: Path) -> None:
    assert run("cfilter", "import", file(lines[4:20]), "--db", db, *NETWORK).code == 0
    ran = run("cfilter", "export", "--db", db, *NETWORK)
    assert [json.loads(line) for line in ran.out.splitlines()] == lines[4:20]
    assert ran.err.endswith(f"; {COUNT - 16} of the blocks up to {COUNT - 1} have none\n")


def tampered(line: dict[str, Any]) -> dict[str, Any]:
    """A filter with false elements and correct hashes."""
    data = basic_data(hash_from_hex(line["block"]), [b"something else"])
    return {**line, "filter": data.hex(), "filter_hash": hash_to_hex(filter_hash(data)), "filter_header": None}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda line: tampered(line), "the filter of block 6 {block} does not match its filter header"),
        (lambda line: {**line, "filter": "00"}, "the filter does not match its filter_hash: the line is damaged"),
        (
            lambda line: {**line, "filter_header": "11" * 32},
            "the filter header of block {block} does not follow from the previous one",
        ),
        (lambda line: {**line, "height": 0, "previous": None, "block": "22" * 32}, "block 0 is 2222"),
        (lambda line: {"block": "22" * 32, "filter": "05"}, "of the filter of block 2222"),
        (lambda line: {"filter": "00"}, 'not an object with "block" and "filter"'),
        (lambda line: [], 'not an object with "block" and "filter"'),
    ],
)
def test_a_bad_line_is_named_and_earlier_lines_stay(
    run: Any, lines: list[dict[str, Any]], file: Any, db: Path, change: Any, said: str
) -> None:
    said = said.format(block=lines[6]["block"])
    lines[6] = change(lines[6])
    path = file(lines)
    ran = run("cfilter", "import", path, "--db", db, *NETWORK)
    assert (ran.code, ran.out) == (2, "")
    first, error = ran.err.splitlines()
    assert first == "spvfilter: 6 filters stored"
    assert error.startswith(f"spvfilter: {path}: line 7: ")
    assert said in error
    assert kept(db) == set(range(6))


@pytest.mark.parametrize("cut", [1, 50, 400])
def test_a_truncated_file_is_an_error_and_can_be_completed(
    run: Any, lines: list[dict[str, Any]], file: Any, db: Path, cut: int
) -> None:
    path = file(lines)
    whole = path.read_bytes()
    path.write_bytes(whole[: -1 - cut])
    ran = run("cfilter", "import", path, "--db", db, *NETWORK)
    assert ran.code == 2
    assert ran.err.endswith(": not JSON\n")
    path.write_bytes(whole)
    assert run("cfilter", "import", path, "--db", db, *NETWORK).code == 0
    assert kept(db) == set(range(COUNT))


def test_stale_blocks_are_named_and_set_the_exit_code(
    run: Any, lines: list[dict[str, Any]], file: Any, db: Path
) -> None:
    stale = {**tampered(lines[6]), "block": "22" * 32}
    ran = run("cfilter", "import", file([*lines[:6], stale, *lines[6:]]), "--db", db, *NETWORK)
    assert ran.code == 1
    assert f"spvfilter: block {'22' * 32} is not on the best chain of {db}: its filter was not imported\n" in ran.err
    assert kept(db) == set(range(COUNT))


def test_filters_of_another_chain_cause_one_error(run: Any, lines: list[dict[str, Any]], file: Any, db: Path) -> None:
    foreign = [{**tampered(lines[6]), "block": f"{number:02}" * 32} for number in range(22, 44)]
    ran = run("cfilter", "import", file(foreign), "--db", db, *NETWORK)
    advice = f"such as {'22' * 32}: give a file from the same chain, or a different database"
    said = f"spvfilter: all 22 filters belong to blocks that are not on the best chain of {db}, {advice}\n"
    assert (ran.code, ran.out, ran.err) == (2, "", said)


def test_another_network_is_refused(run: Any, lines: list[dict[str, Any]], file: Any, db: Path, tmp_path: Path) -> None:
    ran = run("cfilter", "import", file(lines), "--db", db, "--network", "signet")
    assert (ran.code, f"--network signet contradicts {db}, which is a regtest database" in ran.err) == (2, True)
    ran = run("cfilter", "import", file(lines), "--db", tmp_path / "new.db", "--network", "signet")
    assert ran.code == 2
    assert ran.err.endswith(": these filters are not for signet\n")
    assert not (tmp_path / "new.db").exists()  # a later run with the right network creates the file


def test_a_database_in_use_stays_unchanged(lines: list[dict[str, Any]], file: Any, db: Path) -> None:
    path, said = file(lines), f"in use by process {os.getpid()}".encode()
    with Store.open(db, REGTEST):
        for argv in (("import", path), ("export",)):
            ran = process("cfilter", *argv, "--db", db, *NETWORK)
            assert (ran.returncode, ran.stdout, said in ran.stderr) == (2, b"", True)
    assert kept(db) == set()


def test_usage_errors_are_reported(refused: Any) -> None:
    refused("""
        cfilter import x --network regtest
        cfilter export --network regtest
        cfilter export x --db x --network regtest
        cfilter import --db x --network regtest
        cfilter match x --db x --network regtest
        cfilter export --db /no/such/file --network regtest
    """)


def test_an_empty_import_or_export_is_an_error(run: Any, db: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name, said in (("empty", "no filter was given"), ("none", f"{tmp_path}/none: No such file or directory")):
        ran = run("cfilter", "import", tmp_path / name, "--db", tmp_path / "new.db", *NETWORK)
        assert (ran.code, ran.err) == (2, f"spvfilter: {said}\n")
    assert not (tmp_path / "new.db").exists()
    ran = run("cfilter", "export", "--db", db, *NETWORK)
    assert (ran.code, ran.err) == (
        2,
        f"spvfilter: {db} contains no filters: run watch --mode compact --keep-filters, or import filters\n",
    )


@pytest.mark.slow
def test_an_interrupted_import_resumes(lines: list[dict[str, Any]], file: Any, db: Path) -> None:
    with running("cfilter", "import", "-", "--db", db, *NETWORK) as child:
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write("".join(json.dumps(line) + "\n" for line in lines[:12]).encode())
        child.stdin.flush()
        while not db.with_name(f"{db.name}-wal").exists():
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == 130
        assert child.stderr.read().decode().endswith("spvfilter: interrupted\n")
    assert kept(db) <= set(range(12))
    assert process("cfilter", "import", file(lines), "--db", db, *NETWORK).returncode == 0
    assert kept(db) == set(range(COUNT))


@pytest.fixture(scope="module")
def node() -> Iterator[NodeProcess]:
    with node_process("--blocks", 110) as made:
        made.do(f"pay {ADDRESS} 70000", "mine")
        yield made


def test_a_wallets_filters_serve_another_wallet(node: NodeProcess, tmp_path: Path) -> None:
    first, second, path = tmp_path / "first.db", tmp_path / "second.db", tmp_path / "filters.jsonl"
    watch = ("watch", *NETWORK, "--connect", node.place, "--mode", "compact", "--once", ADDRESS)
    ran = process(*watch, "--db", first, "--keep-filters")
    assert ran.returncode == 0
    path.write_bytes(process("cfilter", "export", "--db", first, *NETWORK).stdout)
    assert len(path.read_bytes().splitlines()) == 112
    assert process("cfilter", "import", path, "--db", second, *NETWORK).returncode == 0
    again = process(*watch, "--db", second)
    assert again.returncode == 0
    lines = [[json.loads(line) for line in run.stdout.splitlines()] for run in (ran, again)]
    for line in (*lines[0], *lines[1]):
        del line["sequence"]  # a number that starts at the time of the run
    assert lines[0] == lines[1] != []
