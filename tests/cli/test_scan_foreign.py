"""`spvfilter scan` of files that do not name the network of their blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spvfilter.network import REGTEST
from support.build import block_of

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
    assert "1 block(s) do not name their network: assumed mainnet (--network chooses another)\n" in ran.err
    ran = run("scan", tmp_path / "other.blk", *options)
    assert (ran.code, ran.out) == (2, "")
    assert "other.blk: the block after the genesis block of regtest, not of mainnet" in ran.err
    ran = run("scan", tmp_path, *options, "--out", tmp_path / "out")
    assert ran.code == 1
    assert "of regtest, not of mainnet" in ran.err
    assert "assumed mainnet" in ran.err
