"""First synchronization from bcoin, compared with a client that sends the same requests and only reads the answers."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
import tempfile
import time
from pathlib import Path

from measure import Row

from spvfilter import LightClient, Synced, WatchList
from spvfilter.filters import Bip37Filter, UpdateFlags
from spvfilter.hashes import sha256d
from spvfilter.network import REGTEST
from spvfilter.node import scripts
from spvfilter.node.build import build_block, height_push
from spvfilter.p2p import Limits
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.protocol import MAX_HEADERS
from spvfilter.signing import build_tx
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wire import PROTOCOL_VERSION, encode_message
from spvfilter.wire.messages import table as wire
from spvfilter.wire.messages.table import InvItem, InvType, Message

_HOME = Path(__file__).parents[3] / "tests" / "bcoin"
sys.path.append(str(Path(__file__).parents[3] / "tests"))
from support.bcoin.process import Bcoin, running_bcoin  # noqa: E402  # of the tests

_BLOCKS = 2_000
_TXS = 20  # in each block
_RELEVANT = 100  # one transaction in this many pays the wallet
_MATURITY = 100
_FLIGHT, _FLIGHTS = Limits().flight, Limits().flights  # as the light client requests them
_MINE = scripts.p2wpkh(b"\x02" + b"\x11" * 32).script_pubkey
_ANYONE = b"\x51"  # OP_1


def bcoin(_: Path, rounds: int) -> list[Row]:
    """Measure a synchronization. The goal is at least 90 % of the rate of the client that only reads."""
    if not (_HOME / "node_modules").is_dir():
        print(
            "bench: bcoin is not installed, and is left out: npm ci --ignore-scripts --prefix tests/bcoin",
            file=sys.stderr,
        )
        return []
    ours, read = asyncio.run(_measured(rounds))
    what = "a client that only reads the replies"
    return [
        Row(
            f"{_BLOCKS:,} blocks of {_TXS} transactions from bcoin, ms each",
            ours / _BLOCKS,
            read / _BLOCKS,
            what,
            1 / 0.9,
        )
    ]


async def _measured(rounds: int) -> tuple[float, float]:
    async with running_bcoin("full") as node:
        hashes = await _grow(node)
        ours, read = [], []
        for _ in range(rounds):
            read.append(await asyncio.to_thread(_read_only, node.port, hashes))
            ours.append(await _synchronise(node.port, len(hashes) - 1))
        return min(ours), min(read)


async def _grow(node: Bcoin) -> list[bytes]:
    """Submit blocks that split coins and pay a part of each; returns the hashes of the chain.

    Anyone can spend the coins, so nothing has to be signed.
    """
    hashes = [REGTEST.genesis_hash]
    first = _coinbase(1)
    payments = 0
    coins: list[tuple[OutPoint, int]] = []
    for height in range(1, _MATURITY + _BLOCKS + 2):
        txs = [_coinbase(height)]
        if height == _MATURITY + 1:
            share = 5_000_000_000 // _TXS
            split = build_tx([TxIn(OutPoint(Transaction.parse(first).txid, 0))], [TxOut(share, _ANYONE)] * _TXS)
            coins = [(OutPoint(Transaction.parse(split).txid, number), share) for number in range(_TXS)]
            txs.append(split)
        elif coins:
            for number, (outpoint, value) in enumerate(coins):
                payments += 1
                paid = _MINE if payments % _RELEVANT == 0 else b"\x00\x14" + payments.to_bytes(20, "big")
                raw = build_tx([TxIn(outpoint)], [TxOut(value - 1_000, _ANYONE), TxOut(1_000, paid)])
                coins[number] = OutPoint(Transaction.parse(raw).txid, 0), value - 1_000
                txs.append(raw)
        block = build_block(hashes[-1], 1_296_688_602 + 600 * height, txs)
        if (refused := await node.call("submitblock", [block.hex()])) is not None:
            raise RuntimeError(f"bcoin refuses block {height}: {refused}")
        hashes.append(sha256d(block[:80]))
    return hashes


def _coinbase(height: int) -> bytes:
    """Make a coinbase without witness, as bcoin's regtest starts without segwit. Only the first one is spent."""
    sig = height_push(height) + b"\x00\x00"
    txin = TxIn(OutPoint(bytes(32), 0xFFFFFFFF), sig, sequence=0xFFFFFFFF)
    return build_tx([txin], [TxOut(5_000_000_000 if height == 1 else 0, _ANYONE)])


def _watch() -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_script(_MINE)
    return watch


async def _synchronise(port: int, height: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        async with LightClient(
            _watch(), peers=[f"127.0.0.1:{port}"], store=Path(folder) / "wallet.db", mode="bip37"
        ) as client:
            async for event in client.events():
                if isinstance(event, Synced):
                    break
            taken = (time.perf_counter() - start) * 1e3
            if event.height != height or len(await client.matches()) != _BLOCKS * _TXS // _RELEVANT:
                raise RuntimeError(f"{event.height} blocks, {len(await client.matches())} matches")
    return taken


def _read_only(port: int, hashes: list[bytes]) -> float:
    """Fetch headers and all filtered blocks, and read only the pongs between them. Returns milliseconds."""
    start = time.perf_counter()
    version = wire.Version(PROTOCOL_VERSION, 0, int(time.time()), secrets.randbits(64), b"/reader/", 0, relay=False)
    made = Bip37Filter.for_watchlist(_watch(), 1e-4, 1, UpdateFlags.ALL, decoy_key=bytes(16))
    with socket.create_connection(("127.0.0.1", port)) as connection:
        reader = _Reader(connection)
        reader.send(version)
        reader.until(b"verack")
        reader.send(wire.Verack())
        for known in hashes[::MAX_HEADERS]:
            reader.send(wire.GetHeaders((known,)))
            reader.fence()
        reader.send(wire.FilterLoad.parse(bytes(made)))
        for first in range(1, len(hashes), _FLIGHT):
            reader.send(
                wire.GetData(
                    tuple(InvItem(InvType.FILTERED_BLOCK, block_hash) for block_hash in hashes[first : first + _FLIGHT])
                )
            )
            reader.ping()
            if len(reader.nonces) == _FLIGHTS:
                reader.pong()
        while reader.nonces:
            reader.pong()
    return (time.perf_counter() - start) * 1e3


class _Reader:
    """Reads a socket, and keeps only the last bytes."""

    def __init__(self, connection: socket.socket) -> None:
        self.nonces: list[bytes] = []
        self._connection = connection
        self._tail = b""

    def send(self, message: Message) -> None:
        self._connection.sendall(encode_message(REGTEST.magic, wire.command_of(message), bytes(message)))

    def until(self, mark: bytes) -> None:
        """Read until `mark` has been read."""
        while (at := self._tail.find(mark)) < 0:
            self._tail = self._tail[-len(mark) :]
            if not (data := self._connection.recv(1 << 18)):
                raise ConnectionError("bcoin closed the connection")
            self._tail += data
        self._tail = self._tail[at + len(mark) :]

    def ping(self) -> None:
        nonce = secrets.randbits(64)
        self.send(wire.Ping(nonce))
        self.nonces.append(nonce.to_bytes(8, "little"))

    def pong(self) -> None:
        self.until(self.nonces.pop(0))

    def fence(self) -> None:
        self.ping()
        self.pong()
