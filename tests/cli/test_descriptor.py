"""`descriptor`: its output for descriptors and keys. Descriptors as arguments of other commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spvfilter.network import REGTEST
from spvfilter.watch.descriptor import parse_descriptor
from support.blocks.build import TxIn, TxOut, block_of, tx
from support.wallets.descriptortexts import TPUB, WIF, XPUB

pytestmark = pytest.mark.descriptors


def test_table_shows_facts_and_addresses_of_each_path(transcript_of: Any) -> None:
    transcript_of(0, f"descriptor wpkh({XPUB}/<0;1>/*) --format table --count 2")


def test_json_has_everything_in_a_pipe(run: Any) -> None:
    ran = run("descriptor", f"combo({XPUB}/0/*)", "--count", 1, "--from-index", 0)
    assert ran.out.count("\n") == 1
    found = json.loads(ran.out)
    assert list(found) == ["descriptor", "checksum", "type", "network", "ranged", "outputs"]
    assert (found["checksum"], found["type"], found["ranged"]) == ("crc5xg57", "combo", True)
    assert [each["address"] for each in found["outputs"]] == [
        None,
        "1LqBGSKuX5yYUonjxT5qGfpUsXKYYWeabA",
        "bc1qmxrw6qdh5g3ztfcwm0et5l8mvws4eva24kmp8m",
        "3HkzTaFbEMWeJPLyNCNhPyGfZsVLDwdD3G",
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "command",
    [
        ("descriptor", f"wpkh({XPUB})"),
        ("filterload", f"wpkh({XPUB})"),
        ("privacy", f"wpkh({XPUB})"),
        ("scan", "blocks.dat", "--address", f"wpkh({XPUB})"),
    ],
    ids=lambda command: command[0],
)
def test_key_without_a_wildcard_is_refused_if_strict(run: Any, command: tuple[str, ...]) -> None:
    found = (
        f"wpkh({XPUB}"[:40] + "… has no wildcard '*', so it has only one address: to watch all addresses of its keys"
    )
    advice = f"{found}, write /<0;1>/* after each extended key"
    assert f"spvfilter: warning: {advice}" in run(*command).err
    strict = run(*command, "--strict")
    assert (strict.code, strict.out) == (2, "")
    assert advice in strict.err
    assert "warning" not in strict.err
    assert strict.err.count("\n") == 1


def test_invalid_descriptor_is_one_line(refused: Any) -> None:
    for ran in refused(f"""
        descriptor wpkh({XPUB}/0/*) --network signet
        descriptor wpkh({WIF})
        descriptor {XPUB}
        descriptor raw(51) --from-index 3
        descriptor nonsense
    """):
        assert WIF not in ran.err


def test_every_command_that_takes_addresses_takes_descriptors(run: Any, tmp_path: Path) -> None:
    text = f"wpkh({TPUB}/0/*)"
    (descriptor,) = parse_descriptor(text, REGTEST)
    block = tmp_path / "block.raw"
    paying = tx([TxIn(bytes(32), 1)], [TxOut(index, descriptor.scripts(index)[0]) for index in (999, 1_998, 2_900)])
    block.write_bytes(block_of(REGTEST.genesis_hash, 1, [paying]))
    (tmp_path / "list").write_text(f"{text},savings, mine\n")
    for what in (("--address", text), ("--watch", str(tmp_path / "list"))):
        ran = run("scan", block, *what, "--network", "regtest", "--format", "jsonl")
        assert [json.loads(line)["value"] for line in ran.out.splitlines()] == [999, 1_998, 2_900]
    filters = tmp_path / "filters.jsonl"
    filters.write_text("")
    assert run("filterload", text, "--network", "regtest").code == 0
    assert "private key" in run("filterload", f"wpkh({WIF})").err
    assert run("cfilter", "match", filters, "--address", f"wpkh({WIF})", "--network", "regtest").code == 2
