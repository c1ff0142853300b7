"""A shop: each order has its own address and is paid when payments to it have three confirmations.

python merchant.py "wpkh(xpub…/0/*)" 25000 9000 --network mainnet --peer 127.0.0.1:8333 --db shop.db

It needs the extra `descriptors`. The amounts are in satoshi, one for each order. Each order gets a new address, which
the program keeps in a file. After a restart the same command continues, and further amounts are new orders.
"""

import argparse
import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from spvfilter import LightClient, MatchFound, MatchKind, Network, Synced, WatchList
from spvfilter.wallet import BlockConnected

CONFIRMATIONS = 3


class Order(NamedTuple):
    number: int
    address: str
    amount: int  # satoshi


def load(file: Path) -> list[Order]:
    return [Order(*kept) for kept in json.loads(file.read_text())] if file.exists() else []


def save(file: Path, orders: list[Order]) -> None:
    file.with_suffix(".new").write_text(json.dumps(orders))
    file.with_suffix(".new").replace(file)


async def take_orders(client: LightClient, file: Path, amounts: list[int]) -> list[Order]:
    orders = load(file)
    for amount in amounts[len(orders) :]:
        address = await client.reveal_address("orders")  # no other order ever gets it, also after a crash here
        orders.append(Order(len(orders) + 1, address, amount))
        save(file, orders)
    return orders


async def received(client: LightClient) -> Counter[str]:
    """Satoshi that each address received in blocks with at least CONFIRMATIONS confirmations."""
    total: Counter[str] = Counter()
    deep = client.searched_height - CONFIRMATIONS + 1
    for match in [found.match for found in await client.matches()]:
        if match.kind == MatchKind.OUTPUT and match.height is not None and match.height <= deep and match.address:
            total[match.address] += match.value or 0
    return total


async def serve(client: LightClient, orders: list[Order]) -> None:
    waiting = list(orders)
    async for event in client.events():
        match event:
            case MatchFound(found) if found.kind == MatchKind.OUTPUT and found.height is None:
                print(f"seen, not yet confirmed: {found.value} satoshi for {found.address}", flush=True)
            case BlockConnected() | Synced():
                total = await received(client)
                for order in [order for order in waiting if total[order.address] >= order.amount]:
                    print(f"order {order.number} is paid: {total[order.address]} satoshi", flush=True)
                    waiting.remove(order)
                if not waiting:
                    return


async def main() -> None:
    parser = argparse.ArgumentParser(description="Wait until orders are paid.")
    parser.add_argument("descriptor", help="descriptor of the shop's receiving addresses, with public keys only")
    parser.add_argument("amounts", type=int, nargs="+", metavar="SATOSHI", help="amount of each order")
    parser.add_argument("--network", type=Network.named, default="mainnet")
    parser.add_argument(
        "--peer", action="append", required=True, help="HOST:PORT of a node; repeatable: the client compares nodes"
    )
    parser.add_argument("--db", default="shop.db")
    parser.add_argument("--orders", type=Path, default="orders.json")
    args = parser.parse_args()

    watch = WatchList(args.network)
    watch.add_descriptor(args.descriptor, "orders")
    async with LightClient(watch, peers=args.peer, store=args.db) as client:
        orders = await take_orders(client, args.orders, args.amounts)
        for order in orders:
            amount = f"{order.amount // 10**8}.{order.amount % 10**8:08}"
            print(f"order {order.number}: bitcoin:{order.address}?amount={amount}", flush=True)
        await serve(client, orders)


if __name__ == "__main__":
    asyncio.run(main())
