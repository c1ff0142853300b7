"""The fee floor, below which peers do not accept transactions (BIP-133), and a check of transactions against it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spvfilter.light.events import FeeFloor, FeeWarning
from spvfilter.store.txcheck import FeeLimits
from spvfilter.transaction import Transaction

if TYPE_CHECKING:  # so that a program without a running client need not load the peers
    from spvfilter.light.engine.peers import Peer

_INITIAL_DOWNLOAD = 9_000_000
"""A rate above this shows that a node is in its initial download (satoshi per 1,000 virtual bytes).

Core then announces MAX_MONEY, rounded to 9,170,997 (policy/fees FeeFilterRounder).
"""


def stated_rates(peers: Iterable[Peer]) -> list[tuple[Peer, int]]:
    """Return the feefilter rates of the ready peers, but not of those in their initial download."""
    return [
        (peer, peer.fee_filter)
        for peer in peers
        if peer.fee_filter is not None and peer.fee_filter < _INITIAL_DOWNLOAD and peer.is_ready
    ]


def fee_floor(peers: Iterable[Peer]) -> FeeFloor | None:
    """Return the median fee floor of the ready peers, counting one value for each network group.

    A group counts as its lowest value, because an attacker may have many addresses in one group. If the number of
    groups is even, the median is the lower of the two middle values.

    Returns:
        The fee floor, or None if no ready peer has announced one. Peers in their initial download do not count.
    """
    told: dict[str, int] = {}
    for peer, rate in stated_rates(peers):
        told[peer.group] = min(rate, told.get(peer.group, rate))
    if not told:
        return None
    return FeeFloor(sorted(told.values())[(len(told) - 1) // 2], len(told))


def fee_limits(peers: Iterable[Peer]) -> FeeLimits | None:
    """Return the lowest and highest fee rates that ready peers require; None if no ready peer accepts transactions.

    A peer that has sent no feefilter message counts as 0.
    """
    rates = [
        peer.fee_filter or 0 for peer in peers if peer.is_ready and peer.profile is not None and peer.profile.relays
    ]
    return FeeLimits(min(rates), max(rates)) if rates else None


def low_fee(tx: Transaction, fee: int | None, floor: FeeFloor | None) -> FeeWarning | None:
    """Return a warning if a transaction's fee (satoshi) is known and below the fee floor."""
    if fee is None or floor is None or fee * 1_000 >= floor.rate * tx.virtual_size:
        return None
    return FeeWarning(tx.txid, fee * 1_000 // tx.virtual_size, floor)
