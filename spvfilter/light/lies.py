"""Lies: false statements of peers that their own messages prove."""

from __future__ import annotations

from enum import StrEnum

from spvfilter._public import public
from spvfilter.errors import InvalidHeaderError, LieError, ProofError


@public
class Lie(StrEnum):
    """The `cause` of a LieError. Of proofs and headers the errors have names of their own:

    ProofError, InvalidHeaderError.
    """

    UNASKED_BLOCK = "a block nobody asked for"
    BLOCK_OUT_OF_ORDER = "a block out of the order asked for"
    WITHHELD_TX = "a proved transaction that was not sent"
    UNPROVED_TX = "a transaction that the block's proof does not prove"
    UNASKED_TX = "a transaction nobody asked for"
    FILTERED_OUT_TX = "a transaction that the filter does not match"
    OMITTED_TX = "a transaction of ours that another peer proved"
    FALSE_BLOCK = "a block that is not what its header commits to"
    IMPOSSIBLE_TX = "a transaction that no block can have"
    UNASKED_FILTER = "a compact filter or filter headers nobody asked for"
    FALSE_FILTER = "a compact filter that is not what its header commits to"
    FALSE_FILTER_HEADER = "a filter header that commits to a false filter"
    CONTRADICTION = "filter headers that contradict what it said before"
    MALFORMED = "a message that cannot be read"


# no honest peer does this, and no damaged line makes it look so: checksums are right
_LIES = (LieError, ProofError, InvalidHeaderError)
_UNPROVEN = frozenset((Lie.WITHHELD_TX, Lie.BLOCK_OUT_OF_ORDER, Lie.UNASKED_TX, Lie.UNPROVED_TX, Lie.FILTERED_OUT_TX))


def is_lie(error: Exception) -> bool:
    """Whether an error proves that a peer lied.

    A message may be lost on the way: a byte flipped in its command makes it one that nobody knows. What is missing, or
    looks wrong for lack of another message, proves nothing.
    """
    return isinstance(error, _LIES) and not (isinstance(error, LieError) and error.cause in _UNPROVEN)
