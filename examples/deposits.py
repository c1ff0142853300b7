"""List an exchange's deposits from a node's block files: one line of CSV for each payment to a customer's address.

python deposits.py ~/.bitcoin/blocks customers.csv --until 840000 > deposits.csv

Each line of customers.csv is address,customer. The name of a deposit is txid:output and never changes, so credit each
name once. `--until` is the height of the tip minus the number of confirmations that you require. Later blocks do not
count.
"""

import argparse
import asyncio
import csv
import sys
from collections import Counter

from spvfilter import BlockFiles, Matcher, MatchKind, WatchList, address_to_script
from spvfilter.errors import IncompleteScanError
from spvfilter.network import NETWORKS
from spvfilter.scan import BlockSpan


def read_customers(path: str, network: str) -> WatchList:
    watch = WatchList(network)
    with open(path, newline="", encoding="utf-8") as file:
        for address, customer in filter(None, csv.reader(file)):
            script = address_to_script(address, network)
            if script in watch or not customer.strip():
                raise ValueError(f"{path}: {address} must have one line, with one customer")
            watch.add_script(script, customer)
    return watch


async def write_deposits(blocks: BlockFiles, watch: WatchList, jobs: int) -> Counter[str]:
    """Write the deposits to standard output and return the total of each customer in satoshi."""
    total: Counter[str] = Counter()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["deposit", "customer", "satoshi", "height"])
    async for match in Matcher(watch, jobs=jobs, check=True).scan(blocks):
        if match.kind == MatchKind.OUTPUT and match.value is not None and match.label is not None:
            out.writerow([match.outpoint, match.label, match.value, match.height])
            total[match.label] += match.value
    return total


async def main() -> int:
    parser = argparse.ArgumentParser(description="List the deposits to customers' addresses in block files.")
    parser.add_argument("blocks", help="a folder of blk*.dat")
    parser.add_argument("customers", help="a file of address,customer")
    parser.add_argument("--until", type=int, required=True, metavar="HEIGHT", help="the last block that counts")
    parser.add_argument("--network", choices=[each.name for each in NETWORKS], default="mainnet")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()

    try:
        watch = read_customers(args.customers, args.network)
    except ValueError as error:
        parser.error(str(error))
    blocks = BlockFiles(args.blocks, span=BlockSpan(to_height=args.until))
    try:
        total = await write_deposits(blocks, watch, args.jobs)
    except IncompleteScanError as error:
        print(f"incomplete, do not close the books: {error}", file=sys.stderr)
        return 1
    for customer, satoshi in sorted(total.items()):
        print(f"{customer}: {satoshi} satoshi", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
