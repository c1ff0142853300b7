"""The published vectors of BIP-341 for spending by key path: hashes, and signatures (wallet-test-vectors.json)."""

from __future__ import annotations

import pytest

from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import SigHashes, Validity, verify_input, verify_spends
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn

UNSIGNED = bytes.fromhex(
    "02000000097de20cbff686da83a54981d2b9bab3586f4ca7e48f57f5b55963115f3b334e9c0100000000000000"
    "00d7b7cab57b1393ace2d064f4d4a2cb8af6def61273e127517d44759b6dafdd990000000000ffffffff"
    "f8e1f583384333689228c5d28eac13366be082dc57441760d957275419a418420000000000ffffffff"
    "f0689180aa63b30cb162a73c6d2a38b7eeda2a83ece74310fda0843ad604853b0100000000feffffff"
    "aa5202bdf6d8ccd2ee0f0202afbbb7461d9264a25e5bfd3c5a52ee1239e0ba6c0000000000feffffff"
    "956149bdc66faa968eb2be2d2faa29718acbfe3941215893a2a3446d32acd0500000000000000000"
    "00e664b9773b88c09c32cb70a2a3e4da0ced63b7ba3b22f848531bbb1d5d5f4c940100000000000000"
    "00e9aa6b8e6c9de67619e6a3924ae25696bb7b694bb677a632a74ef7eadfd4eabf0000000000ffffffff"
    "a778eb6a263dc090464cd125c466b5a99667720b1c110468831d058aa1b82af10100000000ffffffff"
    "0200ca9a3b000000001976a91406afd46bcdfd22ef94ac122aa11f241244a37ecc88ac"
    "807840cb0000000020ac9a87f5594be208f8532db38cff670c450ed2fea8fcdefcc9a663f78bab962b0065cd1d"
)
SPENT = [
    TxOut(value, bytes.fromhex(script))
    for value, script in (
        (420_000_000, "512053a1f6e454df1aa2776a2814a721372d6258050de330b3c6d10ee8f4e0dda343"),
        (462_000_000, "5120147c9c57132f6e7ecddba9800bb0c4449251c92a1e60371ee77557b6620f3ea3"),
        (294_000_000, "76a914751e76e8199196d454941c45d1b3a323f1433bd688ac"),
        (504_000_000, "5120e4d810fd50586274face62b8a807eb9719cef49c04177cc6b76a9a4251d5450e"),
        (630_000_000, "512091b64d5324723a985170e4dc5a0f84c041804f2cd12660fa5dec09fc21783605"),
        (378_000_000, "00147dd65592d0ab2fe0d0257d571abf032cd9db93dc"),
        (672_000_000, "512075169f4001aa68f15bbed28b218df1d0a62cbbcf1188c6665110c293c907b831"),
        (546_000_000, "5120712447206d7a5238acc7ff53fbe94a3b64539ad291c7cdbc490b7577e4b17df5"),
        (588_000_000, "512077e30a5522dd9f894c3f8b8bd4c4b2cf82ca7da8a3ea6a239655c39c050ab220"),
    )
]
SIGNED = [  # index of the input, hash type, hash, signature without the hash type
    (
        *(0, 0x03, "2514a6272f85cfa0f45eb907fcb0d121b808ed37c6ea160a5a9046ed5526d555"),
        "ed7c1647cb97379e76892be0cacff57ec4a7102aa24296ca39af7541246d8ff1"
        "4d38958d4cc1e2e478e4d4a764bbfd835b16d4e314b72937b29833060b87276c",
    ),
    (
        *(1, 0x83, "325a644af47e8a5a2591cda0ab0723978537318f10e6a63d4eed783b96a71a4d"),
        "052aedffc554b41f52b521071793a6b88d6dbca9dba94cf34c83696de0c1ec35"
        "ca9c5ed4ab28059bd606a4f3a657eec0bb96661d42921b5f50a95ad33675b54f",
    ),
    (
        *(3, 0x01, "bf013ea93474aa67815b1b6cc441d23b64fa310911d991e713cd34c7f5d46669"),
        "ff45f742a876139946a149ab4d9185574b98dc919d2eb6754f8abaa59d18b025"
        "637a3aa043b91817739554f4ed2026cf8022dbd83e351ce1fabc272841d2510a",
    ),
    (
        *(4, 0x00, "4f900a0bae3f1446fd48490c2958b5a023228f01661cda3496a11da502a7f7ef"),
        "b4010dd48a617db09926f729e79c33ae0b4e94b79f04a1ae93ede6315eb3669d"
        "e185a17d2b0ac9ee09fd4c64b678a0b61a0a86fa888a273c8511be83bfd6810f",
    ),
    (
        *(6, 0x02, "15f25c298eb5cdc7eb1d638dd2d45c97c4c59dcaec6679cfc16ad84f30876b85"),
        "a3785919a2ce3c4ce26f298c3d51619bc474ae24014bcdd31328cd8cfbab2eff"
        "3395fa0a16fe5f486d12f22a9cedded5ae74feb4bbe5351346508c5405bcfee0",
    ),
    (
        *(7, 0x82, "cd292de50313804dabe4685e83f923d2969577191a3e1d2882220dca88cbeb10"),
        "ea0c6ba90763c2d3a296ad82ba45881abb4f426b3f87af162dd24d5109edc1cd"
        "d11915095ba47c3a9963dc1e6c432939872bc49212fe34c632cd3ab9fed429c4",
    ),
    (
        *(8, 0x81, "cccb739eca6c13a8a89e6e5cd317ffe55669bbda23f2fd37b0f18755e008edd2"),
        "bbc9584a11074e83bc8c6759ec55401f0ae7b03ef290c3139814f545b58a9f81"
        "27258000874f44bc46db7646322107d4d86aec8e73b8719a61fff761d75b5dd9",
    ),
]


def signed(flipped: int | None = None) -> Transaction:
    """The transaction with all signatures of taproot; one bit of the signature of the input `flipped` is wrong."""
    unsigned = Transaction.parse(UNSIGNED)
    witnesses = {}
    for index, hash_type, _, signature in SIGNED:
        raw = bytearray.fromhex(signature)
        raw[40] ^= index == flipped
        witnesses[index] = (bytes(raw) + (bytes((hash_type,)) if hash_type else b""),)
    inputs = [
        TxIn(
            OutPoint.parse(outpoint),
            witness=witnesses.get(index, ()),
            sequence=int.from_bytes(UNSIGNED[(at := UNSIGNED.index(outpoint) + 37) : at + 4], "little"),
        )
        for index, outpoint in enumerate(unsigned.inputs)
    ]
    lock_time = int.from_bytes(UNSIGNED[-4:], "little")
    made = Transaction.parse(build_tx(inputs, unsigned.outputs, version=2, lock_time=lock_time))
    assert made.txid == unsigned.txid
    return made


@pytest.mark.parametrize(("index", "hash_type", "digest"), [each[:3] for each in SIGNED])
def test_hashes_are_those_of_the_proposal(index: int, hash_type: int, digest: str) -> None:
    found = SigHashes(Transaction.parse(UNSIGNED), SPENT).taproot(index, hash_type)
    assert found is not None
    assert found.hex() == digest


@pytest.mark.descriptors
def test_signatures_of_the_proposal_are_valid() -> None:
    indexes = [index for index, *_ in SIGNED]
    assert verify_spends(signed(), SPENT, indexes).validity is Validity.VALID


@pytest.mark.descriptors
@pytest.mark.parametrize("index", [each[0] for each in SIGNED])
def test_a_changed_signature_or_coin_is_wrong(index: int) -> None:
    spoiled = signed(flipped=index)
    assert verify_input(spoiled, index, SPENT).validity is Validity.WRONG
    assert verify_spends(spoiled, SPENT, [each[0] for each in SIGNED]).index == index
    richer = [TxOut(out.value + (at == index), out.script_pubkey) for at, out in enumerate(SPENT)]
    assert verify_input(signed(), index, richer).validity is Validity.WRONG
