"""Many accounts in one client: entry, reopening, memory, a block, and calls, for 10 to 10,000 accounts."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measure import Row

from spvfilter import (
    REGTEST,
    LightClient,
    Node,
    TxIn,
    TxOut,
    WalletStore,
    WatchList,
    build_tx,
    script_to_address,
)
from spvfilter.watch.keychain import GAP_LIMIT, Keychain

_ACCOUNTS = (10, 100, 1_000, 10_000)
_CALLS = 20
_PAID = 10  # transactions of the account that `WalletStore` is asked about
_OF_ACCOUNT = ("balance", "coins", "unspent", "history", "keychains", "next_address", "events")
_OF_ONE = ("transaction", "coin", "check", "psbt", "is_used", "searched_for", "block_time", "run_id")
_OF_WALLET = (
    *("balance", "coins", "unspent", "history", "events", "network", "tip", "sequence", "searched_height", "searched"),
    *("accounts", "frozen", "labels", "bip37_parameters"),
)
_LEFT_OUT = {"open", "close", "read", "moment", "bip37_elements"}  # no questions, and the elements of a whole filter
_WHAT = {  # title of each measurement, its goal, and the goal with its unit
    "entered": ("first entry, processor s", 30, "30 s"),
    "reopened": ("reopened, processor s", 3, "3 s"),
    "memory": ("memory, MB", 300, "300 MB"),
    "block": ("a block, processor s", 0.1, "0.1 s"),
    "balance": ("balance(account=), processor ms", 1, "1 ms"),
    **{f"account {name}": (f"WalletStore.{name} of one account, processor ms", 1, "1 ms") for name in _OF_ACCOUNT},
    **{f"one {name}": (f"WalletStore.{name}, processor ms", 1, "1 ms") for name in _OF_ONE},
    "script history": ("WalletStore.history of one script, processor ms", 1, "1 ms"),
    "wallet keychains": ("WalletStore.keychains of the wallet, processor s", 0.3, "0.3 s"),
    **{f"wallet {name}": (f"WalletStore.{name} of the wallet, processor ms", 1, "1 ms") for name in _OF_WALLET},
    "reveal": ("reveal_address, processor ms", 1, "1 ms"),
    "grown": ("reveal_address with growth of the window, processor ms", 1, "1 ms"),
    "added": ("100 accounts added, processor s", 1, "1 s"),
    "lag": ("longest lag of the event loop while entering, s", 0.02, "0.02 s"),
}
_WPKH = {  # the same for accounts of one wpkh descriptor each
    "listed": ("wpkh accounts listed, processor s", 30, "30 s"),
    "entered": ("wpkh accounts entered, processor s with children", 30, "30 s"),
    "reopened": ("wpkh accounts reopened, processor s", 3, "3 s"),
}


def accounts(_: Path, rounds: int) -> list[Row]:
    """Measure each number of accounts in a process of its own: with Python functions, and with descriptors."""
    del rounds  # processor time of one run
    rows = []
    for number in _ACCOUNTS:
        with tempfile.TemporaryDirectory() as folder:
            for kind, what in (("function", _WHAT), ("wpkh", _WPKH)):
                words = [sys.executable, __file__, str(number), str(Path(folder) / f"{kind}.db"), kind]
                found = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
                rows += [
                    Row(f"{number:,} accounts: {title}", found[name], goal, unit)
                    for name, (title, goal, unit) in what.items()
                ]
    return rows


def _script(account: int, index: int) -> bytes:
    return b"\x00\x14" + account.to_bytes(10, "big") + index.to_bytes(10, "big")


def _keychain(account: int) -> Keychain:
    return Keychain(f"keychain {account}", lambda index: (_script(account, index),), lookahead=GAP_LIMIT)


async def _lag(worst: list[float]) -> None:
    while True:
        begun = time.monotonic()
        await asyncio.sleep(0.001)
        worst[0] = max(worst[0], time.monotonic() - begun - 0.001)


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _watch(number: int) -> WatchList:
    watch = WatchList("regtest")
    for account in range(number):
        watch.add_account(f"account {account}", _keychain(account))
    return watch


async def _measured(number: int, database: str) -> dict[str, float]:
    found, worst = dict[str, float](), [0.0]
    async with Node() as node:
        node.regtest.mine(101)
        peers = [f"{node.host}:{node.port}"]
        lag = asyncio.create_task(_lag(worst))
        for step in ("entered", "reopened"):
            watch = await asyncio.to_thread(_watch, number)
            begun, worst[0] = time.process_time(), 0.0
            async with LightClient(watch, peers=peers, store=database, mode="compact") as client:
                await client.wait_synced()
                found[step] = time.process_time() - begun
                found["lag"] = max(found.get("lag", 0.0), worst[0])
                found.setdefault("memory", _resident())
                if step == "reopened":
                    lag.cancel()
                    found |= await _calls(client, node, number)
                    await _pay(client, node, number // 2)
    return found | _reads(database, number // 2)


async def _pay(client: LightClient, node: Node, account: int) -> None:
    """Let an account have ten transactions in blocks."""
    for index in range(_PAID):
        txid = node.regtest.pay(TxOut(1_000 + index, _script(account, index)))
        node.regtest.mine()
        await client.wait_confirmed(txid)


def _reads(database: str, account: int) -> dict[str, float]:
    """Ask every question of WalletStore: about one account, about one transaction or script, and about the wallet."""
    name, script = f"account {account}", _script(account, 3)
    with WalletStore.open(database) as wallet:
        newest, coin = wallet.history(account=name)[0], wallet.coins(account=name)[0]
        address = script_to_address(script, REGTEST)
        assert address is not None
        assert newest.height is not None
        assert newest.block_hash is not None
        height, block, last = newest.height, newest.block_hash, wallet.sequence()
        unsigned = build_tx([TxIn(coin.outpoint)], [TxOut(900, script)])
        of_account: dict[str, Callable[[], object]] = {
            "balance": lambda: wallet.balance(account=name),
            "coins": lambda: wallet.coins(account=name, limit=20),
            "unspent": lambda: wallet.unspent(account=name, limit=20),
            "history": lambda: wallet.history(account=name, limit=20),
            "keychains": lambda: wallet.keychains(account=name),
            "next_address": lambda: wallet.next_address(account=name),
            "events": lambda: wallet.events(0, limit=20, account=name),
        }
        of_one: dict[str, Callable[[], object]] = {
            "transaction": lambda: wallet.transaction(newest.txid),
            "coin": lambda: wallet.coin(coin.outpoint),
            "check": lambda: wallet.check(unsigned),
            "psbt": lambda: wallet.psbt(unsigned),
            "is_used": lambda: wallet.is_used(address),
            "searched_for": lambda: wallet.searched_for(script),
            "block_time": lambda: wallet.block_time(height, block),
            "run_id": lambda: wallet.run_id(last),
        }
        of_wallet: dict[str, Callable[[], object]] = {
            "balance": wallet.balance,
            "coins": lambda: wallet.coins(limit=20),
            "unspent": lambda: wallet.unspent(limit=20),
            "history": lambda: wallet.history(limit=20),
            "events": lambda: wallet.events(0, limit=20),
            **{each: partial(_asked, wallet, each) for each in _OF_WALLET[5:]},
        }
        assert ([*of_account], [*of_one], [*of_wallet]) == ([*_OF_ACCOUNT], [*_OF_ONE], [*_OF_WALLET])
        assert {each for each in dir(wallet) if each[0] != "_"} == {*_OF_ACCOUNT, *_OF_ONE, *_OF_WALLET} | _LEFT_OUT
        found = {
            f"{of} {each}": _processor_s(call, _CALLS) * 1e3
            for of, calls in (("account", of_account), ("one", of_one), ("wallet", of_wallet))
            for each, call in calls.items()
        }
        found["script history"] = _processor_s(lambda: wallet.history(script=script, limit=20), _CALLS) * 1e3
        return found | {"wallet keychains": _processor_s(wallet.keychains, 1)}


def _asked(wallet: WalletStore, question: str) -> object:
    """Ask a question that needs no argument."""
    attribute = getattr(wallet, question)
    return attribute() if callable(attribute) else attribute


def _processor_s(call: Callable[[], object], times: int) -> float:
    call()
    begun = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - begun) / times


async def _calls(client: LightClient, node: Node, number: int) -> dict[str, float]:
    found = dict[str, float]()
    begun = time.process_time()
    for call in range(_CALLS):
        await client.balance(account=f"account {call * 97 % number}")
    found["balance"] = (time.process_time() - begun) / _CALLS * 1e3
    begun = time.process_time()
    for call in range(_CALLS):
        await client.reveal_address(f"account {call * 97 % number}")
    found["reveal"] = (time.process_time() - begun) / _CALLS * 1e3
    begun = time.process_time()
    for _ in range(5 * _CALLS):  # the window grows by 40 at a time
        await client.reveal_address(f"account {number // 2}")
    found["grown"] = (time.process_time() - begun) / _CALLS / 5 * 1e3
    begun = time.process_time()
    for more in range(100):
        await client.add_account(f"more {more}", _keychain(number + more))
    found["added"] = time.process_time() - begun
    await client.wait_synced()
    node.regtest.pay(TxOut(1_000, _script(number // 2, 3)))
    node.regtest.mine()
    begun = time.process_time()
    while client.tip_height < node.regtest.height:  # noqa: ASYNC110  no event of the client tells it
        await asyncio.sleep(0.01)
    await client.wait_synced()
    return found | {"block": time.process_time() - begun}


def _descriptors(number: int) -> list[str]:
    """Return descriptors with different keys."""
    import wallycore  # the other measurements need no extra

    found = []
    for account in range(number):
        seed = hashlib.sha512(account.to_bytes(8, "big")).digest()
        key = wallycore.bip32_key_from_seed(seed, wallycore.BIP32_VER_TEST_PRIVATE, 0)
        found.append(f"wpkh({wallycore.bip32_key_to_base58(key, wallycore.BIP32_FLAG_KEY_PUBLIC)}/0/*)")
    return found


def _spent() -> float:
    """Processor time of this process and of its children, in seconds."""
    times = os.times()
    return sum(times[:4])


async def _measured_wpkh(number: int, database: str) -> dict[str, float]:
    """Measure the first entry, and the next one with an empty watch list: the database has the windows."""
    descriptors, watch, found = _descriptors(number), WatchList("regtest"), dict[str, float]()
    begun = _spent()
    for account, descriptor in enumerate(descriptors):
        watch.add_account(f"account {account}", descriptor, lookahead=GAP_LIMIT)
    found["listed"] = _spent() - begun
    for step, wanted in (("entered", watch), ("reopened", WatchList("regtest"))):
        begun = _spent()
        async with LightClient(wanted, peers=["127.0.0.1:1"], store=database, mode="compact"):
            found[step] = _spent() - begun
    return found


if __name__ == "__main__":
    measured = {"function": _measured, "wpkh": _measured_wpkh}[sys.argv[3]]
    print(json.dumps(asyncio.run(measured(int(sys.argv[1]), sys.argv[2]))))
