"""A watch-only wallet: print the balance, the coins and the history of a descriptor, and its next unused address.

python watch_only.py "wpkh(xpub…/<0;1>/*)" --peer 127.0.0.1:8333 --db wallet.db --birthday 2024-01-31

It needs the `descriptors` extra.
"""

import argparse
import asyncio
from datetime import UTC, datetime

from spvfilter import LightClient, Progress, Synced, WatchList
from spvfilter.network import NETWORKS
from spvfilter.primitives import hash_to_hex

LATEST = 20  # most transactions to print


def day(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def bitcoin(satoshi: int) -> str:
    return f"{satoshi / 10**8:+.8f} BTC"


async def synced(client: LightClient) -> Synced:
    """Wait until the client has searched all blocks, and print the progress."""
    async for event in client.events():
        match event:
            case Progress(phase, done, total):
                print(f"{phase}: {done} of {total}".ljust(40), end="\r", flush=True)
            case Synced():
                return event
    raise AssertionError("the stream of events ended before the client")


async def show(client: LightClient) -> None:
    tip = await synced(client)
    balance = await client.balance()
    in_blocks = balance.confirmed + balance.immature
    print(f"\nblock {tip.height}: {bitcoin(in_blocks)}, {bitcoin(balance.spendable)} of it to spend now")
    if balance.pending_in:
        print("unconfirmed, not money yet:", bitcoin(balance.pending_in))
    if tip.skipped:
        print("not searched, before the birthday:", ", ".join(map(str, tip.skipped)))
    for coin in await client.coins():
        print(
            f"  {bitcoin(coin.value)}  {coin.outpoint}  {coin.address}  (index {coin.keychain_index},"
            f" {coin.completeness or 'unconfirmed'})"
        )
    print(f"latest transactions, at most {LATEST}:")
    for entry in await client.history(limit=LATEST):
        print(f"  {bitcoin(entry.net)}  {hash_to_hex(entry.txid)}  {entry.status}, {entry.confirmations} confirmations")
    print("next address:", await client.next_address())


async def main() -> None:
    parser = argparse.ArgumentParser(description="Show what a descriptor's wallet has.")
    parser.add_argument("descriptor", help="public keys only; <0;1> means receiving and change addresses")
    parser.add_argument("--network", choices=[each.name for each in NETWORKS], default="mainnet")
    parser.add_argument(
        "--peer", action="append", default=[], help="HOST:PORT of a node; by default the client looks for nodes"
    )
    parser.add_argument("--db", default="wallet.db")
    parser.add_argument("--birthday", type=day, help="YYYY-MM-DD; earlier blocks are not searched")
    args = parser.parse_args()

    watch = WatchList(args.network)
    watch.add_descriptor(args.descriptor)
    async with LightClient(
        watch, peers=args.peer, discover=not args.peer, store=args.db, birthday=args.birthday
    ) as client:
        await show(client)


if __name__ == "__main__":
    asyncio.run(main())
