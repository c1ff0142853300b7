"""Children of extended keys on both kernels: against libwally, in rare cases of the addition, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from spvfilter.errors import ParameterError
from support.kernels.kernelentries import Kernel, native, reference
from support.project.installed import is_compiled

KERNELS = {"native": native, "pure": reference} if is_compiled() else {"pure": reference}
BOTH = pytest.mark.parametrize("kernel", [make() for make in KERNELS.values()], ids=KERNELS)
ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
G = bytes.fromhex("0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798")
INVALID = bytes(33)
_SECRETS = st.one_of(
    st.integers(0, 300), st.integers(ORDER - 300, ORDER + 300), st.integers(0, 2**256 - 1), st.just(2**256 - 1)
)
_SPARSE = st.lists(st.integers(0, 63), max_size=3).map(lambda at: sum(1 << 4 * each for each in set(at)))


def tweaks(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(32, "big") for number in numbers)


def split(keys: bytes) -> list[bytes]:
    return [keys[at : at + 33] for at in range(0, len(keys), 33)]


def key_of(secret: int) -> bytes:
    """The public key of a secret, by the generator alone."""
    return G if secret == 1 else bytes(reference().child_keys(G, tweaks(secret - 1)))


@pytest.mark.few(1)
@BOTH
@settings(max_examples=20)
@given(secret=st.integers(1, ORDER - 1), found=st.lists(st.one_of(_SECRETS, _SPARSE), max_size=4))
def test_child_is_the_key_of_the_sum_of_secrets(kernel: Kernel, secret: int, found: list[int]) -> None:
    parent = key_of(secret)
    sums = [(secret + each) % ORDER if each < ORDER else 0 for each in found]
    expected = [key_of(each) if each else INVALID for each in sums]
    assert split(kernel.child_keys(parent, tweaks(*found))) == expected


@pytest.mark.few(1)
@BOTH
def test_parent_that_equals_a_multiple_is_added_soundly(kernel: Kernel) -> None:
    for secret in (1, 2, 15, 16, ORDER - 1, ORDER - 16):
        found = split(kernel.child_keys(key_of(secret), tweaks(secret, ORDER - secret, 0, ORDER)))
        assert found == [key_of(2 * secret % ORDER), INVALID, key_of(secret), INVALID]


@BOTH
@pytest.mark.parametrize(
    "parent", [b"", G[:32], G + b"x", b"\x04" + G[1:], b"\x02" + b"\xff" * 32, b"\x02" + bytes(31) + b"\5"]
)
def test_parent_that_is_no_key_is_refused(kernel: Kernel, parent: bytes) -> None:
    with pytest.raises(ParameterError, match="compressed public key of 33 bytes"):
        kernel.child_keys(parent, tweaks(1))


@BOTH
@pytest.mark.parametrize("size", [1, 31, 33, 65])
def test_truncated_tweak_is_refused(kernel: Kernel, size: int) -> None:
    with pytest.raises(ParameterError, match=f"the tweaks must be a multiple of 32 bytes long, not {size}"):
        kernel.child_keys(G, bytes(size))


@pytest.mark.native
@pytest.mark.descriptors
@pytest.mark.parametrize("count", [0, 1, 2, 511, 512, 513, 1_500])
def test_compiled_kernel_derives_as_libwally(count: int) -> None:
    import hmac

    import wallycore

    wally: Any = wallycore
    flags, public_key = wally.BIP32_FLAG_KEY_PUBLIC, wally.bip32_key_get_pub_key
    master = wally.bip32_key_from_seed(bytes(range(32)), wally.BIP32_VER_TEST_PRIVATE, 0)
    parent = wally.bip32_key_from_parent(master, 7, 0)
    key, code = bytes(public_key(parent)), bytes(wally.bip32_key_get_chain_code(parent))
    halves = [hmac.digest(code, key + index.to_bytes(4, "big"), "sha512")[:32] for index in range(count)]
    children = [wally.bip32_key_from_parent(parent, index, flags) for index in range(count)]
    assert split(native().child_keys(key, b"".join(halves))) == [bytes(public_key(each)) for each in children]
