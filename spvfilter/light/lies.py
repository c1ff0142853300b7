"""Lies: provably false statements by peers."""

from __future__ import annotations

from enum import StrEnum

from spvfilter._public import public
from spvfilter.errors import InvalidHeaderError, LieError, ProofError


@public
class Lie(StrEnum):
    """The kind of lie that a peer told: the `cause` of a `LieError`.

    A false merkle proof raises `ProofError` instead, and a false header raises `InvalidHeaderError`.
    """

    UNASKED_BLOCK = "a block that nobody asked for"
    """The peer sent a block that the client had not requested."""
    BLOCK_OUT_OF_ORDER = "a block out of order"
    """The peer sent blocks in a different order from the one requested."""
    WITHHELD_TX = "a proved transaction that was not sent"
    """The merkle proof includes a matched transaction that the peer did not send."""
    UNPROVED_TX = "a transaction that the block's proof does not prove"
    """The peer sent a transaction that the merkle proof of its block does not contain."""
    UNASKED_TX = "a transaction that nobody asked for"
    """The peer sent an unconfirmed transaction that the client had not requested."""
    FILTERED_OUT_TX = "a transaction that the filter does not match"
    """The peer sent a transaction that the loaded BIP-37 filter does not match."""
    OMITTED_TX = "a transaction of the wallet, proved by another peer"
    """The peer left out a transaction of the wallet. Another peer proved that the block contains it."""
    FALSE_BLOCK = "a block that its header does not commit to"
    """The transactions or the witnesses of the block do not match its header."""
    IMPOSSIBLE_TX = "a transaction that no block can contain"
    """The transaction breaks a consensus rule, such as the limit of 21 million bitcoins."""
    WRONG_SIGNATURE = "a transaction with an invalid signature"
    """The transaction spends one of the wallet's coins without a valid signature, so no block can contain it."""
    UNASKED_FILTER = "a compact filter or filter headers that nobody asked for"
    """The peer sent compact filters or filter headers that the client had not requested."""
    FALSE_FILTER = "a compact filter that its header does not commit to"
    """The hash of the filter does not match the filter header."""
    FALSE_FILTER_HEADER = "a filter header that commits to a false filter"
    """The filter header differs from the known one, or its block shows that the filter is false."""
    CONTRADICTION = "filter headers that contradict its earlier ones"
    """The peer sent filter headers that differ from its earlier ones for the same blocks."""
    MALFORMED = "a message that cannot be read"
    """The peer sent a message that cannot be parsed."""


# no honest peer does this, and a damaged connection cannot cause it, because the checksums are right
_LIES = (LieError, ProofError, InvalidHeaderError)
_UNPROVEN = frozenset((Lie.WITHHELD_TX, Lie.BLOCK_OUT_OF_ORDER, Lie.UNASKED_TX, Lie.UNPROVED_TX, Lie.FILTERED_OUT_TX))


def is_lie(error: Exception) -> bool:
    """True if an error proves that a peer lied.

    A damaged byte can turn a message into an unknown one, so messages can get lost. An error that a lost message could
    explain proves nothing.
    """
    return isinstance(error, _LIES) and not (isinstance(error, LieError) and error.cause in _UNPROVEN)
