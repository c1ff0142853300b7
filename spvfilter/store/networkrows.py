"""The network of a wallet's database: its genesis block, its magic and, for a signet, its challenge."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Mapping
from dataclasses import replace

from spvfilter.errors import StoreCorruptError, StoreForeignError
from spvfilter.network import NETWORKS, Network
from spvfilter.protocol import MAX_SCRIPT_SIZE

_KEYS = ("network", "magic", "signet_challenge")  # keys of the named values in the "meta" table


def network_rows(network: Network) -> dict[str, bytes]:
    """Return the named values that identify a network. All signets share a genesis block, but their magics differ."""
    rows = {"network": network.genesis_hash, "magic": network.magic}
    return rows if network.signet_challenge is None else {**rows, "signet_challenge": network.signet_challenge}


def read_network(db: sqlite3.Connection, path: pathlib.Path) -> Network:
    """Return the network of a database. Raises StoreCorruptError if its named values do not identify one."""
    marks = ", ".join("?" for _ in _KEYS)
    found = network_of(dict(db.execute(f"SELECT key, value FROM meta WHERE key IN ({marks})", _KEYS)))
    if found is None:
        raise StoreCorruptError(f"{path}: the database belongs to an unknown network")
    return found


def network_of(meta: Mapping[str, bytes]) -> Network | None:
    """Return the network that these named values identify, or None.

    A database without a magic predates custom signets, so it belongs to the network of its genesis block.
    """
    known = next((each for each in NETWORKS if each.genesis_hash == meta.get("network")), None)
    if known is None or "magic" not in meta:
        return known
    magic, challenge = meta["magic"], meta.get("signet_challenge")
    if not isinstance(magic, bytes) or len(magic) != 4:
        return None
    if known.signet_challenge is None or challenge is None:
        return known if magic == known.magic else replace(known, magic=magic)
    if not isinstance(challenge, bytes) or not 0 < len(challenge) <= MAX_SCRIPT_SIZE:
        return None
    custom = Network.signet(challenge)
    return custom if magic == custom.magic else replace(custom, magic=magic)


def check_network(found: Network | None, network: Network, path: pathlib.Path) -> None:
    """Raise StoreForeignError unless a database of the network `found` may be opened for `network`."""
    if found is None:
        raise StoreForeignError(f"{path}: this wallet belongs to an unknown network, not to {network}")
    if network_rows(found) != network_rows(network):
        magics = found.name == network.name
        owner, expected = (f"{each} (magic {each.magic.hex()})" if magics else each for each in (found, network))
        raise StoreForeignError(f"{path}: this wallet belongs to {owner}, not to {expected}")
