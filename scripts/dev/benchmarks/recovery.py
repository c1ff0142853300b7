"""Recovery: restores a wallet that used 3,000 addresses in random order, with spvfilter and with BDK's Kyoto.

Both restore it from its descriptor, from the same node, in turns. Each runs in a process of its own: recovery.py CLIENT
PORT LOOKAHEAD, which prints one line of JSON.

spvfilter has its default lookahead of 1,000 scripts, and extends the window itself. Kyoto searches no block twice, so
its lookahead is the whole final window of spvfilter. It also runs once with a lookahead of 1,000, to show how much it
finds then.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[3] / "tests"))

_BLOCKS = 10_000
_USED = 3_000
_FOREIGN = 3  # foreign transactions in each block
_VALUE = 1_000  # satoshi of each payment
_LOOKAHEAD = 1_000


def _descriptor() -> str:
    from support.oracles.kyoto import ACCOUNT

    return f"wpkh({ACCOUNT}/0/*)"


def _serve(pipe: Connection) -> None:
    """Run a node with the chain, in a process of its own."""
    from sync import answer

    from spvfilter.network import REGTEST
    from spvfilter.node import Regtest, scripts
    from spvfilter.primitives import TxOut
    from spvfilter.watch.descriptor import parse_descriptor

    regtest, source = Regtest(), random.Random(1)
    (descriptor,) = parse_descriptor(_descriptor(), REGTEST)
    regtest.mine(101)
    at = dict(zip(source.sample(range(_BLOCKS), _USED), source.sample(range(_USED), _USED), strict=True))
    for number in range(_BLOCKS):
        for _ in range(_FOREIGN):
            regtest.pay(TxOut(_VALUE, scripts.p2wpkh(b"\x02" + source.randbytes(32)).script_pubkey))
        if number in at:
            regtest.pay(TxOut(_VALUE, descriptor.scripts(at[number])[0]))
        regtest.mine()
    answer(regtest, pipe)


async def _ours(mode: str, port: int, lookahead: int, folder: Path) -> dict[str, int]:
    from spvfilter import LightClient, WatchList

    watch = WatchList("regtest")
    watch.add_descriptor(_descriptor(), lookahead=lookahead)
    async with LightClient(watch, peers=[f"127.0.0.1:{port}"], store=folder / "wallet.db", mode=mode) as client:
        synced = await client.wait_synced()
        (chain,) = await client.keychains()
        return {
            "height": synced.height,
            "value": (await client.balance()).confirmed,
            "used": len(chain.used),
            "window": chain.window,
        }


async def _kyoto(port: int, lookahead: int, folder: Path) -> dict[str, int]:
    import bdkpython

    bdk: Any = bdkpython
    rows = bdk.Persister.new_sqlite(str(folder / "bdk.sqlite"))
    wallet = bdk.Wallet.create_single(
        bdk.Descriptor(_descriptor(), bdk.NetworkKind.TEST), bdk.Network.REGTEST, rows, lookahead
    )
    peer = bdk.Peer(address=bdk.IpAddress.from_ipv4(127, 0, 0, 1), port=port, v2_transport=False)
    parts = (
        bdk.CbfBuilder().connections(1).peers([peer]).data_dir(str(folder)).scan_type(bdk.ScanType.SYNC()).build(wallet)
    )
    parts.node.run()
    wallet.apply_update(await parts.client.update())
    wallet.persist(rows)
    parts.client.shutdown()
    used = len({each.derivation_index for each in wallet.list_output()})
    window = (wallet.derivation_index(bdk.KeychainKind.EXTERNAL) or 0) + 1 + lookahead
    height = int(wallet.latest_checkpoint().height)
    return {"height": height, "value": int(wallet.balance().confirmed.to_sat()), "used": used, "window": window}


def main() -> None:
    from measure import peak

    name, port, lookahead = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if name == "kyoto":
        import bdkpython  # noqa: F401  # not part of what is measured
    else:
        import spvfilter.light.client
        import spvfilter.light.running  # noqa: F401
    with tempfile.TemporaryDirectory() as made:
        wall, cpu = time.perf_counter(), time.process_time()
        found = asyncio.run(
            _kyoto(port, lookahead, Path(made)) if name == "kyoto" else _ours(name, port, lookahead, Path(made))
        )
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(json.dumps({"wall": wall, "cpu": cpu, "size": peak() / 1e6, **found}))


def recovery(_: Path, rounds: int) -> list[Any]:
    """Measure wall time, processor time and memory of a restore."""
    from measure import Row

    if importlib.util.find_spec("bdkpython") is None or importlib.util.find_spec("wallycore") is None:
        print("bench: the suite recovery needs bdkpython and wallycore, and is left out", file=sys.stderr)
        return []
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    port, height = ours.recv()
    runs: dict[str, list[dict[str, float]]] = {"compact": [], "bip37": [], "kyoto": []}
    try:
        short = _restored("kyoto", port, _LOOKAHEAD)
        for _ in range(rounds):
            for name, made in runs.items():
                window = int(runs["compact"][0]["window"]) if name == "kyoto" else _LOOKAHEAD
                made.append(_restored(name, port, window))
                if (made[-1]["height"], made[-1]["value"], made[-1]["used"]) != (height, _VALUE * _USED, _USED):
                    raise RuntimeError(f"{name} is not complete: {made[-1]}")
    finally:
        ours.send(None)
        server.join()
    print(
        f"Kyoto with a lookahead of {_LOOKAHEAD:,} found {short['used']:.0f} of {_USED:,} addresses in"
        f" {short['wall']:.1f} s",
        file=sys.stderr,
    )
    best = {
        name: {what: min(run[what] for run in made) for what in ("wall", "cpu", "size")} for name, made in runs.items()
    }
    rows = []
    for name in ("compact", "bip37"):
        for what, unit, factor in (("wall", "ms", 1e3), ("cpu", "processor ms", 1e3), ("size", "MB", 1.0)):
            label = f"{_USED:,} addresses in random order in {_BLOCKS:,} blocks, {name}, {unit}"
            rows.append(
                Row(label, best[name][what] * factor, best["kyoto"][what] * factor, "Kyoto, given the window", None)
            )
    return rows


def _restored(name: str, port: int, lookahead: int) -> dict[str, float]:
    """Measure one client."""
    command = [sys.executable, __file__, name, str(port), str(lookahead)]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1_200)
    found: dict[str, float] = json.loads(made.stdout)
    print(name, lookahead, found, file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
