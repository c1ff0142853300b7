"""A server for Electrum wallets, with a client that watches one script, and sessions with it. No assertions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from spvfilter.electrum import ElectrumLimits, ElectrumServer
from spvfilter.electrum.histories import script_hash_of
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.scripts import p2wpkh
from spvfilter.testing import RegtestNode
from spvfilter.watch.watchlist import WatchList
from support.blocks.locks import key
from support.peers.electrumclient import ElectrumClient

LOCK = p2wpkh(key(33))
SCRIPT = LOCK.script_pubkey
KNOWN = script_hash_of(SCRIPT)
VERSION = ("server.version", "test", "1.4.2")


def numbered(index: int) -> bytes:
    """The script of an index of a keychain."""
    return bytes.fromhex("0014") + index.to_bytes(20, "big")


@asynccontextmanager
async def served(
    node: RegtestNode, limits: ElectrumLimits | None = None, *, keychain: bool = False, **options: Any
) -> AsyncIterator[tuple[LightClient, ElectrumServer]]:
    watch = WatchList(REGTEST)
    watch.add_script(SCRIPT)
    if keychain:
        watch.add_keychain("till", numbered, lookahead=20)
    options = {"mode": "compact", **options}
    async with LightClient(watch, peers=[node.address], **options) as client:
        await client.wait_synced()
        async with ElectrumServer(client, port=0, limits=limits) as server:
            yield client, server


@asynccontextmanager
async def connected(server: ElectrumServer, version: str = VERSION[2]) -> AsyncIterator[ElectrumClient]:
    assert server.port is not None
    async with ElectrumClient(server.port) as client:
        await client.ask(*VERSION[:2], version)
        yield client
