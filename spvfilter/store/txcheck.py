"""Check a transaction before it is sent, using everything that the wallet knows without asking a node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from spvfilter._public import public
from spvfilter.errors import ParameterError, counted
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.protocol import COINBASE_MATURITY, MAX_MONEY, MAX_STANDARD_TX_WEIGHT
from spvfilter.signatures import Validity, find_curve, verify_spends
from spvfilter.store.validity import why_impossible
from spvfilter.transaction import Transaction

_LOCKTIME_THRESHOLD = 500_000_000  # lock times at or above this are times, Core script/script.h
_FINAL = 0xFFFFFFFF  # such inputs ignore the lock time, Core primitives/transaction.h
_NO_RELATIVE_LOCK = 1 << 31  # BIP-68, disable flag
_TIME_LOCK = 1 << 22  # BIP-68, type flag: in units of 512 s
_DUST_RATE = 3_000
"""Fee rate in satoshi per 1,000 virtual bytes (Core policy/policy.h DUST_RELAY_TX_FEE)."""
_INCREMENTAL_RATES = 100, 1_000
"""Fee rates that a replacement must add, in satoshi per 1,000 virtual bytes: since Core 30, and before."""
_MAX_VERSION = 3  # Core primitives/transaction.h TX_MAX_STANDARD_VERSION
_MIN_SIZE = 65  # bytes without the witness (Core policy/policy.h MIN_STANDARD_TX_NONWITNESS_SIZE)
_MAX_SCRIPT_SIG = 1_650  # bytes (Core policy/policy.cpp MAX_STANDARD_SCRIPTSIG_SIZE)


@public
class CheckWeight(StrEnum):
    """How serious a finding is."""

    INVALID = "invalid"
    """The next block cannot contain the transaction. `broadcast` always refuses it."""
    REFUSED = "refused"
    """All connected peers will refuse the transaction. `broadcast` sends it only with `force=True`."""
    WARNING = "warning"
    """Some peers may refuse the transaction, or the wallet does not know enough to tell. `broadcast` sends it."""


@public
class CheckCause(StrEnum):
    """A kind of problem with a transaction."""

    MALFORMED = "malformed"
    """It breaks a rule that needs no other facts: it has no inputs, spends an output twice, has amounts out of
    range, or is too heavy.
    """
    CONFIRMED = "confirmed"
    """A block already contains the transaction."""
    CONFLICT = "conflict"
    """It or an ancestor spends an output that a transaction in a block spends, or that is spent twice."""
    MISSING_OUTPUT = "missing output"
    """It spends an output of a known transaction that has no such output."""
    OUTPUTS_ABOVE_INPUTS = "outputs above inputs"
    """Its outputs are worth more than its inputs."""
    ABANDONED_PARENT = "abandoned parent"
    """It spends from a transaction that was abandoned."""
    IMMATURE_COINBASE = "immature coinbase"
    """It spends the output of a coinbase with fewer than 100 confirmations."""
    LOCK_TIME = "lock time"
    """Its lock time, or the relative lock time of an input (BIP-68), has not passed."""
    WRONG_SIGNATURE = "wrong signature"
    """The signature of an input is wrong, or the input's data does not satisfy the coin's script."""
    UNSIGNED = "unsigned"
    """An input has neither a scriptSig nor a witness.

    The weight is REFUSED if the coin is unknown and no package for signatures is installed.
    """
    FEE_TOO_LOW = "fee too low"
    """The fee rate is below the limits that peers announce (BIP-133)."""
    REFUSED_BEFORE = "refused before"
    """Peers have already refused exactly these bytes."""
    REPLACEMENT_FEE = "replacement fee"
    """It would replace a transaction of the wallet, but its fee is too low for that (BIP-125, rules 3 and 4)."""
    NOT_STANDARD = "not standard"
    """Nodes do not relay transactions of this version, size or form."""
    DUST = "dust"
    """An output is worth less than it costs to spend it."""
    UNKNOWN = "unknown"
    """The values or scripts of some inputs are unknown, so the fee or a signature was not checked."""
    REPLACES = "replaces"
    """A pending transaction of the wallet spends one of its inputs."""


@public
@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A problem with a transaction. `str()` returns the message."""

    cause: CheckCause
    """The kind of problem."""
    weight: CheckWeight
    """Whether `broadcast` refuses the transaction because of it."""
    message: str
    """A sentence that describes the problem."""
    txid: bytes
    """Txid of the transaction, 32 bytes in wire order."""
    by: bytes | None = None
    """Txid of a transaction that conflicts with it, 32 bytes in wire order. None if there is none."""
    height: int | None = None
    """Height of the block that contains `by`. None if it is unconfirmed or the height is not known."""

    @property
    def txid_hex(self) -> str:
        """The field `txid` in hex, as block explorers show it."""
        return hash_to_hex(self.txid)

    @property
    def by_hex(self) -> str | None:
        """The field `by` in hex, as block explorers show it. None if there is none."""
        return None if self.by is None else hash_to_hex(self.by)

    def __str__(self) -> str:
        return self.message


class KnownParent(NamedTuple):
    """Facts about the transaction whose output an input spends."""

    outputs: int | None = None
    """Number of its outputs, or None if the number is not known."""
    output: TxOut | None = None
    """The output that is spent, or None if it is not known or does not exist."""
    height: int | None = None
    """Height of its block, or None if it is unconfirmed or the height is not known."""
    is_unconfirmed: bool = False
    """True if the transaction is known and no block contains it."""
    is_coinbase: bool = False
    """True if it is known to be a coinbase."""


class Replaced(NamedTuple):
    """A pending transaction of the wallet that a new one would replace."""

    txid: bytes
    """Its txid, 32 bytes in wire order."""
    fee: int
    """Its fee plus the fees of its descendants, as far as they are known, in satoshi."""
    is_accepted: bool
    """True if a peer has accepted it."""


class FeeLimits(NamedTuple):
    """Fee rates that peers announce (BIP-133), in satoshi per 1,000 virtual bytes."""

    lowest: int
    """The lowest rate of all connected peers, or 0 if a peer has not announced one."""
    highest: int
    """The highest rate."""


class CheckFacts(Protocol):
    """The wallet's knowledge of other transactions and the chain."""

    @property
    def tip(self) -> int:
        """Height of the tip, or -1 if the chain is unknown."""
        ...

    @property
    def fee_limits(self) -> FeeLimits | None:
        """The fee limits of connected peers, or None if there are none."""
        ...

    def median_time(self, height: int) -> int:
        """Return the median time of the 11 headers up to a height, as Unix time."""
        ...

    def parent(self, outpoint: bytes) -> KnownParent:
        """Return what is known about the transaction that an outpoint refers to."""
        ...

    def conflict(self, tx: Transaction) -> CheckFinding | None:
        """Return a finding if a block contains the transaction or a conflicting one."""
        ...

    def family_conflict(self, tx: Transaction) -> CheckFinding | None:
        """Return a finding if an ancestor conflicts with a block or was abandoned."""
        ...

    def replaced(self, tx: Transaction) -> Sequence[Replaced]:
        """Return the wallet's own pending transactions that share an input with `tx`."""
        ...

    def was_refused(self, tx: Transaction) -> bool:
        """Return True if peers have refused exactly these bytes."""
        ...


def invalid(tx: Transaction, cause: CheckCause, reason: str) -> CheckFinding:
    """Return a finding which says that no block can contain a transaction."""
    return CheckFinding(cause, CheckWeight.INVALID, f"no block can contain the transaction: {reason}", tx.txid)


def check_input_values(tx: Transaction, input_values: Sequence[int] | None) -> None:
    """Raise ParameterError for impossible values (satoshi) of a transaction's inputs."""
    if input_values is None:
        return
    if len(input_values) != len(tx.inputs):
        raise ParameterError(
            f"input_values: expected {counted(len(tx.inputs), 'value')}, one for each input, got {len(input_values)}"
        )
    wrong = next((value for value in input_values if not 0 <= value <= MAX_MONEY), None)
    if wrong is not None:
        raise ParameterError(f"input_values: {wrong} is not an amount in satoshi")
    spent, made = sum(input_values), sum(output.value for output in tx.outputs)
    if spent < made:
        raise ParameterError(f"input_values: the inputs are worth {spent} satoshi, but the outputs are worth {made}")


def check_package(
    transactions: Sequence[Transaction], facts: CheckFacts, input_values: Sequence[int] | None = None
) -> tuple[CheckFinding, ...]:
    """Check transactions that are sent together, parents first. Their fees are added up.

    Args:
        transactions: The transactions. Each may spend outputs of earlier ones.
        facts: The wallet's facts.
        input_values: Value of each input of the last transaction in satoshi, if the user gave these.
    """
    package = {tx.txid: tx for tx in transactions}
    checks = [_TxCheck(tx, facts, package) for tx in transactions]
    if input_values is not None and checks:
        checks[-1].values = list(input_values)
    found = [*_double_spends(transactions), *(finding for check in checks for finding in check.findings())]
    if not any(finding.weight is CheckWeight.INVALID for finding in found):
        found += _fee_findings(checks, facts.fee_limits)
    order = list(CheckWeight)
    return tuple(sorted(found, key=lambda finding: order.index(finding.weight)))


def impossible(tx: Transaction, facts: CheckFacts, input_values: Sequence[int] | None = None) -> CheckFinding | None:
    """Return why no block can contain a transaction, or None. Only one reason is returned.

    The check covers the transaction's form, its amounts and other transactions, but neither scripts nor lock times.
    """
    check = _TxCheck(tx, facts, {})
    if input_values is not None:
        check.values = list(input_values)
    return next(check.conflicts(), None)


class _TxCheck:
    """The check of one transaction."""

    def __init__(self, tx: Transaction, facts: CheckFacts, package: Mapping[bytes, Transaction]) -> None:
        self.tx = tx
        self.size = tx.virtual_size
        self._facts = facts
        self._package = package
        self._parents = [self._parent(outpoint) for outpoint in tx.inputs]
        self._paid = sum(output.value for output in tx.outputs)
        self.values: list[int | None] = [None if each.output is None else each.output.value for each in self._parents]

    def _parent(self, outpoint: bytes) -> KnownParent:
        parent = self._package.get(outpoint[:32])
        if parent is None or parent is self.tx:
            return self._facts.parent(outpoint)
        count, index = len(parent.span.outputs), int.from_bytes(outpoint[32:], "little")
        return KnownParent(count, parent.output(index) if index < count else None, is_unconfirmed=True)

    @property
    def fee(self) -> int | None:
        """The fee in satoshi, or None if a value is not known."""
        known = [value for value in self.values if value is not None]
        return sum(known) - self._paid if len(known) == len(self.values) else None

    def findings(self) -> Iterator[CheckFinding]:
        """Yield all findings except those about the fee."""
        is_possible = True
        for finding in self.conflicts():
            is_possible = False
            yield finding
            if finding.cause in (CheckCause.MALFORMED, CheckCause.CONFIRMED):
                return
        yield from self._immature()
        yield from self._locked()
        yield from self._unsigned()
        if is_possible:
            yield from self._replacement()
            yield from self._relay()
            yield from self._standard()

    def conflicts(self) -> Iterator[CheckFinding]:
        """Yield the reasons why no block can contain the transaction: its form, its amounts and other transactions."""
        if (reason := why_impossible(self.tx)) is not None:
            yield invalid(self.tx, CheckCause.MALFORMED, reason)
            return
        if (conflict := self._facts.conflict(self.tx)) is not None:
            yield conflict
            return
        for outpoint, parent in zip(map(OutPoint.parse, self.tx.inputs), self._parents, strict=True):
            if parent.outputs is not None and outpoint.index >= parent.outputs:
                there = counted(parent.outputs, "output")
                reason = f"it spends output {outpoint.index} of {outpoint.txid_hex}, which has only {there}"
                yield invalid(self.tx, CheckCause.MISSING_OUTPUT, reason)
                return
        if self.fee is not None and self.fee < 0:
            inputs = self._paid + self.fee
            reason = f"its outputs are worth {self._paid} satoshi, but its inputs only {inputs}"
            yield invalid(self.tx, CheckCause.OUTPUTS_ABOVE_INPUTS, reason)
            return
        conflict = self._facts.family_conflict(self.tx)
        if conflict is not None and conflict.by not in self._package:  # otherwise it is sent again with its child
            yield conflict

    def _immature(self) -> Iterator[CheckFinding]:
        for parent in self._parents:
            if parent.is_coinbase and parent.height is not None and self._facts.tip >= parent.height:
                depth = self._facts.tip + 1 - parent.height
                if depth < COINBASE_MATURITY:
                    reason = f"it spends a coinbase that has only {depth} of {COINBASE_MATURITY} confirmations"
                    yield invalid(self.tx, CheckCause.IMMATURE_COINBASE, reason)
                    return

    def _locked(self) -> Iterator[CheckFinding]:
        """Yield a finding for each lock time that has not passed (Core IsFinalTx, BIP-113, BIP-68)."""
        tip, sequences, lock = self._facts.tip, self.tx.sequences, self.tx.lock_time
        if tip < 0:
            return
        now = self._facts.median_time(tip)
        if lock and lock >= (tip + 1 if lock < _LOCKTIME_THRESHOLD else now) and set(sequences) != {_FINAL}:
            until = f"block {lock + 1:,}" if lock < _LOCKTIME_THRESHOLD else f"the chain's time {lock + 1}"
            yield invalid(self.tx, CheckCause.LOCK_TIME, f"its lock time has not passed: it must wait for {until}")
            return
        if self.tx.version % 2**32 < 2:
            return
        for index, (sequence, parent) in enumerate(zip(sequences, self._parents, strict=True)):
            height = tip + 1 if parent.is_unconfirmed else parent.height
            if sequence & _NO_RELATIVE_LOCK or height is None or height > tip + 1:
                continue
            amount = sequence & 0xFFFF
            if sequence & _TIME_LOCK:
                is_locked = self._facts.median_time(max(height - 1, 0)) + 512 * amount - 1 >= now
                needed = f"{512 * amount:,} seconds"
            else:
                is_locked, needed = height + amount - 1 >= tip + 1, f"{amount:,} confirmations"
            if is_locked:
                reason = f"the relative lock time of input {index} has not passed: its coin needs {needed} (BIP-68)"
                yield invalid(self.tx, CheckCause.LOCK_TIME, reason)
                return

    def _unsigned(self) -> Iterator[CheckFinding]:
        tx, spent = self.tx, [parent.output for parent in self._parents]
        found = verify_spends(tx, spent)
        if found.validity is Validity.WRONG and found.index is not None:
            is_empty = not (tx.script_sigs[found.index] or tx.witnesses[found.index])
            cause = CheckCause.UNSIGNED if is_empty else CheckCause.WRONG_SIGNATURE
            yield invalid(tx, cause, f"input {found.index}: {found.reason}")
        elif found.index is not None:
            message = f"input {found.index} was not verified: {found.reason}"
            yield CheckFinding(CheckCause.UNKNOWN, CheckWeight.WARNING, message, tx.txid)
        for index, reason in found.unrelayed[:1]:
            message = f"nodes do not relay input {index}: {reason}"
            yield CheckFinding(CheckCause.NOT_STANDARD, CheckWeight.WARNING, message, tx.txid)
        if find_curve() is None:
            pairs = zip(tx.script_sigs, tx.witnesses, spent, strict=True)
            bare = next((at for at, (script, items, out) in enumerate(pairs) if not (script or items or out)), None)
            if bare is not None:
                message = f"input {bare} is not signed: it has neither a scriptSig nor a witness"
                yield CheckFinding(CheckCause.UNSIGNED, CheckWeight.REFUSED, message, tx.txid)

    def _replacement(self) -> Iterator[CheckFinding]:
        rivals, tx = self._facts.replaced(self.tx), self.tx
        if not rivals:
            return
        named = hash_to_hex(rivals[0].txid)
        yield CheckFinding(
            CheckCause.REPLACES,
            CheckWeight.WARNING,
            f"it replaces {named}, a pending transaction of this wallet",
            tx.txid,
            rivals[0].txid,
        )
        accepted = [rival for rival in rivals if rival.is_accepted]
        if not accepted or self.fee is None:
            return
        before = sum(rival.fee for rival in accepted)
        least, most = (before + -(-rate * self.size // 1_000) for rate in _INCREMENTAL_RATES)
        if self.fee < most:
            weight = CheckWeight.REFUSED if self.fee < least else CheckWeight.WARNING
            needed = least if self.fee < least else most
            message = (
                f"its fee of {self.fee} satoshi is too low to replace {named}, which peers have accepted: they"
                f" require at least {needed} (BIP-125)"
            )
            yield CheckFinding(CheckCause.REPLACEMENT_FEE, weight, message, tx.txid, accepted[0].txid)

    def _relay(self) -> Iterator[CheckFinding]:
        if self._facts.was_refused(self.tx):
            message = "peers have already refused these bytes: change the transaction, or send it again with force"
            yield CheckFinding(CheckCause.REFUSED_BEFORE, CheckWeight.REFUSED, message, self.tx.txid)
        if self.fee is None:
            unknown = sum(value is None for value in self.values)
            message = f"it has {counted(unknown, 'input')} of unknown value, so its fee is unknown"
            yield CheckFinding(CheckCause.UNKNOWN, CheckWeight.WARNING, message, self.tx.txid)

    def _standard(self) -> Iterator[CheckFinding]:
        tx = self.tx

        def warning(cause: CheckCause, message: str) -> CheckFinding:
            return CheckFinding(cause, CheckWeight.WARNING, message, tx.txid)

        if not 1 <= tx.version <= _MAX_VERSION:
            yield warning(CheckCause.NOT_STANDARD, f"nodes do not relay transactions of version {tx.version}")
        if tx.weight > MAX_STANDARD_TX_WEIGHT:
            message = f"its weight is {tx.weight:,}, but nodes relay only up to {MAX_STANDARD_TX_WEIGHT:,} weight units"
            yield warning(CheckCause.NOT_STANDARD, message)
        if len(tx.stripped) < _MIN_SIZE:
            yield warning(CheckCause.NOT_STANDARD, f"nodes do not relay transactions smaller than {_MIN_SIZE} bytes")
        if any(end - start > _MAX_SCRIPT_SIG for _, start, end in tx.span.inputs):
            yield warning(CheckCause.NOT_STANDARD, f"nodes do not relay scriptSigs over {_MAX_SCRIPT_SIG:,} bytes")
        for index, output in enumerate(tx.outputs):
            if output.value < dust_limit(output.script_pubkey):
                yield warning(CheckCause.DUST, f"output {index} is dust, with only {output.value} satoshi")
                return


def _double_spends(transactions: Sequence[Transaction]) -> Iterator[CheckFinding]:
    """Yield a finding if two transactions of a package spend one output."""
    spenders = dict[bytes, bytes]()
    for tx in transactions:
        for outpoint in tx.inputs:
            other = spenders.setdefault(outpoint, tx.txid)
            if other != tx.txid:
                message = (
                    f"it spends {OutPoint.parse(outpoint)}, and {hash_to_hex(other)} in the same package spends it too"
                )
                yield CheckFinding(CheckCause.CONFLICT, CheckWeight.INVALID, message, tx.txid, other)
                return


def _fee_findings(checks: Sequence[_TxCheck], limits: FeeLimits | None) -> Iterator[CheckFinding]:
    """Yield a finding if the package's fees are below the peers' limits."""
    fees = [check.fee for check in checks]
    known = [fee for fee in fees if fee is not None]
    if limits is None or not checks or len(known) < len(fees):
        return
    fee, size, tx = sum(known), sum(check.size for check in checks), checks[-1].tx
    for rate, weight, whose in (
        (limits.lowest, CheckWeight.REFUSED, "every connected peer requires"),
        (limits.highest, CheckWeight.WARNING, "some peers require"),
    ):
        if fee < rate * size // 1_000:
            what = "the package pays" if len(checks) > 1 else "it pays"
            message = f"{what} a fee of {fee} satoshi, but {whose} {rate * size // 1_000} for {size} virtual bytes"
            yield CheckFinding(CheckCause.FEE_TOO_LOW, weight, message, tx.txid)
            return


def dust_limit(script_pubkey: bytes) -> int:
    """Return the smallest value, in satoshi, of an output with this script that nodes relay (Core GetDustThreshold)."""
    if script_pubkey[:1] == b"\x6a" or len(script_pubkey) > 10_000:
        return 0  # nobody can spend it
    is_witness = 4 <= len(script_pubkey) <= 42 and script_pubkey[1] + 2 == len(script_pubkey)
    is_witness = is_witness and (script_pubkey[0] == 0 or 0x51 <= script_pubkey[0] <= 0x60)
    size = len(bytes(TxOut(0, script_pubkey))) + (67 if is_witness else 148)
    return size * _DUST_RATE // 1_000
