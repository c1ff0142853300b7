"""The scanner of silent payments against the formulas of BIP-352, which are written out in plain Python."""

from __future__ import annotations

import pickle
import random
from hashlib import sha256

import pytest

from spvfilter.errors import AddressError, ParameterError, WrongNetworkError
from spvfilter.hashes import hash160
from spvfilter.kernel import silent_candidate
from spvfilter.network import MAINNET, REGTEST
from spvfilter.silent.address import SilentAddress
from spvfilter.silent.scanner import SilentScanner, read_inputs
from spvfilter.watch.descriptor.keys import secret_in
from support.blocks import build
from support.vectors import effort

pytest.importorskip("btclib_secp256k1")

P = 2**256 - 2**32 - 977
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
Point = tuple[int, int] | None
SCAN, SPEND = (7).to_bytes(32, "big"), 11


def add(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % P == 0:
            return None
        slope = 3 * one[0] * one[0] * pow(2 * one[1], -1, P) % P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, P) % P
    x = (slope * slope - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


def times(factor: int, point: Point = G) -> Point:
    total: Point = None
    while factor:
        if factor & 1:
            total = add(total, point)
        point, factor = add(point, point), factor >> 1
    return total


def raw_of(point: Point) -> bytes:
    assert point is not None
    return bytes((2 + (point[1] & 1),)) + point[0].to_bytes(32, "big")


def tagged(tag: str, data: bytes) -> int:
    hashed = sha256(tag.encode()).digest()
    return int.from_bytes(sha256(hashed + hashed + data).digest(), "big")


def label_tweak(number: int) -> int:
    return tagged("BIP0352/Label", SCAN + number.to_bytes(4, "big"))


def payments(private: list[tuple[int, bool]], smallest: bytes, labels: list[int | None]) -> list[tuple[bytes, int]]:
    """Key and tweak of an output for each label, from the sender's private keys, which are negated for odd y."""
    total = 0
    for key, is_taproot in private:
        point = times(key)
        assert point is not None
        total += ORDER - key if is_taproot and point[1] & 1 else key
    total %= ORDER
    hashed = tagged("BIP0352/Inputs", smallest + raw_of(times(total)))
    shared = raw_of(times(hashed * total % ORDER * int.from_bytes(SCAN, "big") % ORDER))
    made = []
    for k, label in enumerate(labels):
        tweak = tagged("BIP0352/SharedSecret", shared + k.to_bytes(4, "big"))
        tweak += 0 if label is None else label_tweak(label)
        made.append((raw_of(times((SPEND + tweak) % ORDER))[1:], tweak % ORDER))
    return made


def signed_input(key: int, kind: int, number: int) -> tuple[build.TxIn, bytes]:
    """An input of a key, and the script that it spends: P2TR, P2WPKH, P2SH-P2WPKH or P2PKH."""
    public = raw_of(times(key))
    program = b"\0\x14" + hash160(public)
    txid = sha256(bytes((number,))).digest()
    if kind == 0:
        return build.TxIn(txid, number, witness=(bytes(64),)), b"\x51\x20" + public[1:]
    if kind == 1:
        return build.TxIn(txid, number, witness=(b"signature", public)), program
    if kind == 2:
        return build.TxIn(txid, number, b"\x16" + program, witness=(b"signature", public)), build.p2sh(hash160(program))
    script_sig = build.push(bytes(71)) + build.push(public) + (b"\x01\x51" if key & 1 else b"")  # malleated
    return build.TxIn(txid, number, script_sig), build.p2pkh(hash160(public))


@pytest.mark.slow
def test_random_transactions_agree_with_the_formulas_of_the_bip() -> None:
    draw = random.Random(352)
    scanner = SilentScanner(SCAN, raw_of(times(SPEND)), labels=[0, 1, 5])
    choices: tuple[list[int | None], ...] = ([], [None], [0], [None, 1, 5], [5, 5], [2])
    for _ in range(effort(10, 40, 10_000)):
        keys = [(draw.randrange(1, ORDER), draw.randrange(4)) for _ in range(draw.choice((1, 1, 2, 3)))]
        spends = [signed_input(key, kind, number) for number, (key, kind) in enumerate(keys)]
        smallest = min(each.outpoint for each, _ in spends)
        labels: list[int | None] = draw.choice(choices)
        made = payments([(key, kind == 0) for key, kind in keys], smallest, labels)
        outputs = [build.TxOut(1, b"\x51\x20" + key) for key, _ in made]
        outputs += [build.TxOut(2, b"\x51\x20" + raw_of(times(draw.randrange(1, ORDER)))[1:]), build.TxOut(3, b"\x51")]
        draw.shuffle(outputs)
        raw = build.tx([each for each, _ in spends], outputs)
        _, candidate = silent_candidate(raw, 0, [script for _, script in spends])
        assert candidate is not None
        inputs = read_inputs(candidate)
        assert inputs is not None
        found = scanner.find(inputs)
        expected = (
            {} if labels == [2] else {key: (tweak, label) for (key, tweak), label in zip(made, labels, strict=True)}
        )
        assert {each.key: (int.from_bytes(each.tweak, "big"), each.label) for each in found} == expected
        assert [outputs[each.index].script_pubkey for each in found] == [each.script_pubkey for each in found]


def test_a_script_path_shows_the_output_key_by_itself() -> None:
    script, private = b"\x51", 99
    internal = raw_of(times(5))[1:]
    leaf = tagged("TapLeaf", b"\xc0\x01" + script).to_bytes(32, "big")
    branch = tagged("TapBranch", b"".join(sorted((leaf, bytes(32))))).to_bytes(32, "big")
    output = add((int.from_bytes(internal, "big"), raw_of_even(internal)), times(tagged("TapTweak", internal + branch)))
    spend = build.TxIn(bytes(32), 0, witness=(script, b"\xc0" + internal + bytes(32)))
    raw = build.tx([spend], [build.TxOut(1, b"\x51\x20" + raw_of(times(private))[1:])])
    known = silent_candidate(raw, 0, [b"\x51\x20" + raw_of(output)[1:]])[1]
    shown = silent_candidate(raw, 0, None)[1]
    assert known is not None
    assert shown is not None
    one, other = read_inputs(known), read_inputs(shown)
    assert one is not None
    assert other is not None
    from btclib_secp256k1 import ffi

    assert bytes(ffi.buffer(one.summary)) == bytes(ffi.buffer(other.summary))


def raw_of_even(x: bytes) -> int:
    """The even y of an x coordinate."""
    number = int.from_bytes(x, "big")
    y = pow(number**3 + 7, (P + 1) // 4, P)
    return y if y % 2 == 0 else P - y


def test_a_scanner_finds_at_most_2323_payments_of_one_transaction() -> None:
    spend, script = signed_input(3, 1, 0)
    made = payments([(3, False)], spend.txid + bytes(4), [None] * 30)
    raw = build.tx([spend], [build.TxOut(1, b"\x51\x20" + key) for key, _ in made])
    candidate = silent_candidate(raw, 0, [script])[1]
    assert candidate is not None
    inputs = read_inputs(candidate)
    assert inputs is not None
    assert len(SilentScanner(SCAN, raw_of(times(SPEND))).find(inputs)) == 30


def test_a_secret_is_neither_shown_nor_pickled() -> None:
    scanner = SilentScanner(SCAN, raw_of(times(SPEND)))
    assert SCAN.hex() not in repr(scanner)
    with pytest.raises(TypeError, match="private key"):
        pickle.dumps(scanner)


def test_keys_and_labels_out_of_range_are_refused() -> None:
    spend = raw_of(times(SPEND))
    for scan_key, spend_key, labels, message in (
        (SCAN[1:], spend, [], "expected a 32-byte scan key"),
        (SCAN, spend[1:], [], "compressed 33-byte spend key"),
        (bytes(32), spend, [], "scan key must be above zero"),
        (SCAN, b"\x02" + b"\xff" * 32, [], "not a point on the secp256k1 curve"),
        (SCAN, spend, [-1], "a label must be a number from 0"),
        (SCAN, spend, [1 << 32], "a label must be a number from 0"),
        (SCAN, spend, range(100_001), "at most 100,000 labels"),
    ):
        with pytest.raises(ParameterError, match=message):
            SilentScanner(scan_key, spend_key, labels=labels)
    scanner = SilentScanner(SCAN, spend, labels=[0, 3])
    assert scanner.labels == [0, 3]
    for label, message in ((0, "never given out"), (4, "does not look for label 4")):
        with pytest.raises(ParameterError, match=message):
            scanner.address(label)


def encoded(version: int, data: bytes, hrp: str = "sp") -> str:
    from spvfilter.address import Bech32Encoding, bech32_encode
    from spvfilter.kernel.pure.address import to_5_bits

    return bech32_encode(hrp, bytes((version,)) + to_5_bits(data), Bech32Encoding.BECH32M, limit=2_000)


def test_versions_and_lengths_of_addresses_follow_the_bip() -> None:
    keys = raw_of(times(7)) + raw_of(times(11))
    assert SilentAddress.parse(encoded(0, keys)) == SilentAddress(keys[:33], keys[33:])
    later = SilentAddress.parse(encoded(30, keys + bytes(500)))
    assert (later.scan_pubkey, later.spend_pubkey, later.version) == (keys[:33], keys[33:], 30)
    assert SilentAddress.parse(encoded(0, keys, "tsp"), REGTEST).network == REGTEST
    assert str(SilentAddress(keys[:33], keys[33:], REGTEST)).startswith("tsp1q")
    for text, message in (
        (encoded(0, keys + b"\0"), "needs 66 bytes, not 67"),
        (encoded(1, keys[:-1]), "needs at least 66 bytes, not 65"),
        (encoded(31, keys), "version 31"),
        (encoded(0, b"\x04" + keys[1:]), "two compressed public keys"),
        (encoded(0, keys, "bc"), "not a silent payment address"),
        (encoded(1, keys + bytes(600)), "at most 1023"),
        ("sp1", "too short"),
    ):
        with pytest.raises(AddressError, match=message):
            SilentAddress.parse(text, MAINNET)
    with pytest.raises(WrongNetworkError, match="not for mainnet"):
        SilentAddress.parse(encoded(0, keys, "tsp"), MAINNET)
    with pytest.raises(TypeError, match="an address must be a str"):
        SilentAddress.parse(b"sp1")  # type: ignore[arg-type]


def test_private_keys_of_silent_payments_are_found_in_free_text() -> None:
    key = encoded(0, SCAN + raw_of(times(11)), "spscan")
    for text in (key, f"sp([deadbeef/352h/0h/0h]{key})", f"mine: t{key}", key.upper(), encoded(0, SCAN * 2, "spspend")):
        found = secret_in(text)
        assert found == "a private key of silent payments (spscan1… or spspend1…)"
    for text in ("my spscan1 key", str(SilentAddress(raw_of(times(7)), raw_of(times(11)))), f"respscan1{key[7:]}"):
        assert secret_in(text) is None
