"""Blocks without framing: they do not name their network, but a header may contradict the assumed network."""

from __future__ import annotations

from spvfilter.chain.difficulty import target
from spvfilter.errors import FormatError
from spvfilter.hashes import sha256d
from spvfilter.network import NETWORKS, Network
from spvfilter.protocol import HEADER_SIZE


def contradiction(raw: bytes, network: Network) -> str | None:
    """The reason why a raw block is not of a network; None if nothing contradicts it. The first 80 bytes suffice."""
    owner = next((each for each in NETWORKS if raw[:4] == each.magic), None)
    if owner is not None:  # no block has a magic as its version
        return f"a record of a blk*.dat of {owner}, with its magic and length, where a block alone is expected"
    if len(raw) < HEADER_SIZE:
        return None
    known = {each.genesis_hash: each for each in NETWORKS}
    for digest, what in (
        (sha256d(raw[:HEADER_SIZE]), "the genesis block"),
        (raw[4:36], "the block after the genesis block"),
    ):
        if digest != network.genesis_hash and digest in known:
            return f"{what} of {known[digest]}, not of {network}"
    bits = int.from_bytes(raw[72:76], "little")
    try:
        is_easy = target(bits) > network.pow_limit
    except FormatError:
        return None
    return f"its bits, {bits:08x}, are easier than {network} allows: a block of another network?" if is_easy else None
