"""Measures the first synchronization of a wallet in a process of its own: racer.py CLIENT PORT.

CLIENT is one of `race.CLIENTS`: kyoto, or a mode (compact, bip37) and what is watched. `descriptor` means two keychains
with the default lookahead of 1,000 scripts, `lookahead` means two keychains with Kyoto's lookahead. With `addresses`,
the scriptPubKeys come on standard input, in hex, one a line. `-v2` at the end means an encrypted connection.

The times run from the start of the client until the wallet is at the tip and its rows are in a durable file. Imports
and the derivation of the first keys come before, except in `new`. The program prints one line of JSON:

- `wall`: seconds on the clock.
- `cpu`: seconds of processor time (user and system, all threads).
- `new`: seconds from the start of the program, with imports and the first keys.
- `size`: the largest resident size of the process, in MB.
- `height`, `value`: the tip, and the satoshi that were found.
"""

from __future__ import annotations

import time

_STARTED = time.perf_counter()

import asyncio  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

from measure import peak  # noqa: E402

sys.path.append(str(Path(__file__).parents[3] / "tests"))


async def _ours(name: str, port: int, folder: Path) -> dict[str, float]:
    import spvfilter.light.running  # noqa: F401  # not part of what is measured, as the import of bdkpython
    from spvfilter import LightClient, WatchList
    from support.oracles.kyoto import ACCOUNT, LOOKAHEAD

    mode, watched, *version = name.split("-")
    if version:
        import cryptography.hazmat.primitives.ciphers.aead  # noqa: F401
    watch = WatchList("regtest")
    if watched == "addresses":
        for line in sys.stdin.read().split():
            watch.add_script(bytes.fromhex(line))
    else:
        for chain in (0, 1):
            options = {"lookahead": LOOKAHEAD} if watched == "lookahead" else {}
            watch.add_descriptor(f"wpkh({ACCOUNT}/{chain}/*)", **options)
    figures = _Figures()
    async with LightClient(
        watch,
        peers=[f"127.0.0.1:{port}"],
        store=folder / "wallet.db",
        mode=mode,
        v2="require" if version else "off",
    ) as client:
        synced = await client.wait_synced()
        return figures.of(synced.height, (await client.balance()).confirmed)


async def _kyoto(port: int, folder: Path) -> dict[str, float]:
    import bdkpython  # noqa: F401  # not part of what is measured

    from support.oracles.kyoto import Kyoto

    figures = _Figures()
    async with Kyoto(folder, port) as kyoto:
        height = await kyoto.update()
        return figures.of(height, kyoto.balance())


class _Figures:
    """The times from here on."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def of(self, height: int, value: int) -> dict[str, float]:
        """All figures of a client that is at the tip now."""
        now = time.perf_counter()
        return {
            "wall": now - self._wall,
            "cpu": time.process_time() - self._cpu,
            "new": now - _STARTED,
            "size": peak() / 1e6,
            "height": height,
            "value": value,
        }


def main() -> None:
    name, port = sys.argv[1], int(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(_kyoto(port, Path(folder)) if name == "kyoto" else _ours(name, port, Path(folder)))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
