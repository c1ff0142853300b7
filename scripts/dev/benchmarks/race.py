"""Measures the first synchronization of a wallet in a process of its own: race.py CLIENT PORT.

CLIENT is compact, bip37 or kyoto. The names compact-v2 and bip37-v2 mean the same over an encrypted connection. The
scriptPubKeys come on standard input, in hex, one a line. The times are from the start of the client until the wallet is
at the tip and its rows are in a durable file. The program prints one line of JSON:

- `wall`: seconds on the clock.
- `cpu`: seconds of processor time (user and system, all threads).
- `size`: the largest resident size of the process, in MB.
- `height`, `value`: the tip, and the satoshi that were found.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from pathlib import Path

from measure import peak

sys.path.append(str(Path(__file__).parents[3] / "tests"))

Found = tuple[int, int]  # height of the tip, satoshi received


async def _ours(name: str, port: int, folder: Path, scripts: list[bytes]) -> Found:
    from spvfilter import LightClient, Synced, WatchList

    watch, height = WatchList("regtest"), 0
    mode, v2 = name.removesuffix("-v2"), "require" if name.endswith("-v2") else "off"
    peers, store = [f"127.0.0.1:{port}"], folder / "wallet.db"
    for script in scripts:
        watch.add_script(script)
    async with LightClient(watch, peers=peers, store=store, mode=mode, v2=v2) as client:
        async for event in client.events():
            if isinstance(event, Synced):
                height = event.height
                break
        return height, sum(found.match.value or 0 for found in await client.matches())


async def _kyoto(port: int, folder: Path) -> Found:
    from support.kyoto import Kyoto

    async with Kyoto(folder, port) as kyoto:
        height = await kyoto.update()
        return height, kyoto.balance()


def main() -> None:
    name, port, scripts = sys.argv[1], int(sys.argv[2]), [bytes.fromhex(line) for line in sys.stdin.read().split()]
    if name == "kyoto":
        import bdkpython  # noqa: F401  # not part of what is measured
    else:
        import spvfilter.light.client
        import spvfilter.light.running  # noqa: F401
    if name.endswith("-v2"):
        import btclib_secp256k1.ellswift  # noqa: F401
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401  # as the import of bdkpython
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        wall, cpu = time.perf_counter(), time.process_time()
        height, value = asyncio.run(_kyoto(port, folder) if name == "kyoto" else _ours(name, port, folder, scripts))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"wall": wall, "cpu": cpu, "size": peak() / 1e6, "height": height, "value": value}))


if __name__ == "__main__":
    main()
