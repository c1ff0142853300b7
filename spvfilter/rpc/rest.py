"""Bitcoin Core's REST interface (doc/REST-interface.md, rest.cpp).

Requests need no password, and answers are binary. The node must run with rest=1.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from http import HTTPStatus

from spvfilter.errors import NodeAnswerError, NodePrunedError, NodeRefusedError
from spvfilter.primitives import OutPoint, TxOut, hash_to_hex
from spvfilter.protocol import HASH_SIZE, HEADER_SIZE, MAX_HEADERS
from spvfilter.rpc.api import (
    BLOCK_ANSWER_SIZE,
    DETAILS_ANSWER_SIZE,
    MEMPOOL_ANSWER_SIZE,
    SMALL_ANSWER_SIZE,
    SPENT_ANSWER_SIZE,
    ChainInfo,
    lacking,
    parsed_info,
    parsed_txids,
)
from spvfilter.rpc.http import HttpClient, Reply, check_status
from spvfilter.rpc.prevouts import parsed_utxos

_log = logging.getLogger(__name__)
_BINARY = "application/octet-stream"
_JSON = "application/json"
_MOST_UTXOS = 15  # most outpoints in one request (Core rest.cpp MAX_GETUTXOS_OUTPOINTS)
_NOT_SERVED = "REST is off: start the node with -rest=1, or give --cookie FILE or --user NAME"


class Rest:
    """Requests to a node over REST.

    Status 404 with text means that the node lacks the block. Without text, it means that the node does not serve the
    path.
    """

    headers_at_once = MAX_HEADERS  # Core rest.cpp MAX_REST_HEADERS_RESULTS

    def __init__(self, http: HttpClient) -> None:
        self._http = http
        self._endpoint = http.endpoint
        self._by_old_path = False  # True if the node needs the path that Core used before version 24
        self.tells_spent: bool = True

    async def info(self) -> ChainInfo:
        reply = await self._http.get("/rest/chaininfo.json", SMALL_ANSWER_SIZE)
        if reply.status == HTTPStatus.NOT_FOUND:
            raise NodeRefusedError(f"{self._endpoint}: {_NOT_SERVED}")
        body = self._body(reply, _JSON)
        try:
            return parsed_info(json.loads(body), self._endpoint)
        except (ValueError, RecursionError):
            raise NodeAnswerError(f"{self._endpoint}: malformed JSON") from None

    async def hash_at(self, height: int) -> bytes | None:
        reply = await self._http.get(f"/rest/blockhashbyheight/{height}.bin", HASH_SIZE)
        if reply.status == HTTPStatus.NOT_FOUND:
            if not reply.words:
                raise NodeRefusedError(f"{self._endpoint}: {_NOT_SERVED}")
            return None
        body = self._body(reply, _BINARY)
        if len(body) != HASH_SIZE:
            raise NodeAnswerError(f"{self._endpoint}: a hash must be {HASH_SIZE} bytes long, not {len(body)}")
        return body

    async def headers(self, first: bytes, height: int, count: int) -> bytes:
        name, most = hash_to_hex(first), HEADER_SIZE * count
        if not self._by_old_path:
            reply = await self._http.get(f"/rest/headers/{name}.bin?count={count}", most)
            self._by_old_path = reply.status == HTTPStatus.BAD_REQUEST
        if self._by_old_path:
            reply = await self._http.get(f"/rest/headers/{count}/{name}.bin", most)
        return self._body(reply, _BINARY)

    async def block(self, digest: bytes) -> bytes:
        reply = await self._http.get(f"/rest/block/{hash_to_hex(digest)}.bin", BLOCK_ANSWER_SIZE)
        if reply.status == HTTPStatus.NOT_FOUND and reply.words:
            raise NodePrunedError(lacking(digest, self._endpoint, reply.words))
        return self._body(reply, _BINARY)

    async def spent(self, digest: bytes) -> bytes | None:
        if not self.tells_spent:
            return None
        reply = await self._http.get(f"/rest/spenttxouts/{hash_to_hex(digest)}.bin", SPENT_ANSWER_SIZE)
        if reply.status == HTTPStatus.NOT_FOUND:
            if not reply.words:
                self.tells_spent = False
                _log.info(
                    "%s does not serve the outputs that a block spends; Bitcoin Core has served them since version 30",
                    self._endpoint,
                )
            return None
        return self._body(reply, _BINARY)

    async def details(self, digest: bytes) -> object:
        reply = await self._http.get(f"/rest/block/{hash_to_hex(digest)}.json", DETAILS_ANSWER_SIZE)
        if reply.status == HTTPStatus.NOT_FOUND and reply.words:
            raise NodePrunedError(lacking(digest, self._endpoint, reply.words))
        body = self._body(reply, _JSON)
        try:
            return await asyncio.to_thread(json.loads, body)
        except (ValueError, RecursionError):
            raise NodeAnswerError(f"{self._endpoint}: malformed JSON") from None

    async def coins(self, outpoints: Sequence[bytes]) -> list[TxOut | None]:
        parts = [outpoints[at : at + _MOST_UTXOS] for at in range(0, len(outpoints), _MOST_UTXOS)]
        return [each for part in parts for each in await self._coins(part)]

    async def _coins(self, outpoints: Sequence[bytes]) -> list[TxOut | None]:
        points = [OutPoint.parse(each) for each in outpoints]
        names = "/".join(f"{hash_to_hex(each.txid)}-{each.index}" for each in points)
        reply = await self._http.get(f"/rest/getutxos/{names}.bin", BLOCK_ANSWER_SIZE)
        return parsed_utxos(self._body(reply, _BINARY), len(points), self._endpoint)

    async def mempool(self) -> list[bytes]:
        """Request the txids of the transactions in the node's mempool, in no particular order.

        Core before version 25 always answers with an object that contains details, keyed by txid.
        """
        reply = await self._http.get("/rest/mempool/contents.json?verbose=false", MEMPOOL_ANSWER_SIZE)
        if reply.status == HTTPStatus.NOT_FOUND:
            raise NodeRefusedError(f"{self._endpoint}: {_NOT_SERVED}")
        body = self._body(reply, _JSON)
        try:
            return await asyncio.to_thread(lambda: parsed_txids(json.loads(body), self._endpoint))
        except (ValueError, RecursionError):
            raise NodeAnswerError(f"{self._endpoint}: malformed JSON") from None

    async def transactions(self, txids: Sequence[bytes]) -> list[bytes | None]:
        return list(await asyncio.gather(*map(self._transaction, txids)))

    async def _transaction(self, txid: bytes) -> bytes | None:
        reply = await self._http.get(f"/rest/tx/{hash_to_hex(txid)}.bin", BLOCK_ANSWER_SIZE)
        return None if reply.status == HTTPStatus.NOT_FOUND else self._body(reply, _BINARY)

    def _body(self, reply: Reply, wanted: str) -> bytes:
        check_status(reply, self._endpoint)
        if reply.status != HTTPStatus.OK:
            raise NodeAnswerError(f"{self._endpoint}: status {reply.status}: {reply.words or 'no reason given'}")
        if reply.content_type != wanted:
            raise NodeAnswerError(
                f"{self._endpoint}: expected {wanted}, got {reply.content_type[:60]!r}: is this a Bitcoin node?"
            )
        return reply.body
