"""`inspect`: real transactions and blocks, filters, and bytes that are none of these."""

from __future__ import annotations

import io
import json
import pty
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bitcoin.core import CBlock, CTransaction

from spvfilter.address import script_to_address
from spvfilter.cli.demo.chain import wallet_addresses
from spvfilter.cli.inspect import command
from spvfilter.cli.inspect.payloads import Finding
from spvfilter.network import MAINNET
from support.commands.processes import on_terminal, process
from support.vectors import vector_cases, vector_path

TABLE = ("--format", "table")

CORE_FILTER = "03614e9b050000000000000001"  # Core src/test/bloom_tests.cpp, 3 elements at 0.01
# the payment of mainnet block 170, the first one ever: it pays a bare public key, with change to the payer's key
FIRST_PAYMENT = (
    "0100000001c997a5e56e104102fa209c6a852dd90660a20b2d9c352423edce25857fcd3704000000004847304402204e45e16932b8af514961a1d3a1a25fdf3f4f7732"
    "e9d624c6c61548ab5fb8cd410220181522ec8eca07de4860a4acdd12909d831cc56cbbac4622082221a8768d1d0901ffffffff0200ca9a3b00000000434104ae1a62fe"
    "09c5f51b13905f07f06b99a2f7159b2225f374cd378d71302fa28414e7aab37397f554a7df5f142c21c1b7303b8a0626f1baded5c72a704f7e6cd84cac00286bee0000"
    "000043410411db93e1dcdb8a016b49840f8c53bc1eb68a382e97b1482ecad7b148a6909a5cb2e0eaddfb84ccf9744464f82e160bfa9b8b64f9d4c03f999b8643f656b4"
    "12a3ac00000000"
)


def facts(out: str) -> dict[str, str]:
    pairs = (line.split("  ", 1) for line in out.splitlines() if "  " in line and not line.startswith(" "))
    return {name: value.strip() for name, value in pairs}


def test_tables_of_filters_and_of_damaged_blocks(transcript_of: Any, chain: Sequence[bytes]) -> None:
    *_, witnessed, last = CBlock.deserialize(chain[3]).vtx
    assert witnessed.has_witness()
    for name, at in {
        "false-root": 40,
        "false-witness": -len(last.serialize()) - 10,  # a byte of a witness, which precedes the lock time
    }.items():
        damaged = bytearray(chain[3])
        damaged[at] ^= 1
        Path(name).write_bytes(damaged)
    *_, payment = transcript_of(
        0,
        f"""
        inspect {CORE_FILTER} --format table
        inspect {CORE_FILTER[:-2]}f9 --format table
        inspect {"00" * 10} --format table
        inspect false-root --format table
        inspect false-witness --format table
        inspect {FIRST_PAYMENT} --format table
        """,
    )
    assert re.findall(r"\d+\.\d{8}", payment.out) == ["50.00000000", "10.00000000", "40.00000000"]


@pytest.mark.parametrize(
    ("payload", "rate", "elements"),
    [
        ("00" + "05000000" + "00000000" + "01", 1, None),
        ("01ff" + "01000000" + "00000000" + "00", 1, None),
        ("0100010000000000000000", 0, 0),
    ],
)
def test_extreme_filters_have_rates_in_json(run: Any, payload: str, rate: int, elements: int | None) -> None:
    found = json.loads(run("inspect", payload, "--format", "jsonl").out)
    assert (found["kind"], found["real_fp_rate"], found["estimated_elements"]) == ("filterload", rate, elements)


def test_a_transaction_agrees_with_python_bitcoinlib(run: Any) -> None:
    found = json.loads(run("inspect", FIRST_PAYMENT, "--format", "jsonl").out)
    tx = CTransaction.deserialize(bytes.fromhex(FIRST_PAYMENT))
    size = len(FIRST_PAYMENT) // 2
    assert found == {
        "kind": "transaction",
        "txid": "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16",
        "wtxid": "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16",
        "version": 1,
        "size": size,
        "stripped_size": size,
        "weight": 4 * size,
        "vsize": size,
        "lock_time": 0,
        "output_value": 50 * 10**8,
        "inputs": [
            {
                "outpoint": "0437cd7f8525ceed2324359c2d0ba26006d92d856a9c20fa0241106ee5a597c9:0",
                "script_sig": bytes(tx.vin[0].scriptSig).hex(),
                "sequence": 0xFFFFFFFF,
            }
        ],
        "outputs": [
            {"value": out.nValue, "address": None, "script_pubkey": bytes(out.scriptPubKey).hex()} for out in tx.vout
        ],
    }


def test_hex_digits_may_begin_with_0x(run: Any, tmp_path: Path) -> None:
    plain = run("inspect", FIRST_PAYMENT, *TABLE)
    file = tmp_path / "tx.hex"
    file.write_text(f" 0X{FIRST_PAYMENT}\n")
    assert run("inspect", f"0x{FIRST_PAYMENT}", *TABLE) == run("inspect", str(file), *TABLE) == plain
    assert plain.code == 0
    for empty in ("0x", "0x0"):
        assert run("inspect", empty).code == 2


def test_a_psbt_in_place_of_hex_digits_is_named(run: Any) -> None:
    ran = run("inspect", "cHNidP8BAHECAAAAAQ==")
    assert (ran.code, ran.out) == (2, "")
    assert "a PSBT in base64: finalize it first" in ran.err


def test_a_transactions_table_shows_amounts_and_addresses(run: Any, chain: Sequence[bytes]) -> None:
    payment = next(tx for tx in CBlock.deserialize(chain[1]).vtx if tx.vout[0].nValue == 50_000_000)
    raw = payment.serialize().hex()
    out = run("inspect", raw, "--network", "regtest", *TABLE).out
    assert f"0.50000000  {wallet_addresses()['P2PKH']}\n" in out
    assert facts(out)["lock time"] == "0: none"
    assert int(facts(out)["weight"].replace(",", "")) == payment.calc_weight()
    assert str(script_to_address(bytes(payment.vout[0].scriptPubKey), MAINNET)) not in out


def test_the_network_decides_the_form_of_addresses(run: Any, chain: Sequence[bytes]) -> None:
    payment = next(tx for tx in CBlock.deserialize(chain[1]).vtx if tx.vout[0].nValue == 110_000_000)
    out = run("inspect", payment.serialize().hex(), *TABLE).out
    assert f"  {script_to_address(bytes(payment.vout[0].scriptPubKey), MAINNET)}\n" in out


def test_a_blocks_facts_agree_with_python_bitcoinlib(run: Any, chain: Sequence[bytes]) -> None:
    block = CBlock.deserialize(chain[5])
    found = json.loads(run("inspect", chain[5].hex(), "--network", "regtest", "--format", "jsonl").out)
    assert found == {
        "kind": "block",
        "hash": block.GetHash()[::-1].hex(),
        "previous": block.hashPrevBlock[::-1].hex(),
        "merkle_root": block.hashMerkleRoot[::-1].hex(),
        "merkle_root_ok": True,
        "commitment_ok": True,
        "stated_height": 6,
        "time": block.nTime,
        "bits": "207fffff",
        "nonce": block.nNonce,
        "version": 0x20000000,
        "transactions": len(block.vtx),
        "size": len(chain[5]),
        "stripped_size": len(block.serialize({"include_witness": False})),
        "weight": block.GetWeight(),
    }


@vector_cases("07_transactions/real_transactions.json")
def test_real_transactions_have_their_ids_and_sizes(case: Any, run: Any) -> None:
    found = json.loads(run("inspect", case["raw"], "--format", "jsonl").out)
    assert found["kind"] == "transaction"
    assert [found[name] for name in ("txid", "wtxid", "weight")] == [case[name] for name in ("txid", "wtxid", "weight")]


@vector_cases("07_transactions/malformed.json")
def test_malformed_transactions_are_refused(case: Any, run: Any) -> None:
    ran = run("inspect", case["raw"], *TABLE)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


@pytest.mark.vectors
@pytest.mark.parametrize(("name", "height"), [("mainnet_0482683_c238240e", 482683), ("mainnet_0100002_13b8ab2c", None)])
def test_real_blocks_are_recognized(run: Any, name: str, height: int | None) -> None:
    found = json.loads(run("inspect", vector_path(f"03_blocks/{name}.raw"), "--format", "jsonl").out)
    assert (found["kind"], found["merkle_root_ok"], found["stated_height"]) == ("block", True, height)
    assert found["hash"].lstrip("0").startswith(name.split("_")[2])


@pytest.mark.parametrize("form", ["raw", "hex", "HEX", "lines"])
@pytest.mark.parametrize("way", ["file", "-", "nothing"])
def test_bytes_and_hex_are_read_from_files_and_standard_input(form: str, way: str, tmp_path: Path) -> None:
    raw = bytes.fromhex(FIRST_PAYMENT)
    digits = FIRST_PAYMENT.encode()
    lines = b"".join(digits[at : at + 64] + b"\r\n" for at in range(0, len(digits), 64))
    data = {"raw": raw, "hex": digits + b"\n", "HEX": digits.upper(), "lines": lines}[form]
    (tmp_path / "tx").write_bytes(data)
    ran = {
        "file": lambda: process("inspect", tmp_path / "tx", *TABLE),
        "-": lambda: process("inspect", "-", *TABLE, stdin=data),
        "nothing": lambda: process("inspect", *TABLE, stdin=data),
    }[way]()
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16" in ran.stdout


def test_unknown_bytes_are_one_line_and_exit_code_2(refused: Any) -> None:
    refused(f"""
        inspect ''
        inspect abc
        inspect no-such-file
        inspect {"x" * 5000}
        inspect a\0b
        inspect /
        inspect 01
        inspect {CORE_FILTER[:-2]}
        inspect {CORE_FILTER}00
        inspect 0361b4ee330000000000000001
        inspect {FIRST_PAYMENT[:-2]}
        inspect {FIRST_PAYMENT}00
        inspect f9beb4d9{"66" * 30}
        inspect fabfb5da{"ff" * 30}
    """)


def test_the_first_wrong_hex_character_is_named(run: Any, tmp_path: Path) -> None:
    (tmp_path / "tx").write_text("0011\n22 33 4g")
    err = run("inspect", tmp_path / "tx", *TABLE).err
    assert err == f"spvfilter: {tmp_path / 'tx'}: the text is not hex: character 13 is not a hex digit\n"


def test_a_terminal_gets_a_prompt_for_digits(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with open(ours, "wb", 0) as keyboard, open(theirs, encoding="ascii") as terminal:  # noqa: PTH123  descriptors
        monkeypatch.setattr("sys.stdin", terminal)
        keyboard.write(b"00\n\x04")
        ran = run("inspect")
    assert (ran.code, json.loads(ran.out)["kind"]) == (0, "headers")
    assert ran.err == "spvfilter: type or paste hex digits, then press Enter and Ctrl-D\n"


def test_a_truncated_block_is_reported_as_a_block(run: Any, chain: Sequence[bytes]) -> None:
    ran = run("inspect", chain[2][:-1].hex(), *TABLE)
    assert ran.code == 2
    assert ran.err.split("; ")[1].startswith("as a block: lock time at byte")


def test_an_oversized_file_is_refused_before_parsing(run: Any, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(4_000_025))
    assert run("inspect", tmp_path / "large", *TABLE) == (
        2,
        "",
        f"spvfilter: {tmp_path / 'large'}: 4000025 bytes: a message with a block must be at most 4000024 bytes long\n",
    )
    (tmp_path / "larger").write_bytes(b"0" * 8_200_000)
    most = "a message with a block must be at most 4000024 bytes long, or twice as many hex digits"
    said = f"more than 8100048 bytes: {most}"
    assert run("inspect", tmp_path / "larger", *TABLE).err == f"spvfilter: {tmp_path / 'larger'}: {said}\n"


def test_a_correct_merkle_root_identifies_a_block(
    monkeypatch: pytest.MonkeyPatch, run: Any, chain: Sequence[bytes]
) -> None:
    anything = Finding("filterload", "Filter", [])
    # pretend that it is a filterload, too
    monkeypatch.setitem(command.PARSERS, "filterload", (lambda raw, network: anything, ""))
    assert run("inspect", chain[0].hex(), *TABLE).err == ""
    damaged = bytearray(chain[0])
    damaged[40] ^= 1
    assert run("inspect", damaged.hex(), "--format", "jsonl").out == '{"kind": "filterload"}\n'


def test_a_transactions_ids_fit_a_terminal_of_80_columns() -> None:
    code, screen = on_terminal("inspect", FIRST_PAYMENT)
    assert code == 0
    assert "f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16" in screen


def test_a_pipe_given_as_a_file_is_read() -> None:
    ran = process("inspect", "/dev/stdin", *TABLE, stdin=CORE_FILTER.encode())
    assert ran.returncode == 0
    assert io.BytesIO(ran.stdout).readline() == b"BIP-37 filter (filterload payload)\n"
