"""List the addresses that were paid more than once, with a scan in parts and a DuckDB query.

python reuse.py ~/.bitcoin/blocks addresses.txt found

It needs the `parquet` extra and DuckDB (`pip install duckdb`). The scan writes a Parquet file to the `found` folder. If
you stop the scan, run the same command to continue it. DuckDB queries the file without loading it into memory.
"""

import argparse
import asyncio
from pathlib import Path

import duckdb

from spvfilter import BlockFiles, WatchList
from spvfilter.network import NETWORKS
from spvfilter.scan import PartScan, Plan, Processes, scan_parts

REUSED = """
    SELECT address, count(DISTINCT txid) AS payments, sum(value) AS satoshi, count(DISTINCT value) AS amounts,
        date_diff('day', min(time), max(time)) AS days
    FROM read_parquet(?) WHERE kind = 'output' AND address IS NOT NULL
    GROUP BY address HAVING payments > 1 ORDER BY payments DESC, address LIMIT ?
"""
SHARE = """
    SELECT count(*), count(*) FILTER (payments > 1)
    FROM (
        SELECT count(DISTINCT txid) AS payments FROM read_parquet(?)
        WHERE kind = 'output' AND address IS NOT NULL GROUP BY address
    )
"""


async def scan(blocks: str, watch: WatchList, found: str, jobs: int) -> Path:
    plan = await asyncio.to_thread(Plan.of, BlockFiles(blocks), watch.network)
    engine = Processes(jobs)
    try:
        return await scan_parts(PartScan(found, plan, watch), "parquet", engine)
    finally:
        await engine.aclose()


def report(matches: Path, limit: int) -> None:
    db = duckdb.connect()
    used, reused = db.execute(SHARE, [str(matches)]).fetchall()[0]
    print(f"{reused} of {used} addresses were paid more than once")
    for address, payments, satoshi, amounts, days in db.execute(REUSED, [str(matches), limit]).fetchall():
        print(f"{address}: {payments} payments of {amounts} different amounts, {satoshi} satoshi in {days} days")


def main() -> None:
    parser = argparse.ArgumentParser(description="Find reused addresses.")
    parser.add_argument("blocks", help="a folder of blk*.dat")
    parser.add_argument("addresses", help="a watch list: one address per line")
    parser.add_argument("found", help="the folder for the scan's files")
    parser.add_argument("--network", choices=[each.name for each in NETWORKS], default="mainnet")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=20, help="addresses to list")
    args = parser.parse_args()

    watch = WatchList.load(args.addresses, args.network)
    report(asyncio.run(scan(args.blocks, watch, args.found, args.jobs)), args.limit)


if __name__ == "__main__":
    main()
