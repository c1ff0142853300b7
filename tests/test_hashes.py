"""Hash functions: murmur3 against published vectors, double hashes against known answers, RIPEMD-160 without
OpenSSL.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given, strategies as st

from spvfilter.hashes import hash160, murmur3, sha256d
from support.vectors import vector_cases

GENESIS_KEY = bytes.fromhex(
    "04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5f"
)
HASH160_ANSWERS = [
    (b"", "b472a266d0bd89c13706a4132ccfb16f7c3b9fcb"),
    (GENESIS_KEY, "62e907b15cbf27d5425399ebf6f0fb50ebb88f18"),  # 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa
    (  # the key of BIP-173's P2WPKH example
        bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"),
        "751e76e8199196d454941c45d1b3a323f1433bd6",
    ),
]


def without_openssl_ripemd160(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """OpenSSL 3 without its legacy provider; the list records which hashes were requested."""
    asked: list[str] = []

    def unsupported(name: str, data: bytes = b"", **options: Any) -> Any:
        asked.append(name)
        raise ValueError(f"unsupported hash type {name}")

    monkeypatch.setattr(hashlib, "new", unsupported)
    return asked


@vector_cases("01_murmur3/murmur3_x86_32.json")
def test_murmur3_equals_the_published_value(case: Any) -> None:
    assert murmur3(bytes.fromhex(case["data"]), case["seed"]) == case["hash"]


@given(st.binary(max_size=64), st.integers(0, 0xFFFFFFFF))
def test_murmur3_is_a_u32(data: bytes, seed: int) -> None:
    assert 0 <= murmur3(data, seed) <= 0xFFFFFFFF


def test_sha256d_of_nothing_and_of_hello() -> None:
    assert sha256d(b"").hex() == "5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456"
    assert sha256d(b"hello").hex() == "9595c9df90075148eb06860365df33584b75bff782a510c6cd4883a419833d50"


@pytest.mark.parametrize(("data", "expected"), HASH160_ANSWERS)
def test_hash160_known_answers(data: bytes, expected: str) -> None:
    assert hash160(data).hex() == expected


@pytest.mark.parametrize(("data", "expected"), HASH160_ANSWERS)
def test_hash160_known_answers_without_openssl(monkeypatch: pytest.MonkeyPatch, data: bytes, expected: str) -> None:
    asked = without_openssl_ripemd160(monkeypatch)
    assert hash160(data).hex() == expected
    assert asked == ["ripemd160"]


@pytest.mark.parametrize("size", [*range(0, 200, 7), 1000])
def test_hash160_is_the_same_with_and_without_openssl(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(at * 37 & 0xFF for at in range(size))
    before = hash160(data)
    asked = without_openssl_ripemd160(monkeypatch)
    assert hash160(data) == before
    assert asked == ["ripemd160"]
