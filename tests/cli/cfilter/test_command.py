"""`cfilter`: building, matching and describing filters of the demo's chain and of real blocks, and refusals."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import address_to_script
from spvfilter.cli.demo.chain import NETWORK, wallet_addresses
from spvfilter.errors import counted
from spvfilter.filters.bip158 import BasicFilter
from spvfilter.network import REGTEST as REGTEST_NETWORK, Network
from spvfilter.primitives import hash_from_hex, hash_to_hex
from support.blocks.chains import write_records
from support.blocks.realdata import RealBlock, real_block_cases, runs
from support.blocks.undo import coins_of_block, ledger_chain, record_of, spent_of, undo_of, write_undo
from support.commands.processes import on_terminal, process
from support.vectors import vector_cases, vector_file, vector_path

REGTEST = ("--network", "regtest")
KEYS = ["block", "previous", "height", "n", "filter", "filter_hash", "filter_header"]
SEED = "abandon " * 11 + "about"
WIF = "KwDiBf89QgGbjEhKnhXJuH7LrciVrZi3qYjgd9M7rFU73sVHnoWn"  # WIF of the private key 1


@pytest.fixture
def filters(run: Any, block_file: Path, tmp_path: Path) -> Path:
    """The filters of the demo's chain, with a made-up first filter header."""
    path = tmp_path / "filters.jsonl"
    ran = run("cfilter", "build", block_file, *REGTEST, "--previous", "11" * 32)
    assert (ran.code, ran.err) == (0, "")
    path.write_text(ran.out)
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# Build


def test_each_block_gets_a_line_with_its_spent_scripts(filters: Path, chain: Sequence[bytes]) -> None:
    made = records(filters)
    assert all(list(record) == KEYS for record in made)
    assert [record["height"] for record in made] == list(range(1, len(chain) + 1))
    script = address_to_script(wallet_addresses()["P2WSH"], NETWORK)
    hits = [
        BasicFilter.parse(bytes.fromhex(record["filter"]), hash_from_hex(record["block"])).match(script)
        for record in made
    ]
    assert [height for height, hit in enumerate(hits, 1) if hit] == [4, 7]  # paid, and spent


def test_the_order_of_files_does_not_matter(run: Any, filters: Path, chain: Sequence[bytes], tmp_path: Path) -> None:
    names = []
    for number, raw in enumerate(reversed(chain)):
        names.append(tmp_path / f"{number}.raw")
        names[-1].write_bytes(raw if number % 2 else raw.hex().encode())
    ran = run("cfilter", "build", *names, *REGTEST, "--previous", "11" * 32)
    assert (ran.code, ran.out) == (0, filters.read_text())


def test_a_branch_gets_its_own_filters(run: Any, chain: Sequence[bytes], tmp_path: Path) -> None:
    twin = bytearray(chain[3])
    twin[76:80] = b"\xff\xff\xff\x7f"  # change its nonce
    for name, raw in {"a": chain[2], "b": chain[3], "c": bytes(twin), "d": chain[0], "e": chain[1]}.items():
        (tmp_path / f"{name}.raw").write_bytes(raw)
    ran = run("cfilter", "build", tmp_path, *REGTEST, "--previous", "11" * 32)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0
    assert lines[3]["previous"] == lines[4]["previous"] == lines[2]["block"]
    assert lines[3]["n"] == lines[4]["n"]
    assert None not in {record["filter_header"] for record in lines}


@pytest.mark.vectors
@pytest.mark.parametrize("name", ["mainnet_000000_000255", "signet_000000_000070", "testnet3_000000_000459"])
def test_real_chains_give_the_published_filters_and_headers(run: Any, name: str) -> None:
    known = vector_file(f"04_bip158/chain_{name}.json")
    ran = run("cfilter", "build", vector_path(f"03_blocks/{name}.blk"), "--network", known["network"])
    assert (ran.code, ran.err) == (0, "")
    made = [(line["block"], line["filter"], line["filter_header"]) for line in map(json.loads, ran.out.splitlines())]
    assert made == [(block["hash"], block["filter"], block["filter_header"]) for block in known["blocks"]]


@vector_cases("04_bip158/real_blocks.json")
def test_prevouts_give_a_real_blocks_published_filter(run: Any, case: dict[str, Any]) -> None:
    argv = ["--prevouts", vector_path(case["prevouts_file"]), "--network", case["network"]]
    ran = run("cfilter", "build", vector_path(case["block_file"]), *argv)
    assert (ran.code, ran.err) == (0, "")
    made = json.loads(ran.out)
    assert (made["block"], made["n"], made["filter"]) == (case["block_hash"], case["n_items"], case["filter"])
    assert made["filter_header"] is None


@pytest.mark.few(1)
@pytest.mark.vectors
@pytest.mark.parametrize("name", ["mainnet_000000_000255", "testnet3_000000_000459"])
def test_undo_files_give_the_published_filters_of_any_range(run: Any, name: str, tmp_path: Path) -> None:
    known = vector_file(f"04_bip158/chain_{name}.json")
    (blocks,) = [[each.raw for each in of] for entry, of in runs() if entry["file"] == f"{name}.blk"]
    magic = Network.named(known["network"]).magic
    records = [record_of(raw, undo_of(coins)) for raw, coins in zip(blocks, spent_of(blocks), strict=True)]
    for start, end in ((0, 180), (180, 200), (200, len(blocks))):
        write_records(tmp_path / "blk00000.dat", blocks[start:end][::-1], magic)
        write_undo(tmp_path / "rev00000.dat", records[max(start, 1) : end], magic)
        ran = run("cfilter", "build", tmp_path, "--network", known["network"], "--undo", "require")
        assert (ran.code, ran.err) == (0, "")
        made = [(line["height"], line["block"], line["filter"]) for line in map(json.loads, ran.out.splitlines())]
        heights = [None if start else block["height"] for block in known["blocks"][start:end]]
        assert made == [
            (height, block["hash"], block["filter"])
            for height, block in zip(heights, known["blocks"][start:end], strict=True)
        ]
    (tmp_path / "rev00000.dat").unlink()
    assert run("cfilter", "build", tmp_path, "--network", known["network"], "--undo", "require").code == 2
    ran = run("cfilter", "build", tmp_path, "--network", known["network"])
    assert ran.code == 1
    assert re.search(
        r": the earlier blocks that were given lack [0-9,]+ outputs? that it spends: add the missing blocks, or its"
        r" rev\*\.dat, or --prevouts",
        ran.err,
    )


@pytest.mark.long
@real_block_cases()
def test_an_undo_record_gives_a_real_blocks_published_filter(run: Any, block: RealBlock, tmp_path: Path) -> None:
    cases = {case["block_hash"]: case for case in vector_file("04_bip158/real_blocks.json")["vectors"]}
    if not block.facts.get("prevouts_file"):
        assert block.hash not in cases
        return
    undo = undo_of(coins_of_block(block))
    write_records(tmp_path / "blk00000.dat", [block.raw], block.network.magic)
    write_undo(tmp_path / "rev00000.dat", [record_of(block.raw, undo)], block.network.magic)
    ran = run("cfilter", "build", tmp_path, "--network", block.network.name)
    assert (ran.code, ran.err) == (0, "")
    scripts = [coin.script for coins in coins_of_block(block) for coin in coins]
    made = bytes.fromhex(json.loads(ran.out)["filter"])
    assert made == bytes(BasicFilter.build(block.raw, scripts))
    if block.hash in cases:
        assert made.hex() == cases[block.hash]["filter"]


def test_earlier_outputs_replace_a_damaged_undo_record(run: Any, tmp_path: Path) -> None:
    _, blocks, records = ledger_chain(5, 12, closed=True)
    write_records(tmp_path / "blk00000.dat", blocks)
    plain = run("cfilter", "build", tmp_path, *REGTEST)
    assert (plain.code, plain.err) == (0, "")
    number = max(range(len(blocks)), key=lambda n: len(records[n]))
    damaged = records[number][:-1] + bytes([records[number][-1] ^ 1])
    write_undo(tmp_path / "rev00000.dat", [*records[:number], damaged, *records[number + 1 :]])
    ran = run("cfilter", "build", tmp_path, *REGTEST)
    assert ran.code == 1
    assert "rev00000.dat: the undo record at byte" in ran.err
    assert ran.out == plain.out


def test_unknown_spent_outputs_are_an_error_of_one_block(run: Any, chain: Sequence[bytes], tmp_path: Path) -> None:
    for number in (0, 2):
        (tmp_path / f"{number}.raw").write_bytes(chain[number])
    ran = run("cfilter", "build", tmp_path, *REGTEST)
    assert ran.code == 1
    assert [json.loads(line)["height"] for line in ran.out.splitlines()] == [1]
    assert ran.err.startswith(f"spvfilter: {tmp_path}/2.raw at byte 0, block ")
    assert re.search(
        r": the earlier blocks that were given lack [0-9,]+ outputs? that it spends: add the missing blocks, or its"
        r" rev\*\.dat, or --prevouts",
        ran.err,
    )


@pytest.mark.parametrize(
    ("prevouts", "said"),
    [
        (b"", "the block spends 42 outputs, but prevout_scripts contains 0 scripts"),
        (bytes(8) + b"\x00", "the block spends 42 outputs, but prevout_scripts contains 1 script"),
        (bytes(8) + b"\x05abc", "prevouts: output 0: script at byte 9: truncated: expected 5 bytes, 3 left"),
        (bytes(9) + bytes(3), "prevouts: output 1: value at byte 9: truncated: expected 8 bytes, 3 left"),
        (bytes(8) + b"\xff" + b"\xff" * 8, "prevouts: output 0: "),
        (bytes(8) + b"\xfd\x01\x00a", "prevouts: output 0: "),
    ],
)
def test_unsuitable_prevouts_are_refused(
    run: Any, chain: Sequence[bytes], tmp_path: Path, prevouts: bytes, said: str
) -> None:
    (tmp_path / "block.raw").write_bytes(chain[1])
    (tmp_path / "prevouts").write_bytes(prevouts)
    ran = run("cfilter", "build", tmp_path / "block.raw", *REGTEST, "--prevouts", tmp_path / "prevouts")
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


# Match


@pytest.mark.parametrize("kind", ["P2PKH", "P2SH", "P2WPKH", "P2WSH", "P2TR"])
def test_candidates_include_the_blocks_of_a_scan(run: Any, filters: Path, block_file: Path, kind: str) -> None:
    wanted = ("--address", wallet_addresses()[kind], *REGTEST)
    scanned = {
        json.loads(line)["block_hash"]
        for line in run("scan", block_file, *wanted, "--format", "jsonl").out.splitlines()
    }
    ran = run("cfilter", "match", filters, *wanted, "--jobs", "2")
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert {line["block"] for line in lines} == scanned  # no false positive in this chain
    assert [line["height"] for line in lines] == sorted(line["height"] for line in lines)
    count = len(records(filters))
    expected = count / 784_931
    assert ran.err == (
        f"spvfilter: {counted(count, 'filter')}, {counted(len(lines), 'block')} to search;"
        f" {expected:.2g} false positives expected\n"
    )


def test_filters_can_come_from_standard_input(filters: Path) -> None:
    wanted = ("--address", wallet_addresses()["P2PKH"], *REGTEST)
    ran = process("cfilter", "match", "-", *wanted, "--format", "table", stdin=filters.read_bytes())
    assert (ran.returncode, [line.split()[0] for line in ran.stdout.decode().splitlines()]) == (0, ["2", "4"])


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"\n \r\n", b"\xef\xbb\xbf\n", b"\n" * 10_000, b" "])
def test_lines_are_recognized_behind_a_byte_order_mark(run: Any, filters: Path, start: bytes) -> None:
    wanted = ("--address", wallet_addresses()["P2PKH"], *REGTEST)
    plain = [run("cfilter", *argv) for argv in (("info", filters), ("match", filters, *wanted))]
    filters.write_bytes(start + filters.read_bytes().replace(b'{"', b'{ "'))
    assert [run("cfilter", *argv) for argv in (("info", filters), ("match", filters, *wanted))] == plain
    assert [ran.code for ran in plain] == [0, 0]


def test_info_reads_a_pipe_once(filters: Path) -> None:
    ran = process("cfilter", "info", "/dev/fd/0", stdin=filters.read_bytes())
    assert (ran.returncode, json.loads(ran.stdout)["filters"]) == (0, len(records(filters)))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, True),  # previous is regtest's genesis block
        ({"height": None}, True),
        ({"previous": "22" * 32}, False),
        ({"height": 0, "previous": None}, False),
        ({"height": None, "previous": "00" * 32}, False),
        ({"height": None, "block": hash_to_hex(REGTEST_NETWORK.genesis_hash), "previous": None}, True),
    ],
)
def test_match_refuses_filters_of_another_network(
    run: Any, filters: Path, change: dict[str, object], names: bool
) -> None:
    line = {**records(filters)[0], **change}
    filters.write_text(json.dumps(line))
    ran = run("cfilter", "match", filters, "--address", "12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S", "--network", "mainnet")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"spvfilter: {filters}: line 1: block 0 is ")
    assert ran.err.endswith(f": these filters are not for mainnet{', but of regtest' if names else ''}\n")


def test_match_accepts_filters_of_unknown_network(run: Any, filters: Path) -> None:
    filters.write_text("".join(filters.read_text().splitlines(keepends=True)[1:]))
    assert (
        run("cfilter", "match", filters, "--address", "12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S", "--network", "mainnet").code
        == 0
    )


def test_a_single_filter_needs_its_block(run: Any, filters: Path, tmp_path: Path) -> None:
    second = records(filters)[1]
    raw = tmp_path / "second.cfilter"
    raw.write_bytes(bytes.fromhex(second["filter"]))
    wanted = ("--address", wallet_addresses()["P2PKH"], *REGTEST)
    for given in (raw, second["filter"]):
        assert (
            json.loads(run("cfilter", "match", given, "--block", second["block"], *wanted).out)["block"]
            == second["block"]
        )
        assert run("cfilter", "match", given, "--block", "22" * 32, *wanted).out == ""
    assert run("cfilter", "match", raw, *wanted).code == 2


def test_entries_that_filters_cannot_find_are_named(run: Any, filters: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("data:c0ffee\n")
    ran = run("cfilter", "match", filters, "--watch", tmp_path / "list.txt", *REGTEST)
    assert (ran.code, ran.err) == (2, "spvfilter: compact filters cannot find: c0ffee\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"filter": "00" * 20}, "the filter does not match its filter_hash: the line is damaged"),
        ({"filter": "zz"}, '"filter" is not hex'),
        ({"filter": 5}, 'not an object with "block" and "filter"'),
        ({"block": "22"}, "hex"),
        ({"filter": "05", "filter_hash": None}, "byte"),
    ],
)
def test_an_unreadable_line_is_an_error_and_never_no_match(
    run: Any, filters: Path, change: dict[str, object], said: str
) -> None:
    lines = records(filters)
    lines[2].update(change)
    filters.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    before = json.dumps({"block": lines[1]["block"], "height": 2}, separators=(",", ":")) + "\n"
    for argv, out in (
        (("match", filters, "--address", wallet_addresses()["P2PKH"], *REGTEST), before),
        (("info", filters), ""),
    ):
        ran = run("cfilter", *argv)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, out, 1)
        assert ran.err.startswith(f"spvfilter: {filters}: line 3: ")
        assert said in ran.err


def test_a_truncated_file_is_an_error(run: Any, filters: Path) -> None:
    filters.write_text(filters.read_text()[:-100])
    ran = run("cfilter", "match", filters, "--address", wallet_addresses()["P2PKH"], *REGTEST)
    # earlier matches are printed
    assert (ran.code, [json.loads(line)["height"] for line in ran.out.splitlines()]) == (2, [2, 4])
    assert ran.err.endswith(": not JSON\n")


# Info


def test_info_checks_the_chain_of_filter_headers(run: Any, filters: Path) -> None:
    lines = records(filters)
    said = json.loads(run("cfilter", "info", filters).out)
    assert (said["filters"], said["headers_checked"]) == (len(lines), len(lines) - 1)
    assert said["items"] == sum(line["n"] for line in lines)
    assert said["bytes"] == sum(len(line["filter"]) // 2 for line in lines)
    assert json.loads(run("cfilter", "info", filters, "--previous", "11" * 32).out)["headers_checked"] == len(lines)
    ran = run("cfilter", "info", filters, "--previous", "12" * 32)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "does not follow from the previous one" in ran.err


@pytest.mark.parametrize("seed", range(5))
def test_info_checks_headers_in_any_order(run: Any, filters: Path, seed: int) -> None:
    lines = records(filters)
    for line in lines[2::3]:  # these headers follow from the previous ones
        line["filter_header"] = None
    random.Random(seed).shuffle(lines)
    filters.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    stated = sum(line["filter_header"] is not None for line in lines)
    # the header before the first one is unknown
    assert json.loads(run("cfilter", "info", filters).out)["headers_checked"] == stated - 1
    number = next(number for number, line in enumerate(lines, 1) if line["height"] == 5)
    lines[number - 1]["filter_header"] = "13" * 32
    filters.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    ran = run("cfilter", "info", filters)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("does not follow from the previous one\n")


def test_info_describes_one_filter(run: Any, filters: Path) -> None:
    first = records(filters)[0]
    said = json.loads(run("cfilter", "info", first["filter"], "--block", first["block"], "--previous", "11" * 32).out)
    assert [said[name] for name in ("block", "n", "filter_hash", "filter_header")] == [
        first[name] for name in ("block", "n", "filter_hash", "filter_header")
    ]
    assert (said["p"], said["m"], said["size"]) == (19, 784_931, len(first["filter"]) // 2)


def test_an_invalid_filter_is_one_line_without_the_input(refused: Any) -> None:
    invalid = ("''", "0", "fd0100", "ff" * 9, "ffffffff0f", "019dfc", "019dfca800", f"'{SEED}'", WIF, "no/such/file")
    for given, ran in zip(invalid, refused("\n".join(f"cfilter info {each}" for each in invalid)), strict=True):
        assert len(given) < 6 or given.strip("'") not in ran.err


# Both


def test_a_usage_error_has_exit_code_2(refused: Any, transcript_of: Any) -> None:
    refused(f"""
        cfilter build
        cfilter match --watch x
        cfilter match x
        cfilter match x --previous {"11" * 32}
        cfilter build x --block {"11" * 32}
        cfilter info x --block 11
        cfilter dance
        cfilter info - - --block {"11" * 32}
        cfilter match /no/such/file --address 12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S
    """)
    transcript_of(2, "cfilter build /no/such/file")


def test_a_terminal_gets_a_table_that_fits(filters: Path, block_file: Path) -> None:
    code, shown = on_terminal("cfilter", "build", block_file, *REGTEST)
    assert code == 0
    assert f"{len(records(filters))} filters, " in shown
    code, shown = on_terminal("cfilter", "info", filters)
    assert code == 0
    assert "headers checked" in shown


def test_help_fits_80_columns(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ran = run("cfilter", "--help")
    assert (ran.code, ran.err) == (0, "")
    assert max(map(len, ran.out.splitlines())) <= 80
