"""Checks of raw bytes that should be a block: are they a block of another network, or a transaction?"""

from __future__ import annotations

from spvfilter.chain.difficulty import target
from spvfilter.errors import FormatError
from spvfilter.hashes import sha256d
from spvfilter.kernel import spent_outpoints, walk_block
from spvfilter.network import NETWORKS, SIGNET, Network
from spvfilter.protocol import HEADER_SIZE

A_TRANSACTION = "a transaction, not a block: `spvfilter match` and Matcher.match_txs take transactions"
"""The message that says why a transaction is not scanned."""


def is_tx(raw: bytes) -> bool:
    """Return True if the bytes are exactly one transaction."""
    try:
        return bool(spent_outpoints(raw))
    except FormatError:
        return False


def is_block(raw: bytes) -> bool:
    """Return True if the bytes are exactly one block."""
    try:
        return all(walk_block(raw))
    except FormatError:
        return False


def is_mined(header: bytes) -> bool:
    """Return True if the bytes begin with a header whose hash meets the target of its bits. No transaction does."""
    try:
        most = target(int.from_bytes(header[72:76], "little"))
    except FormatError:
        return False
    return int.from_bytes(sha256d(header[:HEADER_SIZE]), "little") <= most


def begins_with_tx(data: bytes) -> bool:
    """Return True if the bytes are one transaction, or if the first line is a transaction in hex."""
    try:
        return is_tx(data) or is_tx(bytes.fromhex(data.strip().partition(b"\n")[0].decode("ascii")))
    except ValueError:
        return False


def other_magic(head: bytes) -> str | None:
    """Describe a record with a known network's genesis block after an unknown magic, or return None for other bytes."""
    digest = sha256d(head[8 : 8 + HEADER_SIZE])
    known = next((each for each in NETWORKS if each.genesis_hash == digest), None)
    if known is None:
        return None
    custom = f": for a custom {known}, pass its challenge with --signet-challenge" if known == SIGNET else ""
    return f"the genesis block of {known} has the magic {head[:4].hex()} here instead of {known.magic.hex()}{custom}"


def contradiction(raw: bytes, network: Network) -> str | None:
    """Say why a raw block does not belong to a network.

    Return None if nothing contradicts it. The first 80 bytes suffice.
    """
    owner = Network.of_magic(raw[:4], network)
    if owner is not None:  # no block has a magic as its version
        return f"expected only a block, but this is a record of a {owner} blk*.dat, with its magic and length"
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
    return (
        f"its bits, {bits:08x}, are easier than {network} allows: does the block belong to another network?"
        if is_easy
        else None
    )
