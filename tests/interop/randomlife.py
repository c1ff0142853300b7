"""A wallet's random life: its user pays, bumps, abandons and sorts, and the network mines, replaces and reorganizes."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, closing
from pathlib import Path
from random import Random
from typing import Self, TypeVar

from interop.test_bdk import descriptors, secret
from spvfilter.address import address_to_script, script_to_address
from spvfilter.electrum.server import ElectrumServer
from spvfilter.errors import SpvFilterError
from spvfilter.light.client import LightClient
from spvfilter.network import REGTEST
from spvfilter.node.regtest import Regtest
from spvfilter.node.responder import Responder
from spvfilter.node.scripts import p2wpkh
from spvfilter.node.server import Node
from spvfilter.p2p.clock import Clock
from spvfilter.p2p.limits import Limits
from spvfilter.primitives import OutPoint, TxOut
from spvfilter.signing import build_tx
from spvfilter.store.ledger import TxStatus
from spvfilter.store.views import Coin, HistoryEntry
from spvfilter.transaction import Transaction, TxIn
from spvfilter.watch.labels import Label
from spvfilter.watch.watchlist import WatchList
from spvfilter.wire import Session
from spvfilter.wire.messages.table import InvItem
from support.blocks.locks import key as numbered_key, secret as numbered_secret
from support.client.lightworld import Books, identity
from support.peers.electrumclient import ElectrumClient
from support.peers.hostile import until
from support.wallets.walletbooks import THEIRS

T = TypeVar("T")

BEGUN = 1_700_000_000  # Unix time
HOUR_S, DAY_S = 3_600, 86_400
BLOCK_S = 600
LOOKAHEAD = 20
LIMITS = Limits(connect_s=2, stall_s=0.2, reply_s=3, send_s=2, retry_s=0.01, max_retry_s=0.05)
UNSENT = (TxStatus.PENDING, TxStatus.WAITING, TxStatus.REPLACED)
"""Statuses of the wallet's own transactions that its user may bump."""


def derived() -> tuple[list[str], dict[bytes, bytes]]:
    """The descriptors for receiving and for change, and the private keys of their first scripts."""
    both = descriptors()[1]
    keychains = WatchList(REGTEST).add_descriptor(both)
    keys = {
        keychain.scripts_at(index)[0]: secret(number, index)
        for number, keychain in enumerate(keychains)
        for index in range(60)
    }
    return [both.replace("<0;1>", each) for each in "01"], keys


class DeafResponder(Responder):
    """A node that, while it is deaf, requests no transaction that a client announces."""

    def __init__(self, regtest: Regtest, session: Session, life: Life) -> None:
        super().__init__(regtest, session)
        self._life = life

    def on_inv(self, items: Sequence[InvItem]) -> None:
        if not self._life.is_deaf:
            super().on_inv(items)


class Life:
    """Two nodes of one chain, a client with accounts and single scripts, and its Electrum server.

    Each action is a method. It returns what the log should say, and fails with the error of the package if the wallet
    or the network refuses it.
    """

    def __init__(self, seed: int, mode: str, folder: Path) -> None:
        self.seed = seed
        self.mode = mode
        self.folder = folder
        self.path = folder / "wallet.db"
        self.random = Random(f"{mode} {seed}")
        self.log: list[str] = []
        self.now = BEGUN
        self.slow_s = 0  # the client's clock is slow by these seconds
        self.is_deaf = False
        self.regtest = Regtest(clock=lambda: self.now)
        self.regtest.mine(101)
        self.descriptors, self.keys = derived()
        self.of_keychains = [*self.keys]
        numbered = {p2wpkh(numbered_key(each)).script_pubkey: numbered_secret(each) for each in range(900, 906)}
        self.single = [*numbered]
        self.keys |= numbered
        self.paid: dict[bytes, None] = {}
        """Scripts that a transaction may have paid, in order."""
        self.revealed: set[str] = set()
        self.watch = WatchList(REGTEST)
        self.watch.add_account("main", *self.descriptors, label="main", lookahead=LOOKAHEAD)
        self.watch.add_script(self.single[0], "zero")
        self._told_since(Books(), 0)

    async def __aenter__(self) -> Self:
        self._nodes = AsyncExitStack()
        self.peers = []
        for host in ("127.1.0.1", "127.2.0.1"):
            node = Node(
                self.regtest, host=host, responder=lambda regtest, session: DeafResponder(regtest, session, self)
            )
            await self._nodes.enter_async_context(node)
            self.peers.append(f"{host}:{node.port}")
        await self._start()
        for action in (Life.fund, Life.receive, Life.receive, Life.mine):
            await action(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._run.aclose()
        await self._nodes.aclose()

    def _told_since(self, books: Books, sequence: int) -> None:
        """The state according to the events so far, and the number of the last of them."""
        self.told, self.last_told = books, sequence

    async def _start(self, *, rebuild: bool = False) -> None:
        """Open the database, start the client, and start its Electrum server."""
        self._run = AsyncExitStack()
        self.client = LightClient(
            self.watch,
            peers=self.peers,
            store=self.path,
            mode=self.mode,
            limits=LIMITS,
            clock=Clock(wall=lambda: self.now - self.slow_s),
            rebuild=rebuild,
        )
        await self._run.enter_async_context(self.client)
        if rebuild:
            books, found = Books(), await self.client.matches()
            books.matches = {identity(each.match): each.match for each in found}
            self._told_since(books, found.sequence)
        server = await self._run.enter_async_context(ElectrumServer(self.client, port=0))
        self.electrum = await self._run.enter_async_context(ElectrumClient(server.port or 0))
        await self.electrum.ask("server.version", "test", "1.4")

    async def settle(self) -> None:
        """Wait until the client has the node's tip, and no event has come for a moment."""

        async def is_settled() -> bool:
            before = await self.client.sequence()
            await asyncio.sleep(0.03)
            status = await self.client.status()
            is_at_tip = status.is_synced and self.client.chain.tip_hash == self.regtest.chain.tip.hash
            return is_at_tip and before == await self.client.sequence()

        await until(is_settled)

    async def act(self) -> None:
        """Do something at random, and write it to the log."""
        (action,) = self.random.choices([*ACTIONS], [*ACTIONS.values()])
        try:
            done = await action(self)
        except (SpvFilterError, ValueError) as error:
            done = f"{type(error).__name__}: {error}"
        self.log.append(f"{action.__name__} {done or ''}")

    def told_by(self, found: object) -> str:
        """Return a message with the seed, what was found, and the last actions."""
        return "\n".join((f"seed {self.seed}, {self.mode}: {found}", *self.log[-12:]))

    # Choices

    def script(self) -> bytes:
        """A script to pay, sometimes one just beyond the window of its keychain."""
        chance, half = self.random.random(), len(self.of_keychains) // 2
        beyond = [each.scripts_at(each.end + self.random.randrange(5))[0] for each in self.client.watch.keychains]
        beyond = [each for each in beyond if each in self.keys]
        if chance < 0.5:
            found = self.of_keychains[self.random.choice((0, half)) + self.random.randrange(25)]
        elif chance < 0.65:
            found = self.random.choice(beyond or self.of_keychains)
        else:
            found = self.random.choice(self.single)
        self.paid[found] = None
        return found

    async def coins(self, least: int = 2_000) -> list[Coin]:
        """The wallet's coins that are worth spending, in random order."""
        found = [each for each in await self.client.coins() if each.value > least]
        found.sort(key=lambda coin: bytes(coin.outpoint))
        self.random.shuffle(found)
        return found

    async def entry(self, is_wanted: Callable[[HistoryEntry], bool]) -> HistoryEntry:
        """A transaction of the wallet. Raises ValueError if there is none."""
        found = sorted(filter(is_wanted, await self.client.history()), key=lambda entry: entry.txid)
        return self._one_of(found, "transaction")

    def mempool_tx(self) -> Transaction:
        found: list[Transaction] = [*self.regtest.mempool]
        return self._one_of(found, "transaction in the mempool")

    async def account(self) -> str:
        return self._one_of(await self.client.accounts(), "account")

    def keychain(self) -> str:
        return self._one_of([each.name for each in self.client.watch.keychains], "keychain")

    def watched_script(self) -> bytes:
        return self._one_of([each for each in self.keys if each in self.client.watch], "script")

    def _one_of(self, found: Sequence[T], what: str) -> T:
        if not found:
            raise ValueError(f"no {what}")
        return self.random.choice(found)

    def signed(self, coins: Sequence[TxIn], outputs: Sequence[TxOut]) -> bytes:
        return build_tx(coins, outputs, keys=[self.keys[each.spent.script_pubkey] for each in coins if each.spent])

    def spend(self, coins: Sequence[Coin]) -> bytes:
        """A signed spend of coins, which pays others, the wallet, or both."""
        left = sum(each.value for each in coins) - self.random.randrange(200, 900)
        outputs = []
        for _ in range(self.random.choice((1, 2, 3))):
            value = self.random.randrange(left + 1)
            outputs.append(TxOut(value, self.random.choice((THEIRS, self.script()))))
            left -= value
        outputs.append(TxOut(left, self.random.choice((self.script(), self.script(), THEIRS))))
        return self.signed([spent_by_wallet(each) for each in coins], outputs)

    async def broadcast(self, raw: bytes) -> str:
        """Broadcast, and let it wait in the background if no peer takes it."""
        try:
            async with asyncio.timeout(0.5):
                await self.client.broadcast(raw)
        except TimeoutError:
            return f"{shown(Transaction.parse(raw).txid)} waits"
        return shown(Transaction.parse(raw).txid)

    # The network

    async def fund(self) -> str:
        """Somebody pays coins to the main account that are large enough for most actions."""
        scripts = self.of_keychains[:3]
        self.paid |= dict.fromkeys(scripts)
        return shown(self.regtest.pay(*(TxOut(self.random.randrange(50_000, 99_000), each) for each in scripts)))

    async def receive(self) -> str:
        """Somebody pays the wallet, perhaps several of its scripts, or one script twice."""
        outputs = [TxOut(777, THEIRS)] * (self.random.random() < 0.3)
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            script = self.script()
            outputs.append(
                TxOut(self.random.choice((0, 1, 546, *self.random.choices(range(1_000, 99_000), k=2))), script)
            )
            if self.random.random() < 0.25:
                outputs.append(TxOut(self.random.randrange(600, 9_000), script))
        return shown(self.regtest.pay(*outputs))

    async def mine(self) -> None:
        self.now += BLOCK_S
        self.regtest.mine(self.random.choice((1, 1, 1, 2)))

    async def mine_to_wallet(self) -> None:
        """A coinbase pays the wallet, and may mature."""
        self.now += BLOCK_S
        self.regtest.mine(1, to=self.script())
        if self.random.random() < 0.5:
            self.regtest.mine(self.random.choice((3, 99, 100)))

    async def mine_later(self) -> None:
        self.now += self.random.choice((HOUR_S, DAY_S, 15 * DAY_S))
        self.regtest.mine()

    async def reorganize(self) -> str:
        """Replace the last blocks. Their transactions return to the mempool, and some are mined again."""
        self.now += BLOCK_S
        depth = min(self.random.choice((1, 1, 2, 3, 6)), max(1, self.regtest.height - 101))
        self.regtest.reorg(depth)
        if self.random.random() < 0.5:
            self.regtest.mine()
        return f"{depth} blocks"

    async def evict(self) -> str:
        return shown(*self.regtest.evict(self.mempool_tx().txid))

    async def bump_elsewhere(self) -> str:
        return shown(self.regtest.bump(self.mempool_tx().txid, keys=self.keys.values()))

    async def double_spend(self) -> str:
        return shown(self.regtest.double_spend(self.mempool_tx().txid, keys=self.keys.values()))

    async def double_spend_in_block(self) -> str:
        self.now += BLOCK_S
        tx = self.mempool_tx()
        return shown(self.regtest.double_spend(tx.txid, in_block=True, keys=self.keys.values()))

    async def spend_elsewhere(self) -> str:
        """Another device with the same keys spends coins."""
        coins = await self.coins()
        return shown(self.regtest.submit_tx(self.spend(self._few(coins))))

    async def deafen(self) -> str:
        """From now on, the nodes request no transactions, or do so again."""
        self.is_deaf = not self.is_deaf
        return str(self.is_deaf)

    def _few(self, coins: list[Coin]) -> list[Coin]:
        if not coins:
            raise ValueError("no coins")
        return coins[: self.random.choice((1, 1, 2, 3))]

    # The user's payments

    async def pay(self) -> str:
        return await self.broadcast(self.spend(self._few(await self.coins())))

    async def bump(self) -> str:
        """Replace one of the wallet's own transactions, perhaps with one more coin."""
        entry = await self.entry(lambda each: each.is_own and each.status in UNSENT)
        tx = Transaction.parse(entry.raw)
        inputs = [await self._own_input(OutPoint.parse(each)) for each in tx.inputs]
        others = [each for each in await self.coins() if bytes(each.outpoint) not in tx.inputs]
        if others and self.random.random() < 0.5:
            inputs.append(spent_by_wallet(others[0]))
        total = sum(each.spent.value for each in inputs if each.spent)
        fee = min(total, self.random.choice((100, 5_000, 9_000)))
        return await self.broadcast(self.signed(inputs, [TxOut(total - fee, self.script())]))

    async def bump_unheard(self) -> str:
        """The nodes hear a payment, but not its bump, which spends one more coin and thus waits for a peer."""
        coins = [spent_by_wallet(each) for each in await self.coins(12_000) if each.is_spendable][:2]
        if not coins:
            raise ValueError("no coins")
        total = sum(each.spent.value for each in coins if each.spent)
        self.is_deaf = False
        first = await self.broadcast(self.signed(coins[:1], [TxOut(11_000, THEIRS)]))
        self.is_deaf = True
        return f"{first}, {await self.broadcast(self.signed(coins, [TxOut(total // 10, THEIRS)]))}"

    async def _own_input(self, outpoint: OutPoint) -> TxIn:
        parent = await self.client.transaction(outpoint.txid)
        output = None if parent is None else Transaction.parse(parent.raw).output(outpoint.index)
        if output is None or output.script_pubkey not in self.keys:
            raise ValueError("it spends a coin of somebody else")
        return TxIn(outpoint, spent=TxOut(output.value, output.script_pubkey))

    async def broadcast_again(self) -> str:
        return await self.broadcast((await self.entry(lambda each: each.height is None)).raw)

    async def abandon(self) -> str:
        entry = await self.entry(lambda each: each.is_own and each.height is None)
        if self.random.random() < 0.3:
            return f"{shown(entry.txid)} unsent: {await self.client.abandon_unsent(entry.txid)}"
        await self.client.abandon(entry.txid)
        return shown(entry.txid)

    async def reveal(self) -> str:
        """Reveal an address, which must be new, and mostly pay it."""
        address = await self.client.reveal_address(self.keychain(), exclusive=self.random.random() < 0.5)
        assert address not in self.revealed, self.told_by(f"{address} was revealed twice")
        self.revealed.add(address)
        script = address_to_script(address, REGTEST)
        if script in self.keys and self.random.random() < 0.7:
            self.paid[script] = None
            self.regtest.pay(TxOut(4_321, script))
        return address

    async def freeze(self) -> None:
        await self.client.freeze(self._one_of(await self.coins(0), "coin").outpoint)

    async def unfreeze(self) -> None:
        await self.client.unfreeze(self._one_of(await self.client.read(lambda views: views.frozen()), "frozen coin"))

    # The user's wallet

    async def add_account(self) -> str:
        """Add single addresses, a keychain, or an address of a keychain as an account."""
        name, choice = self.random.choice("bcd"), self.random
        addresses = [script_to_address(each, REGTEST) or "" for each in choice.sample(self.single, 2)]
        shared = script_to_address(choice.choice(self.of_keychains[:30]), REGTEST)
        sources = choice.choice((addresses[:1], addresses, [choice.choice(self.descriptors)], [f"addr({shared})"]))
        await self.client.add_account(
            name,
            *sources,
            label=choice.choice((None, f"label {name}")),
            lookahead=LOOKAHEAD,
            extend=choice.random() < 0.5,
            from_height=choice.choice((None, None, self.regtest.height - 3)),
        )
        return f"{name}: {len(sources)} sources"

    async def remove_account(self) -> str:
        """Remove an account. The main one is mostly added again."""
        name = await self.account()
        await self.client.remove_account(name)
        if name == "main" and self.random.random() < 0.8:
            await self.client.add_account(name, *self.descriptors, label="main", lookahead=LOOKAHEAD)
        return name

    async def rename_account(self) -> str:
        old, new = await self.account(), self.random.choice(("main", "b", "x"))
        await self.client.rename_account(old, new)
        return f"{old} to {new}"

    async def add_script(self) -> str:
        script = self.random.choice((*self.single, *self.random.sample(self.of_keychains, 3)))
        height = self.random.choice((None, None, self.regtest.height - 2))
        await self.client.add_script(script, self.random.choice((None, "added")), from_height=height)
        return script.hex()

    async def remove_script(self) -> str:
        script = self.watched_script()
        await self.client.remove(script)
        return script.hex()

    async def relabel(self) -> None:
        await self.client.relabel(self.watched_script(), self.random.choice((None, "one", "two")))

    async def import_labels(self) -> None:
        """Label a transaction and an output, which may also freeze it."""
        labels = [Label("tx", (await self.entry(lambda each: True)).txid_hex, label="sent")]
        for coin in (await self.coins(0))[:1]:
            spendable = self.random.choice((True, False, None))
            labels.append(
                Label("output", str(coin.outpoint), label=self.random.choice((None, "kept")), spendable=spendable)
            )
        await self.client.import_labels(labels)

    async def watch_to(self) -> None:
        await self.client.watch_to(self.keychain(), self.random.randrange(30, 60))

    async def rescan(self) -> str:
        height = self.random.randrange(100, self.regtest.height + 1)
        await self.client.rescan(from_height=height)
        return f"from {height}"

    async def restart(self) -> str:
        """Stop and start, perhaps with another clock."""
        await self._run.aclose()
        self.slow_s = self.random.choice((0, 0, HOUR_S, 5_000))
        await self._start()
        return f"{self.slow_s} s slow"

    async def restart_after_reorganization(self) -> None:
        """While the client is stopped, blocks are replaced, and the wallet may be paid."""
        await self._run.aclose()
        await self.reorganize()
        if self.random.random() < 0.5:
            await self.receive()
        self.now += self.random.choice((0, DAY_S))
        self.regtest.mine()
        await self._start()

    async def rebuild(self) -> None:
        """Damage the database, and let the client build it again."""
        await self._run.aclose()
        with closing(sqlite3.connect(self.path, isolation_level=None)) as database:
            database.execute("UPDATE meta SET mark = mark + 1 WHERE key = 'totals'")
        await self._start(rebuild=True)


ACTIONS: dict[Callable[[Life], Awaitable[str | None]], int] = {
    Life.fund: 3,
    Life.receive: 12,
    Life.mine: 14,
    Life.mine_to_wallet: 3,
    Life.mine_later: 3,
    Life.reorganize: 9,
    Life.evict: 4,
    Life.bump_elsewhere: 6,
    Life.double_spend: 5,
    Life.double_spend_in_block: 4,
    Life.spend_elsewhere: 6,
    Life.deafen: 4,
    Life.pay: 14,
    Life.bump: 8,
    Life.bump_unheard: 8,
    Life.broadcast_again: 3,
    Life.abandon: 5,
    Life.reveal: 4,
    Life.freeze: 3,
    Life.unfreeze: 2,
    Life.add_account: 3,
    Life.remove_account: 3,
    Life.rename_account: 2,
    Life.add_script: 4,
    Life.remove_script: 3,
    Life.relabel: 3,
    Life.import_labels: 3,
    Life.watch_to: 1,
    Life.rescan: 3,
    Life.restart: 4,
    Life.restart_after_reorganization: 3,
    Life.rebuild: 1,
}
"""Everything that may happen, and how often."""


def spent_by_wallet(coin: Coin) -> TxIn:
    return TxIn(coin.outpoint, spent=TxOut(coin.value, coin.script_pubkey))


def shown(*txids: bytes) -> str:
    """The first digits of txids."""
    return " ".join(each[::-1].hex()[:8] for each in txids)
