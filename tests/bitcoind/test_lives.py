"""Random lives of a wallet of Bitcoin Core: after each step the light client's books equal the answers of Core.

Core is payer, signer and judge. The client watches the descriptors of Core's wallet, once by compact filters and once
by BIP-37, and another client is started from nothing at the end. Each client has an Electrum server, which is asked
for the same. The commands `scan --follow` and `export --follow` run beside them. A failure names the seed and steps.
"""

from __future__ import annotations

import asyncio
import csv
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spvfilter.electrum import ElectrumServer
from spvfilter.light import LightClient
from spvfilter.network import REGTEST
from spvfilter.store import TxStatus
from spvfilter.watch import WatchList
from support.commands.processes import started
from support.oracles.bitcoind import Bitcoind, RpcError, running_bitcoind, satoshi
from support.peers.electrumclient import ElectrumClient
from support.vectors import effort

pytestmark = [pytest.mark.bitcoind, pytest.mark.columns, pytest.mark.long]
FOREIGN = "bcrt1qw508d6qejxtdg4y5r3zarvary0c5xw7kygt080"  # the key of BIP-173
SETTLED_S = 120  # for a client to see what Core sees
OPTIONS = ("-rest=1", "-maxmempool=5")  # megabytes
FILLING = 60  # transactions that fill the mempool
FILLING_SIZE = 95_000  # bytes of one of them
FUEL = Decimal("0.1")  # coins for one of them


class Served(NamedTuple):
    """A client, and a wallet that its Electrum server serves."""

    client: LightClient
    wallet: ElectrumClient


class World:
    """Two wallets in one node: `payer` mines and pays, and the clients watch `ours`."""

    def __init__(self, node: Bitcoind, seed: int) -> None:
        self.node = node
        self.draw = random.Random(seed)
        self.descriptors: list[str] = []
        self.steps: list[str] = []
        self.latest_conflict = 0  # height
        self.coins: list[dict[str, Any]] = []  # of `fill`
        self._unspents: tuple[str, list[dict[str, Any]]] = "", []

    async def begin(self) -> None:
        for name in ("payer", "ours"):
            await self.node.call("createwallet", name)
        self.address = await self.node.call("getnewaddress", wallet="payer")
        listed = await self.node.call("listdescriptors", wallet="ours")
        kinds = ("wpkh(", "tr(", "pkh(", "sh(wpkh(")
        self.descriptors = [each["desc"] for each in listed["descriptors"] if each["desc"].startswith(kinds)]
        await self.mine(110)
        for _ in range(3):
            await self.pay()
        await self.fuel()
        await self.mine(2)

    def watch(self) -> WatchList:
        watch = WatchList(REGTEST)
        for descriptor in self.descriptors:
            watch.add_descriptor(descriptor, lookahead=100)
        return watch

    async def mine(self, count: int = 1) -> None:
        await self.node.call("generatetoaddress", count, self.address)

    # Steps

    async def pay(self) -> None:
        """Pay our wallet, to an address of any type."""
        kind = self.draw.choice(("legacy", "p2sh-segwit", "bech32", "bech32m"))
        address = await self.node.call("getnewaddress", "", kind, wallet="ours")
        amount = f"{self.draw.randrange(1, 200) / 1000:.3f}"
        await self.node.call("sendtoaddress", address=address, amount=amount, replaceable=True, wallet="payer")

    async def spend(self) -> None:
        """Spend from our wallet, sometimes to itself, sometimes unconfirmed coins."""
        to = FOREIGN if self.draw.random() < 0.7 else await self.node.call("getnewaddress", wallet="ours")
        await self.node.call(
            "send",
            outputs=[{to: f"{self.draw.randrange(1, 40) / 1000:.3f}"}],
            fee_rate=self.draw.randrange(3, 20),
            options={"include_unsafe": self.draw.random() < 0.5},
            wallet="ours",
        )

    async def bump(self) -> None:
        """Replace an unconfirmed transaction by one with a higher fee."""
        for name in self.draw.sample(("payer", "ours"), 2):
            pool = await self.node.call("getrawmempool")
            for txid in self.draw.sample(pool, len(pool)):
                try:
                    await self.node.call("bumpfee", txid, wallet=name)
                    return
                except RpcError:  # of the other wallet, or with descendants
                    continue

    async def conflict(self) -> None:
        """Mine a block that spends a coin of an unconfirmed spend of ours to another place."""
        for txid in await self.node.call("getrawmempool"):
            try:
                sent = await self.node.call("gettransaction", txid, None, True, wallet="ours")
            except RpcError:
                continue
            if satoshi(sent["amount"]) >= 0 or "fee" not in sent:
                continue
            if await self._double_spend(sent["decoded"]["vin"][0], "ours"):
                return

    async def take_back(self) -> None:
        """Mine a block in which the payer takes an unconfirmed payment to us back, so that it pays only others."""
        for txid in await self.node.call("getrawmempool"):
            try:
                sent = await self.node.call("gettransaction", txid, None, True, wallet="payer")
                received = await self.node.call("gettransaction", txid, wallet="ours")
            except RpcError:
                continue
            is_payment = satoshi(received["amount"]) > 0 and "fee" not in received
            if is_payment:
                await self._filters_have_inputs()
            if is_payment and await self._double_spend(sent["decoded"]["vin"][0], "payer"):
                return

    async def _filters_have_inputs(self) -> None:
        """Wait until the client by BIP-37 has fetched the payments, as after a restart: its filter then has inputs."""
        before = list[int]()
        async with asyncio.timeout(SETTLED_S):
            while True:
                received = [each["bytesrecv_per_msg"] for each in await self.node.call("getpeerinfo")]
                added = [each.get("filteradd", 0) for each in received if "filterload" in each]
                if added and all(added) and added == before:
                    return
                before = added
                await asyncio.sleep(0.2)

    async def _double_spend(self, spent: dict[str, Any], wallet: str) -> bool:
        """Mine a block that spends the coin of an input to others. Returns False if the coin is unconfirmed."""
        coin = await self.node.call("gettxout", spent["txid"], spent["vout"], False)
        if coin is None:
            return False
        left = f"{(satoshi(coin['value']) - 5_000) / 100_000_000:.8f}"
        raw = await self.node.call(
            "createrawtransaction", [{"txid": spent["txid"], "vout": spent["vout"]}], {FOREIGN: left}
        )
        signed = await self.node.call("signrawtransactionwithwallet", raw, wallet=wallet)
        await self.node.call("generateblock", self.address, [signed["hex"]])
        self.latest_conflict = await self.node.call("getblockcount")
        return True

    async def package(self) -> None:
        """Pay our wallet without a fee, and pay for both by a child of the payment."""
        coin = (await self.node.call("listunspent", 1, wallet="payer"))[-1]
        version = self.draw.choice((2, 3))
        to = await self.node.call("getnewaddress", wallet="ours")
        parent = await self._signed("payer", coin, {to: f"{coin['amount']:.8f}"}, version)
        paid = (await self.node.call("decoderawtransaction", parent))["vout"][0]
        txid = (await self.node.call("decoderawtransaction", parent))["txid"]
        made = {"txid": txid, "vout": 0, "amount": paid["value"], "scriptPubKey": paid["scriptPubKey"]["hex"]}
        onward = self.draw.choice((FOREIGN, await self.node.call("getnewaddress", wallet="ours")))
        left = f"{(satoshi(paid['value']) - 20_000) / 100_000_000:.8f}"
        child = await self._signed("ours", made, {onward: left}, version)
        await self.node.call("submitpackage", [parent, child])

    async def _signed(self, wallet: str, coin: dict[str, Any], outputs: dict[str, str], version: int = 2) -> str:
        """A transaction that spends a coin, which may be in no block."""
        spent = [{"txid": coin["txid"], "vout": coin["vout"]}]
        raw = await self.node.call("createrawtransaction", spent, outputs, 0, True, version)
        known = {name: coin[name] for name in ("txid", "vout", "amount", "scriptPubKey")}
        signed: str = (await self.node.call("signrawtransactionwithwallet", raw, [known], wallet=wallet))["hex"]
        return signed

    async def fuel(self) -> None:
        """Make coins that only `fill` spends."""
        addresses = [await self.node.call("getnewaddress", wallet="payer") for _ in range(FILLING)]
        txid = await self.node.call("sendmany", "", dict.fromkeys(addresses, f"{FUEL:.8f}"), wallet="payer")
        sent = (await self.node.call("gettransaction", txid, None, True, wallet="payer"))["decoded"]
        made = [each for each in sent["vout"] if each["value"] == FUEL]
        coins = [{"txid": txid, "vout": each["n"]} for each in made]
        await self.node.call("lockunspent", False, coins, True, wallet="payer")
        self.coins = [
            {**coin, "amount": FUEL, "scriptPubKey": each["scriptPubKey"]["hex"]}
            for coin, each in zip(coins, made, strict=True)
        ]

    async def fill(self) -> None:
        """Fill the mempool with transactions of higher fees, so that the node evicts all others, once in a life.

        Clients let a node rest that sends more.
        """
        coins, self.coins = self.coins, []
        for rate, coin in enumerate(coins, 30):
            data = self.draw.randbytes(FILLING_SIZE).hex()
            left = f"{FUEL - Decimal(rate * FILLING_SIZE) / 100_000_000:.8f}"
            raw = await self._signed("payer", coin, {"data": data, FOREIGN: left})
            await self.node.call("sendrawtransaction", raw, 0)

    async def drain(self) -> None:
        """Mine what fills the mempool. A restart forgets its minimum fee."""
        await self.mine(8)
        await self.restart()

    async def some_blocks(self) -> None:
        await self.mine(self.draw.randrange(1, 4))

    async def reorganize(self) -> None:
        """Take the latest blocks back, and mine a longer branch, with or without their transactions.

        Blocks with a double-spend stay, since Core does not announce what it takes back into its mempool.
        """
        height = await self.node.call("getblockcount")
        depth = min(self.draw.randrange(1, 9), height - self.latest_conflict)
        if not depth:
            return
        self.address = await self.node.call("getnewaddress", wallet="payer")  # else a new block may equal an old one
        await self.node.call("invalidateblock", await self.node.call("getblockhash", height - depth + 1))
        if self.draw.random() < 0.5:
            await self.mine(depth + 1)
        else:
            for _ in range(depth + 1):
                await self.node.call("generateblock", self.address, [])

    async def restart(self) -> None:
        await self.node.stop()
        await self.again()

    async def kill(self) -> None:
        await self.node.stop(kill=True)
        await self.again()

    async def again(self) -> None:
        await self.node.start()
        for name in ("payer", "ours"):
            if name not in await self.node.call("listwallets"):
                await self.node.call("loadwallet", name)

    # The truth

    async def unspents(self) -> list[dict[str, Any]]:
        """The confirmed coins of our wallet, as Core describes them. It takes Core half a second for each tip."""
        if self._unspents[0] != await self.node.call("getbestblockhash"):
            wanted = [{"desc": each, "range": 100 + 2 * len(self.steps)} for each in self.descriptors]
            found = await self.node.call("scantxoutset", "start", wanted)
            self._unspents = found["bestblock"], found["unspents"]
        return self._unspents[1]

    async def pending(self) -> tuple[set[str], set[str]]:
        """The unconfirmed transactions of our wallet: those in the mempool, and the others."""
        pool = set(await self.node.call("getrawmempool"))
        listed = await self.node.call("listtransactions", "*", 1_000, wallet="ours")
        open_ones = {each["txid"] for each in listed if each["confirmations"] == 0 and not each.get("abandoned")}
        return open_ones & pool, open_ones - pool


Step = Callable[[World], Awaitable[None]]
STEPS: dict[Step, int] = {
    World.pay: 6,
    World.spend: 5,
    World.bump: 3,
    World.conflict: 2,
    World.take_back: 2,
    World.package: 2,
    World.some_blocks: 5,
    World.reorganize: 2,
    World.restart: 1,
    World.kill: 1,
}
FOLLOWING: dict[Step, list[Step]] = {World.fill: [World.drain]}
"""Steps after a step."""


async def differences(world: World, client: LightClient, unspents: list[dict[str, Any]]) -> list[str]:
    """Describe each difference between the client's books and Core's answers."""
    coins = {(each["txid"], each["vout"]): satoshi(each["amount"]) for each in unspents}
    pool, elsewhere = await world.pending()
    found = await client.coins()
    confirmed = {(each.outpoint.txid_hex, each.outpoint.index): each.value for each in found if each.height is not None}
    pending = {each.txid_hex for each in await client.history() if each.status is TxStatus.PENDING}
    balance = await client.balance()
    wrong = []
    if confirmed != coins:
        wrong.append(f"coins: missing {coins.keys() - confirmed.keys()}, extra {confirmed.keys() - coins.keys()}")
    if balance.confirmed + balance.immature != sum(coins.values()):
        wrong.append(f"balance {balance}, not {sum(coins.values())}")
    if not pool <= pending <= pool | elsewhere:
        wrong.append(f"pending: missing {pool - pending}, extra {pending - pool - elsewhere}")
    return wrong


async def served_differences(wallet: ElectrumClient, unspents: list[dict[str, Any]]) -> list[str]:
    """Describe each difference between the answers of a client's Electrum server and Core's about confirmed coins."""
    wrong, owned = [], dict[str, list[dict[str, Any]]]()
    for coin in unspents:
        owned.setdefault(coin["scriptPubKey"], []).append(coin)
    for script, coins in owned.items():
        scripthash = sha256(bytes.fromhex(script)).digest()[::-1].hex()
        balance = await wallet.ask("blockchain.scripthash.get_balance", scripthash)
        history = await wallet.ask("blockchain.scripthash.get_history", scripthash)
        there = {(each["tx_hash"], each["height"]) for each in history}
        if balance["confirmed"] != sum(satoshi(coin["amount"]) for coin in coins):
            wrong.append(f"the server's balance of {script}: {balance}, Core's coins: {coins}")
        if lacking := {(coin["txid"], coin["height"]) for coin in coins} - there:
            wrong.append(f"the server's history of {script} lacks {lacking}")
    return wrong


async def all_differences(world: World, each: Served) -> list[str]:
    unspents = await world.unspents()
    return await differences(world, each.client, unspents) or await served_differences(each.wallet, unspents)


async def scanned_differences(world: World, out: Path) -> list[str]:
    """Describe the difference between the rows of `scan --follow` and Core's coins."""
    coins = dict[tuple[str, str], tuple[int, int]]()
    if (path := out / "matches.csv").exists():
        with path.open(newline="") as rows:
            for row in csv.DictReader(rows):
                if row["kind"] == "output":
                    coins[row["txid"], row["index"]] = int(row["value"]), int(row["height"])
                else:
                    coins.pop((row["outpoint_txid"], row["outpoint_index"]), None)
    unspents = await world.unspents()
    truth = {(each["txid"], str(each["vout"])): (satoshi(each["amount"]), each["height"]) for each in unspents}
    return [] if coins == truth else [f"missing {truth.items() - coins.items()}, extra {coins.items() - truth.items()}"]


async def exported_differences(world: World, out: Path) -> list[str]:
    """Describe the difference between the coins of `export --follow` and those of Core."""
    import pyarrow.parquet as pq

    paths = sorted(out.glob("coins/*/coins.parquet"))  # noqa: ASYNC240  a few names
    if not paths:
        return ["there are no coins"]
    table = pq.read_table(paths[-1], partitioning=None).select(["transaction_hash", "index", "block_number", "value"])
    coins = {(each["transaction_hash"], each["index"]): each for each in table.to_pylist()}
    told = await world.node.call("gettxoutsetinfo", "none")
    unspents = await world.unspents()
    wrong = [each for each in unspents if (each["txid"], each["vout"]) not in coins]
    height = int(paths[-1].parent.name.removeprefix("height="))
    total = sum(each["value"] for each in coins.values())
    if (height, len(coins), total) != (told["height"], told["txouts"], satoshi(told["total_amount"])) or wrong:
        return [f"height {height}, {len(coins)} coins of {total}, not {told}; missing {wrong}"]
    return []


Look = Callable[[], Awaitable[list[str]]]


async def settle(world: World, looks: dict[str, Look], seed: int) -> None:
    """Wait until all clients, their Electrum servers and the commands agree with Core."""
    for name, look in looks.items():
        wrong = ["nothing was compared"]
        try:
            async with asyncio.timeout(SETTLED_S):
                while wrong := await look():  # noqa: ASYNC110  Core has no event for it
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"seed {seed}, {name}, after {world.steps}: {'; '.join(wrong)}", pytrace=False)


def client_of(world: World, store: Path, mode: str) -> LightClient:
    return LightClient(world.watch(), peers=[world.node.peer], store=store, mode=mode)


@asynccontextmanager
async def served(world: World, store: Path, mode: str) -> AsyncIterator[Served]:
    """A synced client, and a wallet that is connected to its Electrum server."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(client_of(world, store, mode))
        await client.wait_synced()
        server = await stack.enter_async_context(ElectrumServer(client, port=0))
        assert server.port is not None
        wallet = await stack.enter_async_context(ElectrumClient(server.port))
        await wallet.ask("server.version", "lives", "1.4")
        yield Served(client, wallet)


@asynccontextmanager
async def world_of(folder: Path, seed: int) -> AsyncIterator[World]:
    (folder / "node").mkdir()
    async with running_bitcoind(folder / "node", *OPTIONS) as node:
        world = World(node, seed)
        await world.begin()
        yield world


@contextmanager
def followed(world: World, folder: Path) -> Iterator[dict[str, Look]]:
    """The two commands that follow the chain: one reads Core's files, the other asks Core."""
    blocks, scanned, exported = world.node.folder / "regtest/blocks", folder / "scanned", folder / "exported"
    world.watch().save(folder / "list")
    rest = ("--network", "regtest", "--follow", "--every", 1, "--quiet")
    with ExitStack() as stack:
        stack.enter_context(started("scan", blocks, "--watch", folder / "list", "--out", scanned, *rest))
        stack.enter_context(started("export", world.node.url, "--out", exported, "--coins", "--hex", *rest))
        yield {
            "scan --follow": partial(scanned_differences, world, scanned),
            "export --follow": partial(exported_differences, world, exported),
        }


async def take(world: World, step: Step) -> None:
    """Take a step."""
    world.steps.append(step.__name__)
    try:
        await step(world)
    except RpcError as error:  # without funds, for example
        world.steps[-1] += f" ({error})"


@pytest.mark.parametrize("seed", range(effort(1, 2, 20)))
async def test_the_books_follow_a_wallet_of_core(tmp_path: Path, seed: int) -> None:
    async with world_of(tmp_path, seed) as world, AsyncExitStack() as stack:
        looks = dict[str, Look]()
        for mode in ("compact", "bip37"):
            each = await stack.enter_async_context(served(world, tmp_path / f"{mode}.db", mode))
            looks[mode] = partial(all_differences, world, each)
        looks |= stack.enter_context(followed(world, tmp_path))
        await settle(world, looks, seed)
        steps = world.draw.choices(list(STEPS), list(STEPS.values()), k=effort(10, 30, 200))
        steps[world.draw.randrange(len(steps))] = World.fill
        for step in steps:
            for each_step in (step, *FOLLOWING.get(step, ())):
                await take(world, each_step)
                await settle(world, looks, seed)
        for mode in ("compact", "bip37"):
            async with served(world, tmp_path / f"new-{mode}.db", mode) as late:
                await settle(world, {f"a new {mode} client": partial(all_differences, world, late)}, seed)
