"""The race: spvfilter and BDK's Kyoto synchronize the same wallet for the first time, from the same node, in turns.

    .venv/bin/python scripts/dev/benchmarks/race.py [--node BINARY] [--rounds N] [--blocks N] [--matching N]

Without --node, the node is spvfilter's own. With it, BINARY is a bitcoind, to which the blocks are submitted. Each
client runs in a new process (racer.py), and the best of its rounds counts.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from sync import answer

from spvfilter.node import Regtest, scripts
from spvfilter.primitives import TxOut

sys.path.append(str(Path(__file__).parents[3] / "tests"))
TXS = 20  # in each block
VALUE = 1_000  # satoshi of each payment
OURS = tuple(
    f"{mode}-{watched}" for mode in ("compact", "bip37") for watched in ("descriptor", "lookahead", "addresses")
)
CLIENTS = (*OURS, "kyoto")
FIGURES = ("wall", "cpu", "new", "size")
_KINDS = (scripts.p2pkh, scripts.p2wpkh, scripts.p2tr, scripts.p2pk)


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """Blocks of 20 transactions, of which some pay the wallet once.

    Attributes:
        blocks: Number of blocks.
        matching: Number of blocks that pay the wallet. Each pays the next address of `addresses`, in turn.
        addresses: Number of addresses that are paid.
    """

    blocks: int
    matching: int
    addresses: int = 20


def made(chain: Chain, wanted: list[bytes]) -> Regtest:
    """A regtest chain that pays the scripts."""
    regtest, source = Regtest(), random.Random(1)
    regtest.mine(101)
    every = chain.blocks // chain.matching
    for block in range(chain.blocks):
        for each in range(TXS):
            kind, key = _KINDS[each % len(_KINDS)], source.randbytes(32)
            script = kind(key if kind is scripts.p2tr else b"\x02" + key).script_pubkey
            if each == TXS // 2 and block % every == 0 and block // every < chain.matching:
                script = wanted[block // every % chain.addresses]
            regtest.pay(TxOut(VALUE, script))
        regtest.mine()
    return regtest


def _serve(chain: Chain, wanted: list[bytes], pipe: Connection) -> None:
    answer(made(chain, wanted), pipe)


def _serve_core(chain: Chain, wanted: list[bytes], pipe: Connection) -> None:
    from support.oracles.bitcoind import running_bitcoind  # of the tests

    async def serve(folder: Path) -> None:
        regtest = made(chain, wanted)
        active = list(regtest.chain.active)
        async with running_bitcoind(folder) as core:
            for block in active[1:]:
                if (refused := await core.call("submitblock", block.raw.hex())) is not None:
                    raise RuntimeError(f"bitcoind refuses block {block.height}: {refused}")
            while True:
                index = (await core.call("getindexinfo"))["basic block filter index"]
                if index["best_block_height"] == regtest.height:
                    break
                await asyncio.sleep(0.1)
            pipe.send((core.port, regtest.height))
            await asyncio.to_thread(pipe.recv)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(serve(Path(folder)))


@contextmanager
def served(chain: Chain, binary: str | None) -> Iterator[tuple[int, int, list[bytes]]]:
    """Run the node in a process of its own. Yields its port, its height and the scripts of the wallet.

    `binary` is the path of a bitcoind. None means the embedded node.
    """
    from support.oracles.kyoto import Kyoto

    with tempfile.TemporaryDirectory() as folder:
        wanted = Kyoto(Path(folder), 1).scripts()
    if binary is not None:
        os.environ["BITCOIND"] = binary
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    target = _serve if binary is None else _serve_core
    server = context.Process(target=target, args=(chain, wanted, theirs), daemon=True)
    server.start()
    try:
        yield *ours.recv(), wanted
    finally:
        ours.send(None)
        server.join()


def race(
    chain: Chain, rounds: int, clients: tuple[str, ...] = CLIENTS, binary: str | None = None
) -> dict[str, dict[str, float]]:
    """The best figures of each client, in interleaved rounds."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
    with tempfile.TemporaryDirectory() as compiled, served(chain, binary) as (port, height, wanted):
        environment = _installed(Path(compiled))
        for _ in range(rounds):
            for name in clients:
                runs[name].append(_run(name, port, wanted, (height, VALUE * chain.matching), environment))
    return {name: {what: min(run[what] for run in runs[name]) for what in FIGURES} for name in clients}


def _installed(compiled: Path) -> dict[str, str]:
    """The environment in which the first run of a client compiles its modules, as pip does when it installs them.

    They go into the folder. Else each run would compile them again where Python is told not to write bytecode.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(compiled)}


def _run(
    name: str, port: int, wanted: list[bytes], due: tuple[int, int], environment: dict[str, str]
) -> dict[str, float]:
    """Run one client, which must find all payments."""
    command = [sys.executable, str(Path(__file__).with_name("racer.py")), name, str(port)]
    lines = "\n".join(script.hex() for script in wanted)
    made = subprocess.run(
        command, input=lines, capture_output=True, text=True, check=False, timeout=600, env=environment
    )
    if made.returncode:
        raise RuntimeError(f"{name} failed: {made.stderr}")
    figures: dict[str, float] = json.loads(made.stdout)
    if (figures["height"], figures["value"]) != due:
        raise RuntimeError(f"{name} is at block {figures['height']} with {figures['value']} satoshi, not at {due}")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--node", metavar="BINARY", help="a bitcoind; default: the node of spvfilter")
    parser.add_argument(
        "--rounds", type=int, default=7, help="interleaved rounds, the best of which counts (default 7)"
    )
    parser.add_argument("--blocks", type=int, default=5_000, help="length of the chain (default 5000)")
    parser.add_argument("--matching", type=int, default=1_000, help="blocks that pay the wallet (default 1000)")
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=CLIENTS, help="clients that run; default: all")
    chosen = parser.parse_args()
    clients = tuple(dict.fromkeys((*chosen.clients, "kyoto")))
    best = race(Chain(chosen.blocks, chosen.matching), chosen.rounds, clients, chosen.node)
    print(f"{'':<20}" + "".join(f"{what:>20}" for what in FIGURES))
    for name, figures in best.items():
        cells = (f"{figures[what]:8.2f} ({figures[what] / best['kyoto'][what]:5.2f})" for what in FIGURES)
        print(f"{name:<20}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
