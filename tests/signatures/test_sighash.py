"""Hashes that signatures sign: published vectors."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from spvfilter.errors import ParameterError
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import SigHashes
from spvfilter.signatures.sighash import tagged_hash
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from support.vectors import vector_cases


@vector_cases(
    "07_transactions/sighash_random.json",
    lambda case: "ab" not in [case["script_code"][at : at + 2] for at in range(0, len(case["script_code"]), 2)],
)
def test_legacy_hashes_of_core(case: dict[str, Any]) -> None:
    tx = Transaction.parse(bytes.fromhex(case["raw"]))
    hashes = SigHashes(tx, [None] * len(tx.inputs))
    found = hashes.legacy(case["input_index"], bytes.fromhex(case["script_code"]), case["hash_type"])
    assert found is not None
    assert found[::-1].hex() == case["sighash"]


def test_the_example_of_bip_143() -> None:
    raw = bytes.fromhex(
        "0100000002fff7f7881a8099afa6940d42d1e7f6362bec38171ea3edf433541db4e4ad969f0000000000eeffffff"
        "ef51e1b804cc89d182d279655c3aa89e815b1b309fe287d9b2b55d57b90ec68a0100000000ffffffff"
        "02202cb206000000001976a9148280b37df378db99f66f85c95a783a76ac7a6d5988ac"
        "9093510d000000001976a9143bde42dbee7e4dbe6a21b2d50ce2f0167faa815988ac11000000"
    )
    tx = Transaction.parse(raw)
    key = bytes.fromhex("025476c2e83188368da1ff3e292e7acafcdb3566bb0ad253f62fc70f07aeee6357")
    digest = hashlib.new("ripemd160", hashlib.sha256(key).digest()).digest()
    spent = [None, TxOut(600_000_000, b"\x00\x14" + digest)]
    found = SigHashes(tx, spent).segwit(1, b"\x76\xa9\x14" + digest + b"\x88\xac", 1)
    assert found is not None
    assert found.hex() == "c37af31116d1b27caf68aae9e3ac82f1477929014d5b917657d0eb49478cb670"


def test_hashes_that_need_an_unknown_output_are_none() -> None:
    inputs = [TxIn(OutPoint(bytes(32), at)) for at in range(2)]
    tx = Transaction.parse(build_tx(inputs, [TxOut(1, b"\x51")]))
    hashes = SigHashes(tx, [TxOut(5, b"\x51"), None])
    assert hashes.segwit(1, b"", 1) is None
    assert hashes.taproot(0, 0) is None
    assert hashes.taproot(1, 0x82) is None
    assert hashes.segwit(0, b"", 1) is not None
    assert hashes.taproot(0, 0x81) is not None


@pytest.mark.parametrize("hash_type", [4, 0x80, 0x84, 0xFF])
def test_taproot_allows_seven_hash_types(hash_type: int) -> None:
    tx = Transaction.parse(build_tx([TxIn(OutPoint(bytes(32), 0))], [TxOut(1, b"\x51")]))
    with pytest.raises(ParameterError, match="hash type"):
        SigHashes(tx, [TxOut(5, b"\x51")]).taproot(0, hash_type)


def test_the_tag_of_bip_340_is_hashed_twice() -> None:
    prefix = hashlib.sha256(b"TapLeaf").digest()
    assert tagged_hash("TapLeaf", b"x") == hashlib.sha256(prefix + prefix + b"x").digest()
