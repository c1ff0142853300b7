"""BlindBitOracle: a tweak server, BlindBit Oracle version 2, over HTTP (see its "Server HTTP API Specification").

    GET /info             {"network": "main", "height": 900000, "tweaks_full_basic": true, …}
    GET /tweaks/HEIGHT    {"block_identifier": {"block_hash": HEX, "block_height": HEIGHT}, "index": [HEX, …]}

Block hashes are in display order, and tweaks are compressed keys. Answers of version 1, which are lists of tweaks
without a block hash, are refused. The tweaks cover all transactions if a field `tweaks_full_…` is true.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Any  # JSON

from spvfilter._public import public
from spvfilter.errors import NodeAnswerError, NodeNetworkError, NodeRefusedError
from spvfilter.network import MAINNET, Network
from spvfilter.protocol import HASH_SIZE
from spvfilter.rpc.endpoint import Endpoint
from spvfilter.rpc.http import HttpClient, RpcLimits, check_status

_NETWORKS = {"mainnet": "main", "testnet3": "testnet", "signet": "signet", "regtest": "regtest"}
_FULL = ("tweaks_full_basic", "tweaks_full_with_dust_filter")
_INFO_SIZE = 10_000  # largest answer in bytes (our choice)
_MOST_TWEAKS = 9_009  # of one block, see spvfilter.silent.tweaks
_ANSWER_SIZE = 80 * _MOST_TWEAKS
"""Largest answer with tweaks, in bytes: each tweak has 66 digits, two quotes, a comma and a few blanks."""
_TWEAK_SIZE = 33


@public
class BlindBitOracle:
    """A BlindBit Oracle server, which supplies the tweaks of blocks: a `TweakSource` for silent payments.

    It learns your IP address and which blocks you ask for, and it can hide payments. Connect to one with
    `BlindBitOracle.open`.
    """

    def __init__(self, endpoint: Endpoint, limits: RpcLimits) -> None:
        self.endpoint: Endpoint = endpoint
        """The server's address, as messages show it."""
        self._http = HttpClient(endpoint, limits)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, network: Network = MAINNET, *, limits: RpcLimits | None = None
    ) -> AsyncIterator[BlindBitOracle]:
        """Connect to a server, and check that its network is the expected one and its index is complete.

        Args:
            url: http://HOST:PORT or https://HOST:PORT.
            network: The server's expected network.
            limits: Number of connections, and timeouts.

        Raises:
            ParameterError: The URL is malformed, or the `rpc` extra is not installed.
            NodeError: The server cannot be reached, is on a different network, or its index does not cover all
                transactions.
        """
        server = cls(Endpoint.parse(url), limits or RpcLimits())
        async with aclosing(server._http):
            server._check(await server._object("/info", _INFO_SIZE), network)
            yield server

    def _check(self, info: Mapping[str, Any], network: Network) -> None:
        if info.get("network") != _NETWORKS.get(network.name):
            raise NodeNetworkError(f"{self.endpoint}: the tweak server is not on {network}")
        if not any(info.get(name) is True for name in _FULL):
            raise NodeRefusedError(
                f"{self.endpoint}: the tweak server does not say that its index is complete, so payments could be"
                " missed: use a different server"
            )

    async def tweaks(self, height: int) -> tuple[bytes, list[bytes]]:
        """Request the tweaks of the block at a height; see `TweakSource`.

        Returns:
            Hash of the block in wire order, and the tweaks: 33 bytes for each transaction.

        Raises:
            NodeError: The server cannot be reached, lacks the block, or does not return a valid answer.
        """
        found = await self._object(f"/tweaks/{height}", _ANSWER_SIZE)
        place, index = found.get("block_identifier"), found.get("index")
        if not isinstance(place, dict) or place.get("block_height") != height or not isinstance(index, list):
            raise self._malformed(f"without block {height} and its tweaks: version 2 of BlindBit Oracle is needed")
        return self._bytes(place.get("block_hash"), HASH_SIZE)[::-1], [self._bytes(each, _TWEAK_SIZE) for each in index]

    def _bytes(self, text: object, size: int) -> bytes:
        """Decode hex digits. Raises NodeAnswerError."""
        try:
            raw = bytes.fromhex(text) if isinstance(text, str) and len(text) == 2 * size else b""
        except ValueError:
            raw = b""
        if len(raw) != size:
            raise self._malformed(f"with text that is not {2 * size} hex digits")
        return raw

    async def _object(self, path: str, most: int) -> dict[str, Any]:
        """Request a JSON object. Raises NodeError."""
        reply = await self._http.get(path, most)
        check_status(reply, self.endpoint)
        if reply.status != HTTPStatus.OK:
            raise NodeAnswerError(f"{self.endpoint}: {path}: status {reply.status}: {reply.words or 'no reason'}")
        try:
            found = json.loads(reply.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self._malformed("that is not a JSON object: version 2 of BlindBit Oracle is needed")
        return found

    def _malformed(self, how: str) -> NodeAnswerError:
        return NodeAnswerError(f"{self.endpoint}: the tweak server returned an answer {how}")
