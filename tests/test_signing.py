"""build_tx signs what Bitcoin Core accepts, and says what it lacks."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from spvfilter.errors import ParameterError
from spvfilter.hashes import hash160
from spvfilter.node.scripts import SIGNATURE, Lock, multisig, p2pk, p2pkh, p2sh, p2tr, p2wpkh, p2wsh, push
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signatures import Validity, curve, verify_spends
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from support.blocks.locks import key, secret
from support.blocks.signing import public, secret as secret_of, taproot_key
from support.oracles.coreengine import satisfies

pytestmark = pytest.mark.descriptors

PLACE = OutPoint(b"\x07" * 32, 1)
PAID = [TxOut(600, b"\x00\x14" + bytes(20))]


def blank(lock: Lock) -> Lock:
    """The lock with its scripts, and without made-up signatures."""
    return Lock(lock.script_pubkey)


def locks(first: int) -> list[tuple[Lock, list[bytes]]]:
    """A lock of each kind, and the private keys that it needs."""
    keys, secrets = [key(first + number) for number in range(3)], [secret(first + number) for number in range(3)]
    multi = multisig(2, keys)
    long = p2wsh(multi.script_pubkey).script_pubkey
    uncompressed = public(first, compressed=False)
    return [
        (blank(p2pk(keys[0])), secrets[:1]),
        (blank(p2pkh(keys[0])), secrets[:1]),
        (blank(p2pkh(uncompressed)), [secret_of(first)]),
        (blank(p2pk(uncompressed)), [secret_of(first)]),
        (blank(p2wpkh(keys[0])), secrets[:1]),
        (blank(p2sh(p2wpkh(keys[0]))), secrets[:1]),
        (blank(p2tr(keys[0][1:])), secrets[:1]),
        (blank(p2tr(taproot_key(first)[1])), [secret_of(first)]),
        (blank(multi), [secrets[2], secrets[0]]),
        (Lock(b"\xa9\x14" + hash160(multi.script_pubkey) + b"\x87", push(multi.script_pubkey)), secrets[1:]),
        (Lock(long, witness=(multi.script_pubkey,)), secrets[:2]),
        (Lock(b"\xa9\x14" + hash160(long) + b"\x87", push(long), (multi.script_pubkey,)), secrets[:2]),
        (p2wsh(p2pkh(keys[1]).script_pubkey), [secrets[1]]),
        (p2wsh(b"\x51"), []),
        (Lock(b"\x51"), []),
    ]


@given(st.integers(0, 2**32))
def test_core_accepts_what_is_signed(seed: int) -> None:
    rng = random.Random(seed)
    chosen = rng.sample(locks(rng.randrange(20)), rng.randrange(1, 6))
    coins = [(OutPoint(rng.randbytes(32), rng.randrange(9)), rng.randrange(1_000, 10**9)) for _ in chosen]
    inputs = [
        replace(lock.spends(place, value), sequence=rng.getrandbits(32))
        for (lock, _), (place, value) in zip(chosen, coins, strict=True)
    ]
    outputs = [TxOut(rng.randrange(10**6), rng.randbytes(22)) for _ in range(rng.randrange(1, 4))]
    keys = [each for _, secrets in chosen for each in secrets]
    rng.shuffle(keys)
    version, lock_time = rng.choice((1, 2, 3)), rng.getrandbits(32)
    raw = build_tx(inputs, outputs, version=version, lock_time=lock_time, keys=keys)
    spent = [txin.spent for txin in inputs if txin.spent is not None]
    assert satisfies(raw, spent)
    tx = Transaction.parse(raw)
    assert verify_spends(tx, spent).validity is not Validity.WRONG
    assert (tx.version, tx.lock_time, list(tx.outputs)) == (version, lock_time, outputs)
    assert list(tx.sequences) == [txin.sequence for txin in inputs]
    assert build_tx(inputs, outputs, version=version, lock_time=lock_time, keys=keys) == raw  # the same nonces


def test_numbers_of_a_transaction_have_defaults_and_reach_their_limits() -> None:
    made = Transaction.parse(build_tx([TxIn(PLACE)], PAID))
    assert (made.version, made.lock_time, made.sequences) == (2, 0, (0xFFFFFFFE,))
    for version in (-(1 << 31), (1 << 31) - 1):
        raw = build_tx([TxIn(PLACE, sequence=0xFFFFFFFF)], PAID, version=version, lock_time=0xFFFFFFFF)
        made = Transaction.parse(raw)
        assert (made.version, made.lock_time, made.sequences) == (version, 0xFFFFFFFF, (0xFFFFFFFF,))


def test_without_keys_nothing_is_signed() -> None:
    (txin,) = [p2wpkh(key(1)).spends(PLACE, 1_000)]
    assert SIGNATURE in build_tx([txin], PAID)
    assert SIGNATURE not in build_tx([txin], PAID, keys=[secret(1)])


@pytest.mark.parametrize("number", [number for number, (_, secrets) in enumerate(locks(0)) if secrets])
def test_an_input_that_no_key_fits_is_named(number: int) -> None:
    lock, secrets = locks(0)[number]
    with pytest.raises(ParameterError, match=r"cannot sign input 0, which spends 0707.*:1: .*key"):
        build_tx([lock.spends(PLACE, 1_000)], PAID, keys=[*secrets[1:], secret(50)])


def test_inputs_of_others_stay_signed() -> None:
    mine, theirs = p2wpkh(key(1)).spends(PLACE, 1_000), p2tr(key(2)[1:]).spends(replace(PLACE, index=2), 2_000)
    spent = [txin.spent for txin in (mine, theirs) if txin.spent is not None]
    half = Transaction.parse(build_tx([mine, theirs], PAID, keys=[secret(1), secret(2)])).witnesses
    theirs = replace(theirs, witness=half[1])
    assert satisfies(build_tx([mine, theirs], PAID, keys=[secret(1)]), spent)
    unknown = replace(theirs, spent=None)  # P2WPKH commits to no other coin
    assert satisfies(build_tx([mine, unknown], PAID, keys=[secret(1)]), spent)


@pytest.mark.parametrize(
    ("txin", "reason"),
    [
        (TxIn(PLACE), "give `spent`, the output that it spends"),
        (TxIn(PLACE, spent=p2wsh(b"\x51").pays(1)), "give its witness script as the last item of `witness`"),
        (TxIn(PLACE, spent=p2sh(Lock(b"\x51")).pays(1)), "push its redeem script at the end of `script_sig`"),
    ],
)
def test_the_error_names_the_missing_part(txin: TxIn, reason: str) -> None:
    with pytest.raises(ParameterError, match=reason):
        build_tx([txin], PAID, keys=[secret(1)])


def test_taproot_needs_the_coins_of_all_inputs() -> None:
    taproot, other = TxIn(PLACE, spent=p2tr(key(2)[1:]).pays(5)), TxIn(replace(PLACE, index=2), b"\x51")
    with pytest.raises(ParameterError, match="a taproot signature needs `spent` for all inputs"):
        build_tx([taproot, other], PAID, keys=[secret(2)])


@pytest.mark.parametrize("wrong", [b"", bytes(32), b"\xff" * 32, bytes(31) + b"\x01" * 2])
def test_a_wrong_private_key_is_not_shown(wrong: bytes) -> None:
    with pytest.raises(ParameterError, match=r"keys\[1\] is not a private key") as raised:
        build_tx([p2wpkh(key(1)).spends(PLACE, 1)], PAID, keys=[secret(1), wrong])
    assert not wrong or wrong.hex() not in str(raised.value)


def test_signing_without_the_library_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from spvfilter.signatures import sign

    monkeypatch.setattr(sign, "find_curve", lambda: None)
    with pytest.raises(ParameterError, match=r"run `python -m pip install .*extra `descriptors`"):
        build_tx([p2wpkh(key(1)).spends(PLACE, 1)], PAID, keys=[secret(1)])
    assert build_tx([p2wsh(b"\x51").spends(PLACE, 1)], PAID, keys=[]) == build_tx([p2wsh(b"\x51").spends(PLACE)], PAID)


def test_the_key_of_bip173_signs_for_its_address() -> None:
    found = curve.find_curve()
    assert found is not None
    assert hash160(found.public_key(bytes(31) + b"\x01")).hex() == "751e76e8199196d454941c45d1b3a323f1433bd6"
