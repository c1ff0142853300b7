"""A shop: each order has its own address and is paid when payments to it have three confirmations.

python merchant.py "wpkh(xpub…/0/*)" 25000 9000 --network mainnet --peer 127.0.0.1:8333 --db shop.db

It needs the extra `descriptors`. The amounts are in satoshi, one for each order. Order n has the n-th address of the
descriptor, so after a restart the same command continues.
"""

import argparse
import asyncio
from collections import Counter
from typing import NamedTuple

from spvfilter import LightClient, MatchFound, MatchKind, Network, Synced, WatchList, script_to_address
from spvfilter.wallet import BlockConnected

CONFIRMATIONS = 3


class Order(NamedTuple):
    number: int
    address: str
    amount: int  # satoshi


def take_orders(watch: WatchList, descriptor: str, amounts: list[int]) -> list[Order]:
    (keychain,) = watch.add_descriptor(descriptor, "orders", lookahead=max(20, len(amounts)))
    scripts = [keychain.scripts_at(index)[0] for index in range(len(amounts))]
    addresses = [script_to_address(script, watch.network) for script in scripts]
    return [
        Order(number, address or "", amount)
        for number, (address, amount) in enumerate(zip(addresses, amounts, strict=True), 1)
    ]


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
    args = parser.parse_args()

    watch = WatchList(args.network)
    orders = take_orders(watch, args.descriptor, args.amounts)
    for order in orders:
        print(
            f"order {order.number}: bitcoin:{order.address}?amount={order.amount // 10**8}.{order.amount % 10**8:08}",
            flush=True,
        )
    async with LightClient(watch, peers=args.peer, store=args.db) as client:
        await serve(client, orders)


if __name__ == "__main__":
    asyncio.run(main())
