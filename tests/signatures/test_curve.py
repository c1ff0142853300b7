"""libsecp256k1 by each of its two packages."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, strategies as st

from spvfilter.signatures.curve import ORDER, Curve, compressed_key, find_curve

PACKAGES = ("wallycore", "btclib_secp256k1")
SECRET = sha256(b"secret").digest()
OTHER = sha256(b"other").digest()


@contextmanager
def without(*missing: str) -> Iterator[Curve | None]:
    """Yield the curve that is found if these packages are not installed."""
    imported = builtins.__import__

    def fail(name: str, *arguments: Any, **keywords: Any) -> ModuleType:
        if name.split(".")[0] in missing:
            raise ImportError(name)
        return imported(name, *arguments, **keywords)

    find_curve.cache_clear()
    try:
        with patch.object(builtins, "__import__", fail):
            found = find_curve()
        yield found
    finally:
        find_curve.cache_clear()


@pytest.fixture(
    params=[
        pytest.param("btclib_secp256k1", marks=pytest.mark.descriptors, id="wallycore"),
        pytest.param("wallycore", marks=pytest.mark.musig, id="btclib"),
    ]
)
def lib(request: pytest.FixtureRequest) -> Iterator[Curve]:
    """The curve of each package, while the other one is missing."""
    with without(request.param) as found:
        assert found is not None
        yield found


def test_signatures_are_valid_for_their_key_and_hash_alone(lib: Curve) -> None:
    key, digest, other = lib.public_key(SECRET), sha256(b"message").digest(), lib.public_key(OTHER)
    ecdsa, schnorr = lib.sign_ecdsa(SECRET, digest), lib.sign_schnorr(SECRET, digest)
    assert lib.is_ecdsa(key, digest, ecdsa)
    assert lib.is_schnorr(key[1:], digest, schnorr)
    assert int.from_bytes(ecdsa[32:], "big") <= ORDER // 2
    assert (ecdsa, schnorr) == (lib.sign_ecdsa(SECRET, digest), lib.sign_schnorr(SECRET, digest))
    for wrong in (bytes(64), ecdsa[:63] + bytes((ecdsa[63] ^ 1,)), schnorr):
        assert not lib.is_ecdsa(key, digest, wrong)
    for wrong in (bytes(64), b"\xff" * 64, ecdsa):
        assert not lib.is_schnorr(key[1:], digest, wrong)
    assert not lib.is_ecdsa(other, digest, ecdsa)
    assert not lib.is_schnorr(other[1:], digest, schnorr)
    assert not lib.is_ecdsa(key, sha256(b"").digest(), ecdsa)
    assert not lib.is_ecdsa(b"\x02" + b"\xff" * 32, digest, ecdsa)
    assert not lib.is_schnorr(b"\xff" * 32, digest, schnorr)


def test_tweaks_of_keys_and_secrets_fit(lib: Curve) -> None:
    assert lib.public_key(lib.tweak_secret(SECRET, OTHER)) == lib.tweak_key(lib.public_key(SECRET), OTHER)
    opposite = (ORDER - int.from_bytes(SECRET, "big")).to_bytes(32, "big")
    with pytest.raises(ValueError, match=r".+"):
        lib.tweak_key(lib.public_key(SECRET), opposite)
    with pytest.raises(ValueError, match=r".+"):
        lib.public_key(bytes(32))


@pytest.mark.descriptors
@pytest.mark.musig
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_both_packages_agree(secret: bytes, digest: bytes) -> None:
    with without("btclib_secp256k1") as first, without("wallycore") as second:
        assert first is not None
        assert second is not None
    if not 0 < int.from_bytes(secret, "big") < ORDER:
        return
    assert first.public_key(secret) == second.public_key(secret)
    assert first.sign_ecdsa(secret, digest) == second.sign_ecdsa(secret, digest)
    assert first.sign_schnorr(secret, digest) == second.sign_schnorr(secret, digest)


@pytest.mark.descriptors
@pytest.mark.musig
def test_either_package_is_enough() -> None:
    with without("btclib_secp256k1") as first, without("wallycore") as second, without(*PACKAGES) as none:
        assert first is not None
        assert second is not None
        assert type(first) is not type(second)
        assert none is None


@given(st.binary(max_size=70))
def test_other_bytes_are_no_key(data: bytes) -> None:
    found = compressed_key(data)
    assert found is None or (len(data) in (33, 65) and len(found) == 33)
