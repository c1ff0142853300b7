"""`filterload`: published filters, decoys, every format, and every wrong argument."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spvfilter.address import script_to_address
from spvfilter.filters.bip37 import Bip37Filter
from spvfilter.network import REGTEST
from spvfilter.store.batch import Batch, Bip37Parameters
from spvfilter.store.store import Store
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire.codec import encode_message
from support.commands.processes import on_terminal, process

ADDRESS = "1BoatSLRHtKNngkdXEeobR76b53LETtpyT"
TESTNET_ADDRESS = "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"
# Core src/test/bloom_tests.cpp bloom_create_insert_serialize and …_with_tweak
CORE_ELEMENTS = (
    "99108ad8ed9bb6274d3980bab5a85c048f0950c8",
    "b5a2c786d9ef4658287ced5914b37a1b4aa32eee",
    "b9300670b4c5366e95b2699e8b18bc75e5f729c5",
)
CORE = [word for element in CORE_ELEMENTS for word in ("--data", element)] + ["--elements", "3", "--fp-rate", "0.01"]
CORE_PAYLOADS = {0: "03614e9b050000000000000001", 2147483649: "03ce4299050000000100008001"}
CORE_RATE = (12 / 24) ** 5  # 12 bits of these filters are set
NO_DECOYS = f"spvfilter: warning: the filter has no decoys, and its real false-positive rate is {CORE_RATE:.2g}\n"
SECRET = bytes(range(32))
OUTPOINT = "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16:1"


@pytest.mark.parametrize("tweak", CORE_PAYLOADS)
def test_filters_of_cores_tests_are_printed_in_hex(run: Any, tweak: int) -> None:
    ran = run("filterload", *CORE, "--tweak", tweak)
    assert ran[:2] == (0, CORE_PAYLOADS[tweak] + "\n")
    assert ran.err.startswith("spvfilter: warning: the filter has no decoys")


def test_a_tweak_may_be_hexadecimal(run: Any) -> None:
    assert run("filterload", *CORE, "--tweak", "0x80000001").out == CORE_PAYLOADS[2147483649] + "\n"


def test_raw_prints_the_bytes_of_the_payload() -> None:
    ran = process("filterload", *CORE, "--tweak", 0, "--format", "raw")
    assert (ran.returncode, ran.stdout.hex()) == (0, CORE_PAYLOADS[0])


def test_message_prints_the_complete_message_in_hex(run: Any) -> None:
    expected = encode_message(REGTEST.magic, "filterload", bytes.fromhex(CORE_PAYLOADS[0]))
    ran = run("filterload", *CORE, "--tweak", 0, "--network", "regtest", "--format", "message")
    assert ran[:2] == (0, expected.hex() + "\n")
    assert ran.out.startswith("fabfb5da66696c7465726c6f6164")


def test_json_describes_the_filter(run: Any) -> None:
    ran = run("filterload", *CORE, "--tweak", 0, "--format", "jsonl")
    filter_bits = bytes.fromhex("614e9b")
    fill = sum(byte.bit_count() for byte in filter_bits) / 24
    assert json.loads(ran.out) == {
        "payload": CORE_PAYLOADS[0],
        "size": 3,
        "hash_funcs": 5,
        "tweak": 0,
        "flags": "all",
        "elements": 3,
        "nominal_fp_rate": 0.01,
        "real_fp_rate": pytest.approx(fill**5),
    }


# Decoys


def secret_file(folder: Path, content: bytes = SECRET) -> Path:
    path = folder / "secret"
    path.write_bytes(content)
    return path


def wallet_database(folder: Path, known: Bip37Parameters | None) -> tuple[Path, WatchList]:
    path, watch = folder / "wallet.db", WatchList(REGTEST)
    watch.add_script(bytes.fromhex("0014") + bytes(20))
    with Store.open(path, REGTEST) as store:
        store.attach(watch)
        store.commit(Batch(bip37_parameters=known))
    return path, watch


def test_without_decoys_the_real_rate_is_printed(run: Any) -> None:
    ran = run("filterload", ADDRESS)
    made = Bip37Filter.parse(bytes.fromhex(ran.out))
    assert made.current_fp_rate < 1e-30
    assert ran.code == 0
    assert ran.err.count("\n") == 1
    assert f"real false-positive rate is {made.current_fp_rate:.2g}" in ran.err
    assert "hides nothing" in ran.err
    assert "--db or --secret-file" in ran.err
    assert "decoy_key" not in ran.err  # the message uses no name of the library


def test_a_full_filter_without_decoys_gets_a_milder_warning(run: Any) -> None:
    assert run("filterload", *CORE, "--tweak", 0).err == NO_DECOYS


def test_a_secret_file_gives_decoys_and_a_stable_tweak(run: Any, tmp_path: Path) -> None:
    secret = secret_file(tmp_path)
    ran = run("filterload", ADDRESS, "--secret-file", secret)
    made = Bip37Filter.parse(bytes.fromhex(ran.out))
    assert (ran.code, ran.err) == (0, "")
    assert made.current_fp_rate == pytest.approx(1e-4, rel=0.05)
    assert run("filterload", ADDRESS, "--secret-file", secret) == ran
    expected = Bip37Filter.for_watchlist(WatchList.from_addresses([ADDRESS]), 1e-4, 7, decoy_key=SECRET)
    assert run("filterload", ADDRESS, "--secret-file", secret, "--tweak", 7).out == bytes(expected).hex() + "\n"
    other = secret_file(tmp_path, SECRET[::-1])
    assert Bip37Filter.parse(bytes.fromhex(run("filterload", ADDRESS, "--secret-file", other).out)).tweak != made.tweak


def test_a_secret_may_be_hex_digits(run: Any, tmp_path: Path) -> None:
    raw = run("filterload", ADDRESS, "--secret-file", secret_file(tmp_path))
    assert run("filterload", ADDRESS, "--secret-file", secret_file(tmp_path, SECRET.hex().encode() + b"\n")) == raw


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "0 bytes"),
        (b"only fifteen by", "15 bytes"),
        (b"00" * 15 + b"\n", "15 bytes"),
        (bytes(4097), "the file is longer than 4,096 bytes"),
    ],
)
def test_a_bad_secret_is_refused_and_not_repeated(run: Any, tmp_path: Path, content: bytes, said: str) -> None:
    path = secret_file(tmp_path, content)
    ran = run("filterload", ADDRESS, "--secret-file", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"spvfilter: {path}: {said}")
    assert not content.strip() or content.strip().decode() not in ran.err
    assert "openssl rand -hex 32" in ran.err


def test_a_database_gives_the_filter_of_its_wallet(run: Any, tmp_path: Path) -> None:
    known = Bip37Parameters(3, 2_048, 0.002, b"k" * 32)
    path, watch = wallet_database(tmp_path, known)
    expected = Bip37Filter.for_watchlist(watch, 0.002, 3, elements=2_048, decoy_key=b"k" * 32)
    assert run("filterload", "--db", path) == (0, bytes(expected).hex() + "\n", "")
    message = run("filterload", "--db", path, "--format", "message").out
    assert message == encode_message(REGTEST.magic, "filterload", bytes(expected)).hex() + "\n"
    options = ("--fp-rate", "0.01", "--tweak", "9")
    other = Bip37Filter.for_watchlist(watch, 0.01, 9, elements=1_024, decoy_key=b"k" * 32)
    assert run("filterload", "--db", path, *options).out == bytes(other).hex() + "\n"


def test_a_database_gives_the_decoys_of_other_addresses(run: Any, tmp_path: Path) -> None:
    path, _ = wallet_database(tmp_path, Bip37Parameters(3, 2_048, 0.002, b"k" * 32))
    script = b"\x00\x14" + b"\x07" * 20
    watch = WatchList(REGTEST)
    watch.add_script(script)
    expected = Bip37Filter.for_watchlist(watch, 0.002, 3, elements=2_048, decoy_key=b"k" * 32)
    assert run("filterload", script_to_address(script, REGTEST), "--db", path) == (0, bytes(expected).hex() + "\n", "")


def test_a_database_without_a_filter_is_refused(run: Any, tmp_path: Path) -> None:
    path, _ = wallet_database(tmp_path, None)
    ran = run("filterload", "--db", path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"spvfilter: {path}: no peer of this wallet has been given a BIP-37 filter yet")
    assert "--mode bip37" in ran.err  # other modes send no filter
    assert "--secret-file" in ran.err


def test_a_database_and_a_secret_file_exclude_each_other(run: Any, tmp_path: Path) -> None:
    ran = run("filterload", ADDRESS, "--db", tmp_path / "wallet.db", "--secret-file", secret_file(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert "--secret-file" in ran.err


def test_a_database_of_another_network_is_refused(run: Any, tmp_path: Path) -> None:
    path, _ = wallet_database(tmp_path, Bip37Parameters(3, 2_048, 0.002, b"k" * 32))
    for network in ("signet", "mainnet"):
        ran = run("filterload", "--db", path, "--network", network)
        assert (ran.code, ran.out) == (2, "")
        said = f"--network {network} contradicts {path}, which is a regtest database: omit --network"
        assert ran.err == f"spvfilter: {said}\n"


# Arguments


def test_raw_on_a_terminal_is_refused() -> None:
    code, screen = on_terminal("filterload", ADDRESS, "--format", "raw")
    assert code == 2
    assert "spvfilter: raw bytes would garble the terminal" in screen


def test_addresses_file_data_and_outpoints_are_elements(run: Any, tmp_path: Path) -> None:
    watch = tmp_path / "wallet.txt"
    watch.write_text("12cbQLTFMXRnSzktFkuoG3eHoMeFtpTu3S,label\n")
    before = watch.read_bytes()
    ran = run(
        "filterload",
        ADDRESS,
        "--watch",
        watch,
        "--data",
        "cafe",
        "3P14159f73E4gFr7JterCCQh9QjiTjiZrG",
        "--outpoint",
        OUTPOINT,
    )
    made = Bip37Filter.parse(bytes.fromhex(ran.out))
    assert ran.code == 0
    txid, index = OUTPOINT.split(":")
    elements = [
        "7680adec8eabcabac676be9e83854ade0bd22cdb",
        "11b366edfc0a8b66feebae5c2e25a7b6a5d1cf31",
        "e9c3dd0c07aac76179ebc76a6c78d4d67c6c160a",
        "cafe",
        bytes.fromhex(txid)[::-1].hex() + f"{int(index):02x}000000",
    ]
    assert [element for element in elements if bytes.fromhex(element) not in made] == []
    assert round(made.estimated_elements) == 5
    assert watch.read_bytes() == before


def test_a_missing_tweak_is_random(run: Any) -> None:
    assert len({run("filterload", ADDRESS).out for _ in range(4)}) == 4


@pytest.mark.parametrize(("flags", "last"), [("all", "01"), ("none", "00"), ("p2pubkey-only", "02")])
def test_flags_are_the_payloads_last_byte(run: Any, flags: str, last: str) -> None:
    assert run("filterload", "--outpoint", OUTPOINT, "--flags", flags).out.strip()[-2:] == last


def test_flags_that_lose_spends_cause_a_warning(run: Any, tmp_path: Path) -> None:
    ran = run("filterload", ADDRESS, "--flags", "none", "--secret-file", secret_file(tmp_path))
    assert (ran.code, len(ran.out.splitlines())) == (0, 1)
    assert (
        ran.err
        == "spvfilter: warning: with flags NONE a peer will not report the spends of 1 watched elements: use ALL\n"
    )


def test_a_rate_that_the_protocol_cannot_keep_causes_a_warning(run: Any, tmp_path: Path) -> None:
    secret = secret_file(tmp_path)
    ran = run("filterload", ADDRESS, "--elements", 100_000, "--fp-rate", "0.001", "--secret-file", secret)
    assert ran.code == 0
    assert ran.err.startswith(
        "spvfilter: warning: 100000 elements in the 36000 bytes and 50 functions that BIP-37 allows: "
    )
    assert ran.err.count("\n") == 1


def test_a_bad_argument_is_one_line_and_exit_code_2(refused: Any) -> None:
    refused(f"""
        filterload
        filterload {ADDRESS[:-1]}u
        filterload {TESTNET_ADDRESS}
        filterload {ADDRESS} --elements 0
        filterload {ADDRESS} --elements 1.5
        filterload {ADDRESS} --elements {"9" * 5000}
        filterload {ADDRESS} --outpoint {OUTPOINT} --elements 1
        filterload {ADDRESS} --fp-rate 0
        filterload {ADDRESS} --fp-rate 1
        filterload {ADDRESS} --fp-rate nan
        filterload {ADDRESS} --fp-rate x
        filterload {ADDRESS} --fp-rate 0.5 --elements 1
        filterload {ADDRESS} --tweak -1
        filterload {ADDRESS} --tweak 4294967296
        filterload {ADDRESS} --tweak 0x
        filterload {ADDRESS} --flags some
        filterload {ADDRESS} --format xml
        filterload --data abc
        filterload --data ''
        filterload --data {"00" * 521}
        filterload --outpoint {OUTPOINT[:64]}
        filterload --outpoint {OUTPOINT}99999999999
        filterload --watch /nonexistent
        filterload --watch /
        filterload --watch /dev/null
    """)


def test_every_bad_line_of_a_watch_file_is_numbered(run: Any, tmp_path: Path) -> None:
    watch = tmp_path / "wallet.txt"
    watch.write_text(f"# mine\n{ADDRESS},good\nnonsense\n{TESTNET_ADDRESS}\n\nscript:zz\n")
    ran = run("filterload", "--watch", watch)
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert [line.split(": ")[2] for line in lines] == ["line 3", "line 4", "line 6"]
    assert all(line.startswith(f"spvfilter: {watch}: line ") for line in lines)
