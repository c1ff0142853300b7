"""A node's mempool by REST and JSON-RPC: every transaction that stays in it is given once."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from spvfilter.errors import NodeRefusedError
from support.blocks.build import TxIn, TxOut, tx, txid
from support.peers.corenode import WAYS, CoreNode, about, opened, response

pytestmark = pytest.mark.usefixtures("nothing_is_left")
TXS = [tx([TxIn(bytes([number]) * 32, 0)], [TxOut(number, b"\x51")]) for number in range(1, 51)]


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


async def test_node_without_rest_lists_no_mempool(core: CoreNode) -> None:
    async with opened(core, "rest") as node:
        core.faults.append(about("contents.json", response(404)))
        with pytest.raises(NodeRefusedError, match="REST is off"):
            [raw async for raw in node.mempool_txs()]
