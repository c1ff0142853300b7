"""A scripted HTTP server that responds as Bitcoin Core documents, by REST and JSON-RPC, with faults on demand.

No assertions.
"""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from spvfilter.network import REGTEST, Network
from spvfilter.rpc import FullNode, Password, RpcLimits
from support.blocks.build import block_hash, var_int
from support.blocks.undo import Spent
from support.client.pauses import Pauses

USER, PASSWORD = "alice", "correct-horse-battery"
BINARY, TEXT, JSON = "application/octet-stream", "text/plain", "application/json"

Fault = Callable[["Request"], "bytes | AsyncIterator[bytes] | None"]
"""Gives the raw bytes to answer a request with, after which the connection is closed, or None to answer as usual.

An iterator gives them in pieces.
"""


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls of a JSON-RPC request."""
        found = json.loads(self.body) if self.body else []
        return found if isinstance(found, list) else [found]

    def about(self, word: str) -> bool:
        """Return True if the path or a call contains a word."""
        return word in self.path or word.encode() in self.body


def response(status: int, body: bytes = b"", content_type: str = TEXT, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def output_json(coin: Spent) -> dict[str, Any]:
    """An output in JSON, with its value in coins."""
    return {"value": coin.value / 100_000_000, "scriptPubKey": {"hex": coin.script.hex()}}


def spent_json(coin: Spent) -> dict[str, Any]:
    """An output that a block spends in JSON. Core states the height of each one."""
    return output_json(coin) | ({"height": coin.height, "generated": coin.coinbase} if coin.height else {})


def spent_answer(spent: Sequence[Sequence[Spent]]) -> bytes:
    """The response of /rest/spenttxouts for a block, given the coins of each transaction except the coinbase."""

    def output(coin: Spent) -> bytes:
        return coin.value.to_bytes(8, "little") + var_int(len(coin.script)) + coin.script

    return (
        var_int(len(spent) + 1)
        + b"\0"
        + b"".join(var_int(len(coins)) + b"".join(map(output, coins)) for coins in spent)
    )


def result(value: object) -> bytes:
    """The response of JSON-RPC to the first call of a request."""
    return rpc_response({"result": value, "error": None, "id": 0})


def rpc_response(value: object) -> bytes:
    return response(200, json.dumps(value).encode(), JSON)


def about(
    word: str, answer: Callable[[Request], bytes] | bytes, times: int = 10**9
) -> Callable[[Request], bytes | None]:
    """A fault of the next requests whose path or calls contain a word."""
    left = [times]

    def fault(request: Request) -> bytes | None:
        if not request.about(word) or not left[0]:
            return None
        left[0] -= 1
        return answer if isinstance(answer, bytes) else answer(request)

    return fault


@dataclass
class CoreNode:
    """The chain of a node, and its responses. `blocks` lead from the genesis block to the tip."""

    blocks: list[bytes]
    spent: dict[bytes, bytes] | None = None  # by block; None before Core 30
    network: Network = REGTEST
    rest: bool = True
    old_headers: bool = False  # before Core 24
    pruned_below: int = 0
    lacking: set[int] = field(default_factory=set)  # heights of other blocks that are not on disk
    best_header: int = 0  # height of the best header, if it is above the tip
    is_initial_download: bool = False
    secret: str = f"{USER}:{PASSWORD}"
    warming_up: str | None = None
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    stale: dict[bytes, bytes] = field(default_factory=dict)
    mempool: dict[bytes, bytes] = field(default_factory=dict)  # raw transactions by txid
    gone: set[bytes] = field(default_factory=set)  # txids that are listed but have left the mempool
    old_mempool: bool = False  # before Core 25
    details: dict[bytes, Sequence[Sequence[Spent | None]]] = field(default_factory=dict)  # spent coins, for JSON
    coins: dict[bytes, Spent] = field(default_factory=dict)  # unspent outputs of the chain, by outpoint
    port: int = 0

    def __post_init__(self) -> None:
        self.arrange(self.blocks)

    def arrange(self, blocks: Sequence[bytes]) -> None:
        """Make these the best chain. Earlier blocks stay known."""
        self.stale.update((block_hash(raw), raw) for raw in self.blocks)
        self.blocks = list(blocks)
        self.hashes = [block_hash(raw) for raw in self.blocks]
        self.known = self.stale | dict(zip(self.hashes, self.blocks, strict=True))

    def _is_pruned(self, digest: bytes) -> bool:
        return digest in self.hashes[: self.pruned_below] or digest in {self.hashes[at] for at in self.lacking}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def spends(self, spent: Sequence[Sequence[Sequence[Spent]]]) -> None:
        """Set the spent outputs of each block of the chain."""
        told = {digest: spent_answer(of_block) for digest, of_block in zip(self.hashes, spent, strict=True)}
        self.spent = (self.spent or {}) | told

    def spends_of(self, digest: bytes, spent: Sequence[Sequence[Spent]]) -> None:
        """Set the spent outputs of a block."""
        self.spent = (self.spent or {}) | {digest: spent_answer(spent)}

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", ssl: Any = None) -> AsyncIterator[CoreNode]:
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                while await self._serve(reader, writer):
                    pass
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(connected, host, self.port, ssl=ssl, limit=1 << 20)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @contextmanager
    def in_thread(self) -> Iterator[CoreNode]:
        """Serve from a loop in another thread."""
        ready, ended = threading.Event(), asyncio.Event()
        loop = asyncio.new_event_loop()

        async def serve() -> None:
            async with self.serving():
                ready.set()
                await ended.wait()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(ended.set)
            thread.join()
            loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Respond to one request. Returns True if another request may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        request = Request(method, path, headers, await reader.readexactly(int(headers.get("content-length", 0))))
        self.requests.append(request)
        for fault in list(self.faults):
            raw = fault(request)
            if isinstance(raw, AsyncIterator):
                async for piece in raw:
                    writer.write(piece)
                    await writer.drain()
                return False
            if raw is not None:
                writer.write(raw)
                await writer.drain()
                return False
        writer.write(self.answer(request))
        await writer.drain()
        return True

    def answer(self, request: Request) -> bytes:
        if request.path.startswith("/rest/"):
            return self._rest(request.path.removeprefix("/rest/")) if self.rest else response(404)
        if request.path != "/" or request.method != "POST":
            return response(404)
        if request.headers.get("authorization") != f"Basic {base64.b64encode(self.secret.encode()).decode()}":
            return response(401, WWW_Authenticate='Basic realm="jsonrpc"')
        found = json.loads(request.body)
        if isinstance(found, list):
            return response(200, json.dumps([self._call(call) for call in found]).encode(), JSON)
        answer = self._call(found)
        return response(500 if answer["error"] else 200, json.dumps(answer).encode(), JSON)

    def _rest(self, path: str) -> bytes:
        if self.warming_up is not None:
            return response(503, f"Service temporarily unavailable: {self.warming_up}\r\n".encode())
        kind, _, rest = path.partition("/")
        if path == "chaininfo.json":
            return response(200, json.dumps(self.info()).encode() + b"\n", JSON)
        if path == "mempool/contents.json?verbose=false":
            names = [txid[::-1].hex() for txid in (*self.mempool, *self.gone)]
            return response(200, json.dumps({name: {} for name in names} if self.old_mempool else names).encode(), JSON)
        if kind == "blockhashbyheight":
            height = int(rest.removesuffix(".bin"))
            if height >= len(self.hashes):
                return response(404, b"Block height out of range\r\n")
            return response(200, self.hashes[height], BINARY)
        if kind == "headers":
            return self._headers(rest)
        if (outputs := self._outputs(kind, rest)) is not None:
            return outputs
        digest = bytes.fromhex(rest.removesuffix(".bin"))[::-1]
        if kind == "tx":
            if digest not in self.mempool:
                return response(404, f"{digest[::-1].hex()} not found\r\n".encode())
            return response(200, self.mempool[digest], BINARY)
        if kind == "block":
            if digest not in self.known:
                return response(404, f"{digest[::-1].hex()} not found\r\n".encode())
            if self._is_pruned(digest):
                return response(404, f"{digest[::-1].hex()} not available (pruned data)\r\n".encode())
            return response(200, self.known[digest], BINARY)
        return response(404)

    def _outputs(self, kind: str, rest: str) -> bytes | None:
        """The response with unspent outputs, or with the outputs that a block spends; None for other requests."""
        if kind == "getutxos":
            return response(200, self.utxos(rest.removesuffix(".bin").split("/")), BINARY)
        if rest.endswith(".json"):
            digest = bytes.fromhex(rest.removesuffix(".json"))[::-1]
            return response(200, json.dumps(self._details(digest)).encode(), JSON)
        if kind == "spenttxouts" and self.spent is not None:
            digest = bytes.fromhex(rest.removesuffix(".bin"))[::-1]
            if digest not in self.spent:
                return response(404, f"{digest[::-1].hex()} undo not available\r\n".encode())
            return response(200, self.spent[digest], BINARY)
        return None

    def utxos(self, names: Sequence[str]) -> bytes:
        """The answer to getutxos for outpoints such as TXID-N."""
        pairs = [name.split("-") for name in names]
        points = [bytes.fromhex(txid)[::-1] + int(n).to_bytes(4, "little") for txid, n in pairs]
        found = [self.coins.get(point) for point in points]
        bitmap = bytearray(-(-len(found) // 8))
        for at, coin in enumerate(found):
            bitmap[at // 8] |= (coin is not None) << at % 8
        there = [coin for coin in found if coin is not None]
        outputs = b"".join(
            bytes(8) + coin.value.to_bytes(8, "little") + var_int(len(coin.script)) + coin.script for coin in there
        )
        return bytes(36) + var_int(len(bitmap)) + bytes(bitmap) + var_int(len(there)) + outputs

    def _details(self, digest: bytes) -> dict[str, Any]:
        """A block in JSON as `getblock HASH 3` returns it, with the fields that concern spent outputs."""
        txs = [[{"prevout": coin and spent_json(coin)} for coin in coins] for coins in self.details.get(digest, ())]
        return {"hash": digest[::-1].hex(), "tx": [{"vin": [{"coinbase": "00"}]}, *({"vin": inputs} for inputs in txs)]}

    def _headers(self, rest: str) -> bytes:
        name, asks, count = rest.partition("?count=")
        if asks and self.old_headers:
            return response(400, b"No header count specified. Use /rest/headers/<count>/<hash>.<ext>.\r\n")
        if not asks:
            count, _, name = rest.partition("/")
        if not 1 <= int(count) <= 2_000:
            return response(400, b"Header count out of range\r\n")
        digest = bytes.fromhex(name.removesuffix(".bin"))[::-1]
        if digest not in self.hashes:
            return response(200, b"", BINARY)
        at = self.hashes.index(digest)
        return response(200, b"".join(raw[:80] for raw in self.blocks[at : at + int(count)]), BINARY)

    def info(self) -> dict[str, Any]:
        height = len(self.blocks) - 1
        name = {"mainnet": "main", "testnet3": "test"}.get(self.network.name, self.network.name)
        info: dict[str, Any] = {
            "chain": name,
            "blocks": height,
            "headers": max(height, self.best_header),
            "bestblockhash": self.hashes[-1][::-1].hex(),
        }
        info |= {"initialblockdownload": self.is_initial_download, "pruned": self.pruned_below > 0, "warnings": []}
        if self.network.signet_challenge is not None:
            info |= {"chain": "signet", "signet_challenge": self.network.signet_challenge.hex()}
        return info | ({"pruneheight": self.pruned_below} if self.pruned_below else {})

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        def failed(code: int, message: str) -> dict[str, Any]:
            return {"result": None, "error": {"code": code, "message": message}, "id": call["id"]}

        if self.warming_up is not None:
            return failed(-28, self.warming_up)
        result: object
        params = call["params"]
        match call["method"]:
            case "getblockchaininfo":
                result = self.info()
            case "getblockhash":
                if not 0 <= params[0] < len(self.hashes):
                    return failed(-8, "Block height out of range")
                result = self.hashes[params[0]][::-1].hex()
            case "getblock" | "getblockheader":
                digest = bytes.fromhex(params[0])[::-1]
                if digest not in self.known:
                    return failed(-5, "Block not found")
                if call["method"] == "getblock" and self._is_pruned(digest):
                    return failed(-1, "Block not available (pruned data)")
                raw = self.known[digest]
                if call["method"] == "getblock" and params[1] == 3:
                    return {"result": self._details(digest), "error": None, "id": call["id"]}
                result = (raw if call["method"] == "getblock" else raw[:80]).hex()
            case "gettxout":
                coin = self.coins.get(bytes.fromhex(params[0])[::-1] + params[1].to_bytes(4, "little"))
                result = None if coin is None or params[2] else output_json(coin)
            case "getrawmempool":
                result = [txid[::-1].hex() for txid in (*self.mempool, *self.gone)]
            case "getrawtransaction":
                found = self.mempool.get(bytes.fromhex(params[0])[::-1])
                if found is None:
                    return failed(-5, "No such mempool transaction")
                result = found.hex()
            case _:
                return failed(-32601, "Method not found")
        return {"result": result, "error": None, "id": call["id"]}


WAYS = pytest.mark.parametrize("way", ["rest", "rpc"])
"""Runs a test with each interface of the node."""


def opened(
    core: CoreNode,
    way: str,
    pauses: Pauses | None = None,
    limits: RpcLimits | None = None,
    patience_s: float | None = 600.0,
) -> AbstractAsyncContextManager[FullNode]:
    """Connect to a node by REST or JSON-RPC. Pauses before retries take no time."""
    core.rest = way == "rest"
    credentials = Password(USER, PASSWORD) if way == "rpc" else None
    patience = (pauses or Pauses()).patience(patience_s)
    return FullNode.open(core.url, REGTEST, credentials=credentials, limits=limits, patience=patience)


def chain_of(raw: Sequence[bytes], tip: bytes) -> list[bytes]:
    """The blocks among these that lead to a tip, from the first one."""
    by_hash = {block_hash(each): each for each in raw}
    chain = [by_hash[tip]]
    while (before := by_hash.get(chain[-1][4:36])) is not None:
        chain.append(before)
    return chain[::-1]


def merkle_damaged(raw: bytes) -> bytes:
    """A block with its header, but with a changed last transaction."""
    return raw[:-1] + bytes((raw[-1] ^ 1,))
