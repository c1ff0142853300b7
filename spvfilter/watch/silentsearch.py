"""Search transactions and blocks for a watch list's silent payments, and collect the scripts of spent outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spvfilter.errors import FormatError, UndoError, counted
from spvfilter.hashes import sha256d
from spvfilter.kernel import spent_coins, spent_outpoints, walk_block
from spvfilter.primitives import TxOut
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE
from spvfilter.silent.scanner import SilentScanner
from spvfilter.silent.search import Judged, Payment as Paid, Scripts, search_block, search_tx
from spvfilter.silent.tweaks import first_scripts, search_block_by_tweaks
from spvfilter.watch.silentkeychain import Found, SilentKeychain

Payment = tuple[str, bytes, Found]
"""A keychain's name, the script of an output that pays it, and the facts about the payment."""


@dataclass(frozen=True, slots=True)
class SilentSearch:
    """A snapshot of a watch list's scanners, which another thread may use."""

    names: tuple[str, ...]
    """Names of the keychains."""
    scanners: tuple[SilentScanner, ...]
    """The scanner of each keychain."""

    @classmethod
    def of(cls, keychains: Sequence[SilentKeychain]) -> SilentSearch:
        """Return a search for these keychains. Raises ParameterError if the `silent` extra is not installed."""
        return cls(tuple(each.name for each in keychains), tuple(each.scanner for each in keychains))

    def tx(self, raw: bytes, spent: Scripts | None) -> Judged:
        """Search one transaction. Raises FormatError in the same cases as `search_tx`."""
        return search_tx(raw, spent, self.scanners)

    def block(self, raw: bytes, spent: Sequence[Scripts] | None) -> Judged:
        """Search a block. Raises FormatError in the same cases as `search_block`."""
        return search_block(raw, spent, self.scanners)

    def payments(self, judged: Judged) -> list[Payment]:
        """Return the payments that a search found, with the names of their keychains."""
        return self._named(judged.payments)

    def first_scripts(self, tweaks: Iterable[bytes]) -> list[bytes]:
        """Return the scripts to look for in the block with these tweaks.

        If the block pays a keychain, it contains at least one of them.
        """
        return first_scripts(tweaks, self.scanners)

    def payments_by_tweaks(self, raw: bytes, tweaks: Iterable[bytes]) -> list[Payment]:
        """Search a block, given the tweaks of its transactions. Raises FormatError if the block is malformed."""
        return self._named(search_block_by_tweaks(raw, tweaks, self.scanners))

    def _named(self, payments: Iterable[Paid]) -> list[Payment]:
        return [
            (self.names[number], output.script_pubkey, Found(output.label, output.tweak)) for number, output in payments
        ]


def scripts_of_tx(raw: bytes, spent: Sequence[TxOut]) -> Scripts:
    """Return the scripts of the outputs that a transaction spends.

    Raises FormatError unless `spent` contains an output for each input.
    """
    if len(spent) != (inputs := len(spent_outpoints(raw))):
        raise FormatError(f"expected {inputs} spent outputs, not {len(spent)}", offset=0, field="spent outputs")
    return _scripts(spent)


def scripts_of_block(raw: bytes, spent: bytes | Sequence[Sequence[TxOut]]) -> Sequence[Scripts]:
    """For each transaction in a block except the coinbase, return the scripts of the outputs that it spends.

    Args:
        raw: The block.
        spent: The undo record of the block with its checksum, or the spent outputs of each transaction after the
            coinbase.

    Raises:
        UndoError: The record is malformed or damaged, or belongs to a different block.
        FormatError: The block is malformed, or `spent` does not contain exactly one output for each input.
    """
    if isinstance(spent, bytes):
        return scripts_of_record(raw, spent)
    txs = list(walk_block(raw))[1:]
    if len(spent) != len(txs):
        raise FormatError(
            f"expected the spent outputs of {counted(len(txs), 'transaction')} after the coinbase, not of {len(spent)}",
            offset=HEADER_SIZE,
            field="spent outputs",
        )
    for number, (tx, each) in enumerate(zip(txs, spent, strict=True), 1):
        if len(each) != len(tx.inputs):
            raise FormatError(
                f"expected {counted(len(tx.inputs), 'spent output')} for transaction {number}, not {len(each)}",
                offset=HEADER_SIZE,
                field="spent outputs",
            )
    return [_scripts(each) for each in spent]


def scripts_of_record(raw: bytes, record: bytes) -> list[list[bytes | None]]:
    """Return the scripts in the undo record of a block. Raises UndoError if the record is not for this block."""
    undo, check = record[:-HASH_SIZE], record[-HASH_SIZE:]
    if len(record) < HASH_SIZE or sha256d(raw[4:36] + undo) != check:
        raise UndoError("does not match the record and the previous block's hash", offset=len(undo), field="undo check")
    return [[coin.script for coin in of_tx] for of_tx in spent_coins(undo)]


def _scripts(spent: Iterable[TxOut]) -> list[bytes | None]:
    return [bytes(each.script_pubkey) for each in spent]
