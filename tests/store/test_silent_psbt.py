"""PSBTs that spend silent payments, with the keys, tweaks and signatures of the vectors proposed for BIP-376."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import Validity, verify_spends
from spvfilter.signing import build_tx
from spvfilter.store.psbt import SilentSpend, encode_version_2, silent_pairs
from spvfilter.transaction import Transaction, TxIn
from support.blocks.silentpayments import ORDER, Wallet, psbt_maps, public, signed

pytest.importorskip("btclib_secp256k1")

SPEND_KEY = 0x26C6CA8D553EBF5633CAD2F5BECD608ACB99BFADE1005254AA59BC4FC372985A
OUTPOINT = OutPoint(bytes(range(32)), 5)
H = 0x8000_0000


class Vector(NamedTuple):
    """A case of bip-0376/test-vectors.json (bitcoin/bips, pull request 2139), numbers in hexadecimal."""

    tweak: str
    output_key: str
    private_key: str
    negated_key: str | None
    """The key that signs, if the sum of the spend key and the tweak has an odd y."""
    message: str
    random: str
    signature: str


VECTORS = [
    Vector(
        "ac7b0d0420f0d4a567d9abcb8a52e02cfae21690fd8d2d5934370dcc5aaee221",
        "528b75296fa646acecf3fcb7c7697f92f7645ea0e41e6ee8a66554739d2da028",
        "d341d791762f93fb9ba47ec1492040b7c67bd63ede8d7fadde90ca1c1e217a7b",
        None,
        "289e5175e02c788c2d442cfe81d6be0533d8c13e253ef763fda45d37accfe4d4",
        "a617dfb275f834e26a6f0c94052dd88982c86297dba990fd96645026e7c69e10",
        "d0c4f5ee3768c03a8d8e1204b8e52c6a4ded1f456d0f1707e7841928945c5a45"
        "bc1c0bc671d79612ef1c67a54bd50d653ce3d33c1fd966ce9a91e053f9417778",
    ),
    Vector(
        "58e2385eb96d1c906bbd807eafd1fddb80fb2f43026a16386a400e6832644cbc",
        "db0edc417c73c567add118de8d138b2d0b64083f0a1bd8e876936415de7edc46",
        "7fa902ec0eabdbe69f8853746e9f5e664c94eef0e36a688d1499cab7f5d6e516",
        "8056fd13f15424196077ac8b9160a1986e19edf5cbde37aeab3893d4da5f5c2b",
        "a78521e49048b6e0d368d3fba417fc20c7546272dafa78a8a173fcca6c81233b",
        "6b31977a8ac73ede3f3653ea0d96bc3656242461e31d771985a0b17084d3cf91",
        "3df67213afd895a833bc046e9455c77a7e40165638ad489669a5c498d4d71ab5"
        "65a9c54abda2e23e931f7a0f78a9f151bba07b8400b7b96d24f857c8ba65c022",
    ),
]


def psbt_of(tweak: str, output_key: str) -> tuple[bytes, TxOut]:
    """A PSBT that spends the output with a key, and the output."""
    output = TxOut(80_000, b"\x51\x20" + bytes.fromhex(output_key))
    tx = Transaction.parse(build_tx([TxIn(OUTPOINT, sequence=0xFFFFFFFD)], [TxOut(70_000, b"\0\x14" + bytes(20))]))
    origin = (bytes.fromhex("deadbeef"), (H + 352, H, H, H, 0))
    spend = SilentSpend(bytes.fromhex(tweak), public(SPEND_KEY), origin)
    return encode_version_2(tx, [], [silent_pairs(output, spend)], [()]), output


@pytest.mark.parametrize("vector", VECTORS)
def test_signer_gets_the_key_of_each_vector(vector: Vector) -> None:
    from btclib_secp256k1 import ssa

    psbt, output = psbt_of(vector.tweak, vector.output_key)
    _, found, _ = psbt_maps(psbt)
    assert found[0x20, b""].hex() == vector.tweak
    assert found[0x01, b""] == bytes(output)
    steps = "".join((step).to_bytes(4, "little").hex() for step in (H + 352, H, H, H, 0))
    assert found[0x1F, public(SPEND_KEY)].hex() == "deadbeef" + steps
    private = (SPEND_KEY + int.from_bytes(found[0x20, b""], "big")) % ORDER
    assert private == int(vector.private_key, 16)
    assert (public(private)[0] == 3) is (vector.negated_key is not None)
    if vector.negated_key is not None:
        assert ORDER - private == int(vector.negated_key, 16)
    message, random = bytes.fromhex(vector.message), bytes.fromhex(vector.random)
    assert ssa.sign(message, private.to_bytes(32, "big"), random).hex() == vector.signature
    tx = Transaction.parse(signed(Wallet(spend=SPEND_KEY), psbt))
    assert verify_spends(tx, [output]).validity is Validity.VALID


@pytest.mark.parametrize(
    ("tweak", "output_key"),
    [
        (VECTORS[0].tweak, VECTORS[0].output_key[:-1] + "9"),
        ((ORDER - SPEND_KEY).to_bytes(32, "big").hex(), VECTORS[0].output_key),
    ],
)
def test_signer_refuses_the_invalid_vectors(tweak: str, output_key: str) -> None:
    psbt, _ = psbt_of(tweak, output_key)
    with pytest.raises(ValueError, match=r"the tweak is not that of the output|key"):
        signed(Wallet(spend=SPEND_KEY), psbt)
