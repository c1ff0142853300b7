"""The fee floor: the rate below which peers take no transaction (BIP-133), and whether one of ours is below it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spvfilter.errors import ParameterError
from spvfilter.kernel import NO_VALUE
from spvfilter.light.events import FeeFloor, FeeWarning
from spvfilter.primitives import OutPoint
from spvfilter.protocol import MAX_MONEY
from spvfilter.transaction import Transaction

if TYPE_CHECKING:
    from spvfilter.light.engine.context import Context
    from spvfilter.light.engine.peers import Peer
    from spvfilter.wallet.books import Books


def fee_floor(peers: Iterable[Peer]) -> FeeFloor | None:
    """The median of what ready peers have told, one of a network group; of an even number, the lower one.

    None if no peer has told.

    A node in its initial download asks for a rate that nobody pays, and one party is not to raise the floor with many
    addresses: of a group the lowest counts.
    """
    told: dict[str, int] = {}
    for peer in peers:
        if peer.fee_filter is not None and peer.is_ready:
            told[peer.group] = min(peer.fee_filter, told.get(peer.group, peer.fee_filter))
    if not told:
        return None
    return FeeFloor(sorted(told.values())[(len(told) - 1) // 2], len(told))


def fee_of(tx: Transaction, books: Books, input_values: Sequence[int] | None = None) -> int | None:
    """The fee of a transaction in satoshi; None unless the value of every input is stated, or known to the books."""
    if input_values is None:
        known = [_value_of(outpoint, books) for outpoint in tx.inputs]
        input_values = [value for value in known if value is not None]
    if len(input_values) != len(tx.inputs):
        return None
    fee = sum(input_values) - sum(output.value for output in tx.outputs)
    return fee if fee >= 0 else None


def check_input_values(tx: Transaction, input_values: Sequence[int] | None) -> None:
    """Raises ParameterError for values (satoshi) that the inputs of a transaction cannot have."""
    if input_values is None:
        return
    if len(input_values) != len(tx.inputs):
        raise ParameterError(f"input_values: {len(input_values)} values for {len(tx.inputs)} inputs")
    wrong = next((value for value in input_values if not 0 <= value <= MAX_MONEY), None)
    if wrong is not None:
        raise ParameterError(f"input_values: {wrong} is not an amount in satoshi")
    spent, made = sum(input_values), sum(output.value for output in tx.outputs)
    if spent < made:
        raise ParameterError(f"input_values: the inputs have {spent} satoshi, less than the {made} of the outputs")


def _value_of(outpoint: bytes, books: Books) -> int | None:
    coin = books.watch.table.coin(outpoint)
    if coin is not None and coin.value != NO_VALUE:
        return coin.value
    parent = books.unconfirmed.pending.get(outpoint[:32])
    if parent is None:
        return None
    outputs, index = Transaction.parse(parent.raw).outputs, OutPoint.parse(outpoint).index
    return outputs[index].value if index < len(outputs) else None


def warn_of_low_fee(context: Context, raw: bytes, input_values: Sequence[int] | None) -> None:
    """Warn of a transaction of ours whose fee is known, and is below what peers ask for. Raises FormatError."""
    tx, floor = Transaction.parse(raw), fee_floor(context.pool.connected())
    fee = fee_of(tx, context.books, input_values)
    if fee is not None and floor is not None and fee * 1_000 < floor.rate * tx.virtual_size:
        context.out.emit(FeeWarning(tx.txid, fee * 1_000 // tx.virtual_size, floor))
