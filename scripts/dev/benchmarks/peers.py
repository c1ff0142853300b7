"""The race: spvfilter and BDK's Kyoto synchronize the same wallet for the first time, from the same node, in turns."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from measure import Row
from sync import answer

from spvfilter.node import Regtest, scripts
from spvfilter.primitives import TxOut

sys.path.append(str(Path(__file__).parents[3] / "tests"))
_BLOCKS = 10_000
_TXS = 20  # in each block
_RELEVANT = 1_000  # one transaction in this many pays the wallet
_VALUE = 1_000  # satoshi of each payment
_KINDS = (scripts.p2pkh, scripts.p2wpkh, scripts.p2tr, scripts.p2pk)


def _serve(ours: list[bytes], pipe: Connection) -> None:
    """Run a node with the chain, in a process of its own."""
    regtest, source = Regtest(), random.Random(1)
    regtest.mine(101)
    for number in range(_BLOCKS * _TXS):
        kind, key = _KINDS[number % len(_KINDS)], source.randbytes(32)
        foreign = kind(key if kind is scripts.p2tr else b"\x02" + key).script_pubkey
        turn, other = divmod(number, _RELEVANT)
        regtest.pay(TxOut(_VALUE, foreign if other else ours[turn % len(ours)]))
        if number % _TXS == _TXS - 1:
            regtest.mine()
    answer(regtest, pipe)


def peers(_: Path, rounds: int) -> list[Row]:
    """Measure wall time, processor time and memory of a first synchronization, each client in a new process."""
    if importlib.util.find_spec("bdkpython") is None:
        print("bench: bdkpython is not installed, so Kyoto is left out", file=sys.stderr)
        return []
    from support.kyoto import Kyoto  # of the tests

    with tempfile.TemporaryDirectory() as folder:
        wanted = Kyoto(Path(folder), 1).scripts()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=_serve, args=(wanted[: len(wanted) // 2], theirs), daemon=True)
    server.start()
    port, height = ours.recv()
    names = ("compact", "compact-v2", "bip37", "bip37-v2", "kyoto")
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    try:
        for _ in range(rounds):
            for name in names:
                runs[name].append(_raced(name, port, wanted, height))
    finally:
        ours.send(None)
        server.join()
    best = {name: {what: min(run[what] for run in runs[name]) for what in ("wall", "cpu", "size")} for name in names}
    rows = []
    for name in ("compact", "bip37"):
        for what, unit, factor, goal in (
            ("wall", "ms", 1e3, 0.5),
            ("cpu", "processor ms", 1e3, 0.6),
            ("size", "MB", 1.0, None),
        ):
            label = f"{_BLOCKS:,} blocks of {_TXS} transactions, {name}, {unit}"
            rows.append(
                Row(label, best[name][what] * factor, best["kyoto"][what] * factor, "Kyoto, compact filters", goal)
            )
        label = f"{_BLOCKS:,} blocks of {_TXS} transactions, {name}, encrypted, processor ms"
        encrypted, plain = (best[each]["cpu"] * 1e3 for each in (f"{name}-v2", name))
        rows.append(Row(label, encrypted, plain, "without encryption", 1.3))
    return rows


def _raced(name: str, port: int, wanted: list[bytes], height: int) -> dict[str, float]:
    """Measure one client, which must find all payments."""
    command = [sys.executable, str(Path(__file__).with_name("race.py")), name, str(port)]
    lines = "\n".join(script.hex() for script in wanted)
    made = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=600)
    figures = json.loads(made.stdout)
    due = _VALUE * _BLOCKS * _TXS // _RELEVANT
    if (figures["height"], figures["value"]) != (height, due):
        raise RuntimeError(
            f"{name} found {figures['value']} satoshi up to block {figures['height']}, not {due} up to {height}"
        )
    return {what: figures[what] for what in ("wall", "cpu", "size")}
