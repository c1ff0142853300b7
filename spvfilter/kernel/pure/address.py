"""The reference of the fast path for addresses, which leaves every one to address.py: that is what the compiled twin must equal."""

from __future__ import annotations

from spvfilter.kernel.pure.arguments import whole


def check_network(p2pkh_version: int, p2sh_version: int, hrp: str) -> None:
    """Raises ParameterError for version bytes out of range, TypeError for what are none."""
    for version in (p2pkh_version, p2sh_version):
        whole(version, 0, 255, "a version byte is from 0 to 255")
    if not isinstance(hrp, str):
        raise TypeError(f"the human-readable part is a str, not {type(hrp).__name__}")
    hrp.encode()


def decode_address(text: str, p2pkh_version: int, p2sh_version: int, hrp: str, /) -> bytes | None:
    """The scriptPubKey of a valid address of a network with these parameters, or None: not decided here.

    The compiled twin decides most valid ones. It never decides what address.py refuses, nor otherwise than it would.
    """
    check_network(p2pkh_version, p2sh_version, hrp)
    return None
