"""The check of a transaction before it is sent: each cause and its weight, over given facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given, strategies as st

from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.store.txcheck import (
    CheckCause,
    CheckFinding,
    CheckWeight,
    FeeLimits,
    KnownParent,
    Replaced,
    check_package,
    dust_limit,
)
from spvfilter.transaction import Transaction, TxIn
from support.blocks import signing

pytestmark = pytest.mark.descriptors

KIND = signing.wpkh(1)
COIN = OutPoint(b"\x11" * 32, 0)
THEIRS = signing.wpkh(2).script_pubkey
TIME = 1_700_000_000  # of the block at height 0


@dataclass
class Facts:
    """A wallet with some coins."""

    tip: int = 200
    fee_limits: FeeLimits | None = None
    parents: dict[bytes, KnownParent] = field(default_factory=dict)
    rivals: Sequence[Replaced] = ()
    refused: bool = False
    conflicts: CheckFinding | None = None
    families: CheckFinding | None = None

    def median_time(self, height: int) -> int:
        return TIME + 600 * height

    def parent(self, outpoint: bytes) -> KnownParent:
        return self.parents.get(outpoint, KnownParent())

    def conflict(self, tx: Transaction) -> CheckFinding | None:
        return self.conflicts

    def family_conflict(self, tx: Transaction) -> CheckFinding | None:
        return self.families

    def replaced(self, tx: Transaction) -> Sequence[Replaced]:
        return self.rivals

    def was_refused(self, tx: Transaction) -> bool:
        return self.refused


def facts(
    value: int = 10_000, height: int | None = 50, *, is_unconfirmed: bool = False, is_coinbase: bool = False
) -> Facts:
    parent = KnownParent(1, TxOut(value, KIND.script_pubkey), height, is_unconfirmed, is_coinbase)
    return Facts(parents={bytes(COIN): parent})


def payment(paid: int = 9_000, value: int = 10_000, **options: int) -> Transaction:
    tx, _, _ = signing.signed_tx([(KIND, value)], [TxOut(paid, THEIRS)], [1], outpoints=[COIN], **options)
    return tx


def found(given_facts: Facts, *transactions: Transaction) -> list[tuple[CheckCause, CheckWeight]]:
    findings = check_package(transactions, given_facts)
    assert all(str(finding) == finding.message for finding in findings)
    weights = [list(CheckWeight).index(finding.weight) for finding in findings]
    assert weights == sorted(weights)
    return [(finding.cause, finding.weight) for finding in findings]


INVALID, REFUSED, WARNING = CheckWeight


def test_nothing_speaks_against_a_signed_payment() -> None:
    assert found(facts(), payment()) == []


def test_an_unsigned_payment_and_a_wrong_signature_are_invalid() -> None:
    unsigned = Transaction.parse(build_tx([TxIn(COIN)], [TxOut(9_000, THEIRS)]))
    assert found(facts(), unsigned) == [(CheckCause.UNSIGNED, INVALID)]
    assert found(facts(value=10_001), payment()) == [(CheckCause.WRONG_SIGNATURE, INVALID)]  # BIP-143 signs the value


def test_without_a_verifying_package_only_an_empty_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spvfilter.store.txcheck.find_curve", lambda: None)
    monkeypatch.setattr("spvfilter.signatures.verify.find_curve", lambda: None)
    unsigned = Transaction.parse(build_tx([TxIn(COIN)], [TxOut(9_000, THEIRS)]))
    assert found(facts(), unsigned) == [(CheckCause.UNSIGNED, INVALID)]
    assert (CheckCause.UNSIGNED, REFUSED) in found(Facts(), unsigned)
    assert found(facts(), payment()) == [(CheckCause.UNKNOWN, WARNING)]
    assert (CheckCause.UNSIGNED, REFUSED) not in found(Facts(), payment())


def test_unknown_inputs_are_a_warning() -> None:
    assert found(Facts(), payment()) == [(CheckCause.UNKNOWN, WARNING)]


def test_values_that_the_user_gives_decide_about_the_fee() -> None:
    limited = Facts(fee_limits=FeeLimits(1_000, 1_000))
    assert [each.cause for each in check_package([payment()], limited, [9_001])] == [CheckCause.FEE_TOO_LOW]
    assert check_package([payment()], limited, [10_000]) == ()
    assert [each.cause for each in check_package([payment()], limited, [8_000])] == [CheckCause.OUTPUTS_ABOVE_INPUTS]


def test_outputs_above_inputs_and_missing_outputs_are_invalid() -> None:
    assert found(facts(value=8_999), payment(value=8_999)) == [(CheckCause.OUTPUTS_ABOVE_INPUTS, INVALID)]
    missing = Facts(parents={bytes(COIN): KnownParent(0, None, 50)})
    assert found(missing, payment()) == [(CheckCause.MISSING_OUTPUT, INVALID)]


def test_faults_of_the_bytes_alone_are_malformed() -> None:
    twice = Transaction.parse(build_tx([TxIn(COIN), TxIn(COIN)], [TxOut(1, THEIRS)]))
    for raw in (twice.raw, build_tx([TxIn(COIN)], []), build_tx([TxIn(COIN)], [TxOut(22 * 10**14, THEIRS)])):
        assert found(facts(), Transaction.parse(raw)) == [(CheckCause.MALFORMED, INVALID)]


@given(st.integers(0, 300), st.integers(0, 300))
@example(101, 200)
@example(102, 200)
def test_a_coinbase_needs_100_confirmations(height: int, tip: int) -> None:
    wallet = replace(facts(height=height, is_coinbase=True), tip=tip)
    is_early = tip >= height and tip + 1 - height < 100
    assert found(wallet, payment()) == ([(CheckCause.IMMATURE_COINBASE, INVALID)] if is_early else [])


@given(st.integers(0, 400), st.booleans())
@example(200, False)
@example(201, False)
def test_a_lock_time_by_height(lock: int, is_final: bool) -> None:
    tx = payment(lock_time=lock, sequence=0xFFFFFFFF if is_final else 0xFFFFFFFE)
    is_locked = not is_final and lock > 200  # the next block is 201
    assert found(facts(), tx) == ([(CheckCause.LOCK_TIME, INVALID)] if is_locked else [])


@given(st.integers(-700, 700))
@example(-1)
@example(0)
def test_a_lock_time_by_the_median_time(offset: int) -> None:
    tx = payment(lock_time=TIME + 600 * 200 + offset, sequence=0)
    is_locked = offset >= 0
    assert found(facts(), tx) == ([(CheckCause.LOCK_TIME, INVALID)] if is_locked else [])


@given(st.integers(0, 200), st.integers(0, 0xFFFF), st.booleans(), st.sampled_from([1, 2, 3]))
def test_a_relative_lock_time(height: int, amount: int, is_time: bool, version: int) -> None:
    tx = payment(sequence=amount | (1 << 22 if is_time else 0), version=version)
    since = 600 * (200 - max(0, height - 1))  # seconds since the median time of the block before the coin's
    is_locked = 512 * amount > since if is_time else amount > 201 - height
    expected = [(CheckCause.LOCK_TIME, INVALID)] if is_locked and version > 1 else []
    assert found(facts(height=height), tx) == expected


def test_relative_lock_times_of_unconfirmed_coins_have_not_passed() -> None:
    wallet = facts(height=None, is_unconfirmed=True)
    assert found(wallet, payment(sequence=1)) == [(CheckCause.LOCK_TIME, INVALID)]
    assert found(wallet, payment(sequence=0)) == []
    locked = Transaction.parse(build_tx([TxIn(OutPoint(payment().txid, 0), sequence=1)], [TxOut(8_000, THEIRS)]))
    assert (CheckCause.LOCK_TIME, INVALID) in found(facts(), payment(), locked)


def test_conflicts_of_the_wallet_are_passed_on() -> None:
    tx = payment()
    finding = CheckFinding(CheckCause.CONFLICT, INVALID, "it conflicts", tx.txid, bytes(32), 7)
    assert check_package([tx], replace(facts(), conflicts=finding)) == (finding,)
    assert check_package([tx], replace(facts(), families=finding)) == (finding,)


def test_fees_are_compared_with_the_limits_of_peers() -> None:
    size = payment().virtual_size
    for fee, expected in (
        (size - 1, [(CheckCause.FEE_TOO_LOW, REFUSED)]),
        (size, [(CheckCause.FEE_TOO_LOW, WARNING)]),
        (2 * size - 1, [(CheckCause.FEE_TOO_LOW, WARNING)]),
        (2 * size, []),
    ):
        wallet = replace(facts(), fee_limits=FeeLimits(1_000, 2_000))
        assert found(wallet, payment(10_000 - fee)) == expected, fee
    assert found(replace(facts(), fee_limits=FeeLimits(0, 0)), payment(10_000)) == []


def child_of(parent: Transaction, paid: int) -> Transaction:
    kind = signing.wpkh(2)
    value = parent.outputs[0].value
    tx, _, _ = signing.signed_tx([(kind, value)], [TxOut(paid, THEIRS)], [1], outpoints=[OutPoint(parent.txid, 0)])
    return tx


def test_the_fees_of_a_package_count_together() -> None:
    limited = replace(facts(), fee_limits=FeeLimits(1_000, 1_000))
    parent = payment(10_000)
    child = child_of(parent, 9_000)
    assert found(limited, parent) == [(CheckCause.FEE_TOO_LOW, REFUSED)]
    assert found(limited, parent, child) == []
    assert found(limited, parent, child_of(parent, 9_950)) == [(CheckCause.FEE_TOO_LOW, REFUSED)]
    assert found(limited, parent, child_of(parent, 10_001))[0] == (CheckCause.OUTPUTS_ABOVE_INPUTS, INVALID)
    twice = payment(8_000)
    assert (CheckCause.CONFLICT, INVALID) in found(limited, parent, twice)


@pytest.mark.parametrize("is_accepted", [False, True])
def test_a_replacement_pays_more_than_the_fees_before(is_accepted: bool) -> None:
    size = payment().virtual_size
    rival = replace(facts(), rivals=[Replaced(b"\x22" * 32, 1_000, is_accepted)])
    for fee, weight in (
        (999, REFUSED),
        (1_000, REFUSED),
        (1_000 + -(-size // 10) - 1, REFUSED),
        (1_000 + -(-size // 10), WARNING),
        (1_000 + size - 1, WARNING),
        (1_000 + size, None),
    ):
        expected = [(CheckCause.REPLACES, WARNING)]
        if is_accepted and weight is not None:
            expected.append((CheckCause.REPLACEMENT_FEE, weight))
        assert sorted(found(rival, payment(10_000 - fee))) == sorted(expected), fee


def test_refused_bytes_are_refused_again() -> None:
    assert found(replace(facts(), refused=True), payment()) == [(CheckCause.REFUSED_BEFORE, REFUSED)]


def test_forms_that_nodes_do_not_relay_are_warnings() -> None:
    for options in ({"version": 4}, {"version": 0}, {"version": -1}):
        assert found(facts(), payment(**options)) == [(CheckCause.NOT_STANDARD, WARNING)]
    assert found(facts(), payment(dust_limit(THEIRS) - 1)) == [(CheckCause.DUST, WARNING)]
    assert found(facts(), payment(dust_limit(THEIRS))) == []


def test_dust_limits_are_those_of_core() -> None:
    limits = {"pkh": 546, "wpkh": 294, "tr": 330, "sh-wpkh": 540}
    scripts = {kind.name: kind.script_pubkey for kind in (signing.pkh(1), KIND, signing.tr(1), signing.sh(KIND))}
    assert {name: dust_limit(script) for name, script in scripts.items()} == limits
    assert dust_limit(b"\x51\x02\x4e\x73") == 240  # pay to anchor
    assert dust_limit(b"\x6a\x01\x00") == 0
    assert [dust_limit(bytes(size)) for size in (10_000, 10_001)] == [30_477, 0]
