"""A regtest chain with silent payments for the live client, and sources of spent outputs and of tweaks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from spvfilter import Coin, WatchList, build_tx
from spvfilter.errors import SourceError
from spvfilter.hashes import hash160
from spvfilter.kernel import walk_block
from spvfilter.network import REGTEST
from spvfilter.node.server import Node
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.silent.address import SilentAddress
from spvfilter.transaction import Transaction, TxIn
from support.blocks import undo
from support.blocks.silentpayments import ORDER, Wallet, public, tweak_of
from support.client.compactworld import LIMITS
from support.client.lightworld import START, Run, World, running
from support.client.regtests import mined

pytest.importorskip("btclib_secp256k1")

WALLET = Wallet(network=REGTEST)
OTHER = Wallet(scan=5, network=REGTEST)
SISTER = Wallet(spend=13, network=REGTEST)
"""Has the scan key of `WALLET`: senders count the outputs of both together."""


class SilentWorld(World):
    """A chain with silent payments."""

    def __init__(self) -> None:
        super().__init__(locks=[])
        self.regtest = mined(101, lambda: START)  # without checks of signatures
        self._private = 5_000

    def send(self, *addresses: SilentAddress, value: int = 50_000) -> bytes:
        """Put a payment of addresses into the mempool, with an output for each; returns the transaction."""
        from btclib_secp256k1 import silentpayments

        self._private += 1
        key = public(self._private)
        txid = self.regtest.pay(TxOut(1_000_000, b"\0\x14" + hash160(key)))
        spend = TxIn(OutPoint(txid, 0), witness=(bytes(71), key))
        made = silentpayments.create_outputs(
            [(each.scan_pubkey, each.spend_pubkey) for each in addresses],
            bytes(spend.outpoint),
            prvkeys=[self._private.to_bytes(32, "big")],
        )
        raw = build_tx([spend], [TxOut(value + n, b"\x51\x20" + bytes(each)) for n, each in enumerate(made)])
        self.regtest.submit_tx(raw)
        return raw

    def take(self, raw: bytes, index: int = 0) -> bytes:
        """Put a spend of an output into the mempool; returns the transaction."""
        spend = build_tx(
            [TxIn(OutPoint(Transaction.parse(raw).txid, index), witness=(bytes(64),))],
            [TxOut(10_000, b"\0\x14" + bytes(20))],
        )
        self.regtest.submit_tx(spend)
        return spend


class Source:
    """Gives the outputs that the blocks of a world spend, as a node does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[bytes] = []
        self._records: dict[bytes, bytes] = {}
        self.is_asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()

    def record(self, digest: bytes) -> bytes:
        if digest not in self._records:
            blocks = self.world.regtest.chain.active
            records = undo.records_of([block.raw for block in blocks])
            self._records |= {block.hash: record for block, record in zip(blocks, records, strict=True)}
        return self._records[digest]

    async def undo_record(self, digest: bytes, previous: bytes, *, by_details: bool = False) -> bytes | None:
        self.asked.append(digest)
        self.is_asked.set()
        await self.gate.wait()
        return self.record(digest)


def watching(text: str = WALLET.descriptor, label: str | None = "savings") -> WatchList:
    watch = WatchList(REGTEST)
    watch.add_descriptor(text, label)
    return watch


def following(
    world: World,
    node: Node,
    source: Source | TweakServer | object,
    store: Path | None = None,
    watch: WatchList | None = None,
    **options: object,
) -> AbstractAsyncContextManager[Run]:
    """A client that follows the wallet, or another list, with a source of either kind."""
    options = {"limits": LIMITS, "mode": "auto"} | options
    options["tweak_source" if hasattr(source, "tweaks") else "spent_source"] = source
    return running(world, node, store=store, watch=watching() if watch is None else watch, **options)  # type: ignore[arg-type]


async def found(run: Run) -> dict[bytes, int | None]:
    """The number of the label of each coin, by its script. Their tweaks are right."""
    coins = await run.client.coins()
    for coin in coins:
        check_tweak(coin)
    return {coin.script_pubkey: coin.sp_label for coin in coins}


def check_tweak(coin: Coin, wallet: Wallet = WALLET) -> None:
    """The tweak of a coin gives the key of its output."""
    from btclib_secp256k1 import keys

    assert coin.sp_tweak is not None
    private = (int.from_bytes(wallet.spend_key, "big") + int.from_bytes(coin.sp_tweak, "big")) % ORDER
    assert bytes(keys.pubkey_from_prvkey(private.to_bytes(32, "big")))[1:] == coin.script_pubkey[2:]


class TweakServer:
    """Gives the tweaks of the blocks of a world, as a tweak server does."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[int] = []
        self.is_asked = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self._known: dict[bytes, list[bytes]] = {}

    async def tweaks(self, height: int) -> tuple[bytes, Sequence[bytes]]:
        self.asked.append(height)
        self.is_asked.set()
        await self.gate.wait()
        return self.answer(height)

    def answer(self, height: int) -> tuple[bytes, list[bytes]]:
        """The block at a height of the best chain, and its tweaks. Raises SourceError above the tip."""
        active = self.world.regtest.chain.active
        if height >= len(active):
            raise SourceError(f"no block at height {height}")
        block = active[height]
        if block.hash not in self._known:
            raws = [each.raw for each in active]
            for each, spent in zip(active, undo.spent_of(raws), strict=True):
                self._known[each.hash] = list(_tweaks(each.raw, spent))
        return block.hash, self._known[block.hash]


def _tweaks(raw: bytes, spent: Sequence[Sequence[undo.Spent]]) -> Iterator[bytes]:
    for tx, coins in zip(list(walk_block(raw))[1:], spent, strict=True):
        found = tweak_of(raw[tx.start : tx.end], [coin.script for coin in coins])
        if found is not None:
            yield found
