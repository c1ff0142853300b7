"""`scan --txid FILE`: the blocks that have these transactions."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bitcoin.core import CBlock

from spvfilter.network import REGTEST
from spvfilter.primitives import hash_to_hex
from support.blocks.build import block, block_hash, coinbase, txid
from support.blocks.chains import best_chain, random_tree, write_records
from support.blocks.nodechains import paid_chain
from support.commands.csvrows import csv_row
from support.commands.processes import on_terminal
from support.peers.corenode import PASSWORD, USER


def places(blocks: Sequence[bytes]) -> list[dict[str, Any]]:
    """The place of each transaction in a chain from the genesis block on, by python-bitcoinlib."""
    return [
        {
            "txid": tx.GetTxid()[::-1].hex(),
            "block_hash": hash_to_hex(block_hash(raw)),
            "height": height,
            "time": CBlock.deserialize(raw).nTime,
            "position": position,
        }
        for height, raw in enumerate(blocks, 1)
        for position, tx in enumerate(CBlock.deserialize(raw).vtx)
    ]


@pytest.fixture
def scan(run: Any, block_file: Path, tmp_path: Path) -> Any:
    def call(txids: Sequence[str] | bytes, *more: object) -> Any:
        path = tmp_path / "txids"
        path.write_bytes(txids if isinstance(txids, bytes) else "\n".join(txids).encode())
        return run("scan", block_file, "--txid", path, "--network", "regtest", *more)

    return call


@pytest.mark.few(1)
@pytest.mark.parametrize("jobs", [1, 3])
def test_each_transaction_is_found_in_its_block(scan: Any, chain: Sequence[bytes], jobs: int) -> None:
    expected = places(chain)
    ran = scan([each["txid"] for each in expected], "--format", "jsonl", "--jobs", jobs)
    assert [json.loads(line) for line in ran.out.splitlines()] == expected
    assert (ran.code, f": {len(expected)} of {len(expected)} transactions found" in ran.err) == (0, True)


@pytest.mark.slow
def test_some_transactions_in_csv_and_in_a_table(scan: Any, chain: Sequence[bytes]) -> None:
    first, *_, last = places(chain)
    lines = f"# a comment\n\n{last['txid']}\r\n{first['txid'].upper()}\n{'00' * 32}".encode()
    for text in (lines, gzip.compress(lines)):
        ran = scan(text, "--format", "csv")
        rows = list(csv.DictReader(io.StringIO(ran.out)))
        assert rows == [csv_row(each) for each in (first, last)]
        assert ran.code == 0
        assert f": 2 of 3 transactions found\nspvfilter: not found: {'00' * 32}\n" in ran.err
    table = scan(lines, "--format", "table", "--quiet")
    assert [line.split() for line in table.out.splitlines()[1:]] == [
        [str(each["height"]), each["txid"], each["block_hash"], str(each["position"])] for each in (first, last)
    ]


@pytest.mark.slow
def test_table_fits_the_terminal(block_file: Path, tmp_path: Path, chain: Sequence[bytes]) -> None:
    digest = places(chain)[0]["txid"]
    (tmp_path / "txids").write_text(digest)
    code, screen = on_terminal("scan", block_file, "--txid", tmp_path / "txids", "--network", "regtest", "--quiet")
    assert (code, digest in screen) == (0, False)
    assert f"1  {digest[:14]}…{digest[-13:]}  " in screen


@pytest.mark.long
def test_a_range_limits_the_search(scan: Any, chain: Sequence[bytes]) -> None:
    expected = [each for each in places(chain) if 2 <= each["height"] <= 3]
    ran = scan([each["txid"] for each in places(chain)], "--format", "jsonl", "--from-height", 2, "--to-height", 3)
    assert [json.loads(line) for line in ran.out.splitlines()] == expected


def test_stale_blocks_are_not_searched(run: Any, tmp_path: Path) -> None:
    _, blocks = random_tree(11)
    write_records(tmp_path / "blk00000.dat", blocks)
    best = set(map(block_hash, best_chain(blocks)))
    txids = {tx.GetTxid()[::-1].hex() for raw in blocks for tx in CBlock.deserialize(raw).vtx}
    (tmp_path / "txids").write_text("\n".join(txids))
    ran = run("scan", tmp_path, "--txid", tmp_path / "txids", "--network", "regtest", "--format", "jsonl")
    found = {json.loads(line)["block_hash"] for line in ran.out.splitlines()}
    assert found == set(map(hash_to_hex, best))
    assert len(best) < len(blocks)


def test_a_transaction_in_two_blocks_has_two_rows(run: Any, tmp_path: Path) -> None:
    same = coinbase(7)
    first = block(REGTEST.genesis_hash, [same], mined=True)
    second = block(block_hash(first), [same], time=1_300_000_600, mined=True)
    write_records(tmp_path / "blk00000.dat", [first, second])
    (tmp_path / "txids").write_text(hash_to_hex(txid(same)))
    ran = run(
        "scan", tmp_path, "--txid", tmp_path / "txids", "--network", "regtest", "--format", "jsonl", "--allow-gaps"
    )
    assert [json.loads(line)["height"] for line in ran.out.splitlines()] == [7, 8]


@pytest.mark.long
def test_a_damaged_block_is_named_and_gives_exit_code_1(scan: Any, block_file: Path, chain: Sequence[bytes]) -> None:
    raw = bytearray(block_file.read_bytes())
    raw[8 + 80] = 0x7F  # the number of transactions of the first block
    block_file.write_bytes(raw)
    ran = scan([each["txid"] for each in places(chain)], "--format", "jsonl")
    assert ran.code == 1
    assert f"{block_file} at byte 8: " in ran.err
    assert len(ran.out.splitlines()) == len(places(chain)) - len(CBlock.deserialize(chain[0]).vtx)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "this file contains no txids"),
        (b"# only a comment\n", "this file contains no txids"),
        (b"00" * 32 + b"\n" + b"00" * 31, "line 2: expected a txid, 64 hex digits"),
        (b"\xff" * 32, "line 1: expected a txid, 64 hex digits"),
        (b"0" * 5_000_000, "line 1: expected a txid, 64 hex digits"),
        (gzip.compress(b"00" * 32, mtime=0)[:-9], "txids: the compressed stream is damaged or cut off"),
    ],
)
def test_a_bad_file_is_one_line(scan: Any, tmp_path: Path, text: bytes, message: str) -> None:
    ran = scan(text)
    assert ran.code == 2
    assert ran.err.startswith("spvfilter: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_other_questions_are_refused(refused: Any, block_file: Path) -> None:
    Path("txids").write_text("00" * 32)
    refused(f"""
        scan {block_file} --txid txids --address x
        scan {block_file} --txid txids --watch list
        scan {block_file} --txid txids --out found
        scan {block_file} --txid txids --totals totals.csv
        scan {block_file} --txid txids --follow --out found
        scan {block_file} --txid txids --dask tcp://127.0.0.1:1
        scan {block_file} --txid txids --processes 2
        scan {block_file} --txid txids --with-transactions
        scan {block_file} --txid txids --undo require
        scan {block_file} --txid txids --output txids
        scan - --txid txids
        scan blocks.gz --txid txids
        scan http://127.0.0.1:1 --txid txids --follow
    """)


@pytest.mark.few(1)
@pytest.mark.parametrize("form", ["jsonl", "csv", "table"])
@pytest.mark.parametrize("is_rest", [True, False])
@pytest.mark.parametrize("span", [(), ("--from-height", 104, "--to-height", 106)])
def test_a_node_gives_the_rows_of_the_same_files(
    run: Any, tmp_path: Path, form: str, is_rest: bool, span: tuple[object, ...]
) -> None:
    blocks = paid_chain().blocks
    (tmp_path / "blocks").mkdir()
    some = [hash_to_hex(txid(tx.serialize())) for raw in blocks[::7] for tx in CBlock.deserialize(raw).vtx]
    (tmp_path / "txids").write_text("\n".join([*some, "00" * 32]))
    options = ("--txid", tmp_path / "txids", "--network", "regtest", "--format", form, "--jobs", 3, *span)
    files = run("scan", paid_chain().files(tmp_path / "blocks"), *options)
    core = paid_chain().node()
    core.rest = is_rest
    with core.in_thread():
        ran = run("scan", core.url, "--user", f"{USER}:{PASSWORD}", *options)
    assert (ran.code, ran.out) == (files.code, files.out) == (0, ran.out)
    assert len(ran.out.splitlines()) > (1 if span else len(some) - 1)
    assert ran.err.partition("s): ")[2] == files.err.partition("s): ")[2]


@pytest.mark.slow
def test_blocks_that_a_node_lacks_are_named(run: Any, tmp_path: Path) -> None:
    core = paid_chain().node()
    core.lacking = {20, 21}
    (tmp_path / "txids").write_text("00" * 32)
    with core.in_thread():
        ran = run("scan", core.url, "--txid", tmp_path / "txids", "--network", "regtest")
        assert (ran.code, "missing: heights 20 to 21\n" in ran.err) == (1, True)
        assert run("scan", core.url, "--txid", tmp_path / "txids", "--network", "mainnet").code == 2
        core.known[core.hashes[50]] = core.blocks[49]
        ran = run("scan", core.url, "--txid", tmp_path / "txids", "--network", "regtest")
        assert (ran.code, "the answer is not block" in ran.err) == (2, True)
