"""BlindBitOracle: the tweaks of blocks from a server, and answers that are refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from spvfilter.errors import (
    NodeAnswerError,
    NodeBusyError,
    NodeError,
    NodeNetworkError,
    NodeRefusedError,
    NodeUnreachableError,
)
from spvfilter.network import MAINNET, REGTEST
from spvfilter.rpc import BlindBitOracle, RpcLimits
from support.peers.corenode import JSON, response
from support.peers.tweakserver import HttpTweakServer

BLOCK, TWEAKS = bytes(range(32)), [b"\2" + bytes([n]) * 32 for n in range(1, 4)]


@pytest.fixture
async def server() -> AsyncIterator[HttpTweakServer]:
    async with HttpTweakServer(lambda height: (BLOCK, TWEAKS[: height % 4]), 100).serving() as made:
        yield made


async def test_tweaks_and_the_block_hash_are_read(server: HttpTweakServer) -> None:
    async with BlindBitOracle.open(server.url, REGTEST) as source:
        assert await source.tweaks(3) == (BLOCK, TWEAKS)
        assert await source.tweaks(4) == (BLOCK, [])
        assert str(source.endpoint) == server.url
    assert server.asked == ["/info", "/tweaks/3", "/tweaks/4"]


@pytest.mark.parametrize(
    ("info", "error"),
    [
        ({"network": "regtest", "tweaks_only": True}, NodeRefusedError),
        ({"network": "regtest", "tweaks_full_basic": False}, NodeRefusedError),
        ({"network": "regtest", "tweaks_full_basic": "true"}, NodeRefusedError),
        ({"network": "regtest", "tweaks_cut_through_with_dust_filter": True}, NodeRefusedError),
        ({"network": "main", "tweaks_full_basic": True}, NodeNetworkError),
        ({"tweaks_full_basic": True}, NodeNetworkError),
        ([], NodeAnswerError),
        (None, NodeAnswerError),
    ],
)
async def test_a_server_without_a_full_index_is_refused(
    server: HttpTweakServer, info: object, error: type[NodeError]
) -> None:
    server.info = info  # type: ignore[assignment]
    with pytest.raises(error, match=server.url):
        async with BlindBitOracle.open(server.url, REGTEST):
            pass


@pytest.mark.parametrize("flag", ["tweaks_full_basic", "tweaks_full_with_dust_filter"])
async def test_each_full_index_is_taken(server: HttpTweakServer, flag: str) -> None:
    server.info = {"network": "main", flag: True}
    async with BlindBitOracle.open(server.url, MAINNET) as source:
        assert (await source.tweaks(1))[0] == BLOCK


PLACE = {"block_hash": BLOCK[::-1].hex(), "block_height": 3}
TWEAK = TWEAKS[0].hex()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        json.dumps([TWEAK]).encode(),  # version 1
        json.dumps({"index": [TWEAK]}).encode(),
        json.dumps({"block_identifier": PLACE}).encode(),
        json.dumps({"block_identifier": PLACE, "index": None}).encode(),
        json.dumps({"block_identifier": PLACE | {"block_height": 4}, "index": []}).encode(),
        json.dumps({"block_identifier": PLACE | {"block_hash": "00"}, "index": []}).encode(),
        json.dumps({"block_identifier": PLACE | {"block_hash": None}, "index": []}).encode(),
        json.dumps({"block_identifier": PLACE | {"block_hash": "zz" * 32}, "index": []}).encode(),
        json.dumps({"block_identifier": PLACE, "index": [TWEAK[:-2]]}).encode(),
        json.dumps({"block_identifier": PLACE, "index": [TWEAK[:-1] + " "]}).encode(),
        json.dumps({"block_identifier": PLACE, "index": [7]}).encode(),
        json.dumps({"block_identifier": PLACE, "index": [TWEAK] * 20_000}).encode(),
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
async def test_a_malformed_answer_is_an_error(server: HttpTweakServer, body: bytes) -> None:
    server.faults["/tweaks/3"] = response(200, body, JSON, Connection="close")
    async with BlindBitOracle.open(server.url, REGTEST) as source:
        with pytest.raises(NodeAnswerError, match=server.url):
            await source.tweaks(3)
        assert await source.tweaks(2) == (BLOCK, TWEAKS[:2])


async def test_a_block_above_the_tip_is_an_error(server: HttpTweakServer) -> None:
    async with BlindBitOracle.open(server.url, REGTEST) as source:
        with pytest.raises(NodeAnswerError, match="could not fetch block hash"):
            await source.tweaks(101)
        server.faults["/tweaks/5"] = response(503, b"later", Connection="close")
        with pytest.raises(NodeBusyError):
            await source.tweaks(5)


async def test_a_stalling_server_is_given_up(server: HttpTweakServer) -> None:
    async with BlindBitOracle.open(server.url, REGTEST, limits=RpcLimits(answer_s=0.05)) as source:
        server.faults["/tweaks/5"] = None
        with pytest.raises(NodeUnreachableError, match=r"no answer within 0\.05 s"):
            await source.tweaks(5)
