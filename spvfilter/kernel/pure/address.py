"""The reference of the fast path for addresses, which leaves every one to address.py: that is what the compiled twin must equal."""

from __future__ import annotations


def decode_address(text: str, p2pkh_version: int, p2sh_version: int, hrp: str, /) -> bytes | None:
    """The scriptPubKey of a valid address of a network with these parameters, or None: not decided here.

    The compiled twin decides most valid ones. It never decides what address.py refuses, nor otherwise than it would.
    """
    return None
