"""Bitcoin Core's JSON-RPC, version 1 (doc/JSON-RPC-interface.md, httprpc.cpp).

Requests need a password. The size of a batch is limited, and the node sends blocks as hex.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from http import HTTPStatus

from spvfilter.errors import NodeAnswerError, NodeBusyError, NodePrunedError, NodeRefusedError, NodeRpcError, counted
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.protocol import HEADER_SIZE, MAX_SCRIPT_SIZE
from spvfilter.rpc.api import (
    BLOCK_ANSWER_SIZE,
    DETAILS_ANSWER_SIZE,
    MEMPOOL_ANSWER_SIZE,
    SMALL_ANSWER_SIZE,
    ChainInfo,
    lacking,
    parsed_hash,
    parsed_hex,
    parsed_info,
    parsed_txids,
)
from spvfilter.rpc.credentials import Credentials, basic, redacted
from spvfilter.rpc.http import HttpClient, Reply, check_status, shown
from spvfilter.rpc.prevouts import parsed_output

# Error codes (Core rpc/protocol.h)
_IN_WARMUP = -28
_INVALID_PARAMETER = -8  # the answer for a height above the tip
_NOT_THERE = (-1, -5)  # the block is pruned or not downloaded; it is unknown

_MOST_COINS = 500  # calls of one batch (our choice)

Call = tuple[str, tuple[object, ...]]


class JsonRpc:
    """Requests to a node over JSON-RPC.

    After status 401, the credentials are read once more, because the cookie changes each time the node starts.
    """

    headers_at_once = 500  # most calls in one batch (our choice); Core processes them one by one
    tells_spent = False

    def __init__(self, http: HttpClient, credentials: Credentials) -> None:
        self._http = http
        self._endpoint = http.endpoint
        self._credentials = credentials
        self._secret: str | None = None

    async def info(self) -> ChainInfo:
        return parsed_info(await self._one("getblockchaininfo"), self._endpoint)

    async def hash_at(self, height: int) -> bytes | None:
        try:
            return parsed_hash(await self._one("getblockhash", height), self._endpoint)
        except NodeRpcError as error:
            if error.code == _INVALID_PARAMETER:
                return None
            raise

    async def headers(self, first: bytes, height: int, count: int) -> bytes:
        numbers = range(height, height + min(count, self.headers_at_once))
        hashes = await self._batch([("getblockhash", (number,)) for number in numbers])
        names = [each for each in hashes if not isinstance(each, NodeRpcError)]
        if any(error.code != _INVALID_PARAMETER for error in hashes if isinstance(error, NodeRpcError)):
            raise next(error for error in hashes if isinstance(error, NodeRpcError))
        if not names or parsed_hash(names[0], self._endpoint) != first:
            return b""
        found = await self._batch(
            [("getblockheader", (hash_to_hex(parsed_hash(name, self._endpoint)), False)) for name in names]
        )
        headers = bytearray()
        for each in found:
            if isinstance(each, NodeRpcError):
                raise each
            header = parsed_hex(each, HEADER_SIZE, self._endpoint)
            if len(header) != HEADER_SIZE:
                raise NodeAnswerError(f"{self._endpoint}: a header must be {HEADER_SIZE} bytes long, not {len(header)}")
            headers += header
        return bytes(headers)

    async def block(self, digest: bytes) -> bytes:
        try:
            found = await self._one("getblock", hash_to_hex(digest), 0, most=2 * BLOCK_ANSWER_SIZE + SMALL_ANSWER_SIZE)
        except NodeRpcError as error:
            if error.code in _NOT_THERE:
                raise NodePrunedError(lacking(digest, self._endpoint, str(error))) from None
            raise
        return await asyncio.to_thread(parsed_hex, found, BLOCK_ANSWER_SIZE, self._endpoint)

    async def spent(self, digest: bytes) -> bytes | None:
        """Return None: only REST serves spent outputs in a compact form."""
        return None

    async def details(self, digest: bytes) -> object:
        try:
            return await self._one("getblock", hash_to_hex(digest), 3, most=DETAILS_ANSWER_SIZE)
        except NodeRpcError as error:
            if error.code in _NOT_THERE:
                raise NodePrunedError(lacking(digest, self._endpoint, str(error))) from None
            raise

    async def coins(self, outpoints: Sequence[bytes]) -> list[TxOut | None]:
        points = [OutPoint.parse(each) for each in outpoints]
        calls: list[Call] = [("gettxout", (hash_to_hex(each.txid), each.index, False)) for each in points]
        coins: list[TxOut | None] = []
        for at in range(0, len(calls), _MOST_COINS):
            part = calls[at : at + _MOST_COINS]
            for each in await self._batch(part, len(part) * 4 * MAX_SCRIPT_SIZE + SMALL_ANSWER_SIZE):
                if isinstance(each, NodeRpcError):
                    raise each
                coins.append(parsed_output(each, self._endpoint))
        return coins

    async def mempool(self) -> list[bytes]:
        found = await self._one("getrawmempool", False, most=MEMPOOL_ANSWER_SIZE)
        return await asyncio.to_thread(parsed_txids, found, self._endpoint)

    async def transactions(self, txids: Sequence[bytes]) -> list[bytes | None]:
        calls: list[Call] = [("getrawtransaction", (hash_to_hex(txid), False)) for txid in txids]
        found = await self._batch(calls, 2 * len(calls) * BLOCK_ANSWER_SIZE + SMALL_ANSWER_SIZE)
        for each in found:
            if isinstance(each, NodeRpcError) and each.code not in _NOT_THERE:
                raise each
        return [
            None if isinstance(each, NodeRpcError) else parsed_hex(each, BLOCK_ANSWER_SIZE, self._endpoint)
            for each in found
        ]

    async def _one(self, method: str, *params: object, most: int = SMALL_ANSWER_SIZE) -> object:
        reply = await self._post(_request(0, (method, params)), most)
        (found,) = await asyncio.to_thread(self._results, reply, 1)
        if isinstance(found, NodeRpcError):
            raise found
        return found

    async def _batch(self, calls: Sequence[Call], most: int = SMALL_ANSWER_SIZE) -> list[object]:
        """Make several calls, and return their results in the same order.

        The result of a call that failed is a NodeRpcError.
        """
        reply = await self._post([_request(number, call) for number, call in enumerate(calls)], most)
        return await asyncio.to_thread(self._results, reply, len(calls))

    async def _post(self, request: object, most: int) -> Reply:
        body = json.dumps(request, separators=(",", ":")).encode()
        if self._secret is None:
            self._secret = await asyncio.to_thread(self._credentials.secret)
        secret = self._secret
        reply = await self._http.post("/", most, body, {"Authorization": basic(secret)})
        if reply.status == HTTPStatus.UNAUTHORIZED:
            self._secret = None
            if (again := await asyncio.to_thread(self._credentials.secret)) != secret:
                self._secret = again
                reply = await self._http.post("/", most, body, {"Authorization": basic(again)})
        return reply

    def _results(self, reply: Reply, count: int) -> list[object]:
        check_status(reply, self._endpoint, self._secret)
        if reply.content_type != "application/json":
            if reply.status == HTTPStatus.NOT_FOUND:
                raise NodeRefusedError(f"{self._endpoint}: no JSON-RPC there (404): is this a Bitcoin node's RPC port?")
            raise NodeAnswerError(
                f"{self._endpoint}: expected JSON, got {reply.content_type[:60]!r} with status {reply.status}: is this"
                " a Bitcoin node?"
            )
        try:
            found = json.loads(reply.body)
        except (ValueError, RecursionError):
            raise NodeAnswerError(f"{self._endpoint}: malformed JSON with status {reply.status}") from None
        answers = found if isinstance(found, list) else [found] * (count == 1 or isinstance(found, dict))
        if (
            len(answers) == 1
            and isinstance(answers[0], dict)
            and answers[0].get("error") is not None
            and answers[0].get("id") is None
        ):
            raise self._error(answers[0]["error"])  # the error is about the whole request
        by_id = {
            answer.get("id"): answer for answer in answers if isinstance(answer, dict) and type(answer.get("id")) is int
        }
        if len(answers) != count or by_id.keys() != set(range(count)):
            raise NodeAnswerError(
                f"{self._endpoint}: expected {counted(count, 'result')} with the ids of the requests, got"
                f" {len(answers)} with missing or wrong ids"
            )
        results: list[object] = []
        for number in range(count):
            error = by_id[number].get("error")
            results.append(by_id[number].get("result") if error is None else self._error(error))
        return results

    def _error(self, error: object) -> NodeRpcError:
        """Return the NodeRpcError for an error object in an answer.

        Raises NodeBusyError if the object says that the node is starting.
        """
        code = error.get("code") if isinstance(error, dict) else None
        told = error.get("message") if isinstance(error, dict) else None
        message = redacted(shown(told), self._secret) if isinstance(told, str) else "no reason given"
        if code == _IN_WARMUP:
            raise NodeBusyError(f"{self._endpoint}: starting: {message}")
        number = code if type(code) is int else 0
        return NodeRpcError(f"{self._endpoint}: RPC error {number}: {message}", code=number)


def _request(number: int, call: Call) -> dict[str, object]:
    method, params = call
    return {"jsonrpc": "1.0", "id": number, "method": method, "params": list(params)}
