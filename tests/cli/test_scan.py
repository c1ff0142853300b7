"""`scan` over files: formats, totals, exit codes, and files that it must not overwrite."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bitcoin.core import CBlock, b2lx

from spvfilter.cli.demo.chain import wallet_addresses
from spvfilter.hashes import sha256d
from spvfilter.network import TESTNET3
from support.blocks.chains import write_records
from support.blocks.realdata import runs
from support.blocks.undo import record_of, spent_of, undo_of, write_undo
from support.commands.csvrows import csv_row
from support.vectors import vector_path

KEYS = [
    "kind",
    "block_hash",
    "height",
    "time",
    "txid",
    "index",
    "outpoint_txid",
    "outpoint_index",
    "value",
    "script_pubkey",
    "address",
    "label",
    "coinbase",
    "fee",
]
P2PKH = wallet_addresses()["P2PKH"]
ELSEWHERE = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"  # BIP-173's program, which the demo's chain never pays
SATOSHI = (
    "0411db93e1dcdb8a016b49840f8c53bc1eb68a382e97b1482ecad7b148a6909a5c"
    "b2e0eaddfb84ccf9744464f82e160bfa9b8b64f9d4c03f999b8643f656b412a3"
)


def p2pkh_events(chain: Sequence[bytes]) -> list[dict[str, Any]]:
    """The JSON lines expected for the demo's P2PKH address: paid in block 2, spent in block 4."""
    paid = next(tx for tx in CBlock.deserialize(chain[1]).vtx if tx.vout[0].nValue == 50_000_000)
    spender = next(tx for tx in CBlock.deserialize(chain[3]).vtx if tx.vin[0].prevout.hash == paid.GetTxid())
    whole = {
        "outpoint_txid": paid.GetTxid()[::-1].hex(),
        "outpoint_index": 0,
        "value": 50_000_000,
        "script_pubkey": paid.vout[0].scriptPubKey.hex(),
        "address": P2PKH,
        "label": None,
        "coinbase": False,
        "fee": None,
    }
    return [
        {
            "kind": kind,
            "block_hash": sha256d(raw[:80])[::-1].hex(),
            "height": height,
            "time": CBlock.deserialize(raw).nTime,
            "txid": tx.GetTxid()[::-1].hex(),
            "index": 0,
            **whole,
        }
        for kind, raw, height, tx in (("output", chain[1], 2, paid), ("input", chain[3], 4, spender))
    ]


def test_a_json_line_has_exactly_these_keys_in_this_order(run: Any, block_file: Path, chain: Sequence[bytes]) -> None:
    ran = run("scan", block_file, "--address", P2PKH, "--network", "regtest", "--format", "jsonl")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0
    assert [list(line) for line in lines] == [KEYS, KEYS]
    assert lines == p2pkh_events(chain)


def test_jsonl_and_csv_print_totals_only_on_a_terminal(run: Any, block_file: Path) -> None:
    for chosen in ("jsonl", "csv"):
        ran = run("scan", block_file, "--address", P2PKH, "--network", "regtest", "--format", chosen)
        assert "Totals" not in ran.out + ran.err
        assert "2 matches" in ran.err
        assert (
            run("scan", block_file, "--address", P2PKH, "--network", "regtest", "--format", chosen, "--quiet").err == ""
        )


def test_csv_has_the_same_columns_properly_quoted(
    run: Any, block_file: Path, tmp_path: Path, chain: Sequence[bytes]
) -> None:
    watch = tmp_path / "w"
    watch.write_text(f'{P2PKH},a "b", c\n')
    ran = run("scan", block_file, "--watch", watch, "--network", "regtest", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert rows == [csv_row({**event, "label": 'a "b", c', "coinbase": False}) for event in p2pkh_events(chain)]


def test_piped_tables_are_plain_with_whole_ids_and_totals(
    transcript_of: Any, block_file: Path, chain: Sequence[bytes]
) -> None:
    Path("account").write_text(f"account:alice\n{P2PKH},rent\n")
    Path("outpoint").write_text(f"outpoint:{p2pkh_events(chain)[0]['outpoint_txid']}:0,rent\n")
    script = bytes(CBlock.deserialize(chain[0]).vtx[0].vout[-1].scriptPubKey)  # it has no address
    Path("data").write_text(f"data:{script[2:].hex()}\n")
    Path("4.raw").write_bytes(chain[3])
    ran, _, unknown, *_ = transcript_of(
        0,
        f"""
        scan {block_file.name} --network regtest --format table --address {P2PKH}
        scan {block_file.name} --network regtest --format table --watch account
        scan 4.raw --network regtest --format table --watch outpoint
        scan {block_file.name} --network regtest --format table --watch data
        scan {block_file.name} --network regtest --format table --address {ELSEWHERE}
        scan {block_file.name} --network regtest --format jsonl --address {ELSEWHERE}
        scan {block_file.name} --network regtest --format csv --address {ELSEWHERE}
        """,
    )
    assert re.findall(r"[-+]?\d\.\d{8}", ran.out) == ["+0.50000000", "-0.50000000", "0.50000000", "0.50000000"]
    assert "0.00000000 + 1 unknown" in unknown.out  # a spend of unknown value does not count as nothing


def test_a_spend_of_unknown_value_has_no_value(run: Any, tmp_path: Path, chain: Sequence[bytes]) -> None:
    block, watch = tmp_path / "4.raw", tmp_path / "w"
    block.write_bytes(chain[3])
    watch.write_text(f"outpoint:{p2pkh_events(chain)[0]['outpoint_txid']}:0,rent\n")
    line = json.loads(run("scan", block, "--watch", watch, "--network", "regtest", "--format", "jsonl").out)
    assert (line["value"], line["address"], line["label"]) == (None, None, "rent")


def test_watch_file_and_addresses_combine_without_changing_the_file(run: Any, block_file: Path, tmp_path: Path) -> None:
    watch = tmp_path / "w"
    watch.write_text(f"{wallet_addresses()['P2SH']}\n")
    before = watch.read_bytes(), watch.stat().st_mtime_ns
    ran = run(
        "scan",
        block_file,
        "--watch",
        watch,
        "--address",
        P2PKH,
        wallet_addresses()["P2TR"],
        "--network",
        "regtest",
        "--format",
        "jsonl",
    )
    assert {json.loads(line)["address"] for line in ran.out.splitlines()} == {
        wallet_addresses()[kind] for kind in ("P2PKH", "P2SH", "P2TR")
    }
    assert (watch.read_bytes(), watch.stat().st_mtime_ns) == before


@pytest.mark.parametrize("jobs", [1, 3])
def test_order_jobs_and_checks_change_nothing(
    run: Any, jobs: int, tmp_path: Path, watch_file: Path, chain: Sequence[bytes], block_file: Path
) -> None:
    directory = tmp_path / "blocks"
    directory.mkdir()
    for number, block in enumerate(reversed(chain)):
        (directory / f"{number}.hex").write_text(block.hex())
    options = ["--watch", watch_file, "--network", "regtest", "--format", "jsonl"]
    assert run("scan", directory, *options, "--jobs", jobs, "--check").out == run("scan", block_file, *options).out


def test_unreadable_files_are_named_and_exit_code_is_1(run: Any, block_file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.raw").write_bytes(b"")
    (tmp_path / "foreign.dat").write_bytes(bytes.fromhex("f9beb4d9") + bytes(200))
    missing = tmp_path / "missing"
    paths = [tmp_path / "empty.raw", block_file, missing, tmp_path / "foreign.dat"]
    ran = run("scan", *paths, "--address", P2PKH, "--network", "regtest", "--format", "jsonl")
    assert (ran.code, len(ran.out.splitlines())) == (1, 2)
    *problems, summary = ran.err.splitlines()
    assert " blocks, " in summary and summary.endswith(": 2 matches")
    assert problems == [
        f"spvfilter: {tmp_path / 'empty.raw'}: the file is empty",
        f"spvfilter: {missing}: No such file or directory",
        f"spvfilter: {tmp_path / 'foreign.dat'}: these are mainnet blocks, but the network is regtest:"
        " choose mainnet instead",
    ]


def test_check_reports_a_block_whose_merkle_root_is_wrong(run: Any, tmp_path: Path, chain: Sequence[bytes]) -> None:
    damaged = bytearray(chain[3])
    damaged[40] ^= 1
    (tmp_path / "bad.raw").write_bytes(damaged)
    (tmp_path / "good.raw").write_bytes(chain[1])
    paths = [tmp_path / "bad.raw", tmp_path / "good.raw"]
    assert run("scan", *paths, "--address", P2PKH, "--network", "regtest", "--allow-gaps").code == 0
    ran = run("scan", *paths, "--address", P2PKH, "--network", "regtest", "--allow-gaps", "--check")
    assert ran.code == 1
    assert "merkle root at byte 36: does not match the transactions" in ran.err


def test_nothing_readable_at_all_is_exit_code_2(run: Any, tmp_path: Path) -> None:
    ran = run("scan", tmp_path / "missing", "--address", P2PKH, "--network", "regtest")
    assert (ran.code, ran.out) == (2, "")
    assert (
        ran.err == f"spvfilter: {tmp_path / 'missing'}: No such file or directory\nspvfilter: nothing could be read\n"
    )


def test_a_bad_argument_is_one_line_and_exit_code_2(refused: Any) -> None:
    refused(f"""
        scan
        scan --address {P2PKH} blk00000.dat
        scan x
        scan x --watch /dev/null
        scan x --watch /nonexistent
        scan x --address {P2PKH}
        scan x --address 1BoatSLRHtKNngkdXEeobR76b53LETtpyu
        scan x --address {ELSEWHERE},savings
        scan x --address 'wpkh(02),savings'
        scan x --address 'multi(1,02,03)'
        scan x --address
        scan x - --address {P2PKH} --network regtest
        scan - - --address {P2PKH} --network regtest
        scan x --jobs 0
        scan x --format xml
        scan x --address {ELSEWHERE} --network regtest --output /nonexistent/x
        scan / --address {ELSEWHERE} --network regtest --output /nonexistent/x
    """)


def test_output_replaces_the_named_file(run: Any, block_file: Path, tmp_path: Path, chain: Sequence[bytes]) -> None:
    output = tmp_path / "matches.jsonl"
    output.write_text("x" * 10_000)
    ran = run("scan", block_file, "--address", P2PKH, "--network", "regtest", "--format", "jsonl", "--output", output)
    assert (ran.code, ran.out) == (0, "")
    assert [json.loads(line) for line in output.read_text().splitlines()] == p2pkh_events(chain)


def test_a_bad_argument_leaves_the_output_file_alone(run: Any, block_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "matches"
    output.write_text("precious")
    assert run("scan", block_file, "--address", "nonsense", "--output", output).code == 2
    assert output.read_text() == "precious"


def test_neither_watch_file_nor_blocks_are_overwritten(
    run: Any, block_file: Path, watch_file: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(watch_file)
    for output in (watch_file, block_file, link):
        for paths in ([block_file], [block_file.parent]):
            before = output.read_bytes()
            ran = run("scan", *paths, "--watch", watch_file, "--network", "regtest", "--output", output)
            assert (ran.code, ran.err) == (2, f"spvfilter: {output}: this would overwrite an input\n")
            assert output.read_bytes() == before


def test_duplicates_are_said_and_not_counted(run: Any, tmp_path: Path, chain: Sequence[bytes]) -> None:
    for name in ("a.raw", "b.raw"):
        (tmp_path / name).write_bytes(chain[1])
    ran = run(
        "scan", tmp_path / "a.raw", tmp_path / "b.raw", "--address", P2PKH, "--network", "regtest", "--format", "jsonl"
    )
    assert (ran.code, len(ran.out.splitlines())) == (0, 1)
    assert "1 duplicate block, not counted\n" in ran.err


def test_gaps_between_blocks_are_said(run: Any, tmp_path: Path, chain: Sequence[bytes]) -> None:
    for number in (0, 1, 3):
        (tmp_path / f"{number}.raw").write_bytes(chain[number])
    ran = run("scan", tmp_path, "--address", P2PKH, "--network", "regtest", "--quiet")
    hint = "spvfilter: because of these gaps the exit code is 1; --allow-gaps accepts them\n"
    assert (ran.code, ran.err) == (1, f"spvfilter: missing: height 3\n{hint}")


@pytest.mark.vectors
def test_first_payment_is_found_in_the_first_256_blocks(run: Any, tmp_path: Path) -> None:
    watch = tmp_path / "w"
    watch.write_text(f"pubkey:{SATOSHI},to Hal\n")
    ran = run(
        "scan", vector_path("03_blocks/mainnet_000000_000255.blk"), "--watch", watch, "--check", "--format", "jsonl"
    )
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0
    assert [(line["kind"], line["height"], line["value"]) for line in lines] == [
        ("output", 9, 50 * 10**8),
        ("input", 170, 50 * 10**8),
        ("output", 170, 40 * 10**8),
        ("input", 181, 40 * 10**8),
        ("output", 181, 30 * 10**8),
        ("input", 182, 30 * 10**8),
        ("output", 182, 29 * 10**8),
        ("input", 183, 29 * 10**8),
        ("output", 183, 28 * 10**8),
        ("input", 248, 28 * 10**8),
        ("output", 248, 18 * 10**8),
    ]
    assert lines[1]["txid"] == "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16"


def fees(out: str, chosen: str) -> dict[str, int]:
    """The fees of the spends that were printed, by txid."""
    lines = csv.DictReader(io.StringIO(out)) if chosen == "csv" else map(json.loads, out.splitlines())
    return {line["txid"]: int(line["fee"]) for line in lines if line["kind"] == "input"}


def fees_of(raws: list[bytes], first: int) -> dict[str, int]:
    """The fees of the transactions in blocks from one on, of a chain from the genesis block on."""
    values, found = dict[Any, int](), dict[str, int]()
    for number, raw in enumerate(raws):
        for tx in CBlock.deserialize(raw).vtx:
            values |= {(tx.GetTxid(), n): output.nValue for n, output in enumerate(tx.vout)}
            if number >= first and not tx.is_coinbase():
                paid = sum(values[each.prevout.hash, each.prevout.n] for each in tx.vin)
                found[b2lx(tx.GetTxid())] = paid - sum(output.nValue for output in tx.vout)
    return found


@pytest.mark.few(1)
@pytest.mark.vectors
@pytest.mark.parametrize("chosen", ["csv", "jsonl"])
def test_undo_files_show_spends_of_older_coins(run: Any, tmp_path: Path, chosen: str) -> None:
    (chain,) = [blocks for entry, blocks in runs() if entry["file"] == "testnet3_000000_000459.blk"]
    raws = [block.raw for block in chain]
    spent = spent_of(raws)
    wanted = {coin.script for of_block in spent for coins in of_block for coin in coins}
    (tmp_path / "wallet.txt").write_text("".join(f"script:{script.hex()}\n" for script in sorted(wanted)))
    half = 230
    write_records(tmp_path / "blk00007.dat", raws[half:], TESTNET3.magic)
    records = [record_of(raw, undo_of(of)) for raw, of in zip(raws[half:], spent[half:], strict=True) if of]
    write_undo(tmp_path / "rev00007.dat", records, TESTNET3.magic)
    argv = ["scan", tmp_path, "--watch", tmp_path / "wallet.txt", "--network", "testnet3", "--format", chosen]
    ran = run(*argv)
    assert ran.code == 0
    assert "warning" not in ran.err
    total = sum(len(coins) for of_block in spent[half:] for coins in of_block)
    assert ran.out.count("input") == total
    assert fees(ran.out, chosen) == fees_of(raws, half) != {}
    without = run(*argv, "--undo", "off")
    assert without.code == 0
    assert without.out.count("input") < total
    blind = sum(len(coins) > 0 for coins in spent[half:])
    assert (
        f"warning: {blind} blocks may spend coins from before these blocks, and such spends were not found"
        in without.err
    )
    (tmp_path / "rev00007.dat").write_bytes((tmp_path / "rev00007.dat").read_bytes()[:-1])
    partly = run(*argv)
    assert partly.code == 1
    assert "1 block without a usable undo record, matched by outpoints" in partly.err
    assert "rev00007.dat: the record at byte" in partly.err
    refused = run(*argv, "--undo", "require")
    assert (refused.code, refused.out.count("input")) == (2, 0)
    assert "undo data is required, but 1 of 230 blocks have none" in refused.err
