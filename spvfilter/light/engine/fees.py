"""The fee floor: the rate below which peers take no transaction (BIP-133), and the check of own transactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from spvfilter.errors import ParameterError
from spvfilter.light.events import FeeFloor, FeeWarning
from spvfilter.protocol import MAX_MONEY
from spvfilter.store.txcheck import FeeLimits
from spvfilter.transaction import Transaction

if TYPE_CHECKING:
    from spvfilter.light.engine.peers import Peer


def fee_floor(peers: Iterable[Peer]) -> FeeFloor | None:
    """Return the median fee floor of the ready peers, with one value for each network group.

    The lowest value of a group counts. A node in its initial download states a rate that nobody pays, and an attacker
    may have many addresses in one group. If the number of groups is even, the median is the lower of the middle values.

    Returns:
        The fee floor, or None if no ready peer sent a feefilter message.
    """
    told: dict[str, int] = {}
    for peer in peers:
        if peer.fee_filter is not None and peer.is_ready:
            told[peer.group] = min(peer.fee_filter, told.get(peer.group, peer.fee_filter))
    if not told:
        return None
    return FeeFloor(sorted(told.values())[(len(told) - 1) // 2], len(told))


def fee_limits(peers: Iterable[Peer]) -> FeeLimits | None:
    """Return the lowest and the highest rate that peers state which take transactions; None if there are none.

    A peer that has stated none takes any rate.
    """
    rates = [
        peer.fee_filter or 0 for peer in peers if peer.is_ready and peer.profile is not None and peer.profile.relays
    ]
    return FeeLimits(min(rates), max(rates)) if rates else None


def check_input_values(tx: Transaction, input_values: Sequence[int] | None) -> None:
    """Raise ParameterError for values (satoshi) that the inputs of a transaction cannot have."""
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


def low_fee(tx: Transaction, fee: int | None, floor: FeeFloor | None) -> FeeWarning | None:
    """Return a warning if a transaction's fee (satoshi) is known and below the fee floor."""
    if fee is None or floor is None or fee * 1_000 >= floor.rate * tx.virtual_size:
        return None
    return FeeWarning(tx.txid, fee * 1_000 // tx.virtual_size, floor)
