"""Blocks of another network without framing: contradictions are refused, assumptions are reported."""

from __future__ import annotations

import io
from typing import Any

import pytest

from spvfilter.errors import FormatError
from spvfilter.network import MAINNET, NETWORKS, REGTEST, SIGNET, TESTNET3
from spvfilter.scan import hex_blocks, stream_blocks
from spvfilter.scan.wrongnetwork import contradiction
from support.blocks.build import block_of
from support.blocks.chains import record
from support.blocks.realdata import RealBlock, real_block_cases

HARD = 0x1B0404CB
AFTER = block_of(REGTEST.genesis_hash, 1)


def with_bits(raw: bytes, bits: int) -> bytes:
    return raw[:72] + bits.to_bytes(4, "little") + raw[76:]


@pytest.mark.parametrize("network", NETWORKS)
def test_a_genesis_block_belongs_to_one_network(network: Any) -> None:
    for other in NETWORKS:
        said = contradiction(other.genesis + b"\x01", network)
        follows = contradiction(with_bits(block_of(other.genesis_hash, 1), HARD), network)
        if other is network:
            assert said is follows is None
        else:
            assert said == f"the genesis block of {other}, not of {network}"
            assert follows == f"the block after the genesis block of {other}, not of {network}"


def test_bits_above_a_networks_limit_are_of_another_network() -> None:
    raw = block_of(bytes(range(32)), 5)
    assert contradiction(raw, REGTEST) is None
    for network in (MAINNET, TESTNET3, SIGNET):
        assert (
            contradiction(raw, network)
            == f"its bits, 207fffff, are easier than {network} allows: does the block belong to another network?"
        )
        assert contradiction(with_bits(raw, network.pow_limit_bits), network) is None
        assert contradiction(with_bits(raw, network.pow_limit_bits + 1), network) is not None
    assert contradiction(with_bits(raw, 0xFF7FFFFF), REGTEST) is None or "easier" in str(
        contradiction(with_bits(raw, 0xFF7FFFFF), REGTEST)
    )
    assert contradiction(b"", MAINNET) is contradiction(bytes(79), MAINNET) is None


@real_block_cases()
def test_no_real_block_contradicts_its_network(block: RealBlock) -> None:
    (network,) = [each for each in NETWORKS if block.name.startswith(each.name)] or [REGTEST]
    assert contradiction(block.raw, network) is None


def test_a_line_of_another_network_is_named_and_skipped() -> None:
    good = with_bits(block_of(bytes(range(32)), 5), HARD)
    lines = "\n".join(raw.hex() for raw in (good, AFTER, record(good, MAINNET.magic), good))
    said: list[str] = []
    assert list(stream_blocks(io.BytesIO(lines.encode()), MAINNET, said.append)) == [good, good]
    assert said == [
        "line 2: the block after the genesis block of regtest, not of mainnet",
        "line 3: expected only a block, but this is a record of a mainnet blk*.dat, with its magic and length",
    ]
    with pytest.raises(FormatError, match="of regtest, not of mainnet") as raised:
        list(stream_blocks(io.BytesIO(lines.encode()), MAINNET))
    assert raised.value.offset == 2
    assert len(list(hex_blocks(io.BytesIO(lines.encode())))) == 4
