"""`spvfilter scan` of files that do not name the network of their blocks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from spvfilter.network import REGTEST, SIGNET, Network
from support.blocks.build import block_of
from support.blocks.chains import record, xored

HARD = 0x1B0404CB
AFTER = block_of(REGTEST.genesis_hash, 1)


def with_bits(raw: bytes, bits: int) -> bytes:
    return raw[:72] + bits.to_bytes(4, "little") + raw[76:]


@pytest.mark.parametrize("as_hex", [False, True])
def test_file_of_another_network_is_a_problem(run: Any, tmp_path: Path, as_hex: bool) -> None:
    options = ["--address", "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"]
    good = with_bits(block_of(bytes(range(32)), 5), HARD)
    for name, raw in (("good", good), ("other", AFTER)):
        (tmp_path / f"{name}.blk").write_bytes(raw.hex().encode() if as_hex else raw)
    ran = run("scan", tmp_path / "good.blk", *options)
    assert ran.code == 0
    assert "took 1 block of unknown network to be from mainnet; use --network to choose another\n" in ran.err
    ran = run("scan", tmp_path / "other.blk", *options)
    assert (ran.code, ran.out) == (2, "")
    assert "other.blk: the block after the genesis block of regtest, not of mainnet" in ran.err
    ran = run("scan", tmp_path, *options, "--out", tmp_path / "out")
    assert ran.code == 1
    assert "of regtest, not of mainnet" in ran.err
    assert "to be from mainnet; use --network to choose another" in ran.err


CUSTOM = Network.signet("51")
ON_SIGNET = ["--address", "tb1qw508d6qejxtdg4y5r3zarvary0c5xw7kxpjzsx"]


def genesis(magic: bytes) -> bytes:
    """A record with the genesis block of signet, whose coinbase is that of mainnet."""
    return record(SIGNET.genesis + block_of(bytes(32), 1)[80:], magic)


@pytest.mark.parametrize("options", [["--signet-challenge", "51"], ["--signet-challenge", "51", "--network", "signet"]])
@pytest.mark.parametrize("as_stream", [False, True])
def test_custom_signet_is_scanned_by_its_challenge(
    run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], as_stream: bool
) -> None:
    path = tmp_path / "blk00000.dat"
    path.write_bytes(genesis(CUSTOM.magic))
    with path.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        ran = run("scan", "-" if as_stream else path, *ON_SIGNET, *options)
    assert (ran.code, ran.out) == (0, "")
    assert "1 block" in ran.err


@pytest.mark.parametrize(("name", "key"), [("blk00000.dat", b""), ("blk00000.dat", bytes(range(1, 9))), ("any", b"")])
def test_genesis_block_below_another_magic_names_magic_and_option(
    run: Any, tmp_path: Path, name: str, key: bytes
) -> None:
    (tmp_path / name).write_bytes(xored(genesis(b"abcd"), key) if key else genesis(b"abcd"))
    if key:
        (tmp_path / "xor.dat").write_bytes(key)
    ran = run("scan", tmp_path / name, *ON_SIGNET, "--network", "signet")
    assert ran.code == 2
    assert "the genesis block of signet has the magic 61626364 here instead of 0a03cf40" in ran.err
    assert "--signet-challenge" in ran.err
    assert "XORed" not in ran.err


def test_default_signet_is_not_a_custom_one(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "blk00000.dat"
    path.write_bytes(genesis(SIGNET.magic))
    ran = run("scan", path, *ON_SIGNET, "--signet-challenge", "51")
    assert ran.code == 2
    assert "these are signet blocks, but the network is signet:51" in ran.err


def test_wrong_challenge_is_an_error_of_its_option(refused: Any) -> None:
    scan = shlex.join(["scan", "any", *ON_SIGNET])
    refused(f"""
        {scan} --signet-challenge 5
        {scan} --signet-challenge ''
        {scan} --network regtest --signet-challenge 51
        {scan} --signet-challenge 51 --network mainnet
        {scan} --signet-challenge 51 --signet-challenge 52
    """)
