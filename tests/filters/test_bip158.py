"""BIP-158 basic filters and BIP-157 filter headers: published vectors, real blocks with their spent outputs, and
chains.
"""

from __future__ import annotations

import io
from typing import Any

import pytest

from spvfilter.errors import FormatError, ParameterError
from spvfilter.filters.bip158 import BasicFilter, filter_header, filter_headers
from spvfilter.primitives import hash_from_hex, hash_to_hex
from spvfilter.protocol import GENESIS_PREVIOUS_FILTER_HEADER
from support.blocks import build
from support.blocks.build import TxIn, TxOut
from support.blocks.realdata import runs
from support.vectors import vector_cases, vector_file, vector_path

CHAINS = [
    "chain_mainnet_000000_000255",
    "chain_signet_000000_000070",
    "chain_testnet3_000000_000459",
    "chain_testnet3_001000_001999",
]


def prevout_scripts(name: str) -> list[bytes]:
    """The scripts in a file of serialised CTxOut, parsed by the test itself."""
    file = io.BytesIO(vector_path(name).read_bytes())
    scripts = []
    while file.read(8):
        (size,) = file.read(1)
        size = int.from_bytes(file.read(1 << size - 0xFC), "little") if size >= 0xFD else size
        scripts.append(file.read(size))
    return scripts


@vector_cases("04_bip158/real_blocks.json")
def test_real_blocks_filters_are_built_and_matched(case: dict[str, Any]) -> None:
    raw = vector_path(case["block_file"]).read_bytes()
    made = BasicFilter.build(raw, prevout_scripts(case["prevouts_file"]))
    assert hash_to_hex(made.block_hash) == case["block_hash"]
    assert bytes(made).hex() == case["filter"]
    assert (made.n, hash_to_hex(made.filter_hash), made.key.hex()) == (
        case["n_items"],
        case["filter_hash"],
        case["key"],
    )
    if case.get("prev_filter_header"):
        assert hash_to_hex(made.header(hash_from_hex(case["prev_filter_header"]))) == case["filter_header"]
    read = BasicFilter.parse(bytes.fromhex(case["filter"]), made.block_hash)
    assert read == made
    assert all(read.match(bytes.fromhex(script)) for script in case["match"])
    strangers = [bytes.fromhex(script) for script in case["no_match"]]
    assert not any(read.match(script) for script in strangers)
    assert not read.match_any(strangers)
    assert not any(read.match(bytes.fromhex(script)) for script in case["op_return_outputs_not_in_filter"])
    for script in case["match"][:20]:
        assert read.match_any([*strangers, bytes.fromhex(script)])


@vector_cases("04_bip158/edge_cases.json")
def test_edge_cases_of_the_rules(case: dict[str, Any]) -> None:
    made = BasicFilter.build(bytes.fromhex(case["block"]), map(bytes.fromhex, case["prevout_scripts"]))
    assert bytes(made).hex() == case["filter"]
    assert made.n == case["n_items"]
    assert hash_to_hex(made.header(hash_from_hex(case["prev_filter_header"]))) == case["filter_header"]


@vector_cases("04_bip158/false_positives.json")
def test_false_positives_match(case: dict[str, Any]) -> None:
    read = BasicFilter.parse(bytes.fromhex(case["filter"]), hash_from_hex(case["block_hash"]))
    raw = vector_path(case["block_file"]).read_bytes()
    for script in map(bytes.fromhex, case["false_positive_scripts"]):
        assert script not in raw
        assert read.match(script)


@pytest.mark.vectors
def test_the_vectors_of_the_bip_match() -> None:
    rows = vector_file("04_bip158/testnet-19.json")[1:]
    assert len(rows) == 10
    for height, block_hash, block, scripts, previous, data, header, *_ in rows:
        made = BasicFilter.build(bytes.fromhex(block), map(bytes.fromhex, scripts))
        assert (hash_to_hex(made.block_hash), bytes(made).hex()) == (block_hash, data), height
        assert hash_to_hex(made.header(hash_from_hex(previous))) == header


@pytest.mark.vectors
@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_filters_and_their_headers(name: str) -> None:
    chain = vector_file(f"04_bip158/{name}.json")
    previous = hash_from_hex(chain["prev_filter_header"])
    (blocks,) = (
        run
        for entry, run in runs()
        if (entry["network"], entry["first_height"]) == (chain["network"], chain["first_height"])
    )
    hashes = []
    for block, expected in zip(blocks, chain["blocks"], strict=True):
        made = BasicFilter.build(block.raw, map(bytes.fromhex, expected.get("prevout_scripts", [])))
        assert (block.height, hash_to_hex(made.block_hash), bytes(made).hex()) == (
            expected["height"],
            expected["hash"],
            expected["filter"],
        )
        hashes.append(made.filter_hash)
    headers = [hash_to_hex(header) for header in filter_headers(hashes, previous)]
    assert headers == [expected["filter_header"] for expected in chain["blocks"]]


@pytest.mark.vectors
def test_mainnets_first_filter_headers_are_as_published() -> None:
    published = vector_path("04_bip158/filter_headers_mainnet_0_10236.bin").read_bytes()
    chain = vector_file("04_bip158/chain_mainnet_000000_000255.json")["blocks"]
    filters = [BasicFilter.parse(bytes.fromhex(entry["filter"]), hash_from_hex(entry["hash"])) for entry in chain]
    headers = b"".join(filter_headers((made.filter_hash for made in filters), GENESIS_PREVIOUS_FILTER_HEADER))
    assert len(headers) == 32 * 256
    assert headers == published[: len(headers)]


SCRIPT, SPENT = build.p2wpkh(b"\x01" * 20), build.p2wpkh(b"\x02" * 20)
BLOCK = build.block_of(
    build.GENESIS, 1, [build.tx([TxIn(b"\x11" * 32, 0)], [TxOut(5, SCRIPT), TxOut(0, b"\x6a\x01x"), TxOut(0, b"")])]
)


def test_a_filter_has_paid_and_spent_scripts() -> None:
    made = BasicFilter.build(BLOCK, [SPENT])
    assert made.match(SCRIPT)
    assert made.match(SPENT)
    assert BasicFilter.build(BLOCK, [b""]).n == made.n - 1
    assert BasicFilter.build(BLOCK, [SCRIPT]).n == made.n - 1
    assert not made.match_any([b"", b"\x6a\x01x"])
    assert BasicFilter.build(BLOCK, [b"\x6a"]).match(b"\x6a")  # a spent OP_RETURN, if that were possible


@pytest.mark.parametrize("scripts", [[], [SPENT, SPENT]])
def test_a_wrong_number_of_spent_scripts_is_refused(scripts: list[bytes]) -> None:
    with pytest.raises(ParameterError, match=f"spends 1 output, but prevout_scripts contains {len(scripts)} scripts"):
        BasicFilter.build(BLOCK, scripts)


def test_a_malformed_block_or_filter_is_refused() -> None:
    with pytest.raises(FormatError):
        BasicFilter.build(BLOCK[:-1], [SPENT])
    made = BasicFilter.build(BLOCK, [SPENT])
    with pytest.raises(FormatError):
        BasicFilter.parse(bytes(made)[:-1], made.block_hash)
    with pytest.raises(ParameterError, match="32 bytes long, not 31"):
        BasicFilter.parse(bytes(made), made.block_hash[:31])
    with pytest.raises(ParameterError, match="32 bytes long, not 31 and 32"):
        filter_header(bytes(31), bytes(32))
