"""The search for silent payments in one transaction or block, with the scanners of several scan keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spvfilter.errors import FormatError, counted
from spvfilter.kernel import silent_candidate
from spvfilter.primitives import read_compact_size
from spvfilter.protocol import HEADER_SIZE
from spvfilter.silent.scanner import SilentOutput, SilentScanner, read_inputs

_NULL_OUTPOINT = bytes(32) + b"\xff" * 4  # of a coinbase, which spends nothing
Scripts = Sequence[bytes | None]
"""The scriptPubKeys that the inputs of a transaction spend, in order, with None for each unknown script."""


class Payment(NamedTuple):
    """An output that pays an address with one of the scan keys."""

    scanner: int
    """Index of the scanner that found the output, counted from 0."""
    output: SilentOutput
    """The output."""


@dataclass(slots=True)
class Judged:
    """The result of a search for silent payments."""

    candidates: int = 0
    """Number of transactions that can pay a silent payment address."""
    unjudged: int = 0
    """Number of candidates in which a payment may have been missed, because not all spent scripts are known."""
    payments: list[Payment] = field(default_factory=list)
    """The payments that were found, in the order of the block."""


def search_tx(raw: bytes, spent: Scripts | None, scanners: Sequence[SilentScanner]) -> Judged:
    """Search one transaction.

    Raises FormatError if the transaction is malformed, or if `spent` does not contain an item for each input.
    """
    judged = Judged()
    _judge(raw, 0, spent, scanners, judged)
    return judged


def search_block(raw: bytes, spent: Sequence[Scripts] | None, scanners: Sequence[SilentScanner]) -> Judged:
    """Search a block. `spent` contains the scripts that each transaction after the coinbase spends.

    Raises FormatError if the block is malformed, or if `spent` does not match its transactions and their inputs.
    """
    judged = Judged()
    count, at = read_compact_size(raw, HEADER_SIZE, "transaction count")
    if spent is not None and len(spent) != max(0, count - 1):
        raise FormatError(
            f"expected the spent outputs of {counted(max(0, count - 1), 'transaction')} after the coinbase,"
            f" not of {len(spent)}",
            offset=HEADER_SIZE,
            field="spent outputs",
        )
    if not count:
        return judged
    at, _ = silent_candidate(raw, at, None)  # the coinbase spends nothing
    for number in range(count - 1):
        at = _judge(raw, at, None if spent is None else spent[number], scanners, judged)
    return judged


def _judge(raw: bytes, at: int, spent: Scripts | None, scanners: Sequence[SilentScanner], judged: Judged) -> int:
    """Search the transaction that starts at byte `at`, and return the offset of its end."""
    end, candidate = silent_candidate(raw, at, spent)
    if candidate is None or candidate.outpoint == _NULL_OUTPOINT:
        return end
    judged.candidates += 1
    judged.unjudged += candidate.unknown > 0
    if (inputs := read_inputs(candidate)) is not None:
        for group in groups_of(scanners):
            first, *others = (scanners[number] for number in group)
            judged.payments += [Payment(group[at], output) for at, output in first.find_with(others, inputs)]
    return end


def groups_of(scanners: Sequence[SilentScanner]) -> list[list[int]]:
    """Group the scanners by scan key, and return the indexes in each group."""
    groups: dict[bytes, list[int]] = {}
    for number, scanner in enumerate(scanners):
        groups.setdefault(scanner.scan_pubkey, []).append(number)
    return list(groups.values())
