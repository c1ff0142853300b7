"""Bad responses of a node: each one is requested again, and after three of them the call fails with its cause."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from spvfilter.errors import NodeAnswerError, NodeBusyError, NodeError, NodeUnreachableError
from spvfilter.rpc import FullNode, RpcLimits
from spvfilter.rpc.api import MOST_BLOCKS
from support.blocks.build import TxIn, TxOut, block_hash, tx, txid
from support.client.pauses import Pauses
from support.peers.corenode import (
    BINARY,
    JSON,
    WAYS,
    CoreNode,
    about,
    merkle_damaged,
    opened,
    response,
    result,
    rpc_response,
)

pytestmark = pytest.mark.usefixtures("nothing_is_left")

TXS = [tx([TxIn(bytes(32), 0)], [TxOut(value, b"\x51")]) for value in (1, 2)]


async def mempool(node: FullNode) -> list[bytes]:
    return [raw async for raw in node.mempool_txs()]


# Each row is a call, and a word of the request that is answered badly
CALLS: Mapping[str, tuple[Callable[[CoreNode, FullNode], Any], Mapping[str, str]]] = {
    "block": (lambda core, node: node.block(core.hashes[105]), {"rest": "/rest/block/", "rpc": '"getblock"'}),
    "headers": (lambda core, node: node.listing(10), {"rest": "/rest/headers/", "rpc": '"getblockheader"'}),
    "info": (lambda core, node: node.info(), {"rest": "chaininfo", "rpc": "getblockchaininfo"}),
    "mempool": (lambda core, node: mempool(node), {"rest": "contents.json", "rpc": "getrawmempool"}),
    "tx": (lambda core, node: mempool(node), {"rest": "/rest/tx/", "rpc": "getrawtransaction"}),
}


@dataclass(frozen=True)
class Bad:
    """A bad response to one of the CALLS by these interfaces, and the cause that its error must name."""

    asked: str
    cause: str
    answer: Callable[[CoreNode, str], bytes]
    ways: Sequence[str] = ("rest", "rpc")


def served(way: str, found: object) -> bytes:
    """The response of an interface that contains these bytes, or this value as JSON."""
    if way == "rpc":
        return result(found.hex() if isinstance(found, bytes) else found)
    return response(200, found, BINARY) if isinstance(found, bytes) else response(200, json.dumps(found).encode(), JSON)


def http(cause: str, answer: Callable[[str], bytes]) -> Bad:
    """Bad HTTP, made from the content type that would be right."""
    return Bad("block", cause, lambda core, way: answer(BINARY if way == "rest" else JSON))


def rpc(cause: str, answer: bytes) -> Bad:
    """Bad JSON-RPC."""
    return Bad("block", cause, lambda core, way: answer, ways=["rpc"])


def rest(asked: str, cause: str, answer: bytes) -> Bad:
    """A response by REST of a kind that was not asked for."""
    return Bad(asked, cause, lambda core, way: answer, ways=["rest"])


def block(cause: str, wrong: Callable[[list[bytes]], bytes]) -> Bad:
    """Other bytes than those of block 105, made from all blocks."""
    return Bad("block", cause, lambda core, way: served(way, wrong(core.blocks)))


def headers(cause: str, wrong: Callable[[list[bytes]], bytes]) -> Bad:
    """Other headers than those from height 10 on, made from these headers."""
    return Bad("headers", cause, lambda core, way: served(way, wrong([raw[:80] for raw in core.blocks[10:]])), ["rest"])


def info(cause: str, **wrong: object) -> Bad:
    """A description of the chain with a wrong field."""
    return Bad("info", cause, lambda core, way: served(way, core.info() | wrong))


def listed(cause: str, found: object) -> Bad:
    """Something other than a list of the txids of the mempool."""
    return Bad("mempool", cause, lambda core, way: served(way, found))


def other_tx(wrong: bytes) -> Bad:
    """Other bytes than those of the transaction in the mempool."""
    return Bad("tx", "returned bytes that are not transaction", lambda core, way: served(way, wrong))


def too_long(framing: str) -> Bad:
    """More bytes than a response with the largest block."""

    def answer(kind: str) -> bytes:
        head, body = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{framing}\r\n", b"1" * 1_000_000
        piece = b"f4240\r\n" + body + b"\r\n" if "chunked" in framing else body
        return head.encode() + piece * (5 if kind == BINARY else 10)

    return http(r"the answer exceeds [\d,]+ bytes", answer)


def unproven(header: bytes) -> bytes:
    """A header whose hash misses its target."""
    changed, nonce = bytearray(header), 0
    while block_hash(bytes(changed))[31] < 0x80:
        changed[76:80] = nonce.to_bytes(4, "little")
        nonce += 1
    return bytes(changed)


NO_HTTP = "cut off or is not HTTP"
NOT_IT, DAMAGED = "the answer is not block", "is damaged"
WRONG_IDS = "expected 1 result with the ids"
NETWORK, HEIGHT, NO_TXIDS = "name the network", "the height of its chain", "is not a JSON array or object of txids"

BAD = {
    # HTTP
    "too long": too_long("Content-Length: 64000000\r\n"),
    "too long, in chunks": too_long("Transfer-Encoding: chunked\r\n"),
    "too long, until closed": too_long(""),
    "compressed": http(
        r"compressed \(gzip\)",
        lambda kind: response(200, gzip.compress(bytes(1_000_000)), kind, Content_Encoding="gzip"),
    ),
    "page": http(
        "'text/html'.*is this a Bitcoin node", lambda kind: response(200, b"<html>", "text/html; charset=utf-8")
    ),
    # blocks
    "next block": block(NOT_IT, lambda blocks: blocks[106]),
    "no block": block(NOT_IT, lambda blocks: b""),
    "block with a changed header": block(NOT_IT, lambda blocks: bytes(4) + blocks[105][4:]),
    "block with a changed transaction": block(f"{DAMAGED}: merkle", lambda blocks: merkle_damaged(blocks[105])),
    "block without its end": block(DAMAGED, lambda blocks: blocks[105][:-1]),
    "block with more bytes": block(DAMAGED, lambda blocks: blocks[105] + b"\0"),
    # JSON-RPC
    "half an object": rpc("malformed JSON", response(200, b"{", JSON)),
    "deep array": rpc("malformed JSON", response(200, b"[" * 100_000, JSON)),
    "long number": rpc("malformed JSON|result", response(200, b"9" * 10_000, JSON)),
    "null": rpc(WRONG_IDS, rpc_response(None)),
    "empty array": rpc(WRONG_IDS, rpc_response([])),
    "result with another id": rpc(WRONG_IDS, rpc_response({"result": 1, "error": None, "id": 77})),
    "result with the id False": rpc(WRONG_IDS, rpc_response({"result": 1, "error": None, "id": False})),
    "number in place of hex": rpc("expected at most 4,000,000 bytes in hex", result(5)),
    "letters in place of hex": rpc("not hex", result("zz")),
    "error": rpc(
        "RPC error -32601: Method not found",
        rpc_response({"result": None, "error": {"code": -32601, "message": "Method not found"}, "id": 0}),
    ),
    "error of the whole request": rpc(
        "RPC error -32700: Parse error",
        rpc_response({"result": None, "error": {"code": -32700, "message": "Parse error"}, "id": None}),
    ),
    "error that is text": rpc(
        "RPC error 0: no reason given", rpc_response({"result": None, "error": "an old one", "id": 0})
    ),
    # headers
    "81 bytes of headers": headers("81 bytes is not a whole number of 80-byte headers", lambda raws: raws[0] + b"\0"),
    "headers from another height": headers("the headers do not begin with block", lambda raws: raws[1]),
    "headers with a gap": headers("its header 11 is invalid", lambda raws: raws[0] + raws[2]),
    "header without work": headers("its header 11 is invalid", lambda raws: raws[0] + unproven(raws[1])),
    "too many headers": headers(r"exceeds [\d,]+ bytes", lambda raws: b"".join(raws) * 30),
    # state of the chain
    "height -1": info(HEIGHT, blocks=-1),
    "height above the highest": info(HEIGHT, blocks=MOST_BLOCKS),
    "height in quotes": info(HEIGHT, blocks="5"),
    "height True": info(HEIGHT, blocks=True),
    "no best block": info("in hex", bestblockhash=None),
    "short best block": info("a hash must be 32 bytes long", bestblockhash="00"),
    "best block not in hex": info("not hex", bestblockhash="zz" * 32),
    "no network": info(NETWORK, chain=None),
    "long name of a network": info(NETWORK, chain="x" * 100),
    "name of a network with an escape sequence": info(NETWORK, chain="\x1b[31m"),
    # mempool
    "number in place of the mempool": listed(NO_TXIDS, 5),
    "text in place of the mempool": listed(NO_TXIDS, "ab"),
    "null in place of the mempool": listed(NO_TXIDS, None),
    "mempool in half an object": rest("mempool", "malformed JSON", response(200, b"{", JSON)),
    "mempool in binary": rest("mempool", "expected application/json", response(200, b"[]", BINARY)),
    "txid not in hex": listed("not hex", ["xy"]),
    "short txid": listed("a hash must be 32 bytes long", ["00"]),
    "number in place of a txid": listed("in hex", [5]),
    "other transaction": other_tx(TXS[1]),
    "transaction without its end": other_tx(TXS[0][:-1]),
    "no transaction": other_tx(b""),
    "transaction as JSON": rest("tx", "expected application/octet-stream", response(200, TXS[0], JSON)),
}


@pytest.mark.parametrize(
    ("way", "bad"),
    [pytest.param(way, bad, id=f"{name}-{way}") for name, bad in BAD.items() for way in bad.ways],
)
async def test_call_fails_after_three_bad_responses(core: CoreNode, way: str, bad: Bad) -> None:
    call, words = CALLS[bad.asked]
    core.mempool = {txid(TXS[0]): TXS[0]}
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        core.faults.append(about(words[way], bad.answer(core, way), times=3))
        with pytest.raises(NodeAnswerError, match=bad.cause):
            await call(core, node)
    assert pauses.slept == [0.5, 1]


@WAYS
@pytest.mark.parametrize("asked", CALLS)
async def test_call_succeeds_after_two_bad_responses(core: CoreNode, way: str, asked: str) -> None:
    call, words = CALLS[asked]
    core.mempool = {txid(TXS[0]): TXS[0]}
    pauses = Pauses()
    async with opened(core, way, pauses) as node:
        right = await call(core, node)
        core.faults.append(about(words[way], response(200, b"<html>", "text/html"), times=2))
        assert await call(core, node) == right
    assert pauses.slept == [0.5, 1]


# Each row is what happens in place of a response, and the error if it happens each time
TROUBLES: Mapping[str, tuple[Callable[[bytes], bytes], type[NodeError], str]] = {
    "work queue is full": (
        lambda right: response(503, b"Work queue depth exceeded"),
        NodeBusyError,
        r"busy or starting \(503\): Work queue depth exceeded",
    ),
    "connection is closed": (lambda right: b"", NodeUnreachableError, NO_HTTP),
    "response is cut off": (lambda right: right[:-10], NodeUnreachableError, NO_HTTP),
    "another protocol": (lambda right: b"SSH-2.0-OpenSSH_9.6\r\n\r\n", NodeUnreachableError, NO_HTTP),
}


@WAYS
@pytest.mark.parametrize("trouble", TROUBLES)
async def test_request_without_a_response_is_repeated_until_patience_ends(
    core: CoreNode, way: str, trouble: str
) -> None:
    answer, error, cause = TROUBLES[trouble]
    pauses = Pauses()
    async with opened(core, way, pauses, patience_s=4) as node:
        core.faults.append(about("", lambda request: answer(core.answer(request)), times=3))
        assert await node.block(core.hashes[2]) == core.blocks[2]
        assert pauses.slept == [0.5, 1, 2]
        assert all(re.search(cause, sentence) for sentence in pauses.told)
        core.faults.append(about("", lambda request: answer(core.answer(request))))
        with pytest.raises(error, match=cause):
            await node.block(core.hashes[2])
    assert pauses.slept == [0.5, 1, 2] * 2  # another 4 s would be too long


async def nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def one_byte_after_another() -> AsyncIterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    for _ in range(300):
        await asyncio.sleep(0.01)
        yield b"1"


@WAYS
@pytest.mark.parametrize("endless", [nothing, one_byte_after_another])
async def test_endless_response_has_a_time_limit(
    core: CoreNode, way: str, endless: Callable[[], AsyncIterator[bytes]]
) -> None:
    word = CALLS["block"][1][way]
    async with opened(core, way, Pauses(), RpcLimits(answer_s=0.2), patience_s=0) as node:
        core.faults.append(lambda request: endless() if request.about(word) else None)
        with pytest.raises(NodeUnreachableError, match=r"no answer within 0.2 s"):
            await node.block(core.hashes[3])


@WAYS
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed(core: CoreNode, way: str, status: int) -> None:
    async with CoreNode(core.blocks).serving() as thief, opened(core, way) as node:
        core.faults.append(about(CALLS["block"][1][way], response(status, b"", Location=f"{thief.url}/")))
        with pytest.raises(NodeAnswerError, match="redirects to another URL, which is not followed"):
            await node.block(core.hashes[3])
        assert thief.requests == []
