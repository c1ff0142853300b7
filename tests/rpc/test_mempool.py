"""A node's mempool by REST and JSON-RPC: every transaction that stays in it, and wrong answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing

import pytest

from spvfilter.errors import NodeAnswerError, NodeRefusedError
from spvfilter.network import REGTEST
from spvfilter.rpc import FullNode, Password
from support.blocks.build import TxIn, TxOut, tx, txid
from support.client.pauses import Pauses
from support.peers.corenode import BINARY, JSON, PASSWORD, USER, CoreNode, Request, response

pytestmark = pytest.mark.usefixtures("nothing_is_left")
WAYS = pytest.mark.parametrize("way", ["rest", "rpc"])
TXS = [tx([TxIn(bytes([number]) * 32, 0)], [TxOut(number, b"\x51")]) for number in range(1, 51)]


def opened(core: CoreNode, way: str) -> AbstractAsyncContextManager[FullNode]:
    core.rest = way == "rest"
    credentials = Password(USER, PASSWORD) if way == "rpc" else None
    return FullNode.open(core.url, REGTEST, credentials=credentials, patience=Pauses().patience())


def answering(word: str, raw: bytes) -> Callable[[Request], bytes | None]:
    return lambda request: raw if request.about(word) else None


@WAYS
@pytest.mark.parametrize("old", [False, True])
async def test_every_transaction_of_the_mempool_is_given(core: CoreNode, way: str, old: bool) -> None:
    core.mempool = {txid(raw): raw for raw in TXS}
    core.gone = {bytes([7]) * 32}
    core.old_mempool = old
    async with opened(core, way) as node:
        assert [raw async for raw in node.mempool_txs()] == TXS
        core.mempool, core.gone = {}, set()
        assert [raw async for raw in node.mempool_txs()] == []


@WAYS
async def test_mempool_that_is_listed_again_gives_new_transactions(core: CoreNode, way: str) -> None:
    core.mempool = {txid(raw): raw for raw in TXS[:2]}
    async with opened(core, way) as node, aclosing(node.mempool_txs(poll_s=5)) as txs:
        assert [await anext(txs) for _ in range(2)] == TXS[:2]
        core.mempool = {txid(raw): raw for raw in TXS[1:3]}
        assert await anext(txs) == TXS[2]
        core.mempool = {txid(raw): raw for raw in (TXS[0], TXS[2])}
        assert await anext(txs) == TXS[0]  # it has come back


@WAYS
async def test_other_bytes_than_the_transaction_are_refused(core: CoreNode, way: str) -> None:
    for wrong in (TXS[1], TXS[0][:-1], b""):
        core.mempool = {txid(TXS[0]): wrong}
        async with opened(core, way) as node:
            with pytest.raises(NodeAnswerError, match="returned bytes that are not transaction"):
                [raw async for raw in node.mempool_txs()]


@pytest.mark.parametrize("listed", [5, "ab", None, ["xy"], ["00"], [5]])
@WAYS
async def test_lists_that_are_no_txids_are_refused(core: CoreNode, way: str, listed: object) -> None:
    if way == "rest":
        core.faults = [answering("contents.json", response(200, json.dumps(listed).encode(), JSON))]
    else:
        answer = json.dumps({"result": listed, "error": None, "id": 0}).encode()
        core.faults = [answering("getrawmempool", response(200, answer, JSON))]
    async with opened(core, way) as node:
        with pytest.raises(NodeAnswerError):
            [raw async for raw in node.mempool_txs()]


async def test_answers_of_a_wrong_kind_are_refused(core: CoreNode) -> None:
    core.mempool = {txid(TXS[0]): TXS[0]}
    async with opened(core, "rest") as node:
        for word, raw, error in (
            ("contents.json", response(404), NodeRefusedError),
            ("contents.json", response(200, b"{", JSON), NodeAnswerError),
            ("contents.json", response(200, b"[]", BINARY), NodeAnswerError),
            ("/rest/tx/", response(200, TXS[0], JSON), NodeAnswerError),
        ):
            core.faults = [answering(word, raw)]
            with pytest.raises(error):
                [raw async for raw in node.mempool_txs()]
