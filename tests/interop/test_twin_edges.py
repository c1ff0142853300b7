"""Twin lives that differ only in a hostile peer: with two honest network groups, all edges give equal answers."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from interop.test_bdk import secret, watching
from spvfilter.electrum.histories import script_hash_of
from spvfilter.electrum.server import ElectrumServer
from spvfilter.interop import bdk_wallet
from spvfilter.light.client import LightClient
from spvfilter.node.regtest import Regtest
from spvfilter.node.server import SETTINGS
from spvfilter.p2p import txrequests
from spvfilter.p2p.clock import Clock
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.store.ledger import TxStatus
from spvfilter.store.views import Coin, Views
from spvfilter.transaction import Transaction, TxIn
from spvfilter.wallet.events import RunStarted, WalletEvent
from spvfilter.wire import Service
from support.peers.electrumclient import ElectrumClient
from support.peers.hostile import HostileNode, until
from support.wallets.walletbooks import THEIRS

pytestmark = [pytest.mark.kyoto, pytest.mark.descriptors]

NOW = 1_800_000_000
VALUE = 100_000
WATCH = watching()
SCRIPTS = [keychain.scripts(index)[0] for keychain in WATCH.keychains for index in range(8)]


class World:
    """A chain, two honest nodes, a hostile one in one of two twins, a client, and its Electrum port."""

    def __init__(self, hostile: HostileNode | None, honest: list[HostileNode]) -> None:
        self.hostile = hostile
        self.honest = honest
        self.regtest = honest[0].regtest
        self.coins: list[OutPoint] = []

    def spend(self, number: int) -> bytes:
        """A signed spend of a coin, with change to the wallet."""
        spent = TxOut(VALUE, SCRIPTS[number])
        outputs = [TxOut(40_000, THEIRS), TxOut(59_000, SCRIPTS[8 + number])]
        return build_tx([TxIn(self.coins[number], spent=spent)], outputs, keys=[secret(0, number)])

    async def answers(self, client: LightClient, electrum: ElectrumClient) -> dict[str, object]:
        """Ask each edge."""
        listed, found = await client.read(lambda views: (views.history(), library(views)))
        methods = ("get_history", "get_balance", "get_mempool", "listunspent", "subscribe")
        for method in methods:
            found[f"electrum {method}"] = [
                await electrum.ask(f"blockchain.scripthash.{method}", script_hash_of(script)) for script in SCRIPTS
            ]
        counted = sorted(each.txid_hex for each in listed if each.status.counts)
        found["electrum get"] = [await electrum.ask("blockchain.transaction.get", txid) for txid in counted]
        wallet = await bdk_wallet(client)
        balance = wallet.balance()
        found["bdk"] = (
            balance.total.to_sat(),
            balance.confirmed.to_sat(),
            sorted(str(each.outpoint.txid) for each in wallet.list_unspent()),
            sorted(str(each.transaction.compute_txid()) for each in wallet.transactions()),
        )
        return found


def library(views: Views) -> dict[str, object]:
    """Answers of the database, without the seconds at which a life saw a transaction."""

    def timeless(coins: list[Coin]) -> list[Coin]:
        return sorted((dataclasses.replace(each, cursor="") for each in coins), key=lambda coin: bytes(coin.outpoint))

    history = [
        dataclasses.replace(each, first_seen=None, cursor="", time=each.time if each.height is not None else None)
        for each in views.history()
    ]
    return {
        "balance": views.balance(),
        "coins": timeless(views.coins()),
        "unspent": timeless(views.unspent()),
        "change": timeless(views.unspent(trusted_change=True)),
        "history": sorted(history, key=lambda entry: entry.txid),
        "effects": sorted(views.effects()),
        "reserved": views.reserved(),
        "keychains": views.keychains(),
        "next address": views.next_address(),
        "sequence": views.sequence(),
    }


def unsigned(world: World) -> None:
    assert world.hostile is not None
    for coin in world.coins:
        tx = Transaction.parse(build_tx([TxIn(coin)], [TxOut(1_000, THEIRS)]))
        world.hostile.tell(tx, tx.raw)


def wrongly_signed(world: World) -> None:
    assert world.hostile is not None
    for number, coin in enumerate(world.coins):
        spent = TxOut(VALUE - 1, SCRIPTS[number])  # signatures commit to the value
        raw = build_tx([TxIn(coin, spent=spent)], [TxOut(1_000, THEIRS)], keys=[secret(0, number)])
        world.hostile.tell(Transaction.parse(raw), raw)


def stripping(world: World) -> None:
    assert world.hostile is not None
    world.hostile.corrupt = lambda tx: tx.stripped


def breaking(world: World) -> None:
    assert world.hostile is not None
    world.hostile.corrupt = lambda tx: tx.raw[:-12] + bytes((tx.raw[-12] ^ 1,)) + tx.raw[-11:]


def withholding(world: World) -> None:
    assert world.hostile is not None
    world.hostile.corrupt = lambda tx: None


def flooding(world: World) -> None:
    """Made-up payments: each conflicts with the one before it."""
    assert world.hostile is not None
    points = [OutPoint(number.to_bytes(32, "big"), 0) for number in range(1, 402)]
    for at in range(400):
        raw = build_tx([TxIn(points[at]), TxIn(points[at + 1])], [TxOut(600 + at, SCRIPTS[6])])
        world.hostile.tell(Transaction.parse(raw), raw)


HOSTILE: dict[str, Callable[[World], None]] = {
    "unsigned": unsigned,
    "wrongly signed": wrongly_signed,
    "strips": stripping,
    "strips without NODE_WITNESS": stripping,
    "breaks": breaking,
    "withholds": withholding,
    "floods": flooding,
}


@asynccontextmanager
async def world(mode: str, kind: str | None) -> AsyncIterator[tuple[World, LightClient, ElectrumClient]]:
    regtest = Regtest(clock=lambda: NOW)
    regtest.mine(101)
    async with AsyncExitStack() as stack:
        nodes = []
        for group in (3, 1, 2) if kind is not None else (1, 2):
            is_old = group == 3 and kind == "strips without NODE_WITNESS"
            settings = (
                dataclasses.replace(SETTINGS, services=SETTINGS.services & ~Service.WITNESS) if is_old else SETTINGS
            )
            nodes.append(await stack.enter_async_context(HostileNode(regtest, f"127.{group}.0.1", settings)))
        made = World(nodes[0] if kind is not None else None, nodes[-2:])
        for number in range(4):
            made.coins.append(OutPoint(regtest.pay(TxOut(VALUE, SCRIPTS[number])), 0))
            regtest.mine()
        client = LightClient(
            watching(), peers=[f"{node.host}:{node.port}" for node in nodes], mode=mode, clock=Clock(wall=lambda: NOW)
        )
        await stack.enter_async_context(client)
        server = await stack.enter_async_context(ElectrumServer(client, port=0))
        electrum = await stack.enter_async_context(ElectrumClient(server.port or 0))
        await electrum.ask("server.version", "test", "1.4")
        yield made, client, electrum


async def live(mode: str, kind: str | None) -> tuple[list[dict[str, object]], list[WalletEvent]]:
    """One life: an own spend, a payment, a spend by another device, blocks and a reorganization."""
    said: list[dict[str, object]] = []
    async with world(mode, kind) as (made, client, electrum):
        regtest = made.regtest

        async def settled() -> bool:
            status = await client.status()
            connected = {each.address.rpartition(":")[0] for each in status.peers}
            return status.is_synced and status.tip_height == regtest.height and connected > {"127.1.0.1"}

        async def note(txid: bytes | None = None, status: TxStatus | None = None) -> None:
            async def has_it() -> bool:
                entry = None if txid is None else await client.transaction(txid)
                return await settled() and (entry.status if entry is not None else None) == status

            await until(has_it)

            async def is_told() -> bool:
                return [*await client.effects()] == [*await client.effects()] and await agrees(client, electrum)

            await until(is_told)
            said.append(await made.answers(client, electrum))

        if kind is not None:
            HOSTILE[kind](made)
        await note()
        own = made.spend(0)
        await client.broadcast(own)
        await note(Transaction.parse(own).txid, TxStatus.PENDING)
        paid = regtest.pay(TxOut(30_000, SCRIPTS[5]))
        await note(paid, TxStatus.PENDING)
        other = regtest.submit_tx(made.spend(1))
        await note(other, TxStatus.PENDING)
        regtest.mine()
        await note(other, TxStatus.CONFIRMED)
        regtest.reorg(1, blocks=2)
        await note(paid, TxStatus.PENDING)
        regtest.mine()
        await note(other, TxStatus.CONFIRMED)
        if made.hostile is not None:
            assert made.hostile.requested
        last, events = await client.sequence(), list[WalletEvent]()
        async for event in client.events(since=0):
            if isinstance(event, WalletEvent):
                if not isinstance(event, RunStarted):  # whose id is random
                    events.append(event)
                if event.sequence == last:
                    break
        return said, events


async def agrees(client: LightClient, electrum: ElectrumClient) -> bool:
    """True if the Electrum server has the transactions of the database."""
    rows = [await electrum.ask("blockchain.scripthash.get_history", script_hash_of(script)) for script in SCRIPTS]
    shown = {(row["tx_hash"], max(row["height"], 0)) for each in rows for row in each}
    return shown == {(each.txid_hex, each.height or 0) for each in await client.effects()}


REFERENCE: dict[str, tuple[list[dict[str, object]], list[WalletEvent]]] = {}


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "kind"),
    [*(("compact", kind) for kind in HOSTILE), ("bip37", "unsigned"), ("bip37", "breaks"), ("bip37", "floods")],
)
async def test_a_hostile_peer_changes_no_answer(mode: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txrequests, "REQUEST_S", 0.3)
    if mode not in REFERENCE:
        REFERENCE[mode] = await live(mode, None)
    said, events = await live(mode, kind)
    expected, expected_events = REFERENCE[mode]
    for number, (found, wanted) in enumerate(zip(said, expected, strict=True)):
        for edge, answer in wanted.items():
            assert found[edge] == answer, (number, edge)
    assert events == expected_events
