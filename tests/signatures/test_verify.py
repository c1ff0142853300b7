"""Checks of inputs, compared with the verdicts of Bitcoin Core's engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from bitcoin.core.script import OPCODES_BY_NAME
from hypothesis import given, settings, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.node.scripts import push
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import SigHashes, SpendCheck, Validity, find_curve, verify, verify_input, verify_spends
from spvfilter.signatures.curve import compressed_key
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from support.blocks import signing
from support.blocks.signing import Kind, kinds, signed_tx
from support.oracles.coreengine import satisfies_input
from support.vectors import effort, vector_cases

pytestmark = [pytest.mark.descriptors, pytest.mark.core]

PAID = [TxOut(700, b"\x51"), TxOut(800, b"\x52"), TxOut(0, b"")]
ECDSA_TYPES = [1, 2, 3, 0x81, 0x82, 0x83, 0, 4, 0x41, 0xFF]
TAPROOT_TYPES = [0, 1, 2, 3, 0x81, 0x82, 0x83]


@pytest.fixture(autouse=True)
def _fresh_curve() -> None:
    find_curve.cache_clear()


def judged(tx: Transaction, spent: Sequence[TxOut], index: int) -> Validity:
    """The validity of an input, after Core has agreed."""
    found = verify_input(tx, index, spent)
    is_accepted = satisfies_input(tx.raw, spent, index)
    assert found.validity is Validity.UNKNOWN or is_accepted == (found.validity is Validity.VALID), found
    assert bool(found.reason) == (found.validity is not Validity.VALID)
    return found.validity


def kind_types(kind: Kind) -> list[int]:
    return TAPROOT_TYPES if kind.name == "tr" else ECDSA_TYPES


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: f"{kind.name}-{len(kind.script_pubkey)}")
def test_every_hash_type_of_every_script_is_valid(kind: Kind) -> None:
    for hash_type in kind_types(kind):
        coins = [(signing.wpkh(90), 10_000), (kind, 20_000), (signing.tr(91), 30_000)]
        tx, spent, _ = signed_tx(coins, PAID, [1, hash_type, 0])
        assert [judged(tx, spent, index) for index in range(3)] == [Validity.VALID] * 3, hash_type


def test_legacy_sighash_single_without_an_output_signs_one() -> None:
    coins = [(kind, 5_000) for kind in kinds() if kind.name != "tr"]
    tx, spent, inputs = signed_tx(coins, PAID[:1], [3] * len(coins))
    assert {judged(tx, spent, index) for index in range(len(coins))} == {Validity.VALID}
    other = Transaction.parse(build_tx(inputs, [*PAID[:1]], lock_time=7))  # legacy signatures fit every transaction
    validities = [judged(other, spent, index) for index in range(len(coins))]
    assert validities[1:4] == [Validity.VALID] * 3
    assert validities[4] is Validity.WRONG  # segwit


def test_taproot_refuses_sighash_single_without_an_output() -> None:
    tx, spent, inputs = signed_tx([(signing.wpkh(1), 1), (signing.tr(2), 5_000)], PAID[:1], [1, 1])
    spoiled = replace(inputs[1], witness=(inputs[1].witness[0][:64] + b"\x03",))
    assert judged(Transaction.parse(build_tx([inputs[0], spoiled], PAID[:1])), spent, 1) is Validity.WRONG
    assert judged(tx, spent, 1) is Validity.VALID


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: f"{kind.name}-{len(kind.script_pubkey)}")
def test_no_unsigned_input_is_valid(kind: Kind) -> None:
    coin = OutPoint(bytes(32), 1)
    for script_sig, witness in (
        (b"", ()),
        (b"\x00", ()),
        (b"\x51", ()),
        (b"", (b"",)),
        (b"", (b"", b"")),
        (push(b"\x51"), ()),
        (b"", (b"\x51",)),
        (b"\xff", ()),
    ):
        tx = Transaction.parse(build_tx([TxIn(coin, script_sig, witness)], PAID))
        assert judged(tx, [TxOut(9_000, kind.script_pubkey)], 0) is Validity.WRONG, (script_sig, witness)


pushes = st.one_of(
    st.binary(max_size=80),
    st.sampled_from([b"", b"\x01", b"\x50", b"\x50\x01", bytes(64), bytes(65), bytes(33), bytes(521)]),
)


def mutated_bytes(data: st.DataObject, old: bytes) -> bytes:
    """Some bytes near the given ones."""
    how = data.draw(st.sampled_from(["flip", "cut", "add", "new", "type", "same"]))
    if how == "flip" and old:
        at = data.draw(st.integers(0, len(old) - 1))
        return old[:at] + bytes((old[at] ^ data.draw(st.integers(1, 255)),)) + old[at + 1 :]
    if how == "cut" and old:
        return old[: data.draw(st.integers(0, len(old) - 1))]
    if how == "add":
        return old + data.draw(st.binary(min_size=1, max_size=3))
    if how == "type" and old:
        return old[:-1] + bytes((data.draw(st.sampled_from(ECDSA_TYPES)),))
    return data.draw(pushes) if how == "new" else old


def items_of(script: bytes) -> list[bytes]:
    operations = verify.operations_of(script) or []
    return [b"" if pushed is None else pushed for _, pushed in operations]


def mutated(data: st.DataObject, txin: TxIn) -> TxIn:
    """An input whose witness or scriptSig differs a little."""
    is_script = bool(txin.script_sig) and data.draw(st.booleans())
    items = items_of(txin.script_sig) if is_script else list(txin.witness)
    match data.draw(st.sampled_from(["item", "drop", "insert", "swap", "raw", "move"])):
        case "item" if items:
            at = data.draw(st.integers(0, len(items) - 1))
            items[at] = mutated_bytes(data, items[at])
        case "drop" if items:
            items.pop(data.draw(st.integers(0, len(items) - 1)))
        case "insert":
            items.insert(data.draw(st.integers(0, len(items))), data.draw(pushes))
        case "swap" if len(items) > 1:
            at = data.draw(st.integers(0, len(items) - 2))
            items[at], items[at + 1] = items[at + 1], items[at]
        case "raw":
            return replace(txin, script_sig=mutated_bytes(data, txin.script_sig))
        case "move":
            return replace(txin, script_sig=b"".join(map(push, txin.witness)), witness=tuple(items))
        case _:
            pass
    if is_script:
        return replace(txin, script_sig=b"".join(map(push, items)))
    return replace(txin, witness=tuple(items))


ALL_KINDS = [*kinds(), signing.tr_script(70), signing.sh(signing.pk(71)), signing.multi(3, range(72, 75))]


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=effort(200, 1_000, 20_000))
def test_mutated_inputs_are_judged_as_core_does(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(ALL_KINDS), min_size=1, max_size=3))
    types = [data.draw(st.sampled_from(kind_types(kind))) for kind in chosen]
    coins = [(kind, data.draw(st.integers(0, 21 * 10**14))) for kind in chosen]
    outputs = PAID[: data.draw(st.integers(len(chosen), 3))]
    _, spent, inputs = signed_tx(coins, outputs, types, version=data.draw(st.sampled_from([1, 2, -1])))
    at = data.draw(st.integers(0, len(inputs) - 1))
    for _ in range(data.draw(st.integers(1, 3))):
        inputs[at] = mutated(data, inputs[at])
    tx = Transaction.parse(build_tx(inputs, outputs, version=data.draw(st.sampled_from([1, 2]))))
    for index in range(len(inputs)):
        judged(tx, spent, index)


OPERATIONS = st.sampled_from([b"\x61", b"\x76", b"\x75", b"\x7c", b"\x51", b"\x6a", b"\xac", b"\xab", b"\x50", b"\x00"])


@given(data=st.data())
def test_core_agrees_about_script_sigs_with_operations(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([signing.pk(1), signing.pkh(3), signing.multi(2, [7, 8, 9])]))
    _, spent, inputs = signed_tx([(kind, 5_000)], PAID, [data.draw(st.sampled_from(ECDSA_TYPES))])
    parts = [push(item) for item in items_of(inputs[0].script_sig)]
    for _ in range(data.draw(st.integers(1, 4))):
        parts.insert(data.draw(st.integers(0, len(parts))), data.draw(OPERATIONS))
    if data.draw(st.booleans()):
        parts.pop(data.draw(st.integers(0, len(parts) - 1)))
    judged(Transaction.parse(build_tx([replace(inputs[0], script_sig=b"".join(parts))], PAID)), spent, 0)


def test_an_operation_beside_an_invalid_signature_makes_no_doubt() -> None:
    for kind in (signing.pk(1), signing.pkh(3), signing.multi(2, [7, 8, 9])):
        _, spent, inputs = signed_tx([(kind, 5_000)], PAID, [1])
        fitting = replace(inputs[0], script_sig=b"\x61" + inputs[0].script_sig)  # OP_NOP
        assert judged(Transaction.parse(build_tx([fitting], PAID)), spent, 0) is Validity.UNKNOWN
        assert judged(Transaction.parse(build_tx([fitting], PAID[:1])), spent, 0) is Validity.WRONG


def test_a_signature_with_high_s_is_valid_but_not_relayed() -> None:
    for kind in (signing.pkh(3), signing.wpkh(5)):
        tx, spent, inputs = signed_tx([(kind, 5_000)], PAID, [1])
        digest_type = {"pkh": SigHashes(tx, spent).legacy, "wpkh": SigHashes(tx, spent).segwit}[kind.name]
        key = 3 if kind.name == "pkh" else 5
        digest = digest_type(0, signing.pkh_script(signing.public(key)), 1)
        assert digest is not None
        signature = signing.der(signing.high_s(signing.curve().sign_ecdsa(signing.secret(key), digest))) + b"\x01"
        if kind.name == "pkh":
            changed = replace(inputs[0], script_sig=push(signature) + push(signing.public(key)))
        else:
            changed = replace(inputs[0], witness=(signature, signing.public(key)))
        other = Transaction.parse(build_tx([changed], PAID))
        assert judged(other, spent, 0) is Validity.VALID
        assert verify_input(other, 0, spent).unrelayed == "a signature has a high s"
        assert verify_input(tx, 0, spent).unrelayed is None


def test_forms_that_nodes_do_not_relay_are_named() -> None:
    tx, spent, inputs = signed_tx([(signing.wpkh(5, compressed=False), 5_000)], PAID, [1])
    assert judged(tx, spent, 0) is Validity.VALID
    assert verify_input(tx, 0, spent).unrelayed == "its public key is not compressed"
    tx, spent, inputs = signed_tx([(signing.pkh(5), 5_000)], PAID, [0x41])
    assert verify_input(tx, 0, spent).unrelayed == "a signature has an undefined hash type"
    longer = replace(inputs[0], script_sig=b"\x51" + inputs[0].script_sig)
    other = Transaction.parse(build_tx([longer], PAID))
    assert judged(other, spent, 0) is Validity.VALID
    assert "undefined" in (verify_input(other, 0, spent).unrelayed or "")


def hybrid(key: bytes, first: int) -> bytes:
    return bytes((first,)) + key[1:]


def test_a_hybrid_key_is_valid_if_its_first_byte_fits() -> None:
    key = signing.public(5, compressed=False)
    fitting = 6 + key[64] % 2
    for first, expected in ((fitting, Validity.VALID), (13 - fitting, Validity.WRONG)):
        data = hybrid(key, first)
        script = signing.pkh_script(data)
        spent = [TxOut(5_000, script)]
        unsigned = Transaction.parse(build_tx([TxIn(OutPoint(bytes(32), 1))], PAID))
        digest = SigHashes(unsigned, spent).legacy(0, script, 1)
        assert digest is not None
        signature = signing.der(signing.curve().sign_ecdsa(signing.secret(5), digest)) + b"\x01"
        tx = Transaction.parse(build_tx([TxIn(OutPoint(bytes(32), 1), push(signature) + push(data))], PAID))
        assert judged(tx, spent, 0) is expected
    off_curve = key[:64] + bytes((key[64] ^ 1,))
    assert signing.curve() and compressed_key(off_curve) is None


def test_a_taproot_input_with_an_annex_is_judged() -> None:
    kind = signing.tr(2)
    tx, spent, inputs = signed_tx([(kind, 5_000)], PAID, [0])
    annex = b"\x50 data"
    tweaked, _ = signing.taproot_key(2)
    digest = SigHashes(tx, spent).taproot(0, 0, annex)
    assert digest is not None
    signed = replace(inputs[0], witness=(signing.curve().sign_schnorr(tweaked, digest), annex))
    with_annex = Transaction.parse(build_tx([signed], PAID))
    assert judged(with_annex, spent, 0) is Validity.VALID
    assert verify_input(with_annex, 0, spent).unrelayed == "it has an annex"
    unsigned = Transaction.parse(build_tx([replace(inputs[0], witness=(*inputs[0].witness, annex))], PAID))
    assert judged(unsigned, spent, 0) is Validity.WRONG


def test_a_taproot_script_needs_the_commitment_of_the_output() -> None:
    tx, spent, inputs = signed_tx([(signing.tr_script(3), 5_000)], PAID, [0])
    assert satisfies_input(tx.raw, spent, 0)
    assert judged(tx, spent, 0) is Validity.UNKNOWN
    signature, script, control = inputs[0].witness
    for items in (
        (signature, script + b"\x51", control),
        (signature, script, control[:-1]),
        (signature, script, control[:33]),
        (signature, script, bytes((control[0] ^ 1,)) + control[1:]),
        (signature, script, bytes((control[0] ^ 2,)) + control[1:]),
        (signature, script, control + bytes(32)),
        (signature, script, control[:1] + b"\xff" * 32 + control[33:]),
        (script, control[:20]),
    ):
        changed = Transaction.parse(build_tx([replace(inputs[0], witness=items)], PAID))
        assert judged(changed, spent, 0) is Validity.WRONG


def test_a_taproot_signature_needs_all_outputs_unless_anyone_can_pay() -> None:
    for hash_type, expected in ((0, Validity.UNKNOWN), (1, Validity.UNKNOWN), (0x81, Validity.VALID)):
        tx, spent, _ = signed_tx([(signing.tr(2), 5_000), (signing.wpkh(3), 6_000)], PAID, [hash_type, 1])
        assert verify_input(tx, 0, [spent[0], None]).validity is expected
        assert verify_input(tx, 1, [None, spent[1]]).validity is Validity.VALID
        assert verify_input(tx, 1, [spent[0], None]).validity is Validity.UNKNOWN


def test_several_inputs_stop_at_the_first_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    coins = [(signing.wpkh(number), 5_000) for number in range(20)]
    tx, spent, inputs = signed_tx(coins, PAID, [1] * 20)
    assert verify_spends(tx, spent) == SpendCheck(Validity.VALID)
    assert verify_spends(tx, [None] * 20).validity is Validity.UNKNOWN
    assert verify_spends(tx, [None, *spent[1:]], [0, 1]).index == 0
    assert verify_spends(tx, [None, *spent[1:]]) == SpendCheck(Validity.VALID)
    inputs[3] = replace(inputs[3], witness=inputs[4].witness)
    inputs[5] = replace(inputs[5], witness=inputs[4].witness[:1] + inputs[5].witness[1:])
    spoiled = Transaction.parse(build_tx(inputs, PAID))
    found = verify_spends(spoiled, spent, range(4, 20))
    assert (found.validity, found.index, found.reason) == (Validity.WRONG, 5, "a signature is wrong")
    assert verify_spends(spoiled, spent).index == 3
    calls = counted(monkeypatch)
    verify_spends(spoiled, spent, range(4, 20))
    assert len(calls) == 2


def counted(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A list that grows by a digest for each ECDSA signature that is verified."""
    calls: list[bytes] = []

    class Counting:
        def is_ecdsa(self, key: bytes, digest: bytes, signature: bytes) -> bool:
            calls.append(digest)
            return signing.curve().is_ecdsa(key, digest, signature)

    monkeypatch.setattr(verify, "find_curve", lambda: Counting())
    return calls


def test_the_work_for_one_transaction_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "MAX_CHECKS", 10)
    kind = signing.wsh_multi(1, range(40, 60), [59])
    tx, spent, _ = signed_tx([(kind, 5_000)], PAID, [1])
    calls = counted(monkeypatch)
    assert verify_input(tx, 0, spent).validity is Validity.UNKNOWN
    assert len(calls) == 10


def test_legacy_messages_of_a_huge_transaction_are_not_all_hashed() -> None:
    kind = signing.pkh(1)
    coin = TxOut(5_000, kind.script_pubkey)
    inputs = [TxIn(OutPoint(bytes(32), at)) for at in range(20_000)]
    tx = Transaction.parse(build_tx(inputs, PAID))
    hashes = SigHashes(tx, [coin] * len(inputs))
    sizes = []
    for index in range(len(inputs)):
        if hashes.legacy(index, kind.script_pubkey, 1) is None:
            break
        sizes.append(hashes.hashed_size)
    assert len(sizes) == 39  # of 820 kB each
    assert sizes[-1] <= 32_000_000 < sizes[-1] + 821_000


def test_without_libsecp256k1_only_the_form_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "find_curve", lambda: None)
    for kind in (*kinds(), signing.tr_script(3)):
        tx, spent, _ = signed_tx([(kind, 5_000)], PAID, [1])
        assert verify_input(tx, 0, spent).validity is Validity.UNKNOWN
        unsigned = Transaction.parse(build_tx([TxIn(OutPoint(bytes(32), 1))], PAID))
        assert verify_input(unsigned, 0, spent).validity is Validity.WRONG


def test_the_number_of_spent_outputs_must_fit() -> None:
    tx, spent, _ = signed_tx([(signing.pkh(1), 5_000)], PAID, [1])
    with pytest.raises(ParameterError, match="spent: expected 1 outputs"):
        verify_input(tx, 0, [*spent, None])
    with pytest.raises(IndexError):
        verify_input(tx, 1, spent)


def assembled(text: str) -> bytes:
    """A script from the form of Core's test data."""
    script = b""
    for word in text.split():
        if word.startswith("0x"):
            script += bytes.fromhex(word[2:])
        elif word.startswith("'"):
            script += push(word[1:-1].encode())
        elif word.lstrip("-").isdigit():
            script += number_push(int(word))
        else:
            name = word if word.startswith("OP_") else f"OP_{word}"
            names = {"OP_CHECKLOCKTIMEVERIFY": 0xB1, "OP_CHECKSEQUENCEVERIFY": 0xB2}
            script += bytes((names.get(name) or OPCODES_BY_NAME[name],))
    return script


def number_push(value: int) -> bytes:
    if -1 <= value <= 16:
        return bytes((0x50 + value if value else 0,))
    size = abs(value).bit_length() // 8 + 1
    data = abs(value).to_bytes(size, "little")
    return push(data[:-1] + bytes((data[-1] | (0x80 if value < 0 else 0),)))


def check_vector(case: dict[str, Any]) -> list[Validity]:
    tx = Transaction.parse(bytes.fromhex(case["raw"]))
    known = {
        (each["txid"], each["vout"] % 2**32): TxOut(each["amount"] or 0, assembled(each["script_asm"]))
        for each in case["prevouts"]
    }
    places = [OutPoint.parse(each) for each in tx.inputs]
    if any((place.txid_hex, place.index) not in known for place in places):
        return []
    spent = [known[place.txid_hex, place.index] for place in places]
    return [judged(tx, spent, index) for index in range(len(spent))]


@vector_cases("07_transactions/core_tx_valid.json")
def test_valid_transactions_of_core(case: dict[str, Any]) -> None:
    assert len(check_vector(case)) == case["n_inputs"]


@vector_cases("07_transactions/core_tx_invalid.json", lambda case: case["n_inputs"] > 0)
def test_invalid_transactions_of_core(case: dict[str, Any]) -> None:
    assert len(check_vector(case)) in (0, case["n_inputs"])
